"""TFF's C++ runtime on other machines: the clients of a round split over them.

TFF does the work. Its compiler cuts a round at its aggregation, its
`MergeableCompExecutionContext` gives each worker a part of the clients, and its
remote executors carry values and computations. What this module adds is what
that leaves open:

* Workers train at the same time. TFF's remote executors wait inside the event
  loop, so that in one loop the second worker idles until the first is done.
* Partial sums are added in the order of the workers, not in the order in which
  they finish: the same workers give the same bits, so that a run resumes
  exactly.
* What goes wrong says at which worker. By itself TFF repeats a call to a lost
  worker for ever.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
import contextlib
import dataclasses
import functools
import queue
import socket
import threading
import time
from typing import Any, Optional

import grpc
import numpy as np
import tensorflow_federated as tff

from fedsteer_tff.programs import addresses
from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import execution

# The worker's gRPC server takes it for abuse if it is asked more than once in
# five minutes, during a long computation, whether it is still there.
_KEEPALIVE_SECONDS = 310
_CHANNEL_OPTIONS = (
  *execution.CHANNEL_OPTIONS,
  ('grpc.keepalive_time_ms', _KEEPALIVE_SECONDS * 1000),
  ('grpc.keepalive_timeout_ms', 20 * 1000),
  ('grpc.http2.max_pings_without_data', 0),
  # By default gRPC waits for minutes in the end until it tries again.
  ('grpc.initial_reconnect_backoff_ms', 100),
  ('grpc.max_reconnect_backoff_ms', 1000),
)
# Any answer shows that a server is there, even that it has no such method.
_ANY_METHOD = '/grpc.health.v1.Health/Check'
_NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_RETRY_SECONDS = 0.1
# How often TFF may set up a computation anew before a worker counts as broken:
# it may have been started again between two rounds, or lose a connection.
_MAX_ATTEMPTS = 3


class RemoteRuntimeError(RuntimeError):
  """A worker does not answer or has failed; the message names it."""


class RemoteRuntime:
  """Workers that run TFF computations together, and the context to use them.

  ```python
  with RemoteRuntime(['10.0.0.1:10000', '10.0.0.2:10000']).activate():
    state = process.initialize()
  ```

  `process.next` is split by clients over the workers; what has no clients runs
  on the first worker. A single worker runs every computation; several run those
  with aggregations none of which needs the result of another.
  """

  def __init__(
    self,
    workers: Sequence[str],
    *,
    timeout_seconds: float = 20.0,
    credentials: Optional[grpc.ChannelCredentials] = None,
    simulate_secure_sums: bool = False,
  ):
    """Connects to the workers and lets each run a small computation.

    Args:
      workers: Their addresses, 'host:port'; see `addresses.check_addresses`.
      timeout_seconds: How long a worker may take to answer, the look-up of its
        name included, here and when a connection broke during a round; at most
        a day. (That a machine has vanished without closing its connections is
        noticed within about seven minutes.)
      credentials: For TLS, such as `grpc.ssl_channel_credentials(...)`; plain
        connections if None.
      simulate_secure_sums: As in `LocalRuntime`: whether to compute secure sums
        in the open, each worker for its clients. Else they are an error.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If there are no workers, one is there twice or is no address,
        or the timeout is out of range.
      RemoteRuntimeError: If a worker does not answer in time or cannot run what
        this version of TFF sends.
    """
    workers = addresses.check_addresses(workers)
    timeout_seconds = addresses.check_timeout(timeout_seconds)
    if credentials is not None:
      arguments.check_instance(
        'credentials',
        credentials,
        grpc.ChannelCredentials,
        'grpc.ChannelCredentials or None',
      )
    self._open_secure_sums = functools.partial(
      execution.open_secure_sums,
      simulate=simulate_secure_sums,
      error=RemoteRuntimeError,
    )
    compiler_fn = _build_shared_compiler(self._open_secure_sums)
    self._workers = [
      _Worker(address, timeout_seconds, credentials, compiler_fn)
      for address in workers
    ]
    try:
      self._check_workers()
    except BaseException:
      self.stop()
      raise

  @property
  def child_pids(self) -> tuple[int, ...]:
    """The processes on this machine whose memory is the runtime's: none."""
    return ()

  @contextlib.contextmanager
  def activate(self) -> Iterator['RemoteRuntime']:
    """Runs TFF computations here inside the block; disconnects at its end.

    Yields:
      The runtime itself.
    """
    with self._installed(_Context(self._workers, self._open_secure_sums)):
      yield self

  @contextlib.contextmanager
  def activate_for_programs(self) -> Iterator['RemoteRuntime']:
    """The same for the programs of `tff.program`, which use asyncio.

    A computation returns references there: see `tff.program.materialize_value`.
    Computations run one after the other, each over the workers.

    Yields:
      The runtime itself.
    """
    context = _InTurn(_Context(self._workers, self._open_secure_sums))
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
    """Closes the connections, which ends what is still waited for."""
    for worker in self._workers:
      worker.close()

  def _check_workers(self) -> None:
    """Lets each worker run a small computation.

    Raises:
      RemoteRuntimeError: If one does not answer in time, or computes it wrong.
    """

    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def add_up(values: tff.Value) -> tff.Value:
      return tff.federated_sum(values)

    with futures.ThreadPoolExecutor(len(self._workers)) as pool:
      failures = [f for f in pool.map(_Worker.failure, self._workers) if f]
    if failures:
      raise RemoteRuntimeError('; '.join(failures))
    for worker in self._workers:
      found = worker.invoke(add_up, [np.int32(1), np.int32(2)])
      if found != 3:
        raise RemoteRuntimeError(
          f'worker {worker.address} must add 1 and 2 to 3, found {found!r}: it'
          f' must run TFF {tff.__version__}'
        )


