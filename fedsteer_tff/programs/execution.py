"""What every TFF runtime that answers over gRPC has in common."""

from collections.abc import Callable, Mapping
import re
from typing import Any, Optional

import grpc
import tensorflow_federated as tff

_MAX_MESSAGE_BYTES = 2 * 1000 * 1000 * 1000
# A state of many clients is larger than gRPC's 4 MB.
CHANNEL_OPTIONS = (
  ('grpc.max_message_length', _MAX_MESSAGE_BYTES),
  ('grpc.max_receive_message_length', _MAX_MESSAGE_BYTES),
  ('grpc.max_send_message_length', _MAX_MESSAGE_BYTES),
)

# How the runtime says that a computation failed, and TensorFlow an assertion.
_FAILED = (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT)
_FAILED_WORDS = 'Failed to run computation: '
_ASSERTION = 'assertion failed: '
# What TensorFlow's losses say of a label that is none of the classes.
_LABEL = re.compile(
  r'Received a label value of (\S+) which is outside the valid range of'
  r' (\[\d+, \d+\))\.'
)


class Stub(tff.framework.RemoteExecutorGrpcStub):
  """A connection to a runtime that may end before what it holds is let go."""

  def dispose(self, request: Any) -> None:
    """Frees values; they are gone with a runtime that does not answer.

    Args:
      request: TFF's `DisposeRequest`.
    """
    try:
      super().dispose(request)
    except grpc.RpcError:
      pass


class ComputationError(RuntimeError):
  """A computation failed, such as for client data that it must not get.

  The message is the first line of the runtime's, which is the error's cause.
  """


class ExplainingStub(Stub):
  """A connection to a runtime whose failed computations say one line."""

  def create_value(self, request: Any) -> Any:
    """Makes a value; see `tff.framework.RemoteExecutorGrpcStub`.

    Args:
      request: TFF's `CreateValueRequest`.

    Returns:
      The `CreateValueResponse`.

    Raises:
      ComputationError: If a computation failed.
      RpcError: If the call failed for another reason.
    """
    return _explaining(super().create_value, request)

  def create_call(self, request: Any) -> Any:
    """Calls a function; see `tff.framework.RemoteExecutorGrpcStub`.

    Args:
      request: TFF's `CreateCallRequest`.

    Returns:
      The `CreateCallResponse`.

    Raises:
      ComputationError: If a computation failed.
      RpcError: If the call failed for another reason.
    """
    return _explaining(super().create_call, request)

  def create_struct(self, request: Any) -> Any:
    """Makes a structure; see `tff.framework.RemoteExecutorGrpcStub`.

    Args:
      request: TFF's `CreateStructRequest`.

    Returns:
      The `CreateStructResponse`.

    Raises:
      ComputationError: If a computation failed.
      RpcError: If the call failed for another reason.
    """
    return _explaining(super().create_struct, request)

  def create_selection(self, request: Any) -> Any:
    """Selects a part; see `tff.framework.RemoteExecutorGrpcStub`.

    Args:
      request: TFF's `CreateSelectionRequest`.

    Returns:
      The `CreateSelectionResponse`.

    Raises:
      ComputationError: If a computation failed.
      RpcError: If the call failed for another reason.
    """
    return _explaining(super().create_selection, request)

  def compute(self, request: Any) -> Any:
    """Computes a value; see `tff.framework.RemoteExecutorGrpcStub`.

    Args:
      request: TFF's `ComputeRequest`.

    Returns:
      The `ComputeResponse`.

    Raises:
      ComputationError: If a computation failed.
      RpcError: If the call failed for another reason.
    """
    return _explaining(super().compute, request)


def _explaining(method: Callable[[Any], Any], request: Any) -> Any:
  """Returns what a method returns; an error of a computation is one line.

  Args:
    method: One of the stub's.
    request: Its argument.

  Returns:
    Its result.

  Raises:
    ComputationError: If a computation failed.
    RpcError: If the call failed for another reason.
  """
  try:
    return method(request)
  except grpc.RpcError as e:
    if not isinstance(e, grpc.Call) or e.code() not in _FAILED:
      raise
    raise ComputationError(_explained(e.details() or '')) from e


def _explained(details: str) -> str:
  """Returns the reason that a runtime gives, without its own words."""
  reason, *_ = details.splitlines() or ['']
  reason = reason.removeprefix(_FAILED_WORDS)
  if reason.startswith(_ASSERTION):
    # What is asserted and found, each in brackets.
    reason = reason.removeprefix(_ASSERTION).strip()
    reason = reason.removeprefix('[').removesuffix(']').replace('] [', ' ')
  label = _LABEL.match(reason)
  if label:
    value, classes = label.groups()
    reason = f"labels of a client's data must be in {classes}, found {value}"
  return reason


def open_secure_sums(
  computation: Any, *, simulate: bool, error: Callable[[str], Exception]
) -> Any:
  """Returns a computation without secure sums, which TFF's runtimes lack.

  Args:
    computation: Any `tff.Computation`.
    simulate: Whether to compute its secure sums in the open: the same result,
      with nothing hidden.
    error: Makes the error to raise from its message.

  Returns:
    A computation of the same type; `computation` itself unless `simulate`.

  Raises:
    Exception: What `error` makes, if there are secure sums and `simulate` is
      false.
  """
  if simulate:
    return tff.framework.ConcreteComputation.with_type(
      tff.backends.test.replace_secure_intrinsics_with_bodies(computation),
      # The replacing forgets Python's containers.
      computation.type_signature,
    )
  # Operations are in there by their names.
  proto = tff.framework.serialize_computation(computation)
  if b'federated_secure_' in proto.SerializeToString():
    raise error(
      'a computation with secure sums must be run with'
      ' simulate_secure_sums=True, found False'
    )
  return computation


def build_executor(
  stub: tff.framework.RemoteExecutorStub,
  cardinalities: Mapping[tff.framework.PlacementLiteral, int],
) -> tff.framework.RemoteExecutor:
  """Returns an executor in the runtime behind `stub`.

  Args:
    stub: The connection.
    cardinalities: How many clients there are; none if it is not said.

  Returns:
    An executor for that many.
  """
  # What is not needed any more is freed at once: it may be a whole state.
  executor = tff.framework.RemoteExecutor(stub, dispose_batch_size=1)
  executor.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
  return executor


def build_context(
  create_executor: Callable[[Mapping[Any, int]], tff.framework.RemoteExecutor],
  compiler_fn: Optional[Callable[[Any], Any]] = None,
  context_class: Callable[..., Any] = tff.framework.SyncExecutionContext,
) -> Any:
  """Returns a context that runs computations in the executors it is given.

  Args:
    create_executor: From cardinalities to an executor. Called for every new
      number of clients, and again after a call whose connection broke: TFF
      repeats such calls for ever unless this raises an error.
    compiler_fn: Brings computations into the form that the runtime takes;
      TFF's compiler for its own runtime if None.
    context_class: `tff.framework.SyncExecutionContext` or its asynchronous
      sister.

  Returns:
    An instance of `context_class`, not yet installed.
  """
  return context_class(
    executor_fn=tff.framework.ResourceManagingExecutorFactory(create_executor),
    compiler_fn=compiler_fn
    or tff.backends.native.desugar_and_transform_to_native,
    transform_args=tff.tensorflow.transform_args,
    transform_result=tff.tensorflow.transform_result,
  )
