"""Federated EMNIST through TFF's own loader.

In TFF's file 1.0 is the background and 0.0 is ink; here ink is 1.0 and the
background 0.0, so that an empty pixel contributes nothing to a layer's input.
"""

import contextlib
import os
import pathlib
import sqlite3
import string
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import task

_FILE_NAME = 'emnist_all.sqlite'
_BATCH = 4096
# TFF's 62 classes, in order.
_CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
# Letters that look alike in both cases: EMNIST "Balanced" and "ByMerge" count
# them as upper case (Cohen et al., 2017, arXiv 1702.05373).
_MERGED = 'cijklmopsuvwxyz'


def label_map(label_set: str) -> np.ndarray:
  """Says which class each of TFF's labels becomes.

  Args:
    label_set: 'digits' (10 classes), 'byclass' (62: digits, upper case, lower
      case) or 'balanced' (47: as EMNIST Balanced, where the lower case of
      c i j k l m o p s u v w x y z counts as upper case).

  Returns:
    Int64 [10] or [62].

  Raises:
    ValueError: If the label set is unknown.
  """
  if label_set == 'digits':
    return np.arange(10)
  if label_set == 'byclass':
    return np.arange(len(_CHARACTERS))
  if label_set == 'balanced':
    kept = [c for c in _CHARACTERS if c not in _MERGED]
    return np.array(
      [kept.index(c.upper() if c in _MERGED else c) for c in _CHARACTERS]
    )
  raise ValueError(
    f'label_set must be one of balanced, byclass, digits, found {label_set!r}'
  )


def load(
  data_dir: Optional[str] = None, label_set: str = 'balanced'
) -> task.LabelledImages:
  """Loads all writers' images of 28x28 pixels.

  Args:
    data_dir: The folder with emnist_all.sqlite; None is TFF's default, .tff in
      the home folder. If the file is missing, TFF downloads it to there.
    label_set: 'digits', 'byclass' or 'balanced', see `label_map`.

  Returns:
    The images and labels; the writers, sorted by id, are the owners.

  Raises:
    FileNotFoundError: If there is no file and it cannot be downloaded.
    ValueError: If the file is broken, or the label set is unknown.
  """
  mapping = label_map(label_set)
  folder = data_dir or os.path.join(os.path.expanduser('~'), '.tff')
  path = os.path.join(folder, _FILE_NAME)
  kind = 'digits_only' if label_set == 'digits' else 'all'
  try:
    train, test = _client_data(folder, path, data_dir, kind)
    expected = [_count(path, f'{kind}_{split}') for split in ('train', 'test')]
    train_x, train_y, owners = _read(train)
    test_x, test_y, _ = _read(test)
  except (sqlite3.Error, tf.errors.OpError) as error:
    raise ValueError(_broken(path, str(error))) from error
  if expected != [len(train_y), len(test_y)]:
    raise ValueError(
      _broken(
        path,
        f'it announces {expected} examples and has'
        f' {[len(train_y), len(test_y)]}',
      )
    )
  if max(train_y.max(), test_y.max()) >= len(mapping):
    raise ValueError(_broken(path, f'a label is >= {len(mapping)}'))
  return task.LabelledImages(
    train_images=train_x,
    train_labels=mapping[train_y],
    test_images=test_x,
    test_labels=mapping[test_y],
    num_classes=int(mapping.max()) + 1,
    largest_pixel=255,
    train_owners=owners,
  )


def _client_data(folder: str, path: str, data_dir: Optional[str], kind: str):
  """Loads TFF's data, with an error that helps if there is no file.

  Args:
    folder: Where the file is or will be.
    path: The file.
    data_dir: The folder as it was given; None for TFF's default.
    kind: 'digits_only' or 'all'.

  Returns:
    TFF's `ClientData` of training and test.

  Raises:
    FileNotFoundError: If there is no file and it cannot be downloaded.
    ValueError: If the file has no examples.
  """
  if os.path.isfile(path):
    # A download that broke off leaves a file under the final name.
    for split in ('train', 'test'):
      if not _count(path, f'{kind}_{split}'):
        raise ValueError(_broken(path, f'no examples in {kind}_{split}'))
  try:
    return tff.simulation.datasets.emnist.load_data(
      only_digits=kind == 'digits_only', cache_dir=data_dir
    )
  except OSError as error:  # urllib's errors are, too.
    raise FileNotFoundError(
      f'emnist must find {_FILE_NAME} in {folder!r} and could not download'
      f' it ({getattr(error, "reason", error)}). On a machine with network,'
      ' tff.simulation.datasets.emnist.load_data(cache_dir=FOLDER) creates'
      f' FOLDER/{_FILE_NAME}: copy that file into {folder!r}, or pass its'
      ' folder as data_dir'
    ) from error


def _count(path: str, split: str) -> int:
  """Returns how many examples the file says it has."""
  uri = f'{pathlib.Path(path).absolute().as_uri()}?mode=ro'
  with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
    row = connection.execute(
      'SELECT SUM(num_examples) FROM client_metadata WHERE split_name = ?',
      (split,),
    ).fetchone()
  return row[0] or 0


def _broken(path: str, reason: str) -> str:
  return (
    f"{path} must be the complete file of TFF's emnist.load_data, found:"
    f' {reason}. Delete it and download it again'
  )


def _read(client_data):
  """Returns all clients' data, read in one pass: a pass for each is slower."""
  # Sorted already; the position is the owner's number.
  ids = list(client_data.client_ids)

  def examples(number, client_id):
    return client_data.serializable_dataset_fn(client_id).map(
      lambda e: (_to_bytes(e['pixels']), e['label'], number)
    )

  dataset = tf.data.Dataset.from_tensor_slices(
    (np.arange(len(ids), dtype=np.int64), ids)
  )
  batches = list(dataset.flat_map(examples).batch(_BATCH).as_numpy_iterator())
  if not batches:
    return np.zeros([0, 28, 28, 1], np.uint8), *np.zeros([2, 0], np.int64)
  images, labels, owners = (np.concatenate(part) for part in zip(*batches))
  return images, labels.astype(np.int64), owners


def _to_bytes(pixels: tf.Tensor) -> tf.Tensor:
  # The scans have 8 bits, so this loses nothing and needs a quarter of the
  # memory: 0.5 instead of 2.1 GB for the 62 classes.
  inverted = tf.round((1.0 - pixels) * 255.0)
  return tf.cast(tf.clip_by_value(inverted, 0.0, 255.0), tf.uint8)[..., None]
