"""Estimates of participation probabilities, as TensorFlow code on the state.

What a client reports of its own probability p_i is read as follows where p_i is
estimated:

* 1: the client was made to take part in this round. It enters with p_i = 1, and
  the round tells nothing of how often it comes by itself.
* another number in (0, 1]: what p_i truly is. Only metrics use it.
* NaN: nothing, as it is in production.

A client takes part in a round if a report of it can be used: 1 / p_i makes up
for the rounds in which there is none, for whatever reason. So one whose report
is dropped, as not finite, did not take part; of several reports of a client
the first counts, and padding is nobody. A round without reports is a round.
"""

import collections
from collections.abc import Mapping
from typing import Any, Union

import tensorflow as tf

from fedsteer_tff.aggregators import registry
from fedsteer_tff.participation import estimates

# How a report says that it knows nothing of its client's probability: NaN would
# spread through sums over clients.
UNKNOWN = 0.0
_CERTAIN = 1.0

State = Mapping[str, Any]


def initial_state(
  estimator: estimates.Estimator, population_size: int
) -> 'collections.OrderedDict[str, Any]':
  """Returns the estimator's part of the state before the first round.

  Args:
    estimator: The parameters.
    population_size: N.

  Returns:
    Of `RunningFrequency` and `WindowedFrequency`:
    * taken, offered: float32 [N], rounds in which a client took part and
      rounds in all, each as much as it still counts, the prior's included.
    Of `IntervalEstimate`:
    * intervals: int32 [N], how many intervals are over.
    * interval_rounds: int32 [N], the sum of their lengths.
    * waiting: int32 [N], rounds since the last of them ended.
    In a growing population:
    * weight_drawn: float64, the sum over all reports so far of n_i / p_i.
  """
  if isinstance(estimator, estimates.IntervalEstimate):
    state = collections.OrderedDict(
      intervals=tf.zeros([population_size], tf.int32),
      interval_rounds=tf.zeros([population_size], tf.int32),
      waiting=tf.zeros([population_size], tf.int32),
    )
  else:
    prior, rounds = estimator.prior_probability, estimator.prior_rounds
    state = collections.OrderedDict(
      taken=tf.fill([population_size], tf.constant(rounds * prior, tf.float32)),
      offered=tf.fill([population_size], tf.constant(rounds, tf.float32)),
    )
  if _grows(estimator):
    state['weight_drawn'] = tf.constant(0.0, tf.float64)
  return state


def estimated_probabilities(
  estimator: estimates.Estimator, state: State
) -> tf.Tensor:
  """Returns p_i by what is known after the rounds so far.

  Args:
    estimator: The parameters.
    state: The server's state, with the entry `participation`.

  Returns:
    Float32 [N], in (0, 1].
  """
  part = state['participation']
  if isinstance(estimator, estimates.IntervalEstimate):
    number = part['intervals']
    return tf.where(
      number > 0,
      tf.cast(number / tf.maximum(part['interval_rounds'], 1), tf.float32),
      estimator.prior_probability,
    )
  return _bounded(estimator, part['taken'] / part['offered'])


def active_probabilities(
  estimator: estimates.Estimator, state: State
) -> tf.Tensor:
  """Returns the p_i that a client is weighted with if it takes part now.

  Of frequencies this counts the coming round as one in which it does: for x
  among T rounds with Bernoulli draws, E[1{active} / ((1 + x) / (1 + T))] is
  1 - (1 - p_i)^(1 + T), while 1 / (x / T) has no finite mean. The mean of
  intervals is unbiased for 1 / p_i by itself, so that the interval which ends
  now is left out, as published.

  Args:
    estimator: The parameters.
    state: The server's state before the round, with the entries of
      `registry.empty_registry` and `participation`.

  Returns:
    Float32 [N], in (0, 1].
  """
  if isinstance(estimator, estimates.IntervalEstimate):
    return estimated_probabilities(estimator, state)
  part = state['participation']
  taken, offered = _one_round_on(estimator, part, 1.0)
  counts = _counts(estimator, state)
  return _bounded(
    estimator,
    tf.where(counts, taken / offered, part['taken'] / part['offered']),
  )


def used_probabilities(
  reported: tf.Tensor, client_ids: tf.Tensor, probabilities: tf.Tensor
) -> tf.Tensor:
  """Returns the p_i that reports are weighted with.

  Args:
    reported: Float32 of any shape, what clients report of p_i.
    client_ids: Int32 of the same shape; those of padding may be anything.
    probabilities: Float32 [N], see `active_probabilities`.

  Returns:
    Float32 of the reports' shape, in (0, 1].
  """
  places = tf.clip_by_value(client_ids, 0, probabilities.shape[0] - 1)
  return tf.where(
    tf.equal(reported, _CERTAIN), 1.0, tf.gather(probabilities, places)
  )


