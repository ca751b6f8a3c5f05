"""Tests for run_directory."""

import json
import os

import pytest

from fedsteer_tff.programs import run_directory
from fedsteer_tff.programs import run_files

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


@pytest.mark.parametrize(
  ('name', 'within', 'rounds', 'found'),
  [
    ('config.json', 'flags.', '"9"', "'9'"),
    ('config.json', 'flags.', '1.5', '1.5'),
    ('config.json', 'flags.', '1.0', '1.0'),
    ('config.json', 'flags.', 'true', 'True'),
    ('config.json', 'flags.', 'null', 'None'),
    ('summary.json', '', '"10"', "'10'"),
    ('summary.json', '', '10.0', '10.0'),
  ],
)
def test_a_number_of_rounds_that_is_none_is_named(
  tmp_path, name, within, rounds, found
):
  path = tmp_path / 'run'
  _open(path, commit=True, finish=True)
  text = (path / name).read_text()
  changed = text.replace('"rounds": 10', f'"rounds": {rounds}')
  assert changed != text
  (path / name).write_text(changed)
  with pytest.raises(run_files.RunDirectoryError) as caught:
    _open(path)
  assert str(caught.value) == (
    f'{path / name} must have an integer named {within}rounds, found {found}'
  )


def test_a_run_that_lost_its_number_of_rounds_is_named(tmp_path):
  path = tmp_path / 'run'
  _open(path, commit=True)
  content = json.loads((path / 'config.json').read_text())
  del content['flags']['rounds']
  (path / 'config.json').write_text(json.dumps(content))
  with pytest.raises(run_files.RunDirectoryError) as caught:
    _open(path)
  assert str(caught.value) == (
    f'{path / "config.json"} must have an integer named flags.rounds, found'
    ' none'
  )


def test_a_negative_number_of_rounds_is_another_configuration(tmp_path):
  path = tmp_path / 'run'
  _open(path, commit=True)
  text = (path / 'config.json').read_text()
  (path / 'config.json').write_text(
    text.replace('"rounds": 10', '"rounds": -3')
  )
  with pytest.raises(run_files.RunDirectoryError, match='--rounds: -3 -> 10'):
    _open(path)


def test_opening_a_finished_run_changes_no_file(tmp_path):
  _open(tmp_path / 'run', commit=True, finish=True)
  before = _snapshot(tmp_path / 'run')
  assert _open(tmp_path / 'run') is FINISHED
  assert _snapshot(tmp_path / 'run') == before


def test_a_finished_run_goes_on_when_the_rounds_are_raised(tmp_path):
  _open(tmp_path / 'run', commit=True, finish=True)
  assert _open(tmp_path / 'run', {'rounds': 11}, commit=True) is UNFINISHED
  with pytest.raises(run_files.RunDirectoryError, match=r'--rounds: 11 -> 10'):
    _open(tmp_path / 'run')


def test_every_changed_entry_is_named_with_both_values(tmp_path):
  _open(tmp_path / 'run', commit=True)
  with pytest.raises(run_files.RunDirectoryError) as error:
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
        run_files.RunDirectoryError, match='--added_later: 2 -> 3'
      ):
        directory.open(config, defaults={'added_later': 2, 'other': 1})
    else:
      found = directory.open(config, defaults={'added_later': 2, 'other': 1})
      directory.close()
      assert found is status


def test_what_explains_a_difference_to_another_version_is_said(tmp_path):
  path = tmp_path / 'run'
  begun = {'rounds': 10, 'rate': 0.1, 'seed': 3, 'old': 7, 'unused': None}
  directory = run_directory.RunDirectory(path)
  directory.open(begun)
  directory.commit(begun, {'python': '3'})
  directory.close()
  before = _snapshot(path)
  defaults = {'rounds': 10, 'rate': 0.5, 'seed': 0, 'new': 'a', 'newer': 1}
  wanted = {'rounds': 10, 'rate': 0.5, 'seed': 1, 'new': 'b', 'newer': 1}
  with pytest.raises(run_files.RunDirectoryError) as caught:
    directory.open(wanted, may_grow='rounds', defaults=defaults)
  assert str(caught.value) == (
    f'the run in {path} has another configuration:'
    ' --new: a -> b (config.json has none, so a, the default);'
    ' --old: 7 -> None (there is no such flag any more);'
    ' --rate: 0.1 -> 0.5 (the default);'
    ' --seed: 3 -> 1'
    ' (--rounds may only be raised); choose another output_dir'
  )
  assert _snapshot(path) == before
  # With the values that it was begun with it goes on, and has the new entries.
  wanted = {'rounds': 10, 'rate': 0.1, 'seed': 3, 'old': 7, 'newer': 1}
  assert directory.open(wanted, defaults=defaults) is UNFINISHED
  directory.commit(wanted, {'python': '3'})
  assert directory.stored_config() == wanted
  directory.close()


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
  with pytest.raises(run_files.RunDirectoryError, match='found a file'):
    _open(path)
  assert path.read_text() == 'mine'


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
  (tmp_path / 'thesis.tex').write_text('mine')
  with pytest.raises(run_files.RunDirectoryError, match='thesis.tex'):
    _open(tmp_path)
  assert os.listdir(tmp_path) == ['thesis.tex']


