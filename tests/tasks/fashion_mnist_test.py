"""Tests of the reader of idx files, on files written here."""

import numpy as np
import pytest

import tasks
from tasks import fashion_mnist
from tests.tasks import data_files


def _write(folder, *, compress=False, num_train=400, labels=None):
  generator = np.random.default_rng(0)
  for split, n in (('train', num_train), ('t10k', 50)):
    images = generator.integers(0, 256, (n, 28, 28), np.uint8)
    classes = np.arange(n) % 10 if labels is None else labels
    data_files.write_idx(folder, split, images, classes, compress=compress)


@pytest.mark.parametrize('compress', [False, True])
def test_reads_plain_and_compressed_files(tmp_path, compress):
  _write(tmp_path, compress=compress)
  data = fashion_mnist.load(str(tmp_path))
  expected = np.random.default_rng(0).integers(0, 256, (400, 28, 28), np.uint8)
  np.testing.assert_array_equal(data.train_images[..., 0], expected)
  np.testing.assert_array_equal(data.train_labels, np.arange(400) % 10)
  assert data.test_images.shape == (50, 28, 28, 1)


def test_makes_a_task_that_takes_what_it_needs(tmp_path):
  _write(tmp_path)
  task = tasks.load_task(
    'fashion_mnist',
    data_dir=str(tmp_path),
    num_clients=20,
    examples_per_client=8,
    gamma=0.5,
  )
  assert task.num_examples.sum() == 160
  x, y = next(task.client_datasets[0].as_numpy_iterator())
  assert x.shape[1:] == (28, 28, 1) and x.dtype == np.float32
  assert 0 <= x.min() and 0.9 < x.max() <= 1 and y.shape[1] == 1
  assert task.keras_model_fn().count_params() == 20_522


def test_a_missing_file_says_what_to_install(tmp_path):
  with pytest.raises(FileNotFoundError, match='dataset-fashion-mnist'):
    fashion_mnist.load(str(tmp_path))


def test_without_files_and_network_the_error_says_what_to_do(monkeypatch):
  def fail():
    raise Exception('URL fetch failure')

  monkeypatch.setattr(fashion_mnist, '_DEBIAN_FOLDER', '/does/not/exist')
  monkeypatch.setattr(
    fashion_mnist.tf.keras.datasets.fashion_mnist, 'load_data', fail
  )
  with pytest.raises(FileNotFoundError, match='pass it as data_dir'):
    fashion_mnist.load()


@pytest.mark.parametrize('compress', [False, True])
def test_a_truncated_file_is_named(tmp_path, compress):
  _write(tmp_path, compress=compress)
  name = 'train-images-idx3-ubyte' + ('.gz' if compress else '')
  content = (tmp_path / name).read_bytes()
  (tmp_path / name).write_bytes(content[: len(content) // 2])
  with pytest.raises(ValueError, match=name):
    fashion_mnist.load(str(tmp_path))


@pytest.mark.parametrize(
  'content', [b'', b'\0\0', b'<html>not found</html>', b'\0\0\x08\x03\0\0']
)
def test_a_file_of_another_kind_is_named(tmp_path, content):
  _write(tmp_path)
  (tmp_path / 'train-labels-idx1-ubyte').write_bytes(content)
  with pytest.raises(ValueError, match='train-labels-idx1-ubyte must'):
    fashion_mnist.load(str(tmp_path))


def test_labels_and_images_that_do_not_match_are_an_error(tmp_path):
  _write(tmp_path, labels=np.zeros(3, np.uint8))
  with pytest.raises(ValueError, match='the train set must have images'):
    fashion_mnist.load(str(tmp_path))


def test_labels_outside_the_classes_are_an_error(tmp_path):
  _write(tmp_path, num_train=50, labels=np.full(50, 12, np.uint8))
  with pytest.raises(ValueError, match=r'in \[0, 10\).* found \[12\]'):
    fashion_mnist.load(str(tmp_path))


if __name__ == '__main__':
  pytest.main([__file__])
