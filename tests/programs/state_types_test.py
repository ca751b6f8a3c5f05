"""Tests for state_types."""

from collections import OrderedDict
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.programs import state_types

_F = np.float32


def _leaf(dtype, *shape):
  return state_types.LeafType(dtype, shape)


def _state():
  return tff.learning.templates.LearningAlgorithmState(
    global_model_weights=tff.learning.models.ModelWeights(
      [np.zeros([2, 3], _F), tf.zeros([3])], ()
    ),
    distributor=(),
    client_work=OrderedDict(learning_rate=_F(0.5)),
    aggregator=OrderedDict(slots=np.int32([1, -1]), core=[np.bool_(True)]),
    finalizer=7,
  )


def test_leaves_are_named_by_their_paths_in_the_order_of_tf_nest():
  found = state_types.of_value(_state())
  assert list(found.items()) == [
    ('global_model_weights.trainable.0', _leaf('float32', 2, 3)),
    ('global_model_weights.trainable.1', _leaf('float32', 3)),
    ('client_work.learning_rate', _leaf('float32')),
    ('aggregator.core.0', _leaf('bool')),
    ('aggregator.slots', _leaf('int32', 2)),
    ('finalizer', state_types.LeafType(None, None)),
  ]
  flat = state_types.of_value(tf.nest.flatten(_state()))
  assert list(flat.values()) == list(found.values())
  assert list(flat) == ['0', '1', '2', '3', '4', '5']
  assert state_types.of_value(_F([1])) == {'': _leaf('float32', 1)}
  assert state_types.of_value(()) == {}


def test_a_type_has_the_names_of_its_values():
  state_type = tff.FederatedType(
    tff.StructType(
      [
        ('weights', tff.StructType([tff.TensorType(_F, [2, 3]), np.bool_])),
        ('any', tff.TensorType(np.int64, [None, 2])),
      ]
    ),
    tff.SERVER,
  )
  expected = state_types.of_type(state_type)
  assert expected == {
    'weights.0': _leaf('float32', 2, 3),
    'weights.1': _leaf('bool'),
    'any': _leaf('int64', None, 2),
  }
  value = {
    'any': np.zeros([5, 2], np.int64),
    'weights': (np.zeros([2, 3], _F),),
  }
  assert state_types.differences(expected, state_types.of_value(value)) == (
    'weights.1 must be bool[], found none'
  )
  assert state_types.of_type(tff.TensorType(_F)) == {'': _leaf('float32')}


def test_equal_states_do_not_differ_whatever_their_containers():
  one = {'a': [_F(1), 2], 'b': ()}
  other = OrderedDict(a=(_F(3), np.zeros([4])))
  assert (
    state_types.differences(
      state_types.of_value(one), state_types.of_value(other)
    )
    is None
  )


@pytest.mark.parametrize(
  ('found', 'message'),
  [
    ({'a': _F([1, 2]), 'b': _F(1)}, 'a must be float32[3], found float32[2]'),
    (
      {'a': np.zeros([3]), 'b': _F([1])},
      'a must be float32[3], found float64[3]; b must be float32[], found'
      ' float32[1]',
    ),
    ({'b': _F(1)}, 'a must be float32[3], found none'),
    (
      {'a': np.zeros([3, 1], _F), 'b': _F(1), 'c': [_F(1), 2]},
      'a must be float32[3], found float32[3, 1]; c.0 must not be there, found'
      ' float32[]; c.1 must not be there, found a value',
    ),
    (
      [_F(1), _F(2)],
      'a must be float32[3], found none; b must be float32[], found none; 0'
      ' must not be there, found float32[]; and one more leaf',
    ),
    (
      [_F(1)] * 4,
      'a must be float32[3], found none; b must be float32[], found none; 0'
      ' must not be there, found float32[]; and 3 more leaves',
    ),
    (
      _F([1]),
      'a must be float32[3], found none; b must be float32[], found none; the'
      ' state must not be there, found float32[1]',
    ),
  ],
)
def test_leaves_that_differ_are_named(found, message):
  expected = state_types.of_value({'a': np.zeros([3], _F), 'b': _F(0)})
  types = state_types.of_value(found)
  assert state_types.differences(expected, types) == message


def test_what_is_not_known_differs_from_nothing():
  known = _leaf('float32', 2)
  for other in (
    state_types.LeafType(None, None),
    state_types.LeafType('float32', None),
    _leaf('float32', None),
  ):
    assert known.matches(other) and other.matches(known)
  for other in (
    state_types.LeafType('int32', None),
    _leaf('float32', None, None),
    _leaf('float32'),
  ):
    assert not known.matches(other) and not other.matches(known)
  assert str(state_types.LeafType('int8', None)) == 'int8 of any shape'
  assert str(_leaf('int8', None, 2)) == 'int8[?, 2]'


def test_types_come_back_from_json():
  types = {**state_types.of_value(_state()), 'x': _leaf('int8', None)}
  text = json.dumps(state_types.to_json(types))
  found = state_types.from_json(json.loads(text))
  assert found == types
  assert list(found) == list(types)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
