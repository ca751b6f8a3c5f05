"""Tests for the command that reproduces the tables."""

import csv
import json
import pathlib
import subprocess
import sys

import pytest

from scripts import reproduce

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _row(method, seed, accuracy):
  return dict(
    task='digits',
    gamma='0.9',
    method=method,
    seed=seed,
    final_test_accuracy=accuracy,
  )


def test_the_table_has_means_spreads_and_paired_differences():
  rows = [
    _row('FedAvg', '0', 0.5),
    _row('FedAvg', '1', 0.7),
    _row('FedSteer stable', '0', 0.7),
    _row('FedSteer stable', '1', 0.8),
  ]
  # Differences 0.2 and 0.1: mean 0.15, deviation 0.1 / sqrt(2) = 0.071.
  assert reproduce.table(rows).splitlines() == [
    'digits, gamma 0.9:',
    '',
    '| method | seed 0 | seed 1 | mean ± std | minus FedAvg |',
    '|---|---|---|---|---|',
    '| FedAvg | 0.500 | 0.700 | 0.600 ± 0.141 |  |',
    '| FedSteer stable | 0.700 | 0.800 | 0.750 ± 0.071 | +0.150 ± 0.071 |',
  ]


def test_a_method_without_all_seeds_is_left_out_of_the_table():
  rows = [
    _row('FedAvg', '0', 0.5),
    _row('FedAvg', '1', 0.7),
    _row('FedSteer paper', '1', 0.9),
  ]
  assert 'paper' not in reproduce.table(rows)


def test_runs_have_folders_of_their_own():
  runs = [
    reproduce.Run('digits', gamma, method, seed)
    for gamma in ('0.9', '0.7')
    for method in reproduce.methods()
    for seed in ('0', '1')
  ]
  assert len({run.folder for run in runs}) == len(runs)


@pytest.mark.slow
def test_two_rounds_of_two_methods_leave_tables_and_a_plot(tmp_path):
  command = [
    sys.executable,
    '-m',
    'scripts.reproduce',
    '--tasks=digits',
    '--gammas=0.9',
    '--seeds=0',
    '--methods=FedAvg,FedSteer stable',
    '--rounds=5',
    f'--output_dir={tmp_path}/runs',
    f'--results_dir={tmp_path}/results',
  ]
  log = tmp_path / 'log'
  for _ in range(2):  # The second time finds all runs complete.
    with open(log, 'w') as output:
      code = subprocess.call(
        command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
      )
    assert code == 0, log.read_text()
  results = tmp_path / 'results'
  with open(results / 'runs.csv') as file:
    rows = list(csv.DictReader(file))
  assert [row['method'] for row in rows] == ['FedAvg', 'FedSteer stable']
  for row in rows:
    method = row['method'].lower().replace(' ', '_')
    summary = json.loads(
      (tmp_path / f'runs/digits/gamma0.9/{method}/0/summary.json').read_text()
    )
    assert float(row['final_test_accuracy']) == pytest.approx(
      summary['final_test_accuracy'], abs=1e-5
    )
  with open(results / 'accuracy.csv') as file:
    assert {row['round'] for row in csv.DictReader(file)} == {'5'}
  assert 'FedSteer stable' in (results / 'table.md').read_text()
  assert (results / 'accuracy.png').stat().st_size > 10_000


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
