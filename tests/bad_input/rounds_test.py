"""Bad and extreme inputs that only a round can tell: refused, or what they do.

All rounds share one runtime. What is refused says so in the first line of the
error; what is allowed has the exact result that is stated.
"""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import participation
from fedsteer_tff import programs
from fedsteer_tff import subspace
from tasks import partition
from tests.aggregators import small_rounds

_RATE = 0.1
_FEATURES, _CLASSES, _CLIENTS = 2, 3, 4


def _spec(dtype='float32'):
  return (
    tf.TensorSpec([None, _FEATURES], dtype),
    tf.TensorSpec([None, 1], tf.int32),
  )


def _model_fn(dtype='float32', batch_norm=False):
  """A linear softmax model that begins with zeros."""

  def build():
    layers = [tf.keras.layers.InputLayer([_FEATURES], dtype=dtype)]
    if batch_norm:
      layers.append(tf.keras.layers.BatchNormalization(dtype=dtype))
    layers.append(
      tf.keras.layers.Dense(
        _CLASSES, use_bias=False, kernel_initializer='zeros', dtype=dtype
      )
    )
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(layers),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=_spec(dtype),
    )

  return build


@pytest.fixture(name='runtime', scope='module')
def _runtime():
  with programs.LocalRuntime().activate() as runtime:
    yield runtime


@functools.cache
def _process(dtype='float32', batch_norm=False, **parameters):
  return fedsteer_tff.build_fedsteer(
    _model_fn(dtype, batch_norm),
    _CLIENTS,
    client_optimizer=tff.learning.optimizers.build_sgdm(_RATE),
    **{'core_set': (0,), **parameters},
  )


def _dataset(*labels, batch=2, x=1.0, dtype=np.float32):
  labels = np.reshape(np.int32(labels), [-1, 1])
  features = np.full([len(labels), _FEATURES], x, dtype)
  return tf.data.Dataset.from_tensor_slices((features, labels)).batch(batch)


def _data(client_id=0, dataset=None, weight=0.25, p=0.5):
  return fedsteer_tff.build_client_data(
    client_id,
    _dataset(1, 1) if dataset is None else dataset,
    weight=weight,
    participation_probability=p,
  )


def _raw(client_id, weight, p):
  """Data of a client that says what `build_client_data` would refuse."""
  identity = collections.OrderedDict(
    client_id=np.int32(client_id),
    weight=np.float32(weight),
    participation_probability=np.float32(p),
  )
  return {
    'ident': tf.data.Dataset.from_tensors(identity),
    'data': _dataset(1, 1),
  }


def _kernel(state):
  (kernel,) = state.global_model_weights.trainable
  return kernel


def _step(labels, x=1.0):
  """Returns what one SGD step from zeros subtracts, in float64."""
  probabilities = np.full(_CLASSES, 1 / _CLASSES)
  wanted = np.eye(_CLASSES)[np.asarray(labels)].mean(axis=0)
  return _RATE * x * np.tile(probabilities - wanted, [_FEATURES, 1])


# --- Refused -----------------------------------------------------------------

_REFUSED = {
  'an id above the population': (
    lambda: [_data(_CLIENTS)],
    programs.ComputationError,
    'client_id must be in [0, population_size=4), found 4',
  ),
  'a negative id that is not padding': (
    lambda: [_raw(-2, 0.25, 0.5)],
    programs.ComputationError,
    'client_id must be in [0, population_size=4), found -2',
  ),
  'p = 0': (
    lambda: [_raw(1, 0.25, 0.0)],
    programs.ComputationError,
    'participation_probability must be in (0, 1] (where it is not known, NaN,'
    ' the process has to estimate it: see participation=), found 0 for'
    ' client_id 1',
  ),
  'p > 1': (
    lambda: [_raw(1, 0.25, 1.5)],
    programs.ComputationError,
    'participation_probability must be in (0, 1] (where it is not known, NaN,'
    ' the process has to estimate it: see participation=), found 1.5 for'
    ' client_id 1',
  ),
  'p that nobody knows': (
    lambda: [_data(2, p=None)],
    programs.ComputationError,
    'participation_probability must be in (0, 1] (where it is not known, NaN,'
    ' the process has to estimate it: see participation=), found nan for'
    ' client_id 2',
  ),
  'a negative weight': (
    lambda: [_raw(3, -0.5, 0.5)],
    programs.ComputationError,
    'weight must be >= 0, found -0.5 for client_id 3',
  ),
  'a label above the classes': (
    lambda: [_data(dataset=_dataset(1, 7))],
    programs.ComputationError,
    "labels of a client's data must be in [0, 3), found 7",
  ),
  'a negative label': (
    lambda: [_data(dataset=_dataset(-1, 1))],
    programs.ComputationError,
    "labels of a client's data must be in [0, 3), found -1",
  ),
}

