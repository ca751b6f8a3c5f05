"""The loop over the rounds of a learning process.

```
for every round:
  forced clients (from the state) -> sampler -> cohort -> client data
  process.next -> state, metrics -> evaluation, where due -> callbacks
```

The loop holds nothing but the state and the number of the round: with both
restored it goes on exactly as it would have.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
import dataclasses
import functools
import time
from typing import Any, Optional, Union

from absl import logging
import numpy as np
import tensorflow_federated as tff

from fedsteer_tff import participation
from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import data_types
from fedsteer_tff.programs import evaluation
from fedsteer_tff.programs import local_runtime
from fedsteer_tff.programs import memory
from fedsteer_tff.programs import remote_runtime
from fedsteer_tff.programs import resident_state
from fedsteer_tff.programs import round_data
from fedsteer_tff.programs import state_types

# Metrics of the clients' training under this key become columns 'loss', ...
_TRAIN = 'train'
# FedSteer's own metrics are under this key where a factory has others.
_FEDSTEER = 'fedsteer'

# Names to Python numbers.
Metrics = OrderedDict[str, Union[int, float]]
# From the state and the number of the coming round to the ids of clients.
ForcedClientsFn = Callable[[Any, int], Iterable[int]]


@dataclasses.dataclass(frozen=True)
class RoundResult:
  """One finished round.

  Attributes:
    round_num: How many rounds the state has seen: 1 for the first round.
    state_fn: Returns the learning process's state after the round, which
      `state` asks for once.
    cohort: Who took part, without the clients that fill the cohort up.
    metrics: Names to Python numbers: the clients' training metrics ('loss',
      ...) and the aggregator's.
    evaluation: The evaluation's metrics ('loss', ...); None if not due.
    seconds: The duration of the round without the evaluation.
    is_last: Whether it is the last round of the run.
  """

  round_num: int
  state_fn: Callable[[], Any]
  cohort: participation.Cohort
  metrics: Metrics
  evaluation: Optional[OrderedDict[str, float]]
  seconds: float
  is_last: bool

  @functools.cached_property
  def state(self) -> Any:
    """The learning process's state after the round."""
    return self.state_fn()


class Callback:
  """Something that happens beside the training; override what is needed."""

  def on_start(self, round_num: int, num_rounds: int) -> None:
    """Before the first round that is run.

    Args:
      round_num: How many rounds are done already.
      num_rounds: How many there will be.
    """

  def on_round(self, result: RoundResult) -> None:
    """After every round, in the order of the callbacks.

    Args:
      result: The round.
    """

  def on_error(self, state: Any, round_num: int) -> None:
    """After an error in a round, before it leaves the loop.

    Called with the newest state that is at hand and whose round all callbacks
    have seen, so that the run can go on from it; not called if there is none,
    nor for an error of a callback.

    Args:
      state: The state of the learning process.
      round_num: How many rounds it has seen.
    """

  def on_end(self, state: Any, round_num: int) -> None:
    """After the last round, or when the loop was asked to stop.

    Not called when a round raises an error.

    Args:
      state: The state of the learning process.
      round_num: How many rounds it has seen.
    """


def flatten_metrics(metrics: Mapping[str, Any]) -> Metrics:
  """Returns a round's metrics as one flat mapping of Python numbers.

  Args:
    metrics: The metrics of a `LearningProcessOutput`. Of 'client_work' the
      entry 'train' is taken where there is one, without a prefix; 'aggregator'
      without a prefix, nor one for what FedSteer itself reports where a factory
      sums its correction; other nested names joined by '/'. Entries that are
      not numbers are left out.

  Returns:
    Names to ints and floats.
  """
  client_work = metrics.get('client_work', {})
  if isinstance(client_work, Mapping):
    client_work = client_work.get(_TRAIN, client_work)
  aggregator = metrics.get('aggregator', {})
  parts = [client_work, aggregator]
  if isinstance(aggregator, Mapping) and _FEDSTEER in aggregator:
    rest = {k: v for k, v in aggregator.items() if k != _FEDSTEER}
    parts[1:] = [aggregator[_FEDSTEER], rest]
  flat: Metrics = OrderedDict()
  for part in parts:
    _flatten_into(flat, '', part)
  return flat


def metric_names(
  process: tff.learning.templates.LearningProcess,
) -> tuple[str, ...]:
  """Returns the names of a process's metrics, before there are any.

  Args:
    process: The learning process.

  Returns:
    The names that `flatten_metrics` gives to the metrics of a round.
  """
  zeros = _zeros(process.next.type_signature.result.metrics)
  return tuple(flatten_metrics(zeros))


