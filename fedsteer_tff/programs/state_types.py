"""What a state consists of, and how two of them differ, leaf by leaf.

A leaf is named by its path: field names, keys and places, joined by dots, such
as `global_model_weights.trainable.0`. Containers have no name: a list matches a
tuple, and an `OrderedDict` a struct of TFF with the same names.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

# So many leaves are named in a message, and the others are counted.
_NUM_NAMED = 3


class LeafType(NamedTuple):
  """What a leaf is, as far as that is known.

  Attributes:
    dtype: NumPy's name of its dtype; None for what is no array, of which any
      dtype and shape is right.
    shape: The lengths of its axes, None where any is right; None if any shape
      is.
  """

  dtype: Optional[str]
  shape: Optional[tuple[Optional[int], ...]]

  def __str__(self) -> str:
    if self.dtype is None:
      return 'a value'
    if self.shape is None:
      return f'{self.dtype} of any shape'
    axes = ', '.join('?' if n is None else str(n) for n in self.shape)
    return f'{self.dtype}[{axes}]'

  def matches(self, other: 'LeafType') -> bool:
    """Says whether a leaf may be of both types.

    Args:
      other: The other type.

    Returns:
      True, too, where nothing is known of one of them.
    """
    if self.dtype is None or other.dtype is None:
      return True
    if self.dtype != other.dtype:
      return False
    if self.shape is None or other.shape is None:
      return True
    return len(self.shape) == len(other.shape) and all(
      a is None or b is None or a == b for a, b in zip(self.shape, other.shape)
    )


_ANY = LeafType(None, None)
# By path, in the order of the leaves.
LeafTypes = dict[str, LeafType]


def of_value(state: Any) -> LeafTypes:
  """Returns what a state consists of.

  Args:
    state: Arrays in dicts, lists, tuples and named tuples.

  Returns:
    The types of its leaves by path, in the order of `tf.nest.flatten`.
  """
  return {'.'.join(path): _of_leaf(leaf) for path, leaf in _leaves((), state)}


def of_type(state_type: tff.Type) -> LeafTypes:
  """Returns what states of a type consist of.

  Args:
    state_type: The type of tensors in structs, placed or not.

  Returns:
    The types of its leaves by path, in the order of the type.
  """
  return {
    '.'.join(path): leaf for path, leaf in _leaves_of_type((), state_type)
  }


def differences(
  expected: Mapping[str, LeafType], found: Mapping[str, LeafType]
) -> Optional[str]:
  """Says how two states differ.

  Args:
    expected: What the one should consist of.
    found: What it consists of.

  Returns:
    One line that names the first leaves that are of another type, missing, or
    too many, and counts the others; None if there is no such leaf.
  """
  lines = []
  for path in dict.fromkeys((*expected, *found)):
    name = path or 'the state'
    if path not in found:
      lines.append(f'{name} must be {expected[path]}, found none')
    elif path not in expected:
      lines.append(f'{name} must not be there, found {found[path]}')
    elif not expected[path].matches(found[path]):
      lines.append(f'{name} must be {expected[path]}, found {found[path]}')
  if not lines:
    return None
  rest = len(lines) - _NUM_NAMED
  if rest > 0:
    more = 'one more leaf' if rest == 1 else f'{rest} more leaves'
    lines[_NUM_NAMED:] = [f'and {more}']
  return '; '.join(lines)


def to_json(types: Mapping[str, LeafType]) -> dict[str, Any]:
  """Returns types as what JSON can hold.

  Args:
    types: By path.

  Returns:
    Dtype and shape by path.
  """
  return {path: [leaf.dtype, leaf.shape] for path, leaf in types.items()}


def from_json(types: Mapping[str, Any]) -> LeafTypes:
  """Returns types that were kept as JSON.

  Args:
    types: What `to_json` returned.

  Returns:
    The types by path.
  """
  return {
    path: LeafType(dtype, None if shape is None else tuple(shape))
    for path, (dtype, shape) in types.items()
  }


def _of_leaf(leaf: Any) -> LeafType:
  if isinstance(leaf, (np.ndarray, np.generic)):
    return LeafType(leaf.dtype.name, leaf.shape)
  if isinstance(leaf, tf.Tensor):
    shape = leaf.shape.as_list() if leaf.shape.rank is not None else None
    return LeafType(leaf.dtype.name, None if shape is None else tuple(shape))
  return _ANY


def _leaves(
  path: tuple[str, ...], state: Any
) -> Iterator[tuple[tuple[str, ...], Any]]:
  children: Iterable[tuple[Any, Any]]
  if isinstance(state, Mapping):
    children = sorted(state.items(), key=lambda item: item[0])
  elif isinstance(state, tuple) and hasattr(state, '_fields'):
    children = zip(state._fields, state)
  elif isinstance(state, (list, tuple)):
    children = enumerate(state)
  else:
    yield path, state
    return
  for name, child in children:
    yield from _leaves((*path, str(name)), child)


def _leaves_of_type(
  path: tuple[str, ...], state_type: tff.Type
) -> Iterator[tuple[tuple[str, ...], LeafType]]:
  if isinstance(state_type, tff.FederatedType):
    state_type = state_type.member
  if isinstance(state_type, tff.TensorType):
    shape = state_type.shape
    yield (
      path,
      LeafType(
        np.dtype(state_type.dtype).name, None if shape is None else tuple(shape)
      ),
    )
  elif isinstance(state_type, tff.StructType):
    for i, (name, child) in enumerate(tff.structure.to_elements(state_type)):
      yield from _leaves_of_type((*path, name or str(i)), child)
  else:
    yield path, _ANY
