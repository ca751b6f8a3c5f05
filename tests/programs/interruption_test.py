"""Tests for interruption."""

import os
import signal

import pytest

from fedsteer_tff.programs import interruption

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _hangup_as_usual():
  """Whether the tests themselves run under `nohup` must not matter."""
  before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
  yield
  signal.signal(signal.SIGHUP, before)


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
  before = [signal.getsignal(number) for number in NUMBERS]
  with interruption.Interruption():
    for number, handler in zip(NUMBERS, before):
      assert signal.getsignal(number) != handler
  assert [signal.getsignal(number) for number in NUMBERS] == before


def test_a_closed_terminal_is_noted_however_often_it_is_said():
  with interruption.Interruption() as stop:
    for _ in range(3):
      os.kill(os.getpid(), signal.SIGHUP)
    assert stop.requested
    assert stop.exit_code == 129
    # As the end of a session sends it together with the other.
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.exit_code == 129
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGTERM)


def test_a_terminal_that_is_closed_after_a_signal_does_not_end_at_once():
  with interruption.Interruption() as stop:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGHUP)
    assert stop.exit_code == 130


def test_what_nohup_ignores_stays_ignored():
  signal.signal(signal.SIGHUP, signal.SIG_IGN)
  with interruption.Interruption() as stop:
    os.kill(os.getpid(), signal.SIGHUP)
    assert not stop.requested
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.requested
  assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_platform_without_hangups_has_the_other_signals(monkeypatch):
  monkeypatch.setattr(interruption, '_HANGUP', None)
  assert interruption.stop_signals() == (signal.SIGINT, signal.SIGTERM)
  with interruption.Interruption() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.exit_code == 143


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
