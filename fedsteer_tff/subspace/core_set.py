"""Choosing the core set: which clients' updates span the others' best.

The core set makes E of `core_objective` small. The search is greedy first, and
then exchanges one member at a time.
"""

import dataclasses
from typing import Optional, Union

import tensorflow as tf

from fedsteer_tff import arguments
from fedsteer_tff.subspace import core_objective

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
  arguments.check_integer('core_set_size', core_set_size, 1)
  objective = core_objective.from_grams(
    candidate_gram, cross_gram, target_squared_norms, weights, ridge
  )
  return _search(
    objective, core_set_size, eligible, members, smallest_gain, max_swaps
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
  arguments.check_integer('core_set_size', core_set_size, 1)
  objective = core_objective.from_vectors(candidates, targets, weights, ridge)
  return _search(
    objective, core_set_size, eligible, members, smallest_gain, max_swaps
  )


def _search(
  objective: core_objective.Objective,
  core_set_size: int,
  eligible: Optional[tf.Tensor],
  members: Optional[tf.Tensor],
  smallest_gain: float,
  max_swaps: int,
) -> CoreSelection:
  num_candidates = objective.num_candidates
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


def _infinity() -> tf.Tensor:
  return tf.constant(float('inf'), tf.float64)
