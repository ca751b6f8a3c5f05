"""Tests of the sketches that a core set is chosen from."""

import numpy as np
import pytest
import tensorflow as tf

from fedsteer_tff import subspace
from tests import numpy_oracle


def _float(values):
  return np.asarray(values, np.float32)


def _pool(ids, sketches, probabilities, size=None):
  pool = subspace.empty_pool(size or len(ids), np.shape(sketches)[1])
  return subspace.add_reports(
    pool, np.asarray(ids, np.int32), _float(sketches), _float(probabilities)
  )


def _report_again(pool, client_id, sketch, probability):
  return subspace.add_reports(
    pool,
    np.array([client_id], np.int32),
    _float([[sketch]]),
    _float([probability]),
  )


def _random_pool(seed, count=12, width=8):
  """Clients 0..count-1 in a pool as large, and their weights."""
  rng = np.random.default_rng(seed)
  sketches = _float(rng.normal(size=[count, width]))
  probabilities = _float(rng.uniform(0.05, 0.9, size=count))
  weights = _float(rng.uniform(0.5, 2, size=count))
  return sketches, probabilities, weights


def _select(pool, weights, core_set, eligibility='received', ridge=0.01, **kw):
  return subspace.select_from_pool(
    pool,
    _float(weights),
    tf.constant(core_set, tf.int32),
    eligibility=eligibility,
    ridge=ridge,
    absolute_ridge=kw.get('absolute_ridge'),
  )


def test_a_new_pool_is_empty():
  pool = subspace.empty_pool(3, 2)
  np.testing.assert_array_equal(pool['client_id'], [-1, -1, -1])
  np.testing.assert_array_equal(pool['sketch'], np.zeros([3, 2]))
  np.testing.assert_array_equal(pool['participation_probability'], [0, 0, 0])


def test_reports_go_to_the_place_of_their_client():
  pool = _pool([4, 0, 2], [[1, 2], [3, 4], [5, 6]], [0.1, 0.2, 0.3], size=5)
  np.testing.assert_array_equal(pool['client_id'], [0, -1, 2, -1, 4])
  np.testing.assert_array_equal(
    pool['sketch'], [[3, 4], [0, 0], [5, 6], [0, 0], [1, 2]]
  )
  np.testing.assert_array_equal(
    pool['participation_probability'], _float([0.2, 0, 0.3, 0, 0.1])
  )


def test_of_clients_that_share_a_place_the_later_stays():
  pool = _pool([1, 4, 7], [[1.0], [2.0], [3.0]], [0.1, 0.2, 0.3], size=3)
  np.testing.assert_array_equal(pool['client_id'], [-1, 7, -1])
  np.testing.assert_array_equal(pool['sketch'][1], [3])
  # Client 1 is another one, so the probability of 7 says nothing about it.
  pool = _report_again(pool, 1, 4.0, 0.9)
  np.testing.assert_array_equal(pool['client_id'], [-1, 1, -1])
  np.testing.assert_array_equal(pool['sketch'][1], [4])
  np.testing.assert_array_equal(
    pool['participation_probability'], _float([0, 0.9, 0])
  )


def test_the_smallest_probability_of_a_client_is_kept():
  pool = _pool([0], [[1.0]], [0.2], size=1)
  pool = _report_again(pool, 0, 2.0, 1.0)
  np.testing.assert_array_equal(pool['sketch'], [[2]])
  np.testing.assert_array_equal(
    pool['participation_probability'], _float([0.2])
  )
  pool = _report_again(pool, 0, 3.0, 0.1)
  np.testing.assert_array_equal(
    pool['participation_probability'], _float([0.1])
  )


