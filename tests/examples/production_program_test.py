"""The production program: undisturbed, killed, without room, with damage."""

import csv
import json
import os
import random
import resource
import shutil
import signal
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf

from examples import production_program
from fedsteer_tff import participation
from fedsteer_tff import programs
from tests import forked_program

ROUNDS = 18
FLAGS = (f'--rounds={ROUNDS}', '--num_clients=10', '--evaluate_every=3')
# When each start of the program is killed: before its first round ends (0), in
# the round after that many rounds, at a random moment of it, or while a
# checkpoint is written (None). All together do not reach the last round. After
# one round the state may not be written yet; of two, the first one's is.
KILLS = (0, 1, 0, 2, None, 2, 0, 2, 0, 2)
_SEED = 20
_SECONDS = 1800

pytestmark = pytest.mark.slow


class _Start:
  """One start of the program in a folder."""

  def __init__(self, folder, log_path):
    self.folder = folder
    self._rounds_before = max(_checkpoints(folder), default=0)
    self._unfinished_before = self._unfinished()
    self._log_path = log_path
    # Every release of metrics replaces the file.
    self._file_before = self._file()
    self._begin = time.monotonic()
    self.process = forked_program.start(
      production_program.__name__,
      [*FLAGS, f'--output_dir={folder}'],
      log_path,
    )

  def _file(self):
    path = self.folder / 'metrics.csv'
    return path.stat().st_ino if path.exists() else None

  def rounds_released(self):
    """Returns how many rounds have metrics that are out."""
    path = self.folder / 'metrics.csv'
    return path.read_text().count('\n') - 1 if path.exists() else 0

  def rounds(self):
    """Returns how many of these are this start's."""
    if self._file() == self._file_before:
      return 0
    return self.rounds_released() - self._rounds_before

  def output(self):
    return self._log_path.read_text()

  def seconds(self):
    return time.monotonic() - self._begin

  def wait_until(self, condition):
    """Waits until a condition holds; the program must not end before."""
    while not condition():
      assert self.process.is_alive(), self.output()
      assert self.seconds() < _SECONDS, self.output()
      time.sleep(0.001)

  def wait_for_rounds(self, count):
    self.wait_until(lambda: self.rounds() >= count)

  def end(self):
    """Waits for the program's end; returns its exit code."""
    self.process.join(_SECONDS)
    assert self.process.exitcode is not None, self.output()
    return self.process.exitcode

  def kill(self):
    """Ends the program by SIGKILL."""
    self.process.kill()
    assert self.end() == -signal.SIGKILL, self.output()

  def _unfinished(self):
    """Returns checkpoints that are not finished."""
    return set(self.folder.glob('checkpoints/program_state_*_temp*'))

  def kill_in_checkpoint(self):
    """Kills the program while it writes a checkpoint."""

    def writing():
      return self._unfinished() - self._unfinished_before

    while True:
      self.wait_until(writing)
      os.kill(self.process.pid, signal.SIGSTOP)
      while _process_state(self.process.pid) != 'T':
        time.sleep(0.001)
      # A stopped process cannot finish what it writes.
      if writing():
        break
      os.kill(self.process.pid, signal.SIGCONT)
    self.kill()
    assert writing()


def _process_state(pid):
  with open(f'/proc/{pid}/stat', encoding='ascii') as f:
    return f.read().rsplit(')', 1)[1].split()[0]


@pytest.fixture(scope='module', name='undisturbed')
def _undisturbed(tmp_path_factory):
  """An undisturbed run: its folder, output, and seconds until and per round."""
  folder = tmp_path_factory.mktemp('undisturbed')
  start = _Start(folder / 'run', folder / 'log')
  # The first start includes the imports, which the others do not.
  start.wait_until(lambda: (folder / 'run').exists())
  began = start.seconds()
  start.wait_for_rounds(1)
  first = start.seconds()
  assert start.end() == 0, start.output()
  per_round = (start.seconds() - first) / (ROUNDS - 1)
  return start.folder, start.output(), first - began, per_round


