"""One interface for all tasks, and how a task is put together from arrays."""

import collections
from collections.abc import Callable, Mapping
import dataclasses
import hashlib
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import arguments
from tasks import models
from tasks import partition as partition_lib

_TEST_BATCH_SIZE = 1000
# Keeps this stream apart from others that are keyed by the same seed.
_SHUFFLE_STREAM = 0x5E1F


@dataclasses.dataclass(frozen=True, eq=False)
class LabelledImages:
  """What a task's loader returns: arrays, before they are given to clients.

  Attributes:
    train_images: Uint8 [n, height, width, channels], the larger the more ink.
    train_labels: Int64 [n], in [0, num_classes).
    test_images: As `train_images`.
    test_labels: As `train_labels`.
    num_classes: Number of classes.
    largest_pixel: The value that becomes 1.0; 0 becomes 0.0.
    train_owners: Int64 [n], which of the natural clients made the image, or
      None if that is unknown.
  """

  train_images: np.ndarray
  train_labels: np.ndarray
  test_images: np.ndarray
  test_labels: np.ndarray
  num_classes: int
  largest_pixel: int
  train_owners: Optional[np.ndarray] = None


@dataclasses.dataclass(frozen=True, eq=False)
class FederatedTask:
  """Clients with data, a test set, a model, and its metrics.

  Attributes:
    name: The task's name.
    client_datasets: N eager datasets in memory. Elements are batches (x, y),
      float32 [None, height, width, channels] in [0, 1] and int32 [None, 1].
      The local epochs are applied. With `mask_absent_classes`, x is
      `OrderedDict(images=..., class_mask=...)`, see `models.with_class_mask`.
    num_examples: Int64 [N], the clients' numbers of different examples.
    client_labels: N int64 arrays, the classes of each client.
    test_dataset: Batches of the same kind, one pass over the test set (or over
      what is evaluated on in its place); no class is masked there.
    element_spec: The spec of these batches.
    num_classes: Number of classes.
    keras_model_fn: Returns a new uncompiled model from images to logits;
      always with the same initial weights.
    fingerprint: Hexadecimal digest of which client holds which examples in
      which order, and of the test set: equal for equal data and partition,
      wherever the files lie and however a client trains.
    parameters: What the task was made from, defaults filled in, for logs.
    mask_absent_classes: Whether the logits of classes that a client does not
      have are 0 while it trains.
  """

  name: str
  client_datasets: tuple[tf.data.Dataset, ...]
  num_examples: np.ndarray
  client_labels: tuple[np.ndarray, ...]
  test_dataset: tf.data.Dataset
  element_spec: tuple[Any, tf.TensorSpec]
  num_classes: int
  keras_model_fn: Callable[[], tf.keras.Model]
  fingerprint: str
  parameters: Mapping[str, Any]
  mask_absent_classes: bool = False

  @property
  def num_clients(self) -> int:
    """N, the number of clients."""
    return len(self.client_datasets)

  def model_fn(self) -> tff.learning.models.VariableModel:
    """Builds the model for TFF, with cross-entropy and 'accuracy'.

    Returns:
      A new model; its metrics are 'accuracy', 'loss', 'num_examples' and
      'num_batches'.
    """
    model = self.keras_model_fn()
    if self.mask_absent_classes:
      model = models.with_class_mask(model, self.num_classes)
    return tff.learning.models.from_keras_model(
      model,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=self.element_spec,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name='accuracy')],
    )

  def baseline_task(self) -> tff.simulation.baselines.BaselineTask:
    """Wraps the task for code that expects one of TFF's baseline tasks.

    Returns:
      A `tff.simulation.baselines.BaselineTask` with clients '0', '1', ...,
      whose datasets are preprocessed already. Copies the training data.
    """
    firsts = [
      next(ds.unbatch().batch(int(n)).as_numpy_iterator())
      for ds, n in zip(self.client_datasets, self.num_examples)
    ]
    arrays = tf.nest.map_structure(lambda *a: np.concatenate(a), *firsts)
    ends = np.cumsum(self.num_examples)
    starts = ends - self.num_examples
    batch_size = self.parameters['batch_size']
    local_epochs = self.parameters['local_epochs']

    def dataset_fn(client_id):
      client = tf.strings.to_number(client_id, tf.int64)
      start, end = tf.gather(starts, client), tf.gather(ends, client)
      return _batched(
        tf.nest.map_structure(lambda a: tf.constant(a)[start:end], arrays),
        batch_size,
        local_epochs,
      )

    train_data = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
      [str(i) for i in range(self.num_clients)], dataset_fn
    )
    datasets = tff.simulation.baselines.BaselineTaskDatasets(
      train_data=train_data, test_data=self.test_dataset
    )
    return tff.simulation.baselines.BaselineTask(datasets, self.model_fn)


