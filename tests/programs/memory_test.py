"""Tests for memory."""

import gc
import weakref

import pytest

from fedsteer_tff.programs import memory


@pytest.fixture(name='nothing_apart', autouse=True)
def _nothing_apart():
  """Undoes what tests/conftest.py does for all tests, for one of them."""
  was_apart = bool(gc.get_freeze_count())
  gc.unfreeze()
  yield
  if was_apart:
    gc.freeze()


class _Node:
  """An object that refers to itself, so that only the collector frees it."""

  def __init__(self):
    self.itself = self


def test_garbage_that_is_new_is_collected_without_looking_at_what_was_there():
  old = _Node()
  with memory.collecting_what_is_new():
    assert gc.get_freeze_count() > 1000
    old_garbage = weakref.ref(old)
    del old
    new_garbage = weakref.ref(_Node())
    gc.collect()
    assert new_garbage() is None
    assert old_garbage() is not None
  assert gc.get_freeze_count() == 0
  gc.collect()
  assert old_garbage() is None


def test_an_error_puts_everything_back():
  with pytest.raises(ZeroDivisionError), memory.collecting_what_is_new():
    raise ZeroDivisionError
  assert gc.get_freeze_count() == 0


def test_what_the_caller_has_set_apart_stays_so():
  old = _Node()
  gc.freeze()
  try:
    with memory.collecting_what_is_new():
      pass
    old_garbage = weakref.ref(old)
    del old
    gc.collect()
    assert old_garbage() is not None
  finally:
    gc.unfreeze()


def test_a_collector_that_is_off_stays_off():
  gc.disable()
  try:
    with memory.collecting_what_is_new():
      assert gc.get_freeze_count() == 0
    assert not gc.isenabled()
  finally:
    gc.enable()


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
