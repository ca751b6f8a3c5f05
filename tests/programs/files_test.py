"""Tests for files."""

import errno
import os

import pytest

from fedsteer_tff.programs import files


def test_json_round_trip_leaves_no_other_file(tmp_path):
  path = tmp_path / 'a.json'
  files.write_json(path, {'a': [1, None], 'b': 0.1})
  files.write_json(path, {'a': 2})
  assert files.read_json(path) == {'a': 2}
  assert os.listdir(tmp_path) == ['a.json']


def test_a_failed_write_leaves_the_former_content(tmp_path):
  path = tmp_path / 'a.json'
  files.write_text(path, 'old')
  with pytest.raises(TypeError):
    files.write_json(path, {'a': object()})
  with pytest.raises(UnicodeEncodeError):
    files.write_text(path, '\ud800')
  assert path.read_text() == 'old'


@pytest.mark.parametrize(
  ('text', 'match'),
  [
    ('{"a": ', 'must hold JSON'),
    ('[1]', 'must hold a JSON object, found a list'),
  ],
)
def test_what_is_no_json_object_is_named(tmp_path, text, match):
  path = tmp_path / 'a.json'
  path.write_text(text)
  with pytest.raises(ValueError, match=match):
    files.read_json(path)


@pytest.mark.parametrize(
  ('error', 'full'),
  [
    (OSError(errno.ENOSPC, 'a', 'b'), True),
    (OSError(errno.EDQUOT, 'a', 'b'), True),
    (OSError(errno.EFBIG, 'a', 'b'), True),
    (OSError(errno.EACCES, 'a', 'b'), False),
    (FileNotFoundError('No space left on device'), False),
    (RuntimeError('a/b; No space left on device [Op:SaveV2]'), True),
    (RuntimeError('a/b; Permission denied'), False),
  ],
)
def test_errors_that_say_that_there_is_no_room(error, full):
  assert files.is_full_disk(error) == full


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
