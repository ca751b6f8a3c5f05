"""The same bits from two processes, whatever number of processors they see."""

from concurrent import futures
import os

import pytest

from tests.scripts import training_runs

_FLAGS = (
  '--task=digits',
  '--estimator=stable',
  '--num_clients=12',
  '--participation=uniform',
  '--participation_rate=0.7',
  '--aggregation=client_projection',
  '--core_set=0,1,2,3,4,5,6,7',
  '--rounds=4',
  '--deterministic',
)


def _run(folder, processors):
  # Of this thread, and of the process that it starts.
  os.sched_setaffinity(0, processors)
  return training_runs.command(f'--output_dir={folder}', *_FLAGS)


@pytest.mark.slow
def test_a_deterministic_run_has_the_same_bits_on_one_processor(tmp_path):
  everywhere = os.sched_getaffinity(0)
  folders = tmp_path / 'all', tmp_path / 'one'
  with futures.ThreadPoolExecutor(2) as threads:
    outcomes = list(threads.map(_run, folders, (everywhere, {min(everywhere)})))
  for outcome in outcomes:
    assert outcome.code == 0, outcome.stderr
  rows = [training_runs.determined(folder) for folder in folders]
  assert rows[0] == rows[1]
  assert len(rows[0]) == 4
  # Several clients took part, and Q was used.
  assert max(int(row['active_clients']) for row in rows[0]) >= 3
  assert float(rows[0][-1]['ridge_condition']) > 1
  training_runs.assert_same_state(*folders, 4)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
