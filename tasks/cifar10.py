"""CIFAR-10 from a NumPy file, from the published batches, or through Keras.

Pixels become numbers in [0, 1], as in every task. Channels are not
standardised: the models for these images normalise after the first convolution.
"""

import os
import pickle
from typing import Optional
import zipfile

import numpy as np
import tensorflow as tf

from tasks import task

_NPZ = 'cifar10.npz'
_BATCHES_FOLDER = 'cifar-10-batches-py'
_BATCHES = {
  'train': [f'data_batch_{i}' for i in range(1, 6)],
  'test': ['test_batch'],
}
_SIDE = 32
_CLASSES = 10
_ADVICE = (
  f'Put one of these into a folder and pass it as data_dir: {_NPZ}, made on a'
  ' machine with network by (x, y), (u, v) ='
  f' tf.keras.datasets.cifar10.load_data() and numpy.savez("{_NPZ}",'
  f' x_train=x, y_train=y, x_test=u, y_test=v); or the folder {_BATCHES_FOLDER}'
  ' of cifar-10-python.tar.gz, "CIFAR-10 python version" on the home page of'
  ' CIFAR-10'
)


def load(data_dir: Optional[str] = None) -> task.LabelledImages:
  """Loads images of 32x32 pixels in three colours, ten classes.

  The whole data set has 50,000 training and 10,000 test images; a file with
  fewer is fine.

  Args:
    data_dir: A folder with `cifar10.npz` (arrays `x_train`, `x_test`, uint8 [n,
      32, 32, 3], and `y_train`, `y_test`, integers [n] or [n, 1]) or else with
      the folder `cifar-10-batches-py` of the published "python version"; or the
      path of either. None is Keras' loader, which downloads them once.

  Returns:
    The images and labels.

  Raises:
    FileNotFoundError: If there is no data, with what to do about it.
    ValueError: If a file is broken, or does not hold what it should.
  """
  if data_dir is None:
    source, arrays = 'Keras', _load_with_keras()
  else:
    source = _find(data_dir)
    read = _read_batches if os.path.isdir(source) else _read_npz
    arrays = read(source)
  checked = {}
  for split in ('train', 'test'):
    checked[split] = _check(source, split, *arrays[split])
  return task.LabelledImages(
    train_images=checked['train'][0],
    train_labels=checked['train'][1],
    test_images=checked['test'][0],
    test_labels=checked['test'][1],
    num_classes=_CLASSES,
    largest_pixel=255,
  )


def _find(data_dir: str) -> str:
  """Returns the NumPy file, or the folder of batches, that is meant.

  Args:
    data_dir: One of them, or the folder that one of them is in.

  Returns:
    Its path.

  Raises:
    FileNotFoundError: If there is neither.
  """
  if os.path.isfile(data_dir):
    return data_dir
  path = os.path.join(data_dir, _NPZ)
  if os.path.isfile(path):
    return path
  for folder in (os.path.join(data_dir, _BATCHES_FOLDER), data_dir):
    if os.path.isfile(os.path.join(folder, *_BATCHES['test'])):
      return folder
  raise FileNotFoundError(
    f'data_dir must contain {_NPZ} or {_BATCHES_FOLDER}, found neither in'
    f' {data_dir!r}. {_ADVICE}. Without data_dir, Keras downloads the images'
  )


def _read_npz(path: str):
  names = {
    split: [f'{kind}_{split}' for kind in 'xy'] for split in ('train', 'test')
  }
  try:
    # Without pickle, so that the file cannot run code.
    with np.load(path, allow_pickle=False) as content:
      return {
        split: [content[name] for name in pair] for split, pair in names.items()
      }
  except KeyError as error:
    raise ValueError(
      f'{path} must have the arrays x_train, y_train, x_test and y_test, found:'
      f' {error.args[0]}'
    ) from error
  # An .npy file opens as an array, which is no context: that is a TypeError or
  # an AttributeError, depending on the version of Python.
  except (
    AttributeError,
    EOFError,
    OSError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
  ) as error:
    raise ValueError(
      f'{path} must be a complete NumPy file of several arrays, found: {error}'
    ) from error


class _ArrayUnpickler(pickle.Unpickler):
  """Loads nothing but arrays, so that a file cannot run code."""

  def find_class(self, module, name):
    if (module, name) in (
      ('_codecs', 'encode'),
      ('numpy', 'dtype'),
      ('numpy', 'ndarray'),
      ('numpy.core.multiarray', '_reconstruct'),
    ):
      return super().find_class(module, name)
    raise pickle.UnpicklingError(f'it has a {module}.{name}')


def _read_batches(folder: str):
  return {
    split: [
      np.concatenate(part)
      for part in zip(*(_read_batch(os.path.join(folder, f)) for f in files))
    ]
    for split, files in _BATCHES.items()
  }


def _read_batch(path: str):
  """Reads one of the published files.

  Args:
    path: The file.

  Returns:
    Images uint8 [n, 32, 32, 3] and labels int64 [n].

  Raises:
    FileNotFoundError: If there is none.
    ValueError: If it holds something else.
  """
  try:
    with open(path, 'rb') as file:
      content = _ArrayUnpickler(file, encoding='bytes').load()
    pixels, labels = content[b'data'], content[b'labels']
    images = np.reshape(pixels, (-1, 3, _SIDE, _SIDE)).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.asarray(labels)
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f'data_dir must have all files of {_BATCHES_FOLDER}, found no {path}'
    ) from error
  # A damaged pickle can raise nearly anything.
  except Exception as error:
    raise ValueError(
      f'{path} must be a complete file of {_BATCHES_FOLDER}, found: {error!r}'
    ) from error


def _check(source: str, split: str, images: np.ndarray, labels: np.ndarray):
  """Checks that images and labels are what they should be.

  Args:
    source: Where they come from, for the message.
    split: 'train' or 'test', for the message.
    images: Uint8 [n, 32, 32, 3].
    labels: Integers [n] or, as Keras has them, [n, 1].

  Returns:
    The images, and the labels as int64 [n].

  Raises:
    ValueError: If a shape, a dtype or a label is another.
  """
  if labels.ndim == 2 and labels.shape[1] == 1:
    labels = labels[:, 0]  # As Keras has them.
  if (
    images.dtype != np.uint8
    or images.ndim != 4
    or images.shape[1:] != (_SIDE, _SIDE, 3)
    or labels.shape != images.shape[:1]
  ):
    raise ValueError(
      f'the {split} set of {source} must have uint8 images [n, {_SIDE},'
      f' {_SIDE}, 3] and labels [n], found {images.dtype} {images.shape} and'
      f' {labels.shape}'
    )
  if not np.issubdtype(labels.dtype, np.integer):
    raise ValueError(
      f'the {split} labels of {source} must be integers, found {labels.dtype}'
    )
  if not len(labels) or labels.min() < 0 or labels.max() >= _CLASSES:
    raise ValueError(
      f'the {split} labels of {source} must be in [0, {_CLASSES}) and not none,'
      f' found {np.unique(labels).tolist()}'
    )
  return images, labels.astype(np.int64)


def _load_with_keras():
  try:
    train, test = tf.keras.datasets.cifar10.load_data()
  except Exception as error:  # Keras wraps network errors in plain Exception.
    raise FileNotFoundError(
      'cifar10 found no files and Keras could not download them'
      f' ({error}). {_ADVICE}'
    ) from error
  return {'train': train, 'test': test}
