"""Tests for round_data."""

import contextlib
import threading

import numpy as np
import pytest

from fedsteer_tff import participation
from fedsteer_tff.programs import round_data

# Nothing here takes that long, in seconds; a test that waits longer fails.
_LONG = 60


class _Sampler:
  """Client r takes part in round r; remembers what was drawn, and where."""

  def __init__(self):
    self.rounds = []
    self.threads = set()

  def cohort(self, round_num, forced_clients=()):
    self.rounds.append(round_num)
    self.threads.add(threading.current_thread())
    ids = sorted({round_num, *forced_clients})
    return participation.Cohort(np.int32(ids), np.full(len(ids), 0.5))


class _UnreadableError(OSError):
  """What reading data raises here."""


def _ids(cohort):
  return cohort.client_ids.tolist()


def _prefetched(sampler, client_data_fn, last_round):
  return contextlib.closing(
    round_data.PrefetchedRoundData(sampler, client_data_fn, last_round)
  )


def test_on_demand_a_round_is_made_when_it_is_asked_for():
  sampler = _Sampler()
  with contextlib.closing(round_data.RoundData(sampler, _ids)) as data:
    cohort, made = data.make(3, forced_clients=[7])
    assert (_ids(cohort), made) == ([3, 7], [3, 7])
    assert sampler.rounds == [3]
  assert sampler.threads == {threading.current_thread()}


def test_ahead_of_time_rounds_are_the_same_in_the_same_order():
  sampler = _Sampler()
  with _prefetched(sampler, _ids, 6) as data:
    for round_num in (3, 4, 5, 6):
      cohort, made = data.make(round_num)
      assert (_ids(cohort), made) == ([round_num], [round_num])
  # None after the last one.
  assert sampler.rounds == [3, 4, 5, 6]


def test_all_is_made_in_one_other_thread_which_ends():
  sampler = _Sampler()
  with _prefetched(sampler, _ids, 9) as data:
    for round_num in range(1, 5):
      data.make(round_num)
    (thread,) = sampler.threads
    assert thread is not threading.current_thread()
    assert thread.is_alive()
  assert not thread.is_alive()


def test_the_next_round_is_made_while_one_runs():
  begun = [threading.Event() for _ in range(4)]
  may_end = [threading.Event() for _ in range(4)]

  def client_data(cohort):
    (round_num,) = _ids(cohort)
    begun[round_num].set()
    assert may_end[round_num].wait(_LONG)
    return round_num

  with _prefetched(_Sampler(), client_data, 3) as data:
    may_end[1].set()
    assert data.make(1)[1] == 1
    # Round 1 has its data, and that of round 2 is under way: not yet done, for
    # nobody has let it end.
    assert begun[2].wait(_LONG)
    assert not begun[3].is_set()
    may_end[2].set()
    may_end[3].set()
    assert data.make(2)[1] == 2
    assert data.make(3)[1] == 3


@pytest.mark.parametrize('fails', ['sampler', 'data'])
def test_an_error_is_raised_in_the_round_that_needs_the_data(fails):
  failed = threading.Event()

  class Sampler(_Sampler):
    def cohort(self, round_num, forced_clients=()):
      if (fails, round_num) == ('sampler', 3):
        failed.set()
        raise _UnreadableError
      return super().cohort(round_num, forced_clients)

  def client_data(cohort):
    if (fails, _ids(cohort)) == ('data', [3]):
      failed.set()
      raise _UnreadableError
    return _ids(cohort)

  sampler = Sampler()
  with _prefetched(sampler, client_data, 9) as data:
    data.make(1)
    # That of round 3 has failed before round 2 is over, which has its own.
    assert data.make(2)[1] == [2]
    assert failed.wait(_LONG)
    with pytest.raises(_UnreadableError):
      data.make(3)
    (thread,) = sampler.threads
  # Nothing is made for a round that cannot come.
  assert 4 not in sampler.rounds
  assert not thread.is_alive()


def test_closing_waits_for_what_has_begun():
  begun = threading.Event()
  may_end = threading.Event()
  ended = []

  def client_data(cohort):
    if _ids(cohort) == [2]:
      begun.set()
      assert may_end.wait(_LONG)
      ended.append(threading.current_thread())

  with pytest.raises(KeyboardInterrupt):
    with _prefetched(_Sampler(), client_data, 9) as data:
      data.make(1)
      assert begun.wait(_LONG)
      threading.Timer(0.05, may_end.set).start()
      raise KeyboardInterrupt
  (thread,) = ended
  assert not thread.is_alive()


def test_without_rounds_there_is_no_thread():
  with _prefetched(_Sampler(), _ids, 9):
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith('round_data')]


def test_nobody_is_forced_into_what_is_drawn_ahead_of_time():
  with _prefetched(_Sampler(), _ids, 9) as data:
    with pytest.raises(
      ValueError, match=r'forced_clients must be empty .* found \[4\]'
    ):
      data.make(1, forced_clients=[4])


def test_a_round_out_of_order_is_refused():
  with _prefetched(_Sampler(), _ids, 9) as data:
    data.make(1)
    with pytest.raises(ValueError, match='round_num must be 2, .* found 3'):
      data.make(3)
    assert data.make(2)[1] == [2]


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
