"""What a user can watch while FedSteer trains, from small arrays only."""

import collections
from collections.abc import Mapping
from typing import Optional

import tensorflow as tf

from fedsteer_tff.subspace import projection


def steering_metrics(
  gram: tf.Tensor,
  inner_products: tf.Tensor,
  squared_norms: tf.Tensor,
  cached: tf.Tensor,
  fresh: tf.Tensor,
  weights: tf.Tensor,
  probabilities: tf.Tensor,
) -> Mapping[str, tf.Tensor]:
  """Measures how well Q represents the cohort, and what that is worth.

  Where coordinates are taken from sketches, so are these: norms and inner
  products are then those of sketches, right in expectation.

  Args:
    gram: Float [k, k], Q Q^T.
    inner_products: Float [m, k], Q g_i.
    squared_norms: Float [m], ||g_i||^2.
    cached: Float [m, k], coordinates before the round.
    fresh: Float [m, k], coordinates of the round's updates.
    weights: Float [m], d_i.
    probabilities: Float [m], p_i.

  Returns:
    Float32 scalars:
    * relative_residual: mean of ||g_i - Q^T s'_i|| / ||g_i||, fresh s'_i; NaN
      if no g_i has a length.
    * effective_shrinkage: mean of ||Q^T s'_i|| / ||g_i||, likewise.
    * core_condition: condition number of Q Q^T over the rows that are not
      zero; 0 without any.
    * variance_estimate: sum of d_i^2 (1 - p_i) / p_i^2 ||g_i - Q^T s_i||^2 with
      the *cached* s_i, an unbiased estimate of the variance that the active
      set gives to the 'unbiased' estimator (Horvitz and Thompson, 1952).
    * variance_estimate_without_steering: the same with estimates of 0, which
      is what inverse-probability FedAvg has.
    * variance_ratio: the one over the other; below 1, steering helps. NaN if
      the other is 0: nobody, or only clients with p_i = 1, took part.
  """
  fresh_residuals = projection.squared_residuals(
    gram, inner_products, squared_norms, fresh
  )
  cached_residuals = projection.squared_residuals(
    gram, inner_products, squared_norms, cached
  )
  norms = tf.cast(squared_norms, tf.float64)
  fresh64 = tf.cast(fresh, tf.float64)
  estimate_norms = tf.reduce_sum(
    fresh64 * tf.matmul(fresh64, tf.cast(gram, tf.float64)), axis=1
  )
  metrics = collections.OrderedDict(
    relative_residual=_mean_ratio(fresh_residuals, norms),
    effective_shrinkage=_mean_ratio(estimate_norms, norms),
    core_condition=condition_number(gram),
  )
  metrics = collections.OrderedDict(
    (name, tf.cast(value, tf.float32)) for name, value in metrics.items()
  )
  metrics.update(
    variance_metrics(cached_residuals, squared_norms, weights, probabilities)
  )
  return metrics


def variance_metrics(
  squared_residuals: tf.Tensor,
  squared_norms: tf.Tensor,
  weights: tf.Tensor,
  probabilities: tf.Tensor,
) -> Mapping[str, tf.Tensor]:
  """Estimates the variance that the draw of the active set gives to the sum.

  Args:
    squared_residuals: Float [m], ||g_i - h_i||^2 where h_i is what the server
      takes for an absent client's update, as it was before the round.
    squared_norms: Float [m], ||g_i||^2.
    weights: Float [m], d_i.
    probabilities: Float [m], p_i.

  Returns:
    The last three of `steering_metrics`.
  """
  weights = tf.cast(weights, tf.float64)
  probabilities = tf.cast(probabilities, tf.float64)
  scale = (weights / probabilities) ** 2 * (1 - probabilities)
  variance = tf.reduce_sum(scale * tf.cast(squared_residuals, tf.float64))
  without = tf.reduce_sum(scale * tf.cast(squared_norms, tf.float64))
  metrics = collections.OrderedDict(
    variance_estimate=variance,
    variance_estimate_without_steering=without,
    variance_ratio=_ratio(variance, without),
  )
  return collections.OrderedDict(
    (name, tf.cast(value, tf.float32)) for name, value in metrics.items()
  )


