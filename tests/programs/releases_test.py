"""Tests for releases. `EvaluationLoop` is tested with the example program."""

import asyncio
import collections
import csv
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.programs import checkpoints
from fedsteer_tff.programs import releases as releases_lib
from fedsteer_tff.programs import run_files


class _Slow(tff.program.ReleaseManager):
  """Takes some turns of the event loop, then notes the key or fails."""

  def __init__(self, released, error=None):
    self._released = released
    self._error = error

  async def release(self, value, key):
    for _ in range(20):
      await asyncio.sleep(0)
    if self._error is not None:
      raise self._error
    self._released.append(key)


def test_a_state_waits_for_the_releases_begun_with_it(tmp_path):
  releases = releases_lib.Releases()
  released, seen = [], []

  class Manager(checkpoints.CheckpointManager):
    async def _remove_old_program_state(self):
      seen.append(list(released))
      await super()._remove_old_program_state()

  manager = Manager(tmp_path, releases=releases)
  metrics = releases.track(_Slow(released))
  models = releases.track(_Slow(released))

  async def program():
    # The order in which `train_model` begins them.
    tasks = [
      asyncio.ensure_future(manager.save([np.float32(1)], 1)),
      asyncio.ensure_future(metrics.release({}, 'metrics')),
      asyncio.ensure_future(models.release({}, 'model')),
    ]
    await asyncio.gather(*tasks)

  asyncio.run(program())
  assert seen == [['metrics', 'model']]


@pytest.mark.parametrize('failed_before', [False, True])
def test_a_state_is_not_written_without_its_releases(tmp_path, failed_before):
  releases = releases_lib.Releases()
  manager = checkpoints.CheckpointManager(tmp_path, releases=releases)
  metrics = releases.track(_Slow([], RuntimeError('no room for metrics')))

  async def program():
    save = manager.save([np.float32(1)], 1)
    release = metrics.release({}, 1)
    if failed_before:
      with pytest.raises(RuntimeError, match='no room for metrics'):
        await release
      await save
    else:
      await asyncio.gather(save, release)

  with pytest.raises(RuntimeError, match='no room for metrics'):
    asyncio.run(program())
  assert not os.listdir(tmp_path)


def _rows(path):
  with open(path, encoding='utf-8', newline='') as f:
    return list(csv.reader(f))


def _release(manager, value, key):
  asyncio.run(manager.release(collections.OrderedDict(a=value), key))


def test_rows_that_are_released_again_replace_those_after(tmp_path):
  path = tmp_path / 'm.csv'
  manager = releases_lib.DurableCsv(path)
  for key in (1, 2, 3):
    _release(manager, np.float32(key / 10), key)
  assert [row[0] for row in _rows(path)] == ['round', '1', '2', '3']

  manager = releases_lib.DurableCsv(path)
  _release(manager, np.float32(0.5), 2)
  assert _rows(path) == [
    ['round', 'a'],
    ['1', repr(float(np.float32(0.1)))],
    ['2', '0.5'],
  ]


def test_what_a_killed_program_left_is_removed(tmp_path):
  path = tmp_path / 'm.csv'
  _release(releases_lib.DurableCsv(path), np.int32(7), 1)
  (tmp_path / 'm.csv_temp1234').write_text('round,a\n1,7\n2')
  (tmp_path / 'n.csv_temp1234').write_text('not ours')
  releases_lib.DurableCsv(path)
  assert sorted(os.listdir(tmp_path)) == ['m.csv', 'n.csv_temp1234']
  assert _rows(path) == [['round', 'a'], ['1', '7']]


def test_a_failed_row_leaves_the_rows_before(tmp_path, limited_file_size):
  path = tmp_path / 'm.csv'
  manager = releases_lib.DurableCsv(path)
  _release(manager, np.int32(7), 1)
  with limited_file_size(10), pytest.raises(tf.errors.OpError, match='large'):
    _release(manager, np.int32(8), 2)
  assert os.listdir(tmp_path) == ['m.csv']
  assert _rows(path) == [['round', 'a'], ['1', '7']]
  _release(manager, np.int32(8), 2)
  assert _rows(path) == [['round', 'a'], ['1', '7'], ['2', '8']]


def test_a_saved_model_that_is_not_whole_is_removed(
  tmp_path, limited_file_size
):
  (tmp_path / 'release_round_1_temp1234').mkdir()
  (tmp_path / 'release_round_1_temp1234/saved_model.pb').write_bytes(b'half')
  (tmp_path / 'other_temp1234').mkdir()
  manager = releases_lib.DurableSavedModels(tmp_path)
  assert os.listdir(tmp_path) == ['other_temp1234']
  model = np.zeros([10000], np.float32)
  with (
    limited_file_size(20000),
    pytest.raises(tf.errors.OpError, match='large'),
  ):
    _release(manager, model, 'round_1')
  assert os.listdir(tmp_path) == ['other_temp1234']
  _release(manager, model, 'round_1')
  released = asyncio.run(manager.get_value('round_1'))
  np.testing.assert_array_equal(released['a'], model)


def test_events_are_written_when_they_are_released(tmp_path):
  manager = releases_lib.DurableTensorBoard(tmp_path)
  for key in (1, 2):
    _release(manager, np.float32(key / 4), key)
    (path,) = tmp_path.iterdir()
    found = [
      (event.step, value.tag, tf.make_ndarray(value.tensor).item())
      for event in tf.compat.v1.train.summary_iterator(str(path))
      for value in event.summary.value
    ]
    assert found == [(step, 'a', step / 4) for step in range(1, key + 1)]


@pytest.mark.parametrize('content', [b'', b'a,b\n1,2\n', b'\xff\xfe\x00'])
def test_a_table_that_is_something_else_is_named(tmp_path, content):
  path = tmp_path / 'metrics.csv'
  path.write_bytes(content)
  with pytest.raises(run_files.RunDirectoryError) as caught:
    releases_lib.DurableCsv(path)
  assert str(caught.value).startswith(
    f"{path} must be a table with the column 'round', found another file: "
  )
  assert path.read_bytes() == content


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
