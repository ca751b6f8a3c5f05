"""Tests for run_files."""

import pytest

from fedsteer_tff.programs import run_files

REQUIRED = {'flags': dict}
OPTIONAL = {
  'rounds': int,
  'accuracy': float,
  'workers': list,
  'name': str,
  'sizes': dict[str, int],
}


def _read(tmp_path, content):
  path = tmp_path / 'a.json'
  path.write_bytes(content)
  return run_files.read_object(path, REQUIRED, OPTIONAL)


def test_an_object_is_read_with_members_that_nobody_asked_for(tmp_path):
  assert _read(
    tmp_path,
    b'{"flags": {}, "rounds": 3, "accuracy": 1, "workers": [], "name": "x",'
    b' "sizes": {"a": 1}, "more": null}',
  ) == {
    'flags': {},
    'rounds': 3,
    'accuracy': 1,
    'workers': [],
    'name': 'x',
    'sizes': {'a': 1},
    'more': None,
  }


def test_optional_members_may_be_missing_or_null(tmp_path):
  assert _read(tmp_path, b'{"flags": {"x": 1}, "rounds": null}') == {
    'flags': {'x': 1},
    'rounds': None,
  }


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'', 'must hold JSON, found: '),
    (b'{"flags"', 'must hold JSON, found: '),
    (b'{"flags": {}}\0', 'must hold JSON, found: '),
    (b'{"flags": "\0"}', 'must hold JSON, found: '),
    (b'[' * 10**5, 'must hold JSON, found: '),
    (b'\xff\xfe{}', 'must be a text that can be read, found: '),
    (b'[1]', 'must hold a JSON object, found a list'),
    (b'3', 'must hold a JSON object, found a int'),
    (b'null', 'must hold a JSON object, found a NoneType'),
    (b'{}', 'must have an object named flags, found none'),
    (b'{"flags": null}', 'must have an object named flags, found None'),
    (b'{"flags": [1]}', r'must have an object named flags, found \[1\]'),
    (
      b'{"flags": {}, "rounds": 1.5}',
      'must have an integer named rounds, found 1.5',
    ),
    (
      b'{"flags": {}, "rounds": true}',
      'must have an integer named rounds, found True',
    ),
    (
      b'{"flags": {}, "accuracy": "1"}',
      "must have a number named accuracy, found '1'",
    ),
    (b'{"flags": {}, "workers": 5}', 'must have a list named workers, found 5'),
    (b'{"flags": {}, "name": 5}', 'must have a text named name, found 5'),
    (
      b'{"flags": {}, "sizes": {"a": "b"}}',
      'must have an object whose members are each an integer named sizes,'
      " found {'a': 'b'}",
    ),
    (b'{"flags": {}, "sizes": 1}', 'named sizes, found 1'),
  ],
)
def test_damage_is_one_line_that_names_the_file(tmp_path, content, message):
  with pytest.raises(run_files.RunDirectoryError, match=message) as caught:
    _read(tmp_path, content)
  assert str(caught.value).startswith(f'{tmp_path / "a.json"} must ')
  assert '\n' not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
  for path in (tmp_path, tmp_path / 'nothing'):
    with pytest.raises(
      run_files.RunDirectoryError,
      match=f'^{path} must be a text that can be read, found: ',
    ):
      run_files.read_object(path)


def test_where_a_member_is_in_a_file_is_said():
  with pytest.raises(
    run_files.RunDirectoryError,
    match='^a/config.json must have an integer named flags.seed, found none$',
  ):
    run_files.check_members('a/config.json', {}, {'seed': int}, within='flags.')


def test_paths_are_taken_as_strings(tmp_path):
  assert run_files.check_path(tmp_path / 'é') == str(tmp_path / 'é')


@pytest.mark.parametrize('path', ['a\0b', '\0', 'a\ud800'])
def test_what_no_path_can_be_is_refused(path):
  with pytest.raises(run_files.RunDirectoryError) as caught:
    run_files.check_path(path, '--output_dir')
  assert str(caught.value) == (
    '--output_dir must be a path, without NUL bytes and in the encoding of the'
    f' file system, found {path!r}'
  )


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path):
  (tmp_path / 'file').write_text('mine')
  run_files.check_file(tmp_path / 'file')
  run_files.check_file(tmp_path / 'none')
  run_files.check_folder(tmp_path)
  run_files.check_folder(tmp_path / 'none' / 'below')
  run_files.check_folder('none')
  for check, path, name, message in (
    (run_files.check_file, '', None, '{} must be a file, found a folder'),
    (run_files.check_file, '', '--o', '--o must be a file, found a folder: {}'),
    (
      run_files.check_folder,
      'file',
      None,
      '{}/file must be a folder, found a file',
    ),
    (
      run_files.check_folder,
      'file/a/b',
      None,
      '{0}/file/a/b must be a folder, found a file: {0}/file',
    ),
    (
      run_files.check_folder,
      'file/a',
      '--o',
      '--o must be a folder, found a file: {}/file',
    ),
  ):
    with pytest.raises(run_files.RunDirectoryError) as caught:
      check(tmp_path / path, name)
    assert str(caught.value) == message.format(tmp_path)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