@pytest.fixture(scope='module', name='killed')
def _killed(undisturbed, tmp_path_factory):
  """A run that was killed ten times: its folder, and how far it was.

  For each time the number of rounds whose metrics are out, and the newest
  state.
  """
  _, _, until_first, per_round = undisturbed
  folder = tmp_path_factory.mktemp('killed')
  generator = random.Random(_SEED)
  progress = []
  for number, rounds in enumerate(KILLS):
    start = _Start(folder / 'run', folder / f'log{number}')
    if rounds is None:
      start.kill_in_checkpoint()
    else:
      start.wait_for_rounds(rounds)
      duration = per_round if rounds else until_first
      moment = start.seconds() + generator.uniform(0, duration)
      # Not later than the next round, if the rounds are faster now.
      start.wait_until(
        lambda s=start, m=moment, r=rounds: s.seconds() > m or s.rounds() > r
      )
      start.kill()
    progress.append(
      (start.rounds_released(), max(_checkpoints(start.folder), default=0))
    )
  return start.folder, progress


@pytest.fixture(scope='module', name='without_room')
def _without_room(killed, tmp_path_factory):
  """The killed run, started again, with no room for its next checkpoint."""
  folder, _ = killed
  start = _Start(folder, tmp_path_factory.mktemp('without_room') / 'log')
  # Every tenth round the model is released, which needs as much room.
  start.wait_until(lambda: (max(_checkpoints(folder)) + 1) % 10)
  # Metrics and evaluations fit into it, states do not.
  resource.prlimit(start.process.pid, resource.RLIMIT_FSIZE, (10**5, 10**5))
  code = start.end()
  return folder, code, start.output(), _checkpoints(folder)


@pytest.fixture(scope='module', name='resumed')
def _resumed(without_room, tmp_path_factory):
  """That run, its newest checkpoint damaged, resumed to its end."""
  folder, _, _, rounds = without_room
  path = folder / f'checkpoints/program_state_{rounds[-1]}/variables'
  path /= 'variables.data-00000-of-00001'
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)
  start = _Start(folder, tmp_path_factory.mktemp('resumed') / 'log')
  assert start.end() == 0, start.output()
  return folder, start.output()


def _checkpoints(folder):
  """Returns the rounds of the complete states, ascending."""
  paths = folder.glob('checkpoints/program_state_*')
  rounds = [path.name.rpartition('program_state_')[2] for path in paths]
  return sorted(int(r) for r in rounds if r.isdigit())


def _numbers(folder):
  """Returns everything in a SavedModel by its name."""
  reader = tf.train.load_checkpoint(str(folder / 'variables/variables'))
  return {
    name: reader.get_tensor(name)
    for name in reader.get_variable_to_shape_map()
    if name != '_CHECKPOINTABLE_OBJECT_GRAPH'
  }


def _assert_same_numbers(folder, expected_folder):
  actual, expected = _numbers(folder), _numbers(expected_folder)
  assert actual.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(actual[name], value, err_msg=name)


def _rows(path):
  with open(path, encoding='utf-8', newline='') as f:
    return list(csv.DictReader(f))


def _events(folder):
  """Returns the values that were written by step and tag, as bytes."""
  found = {}
  for path in sorted(folder.iterdir()):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
      for value in event.summary.value:
        number = tf.make_ndarray(value.tensor).tobytes()
        found.setdefault((event.step, value.tag), set()).add(number)
  return found


def test_it_trains_and_writes_everything(undisturbed):
  folder, output, _, _ = undisturbed
  rows = _rows(folder / 'metrics.csv')
  assert [int(row['round']) for row in rows] == list(range(1, ROUNDS + 1))
  evaluations = _rows(folder / 'evaluation.csv')
  assert [int(row['round']) for row in evaluations] == [
    *range(3, ROUNDS + 1, 3)
  ]
  assert {row['model_metrics/num_examples'] for row in evaluations} == {'359'}
  accuracy = float(evaluations[-1]['model_metrics/accuracy'])
  assert accuracy > 0.3
  assert f'accuracy after round {ROUNDS}: {accuracy:.4f}' in output
  assert json.loads((folder / 'summary.json').read_text()) == {
    'rounds': ROUNDS,
    'accuracy': accuracy,
  }
  assert _checkpoints(folder) == [ROUNDS - 1, ROUNDS]
  assert sorted(os.listdir(folder / 'models')) == [
    'release_training_checkpoint_round_10',
    'release_training_checkpoint_round_18',
  ]
  assert len(_events(folder / 'tensorboard/evaluation')) > len(evaluations)


