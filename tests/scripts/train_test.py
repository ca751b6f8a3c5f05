"""Runs of the real program, undisturbed, interrupted, killed and resumed."""

import csv
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest

import fedsteer_tff

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
# What may differ between two runs with the same seed.
MEASURED = ('seconds', 'resident_mib')

pytestmark = pytest.mark.slow


def _start(output_dir, *flags, rounds=ROUNDS):
  command = [
    sys.executable,
    '-m',
    'scripts.train',
    *FLAGS,
    f'--rounds={rounds}',
    f'--output_dir={output_dir}',
    *flags,
  ]
  return subprocess.Popen(
    command,
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,  # As in a terminal: a process group of its own.
  )


def _finish(process):
  stdout, stderr = process.communicate(timeout=300)
  return process.returncode, stdout, stderr


def _run(output_dir, *flags, **kwargs):
  return _finish(_start(output_dir, *flags, **kwargs))


def _rows(output_dir):
  with open(output_dir / 'metrics.csv', encoding='utf-8', newline='') as f:
    return list(csv.DictReader(f))


def _determined(output_dir):
  rows = _rows(output_dir)
  for row in rows:
    for name in MEASURED:
      del row[name]
  return rows


def _hashes(output_dir):
  config = json.loads((output_dir / 'config.json').read_text())
  summary = json.loads((output_dir / 'summary.json').read_text())
  assert config['hashes'] == summary['hashes']
  return config['hashes']


def _wait_for_rows(process, output_dir, count):
  deadline = time.monotonic() + 240
  while time.monotonic() < deadline:
    path = output_dir / 'metrics.csv'
    if path.exists() and path.read_text(encoding='utf-8').count('\n') > count:
      return
    if process.poll() is not None:
      raise AssertionError(f'ended early: {process.communicate()}')
    time.sleep(0.02)
  raise AssertionError(f'no {count} rows in time')


def _children(pid):
  """Returns the process ids of a process's children."""
  children = []
  for entry in os.listdir('/proc'):
    if entry.isdigit():
      try:
        stat = pathlib.Path(f'/proc/{entry}/stat').read_text(encoding='ascii')
      except OSError:
        continue  # Ended meanwhile.
      if int(stat.rsplit(')', 1)[1].split()[1]) == pid:
        children.append(int(entry))
  return children


def _weights(output_dir, round_num):
  """Returns all numbers of the state after a round."""
  import tensorflow as tf

  reader = tf.train.load_checkpoint(
    str(output_dir / f'checkpoints/program_state_{round_num}/variables')
    + '/variables'
  )
  return {
    name: reader.get_tensor(name)
    for name in reader.get_variable_to_shape_map()
    if name != '_CHECKPOINTABLE_OBJECT_GRAPH'
  }


def _checkpoints(output_dir):
  """Returns the rounds of the complete states, ascending."""
  names = os.listdir(output_dir / 'checkpoints')
  rounds = [name.rpartition('program_state_')[2] for name in names]
  return sorted(int(r) for r in rounds if r.isdigit())


def _snapshot(folder):
  return {
    str(path.relative_to(folder)): (
      path.stat().st_mtime_ns,
      path.read_bytes(),
    )
    for path in sorted(folder.rglob('*'))
    if path.is_file()
  }


@pytest.fixture(scope='module', name='finished')
def _finished(tmp_path_factory):
  """An undisturbed run: its folder and what it printed."""
  folder = tmp_path_factory.mktemp('undisturbed') / 'run'
  code, stdout, stderr = _run(folder)
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
  rows = _rows(folder)
  assert [int(row['round']) for row in rows] == list(range(1, ROUNDS + 1))
  evaluated = [int(row['round']) for row in rows if row['test_accuracy']]
  assert evaluated == [2, 4, 6, 8, 10, 12]
  for row in rows:
    assert int(row['cohort_size']) == len(row['cohort'].split())
    assert int(row['active_clients']) == int(row['cohort_size'])
    assert 0 <= float(row['accuracy']) <= 1
    for name in ('loss', 'relative_residual', 'variance_ratio', *MEASURED):
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
  later = _rows(folder)[6:]
  assert max(float(row['core_staleness_max']) for row in later) <= 3


