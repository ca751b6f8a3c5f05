"""What a core set should make small: the error that its span leaves.

Everything is computed from inner products, so the cost does not depend on the
size of the model. For candidates x_j and targets g_i with weights v_i,

    E(T) = sum_i v_i min_s ( ||g_i - X_T^T s||^2 + r_i ||s||^2 )
         = sum_i v_i ( ||g_i||^2 - b_iT^T (K_TT + r_i I)^-1 b_iT )

where K holds the candidates' and b_i the target's inner products with them
(FedSteer, arXiv 2606.10124, "Selective Caching Strategy"). If all r_i are the
same, the sum over targets collapses into one matrix C = sum_i v_i b_i b_i^T
and E(T) = const - trace((K_TT + r I)^-1 C_TT).
"""

from typing import NamedTuple, Union

import tensorflow as tf

# A ridge of 0 over dependent candidates would leave E undefined.
_SMALLEST_RELATIVE_RIDGE = 1e-10


class _GramProducts:
  """Inner products of candidates and targets, looked up in Gram matrices."""

  def __init__(
    self, candidate_gram: tf.Tensor, cross_gram: tf.Tensor, weights: tf.Tensor
  ) -> None:
    self._gram = tf.cast(candidate_gram, tf.float64)
    self.cross = tf.cast(cross_gram, tf.float64)
    self._weights = weights[:, tf.newaxis]
    self.squared_norms = tf.linalg.diag_part(self._gram)
    self.weighted_squares = tf.linalg.matvec(
      self.cross**2, weights, transpose_a=True
    )

  def with_candidates(self, index: tf.Tensor) -> tf.Tensor:
    """Returns K_{:,T} [P, k] for T = `index`."""
    return tf.gather(self._gram, index, axis=1)

  def weighted_with_candidates(self, index: tf.Tensor) -> tf.Tensor:
    """Returns C_{:,T} [P, k] for T = `index`."""
    chosen = tf.gather(self.cross, index, axis=1)
    return tf.matmul(self.cross, self._weights * chosen, transpose_a=True)


class _VectorProducts:
  """Inner products of candidates and targets, computed where asked for.

  With M = sum_i v_i g_i g_i^T is C = X M X^T, so nothing is of size P x P.
  """

  def __init__(
    self, candidates: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor
  ) -> None:
    self._candidates = tf.cast(candidates, tf.float64)
    targets = tf.cast(targets, tf.float64)
    moment = tf.matmul(
      targets, weights[:, tf.newaxis] * targets, transpose_a=True
    )
    self._times_moment = tf.matmul(self._candidates, moment)
    self.squared_norms = tf.reduce_sum(self._candidates**2, axis=1)
    self.weighted_squares = tf.reduce_sum(
      self._candidates * self._times_moment, axis=1
    )

  def with_candidates(self, index: tf.Tensor) -> tf.Tensor:
    """Returns K_{:,T} [P, k] for T = `index`."""
    chosen = tf.gather(self._candidates, index)
    return tf.matmul(self._candidates, chosen, transpose_b=True)

  def weighted_with_candidates(self, index: tf.Tensor) -> tf.Tensor:
    """Returns C_{:,T} [P, k] for T = `index`."""
    chosen = tf.gather(self._candidates, index)
    return tf.matmul(self._times_moment, chosen, transpose_b=True)


