"""Tests for the comparison of methods."""

import csv
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from scipy import stats

from fedsteer_tff.programs import interruption
from fedsteer_tff.programs import run_files
from scripts import compare
from scripts import compare_config
from scripts import compare_matrix
from scripts import compare_runs
from scripts import compare_table
from scripts import plot
from scripts import report_comparison
from scripts import result_folders

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPARISONS = sorted((ROOT / 'scripts' / 'comparisons').glob('*.json'))
HASHES = {'partition': 'aa', 'participation': 'bb', 'initial_weights': 'cc'}
FEDAVG = ['--algorithm=fedavg']
STABLE = ['--algorithm=fedsteer', '--estimator=stable']


def _content(**changes):
  """Returns a valid configuration; None removes an entry."""
  content = {
    'methods': {'FedAvg': FEDAVG, 'FedSteer stable': STABLE},
    'settings': {'digits 0.9': ['--task=digits', '--gamma=0.9']},
    'seeds': [0, 1],
    'rounds': 4,
  }
  content.update(changes)
  return {key: value for key, value in content.items() if value is not None}


def _config(tmp_path, **changes):
  path = tmp_path / 'config.json'
  path.write_text(json.dumps(_content(**changes)))
  return path


def _runs(tmp_path, **changes):
  comparison = compare_config.parse(_content(**changes))
  return comparison, comparison.runs(str(tmp_path / 'runs'))


def _pretend(run, accuracies, hashes=HASHES, ratios=None):
  """Writes what a finished run leaves; evaluated every second round."""
  folder = pathlib.Path(run.folder)
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(json.dumps({'flags': run.config}))
  lines = ['round,test_accuracy,test_loss,variance_ratio']
  for number in range(1, 2 * len(accuracies) + 1):
    accuracy = '' if number % 2 else accuracies[number // 2 - 1]
    ratio = ratios[number - 1] if ratios else ''
    lines.append(f'{number},{accuracy},{accuracy},{ratio}')
  (folder / 'metrics.csv').write_text('\n'.join(lines) + '\n')
  summary = {
    'rounds': 2 * len(accuracies),
    'final_test_accuracy': accuracies[-1],
    'untrained_test_accuracy': 0.1,
    'state_bytes': {'total': 1000 if run.method == 'FedAvg' else 20000},
    'seconds_per_round_median': 0.5 + run.seed,
    'peak_resident_mib': 100.0,
  }
  if hashes:
    summary['hashes'] = hashes
  (folder / 'summary.json').write_text(json.dumps(summary))


def _main(tmp_path, *arguments, **changes):
  """Runs the command in this process; returns its exit code."""
  return compare.main(
    [
      'compare',
      f'--config={_config(tmp_path, **changes)}',
      f'--output_dir={tmp_path}/runs',
      f'--results_dir={tmp_path}/results',
      *arguments,
    ]
  )


def _snapshot(folder):
  return {
    str(path): (path.stat().st_mtime_ns, path.read_bytes())
    for path in sorted(folder.rglob('*'))
    if path.is_file()
  }


# The configuration.


@pytest.mark.parametrize('path', COMPARISONS, ids=lambda path: path.stem)
def test_committed_comparisons_are_accepted(path, monkeypatch):
  monkeypatch.chdir(ROOT)
  comparison = compare_config.load(str(path))
  runs = comparison.runs('runs')
  assert len(runs) == len({run.folder for run in runs}) > 1


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'metods': {}}, 'keys must be among methods, settings, .* found metods'),
    ({'methods': None}, 'methods must be given'),
    ({'methods': {}}, 'methods must be an object of names and lists of flags'),
    ({'methods': {'A': '--x'}}, "methods: 'A' must be a list of flags"),
    ({'settings': {'A': ['x=1']}}, "settings: 'A' must be a list of flags"),
    (
      {'settings': {'A': ['--ruonds=1']}},
      "setting 'A' with method 'FedAvg': Unknown command line flag 'ruonds'",
    ),
    (
      {'settings': {'A': ['--ridge=1']}},
      "'A' with method 'FedAvg': --ridge is used with --algorithm=fedsteer",
    ),
    (
      {'settings': {'A': ['--flagfile=no.flags']}},
      "setting 'A' with method 'FedAvg'.*no.flags",
    ),
    (
      {'settings': {'A': ['--seed=1']}},
      "settings: 'A' must leave --seed to the comparison, found --seed=1",
    ),
    ({'settings': {'A': ['--rounds=1']}}, 'must leave --rounds to'),
    ({'seeds': []}, r'seeds must be different integers >= 0.* found \[\]'),
    ({'seeds': [1, 1]}, r'seeds must be different.* found \[1, 1\]'),
    ({'seeds': [True]}, 'seeds must be different'),
    ({'rounds': 0}, 'rounds must be an integer >= 1, found 0'),
    (
      {'reference': 'FedProx'},
      'reference must be one of the methods FedAvg, FedSteer stable, found'
      " 'FedProx'",
    ),
    ({'target_accuracy': 0.5}, 'target_accuracy must be an object'),
    ({'target_accuracy': {'B': 0.5}}, "must name settings, found 'B'"),
    (
      {'target_accuracy': {'digits 0.9': 70}},
      r"of 'digits 0.9' must be a number in \(0, 1\], found 70",
    ),
    ({'sweep': {'ridge': [1], 'gamma': [1]}}, 'sweep must be one flag'),
    ({'sweep': {'gamma': []}}, 'sweep: gamma must have a list of different'),
    ({'sweep': {'gamma': [0.1, 0.1]}}, 'list of different numbers'),
    ({'sweep': {'estimator': ['paper']}}, "'FedSteer stable' sets"),
    ({'sweep': {'seed': [1]}}, 'sweep must not be of seed'),
    ({'sweep': {'gama': [1]}}, "Unknown command line flag 'gama'"),
    (
      {'methods': {'FedSteer stable': STABLE, 'FedSteer, stable': STABLE}},
      "names that differ in letters and digits, found 'FedSteer stable' and",
    ),
  ],
)
def test_a_wrong_configuration_is_one_line_that_says_why(
  tmp_path, capsys, changes, message
):
  assert _main(tmp_path, **changes) == 2
  error = capsys.readouterr().err
  assert re.search(message, error), error
  assert len(error.splitlines()) == 1
  assert f'compare: error: {tmp_path}' in error


