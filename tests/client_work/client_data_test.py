"""Tests of client data that says whose it is."""

import numpy as np
import pytest
import tensorflow as tf

from fedsteer_tff import client_work

_SPEC = (
  tf.TensorSpec([None, 3], tf.float32),
  tf.TensorSpec([None, 1], tf.int32),
)


def _dataset():
  return tf.data.Dataset.from_tensors(
    (np.zeros([2, 3], np.float32), np.zeros([2, 1], np.int32))
  )


def _only(dataset):
  elements = list(dataset.as_numpy_iterator())
  assert len(elements) == 1
  return elements[0]


def test_identity_travels_as_one_element():
  dataset = _dataset()
  data = client_work.build_client_data(
    3, dataset, weight=0.25, participation_probability=0.5
  )
  assert list(data) == ['ident', 'data']
  assert data['data'] is dataset
  ident = _only(data['ident'])
  assert list(ident) == ['client_id', 'weight', 'participation_probability']
  assert ident['client_id'].dtype == np.int32
  assert ident['weight'].dtype == np.float32
  assert ident == {
    'client_id': 3,
    'weight': 0.25,
    'participation_probability': 0.5,
  }


def test_identity_has_the_type_of_identity():
  data = client_work.build_client_data(
    3, _dataset(), weight=1, participation_probability=1
  )
  types = client_work.identity_type()
  for name, spec in data['ident'].element_spec.items():
    assert spec.shape == []
    assert spec.dtype == types[name].dtype


@pytest.mark.parametrize('client_id', [np.int32(3), np.int64(3)])
def test_numbers_of_numpy_are_numbers(client_id):
  data = client_work.build_client_data(
    client_id,
    _dataset(),
    weight=np.float32(0.5),
    participation_probability=np.float64(0.25),
  )
  assert _only(data['ident'])['client_id'] == 3


def test_a_probability_that_nobody_knows_is_not_a_number():
  data = client_work.build_client_data(
    3, _dataset(), weight=0.25, participation_probability=None
  )
  ident = _only(data['ident'])
  assert np.isnan(ident['participation_probability'])
  assert ident['participation_probability'].dtype == np.float32


def test_identity_can_be_built_in_a_graph():
  @tf.function
  def build(client_id):
    dataset = client_work.build_identity_dataset(client_id, 0.5, 0.25)
    return dataset.reduce(0, lambda _, element: element['client_id'])

  assert build(tf.constant(5)) == 5


def test_padding_is_nobody_and_has_no_examples():
  data = client_work.padding_client_data(_SPEC)
  assert _only(data['ident'])['client_id'] == -1
  assert not list(data['data'])
  assert data['data'].element_spec == _SPEC
  assert (
    data['ident'].element_spec
    == client_work.build_client_data(
      0, _dataset(), weight=1.0, participation_probability=1.0
    )['ident'].element_spec
  )


def test_padding_keeps_a_fixed_batch_size_and_the_structure():
  spec = {'x': tf.TensorSpec([4, 3], tf.float32)}
  data = client_work.padding_client_data(spec)
  assert data['data'].element_spec == spec
  assert not list(data['data'])


@pytest.mark.parametrize(
  ('arguments', 'error', 'message'),
  [
    ({'client_id': -1}, ValueError, 'client_id must be >= 0, found -1'),
    (
      {'client_id': 2**31},
      ValueError,
      'client_id must be below 2**31, found 2147483648',
    ),
    (
      {'client_id': 1.0},
      TypeError,
      'client_id must be an integer, found 1.0',
    ),
    (
      {'client_id': True},
      TypeError,
      'client_id must be an integer, found True',
    ),
    (
      {'dataset': [1]},
      TypeError,
      'dataset must be a tf.data.Dataset, found [1]',
    ),
    (
      {'participation_probability': 0},
      ValueError,
      'participation_probability must be in (0, 1], found 0 for client 3',
    ),
    (
      {'participation_probability': 1.5},
      ValueError,
      'participation_probability must be in (0, 1], found 1.5 for client 3',
    ),
    (
      {'participation_probability': float('nan')},
      ValueError,
      'participation_probability must be in (0, 1], found nan for client 3',
    ),
    (
      {'participation_probability': '1'},
      TypeError,
      "participation_probability must be a number, found '1'",
    ),
    (
      {'weight': -0.5},
      ValueError,
      'weight must be finite and >= 0, found -0.5 for client 3',
    ),
    (
      {'weight': float('inf')},
      ValueError,
      'weight must be finite and >= 0, found inf for client 3',
    ),
    ({'weight': None}, TypeError, 'weight must be a number, found None'),
  ],
)
def test_a_wrong_argument_is_named(arguments, error, message):
  given = {
    'client_id': 3,
    'dataset': _dataset(),
    'weight': 0.25,
    'participation_probability': 0.5,
    **arguments,
  }
  with pytest.raises(error) as caught:
    client_work.build_client_data(
      given.pop('client_id'), given.pop('dataset'), **given
    )
  assert str(caught.value) == message


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
