"""How likely each client is to take part in a round."""

import math

import numpy as np
import numpy.typing as npt

from fedsteer_tff import arguments

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
  arguments.check_integer('num_clients', num_clients, 1)
  arguments.check_fraction('rate', rate)
  arguments.check_nonnegative('skew', skew)
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
  arguments.check_integer('num_clients', num_clients, 1)
  arguments.check_fraction('rate', rate)
  return np.full(num_clients, rate, dtype=np.float64)
