"""Runs of the real program, undisturbed, interrupted, killed and resumed."""

import json
import os
import resource
import shutil
import signal
import time

import numpy as np
import psutil
import pytest

import fedsteer_tff
from fedsteer_tff.programs import conditioning
from tests.scripts import training_runs

ROUNDS = 12
FLAGS = (
  '--task=digits',
  '--estimator=stable',
  '--partition=bipartite',
  '--num_clients=30',
  '--participation_rate=0.2',
  '--core_set_size=4',
  '--warmup_rounds=3',
  '--enforce_core_every=3',
  '--evaluate_every=2',
  '--checkpoint_every=4',
)

pytestmark = pytest.mark.slow


def _arguments(folder, *flags, rounds=ROUNDS):
  return [*FLAGS, f'--rounds={rounds}', f'--output_dir={folder}', *flags]


def _run(folder, *flags, rounds=ROUNDS):
  return training_runs.here(*_arguments(folder, *flags, rounds=rounds))


def _start(folder, rounds):
  return training_runs.Forked(folder, *FLAGS, f'--rounds={rounds}')


@pytest.fixture(scope='module', name='finished')
def _finished(tmp_path_factory):
  """An undisturbed run: its folder and what it printed."""
  folder = tmp_path_factory.mktemp('undisturbed') / 'run'
  code, stdout, stderr = training_runs.command(*_arguments(folder))
  assert code == 0, stderr
  return folder, stdout, stderr


def test_a_run_writes_everything_and_prints_a_table(finished):
  folder, stdout, stderr = finished
  assert set(os.listdir(folder)) == {
    '.lock',
    'accuracy.png',
    'checkpoints',
    'config.json',
    'metrics.csv',
    'summary.json',
    'tensorboard',
  }
  rows = training_runs.rows(folder)
  assert [int(row['round']) for row in rows] == list(range(1, ROUNDS + 1))
  evaluated = [int(row['round']) for row in rows if row['test_accuracy']]
  assert evaluated == [2, 4, 6, 8, 10, 12]
  for row in rows:
    assert int(row['cohort_size']) == len(row['cohort'].split())
    assert int(row['active_clients']) == int(row['cohort_size'])
    assert 0 <= float(row['accuracy']) <= 1
    for name in (
      'loss',
      'relative_residual',
      'variance_ratio',
      *training_runs.MEASURED,
    ):
      assert np.isfinite(float(row[name]))

  summary = json.loads((folder / 'summary.json').read_text())
  tests = [float(row['test_accuracy']) for row in rows if row['test_accuracy']]
  assert summary['final_test_accuracy'] == pytest.approx(np.mean(tests))
  assert summary['rounds'] == ROUNDS
  parts = dict(summary['state_bytes'])
  assert parts.pop('total') == sum(parts.values()) > 0
  assert summary['peak_resident_mib'] > 100
  config = json.loads((folder / 'config.json').read_text())
  assert config['flags']['core_set_size'] == 4
  assert config['versions']['tensorflow-federated'] == '0.87.0'
  assert config['versions']['fedsteer-tff'] == fedsteer_tff.__version__
  assert summary['hashes'] == config['hashes']
  assert set(summary['hashes']) == {
    'partition',
    'participation',
    'initial_weights',
  }

  assert 'final test accuracy' in stdout
  assert f'{summary["final_test_accuracy"]:.4f}' in stdout
  assert 'accuracy of the untrained model' in stdout
  assert f'{ROUNDS}/{ROUNDS}' in stderr
  assert 'Traceback' not in stderr
  assert 'cuDNN' not in stderr


def test_the_core_is_enforced(finished):
  folder, _, _ = finished
  later = training_runs.rows(folder)[6:]
  assert max(float(row['core_staleness_max']) for row in later) <= 3


def test_a_finished_run_is_reported_again_and_left_alone(finished):
  folder, first, _ = finished
  before = training_runs.snapshot(folder)
  code, stdout, stderr = _run(folder)
  assert code == 0, stderr
  assert 'complete' in stdout
  assert stdout.endswith(first)
  assert training_runs.snapshot(folder) == before


