"""The fixed population of clients that a training run draws from."""

import dataclasses
from typing import Optional

import numpy as np
import numpy.typing as npt


def check_probabilities(
  values: npt.ArrayLike,
  name: str = 'participation_probabilities',
  *,
  may_be_unknown: bool = False,
) -> npt.NDArray[np.float64]:
  """Checks and copies a vector of participation probabilities.

  Args:
    values: Array-like of numbers, [N].
    name: The argument's name, for error messages.
    may_be_unknown: Whether entries may be NaN or None, for a client of which
      nobody knows it.

  Returns:
    A read-only float64 array [N]; NaN for what is not known.

  Raises:
    TypeError: If `values` does not consist of numbers.
    ValueError: If it is not a vector of at least one entry, or an entry is
      outside (0, 1].
  """
  array = numeric_vector(values, name)
  good = (array > 0) & (array <= 1)
  if may_be_unknown:
    good |= np.isnan(array)
  bad = np.flatnonzero(~good)
  if bad.size:
    unknown = ', or NaN where it is not known' if may_be_unknown else ''
    raise ValueError(
      f'{name} must be in (0, 1]{unknown}, found {array[bad[0]]!r} for client'
      f' {bad[0]} ({bad.size} such clients)'
    )
  array.flags.writeable = False
  return array


def numeric_vector(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
  """Copies a vector of numbers.

  Args:
    values: Array-like of numbers; None becomes NaN.
    name: The argument's name, for error messages.

  Returns:
    A float64 array.

  Raises:
    TypeError: If `values` does not consist of numbers.
    ValueError: If it is not a vector of at least one entry.
  """
  try:
    found = np.asarray(values)
    if found.dtype.kind not in 'iufO':  # NumPy makes numbers of text, too.
      raise TypeError
    array = np.array(values, dtype=np.float64)
  except (TypeError, ValueError) as error:
    raise TypeError(
      f'{name} must be a vector of numbers, found {values!r:.200}'
    ) from error
  if array.ndim != 1 or not array.size:
    raise ValueError(
      f'{name} must be a vector with at least one entry, found shape'
      f' {array.shape}'
    )
  return array


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Population:
  """Weights and participation probabilities of all N clients.

  Client i is row i of both arrays, which are read-only.

  Attributes:
    weights: Float64 [N], d_i, which sum to 1.
    participation_probabilities: Float64 [N], p_i in (0, 1], NaN where it is not
      known.
  """

  weights: npt.NDArray[np.float64]
  participation_probabilities: npt.NDArray[np.float64]

  def __init__(
    self,
    weights: npt.ArrayLike,
    participation_probabilities: Optional[npt.ArrayLike],
  ) -> None:
    """Checks and copies the arguments.

    Args:
      weights: Array-like of float, [N], d_i: finite, >= 0, with a positive sum,
        for instance the clients' numbers of examples. They are divided by their
        sum.
      participation_probabilities: Array-like of float, [N], p_i in (0, 1]; NaN
        or None for a client of which it is not known, None for all of them.
        Only processes that estimate it (`participation=RunningFrequency(...)`,
        say) can train such clients.

    Raises:
      TypeError: If an argument does not consist of numbers.
      ValueError: If an argument breaks one of the rules above, or their lengths
        differ.
    """
    shares = numeric_vector(weights, 'weights')
    bad = np.flatnonzero(~(np.isfinite(shares) & (shares >= 0)))
    if bad.size:
      raise ValueError(
        f'weights must be finite and >= 0, found {shares[bad[0]]!r} for'
        f' client {bad[0]} ({bad.size} such clients)'
      )
    largest = shares.max()
    if largest == 0:
      raise ValueError('weights must have a positive sum, found all zero')
    # Dividing by the largest first keeps the sum finite.
    shares = shares / largest
    shares /= shares.sum()
    shares.flags.writeable = False
    if participation_probabilities is None:
      participation_probabilities = np.full(shares.shape, np.nan)
    probabilities = check_probabilities(
      participation_probabilities, may_be_unknown=True
    )
    if len(shares) != len(probabilities):
      raise ValueError(
        'weights and participation_probabilities must have the same length,'
        f' found {len(shares)} and {len(probabilities)}'
      )
    object.__setattr__(self, 'weights', shares)
    object.__setattr__(self, 'participation_probabilities', probabilities)

  @property
  def num_clients(self) -> int:
    """N, the size of the population."""
    return len(self.weights)
