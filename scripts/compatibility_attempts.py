"""What every algorithm compiles to, by trying.

Every cell of a table is the outcome of an attempt on a small model: a form is
compiled, a model trained, a round with a factory for the correction compared
with one without. Why something fails is known by TensorFlow Federated's own
error.
"""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import functools
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import aggregators

_NUM_CLIENTS = 5
_NUM_FEATURES = 3
_NUM_CLASSES = 2
_NUM_ROUNDS = 2
_SPEC = (
  tf.TensorSpec([None, _NUM_FEATURES], tf.float32),
  tf.TensorSpec([None, 1], tf.int32),
)
# So wide that no update of these small rounds reaches it.
_BOUND = 16.0

FORMS = {
  'MapReduceForm': (tff.backends.mapreduce.get_map_reduce_form_for_computation),
  'DistributeAggregateForm': (
    tff.backends.mapreduce.get_distribute_aggregate_form_for_computation
  ),
  'MergeableCompForm': tff.backends.native.compile_to_mergeable_comp_form,
}


def _fedsteer_factory(design, correction_factory):
  return aggregators.FedSteerFactory(
    _NUM_CLIENTS,
    core_set=(0, 1),
    aggregation=design,
    correction_factory=correction_factory,
  )


def _averaging_factory(correction_factory):
  return aggregators.InverseProbabilityFactory(
    _NUM_CLIENTS, correction_factory=correction_factory
  )


@dataclasses.dataclass(frozen=True)
class Reason:
  """Why an attempt fails.

  Attributes:
    mark: Its letter on the page.
    error: Name of the error's class.
    message: A part of the error's message.
    text: What the page says.
  """

  mark: str
  error: str
  message: str
  text: str


REASONS = (
  Reason(
    'a',
    'ValueError',
    'to not contain `tff.FederatedType`s or `tff.FunctionType`s',
    '`DistributeAggregateForm` takes sums, plain and secure ones, and nothing'
    ' else. Here reports are gathered in lists, which is a'
    ' `federated_aggregate` with functions of its own. FedSteer’s `dense`'
    ' gives every client a place in one long sum instead. (FedAvg is'
    " `build_fedsteer(core_set=(), aggregation='dense')` too, and that"
    ' compiles.)',
  ),
  Reason(
    'b',
    'TypeError',
    'found correction_factory',
    'The server keeps the last update of each client, so it has to see them one'
    ' by one: there is no sum to give to a factory, and the function takes no'
    ' `correction_factory`.',
  ),
  Reason(
    'c',
    'AfterMergeStructureError',
    'federated_secure_sum',
    '`MergeableCompForm` merges partial results of one `federated_aggregate`.'
    ' TensorFlow Federated’s secure sum is another operation, without partial'
    ' results that could be merged.',
  ),
)


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """A row of the first table.

  Attributes:
    name: As in `fedsteer_tff.build_{name}`.
    design: FedSteer's `aggregation`; '' for the other algorithms.
    arguments: Others that the function needs.
  """

  name: str
  design: str = ''
  arguments: tuple[tuple[str, Any], ...] = ()

  def build(
    self, model_fn: Any, **parameters: Any
  ) -> tff.learning.templates.LearningProcess:
    """Builds the learning process."""
    arguments = {**dict(self.arguments), **parameters}
    if self.design:
      arguments.update(aggregation=self.design, core_set=(0, 1))
    build_fn = getattr(fedsteer_tff, f'build_{self.name}')
    return build_fn(model_fn, _NUM_CLIENTS, **arguments)


ALGORITHMS = (
  *(Algorithm('fedsteer', design) for design in aggregators.DESIGNS),
  Algorithm('fedavg'),
  Algorithm('fedprox', arguments=(('proximal_strength', 0.1),)),
  Algorithm('fedvarp'),
  Algorithm('fedstale', arguments=(('beta', 0.5),)),
  Algorithm('mifa'),
  Algorithm('scaffold'),
)


def _zeroed_and_clipped(
  inner: tff.aggregators.UnweightedAggregationFactory,
) -> tff.aggregators.UnweightedAggregationFactory:
  return tff.aggregators.zeroing_factory(
    _BOUND, tff.aggregators.clipping_factory(_BOUND, inner)
  )


CORRECTIONS = {
  'clipping and zeroing': lambda: _zeroed_and_clipped(
    tff.aggregators.SumFactory()
  ),
  'secure sum': lambda: tff.aggregators.SecureSumFactory(_BOUND),
  # Without noise, so that the round can be compared with one without it.
  'differential privacy': lambda: aggregators.private_correction(0.0, _BOUND),
}


def _every_correction() -> tff.aggregators.UnweightedAggregationFactory:
  """Returns a factory of all kinds of `CORRECTIONS` in one."""
  secure = CORRECTIONS['secure sum']()
  return _zeroed_and_clipped(
    aggregators.private_correction(0.0, _BOUND, secure)
  )


# By the name of a row of the second table.
AGGREGATORS = {
  **{
    f'FedSteer, `{design}`': functools.partial(_fedsteer_factory, design)
    for design in aggregators.DESIGNS
  },
  'FedAvg, FedProx, SCAFFOLD': _averaging_factory,
}


