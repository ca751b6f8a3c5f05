"""Tests of reading the folders of runs and comparisons."""

import dataclasses
import json
import os
import pathlib
import re
import shlex

import pytest

from fedsteer_tff.programs import run_files
from scripts import compare
from scripts import compare_config
from scripts import result_folders
from tests.scripts import run_folders

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = sorted(
  path.parent for path in (ROOT / 'docs' / 'results').glob('*/runs.csv')
)


def _without_flags(compared):
  """What the tables tell of a comparison."""
  return dataclasses.replace(
    compared,
    methods=dict.fromkeys(compared.methods, ()),
    settings=tuple(
      dataclasses.replace(setting, flags=()) for setting in compared.settings
    ),
    rounds=None,
    left_out=(),
  )


def test_a_run_is_what_its_files_say(tmp_path):
  run = result_folders.read_run(run_folders.write_run(tmp_path / 'x'))
  assert run.name == 'x'
  assert len(run.rows) == run_folders.ROUNDS
  assert run.flags['algorithm'] == 'fedsteer'
  assert run.versions == {'python': '3.11.7'}
  assert run.untrained_accuracy == 0.1
  assert result_folders.kind(run.path) is result_folders.Kind.RUN
  assert result_folders.evaluations(run.rows)[:2] == [(2, 0.75), (4, 0.75)]
  rounds, values = result_folders.numbers(run.rows, 'relative_residual')
  assert rounds == list(range(1, 21))
  assert values == [1.0] * 10 + [0.4] * 10
  assert result_folders.numbers(run.rows, 'unknown') == ([], [])


def test_what_is_not_defined_in_a_round_is_no_number():
  rows = [
    {'round': '1', 'loss': 'nan', 'accuracy': ''},
    {'round': '2', 'loss': '0.5', 'accuracy': '0.0'},
    {'round': '3', 'loss': 'inf', 'accuracy': 'nan'},
  ]
  infinite = float('inf')
  assert result_folders.numbers(rows, 'loss') == ([2, 3], [0.5, infinite])
  assert result_folders.numbers(rows, 'accuracy') == ([2], [0.0])


def test_a_run_in_progress_is_read_up_to_its_last_whole_row(tmp_path):
  run_folders.write_rows(tmp_path, run_folders.rows())
  with open(tmp_path / 'metrics.csv', 'a') as file:
    file.write('21,0.1,0.')
  run = result_folders.read_run(str(tmp_path))
  assert len(run.rows) == run_folders.ROUNDS
  assert run.summary is None
  assert run.flags == {}
  assert run.untrained_accuracy is None


@pytest.mark.parametrize('last', [4, 12])
def test_final_accuracies_are_the_last_ten(last):
  rows = [
    {'round': str(number), 'test_accuracy': str(number / 100)}
    for number in range(1, last + 1)
  ]
  first = max(1, last - 9)
  assert result_folders.final_accuracies(rows) == [
    number / 100 for number in range(first, last + 1)
  ]


@pytest.mark.parametrize(
  'changes',
  [
    {},
    {'seeds': [5]},
    {'target_accuracy': None, 'reference': 'FedAvg'},
    {'sweep': {'participation_rate': [0.05, 0.2]}},
    {'sweep': {'partition': ['iid', 'dirichlet']}, 'settings': {'one': []}},
  ],
)
def test_a_comparison_is_found_again_in_its_tables(tmp_path, changes):
  changes = {
    key: value for key, value in changes.items() if value is not None
  } | ({'target_accuracy': {}} if 'settings' in changes else {})
  compared = run_folders.comparison(**changes)
  folder = run_folders.write_results(tmp_path, compared)
  results = result_folders.read_results(folder)
  assert result_folders.kind(folder) is result_folders.Kind.RESULTS
  assert results.comparison == _without_flags(compared)
  assert len(results.runs) == len(compared.runs('unused'))
  row = results.runs[-1]
  assert row['method'] == 'FedSteer stable'
  assert row['final_test_accuracy'] == pytest.approx(
    0.6 + 0.01 * compared.seeds[-1]
  )
  assert row['partition_hash'] == '12'  # A text, though it looks like a number.
  assert results.curves[0]['variance_ratio'] == 0.5