def test_a_configuration_that_is_no_json_or_missing_is_named(tmp_path, capsys):
  path = tmp_path / 'broken.json'
  path.write_text('{')
  assert compare.main(['compare', f'--config={path}']) == 2
  assert f'{path} must hold JSON' in capsys.readouterr().err
  assert compare.main(['compare', f'--config={path}.no']) == 2
  assert '--config must be a file' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--methods=FedProx', '--methods must be among FedAvg, .* found FedProx'),
    ('--settings=mnist', '--settings must be among digits 0.9, found mnist'),
    ('--seeds=a', "--seeds: must be different integers .* found 'a'"),
    ('--jobs=0', "--jobs: must be an integer >= 1, found '0'"),
    ('--data_dirs=mnist:x', "must be TASK:DIR .* found 'mnist:x'"),
    ('--data_dirs=emnist', "must be TASK:DIR .* found 'emnist'"),
  ],
)
def test_a_wrong_argument_is_named(tmp_path, capsys, argument, message):
  try:
    assert _main(tmp_path, argument) == 2
  except SystemExit as e:  # How argparse ends.
    assert e.code == 2
  error = capsys.readouterr().err
  assert re.search(message, error), error


def test_runs_have_folders_arguments_and_configurations(tmp_path):
  comparison, _ = _runs(tmp_path, settings={'F 0.9': ['--task=fashion_mnist']})
  runs = comparison.runs('out', {'fashion_mnist': 'data', 'emnist': 'other'})
  assert [run.folder for run in runs] == [
    'out/f_0.9/fedavg/0',
    'out/f_0.9/fedsteer_stable/0',
    'out/f_0.9/fedavg/1',
    'out/f_0.9/fedsteer_stable/1',
  ]
  assert runs[3].arguments == (
    '--task=fashion_mnist',
    *STABLE,
    '--rounds=4',
    '--seed=1',
    '--output_dir=out/f_0.9/fedsteer_stable/1',
    '--data_dir=data',
  )
  assert runs[3].config['seed'] == 1
  assert runs[3].config['estimator'] == 'stable'
  assert runs[3].rounds == 4


def test_a_sweep_is_an_axis_of_settings(tmp_path):
  comparison, runs = _runs(tmp_path, sweep={'client_learning_rate': [0.5, 1]})
  assert [setting.name for setting in comparison.settings] == [
    'digits 0.9, client_learning_rate 0.5',
    'digits 0.9, client_learning_rate 1',
  ]
  assert len(runs) == 8
  assert runs[0].config['client_learning_rate'] == 0.5
  assert 'digits_0.9_client_learning_rate_0.5/fedavg/0' in runs[0].folder


def test_a_part_of_the_matrix_is_chosen_by_names_or_folders():
  comparison = compare_config.parse(
    _content(settings={'A': ['--gamma=0.9'], 'B': ['--gamma=0.5']})
  )
  part = comparison.select(
    settings=['b'], methods=['fedsteer_stable'], seeds=[1, 7], rounds=9
  )
  assert [setting.name for setting in part.settings] == ['B']
  assert list(part.methods) == ['FedSteer stable']
  assert part.seeds == (1, 7)
  assert {run.rounds for run in part.runs('x')} == {9}
  assert part.left_out == ('setting A', 'method FedAvg', 'seed 0')


