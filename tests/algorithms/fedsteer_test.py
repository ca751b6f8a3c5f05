"""Tests of the whole learning process against Keras and NumPy."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from tests import numpy_oracle
from tests.algorithms import small_training

_DESIGNS = (
  'sketched_projection',
  'server_projection',
  'client_projection',
  'dense',
)
_ESTIMATORS = ('paper', 'unbiased', 'stable')


def _weights(process, state):
  return small_training.flat(process.get_model_weights(state).trainable)


def _check_run(process, history, pad_to=small_training.NUM_CLIENTS):
  state = process.initialize()
  for number, ids in enumerate(small_training.cohorts(len(history))):
    output = small_training.run(process, state, ids, pad_to)
    state = output.state
    weights, coordinates, basis, core, metrics = history[number]
    aggregator = state.aggregator
    np.testing.assert_array_equal(aggregator['core_set'], core)
    for name, found, wanted, tolerance in (
      ('weights', _weights(process, state), weights, 1e-5),
      ('S', aggregator['coordinates'], coordinates, 1e-4),
      ('Q', aggregator['core_updates'], basis, 1e-4),
    ):
      error = numpy_oracle.relative_error(found, wanted)
      assert error <= tolerance, (number, name, error)
    found = output.metrics['aggregator']
    for name in ('active_clients', 'core_clients_refreshed'):
      assert found[name] == metrics[name]
    np.testing.assert_allclose(
      found['variance_estimate'], metrics['variance_estimate'], rtol=1e-3
    )
  assert (core >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize('estimator', _ESTIMATORS)
@pytest.mark.parametrize('design', _DESIGNS)
def test_ten_rounds_equal_numpy(design, estimator):
  _check_run(
    small_training.build(design, estimator),
    small_training.oracle_run(estimator, design),
  )


@pytest.mark.slow
def test_ten_rounds_of_changing_cohort_sizes_equal_numpy():
  _check_run(
    small_training.build('sketched_projection', 'stable'),
    small_training.oracle_run('stable'),
    pad_to=0,
  )


@pytest.mark.slow
def test_a_short_sketch_equals_numpy():
  parameters = {'sketch_size': 16}
  process = small_training.build('sketched_projection', 'stable', **parameters)
  state = process.initialize()
  work = small_training.trainer()
  matrix = fedsteer_tff.subspace.sketch(
    np.eye(len(work.initial), dtype=np.float32), 16
  ).numpy()
  oracle = numpy_oracle.FedSteer(
    small_training.NUM_CLIENTS,
    len(work.initial),
    core_set_size=small_training.CORE_SET_SIZE,
    warmup_rounds=small_training.WARMUP_ROUNDS,
    rule=numpy_oracle.RULES['stable'],
    sketch_matrix=matrix.astype(float),
  )
  weights = work.initial.astype(float)
  for ids in small_training.cohorts(6, empty=()):
    delta, _ = oracle.aggregate(
      [
        numpy_oracle.Report(
          i,
          work.update(weights, i),
          float(small_training.shares()[i]),
          float(small_training.PROBABILITIES[i]),
        )
        for i in ids
      ]
    )
    weights = weights - delta
    state = small_training.run(process, state, ids).state
    error = numpy_oracle.relative_error(_weights(process, state), weights)
    assert error <= 1e-5
    np.testing.assert_array_equal(state.aggregator['core_set'], oracle.core)


def test_an_empty_core_set_is_fedavg_bit_for_bit():
  fedsteer = small_training.build(core_set=())
  fedavg = small_training.build_fedavg()
  states = [fedsteer.initialize(), fedavg.initialize()]
  work = small_training.trainer()
  for ids in small_training.cohorts(4, empty=(2,)):
    before = _weights(fedavg, states[1])
    states = [
      small_training.run(process, state, ids).state
      for process, state in zip((fedsteer, fedavg), states)
    ]
    one, other = (
      _weights(process, state)
      for process, state in zip((fedsteer, fedavg), states)
    )
    np.testing.assert_array_equal(one, other)
    d, p = small_training.shares(), small_training.PROBABILITIES
    delta = np.zeros(len(before))
    for i in ids:
      delta += float(d[i]) / float(p[i]) * work.update(before, i)
    error = numpy_oracle.relative_error(other, before - delta)
    assert error <= 1e-6


def test_examples_as_weights_are_counted_by_the_client():
  process = small_training.build(client_weighting='examples')
  work = small_training.trainer()
  state = process.initialize()
  ids = [0, 3, 7]
  output = small_training.run(process, state, ids)
  # Two epochs.
  processed = 2.0 * small_training.num_examples()
  total = small_training.NUM_CLIENTS * np.mean(processed[ids])
  delta = sum(
    processed[i]
    / total
    / float(small_training.PROBABILITIES[i])
    * work.update(work.initial, i)
    for i in ids
  )
  error = numpy_oracle.relative_error(
    _weights(process, output.state), work.initial - delta
  )
  assert error <= 1e-6
  np.testing.assert_array_equal(
    output.state.aggregator['client_weight'][ids], processed[ids]
  )


@pytest.mark.parametrize(
  ('client', 'server'),
  [
    (
      tff.learning.optimizers.build_sgdm(0.1, momentum=0.9),
      tff.learning.optimizers.build_sgdm(0.5, momentum=0.5),
    ),
    (
      tff.learning.optimizers.build_adam(0.02),
      tff.learning.optimizers.build_adam(0.05),
    ),
  ],
  ids=['momentum', 'adam'],
)
def test_any_optimizer_of_clients_and_server_lowers_the_loss(client, server):
  process = fedsteer_tff.build_fedsteer(
    small_training.model_fn,
    small_training.NUM_CLIENTS,
    client_optimizer=client,
    server_optimizer=server,
    core_set_size=2,
    core_eligibility='frequent',
    warmup_rounds=2,
    estimator='stable',
  )
  state = process.initialize()
  losses = []
  for ids in small_training.cohorts(8, empty=()):
    output = small_training.run(process, state, ids)
    state = output.state
    losses.append(output.metrics['client_work']['train']['loss'])
    assert np.isfinite(_weights(process, state)).all()
  assert np.mean(losses[-2:]) < 0.9 * np.mean(losses[:2])
  assert output.metrics['client_work']['train']['accuracy'] > 0.4


def _diverging(client_id):
  x, y = small_training.examples()[client_id]
  x = np.full_like(x, np.nan)
  return tf.data.Dataset.from_tensor_slices((x, y)).batch(4)


@pytest.mark.parametrize('weighting', ['known', 'examples'])
@pytest.mark.parametrize('design', ['sketched_projection', 'dense'])
def test_a_client_that_diverges_is_counted_and_not_cached(design, weighting):
  process = small_training.build(
    design, core_set=(0, 1, 2), client_weighting=weighting
  )
  state = process.initialize()
  wanted = process.next(
    state, [small_training.client_data(i) for i in (1, 4, -1)]
  )
  output = process.next(
    state,
    [
      small_training.client_data(1),
      small_training.client_data(0, _diverging(0)),
      small_training.client_data(4),
    ],
  )
  metrics = output.metrics['aggregator']
  assert metrics['nonfinite_clients'] == 1
  assert metrics['active_clients'] == 2
  error = numpy_oracle.relative_error(
    _weights(process, output.state), _weights(process, wanted.state)
  )
  assert error <= 1e-6
  assert output.state.aggregator['last_seen'][0] == -1
  np.testing.assert_array_equal(
    output.state.aggregator['core_updates'][0], np.zeros(39)
  )
  for part in tf.nest.flatten(output.state.aggregator):
    assert np.isfinite(part).all()


def test_a_client_without_examples_reports_a_zero_update():
  nothing = small_training.dataset(5).take(0)
  process = small_training.build(core_set=(5, 1))
  state = small_training.run(process, process.initialize(), [1, 5]).state
  output = process.next(
    state,
    [
      small_training.client_data(1),
      small_training.client_data(5, nothing),
    ],
  )
  metrics = output.metrics['aggregator']
  assert metrics['nonfinite_clients'] == 0
  assert metrics['active_clients'] == 2
  assert output.state.aggregator['last_seen'][5] == 1
  np.testing.assert_array_equal(
    output.state.aggregator['core_updates'][0], np.zeros(39)
  )
  assert np.isfinite(_weights(process, output.state)).all()

  examples = small_training.build(client_weighting='examples')
  output = examples.next(
    examples.initialize(),
    [
      small_training.client_data(1),
      small_training.client_data(5, nothing),
    ],
  )
  # Its weight is 0, which is to say that it is ignored.
  assert output.metrics['aggregator']['active_clients'] == 1
  assert output.metrics['aggregator']['nonfinite_clients'] == 0


def test_metrics_are_aggregated_as_one_wishes():
  def metrics_aggregator(finalizers):
    aggregate = tff.learning.metrics.sum_then_finalize(finalizers)

    def aggregate_and_count(unfinalized):
      one = tff.tensorflow.computation(
        lambda _: tf.constant(1), unfinalized.type_signature.member
      )
      return tff.federated_zip(
        collections.OrderedDict(
          usual=aggregate(unfinalized),
          clients=tff.federated_sum(tff.federated_map(one, unfinalized)),
        )
      )

    return aggregate_and_count

  process = small_training.build(metrics_aggregator=metrics_aggregator)
  output = small_training.run(process, process.initialize(), [0, 1], pad_to=2)
  found = output.metrics['client_work']['train']
  usual = small_training.build()
  wanted = small_training.run(usual, usual.initialize(), [0, 1], pad_to=2)
  assert found['clients'] == 2
  assert found['usual'] == wanted.metrics['client_work']['train']


def test_weights_can_be_set_and_read():
  process = small_training.build()
  state = process.initialize()
  weights = process.get_model_weights(state)
  np.testing.assert_array_equal(
    small_training.flat(weights.trainable), small_training.trainer().initial
  )
  doubled = tff.learning.models.ModelWeights(
    [2 * w for w in weights.trainable], weights.non_trainable
  )
  state = process.set_model_weights(state, doubled)
  np.testing.assert_array_equal(
    _weights(process, state), 2 * small_training.trainer().initial
  )


def test_hyperparameters_can_be_set_and_read():
  process = small_training.build()
  state = process.initialize()
  hparams = process.get_hparams(state)
  rate = hparams['client_work']['learning_rate']
  np.testing.assert_allclose(rate, small_training.LEARNING_RATE)
  hparams['client_work']['learning_rate'] = np.float32(0.0)
  frozen = process.set_hparams(state, hparams)
  output = small_training.run(process, frozen, [0, 1, 2])
  np.testing.assert_array_equal(
    _weights(process, output.state), _weights(process, state)
  )


def _without_trainable_weights():
  model = small_training.keras_model()
  model.trainable = False
  return tff.learning.models.from_keras_model(
    model,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=small_training.SPEC,
  )


@pytest.mark.parametrize(
  'build', [fedsteer_tff.build_fedsteer, fedsteer_tff.build_fedavg]
)
@pytest.mark.parametrize(
  ('model_fn', 'error', 'message'),
  [
    (
      _without_trainable_weights,
      ValueError,
      'model_fn must build a model with at least one trainable weight, found '
      'none',
    ),
    (
      3,
      TypeError,
      'model_fn must be a callable or a tff.learning.models.FunctionalModel, '
      'found 3',
    ),
    (
      small_training.keras_model,
      TypeError,
      'model_fn must build a tff.learning.models.VariableModel, found '
      'Sequential; tff.learning.models.from_keras_model wraps a Keras model',
    ),
  ],
)
def test_a_wrong_model_is_named(build, model_fn, error, message):
  with pytest.raises(error) as caught:
    build(model_fn, 12)
  assert str(caught.value) == message


def test_a_keras_model_instead_of_a_function_is_an_error():
  with pytest.raises(TypeError):
    fedsteer_tff.build_fedsteer(small_training.keras_model(), 12)


@pytest.mark.parametrize('name', ['client_optimizer', 'server_optimizer'])
def test_a_wrong_optimizer_is_named(name):
  with pytest.raises(TypeError) as caught:
    fedsteer_tff.build_fedsteer(small_training.model_fn, 12, **{name: 0.1})
  assert str(caught.value) == (
    f'{name} must be a tff.learning.optimizers.Optimizer, found 0.1'
  )


def test_a_wrong_parameter_is_named():
  with pytest.raises(ValueError) as caught:
    fedsteer_tff.build_fedsteer(small_training.model_fn, 12, core_set_size=13)
  assert str(caught.value) == (
    'core_set_size must be <= population_size=12, found 13'
  )
  with pytest.raises(TypeError, match='core_size'):
    fedsteer_tff.build_fedsteer(small_training.model_fn, 12, core_size=3)


def _float64_model_fn():
  return tff.learning.models.from_keras_model(
    small_training.keras_model('float64'),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=(
      tf.TensorSpec([None, small_training.NUM_FEATURES], tf.float64),
      small_training.SPEC[1],
    ),
  )


def test_a_float64_model_keeps_its_dtype():
  process = fedsteer_tff.build_fedsteer(
    _float64_model_fn,
    small_training.NUM_CLIENTS,
    core_set_size=2,
    warmup_rounds=1,
  )
  data = small_training.dataset(0).map(lambda x, y: (tf.cast(x, tf.float64), y))
  state = process.initialize()
  output = process.next(state, [small_training.client_data(0, data)])
  weights = process.get_model_weights(output.state).trainable
  assert {w.dtype for w in weights} == {np.dtype(np.float64)}
  assert not np.array_equal(
    small_training.flat(weights), _weights(process, state)
  )


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
