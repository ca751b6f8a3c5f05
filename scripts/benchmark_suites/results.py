"""What a suite returns, and how figures are written in its headlines."""

from collections.abc import Mapping, Sequence
import statistics
from typing import Any

import numpy as np
import tensorflow_federated as tff

Result = Mapping[str, Mapping[str, Any]]

_MIB = 2**20


def seconds_text(values: Sequence[float]) -> str:
  """Returns the median of measured seconds."""
  return f'{statistics.median(values):.3f} s'


def mebibytes_text(size: int) -> str:
  """Returns a number of bytes in MiB."""
  return f'{size / _MIB:.0f} MiB'


def type_bytes(of: tff.Type) -> int:
  """Returns the size of a value of a type that consists of tensors."""
  return sum(
    leaf.dtype.itemsize * int(np.prod(leaf.shape))
    for leaf in tff.structure.flatten(of)
  )