# Tables.


def _results(runs):
  return [compare_runs.read(run) for run in runs]


def test_the_table_has_the_numbers_that_follow_from_the_runs(tmp_path):
  comparison, runs = _runs(tmp_path, target_accuracy={'digits 0.9': 0.6})
  for run, accuracies in zip(
    runs,
    # Seed 0: FedAvg, stable; seed 1 likewise. Rounds 2 and 4 are evaluated.
    ([0.4, 0.5], [0.6, 0.7], [0.5, 0.7], [0.5, 0.8]),
  ):
    _pretend(run, accuracies)
  text = compare_table.table(comparison, _results(runs), {})
  # FedAvg: mean 0.6, deviation 0.2 / sqrt(2) = 0.141; differences -0.2 and
  # -0.1; of two values a quarter of all resamples has the smaller one only, so
  # that the interval ends there. Seed 1 alone gets to 0.6, in round 4.
  # stable: 0.75, 0.1 / sqrt(2) = 0.071; 0.6 in round 2 and 4. Seconds per round
  # are 0.5 and 1.5.
  assert text.splitlines()[:6] == [
    '### digits 0.9',
    '',
    '| method | final accuracy | minus FedSteer stable | 95 % interval |'
    ' rounds to 0.6 | state bytes | s / round |',
    '|---|---|---|---|---|---|---|',
    '| FedAvg | 0.600 ± 0.141 | -0.150 | -0.200 to -0.100 | 4 (1 of 2) | 1,000'
    ' | 1.00 |',
    '| FedSteer stable | 0.750 ± 0.071 |  |  | 3 (2 of 2) | 20,000 | 1.00 |',
  ]
  assert 'Seeds are few (2)' in text
  assert 'hashes' not in text
  assert 'Left out' not in text and 'Missing' not in text


def test_the_reference_may_be_another_method(tmp_path):
  comparison, runs = _runs(tmp_path, reference='FedAvg', seeds=[0])
  for run, accuracies in zip(runs, ([0.5], [0.75])):
    _pretend(run, accuracies)
  lines = compare_table.table(comparison, _results(runs), {}).splitlines()
  # One seed has neither a deviation nor an interval; there is no target.
  assert lines[2].startswith('| method | final accuracy | minus FedAvg |')
  assert lines[4] == '| FedAvg | 0.500 |  |  | 1,000 | 0.50 |'
  assert lines[5] == '| FedSteer stable | 0.750 | +0.250 | – | 20,000 | 0.50 |'


def test_the_table_says_what_is_missing(tmp_path):
  comparison, runs = _runs(
    tmp_path, methods={'FedAvg': FEDAVG, 'FedSteer stable': STABLE, 'C': FEDAVG}
  )
  part = comparison.select(methods=['FedAvg', 'FedSteer stable', 'C'])
  there = [run for run in runs if run.method != 'C'][:3]
  for run in there:
    _pretend(run, [0.5, 0.5 + 0.1 * (run.method != 'FedAvg')])
  missing = {run: 'failed' for run in runs if run not in there}
  text = compare_table.table(part, _results(there), missing)
  assert '| FedAvg | 0.500 ± 0.000 | -0.100 (1 of 2 seeds) | – |' in text
  assert '| FedSteer stable | 0.600 (1 of 2 seeds) |' in text
  assert '| C | – | – | – | – | – |' in text
  assert 'Missing: FedSteer stable, seed 1 (failed).' in text
  assert 'Missing: C, seed 0 (failed).' in text

  rest = comparison.select(methods=['FedAvg'], seeds=[1])
  runs = [run for run in there if (run.method, run.seed) == ('FedAvg', 1)]
  text = compare_table.table(rest, _results(runs), {})
  assert text.startswith(
    'Left out by choice: method FedSteer stable, C; seed 0.\n'
  )
  assert 'There are no differences: FedSteer stable was left out.' in text


def test_a_comparison_with_one_seed_claims_no_interval(tmp_path):
  comparison, runs = _runs(tmp_path)
  for run in runs:
    _pretend(run, [0.5 + 0.1 * (run.method != 'FedAvg')])
  part = comparison.select(seeds=[1])
  of_part = [run for run in runs if run.seed == 1]
  text = compare_table.table(part, _results(of_part), {})
  lines = text.splitlines()
  assert lines[0] == 'Left out by choice: seed 0.'
  assert '| FedAvg | 0.500 | -0.100 | – | 1,000 | 1.50 |' in lines
  assert 'There is one seed: no deviations and no intervals, ' in text
  for word in ('standard deviation', 'Seeds are few', 'bootstrap'):
    assert word not in text
  assert 'Differences are taken seed by seed' in text


