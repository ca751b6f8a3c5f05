"""The figures in docs/unknown_participation.md are those of its runs."""

import csv
import pathlib
import statistics

import pytest

_DOCS = pathlib.Path(__file__).resolve().parents[1] / 'docs'
_KNOWN = 'FedSteer stable'
_METHODS = {
  'known': _KNOWN,
  '`RunningFrequency`': 'FedSteer stable, frequency',
  '`IntervalEstimate`': 'FedSteer stable, interval',
}
_SEEDS = ['0', '1', '2', '3', '4']


@pytest.fixture(scope='module', name='page')
def _page():
  return (_DOCS / 'unknown_participation.md').read_text(encoding='utf-8')


@pytest.fixture(scope='module', name='accuracies')
def _accuracies():
  """Returns the runs' final accuracies by method and seed."""
  path = _DOCS / 'results' / 'unknown_participation' / 'runs.csv'
  with open(path, encoding='utf-8', newline='') as file:
    rows = list(csv.DictReader(file))
  found = {
    method: {
      row['seed']: float(row['final_test_accuracy'])
      for row in rows
      if row['method'] == method
    }
    for method in _METHODS.values()
  }
  assert all(list(seeds) == _SEEDS for seeds in found.values())
  return found


@pytest.mark.parametrize('name', list(_METHODS))
def test_accuracies_are_those_of_the_runs(page, accuracies, name):
  values = list(accuracies[_METHODS[name]].values())
  mean, deviation = statistics.mean(values), statistics.stdev(values)
  row = f'| {name} | {mean:.3f} ± {deviation:.3f} |'
  if name != 'known':
    difference = mean - statistics.mean(accuracies[_KNOWN].values())
    row += f' {difference:+.3f}, '
  assert row in page


def test_estimates_are_within_two_points_of_known_probabilities(
  page, accuracies
):
  known = accuracies[_KNOWN]
  differences = [
    abs(seeds[seed] - known[seed])
    for seeds in accuracies.values()
    for seed in _SEEDS
  ]
  assert max(differences) <= 0.02
  assert f'{max(differences):.3f}. Differences' in page


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
