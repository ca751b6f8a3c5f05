"""Who reported when, with which weight: what every algorithm's server keeps.

TensorFlow code on the server's state. N is the population's size.
"""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from fedsteer_tff import subspace


def empty_registry(population_size: int) -> 'collections.OrderedDict[str, Any]':
  """Returns the registry before the first round.

  Args:
    population_size: N.

  Returns:
    * round_num: int32, rounds done.
    * client_weight: float32 [N], n_i as reported last, 0 if never.
    * last_seen: int32 [N], the round of a client's last report, -1 if never.
    * weight_seen: float64, sum of client_weight.
    * clients_seen: int32, clients that reported at least once.
  """
  return collections.OrderedDict(
    round_num=tf.constant(0),
    client_weight=tf.zeros([population_size]),
    last_seen=tf.fill([population_size], -1),
    weight_seen=tf.constant(0.0, tf.float64),
    clients_seen=tf.constant(0),
  )


def first_reports(client_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Finds each report's client's first report in a round.

  Args:
    client_ids: Int32 [m].

  Returns:
    Int32 [m], the index of that report, and bool [m], whether it is that one.
  """
  _, group = tf.unique(client_ids)
  position = tf.range(tf.shape(client_ids)[0])
  # A group cannot be empty, so a segment's minimum is its first report.
  first_of_group = tf.math.unsorted_segment_min(
    position, group, tf.shape(client_ids)[0]
  )
  first = tf.gather(first_of_group, group)
  return first, tf.equal(first, position)


def register(
  state: Mapping[str, tf.Tensor], cohort: subspace.Cohort, owners: tf.Tensor
) -> 'collections.OrderedDict[str, Any]':
  """Remembers who reported, and with which weight.

  Args:
    state: Has the entries of `empty_registry`, perhaps among others.
    cohort: The round's reports.
    owners: Int32 [m], the reports' clients.

  Returns:
    The state with those entries renewed, but for `round_num`.
  """
  first = tf.cast(cohort.first, tf.float64)
  change = tf.cast(cohort.weights, tf.float64) - tf.cast(
    cohort.previous_weights, tf.float64
  )
  is_new = tf.gather(state['last_seen'], owners) < 0
  new = collections.OrderedDict(state)
  new['weight_seen'] = state['weight_seen'] + tf.reduce_sum(first * change)
  new['clients_seen'] = state['clients_seen'] + tf.reduce_sum(
    tf.cast(is_new & cohort.first, tf.int32)
  )
  new['client_weight'] = replace_rows(
    state['client_weight'], owners, cohort.weights, cohort.first
  )
  now = tf.fill(tf.shape(owners), state['round_num'])
  new['last_seen'] = replace_rows(state['last_seen'], owners, now, cohort.first)
  return new


def population_weight(
  state: Mapping[str, tf.Tensor], population_size: int, weights_are_shares: bool
) -> tf.Tensor:
  """Returns Z, the sum of n_i over the population.

  Args:
    state: Has the entries of `empty_registry`, with this round's reports; and
      `participation`, if probabilities are estimated.
    population_size: N.
    weights_are_shares: Whether that sum is 1 by definition; if not, it is
      estimated by N times the mean weight of the clients seen, 0 without any.
      In a population that grows up to N clients it is estimated by the mean
      over all rounds of sum_{i in A} n_i / p_i (Horvitz and Thompson, 1952), or
      by the weight of the clients seen, whichever is more.

  Returns:
    A float64 scalar.
  """
  if weights_are_shares:
    return tf.constant(1.0, tf.float64)
  drawn = state.get('participation', {}).get('weight_drawn')
  if drawn is not None:
    rounds = tf.cast(state['round_num'] + 1, tf.float64)
    return tf.maximum(drawn / rounds, state['weight_seen'])
  return tf.math.divide_no_nan(
    population_size * state['weight_seen'],
    tf.cast(state['clients_seen'], tf.float64),
  )


def shares(weights: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
  """Returns the clients' shares of the population's weight.

  Args:
    weights: Float [m], n_i.
    total: Float64 scalar Z >= 0, see `population_weight`.

  Returns:
    Float64 [m], d_i = n_i / Z; 0 if Z is.
  """
  return tf.cast(weights, tf.float64) * tf.math.divide_no_nan(
    tf.ones_like(total), total
  )


def replace_rows(
  values: tf.Tensor, owners: tf.Tensor, rows: tf.Tensor, first: tf.Tensor
) -> tf.Tensor:
  """Returns a table with the rows of a round's reports at their clients.

  Args:
    values: [N, ...], one row a client.
    owners: Int32 [m], the reports' clients.
    rows: [m, ...], of the dtype of `values`.
    first: Bool [m], False for further reports of a client: their rows are left
      out.

  Returns:
    Of the shape and dtype of `values`.
  """
  return tf.tensor_scatter_nd_update(
    values,
    tf.boolean_mask(owners, first)[:, tf.newaxis],
    tf.boolean_mask(rows, first),
  )
