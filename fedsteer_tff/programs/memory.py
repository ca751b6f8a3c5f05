"""Resident memory of this process and its children."""

from collections.abc import Iterator
import contextlib
import gc
import os


def _status_bytes(pid: int, field: str) -> int:
  """Returns a field of Linux's /proc/<pid>/status in bytes, 0 if unknown."""
  try:
    with open(f'/proc/{pid}/status', encoding='ascii', errors='replace') as f:
      for line in f:
        if line.startswith(f'{field}:'):
          return int(line.split()[1]) * 1024
  except (OSError, ValueError, IndexError):
    # The process has ended, or the system has no /proc.
    pass
  return 0


def resident_bytes(*child_pids: int) -> int:
  """Returns the memory now in use by this process and the given children.

  Args:
    *child_pids: Process ids.

  Returns:
    Bytes; 0 on a system without /proc.
  """
  return sum(_status_bytes(p, 'VmRSS') for p in (os.getpid(), *child_pids))


def peak_resident_bytes(*child_pids: int) -> int:
  """Returns the sum of the largest use by this process and the children.

  The largest uses need not be at the same time: the sum is an upper bound.

  Args:
    *child_pids: Process ids.

  Returns:
    Bytes; 0 on a system without /proc.
  """
  return sum(_status_bytes(p, 'VmHWM') for p in (os.getpid(), *child_pids))


@contextlib.contextmanager
def collecting_what_is_new() -> Iterator[None]:
  """Has Python look for garbage among what is made within this context only.

  Rounds leave objects that refer to one another, which only Python's collector
  frees. It looks at all objects when their number has grown by a quarter, and
  a program with TensorFlow has a million of them: 150 MB come together until
  then. Without those that were there before, it looks often, and in no time.
  Of these, none is collected meanwhile. Does nothing where the collector is
  switched off, or objects were set apart already.

  Yields:
    None.
  """
  if not gc.isenabled() or gc.get_freeze_count():
    yield
    return
  gc.collect()
  gc.freeze()
  try:
    yield
  finally:
    gc.unfreeze()
