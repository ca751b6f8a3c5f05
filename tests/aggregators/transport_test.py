"""Tests of what travels from the clients to the server, and what it shows."""

import numpy as np
import pytest
import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import participation
from tests.aggregators import small_rounds

_DIMENSION = 5000
_WIDTH = 64
_K = 3


def _elements(type_proto) -> int:
  if type_proto.HasField('tensor'):
    return int(np.prod(list(type_proto.tensor.dims), dtype=int))
  return sum(_elements(part.value) for part in type_proto.struct.element)


def _uploads(message, found):
  """Collects the sizes of what intrinsics take from each client."""
  if message.DESCRIPTOR.name == 'Computation' and message.HasField('intrinsic'):
    parameter = message.type.function.parameter
    uri = message.intrinsic.uri
    if uri == 'federated_aggregate':
      parameter = parameter.struct.element[0].value
    if uri in ('federated_aggregate', 'federated_sum'):
      found.append(_elements(parameter.federated.member))
  for field, value in message.ListFields():
    if field.message_type is not None:
      values = value if field.label == field.LABEL_REPEATED else [value]
      for child in values:
        _uploads(child, found)
  return found


def _upload(factory) -> int:
  """Returns how many numbers each client sends in a round."""
  process = factory.create(
    small_rounds.value_type([tff.TensorType(np.float32, [_DIMENSION])]),
    small_rounds.WEIGHT_TYPE,
  )
  return sum(_uploads(tff.framework.serialize_computation(process.next), []))


# Beside what grows: two flags, id, weight, probability, slot, squared norm.
_SCALARS = 7


@pytest.mark.parametrize(
  ('parameters', 'expected'),
  [
    ({'core_eligibility': 'frequent'}, _DIMENSION + 2 * _K + _WIDTH),
    # And how well the core set explains it.
    ({}, _DIMENSION + 2 * _K + _WIDTH + 1),
    ({'aggregation': 'server_projection'}, _DIMENSION + 2 * _K + _WIDTH),
    ({'core_set': (4, 1, 2)}, _DIMENSION + 2 * _K),
    (
      {'aggregation': 'client_projection', 'core_set': (4, 1, 2)},
      2 * _DIMENSION + 2 * _K,
    ),
    (
      {'aggregation': 'server_projection', 'core_set': (4, 1, 2)},
      _DIMENSION + 2 * _K,
    ),
    (
      {
        'core_set': (4, 1, 2),
        'correction_factory': tff.aggregators.SumFactory(),
      },
      2 * _DIMENSION + 2 * _K,
    ),
    ({'core_set': ()}, _DIMENSION),
  ],
)
def test_a_client_sends_what_the_table_of_designs_says(parameters, expected):
  factory = aggregators.FedSteerFactory(
    20, core_set_size=_K, sketch_size=_WIDTH, **parameters
  )
  assert _upload(factory) == expected + _SCALARS


def test_dense_sends_a_place_for_everybody():
  size = 20
  factory = aggregators.FedSteerFactory(
    size, core_set=(4, 1, 2), aggregation='dense'
  )
  # Beside updates: weight, probability, norm, count and two vectors [k] for
  # every client, a count for every slot, and the number of those dropped.
  places = size * (4 + 2 * _K) + _K + 1
  assert _upload(factory) == (1 + _K) * _DIMENSION + places


@pytest.mark.parametrize(
  'factory',
  [
    aggregators.InverseProbabilityFactory(20),
    aggregators.StaleUpdateFactory(20),
    aggregators.StaleUpdateFactory(20, update_refresh='before_aggregation'),
  ],
)
def test_baselines_send_an_update_and_who_sends_it(factory):
  assert _upload(factory) == _DIMENSION + _SCALARS


def _downloads(message, found):
  """Collects the types that the server sends to each client."""
  if message.DESCRIPTOR.name == 'Computation' and message.HasField('intrinsic'):
    if message.intrinsic.uri == 'federated_broadcast':
      found.append(message.type.function.parameter.federated.member)
  for field, value in message.ListFields():
    if field.message_type is not None:
      values = value if field.label == field.LABEL_REPEATED else [value]
      for child in values:
        _downloads(child, found)
  return found


def _download(factory) -> int:
  """Returns how many numbers each client gets in a round."""
  process = factory.create(
    small_rounds.value_type([tff.TensorType(np.float32, [_DIMENSION])]),
    small_rounds.WEIGHT_TYPE,
  )
  message = tff.framework.serialize_computation(process.next)
  return sum(map(_elements, _downloads(message, [])))


@pytest.mark.parametrize(
  ('factory', 'parameters', 'down', 'up'),
  [
    (aggregators.FedSteerFactory, {}, 1, 1),
    (aggregators.FedSteerFactory, {'core_set': (4, 1, 2)}, 1, 1),
    (
      aggregators.FedSteerFactory,
      {'core_set': (4, 1, 2), 'aggregation': 'client_projection'},
      1,
      0,
    ),
    (
      aggregators.FedSteerFactory,
      {'core_set': (4, 1, 2), 'aggregation': 'dense'},
      1,
      0,
    ),
    (
      aggregators.FedSteerFactory,
      {'core_set': (4, 1, 2), 'aggregation': 'server_projection'},
      0,
      0,
    ),
    (
      aggregators.FedSteerFactory,
      {
        'core_set': (4, 1, 2),
        'aggregation': 'server_projection',
        'correction_factory': tff.aggregators.SumFactory(),
      },
      1,
      0,
    ),
    (aggregators.InverseProbabilityFactory, {}, 1, 1),
    (
      aggregators.InverseProbabilityFactory,
      {'correction_weighting': 'participant_mean'},
      0,
      0,
    ),
    (aggregators.StaleUpdateFactory, {}, 0, 0),
  ],
)
def test_estimates_go_down_where_updates_are_weighted_on_their_way(
  factory, parameters, down, up
):
  size = 200
  known = factory(size, **parameters)
  estimated = factory(
    size, participation=participation.RunningFrequency(0.1), **parameters
  )
  assert _download(estimated) - _download(known) == down * size
  assert _upload(estimated) - _upload(known) == up


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
