"""Tests of local training whose update keeps the client's identity."""

import collections
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import client_work
from fedsteer_tff.programs import local_runtime
from tests.programs import small_process


@pytest.fixture(scope='module', autouse=True)
def _runtime():
  with local_runtime.LocalRuntime().activate():
    yield


def _build(model_fn, **options):
  return client_work.build_identified_client_work(
    model_fn, tff.learning.optimizers.build_sgdm(0.5), **options
  )


def _client(client_id, data):
  return client_work.build_client_data(
    client_id, data, weight=0.5, participation_probability=0.5
  )


def _train_metrics(work, cohort):
  state_type, weights_type, data_type = work.next.type_signature.parameter

  @tff.federated_computation(
    state_type, tff.FederatedType(weights_type.member, tff.SERVER), data_type
  )
  def next_fn(state, weights, data):
    # Without the updates: TFF returns no list of them that is empty.
    output = work.next(state, tff.federated_broadcast(weights), data)
    return output.measurements

  weights = tff.learning.models.ModelWeights(
    [np.zeros([2, 2], np.float32), np.zeros([2], np.float32)], []
  )
  return next_fn(work.initialize(), weights, cohort)['train']


_NOTHING = small_process.dataset(0).take(0)
_NOBODY = client_work.padding_client_data(small_process.SPEC)


@pytest.mark.parametrize(
  'cohort',
  [[], [_NOBODY, _NOBODY], [_client(0, _NOTHING)]],
  ids=['nobody', 'padding', 'a client without examples'],
)
def test_a_round_without_examples_has_no_loss(cohort):
  found = _train_metrics(_build(small_process.model_fn), cohort)
  assert list(found) == ['accuracy', 'loss', 'num_examples', 'num_batches']
  assert math.isnan(found['loss']) and math.isnan(found['accuracy'])
  assert (found['num_examples'], found['num_batches']) == (0, 0)


def test_a_round_with_examples_has_its_loss():
  # A step away from 0, where each of the classes has half the probability.
  one_batch = small_process.dataset(1, 4)
  found = _train_metrics(
    _build(small_process.model_fn),
    [_NOBODY, _client(1, one_batch), _client(2, _NOTHING)],
  )
  np.testing.assert_allclose(found['loss'], math.log(2), rtol=1e-6)
  assert (found['num_examples'], found['num_batches']) == (4, 1)
  ((_, labels),) = one_batch
  # Of equal logits the first is the largest.
  np.testing.assert_allclose(found['accuracy'], np.mean(labels == 0))


def test_metrics_in_which_nobody_counts_examples_are_as_they_come():
  def aggregator(unused_finalizers):
    @tff.tensorflow.computation(np.float32)
    def name_it(value):
      return collections.OrderedDict(mine=value)

    @tff.federated_computation
    def always():
      zero = tff.federated_value(np.float32(0), tff.SERVER)
      return tff.federated_map(name_it, zero)

    def aggregate(unfinalized):
      del unfinalized
      return always()

    return aggregate

  found = _train_metrics(
    _build(small_process.model_fn, metrics_aggregator=aggregator), []
  )
  assert found == {'mine': 0.0}


def test_tffs_own_training_says_0_there():
  # Which is why this package does not leave it at that.
  work = tff.learning.templates.build_model_delta_client_work(
    small_process.model_fn,
    tff.learning.optimizers.build_sgdm(0.5),
    tff.learning.ClientWeighting.UNIFORM,
  )
  assert _train_metrics(work, [])['loss'] == 0
  assert tf.nest.map_structure(int, _train_metrics(work, [_NOTHING])) == {
    'accuracy': 0,
    'loss': 0,
    'num_examples': 0,
    'num_batches': 0,
  }


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