def test_a_secure_sum_trains_and_its_metrics_stand_beside_the_usual_ones(
  finished, tmp_path
):
  code, _, stderr = _run(
    tmp_path / 'run',
    '--aggregation=client_projection',
    '--correction=secure',
    '--correction_norm=8',
    rounds=2,
  )
  assert code == 0, stderr
  rows = training_runs.rows(tmp_path / 'run')
  usual = set(training_runs.rows(finished[0])[0])
  assert usual < set(rows[0])
  for row in rows:
    assert row['correction/secure_upper_clipped_count'] == '0'
    assert float(row['correction/secure_upper_threshold']) == 8
  # As in a run with a plain sum: the clients' first training, which is the
  # same, and the data have nothing to do with the correction.
  assert rows[0]['loss'] == training_runs.rows(finished[0])[0]['loss']


def test_too_small_a_ridge_is_told_once_beside_the_bar(
  finished, tmp_path, monkeypatch
):
  # Nothing of the sort with the default ridge.
  assert 'ridge_condition' not in finished[2]
  monkeypatch.setattr(conditioning, 'LARGEST_RIDGE_CONDITION', 0.5)
  code, _, stderr = _run(tmp_path / 'run', '--core_set_size=3', rounds=6)
  assert code == 0, stderr
  assert stderr.count('\ntrain: warning: round ') == 1
  assert stderr.count('ridge_condition must be <= ') == 1


def test_another_configuration_is_refused(finished):
  folder, _, _ = finished
  before = training_runs.snapshot(folder)
  code, stdout, stderr = _run(folder, '--seed=1', '--ridge=0.1', rounds=5)
  assert code == 2
  assert not stdout
  assert len(stderr.splitlines()) == 1
  assert '--seed: 0 -> 1' in stderr
  assert '--ridge: None -> 0.1' in stderr
  assert f'--rounds: {ROUNDS} -> 5' in stderr
  assert training_runs.snapshot(folder) == before


def test_a_damaged_run_is_one_line_that_names_the_file(finished, tmp_path):
  undisturbed, _, _ = finished
  folder = tmp_path / 'run'
  folder.mkdir()
  for name in ('config.json', 'summary.json', 'metrics.csv'):
    shutil.copy(undisturbed / name, folder)
  config = json.loads((folder / 'config.json').read_text())
  config['flags']['workers'] = 5
  for rounds, name, content, message in (
    (
      ROUNDS,
      'summary.json',
      '{"rounds": 12}',
      'must have a number named final',
    ),
    (ROUNDS, 'summary.json', '{"rounds"', 'must hold JSON, found'),
    (ROUNDS + 1, 'metrics.csv', 'a\n1\n', 'must be a table with one row for'),
    (ROUNDS, 'config.json', '\0', 'must hold JSON, found'),
  ):
    (folder / name).write_text(content)
    code, stdout, stderr = _run(folder, rounds=rounds)
    assert code == 2, stderr
    assert len(stderr.splitlines()) == 1
    assert stderr.startswith(f'train: error: {folder / name} {message}'), stderr
    if name != 'config.json':
      shutil.copy(undisturbed / name, folder)
  # What is only noticed when the run goes on.
  shutil.copy(undisturbed / 'config.json', folder)
  shutil.copytree(undisturbed / 'checkpoints', folder / 'checkpoints')
  header, first, *others = (folder / 'metrics.csv').read_text().splitlines()
  column = header.split(',').index('loss')
  cells = first.split(',')
  edited = ','.join([*cells[:column], 'abc', *cells[column + 1 :]])
  (folder / 'metrics.csv').write_text('\n'.join([header, edited, *others, '']))
  code, _, stderr = _run(folder, rounds=ROUNDS + 1)
  assert code == 2, stderr
  assert stderr == (
    f'train: error: {folder}/metrics.csv must have numbers in the column loss,'
    " found 'abc'\n"
  )
  names = header.split(',')
  for changed, words in (
    (
      [{'loss': 'los'}.get(n, n) for n in names],
      'the columns of the rounds to come, with loss, found los instead',
    ),
    (
      [{'accuracy': 'loss'}.get(n, n) for n in names],
      'every column once, found several named loss',
    ),
  ):
    text = '\n'.join([','.join(changed), first, *others, ''])
    (folder / 'metrics.csv').write_text(text)
    before = training_runs.snapshot(folder)
    code, _, stderr = _run(folder, rounds=ROUNDS + 1)
    assert code == 2, stderr
    assert stderr == f'train: error: {folder}/metrics.csv must have {words}\n'
    assert training_runs.snapshot(folder) == before
  shutil.copy(undisturbed / 'metrics.csv', folder)
  (folder / 'config.json').write_text(json.dumps(config))
  code, _, stderr = _run(folder, rounds=ROUNDS + 1)
  assert code == 2, stderr
  assert 'config.json must have a list named flags.workers, found 5' in stderr
  assert 'Traceback' not in stderr


