"""Reading what runs leave in their folders; one rule for all who do.

Without TensorFlow, so that programs which only read answer at once.
"""

from collections.abc import Mapping
import json
import numbers
import os
import typing
from typing import Any, Optional

from fedsteer_tff.programs import files

_WORDS = {
  dict: 'an object',
  float: 'a number',
  int: 'an integer',
  list: 'a list',
  str: 'a text',
}


class RunDirectoryError(ValueError):
  """A folder cannot serve as that of a run; the message is one line."""


def check_path(path: files.PathLike, name: str = 'output_dir') -> str:
  """Checks that a path can be that of a file or folder at all.

  Args:
    path: The path; need not exist.
    name: The argument's name, for the error message.

  Returns:
    It, as a string.

  Raises:
    RunDirectoryError: If there is a NUL in it, or what the file system's
      encoding does not have.
  """
  text = os.fspath(path)
  try:
    encoded = os.fsencode(text)
  except UnicodeEncodeError:
    encoded = b'\0'
  if b'\0' in encoded:
    raise RunDirectoryError(
      f'{name} must be a path, without NUL bytes and in the encoding of the'
      f' file system, found {text!r}'
    )
  return text


def check_file(path: files.PathLike, name: Optional[str] = None) -> None:
  """Checks that there is no folder where a file is to be written or read.

  Args:
    path: The file; need not exist.
    name: The argument's name, for the error message; the path if not given.

  Raises:
    RunDirectoryError: If it is a folder.
  """
  path = os.fspath(path)
  if os.path.isdir(path):
    where = '' if name is None else f': {path}'
    raise RunDirectoryError(
      f'{name or path} must be a file, found a folder{where}'
    )


def check_folder(path: files.PathLike, name: Optional[str] = None) -> None:
  """Checks that a path is that of a folder, or can become one.

  Args:
    path: The folder; need not exist.
    name: The argument's name, for the error message; the path if not given.

  Raises:
    RunDirectoryError: If it is a file, or below one.
  """
  path = found = os.fspath(path)
  while found and not os.path.lexists(found):
    found = os.path.dirname(found)
  if found and not os.path.isdir(found):
    where = '' if (name or path) == found else f': {found}'
    raise RunDirectoryError(
      f'{name or path} must be a folder, found a file{where}'
    )


def read_text(path: files.PathLike) -> str:
  """Reads a text file.

  Args:
    path: The file.

  Returns:
    Its content.

  Raises:
    RunDirectoryError: If it cannot be read or is not UTF-8.
  """
  try:
    with open(path, encoding='utf-8', newline='') as f:
      return f.read()
  except (OSError, UnicodeDecodeError) as e:
    raise RunDirectoryError(
      f'{os.fspath(path)} must be a text that can be read, found: {e}'
    ) from e


def read_object(
  path: files.PathLike,
  required: Optional[Mapping[str, Any]] = None,
  optional: Optional[Mapping[str, Any]] = None,
) -> dict[str, Any]:
  """Returns the JSON object in a file such as config.json or summary.json.

  Args:
    path: The file.
    required: Kinds by the names of the members that must be there: dict, list,
      str, int, float (also integers), or `dict[str, kind]`.
    optional: The same for those that may be missing or null.

  Returns:
    The object, its other members included.

  Raises:
    RunDirectoryError: If the file cannot be read, is something else, or has a
      member of another kind.
  """
  path = os.fspath(path)
  try:
    value = json.loads(read_text(path))
  except RunDirectoryError:
    raise
  # Not all that is wrong is a JSONDecodeError: some integers are too long.
  except (ValueError, RecursionError) as e:
    raise RunDirectoryError(f'{path} must hold JSON, found: {e}') from e
  if not isinstance(value, dict):
    raise RunDirectoryError(
      f'{path} must hold a JSON object, found a {type(value).__name__}'
    )
  check_members(path, value, required, optional)
  return value


def check_members(
  path: files.PathLike,
  value: Mapping[str, Any],
  required: Optional[Mapping[str, Any]] = None,
  optional: Optional[Mapping[str, Any]] = None,
  *,
  within: str = '',
) -> None:
  """Checks the members of an object that a file holds.

  Args:
    path: The file.
    value: The object.
    required: As for `read_object`.
    optional: As for `read_object`.
    within: Where in the file the object is, such as 'flags.'.

  Raises:
    RunDirectoryError: If a member is missing or of another kind.
  """
  path = os.fspath(path)
  for name, kind in (required or {}).items():
    if name not in value:
      raise RunDirectoryError(
        f'{path} must have {_words(kind)} named {within}{name}, found none'
      )
  for name, kind in {**(required or {}), **(optional or {})}.items():
    found = value.get(name)
    if found is None and name not in (required or {}):
      continue
    if not _is(found, kind):
      raise RunDirectoryError(
        f'{path} must have {_words(kind)} named {within}{name}, found {found!r}'
      )


def _is(value: Any, kind: Any) -> bool:
  if typing.get_origin(kind) is dict:
    _, member = typing.get_args(kind)
    return isinstance(value, dict) and all(
      _is(v, member) for v in value.values()
    )
  if kind in (int, float):
    number = numbers.Integral if kind is int else numbers.Real
    return isinstance(value, number) and not isinstance(value, bool)
  return isinstance(value, kind)


def _words(kind: Any) -> str:
  if typing.get_origin(kind) is dict:
    _, member = typing.get_args(kind)
    return f'an object whose members are each {_words(member)}'
  return _WORDS[kind]
