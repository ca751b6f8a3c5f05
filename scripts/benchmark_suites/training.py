"""What the suites train: a small model, its clients, and two algorithms."""

from collections.abc import Callable, Mapping, Sequence
import functools
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff.algorithms import composition

CLIENTS = 10
POPULATION = 100
CORE_SET_SIZE = 10
# Bytes of a number.
FLOAT = 4
_LEARNING_RATE = 0.01


class Work:
  """The local work of the suites: a CNN, three batches of 20 images.

  Attributes:
    num_weights: D.
    spec: The type of a batch.
  """

  def __init__(self, small: bool, dense_model: Optional[int] = None):
    self._width = 1 if small else 16
    self._dense_model = dense_model
    self.num_weights = self._keras_model().count_params()
    size = dense_model or (8 if small else 28)
    shape = [size] if dense_model else [size, size, 1]
    self._shape = shape
    self.spec = (
      tf.TensorSpec([None, *shape], tf.float32),
      tf.TensorSpec([None, 1], tf.int32),
    )

  def _keras_model(self) -> tf.keras.Model:
    layers = tf.keras.layers
    if self._dense_model:
      size = self._dense_model
      return tf.keras.Sequential([layers.Dense(size, input_shape=(size,))])
    width = self._width
    size = 28 if width > 1 else 8
    conv = functools.partial(
      layers.Conv2D, kernel_size=5, padding='same', activation='relu'
    )
    return tf.keras.Sequential(
      [
        layers.InputLayer([size, size, 1]),
        conv(width),
        layers.MaxPool2D(),
        conv(2 * width),
        layers.MaxPool2D(),
        layers.Flatten(),
        layers.Dense(16 * width, activation='relu'),
        layers.Dense(62),
      ]
    )

  def model_fn(self) -> tff.learning.models.VariableModel:
    """Returns the model."""
    return tff.learning.models.from_keras_model(
      self._keras_model(),
      tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      self.spec,
    )

  def fedavg(self) -> tff.learning.templates.LearningProcess:
    """Returns TFF's own FedAvg."""
    return tff.learning.algorithms.build_unweighted_fed_avg(
      self.model_fn,
      tff.learning.optimizers.build_sgdm(_LEARNING_RATE),
      # As FedSteer trains, and faster than TFF's default.
      loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )

  def fedavg_with_identities(self) -> tff.learning.templates.LearningProcess:
    """Returns FedAvg whose clients say who they are, and nobody listens."""
    return composition.compose_process(
      self.model_fn,
      _MeanWithoutIdentities(),
      client_weighting='known',
      client_optimizer=tff.learning.optimizers.build_sgdm(_LEARNING_RATE),
    )

  def fedsteer(
    self, aggregation: str = 'sketched_projection', **kwargs: Any
  ) -> tff.learning.templates.LearningProcess:
    """Returns FedSteer, with other arguments where they are given."""
    arguments: dict[str, Any] = dict(
      aggregation=aggregation,
      population_size=POPULATION,
      core_set_size=CORE_SET_SIZE,
      client_optimizer=tff.learning.optimizers.build_sgdm(_LEARNING_RATE),
      warmup_rounds=2,
    )
    return fedsteer_tff.build_fedsteer(self.model_fn, **{**arguments, **kwargs})

  def dataset(self, client_id: int) -> tf.data.Dataset:
    """Returns a client's three batches."""
    rng = np.random.default_rng(client_id)
    x = rng.normal(size=[60, *self._shape]).astype(np.float32)
    y = rng.integers(0, 62, size=[60, 1]).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(20)

  def client(
    self, client_id: int, population_size: int, probability: float
  ) -> Mapping[str, tf.data.Dataset]:
    """Returns a client's data, with its identity."""
    return fedsteer_tff.build_client_data(
      client_id,
      self.dataset(client_id),
      weight=1 / population_size,
      participation_probability=probability,
    )

  def data_for(
    self, algorithm: str, population_size: int = POPULATION, keep: bool = True
  ) -> Callable[[int], Sequence[Any]]:
    """Returns a function from a round to the data of its ten clients."""
    if algorithm == 'fedavg':
      make = self.dataset
    else:
      make = functools.partial(
        self.client,
        population_size=population_size,
        probability=CLIENTS / POPULATION,
      )
    if keep:
      make = functools.cache(make)

    def data(round_num):
      # All clients of 30 have been there when rounds are measured.
      return [make((round_num + 3 * i) % 30) for i in range(CLIENTS)]

    return data


class _MeanWithoutIdentities(tff.aggregators.WeightedAggregationFactory):
  """TFF's unweighted mean of identified updates, as FedAvg takes it."""

  def create(
    self, value_type: tff.Type, weight_type: tff.Type
  ) -> tff.templates.AggregationProcess:
    """Returns the process; its type is that of TFF's mean."""
    mean = tff.aggregators.UnweightedMeanFactory().create(value_type.update)

    @tff.federated_computation(
      mean.initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state, value, weight):
      del weight
      return mean.next(state, value.update)

    return tff.templates.AggregationProcess(mean.initialize, next_fn)