def test_no_reports_change_nothing():
  pool = _pool([4, 0], [[1, 2], [3, 4]], [0.1, 0.2], size=5)
  after = subspace.add_reports(
    pool, np.zeros([0], np.int32), np.zeros([0, 2], np.float32), _float([])
  )
  for name in pool:
    np.testing.assert_array_equal(after[name], pool[name])


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('eligibility', ['frequent', 'received'])
@pytest.mark.parametrize('absolute_ridge', [None, 0.7])
def test_choice_and_coordinates_equal_numpy(seed, eligibility, absolute_ridge):
  sketches, probabilities, weights = _random_pool(seed)
  selected = _select(
    _pool(range(12), sketches, probabilities),
    weights,
    [-1, -1, -1],
    eligibility,
    ridge=0.05,
    absolute_ridge=absolute_ridge,
  )
  vectors = sketches.astype(float)
  p = probabilities.astype(float)
  unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
  eligible = np.ones(12, bool)
  if eligibility == 'frequent':
    eligible = p >= np.median(p)
  wanted = numpy_oracle.select(
    unit,
    unit,
    weights.astype(float) ** 2 * (1 - p) / p,
    0.05 if absolute_ridge is None else 0.01,
    3,
    eligible,
  )
  assert selected.core_set.numpy().tolist() == wanted
  assert not any(selected.kept)
  np.testing.assert_array_equal(selected.client_ids, range(12))
  coordinates = numpy_oracle.project(
    vectors[wanted], vectors, 0.05, absolute_ridge
  )
  error = numpy_oracle.relative_error(selected.coordinates, coordinates)
  assert error <= 1e-5


@pytest.mark.parametrize('scale', [1e-3, 1e3])
@pytest.mark.parametrize('seed', range(4))
def test_rescaling_all_weights_changes_no_choice(seed, scale):
  sketches, probabilities, weights = _random_pool(seed)
  pool = _pool(range(12), sketches, probabilities)
  np.testing.assert_array_equal(
    _select(pool, scale * weights, [-1] * 3).core_set,
    _select(pool, weights, [-1] * 3).core_set,
  )


@pytest.mark.parametrize('eligibility', ['frequent', 'received'])
@pytest.mark.parametrize('scale', [1e-3, 1e3])
@pytest.mark.parametrize('seed', range(4))
def test_rescaling_all_updates_changes_no_choice_and_no_coordinates(
  eligibility, scale, seed
):
  sketches, probabilities, weights = _random_pool(seed)
  before = _select(
    _pool(range(12), sketches, probabilities), weights, [-1] * 3, eligibility
  )
  after = _select(
    _pool(range(12), scale * sketches, probabilities),
    weights,
    [-1] * 3,
    eligibility,
  )
  np.testing.assert_array_equal(after.core_set, before.core_set)
  error = numpy_oracle.relative_error(after.coordinates, before.coordinates)
  assert error <= 1e-5


def test_frequent_clients_are_those_of_at_least_median_probability():
  sketches, _, weights = _random_pool(0, count=4, width=6)
  # Client 3 counts so much that it would be chosen if it were eligible.
  weights[3] = 100
  pool = _pool(range(4), sketches, [0.5, 0.6, 0.3, 0.1])
  chosen = _select(pool, weights, [-1], 'frequent').core_set.numpy()
  assert chosen[0] in (0, 1)
  assert _select(pool, weights, [-1], 'received').core_set.numpy()[0] == 3


@pytest.mark.parametrize('count', [1, 3, 5])
def test_the_client_of_median_probability_is_frequent(count):
  sketches, _, weights = _random_pool(0, count=count, width=6)
  median = count // 2
  weights[median] = 100
  pool = _pool(range(count), sketches, [0.6, 0.5, 0.4, 0.3, 0.2][:count])
  assert _select(pool, weights, [-1], 'frequent').core_set.numpy() == [median]


