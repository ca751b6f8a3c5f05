"""How updates travel from the clients to the server: four designs.

Every design brings the server the same thing, a `Gathered` round, and differs
in what it costs and reveals. D is the size of the model, k that of the core
set, m the number of active clients, b the size of a sketch.

                       download  upload               server memory  exact Q g
  sketched_projection  k b       D + 2 k              D + k D        no
  client_projection    k D       2 D + 2 k            D + k D        yes
  server_projection    0         D                    m D            yes
  dense                k D       D + k D + 2 N k      as the upload  yes

Where clients of a round may enter the core set after it, the server keeps at
most k more updates while it collects a round: k D numbers.

Unless the core set is given, a place for a sketch goes up as well: b numbers,
N b in `dense`. They are zeros in rounds in which no sketches are collected.
With a factory for the correction, its input, D numbers, goes up beside the
report, in which a place for the update remains. If participation probabilities
are estimated, all N of them go down wherever updates are weighted before the
server has them: everywhere but in `server_projection` without a factory for the
correction, and but for the participants' mean, which has no use for them unless
clients of a round may enter the core set.

What a single client shows beside its id, weight and probability: coordinates, a
norm and, while they are collected, its sketch; and its update if it is in the
core set. In `dense` too: each client has its own place in the sum. A plain sum
shows whoever adds up every update, be it as a residual; where a secure sum
takes the correction, no place for the update holds it but that of core
clients. `server_projection` always shows all updates. See `docs/privacy.md`.

In `client_projection` and `dense` the sum over clients is that of the weighted
residuals w_i (g_i - Q^T s'_i), in the others that of the weighted updates
w_i g_i, and the server takes the reconstructions off.
"""

import collections
from collections.abc import Mapping
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import subspace
from fedsteer_tff.aggregators import probability_estimates
from fedsteer_tff.aggregators import reports

SKETCHED_PROJECTION = 'sketched_projection'
SERVER_PROJECTION = 'server_projection'
CLIENT_PROJECTION = 'client_projection'
DENSE = 'dense'
DESIGNS = (SKETCHED_PROJECTION, SERVER_PROJECTION, CLIENT_PROJECTION, DENSE)

# Entries of a report that the server keeps for every client of a round.
_TABLE = (
  'client_id',
  'weight',
  'probability',
  'coordinates',
  'inner_products',
  'squared_norm',
  'sketch',
)

# Clients that may enter the core set, in one order.
_CANDIDATES = ('candidate_id', 'candidate_update', 'candidate_score')


def gathered_spec(spec: reports.ReportSpec) -> Mapping[str, tf.TensorSpec]:
  """Describes what a design brings to the server in a round.

  Args:
    spec: The sizes.

  Returns:
    Specs of
    * weighted_sum [D]: sum of w_i (g_i - Q^T u_i) over the reports.
    * client_id, weight, probability, squared_norm [m]; coordinates,
      inner_products, subtracted (u_i) [m, k]; sketch [m, b]; multiplicity [m]:
      the reports, see `reports.build_report`.
    * gram [k, k]: of what `inner_products` were taken with.
    * core_slot [r], core_update [r, D]: fresh rows of Q.
    * update [m, D]: the updates g_i, if `spec.keeps_updates`.
    * candidate_id [c], candidate_update [c, D]: if `spec.admits_reporting`,
      the c <= k clients outside the core set that should enter it first.
    * reported_probability [m]: what clients know of `probability`, if that is
      estimated.
    * nonfinite_clients, duplicate_clients: how many were dropped or merged.
  """
  k, width = spec.core_set_size, spec.sketch_width
  floats = dict(dtype=tf.float32)
  gathered = collections.OrderedDict(
    weighted_sum=tf.TensorSpec([spec.dimension], **floats),
    client_id=tf.TensorSpec([None], tf.int32),
    weight=tf.TensorSpec([None], **floats),
    probability=tf.TensorSpec([None], **floats),
    coordinates=tf.TensorSpec([None, k], **floats),
    inner_products=tf.TensorSpec([None, k], **floats),
    squared_norm=tf.TensorSpec([None], **floats),
    sketch=tf.TensorSpec([None, width], **floats),
    subtracted=tf.TensorSpec([None, k], **floats),
    multiplicity=tf.TensorSpec([None], **floats),
    gram=tf.TensorSpec([k, k], **floats),
    core_slot=tf.TensorSpec([None], tf.int32),
    core_update=tf.TensorSpec([None, spec.dimension], **floats),
    nonfinite_clients=tf.TensorSpec([], tf.int32),
    duplicate_clients=tf.TensorSpec([], tf.int32),
  )
  if spec.keeps_updates:
    gathered['update'] = tf.TensorSpec([None, spec.dimension], **floats)
  if spec.estimator is not None:
    gathered['reported_probability'] = tf.TensorSpec([None], **floats)
  if spec.admits_reporting:
    gathered['candidate_id'] = tf.TensorSpec([None], tf.int32)
    gathered['candidate_update'] = tf.TensorSpec(
      [None, spec.dimension], **floats
    )
  return gathered


