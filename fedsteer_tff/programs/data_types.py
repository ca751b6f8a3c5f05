"""Whether clients' data are what a learning process takes, before it does.

TFF finds another type too, but knows neither which client has it nor what may
be the reason, and a dataset without an end it trains on for ever.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import participation


def checked(
  client_data_fn: Callable[[participation.Cohort], Sequence[Any]],
  process: tff.learning.templates.LearningProcess,
) -> Callable[[participation.Cohort], Sequence[Any]]:
  """Returns a function of which a process can take what it returns.

  Only datasets are looked at. What else `process.next` may take in their place,
  such as lists, is for TFF to judge.

  Args:
    client_data_fn: From a cohort to its client data.
    process: The learning process.

  Returns:
    The same function, with checks: it raises a `TypeError` where the elements
    of a dataset are not those of the process, and a `ValueError` where a
    dataset has no end.
  """
  _, parameter = process.next.type_signature.parameter
  # The element specs that were right last: all clients' are equal, as a rule,
  # and to compare specs takes less time than to compare types.
  right: dict[str, Any] = {}

  def check(cohort: participation.Cohort) -> Sequence[Any]:
    client_data = client_data_fn(cohort)
    if not isinstance(client_data, (list, tuple)):
      return client_data
    for number, data in enumerate(client_data):
      for member, dataset, wanted in _datasets(data, parameter.member):
        spec = dataset.element_spec
        if member not in right or spec != right[member]:
          problem = _problem(spec, wanted)
          if problem:
            raise TypeError(
              f'client_data_fn must return {problem} as {member} of'
              f' {_client(cohort, number)}'
            )
          right[member] = spec
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
          raise ValueError(
            'client_data_fn must return datasets that have an end, found one'
            f' that repeats for ever as {member} of {_client(cohort, number)}:'
            ' give repeat a number'
          )
    return client_data

  return check


def _datasets(
  data: Any, wanted: tff.Type, member: str = 'the data'
) -> Iterator[tuple[str, tf.data.Dataset, tff.Type]]:
  """Yields the datasets of one client, with their names and wanted types."""
  if isinstance(data, tf.data.Dataset):
    yield member, data, wanted
  elif isinstance(data, Mapping) and isinstance(wanted, tff.StructType):
    for name, kind in tff.structure.iter_elements(wanted):
      if name in data:
        yield from _datasets(data[name], kind, repr(name))


def _problem(spec: Any, wanted: tff.Type) -> str:
  """Returns what is wrong with an element spec; nothing if it is right."""
  if _is_right(spec, wanted):
    return ''
  reason = ''
  specs = tf.nest.flatten(spec)
  if all(
    isinstance(s, tf.TensorSpec) and s.shape.rank is not None for s in specs
  ):
    if _is_right(_with_shapes(spec, lambda shape: [None, *shape]), wanted):
      reason = ' (examples that are not batched)'
    elif all(s.shape.rank for s in specs) and _is_right(
      _with_shapes(spec, lambda shape: shape[1:]), wanted
    ):
      reason = ' (batches that are batched once more)'
  return f'{wanted}, found {_sequence(spec)}{reason}'


def _is_right(spec: Any, wanted: tff.Type) -> bool:
  return bool(wanted.is_assignable_from(_sequence(spec)))


def _sequence(spec: Any) -> tff.SequenceType:
  return tff.SequenceType(tff.types.tensorflow_to_type(spec))


def _with_shapes(spec: Any, change: Callable[[Any], Any]) -> Any:
  """Returns the same spec with tensors of other shapes."""
  return tf.nest.map_structure(
    lambda s: tf.TensorSpec(change(s.shape), s.dtype), spec
  )


def _client(cohort: participation.Cohort, number: int) -> str:
  """Returns whose data are at a place of the client data."""
  ids = cohort.client_ids
  # What fills a cohort up comes last.
  return f'client {ids[number]}' if number < len(ids) else 'the padding'
