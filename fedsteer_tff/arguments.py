"""Checks of numbers that are given as arguments.

Below all other modules, which take their rules from here.
"""

import math
import numbers
from typing import Any, Optional


def check_integer(name: str, value: Any, smallest: Optional[int] = None) -> int:
  """Checks that an argument is an integer that is large enough.

  Args:
    name: Its name, for the message.
    value: Its value.
    smallest: The least one, or None.

  Returns:
    The value, as Python's own integer.

  Raises:
    TypeError: If it is no integer.
    ValueError: If it is too small.
  """
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(f'{name} must be an integer, found {value!r}')
  if smallest is not None and value < smallest:
    raise ValueError(f'{name} must be >= {smallest}, found {value!r}')
  return int(value)


def check_number(name: str, value: Any) -> None:
  """Checks that an argument is a number; infinity and NaN are numbers.

  Args:
    name: Its name, for the message.
    value: Its value.

  Raises:
    TypeError: If it is none.
  """
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(f'{name} must be a number, found {value!r}')


def check_fraction(name: str, value: Any, *, or_zero: bool = False) -> None:
  """Checks that an argument is in (0, 1].

  Args:
    name: Its name, for the message.
    value: Its value.
    or_zero: Whether it may be 0, too.

  Raises:
    TypeError: If it is no number.
    ValueError: If it is another number.
  """
  check_number(name, value)
  if not 0 <= value <= 1 or (value == 0 and not or_zero):
    interval = '[0, 1]' if or_zero else '(0, 1]'
    raise ValueError(f'{name} must be in {interval}, found {value!r}')


def check_nonnegative(name: str, value: Any) -> None:
  """Checks that an argument is a finite number, at least 0.

  Args:
    name: Its name, for the message.
    value: Its value.

  Raises:
    TypeError: If it is no number.
    ValueError: If it is another number.
  """
  check_number(name, value)
  if not math.isfinite(value) or value < 0:
    raise ValueError(f'{name} must be finite and >= 0, found {value!r}')


def check_positive(name: str, value: Any) -> None:
  """Checks that an argument is a finite number above 0.

  Args:
    name: Its name, for the message.
    value: Its value.

  Raises:
    TypeError: If it is no number.
    ValueError: If it is another number.
  """
  check_number(name, value)
  if not math.isfinite(value) or value <= 0:
    raise ValueError(f'{name} must be finite and > 0, found {value!r}')
