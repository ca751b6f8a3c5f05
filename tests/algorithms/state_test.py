"""Tests of the server state: what is in it, and how large it is."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from tests.algorithms import small_training
from tests.algorithms import tensor_sizes

_D = 39  # 5 x 4 + 4 + 4 x 3 + 3


@pytest.mark.parametrize('estimator', ['paper', 'stable'])
@pytest.mark.parametrize('population_size', [100, 10_000])
def test_state_bytes_equal_the_formula(population_size, estimator):
  k, sketch_size, places = 4, 16, 50
  process = fedsteer_tff.build_fedsteer(
    small_training.model_fn,
    population_size,
    core_set_size=k,
    estimator=estimator,
    sketch_size=sketch_size,
    candidate_pool_size=places,
  )
  report = fedsteer_tff.state_size_report(process)
  wanted = {
    'round_num': 4,
    'core_set': 4 * k,
    'core_updates': 4 * k * _D,
    'core_sketch': 4 * k * sketch_size,
    'core_round': 4 * k,
    'coordinates': 4 * population_size * k,
    'baseline': 8 * k,
    'client_weight': 4 * population_size,
    'last_seen': 4 * population_size,
    'weight_seen': 8,
    'clients_seen': 4,
    'smoothed_correction': 4 * _D if estimator == 'stable' else 0,
    'collecting': 1,
    'pool': places * (4 + 4 * sketch_size + 4),
  }
  found = {
    name.removeprefix('aggregator/'): size
    for name, size in report.items()
    if name.startswith('aggregator/')
  }
  assert found == wanted
  assert report['global_model_weights'] == 4 * _D
  assert report['total'] == sum(
    size for name, size in report.items() if name != 'total'
  )
  n = population_size
  smoothed = 4 * _D if estimator == 'stable' else 0
  assert sum(found.values()) == (
    4 * (k * _D + k * sketch_size + n * k)
    + 8 * n
    + 16 * k
    + 17
    + smoothed
    + places * (8 + 4 * sketch_size)
  )


def test_state_bytes_are_those_of_the_state():
  process = small_training.build()
  report = fedsteer_tff.state_size_report(process)
  state = process.initialize()
  for name, value in state.aggregator.items():
    size = sum(np.asarray(part).nbytes for part in tf.nest.flatten(value))
    assert report[f'aggregator/{name}'] == size, name
  parts = tf.nest.flatten(
    [
      state.global_model_weights.trainable,
      state.global_model_weights.non_trainable,
      state.distributor,
      state.client_work,
      state.aggregator,
      state.finalizer,
    ]
  )
  assert report['total'] == sum(np.asarray(part).nbytes for part in parts)


def test_a_correction_factory_is_a_part_of_its_own():
  process = small_training.build(
    core_set=(0, 1),
    correction_factory=tff.aggregators.clipping_factory(
      tff.aggregators.PrivateQuantileEstimationProcess.no_noise(1.0, 0.5, 0.1),
      tff.aggregators.SumFactory(),
    ),
  )
  report = fedsteer_tff.state_size_report(process)
  assert report['aggregator/core_updates'] == 4 * 2 * _D
  assert report['aggregator/correction'] > 0
  state = process.initialize()
  status = fedsteer_tff.core_set_status(state)
  np.testing.assert_array_equal(status.core_set, [0, 1])


def test_fedavg_has_the_same_parts_without_a_core_set():
  report = fedsteer_tff.state_size_report(small_training.build_fedavg())
  assert report['aggregator/core_updates'] == 0
  assert report['aggregator/coordinates'] == 0
  assert report['aggregator/last_seen'] == 4 * small_training.NUM_CLIENTS


def test_core_set_status_says_who_reported_when():
  process = small_training.build(
    'sketched_projection', 'paper', core_set=(5, 1, 8)
  )
  state = process.initialize()
  status = fedsteer_tff.core_set_status(state)
  np.testing.assert_array_equal(status.core_set, [5, 1, 8])
  np.testing.assert_array_equal(status.last_active, [-1, -1, -1])
  assert status.round_num == 0
  for ids in ([5, 2], [1, 5], [3]):
    state = small_training.run(process, state, ids).state
  status = fedsteer_tff.core_set_status(state)
  np.testing.assert_array_equal(status.last_active, [1, 1, -1])
  assert status.round_num == 3
  assert status.core_set.dtype == status.last_active.dtype == np.int32


def test_core_set_status_of_empty_slots_and_of_fedavg():
  status = fedsteer_tff.core_set_status(small_training.build().initialize())
  np.testing.assert_array_equal(status.core_set, [-1, -1, -1])
  np.testing.assert_array_equal(status.last_active, [-1, -1, -1])
  status = fedsteer_tff.core_set_status(
    small_training.build_fedavg().initialize()
  )
  assert status.core_set.shape == status.last_active.shape == (0,)


def test_core_set_status_of_given_clients_of_an_algorithm_without_core_set():
  process = fedsteer_tff.build_mifa(
    small_training.model_fn, small_training.NUM_CLIENTS
  )
  state = process.initialize()
  for ids in ([5, 2], [1, 5], [3]):
    state = small_training.run(process, state, ids).state
  status = fedsteer_tff.core_set_status(state, [2, 9, 5])
  np.testing.assert_array_equal(status.core_set, [2, 9, 5])
  np.testing.assert_array_equal(status.last_active, [0, -1, 1])
  with pytest.raises(ValueError, match='must have a core set'):
    fedsteer_tff.core_set_status(state)
  with pytest.raises(ValueError, match=r'below .* 12, found \[1, 12\]'):
    fedsteer_tff.core_set_status(state, [1, 12])


@pytest.mark.parametrize('state', [None, 3, {'aggregator': {}}])
def test_another_state_is_an_error(state):
  with pytest.raises(ValueError, match='state must be that of a process'):
    fedsteer_tff.core_set_status(state)


def test_no_tensor_of_the_process_has_n_times_d_elements():
  population_size = 331
  for design in (
    'sketched_projection',
    'server_projection',
    'client_projection',
    'dense',
  ):
    process = fedsteer_tff.build_fedsteer(
      small_training.model_fn,
      population_size,
      core_set_size=2,
      estimator='stable',
      aggregation=design,
      reselect_every=2,
      sketch_size=7,
      candidate_pool_size=11,
    )
    for computation in (process.initialize, process.next):
      shapes = tensor_sizes.static_shapes(computation)
      assert (population_size, 2) in shapes
      assert (2, _D) in shapes
      assert max(map(tensor_sizes.known_elements, shapes)) < (
        population_size * _D
      )
      # Neither with another factor in the place of N or D unknown.
      assert not [
        shape for shape in shapes if population_size in shape and _D in shape
      ]


def test_a_tensor_of_n_times_d_elements_would_be_found():
  @tff.tensorflow.computation(tff.TensorType(np.float32, [39]))
  def inner(x):
    matrix = tf.while_loop(
      lambda y: tf.reduce_sum(y) < 1,
      lambda y: y + tf.tile(x[tf.newaxis], [331, 1]),
      [tf.zeros([331, 39])],
    )[0]
    return tf.reduce_sum(matrix)

  @tff.federated_computation(
    tff.FederatedType(tff.TensorType(np.float32, [39]), tff.SERVER)
  )
  def outer(x):
    return tff.federated_map(inner, x)

  assert (331, 39) in tensor_sizes.static_shapes(outer)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
