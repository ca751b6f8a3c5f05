"""What an active client tells the server beside its update.

Everything here runs on a client, as TensorFlow code; nothing is federated.
"""

import collections
from collections.abc import Mapping
import dataclasses
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import subspace
from fedsteer_tff.aggregators import probability_estimates
from fedsteer_tff.aggregators import value_types
from fedsteer_tff.participation import estimates
from fedsteer_tff.participation import identity


@dataclasses.dataclass(frozen=True)
class ReportSpec:
  """Static sizes of a round: everything that decides shapes.

  Attributes:
    update_type: TFF type of the model's update.
    population_size: N.
    core_set_size: k, which may be 0.
    sketch_size: Buckets of a sketch.
    sketch_seed: Seed of the sketches.
    collects_sketches: Whether clients ever send their sketch.
    ridge: Relative ridge.
    absolute_ridge: Absolute ridge or None.
    rule: The estimator.
    projects_sketches: Whether coordinates are found from the sketch of Q.
    keeps_updates: Whether the server gets every update by itself.
    admits_reporting: Whether clients of a round may enter the core set after
      it, so that the server gets k of their updates by themselves.
    participation: Where participation probabilities come from.
    max_core_norm: The longest that an update is remembered; None for no bound.
  """

  update_type: tff.Type
  population_size: int
  core_set_size: int
  sketch_size: int
  sketch_seed: int
  collects_sketches: bool
  ridge: float
  absolute_ridge: Optional[float]
  rule: subspace.EstimatorRule
  projects_sketches: bool = False
  keeps_updates: bool = False
  admits_reporting: bool = False
  participation: estimates.Participation = estimates.KNOWN
  max_core_norm: Optional[float] = None

  @property
  def estimator(self) -> Optional[estimates.Estimator]:
    """How participation probabilities are estimated; None if not at all."""
    if isinstance(self.participation, str):  # 'known'
      return None
    return self.participation

  @property
  def dimension(self) -> int:
    """D, the number of weights."""
    return sum(tensor.shape.num_elements() for tensor in self._tensors())

  @property
  def sketch_width(self) -> int:
    """Length of a sketch, 0 if none is sent."""
    if not self.collects_sketches:
      return 0
    return subspace.sketch_width(self.dimension, self.sketch_size)

  def _tensors(self) -> list[tf.TensorSpec]:
    return [
      tf.TensorSpec(leaf.shape, leaf.dtype)
      for leaf in value_types.tensor_types(self.update_type)
    ]

  def flatten(self, update: Any) -> tf.Tensor:
    """Concatenates the tensors of an update.

    Args:
      update: A value of `update_type`.

    Returns:
      Float32 [D].
    """
    flat = [
      tf.reshape(tf.cast(tensor, tf.float32), [-1])
      for tensor in value_types.tensors_in_order(self.update_type, update)
    ]
    return tf.ensure_shape(tf.concat(flat, axis=0), [self.dimension])

  def unflatten(self, vector: tf.Tensor) -> Any:
    """Inverse of `flatten`.

    Args:
      vector: Float32 [D].

    Returns:
      Its parts in the structure, shapes and dtypes of `update_type`.
    """
    tensors = self._tensors()
    sizes = [tensor.shape.num_elements() for tensor in tensors]
    parts = [
      tf.cast(tf.reshape(part, tensor.shape), tensor.dtype)
      for part, tensor in zip(tf.split(vector, sizes), tensors)
    ]
    return value_types.packed(self.update_type, iter(parts))

  @property
  def keeps_core_sketch(self) -> bool:
    """Whether the server keeps sk(Q), which is shorter than Q, beside it."""
    return self.projects_sketches and self.dimension > self.sketch_size

  def basis(self, state: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns what updates are projected on.

    Args:
      state: The server's, with `core_updates`, and `core_sketch` if
        `keeps_core_sketch`.

    Returns:
      Float32: Q [k, D], or sk(Q) [k, width] if `keeps_core_sketch`.
    """
    return state['core_sketch' if self.keeps_core_sketch else 'core_updates']

  def core_sketch(self, state: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the sketch of Q.

    Args:
      state: As `basis` takes it.

    Returns:
      sk(Q), float32 [k, width].
    """
    if self.keeps_core_sketch:
      return state['core_sketch']
    return self.sketch(state['core_updates'])

  def importance(self, report: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the weight of a report's client in the sum.

    Args:
      report: See `build_report`; its `importance` counts if there is one.

    Returns:
      Float32 scalar, w_i.
    """
    if 'importance' in report:  # By the client's estimate.
      return report['importance']
    return self.rule.importance(report['weight'], report['probability'])

  def sketch(self, vectors: tf.Tensor) -> tf.Tensor:
    """Sketches vectors as long as an update.

    Args:
      vectors: Float32 [n, D].

    Returns:
      Float32 [n, width].
    """
    return subspace.sketch(vectors, self.sketch_size, self.sketch_seed)

  def remembered(
    self, updates: tf.Tensor, values: Optional[tf.Tensor] = None
  ) -> tf.Tensor:
    """Shortens what the server remembers of updates, as `max_core_norm` says.

    Args:
      updates: Float32 [n, D].
      values: Float32 [n, ...], linear functions of the updates; these
        themselves if None.

    Returns:
      `values` times min(1, max_core_norm / ||update||); as they are without a
      bound.
    """
    values = updates if values is None else values
    if self.max_core_norm is None:
      return values
    norms = tf.norm(updates, axis=1, keepdims=True)
    factors = tf.minimum(1.0, tf.math.divide_no_nan(self.max_core_norm, norms))
    return values * tf.where(norms > 0, factors, 1.0)


def build_report(
  spec: ReportSpec,
  value: Mapping[str, Any],
  weight: tf.Tensor,
  *,
  basis: Optional[tf.Tensor],
  factor: Optional[tf.Tensor],
  core_set: tf.Tensor,
  collecting: tf.Tensor,
  probabilities: Optional[tf.Tensor] = None,
) -> collections.OrderedDict[str, tf.Tensor]:
  """Builds the report of one client.

  Args:
    spec: The sizes.
    value: The aggregated value, see `value_types.check_value_type`.
    weight: Float32 scalar, n_i.
    basis: See `ReportSpec.basis`; None if the server projects.
    factor: Float64 [k, k], Cholesky factor of the ridge system in `basis`; None
      if the server projects.
    core_set: Int32 [k].
    collecting: Bool scalar, whether the server collects sketches.
    probabilities: Float32 [N], estimates of p_i, where the client is to use
      its own in place of what it knows.

  Returns:
    * update: float32 [D], zeros unless the report counts.
    * counts: bool. A report counts unless its client is padding or has weight
      0 (both are ignored) or its update or weight is not finite.
    * nonfinite: bool, whether it was not finite.
    * client_id, weight, probability: scalars. The probability is what the
      client knows of it, `probability_estimates.UNKNOWN` for nothing.
    * importance: float32, w_i by the estimate; only with `probabilities`.
    * core_slot: int32, the client's slot in the core set or -1.
    * coordinates, inner_products: float32 [k], s'_i and Q g_i; zeros if the
      server projects. Coordinates are those of the update as it is remembered,
      see `ReportSpec.remembered`.
    * squared_norm: float32, ||g_i||^2 where the coordinates come from.
    * sketch: float32 [width], of the update as it is remembered; zeros unless
      `collecting`.
    * admission_score: float32, see `subspace.admission_scores`; only if
      `spec.admits_reporting` and the server does not project.

  Raises:
    tf.errors.InvalidArgumentError: At run time, if an id is unknown, a
      probability is outside (0, 1] (and not NaN where it is estimated) or a
      weight is negative.
  """
  client_id = value[value_types.CLIENT_ID]
  probability = value[value_types.PROBABILITY]
  is_padding = tf.equal(client_id, identity.PADDING_CLIENT_ID)
  with tf.control_dependencies(
    _identity_assertions(spec, is_padding, client_id, probability, weight)
  ):
    client_id = tf.identity(client_id)
  if spec.estimator is not None:
    probability = tf.where(
      tf.math.is_nan(probability), probability_estimates.UNKNOWN, probability
    )
  update = spec.flatten(value[value_types.UPDATE])
  # Half the squared norm, in one pass. It is finite only if every entry is. One
  # that overflows would poison every inner product.
  half_squared_norm = tf.nn.l2_loss(update)
  is_finite = tf.math.is_finite(half_squared_norm) & tf.math.is_finite(weight)
  present = ~is_padding & tf.not_equal(weight, 0.0)
  counts = present & is_finite
  # A branch, unlike a selection of entries, copies nothing.
  update = tf.cond(counts, lambda: update, lambda: tf.zeros_like(update))
  size = spec.core_set_size
  inner = tf.zeros([1, size])
  coordinates = tf.zeros([1, size])
  row = update[tf.newaxis]
  seen = spec.sketch(row) if spec.projects_sketches else row
  if basis is not None:
    inner = tf.matmul(seen, basis, transpose_b=True)
    coordinates = subspace.solve_coordinates(factor, inner)
  sketch = tf.zeros([0])
  if spec.collects_sketches:
    sketch = seen if spec.projects_sketches else spec.sketch(row)
    sketch = spec.remembered(row, sketch)[0]
    sketch = tf.where(collecting, sketch, tf.zeros_like(sketch))
  report = collections.OrderedDict(
    update=update,
    counts=counts,
    nonfinite=present & ~is_finite,
    client_id=client_id,
    weight=tf.where(counts, weight, 0.0),
    probability=tf.where(counts, probability, 1.0),
    core_slot=core_slots(core_set, client_id[tf.newaxis])[0],
    coordinates=spec.remembered(row, coordinates)[0],
    inner_products=inner[0],
    squared_norm=2 * tf.nn.l2_loss(seen),
    sketch=sketch,
  )
  used = report['probability']
  if probabilities is not None:
    used = probability_estimates.used_probabilities(
      used, client_id, probabilities
    )
    report['importance'] = spec.rule.importance(report['weight'], used)
  if spec.admits_reporting and basis is not None:
    report['admission_score'] = subspace.admission_scores(
      seen,
      basis,
      coordinates,
      report['weight'][tf.newaxis],
      used[tf.newaxis],
    )[0]
  return report


def core_slots(core_set: tf.Tensor, client_ids: tf.Tensor) -> tf.Tensor:
  """Returns each client's slot in the core set.

  Args:
    core_set: Int32 [k], client ids; -1 is an empty slot.
    client_ids: Int32 [m].

  Returns:
    Int32 [m], in [0, k); -1 for clients that are in no slot.
  """
  slots = tf.range(tf.shape(core_set)[0])
  same = tf.equal(client_ids[:, tf.newaxis], core_set[tf.newaxis])
  same &= client_ids[:, tf.newaxis] >= 0
  return tf.reduce_max(
    tf.concat(
      [
        tf.where(same, slots[tf.newaxis], -1),
        tf.fill([tf.shape(client_ids)[0], 1], -1),
      ],
      axis=1,
    ),
    axis=1,
  )


def _identity_assertions(
  spec: ReportSpec,
  is_padding: tf.Tensor,
  client_id: tf.Tensor,
  probability: tf.Tensor,
  weight: tf.Tensor,
) -> list[Any]:
  size = spec.population_size
  known = is_padding | ((client_id >= 0) & (client_id < size))
  in_range = is_padding | ((probability > 0) & (probability <= 1))
  rule = 'participation_probability must be in (0, 1], found'
  if spec.estimator is None:
    rule = (
      'participation_probability must be in (0, 1] (where it is not known, NaN,'
      ' the process has to estimate it: see participation=), found'
    )
  else:
    in_range |= tf.math.is_nan(probability)
  return [
    tf.debugging.Assert(
      known,
      [
        f'client_id must be in [0, population_size={size}), found',
        client_id,
      ],
    ),
    tf.debugging.Assert(
      in_range,
      [
        rule,
        probability,
        'for client_id',
        client_id,
      ],
    ),
    tf.debugging.Assert(
      is_padding | tf.math.is_nan(weight) | (weight >= 0),
      ['weight must be >= 0, found', weight, 'for client_id', client_id],
    ),
  ]
