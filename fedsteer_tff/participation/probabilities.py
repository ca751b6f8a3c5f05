"""How likely each client is to take part in a round."""

import math
import numbers
from typing import Any

import numpy as np
import numpy.typing as npt

# Products such as 0.29 * 100 fall just short of the integer that is meant.
_ROUNDING = 1e-9


def two_group_probabilities(
  num_clients: int, rate: float = 0.1, skew: float = 5.0
) -> npt.NDArray[np.float64]:
  """Half of the clients take part `1 + skew` times as often as the rest.

  The experimental setting of FedSteer (arXiv 2606.10124): clients
  0 ... N // 2 - 1 have weight 1 + skew, the others 1, scaled so that
  m = floor(rate * N) clients are expected in a round. With the defaults and an
  even N the probabilities are 6/35 and 1/35.

  Args:
    num_clients: N >= 1.
    rate: Expected fraction of active clients, in (0, 1].
    skew: How much more often the first half takes part, finite and >= 0.

  Returns:
    Float64 [N].

  Raises:
    TypeError: If an argument is not a number of the right kind.
    ValueError: If an argument is out of range, no client would be expected
      (rate * N < 1), or a probability would exceed 1.
  """
  _check_num_clients(num_clients)
  _check_rate(rate)
  if isinstance(skew, bool) or not isinstance(skew, numbers.Real):
    raise TypeError(f'skew must be a number, found {skew!r}')
  if not math.isfinite(skew) or skew < 0:
    raise ValueError(f'skew must be finite and >= 0, found {skew!r}')
  expected = math.floor(rate * num_clients + _ROUNDING)
  if expected < 1:
    raise ValueError(
      f'rate * num_clients must be at least 1, found {rate!r} * {num_clients}'
    )
  relative = np.ones(num_clients)
  relative[: num_clients // 2] = 1 + skew
  probabilities = expected * relative / relative.sum()
  if probabilities.max() > 1:
    raise ValueError(
      f'rate={rate!r} and skew={skew!r} must keep every probability <= 1,'
      f' found {probabilities.max():.6g} for the first {num_clients // 2}'
      f' of {num_clients} clients: lower one of them'
    )
  return probabilities


def uniform_probabilities(
  num_clients: int, rate: float
) -> npt.NDArray[np.float64]:
  """Every client takes part with the same probability.

  Args:
    num_clients: N >= 1.
    rate: The probability, in (0, 1].

  Returns:
    Float64 [N], all equal to `rate`.

  Raises:
    TypeError: If an argument is not a number of the right kind.
    ValueError: If an argument is out of range.
  """
  _check_num_clients(num_clients)
  _check_rate(rate)
  return np.full(num_clients, rate, dtype=np.float64)


def _check_num_clients(num_clients: Any) -> None:
  if isinstance(num_clients, bool) or not isinstance(
    num_clients, numbers.Integral
  ):
    raise TypeError(f'num_clients must be an integer, found {num_clients!r}')
  if num_clients < 1:
    raise ValueError(f'num_clients must be >= 1, found {num_clients!r}')


def _check_rate(rate: Any) -> None:
  if isinstance(rate, bool) or not isinstance(rate, numbers.Real):
    raise TypeError(f'rate must be a number, found {rate!r}')
  if not 0 < rate <= 1:
    raise ValueError(f'rate must be in (0, 1], found {rate!r}')