def test_a_finished_run_is_reported_again_and_left_alone(finished):
  folder, first, _ = finished
  before = _snapshot(folder)
  code, stdout, stderr = _run(folder)
  assert code == 0, stderr
  assert 'complete' in stdout
  assert stdout.endswith(first)
  assert _snapshot(folder) == before


def test_a_private_correction_trains_and_resumes(tmp_path):
  flags = (
    '--aggregation=client_projection',
    '--correction=private',
    '--correction_norm=0.1',
    '--noise_multiplier=0.1',
  )
  folder = tmp_path / 'run'
  for rounds in (2, 4):
    code, _, stderr = _run(folder, *flags, rounds=rounds)
    assert code == 0, stderr
  assert 'after round 2' in stderr
  assert [int(row['round']) for row in _rows(folder)] == [1, 2, 3, 4]
  config = json.loads((folder / 'config.json').read_text())
  assert config['flags']['noise_multiplier'] == 0.1


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
  rows = _rows(tmp_path / 'run')
  usual = set(_rows(finished[0])[0])
  assert usual < set(rows[0])
  for row in rows:
    assert row['correction/secure_upper_clipped_count'] == '0'
    assert float(row['correction/secure_upper_threshold']) == 8
  # As in a run with a plain sum: the clients' first training, which is the
  # same, and the data have nothing to do with the correction.
  assert rows[0]['loss'] == _rows(finished[0])[0]['loss']


def test_another_configuration_is_refused(finished):
  folder, _, _ = finished
  before = _snapshot(folder)
  code, stdout, stderr = _run(folder, '--seed=1', '--ridge=0.1', rounds=5)
  assert code == 2
  assert not stdout
  assert len(stderr.splitlines()) == 1
  assert '--seed: 0 -> 1' in stderr
  assert '--ridge: None -> 0.1' in stderr
  assert f'--rounds: {ROUNDS} -> 5' in stderr
  assert _snapshot(folder) == before


def test_interrupted_killed_and_prolonged_equals_undisturbed(
  finished, tmp_path
):
  undisturbed, _, _ = finished
  folder = tmp_path / 'run'

  # Ctrl-C in a terminal reaches the whole process group.
  process = _start(folder, rounds=ROUNDS - 2)
  _wait_for_rows(process, folder, 2)
  os.killpg(process.pid, signal.SIGINT)
  code, _, stderr = _finish(process)
  assert code == 130, stderr
  assert 'The same command resumes' in stderr
  assert 'Traceback' not in stderr
  done = len(_rows(folder))
  assert 2 <= done < ROUNDS - 2
  assert (folder / f'checkpoints/program_state_{done}').is_dir()
  assert not (folder / 'summary.json').exists()

  # SIGKILL, after a checkpoint and rows that it does not cover.
  process = _start(folder, rounds=ROUNDS - 2)
  _wait_for_rows(process, folder, max(5, done + 1))
  children = _children(process.pid)
  assert children
  process.kill()
  _, _, stderr = _finish(process)
  assert process.returncode == -signal.SIGKILL, stderr
  assert f'after round {done}' in stderr
  deadline = time.monotonic() + 10
  while time.monotonic() < deadline and any(
    os.path.exists(f'/proc/{child}') for child in children
  ):
    time.sleep(0.05)
  assert not [c for c in children if os.path.exists(f'/proc/{c}')]

  # No room for the next checkpoint.
  kept = _checkpoints(folder)
  process = _start(folder, rounds=ROUNDS - 2)
  resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (50_000, 50_000))
  code, _, stderr = _finish(process)
  assert code == 2, stderr
  assert 'train: error: the checkpoint of round' in stderr
  assert 'File too large' in stderr
  assert f'the last good one is of round {kept[-1]}' in stderr
  assert 'Traceback' not in stderr
  assert _checkpoints(folder) == kept

  # More rounds than the run was started with.
  code, stdout, stderr = _run(folder)
  assert code == 0, stderr
  assert 'final test accuracy' in stdout
  assert _determined(folder) == _determined(undisturbed)
  assert _hashes(folder) == _hashes(undisturbed)
  actual = _weights(folder, ROUNDS)
  expected = _weights(undisturbed, ROUNDS)
  assert actual.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(actual[name], value, err_msg=name)


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


