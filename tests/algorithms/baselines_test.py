"""Whole processes of the baselines against NumPy and Keras alone."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from tests import numpy_oracle
from tests.algorithms import small_training

_N = small_training.NUM_CLIENTS
_MU = 0.3
_NUM_ROUNDS = 6

_METHODS = {
  'fedavg': {},
  'fedavg_classic': {'correction_weighting': 'participant_mean'},
  'fedavg_stable': {
    'correction_weighting': 'self_normalized',
    'correction_smoothing': 0.3,
  },
  'fedprox': {'proximal_strength': _MU},
  'fedvarp': {},
  'fedstale': {'beta': 0.6},
  'mifa': {},
  'scaffold': {},
}
_CACHING = ('fedvarp', 'fedstale', 'mifa')


@functools.cache
def _build(method):
  build_fn = getattr(fedsteer_tff, 'build_' + method.partition('_')[0])
  arguments = dict(_METHODS[method])
  if method == 'scaffold':
    arguments['client_learning_rate'] = small_training.LEARNING_RATE
  else:
    arguments['client_optimizer'] = tff.learning.optimizers.build_sgdm(
      small_training.LEARNING_RATE
    )
  return build_fn(small_training.model_fn, _N, **arguments)


class _Server:
  """What a method's server does, in NumPy."""

  def __init__(self, method):
    self.method = method
    self.work = small_training.trainer()
    self.weights = self.work.initial.astype(float)
    dimension = len(self.weights)
    parameters = _METHODS[method]
    if method in _CACHING:
      self.estimator = numpy_oracle.LastUpdates(
        _N, dimension, method=method, beta=parameters.get('beta', 1.0)
      )
    else:
      weighting = parameters.get('correction_weighting', 'inverse_probability')
      if method == 'scaffold':
        weighting = 'participant_mean'
      self.estimator = numpy_oracle.FedSteer(
        _N,
        dimension,
        core_set=(),
        aggregation='client_projection',
        rule=(
          'before_aggregation',
          weighting,
          parameters.get('correction_smoothing', 1.0),
        ),
      )
    self.control = np.zeros(dimension)
    self.controls = np.zeros([_N, dimension])

  def run(self, ids):
    """Runs a round; returns the metrics."""
    updates = {}
    for i in ids:
      slope = self.control - self.controls[i]
      updates[i] = self.work.update(
        self.weights,
        i,
        slope=slope if self.method == 'scaffold' else 0.0,
        proximal_strength=_MU if self.method == 'fedprox' else 0.0,
      )
    if self.method == 'scaffold':
      renewed = self.controls.copy()
      for i, update in updates.items():
        way = small_training.LEARNING_RATE * self.work.num_steps(i)
        renewed[i] = self.controls[i] - self.control + update / way
      if ids:
        change = np.mean([renewed[i] - self.controls[i] for i in ids], axis=0)
        self.control = self.control + len(ids) / _N * change
      self.controls = renewed
    delta, metrics = self.estimator.aggregate(
      [
        numpy_oracle.Report(
          i,
          update,
          float(small_training.shares()[i]),
          float(small_training.PROBABILITIES[i]),
        )
        for i, update in updates.items()
      ]
    )
    self.weights = self.weights - delta
    return metrics


def _weights(state):
  return small_training.flat(state.global_model_weights.trainable)


@pytest.mark.parametrize('method', _METHODS)
def test_rounds_equal_numpy(method):
  server, process = _Server(method), _build(method)
  state = process.initialize()
  for number, ids in enumerate(small_training.cohorts(_NUM_ROUNDS, empty=(3,))):
    metrics = server.run(ids)
    output = small_training.run(process, state, ids)
    state = output.state
    error = numpy_oracle.relative_error(_weights(state), server.weights)
    assert error <= 1e-5, (number, error)
    for name, wanted in metrics.items():
      np.testing.assert_allclose(
        output.metrics['aggregator'][name],
        wanted,
        rtol=1e-3,
        atol=1e-5,
        err_msg=name,
      )
  if method == 'scaffold':
    controls = state.client_work['controls']
    assert server.controls.any()
    for found, wanted in (
      (small_training.flat(controls['server_control']), server.control),
      (
        np.concatenate(
          [np.reshape(c, [_N, -1]) for c in controls['client_controls']], axis=1
        ),
        server.controls,
      ),
    ):
      assert numpy_oracle.relative_error(found, wanted) <= 1e-4
  if method in _CACHING:
    error = numpy_oracle.relative_error(
      state.aggregator['updates'], server.estimator.memory
    )
    assert error <= 1e-4


