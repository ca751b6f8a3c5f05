"""Tests of coordinates in the span of the core clients' updates."""

import numpy as np
import pytest
import tensorflow as tf

from fedsteer_tff import subspace
from tests import numpy_oracle


def _updates(seed, count=6, dimension=20, dtype=np.float64):
  rng = np.random.default_rng(seed)
  return rng.normal(size=[count, dimension]).astype(dtype)


@pytest.mark.parametrize(
  ('name', 'tolerance_s', 'tolerance_r'),
  [('a_proj_1_f64', 1e-9, 1e-9), ('a_proj_1_f32', 2e-4, 1e-5)],
)
def test_published_coordinates_and_reconstructions(
  name, tolerance_s, tolerance_r
):
  golden = numpy_oracle.golden(name)
  basis = golden['H'][golden['core']]
  k = len(basis)
  # There the rows are divided by k, which multiplies coordinates by k.
  fresh = subspace.project(
    basis, golden['G'], absolute_ridge=float(golden['lam']) * k**2
  )
  wanted = golden['S_allfresh'] / k
  assert numpy_oracle.relative_error(fresh, wanted) <= tolerance_s
  rebuilt = subspace.reconstruct(basis, fresh)
  assert rebuilt.dtype == golden['G'].dtype
  assert (
    numpy_oracle.relative_error(rebuilt, golden['R_allfresh']) <= tolerance_r
  )

  coordinates = golden['S_prev'].copy() / k
  coordinates[golden['active']] = fresh.numpy()[golden['active']]
  assert (
    numpy_oracle.relative_error(coordinates, golden['S'] / k) <= tolerance_s
  )
  rebuilt = subspace.reconstruct(basis, coordinates.astype(basis.dtype))
  assert numpy_oracle.relative_error(rebuilt, golden['R']) <= tolerance_r


@pytest.mark.parametrize('ridge', [0.0, 0.01, 1.0, 100.0])
def test_relative_ridge_is_a_multiple_of_the_mean_squared_norm(ridge):
  updates = _updates(0)
  basis = updates[:3]
  absolute = float(ridge * np.mean(np.sum(basis**2, axis=1)))
  wanted = np.linalg.solve(
    basis @ basis.T + absolute * np.eye(3), basis @ updates.T
  ).T
  found = subspace.project(basis, updates, ridge=ridge)
  assert numpy_oracle.relative_error(found, wanted) <= 1e-9
  same = subspace.project(basis, updates, 0.5, absolute_ridge=absolute)
  assert numpy_oracle.relative_error(same, wanted) <= 1e-9


def test_coordinates_minimise_the_ridge_objective():
  updates = _updates(1)
  basis, update = updates[:3], updates[5]
  ridge = 0.3
  best = subspace.project(basis, update[np.newaxis], absolute_ridge=ridge)[0]

  def objective(s):
    return np.sum((update - s @ basis) ** 2) + ridge * np.sum(s**2)

  for step in np.concatenate([np.eye(3), -np.eye(3)]) * 1e-3:
    assert objective(best.numpy() + step) > objective(best.numpy())


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_zero_rows_get_coordinate_zero_and_change_no_reconstruction(dtype):
  updates = _updates(2, dtype=dtype)
  basis = updates[:3].copy()
  basis[1] = 0
  found = subspace.project(basis, updates, absolute_ridge=0.1)
  np.testing.assert_array_equal(found[:, 1], np.zeros(6, dtype))
  without = subspace.project(basis[[0, 2]], updates, absolute_ridge=0.1)
  assert (
    numpy_oracle.relative_error(found.numpy()[:, [0, 2]], without)
    <= 16 * np.finfo(dtype).eps
  )


def test_equal_rows_share_their_coordinate():
  updates = _updates(3, dtype=np.float32)
  basis = updates[[0, 0, 1]]
  found = subspace.project(basis, updates).numpy()
  np.testing.assert_allclose(found[:, 0], found[:, 1], rtol=1e-4, atol=1e-6)
  assert np.isfinite(found).all()


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('scale', [1e-6, 1.0, 1e6])
@pytest.mark.parametrize('arguments', [{'ridge': 0.0}, {'absolute_ridge': 0.0}])
def test_no_ridge_and_dependent_rows_is_finite(dtype, scale, arguments):
  updates = (scale * _updates(4)).astype(dtype)
  basis = np.stack([updates[0], updates[0], updates[1], 0 * updates[0]])
  found = subspace.project(basis, updates, **arguments)
  assert np.isfinite(found.numpy()).all()
  rebuilt = subspace.reconstruct(basis, found).numpy()
  # The floor of the ridge leaves updates in the span almost as they are.
  assert numpy_oracle.relative_error(rebuilt[:2], updates[:2]) <= 1e-3


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('scale', [0.25, 1.0, 4.0])
def test_ridge_of_zero_leaves_16_roundings_per_row(dtype, scale):
  # Powers of two, whose products have no rounding of their own.
  basis = scale * np.eye(2, 4, dtype=dtype)
  found = subspace.project(basis, basis, ridge=0.0).numpy()
  wanted = 1 / (1 + 2 * 16 * np.finfo(dtype).eps)
  np.testing.assert_array_equal(found, wanted * np.eye(2, dtype=dtype))


