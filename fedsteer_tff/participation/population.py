"""The fixed population of clients that a training run draws from."""

import dataclasses

import numpy as np
import numpy.typing as npt


def check_probabilities(
  values: npt.ArrayLike, name: str = 'participation_probabilities'
) -> npt.NDArray[np.float64]:
  """Checks and copies a vector of participation probabilities.

  Args:
    values: Array-like of numbers, [N].
    name: The argument's name, for error messages.

  Returns:
    A read-only float64 array [N].

  Raises:
    TypeError: If `values` does not consist of numbers.
    ValueError: If it is not a vector of at least one entry, or an entry is
      outside (0, 1].
  """
  array = _numeric_vector(values, name)
  bad = np.flatnonzero(~((array > 0) & (array <= 1)))
  if bad.size:
    raise ValueError(
      f'{name} must be in (0, 1], found {array[bad[0]]!r} for client'
      f' {bad[0]} ({bad.size} such clients)'
    )
  array.flags.writeable = False
  return array


def _numeric_vector(
  values: npt.ArrayLike, name: str
) -> npt.NDArray[np.float64]:
  try:
    array = np.array(values, dtype=np.float64)
  except (TypeError, ValueError) as error:
    raise TypeError(f'{name} must be a vector of numbers: {error}') from error
  if array.ndim != 1 or not array.size:
    raise ValueError(
      f'{name} must be a vector with at least one entry, found shape'
      f' {array.shape}'
    )
  return array


@dataclasses.dataclass(frozen=True, eq=False)
class Population:
  """Weights and participation probabilities of all N clients.

  Client i is row i of both arrays. Both are copied and made read-only.

  Attributes:
    weights: Float64 [N], d_i: finite, >= 0, with a positive sum, for instance
      the clients' numbers of examples. Stored divided by their sum.
    participation_probabilities: Float64 [N], p_i in (0, 1].

  Raises:
    TypeError: If an argument does not consist of numbers.
    ValueError: If an argument breaks one of the rules above, or their lengths
      differ.
  """

  weights: npt.NDArray[np.float64]
  participation_probabilities: npt.NDArray[np.float64]

  def __post_init__(self) -> None:
    weights = _numeric_vector(self.weights, 'weights')
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if bad.size:
      raise ValueError(
        f'weights must be finite and >= 0, found {weights[bad[0]]!r} for'
        f' client {bad[0]} ({bad.size} such clients)'
      )
    largest = weights.max()
    if largest == 0:
      raise ValueError('weights must have a positive sum, found all zero')
    # Dividing by the largest first keeps the sum finite.
    weights = weights / largest
    weights /= weights.sum()
    weights.flags.writeable = False
    probabilities = check_probabilities(self.participation_probabilities)
    if len(weights) != len(probabilities):
      raise ValueError(
        'weights and participation_probabilities must have the same length,'
        f' found {len(weights)} and {len(probabilities)}'
      )
    object.__setattr__(self, 'weights', weights)
    object.__setattr__(self, 'participation_probabilities', probabilities)

  @property
  def num_clients(self) -> int:
    """N, the size of the population."""
    return len(self.weights)
