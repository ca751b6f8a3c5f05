"""Checks of arguments that the modules of this package share."""

import numbers
from typing import Any


def check_integer(name: str, value: Any, smallest: int) -> int:
  """Checks that an argument is an integer that is large enough.

  Args:
    name: Its name, for the message.
    value: Its value.
    smallest: The least one.

  Returns:
    The value, as Python's own integer.

  Raises:
    TypeError: If it is no integer.
    ValueError: If it is too small.
  """
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(f'{name} must be an integer, found {value!r}')
  if value < smallest:
    raise ValueError(f'{name} must be >= {smallest}, found {value!r}')
  return int(value)
