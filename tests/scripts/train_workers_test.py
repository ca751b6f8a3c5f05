"""Runs of the real program over two workers, and single rounds of it."""

import pathlib

from absl import flags
from absl.testing import flagsaver
import numpy as np
import pytest
import tensorflow as tf

from scripts import train_flags
from scripts import train_setup
from tests import worker_processes
from tests.scripts import training_runs

_ROUNDS = 12
_FLAGS = (
  '--task=digits',
  '--estimator=stable',
  '--num_clients=20',
  '--participation_rate=0.3',
  '--core_set_size=3',
  '--warmup_rounds=2',
  '--evaluate_every=4',
  '--checkpoint_every=100',
  f'--rounds={_ROUNDS}',
  '--worker_timeout=2',
)

pytestmark = pytest.mark.slow


def _start(folder: pathlib.Path, workers) -> training_runs.Forked:
  addresses = ','.join(worker.address for worker in workers)
  return training_runs.Forked(folder, *_FLAGS, f'--workers={addresses}')


def test_a_run_that_lost_a_worker_resumes_to_what_it_would_have_been(tmp_path):
  with worker_processes.workers(tmp_path / 'workers', 2) as workers:
    code, _, stderr = _start(tmp_path / 'undisturbed', workers).finish()
    assert code == 0, stderr

    run = _start(tmp_path / 'run', workers)
    run.wait_for_rows(4)
    lost = workers[1]
    lost.end()
    code, _, stderr = run.finish()
    assert code == 2, stderr
    *_, error = stderr.splitlines()
    assert error.startswith(
      f'train: error: worker {lost.address} must answer within 2 s, found '
    )
    # Every round that was over is kept, not only those of a checkpoint.
    done = len(training_runs.rows(tmp_path / 'run'))
    assert 4 <= done < _ROUNDS
    assert error.endswith(f'; the same command resumes after round {done}')
    assert 'Traceback' not in stderr

    workers[1] = worker_processes.Worker(tmp_path / 'workers', lost.port)
    code, _, stderr = _start(tmp_path / 'run', workers).finish()
    assert code == 0, stderr
    assert f'Resuming {tmp_path / "run"} after round {done}.' in stderr
    assert 'warning' not in stderr
  run, undisturbed = tmp_path / 'run', tmp_path / 'undisturbed'
  assert training_runs.determined(run) == training_runs.determined(undisturbed)
  training_runs.assert_same_state(run, undisturbed, _ROUNDS)


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
