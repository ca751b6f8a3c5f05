"""Choosing the core set: which clients' updates span the others' best.

Everything is computed from Gram matrices, so the cost does not depend on the
size of the model. For candidates x_j and targets g_i with weights v_i,

    E(T) = sum_i v_i min_s ( ||g_i - X_T^T s||^2 + r_i ||s||^2 )
         = sum_i v_i ( ||g_i||^2 - b_iT^T (K_TT + r_i I)^-1 b_iT )

where K holds the candidates' and b_i the target's inner products with them
(FedSteer, arXiv 2606.10124, "Selective Caching Strategy"). If all r_i are the
same, the sum over targets collapses into one matrix C = sum_i v_i b_i b_i^T
and E(T) = const - trace((K_TT + r I)^-1 C_TT).
"""

import dataclasses
from typing import NamedTuple, Optional, Union

import tensorflow as tf

# A ridge of 0 over dependent candidates would leave E undefined.
_SMALLEST_RELATIVE_RIDGE = 1e-10
# A swap must improve E by more than rounding, or the search may not end.
_SMALLEST_RELATIVE_GAIN = 1e-9
# In units of E of the empty set.
_TIE = 1e-12


@dataclasses.dataclass(frozen=True)
class CoreSelection:
  """The outcome of a search.

  Attributes:
    core_set: Int32 [k], candidate indices in the order they were found; -1
      where there were fewer eligible candidates than slots.
    error: Float64 scalar, E(core_set).
    greedy_error: Float64 scalar, E of the greedy start.
    num_swaps: Int32 scalar, improving swaps that were made.
  """

  core_set: tf.Tensor
  error: tf.Tensor
  greedy_error: tf.Tensor
  num_swaps: tf.Tensor


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
    self.constant = constant
    self._weights = weights
    self._ridges = ridges
    self._candidates = tf.range(tf.shape(products.squared_norms)[0])

  def error(self, core_set: tf.Tensor) -> tf.Tensor:
    """Returns E(T), a scalar."""
    return self._errors(core_set[tf.newaxis])[0]

  def errors_with(self, core_set: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """Returns E [P] with each candidate at `position`."""
    size = core_set.shape[0]
    at_position = tf.one_hot(position, size, True, False, dtype=tf.bool)
    sets = tf.where(
      at_position[tf.newaxis],
      self._candidates[:, tf.newaxis],
      core_set[tf.newaxis],
    )
    return self._errors(tf.ensure_shape(sets, [None, size]))

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


def _solve(factor: tf.Tensor, right_side: tf.Tensor) -> tf.Tensor:
  """Returns L^-1 B."""
  return tf.linalg.triangular_solve(factor, right_side)


def _solve_transposed(factor: tf.Tensor, right_side: tf.Tensor) -> tf.Tensor:
  """Returns L^-T B."""
  return tf.linalg.triangular_solve(factor, right_side, adjoint=True)


def _objective(
  candidate_gram: tf.Tensor,
  cross_gram: tf.Tensor,
  squared_norms: tf.Tensor,
  weights: tf.Tensor,
  ridge: Union[float, tf.Tensor],
) -> Union[_OneRidge, _RidgePerTarget]:
  weights = tf.cast(weights, tf.float64)
  products = _GramProducts(candidate_gram, cross_gram, weights)
  constant = tf.reduce_sum(weights * tf.cast(squared_norms, tf.float64))
  ridges = _at_least_smallest(ridge, products.squared_norms)
  if ridges.shape.rank == 0:
    return _OneRidge(products, constant, ridges)
  return _RidgePerTarget(products, constant, weights, ridges)


def _at_least_smallest(
  ridge: Union[float, tf.Tensor], squared_norms: tf.Tensor
) -> tf.Tensor:
  return tf.maximum(
    _as_float64(ridge),
    _SMALLEST_RELATIVE_RIDGE * tf.reduce_max(squared_norms),
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
  objective = _objective(
    candidate_gram, cross_gram, target_squared_norms, weights, ridge
  )
  return objective.error(tf.ensure_shape(tf.cast(core_set, tf.int32), [None]))


def select_core_set(
  candidate_gram: tf.Tensor,
  cross_gram: tf.Tensor,
  target_squared_norms: tf.Tensor,
  weights: tf.Tensor,
  core_set_size: int,
  ridge: Union[float, tf.Tensor],
  *,
  eligible: Optional[tf.Tensor] = None,
  members: Optional[tf.Tensor] = None,
  smallest_gain: float = 0.0,
  max_swaps: int = 100,
) -> CoreSelection:
  """Finds a core set of small E: greedy start, then best-improving swaps.

  The start adds, one at a time, the candidate that lowers E most. Then, while
  there is one, the single exchange of a member for an outsider that lowers E
  most is made. Ties go to the lower index. Works eagerly and in graphs.

  Args:
    candidate_gram: Float [P, P], inner products of the candidates.
    cross_gram: Float [m, P], inner products of targets and candidates.
    target_squared_norms: Float [m].
    weights: Float [m], v_i >= 0.
    core_set_size: k >= 1, a Python integer.
    ridge: r as a scalar, or [m] for one r_i a target.
    eligible: Bool [P], which candidates may be chosen; all if None.
    members: Int32 [k], candidates that the search begins with, each at its
      place, eligible or not; -1 for a place that is to be filled. All are if
      None.
    smallest_gain: The share of E, >= 0, that an exchange must take off it.
    max_swaps: An upper bound on the number of exchanges.

  Returns:
    A `CoreSelection`.

  Raises:
    ValueError: If `core_set_size` is not a positive integer.
  """
  _check_size(core_set_size)
  objective = _objective(
    candidate_gram, cross_gram, target_squared_norms, weights, ridge
  )
  return _search(
    objective,
    tf.shape(candidate_gram)[0],
    core_set_size,
    eligible,
    members,
    smallest_gain,
    max_swaps,
  )


def select_core_set_from_vectors(
  candidates: tf.Tensor,
  targets: tf.Tensor,
  weights: tf.Tensor,
  core_set_size: int,
  ridge: Union[float, tf.Tensor],
  *,
  eligible: Optional[tf.Tensor] = None,
  members: Optional[tf.Tensor] = None,
  smallest_gain: float = 0.0,
  max_swaps: int = 100,
) -> CoreSelection:
  """Finds what `select_core_set` finds, without Gram matrices of all vectors.

  For many candidates and short vectors, such as sketches: a step costs
  O(P d k), memory is O((P + m + d) d).

  Args:
    candidates: Float [P, d].
    targets: Float [m, d].
    weights: Float [m], v_i >= 0.
    core_set_size: k >= 1, a Python integer.
    ridge: r, a scalar.
    eligible: See `select_core_set`.
    members: See `select_core_set`.
    smallest_gain: See `select_core_set`.
    max_swaps: See `select_core_set`.

  Returns:
    A `CoreSelection`.

  Raises:
    ValueError: If `core_set_size` is not a positive integer.
  """
  _check_size(core_set_size)
  weights = tf.cast(weights, tf.float64)
  products = _VectorProducts(candidates, targets, weights)
  squared_norms = tf.reduce_sum(tf.cast(targets, tf.float64) ** 2, axis=1)
  objective = _OneRidge(
    products,
    tf.reduce_sum(weights * squared_norms),
    _at_least_smallest(ridge, products.squared_norms),
  )
  return _search(
    objective,
    tf.shape(candidates)[0],
    core_set_size,
    eligible,
    members,
    smallest_gain,
    max_swaps,
  )


def _search(
  objective: Union[_OneRidge, _RidgePerTarget],
  num_candidates: tf.Tensor,
  core_set_size: int,
  eligible: Optional[tf.Tensor],
  members: Optional[tf.Tensor],
  smallest_gain: float,
  max_swaps: int,
) -> CoreSelection:
  candidates = tf.range(num_candidates)
  if eligible is None:
    eligible = tf.ones([num_candidates], tf.bool)
  if members is None:
    members = tf.fill([core_set_size], -1)
  # Sums that differ only by rounding are ties, on every machine alike.
  tie = _TIE * tf.abs(objective.constant)

  def allowed(core_set: tf.Tensor) -> tf.Tensor:
    inside = tf.equal(candidates[:, tf.newaxis], core_set[tf.newaxis])
    return eligible & ~tf.reduce_any(inside, axis=1)

  def first_smallest(errors: tf.Tensor) -> tf.Tensor:
    near = errors <= tf.reduce_min(errors) + tie
    return tf.argmax(near, output_type=tf.int32)

  def put(
    core_set: tf.Tensor, position: tf.Tensor, candidate: tf.Tensor
  ) -> tf.Tensor:
    here = tf.equal(tf.range(core_set_size), position)
    return tf.where(here, candidate, core_set)

  def add(
    number: tf.Tensor, core_set: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    position = empty[number]
    may = allowed(core_set)
    errors = tf.where(
      may, objective.errors_with(core_set, position), _infinity()
    )
    added = put(core_set, position, first_smallest(errors))
    return number + 1, tf.where(tf.reduce_any(may), added, core_set)

  members = tf.ensure_shape(members, [core_set_size])
  empty = tf.cast(tf.where(members < 0)[:, 0], tf.int32)
  _, greedy_set = tf.while_loop(
    lambda number, *_: number < tf.size(empty),
    add,
    [tf.constant(0), members],
  )
  greedy_error = objective.error(greedy_set)

  def improve(
    core_set: tf.Tensor, error: tf.Tensor, num_swaps: tf.Tensor, _: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    # An empty place stays empty: nobody eligible is left to fill it.
    may = allowed(core_set)[tf.newaxis] & (core_set >= 0)[:, tf.newaxis]
    errors = tf.where(may, objective.errors_exchanged(core_set), _infinity())
    best = first_smallest(tf.reshape(errors, [-1]))
    swapped = put(core_set, best // num_candidates, best % num_candidates)
    # Evaluated by itself, so that rounding cannot make a gain.
    new_error = objective.error(swapped)
    better = tf.reduce_any(may) & (
      error - new_error
      > tf.maximum(
        _SMALLEST_RELATIVE_GAIN * tf.abs(objective.constant),
        smallest_gain * error,
      )
    )
    return (
      tf.where(better, swapped, core_set),
      tf.where(better, new_error, error),
      num_swaps + tf.cast(better, tf.int32),
      better,
    )

  core_set, error, num_swaps, _ = tf.while_loop(
    lambda _, __, num_swaps, improving: improving & (num_swaps < max_swaps),
    improve,
    [greedy_set, greedy_error, tf.constant(0), tf.constant(True)],
  )
  return CoreSelection(core_set, error, greedy_error, num_swaps)


def _check_size(core_set_size: int) -> None:
  if (
    not isinstance(core_set_size, int)
    or isinstance(core_set_size, bool)
    or core_set_size < 1
  ):
    raise ValueError(
      f'core_set_size must be an integer >= 1, found {core_set_size!r}'
    )


def _as_float64(value: Union[float, tf.Tensor]) -> tf.Tensor:
  if isinstance(value, (int, float)):  # A cast would round it to float32.
    return tf.constant(value, tf.float64)
  return tf.cast(value, tf.float64)


def _infinity() -> tf.Tensor:
  return tf.constant(float('inf'), tf.float64)
