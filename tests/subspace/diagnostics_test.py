"""Tests of what a user can watch while FedSteer trains."""

import numpy as np
import pytest
import tensorflow as tf

from fedsteer_tff import subspace
from tests import numpy_oracle


def _instance(seed, count=5, k=3, dimension=15):
  rng = np.random.default_rng(seed)
  basis = rng.normal(size=[k, dimension])
  updates = rng.normal(size=[count, dimension])
  cached = rng.normal(size=[count, k])
  d = rng.uniform(0.1, 1, size=count)
  p = rng.uniform(0.1, 1, size=count)
  return basis, updates, cached, d, p


def _metrics(basis, updates, cached, fresh, d, p):
  metrics = subspace.steering_metrics(
    basis @ basis.T,
    updates @ basis.T,
    np.sum(updates**2, axis=1),
    cached,
    fresh,
    d,
    p,
  )
  assert all(value.dtype == tf.float32 for value in metrics.values())
  return {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize('count', [1, 5])
@pytest.mark.parametrize('scale', [1e-3, 1, 1e3])
@pytest.mark.parametrize('seed', range(3))
def test_metrics_equal_their_definitions(seed, scale, count):
  basis, updates, cached, d, p = _instance(seed, count)
  basis, updates = scale * basis, scale * updates
  fresh = numpy_oracle.project(basis, updates, 0.01)
  metrics = _metrics(basis, updates, cached, fresh, d, p)
  norms = np.linalg.norm(updates, axis=1)
  residuals = np.linalg.norm(updates - fresh @ basis, axis=1)
  scale = d**2 * (1 - p) / p**2
  steered = scale @ np.sum((updates - cached @ basis) ** 2, axis=1)
  plain = scale @ norms**2
  eigenvalues = np.linalg.eigvalsh(basis @ basis.T)
  wanted = {
    'relative_residual': np.mean(residuals / norms),
    'effective_shrinkage': np.mean(
      np.linalg.norm(fresh @ basis, axis=1) / norms
    ),
    'core_condition': eigenvalues[-1] / eigenvalues[0],
    'variance_estimate': steered,
    'variance_estimate_without_steering': plain,
    'variance_ratio': steered / plain,
  }
  assert set(metrics) == set(wanted)
  for name, value in wanted.items():
    np.testing.assert_allclose(metrics[name], value, rtol=1e-6, err_msg=name)


def test_variance_estimate_is_unbiased():
  golden = numpy_oracle.golden('f_bias_1_f64')
  d, p, updates = golden['d'], golden['p'], golden['G']
  basis = golden['H'][golden['core']]
  cached = golden['S_prev'] / len(basis)
  target = d @ updates
  variance = expected = expected_plain = plain = 0.0
  for members, probability in zip(golden['sets'], golden['prob']):
    active = np.flatnonzero(members)
    importance = (d / p)[active]
    delta = d @ cached @ basis + importance @ (
      updates[active] - cached[active] @ basis
    )
    variance += probability * np.sum((delta - target) ** 2)
    plain += probability * np.sum((importance @ updates[active] - target) ** 2)
    metrics = _metrics(
      basis,
      updates[active],
      cached[active],
      cached[active],
      d[active],
      p[active],
    )
    expected += probability * metrics['variance_estimate']
    expected_plain += (
      probability * metrics['variance_estimate_without_steering']
    )
  np.testing.assert_allclose(expected, variance, rtol=1e-6)
  np.testing.assert_allclose(expected_plain, plain, rtol=1e-6)


def test_an_empty_cohort_has_no_variance_and_no_ratios():
  basis, updates, cached, d, p = _instance(0)
  metrics = _metrics(basis, updates[:0], cached[:0], cached[:0], d[:0], p[:0])
  condition = metrics.pop('core_condition')
  assert condition > 1
  for name in ('relative_residual', 'effective_shrinkage', 'variance_ratio'):
    assert np.isnan(metrics.pop(name))
  assert set(metrics.values()) == {0.0}


def test_an_empty_core_set_explains_nothing():
  _, updates, _, d, p = _instance(1)
  nothing = np.zeros([5, 0])
  metrics = _metrics(np.zeros([0, 15]), updates, nothing, nothing, d, p)
  assert metrics['relative_residual'] == 1
  assert metrics['effective_shrinkage'] == 0
  assert metrics['variance_ratio'] == 1
  assert metrics['core_condition'] == 0


def test_zero_updates_are_left_out_of_the_means():
  basis, updates, cached, d, p = _instance(2)
  fresh = numpy_oracle.project(basis, updates, 0.01)
  without = _metrics(basis, updates[1:], cached[1:], fresh[1:], d[1:], p[1:])
  updates[0], fresh[0] = 0, 0
  metrics = _metrics(basis, updates, cached, fresh, d, p)
  for name in ('relative_residual', 'effective_shrinkage'):
    np.testing.assert_allclose(metrics[name], without[name], rtol=1e-6)


def test_certain_participation_has_no_variance():
  basis, updates, cached, d, _ = _instance(3)
  metrics = _metrics(basis, updates, cached, cached, d, np.ones(5))
  assert metrics['variance_estimate'] == 0
  assert np.isnan(metrics['variance_ratio'])


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize(
  ('squared_norms', 'condition', 'with_ridge'),
  [
    # With the ridge 2: (4 + 2) / (0.25 + 2).
    ([0, 4, 0, 0.25], 16, 6 / 2.25),
    ([0, 3, 0], 1, 1),
    ([0, 0.5], 1, 1),
    ([3], 1, 1),
    ([0, 0, 0], 0, 0),
    ([0], 0, 0),
    ([], 0, 0),
  ],
)
def test_condition_numbers_ignore_zero_rows(
  squared_norms, condition, with_ridge, dtype
):
  gram = np.diag(np.array(squared_norms, dtype))
  found = subspace.condition_number(gram)
  assert found.dtype == tf.float64
  np.testing.assert_allclose(found, condition, rtol=1e-12)
  found = subspace.ridge_condition(gram, 0.01, 2.0)
  assert found.dtype == tf.float64
  np.testing.assert_allclose(found, with_ridge, rtol=1e-12)


@pytest.mark.parametrize(
  ('dtype', 'epsilon'), [(np.float32, 2.0**-23), (np.float64, 2.0**-52)]
)
def test_condition_number_ends_at_the_rounding_of_the_dtype(dtype, epsilon):
  for smallest in (0.75 * epsilon, 2.0**-60):
    gram = np.diag(np.array([1, smallest], dtype))
    assert subspace.condition_number(gram) == 1 / epsilon
  gram = np.diag(np.array([1, 2 * epsilon], dtype))
  assert subspace.condition_number(gram) == 0.5 / epsilon
  found = subspace.condition_number(np.ones([2, 2], dtype)).numpy()
  assert 0.1 <= found * epsilon <= 10


@pytest.mark.parametrize(
  ('dtype', 'epsilon'), [(np.float32, 2.0**-23), (np.float64, 2.0**-52)]
)
def test_condition_with_the_ridge_is_that_of_what_is_solved(dtype, epsilon):
  gram = np.diag(np.array([5, 1], dtype))
  # r is 0.1 (5 + 1) / 2, and then 16 * 2 epsilon of the same mean.
  np.testing.assert_allclose(
    subspace.ridge_condition(gram, 0.1), 5.3 / 1.3, rtol=1e-12
  )
  dependent = np.array([[3, 3], [3, 3]], dtype)
  np.testing.assert_allclose(
    subspace.ridge_condition(dependent, 0.0),
    6 / (32 * epsilon * 3),
    rtol=0.05,
  )


def test_an_eigenvalue_below_zero_counts_as_zero_beside_the_ridge():
  # As the rounding of a sum may make it: the eigenvalues are 3 and -1.
  gram = np.array([[1.0, 2.0], [2.0, 1.0]])
  np.testing.assert_allclose(
    subspace.ridge_condition(gram, 0.01, 2.0), 5 / 2, rtol=1e-12
  )


@pytest.mark.parametrize(
  ('last', 'mean', 'oldest'),
  [
    ([7, 5, 3], 2, 4),
    ([7, -1, 3], 2, 4),
    ([0, -1, 3], 5.5, 7),
    ([-1, -1], 0, 0),
    ([], 0, 0),
  ],
)
def test_staleness_counts_rounds_and_leaves_out_never(last, mean, oldest):
  found = subspace.staleness(tf.constant(7), tf.constant(last, tf.int32))
  assert tuple(float(value) for value in found) == (mean, oldest)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