def test_interrupted_killed_and_prolonged_equals_undisturbed(
  finished, tmp_path
):
  undisturbed, _, _ = finished
  folder = tmp_path / 'run'

  # A terminal that is closed: its signal reaches the whole process group, and
  # from the shell too.
  run = _start(folder, ROUNDS - 2)
  run.wait_for_rows(1)
  for _ in range(2):
    os.killpg(run.pid, signal.SIGHUP)
  code, _, stderr = run.finish()
  assert code == 129, stderr
  assert 'The same command resumes' in stderr
  assert 'Traceback' not in stderr
  done = len(training_runs.rows(folder))
  assert 1 <= done < ROUNDS - 2
  assert training_runs.checkpoints(folder)[-1] == done

  # Ctrl-C in a terminal does so too.
  run = _start(folder, ROUNDS - 2)
  run.wait_for_rows(done + 1)
  os.killpg(run.pid, signal.SIGINT)
  code, _, stderr = run.finish()
  assert code == 130, stderr
  assert 'The same command resumes' in stderr
  assert 'Traceback' not in stderr
  assert len(training_runs.rows(folder)) > done
  done = len(training_runs.rows(folder))
  assert done < ROUNDS - 2
  assert (folder / f'checkpoints/program_state_{done}').is_dir()
  assert not (folder / 'summary.json').exists()

  # The end of the runtime: a state is at hand, since the one before a round is
  # looked at for clients that are overdue.
  run = _start(folder, ROUNDS - 2)
  run.wait_for_rows(done + 1)
  os.kill(psutil.Process(run.pid).children()[0].pid, signal.SIGKILL)
  code, _, stderr = run.finish()
  assert code == 2, stderr
  assert 'train: error: the TFF runtime must stay alive, found that' in stderr
  done = training_runs.checkpoints(folder)[-1]
  num_rows = len(training_runs.rows(folder))
  assert num_rows - 1 <= done <= num_rows
  assert f'; the same command resumes after round {done}\n' in stderr
  assert 'Traceback' not in stderr

  # SIGKILL, after a checkpoint and rows that it does not cover.
  run = _start(folder, ROUNDS - 2)
  run.wait_for_rows(max(5, done + 1))
  children = [child.pid for child in psutil.Process(run.pid).children()]
  assert children
  run.process.kill()
  code, _, stderr = run.finish()
  assert code == -signal.SIGKILL, stderr
  assert f'after round {done}' in stderr
  deadline = time.monotonic() + 10
  while time.monotonic() < deadline and any(
    os.path.exists(f'/proc/{child}') for child in children
  ):
    time.sleep(0.05)
  assert not [c for c in children if os.path.exists(f'/proc/{c}')]

  # No room for the next checkpoint.
  kept = training_runs.checkpoints(folder)
  run = _start(folder, ROUNDS - 2)
  resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (50_000, 50_000))
  code, _, stderr = run.finish()
  assert code == 2, stderr
  assert 'train: error: the checkpoint of round' in stderr
  assert 'File too large' in stderr
  assert f'the last good one is of round {kept[-1]}' in stderr
  assert 'Traceback' not in stderr
  assert training_runs.checkpoints(folder) == kept

  # More rounds than the run was started with.
  code, stdout, stderr = _start(folder, ROUNDS).finish()
  assert code == 0, stderr
  assert 'final test accuracy' in stdout
  assert training_runs.determined(folder) == training_runs.determined(
    undisturbed
  )
  assert training_runs.hashes(folder) == training_runs.hashes(undisturbed)
  training_runs.assert_same_state(folder, undisturbed, ROUNDS)


