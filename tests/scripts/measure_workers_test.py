"""Tests for the program that measures what workers bring."""

import json
import subprocess
import sys

import pytest

from tests import source_tree


def _run(*flags):
  done = subprocess.run(
    [sys.executable, '-m', 'scripts.measure_workers', *flags],
    cwd=source_tree.ROOT,
    capture_output=True,
    text=True,
    timeout=400,
  )
  return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_measures_each_number_of_workers(tmp_path):
  code, stdout, stderr = _run(
    '--numbers_of_workers=0,1',
    '--one_core_each',
    '--measured_rounds=3',
    '--algorithm=fedavg',
    '--num_clients=4',
    '--participation_rate=0.5',
    f'--output_dir={tmp_path}/scaling',
  )
  assert code == 0, stderr
  found = json.loads((tmp_path / 'scaling' / 'scaling.json').read_text())
  assert [result['workers'] for result in found['results']] == [0, 1]
  for result, row in zip(found['results'], stdout.splitlines()[2:]):
    assert len(result['seconds']) == 3
    median = sorted(result['seconds'])[1]
    assert result['median_seconds'] == median
    assert result['rounds_per_second'] == pytest.approx(1 / median)
    assert row.startswith(f'| {result["workers"]} | {median:.3f} | ')


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--workers=a:1', '--workers must not be given here'),
    (
      '--numbers_of_workers=1,x',
      '--numbers_of_workers must be integers >= 0 separated by commas, found'
      ' 1,x',
    ),
  ],
)
def test_wrong_flags_are_one_line(tmp_path, flag, message):
  code, stdout, stderr = _run(flag, f'--output_dir={tmp_path}')
  assert (code, stdout) == (2, '')
  assert stderr == f'measure_workers: error: {message}\n'


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
