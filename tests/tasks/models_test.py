"""Tests of the models: sizes, seeds, logits, and what TFF makes of them."""

import functools

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks import models

_EMNIST = (28, 28, 1)
_CIFAR10 = (32, 32, 3)
# One setting of each model.
_EACH = (
  ('mlp', (8, 8, 1)),
  ('paper_emnist_cnn', _EMNIST),
  ('paper_fashion_cnn', _EMNIST),
  ('preact_resnet18', _CIFAR10),
  ('small_cnn', _EMNIST),
  ('small_resnet', _CIFAR10),
)


@functools.cache
def _model(name):
  """The model with ten classes and seed 0, not to be changed."""
  return models.get_builder(name)(dict(_EACH)[name], 10, 0)


class ModelsTest(parameterized.TestCase):
  def test_each_model_is_tested(self):
    self.assertEqual(tuple(name for name, _ in _EACH), models.MODEL_NAMES)

  @parameterized.parameters(
    ('small_cnn', _EMNIST, 10, 20_522),
    ('small_cnn', _EMNIST, 47, 22_927),
    ('mlp', (8, 8, 1), 10, 4_810),
    ('small_resnet', _CIFAR10, 10, 77_850),
    ('preact_resnet18', _CIFAR10, 10, 11_172_170),
    ('paper_emnist_cnn', _EMNIST, 47, 456_519),
    ('paper_emnist_cnn', _EMNIST, 10, 453_374),
    ('paper_fashion_cnn', _EMNIST, 10, 1_630_090),
  )
  def test_has_the_documented_size(self, name, shape, num_classes, size):
    model = models.get_builder(name)(shape, num_classes)
    self.assertEqual(model.count_params(), size)
    self.assertEqual(model.output_shape, (None, num_classes))
    self.assertLen(model.trainable_weights, len(model.weights))

  @parameterized.parameters(*_EACH)
  def test_initial_weights_follow_the_seed(self, name, shape):
    builder = models.get_builder(name)
    first = _model(name).get_weights()
    same, other = (builder(shape, 10, seed).get_weights() for seed in (0, 1))
    for a, b, c in zip(first, same, other):
      np.testing.assert_array_equal(a, b)
      if a.ndim > 1:
        self.assertFalse(np.array_equal(a, c))

  @parameterized.parameters(*models.MODEL_NAMES)
  def test_layers_of_one_shape_start_differently(self, name):
    kernels = [w for w in _model(name).get_weights() if w.ndim > 1]
    for i, a in enumerate(kernels):
      for b in kernels[:i]:
        if a.shape == b.shape:
          self.assertFalse(np.array_equal(a, b))

  @parameterized.parameters(*_EACH)
  def test_ends_in_logits_of_each_example_alone(self, name, shape):
    model = _model(name)
    x = np.random.default_rng(0).random((3, *shape), np.float32)
    logits = model(x, training=True).numpy()
    # Neither a softmax (sum 1), nor a log-softmax, nor a ReLU.
    self.assertTrue((logits < 0).any() and (logits > 0).any())
    self.assertGreater(np.abs(logits.sum(axis=1) - 1).min(), 1e-3)
    log_sums = np.log(np.exp(logits).sum(axis=1))
    self.assertGreater(np.abs(log_sums).min(), 1e-3)
    np.testing.assert_allclose(
      model(x[1:2], training=False).numpy(), logits[1:2], rtol=0, atol=1e-4
    )

  @parameterized.parameters(*_EACH)
  def test_tff_takes_it_and_every_weight_gets_a_gradient(self, name, shape):
    model = tff.learning.models.from_keras_model(
      _model(name),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=(
        tf.TensorSpec((None, *shape), tf.float32),
        tf.TensorSpec((None, 1), tf.int32),
      ),
    )
    self.assertEmpty(list(model.non_trainable_variables))
    x = np.random.default_rng(0).random((2, *shape), np.float32)
    with tf.GradientTape() as tape:
      output = model.forward_pass((x, np.arange(2)[:, None]), training=True)
    self.assertEqual(output.num_examples, 2)
    gradients = tape.gradient(output.loss, model.trainable_variables)
    for variable, gradient in zip(model.trainable_variables, gradients):
      self.assertGreater(np.abs(gradient).max(), 0, variable.name)

  def test_residual_networks_ignore_the_scale_of_their_convolutions(self):
    # What the normalisation is for; the shortcuts carry the scale to the last.
    model = models.small_resnet(_CIFAR10, 10)
    x = np.random.default_rng(0).random((2, *_CIFAR10), np.float32)
    before = model(x).numpy()
    for layer in model.layers:
      if isinstance(layer, tf.keras.layers.Conv2D):
        layer.kernel.assign(3 * layer.kernel)
    np.testing.assert_allclose(model(x).numpy(), before, atol=1e-2)

  @parameterized.parameters(
    ('small_cnn', 13), ('paper_emnist_cnn', 4), ('paper_fashion_cnn', 4)
  )
  def test_too_small_images_are_an_error(self, name, smallest):
    builder = models.get_builder(name)
    builder((smallest, smallest, 1), 10)
    found = smallest - 1
    with self.assertRaisesRegex(
      ValueError,
      f'{name} must get images of at least {smallest}x{smallest}, found'
      f' {smallest}x{found}',
    ):
      builder((smallest, found, 1), 10)

  def test_unknown_name_is_an_error(self):
    with self.assertRaisesRegex(
      ValueError, "mlp, .*, small_cnn, small_resnet, found 'vgg'"
    ):
      models.get_builder('vgg')


class WithClassMaskTest(parameterized.TestCase):
  def test_masked_logits_are_zero_and_the_others_unchanged(self):
    plain = models.mlp((8, 8, 1), 4)
    masked = models.with_class_mask(plain, 4)
    x = np.random.default_rng(0).random((2, 8, 8, 1), np.float32)
    mask = np.array([[1, 0, 1, 0], [1, 1, 1, 1]], np.float32)
    actual = masked({'images': x, 'class_mask': mask}).numpy()
    np.testing.assert_allclose(actual, plain(x).numpy() * mask, rtol=1e-6)
    self.assertFalse(actual[0, [1, 3]].any())
    self.assertTrue(actual[0, [0, 2]].all())

  def test_shares_the_weights_in_their_order(self):
    plain = models.small_resnet(_CIFAR10, 10)
    masked = models.with_class_mask(plain, 10)
    self.assertLen(masked.weights, len(plain.weights))
    for a, b in zip(masked.weights, plain.weights):
      self.assertIs(a, b)

  def test_rows_of_absent_classes_get_no_gradient(self):
    plain = models.mlp((8, 8, 1), 4)
    masked = models.with_class_mask(plain, 4)
    x = np.random.default_rng(0).random((3, 8, 8, 1), np.float32)
    mask = np.tile(np.float32([0, 1, 0, 1]), (3, 1))
    with tf.GradientTape() as tape:
      loss = tf.keras.losses.sparse_categorical_crossentropy(
        [1, 3, 1], masked({'images': x, 'class_mask': mask}), from_logits=True
      )
    gradient = tape.gradient(loss, plain.weights[-2]).numpy()
    self.assertFalse(gradient[:, [0, 2]].any())
    self.assertTrue(gradient[:, [1, 3]].any())


if __name__ == '__main__':
  pytest.main([__file__])
