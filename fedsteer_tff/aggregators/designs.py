"""How updates travel from the clients to the server: four designs.

Every design brings the server the same thing, see `gathering`, and differs
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
from fedsteer_tff.aggregators import candidates
from fedsteer_tff.aggregators import dense_sum
from fedsteer_tff.aggregators import gathering
from fedsteer_tff.aggregators import probability_estimates
from fedsteer_tff.aggregators import report_lists
from fedsteer_tff.aggregators import reports

SKETCHED_PROJECTION = 'sketched_projection'
SERVER_PROJECTION = 'server_projection'
CLIENT_PROJECTION = 'client_projection'
DENSE = 'dense'
DESIGNS = (SKETCHED_PROJECTION, SERVER_PROJECTION, CLIENT_PROJECTION, DENSE)


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
      result['contribution'] = spec.importance(built) * contribution
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
    aggregate = dense_sum.build_dense_sum(spec, item_type, plain)
  else:
    aggregate = report_lists.build_list_aggregate(
      spec, item_type, plain, collects=design == SERVER_PROJECTION
    )
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


def _finish(
  spec: reports.ReportSpec,
  design: str,
  plain: bool,
  state: Mapping[str, Any],
  unfinished: Mapping[str, Any],
  weighted_sum: tf.Tensor,
) -> collections.OrderedDict[str, Any]:
  """Returns what a design aggregated in the form of `gathered_spec`."""
  if design == DENSE:
    table = dense_sum.undo_spread(spec, unfinished)
  else:
    table = dict(unfinished)
    table['multiplicity'] = tf.ones_like(table['weight'])
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
    remembered = spec.remembered(updates, coordinates)
    # Repeated reports have no row: they share their client's first one.
    if not plain:
      ids = table['client_id']
      owners = tf.boolean_mask(ids, ~table['repeated'])
      same = tf.cast(
        tf.equal(ids[:, tf.newaxis], owners[tf.newaxis]), tf.float32
      )
      inner, remembered = tf.matmul(same, inner), tf.matmul(same, remembered)
    table['inner_products'], table['coordinates'] = inner, remembered
    is_core = slots >= 0
    if spec.admits_reporting:
      scores = subspace.admission_scores(
        updates, basis, coordinates, table['weight'], table['probability']
      )
      table['candidates'] = candidates.best_of(
        spec.core_set_size,
        *(
          tf.boolean_mask(values, ~is_core)
          for values in (table['client_id'], updates, scores)
        ),
      )
    table['update'] = updates
    table['core_slot'] = tf.boolean_mask(slots, is_core)
    table['core_update'] = tf.boolean_mask(updates, is_core)
  if 'candidates' in table:
    for name in ('id', 'place', 'updates'):
      table[f'candidate_{name}'] = table['candidates'][name]
  table['weighted_sum'] = weighted_sum
  table['gram'] = gram
  table['subtracted'] = (
    table['coordinates']
    if design in (CLIENT_PROJECTION, DENSE)
    else tf.zeros_like(table['coordinates'])
  )
  return collections.OrderedDict(
    (
      name,
      tf.nest.map_structure(
        lambda value, spec: tf.ensure_shape(value, spec.shape),
        table[name],
        specs,
      ),
    )
    for name, specs in gathering.gathered_spec(spec).items()
  )