def condition_number(gram: tf.Tensor) -> tf.Tensor:
  """Returns the condition number of the non-zero rows' Gram matrix.

  Args:
    gram: Float [k, k].

  Returns:
    A float64 scalar: largest over smallest eigenvalue, 0 if all rows are zero.
    Dependent rows give a number about as large as the rounding of `gram`
    allows.
  """
  if gram.shape[0] == 0:
    return tf.constant(0.0, tf.float64)
  smallest, largest = _extreme_eigenvalues(gram)
  rounding = largest * (2.0**-52 if gram.dtype == tf.float64 else 2.0**-23)
  return tf.math.divide_no_nan(largest, tf.maximum(smallest, rounding))


def ridge_condition(
  gram: tf.Tensor, ridge: float, absolute_ridge: Optional[float] = None
) -> tf.Tensor:
  """Returns the condition number of what coordinates are solved with.

  `gram` is summed in float32, with an error of about 2^-23 of its trace; this
  number times 2^-23 bounds about what that does to coordinates, relative to
  their length. With the relative ridge c it is at most 1 + k / c.

  Args:
    gram: Float [k, k], Q Q^T.
    ridge: See `projection.ridge_strength`.
    absolute_ridge: Likewise.

  Returns:
    A float64 scalar: that of Q Q^T + r I for the rows of Q that are not zero, 0
    if all are.
  """
  if gram.shape[0] == 0:
    return tf.constant(0.0, tf.float64)
  smallest, largest = _extreme_eigenvalues(gram)
  strength = projection.ridge_strength(
    tf.cast(gram, tf.float64), ridge, absolute_ridge, gram.dtype
  )
  condition = (largest + strength) / (tf.maximum(smallest, 0.0) + strength)
  return tf.where(largest > 0, condition, tf.zeros_like(condition))


def _extreme_eigenvalues(gram: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the smallest and largest eigenvalue that non-zero rows have."""
  gram64 = tf.cast(gram, tf.float64)
  filled = tf.linalg.diag_part(gram64) > 0
  count = tf.reduce_sum(tf.cast(filled, tf.int32))
  # Zero rows have eigenvalue 0 and come first in the ascending order.
  eigenvalues = tf.sort(tf.linalg.eigvalsh(gram64))
  smallest = eigenvalues[tf.minimum(gram.shape[0] - count, gram.shape[0] - 1)]
  return smallest, eigenvalues[-1]


def staleness(
  round_num: tf.Tensor, last_rounds: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns mean and maximum age in rounds.

  Args:
    round_num: Int32 scalar, the current round.
    last_rounds: Int32 [n], the round something was last refreshed in; -1 if
      never, which is left out.

  Returns:
    Two float32 scalars, 0 if nothing was ever refreshed.
  """
  known = last_rounds >= 0
  ages = tf.where(known, round_num - last_rounds, 0)
  count = tf.reduce_sum(tf.cast(known, tf.float32))
  total = tf.reduce_sum(tf.cast(ages, tf.float32))
  oldest = tf.reduce_max(tf.concat([ages, [0]], axis=0))
  return tf.math.divide_no_nan(total, count), tf.cast(oldest, tf.float32)


def _mean_ratio(squared: tf.Tensor, squared_norms: tf.Tensor) -> tf.Tensor:
  """Returns the mean of the roots' ratio over the rows with a norm above 0."""
  positive = squared_norms > 0
  ratios = tf.sqrt(tf.math.divide_no_nan(tf.maximum(squared, 0), squared_norms))
  count = tf.reduce_sum(tf.cast(positive, tf.float64))
  return _ratio(tf.reduce_sum(ratios), count)


def _ratio(value: tf.Tensor, whole: tf.Tensor) -> tf.Tensor:
  """Returns value / whole, NaN where there is no whole."""
  undefined = tf.constant(float('nan'), value.dtype)
  return tf.where(whole > 0, tf.math.divide_no_nan(value, whole), undefined)
