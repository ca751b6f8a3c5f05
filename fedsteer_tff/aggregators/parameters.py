"""Checks of parameters that aggregators share."""

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from fedsteer_tff import arguments


def check_integer(
  name: str,
  value: Any,
  smallest: Optional[int] = None,
  largest: Optional[int] = None,
  largest_name: Optional[str] = None,
) -> None:
  """Checks that a parameter is an integer in a range.

  Args:
    name: Its name, for the message.
    value: Its value.
    smallest: Lower bound, or None.
    largest: Upper bound, or None.
    largest_name: What the upper bound is, for the message.

  Raises:
    TypeError: If `value` is not an integer.
    ValueError: If it is outside the range.
  """
  arguments.check_integer(name, value, smallest)
  if largest is not None and value > largest:
    bound = f'{largest_name}={largest}' if largest_name else f'{largest}'
    raise ValueError(f'{name} must be <= {bound}, found {value}')


def check_norm(name: str, value: Any) -> None:
  """Checks that a parameter is the length of a float32 vector.

  Args:
    name: Its name, for the message.
    value: Its value.

  Raises:
    TypeError: If `value` is not a number.
    ValueError: If it is not above 0, or 0 or infinite in float32.
  """
  arguments.check_number(name, value)
  limits = np.finfo(np.float32)
  # Written so that NaN is refused, too.
  if not float(limits.tiny) <= value <= float(limits.max):
    raise ValueError(
      f'{name} must be > 0 and finite in float32, found {value!r}'
    )


def check_population_size(name: str, value: Any) -> None:
  """Checks the number of clients, whose ids have 32 bits.

  Args:
    name: The parameter's name, for the message.
    value: N.

  Raises:
    TypeError: If it is not an integer.
    ValueError: If it is not in [1, 2^31].
  """
  check_integer(name, value, 1, 2**31)


def checked_core_set(
  core_set: Sequence[int], population_size: int
) -> tuple[int, ...]:
  """Returns a given core set as a tuple of ids.

  Args:
    core_set: Distinct client ids; may be empty.
    population_size: N.

  Returns:
    The ids as Python integers, in the same order.

  Raises:
    TypeError: If it is not a sequence of integers.
    ValueError: If an id is unknown or repeated.
  """
  try:
    ids = tuple(core_set)
  except TypeError as error:
    raise TypeError(
      f'core_set must be a sequence of client ids, found {core_set!r}'
    ) from error
  for client_id in ids:
    check_integer('core_set ids', client_id, 0)
    if client_id >= population_size:
      raise ValueError(
        f'core_set ids must be < population_size={population_size}, found '
        f'{client_id}'
      )
  if len(set(ids)) < len(ids):
    raise ValueError(f'core_set ids must be distinct, found {list(ids)}')
  return tuple(int(client_id) for client_id in ids)
