"""Resident memory of this process and its children."""

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
  """Returns the memory now in use by this process and the given children."""
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