class _Worker:
  """One worker: its connection and a TFF context in it."""

  def __init__(
    self,
    address: str,
    timeout_seconds: float,
    credentials: Optional[grpc.ChannelCredentials],
    compiler_fn: Callable[[Any], Any],
  ):
    self.address = address
    self._timeout_seconds = timeout_seconds
    if credentials is None:
      self._channel = grpc.insecure_channel(address, _CHANNEL_OPTIONS)
    else:
      self._channel = grpc.secure_channel(
        address, credentials, _CHANNEL_OPTIONS
      )
    self._stub = execution.Stub(self._channel)
    self._ask = self._channel.unary_unary(_ANY_METHOD)
    self._context = execution.build_context(self._create_executor, compiler_fn)
    self._attempts = 0

  def invoke(self, comp: Any, arg: Any) -> Any:
    """Runs a computation; see `tff.framework.SyncContext.invoke`.

    Args:
      comp: The computation.
      arg: Its argument.

    Returns:
      Its result.

    Raises:
      RemoteRuntimeError: If the connection broke, or the worker cannot run it.
    """
    self._attempts = 0
    try:
      return self._context.invoke(comp, arg)
    except grpc.RpcError as e:
      raise RemoteRuntimeError(
        f'worker {self.address} must run what it is sent by TFF'
        f' {tff.__version__}, found {e.code().name}: {_one_line(e.details())}'
      ) from e

  def failure(self) -> Optional[str]:
    """Returns an error if no answer comes in time; None as soon as one does."""
    deadline = time.monotonic() + self._timeout_seconds
    while True:
      left = max(deadline - time.monotonic(), _RETRY_SECONDS)
      # gRPC looks names up too, and may take longer over it than it is given.
      reason = _look_up(*addresses.split_address(self.address), left)
      if reason is None:
        left = max(deadline - time.monotonic(), _RETRY_SECONDS)
        try:
          self._ask(b'', timeout=left)
          return None
        except grpc.RpcError as e:
          if e.code() not in _NO_ANSWER:
            return None
          reason = _one_line(e.details())
      if time.monotonic() + _RETRY_SECONDS > deadline:
        return (
          f'worker {self.address} must answer within'
          f' {self._timeout_seconds:g} s, found {reason}'
        )
      time.sleep(_RETRY_SECONDS)

  def close(self) -> None:
    """Closes the connection."""
    self._channel.close()

  def _create_executor(
    self, cardinalities: Mapping[tff.framework.PlacementLiteral, int]
  ) -> tff.framework.RemoteExecutor:
    # TFF comes here again after a call whose connection broke.
    self._attempts += 1
    if self._attempts > _MAX_ATTEMPTS:
      raise RemoteRuntimeError(
        f'worker {self.address} must stay connected during a round, found'
        f' {_MAX_ATTEMPTS} broken connections in one'
      )
    failure = self.failure()
    if failure is not None:
      raise RemoteRuntimeError(failure)
    return execution.build_executor(self._stub, cardinalities)


class _Context(tff.framework.SyncContext):
  """Splits computations with clients over the workers."""

  def __init__(
    self,
    workers: Sequence[_Worker],
    open_secure_sums: Callable[[Any], Any],
  ):
    self._first = workers[0]
    self._split = None
    if len(workers) > 1:
      self._split = tff.framework.MergeableCompExecutionContext(
        [_PartContext(i, workers) for i in range(len(workers))],
        compiler_fn=lambda comp: _compile_to_parts(open_secure_sums(comp)),
      )

  def invoke(self, comp: Any, arg: Any) -> Any:
    if self._split is None or not _has_clients(comp.type_signature.parameter):
      return self._first.invoke(comp, arg)
    return self._split.invoke(comp, arg)


