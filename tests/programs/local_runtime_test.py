"""Tests for local_runtime."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf
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


@tff.tensorflow.computation(
  tff.TensorType(np.float32, [20, 28, 28, 32]),
  tff.TensorType(np.float32, [5, 5, 32, 64]),
)
def _convolution_gradient(images, kernel):
  with tf.GradientTape() as tape:
    tape.watch(kernel)
    loss = tf.reduce_sum(tf.nn.conv2d(images, kernel, 1, 'SAME') ** 2)
  return tape.gradient(loss, kernel)


def test_a_deterministic_runtime_adds_in_one_order_on_any_processors():
  # TensorFlow divides the sums of this gradient among its threads.
  rng = np.random.default_rng(0)
  images, kernel = (
    np.float32(rng.normal(size=part.shape))
    for part in _convolution_gradient.type_signature.parameter
  )
  everywhere = os.sched_getaffinity(0)
  found = []
  for processors in (everywhere, {min(everywhere)}):
    # The runtime is started on those of this thread.
    os.sched_setaffinity(0, processors)
    try:
      runtime = local_runtime.LocalRuntime(deterministic=True)
    finally:
      os.sched_setaffinity(0, everywhere)
    with runtime.activate():
      assert os.sched_getaffinity(runtime.pid) == processors
      found.append(_convolution_gradient(images, kernel))
  np.testing.assert_array_equal(*found)


def test_a_deterministic_runtime_has_one_thread_and_one_client_at_a_time(
  monkeypatch,
):
  names = ('TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS')
  for name in names:
    monkeypatch.setenv(name, '3')
  for deterministic, threads, clients in ((True, '1', 1), (False, '3', 5)):
    runtime = local_runtime.LocalRuntime(
      max_concurrent_calls=5, deterministic=deterministic
    )
    with runtime.activate():
      assert _three() == 3
      found = psutil.Process(runtime.pid).environ()
      assert [found[name] for name in names] == [threads, threads]
      arguments = psutil.Process(runtime.pid).cmdline()
    assert f'--max_concurrent_computation_calls={clients}' in arguments


def test_as_many_clients_train_at_a_time_as_there_are_processors():
  with local_runtime.LocalRuntime().activate() as runtime:
    arguments = psutil.Process(runtime.pid).cmdline()
  assert f'--max_concurrent_computation_calls={os.cpu_count()}' in arguments


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


@pytest.mark.parametrize(
  ('keeps', 'own', 'expected'),
  [
    (False, None, None),
    (True, None, str(2**40)),
    (True, '1000000', '1000000'),
  ],
)
def test_what_the_child_freed_it_keeps_if_asked_to(
  keeps, own, expected, monkeypatch
):
  names = ('MALLOC_TRIM_THRESHOLD_', 'MALLOC_MMAP_THRESHOLD_')
  for name in names:
    monkeypatch.delenv(name, raising=False)
    if own is not None:
      monkeypatch.setenv(name, own)
  runtime = local_runtime.LocalRuntime(keep_freed_memory=keeps)
  child = psutil.Process(runtime.pid).environ()
  runtime.stop()
  assert [child.get(name) for name in names] == [expected, expected]
  assert child['MALLOC_ARENA_MAX'] == '1'


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
