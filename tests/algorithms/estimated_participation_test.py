"""Tests of whole processes that estimate participation."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import participation
from fedsteer_tff import programs
from tests import participation_oracle
from tests.algorithms import small_training

_N = small_training.NUM_CLIENTS
_ESTIMATORS = {
  'frequency': participation.RunningFrequency(0.5),
  'windowed': participation.WindowedFrequency(
    0.5, window=20.0, population='growing'
  ),
  'interval': participation.IntervalEstimate(cutoff=5),
}
_ARGUMENTS = {
  'fedsteer': {'core_set_size': 3, 'warmup_rounds': 2, 'estimator': 'stable'},
  'fedavg': {},
  'fedprox': {'proximal_strength': 0.3},
  'fedvarp': {},
  'fedstale': {'beta': 0.6},
  'mifa': {},
  'scaffold': {},
}

_DENSE = (('aggregation', 'dense'),)


@functools.cache
def _build(method, estimate='frequency', items=()):
  return getattr(fedsteer_tff, f'build_{method}')(
    small_training.model_fn,
    _N,
    participation=_ESTIMATORS[estimate],
    **_ARGUMENTS[method],
    **dict(items),
  )


def _data(client_id, probability=None):
  if client_id < 0:
    return small_training.client_data(client_id)
  return fedsteer_tff.build_client_data(
    client_id,
    small_training.dataset(client_id),
    weight=float(small_training.shares()[client_id]),
    participation_probability=probability,
  )


def _run(process, state, ids):
  ids = list(ids) + [-1] * (_N - len(ids))
  return process.next(state, [_data(i) for i in ids])


@pytest.mark.slow
@pytest.mark.parametrize('method', _ARGUMENTS)
def test_every_algorithm_estimates_the_probabilities(method):
  process = _build(method)
  oracle = participation_oracle.Estimates(_ESTIMATORS['frequency'], _N)
  state = process.initialize()
  for ids in small_training.cohorts(3, empty=(1,)):
    output = _run(process, state, ids)
    state = output.state
    used = oracle.observe(ids)
    found = fedsteer_tff.estimated_probabilities(
      state, _ESTIMATORS['frequency']
    )
    np.testing.assert_allclose(found, oracle.estimates(), rtol=1e-5)
    metrics = output.metrics['aggregator']
    # No client knows its probability.
    assert np.isnan(metrics['participation_absolute_error'])
    assert np.isfinite(metrics['participation_standard_error']) == bool(used)
    for weights in state.global_model_weights.trainable:
      assert np.isfinite(weights).all()


@pytest.mark.parametrize(
  ('method', 'estimate', 'items'),
  [
    ('fedsteer', 'windowed', ()),
    ('fedsteer', 'interval', _DENSE),
    ('fedavg', 'frequency', ()),
    ('fedvarp', 'frequency', ()),
    ('scaffold', 'windowed', (('correction_weighting', 'self_normalized'),)),
  ],
)
def test_a_map_reduce_form_exists(method, estimate, items):
  form = tff.backends.mapreduce.get_map_reduce_form_for_computation(
    _build(method, estimate, items).next
  )
  assert isinstance(form, tff.backends.mapreduce.MapReduceForm)


def test_a_distribute_aggregate_form_exists_for_dense():
  process = _build('fedsteer', 'interval', _DENSE)
  form = tff.backends.mapreduce.get_distribute_aggregate_form_for_computation(
    process.next
  )
  assert isinstance(form, tff.backends.mapreduce.DistributeAggregateForm)


@pytest.mark.parametrize(
  ('method', 'estimate', 'items'),
  [
    ('fedsteer', 'windowed', ()),
    ('fedsteer', 'interval', _DENSE),
    ('fedvarp', 'frequency', ()),
  ],
)
def test_a_run_resumes_exactly(method, estimate, items, tmp_path):
  process = _build(method, estimate, items)
  cohorts = small_training.cohorts(5, empty=(3,))
  states = [process.initialize()]
  metrics = []
  for ids in cohorts:
    output = _run(process, states[-1], ids)
    states.append(output.state)
    metrics.append(output.metrics['aggregator'])
  programs.Checkpoints(tmp_path).save(states[3], 3)
  state, done = programs.Checkpoints(tmp_path).restore(process.initialize())
  assert done == 3
  for number, ids in enumerate(cohorts[3:], 3):
    output = _run(process, state, ids)
    state = output.state
    for name, wanted in metrics[number].items():
      found = output.metrics['aggregator'][name]
      np.testing.assert_array_equal(found, wanted, err_msg=name)
  for found, wanted in zip(tf.nest.flatten(state), tf.nest.flatten(states[-1])):
    np.testing.assert_array_equal(found, wanted)
  assert np.ptp(state.aggregator['participation'][_table(estimate)]) > 0


def _table(estimate):
  return 'interval_rounds' if estimate == 'interval' else 'taken'


@pytest.mark.parametrize(
  ('method', 'estimate', 'items', 'size'),
  [
    ('fedsteer', 'frequency', (), 8 * _N),
    ('fedsteer', 'windowed', (), 8 * _N + 8),
    ('fedsteer', 'interval', _DENSE, 12 * _N),
    ('fedvarp', 'frequency', (), 8 * _N),
  ],
)
def test_estimates_take_two_or_three_numbers_a_client(
  method, estimate, items, size
):
  report = fedsteer_tff.state_size_report(_build(method, estimate, items))
  assert report['aggregator/participation'] == size


def test_a_client_that_is_forced_is_told_by_a_probability_of_1():
  process = _build('fedavg')
  state = process.initialize()
  padding = [_data(-1)] * (_N - 2)
  output = process.next(state, [_data(0, 1.0), _data(1, 0.4), *padding])
  found = fedsteer_tff.estimated_probabilities(
    output.state, _ESTIMATORS['frequency']
  )
  # The prior of client 0, and (10 * 0.5 + 1) / (10 + 1).
  np.testing.assert_allclose(found[:3], [0.5, 6 / 11, 5 / 11], rtol=1e-6)
  metrics = output.metrics['aggregator']
  np.testing.assert_allclose(
    metrics['participation_absolute_error'], 6 / 11 - 0.4, rtol=1e-5
  )


def test_estimates_are_those_of_the_estimator_that_the_process_has():
  frequency, interval = _ESTIMATORS['frequency'], _ESTIMATORS['interval']
  state = _build('fedavg').initialize()
  np.testing.assert_array_equal(
    fedsteer_tff.estimated_probabilities(state, frequency), [0.5] * _N
  )
  with pytest.raises(
    ValueError, match='state must have the estimates .*found those with'
  ):
    fedsteer_tff.estimated_probabilities(state, interval)
  known = small_training.build_fedavg().initialize()
  for asked in (frequency, 'known'):
    with pytest.raises(ValueError, match='state must have the estimates'):
      fedsteer_tff.estimated_probabilities(known, asked)
  with pytest.raises(TypeError, match="participation must be 'known' or one"):
    fedsteer_tff.estimated_probabilities(state, 0.5)
  with pytest.raises(ValueError, match='state must be that of a process'):
    fedsteer_tff.estimated_probabilities(None, frequency)


@pytest.mark.parametrize('method', _ARGUMENTS)
def test_a_wrong_participation_is_named(method):
  build = getattr(fedsteer_tff, f'build_{method}')
  with pytest.raises(ValueError, match="participation must be 'known' or one"):
    build(
      small_training.model_fn,
      _N,
      participation='guess',
      **_ARGUMENTS[method],
    )


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
