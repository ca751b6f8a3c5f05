"""Writes data sets of any size in the formats that they are published in."""

from collections.abc import Iterable, Mapping
import contextlib
import gzip
import pathlib
import sqlite3
import struct

import numpy as np
import tensorflow as tf


def idx(array: np.ndarray) -> bytes:
  """Returns the content of a file of MNIST's format.

  Args:
    array: uint8 values of any shape.
  """
  header = struct.pack('>BBBB', 0, 0, 8, array.ndim)
  return header + struct.pack(f'>{array.ndim}I', *array.shape) + array.tobytes()


def write_idx(
  folder: pathlib.Path,
  split: str,
  images: np.ndarray,
  labels: np.ndarray,
  *,
  compress: bool = False,
) -> None:
  """Writes the two files of a split of MNIST or Fashion-MNIST.

  Args:
    folder: Where to.
    split: 'train' or 't10k'.
    images: uint8 [n, height, width].
    labels: Integers [n].
    compress: By gzip.
  """
  for name, array in (('images-idx3', images), ('labels-idx1', labels)):
    content = idx(array.astype(np.uint8))
    path = folder / f'{split}-{name}-ubyte{".gz" if compress else ""}'
    path.write_bytes(gzip.compress(content) if compress else content)


def emnist_example(pixels: np.ndarray, label: int) -> bytes:
  """Returns an image as it is in TFF's file of EMNIST.

  Args:
    pixels: Floats [28, 28], 1 where there is no ink.
    label: The class among 62.
  """
  feature = {
    'pixels': tf.train.Feature(
      float_list=tf.train.FloatList(value=pixels.ravel())
    ),
    'label': tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
  }
  return tf.train.Example(
    features=tf.train.Features(feature=feature)
  ).SerializeToString()


def write_emnist(
  folder: pathlib.Path,
  splits: Mapping[str, Mapping[str, Iterable[bytes]]],
  *,
  announced_extra: int = 0,
) -> pathlib.Path:
  """Writes `emnist_all.sqlite` and returns its path.

  Args:
    folder: Where to.
    splits: Examples by writer, by split such as 'all_train'.
    announced_extra: By how much the announced numbers of examples are wrong.
  """
  path = folder / 'emnist_all.sqlite'
  with contextlib.closing(sqlite3.connect(path)) as connection:
    connection.execute(
      'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT'
      ' NULL, serialized_example_proto BLOB NOT NULL)'
    )
    connection.execute(
      'CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name'
      ' TEXT NOT NULL, num_examples INTEGER NOT NULL)'
    )
    for split, writers in splits.items():
      for writer, examples in writers.items():
        rows = [(split, writer, example) for example in examples]
        connection.executemany('INSERT INTO examples VALUES (?, ?, ?)', rows)
        connection.execute(
          'INSERT INTO client_metadata VALUES (?, ?, ?)',
          (writer, split, len(rows) + announced_extra),
        )
    connection.commit()
  return path
