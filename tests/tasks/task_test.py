"""Tests of the assembled tasks, on the embedded data."""

from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks import digits
from tasks import models
from tasks import partition
from tasks import task


class FingerprintTest(parameterized.TestCase):
  def _fingerprint(self, **kwargs):
    return tasks.load_task('digits', num_clients=20, **kwargs).fingerprint

  def test_is_that_of_data_and_partition(self):
    first = self._fingerprint()
    self.assertEqual(first, self._fingerprint())
    # How a client trains is no part of who holds what.
    self.assertEqual(
      first, self._fingerprint(local_epochs=1, batch_size=5, model='mlp')
    )
    self.assertEqual(first, self._fingerprint(mask_absent_classes=True))

  @parameterized.parameters(
    {'seed': 1},
    {'gamma': 0.5},
    {'partition': 'iid'},
    {'alpha': 0.3},
    {'evaluate_on': 'validation'},
  )
  def test_differs_if_the_partition_does(self, **kwargs):
    if 'alpha' in kwargs:
      kwargs['partition'] = 'dirichlet'
    self.assertNotEqual(self._fingerprint(), self._fingerprint(**kwargs))

  def test_differs_if_an_image_or_the_test_set_does(self):
    data = digits.load()
    split = partition.iid(data.train_labels, 20)

    def fingerprint(data):
      return task.assemble('digits', data, split, model='mlp').fingerprint

    first = fingerprint(data)
    data.test_labels[0] += 1
    second = fingerprint(data)
    data.train_images[0, 0, 0, 0] += 1
    self.assertLen({first, second, fingerprint(data)}, 3)


class DigitsTest(parameterized.TestCase):
  def test_split_is_stratified_and_loses_nothing(self):
    data = digits.load()
    self.assertEqual(data.train_images.shape, (1438, 8, 8, 1))
    self.assertEqual(data.test_images.shape, (359, 8, 8, 1))
    train = np.bincount(data.train_labels)
    test = np.bincount(data.test_labels)
    np.testing.assert_array_less(np.abs(test / (train + test) - 0.2), 0.01)
    self.assertEqual(data.train_images.max(), data.largest_pixel)

  def test_is_the_same_every_time(self):
    first, second = digits.load(), digits.load()
    np.testing.assert_array_equal(first.train_images, second.train_images)
    np.testing.assert_array_equal(first.test_labels, second.test_labels)

  def test_the_default_model_learns_them(self):
    data = digits.load()
    x = data.train_images / np.float32(data.largest_pixel)
    model = models.mlp((8, 8, 1), 10)
    model.compile(
      tf.keras.optimizers.SGD(0.5),
      tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      ['accuracy'],
    )
    model.fit(x, data.train_labels, 32, epochs=10, shuffle=False, verbose=0)
    _, accuracy = model.evaluate(
      data.test_images / np.float32(data.largest_pixel),
      data.test_labels,
      verbose=0,
    )
    self.assertGreater(accuracy, 0.9)


