"""Tests of learning processes whose state stays in the runtime."""

import asyncio
import os
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import client_work
from fedsteer_tff.programs import local_runtime
from fedsteer_tff.programs import memory
from fedsteer_tff.programs import resident_state
from tests.algorithms import small_training

_SIZES = (4, 4, 6, 0, 4, 6, 6)


@pytest.fixture(scope='module', name='runtime', autouse=True)
def _runtime():
  with local_runtime.LocalRuntime().activate() as active:
    yield active


@pytest.fixture(scope='module', name='process')
def _process():
  return small_training.build(estimator='stable')


@pytest.fixture(scope='module', name='initial')
def _initial(process):
  return process.initialize()


@pytest.fixture(name='resident')
def _resident(process, initial, runtime):
  resident = resident_state.ResidentProcess(process, runtime)
  resident.put(initial)
  return resident


def _clients(round_num, size):
  """Returns client data of `size` clients of the small training."""
  ids = [
    (5 * round_num + 3 * place) % small_training.NUM_CLIENTS
    for place in range(size)
  ]
  return [small_training.client_data(i) for i in ids]


def _bad_client():
  good = small_training.client_data(0)
  ident = client_work.build_identity_dataset(
    small_training.NUM_CLIENTS, 0.1, 0.5
  )
  return {'ident': ident, 'data': good['data']}


def _assert_same(found, wanted):
  tf.nest.assert_same_structure(found, wanted)
  assert type(found) is type(wanted)
  for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted)):
    assert np.asarray(one).dtype == np.asarray(other).dtype
    np.testing.assert_array_equal(one, other)


def test_states_of_earlier_rounds_are_let_go(runtime):
  num_entries, num_rounds = 2_000_000, 50
  state_bytes = 4 * num_entries
  resident = resident_state.ResidentProcess(
    _CountingProcess(num_entries), runtime
  )
  resident.put(np.zeros(num_entries, np.float32))
  used = []
  for _ in range(num_rounds):
    total = resident.next([np.int32(1)] * 2)
    used.append(memory.resident_bytes(*runtime.child_pids))
  assert total == 2 * num_rounds
  np.testing.assert_array_equal(resident.state(), np.full(num_entries, total))
  # The first rounds fill what the processes keep for themselves. A state that
  # stays after each round would be 40 more by the end.
  assert max(used) - used[9] < 6 * state_bytes


class _CountingProcess:
  """A process whose state is made of many copies of one count."""

  def __init__(self, num_entries):
    vector = tff.TensorType(np.float32, [num_entries])

    @tff.tensorflow.computation(vector, np.int32)
    def add(counts, number):
      counts += tf.cast(number, tf.float32)
      return counts, counts[0]

    @tff.federated_computation(
      tff.FederatedType(vector, tff.SERVER),
      tff.FederatedType(np.int32, tff.CLIENTS),
    )
    def next_fn(state, numbers):
      output = tff.federated_map(add, (state, tff.federated_sum(numbers)))
      return tff.learning.templates.LearningProcessOutput(output[0], output[1])

    self.next = next_fn

    @tff.tensorflow.computation(vector)
    def get_model_weights(counts):
      return counts

    self.get_model_weights = get_model_weights


def test_rounds_of_any_size_are_those_of_the_process_bit_for_bit(
  process, initial, resident
):
  state = initial
  for round_num, size in enumerate(_SIZES):
    clients = _clients(round_num, size)
    output = process.next(state, clients)
    state = output.state
    _assert_same(resident.next(clients), output.metrics)
    _assert_same(resident.model_weights(), process.get_model_weights(state))
    _assert_same(resident.state(), state)


def test_a_snapshot_is_of_its_round(resident, process, initial):
  resident.next(_clients(0, 4))
  snapshot = resident.snapshot()
  after_one = process.next(initial, _clients(0, 4)).state
  resident.next(_clients(1, 4))
  resident.next(_clients(2, 6))
  _assert_same(snapshot(), after_one)


def test_a_state_can_be_replaced(resident, process, initial):
  resident.next(_clients(0, 4))
  resident.put(initial)
  _assert_same(resident.state(), initial)
  wanted = process.next(initial, _clients(3, 4)).state
  resident.next(_clients(3, 4))
  _assert_same(resident.state(), wanted)


@pytest.mark.parametrize('size', [4, 6])
def test_a_round_that_fails_leaves_the_state(resident, size):
  resident.next(_clients(0, 4))
  before = resident.state()
  with pytest.raises(Exception, match='client_id must be in') as caught:
    resident.next([*_clients(1, size - 1), _bad_client()])
  assert 'found' in str(caught.value)
  _assert_same(resident.state(), before)
  resident.next(_clients(1, 4))
  assert resident.state().aggregator['round_num'] == 2


def test_an_interrupted_loop_has_the_state_of_a_whole_round(
  resident, process, initial
):
  resident.next(_clients(0, 4))  # Takes longest.
  interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
  finished = 1
  with pytest.raises(KeyboardInterrupt):
    interrupt.start()
    while True:
      resident.next(_clients(0, 4))
      finished += 1
  state = resident.state()
  # The signal may come between the end of a round and the count of it.
  assert state.aggregator['round_num'] in (finished, finished + 1)
  wanted = initial
  for _ in range(state.aggregator['round_num']):
    wanted = process.next(wanted, _clients(0, 4)).state
  _assert_same(state, wanted)


def test_it_can_be_used_inside_an_event_loop(resident):
  async def train():
    return resident.next(_clients(0, 4))

  metrics = asyncio.run(train())
  assert metrics['aggregator']['active_clients'] == 4


def test_without_a_state_there_is_nothing_to_train(process, runtime):
  resident = resident_state.ResidentProcess(process, runtime)
  for use in (
    resident.state,
    resident.snapshot,
    resident.model_weights,
    lambda: resident.next(_clients(0, 4)),
  ):
    with pytest.raises(ValueError) as caught:
      use()
    assert str(caught.value) == (
      'a state must be put before it is used, found none'
    )


def test_a_runtime_that_has_ended_is_named(process, initial):
  runtime = local_runtime.LocalRuntime()
  resident = resident_state.ResidentProcess(process, runtime)
  resident.put(initial)
  resident.next(_clients(0, 4))
  os.kill(runtime.pid, signal.SIGKILL)
  deadline = time.monotonic() + 10
  while os.path.exists(f'/proc/{runtime.pid}/exe'):
    assert time.monotonic() < deadline
    time.sleep(0.02)
  with pytest.raises(local_runtime.LocalRuntimeError) as caught:
    resident.next(_clients(1, 4))
  assert str(runtime.pid) in str(caught.value)
  runtime.stop()


def test_a_runtime_is_named_whose_end_shows_after_its_connection_broke(
  process, initial, monkeypatch
):
  runtime = local_runtime.LocalRuntime()
  resident = resident_state.ResidentProcess(process, runtime)
  resident.put(initial)
  # Only who waits for the child sees its end.
  monkeypatch.setattr(runtime._child, 'poll', lambda: runtime._child.returncode)
  os.kill(runtime.pid, signal.SIGKILL)
  with pytest.raises(
    local_runtime.LocalRuntimeError, match=f'{runtime.pid} ended with code -9'
  ):
    resident.next(_clients(0, 4))
  runtime.stop()


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
