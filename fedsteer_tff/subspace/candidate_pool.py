"""Sketches of received updates, and the choice of the core set among them.

The server never asks for updates of absent clients and never stores whole
updates of candidates. Of each client that reports while a selection lies ahead
it keeps a sketch, at place `client_id mod P` of a pool of fixed size P, so
memory does not grow with the population; where two clients share a place, the
later report stays.
"""

import collections
from collections.abc import Mapping
from typing import NamedTuple, Optional

import tensorflow as tf

from fedsteer_tff.subspace import core_set as core_set_lib
from fedsteer_tff.subspace import projection

REPORTING = 'reporting'
FREQUENT = 'frequent'
RECEIVED = 'received'
ELIGIBILITIES = (REPORTING, FREQUENT, RECEIVED)

# Each exchange makes the coordinates of all clients in the pool anew, as they
# were when these reported. It has to be worth that.
_SMALLEST_ADMISSION_GAIN = 0.02

# Of a probability in float32 that was estimated.
_ROUNDING = 1e-6

# The ridge of the search, relative to unit rows, where the projection's own is
# absolute and thus says nothing about normalised updates.
_DEFAULT_SELECTION_RIDGE = 0.01


def empty_pool(pool_size: int, sketch_width: int) -> Mapping[str, tf.Tensor]:
  """Returns a pool without candidates.

  Args:
    pool_size: P, places in the pool.
    sketch_width: Numbers in a sketch.

  Returns:
    client_id int32 [P] (-1), sketch float32 [P, width] (0), and
    participation_probability float32 [P] (0).
  """
  return collections.OrderedDict(
    client_id=tf.fill([pool_size], -1),
    sketch=tf.zeros([pool_size, sketch_width]),
    participation_probability=tf.zeros([pool_size]),
  )


def add_reports(
  pool: Mapping[str, tf.Tensor],
  client_ids: tf.Tensor,
  sketches: tf.Tensor,
  probabilities: tf.Tensor,
) -> Mapping[str, tf.Tensor]:
  """Returns the pool with a round's reports in it.

  Args:
    pool: See `empty_pool`.
    client_ids: Int32 [m], distinct.
    sketches: Float32 [m, width].
    probabilities: Float32 [m]. The smallest probability that a client reported
      with is kept: it has 1 in rounds that it was made to take part in.

  Returns:
    A pool of the same size and types.
  """
  pool_size = pool['client_id'].shape[0]
  places = client_ids % pool_size
  # Of reports for one place the last stays; a scatter leaves that open.
  position = tf.range(tf.shape(places)[0])
  last = tf.math.unsorted_segment_max(position, places, pool_size)
  keep = tf.equal(position, tf.gather(last, places))
  places = tf.boolean_mask(places, keep)
  client_ids = tf.boolean_mask(client_ids, keep)
  probabilities = tf.boolean_mask(probabilities, keep)
  known = tf.equal(tf.gather(pool['client_id'], places), client_ids)
  known_probabilities = tf.gather(pool['participation_probability'], places)
  probabilities = tf.where(
    known, tf.minimum(probabilities, known_probabilities), probabilities
  )
  index = places[:, tf.newaxis]
  return collections.OrderedDict(
    client_id=tf.tensor_scatter_nd_update(pool['client_id'], index, client_ids),
    sketch=tf.tensor_scatter_nd_update(
      pool['sketch'], index, tf.boolean_mask(sketches, keep)
    ),
    participation_probability=tf.tensor_scatter_nd_update(
      pool['participation_probability'], index, probabilities
    ),
  )


class NewCoreSet(NamedTuple):
  """The outcome of a selection.

  Attributes:
    core_set: Int32 [k], client ids, -1 for an empty slot. A client that was a
      member before keeps its slot.
    kept: Bool [k], slots whose member did not change.
    entered: Int32 [k], for each slot that a reporting client took, which of
      them it was; -1 for the other slots.
    client_ids: Int32 [n], clients of the pool.
    coordinates: Float32 [n, k], their coordinates with respect to the new
      core set, computed from sketches.
  """

  core_set: tf.Tensor
  kept: tf.Tensor
  entered: tf.Tensor
  client_ids: tf.Tensor
  coordinates: tf.Tensor