@pytest.mark.parametrize('folder', RESULTS, ids=lambda path: path.name)
def test_committed_results_are_those_of_their_comparison(folder):
  results = result_folders.read_results(str(folder))
  compared = compare_config.load(str(ROOT / _configs()[folder.name]))
  assert results.comparison.reference == compared.reference
  assert results.comparison.sweep == compared.sweep
  assert set(results.comparison.methods) <= set(compared.methods)
  targets = {s.name: s.target_accuracy for s in compared.settings}
  for setting in results.comparison.settings:
    assert setting.target_accuracy == targets[setting.name]


def _configs():
  """Returns the configuration of each results folder, from pages' commands."""
  configs = {}
  for page in (ROOT / 'docs').rglob('*.md'):
    text = page.read_text('utf-8').replace('\\\n', ' ')
    for command in re.findall(r'scripts\.compare (.*)', text):
      options = compare.parser().parse_args(shlex.split(command))
      configs[os.path.basename(compare.results_dir(options))] = options.config
  return configs


def _break(name, text):
  def change(folder):
    (folder / name).write_text(text)

  return change


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (_break('metrics.csv', ''), 'metrics.csv must hold at least one row'),
    (_break('metrics.csv', 'round,loss\n'), 'at least one row, found none'),
    (
      _break('metrics.csv', 'a,b\n1,2\n'),
      'columns round, found none named round',
    ),
    (_break('config.json', '{"flags'), 'config.json must hold JSON, found'),
    (_break('config.json', '\0'), 'config.json must hold JSON, found'),
    (
      _break('config.json', '{}'),
      'config.json must have an object named flags',
    ),
    (
      _break('config.json', '{"flags": {"num_clients": "6"}}'),
      "must have an integer named flags.num_clients, found '6'",
    ),
    (
      _break('config.json', '{"flags": {}, "versions": {"python": 3}}'),
      "config.json must have .* named versions, found {'python': 3}",
    ),
    (_break('summary.json', '[1]'), 'must hold a JSON object, found a list'),
    (
      _break('summary.json', '{"untrained_test_accuracy": "0.1"}'),
      'summary.json must have a number named untrained_test_accuracy, found',
    ),
    (
      _break('summary.json', '{"state_bytes": 3}'),
      'summary.json must have .* named state_bytes, found 3',
    ),
  ],
)
def test_a_broken_run_is_refused_with_what_is_wrong(tmp_path, change, message):
  folder = tmp_path / 'x'
  run_folders.write_run(folder)
  change(folder)
  with pytest.raises(run_files.RunDirectoryError, match=message):
    result_folders.read_run(str(folder))


@pytest.mark.parametrize('name', ['config.json', 'summary.json', 'metrics.csv'])
def test_what_is_not_utf_8_is_refused(tmp_path, name):
  run_folders.write_run(tmp_path)
  (tmp_path / name).write_bytes(b'\xff')
  with pytest.raises(
    run_files.RunDirectoryError,
    match=f'^{tmp_path}/{name} must be a text that can be read, found',
  ):
    result_folders.read_run(str(tmp_path))


@pytest.mark.parametrize('name', ['runs.csv', 'curves.csv', 'table.md'])
def test_incomplete_results_are_refused(tmp_path, name):
  run_folders.write_results(tmp_path, run_folders.comparison())
  (tmp_path / name).unlink()
  with pytest.raises(
    run_files.RunDirectoryError, match=f'{name} must be a text that can be read'
  ):
    result_folders.read_results(str(tmp_path))


def test_other_folders_are_refused_with_what_is_in_them(tmp_path):
  with pytest.raises(result_folders.FolderError, match='found nothing in'):
    result_folders.kind(str(tmp_path))
  (tmp_path / 'cat.jpg').touch()
  with pytest.raises(result_folders.FolderError, match='found cat.jpg in'):
    result_folders.kind(str(tmp_path))
  with pytest.raises(result_folders.FolderError, match='found no folder in'):
    result_folders.kind(str(tmp_path / 'nowhere'))


def test_reading_needs_no_summary_of_an_unusual_kind(tmp_path):
  run_folders.write_run(tmp_path)
  (tmp_path / 'summary.json').write_text(json.dumps({}))
  assert result_folders.read_run(str(tmp_path)).untrained_accuracy is None


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
