"""Measuring rounds of several processes in turns.

What is measured is a function from a round's number to nothing.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import os
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm

from fedsteer_tff import programs

# Rounds that compile, fill the core set, and let memory settle.
_WARM_UP = 4


@dataclasses.dataclass(frozen=True)
class Times:
  """Each entry's measured rounds: seconds, and CPU seconds of all processes."""

  seconds: Mapping[str, list[float]]
  cpu_seconds: Mapping[str, list[float]]

  def ratio(self, one: str, other: str) -> str:
    """Returns the median of the rounds' ratios, quartiles, and that of CPU."""
    ratios = np.divide(self.seconds[one], self.seconds[other])
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    cpu = sum(self.cpu_seconds[one]) / sum(self.cpu_seconds[other])
    return f'{median:.2f} ({low:.2f} to {high:.2f}), of CPU time {cpu:.2f}'

  def beside(self, other: 'Times') -> 'Times':
    """Returns these and those of other entries."""
    return Times(
      {**self.seconds, **other.seconds},
      {**self.cpu_seconds, **other.cpu_seconds},
    )

  def raw(self) -> Mapping[str, Any]:
    """Returns every number."""
    return dict(seconds=self.seconds, cpu_seconds=self.cpu_seconds)


def interleave(
  runtime: programs.LocalRuntime,
  entries: Mapping[str, Callable[[int], Any]],
  rounds: int,
) -> Times:
  """Runs all entries in turns, and measures them after a few rounds."""
  times = Times({name: [] for name in entries}, {name: [] for name in entries})
  names = list(entries)
  for round_num in tqdm.trange(_WARM_UP + rounds, unit='round'):
    # So that none always follows the same other one.
    shift = round_num % len(names)
    for name in names[shift:] + names[:shift]:
      start, cpu_start = time.perf_counter(), _cpu_seconds(runtime)
      entries[name](round_num)
      if round_num >= _WARM_UP:
        times.seconds[name].append(time.perf_counter() - start)
        times.cpu_seconds[name].append(_cpu_seconds(runtime) - cpu_start)
  return times


def _cpu_seconds(runtime: programs.LocalRuntime) -> float:
  """Returns the CPU time that this process and the runtime have used."""
  ticks = 0
  for pid in runtime.child_pids:
    with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as f:
      fields = f.read().rpartition(')')[2].split()
    ticks += int(fields[11]) + int(fields[12])  # utime and stime
  return time.process_time() + ticks / os.sysconf('SC_CLK_TCK')


def passing(
  process: tff.learning.templates.LearningProcess,
  data: Callable[[int], Sequence[Any]],
) -> Callable[[int], None]:
  """Returns rounds of `process.next`, with the state in Python."""
  state = process.initialize()

  def run(round_num):
    nonlocal state
    state = process.next(state, data(round_num)).state

  return run


def passed(
  process: tff.learning.templates.LearningProcess,
) -> Callable[[int], None]:
  """Returns rounds that pass a state to a computation that returns it."""
  state = process.initialize()
  state_type = process.next.type_signature.parameter[0]

  @tff.tensorflow.computation(state_type.member)
  def copy(value):
    return tf.nest.map_structure(tf.identity, value)

  @tff.federated_computation(state_type)
  def through(value):
    return tff.federated_map(copy, value)

  return lambda _: through(state)


def resident(
  process: tff.learning.templates.LearningProcess,
  runtime: programs.LocalRuntime,
  data: Callable[[int], Sequence[Any]],
) -> Callable[[int], None]:
  """Returns rounds of a process whose state stays in the runtime."""
  resident_process = programs.ResidentProcess(process, runtime)
  resident_process.put(process.initialize())

  def run(round_num):
    resident_process.next(data(round_num))

  return run
