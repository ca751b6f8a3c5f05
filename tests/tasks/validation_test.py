"""Tests of the held-out part of the training images."""

import hashlib

import numpy as np
import pytest

import tasks
from tasks import digits
from tasks import partition
from tasks import task
from tasks import validation

_SIZES = (100, 37, 2, 1, 14)


def _data():
  """Training images that say their own number, in random order of classes."""
  labels = np.random.default_rng(1).permutation(np.repeat(range(5), _SIZES))
  return task.LabelledImages(
    train_images=np.arange(len(labels)).reshape(-1, 1, 1, 1),
    train_labels=labels,
    test_images=np.full([3, 1, 1, 1], -1),
    test_labels=np.arange(3),
    num_classes=6,
    largest_pixel=1,
    train_owners=np.arange(len(labels)) * 10,
  )


def test_takes_a_tenth_of_each_class_and_loses_nothing():
  data = _data()
  held_out = validation.hold_out(data)
  train, test = held_out.train_images.ravel(), held_out.test_images.ravel()
  np.testing.assert_array_equal(
    np.sort(np.concatenate([train, test])), np.arange(sum(_SIZES))
  )
  np.testing.assert_array_equal(train, np.sort(train))
  np.testing.assert_array_equal(
    np.bincount(held_out.test_labels, minlength=6), [10, 4, 1, 0, 1, 0]
  )
  np.testing.assert_array_equal(held_out.train_labels, data.train_labels[train])
  np.testing.assert_array_equal(held_out.test_labels, data.train_labels[test])
  np.testing.assert_array_equal(held_out.train_owners, data.train_owners[train])
  assert held_out.num_classes == 6 and held_out.largest_pixel == 1


def test_is_the_same_every_time_and_random_within_a_class():
  first, second = validation.hold_out(_data()), validation.hold_out(_data())
  np.testing.assert_array_equal(first.test_images, second.test_images)
  of_class = np.flatnonzero(_data().train_labels == 0)
  places = np.searchsorted(of_class, first.test_images.ravel()[:99])
  assert len(np.unique(np.diff(places))) > 2


def test_owners_may_be_unknown():
  assert validation.hold_out(digits.load()).train_owners is None


def _images(datasets):
  return [
    {x.tobytes() for x, _ in dataset.unbatch().as_numpy_iterator()}
    for dataset in datasets
  ]


# Random pixels, since some of the digits are alike.
def _load(tmp_path, **arguments):
  generator = np.random.default_rng(0)
  path = tmp_path / 'cifar10.npz'
  if not path.exists():
    np.savez(
      path,
      x_train=generator.integers(0, 256, (600, 32, 32, 3), dtype=np.uint8),
      y_train=np.arange(600) % 10,
      x_test=generator.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8),
      y_test=np.arange(30) % 10,
    )
  return tasks.load_task(
    'cifar10',
    data_dir=str(tmp_path),
    **{'num_clients': 10, 'local_epochs': 1, **arguments},
  )


@pytest.mark.parametrize('rule', ['bipartite', 'dirichlet', 'iid'])
def test_no_client_has_an_image_that_is_evaluated_on(tmp_path, rule):
  held_out = []
  for seed in (0, 1):
    loaded = _load(
      tmp_path, partition=rule, evaluate_on='validation', seed=seed
    )
    assert loaded.parameters['evaluate_on'] == 'validation'
    (evaluated,) = _images([loaded.test_dataset])
    assert len(evaluated) == 60
    clients = _images(loaded.client_datasets)
    assert not evaluated & set().union(*clients)
    held_out.append(evaluated)
  assert held_out[0] == held_out[1]  # Whatever the partition's seed is.

  # They are training images: none of them is in the test set.
  loaded = _load(tmp_path, partition='iid')
  (test,) = _images([loaded.test_dataset])
  everything = set().union(*_images(loaded.client_datasets))
  assert len(test) == 30 and len(everything) == 600
  assert held_out[0] < everything and not held_out[0] & test


def test_evaluating_on_the_test_set_leaves_the_partition_as_it_was():
  loaded = tasks.load_task('digits', seed=3)
  data = digits.load()
  split = partition.bipartite(data.train_labels, 100, 0.9, 0.5, None, 3, 10)
  digest = hashlib.sha256()
  for indices, dataset in zip(split.client_indices, loaded.client_datasets):
    x, y = next(dataset.as_numpy_iterator())
    np.testing.assert_array_equal(
      x, data.train_images[indices] / np.float32(16)
    )
    np.testing.assert_array_equal(y[:, 0], data.train_labels[indices])
    digest.update(indices.astype('<i8').tobytes())
  # As it was before there was a choice.
  assert digest.hexdigest()[:16] == '585fe5746b3f3814'
  (y,) = (y for _, y in loaded.test_dataset.as_numpy_iterator())
  np.testing.assert_array_equal(y[:, 0], data.test_labels)


if __name__ == '__main__':
  pytest.main([__file__])
