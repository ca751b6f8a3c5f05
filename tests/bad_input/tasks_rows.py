"""Bad arguments, partitions and data files of tasks."""

import gzip
import pickle
import shutil
import sqlite3

import numpy as np
import tensorflow as tf

import tasks
from tasks import cifar10
from tasks import emnist
from tasks import fashion_mnist
from tasks import partition
from tasks import task
from tasks import validation
from tests.bad_input import rows

_NAN = float('nan')
_LABELS = np.repeat(np.arange(4), 10)
_MODELS = tasks.models


def _images(**bad):
  good = {
    'train_images': np.zeros([4, 8, 8, 1], np.uint8),
    'train_labels': np.arange(4),
    'test_images': np.zeros([4, 8, 8, 1], np.uint8),
    'test_labels': np.arange(4),
    'num_classes': 4,
    'largest_pixel': 16,
  }
  return task.LabelledImages(**{**good, **bad})


def _file(load, name, content):
  def call(folder):
    (folder / name).write_bytes(content)
    return load(folder)

  return call


def _unreadable(load, name):
  """A folder stands where the file should be, as root may read any file."""

  def call(folder):
    (folder / name).mkdir()
    return load(folder)

  return call


def _load_cifar10(folder):
  return cifar10.load(str(folder))


def _cifar10_npz(**changes):
  def call(folder):
    arrays = {}
    for split in ('train', 'test'):
      arrays[f'x_{split}'] = np.zeros([3, 32, 32, 3], np.uint8)
      arrays[f'y_{split}'] = np.arange(3)
    np.savez(folder / 'cifar10.npz', **{**arrays, **changes})
    return cifar10.load(str(folder))

  return call


def _idx(*shape, content=None):
  header = bytes([0, 0, 8, len(shape)])
  sizes = b''.join(int(size).to_bytes(4, 'big') for size in shape)
  return header + sizes + (content or bytes(int(np.prod(shape))))


def _fashion_mnist(**changes):
  def call(folder):
    content = {
      'train-images-idx3-ubyte': _idx(2, 28, 28),
      'train-labels-idx1-ubyte': _idx(2),
      't10k-images-idx3-ubyte': _idx(2, 28, 28),
      't10k-labels-idx1-ubyte': _idx(2),
    }
    for name, data in {**content, **changes}.items():
      if data is not None:
        (folder / name).write_bytes(data)
    return fashion_mnist.load(str(folder))

  return call


def _read_idx(name, content):
  def call(folder):
    (folder / name).write_bytes(content)
    return fashion_mnist.read_idx(str(folder / name))

  return call


def _load_emnist(folder):
  return emnist.load(str(folder))


def _emnist_without_examples(folder):
  connection = sqlite3.connect(folder / 'emnist_all.sqlite')
  connection.execute(
    'CREATE TABLE client_metadata (client_id TEXT, split_name TEXT,'
    ' num_examples INTEGER)'
  )
  connection.commit()
  connection.close()
  return emnist.load(str(folder))


def _assemble(**bad):
  labels = np.arange(4)
  good = {
    'name': 'small',
    'data': _images(),
    'partition': partition.iid(labels, 2),
    'model': 'mlp',
  }
  return task.assemble(**{**good, **bad})


def _cifar_batches(name, content):
  def call(folder):
    batches = folder / 'cifar-10-batches-py'
    batches.mkdir()
    good = pickle.dumps(
      {b'data': np.zeros([2, 3072], np.uint8), b'labels': [0, 1]}
    )
    for number in range(1, 6):
      (batches / f'data_batch_{number}').write_bytes(good)
    (batches / 'test_batch').write_bytes(good)
    if content is None:
      (batches / name).unlink()
    else:
      (batches / name).write_bytes(content)
    return cifar10.load(str(folder))

  return call


def _copied(folder):
  """A file of something else under the name of the data."""
  shutil.copy(__file__, folder / 'emnist_all.sqlite')
  return emnist.load(str(folder))


_BAD_NPZ = (
  '{folder}/cifar10.npz must be a complete NumPy file of several arrays'
)

