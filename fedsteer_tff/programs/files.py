"""Writing files so that a reader never sees half of one."""

from collections.abc import Mapping, Sequence
import errno
import json
import os
import re
import shutil
from typing import Any, Union

PathLike = Union[str, os.PathLike[str]]

# No room on the disk, none in the user's share of it, none for the file.
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What helps against an error, by its numbers.
_ADVICE = (
  (_FULL_DISK, 'make room'),
  ((errno.EACCES, errno.EPERM), 'let this user write there'),
  ((errno.EROFS,), 'mount the file system for writing'),
  (
    (errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.EISDIR),
    'make the path one of folders',
  ),
)
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
# Libraries that quote the system have no numbers, and may find any words in a
# file that is damaged: these are what happens.
_UNREADABLE = (
  errno.EACCES,
  errno.EPERM,
  errno.EIO,
  errno.ESTALE,
  errno.ENOMEM,
  errno.EMFILE,
  errno.ENFILE,
  errno.ETIMEDOUT,
)


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
  """Replaces the content of a file, atomically; see `write_text`.

  Args:
    path: The file to write.
    content: Its new content.
  """
  path = os.fspath(path)
  temporary = f'{path}.tmp'
  with open(temporary, 'wb') as f:
    f.write(content)
    f.flush()
    os.fsync(f.fileno())
  os.replace(temporary, path)


def write_json(path: PathLike, value: Mapping[str, Any]) -> None:
  """Writes indented JSON, atomically; see `write_text`.

  Args:
    path: The file to write.
    value: Its new content, of what JSON can hold.
  """
  write_text(path, json.dumps(value, indent=2) + '\n')


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


def advice(error: BaseException) -> str:
  """Returns what helps against an error of the file system.

  Args:
    error: As for `is_full_disk`.

  Returns:
    A few words, to be followed by what can be done then.
  """
  for numbers, words in _ADVICE:
    if _is_any_of(error, numbers):
      return words
  return 'mend that'


def is_full_disk(error: BaseException) -> bool:
  """Returns whether an error says that there is no room to write.

  Args:
    error: Python's `OSError`, or the error of a library that quotes the system
      as TensorFlow does.

  Returns:
    True for a full disk, an exhausted quota, and a file that grew too large.
  """
  return _is_any_of(error, _FULL_DISK)


def is_unreadable(error: BaseException) -> bool:
  """Returns whether an error says nothing of what is in a file.

  It was not read: there may be no permission, memory or descriptor, or a device
  or server that fails. It may be read at another time.

  Args:
    error: As for `is_full_disk`.

  Returns:
    False for a file that is missing, and for an error that does not come from
    the system.
  """
  if isinstance(error, MemoryError):
    return True
  if isinstance(error, OSError):
    return error.errno is not None and error.errno not in _MISSING
  return _is_any_of(error, _UNREADABLE)


def _is_any_of(error: BaseException, numbers: Sequence[int]) -> bool:
  if isinstance(error, OSError):
    return error.errno in numbers
  return any(os.strerror(number) in str(error) for number in numbers)
