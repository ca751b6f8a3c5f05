"""A differentially private sum for the correction, and what it guarantees.

For FedSteer's `correction_factory`, see `docs/privacy.md` for what such a sum
does not cover. Every client's vector is clipped to an L2 norm C, and the server
adds normal noise of standard deviation z C to every entry of their sum, z being
the noise multiplier.
"""

from collections.abc import Sequence
import math
from typing import Any, Optional, Union

import dp_accounting
import numpy as np
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from fedsteer_tff import arguments
from fedsteer_tff.aggregators import parameters

# Of the privacy loss, which is rounded up: a second's work, and still close.
_DISCRETIZATION = 1e-3


def private_correction(
  noise_multiplier: float,
  clipping_norm: float,
  sum_factory: Optional[tff.aggregators.UnweightedAggregationFactory] = None,
) -> tff.aggregators.UnweightedAggregationFactory:
  """Returns a factory of noised sums of clipped vectors.

  `tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed` divides by the
  expected number of clients, which would make FedSteer's estimate too short;
  this is the sum itself, with the noise in its units. Degenerate case:
  `noise_multiplier=0` clips only.

  The clipped vectors are w_i (g_i - Q^T s_i) in the designs
  'client_projection' and 'dense' and w_i g_i in the others, with, as a rule,
  w_i = d_i / p_i: `clipping_norm` is in these units. Use it with the former
  two: in the others, clipping would shorten the update, but not the
  reconstruction that is taken off afterwards.

  Args:
    noise_multiplier: z >= 0.
    clipping_norm: C > 0.
    sum_factory: Sums the clipped vectors, such as
      `tff.aggregators.SecureSumFactory(clipping_norm)`; must not make their
      norm larger. A plain sum if None.

  Returns:
    An unweighted aggregation factory.

  Raises:
    TypeError: If a number is none, or `sum_factory` is no such factory.
    ValueError: If a number is out of range.
  """
  _check_number('noise_multiplier', noise_multiplier)
  if noise_multiplier < 0:
    raise ValueError(
      f'noise_multiplier must be >= 0, found {noise_multiplier!r}'
    )
  _check_number('clipping_norm', clipping_norm)
  if clipping_norm <= 0:
    raise ValueError(f'clipping_norm must be > 0, found {clipping_norm!r}')
  if sum_factory is not None and not isinstance(
    sum_factory, tff.aggregators.UnweightedAggregationFactory
  ):
    raise TypeError(
      'sum_factory must be a tff.aggregators.UnweightedAggregationFactory, '
      f'found {sum_factory!r}'
    )
  return tff.aggregators.DifferentiallyPrivateFactory(
    tfp.GaussianSumQuery(
      l2_norm_clip=float(clipping_norm),
      stddev=float(noise_multiplier) * float(clipping_norm),
    ),
    record_aggregation_factory=sum_factory,
  )


def correction_epsilon(
  noise_multiplier: float,
  num_rounds: int,
  delta: float,
  participation_probabilities: Union[float, Sequence[float]] = 1.0,
) -> float:
  """Returns an upper bound of epsilon of all rounds' noised sums together.

  Found from privacy loss distributions. It is that of (epsilon, delta)
  differential privacy for one client, whose presence or absence, with all that
  it puts into these sums, is to be hidden. Assumes that a client reports at
  most once in a round.

  With probabilities below 1 it also assumes that each client takes part by an
  independent draw in every round, and that nobody from whom it is to be hidden
  learns who took part: not the server, which sees ids. The guarantee for all
  clients is that of the one that takes part most, so the largest of the
  probabilities counts. Rounds in which a client is made to take part break it.

  Args:
    noise_multiplier: z > 0, as `private_correction` takes it.
    num_rounds: >= 1.
    delta: In (0, 1).
    participation_probabilities: p_i of the clients, in (0, 1], or the largest
      of them; 1 for a guarantee that holds whoever knows of participation.

  Returns:
    Epsilon >= 0.

  Raises:
    TypeError: If a number is none.
    ValueError: If a number is out of range.
  """
  _check_number('noise_multiplier', noise_multiplier)
  if noise_multiplier <= 0:
    raise ValueError(
      'noise_multiplier must be > 0, since without noise nothing is private, '
      f'found {noise_multiplier!r}'
    )
  parameters.check_integer('num_rounds', num_rounds, 1)
  _check_number('delta', delta)
  if not 0 < delta < 1:
    raise ValueError(f'delta must be in (0, 1), found {delta!r}')
  found = np.asarray(participation_probabilities)
  if found.dtype.kind not in 'iuf':
    raise TypeError(
      'participation_probabilities must be numbers in (0, 1], found '
      f'{participation_probabilities!r}'
    )
  probabilities = found.astype(float)
  if (
    not probabilities.size
    or not np.all(probabilities > 0)
    or not np.all(probabilities <= 1)
  ):
    raise ValueError(
      'participation_probabilities must be numbers in (0, 1], found '
      f'{participation_probabilities!r}'
    )
  event = dp_accounting.GaussianDpEvent(float(noise_multiplier))
  largest = float(np.max(probabilities))
  if largest < 1:
    event = dp_accounting.PoissonSampledDpEvent(largest, event)
  accountant = dp_accounting.pld.PLDAccountant(
    value_discretization_interval=_DISCRETIZATION
  )
  accountant.compose(event, int(num_rounds))
  return float(accountant.get_epsilon(float(delta)))


def _check_number(name: str, value: Any) -> None:
  """Checks that an argument is a finite number.

  Args:
    name: Its name, for the message.
    value: Its value.

  Raises:
    TypeError: If it is no number.
    ValueError: If it is not finite.
  """
  arguments.check_number(name, value)
  if not math.isfinite(value):
    raise ValueError(f'{name} must be finite, found {value!r}')