def test_a_table_without_the_reference_speaks_of_no_differences(tmp_path):
  comparison, runs = _runs(tmp_path)
  for run in runs:
    _pretend(run, [0.5, 0.6])
  part = comparison.select(methods=['FedAvg'])
  of_part = [run for run in runs if run.method == 'FedAvg']
  text = compare_table.table(part, _results(of_part), {})
  assert '| FedAvg | 0.600 ± 0.000 | – | – | 1,000 | 1.00 |' in text
  assert 'Left out by choice: method FedSteer stable.' in text
  assert 'There are no differences: FedSteer stable was left out.' in text
  for word in ('Differences are', 'interval is', 'Seeds are few'):
    assert word not in text


def test_the_reference_alone_has_nothing_to_be_compared_with(tmp_path):
  comparison, runs = _runs(tmp_path)
  of_part = [run for run in runs if run.method == 'FedSteer stable']
  for run in of_part:
    _pretend(run, [0.5, 0.6])
  part = comparison.select(methods=['FedSteer stable'])
  text = compare_table.table(part, _results(of_part), {})
  assert '| FedSteer stable | 0.600 ± 0.000 |  |  | 20,000 | 1.00 |' in text
  assert 'ifferences' not in text and 'intervals' not in text


def test_a_reference_without_runs_is_told_where_it_has_none(tmp_path):
  settings = {'A': ['--gamma=0.9'], 'B': ['--gamma=0.5']}
  comparison, runs = _runs(tmp_path, settings=settings)
  failed = [
    run
    for run in runs
    if run.setting.name == 'A' and run.method == 'FedSteer stable'
  ]
  there = [run for run in runs if run not in failed]
  for run in there:
    _pretend(run, [0.5, 0.6])
  text = compare_table.table(
    comparison, _results(there), {run: 'failed' for run in failed}
  )
  of_a, of_b = text.split('### B')
  told = 'There are no differences here: FedSteer stable has no complete run.'
  assert told in of_a and told not in of_b
  assert '| FedAvg | 0.600 ± 0.000 | – | – |' in of_a
  assert '| FedSteer stable | – |  |  | – | – |' in of_a
  for seed in (0, 1):
    assert f'Missing: FedSteer stable, seed {seed} (failed).' in of_a
  assert '| FedAvg | 0.600 ± 0.000 | +0.000 | +0.000 to +0.000 |' in of_b
  assert 'Missing' not in of_b


def test_a_reference_without_a_seed_of_the_others_gives_no_difference(tmp_path):
  comparison, runs = _runs(tmp_path)
  there = [run for run in runs if (run.method == 'FedAvg') == (run.seed == 0)]
  for run in there:
    _pretend(run, [0.5, 0.6])
  text = compare_table.table(comparison, _results(there), {})
  assert '| FedAvg | 0.600 (1 of 2 seeds) | – | – |' in text


def test_the_interval_is_that_of_the_percentile_bootstrap():
  values = np.random.default_rng(3).normal(0.1, 0.05, 20)
  low, high = compare_table.bootstrap_interval(values)
  assert min(values) < low < values.mean() < high < max(values)
  expected = stats.bootstrap(
    (values,), np.mean, method='percentile', random_state=1
  ).confidence_interval
  assert (low, high) == pytest.approx(expected, abs=0.002)
  assert compare_table.bootstrap_interval(values[::-1]) == (low, high)
  # With three values one resample in 27 has the smallest one only.
  assert compare_table.bootstrap_interval([0.5, 0.0, 0.1]) == (0.0, 0.5)
  assert compare_table.bootstrap_interval([0.5]) is None


def test_the_csv_files_are_tidy(tmp_path):
  comparison, runs = _runs(tmp_path, sweep={'gamma': [0.5, 0.9]}, seeds=[3])
  for run in runs:
    _pretend(run, [0.4, 0.5, 0.6], ratios=[1, 2, 0.5, '', 'nan', 0.25])
  rows = compare_table.runs_rows(comparison, _results(reversed(runs)))
  assert [(row['gamma'], row['method'], row['seed']) for row in rows] == [
    (0.5, 'FedAvg', 3),
    (0.5, 'FedSteer stable', 3),
    (0.9, 'FedAvg', 3),
    (0.9, 'FedSteer stable', 3),
  ]
  assert rows[0]['setting'] == 'digits 0.9'
  assert rows[0]['partition_hash'] == 'aa'
  assert rows[0]['rounds_to_target'] is None
  curves = compare_table.curves_rows(comparison, _results(runs[:1]))
  # Means of the rounds since the evaluation before; a round may have none.
  assert [
    (row['round'], row['test_accuracy'], row['variance_ratio'])
    for row in curves
  ] == [(2, 0.4, 1.5), (4, 0.5, 0.5), (6, 0.6, 0.25)]
  text = compare_table.csv_text(rows)
  assert text.splitlines()[1].startswith('digits 0.9,0.5,FedAvg,3,6,0.6,0.1,,')