def select_from_pool(
  pool: Mapping[str, tf.Tensor],
  weights: tf.Tensor,
  core_set: tf.Tensor,
  *,
  eligibility: str,
  ridge: float,
  absolute_ridge: Optional[float],
) -> NewCoreSet:
  """Chooses a core set among the clients of the pool.

  Updates are normalised, so that the choice is of directions and does not
  change if all updates are rescaled. Target i counts n_i^2 (1 - p_i) / p_i, the
  aggregation variance that a unit of its error gives; if all of these are 0,
  all count the same.

  Args:
    pool: See `empty_pool`.
    weights: Float32 [P], n_i of the client at each place.
    core_set: Int32 [k], the core set until now.
    eligibility: 'frequent': only clients whose p_i is not below the median of
      the pool's (but at least k clients) may be chosen, so that rows stay
      fresh; 'received': every client in the pool.
    ridge: Relative ridge.
    absolute_ridge: Absolute ridge of the projection, or None.

  Returns:
    A `NewCoreSet`, of which nobody has `entered`: rows come when the members
    report.
  """
  size = core_set.shape[0]
  client_ids, sketches = pool['client_id'], pool['sketch']
  unit, variances, occupied = _targets(pool, weights)
  eligible = occupied
  if eligibility == FREQUENT:
    probabilities = tf.cast(pool['participation_probability'], tf.float64)
    threshold = _frequent_threshold(
      tf.boolean_mask(probabilities, occupied), size
    )
    eligible &= probabilities >= threshold
  selection = core_set_lib.select_core_set_from_vectors(
    unit,
    unit,
    variances,
    size,
    _selection_ridge(ridge, absolute_ridge),
    eligible=eligible,
  )
  chosen = tf.where(
    selection.core_set >= 0,
    tf.gather(client_ids, tf.maximum(selection.core_set, 0)),
    -1,
  )
  new_core_set, kept = _assign_slots(core_set, chosen)

  member = tf.equal(new_core_set[:, tf.newaxis], client_ids[tf.newaxis])
  member &= occupied[tf.newaxis]
  return _with_coordinates(
    pool,
    occupied,
    new_core_set,
    kept,
    tf.fill([size], -1),
    tf.matmul(tf.cast(member, tf.float32), sketches),
    ridge,
    absolute_ridge,
  )


def admit_reporting(
  pool: Mapping[str, tf.Tensor],
  weights: tf.Tensor,
  core_set: tf.Tensor,
  core_sketches: tf.Tensor,
  client_ids: tf.Tensor,
  sketches: tf.Tensor,
  *,
  ridge: float,
  absolute_ridge: Optional[float],
) -> NewCoreSet:
  """Lets clients that have just reported into the core set.

  Their updates are at hand, so that a row is there as soon as its client is a
  member, however rarely that client takes part. Empty slots are filled; a
  member is exchanged if that lowers E, over all clients in the pool as
  `select_from_pool` counts them, by at least 2 %.

  Args:
    pool: See `empty_pool`; the reports are in it already.
    weights: Float32 [P], n_i of the client at each place.
    core_set: Int32 [k], the core set until now.
    core_sketches: Float32 [k, width], sketches of its rows; zeros in an empty
      slot.
    client_ids: Int32 [m], distinct clients, none of them in the core set.
    sketches: Float32 [m, width], of their updates.
    ridge: Relative ridge.
    absolute_ridge: Absolute ridge of the projection, or None.

  Returns:
    A `NewCoreSet`; the one until now, with nobody that `entered`, where that
    does not gain enough.
  """
  size = core_set.shape[0]
  targets, variances, occupied = _targets(pool, weights)
  candidates = tf.concat([core_sketches, sketches], axis=0)
  unit = _normalized(candidates)
  reports = tf.range(tf.shape(candidates)[0]) >= size
  selection = core_set_lib.select_core_set(
    projection.gram_matrix(unit),
    tf.matmul(targets, unit, transpose_b=True),
    tf.cast(occupied, tf.float64),
    variances,
    size,
    _selection_ridge(ridge, absolute_ridge),
    eligible=reports & tf.reduce_any(tf.not_equal(candidates, 0.0), axis=1),
    members=tf.where(core_set >= 0, tf.range(size), -1),
    smallest_gain=_SMALLEST_ADMISSION_GAIN,
  )
  chosen = tf.maximum(selection.core_set, 0)
  entered = tf.where(selection.core_set >= size, selection.core_set - size, -1)
  return _with_coordinates(
    pool,
    occupied,
    tf.where(
      selection.core_set >= 0,
      tf.gather(tf.concat([core_set, client_ids], axis=0), chosen),
      -1,
    ),
    (entered < 0) & (core_set >= 0),
    entered,
    tf.where(
      (selection.core_set >= 0)[:, tf.newaxis],
      tf.gather(candidates, chosen),
      0.0,
    ),
    ridge,
    absolute_ridge,
  )


