"""FedSteer's estimate of the population's update: baseline plus correction.

    Delta = (1 / Z) sum_i n_i Q^T s~_i + R
    R     = (1 - a) R_before + a corr
    corr  = sum_{i in A} w_i (g_i - Q^T s~_i) / W

n_i are client weights and Z their population sum, so d_i = n_i / Z. Three
choices, see `EstimatorRule`, say which coordinates s~_i are (fresh or cached),
what w_i and W are, and what a is. The paper (FedSteer, arXiv 2606.10124,
"Aggregation Rule") writes the case w_i = n_i / p_i, W = Z, a = 1.

With an empty Q the same formulas are those of federated averaging, and with
the identity as Q, so that coordinates are whole updates, those of methods that
remember all clients' last updates, such as FedVARP.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any, NamedTuple, Optional

import tensorflow as tf

from fedsteer_tff import arguments
from fedsteer_tff.subspace import projection

BEFORE_AGGREGATION = 'before_aggregation'
AFTER_AGGREGATION = 'after_aggregation'
COORDINATE_REFRESHES = (BEFORE_AGGREGATION, AFTER_AGGREGATION)
INVERSE_PROBABILITY = 'inverse_probability'
SELF_NORMALIZED = 'self_normalized'
PARTICIPANT_MEAN = 'participant_mean'
CORRECTION_WEIGHTINGS = (
  INVERSE_PROBABILITY,
  SELF_NORMALIZED,
  PARTICIPANT_MEAN,
)


@dataclasses.dataclass(frozen=True)
class EstimatorRule:
  """Which estimator of sum_i d_i g_i the server uses.

  Write s_i for the cached and s'_i for the fresh coordinates of client i,
  e_i = Q^T s_i and e'_i = Q^T s'_i, and pi_0 for the probability that nobody
  is active. Over the independent draws of the active set A, E[Delta] is

  * after_aggregation, inverse_probability, a = 1: sum_i d_i g_i. Unbiased,
    whatever Q and the coordinates are.
  * before_aggregation, inverse_probability, a = 1:
    sum_i d_i g_i + sum_i d_i (1 - p_i) (e_i - e'_i). Lower variance, since the
    change of an estimate enters with weight d_i instead of d_i / p_i.
  * before_aggregation, self_normalized, any a:
    sum_i d_i ((1 - p_i) e_i + p_i e'_i) + (1 - a (1 - pi_0)) R_before
    + a sum_i (d_i / p_i) (g_i - e'_i) E[1{i in A} / sum_{j in A} d_j / p_j].
  * before_aggregation, participant_mean: the same with d instead of d / p in
    the last term, and (1 - a) instead of (1 - a (1 - pi_0)).

  Attributes:
    coordinate_refresh: 'before_aggregation', active clients' fresh coordinates
      serve both terms, as in the paper; or 'after_aggregation', the coordinates
      cached before the round serve both.
    correction_weighting: 'inverse_probability', w_i = n_i / p_i and W = Z;
      'self_normalized', the same w_i and W = sum of w_i over the cohort, so
      that a rare client's step is bounded; or 'participant_mean', w_i = n_i and
      W = sum of w_i over the cohort, the classic average of those who took
      part, which leans to frequent clients.
    correction_smoothing: a in (0, 1]; 1 keeps nothing of earlier corrections.
  """

  coordinate_refresh: str
  correction_weighting: str
  correction_smoothing: float

  def __post_init__(self) -> None:
    check_choice(
      'coordinate_refresh', self.coordinate_refresh, COORDINATE_REFRESHES
    )
    check_choice(
      'correction_weighting',
      self.correction_weighting,
      CORRECTION_WEIGHTINGS,
    )
    arguments.check_fraction('correction_smoothing', self.correction_smoothing)

  @property
  def refreshes_before(self) -> bool:
    """Whether fresh coordinates serve the aggregation of their own round."""
    return self.coordinate_refresh == BEFORE_AGGREGATION

  @property
  def normalizes(self) -> bool:
    """Whether the correction's weights are divided by their own sum."""
    return self.correction_weighting != INVERSE_PROBABILITY

  @property
  def lasts(self) -> bool:
    """Whether a round without reports leaves the correction as it was."""
    return self.correction_weighting == SELF_NORMALIZED

  @property
  def smooths(self) -> bool:
    """Whether the correction needs a memory of D numbers."""
    return self.correction_smoothing < 1 or self.lasts

  @property
  def uses_probabilities(self) -> bool:
    """Whether w_i of the correction depends on p_i."""
    return self.correction_weighting != PARTICIPANT_MEAN

  def importance(
    self, weights: tf.Tensor, probabilities: tf.Tensor
  ) -> tf.Tensor:
    """Returns w_i of the correction.

    Args:
      weights: Float of any shape, n_i.
      probabilities: Float of the same shape and dtype, p_i > 0.

    Returns:
      n_i / p_i, or n_i itself for 'participant_mean'; of the same shape and
      dtype.
    """
    if not self.uses_probabilities:
      return weights
    return weights / probabilities


def named_rule(
  name: str,
  *,
  coordinate_refresh: Optional[str] = None,
  correction_weighting: Optional[str] = None,
  correction_smoothing: Optional[float] = None,
) -> EstimatorRule:
  """Returns a named combination, with any part of it replaced.

  Args:
    name: 'paper' (before, inverse probability, a = 1), 'unbiased' (after,
      inverse probability, a = 1) or 'stable' (before, self-normalised,
      a = 0.3).
    coordinate_refresh: Replaces the named choice if not None.
    correction_weighting: Replaces the named choice if not None.
    correction_smoothing: Replaces the named choice if not None.

  Returns:
    The combination as an `EstimatorRule`.

  Raises:
    ValueError: If a name or a value is not one of those above.
    TypeError: If `correction_smoothing` is not a number.
  """
  named = {
    'paper': EstimatorRule(BEFORE_AGGREGATION, INVERSE_PROBABILITY, 1.0),
    'unbiased': EstimatorRule(AFTER_AGGREGATION, INVERSE_PROBABILITY, 1.0),
    'stable': EstimatorRule(BEFORE_AGGREGATION, SELF_NORMALIZED, 0.3),
  }
  check_choice('estimator', name, tuple(named))
  replaced: dict[str, Any] = {
    'coordinate_refresh': coordinate_refresh,
    'correction_weighting': correction_weighting,
    'correction_smoothing': correction_smoothing,
  }
  given = {key: value for key, value in replaced.items() if value is not None}
  return dataclasses.replace(named[name], **given)


class Cohort(NamedTuple):
  """What the server holds of the m reports that a round's sum is made of.

  Attributes:
    weights: Float [m], n_i as reported in this round.
    previous_weights: Float [m], n_i as known before; 0 if never seen.
    probabilities: Float [m], p_i.
    fresh: Float [m, k], s'_i.
    cached: Float [m, k], s_i.
    subtracted: Float [m, k], coordinates u_i whose reconstruction was already
      taken off g_i before the weighted sum was formed; 0 if none was.
    multiplicity: Float [m], how many reports a row stands for.
    first: Bool [m], False for further reports of a client that has a row
      already: they take part in the sum, and change no cache.
  """

  weights: tf.Tensor
  previous_weights: tf.Tensor
  probabilities: tf.Tensor
  fresh: tf.Tensor
  cached: tf.Tensor
  subtracted: tf.Tensor
  multiplicity: tf.Tensor
  first: tf.Tensor


class Estimate(NamedTuple):
  """Delta and the memory of the correction.

  Attributes:
    delta: Float [D].
    smoothed_correction: Float [D], R after the round; [0] if not kept.
  """

  delta: tf.Tensor
  smoothed_correction: tf.Tensor


def estimate_update(
  rule: EstimatorRule,
  basis: Optional[tf.Tensor],
  baseline: tf.Tensor,
  cohort: Cohort,
  weighted_sum: tf.Tensor,
  population_weight: tf.Tensor,
  smoothed_correction: tf.Tensor,
) -> Estimate:
  """Returns Delta for one round.

  Args:
    rule: The estimator.
    basis: Float [k, D], Q as it was before the round. None for the identity,
      where coordinates are updates and k is D.
    baseline: Float64 [k], c = sum_i n_i s_i over all clients, before the round.
    cohort: The round's reports; m may be 0.
    weighted_sum: Float [D], sum over the reports of w_i (g_i - Q^T u_i).
    population_weight: Float64 scalar Z; 0 if no client was ever seen.
    smoothed_correction: Float [D], R before the round; [0] if
      `rule.smooths` is False.

  Returns:
    An `Estimate`. In a round without reports Delta is the baseline, plus what
    the smoothing remembers: R stays as it is under self-normalised weights and
    decays by (1 - a) under the others.
  """
  dtype = weighted_sum.dtype
  used = cohort.fresh if rule.refreshes_before else cohort.cached
  importance = cohort.multiplicity * rule.importance(
    cohort.weights, cohort.probabilities
  )
  shift = tf.linalg.matvec(
    cohort.subtracted - used, importance, transpose_a=True
  )
  baseline = updated_baseline(baseline, cohort, used)
  baseline = tf.cast(baseline * _reciprocal(population_weight), dtype)
  # Both at once: Q is read once.
  shift, reconstructed = _combine(basis, shift, baseline)
  correction = weighted_sum + shift
  if rule.normalizes:
    normalizer = tf.cast(tf.reduce_sum(importance), tf.float64)
  else:
    normalizer = population_weight
  correction *= tf.cast(_reciprocal(normalizer), dtype)

  smoothing = tf.constant(rule.correction_smoothing, dtype)
  if rule.smooths:
    smoothed = (1 - smoothing) * smoothed_correction + smoothing * correction
    if rule.lasts:
      somebody = tf.reduce_sum(importance) > 0
      smoothed = tf.where(somebody, smoothed, smoothed_correction)
    correction = smoothed
    remembered = smoothed
  else:
    remembered = smoothed_correction
  return Estimate(reconstructed + correction, remembered)


def updated_baseline(
  baseline: tf.Tensor, cohort: Cohort, coordinates: tf.Tensor
) -> tf.Tensor:
  """Returns c with the cohort's part replaced, at a cost independent of N.

  Args:
    baseline: Float64 [k], sum_i n_i s_i with the previous n_i and cached s_i.
    cohort: The round's reports.
    coordinates: Float [m, k], what stands for the active clients from now on.

  Returns:
    Float64 [k].
  """
  new = coordinates * cohort.weights[:, tf.newaxis]
  old = cohort.cached * cohort.previous_weights[:, tf.newaxis]
  # The products are rounded in the dtype of the coordinates, as those in the
  # cache are, so that what is taken off later is what was added here.
  change = tf.cast(new, tf.float64) - tf.cast(old, tf.float64)
  first = tf.cast(cohort.first, tf.float64)[:, tf.newaxis]
  return baseline + tf.reduce_sum(first * change, axis=0)


def _combine(
  basis: Optional[tf.Tensor], *coordinates: tf.Tensor
) -> Sequence[tf.Tensor]:
  """Returns Q^T s for each of the coordinates [k]."""
  if basis is None:
    return coordinates
  return tf.unstack(projection.reconstruct(basis, tf.stack(coordinates)))


def _reciprocal(value: tf.Tensor) -> tf.Tensor:
  return tf.math.divide_no_nan(tf.ones_like(value), value)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
  """Checks that a parameter is one of a few strings.

  Args:
    name: Its name, for the message.
    value: Its value.
    choices: The strings that are allowed.

  Raises:
    ValueError: If `value` is none of them.
  """
  if not isinstance(value, str) or value not in choices:
    listed = ', '.join(repr(choice) for choice in choices)
    raise ValueError(f'{name} must be one of {listed}, found {value!r}')