# What is kept.


def test_finished_runs_are_tabulated_without_starting_anything(
  tmp_path, capsys
):
  sweep = {'client_learning_rate': [0.05, 0.1, 1.0]}
  _, runs = _runs(tmp_path, sweep=sweep)
  for run in runs:
    _pretend(run, [0.4, 0.5], ratios=[1, 2, 0.5, 0.25])
  before = _snapshot(tmp_path / 'runs')
  # Data may be moved.
  assert _main(tmp_path, '--data_dirs=emnist:elsewhere', sweep=sweep) == 0
  assert _snapshot(tmp_path / 'runs') == before
  assert set(os.listdir(tmp_path / 'results')) == {
    'table.md',
    'runs.csv',
    'curves.csv',
    'accuracy.png',
    'variance_ratio.png',
    'accuracy_by_state_bytes.png',
    'accuracy_by_client_learning_rate.png',
  }
  output = capsys.readouterr()
  assert '12 of 12 runs are complete' in output.err
  assert (tmp_path / 'results' / 'table.md').read_text() in output.out
  results = _snapshot(tmp_path / 'results')
  assert _main(tmp_path, sweep=sweep) == 0
  assert {name: content for name, (_, content) in results.items()} == {
    name: content
    for name, (_, content) in _snapshot(tmp_path / 'results').items()
  }


def test_runs_of_another_configuration_are_refused(tmp_path, capsys):
  _, runs = _runs(tmp_path)
  for run in runs:
    _pretend(run, [0.4, 0.5])
  config = pathlib.Path(runs[1].folder, 'config.json')
  content = json.loads(config.read_text())
  content['flags']['gamma'] = 0.7
  # What may differ, and what a former version did not know.
  content['flags']['data_dir'] = 'elsewhere'
  del content['flags']['enforce_core_every']
  config.write_text(json.dumps(content))
  assert _main(tmp_path) == 2
  error = capsys.readouterr().err
  assert f'{runs[1].folder}: --gamma: 0.7 in the run, 0.9 wanted\n' in error
  assert runs[0].folder not in error
  assert _main(tmp_path, '--rounds=3') == 2
  assert '--rounds: 4 in the run, 3 wanted' in capsys.readouterr().err
  assert not (tmp_path / 'results').exists()


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('config.json', b'{', 'must hold JSON, found'),
    ('config.json', b'{}', 'must have an object named flags, found none'),
    ('config.json', b'\xff', 'must be a text that can be read, found'),
    ('summary.json', b'\0', 'must hold JSON, found'),
    ('summary.json', b'[]', 'must hold a JSON object, found a list'),
    (
      'summary.json',
      b'{"rounds": 4}',
      'must have a number named final_test_accuracy, found none',
    ),
    ('metrics.csv', b'a\n1\n', 'must be a table with one row for each round'),
  ],
)
def test_a_damaged_run_is_one_line_that_names_the_file(
  tmp_path, capsys, name, content, message
):
  _, runs = _runs(tmp_path)
  for run in runs:
    _pretend(run, [0.4, 0.5])
  path = pathlib.Path(runs[1].folder, name)
  path.write_bytes(content)
  assert _main(tmp_path) == 2
  error = capsys.readouterr().err.splitlines()[-1]
  assert error.startswith(f'compare: error: {path} {message}')
  assert path.read_bytes() == content
  assert not (tmp_path / 'results').exists()


def test_a_summary_without_the_size_of_the_state_is_named(tmp_path):
  _, runs = _runs(tmp_path)
  _pretend(runs[0], [0.4, 0.5])
  path = pathlib.Path(runs[0].folder, 'summary.json')
  content = json.loads(path.read_text())
  path.write_text(json.dumps({**content, 'state_bytes': {'model': 1}}))
  with pytest.raises(
    run_files.RunDirectoryError,
    match=f'^{path} must have an integer named state_bytes.total, found none',
  ):
    compare_runs.read(runs[0])


def test_folders_that_cannot_be_are_one_line(tmp_path, capsys):
  for flag in ('--output_dir', '--results_dir'):
    assert _main(tmp_path, f'{flag}=a\0b') == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
      f'compare: error: {flag} must be a path, without NUL'
    )