_WRONG_TYPES = {
  'data without an identity': lambda: [_dataset(1)],
  'one client that is no list': lambda: _dataset(1),
  'float64 data for a float32 model': lambda: [
    _data(dataset=_dataset(1, dtype=np.float64))
  ],
  'examples that are not batched': lambda: [
    _data(dataset=_dataset(1, 1).unbatch())
  ],
  'labels of another shape': lambda: [
    _data(dataset=_dataset(1, 1).map(lambda x, y: (x, y[:, 0])))
  ],
}


@pytest.mark.parametrize('case', _REFUSED)
@pytest.mark.parametrize('resident', [False, True], ids=['next', 'resident'])
def test_a_round_is_refused_in_one_line(runtime, case, resident):
  make_data, error, message = _REFUSED[case]
  process = _process()
  with pytest.raises(error) as caught:
    if resident:
      training = programs.ResidentProcess(process, runtime)
      training.put(process.initialize())
      training.next(make_data())
    else:
      process.next(process.initialize(), make_data())
  first, *others = str(caught.value).splitlines()
  assert first.startswith(message)
  assert not others


@pytest.mark.parametrize('case', _WRONG_TYPES)
def test_data_of_another_type_are_named(runtime, case):
  training = programs.ResidentProcess(_process(), runtime)
  training.put(_process().initialize())
  with pytest.raises(
    TypeError, match='client_data must be a list of what process.next takes'
  ) as caught:
    training.next(_WRONG_TYPES[case]())
  assert len(str(caught.value).splitlines()) == 1


def test_a_state_of_another_process_is_named(runtime):
  training = programs.ResidentProcess(_process(), runtime)
  other = _process(core_set=(0, 1)).initialize()
  for state, message in (
    (None, ''),
    (3, ''),
    (
      other,
      r'found another type: aggregator\.\w+ must be \w+\[1.*, found \w+\[2',
    ),
  ):
    with pytest.raises(
      TypeError, match=f'state must be what process.next takes.*{message}'
    ):
      training.put(state)


def test_an_error_of_a_round_leaves_the_state_to_go_on_from(runtime):
  process = _process()
  training = programs.ResidentProcess(process, runtime)
  training.put(process.initialize())
  training.next([_data(0)])
  before = training.state()
  with pytest.raises(programs.ComputationError):
    training.next([_data(0, dataset=_dataset(9))])
  np.testing.assert_array_equal(_kernel(training.state()), _kernel(before))


# --- Allowed -----------------------------------------------------------------


@pytest.mark.parametrize(
  'labels', [(), (2,), (0, 1, 1, 2, 2)], ids=['no', 'one', 'five']
)
def test_any_number_of_examples_in_batches_of_any_size(runtime, labels):
  # With batches as large as there are examples, a round is one step.
  dataset = _dataset(*labels, batch=max(1, len(labels)))
  process = _process(core_set=())
  output = process.next(process.initialize(), [_data(1, dataset, p=1.0)])
  wanted = -0.25 * _step(labels) if labels else np.zeros([2, 3])
  np.testing.assert_allclose(
    _kernel(output.state), wanted, rtol=1e-6, atol=1e-8
  )
  found = output.metrics['aggregator']
  assert found['active_clients'] == 1
  assert found['nonfinite_clients'] == 0


