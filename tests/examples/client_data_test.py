"""The example with a `ClientData`: its clients, and that it learns."""

import urllib.error
import urllib.request

import numpy as np
import pytest
from sklearn import datasets
import tensorflow as tf
import tensorflow_federated as tff

from examples import client_data
from tests.examples import printed

_WRITERS = ('f0003_01', 'f0001_00', 'f0002_07', 'f0005_11', 'f0004_21')


@pytest.fixture(scope='module', name='run')
def _run():
  return printed.run(client_data, '--rounds=16', '--print_every=8')


@pytest.fixture(scope='module', name='emnist_dir')
def _emnist_dir(tmp_path_factory):
  """A folder with a file as TFF's, of digits that are padded to 28 x 28."""
  digits = datasets.load_digits()
  images = np.pad(
    np.kron(digits.images, np.ones([1, 3, 3])), [(0, 0), (2, 2), (2, 2)]
  )

  def dataset(client_id):
    start = 30 * int(client_id[1:5])
    return tf.data.Dataset.from_tensor_slices(
      {
        'label': np.int32(digits.target[start : start + 30]),
        'pixels': np.float32(1 - images[start : start + 30] / 16),
      }
    )

  # TFF writes a client into one split only: nobody in the test set trains.
  tested = [f'f{i:04d}_99' for i in range(10, 20)]
  folder = tmp_path_factory.mktemp('emnist')
  tff.simulation.datasets.save_to_sql_client_data(
    [*_WRITERS, *tested],
    dataset,
    str(folder / 'emnist_all.sqlite'),
    split_names_by_client_id={
      **dict.fromkeys(_WRITERS, 'digits_only_train'),
      **dict.fromkeys(tested, 'digits_only_test'),
    },
  )
  return folder


@pytest.mark.slow
def test_it_prints_a_line_after_every_few_rounds(run):
  assert run.code == 0
  starts = [line.split(':')[0] for line in run.lines]
  assert starts == ['untrained', 'round 8', 'round 16', 'trained']
  assert run.accuracy('trained') == run.accuracy('round 16')


@pytest.mark.slow
def test_it_learns_with_shares_and_probabilities_that_nobody_knows(run):
  assert run.accuracy('untrained') < 0.25
  assert run.accuracy('trained') > run.accuracy('untrained') + 0.35


@pytest.mark.slow
def test_it_learns_from_a_file_as_emnist_with_what_is_known(emnist_dir):
  found = printed.run(
    client_data,
    f'--emnist_dir={emnist_dir}',
    '--num_clients=5',
    '--known',
    '--rounds=15',
    '--print_every=15',
  )
  assert found.code == 0, found.error
  assert found.accuracy('untrained') < 0.25
  assert found.accuracy('trained') > found.accuracy('untrained') + 0.2


def test_every_digit_is_with_one_writer_once():
  splits = client_data.load('')
  assert splits[0].client_ids == splits[1].client_ids
  assert len(splits[0].client_ids) == 20
  images = [
    next(split.create_tf_dataset_for_client(i).batch(1000).as_numpy_iterator())[
      'pixels'
    ]
    for split in splits
    for i in split.client_ids
  ]
  np.testing.assert_array_equal(
    np.sort(np.reshape(np.concatenate(images), [-1, 64]), axis=0),
    np.sort(1 - datasets.load_digits().data.astype(np.float32) / 16, axis=0),
  )


def test_a_client_trains_several_times_on_each_example():
  train, _ = client_data.load('')
  batches = train.preprocess(client_data.local_epochs)
  first = train.client_ids[0]
  raw = list(train.create_tf_dataset_for_client(first).as_numpy_iterator())
  pairs = list(batches.create_tf_dataset_for_client(first).as_numpy_iterator())
  assert batches.element_type_structure == (
    tf.TensorSpec([None, 8, 8], tf.float32),
    tf.TensorSpec([None, 1], tf.int32),
  )
  x, y = (np.concatenate(part) for part in zip(*pairs))
  wanted = np.stack([1 - example['pixels'] for example in raw])
  for epoch in np.split(x, 3):
    np.testing.assert_array_equal(
      np.sort(epoch, axis=0), np.sort(wanted, axis=0)
    )
  assert np.sum(y) == 3 * sum(example['label'] for example in raw)


def test_more_clients_than_there_are_are_refused(emnist_dir):
  for argument, most in ((f'--emnist_dir={emnist_dir}', 5), ('--seed=1', 20)):
    found = printed.run(client_data, argument, '--num_clients=21')
    assert found.code == 2
    assert found.error == (
      f'client_data: error: --num_clients must be <= {most}, the clients that'
      ' there are, found 21\n'
    )


def test_an_emnist_folder_without_a_file_or_network_is_refused(
  tmp_path, monkeypatch
):
  def fail(*args, **kwargs):
    raise urllib.error.URLError('no route to host')

  monkeypatch.setattr(urllib.request, 'urlopen', fail)
  found = printed.run(client_data, f'--emnist_dir={tmp_path}')
  assert found.code == 2
  assert found.error.startswith(
    "client_data: error: --emnist_dir must be a folder with TFF's"
    ' emnist_all.sqlite, or one that it can be downloaded to, found'
    f' {tmp_path}: '
  )
  assert 'no route to host' in found.error


@pytest.mark.parametrize('content', ['', 'not a database'])
def test_an_emnist_file_that_is_none_is_refused(tmp_path, content):
  (tmp_path / 'emnist_all.sqlite').write_text(content)
  found = printed.run(client_data, f'--emnist_dir={tmp_path}')
  assert found.code == 2
  assert f', found {tmp_path}: ' in found.error


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--rounds=0', 'flag --rounds=0: 0 is not a positive integer'),
    ('--num_clients=4', 'flag --num_clients=4: 4 is not integer >= 5'),
    ('--known=perhaps', 'flag --known=perhaps: '),
    ('--emnist=x', "Unknown command line flag 'emnist'"),
  ],
)
def test_a_wrong_flag_is_named_with_its_rule_and_value(argument, message):
  found = printed.run(client_data, argument)
  assert found.code == 2
  assert not found.lines
  assert found.error.startswith(f'client_data: error: {message}')


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
