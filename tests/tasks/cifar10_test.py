"""Tests of the reader of CIFAR-10, on files written here."""

import os
import pickle

import numpy as np
import pytest

import tasks
from tasks import cifar10


def _arrays(num_train=400, num_test=50):
  generator = np.random.default_rng(0)
  result = {}
  for split, n in (('train', num_train), ('test', num_test)):
    result[f'x_{split}'] = generator.integers(
      0, 256, (n, 32, 32, 3), dtype=np.uint8
    )
    result[f'y_{split}'] = (np.arange(n) % 10).astype(np.uint8)
  return result


def _write_npz(folder, **changes):
  arrays = {**_arrays(), **changes}
  path = folder / 'cifar10.npz'
  np.savez(path, **{k: a for k, a in arrays.items() if a is not None})
  return path


def _write_batches(folder, arrays):
  """Writes the published format: rows of all red, green, then blue pixels."""
  folder.mkdir()
  names = [f'data_batch_{i}' for i in range(1, 6)]
  parts = [
    *zip(
      names,
      np.split(arrays['x_train'], 5),
      np.split(arrays['y_train'], 5),
    ),
    ('test_batch', arrays['x_test'], arrays['y_test']),
  ]
  for name, images, labels in parts:
    content = {
      b'data': images.transpose(0, 3, 1, 2).reshape(len(images), -1),
      b'labels': labels.tolist(),
      b'batch_label': b'some text',
    }
    (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def _check(data, arrays):
  np.testing.assert_array_equal(data.train_images, arrays['x_train'])
  np.testing.assert_array_equal(data.train_labels, arrays['y_train'].ravel())
  np.testing.assert_array_equal(data.test_images, arrays['x_test'])
  np.testing.assert_array_equal(data.test_labels, arrays['y_test'].ravel())
  assert data.train_images.dtype == np.uint8
  assert data.train_labels.dtype == data.test_labels.dtype == np.int64
  assert (data.num_classes, data.largest_pixel) == (10, 255)
  assert data.train_owners is None


@pytest.mark.parametrize('name', ['', 'cifar10.npz'])
def test_reads_a_numpy_file_from_its_folder_or_by_its_path(tmp_path, name):
  # The names of the classes, which some files have, are not looked at.
  _write_npz(tmp_path, classes=np.array(['airplane', 'automobile']))
  _check(cifar10.load(str(tmp_path / name)), _arrays())


def test_labels_may_be_a_column(tmp_path):
  column = (np.arange(400) % 10)[:, np.newaxis]
  _write_npz(tmp_path, y_train=column)
  _check(cifar10.load(str(tmp_path)), {**_arrays(), 'y_train': column})


@pytest.mark.parametrize('name', ['', 'cifar-10-batches-py'])
def test_reads_the_published_batches(tmp_path, name):
  _write_batches(tmp_path / 'cifar-10-batches-py', _arrays())
  _check(cifar10.load(str(tmp_path / name)), _arrays())


def test_without_data_dir_keras_loads_them(monkeypatch):
  arrays = _arrays()

  def load_data():
    return tuple(
      (arrays[f'x_{split}'], arrays[f'y_{split}'][:, np.newaxis])
      for split in ('train', 'test')
    )

  monkeypatch.setattr(cifar10.tf.keras.datasets.cifar10, 'load_data', load_data)
  _check(cifar10.load(), arrays)


def test_makes_a_task_that_takes_what_it_needs(tmp_path):
  _write_npz(tmp_path)
  task = tasks.load_task(
    'cifar10',
    data_dir=str(tmp_path),
    num_clients=20,
    examples_per_client=8,
    gamma=0.5,
  )
  assert task.num_examples.sum() == 160
  x, y = next(task.client_datasets[0].as_numpy_iterator())
  assert x.shape[1:] == (32, 32, 3) and x.dtype == np.float32
  assert 0 <= x.min() and 0.9 < x.max() <= 1 and y.shape[1] == 1
  assert task.parameters['model'] == 'small_resnet'
  assert task.keras_model_fn().count_params() == 77_850


def test_a_missing_file_says_what_to_put_where(tmp_path):
  with pytest.raises(
    FileNotFoundError,
    match=r'must contain cifar10\.npz or cifar-10-batches-py.*Put one of.*'
    r'Keras downloads',
  ):
    cifar10.load(str(tmp_path))


def test_without_files_and_network_the_error_says_what_to_do(monkeypatch):
  def fail():
    raise Exception('URL fetch failure')

  monkeypatch.setattr(cifar10.tf.keras.datasets.cifar10, 'load_data', fail)
  with pytest.raises(
    FileNotFoundError, match=r'URL fetch failure.*pass it as data_dir'
  ):
    cifar10.load()


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'y_test': None}, 'must have the arrays x_train, .*found: .*y_test'),
    (
      {'x_train': np.zeros([400, 32, 32, 3], np.float32)},
      'the train set of .* must have uint8 images .* found float32',
    ),
    (
      {'x_test': np.zeros([50, 3, 32, 32], np.uint8)},
      r'the test set of .* found uint8 \(50, 3, 32, 32\)',
    ),
    (
      {'y_train': np.zeros(399, np.uint8)},
      r'the train set of .* found .*\(399,\)',
    ),
    ({'y_train': np.zeros(400)}, 'labels of .* must be integers, found float'),
    (
      {'y_test': np.full(50, 10)},
      r'the test labels of .* must be in \[0, 10\).* found \[10\]',
    ),
    ({'y_test': np.full(50, -1)}, r'in \[0, 10\).* found \[-1\]'),
    (
      {
        'x_test': np.zeros([0, 32, 32, 3], np.uint8),
        'y_test': np.zeros(0, int),
      },
      r'the test labels of .* not none, found \[\]',
    ),
  ],
)
def test_a_file_with_other_contents_is_an_error(tmp_path, changes, message):
  _write_npz(tmp_path, **changes)
  with pytest.raises(ValueError, match=message):
    cifar10.load(str(tmp_path))


