"""The figures in docs/privacy.md are those of runs and accountant."""

import csv
import json
import pathlib
import statistics

import pytest

from fedsteer_tff import aggregators
from fedsteer_tff import participation
from scripts import train_flags

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_DELTA = 1e-3
_COMPARISONS = ('corrections', 'training')


def _cells():
  """Returns the cells of all lines of tables, by the first of them."""
  page = (_ROOT / 'docs' / 'privacy.md').read_text(encoding='utf-8')
  return {
    cells[0]: cells[1:]
    for cells in (
      [cell.strip() for cell in line.strip('|').split('|')]
      for line in page.splitlines()
      if line.startswith('|')
    )
  }


def _comparison(name):
  path = _ROOT / 'scripts' / 'comparisons' / f'privacy_{name}.json'
  return json.loads(path.read_text(encoding='utf-8'))


def _runs(name, method):
  folder = _ROOT / 'docs' / 'results' / 'privacy' / name
  with open(folder / 'runs.csv', encoding='utf-8', newline='') as file:
    return [row for row in csv.DictReader(file) if row['method'] == method]


def _flags(name, method):
  """Returns the flags of a method's runs."""
  comparison = _comparison(name)
  (setting,) = comparison['settings'].values()
  return train_flags.config_of(
    [
      '--output_dir=x',
      *setting,
      *comparison['methods'][method],
      f'--rounds={comparison["rounds"]}',
    ]
  )


_METHODS = [
  (name, method)
  for name in _COMPARISONS
  for method in _comparison(name)['methods']
]


@pytest.mark.parametrize(('name', 'method'), _METHODS)
def test_accuracies_are_those_of_the_runs(name, method, monkeypatch):
  monkeypatch.chdir(_ROOT)
  runs = _runs(name, method)
  assert [int(run['seed']) for run in runs] == _comparison(name)['seeds']
  assert {int(run['rounds']) for run in runs} == {_comparison(name)['rounds']}
  accuracies = [float(run['final_test_accuracy']) for run in runs]
  wanted = (
    f'{statistics.mean(accuracies):.3f} ± {statistics.stdev(accuracies):.3f}'
  )
  assert _cells()[method][1] == wanted


def _largest_probability(flags):
  count, rate = flags['num_clients'], flags['participation_rate']
  if flags['participation'] == 'uniform':
    probabilities = participation.uniform_probabilities(count, rate=rate)
  else:
    probabilities = participation.two_group_probabilities(
      count, rate=rate, skew=flags['participation_skew']
    )
  return float(max(probabilities))


@pytest.mark.parametrize(('name', 'method'), _METHODS)
def test_epsilons_are_those_of_the_accountant(name, method, monkeypatch):
  monkeypatch.chdir(_ROOT)
  flags = _flags(name, method)
  norm, _, *epsilons = _cells()[method]
  wanted_norm = flags['correction_norm']
  assert norm == ('' if wanted_norm is None else f'{wanted_norm:g}')
  if flags['correction'] != 'private':
    assert epsilons == ['', '']
    return
  # A delta that is not well below 1 / N promises nothing.
  assert _DELTA < 1 / flags['num_clients']
  found = [
    aggregators.correction_epsilon(
      flags['noise_multiplier'], flags['rounds'], _DELTA, probability
    )
    for probability in (_largest_probability(flags), 1.0)
  ]
  assert epsilons == [f'{epsilon:.1f}' for epsilon in found]


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