@pytest.mark.parametrize('method', _METHODS)
def test_state_bytes_equal_the_formula(method):
  dimension = len(small_training.trainer().initial)
  report = fedsteer_tff.state_size_report(_build(method))
  registry = 4 + 4 * _N + 4 * _N + 8 + 4
  wanted = {
    'fedvarp': 4 * _N * dimension,
    'scaffold': 1 + 4 * (_N + 1) * dimension,
    'fedavg_stable': 1 + 4 * dimension,
  }
  wanted['fedstale'] = wanted['mifa'] = wanted['fedvarp']
  rates = 2 * 4  # The clients' and the server's.
  assert report['total'] == (
    4 * dimension + rates + registry + wanted.get(method, 1)
  )


def test_a_strong_proximal_term_keeps_clients_at_the_global_model():
  ways = []
  for strength in (1e-6, 1.0, 3.0):
    process = fedsteer_tff.build_fedprox(
      small_training.model_fn,
      _N,
      strength,
      client_optimizer=tff.learning.optimizers.build_sgdm(0.2),
    )
    state = small_training.run(process, process.initialize(), [0, 1, 2]).state
    way = _weights(state) - small_training.trainer().initial
    ways.append(np.linalg.norm(way))
  assert ways[0] > 1.2 * ways[1]
  assert ways[1] > 1.2 * ways[2] > 0


def test_the_ends_of_fedstale_are_fedavg_and_fedvarp():
  sgd = tff.learning.optimizers.build_sgdm(small_training.LEARNING_RATE)

  def last_weights(process):
    state = process.initialize()
    for ids in small_training.cohorts(3, empty=()):
      state = small_training.run(process, state, ids).state
    return _weights(state)

  ends = {
    beta: last_weights(
      fedsteer_tff.build_fedstale(
        small_training.model_fn, _N, beta, client_optimizer=sgd
      )
    )
    for beta in (0.0, 1.0)
  }
  for beta, method in ((0.0, 'fedavg'), (1.0, 'fedvarp')):
    np.testing.assert_allclose(
      ends[beta], last_weights(_build(method)), rtol=1e-5, atol=1e-6
    )
  assert np.max(np.abs(ends[0.0] - ends[1.0])) > 1e-3


def test_with_everybody_all_means_are_the_same():
  ends = []
  for process in (
    _build('fedavg'),  # By inverse probabilities.
    fedsteer_tff.build_fedavg(
      small_training.model_fn,
      _N,
      correction_weighting='self_normalized',
      client_optimizer=tff.learning.optimizers.build_sgdm(
        small_training.LEARNING_RATE
      ),
    ),
    _build('fedavg_classic'),  # The mean of the participants.
  ):
    data = [
      fedsteer_tff.build_client_data(
        i,
        small_training.dataset(i),
        weight=float(small_training.shares()[i]),
        participation_probability=1.0,
      )
      for i in range(_N)
    ]
    output = process.next(process.initialize(), data)
    ends.append(_weights(output.state))
    assert output.metrics['aggregator']['variance_estimate'] == 0
  np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(ends[0], ends[2], rtol=1e-5, atol=1e-6)


def _scaffold_controls(state):
  controls = state.client_work['controls']
  table = np.concatenate(
    [np.reshape(c, [_N, -1]) for c in controls['client_controls']], axis=1
  )
  return small_training.flat(controls['server_control']), table


def test_scaffold_changes_no_control_of_who_is_dropped():
  process = _build('scaffold')
  state = small_training.run(process, process.initialize(), [0, 1, 2, 3]).state
  control, controls = _scaffold_controls(state)
  assert np.all(np.any(controls[:4] != 0, axis=1))
  assert not np.any(controls[4:])

  x, y = small_training.examples()[1]
  broken = tf.data.Dataset.from_tensor_slices((x * np.nan, y)).batch(4)
  nothing = tf.data.Dataset.from_tensor_slices((x[:0], y[:0])).batch(4)
  data = [
    small_training.client_data(0),
    small_training.client_data(0),
    small_training.client_data(1, broken),
    small_training.client_data(2, nothing),
    fedsteer_tff.build_client_data(
      3,
      small_training.dataset(3),
      weight=0.0,
      participation_probability=0.5,
    ),
    small_training.client_data(-1),
  ]
  output = process.next(state, data)
  after, table = _scaffold_controls(output.state)
  assert output.metrics['aggregator']['nonfinite_clients'] == 1
  np.testing.assert_array_equal(table[1:], controls[1:])
  assert np.any(table[0] != controls[0])
  # Client 0 reported twice and counts once.
  np.testing.assert_allclose(
    after - control, (table[0] - controls[0]) / _N, rtol=1e-3, atol=1e-6
  )