def test_at_least_as_many_clients_as_slots_are_eligible():
  sketches, _, weights = _random_pool(1, count=6)
  pool = _pool(range(6), sketches, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
  chosen = _select(pool, weights, [-1] * 5, 'frequent').core_set.numpy()
  assert sorted(chosen) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize('eligibility', ['frequent', 'received'])
def test_fewer_candidates_than_slots_leave_slots_empty(eligibility):
  sketches, probabilities, weights = _random_pool(2, count=2)
  pool = _pool([1, 0], sketches, probabilities, size=6)
  selected = _select(pool, np.resize(weights, 6), [-1] * 4, eligibility)
  members = selected.core_set.numpy()
  assert sorted(members) == [-1, -1, 0, 1]
  np.testing.assert_array_equal(members[2:], [-1, -1])
  np.testing.assert_array_equal(selected.client_ids, [0, 1])
  np.testing.assert_array_equal(selected.coordinates[:, 2:], np.zeros([2, 2]))


@pytest.mark.parametrize('in_graph', [False, True])
@pytest.mark.parametrize('eligibility', ['frequent', 'received'])
def test_an_empty_pool_chooses_nobody(eligibility, in_graph):
  def select(pool):
    return _select(pool, np.zeros(5), [-1, -1], eligibility)

  if in_graph:
    select = tf.function(select)
  selected = select(subspace.empty_pool(5, 3))
  np.testing.assert_array_equal(selected.core_set, [-1, -1])
  assert selected.coordinates.shape == [0, 2]


@pytest.mark.parametrize('eligibility', ['frequent', 'received'])
def test_a_zero_update_is_no_candidate(eligibility):
  sketches, probabilities, weights = _random_pool(3, count=3)
  sketches[1] = 0
  selected = _select(
    _pool(range(3), sketches, probabilities), weights, [-1] * 3, eligibility
  )
  assert sorted(selected.core_set.numpy()) == [-1, 0, 2]
  np.testing.assert_array_equal(selected.client_ids, [0, 2])


@pytest.mark.parametrize('slot', range(3))
@pytest.mark.parametrize('place', range(3))
def test_members_keep_their_slot_and_new_ones_fill_free_slots_in_order(
  place, slot
):
  sketches, probabilities, weights = _random_pool(4, count=5)
  pool = _pool(range(5), sketches, probabilities)
  wanted = _select(pool, weights, [-1] * 3).core_set.numpy().tolist()
  core_set = [-1, 99]
  core_set.insert(slot, wanted[place])
  selected = _select(pool, weights, core_set)
  others = wanted[:place] + wanted[place + 1 :]
  others.insert(slot, wanted[place])
  np.testing.assert_array_equal(selected.core_set, others)
  np.testing.assert_array_equal(selected.kept, np.arange(3) == slot)
  np.testing.assert_array_equal(selected.entered, [-1, -1, -1])


def test_client_0_keeps_its_slot_as_others_do():
  sketches, probabilities, weights = _random_pool(4, count=2)
  pool = _pool(range(2), sketches, probabilities)
  selected = _select(pool, weights, [-1, 0])
  np.testing.assert_array_equal(selected.core_set, [1, 0])
  np.testing.assert_array_equal(selected.kept, [False, True])


def test_a_member_that_is_not_chosen_again_leaves_its_slot():
  sketches, probabilities, weights = _random_pool(5, count=2)
  pool = _pool(range(2), sketches, probabilities, size=9)
  selected = _select(pool, np.resize(weights, 9), [7, 8, 6])
  assert sorted(selected.core_set.numpy()) == [-1, 0, 1]
  assert not any(selected.kept)


@pytest.mark.parametrize('pool_size', [12, 13])
def test_certain_participation_of_all_counts_everybody_the_same(pool_size):
  sketches, _, weights = _random_pool(6)
  pool = _pool(range(12), sketches, np.ones(12), size=pool_size)
  selected = _select(pool, np.resize(weights, pool_size), [-1] * 3)
  unit = sketches / np.linalg.norm(sketches, axis=1, keepdims=True)
  wanted = numpy_oracle.select(
    unit, unit, np.ones(12), 0.01, 3, np.ones(12, bool)
  )
  assert selected.core_set.numpy().tolist() == wanted


def test_graph_mode_equals_eager_mode():
  sketches, probabilities, weights = _random_pool(7)
  pool = _pool(range(12), sketches, probabilities)
  eager = _select(pool, weights, [-1, 3, -1], 'frequent')
  graph = tf.function(
    lambda pool: _select(pool, weights, [-1, 3, -1], 'frequent')
  )(pool)
  for found, wanted in zip(graph[:4], eager[:4]):
    np.testing.assert_array_equal(found, wanted)
  assert numpy_oracle.relative_error(graph[4], eager[4]) <= 1e-6


def _admit(
  pool,
  weights,
  core_set,
  core_sketches,
  ids,
  sketches,
  ridge=0.01,
  absolute_ridge=None,
):
  return subspace.admit_reporting(
    pool,
    _float(weights),
    tf.constant(core_set, tf.int32),
    _float(core_sketches),
    tf.constant(ids, tf.int32),
    _float(sketches),
    ridge=ridge,
    absolute_ridge=absolute_ridge,
  )


@pytest.mark.parametrize(
  ('ridge', 'absolute_ridge', 'search_ridge'),
  [(0.01, None, 0.01), (3.0, None, 3.0), (3.0, 0.7, 0.01)],
)
@pytest.mark.parametrize('seed', range(6))
@pytest.mark.parametrize('core_set', [[-1, -1, -1], [4, -1, 2], [4, 0, 2]])
def test_clients_that_report_enter_as_numpy_says(
  core_set, seed, ridge, absolute_ridge, search_ridge
):
  sketches, probabilities, weights = _random_pool(seed)
  pool = _pool(range(12), sketches, probabilities)
  old = [sketches[i] if i >= 0 else np.zeros(8) for i in core_set]
  reporting = [7, 9, 5, 11]
  admitted = _admit(
    pool,
    weights,
    core_set,
    old,
    reporting,
    sketches[reporting],
    ridge,
    absolute_ridge,
  )

  rows = np.concatenate([old, sketches[reporting]])
  norms = np.linalg.norm(rows, axis=1, keepdims=True)
  members = numpy_oracle.select(
    rows / np.where(norms > 0, norms, 1),
    sketches / np.linalg.norm(sketches, axis=1, keepdims=True),
    weights.astype(float) ** 2 * (1 - probabilities) / probabilities,
    search_ridge,
    3,
    np.arange(7) >= 3,
    members=[slot if i >= 0 else -1 for slot, i in enumerate(core_set)],
    smallest_gain=0.02,
  )
  ids = [*core_set, *reporting]
  np.testing.assert_array_equal(
    admitted.core_set, [ids[member] for member in members]
  )
  np.testing.assert_array_equal(
    admitted.entered, [m - 3 if m >= 3 else -1 for m in members]
  )
  np.testing.assert_array_equal(
    admitted.kept, [m < 3 and core_set[m] >= 0 for m in members]
  )
  np.testing.assert_array_equal(admitted.client_ids, range(12))
  wanted = numpy_oracle.project(rows[members], sketches, ridge, absolute_ridge)
  error = numpy_oracle.relative_error(admitted.coordinates, wanted)
  assert error <= 1e-5


def test_a_client_without_an_update_does_not_enter():
  sketches, probabilities, weights = _random_pool(1)
  pool = _pool(range(12), sketches, probabilities)
  admitted = _admit(
    pool,
    weights,
    [-1, -1],
    np.zeros([2, 8]),
    [3, 5],
    [np.zeros(8), sketches[5]],
  )
  np.testing.assert_array_equal(admitted.core_set, [5, -1])
  np.testing.assert_array_equal(admitted.entered, [1, -1])
  np.testing.assert_array_equal(admitted.coordinates[:, 1], np.zeros(12))


@pytest.mark.parametrize('core_set', [[-1, -1], [0, -1]])
def test_an_empty_slot_is_filled_even_if_that_explains_nobody(core_set):
  sketches = np.array([[1, 0], [0, 1]])
  # Client 1 always takes part, so its own update counts nothing.
  pool = _pool([0, 1], sketches, [0.5, 1])
  admitted = _admit(
    pool, np.ones(2), core_set, np.zeros([2, 2]), [1], sketches[1:]
  )
  slot = core_set.index(-1)
  assert admitted.core_set.numpy()[slot] == 1
  np.testing.assert_array_equal(
    admitted.entered, [0 if place == slot else -1 for place in range(2)]
  )


# With r = 1, E of one member x is 3 - sum_i <x, g_i>^2 / 2. From client 0 to
# client 1, which client 2 has the squares c and 1 - c of its direction in
# common with, it falls by 1/2 - c, from (5 - c) / 2: by 1.8 or by 2.2 %.
@pytest.mark.parametrize(('square', 'member'), [(0.46, 0), (0.45, 1)])
def test_an_exchange_has_to_gain_two_percent(square, member):
  sketches = np.array([[1, 0], [0, 1], [square**0.5, (1 - square) ** 0.5]])
  pool = _pool(range(3), sketches, [0.5] * 3)
  admitted = _admit(
    pool, np.ones(3), [0], sketches[:1], [1], sketches[1:2], ridge=1.0
  )
  np.testing.assert_array_equal(admitted.core_set, [member])
  np.testing.assert_array_equal(admitted.entered, [member - 1])
  np.testing.assert_array_equal(admitted.kept, [member == 0])


def test_admission_scores_are_relative_residuals_that_are_weighted():
  scores = subspace.admission_scores(
    _float([[3, 4], [0, 0], [0, 2]]),
    _float([[1, 0]]),
    _float([[3], [0], [0]]),
    _float([3, 1, 1]),
    _float([0.25, 0.5, 1]),
  )
  # 9 (3 / 1) 16 / 25; no update; certain to take part.
  np.testing.assert_allclose(scores, [17.28, 0, 0], rtol=1e-6)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
