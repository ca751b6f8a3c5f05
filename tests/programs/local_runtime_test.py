"""Tests for local_runtime."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow_federated as tff

from fedsteer_tff.programs import local_runtime
from fedsteer_tff.programs import memory


@tff.tensorflow.computation
def _three():
  return 3


def _alive(pid):
  """Whether a process runs; one that waits for its parent does not."""
  try:
    with open(f'/proc/{pid}/stat', encoding='ascii') as f:
      return f.read().rsplit(')', 1)[1].split()[0] not in 'ZX'
  except FileNotFoundError:
    return False


def test_runs_computations_and_ends_with_the_block(tmp_path):
  runtime = local_runtime.LocalRuntime(log_path=tmp_path / 'log')
  pid = runtime.pid
  with runtime.activate():
    assert _three() == 3
    assert _alive(pid)
    assert os.getsid(pid) != os.getsid(0)
  assert not _alive(pid)


def test_runs_computations_of_programs():
  runtime = local_runtime.LocalRuntime()
  pid = runtime.pid

  async def program():
    tff.program.check_in_federated_context()
    reference = _three()
    assert isinstance(reference, tff.program.MaterializableValueReference)
    return await tff.program.materialize_value(reference)

  with runtime.activate_for_programs():
    assert asyncio.run(program()) == 3
  assert not _alive(pid)


def test_secure_sums_are_simulated_only_where_one_wishes():
  process = tff.aggregators.SecureSumFactory(4.0).create(
    tff.TensorType(np.float32)
  )

  def add_up():
    state = process.initialize()
    return process.next(state, [np.float32(1.5), np.float32(-0.5)]).result

  with local_runtime.LocalRuntime(simulate_secure_sums=True).activate():
    np.testing.assert_allclose(add_up(), 1.0, atol=1e-6)
  with local_runtime.LocalRuntime().activate():
    with pytest.raises(
      local_runtime.LocalRuntimeError,
      match='must be run with simulate_secure_sums=True, found False',
    ):
      add_up()


def test_an_error_in_the_block_ends_the_child():
  runtime = local_runtime.LocalRuntime()
  pid = runtime.pid
  with pytest.raises(ZeroDivisionError), runtime.activate():
    raise ZeroDivisionError
  assert not _alive(pid)
  runtime.stop()  # Once more is allowed.


def test_a_child_that_died_is_an_error_that_names_it(tmp_path):
  log = tmp_path / 'log'
  runtime = local_runtime.LocalRuntime(log_path=log)
  with runtime.activate():
    os.kill(runtime.pid, signal.SIGKILL)
    time.sleep(0.5)
    with pytest.raises(
      local_runtime.LocalRuntimeError,
      match=rf'process {runtime.pid} ended with code -9; .*{log}',
    ):
      _three()


def test_a_killed_parent_takes_its_child_along():
  program = (
    'import time\n'
    'from fedsteer_tff.programs import local_runtime\n'
    'print(local_runtime.LocalRuntime().pid, flush=True)\n'
    'time.sleep(600)\n'
  )
  parent = subprocess.Popen(
    [sys.executable, '-c', program], stdout=subprocess.PIPE, text=True
  )
  pid = int(parent.stdout.readline())
  assert _alive(pid)
  parent.kill()
  parent.wait()
  parent.stdout.close()
  deadline = time.monotonic() + 10
  while _alive(pid) and time.monotonic() < deadline:
    time.sleep(0.05)
  assert not _alive(pid)


def test_the_memory_of_the_child_is_counted():
  with local_runtime.LocalRuntime().activate() as runtime:
    alone = memory.resident_bytes()
    assert memory.resident_bytes(runtime.pid) - alone > 10 * 2**20
    assert memory.peak_resident_bytes(runtime.pid) >= alone


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
