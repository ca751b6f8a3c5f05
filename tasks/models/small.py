"""Models that train in seconds."""

import tensorflow as tf

from tasks.models import checks
from tasks.models import initializers


def small_cnn(
  input_shape: tuple[int, int, int], num_classes: int, seed: int = 0
) -> tf.keras.Model:
  """Two 5x5 convolutions of stride 2 without padding, and a dense layer.

  8 and 16 filters and 64 units, all tanh. For 28x28x1 images and 10 classes it
  has 20,522 weights.

  Args:
    input_shape: (height, width, channels); height and width >= 13.
    num_classes: Number of logits.
    seed: Determines the initial weights (Glorot uniform).

  Returns:
    An uncompiled model, float32 [batch, *input_shape] -> [batch, num_classes].

  Raises:
    TypeError: If `num_classes` is no integer.
    ValueError: If the images are too small, or there are no classes.
  """
  checks.check_arguments('small_cnn', input_shape, num_classes, 13)
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.Input(shape=input_shape),
      layers.Conv2D(
        8,
        5,
        strides=2,
        activation='tanh',
        kernel_initializer=initializers.glorot_uniform(seed, 0),
      ),
      layers.Conv2D(
        16,
        5,
        strides=2,
        activation='tanh',
        kernel_initializer=initializers.glorot_uniform(seed, 1),
      ),
      layers.Flatten(),
      layers.Dense(
        64,
        activation='tanh',
        kernel_initializer=initializers.glorot_uniform(seed, 2),
      ),
      layers.Dense(
        num_classes, kernel_initializer=initializers.glorot_uniform(seed, 3)
      ),
    ]
  )


def mlp(
  input_shape: tuple[int, int, int], num_classes: int, seed: int = 0
) -> tf.keras.Model:
  """One hidden layer of 64 tanh units.

  For 8x8x1 images and 10 classes it has 4,810 weights.

  Args:
    input_shape: (height, width, channels).
    num_classes: Number of logits.
    seed: Determines the initial weights (Glorot uniform).

  Returns:
    An uncompiled model, float32 [batch, *input_shape] -> [batch, num_classes].

  Raises:
    TypeError: If `num_classes` is no integer.
    ValueError: If the images have no pixels, or there are no classes.
  """
  checks.check_arguments('mlp', input_shape, num_classes)
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.Input(shape=input_shape),
      layers.Flatten(),
      layers.Dense(
        64,
        activation='tanh',
        kernel_initializer=initializers.glorot_uniform(seed, 0),
      ),
      layers.Dense(
        num_classes, kernel_initializer=initializers.glorot_uniform(seed, 1)
      ),
    ]
  )
