"""An aggregation process as TensorFlow functions of this process.

TFF's runtime takes 20 ms for a round of a small model, most of which is spent
on sending it there and back. A `MapReduceForm` has the code of `next` itself,
as TensorFlow graphs: what is computed before the broadcast, on a client, where
reports are added and merged, and after that. Here these graphs are called in
this process, so that a few thousand rounds take seconds.
"""

import collections
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


class AggregationForm:
  """`initialize` and `next` of a process, without TFF's runtime."""

  def __init__(self, process: tff.templates.AggregationProcess):
    """Compiles the process.

    Args:
      process: An aggregation process that has a `MapReduceForm`.
    """
    form = tff.backends.mapreduce.get_map_reduce_form_for_computation(
      _joined(process)
    )
    self._prepare = _Function(form.prepare)
    self._work = _Function(form.work)
    self._zero = _Function(form.zero)
    self._accumulate = _Function(form.accumulate)
    self._merge = _Function(form.merge)
    self._report = _Function(form.report)
    self._update = _Function(form.update)
    self._initial_state = process.initialize
    self._state_type = process.initialize.type_signature.result.member

  def initialize(self) -> list[np.ndarray]:
    """Returns the leaves of the state before the first round."""
    return [np.asarray(leaf) for leaf in _leaves(self._initial_state())]

  def named(self, state: Sequence[Any]) -> Any:
    """Returns the state with the names that it has in Python."""
    return packed(self._state_type, state)

  def next(
    self,
    state: Sequence[Any],
    clients: Sequence[Sequence[Any]],
    split: int = 0,
  ) -> tuple[list[Any], list[Any]]:
    """Runs a round.

    Args:
      state: Its leaves.
      clients: The leaves of each client's value and weight.
      split: The first so many clients are added up apart, and their sum is
        merged with that of the others. 0 for one sum.

    Returns:
      The leaves of the new state, and those of the result and the measurements.
    """
    message = self._prepare(state)
    sums = [self._sum(clients[split:], message)]
    if split:
      sums.insert(0, self._sum(clients[:split], message))
      sums = [self._merge(*sums)]
    output = self._update(state, self._report(sums[0]))
    size = len(state)
    return output[:size], output[size:]

  def _sum(self, clients: Sequence[Any], message: Sequence[Any]) -> list[Any]:
    total = self._zero()
    for client in clients:
      total = self._accumulate(total, self._work(client, message))
    return total


class _Function:
  """A TensorFlow computation of TFF, from leaves to leaves."""

  def __init__(self, computation: tff.Computation):
    proto = tff.framework.serialize_computation(computation).tensorflow
    assert not proto.initialize_op
    graph_def = tf.compat.v1.GraphDef()
    proto.graph_def.Unpack(graph_def)
    feeds = list(_names(proto.parameter))
    fetches = list(_names(proto.result))
    parameter = computation.type_signature.parameter
    specs = [
      tf.TensorSpec(leaf.shape, leaf.dtype)
      for leaf in ([] if parameter is None else _leaf_types(parameter))
    ]

    def load() -> None:
      tf.graph_util.import_graph_def(graph_def, name='')

    wrapped = tf.compat.v1.wrap_function(load, [])
    pruned = wrapped.prune(
      [wrapped.graph.get_tensor_by_name(name) for name in feeds],
      [wrapped.graph.get_tensor_by_name(name) for name in fetches],
    )
    # Called by itself, it spends most of its time on checks of its arguments.
    self._call = tf.function(
      lambda *leaves: pruned(*leaves), input_signature=specs, autograph=False
    ).get_concrete_function()
    self._dtypes = [spec.dtype for spec in specs]

  def __call__(self, *arguments: Sequence[Any]) -> list[Any]:
    leaves = (leaf for argument in arguments for leaf in argument)
    return self._call(
      *(
        tf.convert_to_tensor(leaf, dtype)
        for leaf, dtype in zip(leaves, self._dtypes, strict=True)
      )
    )


def _joined(process: tff.templates.AggregationProcess) -> tff.Computation:
  """Returns `next` with a pair for each client, as the form demands it."""
  state_type, value_type, weight_type = process.next.type_signature.parameter
  item_type = tff.to_type(
    collections.OrderedDict(value=value_type.member, weight=weight_type.member)
  )

  @tff.federated_computation(
    state_type, tff.FederatedType(item_type, tff.CLIENTS)
  )
  def run_round(state: tff.Value, items: tff.Value) -> Any:
    output = process.next(state, items.value, items.weight)
    return output.state, tff.federated_zip((output.result, output.measurements))

  return run_round


def _names(binding: Any) -> Iterator[str]:
  """Yields the tensors of a binding, depth first."""
  kind = binding.WhichOneof('binding')
  if kind == 'tensor':
    yield binding.tensor.tensor_name
  elif kind == 'struct':
    for element in binding.struct.element:
      yield from _names(element)
  else:
    assert kind is None, kind


def _leaf_types(value_type: tff.Type) -> Iterator[tff.TensorType]:
  if isinstance(value_type, tff.TensorType):
    yield value_type
    return
  for _, child in tff.structure.to_elements(value_type):
    yield from _leaf_types(child)


def _leaves(value: Any) -> Iterator[Any]:
  structure = tff.structure.from_container(value, recursive=True)
  yield from tff.structure.flatten(structure)


def packed(value_type: tff.Type, leaves: Sequence[Any]) -> Any:
  """Returns leaves as arrays in the structure of a type of named parts."""
  return _packed(value_type, iter(leaves))


def _packed(value_type: tff.Type, leaves: Iterator[Any]) -> Any:
  if isinstance(value_type, tff.TensorType):
    return np.asarray(next(leaves))
  return collections.OrderedDict(
    (name, _packed(child, leaves))
    for name, child in tff.structure.to_elements(value_type)
  )
