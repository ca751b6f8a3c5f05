"""The published treatment of classes that a client does not have."""

import collections

import tensorflow as tf


def with_class_mask(model: tf.keras.Model, num_classes: int) -> tf.keras.Model:
  """Sets the logits of masked classes to 0, as the published code does.

  That code trains every client with `logits.masked_fill(absent, 0)` before the
  cross-entropy. A masked logit has no gradient, so that a client leaves the
  rows of absent classes alone; but 0 is not minus infinity: an absent class
  still takes probability, the more the lower the other logits are. This is
  here to reproduce those experiments and for nothing else.

  Args:
    model: From float32 [batch, height, width, channels] to logits [batch,
      num_classes].
    num_classes: Number of classes.

  Returns:
    A model from `OrderedDict(images=..., class_mask=...)` to logits, where
    `class_mask` is float32 [batch, num_classes], 1 for a class that the
    example's owner has and else 0. It shares the weights of `model`, in the
    same order.

  Raises:
    ValueError: If the model has another number of logits.
  """
  if model.output_shape[-1] != num_classes:
    raise ValueError(
      f'model must end in num_classes={num_classes!r} logits, found'
      f' {model.output_shape[-1]}'
    )
  inputs = collections.OrderedDict(
    images=tf.keras.Input(model.input_shape[1:], name='images'),
    class_mask=tf.keras.Input([num_classes], name='class_mask'),
  )
  logits = model(inputs['images']) * inputs['class_mask']
  return tf.keras.Model(inputs, logits)