@pytest.mark.parametrize(
  'algorithm',
  [
    ('fedprox', '--proximal_strength=0.1'),
    ('fedstale', '--beta=0.5', '--correction_smoothing=0.5'),
    ('mifa', '--enforce_core_every=2', '--enforced_clients=3,8'),
    ('scaffold',),
  ],
  ids=lambda flags: flags[0],
)
def test_a_baseline_resumes_to_what_it_would_have_been(tmp_path, algorithm):
  name, *rest = algorithm
  common = [
    '--task=digits',
    f'--algorithm={name}',
    '--num_clients=10',
    '--participation_rate=0.3',
    *rest,
  ]

  def train(folder, rounds):
    process = subprocess.Popen(
      [
        sys.executable,
        '-m',
        'scripts.train',
        *common,
        f'--rounds={rounds}',
        f'--output_dir={tmp_path / folder}',
      ],
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    code, _, stderr = _finish(process)
    assert code == 0, stderr

  train('resumed', 2)
  train('resumed', 5)
  train('straight', 5)
  rows = _determined(tmp_path / 'straight')
  assert len(rows) == 5
  assert rows == _determined(tmp_path / 'resumed')
  if name == 'mifa':
    cohorts = [set(row['cohort'].split()) for row in rows]
    for one, next_one in zip(cohorts, cohorts[1:]):
      assert {'3', '8'} <= one | next_one


def _write_images(folder, num_train):
  """Writes files as Fashion-MNIST's, with images of noise."""
  folder.mkdir()
  generator = np.random.default_rng(0)
  for split, n in (('train', num_train), ('t10k', 20)):
    images = generator.integers(0, 256, (n, 28, 28), np.uint8)
    labels = (np.arange(n) % 10).astype(np.uint8)
    for name, array in (('images-idx3', images), ('labels-idx1', labels)):
      header = struct.pack('>BBBB', 0, 0, 8, array.ndim)
      header += struct.pack(f'>{array.ndim}I', *array.shape)
      (folder / f'{split}-{name}-ubyte').write_bytes(header + array.tobytes())


def test_data_may_be_moved_but_not_changed(tmp_path):
  flags = (
    '--task=fashion_mnist',
    '--model=mlp',
    '--algorithm=fedavg',
    '--num_clients=10',
    '--partition=iid',
    '--participation_rate=0.5',
  )

  def train(data, rounds):
    process = subprocess.Popen(
      [
        sys.executable,
        '-m',
        'scripts.train',
        *flags,
        f'--data_dir={tmp_path / data}',
        f'--rounds={rounds}',
        f'--output_dir={tmp_path}/run',
      ],
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    code, _, stderr = _finish(process)
    return code, stderr

  _write_images(tmp_path / 'here', 40)
  code, stderr = train('here', 1)
  assert code == 0, stderr
  before = _hashes(tmp_path / 'run')
  (tmp_path / 'here').rename(tmp_path / 'there')
  code, stderr = train('there', 2)
  assert code == 0, stderr
  after = _hashes(tmp_path / 'run')
  # More rounds are planned; everything else is as it was.
  assert after.pop('participation') != before.pop('participation')
  assert after == before
  _write_images(tmp_path / 'other', 60)
  snapshot = _snapshot(tmp_path / 'run')
  code, stderr = train('other', 3)
  assert code == 2, stderr
  assert 'was begun with another partition (hash' in stderr
  assert len(stderr.splitlines()) == 1
  assert _snapshot(tmp_path / 'run') == snapshot


def test_sigterm_before_the_first_round_leaves_a_run_to_resume(tmp_path):
  folder = tmp_path / 'run'
  process = _start(folder, rounds=2)
  deadline = time.monotonic() + 240
  while not (folder / 'config.json').exists():
    assert process.poll() is None, process.communicate()
    assert time.monotonic() < deadline
    time.sleep(0.02)
  time.sleep(0.2)  # The handler is set right after the configuration.
  process.terminate()
  code, _, stderr = _finish(process)
  assert code == 143, stderr
  assert 'The same command resumes' in stderr
  assert (folder / 'checkpoints').is_dir()
  assert not (folder / 'summary.json').exists()


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
  code, stdout, stderr = _run(tmp_path / 'run', *flags)
  assert code == 2, stderr
  assert not stdout
  assert len(stderr.splitlines()) == 1
  assert message in stderr
  assert not (tmp_path / 'run').exists()


def test_a_wrong_flag_does_not_wait_for_tensorflow(tmp_path):
  start = time.monotonic()
  code, _, stderr = _run(tmp_path / 'run', '--seed=x')
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
