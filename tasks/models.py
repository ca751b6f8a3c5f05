"""Small Keras models for the tasks.

All end in logits and have no batch normalisation (its running statistics are
not trainable, so they would not be part of a client's update).
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf


def _initializer(seed: int, layer: int) -> tf.keras.initializers.Initializer:
  state = np.random.SeedSequence([seed, layer]).generate_state(1)[0]
  return tf.keras.initializers.GlorotUniform(seed=int(state >> 1))


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
    ValueError: If the images are too small.
  """
  if min(input_shape[:2]) < 13:
    raise ValueError(
      'model small_cnn must get images of at least 13x13, found'
      f' {input_shape[0]}x{input_shape[1]}'
    )
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.Input(shape=input_shape),
      layers.Conv2D(
        8,
        5,
        strides=2,
        activation='tanh',
        kernel_initializer=_initializer(seed, 0),
      ),
      layers.Conv2D(
        16,
        5,
        strides=2,
        activation='tanh',
        kernel_initializer=_initializer(seed, 1),
      ),
      layers.Flatten(),
      layers.Dense(
        64, activation='tanh', kernel_initializer=_initializer(seed, 2)
      ),
      layers.Dense(num_classes, kernel_initializer=_initializer(seed, 3)),
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
  """
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.Input(shape=input_shape),
      layers.Flatten(),
      layers.Dense(
        64, activation='tanh', kernel_initializer=_initializer(seed, 0)
      ),
      layers.Dense(num_classes, kernel_initializer=_initializer(seed, 1)),
    ]
  )


def get_builder(name: str) -> Callable[..., tf.keras.Model]:
  """Looks up a model by name.

  Args:
    name: 'small_cnn' or 'mlp'.

  Returns:
    A function (input_shape, num_classes, seed) -> model.

  Raises:
    ValueError: If the name is unknown.
  """
  builders = {'small_cnn': small_cnn, 'mlp': mlp}
  if name not in builders:
    raise ValueError(
      f'model must be one of {", ".join(sorted(builders))}, found {name!r}'
    )
  return builders[name]
