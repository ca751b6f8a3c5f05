"""SCAFFOLD's local training: steps corrected by control variates.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", ICML 2020, with option II for the controls. In a round, client i with
control c_i, the server's control c and local rate eta makes K steps

    w <- w - eta (gradient(w) - c_i + c)

and renews its control, g_i being the model it started from minus the last one:

    c_i' = c_i - c + g_i / (K eta)
    c'   = c + (1 / N) sum_{i in A} (c_i' - c_i)

which is |A| / N times the mean change. All controls are 0 at first.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import arguments
from fedsteer_tff.client_work import client_data
from fedsteer_tff.client_work import identified
from fedsteer_tff.client_work import weight_term
from fedsteer_tff.participation import identity as identity_lib


def build_scaffold_client_work(
  model_fn: weight_term.ModelFn,
  optimizer: tff.learning.optimizers.Optimizer,
  *,
  learning_rate: float,
  population_size: int,
  client_weighting: str = identity_lib.KNOWN,
  metrics_aggregator: Optional[Callable[..., Any]] = None,
  loop_implementation: Optional[tff.learning.LoopImplementation] = None,
) -> tff.learning.templates.ClientWorkProcess:
  """Builds local training with control variates that the server keeps.

  Client data and result are those of `build_identified_client_work`. The state
  has `server_control`, D numbers, and `client_controls`, N D, beside what the
  local training itself keeps; in a round all of it is broadcast, so that the
  computation stays one that production forms accept, and each client takes its
  own. K is counted: the batches that the client has. A client that is dropped
  (padding, weight 0, an update that is not finite), that has no batch, or that
  reports again in a round, changes no control.

  Args:
    model_fn: As in `build_identified_client_work`.
    optimizer: Must be SGD of rate `learning_rate` without momentum, else the
      controls do not estimate gradients.
    learning_rate: eta > 0.
    population_size: N.
    client_weighting: 'known' or 'examples'.
    metrics_aggregator: As in `tff.learning.algorithms`.
    loop_implementation: As in `build_identified_client_work`.

  Returns:
    A `ClientWorkProcess`.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If `learning_rate` is not finite and above 0, or
      `population_size` below 1.
  """
  check_scaffold_learning_rate('learning_rate', learning_rate)
  arguments.check_integer('population_size', population_size, 1)
  identified.check_model_fn(model_fn)
  training = identified.build_identified_client_work(
    weight_term.with_term(model_fn),
    optimizer,
    client_weighting=client_weighting,
    metrics_aggregator=metrics_aggregator,
    loop_implementation=loop_implementation,
  )
  training_state_type = training.next.type_signature.parameter[0].member
  weights_type = training.next.type_signature.parameter[1]
  data_type = client_data.client_data_type(model_fn)
  result_type = training.next.type_signature.result.result.member
  specs = [
    tf.TensorSpec(leaf.shape, leaf.dtype)
    for leaf in tff.structure.flatten(weights_type.member.trainable)
  ]

  @tff.tensorflow.computation
  def no_controls() -> collections.OrderedDict[str, Any]:
    return collections.OrderedDict(
      server_control=tuple(tf.zeros(s.shape, s.dtype) for s in specs),
      client_controls=tuple(
        tf.zeros([population_size, *s.shape], s.dtype) for s in specs
      ),
    )

  controls_type = no_controls.type_signature.result

  @tff.tensorflow.computation(controls_type, data_type)
  def add_control(
    controls: Mapping[str, Any], data: Mapping[str, tf.data.Dataset]
  ) -> collections.OrderedDict[str, Any]:
    own = _own_control(
      controls, identified.read_identity(data['ident'])['client_id']
    )
    slope = tuple(c - c_i for c, c_i in zip(controls['server_control'], own))
    return collections.OrderedDict(
      ident=data['ident'],
      data=weight_term.add_slope(model_fn, data['data'], slope),
    )

  @tff.tensorflow.computation(
    controls_type, training_state_type, result_type, data_type
  )
  def renew(
    controls: Mapping[str, Any],
    training_state: Any,
    result: tff.learning.templates.ClientResult,
    data: Mapping[str, tf.data.Dataset],
  ) -> collections.OrderedDict[str, Any]:
    client_id = result.update['client_id']
    own = _own_control(controls, client_id)
    steps = data['data'].reduce(0, lambda count, _: count + 1)
    # The rate that trains is the state's, where there is one.
    hparams = training.get_hparams(training_state)
    rate = hparams.get('learning_rate', learning_rate)
    distance = tf.cast(steps, tf.float32) * tf.cast(rate, tf.float32)
    renewed = tuple(
      c_i - c + tf.math.divide_no_nan(g, tf.cast(distance, g.dtype))
      for c_i, c, g in zip(
        own,
        controls['server_control'],
        tf.nest.flatten(result.update['update']),
      )
    )
    # What the aggregator drops, by the same rules.
    weight = result.update_weight
    counts = (client_id >= 0) & (weight > 0) & tf.math.is_finite(weight)
    counts &= tf.math.is_finite(_squared_norm(result.update['update']))
    counts &= steps > 0
    return collections.OrderedDict(
      counts=counts, client_id=client_id, control=renewed
    )

  report_type = renew.type_signature.result

  @tff.tensorflow.computation
  def no_reports() -> collections.OrderedDict[str, Any]:
    def empty(spec: tf.TensorSpec) -> tf.Tensor:
      # So that its length may change.
      return tf.compat.v1.placeholder_with_default(
        tf.zeros([0, *spec.shape], spec.dtype), [None, *spec.shape]
      )

    return collections.OrderedDict(
      client_id=empty(tf.TensorSpec([], tf.int32)),
      control=tuple(empty(spec) for spec in specs),
    )

  reports_type = no_reports.type_signature.result

  @tff.tensorflow.computation(reports_type, report_type)
  def accumulate(
    reports: Mapping[str, Any], report: Mapping[str, Any]
  ) -> collections.OrderedDict[str, Any]:
    client_id, control, counts = tf.nest.map_structure(
      lambda value: value[tf.newaxis],
      (report['client_id'], report['control'], report['counts']),
    )
    return _join(reports, client_id, control, counts)

  @tff.tensorflow.computation(reports_type, reports_type)
  def merge(
    first: Mapping[str, Any], second: Mapping[str, Any]
  ) -> collections.OrderedDict[str, Any]:
    everyone = tf.ones_like(second['client_id'], tf.bool)
    return _join(first, second['client_id'], second['control'], everyone)

  @tff.tensorflow.computation(reports_type)
  def unchanged(reports: Mapping[str, Any]) -> Mapping[str, Any]:
    return reports

  @tff.tensorflow.computation(controls_type, reports_type)
  def store(
    controls: Mapping[str, Any], reports: Mapping[str, Any]
  ) -> collections.OrderedDict[str, Any]:
    ids = reports['client_id'][:, tf.newaxis]
    server_control, client_controls = [], []
    for table, rows in zip(controls['client_controls'], reports['control']):
      # All controls are 0 at first, so c is their mean: taken anew, it is what
      # adding the changes / N gives, and cannot drift.
      renewed = tf.tensor_scatter_nd_update(table, ids, rows)
      server_control.append(tf.reduce_mean(renewed, axis=0))
      client_controls.append(renewed)
    return collections.OrderedDict(
      server_control=tuple(server_control),
      client_controls=tuple(client_controls),
    )

  @tff.federated_computation
  def init_fn() -> tff.Value:
    return tff.federated_zip(
      collections.OrderedDict(
        controls=tff.federated_eval(no_controls, tff.SERVER),
        training=training.initialize(),
      )
    )

  @tff.federated_computation(
    init_fn.type_signature.result,
    weights_type,
    tff.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(
    state: tff.Value, weights: tff.Value, data: tff.Value
  ) -> tff.templates.MeasuredProcessOutput:
    controls = tff.federated_broadcast(state.controls)
    output = training.next(
      state.training,
      weights,
      tff.federated_map(add_control, (controls, data)),
    )
    renewed = tff.federated_aggregate(
      tff.federated_map(
        renew,
        (
          controls,
          tff.federated_broadcast(state.training),
          output.result,
          data,
        ),
      ),
      no_reports(),
      accumulate,
      merge,
      unchanged,
    )
    new_state = tff.federated_zip(
      collections.OrderedDict(
        controls=tff.federated_map(store, (state.controls, renewed)),
        training=output.state,
      )
    )
    return tff.templates.MeasuredProcessOutput(
      new_state, output.result, output.measurements
    )

  state_type = init_fn.type_signature.result.member

  @tff.tensorflow.computation(state_type)
  def get_hparams_fn(state: Mapping[str, Any]) -> Any:
    return training.get_hparams(state['training'])

  hparams_type = get_hparams_fn.type_signature.result

  @tff.tensorflow.computation(state_type, hparams_type)
  def set_hparams_fn(
    state: Mapping[str, Any], hparams: Any
  ) -> collections.OrderedDict[str, Any]:
    return collections.OrderedDict(
      controls=state['controls'],
      training=training.set_hparams(state['training'], hparams),
    )

  return tff.learning.templates.ClientWorkProcess(
    init_fn,
    next_fn,
    get_hparams_fn=get_hparams_fn,
    set_hparams_fn=set_hparams_fn,
  )


def check_scaffold_learning_rate(name: str, value: Any) -> None:
  """Checks the learning rate of the local steps.

  Args:
    name: The parameter's name, for the message.
    value: The learning rate.

  Raises:
    TypeError: If it is no number.
    ValueError: If it is not finite and > 0.
  """
  arguments.check_positive(name, value)


def _squared_norm(update: Any) -> tf.Tensor:
  return tf.add_n(
    [
      # In one pass, without a copy of the squares.
      2 * tf.nn.l2_loss(tf.cast(part, tf.float32))
      for part in tf.nest.flatten(update)
    ]
  )


def _own_control(
  controls: Mapping[str, Any], client_id: tf.Tensor
) -> tuple[tf.Tensor, ...]:
  """Returns the client's control; that of anybody if it is padding."""
  tables = controls['client_controls']
  # An unknown id is the aggregator's to complain about.
  place = tf.clip_by_value(client_id, 0, tables[0].shape[0] - 1)
  return tuple(table[place] for table in tables)


def _join(
  reports: Mapping[str, Any],
  client_ids: tf.Tensor,
  rows: Sequence[tf.Tensor],
  counts: tf.Tensor,
) -> collections.OrderedDict[str, Any]:
  """Returns reports with what counts, of clients that are not there yet."""
  there = tf.reduce_any(
    tf.equal(client_ids[:, tf.newaxis], reports['client_id'][tf.newaxis]),
    axis=1,
  )
  new = counts & ~there
  return collections.OrderedDict(
    client_id=tf.concat(
      [reports['client_id'], tf.boolean_mask(client_ids, new)], axis=0
    ),
    control=tuple(
      tf.concat([table, tf.boolean_mask(row, new)], axis=0)
      for table, row in zip(reports['control'], rows)
    ),
  )