def keras_model() -> tf.keras.Model:
  """Returns a model of 8 weights, always the same ones."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([_NUM_FEATURES]),
      tf.keras.layers.Dense(
        _NUM_CLASSES,
        kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1),
      ),
    ]
  )


def _loss() -> tf.keras.losses.Loss:
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def model_fn() -> tff.learning.models.VariableModel:
  """Returns the model as a Keras user gives it to TensorFlow Federated."""
  return tff.learning.models.from_keras_model(
    keras_model(), loss=_loss(), input_spec=_SPEC
  )


def _functional_model() -> tff.learning.models.FunctionalModel:
  return tff.learning.models.functional_model_from_keras(
    keras_model(), loss_fn=_loss(), input_spec=_SPEC
  )


def client_data(client_id: int) -> Mapping[str, tf.data.Dataset]:
  """Returns the data of one of the clients 0, ..., 4."""
  rng = np.random.default_rng(client_id)
  x = np.float32(rng.normal(size=[4, _NUM_FEATURES]))
  y = np.int32(rng.integers(_NUM_CLASSES, size=[4, 1]))
  return fedsteer_tff.build_client_data(
    client_id,
    tf.data.Dataset.from_tensor_slices((x, y)).batch(4),
    weight=1 / _NUM_CLIENTS,
    participation_probability=0.5,
  )


def _trained(process: tff.learning.templates.LearningProcess) -> np.ndarray:
  """Returns the weights after some rounds."""
  state = process.initialize()
  for number in range(_NUM_ROUNDS):
    cohort = [client_data(i) for i in range(number, number + 3)]
    state = process.next(state, cohort).state
  weights = process.get_model_weights(state).trainable
  return np.concatenate([np.ravel(weight) for weight in weights])


def reason_of(error: Exception) -> Reason:
  """Returns the known reason of an error, or raises the error."""
  for reason in REASONS:
    if type(error).__name__ == reason.error and reason.message in str(error):
      return reason
  raise error


def attempt(action: Callable[[], Any]) -> Optional[Reason]:
  """Returns why something fails, or None if it does not."""
  try:
    action()
  except Exception as e:  # pylint: disable=broad-except
    return reason_of(e)
  return None


def _cell(reason: Optional[Reason]) -> str:
  return f'no ({reason.mark})' if reason else 'yes'


def table_line(cells: Sequence[str]) -> str:
  """Returns a line of a Markdown table."""
  return f'| {" | ".join(cells)} |'


def _check_equal(found: np.ndarray, wanted: np.ndarray) -> None:
  # Secure sums are of integers: a number has an error of 2^-31 of the bound.
  np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@functools.cache
def algorithm_line(algorithm: Algorithm) -> str:
  """Returns a row of the first table.

  A TFF context that computes secure sums must be set.

  Args:
    algorithm: What to try.

  Raises:
    AssertionError: If a round is not what it should be.
    Exception: What an attempt raised for no known reason.
  """
  keras = algorithm.build(model_fn)
  cells = [
    _cell(attempt(functools.partial(compile_fn, keras.next)))
    for compile_fn in FORMS.values()
  ]
  trained = _trained(keras)
  functional = _functional_model()
  factory = _every_correction()
  reason = None
  try:
    process = algorithm.build(functional, correction_factory=factory)
  except TypeError as e:
    reason = reason_of(e)
    process = algorithm.build(functional)
  _check_equal(_trained(process), trained)
  # Both kinds of model have trained by now.
  cells += [_cell(reason)] * len(CORRECTIONS) + ['yes', 'yes']
  design = f'`{algorithm.design}`' if algorithm.design else ''
  return table_line([f'`build_{algorithm.name}`', design, *cells])


@functools.cache
def correction_line(name: str) -> str:
  """Returns a row of the second table.

  A TFF context that computes secure sums must be set.

  Args:
    name: One of `AGGREGATORS`.

  Raises:
    AssertionError: If a round is not the one without a factory.
    Exception: What an attempt raised for no known reason.
  """
  plain = _rounds(*_aggregation(name, None))
  cells = []
  for build_correction in CORRECTIONS.values():
    initialize, run_round = _aggregation(name, build_correction())
    _check_equal(_rounds(initialize, run_round), plain)
    found = {
      form: attempt(functools.partial(compile_fn, run_round))
      for form, compile_fn in FORMS.items()
    }
    forms = [form for form, reason in found.items() if reason is None]
    marks = [f'({reason.mark})' for reason in found.values() if reason]
    cells.append(', '.join(f'`{form}`' for form in forms))
    cells[-1] += f' {" ".join(marks)}' if marks else ''
  return table_line([name, *cells])


def _aggregation(name, correction_factory):
  """Returns `initialize` and a round, as forms are compiled from it."""
  factory = AGGREGATORS[name](correction_factory)
  item_type = tff.to_type(
    collections.OrderedDict(
      value=collections.OrderedDict(
        update=[tff.TensorType(np.float32, [4])],
        client_id=np.int32,
        participation_probability=np.float32,
      ),
      weight=np.float32,
    )
  )
  process = factory.create(item_type.value, item_type.weight)

  @tff.federated_computation(
    process.initialize.type_signature.result,
    tff.FederatedType(item_type, tff.CLIENTS),
  )
  def run_round(state, items):
    output = process.next(state, items.value, items.weight)
    measured = (output.result, output.measurements)
    return output.state, tff.federated_zip(measured)

  return process.initialize, run_round


def _rounds(initialize, run_round) -> np.ndarray:
  """Returns what some rounds aggregate."""
  rng = np.random.default_rng(0)
  state = initialize()
  results = []
  for number in range(_NUM_ROUNDS):
    items = [
      collections.OrderedDict(
        value=collections.OrderedDict(
          update=[np.float32(rng.normal(size=4))],
          client_id=np.int32(i),
          participation_probability=np.float32(0.5),
        ),
        weight=np.float32(1 / _NUM_CLIENTS),
      )
      for i in range(number, number + 3)
    ]
    state, (result, _) = run_round(state, items)
    results.extend(np.ravel(part) for part in result)
  return np.concatenate(results)