def observe(
  estimator: estimates.Estimator,
  state: State,
  gathered: Mapping[str, tf.Tensor],
  first: tf.Tensor,
) -> 'collections.OrderedDict[str, Any]':
  """Learns from who took part in a round.

  Args:
    estimator: The parameters.
    state: As `active_probabilities` takes it.
    gathered: See `gathering.gathered_spec`.
    first: Bool [m], False for further reports of a client.

  Returns:
    The new `participation`.
  """
  part = state['participation']
  owners = gathered['client_id']
  nobody = tf.zeros(tf.shape(state['last_seen']), tf.bool)
  took_part = registry.replace_rows(nobody, owners, first, first)
  certain = registry.replace_rows(
    nobody, owners, tf.equal(gathered['reported_probability'], _CERTAIN), first
  )
  counts = _counts(estimator, state) & ~certain
  new = collections.OrderedDict(part)
  if isinstance(estimator, estimates.IntervalEstimate):
    waiting = part['waiting'] + tf.cast(counts, tf.int32)
    ends = counts & (took_part | (waiting >= estimator.cutoff))
    new['intervals'] = part['intervals'] + tf.cast(ends, tf.int32)
    new['interval_rounds'] = part['interval_rounds'] + tf.where(
      ends, waiting, 0
    )
    new['waiting'] = tf.where(ends, 0, waiting)
  else:
    taken, offered = _one_round_on(
      estimator, part, tf.cast(took_part, tf.float32)
    )
    new['taken'] = tf.where(counts, taken, part['taken'])
    new['offered'] = tf.where(counts, offered, part['offered'])
  if _grows(estimator):
    drawn = tf.boolean_mask(
      tf.cast(gathered['weight'], tf.float64)
      / tf.cast(gathered['probability'], tf.float64),
      first,
    )
    new['weight_drawn'] = part['weight_drawn'] + tf.reduce_sum(drawn)
  return new


def metrics(
  estimator: estimates.Estimator,
  state: State,
  gathered: Mapping[str, tf.Tensor],
  first: tf.Tensor,
) -> Mapping[str, tf.Tensor]:
  """Measures how good the estimates are that a round was weighted with.

  Args:
    estimator: The parameters.
    state: The server's state after the round.
    gathered: See `gathering.gathered_spec`.
    first: Bool [m], False for further reports of a client.

  Returns:
    Float32 scalars:
    * participation_absolute_error, participation_relative_error: means of
      |p^_i - p_i| and of |p^_i - p_i| / p_i over the round's active clients
      that report p_i and were not made to take part. Those who take part often
      count often. NaN if there are none, as in production.
    * participation_standard_error, participation_relative_standard_error: means
      of the standard deviation that p_i has given its client's history, and of
      that over p^_i, over all active clients that were not made to take part;
      NaN if there are none. They need no p_i, but see the error of sampling
      alone: none of a floor or cutoff, of drift, or of dependent rounds.
    * participation_expected_clients: the sum of p^_i over the clients that
      there are, to be compared with the mean of active_clients.
  """
  reported = gathered['reported_probability']
  used = gathered['probability']
  by_itself = first & tf.not_equal(reported, _CERTAIN)
  known = by_itself & tf.not_equal(reported, UNKNOWN)
  error = tf.abs(used - reported)
  deviation = tf.gather(
    _standard_errors(estimator, state), gathered['client_id']
  )
  everybody = estimated_probabilities(estimator, state)
  return collections.OrderedDict(
    participation_absolute_error=_mean(error, known),
    participation_relative_error=_mean(error / reported, known),
    participation_standard_error=_mean(deviation, by_itself),
    participation_relative_standard_error=_mean(deviation / used, by_itself),
    participation_expected_clients=tf.reduce_sum(
      tf.where(_counts(estimator, state), everybody, 0.0)
    ),
  )


def _standard_errors(estimator: estimates.Estimator, state: State) -> tf.Tensor:
  """Returns the posterior standard deviations of p_i, float32 [N]."""
  part = state['participation']
  if isinstance(estimator, estimates.IntervalEstimate):
    # As many successes as intervals in as many rounds as those lasted, and any
    # p_i equally likely before.
    number = tf.cast(part['intervals'], tf.float32)
    rounds = tf.cast(part['interval_rounds'], tf.float32)
    mean = (number + 1) / (rounds + 2)
    return tf.sqrt(mean * (1 - mean) / (rounds + 3))
  mean = part['taken'] / part['offered']
  # (sum of weights)^2 / sum of squared weights, for weights d^j that add up to
  # `offered`: that many rounds of equal weight would tell as much.
  decay = estimator.decay
  last = 1 - (1 - decay) * part['offered']
  rounds = part['offered'] * (1 + decay) / (1 + last)
  return tf.sqrt(mean * (1 - mean) / (rounds + 1))


def _grows(estimator: estimates.Estimator) -> bool:
  return estimator.population == estimates.GROWING


def _counts(estimator: estimates.Estimator, state: State) -> tf.Tensor:
  """Returns bool [N], the clients for which a round counts."""
  seen = state['last_seen'] >= 0
  return seen if _grows(estimator) else tf.ones_like(seen)


def _one_round_on(
  estimator: estimates.Frequency,
  part: State,
  took_part: Union[float, tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
  decay = estimator.decay
  return decay * part['taken'] + took_part, decay * part['offered'] + 1


def _bounded(
  estimator: estimates.Frequency, probabilities: tf.Tensor
) -> tf.Tensor:
  return tf.clip_by_value(probabilities, estimator.floor, 1.0)


def _mean(values: tf.Tensor, condition: tf.Tensor) -> tf.Tensor:
  """Returns the mean where the condition holds, NaN if it does nowhere."""
  return tf.reduce_mean(tf.boolean_mask(values, condition))
