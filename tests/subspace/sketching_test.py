"""Tests of random projections that keep inner products."""

import numpy as np
import pytest
import tensorflow as tf

from fedsteer_tff import subspace
from tests import numpy_oracle


def _vectors(dtype=np.float64, dimension=60):
  return np.random.default_rng(0).normal(size=[3, dimension]).astype(dtype)


def _outer(left, right):
  return np.ravel(np.outer(left, right))


# Entries that hang together, as the gradients of a dense layer do: with weights
# of a sketch's length, all in one place, or in rows that are alike.
_STRUCTURED = {
  'rank one': _outer(np.arange(1.0, 9.0), np.cos(np.arange(16.0))),
  'one unit of sixteen': _outer(np.arange(1.0, 9.0), np.eye(16)[3]),
  'one unit of four': _outer(np.arange(1.0, 33.0), np.eye(4)[1]),
  'constant': np.ones(128),
  'alternating': _outer(np.ones(64), [1.0, -1.0]),
}


@pytest.mark.parametrize('name', list(_STRUCTURED))
def test_inner_products_of_structured_vectors_are_kept(name):
  x = _STRUCTURED[name]
  y = x * np.repeat([1.0, -2.0], len(x) // 2) + np.roll(x, 16)
  _check_inner_products(np.stack([x, y]), bound=4)


@pytest.mark.parametrize('name', list(_STRUCTURED))
def test_inner_products_of_long_structured_vectors_are_kept(name):
  x = np.tile(_STRUCTURED[name], 50)  # 400 rows, each of them 50 times.
  y = x * np.repeat([1.0, -2.0], len(x) // 2) + np.roll(x, 16)
  bound = 4 * (1 + 2 / 256) + 16 * 2 / 256
  _check_inner_products(np.stack([x, y]), bound=bound, num_seeds=1000)


def test_inner_products_are_kept_in_expectation():
  # Such vectors are not the worst case: a CountSketch would have this bound.
  _check_inner_products(_vectors(), bound=2)


def _check_inner_products(vectors, bound, num_seeds=2000):
  """Checks mean and variance; the latter: at most bound |x|^2 |y|^2 / size."""
  size = 16
  sketch = tf.function(lambda seed: subspace.sketch(vectors, size, seed))
  products = []
  for seed in range(num_seeds):
    sketched = sketch(tf.constant(seed)).numpy()
    products.append(sketched @ sketched.T)
  exact = vectors @ vectors.T
  squares = np.diag(exact)
  limit = np.sqrt(bound * np.outer(squares, squares) / size)
  deviations = np.array(products) - exact
  error = np.abs(np.mean(deviations, axis=0))
  assert np.all(error <= 5 * limit / np.sqrt(num_seeds))
  assert np.all(np.std(deviations, axis=0) <= 1.1 * limit)


def test_a_seed_gives_one_sketch_and_another_seed_another():
  vectors = _vectors(np.float32)
  first = subspace.sketch(vectors, 16, 7).numpy()
  np.testing.assert_array_equal(first, subspace.sketch(vectors, 16, 7))
  np.testing.assert_array_equal(
    first, tf.function(lambda: subspace.sketch(vectors, 16, 7))()
  )
  assert not np.array_equal(first, subspace.sketch(vectors, 16, 8))


@pytest.mark.parametrize('size', [60, 61, 1000])
def test_vectors_that_are_not_longer_than_a_sketch_are_kept(size):
  vectors = _vectors(np.float32)
  np.testing.assert_array_equal(subspace.sketch(vectors, size), vectors)
  assert subspace.sketch_width(60, size) == 60


@pytest.mark.parametrize(
  'dimension, size',
  [
    (60, 1),
    (60, 16),
    (60, 59),
    (800, 3),
    (800, 1),
    # On both sides of where rows are summed first: 256 of them.
    (255 * 3 + 1, 3),
    (256 * 3, 3),
    (256 * 3 + 1, 3),
    (257 * 3, 3),
  ],
)
def test_every_entry_goes_to_one_bucket_with_a_sign(dimension, size):
  matrix = subspace.sketch(np.eye(dimension, dtype=np.float32), size).numpy()
  assert matrix.shape == (dimension, size)
  assert subspace.sketch_width(dimension, size) == size
  np.testing.assert_array_equal(
    np.sum(np.abs(matrix), axis=1), np.ones(dimension)
  )
  assert set(np.unique(matrix)) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('dimension', [60, 4200])
def test_sketches_are_linear(dtype, dimension):
  vectors = _vectors(dtype, dimension)
  sketched = subspace.sketch(vectors, 16, 3)
  assert sketched.dtype == dtype
  combined = subspace.sketch(np.array([[2, -3, 0.5]], dtype) @ vectors, 16, 3)
  wanted = np.array([[2, -3, 0.5]]) @ sketched.numpy()
  tolerance = 16 * np.finfo(dtype).eps
  assert numpy_oracle.relative_error(combined, wanted) <= tolerance
  matrix = subspace.sketch(np.eye(dimension, dtype=dtype), 16, 3).numpy()
  assert numpy_oracle.relative_error(sketched, vectors @ matrix) <= tolerance


@pytest.mark.parametrize('dimension', [60, 4200])
def test_a_row_is_sketched_the_same_whatever_its_neighbours(dimension):
  vectors = _vectors(np.float32, dimension)
  np.testing.assert_array_equal(
    subspace.sketch(vectors[1:2], 16)[0], subspace.sketch(vectors, 16)[1]
  )


def test_no_rows_give_no_sketches():
  assert subspace.sketch(np.zeros([0, 60], np.float32), 16).shape == [0, 16]


@pytest.mark.parametrize('size', [2.0, True, None, '8'])
def test_a_size_that_is_no_integer_is_named(size):
  with pytest.raises(TypeError) as caught:
    subspace.sketch(_vectors(), size)
  assert str(caught.value) == f'sketch_size must be an integer, found {size!r}'


@pytest.mark.parametrize('size', [0, -3])
def test_a_size_below_one_is_named(size):
  with pytest.raises(ValueError) as caught:
    subspace.sketch(_vectors(), size)
  assert str(caught.value) == f'sketch_size must be >= 1, found {size}'


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