@pytest.mark.parametrize(
  ('kind', 'words'),
  [
    ('partition', 'partition'),
    ('participation', 'participation schedule'),
    ('initial_weights', 'initial weights'),
  ],
)
def test_unequal_conditions_are_refused(tmp_path, capsys, kind, words):
  _, runs = _runs(tmp_path)
  for run in runs:
    hashes = dict(HASHES)
    if run.method == 'FedAvg' and run.seed == 1:
      hashes[kind] = 'zz'
    _pretend(run, [0.4, 0.5], hashes)
  assert _main(tmp_path) == 2
  assert (
    f'digits 0.9, seed 1: the {words} must be the same for all methods, found'
    f' zz for FedAvg; {HASHES[kind]} for FedSteer stable\n'
  ) in capsys.readouterr().err
  assert not (tmp_path / 'results').exists()


def test_a_method_may_have_a_participation_of_its_own(tmp_path):
  everyone = [*FEDAVG, '--participation_rate=1', '--participation_skew=0']
  methods = {'FedSteer stable': STABLE, 'Everyone': everyone}
  _, runs = _runs(tmp_path, methods=methods)
  for run in runs:
    own = {'participation': 'all'} if run.method == 'Everyone' else {}
    _pretend(run, [0.4, 0.5], dict(HASHES, **own))
  assert _main(tmp_path, methods=methods) == 0


def test_a_method_that_estimates_participation_has_the_same_as_others(tmp_path):
  estimating = [*FEDAVG, '--participation_estimate=frequency']
  methods = {'FedSteer stable': STABLE, 'Estimating': estimating}
  _, runs = _runs(tmp_path, methods=methods)
  for run in runs:
    own = {'participation': 'zz'} if run.method == 'Estimating' else {}
    _pretend(run, [0.4, 0.5], dict(HASHES, **own))
  assert _main(tmp_path, methods=methods) == 2


def test_runs_without_hashes_are_told_of(tmp_path, capsys):
  _, runs = _runs(tmp_path)
  for run in runs:
    _pretend(run, [0.4, 0.5], HASHES if run.seed else None)
  assert _main(tmp_path) == 0
  assert 'Note: 2 runs have no hashes' in capsys.readouterr().err
  assert '2 runs have no hashes' in (tmp_path / 'results/table.md').read_text()


# Running, with children that only pretend to.


class _Children:
  """Stands for processes that are complete when they are asked twice."""

  def __init__(self):
    self.started, self.running, self.most, self.ends = [], [], 0, []
    self.code_of = {}

  def __call__(self, run):
    return _PretendedChild(self, run)


class _PretendedChild:
  def __init__(self, children, run):
    self._children, self._run, self._polls = children, run, 0
    children.started.append(run)
    children.running.append(run)
    children.most = max(children.most, len(children.running))

  def poll(self):
    self._polls += 1
    if self._polls < 2:
      return None
    self._children.running.remove(self._run)
    code = self._children.code_of.get(self._run.folder, 0)
    if code == 0:
      _pretend(self._run, [0.4, 0.5])
    return code

  def terminate(self):
    self._children.ends.append('terminate')
    self._children.code_of[self._run.folder] = 143

  def kill(self):
    self._children.ends.append('kill')

  def failure(self, code):
    return f'exit code {code}'


class _SilentProgress:
  def update(self, active, waiting):
    pass

  def ended(self, run, error):
    pass

  def stopping(self):
    pass


@pytest.fixture(name='children')
def _fixture_children(monkeypatch):
  children = _Children()
  monkeypatch.setattr(compare_runs, '_Child', children)
  monkeypatch.setattr(compare_runs, '_POLL_SECONDS', 0.001)
  return children


def _execute(runs, progress=None, stop=None, jobs=2):
  return compare_runs.execute(
    runs,
    jobs=jobs,
    stop=stop or interruption.Interruption(),
    progress=progress or _SilentProgress(),
  )


@pytest.mark.parametrize('jobs', [1, 2, 9])
def test_no_more_runs_at_a_time_than_jobs(tmp_path, children, jobs):
  _, runs = _runs(tmp_path)
  assert not _execute(runs, jobs=jobs)
  assert children.started == runs
  assert children.most == min(jobs, 4)


