"""What every design brings to the server in a round."""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from fedsteer_tff.aggregators import reports

# Entries of a report that the server keeps for every client of a round.
TABLE = (
  'client_id',
  'weight',
  'probability',
  'coordinates',
  'inner_products',
  'squared_norm',
  'sketch',
)


def gathered_spec(spec: reports.ReportSpec) -> Mapping[str, Any]:
  """Describes what a design brings to the server in a round.

  Args:
    spec: The sizes.

  Returns:
    Specs of
    * weighted_sum [D]: sum of w_i (g_i - Q^T u_i) over the reports.
    * client_id, weight, probability, squared_norm [m]; coordinates,
      inner_products, subtracted (u_i) [m, k]; sketch [m, b]; multiplicity [m]:
      the reports, see `reports.build_report`.
    * gram [k, k]: of what `inner_products` were taken with.
    * core_slot [r], core_update [r, D]: fresh rows of Q.
    * update [m, D]: the updates g_i, if `spec.keeps_updates`.
    * candidate_id, candidate_place [c]: if `spec.admits_reporting`, the c <= k
      clients outside the core set that should enter it first, and where in
      candidate_updates, k lists [0 or 1, D], their updates are.
    * reported_probability [m]: what clients know of `probability`, if that is
      estimated.
    * nonfinite_clients, duplicate_clients: how many were dropped or merged.
  """
  k, width = spec.core_set_size, spec.sketch_width
  floats = dict(dtype=tf.float32)
  gathered = collections.OrderedDict(
    weighted_sum=tf.TensorSpec([spec.dimension], **floats),
    client_id=tf.TensorSpec([None], tf.int32),
    weight=tf.TensorSpec([None], **floats),
    probability=tf.TensorSpec([None], **floats),
    coordinates=tf.TensorSpec([None, k], **floats),
    inner_products=tf.TensorSpec([None, k], **floats),
    squared_norm=tf.TensorSpec([None], **floats),
    sketch=tf.TensorSpec([None, width], **floats),
    subtracted=tf.TensorSpec([None, k], **floats),
    multiplicity=tf.TensorSpec([None], **floats),
    gram=tf.TensorSpec([k, k], **floats),
    core_slot=tf.TensorSpec([None], tf.int32),
    core_update=tf.TensorSpec([None, spec.dimension], **floats),
    nonfinite_clients=tf.TensorSpec([], tf.int32),
    duplicate_clients=tf.TensorSpec([], tf.int32),
  )
  if spec.keeps_updates:
    gathered['update'] = tf.TensorSpec([None, spec.dimension], **floats)
  if spec.estimator is not None:
    gathered['reported_probability'] = tf.TensorSpec([None], **floats)
  if spec.admits_reporting:
    gathered['candidate_id'] = tf.TensorSpec([None], tf.int32)
    gathered['candidate_place'] = tf.TensorSpec([None], tf.int32)
    gathered['candidate_updates'] = [
      tf.TensorSpec([None, spec.dimension], **floats)
    ] * k
  return gathered