class _InTurn(tff.framework.AsyncContext):
  """Runs computations in threads, beside an event loop, one at a time."""

  def __init__(self, context: _Context):
    super().__init__()
    self._context = context
    self._lock = threading.Lock()

  async def invoke(self, comp: Any, arg: Any) -> Any:
    return await asyncio.to_thread(self._invoke, comp, arg)

  def _invoke(self, comp: Any, arg: Any) -> Any:
    with self._lock:
      return self._context.invoke(comp, arg)


@dataclasses.dataclass(frozen=True)
class _Partials:
  """What workers have summed up, each by itself.

  Attributes:
    values: The sums by the number of the worker.
    merge: The computation that adds two of them; None if there is but one.
  """

  values: Mapping[int, Any]
  merge: Optional[Any] = None


class _PartContext(tff.framework.AsyncContext):
  """Runs one worker's part of computations in a thread of its own.

  `MergeableCompExecutionContext` asks for three kinds of computations: a part's
  sum, the sum of two sums, in the order in which they come in, and what is done
  with the whole sum. The second is put off until the third is asked for and all
  sums are there. Both then run on the first worker.
  """

  def __init__(self, number: int, workers: Sequence[_Worker]):
    super().__init__()
    self._number = number
    self._workers = workers

  async def invoke(self, comp: Any, arg: Any) -> Any:
    one, other = _pair(arg)
    if isinstance(one, _Partials):
      return _Partials({**one.values, **other.values}, merge=comp)
    if isinstance(other, _Partials):
      return await asyncio.to_thread(self._finish, comp, one, other)
    result = await asyncio.to_thread(
      self._workers[self._number].invoke, comp, arg
    )
    return _Partials({self._number: result})

  def _finish(self, comp: Any, arg: Any, partials: _Partials) -> Any:
    def merge(one: Any, other: Any) -> Any:
      pair = tff.structure.Struct.unnamed(one, other)
      return self._workers[0].invoke(partials.merge, pair)

    ordered = [value for _, value in sorted(partials.values.items())]
    total = functools.reduce(merge, ordered)
    pair = tff.structure.Struct.unnamed(arg, total)
    return self._workers[0].invoke(comp, pair)


def _pair(arg: Any) -> tuple[Any, Any]:
  if isinstance(arg, tff.structure.Struct) and len(arg) == 2:
    return arg[0], arg[1]
  return None, None


def _has_clients(type_spec: Optional[tff.Type]) -> bool:
  """Returns whether values of a type hold something of each client."""
  if isinstance(type_spec, tff.FederatedType):
    return type_spec.placement is tff.CLIENTS
  if isinstance(type_spec, tff.StructType):
    return any(_has_clients(child) for child in type_spec.children())
  return False


def _compile_to_parts(comp: Any) -> tff.framework.MergeableCompForm:
  try:
    return tff.backends.native.compile_to_mergeable_comp_form(comp)
  except (TypeError, ValueError) as e:
    raise RemoteRuntimeError(
      'a computation over several workers must have aggregations that do not'
      ' need each other, which a single worker does not ask for, found:'
      f' {_one_line(str(e))}'
    ) from e


def _build_shared_compiler(
  open_secure_sums: Callable[[Any], Any],
) -> Callable[[Any], Any]:
  """Returns TFF's compiler, which compiles once what all workers run."""
  lock = threading.Lock()

  @functools.cache
  def compile_once(comp: Any) -> Any:
    return tff.backends.native.desugar_and_transform_to_native(
      open_secure_sums(comp)
    )

  def compiler_fn(comp: Any) -> Any:
    with lock:  # The cache alone does not keep a second thread from compiling.
      return compile_once(comp)

  return compiler_fn


def _look_up(host: str, port: int, seconds: float) -> Optional[str]:
  """Looks a name up.

  Args:
    host: The name; an address is one at once.
    port: The port.
    seconds: How long the look-up may take.

  Returns:
    None, or why there is no address after that time.
  """
  outcome: queue.SimpleQueue[Optional[str]] = queue.SimpleQueue()

  def look_up() -> None:
    try:
      socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
      outcome.put(f'no address of {host}: {_one_line(str(e))}')
    else:
      outcome.put(None)

  # The system's resolver cannot be interrupted; nobody waits for the thread.
  threading.Thread(target=look_up, daemon=True).start()
  try:
    return outcome.get(timeout=seconds)
  except queue.Empty:
    return f'no answer to the look-up of {host}'


def _one_line(text: Optional[str]) -> str:
  return ' '.join(str(text).split())