def test_its_cohorts_are_the_sampler_s(undisturbed):
  folder, _, _, _ = undisturbed
  sampler = participation.BernoulliSampler(
    participation.two_group_probabilities(10, rate=0.3, skew=3.0), seed=0
  )
  cohorts = [sampler.cohort(r).client_ids for r in range(1, ROUNDS + 1)]
  rows = _rows(folder / 'metrics.csv')
  assert [int(row['aggregator/active_clients']) for row in rows] == [
    len(ids) for ids in cohorts
  ]
  last_seen = np.full([10], -1)
  for round_num, ids in enumerate(cohorts):
    last_seen[ids] = round_num
  state = _numbers(folder / f'checkpoints/program_state_{ROUNDS}')
  assert any(np.array_equal(leaf, last_seen) for leaf in state.values())
  iterators = [leaf for leaf in state.values() if isinstance(leaf, bytes)]
  (iterator,) = iterators
  assert (
    programs.BernoulliDataSourceIterator.from_bytes(iterator).num_draws
    == ROUNDS
  )


def test_a_kill_takes_back_one_round_at_most(killed):
  _, progress = killed
  assert len(progress) == 10
  for released, state in progress:
    assert state <= released <= state + 1
  states = [state for _, state in progress]
  assert states == sorted(states)
  # Every start that got to a second round has brought the run on.
  for rounds, before, after in zip(KILLS[1:], states, states[1:]):
    assert after >= before + (rounds or 1) - 1
  assert len(set(states)) >= 5
  assert states[-1] < ROUNDS - 1


def test_no_room_is_an_error_that_names_the_last_good_checkpoint(without_room):
  _, code, output, rounds = without_room
  assert code == 2, output
  assert 'production_program: error: the checkpoint of round' in output
  assert 'File too large' in output
  assert f'the last good one is of round {rounds[-1]}; make room' in output
  assert 'Traceback' not in output
  assert rounds[-1] < ROUNDS


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
  without_room, resumed
):
  _, _, _, rounds = without_room
  folder, output = resumed
  warnings = [line for line in output.splitlines() if 'warning' in line]
  assert len(warnings) == 1, output
  assert f'the checkpoint of round {rounds[-1]} in {folder}' in warnings[0]
  assert (folder / f'checkpoints/unreadable_{rounds[-1]}').is_dir()


def test_it_resumes_to_what_it_would_have_been(undisturbed, resumed):
  expected, _, _, _ = undisturbed
  folder, _ = resumed
  # Weights, caches, the cohorts to come, and the models that were released.
  for name in (
    f'checkpoints/program_state_{ROUNDS}',
    'models/release_training_checkpoint_round_10',
    f'models/release_training_checkpoint_round_{ROUNDS}',
  ):
    _assert_same_numbers(folder / name, expected / name)
  for name in ('metrics.csv', 'evaluation.csv', 'summary.json'):
    assert (folder / name).read_bytes() == (expected / name).read_bytes(), name
  # Rounds that were trained again are there twice, and the same.
  for name in ('metrics', 'evaluation'):
    assert _events(folder / 'tensorboard' / name) == _events(
      expected / 'tensorboard' / name
    )
  # Nothing that was half written is left.
  assert not list(folder.rglob('*_temp*'))
  assert not list(folder.rglob('*.tmp'))


def test_a_run_without_checkpoints_is_not_begun_anew(undisturbed, tmp_path):
  finished, *_ = undisturbed
  folder = tmp_path / 'run'
  shutil.copytree(finished, folder)
  (folder / 'summary.json').unlink()
  rows = (folder / 'metrics.csv').read_bytes()
  for path in (folder / 'checkpoints').rglob('saved_model.pb'):
    path.write_bytes(b'')
  messages = [
    'that can be read, found none among',
    'that can be read, found only unreadable_',
    'of the run that wrote',
  ]
  for number, message in enumerate(messages):
    if number == 2:
      shutil.rmtree(folder / 'checkpoints')
    start = _Start(folder, tmp_path / f'log{number}')
    assert start.end() == 2, start.output()
    assert f'must hold a checkpoint {message}' in start.output()
    assert (folder / 'metrics.csv').read_bytes() == rows


