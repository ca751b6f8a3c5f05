"""Tests for files."""

import errno
import json
import os

import pytest

from fedsteer_tff.programs import files


def test_json_round_trip_leaves_no_other_file(tmp_path):
  path = tmp_path / 'a.json'
  files.write_json(path, {'a': [1, None], 'b': 0.1})
  files.write_json(path, {'a': 2})
  assert json.loads(path.read_text()) == {'a': 2}
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


@pytest.mark.parametrize(
  ('error', 'words'),
  [
    (OSError(errno.ENOSPC, 'a', 'b'), 'make room'),
    (OSError(errno.EDQUOT, 'a', 'b'), 'make room'),
    (OSError(errno.EFBIG, 'a', 'b'), 'make room'),
    (OSError(errno.EACCES, 'a', 'b'), 'let this user write there'),
    (OSError(errno.EPERM, 'a', 'b'), 'let this user write there'),
    (OSError(errno.EROFS, 'a', 'b'), 'mount the file system for writing'),
    (OSError(errno.ENOTDIR, 'a', 'b'), 'make the path one of folders'),
    (OSError(errno.EIO, 'a', 'b'), 'mend that'),
    (OSError('No space left on device'), 'mend that'),
    (RuntimeError('a/b; No space left on device [Op:SaveV2]'), 'make room'),
    (RuntimeError('a/b; Permission denied'), 'let this user write there'),
    (
      RuntimeError('a/b; Read-only file system'),
      'mount the file system for writing',
    ),
    (RuntimeError('a/b; Not a directory'), 'make the path one of folders'),
    (RuntimeError('a/b; Input/output error'), 'mend that'),
  ],
  ids=str,
)
def test_what_helps_depends_on_the_error(error, words):
  assert files.advice(error) == words


@pytest.mark.parametrize(
  ('error', 'unreadable'),
  [
    (OSError(errno.EIO, 'a'), True),
    (OSError(errno.ESTALE, 'a'), True),
    (OSError(errno.EMFILE, 'a'), True),
    (OSError(errno.ENOMEM, 'a'), True),
    (PermissionError(errno.EACCES, 'a'), True),
    (MemoryError(), True),
    (RuntimeError('a/b; Input/output error'), True),
    (RuntimeError('a/b; Too many open files'), True),
    # What TensorFlow says of a file that is missing or damaged.
    (OSError('SavedModel file does not exist at: a'), False),
    (FileNotFoundError(errno.ENOENT, 'a'), False),
    (NotADirectoryError(errno.ENOTDIR, 'a'), False),
    (RuntimeError('a/b; No such file or directory'), False),
    (RuntimeError('Unable to open table file: DATA_LOSS'), False),
    (ValueError('a'), False),
  ],
  ids=str,
)
def test_what_could_not_be_read_may_be_good(error, unreadable):
  assert files.is_unreadable(error) == unreadable


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
