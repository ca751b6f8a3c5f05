"""Tests for client_ids."""

import asyncio
import copy
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import client_work
from fedsteer_tff import participation
from fedsteer_tff.programs import checkpoints
from fedsteer_tff.programs import client_ids
from fedsteer_tff.programs import cohorts
from fedsteer_tff.programs import evaluation
from fedsteer_tff.programs import local_runtime
from fedsteer_tff.programs import training_loop
from tests.programs import small_process

N = small_process.NUM_CLIENTS
PROBABILITIES = np.linspace(0.2, 0.7, N)
WEIGHTS = np.arange(1.0, N + 1)


def _iterator(seed=3, probabilities=PROBABILITIES, num_draws=0):
  iterator = client_ids.BernoulliDataSource(probabilities, seed).iterator()
  for _ in range(num_draws):
    iterator.select()
  return iterator


def test_the_draws_are_the_sampler_s():
  sampler = participation.BernoulliSampler(PROBABILITIES, seed=3)
  iterator = _iterator()
  drawn = [iterator.select() for _ in range(20)]
  for round_num, ids in enumerate(drawn, 1):
    expected = sampler.cohort(round_num).client_ids
    np.testing.assert_array_equal(np.array(ids, np.int32), expected)
  assert len({tuple(ids) for ids in drawn}) > 5
  assert iterator.num_draws == 20


def test_cohorts_are_filled_up_to_a_multiple():
  plain, filled = _iterator(), _iterator()
  sizes = set()
  for _ in range(30):
    ids = plain.select()
    more = filled.select(4)
    assert more[: len(ids)] == ids
    assert set(more[len(ids) :]) <= {-1}
    sizes.add((len(ids), len(more)))
  assert {size for _, size in sizes} == {4, 8}
  assert all(size - 4 < max(n, 1) <= size for n, size in sizes)


def test_a_source_has_independent_iterators():
  source = client_ids.BernoulliDataSource(PROBABILITIES, 3)
  one = source.iterator()
  first = one.select()
  assert source.iterator().select() == first
  assert str(source.federated_type) == '{int32}@CLIENTS'
  assert one.federated_type == source.federated_type


def test_a_copy_goes_on_by_itself():
  iterator = _iterator(num_draws=2)
  copied = copy.deepcopy(iterator)
  third = iterator.select()
  assert copied.num_draws == 2
  assert copied.select() == third


@pytest.mark.parametrize('seed', [0, 7, 2**70])
def test_bytes_hold_everything(seed):
  iterator = _iterator(seed, num_draws=5)
  restored = client_ids.BernoulliDataSourceIterator.from_bytes(
    iterator.to_bytes()
  )
  assert restored == iterator
  assert restored.num_draws == 5
  for _ in range(5):
    assert restored.select(4) == iterator.select(4)


def test_a_checkpoint_holds_everything(tmp_path):
  iterator = _iterator(num_draws=4)
  manager = checkpoints.CheckpointManager(tmp_path)

  def program_state(iterator):
    return tff.learning.programs.ProgramState(
      np.float32([1, 2]), 4, None, iterator
    )

  asyncio.run(manager.save(program_state(iterator), 4))
  state, version = asyncio.run(manager.load_latest(program_state(_iterator())))
  assert version == 4
  assert state.data_iterator == iterator
  assert state.data_iterator.select() == iterator.select()


def test_equality_is_that_of_the_cohorts_to_come():
  assert _iterator() == _iterator()
  assert _iterator(num_draws=1) != _iterator()
  assert _iterator(seed=4) != _iterator()
  assert _iterator(probabilities=PROBABILITIES * 0.5) != _iterator()
  assert _iterator(probabilities=PROBABILITIES[:3]) != _iterator()
  assert _iterator() != 'another type'

  source = client_ids.BernoulliDataSource(PROBABILITIES, 3)
  same = client_ids.BernoulliDataSource(list(PROBABILITIES), 3)
  assert source == same
  assert hash(source) == hash(same)
  assert source != client_ids.BernoulliDataSource(PROBABILITIES, 4)
  assert source != source.iterator()