def build_gather(
  design: str,
  spec: reports.ReportSpec,
  state_type: tff.Type,
  value_type: tff.Type,
  correction_process: Optional[tff.templates.AggregationProcess],
) -> tuple[Callable[..., tuple[Any, Any, Any]], tff.Type]:
  """Builds the federated part of a round.

  Args:
    design: One of `DESIGNS`.
    spec: The sizes.
    state_type: Type of the server state, which has `core_set`, what
      `spec.basis` takes and `collecting`; and `last_seen` and `participation`,
      if probabilities are estimated.
    value_type: Type of the aggregated values.
    correction_process: Sums the D-sized part, float32 [D] from each client;
      None for a plain sum.

  Returns:
    A function (state, values, weights, correction_state) -> (gathered,
    correction_state, correction_measurements) to be called inside a federated
    computation, the last being None without `correction_process`; and the
    type of `gathered`.
  """
  client_projects = design in (CLIENT_PROJECTION, DENSE)
  plain = correction_process is None
  # Without a core set nothing is subtracted: the update says it all.
  sends_contribution = (
    not plain
    or design == DENSE
    or (design == CLIENT_PROJECTION and spec.core_set_size > 0)
  )
  # By which clients weight their updates, where they have to.
  sent_estimator = None
  if (spec.rule.uses_probabilities or spec.admits_reporting) and not (
    plain and design == SERVER_PROJECTION
  ):
    sent_estimator = spec.estimator

  @tff.tensorflow.computation(state_type)
  def prepare_broadcast(
    state: Mapping[str, Any],
  ) -> collections.OrderedDict[str, Any]:
    message = collections.OrderedDict(
      core_set=state['core_set'], collecting=state['collecting']
    )
    if design != SERVER_PROJECTION:
      basis = spec.basis(state)
      message['basis'] = basis
      message['factor'] = subspace.ridge_factor(
        subspace.gram_matrix(basis), spec.ridge, spec.absolute_ridge
      )
    if sent_estimator is not None:
      message['probabilities'] = probability_estimates.active_probabilities(
        sent_estimator, state
      )
    return message

  message_type = prepare_broadcast.type_signature.result

  @tff.tensorflow.computation(message_type, value_type, np.float32)
  def report(
    message: Mapping[str, Any], value: Mapping[str, Any], weight: tf.Tensor
  ) -> collections.OrderedDict[str, Any]:
    built = reports.build_report(
      spec,
      value,
      weight,
      basis=message.get('basis'),
      factor=message.get('factor'),
      core_set=message['core_set'],
      collecting=message['collecting'],
      probabilities=message.get('probabilities'),
    )
    result = collections.OrderedDict(report=built)
    if sends_contribution:
      contribution = built['update']
      if client_projects:
        contribution -= subspace.reconstruct(
          message['basis'], built['coordinates'][tf.newaxis]
        )[0]
      result['contribution'] = _importance(spec, built) * contribution
      built.pop('importance', None)
      if design != SERVER_PROJECTION:
        built['update'] = tf.where(
          built['core_slot'] >= 0, built['update'], 0.0
        )
    return result

  report_type = report.type_signature.result.report
  vector_type = tff.TensorType(np.float32, [spec.dimension])

  @tff.tensorflow.computation(report.type_signature.result)
  def select_report(result: Mapping[str, Any]) -> Mapping[str, Any]:
    return result['report']

  if plain:
    item_type = report.type_signature.result
  else:
    item_type = report_type

    @tff.tensorflow.computation(report.type_signature.result)
    def select_contribution(result: Mapping[str, Any]) -> tf.Tensor:
      return result['contribution']

  if design == DENSE:
    aggregate = _build_dense_sum(spec, item_type, plain)
  else:
    aggregate = _build_list_aggregate(spec, design, item_type, plain)
  unfinished_type = aggregate.type_signature.result.member

  @tff.tensorflow.computation(state_type, unfinished_type, vector_type)
  def finish(
    state: Mapping[str, Any],
    unfinished: Mapping[str, Any],
    weighted_sum: tf.Tensor,
  ) -> collections.OrderedDict[str, Any]:
    return _finish(spec, design, plain, state, unfinished, weighted_sum)

  @tff.tensorflow.computation
  def no_sum() -> tf.Tensor:
    return tf.zeros([spec.dimension])

  def gather(
    state: tff.Value,
    values: tff.Value,
    weights: tff.Value,
    correction_state: Optional[tff.Value],
  ) -> tuple[tff.Value, Optional[tff.Value], Optional[tff.Value]]:
    message = tff.federated_broadcast(
      tff.federated_map(prepare_broadcast, state)
    )
    results = tff.federated_map(report, (message, values, weights))
    if correction_process is None:
      unfinished = aggregate(results)
      weighted_sum = tff.federated_eval(no_sum, tff.SERVER)
      measurements = None
    else:
      unfinished = aggregate(tff.federated_map(select_report, results))
      output = correction_process.next(
        correction_state, tff.federated_map(select_contribution, results)
      )
      weighted_sum, measurements = output.result, output.measurements
      correction_state = output.state
    gathered = tff.federated_map(finish, (state, unfinished, weighted_sum))
    return gathered, correction_state, measurements

  return gather, finish.type_signature.result