def assemble(
  name: str,
  data: LabelledImages,
  partition: partition_lib.Partition,
  *,
  model: str,
  batch_size: int = 500,
  local_epochs: int = 5,
  seed: int = 0,
  mask_absent_classes: bool = False,
  parameters: Optional[Mapping[str, Any]] = None,
) -> FederatedTask:
  """Puts a task together.

  Args:
    name: The task's name.
    data: The examples.
    partition: Which training example belongs to whom.
    model: A name that `models.get_builder` knows.
    batch_size: Largest batch, >= 1. A client with no more examples than that
      has one batch per epoch. Examples of other clients are put into a random
      order once, determined by `seed` and the client's number; every epoch of
      every round has that order, so a round can be repeated exactly.
    local_epochs: Passes over a client's data in one round, >= 1.
    seed: Determines the initial weights and the order of the examples.
    mask_absent_classes: Whether a client trains with the logits of classes
      outside its `client_labels` set to 0, see `models.with_class_mask`.
    parameters: Additional entries for the task's `parameters`.

  Returns:
    The task.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If an argument is out of range.
  """
  for argument, value, smallest in (
    ('batch_size', batch_size, 1),
    ('local_epochs', local_epochs, 1),
    ('seed', seed, 0),
  ):
    arguments.check_integer(argument, value, smallest)
  if not isinstance(mask_absent_classes, (bool, np.bool_)):
    raise TypeError(
      f'mask_absent_classes must be a bool, found {mask_absent_classes!r}'
    )
  builder = models.get_builder(model)
  input_shape = tuple(data.train_images.shape[1:])

  def keras_model_fn():
    return builder(input_shape, data.num_classes, seed)

  # Fails here, not in the first round, if the images do not fit the model.
  with tf.Graph().as_default():
    keras_model_fn()

  def batches(images, labels, classes, size, epochs):
    x = images.astype(np.float32) / np.float32(data.largest_pixel)
    y = labels.astype(np.int32)[:, np.newaxis]
    if mask_absent_classes:
      # With every example, since a batch is all that a model gets to see.
      mask = np.zeros([len(x), data.num_classes], np.float32)
      mask[:, classes] = 1
      x = collections.OrderedDict(images=x, class_mask=mask)
    return _batched((x, y), size, epochs)

  client_datasets = []
  digest = hashlib.sha256()
  for client, indices in enumerate(partition.client_indices):
    _add_examples(
      digest, data.train_images[indices], data.train_labels[indices]
    )
    if len(indices) > batch_size:
      generator = np.random.default_rng([_SHUFFLE_STREAM, seed, client])
      indices = generator.permutation(indices)
    client_datasets.append(
      batches(
        data.train_images[indices],
        data.train_labels[indices],
        partition.client_labels[client],
        batch_size,
        local_epochs,
      )
    )
  test_dataset = batches(
    data.test_images,
    data.test_labels,
    np.arange(data.num_classes),
    _TEST_BATCH_SIZE,
    1,
  )
  _add_examples(digest, data.test_images, data.test_labels)
  return FederatedTask(
    name=name,
    client_datasets=tuple(client_datasets),
    num_examples=partition.num_examples,
    client_labels=partition.client_labels,
    test_dataset=test_dataset,
    element_spec=test_dataset.element_spec,
    num_classes=data.num_classes,
    keras_model_fn=keras_model_fn,
    fingerprint=digest.hexdigest(),
    parameters={
      **(parameters or {}),
      'model': model,
      'batch_size': int(batch_size),
      'local_epochs': int(local_epochs),
      'seed': int(seed),
      'mask_absent_classes': bool(mask_absent_classes),
    },
    mask_absent_classes=bool(mask_absent_classes),
  )


def _add_examples(digest, images: np.ndarray, labels: np.ndarray) -> None:
  # The number comes first, so that no two splits give the same bytes.
  for array in (np.int64(len(labels)), images, labels.astype(np.int64)):
    digest.update(array.tobytes())


def _batched(arrays, batch_size: int, epochs: int) -> tf.data.Dataset:
  dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size)
  return dataset.repeat(epochs)