def test_one_core_client_scales_its_own_update():
  updates = _updates(5)
  found = subspace.project(updates[:1], updates, ridge=0.25).numpy()
  norm = np.sum(updates[0] ** 2)
  wanted = updates @ updates[0] / (1.25 * norm)
  np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-12)
  np.testing.assert_allclose(found[0, 0], 0.8, rtol=1e-12)


def test_an_empty_core_set_reconstructs_zero():
  updates = _updates(6, dtype=np.float32)
  basis = np.zeros([0, 20], np.float32)
  found = subspace.project(basis, updates)
  assert found.shape == [6, 0]
  np.testing.assert_array_equal(
    subspace.reconstruct(basis, found), np.zeros_like(updates)
  )


@pytest.mark.parametrize(
  'arguments', [{}, {'ridge': 0.0}, {'absolute_ridge': 0.0}]
)
def test_a_core_set_without_any_update_gives_coordinates_zero(arguments):
  updates = _updates(7, dtype=np.float32)
  found = subspace.project(np.zeros_like(updates[:3]), updates, **arguments)
  np.testing.assert_array_equal(found, np.zeros([6, 3]))


def test_no_updates_give_no_coordinates():
  updates = _updates(8, dtype=np.float32)
  assert subspace.project(updates[:2], updates[:0]).shape == [0, 2]


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('scale', [1e-3, 1e3])
@pytest.mark.parametrize('ridge', [0.0, 0.01, 1.0])
def test_rescaling_all_updates_leaves_coordinates_unchanged(seed, scale, ridge):
  updates = _updates(seed, dtype=np.float32)
  before = subspace.project(updates[:3], updates, ridge=ridge)
  scaled = (updates * np.float32(scale)).astype(np.float32)
  after = subspace.project(scaled[:3], scaled, ridge=ridge)
  assert numpy_oracle.relative_error(after, before) <= 2e-6


def test_permuting_the_core_set_permutes_the_coordinates():
  updates = _updates(9)
  before = subspace.project(updates[[0, 1, 2]], updates).numpy()
  after = subspace.project(updates[[2, 0, 1]], updates).numpy()
  np.testing.assert_allclose(after, before[:, [2, 0, 1]], rtol=1e-10)


def test_graph_mode_equals_eager_mode():
  updates = tf.constant(_updates(10, dtype=np.float32))
  eager = subspace.project(updates[:3], updates)
  graph = tf.function(subspace.project)(updates[:3], updates)
  assert numpy_oracle.relative_error(graph, eager) <= 1e-6


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_squared_residuals_equal_those_of_the_vectors(dtype):
  updates = _updates(11, dtype=dtype)
  basis = updates[:3]
  coordinates = np.random.default_rng(0).normal(size=[6, 3]).astype(dtype)
  found = subspace.squared_residuals(
    subspace.gram_matrix(basis),
    updates @ basis.T,
    np.sum(updates**2, axis=1),
    coordinates,
  )
  vectors = updates.astype(float) - coordinates.astype(float) @ basis.astype(
    float
  )
  assert found.dtype == tf.float64
  assert (
    numpy_oracle.relative_error(found, np.sum(vectors**2, axis=1))
    <= 32 * np.finfo(dtype).eps
  )


def test_squared_residuals_are_never_negative():
  update = np.full([1, 4], 1 / 3, np.float32)
  norm = np.sum(update**2, axis=1)
  found = subspace.squared_residuals(
    norm[:, np.newaxis],
    np.nextafter(norm, np.float32(1))[:, np.newaxis],
    norm,
    np.ones([1, 1], np.float32),
  )
  assert found.numpy() == 0


@pytest.mark.parametrize(
  ('arguments', 'error', 'message'),
  [
    ({'ridge': -1.0}, ValueError, 'ridge must be finite and >= 0, found -1.0'),
    (
      {'ridge': float('nan')},
      ValueError,
      'ridge must be finite and >= 0, found nan',
    ),
    (
      {'ridge': float('inf')},
      ValueError,
      'ridge must be finite and >= 0, found inf',
    ),
    ({'ridge': '1'}, TypeError, "ridge must be a number, found '1'"),
    ({'ridge': True}, TypeError, 'ridge must be a number, found True'),
    ({'ridge': None}, TypeError, 'ridge must be a number, found None'),
    (
      {'absolute_ridge': -0.5},
      ValueError,
      'absolute_ridge must be finite and >= 0, found -0.5',
    ),
    (
      {'absolute_ridge': float('nan')},
      ValueError,
      'absolute_ridge must be finite and >= 0, found nan',
    ),
    (
      {'absolute_ridge': [1.0]},
      TypeError,
      'absolute_ridge must be a number, found [1.0]',
    ),
  ],
)
def test_a_wrong_ridge_is_named(arguments, error, message):
  updates = _updates(12)
  with pytest.raises(error) as caught:
    subspace.project(updates[:2], updates, **arguments)
  assert str(caught.value) == message


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