@pytest.mark.parametrize('kind', ['truncated', 'empty', 'html', 'npy'])
def test_a_file_of_another_kind_is_named(tmp_path, kind):
  path = _write_npz(tmp_path)
  if kind == 'truncated':
    path.write_bytes(path.read_bytes()[:100_000])
  elif kind == 'npy':
    with open(path, 'wb') as file:
      np.save(file, np.zeros(3))
  else:
    path.write_bytes({'empty': b'', 'html': b'<html>not found</html>'}[kind])
  with pytest.raises(ValueError, match=r'cifar10\.npz must be a complete'):
    cifar10.load(str(tmp_path))


def test_a_missing_batch_is_named(tmp_path):
  folder = tmp_path / 'cifar-10-batches-py'
  _write_batches(folder, _arrays())
  (folder / 'data_batch_3').unlink()
  with pytest.raises(FileNotFoundError, match='data_dir must .*data_batch_3'):
    cifar10.load(str(tmp_path))


@pytest.mark.parametrize(
  'content',
  [b'', b'<html>', pickle.dumps({b'data': np.zeros([2, 5])}), None],
  ids=['empty', 'html', 'other', 'truncated'],
)
def test_a_damaged_batch_is_named(tmp_path, content):
  folder = tmp_path / 'cifar-10-batches-py'
  _write_batches(folder, _arrays())
  path = folder / 'data_batch_2'
  path.write_bytes(path.read_bytes()[:999] if content is None else content)
  with pytest.raises(ValueError, match='data_batch_2 must be a complete file'):
    cifar10.load(str(tmp_path))


class _RunsCode:
  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return os.mkdir, (self._path,)


def test_a_batch_cannot_run_code(tmp_path):
  folder = tmp_path / 'cifar-10-batches-py'
  _write_batches(folder, _arrays())
  trace = tmp_path / 'trace'
  content = pickle.dumps(_RunsCode(str(trace)))
  (folder / 'data_batch_1').write_bytes(content)
  with pytest.raises(ValueError, match='data_batch_1 must .*mkdir'):
    cifar10.load(str(tmp_path))
  assert not trace.exists()
  pickle.loads(content)
  assert trace.exists()  # It would have run.


if __name__ == '__main__':
  pytest.main([__file__])
