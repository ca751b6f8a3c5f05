"""Tests of the estimate of the population's update."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from fedsteer_tff import subspace
from tests import numpy_oracle


def _cohort(active, d, p, fresh, cached, dtype, subtracted=None):
  active = np.asarray(active, int)
  if subtracted is None:
    subtracted = np.zeros_like(fresh)
  return subspace.Cohort(
    weights=tf.constant(d[active], dtype),
    previous_weights=tf.constant(d[active], dtype),
    probabilities=tf.constant(p[active], dtype),
    fresh=tf.constant(fresh[active], dtype),
    cached=tf.constant(cached[active], dtype),
    subtracted=tf.constant(subtracted[active], dtype),
    multiplicity=tf.ones([len(active)], dtype),
    first=tf.ones([len(active)], tf.bool),
  )


def _estimate(
  rule, basis, updates, d, p, fresh, cached, active, smoothed, subtracted=None
):
  """Runs `estimate_update` in the dtype of `basis`, weights known."""
  dtype = basis.dtype
  active = np.asarray(active, int)
  vectors = updates[active]
  if subtracted is not None:
    vectors = vectors - subtracted[active] @ basis
  importance = (d[active].astype(dtype) / p[active].astype(dtype)).astype(dtype)
  weighted_sum = importance @ vectors if len(active) else 0 * updates[0]
  estimate = subspace.estimate_update(
    rule,
    tf.constant(basis),
    tf.constant(d @ cached, tf.float64),
    _cohort(active, d, p, fresh, cached, dtype, subtracted),
    tf.constant(weighted_sum, dtype),
    tf.constant(1.0, tf.float64),
    tf.constant(smoothed if rule.smooths else [], dtype),
  )
  return estimate.delta.numpy(), estimate.smoothed_correction.numpy()


def _bias_instance():
  """The published enumeration, with rows that are not divided by k."""
  golden = numpy_oracle.golden('f_bias_1_f64')
  basis = golden['H'][golden['core']]
  k = len(basis)
  fresh = subspace.project(
    basis, golden['G'], absolute_ridge=float(golden['lam']) * k**2
  ).numpy()
  return golden, basis, fresh, golden['S_prev'] / k


def _expectation(rule, dtype, smoothed=None):
  golden, basis, fresh, cached = _bias_instance()
  smoothed = np.zeros(basis.shape[1]) if smoothed is None else smoothed
  total = 0.0
  for members, probability in zip(golden['sets'], golden['prob']):
    delta, _ = _estimate(
      rule,
      basis.astype(dtype),
      golden['G'].astype(dtype),
      golden['d'],
      golden['p'],
      fresh.astype(dtype),
      cached.astype(dtype),
      np.flatnonzero(members),
      smoothed.astype(dtype),
    )
    total = total + probability * delta.astype(float)
  return total


@pytest.mark.parametrize(
  ('name', 'tolerance'), [('b_step_1_f64', 1e-9), ('b_step_1_f32', 1e-5)]
)
@pytest.mark.parametrize('subtract', [False, True])
def test_published_step(name, tolerance, subtract):
  golden = numpy_oracle.golden(name)
  basis = golden['H'][golden['core']]
  k = len(basis)
  fresh = subspace.project(
    basis, golden['G'], absolute_ridge=float(golden['lam']) * k**2
  ).numpy()
  cached = golden['S_prev'] / np.asarray(k, basis.dtype)
  # The published code's update is before minus after, so its server subtracts.
  delta, _ = _estimate(
    subspace.named_rule('paper'),
    basis,
    golden['G'],
    golden['d'],
    golden['p'],
    fresh,
    cached,
    golden['active'],
    None,
    subtracted=fresh if subtract else None,
  )
  assert delta.dtype == basis.dtype
  error = numpy_oracle.relative_error(
    golden['w0'] - delta, golden['w_fedsteer']
  )
  assert error <= tolerance


@pytest.mark.parametrize(
  ('name', 'tolerance'), [('b_step_1_f64', 1e-9), ('b_step_1_f32', 1e-5)]
)
def test_without_a_core_set_it_is_the_published_unbiased_average(
  name, tolerance
):
  golden = numpy_oracle.golden(name)
  nothing = np.zeros([len(golden['d']), 0])
  delta, _ = _estimate(
    subspace.named_rule('paper'),
    golden['H'][:0],
    golden['G'],
    golden['d'],
    golden['p'],
    nothing,
    nothing,
    golden['active'],
    None,
  )
  error = numpy_oracle.relative_error(golden['w0'] - delta, golden['w_fedavg'])
  assert error <= tolerance


@pytest.mark.parametrize(
  ('estimator', 'name'), [('paper', 'before'), ('unbiased', 'after')]
)
def test_every_active_set_gives_the_published_estimate(estimator, name):
  golden, basis, fresh, cached = _bias_instance()
  for members, wanted in zip(golden['sets'], golden[f'delta_{name}']):
    delta, _ = _estimate(
      subspace.named_rule(estimator),
      basis,
      golden['G'],
      golden['d'],
      golden['p'],
      fresh,
      cached,
      np.flatnonzero(members),
      None,
    )
    assert numpy_oracle.relative_error(delta, wanted) <= 1e-9


@pytest.mark.parametrize(
  ('dtype', 'tolerance'), [(np.float64, 1e-9), (np.float32, 1e-5)]
)
def test_paper_has_the_published_bias(dtype, tolerance):
  golden = _bias_instance()[0]
  bias = _expectation(subspace.named_rule('paper'), dtype)
  bias -= golden['d'] @ golden['G']
  assert numpy_oracle.relative_error(bias, golden['bias_before']) <= tolerance


@pytest.mark.parametrize(
  ('dtype', 'tolerance'), [(np.float64, 1e-12), (np.float32, 1e-6)]
)
def test_unbiased_is_unbiased(dtype, tolerance):
  golden = _bias_instance()[0]
  mean = _expectation(subspace.named_rule('unbiased'), dtype)
  target = golden['d'] @ golden['G']
  assert numpy_oracle.relative_error(mean, target) <= tolerance


@pytest.mark.parametrize(
  ('dtype', 'tolerance'), [(np.float64, 1e-12), (np.float32, 1e-6)]
)
@pytest.mark.parametrize('smoothing', [None, 1.0])
@pytest.mark.parametrize('remembers', [False, True])
def test_stable_has_its_stated_expectation(
  dtype, tolerance, smoothing, remembers
):
  golden, basis, fresh, cached = _bias_instance()
  d, p, updates = golden['d'], golden['p'], golden['G']
  smoothed = np.zeros(basis.shape[1])
  if remembers:
    smoothed = np.random.default_rng(0).normal(size=basis.shape[1])
  a = 0.3 if smoothing is None else smoothing

  inverse_sum = np.zeros(len(d))
  for members in itertools.product([0, 1], repeat=len(d)):
    active = np.array(members, bool)
    if active.any():
      probability = np.prod(np.where(active, p, 1 - p))
      inverse_sum[active] += probability / np.sum((d / p)[active])
  nobody = np.prod(1 - p)
  old, new = cached @ basis, fresh @ basis
  wanted = d @ ((1 - p)[:, np.newaxis] * old + p[:, np.newaxis] * new)
  wanted += (1 - a * (1 - nobody)) * smoothed
  wanted += a * ((d / p * inverse_sum) @ (updates - new))

  rule = subspace.named_rule('stable', correction_smoothing=smoothing)
  mean = _expectation(rule, dtype, smoothed)
  assert numpy_oracle.relative_error(mean, wanted) <= tolerance


@pytest.mark.parametrize('estimator', ['paper', 'unbiased', 'stable'])
@pytest.mark.parametrize('smoothing', [1.0, 0.3])
def test_a_round_without_reports_applies_the_baseline(estimator, smoothing):
  golden, basis, fresh, cached = _bias_instance()
  rule = subspace.named_rule(estimator, correction_smoothing=smoothing)
  smoothed = np.random.default_rng(1).normal(size=basis.shape[1])
  delta, remembered = _estimate(
    rule,
    basis,
    golden['G'],
    golden['d'],
    golden['p'],
    fresh,
    cached,
    [],
    smoothed,
  )
  if estimator == 'stable':
    kept = smoothed
  elif smoothing < 1:
    kept = (1 - smoothing) * smoothed
  else:
    kept = np.zeros_like(smoothed)
    assert remembered.size == 0
  baseline = golden['d'] @ cached @ basis
  assert numpy_oracle.relative_error(delta, baseline + kept) <= 1e-12
  if rule.smooths:
    assert numpy_oracle.relative_error(remembered, kept) <= 1e-12


@pytest.mark.parametrize('estimator', ['paper', 'unbiased', 'stable'])
def test_nobody_was_ever_seen(estimator):
  empty = np.zeros([0])
  rule = subspace.named_rule(estimator)
  estimate = subspace.estimate_update(
    rule,
    tf.zeros([2, 5]),
    tf.zeros([2], tf.float64),
    _cohort([], empty, empty, np.zeros([0, 2]), np.zeros([0, 2]), np.float32),
    tf.zeros([5]),
    tf.constant(0.0, tf.float64),
    tf.zeros([5 if rule.smooths else 0]),
  )
  np.testing.assert_array_equal(estimate.delta, np.zeros(5))


@pytest.mark.parametrize('estimator', ['paper', 'unbiased', 'stable'])
@pytest.mark.parametrize('subtract', [None, 'fresh', 'cached'])
def test_what_clients_subtracted_does_not_matter(estimator, subtract):
  golden, basis, fresh, cached = _bias_instance()
  subtracted = {None: None, 'fresh': fresh, 'cached': cached}[subtract]
  deltas = [
    _estimate(
      subspace.named_rule(estimator),
      basis,
      golden['G'],
      golden['d'],
      golden['p'],
      fresh,
      cached,
      [0, 2, 5],
      np.zeros(basis.shape[1]),
      subtracted=given,
    )[0]
    for given in (None, subtracted)
  ]
  assert numpy_oracle.relative_error(deltas[1], deltas[0]) <= 1e-12


def test_full_participation_gives_the_exact_mean():
  golden, basis, fresh, cached = _bias_instance()
  d = golden['d']
  ones = np.ones_like(d)
  for estimator in ('paper', 'unbiased'):
    delta, _ = _estimate(
      subspace.named_rule(estimator),
      basis,
      golden['G'],
      d,
      ones,
      fresh,
      cached,
      range(len(d)),
      None,
    )
    assert numpy_oracle.relative_error(delta, d @ golden['G']) <= 1e-12


def test_baseline_stays_the_sum_over_clients():
  rng = np.random.default_rng(2)
  coordinates = rng.normal(size=[8, 3])
  weights = np.zeros(8)
  baseline = np.zeros(3)
  coordinates[:] = 0
  for _ in range(20):
    active = rng.choice(8, size=3, replace=False)
    fresh = rng.normal(size=[3, 3])
    new_weights = rng.uniform(1, 50, size=3)
    cohort = subspace.Cohort(
      weights=new_weights,
      previous_weights=weights[active],
      probabilities=np.ones(3),
      fresh=fresh,
      cached=coordinates[active],
      subtracted=np.zeros([3, 3]),
      multiplicity=np.ones(3),
      first=np.ones(3, bool),
    )
    baseline = subspace.updated_baseline(
      tf.constant(baseline, tf.float64), cohort, fresh
    ).numpy()
    coordinates[active], weights[active] = fresh, new_weights
    np.testing.assert_allclose(baseline, weights @ coordinates, rtol=1e-9)


@pytest.mark.parametrize('estimator', list(numpy_oracle.RULES))
def test_names_stand_for_three_choices(estimator):
  rule = subspace.named_rule(estimator)
  assert (
    rule.coordinate_refresh,
    rule.correction_weighting,
    rule.correction_smoothing,
  ) == numpy_oracle.RULES[estimator]


def test_every_part_of_a_name_can_be_replaced():
  rule = subspace.named_rule(
    'paper',
    coordinate_refresh='after_aggregation',
    correction_weighting='self_normalized',
    correction_smoothing=0.5,
  )
  assert rule == subspace.EstimatorRule(
    'after_aggregation', 'self_normalized', 0.5
  )


@pytest.mark.parametrize(
  ('arguments', 'error', 'message'),
  [
    (
      {'name': 'best'},
      ValueError,
      "estimator must be one of 'paper', 'unbiased', 'stable', found 'best'",
    ),
    (
      {'coordinate_refresh': 'never'},
      ValueError,
      "coordinate_refresh must be one of 'before_aggregation', "
      "'after_aggregation', found 'never'",
    ),
    (
      {'correction_weighting': 'equal'},
      ValueError,
      "correction_weighting must be one of 'inverse_probability', "
      "'self_normalized', 'participant_mean', found 'equal'",
    ),
    (
      {'correction_smoothing': 0},
      ValueError,
      'correction_smoothing must be in (0, 1], found 0',
    ),
    (
      {'correction_smoothing': 1.5},
      ValueError,
      'correction_smoothing must be in (0, 1], found 1.5',
    ),
    (
      {'correction_smoothing': float('nan')},
      ValueError,
      'correction_smoothing must be in (0, 1], found nan',
    ),
    (
      {'correction_smoothing': '1'},
      TypeError,
      "correction_smoothing must be a number, found '1'",
    ),
    (
      {'correction_smoothing': True},
      TypeError,
      'correction_smoothing must be a number, found True',
    ),
  ],
)
def test_a_wrong_part_is_named(arguments, error, message):
  with pytest.raises(error) as caught:
    subspace.named_rule(**{'name': 'paper', **arguments})
  assert str(caught.value) == message


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
