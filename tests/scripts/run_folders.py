"""Folders as `scripts.train` and `scripts.compare` leave them, by hand."""

import json

from scripts import compare_config
from scripts import compare_runs
from scripts import compare_table

ROUNDS = 20


def rows():
  """Rows of `metrics.csv` with round numbers, of which a reader can judge.

  The second half has a variance ratio of 0.25, residuals of 0.4, rows that are
  3 rounds old, and a final accuracy of 0.75.
  """
  return [
    {
      'round': number,
      'loss': 1 / number,
      'accuracy': 0.9,
      'test_loss': '',
      'test_accuracy': 0.75 if number % 2 == 0 else '',
      'active_clients': 2,
      'nonfinite_clients': 3 if number == 5 else 0,
      'duplicate_clients': 0,
      'core_staleness_mean': 3.0 if number > 10 else 0.0,
      'core_staleness_max': 7.0 if number > 10 else 0.0,
      'coordinate_staleness_mean': number / 2,
      'coordinate_staleness_max': number,
      'relative_residual': 0.4 if number > 10 else 1.0,
      'effective_shrinkage': 0.9 if number > 10 else 0.0,
      'core_condition': 10.0,
      'variance_estimate': 0.5 if number > 10 else 2.0,
      'variance_estimate_without_steering': 2.0,
      'variance_ratio': 0.25 if number > 10 else 1.0,
      'cohort_size': 2 if number > 1 else 0,
      'cohort': f'{number % 3} 3' if number > 1 else '',
      'seconds': 0.5,
      'resident_mib': 100.0,
    }
    for number in range(1, ROUNDS + 1)
  ]


def write_rows(folder, table):
  """Writes `metrics.csv`."""
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'metrics.csv').write_text(compare_table.csv_text(table))


def write_run(folder, table=None, *, complete=True, **flags):
  """Writes a run folder; returns its path."""
  write_rows(folder, table or rows())
  all_flags = {
    'task': 'digits',
    'algorithm': 'fedsteer',
    'estimator': 'stable',
    'seed': 3,
    'rounds': ROUNDS,
    'num_clients': 6,
    'ridge': None,
    **flags,
  }
  (folder / 'config.json').write_text(
    json.dumps({'flags': all_flags, 'versions': {'python': '3.11.7'}})
  )
  if complete:
    (folder / 'summary.json').write_text(
      json.dumps(
        {
          'rounds': ROUNDS,
          'final_test_accuracy': 0.75,
          'untrained_test_accuracy': 0.1,
          'state_bytes': {'aggregator/core_updates': 1200, 'total': 1_500_000},
          'hashes': {'partition': '12ab'},
        }
      )
    )
  return str(folder)


def comparison(**changes):
  """Returns a small comparison."""
  return compare_config.parse(
    {
      'methods': {
        'FedAvg': ['--algorithm=fedavg'],
        'FedSteer stable': ['--algorithm=fedsteer', '--estimator=stable'],
      },
      'settings': {'easy': ['--gamma=0.7'], 'hard': ['--gamma=0.9']},
      'seeds': [0, 1],
      'target_accuracy': {'hard': 0.6},
      'rounds': 4,
      **changes,
    }
  )


def write_results(folder, compared, accuracy=None, leave_out=()):
  """Writes a results folder as `scripts.compare` does; returns its path.

  Args:
    folder: The folder.
    compared: The comparison.
    accuracy: From a run to its final accuracy; if None, FedSteer is ahead by
      0.1 with each seed.
    leave_out: Positions of runs that are missing.
  """

  def default(run):
    return 0.5 + 0.01 * run.seed + 0.1 * ('Steer' in run.method)

  results = []
  for position, run in enumerate(compared.runs('unused')):
    if position in leave_out:
      continue
    final = (accuracy or default)(run)
    results.append(
      compare_runs.Result(
        run=run,
        summary={
          'rounds': 4,
          'final_test_accuracy': final,
          'untrained_test_accuracy': 0.1,
          'state_bytes': {'total': 1000 if run.method == 'FedAvg' else 20000},
          'seconds_per_round_median': 0.5,
          'peak_resident_mib': 100.0,
          'hashes': {'partition': '12'},
        },
        rows=[
          {
            'round': str(number),
            'test_accuracy': str(final) if number % 2 == 0 else '',
            'test_loss': '1.0',
            'variance_ratio': '0.5',
          }
          for number in range(1, 5)
        ],
      )
    )
  folder.mkdir(parents=True, exist_ok=True)
  for name, text in (
    (
      'runs.csv',
      compare_table.csv_text(compare_table.runs_rows(compared, results)),
    ),
    (
      'curves.csv',
      compare_table.csv_text(compare_table.curves_rows(compared, results)),
    ),
    ('table.md', compare_table.table(compared, results, {})),
  ):
    (folder / name).write_text(text)
  return str(folder)
