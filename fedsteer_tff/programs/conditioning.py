"""Whether the ridge is large enough for what float32 can tell apart.

No TensorFlow here: a run can be judged by what it has written.
"""

from collections.abc import Mapping
from typing import Any, Optional

# Q Q^T is summed in float32, so that it is wrong by about this share. Solving
# with Q Q^T + r I multiplies that by the condition number of the latter.
_ROUNDING = 2.0**-23
# What may be lost of coordinates by it, relative to their length.
_LARGEST_ERROR = 0.01

# The relative ridge c bounds the condition by 1 + k / c: with the default it
# stays below this for any k up to 800.
LARGEST_RIDGE_CONDITION = _LARGEST_ERROR / _ROUNDING


def advice(metrics: Mapping[str, Any]) -> Optional[str]:
  """Says what to do if rounding may spoil a round's coordinates.

  Args:
    metrics: A round's metrics by name; `ridge_condition` is looked at.

  Returns:
    One line; None if all is well, or there is no such metric.
  """
  condition = float(metrics.get('ridge_condition') or 0)
  if not condition > LARGEST_RIDGE_CONDITION:
    return None
  return (
    f'ridge_condition must be <= {LARGEST_RIDGE_CONDITION:.0f} for coordinates'
    f' to be good to {_LARGEST_ERROR:.0%} in float32, found {condition:.0f}:'
    ' rows of the core set are nearly dependent, and the ridge is too small for'
    ' them; take a larger ridge (the default is 0.01) or a smaller'
    ' core_set_size'
  )