def _build_list_aggregate(
  spec: reports.ReportSpec, design: str, item_type: tff.Type, plain: bool
) -> tff.Computation:
  """Aggregates reports into lists, and contributions into a sum.

  A second report of a client is left out when it arrives. Two accumulators
  that hold the same client, one each, can only drop its second report from
  lists; in the sum, both stay.
  """
  collects = design == SERVER_PROJECTION
  keeps_sum = plain and not collects
  specs = gathered_spec(spec)

  def empty(item: tf.TensorSpec) -> tf.Tensor:
    shape = [size or 0 for size in item.shape]
    return tf.compat.v1.placeholder_with_default(
      tf.zeros(shape, item.dtype), item.shape
    )

  list_names: tuple[str, ...] = _TABLE + ('core_slot', 'core_update')
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
        updates=[
          empty(specs['candidate_update']) for _ in range(spec.core_set_size)
        ],
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
    importance = tf.where(counts, _importance(spec, report), 0.0)
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
      (name, _append(accumulator[name], report[name], listed))
      for name in _TABLE
    )
    is_row = counts if collects else counts & (report['core_slot'] >= 0)
    new['core_slot'] = _append(
      accumulator['core_slot'], report['core_slot'], is_row
    )
    new['core_update'] = _append(
      accumulator['core_update'], report['update'], is_row
    )
    if keeps_candidates:
      new['candidates'] = _offer_candidate(
        accumulator['candidates'], report, counts & (report['core_slot'] < 0)
      )
    new['repeated'] = _append(accumulator['repeated'], repeated, listed)
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
    for name in _TABLE:
      merged[name] = tf.concat(
        [first[name], tf.boolean_mask(second[name], listed)], axis=0
      )
    for name in ('core_slot', 'core_update'):
      merged[name] = tf.concat(
        [first[name], tf.boolean_mask(second[name], fresh_row)], axis=0
      )
    if keeps_candidates:
      merged['candidates'] = _merge_candidates(
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


def _build_dense_sum(
  spec: reports.ReportSpec, item_type: tff.Type, plain: bool
) -> tff.Computation:
  """Aggregates by one plain sum: every client sends a place for everybody."""
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
    for name in _TABLE[1:]:
      entry = tf.reshape(report[name], [1, -1])
      dense[name] = place[:, tf.newaxis] * entry
    if plain:
      dense['weighted_sum'] = item['contribution']
    return dense

  @tff.federated_computation(tff.FederatedType(item_type, tff.CLIENTS))
  def aggregate(items: tff.Value) -> tff.Value:
    return tff.federated_sum(tff.federated_map(spread, items))

  return aggregate


def _offer_candidate(
  candidates: Mapping[str, Any],
  report: Mapping[str, tf.Tensor],
  eligible: tf.Tensor,
) -> collections.OrderedDict[str, Any]:
  """Returns the candidates, at most k, with that of a report if it is better.

  Ids, scores and places are in order of arrival. Every update has a place of
  its own, so that another's arrival does not copy it.

  Args:
    candidates: `id`, `score` and `place` [c], and k `updates` [1, D], or [0, D]
      in a place that nobody has.
    report: See `reports.build_report`.
    eligible: Bool scalar, whether the report is a candidate's.

  Returns:
    The same as `candidates`.
  """
  scores, places = candidates['score'], candidates['place']
  count, most = tf.size(scores), len(candidates['updates'])
  full = count >= most
  # The last of the lowest; there is none before the first arrival.
  latest_first = tf.reverse(tf.concat([scores, [float('inf')]], 0), axis=[0])
  lowest = count - tf.argmin(latest_first, output_type=tf.int32)
  beaten = report['admission_score'] > tf.reduce_min(latest_first)
  enters = eligible & (~full | beaten)
  stays = ~(full & enters & tf.equal(tf.range(count), lowest))
  place = tf.where(full, tf.concat([places, [0]], 0)[lowest], count)

  def listed(name: str, value: tf.Tensor) -> tf.Tensor:
    return _append(tf.boolean_mask(candidates[name], stays), value, enters)

  def placed(number: int, occupant: tf.Tensor) -> tf.Tensor:
    return tf.cond(
      enters & tf.equal(place, number),
      lambda: report['update'][tf.newaxis],
      lambda: occupant,
    )

  return collections.OrderedDict(
    id=listed('id', report['client_id']),
    score=listed('score', report['admission_score']),
    place=listed('place', place),
    updates=[placed(i, old) for i, old in enumerate(candidates['updates'])],
  )


def _merge_candidates(
  first: Mapping[str, Any], second: Mapping[str, Any], first_ids: tf.Tensor
) -> collections.OrderedDict[str, Any]:
  """Returns the best of two accumulators' candidates.

  Args:
    first: See `_offer_candidate`.
    second: Candidates that came later; those whose clients are among
      `first_ids` are left out.
    first_ids: Int32 [n].

  Returns:
    The same as `first`.
  """
  others = ~tf.reduce_any(
    tf.equal(second['id'][:, tf.newaxis], first_ids[tf.newaxis]), axis=1
  )
  most = len(first['updates'])
  merged = _best_candidates(
    most,
    *(
      tf.concat([ours, tf.boolean_mask(theirs, others)], axis=0)
      for ours, theirs in (
        (first['id'], second['id']),
        (_candidate_updates(first), _candidate_updates(second)),
        (first['score'], second['score']),
      )
    ),
  )
  updates = merged['candidate_update']
  return collections.OrderedDict(
    id=merged['candidate_id'],
    score=merged['candidate_score'],
    place=tf.range(tf.size(merged['candidate_id'])),
    updates=[updates[i : i + 1] for i in range(most)],
  )


def _candidate_updates(candidates: Mapping[str, Any]) -> tf.Tensor:
  """Returns the candidates' updates [c, D] in order of arrival."""
  places = candidates['place']
  by_place = tf.concat(candidates['updates'], axis=0)
  in_order = tf.reduce_all(tf.equal(places, tf.range(tf.size(places))))
  return tf.cond(
    in_order, lambda: by_place, lambda: tf.gather(by_place, places)
  )


def _best_candidates(
  most: int,
  client_ids: tf.Tensor,
  updates: tf.Tensor,
  scores: tf.Tensor,
) -> dict[str, tf.Tensor]:
  """Returns the candidates of the largest scores, in order of arrival."""
  candidates = dict(zip(_CANDIDATES, (client_ids, updates, scores)))

  def best() -> dict[str, tf.Tensor]:
    places = tf.sort(tf.math.top_k(scores, most).indices)
    return {name: tf.gather(v, places) for name, v in candidates.items()}

  return tf.cond(tf.size(scores) > most, best, lambda: candidates)


def _importance(
  spec: reports.ReportSpec, report: Mapping[str, tf.Tensor]
) -> tf.Tensor:
  """Returns w_i of a report."""
  if 'importance' in report:
    return report['importance']
  return spec.rule.importance(report['weight'], report['probability'])


def _append(
  values: tf.Tensor, value: tf.Tensor, condition: tf.Tensor
) -> tf.Tensor:
  """Appends `value` to `values` along the first axis if `condition`."""
  # A branch: most updates are appended to nothing, and should not be copied.
  return tf.cond(
    condition,
    lambda: tf.concat([values, value[tf.newaxis]], axis=0),
    lambda: values,
  )


def _finish(
  spec: reports.ReportSpec,
  design: str,
  plain: bool,
  state: Mapping[str, Any],
  unfinished: Mapping[str, Any],
  weighted_sum: tf.Tensor,
) -> collections.OrderedDict[str, Any]:
  """Brings what a design aggregated into the form of `gathered_spec`."""
  if design == DENSE:
    table = _undo_spread(spec, unfinished)
  else:
    table = dict(unfinished)
    table['multiplicity'] = tf.ones_like(table['weight'])
    candidates = table.pop('candidates', None)
    if candidates is not None:
      table['candidate_id'] = candidates['id']
      table['candidate_update'] = _candidate_updates(candidates)
  if spec.estimator is not None:
    table['reported_probability'] = table['probability']
    table['probability'] = probability_estimates.used_probabilities(
      table['probability'],
      table['client_id'],
      probability_estimates.active_probabilities(spec.estimator, state),
    )
  basis = spec.basis(state)
  gram = subspace.gram_matrix(basis)
  if plain and design != SERVER_PROJECTION:
    weighted_sum = table['weighted_sum']
  if design == SERVER_PROJECTION:
    updates, slots = table['core_update'], table['core_slot']
    if plain:
      importance = spec.rule.importance(table['weight'], table['probability'])
      weighted_sum = tf.linalg.matvec(updates, importance, transpose_a=True)
    inner = tf.matmul(updates, basis, transpose_b=True)
    factor = subspace.ridge_factor(gram, spec.ridge, spec.absolute_ridge)
    coordinates = subspace.solve_coordinates(factor, inner)
    # Repeated reports have no row: they share their client's first one.
    if not plain:
      ids = table['client_id']
      owners = tf.boolean_mask(ids, ~table['repeated'])
      same = tf.cast(
        tf.equal(ids[:, tf.newaxis], owners[tf.newaxis]), tf.float32
      )
      inner, coordinates = tf.matmul(same, inner), tf.matmul(same, coordinates)
    table['inner_products'], table['coordinates'] = inner, coordinates
    is_core = slots >= 0
    if spec.admits_reporting:
      scores = subspace.admission_scores(
        updates, basis, coordinates, table['weight'], table['probability']
      )
      table.update(
        _best_candidates(
          spec.core_set_size,
          *(
            tf.boolean_mask(values, ~is_core)
            for values in (table['client_id'], updates, scores)
          ),
        )
      )
    table['update'] = updates
    table['core_slot'] = tf.boolean_mask(slots, is_core)
    table['core_update'] = tf.boolean_mask(updates, is_core)
  table['weighted_sum'] = weighted_sum
  table['gram'] = gram
  table['subtracted'] = (
    table['coordinates']
    if design in (CLIENT_PROJECTION, DENSE)
    else tf.zeros_like(table['coordinates'])
  )
  return collections.OrderedDict(
    (name, tf.ensure_shape(table[name], item.shape))
    for name, item in gathered_spec(spec).items()
  )


def _undo_spread(
  spec: reports.ReportSpec, dense: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
  """Turns sums over all clients into rows, averages where ids repeat."""
  count = dense['count']
  ids = tf.cast(tf.where(count > 0)[:, 0], tf.int32)
  multiplicity = tf.gather(count, ids)
  table = {'client_id': ids, 'multiplicity': multiplicity}
  shapes = gathered_spec(spec)
  for name in _TABLE[1:]:
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
