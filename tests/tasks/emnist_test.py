"""Tests of the EMNIST task, on a small file in TFF's schema written here."""

import urllib.error
import urllib.request

import numpy as np
import pytest

import tasks
from tasks import emnist
from tests.tasks import data_files

_WRITERS = ('f0003_01', 'f0001_00', 'f0002_07')


def _write(folder, announced_extra=0):
  """Every writer has each class twice in training and once in test.

  The value of an image's first pixel is the writer's number / 255.
  """
  splits = {}
  for kind, num_classes in (('digits_only', 10), ('all', 62)):
    for split, copies in (('train', 2), ('test', 1)):
      writers = splits[f'{kind}_{split}'] = {}
      for writer in _WRITERS:
        pixels = np.ones([28, 28], np.float32)
        pixels[0, 0] = int(writer[1:5]) / 255
        writers[writer] = [
          data_files.emnist_example(pixels, label)
          for label in list(range(num_classes)) * copies
        ]
  return data_files.write_emnist(
    folder, splits, announced_extra=announced_extra
  )


@pytest.fixture(name='folder', scope='module')
def _folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('emnist')
  _write(folder)
  return str(folder)


@pytest.fixture(name='no_network')
def _no_network(monkeypatch):
  def fail(*args, **kwargs):
    raise urllib.error.URLError('no route to host')

  monkeypatch.setattr(urllib.request, 'urlopen', fail)


def test_balanced_merges_the_letters_that_look_alike():
  mapping = emnist.label_map('balanced')
  characters = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
  assert mapping.shape == (62,) and mapping.max() == 46
  np.testing.assert_array_equal(np.unique(mapping), np.arange(47))
  np.testing.assert_array_equal(mapping[:36], np.arange(36))
  merged = [c for c, m in zip(characters[36:], mapping[36:]) if m < 36]
  assert ''.join(merged) == 'cijklmopsuvwxyz'
  for c in merged:
    assert mapping[characters.index(c)] == characters.index(c.upper())
  rest = [mapping[characters.index(c)] for c in 'abdefghnqrt']
  np.testing.assert_array_equal(rest, np.arange(36, 47))


@pytest.mark.parametrize(
  'label_set, num_classes',
  [('digits', 10), ('balanced', 47), ('byclass', 62)],
)
def test_reads_all_examples_and_their_writers(folder, label_set, num_classes):
  data = emnist.load(folder, label_set)
  source = 10 if label_set == 'digits' else 62
  assert data.num_classes == num_classes
  assert data.train_images.shape == (3 * 2 * source, 28, 28, 1)
  assert data.test_images.shape == (3 * source, 28, 28, 1)
  np.testing.assert_array_equal(
    data.train_labels[: 2 * source],
    np.tile(emnist.label_map(label_set), 2),
  )
  # Writers are sorted by id; ink is inverted.
  np.testing.assert_array_equal(
    data.train_images[:, 0, 0, 0], 255 - 1 - data.train_owners
  )
  np.testing.assert_array_equal(np.bincount(data.train_owners), 2 * source)
  assert data.train_images[:, 1:].max() == 0


def test_natural_partition_has_one_client_per_writer(folder):
  task = tasks.load_task(
    'emnist', data_dir=folder, partition='natural', label_set='digits'
  )
  np.testing.assert_array_equal(task.num_examples, [20, 20, 20])
  for client in range(3):
    x, _ = next(task.client_datasets[client].as_numpy_iterator())
    np.testing.assert_allclose(x[:, 0, 0, 0], (254 - client) / 255, rtol=1e-6)


def test_natural_partition_keeps_the_first_writers(folder):
  task = tasks.load_task(
    'emnist', data_dir=folder, partition='natural', num_clients=2
  )
  assert task.num_clients == 2 and task.num_classes == 47


def test_pooled_examples_can_be_partitioned_anew(folder):
  task = tasks.load_task('emnist', data_dir=folder, num_clients=4, gamma=0.5)
  assert task.num_clients == 4
  assert len(task.client_labels[0]) in (11, 12)
  x, y = next(task.client_datasets[0].as_numpy_iterator())
  assert x.shape[1:] == (28, 28, 1) and y.shape == (len(x), 1)


def test_missing_file_without_network_says_what_to_put_where(
  tmp_path, no_network
):
  with pytest.raises(FileNotFoundError) as error:
    emnist.load(str(tmp_path))
  message = str(error.value)
  assert 'emnist_all.sqlite' in message and str(tmp_path) in message
  assert 'emnist.load_data(cache_dir=' in message
  assert 'no route to host' in message


@pytest.mark.parametrize('share', [0.0, 0.01, 0.5, 0.99])
def test_truncated_file_says_to_download_it_again(tmp_path, folder, share):
  with open(f'{folder}/emnist_all.sqlite', 'rb') as file:
    content = file.read()
  path = tmp_path / 'emnist_all.sqlite'
  path.write_bytes(content[: int(share * len(content))])
  with pytest.raises(ValueError, match='emnist_all.sqlite must be the compl'):
    emnist.load(str(tmp_path))


def test_file_of_another_kind_says_to_download_it_again(tmp_path):
  (tmp_path / 'emnist_all.sqlite').write_bytes(b'<html>' * 1000)
  with pytest.raises(ValueError, match='not a database'):
    emnist.load(str(tmp_path))


def test_file_with_missing_examples_is_an_error(tmp_path):
  _write(tmp_path, announced_extra=1)
  with pytest.raises(ValueError, match=r'announces \[63, 33\] .* \[60, 30\]'):
    emnist.load(str(tmp_path), 'digits')


def test_unknown_label_set_is_an_error(folder):
  with pytest.raises(ValueError, match="digits, found 'letters'"):
    emnist.load(folder, 'letters')


def test_writers_keep_the_images_that_are_not_evaluated_on(folder):
  loaded = tasks.load_task(
    'emnist',
    data_dir=folder,
    partition='natural',
    label_set='digits',
    evaluate_on='validation',
    local_epochs=1,
  )
  # One of each class's six images; the first pixel says whose it is.
  held_out = np.zeros(3, int)
  for x, y in loaded.test_dataset.as_numpy_iterator():
    np.testing.assert_array_equal(np.bincount(y[:, 0]), np.ones(10))
    owners = np.rint(254 - 255 * x[:, 0, 0, 0]).astype(int)
    held_out = np.bincount(owners, minlength=3)
  assert held_out.sum() == 10
  np.testing.assert_array_equal(loaded.num_examples, 20 - held_out)
  for client, dataset in enumerate(loaded.client_datasets):
    x, _ = next(dataset.as_numpy_iterator())
    np.testing.assert_allclose(x[:, 0, 0, 0], (254 - client) / 255, rtol=1e-6)


if __name__ == '__main__':
  pytest.main([__file__])
