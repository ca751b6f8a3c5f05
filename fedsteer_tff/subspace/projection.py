"""Ridge coordinates in the span of the core clients' updates.

Rows of `basis` are the cached updates Q [k, D] of the core set; the paper
writes them as columns. An update g is represented by the coordinates

    s = argmin_s ||g - Q^T s||^2 + r ||s||^2 = (Q Q^T + r I)^-1 Q g

and reconstructed as Q^T s, so a *later* Q steers old coordinates towards what
the core clients report now. (FedSteer, arXiv 2606.10124, "Corrective
Projections".)
"""

from typing import Optional

import tensorflow as tf

from fedsteer_tff import arguments

# Rounding of a Gram matrix that was summed in the dtype of the updates grows
# with its size; this many units of it are always left on the diagonal.
_RIDGE_FLOOR_ULPS = 16


def check_ridge(ridge: float, absolute_ridge: Optional[float] = None) -> None:
  """Checks the two ways of giving a ridge.

  Args:
    ridge: Relative ridge, dimensionless.
    absolute_ridge: Ridge in units of a squared update norm, or None.

  Raises:
    TypeError: If one of them is not a number.
    ValueError: If one of them is negative or not finite.
  """
  arguments.check_nonnegative('ridge', ridge)
  if absolute_ridge is not None:
    arguments.check_nonnegative('absolute_ridge', absolute_ridge)


def gram_matrix(basis: tf.Tensor) -> tf.Tensor:
  """Returns the inner products of the rows of `basis`.

  Args:
    basis: Float [k, D], Q.

  Returns:
    Q Q^T [k, k] in the dtype of `basis`.
  """
  return tf.matmul(basis, basis, transpose_b=True)


def ridge_strength(
  gram: tf.Tensor,
  ridge: float,
  absolute_ridge: Optional[float],
  dtype: tf.DType,
) -> tf.Tensor:
  """Returns r, the number that is added to the diagonal of `gram`.

  r = ridge * trace(gram) / k commutes with a rescaling of the updates. A floor
  of a few roundings of `dtype` keeps the factorisation defined for ridge = 0
  and dependent rows; in an empty subspace (trace 0) r = 1, so that coordinates
  are 0 there.

  Args:
    gram: Float64 [k, k].
    ridge: Relative ridge c.
    absolute_ridge: Replaces ridge * trace(gram) / k if not None.
    dtype: The dtype that `gram` was summed in.

  Returns:
    A float64 scalar.
  """
  size = gram.shape[0]
  scale = tf.linalg.trace(gram) / size
  if absolute_ridge is None:
    strength = ridge * scale
  else:
    strength = tf.constant(absolute_ridge, tf.float64)
  epsilon = 2.0**-52 if dtype == tf.float64 else 2.0**-23
  floor = _RIDGE_FLOOR_ULPS * size * epsilon * scale
  strength = tf.maximum(strength, floor)
  return tf.where(scale > 0.0, strength, tf.ones_like(strength))


def ridge_factor(
  gram: tf.Tensor, ridge: float, absolute_ridge: Optional[float] = None
) -> tf.Tensor:
  """Returns the Cholesky factor of gram + r I.

  Args:
    gram: Float [k, k], see `gram_matrix`.
    ridge: Relative ridge, see `ridge_strength`.
    absolute_ridge: Absolute ridge, used instead if not None.

  Returns:
    Float64 [k, k], lower triangular. It is small, so it is computed in float64
    whatever the updates' dtype is.
  """
  gram64 = tf.cast(gram, tf.float64)
  size = gram.shape[0]
  if size == 0:
    return gram64
  strength = ridge_strength(gram64, ridge, absolute_ridge, gram.dtype)
  return tf.linalg.cholesky(gram64 + strength * tf.eye(size, dtype=tf.float64))


def solve_coordinates(
  factor: tf.Tensor, inner_products: tf.Tensor
) -> tf.Tensor:
  """Returns (Q Q^T + r I)^-1 b for every row b of `inner_products`.

  Args:
    factor: Float64 [k, k] from `ridge_factor`.
    inner_products: Float [m, k], row i is Q g_i.

  Returns:
    Coordinates [m, k] in the dtype of `inner_products`.
  """
  if factor.shape[0] == 0:
    return inner_products
  right_side = tf.cast(inner_products, tf.float64)
  solution = tf.linalg.cholesky_solve(factor, tf.transpose(right_side))
  return tf.cast(tf.transpose(solution), inner_products.dtype)


def project(
  basis: tf.Tensor,
  updates: tf.Tensor,
  ridge: float = 0.01,
  absolute_ridge: Optional[float] = None,
) -> tf.Tensor:
  """Projects updates on the rows of `basis`: their ridge coordinates.

  Args:
    basis: Float [k, D], the core clients' updates; zero rows are allowed and
      get coordinate 0, equal rows share theirs.
    updates: Float [m, D] of the same dtype.
    ridge: Relative ridge c >= 0: r = c * trace(Q Q^T) / k.
    absolute_ridge: r itself, instead of the relative one. The published code's
      `lambda` on rows divided by k is absolute_ridge = lambda * k^2.

  Returns:
    Coordinates [m, k].

  Raises:
    TypeError: If a ridge is not a number, or the others are no floats.
    ValueError: If a ridge is negative or not finite.
  """
  check_ridge(ridge, absolute_ridge)
  basis = tf.convert_to_tensor(basis)
  updates = tf.convert_to_tensor(updates)
  for name, value in (('basis', basis), ('updates', updates)):
    if not value.dtype.is_floating:
      raise TypeError(f'{name} must be floats, found {value.dtype.name}')
  factor = ridge_factor(gram_matrix(basis), ridge, absolute_ridge)
  return solve_coordinates(factor, tf.matmul(updates, basis, transpose_b=True))


def reconstruct(basis: tf.Tensor, coordinates: tf.Tensor) -> tf.Tensor:
  """Returns the estimates that coordinates stand for.

  Args:
    basis: Float [k, D], Q.
    coordinates: Float [m, k] of the same dtype, s_i.

  Returns:
    Float [m, D], rows Q^T s_i.
  """
  return tf.matmul(coordinates, basis)


def squared_residuals(
  gram: tf.Tensor,
  inner_products: tf.Tensor,
  squared_norms: tf.Tensor,
  coordinates: tf.Tensor,
) -> tf.Tensor:
  """Returns ||g_i - Q^T s_i||^2 from inner products alone, without any D.

  Args:
    gram: Float [k, k], Q Q^T.
    inner_products: Float [m, k], Q g_i.
    squared_norms: Float [m], ||g_i||^2.
    coordinates: Float [m, k], any coordinates.

  Returns:
    Float64 [m], never negative.
  """
  gram, inner, norms, coords = (
    tf.cast(x, tf.float64)
    for x in (gram, inner_products, squared_norms, coordinates)
  )
  explained = tf.reduce_sum(
    coords * (2.0 * inner - tf.matmul(coords, gram)), axis=1
  )
  return tf.maximum(norms - explained, 0.0)
