"""What a suite returns, and how figures are written in its headlines."""

from collections.abc import Mapping, Sequence
import statistics
from typing import Any

Result = Mapping[str, Mapping[str, Any]]

_MIB = 2**20


def seconds_text(values: Sequence[float]) -> str:
  """Returns the median of measured seconds."""
  return f'{statistics.median(values):.3f} s'


def mebibytes_text(size: int) -> str:
  """Returns a number of bytes in MiB."""
  return f'{size / _MIB:.0f} MiB'