@pytest.mark.parametrize('k', [0, -1, 2.0, True])
def test_k_is_checked(k):
  iterator = _iterator()
  with pytest.raises(ValueError, match='k must be an integer >= 1, found'):
    iterator.select(k)
  assert iterator.num_draws == 0


@pytest.mark.parametrize('num_draws', [-1, 1.5, True])
def test_num_draws_is_checked(num_draws):
  sampler = participation.BernoulliSampler(PROBABILITIES, 0)
  with pytest.raises(ValueError, match='num_draws must be an integer >= 0'):
    client_ids.BernoulliDataSourceIterator(sampler, num_draws)


def _without(name):
  content = json.loads(_iterator().to_bytes())
  del content[name]
  return json.dumps(content).encode()


@pytest.mark.parametrize(
  'buffer',
  [b'', b'{', b'[]', b'\xff\x00', *map(_without, ('seed', 'probabilities'))],
)
def test_other_bytes_are_refused(buffer):
  with pytest.raises(ValueError, match='buffer must hold an iterator with'):
    client_ids.BernoulliDataSourceIterator.from_bytes(buffer)


def _computation(probabilities=PROBABILITIES):
  """Finds the clients' examples inside of a graph."""
  examples = [
    next(iter(small_process.dataset(i).unbatch().batch(8))) for i in range(N)
  ]
  x, y = (np.stack(arrays) for arrays in zip(*examples))

  def dataset_fn(client_id):
    parts = (tf.gather(x, client_id), tf.gather(y, client_id))
    return tf.data.Dataset.from_tensor_slices(parts).batch(4)

  return client_ids.build_client_data_computation(
    dataset_fn, participation.Population(WEIGHTS, probabilities)
  )


@pytest.fixture(scope='module', name='runtime')
def _runtime():
  with local_runtime.LocalRuntime().activate() as active:
    yield active


@pytest.mark.parametrize('client_id', [0, 4])
def test_an_id_stands_for_the_client_s_data(runtime, client_id):
  found = _computation()(client_id)
  (ident,) = list(found['ident'])
  assert int(ident['client_id']) == client_id
  assert ident['weight'] == np.float32((client_id + 1) / WEIGHTS.sum())
  assert ident['participation_probability'] == np.float32(
    PROBABILITIES[client_id]
  )
  expected = list(small_process.dataset(client_id))
  batches = list(found['data'])
  assert len(batches) == len(expected) == 2
  for batch, one in zip(batches, expected):
    np.testing.assert_array_equal(batch[0], one[0])
    np.testing.assert_array_equal(batch[1], one[1])


@pytest.mark.parametrize('client_id', [-1, N, -7])
def test_an_id_of_nobody_has_no_data(runtime, client_id):
  found = _computation()(client_id)
  (ident,) = list(found['ident'])
  assert [float(value) for value in ident.values()] == [client_id, 0, 1]
  assert not list(found['data'])


def test_what_nobody_knows_of_a_client_is_nan(runtime):
  computation = _computation([None, 0.5, *[None] * (N - 2)])
  found = {
    client_id: float(
      next(iter(computation(client_id)['ident']))['participation_probability']
    )
    for client_id in (0, 1, N - 1, -1, N)
  }
  np.testing.assert_equal(found, {0: np.nan, 1: 0.5, 5: np.nan, -1: 1, 6: 1})


@pytest.fixture(scope='module', name='process')
def _process():
  return fedsteer_tff.build_fedsteer(
    small_process.model_fn,
    N,
    client_optimizer=tff.learning.optimizers.build_sgdm(0.5),
    core_set_size=2,
    warmup_rounds=1,
  )


