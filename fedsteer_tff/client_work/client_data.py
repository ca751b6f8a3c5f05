"""The data of a client that can say who it is.

TFF's learning processes accept only structures of sequences as client data, so
the identity travels as a sequence of exactly one element next to the examples:

    <ident=<client_id=int32, weight=float32,
            participation_probability=float32>*,
     data=<x, y>*>

An identity inside every batch would be lost for a client without examples.
"""

import collections
from collections.abc import Mapping
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import arguments
from fedsteer_tff.participation import identity

# The smallest number above 0 in float32.
_SMALLEST_PROBABILITY = float(np.finfo(np.float32).smallest_subnormal)


def identity_type() -> tff.StructType:
  """Returns the type of an identity.

  Returns:
    `<client_id=int32, weight=float32, participation_probability=float32>`, the
    element of `ident`.
  """
  return tff.to_type(
    collections.OrderedDict(
      client_id=tff.TensorType(np.int32),
      weight=tff.TensorType(np.float32),
      participation_probability=tff.TensorType(np.float32),
    )
  )


def client_data_type(model_fn: Any) -> tff.StructType:
  """Returns the type of the client data that trains a model.

  Args:
    model_fn: A no-argument callable that builds a `VariableModel`, or a
      `FunctionalModel`.

  Returns:
    The type `<ident, data>` of this module's docstring.
  """
  if callable(model_fn):
    with tf.Graph().as_default():
      spec = model_fn().input_spec
  else:
    spec = model_fn.input_spec
  return tff.to_type(
    collections.OrderedDict(
      ident=tff.SequenceType(identity_type()),
      data=tff.SequenceType(tff.types.tensorflow_to_type(spec)),
    )
  )


def build_identity_dataset(
  client_id: Any, weight: Any, participation_probability: Any
) -> tf.data.Dataset:
  """Returns the one-element `ident` sequence; also works inside a graph.

  Args:
    client_id: Integer scalar.
    weight: Float scalar.
    participation_probability: Float scalar; NaN where nobody knows it, with
      processes that estimate it.

  Returns:
    A dataset of one element, of `identity_type`.

  Raises:
    TypeError: If an argument is not a scalar, or the id not an integer.
    ValueError: If the id is known, and is none that a client can have.
  """
  client_id, weight, participation_probability = (
    _scalar(name, value, words, is_right)
    for name, value, words, is_right in (
      ('client_id', client_id, 'an integer', lambda d: d.is_integer),
      ('weight', weight, 'a number', _is_number),
      (
        'participation_probability',
        participation_probability,
        'a number',
        _is_number,
      ),
    )
  )
  known = tf.get_static_value(client_id)
  if known is not None and not identity.PADDING_CLIENT_ID <= known < 2**31:
    raise ValueError(
      'client_id must be in [0, 2**31), or -1 for a client that stands for'
      f' nobody, found {known}'
    )
  element = collections.OrderedDict(
    client_id=tf.cast(client_id, tf.int32),
    weight=tf.cast(weight, tf.float32),
    participation_probability=tf.cast(participation_probability, tf.float32),
  )
  return tf.data.Dataset.from_tensors(element)


def build_client_data(
  client_id: int,
  dataset: tf.data.Dataset,
  *,
  weight: float,
  participation_probability: Optional[float],
) -> Mapping[str, tf.data.Dataset]:
  """Returns the client data that FedSteer's `next` takes for one client.

  Args:
    client_id: Integer in [0, population size).
    dataset: Batches of (x, y), as the model takes them. May be empty.
    weight: d_i >= 0, the client's share of the population, summing to 1 over
      all clients. With `client_weighting='examples'` any value does, since the
      examples are counted.
    participation_probability: p_i in (0, 1], the probability that this client
      is active in this round; 1 where it was made to be. None where nobody
      knows it, with processes that estimate it.

  Returns:
    `ident`, a dataset of one element, and `data`, the dataset as it was given.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If a number is outside its range.
  """
  arguments.check_integer('client_id', client_id, 0)
  if client_id > 2**31 - 1:
    raise ValueError(f'client_id must be below 2**31, found {client_id}')
  if not isinstance(dataset, tf.data.Dataset):
    raise TypeError(f'dataset must be a tf.data.Dataset, found {dataset!r}')
  # Without the model's input_spec no more can be known: examples may have axes.
  if any(
    isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0
    for spec in tf.nest.flatten(dataset.element_spec)
  ):
    raise TypeError(
      'dataset must be of batches, tensors whose first axis is that of the'
      f' examples, found elements of {dataset.element_spec!r} for client'
      f' {client_id}: apply batch'
    )
  if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
    raise ValueError(
      'dataset must have an end, found one that repeats for ever for client'
      f' {client_id}: give repeat a number'
    )
  if participation_probability is None:
    participation_probability = float('nan')
  else:
    _check_probability(participation_probability, client_id)
  arguments.check_number('weight', weight)
  if not 0 <= weight <= tf.float32.max:
    raise ValueError(
      f'weight must be finite and >= 0, found {weight!r} for client {client_id}'
    )
  ident = build_identity_dataset(
    int(client_id), weight, participation_probability
  )
  return collections.OrderedDict(ident=ident, data=dataset)


def padding_client_data(element_spec: Any) -> Mapping[str, tf.data.Dataset]:
  """Returns the data of a client that is ignored.

  TFF 0.87 keeps an executor for every cohort size it has seen; padding cohorts
  to one size keeps its memory flat.

  Args:
    element_spec: The `element_spec` of the other clients' (batched) datasets.

  Returns:
    What `build_client_data` does, with id -1, weight 0 and no batches.

  Raises:
    TypeError: If `element_spec` is not that of batches.
  """
  specs = tf.nest.flatten(element_spec)
  if not specs or not all(
    isinstance(spec, tf.TensorSpec) and spec.shape.rank for spec in specs
  ):
    raise TypeError(
      'element_spec must be that of a dataset of batches, tensors whose first'
      f' axis is that of the examples, found {element_spec!r}'
    )
  no_examples = [
    tf.zeros([0] + [size or 0 for size in spec.shape[1:]], spec.dtype)
    for spec in specs
  ]
  examples = tf.data.Dataset.from_tensor_slices(
    tf.nest.pack_sequence_as(element_spec, no_examples)
  )
  batch_size = specs[0].shape[0]
  batches = examples.batch(batch_size or 1, drop_remainder=bool(batch_size))
  ident = build_identity_dataset(identity.PADDING_CLIENT_ID, 0.0, 1.0)
  return collections.OrderedDict(ident=ident, data=batches)


def _is_number(dtype: tf.DType) -> bool:
  return dtype.is_integer or dtype.is_floating


def _scalar(
  name: str, value: Any, words: str, is_right: Callable[[tf.DType], bool]
) -> tf.Tensor:
  try:
    tensor = tf.convert_to_tensor(value)
  except (TypeError, ValueError) as error:
    raise TypeError(f'{name} must be {words}, found {value!r}') from error
  if not is_right(tensor.dtype) or tensor.shape.rank not in (0, None):
    raise TypeError(f'{name} must be {words}, found {value!r}')
  return tensor


def _check_probability(value: Any, client_id: int) -> None:
  arguments.check_number('participation_probability', value)
  # Below that it is 0 in float32.
  if not _SMALLEST_PROBABILITY <= value <= 1:
    raise ValueError(
      f'participation_probability must be in (0, 1], found {value!r} for '
      f'client {client_id}'
    )