def test_failed_runs_are_named_and_the_others_made(tmp_path, children):
  _, runs = _runs(tmp_path)
  children.code_of[runs[0].folder] = 3
  assert _execute(runs) == {runs[0]: 'exit code 3'}
  assert all(compare_runs.is_finished(run) for run in runs[1:])


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize('sweep', [None, {'client_learning_rate': [0.1, 1.0]}])
@pytest.mark.parametrize('failing', ['reference', 'setting', 'seed'])
def test_results_of_which_a_part_failed_are_written_drawn_and_reported(
  tmp_path, children, capsys, sweep, failing
):
  changes = {'settings': {'A': ['--gamma=0.9'], 'B': ['--gamma=0.5']}}
  if sweep is not None:
    changes['sweep'] = sweep
  _, runs = _runs(tmp_path, **changes)
  failed = [
    run
    for run in runs
    if {
      'reference': run.method == 'FedSteer stable',
      'setting': run.setting.base == 'A',
      'seed': run.seed == 1,
    }[failing]
  ]
  children.code_of.update({run.folder: 3 for run in failed})
  assert _main(tmp_path, **changes) == 1
  printed = capsys.readouterr()
  assert f'{len(failed)} of {len(runs)} runs failed:' in printed.err
  results = tmp_path / 'results'
  text = (results / 'table.md').read_text()
  assert text in printed.out
  for run in failed:
    assert f'Missing: {run.method}, seed {run.seed} (failed, exit' in text
  num_settings = len({run.setting.name for run in failed})
  assert text.count('There are no differences here') == (
    0 if failing == 'seed' else num_settings
  )
  with open(results / 'runs.csv') as file:
    assert len(list(csv.DictReader(file))) == len(runs) - len(failed)

  # What is read back has the same pictures, and says what is missing.
  pictures = tmp_path / 'pictures'
  assert plot.main(['plot', str(results), f'--output_dir={pictures}']) == 0
  assert set(os.listdir(pictures)) == {
    path.name for path in results.glob('*.png')
  }
  assert 'accuracy.png' in os.listdir(pictures)
  found = report_comparison.findings(result_folders.read_results(str(results)))
  level, words = found[-1]
  assert level == 'warning'
  assert words.startswith(f'{len(failed)} of the runs that the tables name')


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize(
  'arguments',
  [
    ['--methods=FedAvg'],
    ['--methods=fedsteer_stable'],
    ['--seeds=1'],
    ['--methods=FedAvg', '--seeds=5', '--settings=digits 0.9'],
  ],
  ids=' '.join,
)
def test_a_part_is_made_drawn_and_reported(tmp_path, children, arguments):
  assert _main(tmp_path, *arguments) == 0
  results = tmp_path / 'results'
  assert set(os.listdir(results)) == {
    'table.md',
    'runs.csv',
    'curves.csv',
    'accuracy.png',
    'accuracy_by_state_bytes.png',
  }
  assert plot.main(['plot', str(results)]) == 0
  found = report_comparison.findings(result_folders.read_results(str(results)))
  assert [level for level, _ in found] == ['note']


def test_a_run_that_another_process_makes_is_waited_for(tmp_path, children):
  _, runs = _runs(tmp_path)
  folder = pathlib.Path(runs[0].folder)
  folder.mkdir(parents=True)
  lock = open(folder / '.lock', 'wb')
  fcntl.flock(lock, fcntl.LOCK_EX)

  class Progress(_SilentProgress):
    def update(self, active, waiting):
      if not active and not lock.closed:
        assert waiting == [runs[0]]
        (folder / '.lock').rename(tmp_path / 'lock')
        folder.rmdir()
        _pretend(runs[0], [0.4, 0.5])
        lock.close()

  assert not _execute(runs, Progress())
  # The other process has completed it.
  assert children.started == runs[1:]
  assert compare_runs.is_finished(runs[0])


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_runs_once_and_starts_no_more(
  tmp_path, children, number
):
  _, runs = _runs(tmp_path)
  before = signal.getsignal(number)
  if before is signal.SIG_IGN:
    pytest.skip('the tests run under nohup')

  class Progress(_SilentProgress):
    def update(self, active, unused_waiting):
      if len(active) == 2 and not stop.requested:
        os.kill(os.getpid(), number)

  with interruption.Interruption() as stop:
    assert not _execute(runs, Progress(), stop)
  assert children.started == runs[:2]
  assert children.ends == ['terminate'] * 2
  assert stop.exit_code == 128 + number
  assert signal.getsignal(number) is before


def test_a_second_signal_kills_the_runs(tmp_path, children):
  _, runs = _runs(tmp_path)

  class Progress(_SilentProgress):
    def update(self, active, waiting):
      if len(active) == 2:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

  with interruption.Interruption() as stop, pytest.raises(KeyboardInterrupt):
    _execute(runs, Progress(), stop)
  assert children.ends == ['kill'] * 2


# Real runs.


def _command(tmp_path, *arguments):
  return [
    sys.executable,
    '-m',
    'scripts.compare',
    f'--config={tmp_path}/config.json',
    f'--output_dir={tmp_path}/runs',
    f'--results_dir={tmp_path}/results',
    *arguments,
  ]


def _start(tmp_path, *arguments):
  with open(tmp_path / 'log', 'ab') as log:
    return subprocess.Popen(
      _command(tmp_path, *arguments),
      cwd=ROOT,
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
    )


def _wait_until(condition, process, tmp_path):
  deadline = time.monotonic() + 300
  while not condition():
    log = tmp_path / 'log'
    assert process.poll() is None, log.read_text()
    assert time.monotonic() < deadline, log.read_text()
    time.sleep(0.02)


