"""The convolutional networks of FedSteer's published experiments.

Layers, sizes, padding, pooling and activations are those of the code that its
authors published (haoran-zh/FedSteer on GitHub, `utility/model_list.py`), up to
the logits: there EMNIST's ends in log-softmax, and Fashion-MNIST's in a ReLU
and a softmax that are followed by cross-entropy, which has its own softmax. The
initial weights are Glorot uniform, there they are PyTorch's defaults (EMNIST),
or Kaiming uniform and Xavier normal (Fashion-MNIST).
"""

import tensorflow as tf

from tasks.models import checks
from tasks.models import initializers


def paper_emnist_cnn(
  input_shape: tuple[int, int, int], num_classes: int, seed: int = 0
) -> tf.keras.Model:
  """Three 5x5 convolutions of 16, 24 and 32 filters, and 256 and 84 units.

  All tanh. The convolutions keep the image's size, and a 2x2 max pooling
  follows the first and the second. For 28x28x1 images it has 456,519 weights
  with 47 classes and 453,374 with 10.

  Args:
    input_shape: (height, width, channels); height and width >= 4.
    num_classes: Number of logits.
    seed: Determines the initial weights.

  Returns:
    An uncompiled model, float32 [batch, *input_shape] -> [batch, num_classes].

  Raises:
    TypeError: If `num_classes` is no integer.
    ValueError: If the images are too small, or there are no classes.
  """
  # The two poolings leave nothing of smaller ones.
  checks.check_arguments('paper_emnist_cnn', input_shape, num_classes, 4)
  layers = tf.keras.layers

  def conv(filters, layer):
    return layers.Conv2D(
      filters,
      5,
      padding='same',
      activation='tanh',
      kernel_initializer=initializers.glorot_uniform(seed, layer),
    )

  def dense(units, layer, activation='tanh'):
    return layers.Dense(
      units,
      activation=activation,
      kernel_initializer=initializers.glorot_uniform(seed, layer),
    )

  return tf.keras.Sequential(
    [
      layers.Input(shape=input_shape),
      conv(16, 0),
      layers.MaxPooling2D(2),
      conv(24, 1),
      layers.MaxPooling2D(2),
      conv(32, 2),
      layers.Flatten(),
      dense(256, 3),
      dense(84, 4),
      dense(num_classes, 5, activation=None),
    ]
  )


def paper_fashion_cnn(
  input_shape: tuple[int, int, int], num_classes: int, seed: int = 0
) -> tf.keras.Model:
  """Two 3x3 convolutions of 32 and 64 filters, and 512 units.

  The convolutions keep the image's size; a 2x2 max pooling follows each. As
  published, there is no activation: the pooling is all that is not linear. For
  28x28x1 images and 10 classes it has 1,630,090 weights.

  Args:
    input_shape: (height, width, channels); height and width >= 4.
    num_classes: Number of logits.
    seed: Determines the initial weights.

  Returns:
    An uncompiled model, float32 [batch, *input_shape] -> [batch, num_classes].

  Raises:
    TypeError: If `num_classes` is no integer.
    ValueError: If the images are too small, or there are no classes.
  """
  # The two poolings leave nothing of smaller ones.
  checks.check_arguments('paper_fashion_cnn', input_shape, num_classes, 4)
  layers = tf.keras.layers

  def conv(filters, layer):
    return layers.Conv2D(
      filters,
      3,
      padding='same',
      kernel_initializer=initializers.glorot_uniform(seed, layer),
    )

  def dense(units, layer):
    return layers.Dense(
      units, kernel_initializer=initializers.glorot_uniform(seed, layer)
    )

  return tf.keras.Sequential(
    [
      layers.Input(shape=input_shape),
      conv(32, 0),
      layers.MaxPooling2D(2),
      conv(64, 1),
      layers.MaxPooling2D(2),
      layers.Flatten(),
      dense(512, 2),
      dense(num_classes, 3),
    ]
  )