def test_scaffold_keeps_no_control_of_an_update_with_an_infinite_square():
  @tf.function
  def predict(model_weights, x, training):
    del training
    return tf.matmul(x, model_weights[0][0])

  def squared_error(output, label, sample_weight=None):
    del sample_weight
    return tf.reduce_mean((output - label) ** 2)

  model = tff.learning.models.FunctionalModel(
    initial_weights=((np.ones([1, 1], np.float32),), ()),
    predict_on_batch_fn=predict,
    loss_fn=squared_error,
    input_spec=(
      tf.TensorSpec([None, 1], tf.float32),
      tf.TensorSpec([None, 1], tf.float32),
    ),
  )
  process = fedsteer_tff.build_scaffold(model, 3)

  def data(client_id, label):
    one = np.ones([1, 1], np.float32)
    return fedsteer_tff.build_client_data(
      client_id,
      tf.data.Dataset.from_tensor_slices((one, label * one)).batch(1),
      weight=0.5,
      participation_probability=0.5,
    )

  state = process.initialize()
  output = process.next(state, [data(0, 1e20), data(1, 2.0)])
  assert output.metrics['aggregator']['nonfinite_clients'] == 1
  controls = output.state.client_work['controls']
  # The gradient of client 1 is -2.
  np.testing.assert_allclose(
    np.ravel(controls['client_controls'][0]), [0.0, -2.0, 0.0], rtol=1e-5
  )
  np.testing.assert_allclose(
    np.ravel(controls['server_control'][0]), [-2 / 3], rtol=1e-5
  )


def test_scaffold_trains_with_the_rate_of_its_state():
  process = _build('scaffold')
  state = process.initialize()
  hparams = process.get_hparams(state)
  assert hparams['client_work']['learning_rate'] == np.float32(
    small_training.LEARNING_RATE
  )
  hparams['client_work']['learning_rate'] = 0.05
  state = process.set_hparams(state, hparams)
  other = fedsteer_tff.build_scaffold(
    small_training.model_fn, _N, client_learning_rate=0.05
  )
  found = small_training.run(process, state, [0, 3]).state
  wanted = small_training.run(other, other.initialize(), [0, 3]).state
  np.testing.assert_allclose(_weights(found), _weights(wanted), rtol=1e-6)
  for one, two in zip(_scaffold_controls(found), _scaffold_controls(wanted)):
    np.testing.assert_allclose(one, two, rtol=1e-6)


def test_an_unknown_id_is_named_by_every_method():
  for method in ('mifa', 'scaffold'):
    process = _build(method)
    data = fedsteer_tff.build_client_data(
      _N,
      small_training.dataset(0),
      weight=0.1,
      participation_probability=0.5,
    )
    with pytest.raises(Exception, match='client_id must be in'):
      process.next(process.initialize(), [data])


def test_the_sum_of_scaffolds_controls_is_kept():
  process = _build('scaffold')
  state = process.initialize()
  for ids in small_training.cohorts(5, empty=(1,)):
    state = small_training.run(process, state, ids).state
    control, controls = _scaffold_controls(state)
    np.testing.assert_allclose(
      control, np.mean(controls, axis=0), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
  ('build', 'error', 'message'),
  [
    (
      lambda fn: fedsteer_tff.build_fedprox(fn, _N, 0.0),
      ValueError,
      'proximal_strength must be finite and > 0, found 0.0',
    ),
    (
      lambda fn: fedsteer_tff.build_fedprox(fn, _N, 'much'),
      TypeError,
      "proximal_strength must be a number, found 'much'",
    ),
    (
      lambda fn: fedsteer_tff.build_fedstale(fn, _N, 2.0),
      ValueError,
      r'beta must be in \[0, 1\], found 2.0',
    ),
    (
      lambda fn: fedsteer_tff.build_scaffold(fn, _N, client_learning_rate=0.0),
      ValueError,
      'client_learning_rate must be finite and > 0, found 0.0',
    ),
    (
      lambda fn: fedsteer_tff.build_scaffold(fn, _N, client_learning_rate='x'),
      TypeError,
      "client_learning_rate must be a number, found 'x'",
    ),
    (
      lambda fn: fedsteer_tff.build_fedavg(fn, _N, build_client_work=3),
      TypeError,
      'arguments must be own parameters or among .* found build_client_work',
    ),
    (
      lambda fn: fedsteer_tff.build_scaffold(fn, _N, client_optimizer=1),
      TypeError,
      'client_optimizer must not be given',
    ),
    (
      lambda fn: fedsteer_tff.build_mifa(fn, 0),
      ValueError,
      'population_size must be >= 1, found 0',
    ),
    (
      lambda fn: fedsteer_tff.build_fedavg(fn, _N, correction_weighting='x'),
      ValueError,
      'correction_weighting must be one of',
    ),
    (
      lambda fn: fedsteer_tff.build_mifa(fn, _N, correction_weighting='x'),
      TypeError,
      'correction_weighting',
    ),
  ],
)
def test_a_wrong_argument_is_named(build, error, message):
  with pytest.raises(error, match=message):
    build(small_training.model_fn)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