def test_the_last_batch_of_a_client_may_be_smaller(runtime):
  labels = (0, 1, 1, 2, 2)
  process = _process(core_set=())
  output = process.next(
    process.initialize(), [_data(1, _dataset(*labels, batch=2), p=1.0)]
  )
  kernel = np.zeros([_FEATURES, _CLASSES])
  for batch in ((0, 1), (1, 2), (2,)):
    scores = np.exp(kernel.sum(axis=0))  # All features are 1.
    wrong = scores / scores.sum() - np.eye(_CLASSES)[list(batch)].mean(axis=0)
    kernel -= _RATE * wrong
  np.testing.assert_allclose(_kernel(output.state), 0.25 * kernel, rtol=1e-5)


def test_of_a_client_that_is_there_twice_the_first_counts(runtime):
  process = _process(core_set=())
  clients = [
    _data(1, _dataset(0, 0), p=1.0),
    _data(2, _dataset(1, 1), p=1.0),
    _data(1, _dataset(2, 2), p=1.0),
  ]
  output = process.next(process.initialize(), clients)
  found = output.metrics['aggregator']
  assert found['duplicate_clients'] == 1
  assert found['active_clients'] == 2
  np.testing.assert_allclose(
    _kernel(output.state),
    -0.25 * (_step([0, 0]) + _step([1, 1])),
    rtol=1e-6,
    atol=1e-8,
  )


def test_a_cohort_of_nobody_leaves_the_model(runtime):
  process = _process(core_set=())
  output = process.next(process.initialize(), [])
  np.testing.assert_array_equal(_kernel(output.state), np.zeros([2, 3]))
  assert np.isnan(output.metrics['client_work']['train']['loss'])


def test_a_population_of_one_client_is_averaged_to_its_update(runtime):
  process = fedsteer_tff.build_fedsteer(
    _model_fn(),
    1,
    client_optimizer=tff.learning.optimizers.build_sgdm(_RATE),
    core_set_size=1,
    warmup_rounds=1,
  )
  output = process.next(
    process.initialize(), [_data(0, _dataset(1, 1), weight=1.0, p=1.0)]
  )
  np.testing.assert_allclose(_kernel(output.state), -_step([1]), rtol=1e-6)
  np.testing.assert_array_equal(output.state.aggregator['core_set'], [0])


@pytest.mark.parametrize(
  ('dtype', 'tolerance'), [('float64', 1e-6), ('float16', 2e-3)]
)
def test_a_model_keeps_its_dtype(runtime, dtype, tolerance):
  process = _process(dtype)
  data = _data(0, _dataset(1, 1, dtype=np.dtype(dtype)), p=1.0)
  output = process.next(process.initialize(), [data])
  kernel = _kernel(output.state)
  assert kernel.dtype == dtype
  np.testing.assert_allclose(kernel, -0.25 * _step([1]), rtol=tolerance)
  # The server's caches are float32 whatever the model is.
  assert output.state.aggregator['core_updates'].dtype == np.float32


def test_batch_normalisation_keeps_the_statistics_that_it_begins_with(runtime):
  process = _process(batch_norm=True)
  output = process.next(process.initialize(), [_data(0, _dataset(1, 0, x=3.0))])
  # They are not trainable, so that no client sends any.
  mean, variance = output.state.global_model_weights.non_trainable
  np.testing.assert_array_equal(mean, np.zeros(_FEATURES))
  np.testing.assert_array_equal(variance, np.ones(_FEATURES))


def test_features_of_1e30_drop_the_client_and_leave_the_model(runtime):
  process = _process()
  output = process.next(
    process.initialize(), [_data(0, _dataset(1, 1, x=1e30))]
  )
  assert output.metrics['aggregator']['nonfinite_clients'] == 1
  assert output.metrics['aggregator']['active_clients'] == 0
  np.testing.assert_array_equal(_kernel(output.state), np.zeros([2, 3]))


def test_features_of_1e_minus_30_give_an_update_of_that_size(runtime):
  process = _process(core_set=())
  output = process.next(
    process.initialize(), [_data(0, _dataset(1, 1, x=1e-30), p=1.0)]
  )
  np.testing.assert_allclose(
    _kernel(output.state), -0.25 * _step([1], 1e-30), rtol=1e-5
  )


def _run(reports, **parameters):
  process = small_rounds.build(**parameters)
  state = process.initialize()
  outputs = []
  for round_reports in reports:
    outputs.append(small_rounds.run(process, state, round_reports))
    state = outputs[-1].state
  return outputs


