"""Tests for checkpoints."""

from collections import OrderedDict
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.programs import checkpoints


def _state(value):
  return tff.learning.templates.LearningAlgorithmState(
    global_model_weights=tff.learning.models.ModelWeights(
      [np.full([2, 3], value, np.float32)], ()
    ),
    distributor=(),
    client_work=(),
    aggregator=OrderedDict(
      slots=np.int32([value, -1]), none=np.zeros([0, 3], np.float32)
    ),
    finalizer=np.int32(value),
  )


def _assert_equal(actual, expected):
  tf.nest.assert_same_structure(actual, expected)
  for a, e in zip(tf.nest.flatten(actual), tf.nest.flatten(expected)):
    assert np.asarray(a).dtype == np.asarray(e).dtype
    np.testing.assert_array_equal(a, e)


def test_nothing_is_restored_from_an_empty_folder(tmp_path):
  store = checkpoints.Checkpoints(tmp_path / 'new')
  assert store.restore(_state(0)) is None
  assert store.rounds() == []


def test_the_newest_state_comes_back_with_its_types(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(_state(3), 3)
  store.save(_state(12), 12)
  state, round_num = checkpoints.Checkpoints(tmp_path).restore(_state(0))
  assert round_num == 12
  _assert_equal(state, _state(12))


def test_two_states_are_kept(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  for r in range(5):
    store.save(_state(r), r)
  assert store.rounds() == [3, 4]


def test_saving_a_round_again_changes_nothing(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(_state(3), 3)
  store.save(_state(4), 3)
  _assert_equal(store.restore(_state(0))[0], _state(3))


def test_an_unfinished_state_is_removed(tmp_path):
  (tmp_path / 'program_state_7_temp1234').mkdir()
  assert checkpoints.Checkpoints(tmp_path).restore(_state(0)) is None
  assert os.listdir(tmp_path) == []


def test_an_unreadable_state_is_named_and_the_one_before_used(tmp_path):
  warnings = []
  store = checkpoints.Checkpoints(tmp_path, warn=warnings.append)
  store.save(_state(3), 3)
  store.save(_state(4), 4)
  data = tmp_path / 'program_state_4/variables/variables.data-00000-of-00001'
  data.write_bytes(data.read_bytes()[:10])
  state, round_num = store.restore(_state(0))
  assert round_num == 3
  _assert_equal(state, _state(3))
  assert len(warnings) == 1
  assert 'the checkpoint of round 4' in warnings[0]
  store.save(_state(4), 4)
  assert store.restore(_state(0))[1] == 4


def test_states_of_another_process_are_not_taken(tmp_path):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(OrderedDict(a=np.zeros([2], np.float32)), 1)
  with pytest.raises(ValueError, match=r'found none among .* \[1\]'):
    store.restore(OrderedDict(a=np.zeros([3], np.float32)))


@pytest.mark.parametrize('keep', [0, -1, 1.5, True])
def test_keep_is_checked(tmp_path, keep):
  with pytest.raises(ValueError, match='keep must be an integer >= 1'):
    checkpoints.Checkpoints(tmp_path, keep=keep)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