class _OneRidge:
  """E(T), and E after each change of one member, at a cost of O(P k^2).

  With L L^T = K_TT + r I and G = (K_TT + r I)^-1, what a candidate x_j adds to
  T is its remainder u_j = x_j - X_T^T G K_Tj:

    E(T + j)     = E(T) - u_j^T M u_j / (r + x_j^T u_j)
    E(T - p)     = E(T) + (G C_TT G)_pp / G_pp
    E(T - p + j) = E(T - p) - u'_j^T M u'_j / (r + x_j^T u'_j),
    u'_j = u_j + X_T^T G_:p (G K_Tj)_p / G_pp

  where M = sum_i v_i g_i g_i^T. Solutions with L on both sides, rather than
  products with G, keep this exact where members are nearly dependent.
  """

  def __init__(
    self,
    products: Union[_GramProducts, _VectorProducts],
    constant: tf.Tensor,
    ridge: tf.Tensor,
  ) -> None:
    self._products = products
    self.num_candidates = tf.shape(products.squared_norms)[0]
    self.constant = constant
    self._ridge = ridge

  def error(self, core_set: tf.Tensor) -> tf.Tensor:
    """Returns E(T), a scalar."""
    return self._factored(core_set).error

  def errors_with(self, core_set: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """Returns E [P] with each candidate at `position`, which is empty."""
    del position
    state = self._factored(core_set)
    return state.error - state.explained / (self._ridge + state.remainders)

  def errors_exchanged(self, core_set: tf.Tensor) -> tf.Tensor:
    """Returns E [k, P] with each candidate at each position."""
    state = self._factored(core_set)
    size = core_set.shape[0]
    inverse = _solve_transposed(
      state.factor, _solve(state.factor, tf.eye(size, dtype=tf.float64))
    )
    diagonal = tf.linalg.diag_part(inverse)[:, tf.newaxis]
    removal = tf.linalg.diag_part(
      _solve_transposed(
        state.factor,
        tf.transpose(_solve_transposed(state.factor, state.moment)),
      )
    )[:, tf.newaxis]
    share = _solve_transposed(state.factor, state.inner) / diagonal
    covariance = _solve_transposed(
      state.factor,
      state.weighted - tf.matmul(state.moment, state.inner),
    )
    explained = state.explained + share * (2 * covariance + share * removal)
    remainders = state.remainders + share**2 * diagonal
    return (
      state.error + removal / diagonal - explained / (self._ridge + remainders)
    )

  def _factored(self, core_set: tf.Tensor) -> '_Factored':
    filled = core_set >= 0
    index = tf.maximum(core_set, 0)
    mask = tf.cast(filled, tf.float64)
    gram = self._products.with_candidates(index) * mask
    cross = self._products.weighted_with_candidates(index) * mask
    among = tf.gather(gram, index) * mask[:, tf.newaxis]
    moment = tf.gather(cross, index) * mask[:, tf.newaxis]
    # An empty place has a zero row; a one on its diagonal keeps K invertible.
    among += tf.linalg.diag(1 - mask + self._ridge)
    factor = tf.linalg.cholesky(among)
    inner = _solve(factor, tf.transpose(gram))
    weighted = _solve(factor, tf.transpose(cross))
    moment = _solve(factor, tf.transpose(_solve(factor, moment)))
    explained = self._products.weighted_squares + tf.reduce_sum(
      inner * (tf.matmul(moment, inner) - 2 * weighted), axis=0
    )
    remainders = self._products.squared_norms - tf.reduce_sum(inner**2, axis=0)
    return _Factored(
      error=self.constant - tf.linalg.trace(moment),
      factor=factor,
      inner=inner,
      weighted=weighted,
      moment=moment,
      explained=tf.maximum(explained, 0.0),
      remainders=tf.maximum(remainders, 0.0),
    )


class _Factored(NamedTuple):
  """What `_OneRidge` needs of a set T.

  Attributes:
    error: E(T).
    factor: L [k, k].
    inner: L^-1 K_T: [k, P].
    weighted: L^-1 C_T: [k, P].
    moment: L^-1 C_TT L^-T [k, k].
    explained: u_j^T M u_j [P].
    remainders: x_j^T u_j [P].
  """

  error: tf.Tensor
  factor: tf.Tensor
  inner: tf.Tensor
  weighted: tf.Tensor
  moment: tf.Tensor
  explained: tf.Tensor
  remainders: tf.Tensor


class _RidgePerTarget:
  """E(T) where r_i differs: every changed set is evaluated by itself."""

  def __init__(
    self,
    products: _GramProducts,
    constant: tf.Tensor,
    weights: tf.Tensor,
    ridges: tf.Tensor,
  ) -> None:
    self._products = products
    self.num_candidates = tf.shape(products.squared_norms)[0]
    self.constant = constant
    self._weights = weights
    self._ridges = ridges
    self._candidates = tf.range(self.num_candidates)

  def error(self, core_set: tf.Tensor) -> tf.Tensor:
    """Returns E(T), a scalar."""
    return self._errors(core_set[tf.newaxis])[0]

  def errors_with(self, core_set: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """Returns E [P] with each candidate at `position`."""
    size = core_set.shape[0]
    at_position = tf.one_hot(position, size, True, False)
    sets = tf.where(
      at_position[tf.newaxis],
      self._candidates[:, tf.newaxis],
      core_set[tf.newaxis],
    )
    return self._errors(sets)

  def errors_exchanged(self, core_set: tf.Tensor) -> tf.Tensor:
    """Returns E [k, P] with each candidate at each position."""
    return tf.map_fn(
      lambda position: self.errors_with(core_set, position),
      tf.range(core_set.shape[0]),
      fn_output_signature=tf.float64,
    )

  def _errors(self, sets: tf.Tensor) -> tf.Tensor:
    filled = sets >= 0
    sets = tf.maximum(sets, 0)
    gram = self._products.with_candidates(self._candidates)
    index = sets[:, :, tf.newaxis] * tf.size(self._candidates)
    among = tf.gather(tf.reshape(gram, [-1]), index + sets[:, tf.newaxis])
    mask = filled[:, :, tf.newaxis] & filled[:, tf.newaxis]
    among = tf.where(mask, among, tf.zeros_like(among))
    among += tf.linalg.diag(tf.cast(~filled, tf.float64))
    # One eigenbasis of K_TT serves all targets' ridges.
    eigenvalues, vectors = tf.linalg.eigh(among)
    cross = tf.gather(tf.transpose(self._products.cross), sets)
    cross = tf.where(filled[:, :, tf.newaxis], cross, tf.zeros_like(cross))
    rotated = tf.matmul(vectors, cross, transpose_a=True)
    shrunk = rotated**2 / (eigenvalues[:, :, tf.newaxis] + self._ridges)
    return self.constant - tf.reduce_sum(
      tf.reduce_sum(shrunk, axis=1) * self._weights, axis=1
    )


Objective = Union[_OneRidge, _RidgePerTarget]


def from_grams(
  candidate_gram: tf.Tensor,
  cross_gram: tf.Tensor,
  target_squared_norms: tf.Tensor,
  weights: tf.Tensor,
  ridge: Union[float, tf.Tensor],
) -> Objective:
  """Returns E of Gram matrices.

  Args:
    candidate_gram: Float [P, P], inner products of the candidates.
    cross_gram: Float [m, P], inner products of targets and candidates.
    target_squared_norms: Float [m].
    weights: Float [m], v_i >= 0.
    ridge: r as a scalar, or [m] for one r_i a target.

  Returns:
    The objective.
  """
  weights = tf.cast(weights, tf.float64)
  products = _GramProducts(candidate_gram, cross_gram, weights)
  constant = tf.reduce_sum(weights * tf.cast(target_squared_norms, tf.float64))
  ridges = _at_least_smallest(ridge, products.squared_norms)
  if ridges.shape.rank == 0:
    return _OneRidge(products, constant, ridges)
  return _RidgePerTarget(products, constant, weights, ridges)


def from_vectors(
  candidates: tf.Tensor,
  targets: tf.Tensor,
  weights: tf.Tensor,
  ridge: Union[float, tf.Tensor],
) -> Objective:
  """Returns E of vectors, without Gram matrices of all of them.

  Args:
    candidates: Float [P, d].
    targets: Float [m, d].
    weights: Float [m], v_i >= 0.
    ridge: r, a scalar.

  Returns:
    The objective.
  """
  weights = tf.cast(weights, tf.float64)
  products = _VectorProducts(candidates, targets, weights)
  squared_norms = tf.reduce_sum(tf.cast(targets, tf.float64) ** 2, axis=1)
  return _OneRidge(
    products,
    tf.reduce_sum(weights * squared_norms),
    _at_least_smallest(ridge, products.squared_norms),
  )


def core_set_error(
  candidate_gram: tf.Tensor,
  cross_gram: tf.Tensor,
  target_squared_norms: tf.Tensor,
  weights: tf.Tensor,
  core_set: tf.Tensor,
  ridge: Union[float, tf.Tensor],
) -> tf.Tensor:
  """Returns E(core_set), the objective in this module's docstring.

  Args:
    candidate_gram: Float [P, P], inner products of the candidates.
    cross_gram: Float [m, P], inner products of targets and candidates.
    target_squared_norms: Float [m].
    weights: Float [m], v_i >= 0.
    core_set: Int [k], candidate indices; -1 marks an empty place.
    ridge: r as a scalar, or [m] for one r_i a target.

  Returns:
    A float64 scalar.
  """
  objective = from_grams(
    candidate_gram, cross_gram, target_squared_norms, weights, ridge
  )
  return objective.error(tf.ensure_shape(tf.cast(core_set, tf.int32), [None]))


def _at_least_smallest(
  ridge: Union[float, tf.Tensor], squared_norms: tf.Tensor
) -> tf.Tensor:
  return tf.maximum(
    _as_float64(ridge),
    _SMALLEST_RELATIVE_RIDGE * tf.reduce_max(squared_norms),
  )


def _as_float64(value: Union[float, tf.Tensor]) -> tf.Tensor:
  if isinstance(value, (int, float)):  # A cast would round it to float32.
    return tf.constant(value, tf.float64)
  return tf.cast(value, tf.float64)


def _solve(factor: tf.Tensor, right_side: tf.Tensor) -> tf.Tensor:
  """Returns L^-1 B."""
  return tf.linalg.triangular_solve(factor, right_side)


def _solve_transposed(factor: tf.Tensor, right_side: tf.Tensor) -> tf.Tensor:
  """Returns L^-T B."""
  return tf.linalg.triangular_solve(factor, right_side, adjoint=True)