def test_updates_that_are_all_zero_give_zero_and_choose_nobody(runtime):
  zero = np.zeros(small_rounds.DIMENSION)
  reports = [[small_rounds.report(i, zero) for i in range(7)]] * 3
  outputs = _run(reports, warmup_rounds=1)
  for output in outputs:
    np.testing.assert_array_equal(small_rounds.flat(output.result), zero)
    np.testing.assert_array_equal(output.state['core_set'], [-1, -1])
    assert np.isnan(output.measurements['variance_ratio'])


def test_updates_that_are_all_equal_are_that_update_from_one_row(runtime):
  update = np.arange(1.0, 13.0)
  everybody = [small_rounds.report(i, update, probability=1) for i in range(7)]
  outputs = _run([everybody, everybody], core_set=(3,), ridge=0.0)
  for output in outputs:
    # p_i = 1 for all: the mean of equal updates is the update.
    np.testing.assert_allclose(
      small_rounds.flat(output.result), update, rtol=1e-5
    )
  # One row with a ridge of 0, but for rounding: everybody's coordinate is 1.
  np.testing.assert_allclose(
    outputs[1].state['coordinates'], np.ones([7, 1]), rtol=1e-5
  )


def test_a_core_client_that_never_comes_back_keeps_its_row(runtime):
  update = np.arange(1.0, 13.0)
  first = [small_rounds.report(0, update), small_rounds.report(1, update)]
  rest = [[small_rounds.report(1, update)]] * 4
  outputs = _run([first, *rest], core_set=(0,))
  state = outputs[-1].state
  np.testing.assert_allclose(state['core_updates'], [update], rtol=1e-6)
  np.testing.assert_array_equal(state['core_round'], [0])
  assert outputs[-1].measurements['core_staleness_max'] == 4
  # Who has to be made to come.
  status = participation.overdue_core_clients(
    state['core_set'], state['last_seen'][[0]], 5, 3
  )
  np.testing.assert_array_equal(status, [0])


def test_a_core_client_that_never_came_leaves_inverse_probabilities(runtime):
  update = np.arange(1.0, 13.0)
  (output,) = _run([[small_rounds.report(1, update)]], core_set=(0,))
  scale = small_rounds.SHARES[1] / small_rounds.PROBABILITIES[1]
  np.testing.assert_allclose(
    small_rounds.flat(output.result), scale * update, rtol=1e-6
  )
  np.testing.assert_array_equal(output.state['core_round'], [-1])


def test_k_equal_to_n_reconstructs_who_is_absent(runtime):
  # Orthogonal updates, one row each: coordinates are 1 / (1 + c).
  updates = np.eye(small_rounds.NUM_CLIENTS, small_rounds.DIMENSION)
  everybody = [
    small_rounds.report(i, updates[i], probability=1) for i in range(7)
  ]
  outputs = _run(
    [everybody, everybody, []], core_set=tuple(range(7)), ridge=0.25
  )
  wanted = small_rounds.SHARES @ updates
  np.testing.assert_allclose(
    small_rounds.flat(outputs[2].result), wanted / 1.25, rtol=1e-5
  )


def test_no_error_is_a_full_disk_but_that_of_the_system():
  assert [
    programs.is_full_disk(value) for value in (3, None, 'full', OSError())
  ] == [False] * 4


@pytest.mark.parametrize(('gamma', 'classes'), [(0.0, 5), (1.0, 5)])
def test_gamma_0_and_1_give_one_group_all_of_its_classes(gamma, classes):
  labels = np.repeat(np.arange(10), 20)
  found = partition.bipartite(labels, 4, gamma, 1.0)
  assert {len(own) for own in found.client_labels} == {classes}
  assert len({tuple(sorted(own)) for own in found.client_labels}) == 1
  # 5 classes of 20 images, in equal parts.
  np.testing.assert_array_equal(found.num_examples, [25] * 4)


def test_a_sketch_of_nothing_is_nothing():
  np.testing.assert_array_equal(
    subspace.sketch(tf.zeros([0, 8]), 4), np.zeros([0, 4])
  )


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