def test_a_run_without_its_checkpoints_is_never_overwritten(finished, tmp_path):
  undisturbed, _, _ = finished
  folder = tmp_path / 'run'
  shutil.copytree(undisturbed, folder)
  rows = (folder / 'metrics.csv').read_bytes()
  for state in (folder / 'checkpoints').iterdir():
    shutil.rmtree(state)
  for _ in range(2):  # The first refusal must not make way for a second try.
    code, _, stderr = _run(folder, rounds=ROUNDS + 2)
    assert code == 2, stderr
    assert 'must hold a checkpoint of the run that wrote' in stderr
    assert (folder / 'metrics.csv').read_bytes() == rows


def test_sigterm_before_the_first_round_leaves_a_run_to_resume(tmp_path):
  folder = tmp_path / 'run'
  run = _start(folder, rounds=2)
  run.wait_until((folder / 'config.json').exists)
  time.sleep(0.2)  # The handler is set right after the configuration.
  run.process.terminate()
  code, _, stderr = run.finish()
  assert code == 143, stderr
  assert 'The same command resumes' in stderr
  assert (folder / 'checkpoints').is_dir()
  assert not (folder / 'summary.json').exists()


def _check_refusal(outcome, message, folder):
  code, stdout, stderr = outcome
  assert code == 2, stderr
  assert not stdout
  assert len(stderr.splitlines()) == 1
  assert message in stderr
  assert not folder.exists()


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--ridge=-1'], '--ridge must be'),
    (['--gamma=1.5'], '--gamma must be'),
    (['--core_set_size=31'], '--core_set_size must be'),
    (['--participation_rate=2'], '--participation_rate'),
    (['--alpha=0.5'], 'alpha'),
  ],
)
def test_a_refused_value_is_one_line_and_leaves_no_folder(
  flags, message, tmp_path
):
  folder = tmp_path / 'run'
  _check_refusal(_run(folder, *flags), message, folder)


def test_what_tensorflow_says_is_not_printed_beside_a_refusal(tmp_path):
  # The task refuses it, so TensorFlow has been imported, by the command.
  folder = tmp_path / 'run'
  outcome = training_runs.command(*_arguments(folder, '--alpha=0.5'))
  _check_refusal(outcome, 'alpha', folder)


def test_a_wrong_flag_does_not_wait_for_tensorflow(tmp_path):
  start = time.monotonic()
  code, _, stderr = training_runs.command(
    *_arguments(tmp_path / 'run', '--seed=x')
  )
  assert code == 2
  assert stderr.startswith('train: error: flag --seed=x')
  assert len(stderr.splitlines()) == 1
  assert time.monotonic() - start < 5


def test_a_folder_that_is_no_run_is_refused(tmp_path):
  (tmp_path / 'notes.txt').write_text('mine')
  code, _, stderr = _run(tmp_path)
  assert code == 2
  assert '--output_dir must be new, empty or the folder of a run' in stderr
  assert 'notes.txt' in stderr
  code, _, stderr = _run(tmp_path / 'notes.txt')
  assert code == 2
  assert '--output_dir must be a folder, found a file' in stderr
  assert (tmp_path / 'notes.txt').read_text() == 'mine'


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