def _zeros(metrics_type: tff.Type) -> Any:
  """Returns metrics of a type."""
  if isinstance(metrics_type, tff.FederatedType):
    return _zeros(metrics_type.member)
  if isinstance(metrics_type, tff.StructType):
    members = tff.structure.to_elements(metrics_type)
    if any(name is None for name, _ in members):
      return [_zeros(member) for _, member in members]
    return OrderedDict((name, _zeros(member)) for name, member in members)
  shape = [n or 0 for n in metrics_type.shape or ()]
  return np.zeros(shape, metrics_type.dtype)


def _flatten_into(flat: Metrics, prefix: str, value: Any) -> None:
  if isinstance(value, Mapping):
    for name, child in value.items():
      _flatten_into(flat, f'{prefix}/{name}' if prefix else name, child)
    return
  array = np.asarray(value)
  if not prefix or array.shape or array.dtype.kind not in 'biuf':
    return
  flat[prefix] = float(array) if array.dtype.kind == 'f' else int(array)


class _PassedState:
  """A learning process and its state, which is in Python between rounds.

  Has the methods of `resident_state.ResidentProcess`.
  """

  def __init__(self, process: tff.learning.templates.LearningProcess):
    self._process = process
    self._state = None

  def put(self, state: Any) -> None:
    self._state = state

  def next(self, client_data: Sequence[Any]) -> Any:
    try:
      output = self._process.next(self._state, client_data)
    except (TypeError, ValueError) as e:
      # Of state and data the error does not say which one it is about.
      state_type, _ = self._process.next.type_signature.parameter
      differing = state_types.differences(
        state_types.of_type(state_type), state_types.of_value(self._state)
      )
      if differing is None:
        raise
      raise TypeError(
        'state must be what process.next takes, found another type:'
        f' {differing}'
      ) from e
    self._state = output.state
    return output.metrics

  def state(self) -> Any:
    return self._state

  def snapshot(self) -> Callable[[], Any]:
    state = self._state
    return lambda: state

  def model_weights(self) -> tff.learning.models.ModelWeights:
    return self._process.get_model_weights(self._state)


class _AtHand:
  """The state before a round, as long as the round may fail."""

  def __init__(
    self,
    training: Union[resident_state.ResidentProcess, _PassedState],
    round_num: int,
    earlier: Optional[tuple[Any, int]],
  ):
    """Looks at no state that is in a runtime.

    Args:
      training: What trains.
      round_num: How many rounds are done.
      earlier: A state that is in Python, and how many rounds it has seen.
    """
    self._round_num = round_num
    self._snapshot = training.snapshot()
    # The newest state that is in Python.
    self.newest = earlier
    if isinstance(training, _PassedState):
      self.state()

  def state(self) -> Any:
    """Returns the state, which is in Python from then on."""
    if self.newest is None or self.newest[1] < self._round_num:
      self.newest = self._snapshot(), self._round_num
    return self.newest[0]

  def tell(self, callbacks: Sequence[Callback]) -> None:
    """Tells callbacks of an error, if a state can still be had."""
    # The first error is the one to be raised.
    warning = 'the state after round %d could not be kept: %s'
    try:
      self.state()
    except Exception as e:
      logging.warning(warning, self._round_num, e)
    if self.newest is None:
      return
    state, round_num = self.newest
    try:
      for callback in callbacks:
        callback.on_error(state, round_num)
    except Exception as e:
      logging.warning(warning, round_num, e)


