"""One plain sum: how the design `dense` brings reports to the server."""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.aggregators import gathering
from fedsteer_tff.aggregators import reports


def build_dense_sum(
  spec: reports.ReportSpec, item_type: tff.Type, plain: bool
) -> tff.Computation:
  """Aggregates by one plain sum: every client sends a place for everybody.

  Args:
    spec: The sizes.
    item_type: The type of a client's report, with its contribution to the sum
      if `plain`.
    plain: Whether contributions are summed here, and not by a factory.

  Returns:
    A federated computation from items at clients to their sum at the server.
  """
  size, k = spec.population_size, spec.core_set_size

  @tff.tensorflow.computation(item_type)
  def spread(item: Mapping[str, Any]) -> collections.OrderedDict[str, Any]:
    report = item['report'] if plain else item
    counts = tf.cast(report['counts'], tf.float32)
    place = tf.one_hot(report['client_id'], size) * counts
    slot = tf.one_hot(report['core_slot'], k) * counts
    dense = collections.OrderedDict(
      core_count=slot,
      core_update=slot[:, tf.newaxis] * report['update'][tf.newaxis],
      count=place,
      nonfinite_clients=tf.cast(report['nonfinite'], tf.int32),
    )
    for name in gathering.TABLE[1:]:
      entry = tf.reshape(report[name], [1, -1])
      dense[name] = place[:, tf.newaxis] * entry
    if plain:
      dense['weighted_sum'] = item['contribution']
    return dense

  @tff.federated_computation(tff.FederatedType(item_type, tff.CLIENTS))
  def aggregate(items: tff.Value) -> tff.Value:
    return tff.federated_sum(tff.federated_map(spread, items))

  return aggregate


def undo_spread(
  spec: reports.ReportSpec, dense: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
  """Turns sums over all clients into rows, averages where ids repeat.

  Args:
    spec: The sizes.
    dense: What `build_dense_sum` aggregated.

  Returns:
    Entries of `gathering.gathered_spec`.
  """
  count = dense['count']
  ids = tf.cast(tf.where(count > 0)[:, 0], tf.int32)
  multiplicity = tf.gather(count, ids)
  table = {'client_id': ids, 'multiplicity': multiplicity}
  shapes = gathering.gathered_spec(spec)
  for name in gathering.TABLE[1:]:
    rows = tf.gather(dense[name], ids) / multiplicity[:, tf.newaxis]
    rank = shapes[name].shape.rank
    table[name] = rows[:, 0] if rank == 1 else rows
  slots = tf.where(dense['core_count'] > 0)[:, 0]
  rows = tf.gather(dense['core_update'], slots)
  rows /= tf.gather(dense['core_count'], slots)[:, tf.newaxis]
  table['core_slot'] = tf.cast(slots, tf.int32)
  table['core_update'] = rows
  table['nonfinite_clients'] = dense['nonfinite_clients']
  table['duplicate_clients'] = tf.cast(
    tf.reduce_sum(multiplicity - 1), tf.int32
  )
  if 'weighted_sum' in dense:
    table['weighted_sum'] = dense['weighted_sum']
  return table
