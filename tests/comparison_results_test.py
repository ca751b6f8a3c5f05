"""The tables of README.md and docs/results are those of the committed runs."""

import pathlib

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_RESULTS = _ROOT / 'docs' / 'results'
_NAMES = {
  'FedAvg': 'FedAvg',
  'FedSteer paper': 'FedSteer `paper`',
  'FedSteer unbiased': 'FedSteer `unbiased`',
  'FedSteer stable': 'FedSteer `stable`',
}


def _rows(folder):
  """Returns the rows of a folder's tables, header and rules left out."""
  lines = (_RESULTS / folder / 'table.md').read_text('utf-8').splitlines()
  return [
    line
    for line in lines
    if line.startswith('| ') and not line.startswith('| method')
  ]


@pytest.mark.parametrize(
  ('folder', 'least'),
  [
    ('ablations', 22),
    ('designs', 2),
    ('methods', 13),
    ('methods_elsewhere', 21),
    ('named_estimators', 16),
    ('population_500', 7),
  ],
)
def test_every_row_is_on_the_page(folder, least):
  page = (_RESULTS / 'README.md').read_text('utf-8').splitlines()
  rows = _rows(folder)
  assert len(rows) >= least
  assert set(rows) <= set(page)


def test_the_page_has_the_accuracies_of_every_learning_rate():
  by_method, rates = {}, []
  folder = _RESULTS / 'learning_rates'
  for line in (folder / 'table.md').read_text('utf-8').splitlines():
    if line.startswith('### '):
      rates.append(line.rpartition(' ')[2])
    elif line.startswith('| ') and not line.startswith('| method'):
      method, accuracy = (cell.strip() for cell in line.split('|')[1:3])
      by_method.setdefault(method, []).append(accuracy)
  page = (_RESULTS / 'README.md').read_text('utf-8').splitlines()
  assert len(rates) == 5 and len(by_method) == 8
  for cells in [('method', *rates), *((m, *v) for m, v in by_method.items())]:
    assert f'| {" | ".join(cells)} |' in page


def test_the_readme_has_the_accuracies_of_the_runs():
  accuracies = {}
  for row in _rows('named_estimators'):
    method, accuracy = (cell.strip() for cell in row.split('|')[1:3])
    accuracies.setdefault(method, []).append(accuracy)
  readme = (_ROOT / 'README.md').read_text('utf-8').replace('**', '')
  assert set(accuracies) == set(_NAMES)
  for method, values in accuracies.items():
    assert len(values) == 4
    assert f'| {_NAMES[method]} | {" | ".join(values)} |' in readme


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