def test_a_folder_in_use_is_refused(tmp_path):
  first = run_directory.RunDirectory(tmp_path)
  first.open(CONFIG)
  with pytest.raises(run_files.RunDirectoryError, match='in use'):
    _open(tmp_path)
  first.close()
  assert _open(tmp_path) is NEW


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'{', 'must hold JSON, found'),
    (b'\0', 'must hold JSON, found'),
    (b'\xff', 'must be a text that can be read, found'),
    (b'[]', 'must hold a JSON object, found a list'),
    (b'{"versions": {}}', 'must have an object named flags, found none'),
    (b'{"flags": 3}', 'must have an object named flags, found 3'),
    (b'{"flags": {}, "versions": []}', r'named versions, found \[\]'),
    (b'{"flags": {}, "hashes": {"a": 1}}', "named hashes, found {'a': 1}"),
  ],
)
def test_a_damaged_configuration_is_named_and_left_alone(
  tmp_path, content, message
):
  path = tmp_path / 'config.json'
  path.write_bytes(content)
  directory = run_directory.RunDirectory(tmp_path)
  for read in (
    lambda: _open(tmp_path),
    directory.stored_config,
    directory.stored_versions,
    directory.stored_hashes,
  ):
    with pytest.raises(run_files.RunDirectoryError, match=message) as caught:
      read()
    assert str(caught.value).startswith(f'{path} must ')
  assert path.read_bytes() == content


@pytest.mark.parametrize('content', [b'{', b'\0', b'\xff', b'[]', b''])
def test_a_damaged_summary_is_named_and_left_alone(tmp_path, content):
  _open(tmp_path, commit=True, finish=True)
  path = tmp_path / 'summary.json'
  path.write_bytes(content)
  directory = run_directory.RunDirectory(tmp_path)
  for read in (lambda: _open(tmp_path), directory.read_summary):
    with pytest.raises(
      run_files.RunDirectoryError, match=f'^{path} must .* found'
    ):
      read()
  assert path.read_bytes() == content


def test_a_summary_must_have_what_is_asked_for(tmp_path):
  _open(tmp_path, commit=True, finish=True)
  directory = run_directory.RunDirectory(tmp_path)
  assert directory.read_summary({'rounds': int}) == {'rounds': 10}
  with pytest.raises(
    run_files.RunDirectoryError,
    match='summary.json must have a number named accuracy, found none',
  ):
    directory.read_summary({'accuracy': float})


@pytest.mark.parametrize('path', ['a\0b', '\0', 'a\ud800'])
def test_a_path_that_is_none_is_refused(path):
  with pytest.raises(
    run_files.RunDirectoryError,
    match='output_dir must be a path, without NUL bytes and .* found',
  ):
    _open(path)


def test_a_run_whose_checkpoints_are_gone_is_not_begun_anew(tmp_path):
  path = tmp_path / 'run'
  _open(path, commit=True)
  assert _open(path) is UNFINISHED  # It has not begun.
  (path / 'metrics.csv').write_text('round,loss\n')
  assert _open(path) is UNFINISHED  # Nor has it now.
  (path / 'metrics.csv').write_text('round,loss\n1,0.5\n')
  before = _snapshot(path)
  for _ in range(2):  # The first refusal must not make way for a second try.
    with pytest.raises(run_files.RunDirectoryError) as caught:
      _open(path)
    assert str(caught.value) == (
      f'{path}/checkpoints must hold a checkpoint of the run that wrote'
      f' {path}/metrics.csv, found none; move the run away to start anew'
    )
    (path / 'checkpoints').mkdir(exist_ok=True)
  (path / 'checkpoints').rmdir()
  assert _snapshot(path) == before
  (path / 'checkpoints/program_state_1').mkdir(parents=True)
  assert _open(path) is UNFINISHED
  (path / 'checkpoints/program_state_1').rmdir()
  # A run that is complete needs none to be reported again.
  (path / 'summary.json').write_text('{"rounds": 10}')
  assert _open(path) is FINISHED


@pytest.mark.parametrize(
  'content',
  [b'a,b\n1,2\n', b'round\nx\n', b'round,a\n1\n', b'round\n1,2\n', b'\xff\n'],
)
def test_a_damaged_table_of_rounds_is_named(tmp_path, content):
  _open(tmp_path, commit=True)
  (tmp_path / 'checkpoints').mkdir()
  path = tmp_path / 'metrics.csv'
  path.write_bytes(content)
  with pytest.raises(
    run_files.RunDirectoryError, match=f'^{path} must be a t.* found'
  ):
    _open(tmp_path)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
