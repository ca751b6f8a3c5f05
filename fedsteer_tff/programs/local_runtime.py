"""TFF's C++ runtime on this machine, in a child process that we own.

`tff.backends.native.set_sync_local_cpp_execution_context` starts the same
program, but leaves it in our process group and writing to our output: Ctrl-C
in a terminal kills it in the middle of a round, and it outlives a killed
parent while it holds its output open. This module starts it apart: in its own
session, writing to a file, with one memory arena (changing cohort sizes
otherwise fragment its heap), and ending with its parent however that ends.
"""

import atexit
from collections.abc import Iterator, Mapping
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from typing import IO, Any, Optional

import grpc
import tensorflow_federated as tff

from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import execution
from fedsteer_tff.programs import files
from fedsteer_tff.programs import runtime_environment

# A start takes two seconds, and many times that where processors are scarce;
# one that fails is noticed by its end.
_START_SECONDS = 180.0
_STOP_SECONDS = 5.0
# The kernel closes the connections of a process before it shows that it ended.
_EXIT_SECONDS = 5.0

# Runs in the child before the runtime: ask Linux to end it with its parent
# (1 is PR_SET_PDEATHSIG, 9 is SIGKILL), then become the runtime. Elsewhere the
# request fails quietly and only an orderly end of the parent ends the child.
_LAUNCHER = """
import ctypes, os, sys
parent = int(sys.argv[1])
try:
  ctypes.CDLL(None).prctl(1, 9)
except (OSError, AttributeError):
  pass
if os.getppid() != parent:
  sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class LocalRuntimeError(RuntimeError):
  """The child process did not start or has ended."""


class LocalRuntime:
  """One child process that runs TFF computations, and the context to use it.

  ```python
  with LocalRuntime().activate():
    state = process.initialize()
  ```
  """

  def __init__(
    self,
    *,
    max_concurrent_calls: Optional[int] = None,
    log_path: Optional[files.PathLike] = None,
    simulate_secure_sums: bool = False,
    deterministic: bool = False,
    keep_freed_memory: bool = False,
  ):
    """Starts the child process and waits until it answers.

    Must be called from a thread that lives as long as the runtime is needed:
    the kernel ends the child with the thread that made it.

    Args:
      max_concurrent_calls: How many clients train at the same time; no limit
        if <= 0. None for as many as there are processors: more need more
        memory, and no less time.
      log_path: The file that the child's output is appended to; a temporary
        file if None, removed at the end.
      simulate_secure_sums: Whether to compute secure sums, such as those of
        `tff.aggregators.SecureSumFactory`, in the open: the same result, with
        nothing hidden. Else they are an error: TFF has no protocol for them.
      deterministic: Whether to use one thread for everything, and to run one
        client after the other, whatever `max_concurrent_calls` is: results then
        do not depend on how many processors there are. Slower.
      keep_freed_memory: Whether the child keeps the memory that it has needed
        once. Rounds of a model with more than 8 million weights, 32 MiB, take a
        fraction of the time then, and the child stays as large as it ever was.

    Raises:
      TypeError: If an argument has the wrong type.
      LocalRuntimeError: If the child does not answer, or nothing can be written
        to `log_path`.
    """
    if max_concurrent_calls is None:
      max_concurrent_calls = os.cpu_count() or 1
    arguments.check_instance(
      'max_concurrent_calls', max_concurrent_calls, int, 'an integer'
    )
    if log_path is not None:
      log_path = arguments.path_text('log_path', log_path)
    self._max_concurrent_calls = 1 if deterministic else max_concurrent_calls
    self._environment = runtime_environment.runtime_environment(
      keep_freed_memory=keep_freed_memory, one_thread=deterministic
    )
    self._simulate_secure_sums = simulate_secure_sums
    self._temporary_log = None
    if log_path is None:
      self._temporary_log = tempfile.NamedTemporaryFile(
        prefix='tff_worker_', suffix='.log'
      )
      log_path = self._temporary_log.name
    self._log_path = os.fspath(log_path)
    self._process: Optional[subprocess.Popen[bytes]] = None
    atexit.register(self.stop)
    try:
      self._start()
    except BaseException:
      self.stop()
      raise

  @property
  def pid(self) -> int:
    """The child's process id."""
    return self._child.pid

  @property
  def _child(self) -> 'subprocess.Popen[bytes]':
    assert self._process is not None, 'it is started by __init__'
    return self._process

  @property
  def child_pids(self) -> tuple[int, ...]:
    """The processes on this machine whose memory is the runtime's."""
    return (self.pid,)

  @contextlib.contextmanager
  def activate(self) -> Iterator['LocalRuntime']:
    """Runs TFF computations here inside the block; stops at its end.

    Yields:
      The runtime itself.
    """
    context = execution.build_context(self.create_executor, self.compile)
    with self._installed(context):
      yield self

  @contextlib.contextmanager
  def activate_for_programs(self) -> Iterator['LocalRuntime']:
    """The same for the programs of `tff.program`, which use asyncio.

    A computation returns references there: see `tff.program.materialize_value`.

    Yields:
      The runtime itself.
    """
    context = execution.build_context(
      self.create_executor,
      self.compile,
      tff.framework.AsyncExecutionContext,
    )
    with self._installed(tff.program.NativeFederatedContext(context)):
      yield self

  @contextlib.contextmanager
  def _installed(self, context: Any) -> Iterator[None]:
    try:
      with tff.framework.get_context_stack().install(context):
        yield
    finally:
      self.stop()

  def stop(self) -> None:
    """Ends the child process and waits for it; nothing if it has ended."""
    atexit.unregister(self.stop)
    if self._process is not None and self._process.poll() is None:
      self._process.terminate()
      try:
        self._process.wait(_STOP_SECONDS)
      except subprocess.TimeoutExpired:
        self._process.kill()
        self._process.wait()
    if self._temporary_log is not None:
      self._temporary_log.close()
      self._temporary_log = None

  def _start(self) -> None:
    """Starts the child and connects to it.

    Raises:
      LocalRuntimeError: If there is no program to run, or it ends or does not
        answer in time.
    """
    binary = os.path.join(
      os.path.dirname(tff.__file__), 'data', 'worker_binary'
    )
    if not os.path.isfile(binary):
      raise LocalRuntimeError(
        f'tensorflow_federated must contain data/worker_binary, found none'
        f' at {binary}'
      )
    with socket.socket() as s:
      s.bind(('localhost', 0))
      port = s.getsockname()[1]
    with self._open_log() as log:
      self._process = subprocess.Popen(
        [
          sys.executable,
          '-I',
          '-S',
          '-c',
          _LAUNCHER,
          str(os.getpid()),
          binary,
          f'--port={port}',
          f'--max_concurrent_computation_calls={self._max_concurrent_calls}',
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=self._environment,
      )
    self._stub = execution.ExplainingStub(
      grpc.insecure_channel(f'localhost:{port}', execution.CHANNEL_OPTIONS)
    )
    deadline = time.monotonic() + _START_SECONDS
    while not self._stub.is_ready:
      self.check_alive()
      if time.monotonic() > deadline:
        raise LocalRuntimeError(
          f'the TFF runtime must answer within {_START_SECONDS:.0f} s,'
          f' found no answer; its output: {self._log_path}'
        )
      time.sleep(0.05)

  def _open_log(self) -> IO[bytes]:
    try:
      return open(self._log_path, 'ab')
    except OSError as e:
      raise LocalRuntimeError(
        f'log_path must be a file that can be written, found: {e}'
      ) from e

  def check_alive(self, after: Optional[grpc.RpcError] = None) -> None:
    """Raises `LocalRuntimeError` if the child has ended.

    Args:
      after: The error that makes one ask. Of one that says that the child
        cannot be reached, the child is given time to be seen to have ended.

    Raises:
      LocalRuntimeError: If it has.
    """
    if isinstance(after, grpc.Call) and (
      after.code() is grpc.StatusCode.UNAVAILABLE
    ):
      with contextlib.suppress(subprocess.TimeoutExpired):
        self._child.wait(_EXIT_SECONDS)
    code = self._child.poll()
    if code is not None:
      raise LocalRuntimeError(
        'the TFF runtime must stay alive, found that its process'
        f' {self._child.pid} ended with code {code}; its output:'
        f' {self._log_path}'
      )

  def compile(self, computation: tff.Computation) -> tff.Computation:
    """Compiles a computation.

    Args:
      computation: The computation.

    Returns:
      It, in the form that the runtime takes.

    Raises:
      LocalRuntimeError: If there are secure sums, which it does not have.
    """
    return tff.backends.native.desugar_and_transform_to_native(
      execution.open_secure_sums(
        computation,
        simulate=self._simulate_secure_sums,
        error=LocalRuntimeError,
      )
    )

  def create_executor(
    self, cardinalities: Mapping[tff.framework.PlacementLiteral, int]
  ) -> tff.framework.RemoteExecutor:
    """Makes an executor in the child.

    Args:
      cardinalities: How many clients there are.

    Returns:
      The executor.

    Raises:
      LocalRuntimeError: If the child has ended.
    """
    # TFF repeats a call whose connection broke, through a new executor: with
    # the child gone it would do so for ever.
    self.check_alive()
    return execution.build_executor(self._stub, cardinalities)
