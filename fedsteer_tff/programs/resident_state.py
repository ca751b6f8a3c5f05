"""A learning process whose state stays in the runtime from round to round.

`process.next` takes the state from Python and gives it back: each round it is
serialized, sent to the runtime and read there, and comes back the same way.
Here a round leaves its state where it was made, and the next one starts from
it. Only the clients' data and the metrics travel, and the state or the model's
weights when they are asked for. The computations are those of the process, so
the results are the same bits.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent import futures
import dataclasses
from typing import Any, Optional

import grpc
import tensorflow_federated as tff

from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import local_runtime
from fedsteer_tff.programs import state_types


@dataclasses.dataclass(frozen=True)
class _Home:
  """An executor for one number of clients, in which a state can live.

  Attributes:
    executor: The executor.
    num_clients: For how many clients it is.
    next_fn: `process.next` in it.
    detach_fn: From a state to the same, see `_build_detach`.
    weights_fn: From a state to the model's weights.
  """

  executor: tff.framework.RemoteExecutor
  num_clients: int
  next_fn: Any
  detach_fn: Any
  weights_fn: Any


class ResidentProcess:
  """A learning process together with its state, which stays in the runtime.

  ```python
  with LocalRuntime().activate() as runtime:
    resident = ResidentProcess(process, runtime)
    resident.put(process.initialize())
    for round_num in range(100):
      metrics = resident.next(client_data(round_num))
    state = resident.state()
  ```

  A round that fails or is interrupted leaves the state as it was before.

  The state lives in an executor for one number of clients. A round with another
  number moves it, by way of Python, which takes as long as it does without this
  class. `CohortData` fills cohorts up so that they have few sizes.
  """

  def __init__(
    self,
    process: tff.learning.templates.LearningProcess,
    runtime: local_runtime.LocalRuntime,
  ):
    """Compiles what a round needs.

    Args:
      process: The learning process.
      runtime: Where it runs.

    Raises:
      TypeError: If an argument is something else.
      LocalRuntimeError: If the process needs what the runtime does not have.
    """
    if not isinstance(getattr(process, 'next', None), tff.Computation):
      raise TypeError(
        f'process must be a learning process, found {process!r:.200}'
      )
    arguments.check_instance(
      'runtime', runtime, local_runtime.LocalRuntime, 'a LocalRuntime'
    )
    self._runtime = runtime
    # Compilation drops Python's containers from the types.
    self._next_type = process.next.type_signature
    self._state_type, self._data_type = self._next_type.parameter

    @tff.federated_computation(self._state_type)
    def weights(state: tff.Value) -> tff.Value:
      return tff.federated_map(process.get_model_weights, state)

    self._weights_type = weights.type_signature.result
    self._next_fn = runtime.compile(process.next)
    self._detach_fn = runtime.compile(_build_detach(self._state_type))
    self._weights_fn = runtime.compile(weights)
    # Calls of an executor block. In a thread of their own they leave the caller
    # free to be interrupted, and to have an event loop.
    self._thread = futures.ThreadPoolExecutor(max_workers=1)
    self._homes: dict[int, _Home] = {}
    # Where the state lives, and the state.
    self._place: Optional[tuple[_Home, Any]] = None

  def put(self, state: Any) -> None:
    """Replaces the state.

    Args:
      state: As `process.initialize` and `process.next` return it.

    Raises:
      TypeError: If it is something else.
    """
    num_clients = 0 if self._place is None else self._place[0].num_clients
    self._settle(state, num_clients)

  def next(self, client_data: Sequence[Any]) -> Any:
    """Runs a round, and keeps its state for the next one.

    Args:
      client_data: As for `process.next`.

    Returns:
      The round's metrics, as those of `process.next`.

    Raises:
      TypeError: If the data are not what `process.next` takes.
      ValueError: If there is no state yet.
      ComputationError: If the round fails, as by `process.next`.
      LocalRuntimeError: If the runtime has ended.
    """
    client_data = tff.tensorflow.transform_args(list(client_data))
    home, _ = self._placed()
    if home.num_clients != len(client_data):
      self._settle(self.state(), len(client_data))
    home, state = self._placed()
    state, metrics = self._run(self._round(home, state, client_data))
    self._place = home, state  # Now that the round is complete.
    return metrics

  def state(self) -> Any:
    """Asks for the state.

    Returns:
      It, as `process.next` would have returned it.

    Raises:
      ValueError: If there is no state yet.
      LocalRuntimeError: If the runtime has ended.
    """
    return self.snapshot()()

  def snapshot(self) -> Callable[[], Any]:
    """Keeps hold of the state as it is now.

    Returns:
      A function that returns it. It stays in the runtime as long as the
      function is kept.

    Raises:
      ValueError: If there is no state yet.
    """
    _, state = self._placed()
    return lambda: self._run(_fetch(state, self._state_type))

  def model_weights(self) -> tff.learning.models.ModelWeights:
    """Asks for the model's weights, without the rest of the state.

    Returns:
      They, as `process.get_model_weights` returns them.

    Raises:
      ValueError: If there is no state yet.
      LocalRuntimeError: If the runtime has ended.
    """
    return self._run(self._fetch_weights(*self._placed()))

  def _placed(self) -> tuple[_Home, Any]:
    if self._place is None:
      raise ValueError('a state must be put before it is used, found none')
    return self._place

  def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Returns what a coroutine returns.

    Args:
      coroutine: What to run, in the thread of its own.

    Returns:
      Its result.

    Raises:
      LocalRuntimeError: If the runtime has ended.
      RpcError: If it is there and fails.
    """
    try:
      return self._thread.submit(asyncio.run, coroutine).result()
    except grpc.RpcError as e:
      self._runtime.check_alive(after=e)
      raise

  def _settle(self, state: Any, num_clients: int) -> None:
    """Puts a state where rounds with so many clients run."""
    self._place = self._run(self._move(state, num_clients))

  async def _move(self, state: Any, num_clients: int) -> tuple[_Home, Any]:
    if num_clients not in self._homes:
      executor = self._runtime.create_executor({tff.CLIENTS: num_clients})
      functions = [
        await executor.create_value(function, function.type_signature)
        for function in (self._next_fn, self._detach_fn, self._weights_fn)
      ]
      self._homes[num_clients] = _Home(executor, num_clients, *functions)
    home = self._homes[num_clients]
    value = tff.tensorflow.transform_args(state)
    return home, await _create(home.executor, 'state', value, self._state_type)

  async def _round(
    self, home: _Home, state: Any, client_data: Sequence[Any]
  ) -> tuple[Any, Any]:
    """Returns the new state, which stays where it is, and the metrics."""
    executor = home.executor
    data = await _create(executor, 'client_data', client_data, self._data_type)
    call_arguments = await executor.create_struct([state, data])
    output = await executor.create_call(home.next_fn, call_arguments)
    state, metrics = [
      await executor.create_selection(output, i) for i in (0, 1)
    ]
    metrics = await _fetch(metrics, self._next_type.result.metrics)
    # With the metrics the state is there as well.
    state = await executor.create_call(home.detach_fn, state)
    return state, metrics

  async def _fetch_weights(self, home: _Home, state: Any) -> Any:
    weights = await home.executor.create_call(home.weights_fn, state)
    return await _fetch(weights, self._weights_type)


