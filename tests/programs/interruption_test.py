"""Tests for interruption."""

import os
import signal

import pytest

from fedsteer_tff.programs import interruption


@pytest.mark.parametrize(
  ('number', 'code'), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_is_noted_and_the_next_one_stops(number, code):
  with interruption.Interruption() as stop:
    assert not stop.requested
    assert stop.exit_code == 0
    os.kill(os.getpid(), number)
    assert stop.requested
    assert stop.exit_code == code
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), number)


def test_the_former_handlers_are_put_back():
  before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
  with interruption.Interruption():
    assert signal.getsignal(signal.SIGINT) != before[0]
  after = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
  assert after == before


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
