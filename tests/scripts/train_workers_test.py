"""Runs of the real program over two workers, and single rounds of it."""

import csv
import pathlib
import subprocess
import sys
import time

from absl import flags
from absl.testing import flagsaver
import numpy as np
import pytest
import tensorflow as tf

from scripts import train_flags
from scripts import train_setup
from tests import source_tree
from tests import worker_processes

_ROUNDS = 12
_FLAGS = (
  '--task=digits',
  '--estimator=stable',
  '--num_clients=20',
  '--participation_rate=0.3',
  '--core_set_size=3',
  '--warmup_rounds=2',
  '--evaluate_every=4',
  '--checkpoint_every=3',
  f'--rounds={_ROUNDS}',
  '--worker_timeout=2',
)

pytestmark = pytest.mark.slow


def _start(folder: pathlib.Path, workers) -> subprocess.Popen:
  addresses = ','.join(worker.address for worker in workers)
  return subprocess.Popen(
    [
      sys.executable,
      '-m',
      'scripts.train',
      *_FLAGS,
      f'--workers={addresses}',
      f'--output_dir={folder}',
    ],
    cwd=source_tree.ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def _finish(process):
  _, stderr = process.communicate(timeout=400)
  return process.returncode, stderr


def _wait_for_rows(process, folder, count):
  path = folder / 'metrics.csv'
  deadline = time.monotonic() + 300
  while not path.exists() or path.read_text().count('\n') <= count:
    assert process.poll() is None, process.communicate()
    assert time.monotonic() < deadline
    time.sleep(0.01)


def _rows(folder):
  with open(folder / 'metrics.csv', encoding='utf-8', newline='') as f:
    rows = list(csv.DictReader(f))
  for row in rows:
    for measured in ('seconds', 'resident_mib'):
      assert float(row.pop(measured)) > 0
  return rows


def _state(folder):
  prefix = folder / f'checkpoints/program_state_{_ROUNDS}/variables/variables'
  reader = tf.train.load_checkpoint(str(prefix))
  return {
    name: reader.get_tensor(name)
    for name in reader.get_variable_to_shape_map()
    if name != '_CHECKPOINTABLE_OBJECT_GRAPH'
  }


def test_a_run_that_lost_a_worker_resumes_to_what_it_would_have_been(tmp_path):
  with worker_processes.workers(tmp_path / 'workers', 2) as workers:
    process = _start(tmp_path / 'undisturbed', workers)
    try:
      code, stderr = _finish(process)
      assert code == 0, stderr

      process = _start(tmp_path / 'run', workers)
      _wait_for_rows(process, tmp_path / 'run', 4)
      lost = workers[1]
      lost.end()
      code, stderr = _finish(process)
      assert code == 2, stderr
      *_, error = stderr.splitlines()
      assert error.startswith(
        f'train: error: worker {lost.address} must answer within 2 s, found '
      )
      assert error.endswith('; the same command resumes')
      assert 'Traceback' not in stderr
      assert 4 <= len(_rows(tmp_path / 'run')) < _ROUNDS

      workers[1] = worker_processes.Worker(tmp_path / 'workers', lost.port)
      process = _start(tmp_path / 'run', workers)
      code, stderr = _finish(process)
      assert code == 0, stderr
      assert 'Resuming' in stderr
      assert 'warning' not in stderr
    finally:
      process.kill()
      process.communicate()
  assert _rows(tmp_path / 'run') == _rows(tmp_path / 'undisturbed')
  actual, expected = _state(tmp_path / 'run'), _state(tmp_path / 'undisturbed')
  assert actual.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(actual[name], value, err_msg=name)


@pytest.fixture(scope='module', name='addresses')
def _addresses(tmp_path_factory):
  """The addresses of two workers, as --workers takes them."""
  folder = tmp_path_factory.mktemp('workers')
  with worker_processes.workers(folder, 2) as started:
    yield ','.join(worker.address for worker in started)


# Each choice of both flags, but for the defaults that the run above has.
@pytest.mark.parametrize(
  'arguments',
  [
    ['--correction=secure', '--participation_estimate=frequency'],
    ['--correction=clipped', '--participation_estimate=windowed'],
    ['--correction=zeroed', '--participation_estimate=interval'],
    ['--correction=private', '--noise_multiplier=0'],
  ],
  ids=lambda arguments: arguments[0].partition('=')[2],
)
def test_corrections_and_estimates_are_the_same_over_workers(
  addresses, arguments
):
  train_flags.define()
  with flagsaver.flagsaver():
    train_flags.parse(
      [
        'train',
        '--task=digits',
        '--estimator=stable',
        '--num_clients=10',
        '--examples_per_client=10',
        '--local_epochs=1',
        '--participation_rate=0.5',
        '--participation_skew=1',
        '--core_set=0,1,2',
        '--correction_norm=0.05',
        '--output_dir=x',
        *arguments,
      ]
    )
    training = train_setup.build(flags.FLAGS)
    process = training.process
    with train_setup.runtime(flags.FLAGS).activate():
      state = process.initialize()
      for round_num in range(2):
        cohort = training.sampler.cohort(round_num, forced_clients=[0, 1, 2])
        state = process.next(state, training.client_data_fn(cohort)).state
      data = training.client_data_fn(training.sampler.cohort(2))
      expected = process.next(state, data).state
    flags.FLAGS.workers = addresses.split(',')
    with train_setup.runtime(flags.FLAGS).activate():
      actual = process.next(state, data).state
  tf.nest.map_structure(
    lambda one, other: (
      np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
      if np.asarray(one).dtype.kind in 'biuf'
      else None
    ),
    actual,
    expected,
  )
  before = process.get_model_weights(state).trainable
  after = process.get_model_weights(actual).trainable
  assert max(np.max(np.abs(a - b)) for a, b in zip(after, before)) > 1e-3


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
