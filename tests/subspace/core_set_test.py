"""Tests of the search for the core set."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from fedsteer_tff import subspace
from tests import numpy_oracle

_GOLDEN = [
  f'c_core_{sizes}_lam{ridge}_1_{dtype}'
  for sizes in ('N12_k3', 'N30_k5')
  for ridge in ('0.001', '0.5')
  for dtype in ('f64', 'f32')
]


def _unit(rows):
  return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-8)


def _published(name):
  """Returns candidates, targets, weights and ridges, and all arrays."""
  golden = numpy_oracle.golden(name)
  candidates = _unit(golden['H_head'].astype(float))
  targets = _unit(golden['G_head'].astype(float))
  weights = golden['weights'].astype(float)
  return candidates, targets, weights, golden['lambda_i'].astype(float), golden


def _grams(candidates, targets):
  return (
    candidates @ candidates.T,
    targets @ candidates.T,
    np.sum(targets**2, axis=1),
  )


def _instance(seed, num_candidates=9, num_targets=11, dimension=7):
  rng = np.random.default_rng(seed)
  candidates = _unit(rng.normal(size=[num_candidates, dimension]))
  targets = _unit(rng.normal(size=[num_targets, dimension]))
  return candidates, targets, rng.uniform(0.1, 2, size=num_targets)


@pytest.mark.parametrize('name', _GOLDEN)
def test_objective_equals_the_published_code(name):
  candidates, targets, weights, ridges, golden = _published(name)
  found = subspace.core_set_error(
    *_grams(candidates, targets), weights, golden['bf_sel'], ridges
  )
  assert found.dtype == tf.float64
  # There the penalty is Lambda instead of w_i lambda_i, which float32 and
  # additions of 1e-9 make differ a little.
  np.testing.assert_allclose(found, golden['bf_err'], rtol=1e-4)
  direct = numpy_oracle.selection_error(
    candidates, targets, weights, ridges, golden['bf_sel']
  )
  np.testing.assert_allclose(found, direct, rtol=1e-8)


@pytest.mark.parametrize('name', _GOLDEN)
def test_search_is_within_one_percent_of_the_optimum(name):
  candidates, targets, weights, ridges, golden = _published(name)
  k = int(golden['k'])
  selection = subspace.select_core_set(
    *_grams(candidates, targets), weights, k, ridges
  )
  members = selection.core_set.numpy()
  assert len(set(members)) == k
  error = numpy_oracle.selection_error(
    candidates, targets, weights, ridges, members
  )
  np.testing.assert_allclose(selection.error, error, rtol=1e-8)
  optimum = numpy_oracle.selection_error(
    candidates, targets, weights, ridges, golden['bf_sel']
  )
  assert error <= 1.01 * optimum
  assert selection.error.numpy() <= selection.greedy_error.numpy()


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('ridge', [0.0, 0.01, 1.0])
def test_one_ridge_equals_a_constant_ridge_for_every_target(seed, ridge):
  candidates, targets, weights = _instance(seed)
  grams = _grams(candidates, targets)
  ridges = np.full(len(targets), ridge)
  for members in ([0, 3, 5], [8, -1, 2], [-1, -1, -1]):
    one = subspace.core_set_error(*grams, weights, members, ridge)
    many = subspace.core_set_error(*grams, weights, members, ridges)
    direct = numpy_oracle.selection_error(
      candidates, targets, weights, ridge, members
    )
    np.testing.assert_allclose(one, many, rtol=1e-7)
    np.testing.assert_allclose(one, direct, rtol=1e-7)
  one = subspace.select_core_set(*grams, weights, 3, ridge)
  many = subspace.select_core_set(*grams, weights, 3, ridges)
  np.testing.assert_array_equal(one.core_set, many.core_set)
  assert one.num_swaps == many.num_swaps


@pytest.mark.parametrize('seed', range(12))
def test_search_is_close_to_brute_force_with_one_ridge(seed):
  candidates, targets, weights = _instance(seed)
  ridge = 0.05
  errors = {
    members: numpy_oracle.selection_error(
      candidates, targets, weights, ridge, members
    )
    for members in itertools.combinations(range(9), 3)
  }
  selection = subspace.select_core_set(
    *_grams(candidates, targets), weights, 3, ridge
  )
  members = tuple(sorted(selection.core_set.numpy()))
  np.testing.assert_allclose(selection.error, errors[members], rtol=1e-9)
  # No exchange of one member improves; the optimum may be two exchanges away.
  for position, other in itertools.product(range(3), range(9)):
    if other not in members:
      swapped = tuple(sorted(set(members) - {members[position]} | {other}))
      assert errors[swapped] >= errors[members] * (1 - 1e-8)
  assert errors[members] <= 1.03 * min(errors.values())


@pytest.mark.parametrize('seed', range(6))
def test_search_makes_the_choices_of_the_numpy_search(seed):
  candidates, targets, weights = _instance(seed, 14, 20, 10)
  eligible = np.random.default_rng(seed).uniform(size=14) < 0.7
  selection = subspace.select_core_set(
    *_grams(candidates, targets), weights, 4, 0.01, eligible=eligible
  )
  wanted = numpy_oracle.select(candidates, targets, weights, 0.01, 4, eligible)
  assert selection.core_set.numpy().tolist() == wanted


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('distance', [1e-2, 1e-4])
def test_nearly_dependent_candidates_change_no_choice(seed, distance):
  candidates, targets, weights = _instance(seed, 12, 20, 10)
  rng = np.random.default_rng(seed)
  candidates[6:] = _unit(
    candidates[:6] + distance * rng.normal(size=[6, candidates.shape[1]])
  )
  selection = subspace.select_core_set(
    *_grams(candidates, targets), weights, 5, 1e-6
  )
  wanted = numpy_oracle.select(
    candidates, targets, weights, 1e-6, 5, np.ones(12, bool)
  )
  assert selection.core_set.numpy().tolist() == wanted
  error = numpy_oracle.selection_error(
    candidates, targets, weights, 1e-6, wanted
  )
  np.testing.assert_allclose(selection.error, error, rtol=1e-6)


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('ridge', [0.0, 0.01, 1.0])
@pytest.mark.parametrize('members', [None, [3, -1, 0, -1]])
def test_vectors_give_what_their_gram_matrices_give(seed, ridge, members):
  candidates, targets, weights = _instance(seed, 14, 20, 10)
  arguments = dict(
    core_set_size=4,
    ridge=ridge,
    eligible=np.random.default_rng(seed).uniform(size=14) < 0.7,
    members=members,
  )
  wanted = subspace.select_core_set(
    *_grams(candidates, targets), weights, **arguments
  )
  found = subspace.select_core_set_from_vectors(
    candidates, targets, weights, **arguments
  )
  np.testing.assert_array_equal(found.core_set, wanted.core_set)
  np.testing.assert_allclose(found.error, wanted.error, rtol=1e-9)
  np.testing.assert_allclose(found.greedy_error, wanted.greedy_error, rtol=1e-9)
  assert found.num_swaps == wanted.num_swaps


def test_vectors_need_no_matrix_of_all_candidates():
  vectors = tf.TensorSpec([900, 8])

  def select(candidates, targets, weights):
    return subspace.select_core_set_from_vectors(
      candidates, targets, weights, 3, 0.01
    ).core_set

  graph = tf.function(
    select, input_signature=[vectors, vectors, tf.TensorSpec([900])]
  ).get_concrete_function()
  definition = graph.graph.as_graph_def(add_shapes=True)
  functions = [function.node_def for function in definition.library.function]
  sizes = [
    np.prod([dim.size for dim in shape.dim], dtype=float)
    for nodes in [definition.node, *functions]
    for node in nodes
    for shape in node.attr['_output_shapes'].list.shape
  ]
  assert len(sizes) > 100
  assert 900 * 8 in sizes
  assert max(sizes) < 900 * 100


@pytest.mark.parametrize('per_target', [False, True])
@pytest.mark.parametrize('core_set', [3, [[3]], [[0, 3]]])
def test_a_core_set_of_another_shape_is_told(core_set, per_target):
  candidates, targets, weights = _instance(0)
  ridge = np.full(11, 0.01) if per_target else 0.01
  with pytest.raises(tf.errors.InvalidArgumentError) as caught:
    subspace.core_set_error(
      *_grams(candidates, targets), weights, core_set, ridge
    )
  assert 'is not compatible with expected shape [?]' in str(caught.value)


def test_swaps_improve_on_the_greedy_start():
  improved = 0
  for seed in range(12):
    candidates, targets, weights = _instance(seed)
    grams = _grams(candidates, targets)
    selection = subspace.select_core_set(*grams, weights, 3, 0.05)
    greedy = subspace.select_core_set(*grams, weights, 3, 0.05, max_swaps=0)
    assert greedy.num_swaps == 0
    np.testing.assert_array_equal(greedy.error, selection.greedy_error)
    assert (selection.error < greedy.error) == (selection.num_swaps > 0)
    improved += int(selection.num_swaps > 0)
  assert improved


def test_a_search_ends_after_a_hundred_exchanges():
  # Members without a direction, each to be exchanged for another unit vector.
  size = 102
  vectors = np.concatenate([np.zeros([size, size]), np.eye(size)])
  weights = np.linspace(1, 2, size)
  begin = dict(ridge=0.1, members=tf.range(size))
  for selection in (
    subspace.select_core_set(
      *_grams(vectors, np.eye(size)), weights, size, **begin
    ),
    subspace.select_core_set_from_vectors(
      vectors, np.eye(size), weights, size, **begin
    ),
  ):
    assert selection.num_swaps == 100
    # 1 / 1.1 of the largest hundred weights is explained.
    np.testing.assert_allclose(
      selection.error,
      np.sum(weights) - np.sum(weights[2:]) / 1.1,
      rtol=1e-9,
    )


def test_only_eligible_candidates_are_chosen():
  candidates, targets, weights = _instance(0)
  eligible = np.arange(9) % 2 == 1
  selection = subspace.select_core_set(
    *_grams(candidates, targets), weights, 3, 0.01, eligible=eligible
  )
  assert all(eligible[selection.core_set.numpy()])


@pytest.mark.parametrize('num_eligible', [0, 1, 2])
@pytest.mark.parametrize('per_target', [False, True])
def test_slots_beyond_the_eligible_candidates_stay_empty(
  num_eligible, per_target
):
  candidates, targets, weights = _instance(1)
  eligible = np.zeros(9, bool)
  eligible[[4, 7][:num_eligible]] = True
  ridge = np.full(11, 0.01) if per_target else 0.01
  selection = subspace.select_core_set(
    *_grams(candidates, targets), weights, 3, ridge, eligible=eligible
  )
  members = selection.core_set.numpy()
  assert sorted(members) == [-1] * (3 - num_eligible) + [4, 7][:num_eligible]
  assert all(members[num_eligible:] == -1)
  error = numpy_oracle.selection_error(
    candidates, targets, weights, 0.01, members
  )
  np.testing.assert_allclose(selection.error, error, rtol=1e-9)
  assert selection.num_swaps == 0


@pytest.mark.parametrize('per_target', [False, True])
def test_ties_go_to_the_lower_index(per_target):
  candidates, targets, weights = _instance(2)
  best = int(
    subspace.select_core_set(
      *_grams(candidates, targets), weights, 1, 0.01
    ).core_set[0]
  )
  copies = candidates.copy()
  copies[[2, 6]] = candidates[best]
  ridge = np.full(11, 0.01) if per_target else 0.01
  selection = subspace.select_core_set(
    *_grams(copies, targets), weights, 1, ridge
  )
  assert int(selection.core_set[0]) == min(2, best)


def test_all_candidates_equal_is_defined():
  candidates, targets, weights = _instance(3)
  copies = np.repeat(candidates[:1], 5, axis=0)
  selection = subspace.select_core_set(
    *_grams(copies, targets), weights, 3, 0.0
  )
  assert len(set(selection.core_set.numpy())) == 3
  assert np.isfinite(selection.error)


@pytest.mark.parametrize('per_target', [False, True])
@pytest.mark.parametrize('dtype', [np.float32, np.float64])
def test_graph_mode_equals_eager_mode(dtype, per_target):
  candidates, targets, weights = _instance(4, 15, 18, 9)
  arguments = [
    tf.constant(x, dtype) for x in (*_grams(candidates, targets), weights)
  ]

  def select(*arrays):
    ridge = tf.fill(tf.shape(arrays[-1]), 0.01) if per_target else 0.01
    selection = subspace.select_core_set(*arrays, 4, ridge)
    return selection.core_set, selection.error, selection.num_swaps

  eager = select(*arguments)
  graph = tf.function(select)(*arguments)
  unknown = tf.TensorSpec([None, None], dtype)
  vector = tf.TensorSpec([None], dtype)
  unknown_sizes = tf.function(
    select, input_signature=[unknown, unknown, vector, vector]
  )(*arguments)
  for found in (graph, unknown_sizes):
    np.testing.assert_array_equal(found[0], eager[0])
    np.testing.assert_allclose(found[1], eager[1], rtol=1e-12)
    assert found[2] == eager[2]


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('scale', [1e-3, 1e3])
def test_rescaling_the_weights_changes_no_choice(seed, scale):
  candidates, targets, weights = _instance(seed)
  grams = _grams(candidates, targets)
  before = subspace.select_core_set(*grams, weights, 3, 0.01)
  after = subspace.select_core_set(*grams, weights * scale, 3, 0.01)
  np.testing.assert_array_equal(after.core_set, before.core_set)
  np.testing.assert_allclose(after.error, scale * before.error, rtol=1e-9)


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('scale', [1e-3, 1e3])
def test_rescaling_the_updates_and_the_ridge_changes_no_choice(seed, scale):
  candidates, targets, weights = _instance(seed)
  before = subspace.select_core_set(
    *_grams(candidates, targets), weights, 3, 0.01
  )
  after = subspace.select_core_set(
    *_grams(scale * candidates, scale * targets),
    weights,
    3,
    0.01 * scale**2,
  )
  np.testing.assert_array_equal(after.core_set, before.core_set)


@pytest.mark.parametrize(
  ('size', 'error', 'rule'),
  [
    (0, ValueError, '>= 1'),
    (-1, ValueError, '>= 1'),
    (2.0, TypeError, 'an integer'),
    (None, TypeError, 'an integer'),
  ],
)
def test_a_wrong_size_is_named(size, error, rule):
  candidates, targets, weights = _instance(0)
  message = f'core_set_size must be {rule}, found {size!r}'
  with pytest.raises(error) as caught:
    subspace.select_core_set(*_grams(candidates, targets), weights, size, 0.01)
  assert str(caught.value) == message
  with pytest.raises(error) as caught:
    subspace.select_core_set_from_vectors(
      candidates, targets, weights, size, 0.01
    )
  assert str(caught.value) == message


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
