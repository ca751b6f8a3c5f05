"""Rounds of a program that begin only when something else is done."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import tensorflow_federated as tff

Ready = Callable[[], Awaitable[None]]


def paced_process(
  process: tff.learning.templates.LearningProcess, ready: Ready
) -> tff.learning.templates.LearningProcess:
  """Returns a process whose rounds wait.

  Args:
    process: A learning process, to be called in a program's context.
    ready: What is awaited before each round.

  Returns:
    A process of the same types.
  """
  return _PacedProcess(process, ready)


class _PacedProcess(tff.learning.templates.LearningProcess):
  """A process whose `next` waits."""

  def __init__(
    self, process: tff.learning.templates.LearningProcess, ready: Ready
  ):
    super().__init__(
      process.initialize,
      process.next,
      process.get_model_weights,
      process.set_model_weights,
      get_hparams_fn=process.get_hparams,
      set_hparams_fn=process.set_hparams,
    )
    self._paced_next = _PacedNext(process.next, ready)

  @property
  def next(self) -> '_PacedNext':
    return self._paced_next


class _PacedNext:
  """Stands in for a process's `next`."""

  def __init__(self, next_fn: tff.Computation, ready: Ready):
    self._next_fn = next_fn
    self._ready = ready

  @property
  def type_signature(self) -> tff.FunctionType:
    return self._next_fn.type_signature

  def __call__(self, *arguments: Any) -> '_PacedResult':
    return _PacedResult(self._next_fn, self._ready, arguments)


class _PacedResult(tff.program.MaterializableValueReference):
  """The result of a call that begins when it may."""

  def __init__(
    self, next_fn: tff.Computation, ready: Ready, arguments: Sequence[Any]
  ):
    self._next_fn = next_fn
    self._ready = ready
    self._arguments = arguments

  @property
  def type_signature(self) -> tff.Type:
    return self._next_fn.type_signature.result

  async def get_value(self) -> tff.learning.templates.LearningProcessOutput:
    await self._ready()
    return await tff.program.materialize_value(self._next_fn(*self._arguments))
