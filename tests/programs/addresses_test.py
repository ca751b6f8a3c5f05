"""Tests for addresses."""

import pytest

from fedsteer_tff.programs import addresses


@pytest.mark.parametrize(
  ('found', 'host', 'port'),
  [
    ('localhost:1', 'localhost', 1),
    ('Worker-1.Example:65535', 'worker-1.example', 65535),
    ('worker_1.example.:080', 'worker_1.example', 80),
    ('10.0.0.1:10000', '10.0.0.1', 10000),
    ('[::1]:7', '::1', 7),
  ],
)
def test_addresses_are_split(found, host, port):
  assert addresses.check_addresses([found]) == [found]
  assert addresses.split_address(found) == (host, port)


@pytest.mark.parametrize(
  'wrong',
  [
    '',
    'a',
    ':2',
    'a:',
    'a:b',
    'a:0',
    'a:65536',
    'a:-1',
    'a:+1',
    'a: 1',
    ' a:1',
    'a:1 ',
    'a:1_0',
    'a:000001',
    'a:١',  # A digit, in Arabic.
    'a:²',
    'http://host:1',
    'dns:///host:1',
    'host:1/path',
    'user@host:1',
    'host:1:2',
    '::1:7',
    '[::g]:7',
    '[localhost]:7',
    'a..b:1',
    '-:1',
    'a-:1',
    '999.1.1.1:1',
    '127.1:1',
    '127.000.000.001:1',
    '1:1',
    f'{"a" * 64}:1',
    f'{".".join(["a" * 60] * 5)}:1',
    '.a:1',
    'a\0:1',
    'a:1\n',
    'é.example:1',
  ],
)
def test_what_is_no_address_is_refused_with_its_value(wrong):
  with pytest.raises(ValueError) as caught:
    addresses.check_addresses(['good:1', wrong], '--workers')
  assert str(caught.value) == (
    f'--workers must be host:port, with a port from 1 to 65535, found {wrong!r}'
    f' in {"good:1," + wrong!r}'
  )
  with pytest.raises(ValueError, match='address must be host:port, found'):
    addresses.split_address(wrong)


@pytest.mark.parametrize(
  ('one', 'other'),
  [
    ('a:1', 'a:1'),
    ('localhost:1', 'LocalHost:1'),
    ('localhost:1', 'localhost:01'),
    ('a.example:1', 'a.example.:1'),
    ('[::1]:1', '[0:0:0:0:0:0:0:1]:1'),
    ('10.0.0.1:1', '[::ffff:10.0.0.1]:1'),
  ],
)
def test_the_same_worker_twice_is_refused_however_it_is_spelt(one, other):
  with pytest.raises(ValueError) as caught:
    addresses.check_addresses([one, 'b:1', other])
  assert str(caught.value) == (
    f'workers must be different addresses, found {one!r} and {other!r}'
  )


def test_other_ports_and_hosts_are_other_workers():
  several = ['a:1', 'a:11', 'b:1', 'a.b:1', '[::1]:1', '[::2]:1']
  assert addresses.check_addresses(several) == several


def test_there_must_be_a_worker():
  with pytest.raises(
    ValueError, match='workers must be at least one host:port, found none'
  ):
    addresses.check_addresses([])


@pytest.mark.parametrize('wrong', ['a:1', [b'a:1'], [('a', 1)], [None]])
def test_other_types_are_refused(wrong):
  with pytest.raises(
    TypeError, match='workers must be a sequence of host:port'
  ):
    addresses.check_addresses(wrong)


@pytest.mark.parametrize('seconds', [1e-3, 1, 20.0, 86400])
def test_seconds_are_taken(seconds):
  assert addresses.check_timeout(seconds) == seconds


@pytest.mark.parametrize(
  'seconds', [0, -1.0, 86401, 1e300, float('inf'), float('nan')]
)
def test_seconds_out_of_range_are_refused(seconds):
  with pytest.raises(ValueError) as caught:
    addresses.check_timeout(seconds, '--worker_timeout')
  assert str(caught.value) == (
    '--worker_timeout must be > 0 and at most a day (86400 seconds), found'
    f' {seconds!r}'
  )


@pytest.mark.parametrize('seconds', ['1', None, True])
def test_what_is_no_number_of_seconds_is_refused(seconds):
  with pytest.raises(TypeError, match='timeout_seconds must be a number of'):
    addresses.check_timeout(seconds)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
