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
from typing import Optional, Union

import tensorflow as tf

# A ridge of 0 over dependent candidates would leave E undefined.
_SMALLEST_RELATIVE_RIDGE = 1e-10
# A swap must improve E by more than rounding, or the search may not end.
_SMALLEST_RELATIVE_GAIN = 1e-9


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


class _Objective:
  """E(T) for batches of sets T [n, k], where -1 marks an empty place."""

  def __init__(
    self,
    candidate_gram: tf.Tensor,
    cross_gram: tf.Tensor,
    squared_norms: tf.Tensor,
    weights: tf.Tensor,
    ridge: Union[float, tf.Tensor],
  ) -> None:
    self._gram = tf.cast(candidate_gram, tf.float64)
    self._num_candidates = tf.shape(self._gram)[0]
    cross = tf.cast(cross_gram, tf.float64)
    weights = tf.cast(weights, tf.float64)
    largest = tf.reduce_max(tf.linalg.diag_part(self._gram))
    self._ridge = tf.maximum(
      _as_float64(ridge), _SMALLEST_RELATIVE_RIDGE * largest
    )
    self._weights = weights
    self.constant = tf.reduce_sum(weights * tf.cast(squared_norms, tf.float64))
    if self._ridge.shape.rank == 0:
      self._cross = tf.matmul(
        cross, weights[:, tf.newaxis] * cross, transpose_a=True
      )
    else:
      self._cross = cross

  def _submatrices(
    self, matrix: tf.Tensor, sets: tf.Tensor, filled: tf.Tensor
  ) -> tf.Tensor:
    index = sets[:, :, tf.newaxis] * self._num_candidates + sets[:, tf.newaxis]
    mask = filled[:, :, tf.newaxis] & filled[:, tf.newaxis]
    values = tf.gather(tf.reshape(matrix, [-1]), index)
    return tf.where(mask, values, tf.zeros_like(values))

  def __call__(self, sets: tf.Tensor) -> tf.Tensor:
    filled = sets >= 0
    sets = tf.maximum(sets, 0)
    gram = self._submatrices(self._gram, sets, filled)
    # An empty place has a zero row; a one on its diagonal keeps K invertible.
    gram += tf.linalg.diag(tf.cast(~filled, tf.float64))
    if self._ridge.shape.rank == 0:
      identity = tf.eye(sets.shape[1], dtype=tf.float64)
      factor = tf.linalg.cholesky(gram + self._ridge * identity)
      cross = self._submatrices(self._cross, sets, filled)
      return self.constant - tf.linalg.trace(
        tf.linalg.cholesky_solve(factor, cross)
      )
    # r_i differs from target to target: one eigenbasis of K_TT serves them all.
    eigenvalues, vectors = tf.linalg.eigh(gram)
    cross = tf.gather(tf.transpose(self._cross), sets)  # [n, k, targets]
    cross = tf.where(filled[:, :, tf.newaxis], cross, tf.zeros_like(cross))
    rotated = tf.matmul(vectors, cross, transpose_a=True)
    shrunk = rotated**2 / (eigenvalues[:, :, tf.newaxis] + self._ridge)
    return self.constant - tf.reduce_sum(
      tf.reduce_sum(shrunk, axis=1) * self._weights, axis=1
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
  objective = _Objective(
    candidate_gram, cross_gram, target_squared_norms, weights, ridge
  )
  return objective(tf.cast(core_set, tf.int32)[tf.newaxis])[0]


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
  if not isinstance(core_set_size, int) or core_set_size < 1:
    raise ValueError(
      f'core_set_size must be an integer >= 1, found {core_set_size!r}'
    )
  objective = _Objective(
    candidate_gram, cross_gram, target_squared_norms, weights, ridge
  )
  num_candidates = tf.shape(candidate_gram)[0]
  candidates = tf.range(num_candidates)
  if eligible is None:
    eligible = tf.ones([num_candidates], tf.bool)
  if members is None:
    members = tf.fill([core_set_size], -1)

  def errors_with(core_set: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """E after putting each candidate [P] at `position`."""
    at_position = tf.one_hot(
      position, core_set_size, True, False, dtype=tf.bool
    )
    sets = tf.where(
      at_position[tf.newaxis], candidates[:, tf.newaxis], core_set[tf.newaxis]
    )
    allowed = eligible & ~tf.reduce_any(
      tf.equal(candidates[:, tf.newaxis], core_set[tf.newaxis]), axis=1
    )
    errors = objective(tf.ensure_shape(sets, [None, core_set_size]))
    return tf.where(allowed, errors, tf.fill(tf.shape(errors), _infinity()))

  def add(
    position: tf.Tensor, core_set: tf.Tensor, error: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    errors = errors_with(core_set, position)
    adds = (tf.reduce_min(errors) < _infinity()) & (members[position] < 0)
    best = tf.argmin(errors, output_type=tf.int32)
    here = tf.equal(tf.range(core_set_size), position)
    return (
      position + 1,
      tf.where(adds & here, best, core_set),
      tf.where(adds, tf.reduce_min(errors), error),
    )

  _, core_set, greedy_error = tf.while_loop(
    lambda position, *_: position < core_set_size,
    add,
    [tf.constant(0), members, objective(members[tf.newaxis])[0]],
  )

  def improve(
    core_set: tf.Tensor, error: tf.Tensor, num_swaps: tf.Tensor, _: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    errors = tf.map_fn(
      lambda position: errors_with(core_set, position),
      tf.range(core_set_size),
      fn_output_signature=tf.float64,
    )
    # An empty place stays empty: nobody eligible is left to fill it.
    errors = tf.reshape(errors, [-1])
    best = tf.argmin(errors, output_type=tf.int32)
    gain = error - errors[best]
    better = gain > tf.maximum(
      _SMALLEST_RELATIVE_GAIN * tf.abs(objective.constant),
      smallest_gain * error,
    )
    position = best // num_candidates
    swapped = tf.where(
      tf.equal(tf.range(core_set_size), position),
      best % num_candidates,
      core_set,
    )
    return (
      tf.where(better, swapped, core_set),
      tf.where(better, errors[best], error),
      num_swaps + tf.cast(better, tf.int32),
      better,
    )

  core_set, error, num_swaps, _ = tf.while_loop(
    lambda _, __, num_swaps, improving: improving & (num_swaps < max_swaps),
    improve,
    [core_set, greedy_error, tf.constant(0), tf.constant(True)],
  )
  return CoreSelection(core_set, error, greedy_error, num_swaps)


def _as_float64(value: Union[float, tf.Tensor]) -> tf.Tensor:
  if isinstance(value, (int, float)):  # A cast would round it to float32.
    return tf.constant(value, tf.float64)
  return tf.cast(value, tf.float64)


def _infinity() -> tf.Tensor:
  return tf.constant(float('inf'), tf.float64)
