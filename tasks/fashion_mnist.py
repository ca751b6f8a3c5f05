"""Fashion-MNIST from idx files, or through Keras."""

import gzip
import math
import os
import struct
from typing import Optional
import zlib

import numpy as np
import tensorflow as tf

from tasks import task

# Where Debian's package dataset-fashion-mnist puts them.
_DEBIAN_FOLDER = '/usr/share/datasets/fashion-mnist'
_FILES = {
  'train_images': 'train-images-idx3-ubyte',
  'train_labels': 'train-labels-idx1-ubyte',
  'test_images': 't10k-images-idx3-ubyte',
  'test_labels': 't10k-labels-idx1-ubyte',
}


def load(data_dir: Optional[str] = None) -> task.LabelledImages:
  """Loads 60,000 training and 10,000 test images of 28x28 pixels.

  Args:
    data_dir: A folder with the four idx files, plain or with the suffix .gz.
      None takes those of Debian's package `dataset-fashion-mnist` if it is
      installed, else Keras' loader, which downloads them once.

  Returns:
    The images and labels.

  Raises:
    FileNotFoundError: If there is no data, with what to do about it.
    ValueError: If a file is broken.
  """
  if data_dir is None and os.path.isdir(_DEBIAN_FOLDER):
    data_dir = _DEBIAN_FOLDER
  if data_dir is not None:
    arrays = {
      name: read_idx(_find(data_dir, file)) for name, file in _FILES.items()
    }
  else:
    arrays = _load_with_keras()
  for split in ('train', 'test'):
    images, labels = arrays[f'{split}_images'], arrays[f'{split}_labels']
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
      raise ValueError(
        f'the {split} set must have images [n, height, width] and labels'
        f' [n], found shapes {images.shape} and {labels.shape}'
      )
    if not len(labels) or labels.max() > 9:
      raise ValueError(
        f'the {split} labels must be in [0, 10) and not none, found'
        f' {np.unique(labels).tolist()}'
      )
  return task.LabelledImages(
    train_images=arrays['train_images'][..., np.newaxis],
    train_labels=arrays['train_labels'].astype(np.int64),
    test_images=arrays['test_images'][..., np.newaxis],
    test_labels=arrays['test_labels'].astype(np.int64),
    num_classes=10,
    largest_pixel=255,
  )


def read_idx(path: str) -> np.ndarray:
  """Reads a file in the idx format, of unsigned bytes.

  Args:
    path: The file; it is decompressed if its name ends in .gz.

  Returns:
    A uint8 array.

  Raises:
    ValueError: If the file is not a complete file of that kind.
  """
  try:
    with (gzip.open if path.endswith('.gz') else open)(path, 'rb') as file:
      content = file.read()
  except (EOFError, gzip.BadGzipFile, ValueError, zlib.error) as error:
    raise ValueError(f'{path} must be a complete gzip file: {error}') from error
  # Two zero bytes, 8 for unsigned bytes, the number of dimensions, and these.
  if len(content) < 4 or content[:3] != b'\0\0\x08' or not content[3]:
    raise ValueError(
      f'{path} must be an idx file of unsigned bytes, found a header of'
      f' {content[:4]!r}'
    )
  start = 4 + 4 * content[3]
  if len(content) < start:
    raise ValueError(f'{path} must be complete, found {len(content)} bytes')
  shape = struct.unpack(f'>{content[3]}I', content[4:start])
  expected = start + math.prod(shape)
  if len(content) != expected:
    raise ValueError(
      f'{path} must have {expected} bytes, found {len(content)}: download it'
      ' again'
    )
  return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _find(data_dir: str, name: str) -> str:
  for candidate in (name, f'{name}.gz'):
    path = os.path.join(data_dir, candidate)
    if os.path.isfile(path):
      return path
  raise FileNotFoundError(
    f'data_dir must contain {name} or {name}.gz, found neither in'
    f" {data_dir!r}. Debian's package dataset-fashion-mnist installs the"
    f' four files in {_DEBIAN_FOLDER}; without data_dir, Keras downloads them'
  )


def _load_with_keras() -> dict[str, np.ndarray]:
  try:
    train, test = tf.keras.datasets.fashion_mnist.load_data()
  except Exception as error:  # Keras wraps network errors in plain Exception.
    raise FileNotFoundError(
      'fashion_mnist found no files and Keras could not download them'
      f" ({error}). Install Debian's package dataset-fashion-mnist, or put"
      f' {", ".join(f"{f}.gz" for f in _FILES.values())} into a folder and'
      ' pass it as data_dir'
    ) from error
  return {
    'train_images': train[0],
    'train_labels': train[1],
    'test_images': test[0],
    'test_labels': test[1],
  }
