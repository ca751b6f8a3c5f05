"""Writing files so that a reader never sees half of one."""

from collections.abc import Mapping
import errno
import json
import os
import re
import shutil
from typing import Any, Union

PathLike = Union[str, os.PathLike[str]]

# No room on the disk, none in the user's share of it, none for the file.
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_text(path: PathLike, text: str) -> None:
  """Replaces the file at `path` by `text`, atomically.

  The text goes to a temporary file in the same folder, is flushed to the disk,
  and takes the final name in one step. A process that dies in between leaves
  the former content.

  Args:
    path: The file to write.
    text: Its new content.
  """
  write_bytes(path, text.encode('utf-8'))


def write_bytes(path: PathLike, content: bytes) -> None:
  """Replaces the file at `path` by `content`, atomically; see `write_text`."""
  path = os.fspath(path)
  temporary = f'{path}.tmp'
  with open(temporary, 'wb') as f:
    f.write(content)
    f.flush()
    os.fsync(f.fileno())
  os.replace(temporary, path)


def write_json(path: PathLike, value: Mapping[str, Any]) -> None:
  """Writes `value` as indented JSON, atomically; see `write_text`."""
  write_text(path, json.dumps(value, indent=2) + '\n')


def read_json(path: PathLike) -> dict[str, Any]:
  """Returns the JSON object in the file at `path`.

  Args:
    path: The file to read.

  Returns:
    The object's members by name.

  Raises:
    ValueError: If the file does not hold a JSON object.
  """
  with open(path, encoding='utf-8') as f:
    text = f.read()
  try:
    value = json.loads(text)
  except json.JSONDecodeError as e:
    raise ValueError(f'{path} must hold JSON, found: {e}') from e
  if not isinstance(value, dict):
    raise ValueError(
      f'{path} must hold a JSON object, found a {type(value).__name__}'
    )
  return value


def remove_unfinished(folder: PathLike, prefix: str) -> None:
  """Removes what the writers of `tff.program` had not finished.

  They write a file or folder under its name and '_temp', followed by digits,
  and rename it when it is complete.

  Args:
    folder: Where they write; need not exist.
    prefix: What the names of the finished files or folders begin with.
  """
  if not os.path.isdir(folder):
    return
  unfinished = re.compile(rf'{re.escape(prefix)}.*_temp\d+')
  for name in os.listdir(folder):
    path = os.path.join(folder, name)
    if not unfinished.fullmatch(name):
      continue
    if os.path.isdir(path):
      shutil.rmtree(path)
    else:
      os.remove(path)


def is_full_disk(error: BaseException) -> bool:
  """Returns whether an error says that there is no room to write.

  Args:
    error: Python's `OSError`, or the error of a library that quotes the system
      as TensorFlow does.

  Returns:
    True for a full disk, an exhausted quota, and a file that grew too large.
  """
  if isinstance(error, OSError):
    return error.errno in _FULL_DISK
  return any(os.strerror(number) in str(error) for number in _FULL_DISK)
