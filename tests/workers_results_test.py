"""The figures in docs/several_machines.md are those of its measurements."""

import json
import pathlib
import statistics

import pytest

_DOCS = pathlib.Path(__file__).resolve().parents[1] / 'docs'
_FORMATS = {
  'median_seconds': '.3f',
  'fastest_seconds': '.3f',
  'rounds_per_second': '.2f',
  'first_round_seconds': '.1f',
}
# A table of the page for each: of one measurement, or of several side by side.
_TABLES = (
  ('short_rounds',),
  ('long_rounds_1', 'long_rounds_2'),
  ('one_core_each',),
)


def _measured(name):
  path = _DOCS / 'results' / 'workers' / f'{name}.json'
  return json.loads(path.read_text(encoding='utf-8'))


@pytest.fixture(scope='module', name='page')
def _page():
  return (_DOCS / 'several_machines.md').read_text(encoding='utf-8')


@pytest.mark.parametrize('names', _TABLES, ids=lambda names: names[0])
def test_a_table_is_that_of_the_measured_rounds(page, names):
  measured = [_measured(name) for name in names]
  for found in measured:
    assert f'{found["state_bytes"]:,} bytes' in page
    for argument in found['arguments']:
      assert argument.startswith('--numbers_of_workers') or argument in page
    for result in found['results']:
      median = statistics.median(result['seconds'])
      assert result['median_seconds'] == median
      assert result['fastest_seconds'] == min(result['seconds'])
      assert result['rounds_per_second'] == pytest.approx(1 / median)
  rows = []
  for results in zip(*(found['results'] for found in measured)):
    cells = [f'{results[0]["workers"]}']
    for name, spec in _FORMATS.items():
      cells.append(', '.join(format(r[name], spec) for r in results))
    rows.append(f'| {" | ".join(cells)} |')
  assert '|---|---|---|---|---|\n' + '\n'.join(rows) + '\n\n' in page


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
