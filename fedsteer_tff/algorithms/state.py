"""Reading a process's server state: its size, its core set, its estimates."""

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.aggregators import probability_estimates
from fedsteer_tff.participation import estimates


@dataclasses.dataclass(frozen=True)
class CoreSetStatus:
  """Who is in the core set, and when they reported last.

  Attributes:
    core_set: Int32 [k], client ids; -1 marks an empty slot.
    last_active: Int32 [k], the round of the member's last report, -1 if never.
    round_num: Rounds done; the next round has this number.
  """

  core_set: npt.NDArray[np.int32]
  last_active: npt.NDArray[np.int32]
  round_num: int


def core_set_status(
  state: Any, clients: Optional[Sequence[int]] = None
) -> CoreSetStatus:
  """Returns the core set's status.

  Args:
    state: State of a process built by this package.
    clients: Ids to look at instead of the state's own core set, for algorithms
      that have none.

  Returns:
    A `CoreSetStatus`.

  Raises:
    TypeError: If `clients` are not integers.
    ValueError: If `state` is not such a state, or has no core set and no
      `clients` are given, or one of them is unknown.
  """
  aggregator = _fedsteer_part(getattr(state, 'aggregator', None))
  if clients is None:
    if 'core_set' not in aggregator:
      raise ValueError(
        'state must have a core set where clients is None, found none'
      )
    clients = aggregator['core_set']
  found = np.asarray(clients)
  if found.ndim != 1 or (found.size and found.dtype.kind not in 'iu'):
    raise TypeError(f'clients must be a sequence of ids, found {clients!r}')
  population_size = len(aggregator['last_seen'])
  if np.any(found >= population_size) or np.any(found < -1):
    raise ValueError(
      f'clients must be ids below the population size {population_size}, '
      f'found {list(clients)}'
    )
  core_set = found.astype(np.int32)
  last_seen = np.asarray(aggregator['last_seen'], np.int32)
  return CoreSetStatus(
    core_set=core_set,
    last_active=np.where(core_set >= 0, last_seen[core_set], -1).astype(
      np.int32
    ),
    round_num=int(aggregator['round_num']),
  )


def estimated_probabilities(
  state: Any, participation: estimates.Participation
) -> npt.NDArray[np.float32]:
  """Returns the participation probabilities as they are estimated by now.

  Args:
    state: State of a process built by this package.
    participation: The estimator that it was built with.

  Returns:
    Float32 [N]. The prior where nothing is known of a client.

  Raises:
    TypeError: If `participation` is no estimator.
    ValueError: If `state` is not such a state, or has no estimates of that
      kind.
  """
  estimates.check_participation('participation', participation)
  aggregator = _fedsteer_part(getattr(state, 'aggregator', None))
  kept = set(aggregator.get('participation', {}))
  if isinstance(participation, str) or kept != set(
    probability_estimates.initial_state(participation, 1)
  ):
    raise ValueError(
      'state must have the estimates of participation='
      f'{participation!r}, found those with the parts {sorted(kept)}'
    )
  return np.asarray(
    probability_estimates.estimated_probabilities(participation, aggregator)
  )


def state_size_report(
  process: tff.learning.templates.LearningProcess,
) -> Mapping[str, int]:
  """Returns the bytes of a process's server state, part by part.

  Args:
    process: Any learning process with a state of fixed shapes.

  Returns:
    Bytes by part, named by its path in the state ('global_model_weights',
    'aggregator/core_updates', ...), and their sum as 'total'.

  Raises:
    TypeError: If `process` is something else.
  """
  if not isinstance(process, tff.templates.IterativeProcess):
    raise TypeError(f'process must be a learning process, found {process!r}')
  state_type = process.initialize.type_signature.result.member
  report: collections.OrderedDict[str, int] = collections.OrderedDict()
  for name, part in tff.structure.to_elements(state_type):
    if name == 'aggregator' and isinstance(part, tff.StructType):
      for path, size in _parts(part, name):
        report[path] = report.get(path, 0) + size
    else:
      report[name] = _num_bytes(part)
  report['total'] = sum(report.values())
  return report


def _parts(state_type: tff.Type, prefix: str) -> Iterator[tuple[str, int]]:
  for name, part in tff.structure.to_elements(state_type):
    path = f'{prefix}/{name}'
    if name == 'fedsteer':
      yield from _parts(part, prefix)
    else:
      yield path, _num_bytes(part)


def _num_bytes(part: tff.Type) -> int:
  if isinstance(part, tff.TensorType):
    size = tf.as_dtype(part.dtype).size
    return size * tf.TensorShape(part.shape).num_elements()
  return sum(_num_bytes(child) for _, child in tff.structure.to_elements(part))


def _fedsteer_part(aggregator: Any) -> Mapping[str, Any]:
  if isinstance(aggregator, Mapping) and 'fedsteer' in aggregator:
    aggregator = aggregator['fedsteer']
  if not isinstance(aggregator, Mapping) or 'last_seen' not in aggregator:
    raise ValueError(
      'state must be that of a process built by fedsteer_tff, found '
      f'{type(aggregator).__name__} as its aggregator state'
    )
  return aggregator
