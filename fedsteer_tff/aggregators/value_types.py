"""What an aggregator is created for: updates with their clients' identities."""

import collections
import collections.abc
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

UPDATE, CLIENT_ID, PROBABILITY = (
  'update',
  'client_id',
  'participation_probability',
)


class ValueTypeError(TypeError):
  """The aggregated value does not carry an update and an identity."""


def check_value_type(value_type: tff.Type, weight_type: tff.Type) -> tff.Type:
  """Checks the types that an aggregator is created for.

  Args:
    value_type: Must be `<update=U, client_id=int32,
      participation_probability=float32>` where U has only floating tensors of
      fixed shapes.
    weight_type: Must be float32.

  Returns:
    U.

  Raises:
    ValueTypeError: If the types are others.
    ValueError: If U has no weights.
  """
  if not isinstance(value_type, tff.StructType) or [
    name for name, _ in tff.structure.to_elements(value_type)
  ] != [UPDATE, CLIENT_ID, PROBABILITY]:
    raise ValueTypeError(
      f'value_type must be <{UPDATE}=..., {CLIENT_ID}=int32, '
      f'{PROBABILITY}=float32>, found {value_type}. '
      '`fedsteer_tff.client_work` builds client work of that type.'
    )
  expected = {
    CLIENT_ID: tff.TensorType(np.int32),
    PROBABILITY: tff.TensorType(np.float32),
  }
  for name, wanted in expected.items():
    found = getattr(value_type, name)
    if not wanted.is_equivalent_to(found):
      raise ValueTypeError(f'value_type.{name} must be {wanted}, found {found}')
  if not tff.TensorType(np.float32).is_equivalent_to(weight_type):
    raise ValueTypeError(f'weight_type must be float32, found {weight_type}')
  update_type = value_type.update
  leaves = list(tensor_types(update_type))
  for leaf in leaves:
    dtype, shape = tf.as_dtype(leaf.dtype), tf.TensorShape(leaf.shape)
    if not dtype.is_floating or not shape.is_fully_defined():
      raise ValueTypeError(
        'value_type.update must have floating tensors of fixed shapes only, '
        f'found {leaf}'
      )
  if not sum(tf.TensorShape(leaf.shape).num_elements() for leaf in leaves):
    raise ValueError(
      'the model must have at least one trainable weight, found none '
      f'(value_type.update is {update_type})'
    )
  return update_type


def tensor_types(value_type: tff.Type) -> Iterator[tff.TensorType]:
  """Yields the tensor types of a structure, in order.

  Args:
    value_type: A tensor type or a structure of them.

  Yields:
    Each of its tensor types.

  Raises:
    ValueTypeError: If there is anything else in it.
  """
  if isinstance(value_type, tff.TensorType):
    yield value_type
    return
  if not isinstance(value_type, tff.StructType):
    raise ValueTypeError(
      f'value_type.update must be a structure of tensors, found {value_type}'
    )
  for _, child in tff.structure.to_elements(value_type):
    yield from tensor_types(child)


def tensors_in_order(value_type: tff.Type, value: Any) -> Iterator[tf.Tensor]:
  """Yields the tensors of a value in the order of its type.

  `tf.nest` would sort the names of a mapping.

  Args:
    value_type: A tensor type or a structure of them.
    value: A value of that type.

  Yields:
    Each of its tensors.
  """
  if isinstance(value_type, tff.TensorType):
    yield value
    return
  elements = tff.structure.to_elements(value_type)
  for index, (name, child) in enumerate(elements):
    is_mapping = isinstance(value, collections.abc.Mapping)
    yield from tensors_in_order(child, value[name if is_mapping else index])


def packed(value_type: tff.Type, parts: Iterator[tf.Tensor]) -> Any:
  """Inverse of `tensors_in_order`, with mappings and lists as structures.

  Args:
    value_type: A tensor type or a structure of them.
    parts: At least as many tensors as it has.

  Returns:
    The value.
  """
  if isinstance(value_type, tff.TensorType):
    return next(parts)
  items = [
    (name, packed(child, parts))
    for name, child in tff.structure.to_elements(value_type)
  ]
  if any(name is None for name, _ in items):
    return [part for _, part in items]
  return collections.OrderedDict(items)