def run(
  process: tff.learning.templates.LearningProcess,
  sampler: round_data.Sampler,
  client_data_fn: Callable[[participation.Cohort], Sequence[Any]],
  *,
  state: Any,
  num_rounds: int,
  first_round: int = 0,
  runtime: Union[
    local_runtime.LocalRuntime, remote_runtime.RemoteRuntime, None
  ] = None,
  forced_clients_fn: Optional[ForcedClientsFn] = None,
  evaluate_fn: Optional[evaluation.EvaluateFn] = None,
  evaluate_every: int = 1,
  callbacks: Sequence[Callback] = (),
  stop_requested: Callable[[], bool] = lambda: False,
  prefetch: bool = False,
) -> tuple[Any, int]:
  """Runs a learning process from round `first_round` to round `num_rounds`.

  A TFF execution context must be set. Ten rounds of an own model:

  ```python
  state, _ = training_loop.run(
      process,
      participation.BernoulliSampler(probabilities, seed=0),
      cohorts.CohortData(client_data_fn),
      state=process.initialize(),
      num_rounds=10,
      evaluate_fn=evaluation.build_evaluation(model_fn, test_dataset),
      callbacks=[callbacks.MetricsCsv('metrics.csv')],
  )
  ```

  Args:
    process: The learning process.
    sampler: Draws the cohorts; round r (1, 2, ...) gets `sampler.cohort(r)`.
    client_data_fn: From a cohort to the client data of `process.next`; see
      `cohorts.CohortData`.
    state: The state after `first_round` rounds.
    num_rounds: How many rounds the state will have seen at the end.
    first_round: How many rounds `state` has seen.
    runtime: Where the process runs. In a `LocalRuntime` the state stays there
      from round to round, which is faster and gives the same bits, see
      `resident_state`; else, and if it is not said, it passes through Python.
    forced_clients_fn: From the state and the number of the round that is about
      to run to the ids of clients that must take part in it.
    evaluate_fn: From the model's weights to metrics, see
      `evaluation.build_evaluation`.
    evaluate_every: Rounds that are multiples of this are evaluated. (Not the
      last one in any case, so that a run that is continued later equals one
      that was longer from the start.)
    callbacks: Called in this order.
    stop_requested: Asked between rounds; see `interruption.Interruption`.
    prefetch: Whether a thread draws the next round's cohort and makes its data
      while a round runs: for data that waits for a disk or a network. Where the
      processor makes the data nothing is gained. Results are the same to the
      bit if sampler and data depend on nothing but the round and the cohort.
      Data of two rounds is in memory at a time, and no TFF execution context
      is set in that thread. Not with `forced_clients_fn`.

  Returns:
    The state and how many rounds it has seen: fewer than `num_rounds` if the
    loop was asked to stop.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If a number is out of range, or `prefetch` is set and
      `forced_clients_fn` is given.
    Exception: What a round raises, such as `RemoteRuntimeError` for a worker
      that is lost; after `Callback.on_error`.
  """
  for name, value, least in (
    ('num_rounds', num_rounds, 0),
    ('first_round', first_round, 0),
    ('evaluate_every', evaluate_every, 1),
  ):
    arguments.check_integer(name, value, least)
  if first_round > num_rounds:
    raise ValueError(
      f'first_round must be <= num_rounds = {num_rounds}, found {first_round}'
    )

  arguments.check_instance(
    'process',
    process,
    tff.learning.templates.LearningProcess,
    'a learning process',
  )
  if not callable(getattr(sampler, 'cohort', None)):
    raise TypeError(
      f'sampler must have a method cohort, found {sampler!r:.200}'
    )
  arguments.check_callable('client_data_fn', client_data_fn)
  arguments.check_instance('prefetch', prefetch, bool, 'True or False')
  if prefetch and forced_clients_fn is not None:
    raise ValueError(
      'prefetch must be False with forced_clients_fn, found True: the'
      ' forced clients come from the state after the round before'
    )
  client_data_fn = data_types.checked(client_data_fn, process)
  data = round_data.RoundData(sampler, client_data_fn)
  if prefetch:
    data = round_data.PrefetchedRoundData(sampler, client_data_fn, num_rounds)

  training: Union[resident_state.ResidentProcess, _PassedState]
  if isinstance(runtime, local_runtime.LocalRuntime):
    training = resident_state.ResidentProcess(process, runtime)
  else:
    training = _PassedState(process)
  training.put(state)
  del state
  for callback in callbacks:
    callback.on_start(first_round, num_rounds)
  round_num = first_round
  newest: Optional[tuple[Any, int]] = None
  with memory.collecting_what_is_new(), contextlib.closing(data):
    while round_num < num_rounds and not stop_requested():
      # Of the rounds that are over, in case that this one fails.
      before = _AtHand(training, round_num, newest)
      round_num += 1
      try:
        start = time.perf_counter()
        forced: Sequence[int] = ()
        if forced_clients_fn is not None:
          forced = [
            int(i) for i in forced_clients_fn(before.state(), round_num)
          ]
        cohort, client_data = data.make(round_num, forced_clients=forced)
        metrics = flatten_metrics(training.next(client_data))
        del client_data  # Of which the evaluation may need the room.
        seconds = time.perf_counter() - start

        evaluated = None
        if evaluate_fn is not None and round_num % evaluate_every == 0:
          evaluated = evaluate_fn(training.model_weights())
      except Exception:
        before.tell(callbacks)
        raise
      # A state that the runtime may lose, but Python does not. Of those that
      # pass through Python, the next one is there.
      newest = None if isinstance(training, _PassedState) else before.newest
      del before
      result = RoundResult(
        round_num=round_num,
        state_fn=training.snapshot(),
        cohort=cohort,
        metrics=metrics,
        evaluation=evaluated,
        seconds=seconds,
        is_last=round_num == num_rounds,
      )
      for callback in callbacks:
        callback.on_round(result)
      del result  # And with it, maybe, a state.
  state = training.state()
  for callback in callbacks:
    callback.on_end(state, round_num)
  return state, round_num
