"""Tests for metrics_table."""

import csv

import pytest

from fedsteer_tff.programs import metrics_table
from fedsteer_tff.programs import run_files


def _filled(path, rounds):
  table = metrics_table.MetricsTable(path)
  for r in range(1, rounds + 1):
    table.append({'round': r, 'loss': 1 / r, 'test': 0.5 if r == 2 else None})
  return table


def test_numbers_come_back_exactly_and_none_is_empty(tmp_path):
  rows = _filled(tmp_path / 'm.csv', 3).rows()
  assert [row['round'] for row in rows] == ['1', '2', '3']
  assert [float(row['loss']) for row in rows] == [1.0, 0.5, 1 / 3]
  assert [row['test'] for row in rows] == ['', '0.5', '']


def test_cohorts_of_any_size_come_back(tmp_path):
  cohort = ' '.join(map(str, range(30_000)))
  assert len(cohort) > csv.field_size_limit()
  path = tmp_path / 'metrics.csv'
  table = metrics_table.MetricsTable(path)
  limit = csv.field_size_limit()
  table.append({'round': 1, 'loss': 0.5, 'cohort': cohort})
  table.truncate(1)
  assert table.rows() == [{'round': '1', 'loss': '0.5', 'cohort': cohort}]
  assert csv.field_size_limit() == limit


def test_truncated_and_continued_equals_undisturbed(tmp_path):
  _filled(tmp_path / 'a.csv', 4)
  _filled(tmp_path / 'b.csv', 3)
  table = metrics_table.MetricsTable(tmp_path / 'b.csv')
  table.truncate(2)
  for r in (3, 4):
    table.append({'round': r, 'loss': 1 / r, 'test': None})
  assert (tmp_path / 'a.csv').read_bytes() == (tmp_path / 'b.csv').read_bytes()


def test_a_row_that_was_cut_short_is_dropped(tmp_path):
  path = tmp_path / 'm.csv'
  _filled(path, 3)
  path.write_bytes(path.read_bytes()[:-4])
  table = metrics_table.MetricsTable(path)
  assert len(table.rows()) == 2
  table.truncate(2)
  assert path.read_bytes().endswith(b'0.5,0.5\n')


def test_truncating_to_nothing_starts_again(tmp_path):
  path = tmp_path / 'm.csv'
  table = _filled(path, 2)
  table.truncate(0)
  assert not path.exists()
  table.append({'round': 1, 'other': 2})
  assert table.rows() == [{'round': '1', 'other': '2'}]


def test_a_missing_row_before_the_checkpoint_is_an_error(tmp_path):
  table = _filled(tmp_path / 'm.csv', 3)
  with pytest.raises(ValueError, match='4 rounds before .* found 3'):
    table.truncate(4)


def test_other_columns_are_an_error(tmp_path):
  table = _filled(tmp_path / 'm.csv', 1)
  before = (tmp_path / 'm.csv').read_bytes()
  with pytest.raises(run_files.RunDirectoryError, match='with x, found none'):
    table.append({'round': 2, 'loss': 1.0, 'test': None, 'x': 1})
  assert (tmp_path / 'm.csv').read_bytes() == before


@pytest.mark.parametrize(
  ('header', 'message'),
  [
    (
      'round,los,test',
      'must have the columns of the rounds to come, with loss, found los'
      ' instead',
    ),
    (
      'round,loss,loss',
      'must have every column once, found several named loss',
    ),
    (
      'round,x,y',
      'must have the columns of the rounds to come, with loss, test, found x, y'
      ' instead',
    ),
  ],
)
def test_columns_are_checked_before_a_row_comes(tmp_path, header, message):
  path = tmp_path / 'm.csv'
  table = metrics_table.MetricsTable(path)
  table.check_columns(['round', 'x'])  # There is no table.
  _filled(path, 2)
  table.check_columns(['test', 'round', 'loss'])
  with pytest.raises(run_files.RunDirectoryError) as caught:
    table.check_columns(['round', 'loss'])
  assert str(caught.value) == (
    f'{path} must have no columns but those of the rounds to come, found test'
  )
  _, *lines = path.read_text().splitlines()
  text = '\n'.join([header, *lines, ''])
  path.write_text(text)
  with pytest.raises(run_files.RunDirectoryError) as caught:
    table.check_columns(['round', 'loss', 'test'])
  assert str(caught.value) == f'{path} {message}'
  assert path.read_text() == text


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