def _unfinished(tmp_path):
  """Returns the folders of runs that were begun and are not complete."""
  return [
    path.parent
    for path in tmp_path.glob('runs/*/*/*/config.json')
    if not (path.parent / 'summary.json').exists()
  ]


def _alive(process):
  try:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False


def _gone(processes):
  """Returns whether processes, not all of them our children, have ended."""
  deadline = time.monotonic() + 30
  while any(map(_alive, processes)) and time.monotonic() < deadline:
    time.sleep(0.05)
  return not any(map(_alive, processes))


def _is_training(process):
  try:
    return 'scripts.train' in process.cmdline()
  except psutil.NoSuchProcess:
    return False


TINY = {
  'settings': {
    'tiny': [
      '--task=digits',
      '--num_clients=10',
      '--examples_per_client=5',
      '--participation_rate=0.3',
      '--participation_skew=1',
      '--local_epochs=1',
      '--evaluate_every=2',
    ]
  },
  'methods': {
    'FedAvg': FEDAVG,
    'FedSteer stable': [*STABLE, '--core_set_size=2', '--warmup_rounds=1'],
  },
  'rounds': 2,
}


@pytest.mark.slow
def test_a_matrix_that_is_killed_and_stopped_is_completed(tmp_path):
  _config(tmp_path, **TINY)

  # SIGKILL of the command and of its runs while some are complete.
  process = _start(tmp_path)
  _wait_until(
    lambda: (
      any(tmp_path.glob('runs/*/*/*/summary.json')) and _unfinished(tmp_path)
    ),
    process,
    tmp_path,
  )
  children = psutil.Process(process.pid).children(recursive=True)
  process.kill()
  for child in children:
    if _is_training(child):
      child.kill()
  process.wait()
  assert _gone(children)
  finished = [path.parent for path in tmp_path.glob('runs/*/*/*/summary.json')]
  before = [_snapshot(folder) for folder in finished]
  assert 1 <= len(finished) < 4
  assert not (tmp_path / 'results').exists()

  # SIGTERM: the runs save what they have.
  process = _start(tmp_path)
  _wait_until(
    lambda: psutil.Process(process.pid).children() and _unfinished(tmp_path),
    process,
    tmp_path,
  )
  children = psutil.Process(process.pid).children(recursive=True)
  process.terminate()
  log = tmp_path / 'log'
  assert process.wait(120) == 128 + signal.SIGTERM, log.read_text()
  assert _gone(children)
  assert 'of 4 runs are complete. The same command resumes.' in log.read_text()

  process = _start(tmp_path)
  assert process.wait(300) == 0, log.read_text()
  assert [_snapshot(folder) for folder in finished] == before
  with open(tmp_path / 'results' / 'runs.csv') as file:
    rows = list(csv.DictReader(file))
  assert [(row['method'], row['seed']) for row in rows] == [
    ('FedAvg', '0'),
    ('FedAvg', '1'),
    ('FedSteer stable', '0'),
    ('FedSteer stable', '1'),
  ]
  for name in ('partition', 'participation', 'initial_weights'):
    values = [row[f'{name}_hash'] for row in rows]
    assert values[:2] == values[2:]  # The same for both methods,
    assert values[0] != values[1]  # another one with each seed.
  for row in rows:
    method = compare_matrix.slug(row['method'])
    summary = json.loads(
      (tmp_path / f'runs/tiny/{method}/{row["seed"]}/summary.json').read_text()
    )
    assert float(row['final_test_accuracy']) == pytest.approx(
      summary['final_test_accuracy'], abs=1e-5
    )
  table = (tmp_path / 'results' / 'table.md').read_text()
  assert 'Missing' not in table and 'hashes' not in table


@pytest.mark.slow
def test_a_run_that_fails_does_not_keep_others_from_running(tmp_path):
  # The flags are right, but the task refuses their combination.
  methods = {'Broken': [*FEDAVG, '--alpha=1'], **TINY['methods']}
  del methods['FedSteer stable']
  _config(
    tmp_path, **{**TINY, 'methods': methods, 'seeds': [0]}, reference='FedAvg'
  )
  process = _start(tmp_path, '--jobs=1')
  assert process.wait(300) == 1
  log = (tmp_path / 'log').read_text()
  assert '1 of 2 runs failed:' in log
  assert 'tiny / Broken / seed 0: exit code 2; the end of' in log
  assert 'train: error: --alpha must be given with partition' in log
  table = (tmp_path / 'results' / 'table.md').read_text()
  assert 'Missing: Broken, seed 0 (failed, exit code 2).' in table
  assert re.search(r'\| FedAvg \| 0\.\d{3} \|', table)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
