"""How participation probabilities are estimated where nobody knows them.

Parameters only: the estimates themselves live in the state of a process, see
`aggregators.probability_estimates`. T below counts rounds, and x_i is 1 in a
round in which client i took part and 0 in another.
"""

import dataclasses
import math
from typing import Any, Union

from fedsteer_tff import arguments

# The probabilities that clients report are used as they are.
KNOWN = 'known'

# Who is there: all clients of the population from the first round on, or each
# of them from its first report on.
FIXED = 'fixed'
GROWING = 'growing'
POPULATIONS = (FIXED, GROWING)


@dataclasses.dataclass(frozen=True)
class RunningFrequency:
  """The share of all rounds so far in which a client took part.

      p_i = max(floor, (r p_0 + sum x_i) / (r + T))

  For probabilities that do not change. The prior p_0 counts as much as r
  rounds do, and its part goes to 0 as rounds go by.

  Attributes:
    prior_probability: p_0 in (0, 1], what is expected of a client that nothing
      is known of, such as the expected size of a cohort over N.
    prior_rounds: r > 0.
    floor: In (0, 1]. No estimate is below it, so that 1 / p_i is at most
      1 / floor.
    population: 'fixed', all N clients are there from the start, so that rounds
      before its first report count against a client; or 'growing', up to N
      clients join when they like, so that of each only the rounds after its
      first report count.
  """

  prior_probability: float
  prior_rounds: float = 10.0
  floor: float = 0.001
  population: str = FIXED

  def __post_init__(self) -> None:
    _check_common(self)
    arguments.check_positive('prior_rounds', self.prior_rounds)
    arguments.check_fraction('floor', self.floor)

  @property
  def decay(self) -> float:
    """The factor on what earlier rounds count, a round later."""
    return 1.0


@dataclasses.dataclass(frozen=True)
class WindowedFrequency:
  """The share of rounds in which a client took part, of late.

      p_i = max(floor, (d^T r p_0 + sum_j d^j x_i(T - j))
                       / (d^T r + sum_j d^j)),    d = 1 - 1 / window

  where j = 0, 1, ... is the age of a round. For probabilities that drift: a
  round counts e times less when `window` others have passed, and so does the
  prior. The estimate of a client that vanishes falls to the floor.

  Attributes:
    prior_probability: As in `RunningFrequency`.
    window: Rounds that are remembered, > 1.
    prior_rounds: r > 0, at most the window.
    floor: As in `RunningFrequency`.
    population: As in `RunningFrequency`.
  """

  prior_probability: float
  window: float = 100.0
  prior_rounds: float = 10.0
  floor: float = 0.001
  population: str = FIXED

  def __post_init__(self) -> None:
    _check_common(self)
    arguments.check_number('window', self.window)
    if not math.isfinite(self.window) or self.window <= 1:
      raise ValueError(f'window must be finite and > 1, found {self.window!r}')
    arguments.check_positive('prior_rounds', self.prior_rounds)
    if self.prior_rounds > self.window:
      raise ValueError(
        f'prior_rounds must be <= window={self.window!r}, found '
        f'{self.prior_rounds!r}'
      )
    arguments.check_fraction('floor', self.floor)

  @property
  def decay(self) -> float:
    """d, the factor on what earlier rounds count, a round later."""
    return 1 - 1 / self.window


@dataclasses.dataclass(frozen=True)
class IntervalEstimate:
  """One over the mean number of rounds from one participation to the next.

  The weights of FedAU (Wang and Ji, "A lightweight method for tackling unknown
  participation statistics in federated averaging", ICLR 2024, arXiv
  2306.03401): 1 / p_i is the mean of the client's intervals so far, of which
  one of more than `cutoff` rounds counts as several of that length and a rest.
  So 1 / p_i is at most `cutoff`, and its mean is in the end too low by the
  factor 1 - (1 - p_i)^cutoff, which matters for clients that take part more
  rarely than twice in so many rounds.

  Attributes:
    prior_probability: In (0, 1], the estimate until the first interval is over;
      1 as published.
    cutoff: K >= 1.
    population: As in `RunningFrequency`.
  """

  prior_probability: float = 1.0
  cutoff: int = 50
  population: str = FIXED

  def __post_init__(self) -> None:
    _check_common(self)
    arguments.check_integer('cutoff', self.cutoff, 1)


Frequency = Union[RunningFrequency, WindowedFrequency]
Estimator = Union[Frequency, IntervalEstimate]
Participation = Union[str, Estimator]
_ESTIMATORS = (RunningFrequency, WindowedFrequency, IntervalEstimate)


def check_participation(name: str, value: Any) -> None:
  """Checks a parameter that says where probabilities come from.

  Args:
    name: Its name, for the message.
    value: Must be 'known' or an estimator's parameters.

  Raises:
    TypeError: If it is not.
    ValueError: If it is another string.
  """
  classes = ', '.join(cls.__name__ for cls in _ESTIMATORS)
  message = f"{name} must be 'known' or one of {classes}, found {value!r}"
  if isinstance(value, str):
    if value != KNOWN:
      raise ValueError(message)
  elif not isinstance(value, _ESTIMATORS):
    raise TypeError(message)


def _check_common(estimator: 'Estimator') -> None:
  arguments.check_fraction('prior_probability', estimator.prior_probability)
  if estimator.population not in POPULATIONS:
    listed = ', '.join(repr(choice) for choice in POPULATIONS)
    raise ValueError(
      f'population must be one of {listed}, found {estimator.population!r}'
    )
