"""Tests of the digests of folders."""

import hashlib

import pytest

from fedsteer_tff.programs import digests


@pytest.fixture(name='folder')
def _folder(tmp_path):
  (tmp_path / 'inner').mkdir()
  (tmp_path / 'inner' / 'b').write_bytes(b'two')
  (tmp_path / 'a').write_bytes(b'')
  return tmp_path


def test_the_digest_is_of_names_lengths_and_contents(folder):
  expected = hashlib.sha256(b'a\n0\ninner/b\n3\ntwo').hexdigest()
  assert digests.of_folder(str(folder)) == expected


def test_a_folder_has_the_digest_that_was_written(folder):
  assert not digests.check(str(folder))
  digests.write(str(folder))
  assert digests.check(str(folder))
  digests.write(str(folder))  # The first one is no part of the second.
  assert digests.check(str(folder))
  assert not digests.check(str(folder / 'none'))


@pytest.mark.parametrize(
  'change',
  [
    lambda folder: (folder / 'inner' / 'b').write_bytes(b'twp'),
    lambda folder: (folder / 'inner' / 'b').write_bytes(b'two '),
    lambda folder: (folder / 'inner' / 'b').rename(folder / 'b'),
    lambda folder: (folder / 'a').unlink(),
    lambda folder: (folder / 'c').touch(),
    lambda folder: (folder / 'digest.sha256').write_bytes(b'0' * 64),
  ],
)
def test_every_change_is_noticed(folder, change):
  digests.write(str(folder))
  change(folder)
  with pytest.raises(
    ValueError, match='^its files must have the digest in digest.sha256, found'
  ):
    digests.check(str(folder))


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
