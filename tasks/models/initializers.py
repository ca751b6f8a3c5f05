"""Initial weights that a seed determines."""

import numpy as np
import tensorflow as tf


def glorot_uniform(seed: int, layer: int) -> tf.keras.initializers.Initializer:
  """Returns an initializer for one layer.

  Args:
    seed: The model's seed, >= 0.
    layer: The layer's number, >= 0: layers of one model draw independently.

  Returns:
    A Keras initializer; its draws depend on the seed and the layer alone.
  """
  state = np.random.SeedSequence([seed, layer]).generate_state(1)[0]
  return tf.keras.initializers.GlorotUniform(seed=int(state >> 1))