@pytest.mark.slow
def test_ids_train_what_the_training_loop_trains(runtime, process):
  population = participation.Population(WEIGHTS, PROBABILITIES)
  composed = client_ids.compose_with_client_ids(process, _computation())
  initial = evaluation.seeded_initial_state(process, small_process.model_fn, 1)

  def client_data(client_id, probability):
    return client_work.build_client_data(
      client_id,
      small_process.dataset(client_id),
      weight=float(population.weights[client_id]),
      participation_probability=probability,
    )

  looped, _ = training_loop.run(
    process,
    participation.BernoulliSampler(PROBABILITIES, seed=3),
    cohorts.CohortData(
      client_data,
      padding=client_work.padding_client_data(small_process.SPEC),
      multiple=4,
    ),
    state=initial,
    num_rounds=4,
  )
  state, iterator = initial, _iterator()
  for _ in range(4):
    state = composed.next(state, iterator.select(4)).state
  assert np.any(state.aggregator['core_set'] >= 0)
  tf.nest.map_structure(np.testing.assert_array_equal, state, looped)
  tf.nest.map_structure(
    np.testing.assert_array_equal,
    composed.get_model_weights(state),
    process.get_model_weights(looped),
  )


_ESTIMATORS = {
  # (2 * 0.4 + x + 1) / (2 + T + 1), after T rounds with x participations.
  'frequency': participation.RunningFrequency(0.4, prior_rounds=2.0),
  # The same, with everything before the round half as much a round later.
  'windowed': participation.WindowedFrequency(0.4, window=2.0, prior_rounds=2),
  # The prior until the first interval is over.
  'interval': participation.IntervalEstimate(0.4),
}
_USED = {
  # Client 0 takes part in both rounds, client 1 in the second one.
  'frequency': ([1.8 / 3], [2.8 / 4, 1.8 / 4]),
  'windowed': ([1.4 / 2], [1.7 / 2, 1.2 / 2]),
  'interval': ([0.4], [1.0, 0.4]),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', _ESTIMATORS)
def test_a_program_with_ids_alone_estimates_what_nobody_knows(runtime, name):
  process = fedsteer_tff.build_fedavg(
    small_process.model_fn, N, participation=_ESTIMATORS[name]
  )
  composed = client_ids.compose_with_client_ids(process, _computation(None))
  state = composed.initialize()
  for ids, used in zip(([0], [0, 1]), _USED[name]):
    before = process.get_model_weights(state)
    data = [
      client_work.build_client_data(
        i,
        small_process.dataset(i),
        weight=WEIGHTS[i] / WEIGHTS.sum(),
        participation_probability=p,
      )
      for i, p in zip(ids, used)
    ]
    known = fedsteer_tff.build_fedavg(small_process.model_fn, N)
    expected = known.next(
      known.set_model_weights(known.initialize(), before), data
    ).state
    state = composed.next(state, [*ids, -1]).state
    np.testing.assert_allclose(
      small_process.flat(process.get_model_weights(state)),
      small_process.flat(known.get_model_weights(expected)),
      rtol=1e-5,
      atol=1e-6,
    )


@pytest.mark.slow
def test_without_an_estimate_unknown_probabilities_are_an_error(
  runtime, process
):
  composed = client_ids.compose_with_client_ids(process, _computation(None))
  with pytest.raises(
    Exception,
    match=r'participation_probability must be in \(0, 1\] \(where it is not'
    r' known, NaN, the process has to estimate it: see participation=\), found',
  ):
    composed.next(composed.initialize(), [2])


@pytest.mark.slow
def test_an_unknown_id_is_refused_by_the_server(runtime, process):
  composed = client_ids.compose_with_client_ids(process, _computation())
  with pytest.raises(Exception, match=rf'client_id must be in .* found {N}$'):
    composed.next(composed.initialize(), [N])


def test_data_of_another_type_are_refused():
  process = small_process.build_process()
  with pytest.raises(
    TypeError, match='must return the client data of process.next, <float32'
  ):
    client_ids.compose_with_client_ids(process, _computation())


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
