"""Pre-activation residual networks with group normalisation.

He et al., "Identity mappings in deep residual networks" (arXiv 1603.05027), in
the variant for 32x32 images: a 3x3 convolution, stages of blocks of two 3x3
convolutions, each preceded by normalisation and ReLU, and an average over the
image. All but the first stage halve the image and begin with a shortcut that is
a 1x1 convolution.

Where that paper has batch normalisation there is group normalisation (Wu & He,
arXiv 1803.08494): it treats each example by itself, so it has no running
statistics, does the same in training and in testing, and does not suffer from
local batches that hold few classes (Hsieh et al., arXiv 1910.00189).
"""

from collections.abc import Sequence
import itertools

import tensorflow as tf

from tasks.models import checks
from tasks.models import initializers


def small_resnet(
  input_shape: tuple[int, int, int], num_classes: int, seed: int = 0
) -> tf.keras.Model:
  """Three stages of one block, with 16, 32 and 64 filters.

  Nine convolutions, group normalisation with 8 groups. The first convolution
  halves the image already, which makes a step about four times as fast. For
  32x32x3 images and 10 classes it has 77,850 weights.

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
  checks.check_arguments('small_resnet', input_shape, num_classes)
  return _preact_resnet(
    input_shape,
    num_classes,
    seed,
    filters=(16, 32, 64),
    blocks=1,
    groups=8,
    first_stride=2,
  )


def preact_resnet18(
  input_shape: tuple[int, int, int], num_classes: int, seed: int = 0
) -> tf.keras.Model:
  """Four stages of two blocks, with 64, 128, 256 and 512 filters.

  The network of FedSteer's experiments on CIFAR-10, with group normalisation
  of 32 groups in place of batch normalisation: the same 11,172,170 weights for
  32x32x3 images and 10 classes, another function. The published code
  normalises by the batch at hand, in testing too.

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
  checks.check_arguments('preact_resnet18', input_shape, num_classes)
  return _preact_resnet(
    input_shape,
    num_classes,
    seed,
    filters=(64, 128, 256, 512),
    blocks=2,
    groups=32,
    first_stride=1,
  )


def _preact_resnet(
  input_shape: tuple[int, int, int],
  num_classes: int,
  seed: int,
  *,
  filters: Sequence[int],
  blocks: int,
  groups: int,
  first_stride: int,
) -> tf.keras.Model:
  """Returns a network with `blocks` blocks for each entry of `filters`."""
  layers = tf.keras.layers
  numbers = itertools.count()

  def conv(x, width, size=3, stride=1):
    return layers.Conv2D(
      width,
      size,
      strides=stride,
      padding='same',
      use_bias=False,
      kernel_initializer=initializers.glorot_uniform(seed, next(numbers)),
    )(x)

  def activated(x):
    return layers.ReLU()(layers.GroupNormalization(groups, epsilon=1e-5)(x))

  def block(x, width, stride):
    start = activated(x)
    if stride > 1 or x.shape[-1] != width:
      x = conv(start, width, size=1, stride=stride)
    y = conv(start, width, stride=stride)
    return layers.Add()([x, conv(activated(y), width)])

  images = tf.keras.Input(input_shape)
  x = conv(images, filters[0], stride=first_stride)
  for stage, width in enumerate(filters):
    for position in range(blocks):
      x = block(x, width, stride=2 if stage and not position else 1)
  x = layers.GlobalAveragePooling2D()(activated(x))
  logits = layers.Dense(
    num_classes,
    kernel_initializer=initializers.glorot_uniform(seed, next(numbers)),
  )(x)
  return tf.keras.Model(images, logits)