class FederatedTaskTest(parameterized.TestCase):
  def test_default_digits_task_has_one_batch_per_epoch(self):
    result = tasks.load_task('digits')
    self.assertEqual(result.num_clients, 100)
    self.assertLen(result.client_labels, 100)
    self.assertEqual(result.num_classes, 10)
    self.assertEqual(
      result.element_spec,
      (
        tf.TensorSpec([None, 8, 8, 1], tf.float32),
        tf.TensorSpec([None, 1], tf.int32),
      ),
    )
    self.assertEqual(result.test_dataset.element_spec, result.element_spec)
    for dataset, n, classes in zip(
      result.client_datasets, result.num_examples, result.client_labels
    ):
      self.assertEqual(dataset.element_spec, result.element_spec)
      batches = list(dataset.as_numpy_iterator())
      self.assertLen(batches, 5)
      for x, y in batches:
        self.assertLen(x, n)
        self.assertBetween(x.min(), 0, 1)
        self.assertLessEqual(set(y[:, 0]), set(classes))
    self.assertEqual(
      sum(len(y) for _, y in result.test_dataset.as_numpy_iterator()), 359
    )

  def test_small_batches_cover_all_examples_in_the_same_order_each_time(self):
    result = tasks.load_task(
      'digits',
      partition='iid',
      num_clients=10,
      batch_size=16,
      local_epochs=2,
    )  # pyformat: disable
    dataset = result.client_datasets[0]
    n = int(result.num_examples[0])
    first = np.concatenate([x for x, _ in dataset.as_numpy_iterator()])
    again = np.concatenate([x for x, _ in dataset.as_numpy_iterator()])
    self.assertLen(first, 2 * n)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[:n], first[n:])

  def test_examples_of_several_batches_are_shuffled_with_their_labels(self):
    images = np.arange(200, dtype=np.uint8)[:, None, None, None]
    labels = np.repeat([0, 1], 100)
    data = task.LabelledImages(images, labels, images, labels, 2, 1)
    split = partition.by_owner(labels, np.zeros(200, int))
    result = task.assemble(
      'x', data, split, model='mlp', batch_size=50, local_epochs=1
    )
    x, y = (
      np.concatenate(part).ravel()
      for part in zip(*result.client_datasets[0].as_numpy_iterator())
    )
    np.testing.assert_array_equal(np.sort(x), np.arange(200))
    np.testing.assert_array_equal(y, x >= 100)
    self.assertBetween(y[:50].mean(), 0.2, 0.8)

  def test_parameters_record_the_defaults(self):
    self.assertEqual(
      tasks.load_task('digits', num_clients=20, seed=3).parameters['gamma'],
      0.9,
    )
    self.assertEqual(
      dict(tasks.load_task('digits', partition='iid').parameters),
      {
        'task': 'digits',
        'partition': 'iid',
        'evaluate_on': 'test',
        'num_clients': 100,
        'examples_per_client': 14.38,
        'model': 'mlp',
        'batch_size': 500,
        'local_epochs': 5,
        'seed': 0,
        'mask_absent_classes': False,
      },
    )  # pyformat: disable

  def test_tff_starts_from_the_keras_models_weights_and_trains(self):
    result = tasks.load_task('digits', partition='iid', num_clients=4)
    process = tff.learning.algorithms.build_weighted_fed_avg(
      result.model_fn,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
    )
    state = process.initialize()
    for got, want in zip(
      process.get_model_weights(state).trainable,
      result.keras_model_fn().get_weights(),
    ):
      np.testing.assert_array_equal(got, want)
    output = process.next(state, list(result.client_datasets))
    metrics = output.metrics['client_work']['train']
    self.assertEqual(metrics['num_examples'], 5 * 1438)
    self.assertIn('accuracy', metrics)
    self.assertIn('loss', metrics)

  def test_baseline_task_holds_the_same_data(self):
    result = tasks.load_task(
      'digits', partition='iid', num_clients=4, batch_size=100
    )
    baseline = result.baseline_task()
    self.assertEqual(baseline.datasets.train_data.client_ids, list('0123'))
    for client, dataset in enumerate(result.client_datasets):
      other = baseline.datasets.train_data.create_tf_dataset_for_client(
        str(client)
      )
      pairs = list(zip(dataset.as_numpy_iterator(), other.as_numpy_iterator()))
      self.assertLen(pairs, 5 * 4)
      for (x, y), (other_x, other_y) in pairs:
        np.testing.assert_array_equal(x, other_x)
        np.testing.assert_array_equal(y, other_y)