async def _create(
  executor: tff.framework.RemoteExecutor,
  name: str,
  value: Any,
  type_spec: tff.FederatedType,
) -> Any:
  """Puts an argument of `process.next` into an executor.

  Args:
    executor: The executor.
    name: The argument's name, for the error message.
    value: The argument.
    type_spec: The type that it must have.

  Returns:
    A reference to the value there.

  Raises:
    TypeError: If it has another type.
  """
  try:
    return await executor.create_value(value, type_spec)
  except (TypeError, ValueError) as e:
    found, *_ = str(e).splitlines() or ['']
    several = 'a list of '
    if type_spec.all_equal:
      several = ''
      found = (
        state_types.differences(
          state_types.of_type(type_spec), state_types.of_value(value)
        )
        or found
      )
    raise TypeError(
      f'{name} must be {several}what process.next takes, found another type:'
      f' {found}'
    ) from e


async def _fetch(reference: Any, type_spec: tff.Type) -> Any:
  """Returns the value of a reference, in Python's containers."""
  value = tff.types.type_to_py_container(await reference.compute(), type_spec)
  return tff.tensorflow.transform_result(value)


def _build_detach(state_type: tff.FederatedType) -> tff.Computation:
  """Builds a computation that returns a state that remembers nothing else.

  TFF's runtime keeps what a value was computed from for as long as the value
  itself, so that every state would keep all states before it. What puts values
  that are there already into a structure is not such a computation.

  Args:
    state_type: The type of the state.

  Returns:
    A computation from the state to the same state.
  """

  @tff.tensorflow.computation(tff.StructType([state_type.member]))
  def first(structure: Any) -> Any:
    return structure[0]

  @tff.federated_computation(state_type)
  def detach(state: tff.Value) -> tff.Value:
    return tff.federated_map(first, tff.federated_zip((state,)))

  return detach
