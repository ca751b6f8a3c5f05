"""Tests for checkpoints."""

import asyncio
from collections import OrderedDict
import errno
import io
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.programs import checkpoints
from fedsteer_tff.programs import digests
from fedsteer_tff.programs import local_runtime
from tests import source_tree


def _state(value):
  return tff.learning.templates.LearningAlgorithmState(
    global_model_weights=tff.learning.models.ModelWeights(
      [np.full([2, 3], value, np.float32)], ()
    ),
    distributor=(),
    client_work=(),
    aggregator=OrderedDict(
      slots=np.int32([value, -1]), none=np.zeros([0, 3], np.float32)
    ),
    finalizer=np.int32(value),
  )


def _assert_equal(actual, expected):
  tf.nest.assert_same_structure(actual, expected)
  for a, e in zip(tf.nest.flatten(actual), tf.nest.flatten(expected)):
    assert np.asarray(a).dtype == np.asarray(e).dtype
    np.testing.assert_array_equal(a, e)


def test_nothing_is_restored_from_an_empty_folder(tmp_path):
  store = checkpoints.Checkpoints(tmp_path / 'new')
  assert store.restore(_state(0)) is None
  assert store.rounds() == []


def test_the_newest_state_comes_back_with_its_types(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(_state(3), 3)
  store.save(_state(12), 12)
  state, round_num = checkpoints.Checkpoints(tmp_path).restore(_state(0))
  assert round_num == 12
  _assert_equal(state, _state(12))


def test_two_states_are_kept(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  for r in range(5):
    store.save(_state(r), r)
  assert store.rounds() == [3, 4]


def test_saving_a_round_again_changes_nothing(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(_state(3), 3)
  store.save(_state(4), 3)
  _assert_equal(store.restore(_state(0))[0], _state(3))


def test_an_unfinished_state_is_removed(tmp_path):
  (tmp_path / 'program_state_7_temp1234').mkdir()
  assert checkpoints.Checkpoints(tmp_path).restore(_state(0)) is None
  assert os.listdir(tmp_path) == []


def test_an_unreadable_state_is_named_and_the_one_before_used(tmp_path):
  warnings = []
  store = checkpoints.Checkpoints(tmp_path, warn=warnings.append)
  store.save(_state(3), 3)
  store.save(_state(4), 4)
  data = tmp_path / 'program_state_4/variables/variables.data-00000-of-00001'
  data.write_bytes(data.read_bytes()[:10])
  state, round_num = store.restore(_state(0))
  assert round_num == 3
  _assert_equal(state, _state(3))
  assert len(warnings) == 1
  assert 'the checkpoint of round 4' in warnings[0]
  store.save(_state(4), 4)
  assert store.restore(_state(0))[1] == 4


def test_states_of_another_process_are_not_taken(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  state = OrderedDict(a=np.float32([1, 2]))
  store.save(state, 1)
  for other, message in (
    (
      OrderedDict(a=np.zeros([3], np.float32)),
      'a must be float32[3], found float32[2]',
    ),
    (
      OrderedDict(a=np.zeros([2], np.float32), b=np.zeros([], np.float32)),
      'b must be float32[], found none',
    ),
    (
      OrderedDict(b=np.zeros([2], np.float32)),
      'b must be float32[2], found none; a must not be there, found float32[2]',
    ),
  ):
    with pytest.raises(checkpoints.CheckpointMismatchError) as caught:
      store.restore(other)
    assert str(caught.value) == (
      f'the checkpoint of round 1 in {tmp_path} must be a state of this'
      f' process, of the same model and population, found: {message}; it is'
      ' left as it is'
    )
  # They are good: the process that they are of goes on.
  restored, round_num = store.restore(OrderedDict(a=np.zeros([2], np.float32)))
  assert round_num == 1
  np.testing.assert_array_equal(restored['a'], state['a'])


def _of_an_earlier_release(folder, version):
  """Lets a state be as it was written before leaves had names."""
  path = folder / f'program_state_{version}'
  (path / 'leaves.json').unlink()
  digests.write(str(path))


def test_states_without_names_are_told_apart_by_the_places_of_leaves(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(_state(3), 3)
  _of_an_earlier_release(tmp_path, 3)
  _assert_equal(store.restore(_state(0))[0], _state(3))
  other = _state(0)._replace(
    aggregator=OrderedDict(
      slots=np.int32([0]), none=np.zeros([0, 3], np.float32)
    ),
    finalizer=np.float64(0),
  )
  with pytest.raises(
    checkpoints.CheckpointMismatchError,
    match=r'found: aggregator.slots must be int32\[1\], found int32\[2\];'
    r' finalizer must be float64\[\], found int32\[\]; it is left',
  ):
    store.restore(other)
  with pytest.raises(checkpoints.CheckpointMismatchError, match='found: '):
    store.restore(_state(0)._replace(finalizer=()))


def test_files_in_the_place_of_states_are_set_aside(tmp_path):
  store = checkpoints.Checkpoints(tmp_path, warn=lambda _: None)
  store.save(_state(3), 3)
  for _ in range(2):
    (tmp_path / 'program_state_4').write_text('mine')
    assert store.restore(_state(0))[1] == 3
    assert (tmp_path / 'unreadable_4').read_text() == 'mine'
  store.save(_state(4), 4)
  (tmp_path / 'program_state_4/saved_model.pb').write_bytes(b'')
  assert store.restore(_state(0))[1] == 3
  assert (tmp_path / 'unreadable_4').is_dir()


def test_a_state_that_is_one_leaf_comes_back(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(np.int32(5), 1)
  assert store.restore(np.int32(0)) == (5, 1)
  with pytest.raises(
    checkpoints.CheckpointMismatchError,
    match=r'found: the state must be int64\[\], found int32\[\]; ',
  ):
    store.restore(np.int64(0))


def test_states_of_programs_are_named_by_their_paths(tmp_path):
  manager = checkpoints.CheckpointManager(tmp_path)
  state = OrderedDict(train=(_state(3), np.int32(1)))
  asyncio.run(manager.save(state, 3))
  like = OrderedDict(train=(_state(0), np.int32(0)))
  found, version = asyncio.run(manager.load_latest(like))
  assert version == 3
  _assert_equal(found, state)
  like = OrderedDict(train=(_state(0)._replace(client_work=np.int32(1)),))
  with pytest.raises(
    checkpoints.CheckpointMismatchError,
    match=r'found: train.0.client_work must be int32\[\], found none; train.1'
    r' must not be there, found int32\[\]; it is left',
  ):
    asyncio.run(manager.load(3, like))


def test_states_that_were_set_aside_are_not_forgotten(tmp_path):
  store = checkpoints.Checkpoints(tmp_path, warn=lambda _: None)
  for round_num in (3, 4):
    store.save(_state(round_num), round_num)
    (tmp_path / f'program_state_{round_num}/saved_model.pb').write_bytes(b'')
  with pytest.raises(
    checkpoints.CheckpointError, match=r'found none .* \[3, 4\]'
  ):
    store.restore(_state(0))
  for _ in range(2):  # It must not begin anew, however often it is tried.
    with pytest.raises(checkpoints.CheckpointError) as caught:
      checkpoints.Checkpoints(tmp_path).restore(_state(0))
    assert str(caught.value) == (
      f'{tmp_path} must hold a checkpoint that can be read, found only'
      ' unreadable_3, unreadable_4; move the run away to start anew'
    )


@pytest.mark.parametrize('keep', [0, -1, 1.5, True])
def test_keep_is_checked(tmp_path, keep):
  with pytest.raises(ValueError, match='keep must be an integer >= 1'):
    checkpoints.Checkpoints(tmp_path, keep=keep)


def _files(folder):
  return sorted(
    str(path.relative_to(folder))
    for path in folder.rglob('*')
    if path.is_file()
  )


def test_a_change_of_any_file_is_noticed(tmp_path):
  store = checkpoints.Checkpoints(tmp_path / 'c')
  store.save(_state(3), 3)
  store.save(_state(4), 4)
  names = _files(tmp_path / 'c/program_state_4')
  assert 'digest.sha256' in names
  assert len(names) >= 4
  for name in names:
    for kind in ('flipped', 'truncated', 'missing'):
      # Without a digest a state counts as written by an earlier release.
      if (name, kind) == ('digest.sha256', 'missing'):
        continue
      folder = tmp_path / kind / name.replace('/', '_')
      shutil.copytree(tmp_path / 'c', folder)
      path = folder / 'program_state_4' / name
      content = bytearray(path.read_bytes())
      middle = len(content) // 2
      content[middle] ^= 1
      if kind == 'missing':
        path.unlink()
      else:
        path.write_bytes(content if kind == 'flipped' else content[:middle])
      warnings = []
      store = checkpoints.Checkpoints(folder, warn=warnings.append)
      state, round_num = store.restore(_state(0))
      assert (round_num, len(warnings)) == (3, 1), (name, kind, warnings)
      assert f'the checkpoint of round 4 in {folder} cannot' in warnings[0]
      _assert_equal(state, _state(3))
      assert _files(folder / 'unreadable_4')


def test_a_state_without_a_digest_is_taken(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(_state(3), 3)
  (tmp_path / 'program_state_3/digest.sha256').unlink()
  state, round_num = store.restore(_state(0))
  assert round_num == 3
  _assert_equal(state, _state(3))


def test_by_default_a_warning_is_logged(tmp_path, caplog):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(_state(3), 3)
  store.save(_state(4), 4)
  (tmp_path / 'program_state_4/saved_model.pb').write_bytes(b'')
  with caplog.at_level('WARNING', logger='absl'):
    assert store.restore(_state(0))[1] == 3
  assert 'the checkpoint of round 4' in caplog.text


def test_no_room_is_an_error_that_leaves_the_states_before(
  tmp_path, limited_file_size
):
  def large(value):
    return [np.full([10000], value, np.float32)]

  store = checkpoints.Checkpoints(tmp_path)
  store.save(large(1), 1)
  store.save(large(2), 2)
  before = {name: (tmp_path / name).read_bytes() for name in _files(tmp_path)}
  with (
    limited_file_size(20000),
    pytest.raises(
      checkpoints.CheckpointError,
      match=r'of round 3 cannot be written to .*File too large.* last good one'
      ' is of round 2; make room',
    ),
  ):
    store.save(large(3), 3)
  # What was half written is gone: it would take room.
  assert before == {
    name: (tmp_path / name).read_bytes() for name in _files(tmp_path)
  }
  assert sorted(os.listdir(tmp_path)) == ['program_state_1', 'program_state_2']
  state, round_num = store.restore(large(0))
  assert round_num == 2
  _assert_equal(state, large(2))
  store.save(large(3), 3)
  assert store.rounds() == [2, 3]


def _two_states(folder, warnings):
  store = checkpoints.Checkpoints(folder, warn=warnings.append)
  store.save(_state(3), 3)
  store.save(_state(4), 4)
  return store


@pytest.mark.parametrize(
  ('number', 'words'),
  [
    (errno.EDQUOT, 'make room'),
    (errno.EACCES, 'let this user write there'),
    (errno.EROFS, 'mount the file system for writing'),
    (errno.EIO, 'mend that'),
  ],
)
def test_what_helps_against_an_error_of_writing_is_said(
  tmp_path, monkeypatch, number, words
):
  store = _two_states(tmp_path, [])

  def fail(unused_path, unused_text):
    raise OSError(number, os.strerror(number), 'digest')

  monkeypatch.setattr(checkpoints.files, 'write_text', fail)
  with pytest.raises(checkpoints.CheckpointError) as caught:
    store.save(_state(5), 5)
  assert os.strerror(number) in str(caught.value)
  assert str(caught.value).endswith(f'; {words}, and the same command resumes')


def test_a_folder_that_cannot_be_is_named(tmp_path):
  (tmp_path / 'file').write_text('mine')
  for folder in (tmp_path / 'file', tmp_path / 'file' / 'checkpoints'):
    with pytest.raises(
      checkpoints.CheckpointError,
      match=f'^{folder} must be a folder that can be written, found: .*; make'
      ' the path one of folders, and the same command goes on$',
    ):
      checkpoints.Checkpoints(folder)


@pytest.mark.parametrize('kind', ['open', 'read', 'list'])
@pytest.mark.parametrize(
  'number', [errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.EACCES]
)
@pytest.mark.parametrize('has_digest', [True, False])
def test_a_state_that_cannot_be_read_now_is_left_as_it_is(
  tmp_path, monkeypatch, kind, number, has_digest
):
  warnings = []
  store = _two_states(tmp_path, warnings)
  if not has_digest:
    (tmp_path / 'program_state_4/digest.sha256').unlink()
  before = _files(tmp_path)
  name = 'variables.data-00000-of-00001'
  path = str(tmp_path / 'program_state_4/variables' / name)
  error = OSError(number, os.strerror(number))

  class Unreadable(io.BytesIO):
    def read(self, *unused_arguments):
      raise error

  def open_badly(file, *arguments):
    if file != path:
      return open(file, *arguments)
    if kind == 'read':
      return Unreadable()
    raise OSError(number, os.strerror(number), file)

  walk = os.walk

  def walk_badly(top, onerror):
    if top != os.path.dirname(os.path.dirname(path)):
      return walk(top, onerror=onerror)
    onerror(OSError(number, os.strerror(number), path))
    return []

  with monkeypatch.context() as patched:
    if kind == 'list':
      patched.setattr(digests.os, 'walk', walk_badly)
    else:
      patched.setattr(digests, 'open', open_badly, raising=False)
    with pytest.raises(checkpoints.CheckpointAccessError) as caught:
      store.restore(_state(0))
  assert str(caught.value) == (
    f'the checkpoint of round 4 in {tmp_path} must be readable, found: [Errno'
    f" {number}] {os.strerror(number)}: '{path}'; it is left as it is, and the"
    ' same command tries again'
  )
  assert isinstance(caught.value, checkpoints.CheckpointError)
  assert _files(tmp_path) == before and not warnings
  # At another time it is as good as ever.
  state, round_num = store.restore(_state(0))
  assert round_num == 4
  _assert_equal(state, _state(4))


def test_a_state_that_tensorflow_cannot_read_now_is_left_as_it_is(
  tmp_path, monkeypatch
):
  store = _two_states(tmp_path, [])

  async def fail(*unused_arguments):
    raise tf.errors.ResourceExhaustedError(None, None, 'a; Too many open files')

  with monkeypatch.context() as patched:
    patched.setattr(tff.program.FileProgramStateManager, 'load', fail)
    with pytest.raises(
      checkpoints.CheckpointAccessError, match='a; Too many open files'
    ):
      store.restore(_state(0))
  assert store.restore(_state(0))[1] == 4


def test_no_room_for_the_first_state_is_said(tmp_path, limited_file_size):
  store = checkpoints.Checkpoints(tmp_path)
  with (
    limited_file_size(100),
    pytest.raises(checkpoints.CheckpointError, match='there is none before it'),
  ):
    store.save(_state(0), 0)


def _counting_process():
  """A learning process whose state is the sum of all clients' numbers."""

  @tff.federated_computation
  def initialize():
    return tff.federated_value(np.int32(0), tff.SERVER)

  @tff.tensorflow.computation(np.int32, np.int32)
  def add(a, b):
    return a + b

  @tff.federated_computation(
    initialize.type_signature.result, tff.FederatedType(np.int32, tff.CLIENTS)
  )
  def next_fn(state, numbers):
    total = tff.federated_map(add, (state, tff.federated_sum(numbers)))
    return tff.learning.templates.LearningProcessOutput(total, total)

  @tff.tensorflow.computation(np.int32)
  def get_model_weights(state):
    return state

  @tff.tensorflow.computation(np.int32, np.int32)
  def set_model_weights(state, weights):
    del state
    return weights

  return tff.learning.templates.LearningProcess(
    initialize, next_fn, get_model_weights, set_model_weights
  )


def test_paced_rounds_begin_when_states_are_written(tmp_path):
  process = _counting_process()
  numbers = [np.int32(n) for n in (1, 2, 4)]

  class Slow(checkpoints.CheckpointManager):
    async def _remove_old_program_state(self):
      await asyncio.sleep(1)

  manager = Slow(tmp_path)
  paced = manager.pace(process)
  assert isinstance(paced, tff.learning.templates.LearningProcess)
  assert paced.next.type_signature == process.next.type_signature

  async def round_beside_a_save(next_fn, version):
    # As `train_model` does it.
    save = asyncio.ensure_future(manager.save([np.int32(5)], version))
    result = await tff.program.materialize_value(next_fn(np.int32(5), numbers))
    done = save.done()
    await save
    return done, result

  async def program():
    # Once without a save, so that all is compiled.
    (one,) = await asyncio.gather(
      tff.program.materialize_value(paced.next(np.int32(5), numbers))
    )
    assert one.state == 12
    return [
      await round_beside_a_save(process.next, 1),
      await round_beside_a_save(paced.next, 2),
    ]

  with local_runtime.LocalRuntime().activate_for_programs():
    (beside, result), (waited, paced_result) = asyncio.run(program())
  assert (beside, waited) == (False, True)
  for output in (result, paced_result):
    assert isinstance(output, tff.learning.templates.LearningProcessOutput)
    assert (output.state, output.metrics) == (12, 12)


# Fills a disk of its own, saves to it, and makes room again.
_ON_A_FULL_DISK = """
import os
import numpy as np
from fedsteer_tff.programs import checkpoints

store = checkpoints.Checkpoints('checkpoints')
store.save([np.zeros([20000], np.float32)], 1)
for left in 0, 60000, 100000:
  with open('filling', 'wb') as f:
    disk = os.statvfs('.')
    f.write(bytes(disk.f_bavail * disk.f_frsize - left))
  try:
    store.save([np.ones([20000], np.float32)], 2)
  except checkpoints.CheckpointError as e:
    print('error:', e)
  print('states:', os.listdir('checkpoints'))
  (leaf,), round_num = store.restore([np.zeros([20000], np.float32)])
  print('restored:', round_num, leaf.sum())
  os.remove('filling')
store.save([np.ones([20000], np.float32)], 2)
print('then:', store.rounds())
"""


@pytest.mark.slow
def test_a_disk_that_is_full_leaves_the_state_before(tmp_path):
  namespaces = ['unshare', '--user', '--map-root-user', '--mount']
  if not shutil.which('unshare') or subprocess.call([*namespaces, 'true']):
    pytest.skip('a disk of its own needs user namespaces, found none')
  script = tmp_path / 'script.py'
  script.write_text(_ON_A_FULL_DISK)
  (tmp_path / 'disk').mkdir()
  on_disk = 'mount -t tmpfs -o size=1m none "$0" && cd "$0" && exec "$1" "$2"'
  with open(tmp_path / 'log', 'w') as log:
    subprocess.run(
      [
        *namespaces,
        'sh',
        '-c',
        on_disk,
        tmp_path / 'disk',
        sys.executable,
        script,
      ],
      env={**os.environ, 'PYTHONPATH': str(source_tree.ROOT)},
      stdout=log,
      stderr=subprocess.STDOUT,
      check=False,
    )
  text = (tmp_path / 'log').read_text()
  lines = [
    line
    for line in text.splitlines()
    if line.startswith(('error:', 'states:', 'restored:', 'then:'))
  ]
  assert lines[1:9:3] == ["states: ['program_state_1']"] * 3, text
  assert lines[2:9:3] == ['restored: 1 0.0'] * 3
  for error in lines[0:9:3]:
    assert 'the checkpoint of round 2 cannot be written to checkpoints' in error
    assert 'No space left on device' in error
    assert 'the last good one is of round 1; make room' in error
  assert lines[9:] == ['then: [1, 2]']


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
