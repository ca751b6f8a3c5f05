"""What every TFF runtime that answers over gRPC has in common."""

from collections.abc import Callable, Mapping
from typing import Any, Optional

import tensorflow_federated as tff

_MAX_MESSAGE_BYTES = 2 * 1000 * 1000 * 1000
# A state of many clients is larger than gRPC's 4 MB.
CHANNEL_OPTIONS = (
  ('grpc.max_message_length', _MAX_MESSAGE_BYTES),
  ('grpc.max_receive_message_length', _MAX_MESSAGE_BYTES),
  ('grpc.max_send_message_length', _MAX_MESSAGE_BYTES),
)


def build_executor(
  stub: tff.framework.RemoteExecutorStub,
  cardinalities: Mapping[tff.framework.PlacementLiteral, int],
) -> tff.framework.RemoteExecutor:
  """Returns an executor in the runtime behind `stub`.

  Args:
    stub: The connection.
    cardinalities: How many clients there are; none if it is not said.
  """
  executor = tff.framework.RemoteExecutor(stub)
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
  """
  return context_class(
    executor_fn=tff.framework.ResourceManagingExecutorFactory(create_executor),
    compiler_fn=compiler_fn
    or tff.backends.native.desugar_and_transform_to_native,
    transform_args=tff.tensorflow.transform_args,
    transform_result=tff.tensorflow.transform_result,
  )
