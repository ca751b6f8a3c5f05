"""Reports in lists: how all designs but `dense` bring them to the server."""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.aggregators import candidates
from fedsteer_tff.aggregators import gathering
from fedsteer_tff.aggregators import reports


def build_list_aggregate(
  spec: reports.ReportSpec,
  item_type: tff.Type,
  plain: bool,
  *,
  collects: bool,
) -> tff.Computation:
  """Aggregates reports into lists, and contributions into a sum.

  A second report of a client is left out when it arrives. Two accumulators
  that hold the same client, one each, can only drop its second report from
  lists; in the sum, both stay.

  Args:
    spec: The sizes.
    item_type: The type of a client's report, with its contribution to the sum
      if `plain`.
    plain: Whether contributions are summed here, and not by a factory.
    collects: Whether the server collects all updates, and sums them later.

  Returns:
    A federated computation from items at clients to lists at the server.
  """
  keeps_sum = plain and not collects
  specs = gathering.gathered_spec(spec)

  def empty(item: tf.TensorSpec) -> tf.Tensor:
    shape = [size or 0 for size in item.shape]
    return tf.compat.v1.placeholder_with_default(
      tf.zeros(shape, item.dtype), item.shape
    )

  list_names: tuple[str, ...] = gathering.TABLE + ('core_slot', 'core_update')
  # The server finds them among all updates where it has these.
  keeps_candidates = spec.admits_reporting and not collects

  @tff.tensorflow.computation
  def zero() -> collections.OrderedDict[str, Any]:
    accumulator = collections.OrderedDict(
      (name, empty(specs[name])) for name in list_names
    )
    if keeps_candidates:
      accumulator['candidates'] = collections.OrderedDict(
        id=empty(tf.TensorSpec([None], tf.int32)),
        score=empty(tf.TensorSpec([None], tf.float32)),
        place=empty(tf.TensorSpec([None], tf.int32)),
        updates=[empty(item) for item in specs['candidate_updates']],
      )
    accumulator['repeated'] = empty(tf.TensorSpec([None], tf.bool))
    if keeps_sum:
      accumulator['weighted_sum'] = tf.zeros([spec.dimension])
    accumulator['nonfinite_clients'] = tf.constant(0)
    accumulator['duplicate_clients'] = tf.constant(0)
    return accumulator

  accumulator_type = zero.type_signature.result

  def contribution_of(item: Mapping[str, Any], counts: tf.Tensor) -> tf.Tensor:
    if 'contribution' in item:
      return tf.where(counts, 1.0, 0.0) * item['contribution']
    report = item['report']
    importance = tf.where(counts, spec.importance(report), 0.0)
    return importance * report['update']

  def has(ids: tf.Tensor, client_id: tf.Tensor) -> tf.Tensor:
    return tf.reduce_any(tf.equal(ids, client_id))

  @tff.tensorflow.computation(accumulator_type, item_type)
  def accumulate(
    accumulator: Mapping[str, Any], item: Mapping[str, Any]
  ) -> collections.OrderedDict[str, Any]:
    report = item['report'] if plain else item
    repeated = report['counts'] & has(
      accumulator['client_id'], report['client_id']
    )
    counts = report['counts'] & ~repeated
    # What another factory has summed already cannot be left out again.
    listed = counts if plain else report['counts']
    new = collections.OrderedDict(
      (name, candidates.append_if(accumulator[name], report[name], listed))
      for name in gathering.TABLE
    )
    is_row = counts if collects else counts & (report['core_slot'] >= 0)
    new['core_slot'] = candidates.append_if(
      accumulator['core_slot'], report['core_slot'], is_row
    )
    new['core_update'] = candidates.append_if(
      accumulator['core_update'], report['update'], is_row
    )
    if keeps_candidates:
      new['candidates'] = candidates.offer(
        accumulator['candidates'], report, counts & (report['core_slot'] < 0)
      )
    new['repeated'] = candidates.append_if(
      accumulator['repeated'], repeated, listed
    )
    if keeps_sum:
      new['weighted_sum'] = accumulator['weighted_sum'] + contribution_of(
        item, counts
      )
    new['nonfinite_clients'] = accumulator['nonfinite_clients'] + tf.cast(
      report['nonfinite'], tf.int32
    )
    new['duplicate_clients'] = accumulator['duplicate_clients'] + tf.cast(
      repeated, tf.int32
    )
    return new

  @tff.tensorflow.computation(accumulator_type, accumulator_type)
  def merge(
    first: Mapping[str, Any], second: Mapping[str, Any]
  ) -> collections.OrderedDict[str, Any]:
    again = tf.reduce_any(
      tf.equal(
        second['client_id'][:, tf.newaxis], first['client_id'][tf.newaxis]
      ),
      axis=1,
    )
    duplicates = tf.reduce_sum(tf.cast(again & ~second['repeated'], tf.int32))
    merged = collections.OrderedDict()
    fresh_row = ~tf.reduce_any(
      tf.equal(
        second['core_slot'][:, tf.newaxis], first['core_slot'][tf.newaxis]
      ),
      axis=1,
    )
    listed = tf.ones_like(again)
    if collects:
      # Here rows go with reports, one with each that is not repeated.
      fresh_row = tf.boolean_mask(~again, ~second['repeated'])
      listed = ~again if plain else listed
    for name in gathering.TABLE:
      merged[name] = tf.concat(
        [first[name], tf.boolean_mask(second[name], listed)], axis=0
      )
    for name in ('core_slot', 'core_update'):
      merged[name] = tf.concat(
        [first[name], tf.boolean_mask(second[name], fresh_row)], axis=0
      )
    if keeps_candidates:
      merged['candidates'] = candidates.merge(
        first['candidates'], second['candidates'], first['client_id']
      )
    merged['repeated'] = tf.concat(
      [
        first['repeated'],
        tf.boolean_mask(second['repeated'] | again, listed),
      ],
      axis=0,
    )
    if keeps_sum:
      merged['weighted_sum'] = first['weighted_sum'] + second['weighted_sum']
    for name in ('nonfinite_clients', 'duplicate_clients'):
      merged[name] = first[name] + second[name]
    merged['duplicate_clients'] += duplicates
    return merged

  @tff.tensorflow.computation(accumulator_type)
  def identity(accumulator: Mapping[str, Any]) -> Mapping[str, Any]:
    return accumulator

  @tff.federated_computation(tff.FederatedType(item_type, tff.CLIENTS))
  def aggregate(items: tff.Value) -> tff.Value:
    return tff.federated_aggregate(items, zero(), accumulate, merge, identity)

  return aggregate