class MaskAbsentClassesTest(parameterized.TestCase):
  def _load(self, **arguments):
    return tasks.load_task(
      'digits',
      **{'num_clients': 20, 'examples_per_client': 20, **arguments},
    )

  def test_examples_say_which_classes_their_owner_has(self):
    result = self._load(mask_absent_classes=True)
    self.assertTrue(result.mask_absent_classes)
    self.assertTrue(result.parameters['mask_absent_classes'])
    plain = self._load()
    for client, dataset in enumerate(result.client_datasets):
      self.assertEqual(dataset.element_spec, result.element_spec)
      expected = np.zeros(10)
      expected[result.client_labels[client]] = 1
      self.assertLess(expected.sum(), 10)
      pairs = zip(dataset, plain.client_datasets[client])
      for (x, y), (plain_x, plain_y) in pairs:
        np.testing.assert_array_equal(x['images'], plain_x)
        np.testing.assert_array_equal(y, plain_y)
        self.assertEqual(x['class_mask'].shape, (len(y), 10))
        np.testing.assert_array_equal(x['class_mask'][-1], expected)
        np.testing.assert_array_equal(x['class_mask'][0], expected)

  def test_no_class_is_masked_in_the_test_set(self):
    result = self._load(mask_absent_classes=True)
    self.assertEqual(result.test_dataset.element_spec, result.element_spec)
    for x, _ in result.test_dataset:
      self.assertTrue(np.all(x['class_mask'] == 1))

  def test_a_client_leaves_the_rows_of_absent_classes_alone(self):
    result = self._load(mask_absent_classes=True)
    process = tff.learning.algorithms.build_weighted_fed_avg(
      result.model_fn,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
    )
    state = process.initialize()
    before = process.get_model_weights(state).trainable
    output = process.next(state, [result.client_datasets[0]])
    after = process.get_model_weights(output.state).trainable
    own = result.client_labels[0]
    absent = np.setdiff1d(np.arange(10), own)
    for old, new in zip(before[-2:], after[-2:]):  # The logits' layer.
      np.testing.assert_array_equal(old[..., absent], new[..., absent])
      self.assertTrue((old[..., own] != new[..., own]).any())

  def test_evaluation_is_that_of_the_plain_model(self):
    weights = self._load().keras_model_fn().get_weights()
    results = []
    for mask in (False, True):
      result = self._load(mask_absent_classes=mask)
      model = result.model_fn()
      for variable, value in zip(model.trainable_variables, weights):
        variable.assign(value)
      losses = [
        float(model.forward_pass(batch, training=False).loss)
        for batch in result.test_dataset
      ]
      results.append(losses)
    np.testing.assert_allclose(*results, rtol=1e-6)

  def test_baseline_task_holds_the_masks(self):
    result = self._load(mask_absent_classes=True, num_clients=4)
    data = result.baseline_task().datasets.train_data
    for client, dataset in enumerate(result.client_datasets):
      other = data.create_tf_dataset_for_client(str(client))
      self.assertEqual(other.element_spec[0].keys(), {'images', 'class_mask'})
      for (x, _), (other_x, _) in zip(dataset, other):
        np.testing.assert_array_equal(x['images'], other_x['images'])
        np.testing.assert_array_equal(x['class_mask'], other_x['class_mask'])


class LoadTaskTest(parameterized.TestCase):
  @parameterized.parameters(
    ({'name': 'cifar'}, 'name must be one of .*, found .cifar'),
    ({'partition': 'random'}, 'partition must be one of .*random'),
    ({'partition': 'natural'}, 'natural must be used with task emnist'),
    ({'data_dir': '/x'}, 'given with task cifar10 or emnist or fashion_mnist'),
    ({'label_set': 'digits'}, 'label_set must be given with task emnist'),
    ({'alpha': 0.1}, 'alpha must be given with partition dirichlet only'),
    ({'partition': 'iid', 'gamma': 0.9}, 'gamma must be given with'),
    ({'partition': 'iid', 'class_ratio': 0.5}, 'class_ratio must be given'),
    (
      {'name': 'emnist', 'partition': 'natural', 'examples_per_client': 3},
      'examples_per_client must be given with',
    ),
    ({'model': 'vgg'}, 'model must be one of'),
    ({'model': 'small_cnn'}, 'at least 13x13'),
    (
      {'evaluate_on': 'train'},
      "evaluate_on must be one of test, validation, found 'train'",
    ),
    ({'batch_size': 0}, 'batch_size must be >= 1, found 0'),
    ({'local_epochs': 0}, 'local_epochs must be >= 1, found 0'),
    ({'seed': -1}, 'seed must be >= 0, found -1'),
  )
  def test_wrong_arguments_are_named(self, arguments, message):
    with self.assertRaisesRegex(ValueError, message):
      tasks.load_task(**{'name': 'digits', **arguments})

  @parameterized.parameters(1, 'false', None)
  def test_mask_absent_classes_must_be_a_bool(self, value):
    with self.assertRaisesRegex(
      TypeError, f'mask_absent_classes must be a bool, found {value!r}'
    ):
      tasks.load_task('digits', mask_absent_classes=value)


if __name__ == '__main__':
  pytest.main([__file__])