ROWS = (
  *rows.table(
    'tasks.load_task',
    tasks.load_task,
    {'name': 'digits', 'num_clients': 3},
    (
      'an unknown task',
      {'name': 'imagenet'},
      ValueError,
      'name must be one of cifar10, digits, emnist, fashion_mnist, found'
      " 'imagenet'",
    ),
    (
      'an unknown partition',
      {'partition': 'fair'},
      ValueError,
      "partition must be one of ... found 'fair'",
    ),
    (
      'data that are not used',
      {'data_dir': 'x'},
      ValueError,
      'data_dir must be given with task cifar10 or emnist or fashion_mnist'
      " only, found data_dir='x' with task digits",
    ),
    (
      'gamma of another partition',
      {'gamma': 0.9, 'partition': 'iid'},
      ValueError,
      'gamma must be given with partition bipartite only, found gamma=0.9 with'
      ' partition iid',
    ),
    (
      'writers of no writers',
      {'partition': 'natural'},
      ValueError,
      'partition natural must be used with task emnist, found task digits',
    ),
    (
      'an unknown evaluation',
      {'evaluate_on': 'train'},
      ValueError,
      "evaluate_on must be one of test, validation, found 'train'",
    ),
    (
      'zero clients',
      {'num_clients': 0},
      ValueError,
      'num_clients must be >= 1, found 0',
    ),
    (
      'more clients than examples',
      {'num_clients': 10_000, 'partition': 'iid'},
      ValueError,
      'num_clients must be <= the number of examples (1438), found 10000',
    ),
    (
      'gamma NaN',
      {'gamma': _NAN},
      ValueError,
      'gamma must be in [0, 1], found nan',
    ),
    (
      'images that are too small for the model',
      {'model': 'small_cnn'},
      ValueError,
      'model small_cnn must get images of at least 13x13, found 8x8',
    ),
    (
      'a negative seed',
      {'seed': -1},
      ValueError,
      'seed must be >= 0, found -1',
    ),
  ),
  *rows.table(
    'tasks.task.assemble',
    _assemble,
    {},
    (
      'batches of 0',
      {'batch_size': 0},
      ValueError,
      'batch_size must be >= 1, found 0',
    ),
    (
      'half an epoch',
      {'local_epochs': 0.5},
      TypeError,
      'local_epochs must be an integer, found 0.5',
    ),
    (
      'a mask by its name',
      {'mask_absent_classes': 'yes'},
      TypeError,
      "mask_absent_classes must be a bool, found 'yes'",
    ),
    (
      'an unknown model',
      {'model': 'gpt'},
      ValueError,
      "model must be one of mlp, ... found 'gpt'",
    ),
  ),
  *rows.table(
    'tasks.partition.bipartite',
    partition.bipartite,
    {'labels': _LABELS, 'num_clients': 4, 'gamma': 0.5},
    (
      'a class with too few images',
      {
        'labels': np.repeat([0, 1, 2, 3], [10, 10, 10, 1]),
        'class_ratio': 1.0,
        'examples_per_client': 4,
      },
      ValueError,
      'examples_per_client needs more examples than there are: found class 3'
      ' (needed 4, available 1)',
    ),
    (
      'more examples than there are',
      {'examples_per_client': 11},
      ValueError,
      'examples_per_client needs more examples than there are: found class 0'
      ' (needed 11, available 10)',
    ),
    (
      'fewer examples than clients',
      {'num_clients': 100, 'examples_per_client': 1, 'gamma': 0.99},
      ValueError,
      'examples_per_client must give every client at least one example, found',
    ),
    (
      'one class',
      {'labels': np.zeros(10, int)},
      ValueError,
      'num_classes must be >= 2, found 1',
    ),
    (
      'no labels',
      {'labels': []},
      ValueError,
      'labels must be a vector of at least one entry, found (0,)',
    ),
    (
      'labels out of range',
      {'num_classes': 3},
      ValueError,
      'labels must be in [0, 3), found 0 ... 3',
    ),
    (
      'labels that are no integers',
      {'labels': _LABELS / 2},
      TypeError,
      'labels must be integers, found float64',
    ),
    (
      'gamma 1.1',
      {'gamma': 1.1},
      ValueError,
      'gamma must be in [0, 1], found 1.1',
    ),
    (
      'ratio 0',
      {'class_ratio': 0},
      ValueError,
      'class_ratio must be in (0, 1], found 0',
    ),
  ),
  *rows.table(
    'tasks.partition.dirichlet',
    partition.dirichlet,
    {'labels': _LABELS, 'num_clients': 4},
    (
      'alpha 0',
      {'alpha': 0},
      ValueError,
      'alpha must be finite and >= 0.001, found 0',
    ),
    (
      'alpha as text',
      {'alpha': 'low'},
      TypeError,
      "alpha must be a number, found 'low'",
    ),
    (
      'a negative label',
      {'labels': [-1, 0]},
      ValueError,
      'labels must be in [0, 1), found -1 ... 0',
    ),
  ),
  *rows.table(
    'tasks.partition.iid',
    partition.iid,
    {'labels': _LABELS, 'num_clients': 4},
    (
      'more examples than there are',
      {'examples_per_client': 11},
      ValueError,
      'examples_per_client * num_clients must be <= the number of examples'
      ' (40), found 11 * 4',
    ),
  ),
  *rows.table(
    'tasks.partition.by_owner',
    partition.by_owner,
    {'labels': _LABELS, 'owners': _LABELS},
    (
      'more clients than owners',
      {'num_clients': 5},
      ValueError,
      'num_clients must be <= the number of natural clients (4), found 5',
    ),
    (
      'an owner without examples',
      {'owners': _LABELS * 2},
      ValueError,
      'owners must each have an example, 1 has none',
    ),
    (
      'owners as text',
      {'owners': _LABELS.astype(str)},
      TypeError,
      'owners must be integers, found <U21',
    ),
    (
      'a negative owner',
      {'owners': _LABELS - 1},
      ValueError,
      'owners must be >= 0, found -1',
    ),
    (
      'too few owners',
      {'owners': [0]},
      ValueError,
      'owners must have one entry for each label, found shape (1,) for (40,)',
    ),
  ),
  *rows.table(
    'tasks.validation.hold_out',
    validation.hold_out,
    {'data': _images()},
    (
      'classes with one image each',
      {},
      ValueError,
      'data must have a class with at least two training images, found none',
    ),
  ),
  *rows.table(
    'tasks.models.get_builder',
    _MODELS.get_builder,
    {'name': 'mlp'},
    (
      'another',
      {'name': 'gpt'},
      ValueError,
      "model must be one of mlp, ... found 'gpt'",
    ),
  ),
  *(
    row
    for name, smallest in (
      ('mlp', 1),
      ('small_cnn', 13),
      ('paper_emnist_cnn', 4),
      ('paper_fashion_cnn', 4),
      ('small_resnet', 1),
      ('preact_resnet18', 1),
    )
    for row in rows.table(
      f'tasks.models.{name}',
      getattr(_MODELS, name),
      {'input_shape': (28, 28, 1), 'num_classes': 10},
      (
        'no pixels',
        {'input_shape': (0, 0, 1)},
        ValueError,
        f'model {name} must get images of at least {smallest}x{smallest}, found'
        ' 0x0',
      ),
      (
        'no classes',
        {'num_classes': 0},
        ValueError,
        'num_classes must be >= 1, found 0',
      ),
    )
  ),
  *rows.table(
    'tasks.models.with_class_mask',
    _MODELS.with_class_mask,
    {
      'model': tf.keras.Sequential(
        [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(3)]
      ),
      'num_classes': 3,
    },
    (
      'a model of other classes',
      {'num_classes': 4},
      ValueError,
      'model must end in num_classes=4 logits, found 3',
    ),
  ),
  *rows.table(
    'tasks.emnist.label_map',
    emnist.label_map,
    {'label_set': 'digits'},
    (
      'another',
      {'label_set': 'letters'},
      ValueError,
      "label_set must be one of balanced, byclass, digits, found 'letters'",
    ),
  ),
  *(
    rows.Row(what, case, call, error, message)
    for what, case, call, error, message in (
      (
        'tasks.cifar10.load',
        'an empty folder',
        _load_cifar10,
        FileNotFoundError,
        'data_dir must contain cifar10.npz or cifar-10-batches-py, found'
        ' neither in ',
      ),
      (
        'tasks.cifar10.load',
        'what cannot be read',
        _unreadable(_load_cifar10, 'cifar10.npz'),
        FileNotFoundError,
        'data_dir must contain cifar10.npz or cifar-10-batches-py, found'
        ' neither in ',
      ),
      (
        'tasks.cifar10.load',
        'an empty file',
        _file(_load_cifar10, 'cifar10.npz', b''),
        ValueError,
        _BAD_NPZ,
      ),
      (
        'tasks.cifar10.load',
        'a foreign file',
        _file(_load_cifar10, 'cifar10.npz', b'PK\x03\x04not a zip'),
        ValueError,
        _BAD_NPZ,
      ),
      (
        'tasks.cifar10.load',
        'an array missing',
        _file(
          _load_cifar10, 'cifar10.npz', b'\x93NUMPY\x01\x00v\x00{truncated'
        ),
        ValueError,
        _BAD_NPZ,
      ),
      (
        'tasks.cifar10.load',
        'a label out of range',
        _cifar10_npz(y_test=np.array([0, 10, 1])),
        ValueError,
        'the test labels of {folder}/cifar10.npz must be in [0, 10) and not'
        ' none, found [0, 1, 10]',
      ),
      (
        'tasks.cifar10.load',
        'no example',
        _cifar10_npz(
          x_train=np.zeros([0, 32, 32, 3], np.uint8), y_train=np.zeros(0, int)
        ),
        ValueError,
        'the train labels of {folder}/cifar10.npz must be in [0, 10) and not'
        ' none, found []',
      ),
      (
        'tasks.cifar10.load',
        'pixels of another kind',
        _cifar10_npz(x_train=np.zeros([3, 32, 32, 3])),
        ValueError,
        'the train set of {folder}/cifar10.npz must have uint8 images [n, 32,'
        ' 32, 3] and labels [n], found float64 (3, 32, 32, 3) and (3,)',
      ),
      (
        'tasks.cifar10.load',
        'a truncated batch',
        _cifar_batches('data_batch_2', b'\x80\x04\x95'),
        ValueError,
        '{folder}/cifar-10-batches-py/data_batch_2 must be a complete file of',
      ),
      (
        'tasks.cifar10.load',
        'a batch that runs code',
        _cifar_batches('test_batch', pickle.dumps({b'data': shutil.rmtree})),
        ValueError,
        '{folder}/cifar-10-batches-py/test_batch must be a complete file of'
        " cifar-10-batches-py, found: UnpicklingError('it has a shutil.rmtree",
      ),
      (
        'tasks.cifar10.load',
        'a missing batch',
        _cifar_batches('data_batch_5', None),
        FileNotFoundError,
        'data_dir must have all files of cifar-10-batches-py, found no ',
      ),
      (
        'tasks.fashion_mnist.load',
        'a missing file',
        _fashion_mnist(**{'train-labels-idx1-ubyte': None}),
        FileNotFoundError,
        'data_dir must contain train-labels-idx1-ubyte or'
        ' train-labels-idx1-ubyte.gz, found neither in ',
      ),
      (
        'tasks.fashion_mnist.load',
        'a label out of range',
        _fashion_mnist(
          **{'t10k-labels-idx1-ubyte': _idx(2, content=b'\0\x0b')}
        ),
        ValueError,
        'the test labels must be in [0, 10) and not none, found [0, 11]',
      ),
      (
        'tasks.fashion_mnist.load',
        'fewer labels than images',
        _fashion_mnist(**{'train-labels-idx1-ubyte': _idx(1)}),
        ValueError,
        'the train set must have images [n, height, width] and labels [n],'
        ' found shapes (2, 28, 28) and (1,)',
      ),
      (
        'tasks.fashion_mnist.read_idx',
        'a truncated file',
        _read_idx('a', _idx(3)[:-1]),
        ValueError,
        '{folder}/a must have 11 bytes, found 10: download it again',
      ),
      (
        'tasks.fashion_mnist.read_idx',
        'a foreign file',
        _read_idx('a', b'<html>'),
        ValueError,
        '{folder}/a must be an idx file of unsigned bytes, found a header of',
      ),
      (
        'tasks.fashion_mnist.read_idx',
        'a truncated gzip file',
        _read_idx('a.gz', gzip.compress(_idx(3))[:-9]),
        ValueError,
        '{folder}/a.gz must be a complete gzip file: ',
      ),
      (
        'tasks.fashion_mnist.read_idx',
        'a damaged gzip file',
        _read_idx('a.gz', gzip.compress(_idx(3))[:10] + b'\xff' * 20),
        ValueError,
        '{folder}/a.gz must be a complete gzip file: ',
      ),
      (
        'tasks.emnist.load',
        'an empty file',
        _file(_load_emnist, 'emnist_all.sqlite', b''),
        ValueError,
        "{folder}/emnist_all.sqlite must be the complete file of TFF's"
        ' emnist.load_data, found: ... Delete it and download it again',
      ),
      (
        'tasks.emnist.load',
        'what cannot be read',
        _unreadable(_load_emnist, 'emnist_all.sqlite'),
        ValueError,
        "{folder}/emnist_all.sqlite must be the complete file of TFF's"
        ' emnist.load_data, found: unable to open database file',
      ),
      (
        'tasks.emnist.load',
        'a foreign file',
        _copied,
        ValueError,
        "{folder}/emnist_all.sqlite must be the complete file of TFF's"
        ' emnist.load_data, found: file is not a database',
      ),
      (
        'tasks.emnist.load',
        'no examples',
        _emnist_without_examples,
        ValueError,
        "{folder}/emnist_all.sqlite must be the complete file of TFF's"
        ' emnist.load_data, found: no examples in all_train',
      ),
    )
  ),
)
