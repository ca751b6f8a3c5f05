"""Tests for run_directory."""

import os

import pytest

from fedsteer_tff.programs import run_directory

CONFIG = {'task': 'digits', 'rounds': 10, 'checkpoint_every': 5}
NEW = run_directory.RunStatus.NEW
UNFINISHED = run_directory.RunStatus.UNFINISHED
FINISHED = run_directory.RunStatus.FINISHED


def _open(path, config=None, commit=False, finish=False):
  """Opens and closes a directory as a run does; returns its status."""
  config = dict(CONFIG, **(config or {}))
  directory = run_directory.RunDirectory(path)
  try:
    status = directory.open(
      config, may_grow='rounds', may_change=('checkpoint_every',)
    )
    if commit:
      directory.commit(config, {'python': '3'})
    if finish:
      directory.write_summary({'rounds': config['rounds']})
    return status
  finally:
    directory.close()


def _snapshot(path):
  return {
    name: (
      os.stat(os.path.join(path, name)).st_mtime_ns,
      open(os.path.join(path, name), 'rb').read(),
    )
    for name in sorted(os.listdir(path))
  }


def test_a_missing_and_an_empty_folder_are_new(tmp_path):
  assert _open(tmp_path) is NEW
  assert _open(tmp_path / 'a' / 'b') is NEW


def test_a_folder_that_was_not_committed_leaves_nothing(tmp_path):
  _open(tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_a_run_that_goes_on_keeps_its_summary_and_its_first_versions(tmp_path):
  path = tmp_path / 'run'
  _open(path, commit=True, finish=True)
  summary = (path / 'summary.json').read_bytes()
  directory = run_directory.RunDirectory(str(path))
  directory.open({**CONFIG, 'rounds': 11}, may_grow='rounds')
  directory.commit({**CONFIG, 'rounds': 11}, {'python': '4', 'new': '1'})
  assert directory.stored_versions() == {'python': '3', 'new': '1'}
  directory.close()
  assert not (path / 'summary.json').exists()
  assert (path / 'summary_before_1.json').read_bytes() == summary


def test_a_committed_run_is_unfinished_until_its_summary(tmp_path):
  assert _open(tmp_path / 'run', commit=True) is NEW
  assert _open(tmp_path / 'run', finish=True) is UNFINISHED
  assert _open(tmp_path / 'run') is FINISHED


def test_opening_a_finished_run_changes_no_file(tmp_path):
  _open(tmp_path / 'run', commit=True, finish=True)
  before = _snapshot(tmp_path / 'run')
  assert _open(tmp_path / 'run') is FINISHED
  assert _snapshot(tmp_path / 'run') == before


def test_a_finished_run_goes_on_when_the_rounds_are_raised(tmp_path):
  _open(tmp_path / 'run', commit=True, finish=True)
  assert _open(tmp_path / 'run', {'rounds': 11}, commit=True) is UNFINISHED
  with pytest.raises(
    run_directory.RunDirectoryError, match=r'--rounds: 11 -> 10'
  ):
    _open(tmp_path / 'run')


def test_every_changed_entry_is_named_with_both_values(tmp_path):
  _open(tmp_path / 'run', commit=True)
  with pytest.raises(run_directory.RunDirectoryError) as error:
    _open(tmp_path / 'run', {'task': 'emnist', 'rounds': 9, 'gamma': 0.7})
  message = str(error.value)
  assert '--task: digits -> emnist' in message
  assert '--rounds: 10 -> 9' in message
  assert '--gamma: None -> 0.7' in message
  assert '--rounds may only be raised' in message


def test_an_entry_without_influence_may_change(tmp_path):
  _open(tmp_path / 'run', commit=True)
  assert _open(tmp_path / 'run', {'checkpoint_every': 1}) is UNFINISHED


def test_an_entry_that_was_added_later_has_its_default(tmp_path):
  _open(tmp_path / 'run', commit=True)
  directory = run_directory.RunDirectory(tmp_path / 'run')
  for value, status in ((2, UNFINISHED), (3, None)):
    config = dict(CONFIG, added_later=value)
    if status is None:
      with pytest.raises(
        run_directory.RunDirectoryError, match='--added_later: 2 -> 3'
      ):
        directory.open(config, defaults={'added_later': 2, 'other': 1})
    else:
      found = directory.open(config, defaults={'added_later': 2, 'other': 1})
      directory.close()
      assert found is status


def test_hashes_are_kept_beside_the_configuration(tmp_path):
  directory = run_directory.RunDirectory(tmp_path / 'run')
  directory.open(CONFIG)
  directory.commit(CONFIG, {'python': '3'})
  assert directory.stored_hashes() == {}
  directory.commit(CONFIG, {'python': '3'}, {'partition': '12ab'})
  assert directory.stored_hashes() == {'partition': '12ab'}
  assert directory.stored_config() == CONFIG
  directory.close()


def test_hashes_are_unknown_in_folders_of_earlier_versions(tmp_path):
  (tmp_path / 'config.json').write_text('{"flags": {}}')
  assert run_directory.RunDirectory(tmp_path).stored_hashes() == {}


def test_a_file_is_refused(tmp_path):
  path = tmp_path / 'file'
  path.write_text('mine')
  with pytest.raises(run_directory.RunDirectoryError, match='found a file'):
    _open(path)
  assert path.read_text() == 'mine'


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
  (tmp_path / 'thesis.tex').write_text('mine')
  with pytest.raises(run_directory.RunDirectoryError, match='thesis.tex'):
    _open(tmp_path)
  assert os.listdir(tmp_path) == ['thesis.tex']


def test_a_folder_in_use_is_refused(tmp_path):
  first = run_directory.RunDirectory(tmp_path)
  first.open(CONFIG)
  with pytest.raises(run_directory.RunDirectoryError, match='in use'):
    _open(tmp_path)
  first.close()
  assert _open(tmp_path) is NEW


def test_a_damaged_configuration_is_named(tmp_path):
  (tmp_path / 'config.json').write_text('{')
  with pytest.raises(ValueError, match=r'config.json must hold JSON'):
    _open(tmp_path)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