def admission_scores(
  vectors: tf.Tensor,
  basis: tf.Tensor,
  coordinates: tf.Tensor,
  weights: tf.Tensor,
  probabilities: tf.Tensor,
) -> tf.Tensor:
  """Returns what each report adds to E: who should be let in first.

  Args:
    vectors: Float32 [m, d], updates or their sketches.
    basis: Float32 [k, d], Q or its sketch.
    coordinates: Float32 [m, k], of the updates.
    weights: Float32 [m], n_i.
    probabilities: Float32 [m], p_i.

  Returns:
    Float32 [m], n_i^2 (1 - p_i) / p_i ||g_i - Q^T s_i||^2 / ||g_i||^2.
  """
  residuals = vectors - projection.reconstruct(basis, coordinates)
  shares = tf.math.divide_no_nan(
    tf.reduce_sum(residuals**2, axis=1), tf.reduce_sum(vectors**2, axis=1)
  )
  return weights**2 * _odds_against(probabilities) * shares


def _normalized(sketches: tf.Tensor) -> tf.Tensor:
  """Returns float64 rows of norm 1, or 0."""
  sketches = tf.cast(sketches, tf.float64)
  norms = tf.norm(sketches, axis=1, keepdims=True)
  return tf.math.divide_no_nan(sketches, norms)


def _targets(
  pool: Mapping[str, tf.Tensor], weights: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Returns the unit targets, their weights v_i, and which places are used."""
  unit = _normalized(pool['sketch'])
  occupied = (pool['client_id'] >= 0) & tf.reduce_any(
    tf.not_equal(unit, 0.0), axis=1
  )
  probabilities = tf.cast(pool['participation_probability'], tf.float64)
  variances = tf.cast(weights, tf.float64) ** 2 * _odds_against(probabilities)
  variances = tf.where(occupied, variances, 0.0)
  return (
    unit,
    tf.where(
      tf.reduce_any(variances > 0), variances, tf.cast(occupied, tf.float64)
    ),
    occupied,
  )


def _odds_against(probabilities: tf.Tensor) -> tf.Tensor:
  """Returns (1 - p) / p, 0 for p that are 1 but for rounding."""
  absence = 1 - probabilities
  absence = tf.where(absence > _ROUNDING, absence, tf.zeros_like(absence))
  return tf.math.divide_no_nan(absence, probabilities)


def _selection_ridge(ridge: float, absolute_ridge: Optional[float]) -> float:
  return ridge if absolute_ridge is None else _DEFAULT_SELECTION_RIDGE


def _with_coordinates(
  pool: Mapping[str, tf.Tensor],
  occupied: tf.Tensor,
  core_set: tf.Tensor,
  kept: tf.Tensor,
  entered: tf.Tensor,
  core_sketches: tf.Tensor,
  ridge: float,
  absolute_ridge: Optional[float],
) -> NewCoreSet:
  coordinates = projection.project(
    core_sketches, pool['sketch'], ridge, absolute_ridge
  )
  return NewCoreSet(
    core_set,
    kept,
    entered,
    tf.boolean_mask(pool['client_id'], occupied),
    tf.boolean_mask(coordinates, occupied),
  )


def _frequent_threshold(probabilities: tf.Tensor, size: int) -> tf.Tensor:
  """Returns the median, or less if fewer than `size` probabilities reach it."""
  descending = tf.sort(probabilities, direction='DESCENDING')
  count = tf.shape(descending)[0]
  padded = tf.concat([descending, [0.0]], axis=0)
  # Of nobody, both are the 0 at the end.
  lower_middle, upper_middle = padded[count // 2], padded[(count - 1) // 2]
  size_th = padded[tf.minimum(size - 1, count)]
  return tf.minimum((lower_middle + upper_middle) / 2, size_th)


def _assign_slots(
  core_set: tf.Tensor, chosen: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the new core set, in which members keep slots, and which did."""
  same = tf.equal(core_set[:, tf.newaxis], chosen[tf.newaxis])
  same &= chosen >= 0
  kept = tf.reduce_any(same, axis=1)
  incoming = tf.boolean_mask(
    chosen, (chosen >= 0) & ~tf.reduce_any(same, axis=0)
  )
  free = tf.where(~kept)
  num_incoming = tf.shape(incoming)[0]
  vacated = tf.where(kept, core_set, -1)
  return (
    tf.tensor_scatter_nd_update(vacated, free[:num_incoming], incoming),
    kept,
  )