def test_damaged_evaluations_are_named(undisturbed, tmp_path):
  finished, *_ = undisturbed
  folder = tmp_path / 'run'
  shutil.copytree(finished, folder)
  (folder / 'summary.json').unlink()
  path = folder / 'evaluation.csv'
  header = path.read_text().splitlines()[0]
  for number, (content, message) in enumerate(
    (
      ('a,b\n1,2\n', "must be a table with the column 'round', found"),
      (f'{header}\n', 'must end with the row of an evaluation, found []'),
    )
  ):
    path.write_text(content)
    start = _Start(folder, tmp_path / f'log{number}')
    assert start.end() == 2, start.output()
    error = start.output().splitlines()[-1]
    assert error.startswith(f'production_program: error: {path} {message}')
    assert 'Traceback' not in start.output()
    assert path.read_text() == content


@pytest.mark.parametrize('estimate', ['frequency', 'windowed', 'interval'])
def test_it_learns_how_often_clients_take_part(estimate, tmp_path):
  process = forked_program.start(
    production_program.__name__,
    [
      '--rounds=2',
      '--num_clients=4',
      f'--participation_estimate={estimate}',
      f'--output_dir={tmp_path}/run',
    ],
    tmp_path / 'log',
  )
  process.join(_SECONDS)
  assert process.exitcode == 0, (tmp_path / 'log').read_text()
  rows = _rows(tmp_path / 'run/metrics.csv')
  # Of 4 clients with the prior 0.3 each; the second round knows of the first.
  names = [name for name in rows[0] if 'participation_expected_c' in name]
  assert len(names) == 1
  expected = [float(row[names[0]]) for row in rows]
  active = [int(row['aggregator/active_clients']) for row in rows]
  if estimate == 'frequency':
    # (10 * 0.3 + x_i) / (10 + T) for each of them.
    np.testing.assert_allclose(
      expected, [(12 + active[0]) / 11, (12 + sum(active)) / 12], rtol=1e-5
    )
  for row in rows:
    for name, value in row.items():
      if 'participation_absolute_error' in name:
        assert np.isnan(float(value))  # Nobody knows it.


def test_the_end_of_the_runtime_loses_one_round_at_most(tmp_path):
  start = _Start(tmp_path / 'run', tmp_path / 'log')
  start.wait_for_rounds(2)
  (runtime,) = psutil.Process(start.process.pid).children()
  runtime.kill()
  assert start.end() == 2, start.output()
  rounds = _checkpoints(tmp_path / 'run')
  assert rounds[-1] <= start.rounds_released() <= rounds[-1] + 1
  *_, error = start.output().splitlines()
  assert error.startswith(
    'production_program: error: the TFF runtime must stay alive, found that its'
    f' process {runtime.pid} ended'
  )
  assert error.endswith(f'; the same command resumes after round {rounds[-1]}')


def test_ctrl_c_is_one_line(monkeypatch, capsys):
  def interrupted(unused_values):
    raise KeyboardInterrupt

  monkeypatch.setattr(production_program, '_run', interrupted)
  assert production_program.main(['production_program']) == 130
  assert capsys.readouterr().err == (
    '\nStopped at once; the same command goes on.\n'
  )


def test_a_finished_run_is_left_alone(resumed, tmp_path):
  folder, _ = resumed
  before = {p: p.stat().st_mtime_ns for p in folder.rglob('*') if p.is_file()}
  start = _Start(folder, tmp_path / 'log')
  assert start.end() == 0, start.output()
  assert f'accuracy after round {ROUNDS}' in start.output()
  del before[folder / '.lock']
  assert before == {p: p.stat().st_mtime_ns for p in before}


def test_another_configuration_is_refused(resumed, tmp_path):
  folder, _ = resumed
  process = forked_program.start(
    production_program.__name__,
    [*FLAGS, '--seed=1', f'--output_dir={folder}'],
    tmp_path / 'log',
  )
  process.join(_SECONDS)
  assert process.exitcode == 2
  assert '--seed: 0 -> 1' in (tmp_path / 'log').read_text()


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
