"""Checks of arguments that the modules of this package share.

Without TensorFlow, as some of these modules are.
"""

import numbers
import os
from typing import Any, Union

from fedsteer_tff.programs import files


def check_instance(
  name: str,
  value: Any,
  kind: Union[type, tuple[type, ...]],
  words: str,
) -> None:
  """Checks what an argument is.

  Args:
    name: Its name, for the message.
    value: Its value.
    kind: The class or classes that it may be of.
    words: What that is, for the message.

  Raises:
    TypeError: If it is something else.
  """
  if not isinstance(value, kind):
    raise TypeError(f'{name} must be {words}, found {value!r:.200}')


def check_callable(name: str, value: Any, words: str = 'a function') -> None:
  """Checks that an argument can be called.

  Args:
    name: Its name, for the message.
    value: Its value.
    words: What it should be, for the message.

  Raises:
    TypeError: If it cannot.
  """
  if not callable(value):
    raise TypeError(f'{name} must be {words}, found {value!r:.200}')


def check_integer(name: str, value: Any, least: int) -> int:
  """Checks that an argument is an integer that is large enough.

  Args:
    name: Its name, for the message.
    value: Its value.
    least: The smallest one.

  Returns:
    The value, as Python's own integer.

  Raises:
    ValueError: If it is something else.
  """
  integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
  if not integer or value < least:
    raise ValueError(f'{name} must be an integer >= {least}, found {value!r}')
  return int(value)


def path_text(name: str, value: files.PathLike) -> str:
  """Returns a path as text.

  Args:
    name: The argument's name, for the message.
    value: The path.

  Returns:
    It, as a string.

  Raises:
    TypeError: If it is no path.
  """
  try:
    text: Any = os.fspath(value)
  except TypeError:
    text = None
  if not isinstance(text, str):
    raise TypeError(f'{name} must be a path, found {value!r:.200}')
  return text


def names(name: str, value: Any) -> tuple[str, ...]:
  """Returns several names, which are not those of one name's letters.

  Args:
    name: The argument's name, for the message.
    value: The names.

  Returns:
    They, in the same order.

  Raises:
    TypeError: If it is no sequence of strings, or a string.
  """
  given = () if isinstance(value, str) else value
  try:
    found = tuple(given)
  except TypeError:
    found = (None,)
  if isinstance(value, str) or not all(isinstance(n, str) for n in found):
    raise TypeError(f'{name} must be a list of names, found {value!r:.200}')
  return found
