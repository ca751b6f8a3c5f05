"""A small learning process that the tests of programs train."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

NUM_CLIENTS = 6
SPEC = (
  tf.TensorSpec([None, 2], tf.float32),
  tf.TensorSpec([None, 1], tf.int32),
)


def model_fn():
  keras_model = tf.keras.Sequential(
    [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(2)]
  )
  return tff.learning.models.from_keras_model(
    keras_model,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=SPEC,
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name='accuracy')],
  )


def dataset(seed, num_examples=8):
  """Points of the plane, labelled by the sign of their first coordinate."""
  x = np.random.default_rng(seed).normal(size=[num_examples, 2])
  y = (x[:, :1] > 0).astype(np.int32)
  return tf.data.Dataset.from_tensor_slices((np.float32(x), y)).batch(4)


def build_process():
  return tff.learning.algorithms.build_unweighted_fed_avg(
    model_fn,
    tff.learning.optimizers.build_sgdm(0.5),
    tff.learning.optimizers.build_sgdm(1.0),
  )


def flat(weights):
  return np.concatenate([np.ravel(w) for w in tf.nest.flatten(weights)])
