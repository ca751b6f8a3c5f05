"""Tests of the partition rules."""

import collections
import pathlib

from absl.testing import parameterized
import numpy as np
import pytest

from tasks import partition

_GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'e_partition.npz'


def _labels(per_class, num_classes=10):
  labels = np.repeat(np.arange(num_classes), per_class)
  return np.random.default_rng(0).permutation(labels)


def _rules():
  return {
    'bipartite': lambda y, seed: partition.bipartite(y, 20, seed=seed),
    'dirichlet': lambda y, seed: partition.dirichlet(y, 20, seed=seed),
    'iid': lambda y, seed: partition.iid(y, 20, seed=seed),
  }


class EveryRuleTest(parameterized.TestCase):
  @parameterized.parameters('bipartite', 'dirichlet', 'iid')
  def test_uses_no_index_twice_and_leaves_no_client_empty(self, name):
    labels = _labels(100)
    result = _rules()[name](labels, 3)
    indices = np.concatenate(result.client_indices)
    self.assertLen(np.unique(indices), len(indices))
    self.assertTrue((indices >= 0).all() and (indices < len(labels)).all())
    self.assertGreaterEqual(result.num_examples.min(), 1)
    self.assertEqual(result.num_examples.sum(), len(indices))
    self.assertAlmostEqual(
      result.examples_per_client, result.num_examples.mean()
    )

  @parameterized.parameters('bipartite', 'dirichlet', 'iid')
  def test_is_determined_by_the_seed(self, name):
    labels = _labels(100)
    first, second, other = (_rules()[name](labels, s) for s in (3, 3, 4))
    for a, b in zip(first.client_indices, second.client_indices):
      np.testing.assert_array_equal(a, b)
    self.assertFalse(
      all(
        np.array_equal(a, b)
        for a, b in zip(first.client_indices, other.client_indices)
      )
    )

  @parameterized.parameters('bipartite', 'dirichlet', 'iid')
  def test_labels_are_those_of_the_examples(self, name):
    labels = _labels(100)
    result = _rules()[name](labels, 3)
    for indices, classes in zip(result.client_indices, result.client_labels):
      self.assertSetEqual(set(labels[indices]), set(classes))

  @parameterized.parameters('bipartite', 'dirichlet', 'iid')
  def test_does_not_touch_the_global_random_stream(self, name):
    np.random.seed(5)
    before = np.random.get_state()[1].copy()
    _rules()[name](_labels(100), 3)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


class BipartiteTest(parameterized.TestCase):
  @parameterized.parameters('seed', 'generator')
  def test_reproduces_the_published_rule(self, how):
    golden = np.load(_GOLDEN)
    seed = int(golden['seed'])
    result = partition.bipartite(
      golden['labels'],
      int(golden['N']),
      gamma=0.9,
      class_ratio=float(golden['class_ratio']),
      examples_per_client=(int(golden['min_data']) + int(golden['max_data']))
      // 2,
      seed=seed if how == 'seed' else np.random.RandomState(seed),
    )
    np.testing.assert_array_equal(result.num_examples, golden['sizes'])
    for i in range(int(golden['N'])):
      np.testing.assert_array_equal(
        result.client_indices[i],
        golden['indices'][i][golden['indices'][i] >= 0],
      )
      np.testing.assert_array_equal(
        result.client_labels[i],
        golden['client_labels'][i][golden['client_labels'][i] >= 0],
      )

  @parameterized.parameters((0.9, 90), (0.7, 70), (0.29, 29), (0.5, 50))
  def test_gamma_is_the_share_of_clients_with_common_classes(self, gamma, num):
    result = partition.bipartite(
      _labels(2000), 100, gamma, examples_per_client=40
    )
    owners = collections.defaultdict(set)
    for client, classes in enumerate(result.client_labels):
      self.assertLen(classes, 2)
      for c in classes:
        owners[c].add(client)
    # Two classes are in the same group if they share an owner.
    groups = []
    for c in owners:
      touching = [g for g in groups if owners[c] & g]
      groups = [g for g in groups if g not in touching]
      groups.append(set(owners[c]).union(*touching))
    self.assertCountEqual(map(len, groups), [num, 100 - num])

  def test_both_groups_hold_half_of_the_examples(self):
    result = partition.bipartite(
      _labels(2000), 100, 0.9, examples_per_client=80, seed=1
    )
    sizes = np.sort(result.num_examples)
    # 4,000 over 90 clients, the last takes the rest; 4,000 over 10.
    np.testing.assert_array_equal(sizes[:89], 44)
    np.testing.assert_array_equal(sizes[89:], [84] + 10 * [400])
    self.assertEqual(result.examples_per_client, 80)

  def test_a_client_cycles_through_its_classes(self):
    labels = _labels(500)
    result = partition.bipartite(labels, 20, examples_per_client=31)
    for indices, classes in zip(result.client_indices, result.client_labels):
      np.testing.assert_array_equal(
        labels[indices], np.resize(classes, len(indices))
      )

  @parameterized.parameters((0.5, 2), (1.0, 5), (0.2, 1), (0.01, 1), (0.6, 3))
  def test_class_ratio_is_the_share_of_owned_classes(self, ratio, count):
    result = partition.bipartite(_labels(500), 20, class_ratio=ratio)
    for classes in result.client_labels:
      self.assertLen(np.unique(classes), count)

  def test_odd_number_of_classes_gives_the_rare_group_one_more(self):
    result = partition.bipartite(
      _labels(500, 5), 40, gamma=0.5, class_ratio=1.0
    )
    self.assertCountEqual(map(len, result.client_labels), 20 * [2] + 20 * [3])

  @parameterized.parameters((0.0, 3), (1.0, 2), (0.01, 3))
  def test_an_empty_group_leaves_its_classes_unused(self, gamma, num_classes):
    labels = _labels(500, 5)
    result = partition.bipartite(
      labels, 40, gamma, class_ratio=1.0, examples_per_client=20
    )
    used = labels[np.concatenate(result.client_indices)]
    self.assertLen(np.unique(used), num_classes)
    self.assertLen(used, 40 * 20)

  def test_sizes_stay_positive_where_rounding_up_would_exceed_the_total(self):
    # 17 examples for 10 minority clients: rounding 1.7 to 2 for nine of them
    # would leave -1 for the tenth.
    result = partition.bipartite(
      _labels(500, 2), 17, gamma=7 / 17, examples_per_client=2
    )
    np.testing.assert_array_equal(
      np.sort(result.num_examples), 9 * [1] + 6 * [2] + [5, 8]
    )

  @parameterized.parameters(0.9, 0.7)
  def test_default_size_fits_and_one_more_does_not(self, gamma):
    labels = _labels(140)
    result = partition.bipartite(labels, 50, gamma)
    mean = int(result.examples_per_client)
    again = partition.bipartite(labels, 50, gamma, examples_per_client=mean)
    np.testing.assert_array_equal(again.num_examples, result.num_examples)
    with self.assertRaisesRegex(ValueError, 'needed'):
      partition.bipartite(labels, 50, gamma, examples_per_client=mean + 1)

  def test_overflow_names_the_class_the_need_and_what_there_is(self):
    labels = np.concatenate([_labels(500, 2), [2, 3, 3]])
    with self.assertRaisesRegex(
      ValueError, r'class 2 \(needed \d+, available 1\)'
    ):
      partition.bipartite(labels, 10, 0.5, 1.0, examples_per_client=8)

  def test_a_class_without_examples_is_an_error(self):
    with self.assertRaisesRegex(ValueError, r'class 4 .*available 0'):
      partition.bipartite(
        _labels(50, 4), 10, gamma=0.5, class_ratio=1.0, num_classes=5
      )

  def test_too_few_examples_for_every_client_is_an_error(self):
    with self.assertRaisesRegex(ValueError, 'at least one example'):
      # 50 examples for 90 majority clients.
      partition.bipartite(
        _labels(500, 2), 100, gamma=0.9, examples_per_client=1
      )

  @parameterized.parameters(
    ({'gamma': -0.1}, ValueError, r'gamma must be in \[0, 1\], found -0.1'),
    ({'gamma': 1.1}, ValueError, r'gamma must be in \[0, 1\], found 1.1'),
    ({'gamma': float('nan')}, ValueError, 'gamma must be'),
    ({'gamma': '0.9'}, TypeError, 'gamma must be a number'),
    ({'class_ratio': 0.0}, ValueError, r'class_ratio must be in \(0, 1\]'),
    ({'num_clients': 0}, ValueError, 'num_clients must be >= 1, found 0'),
    ({'num_clients': 2.0}, TypeError, 'num_clients must be an integer'),
    ({'examples_per_client': 0}, ValueError, 'examples_per_client must be'),
    ({'seed': -1}, ValueError, 'seed must be >= 0, found -1'),
    ({'num_classes': 5}, ValueError, r'labels must be in \[0, 5\)'),
    ({'labels': np.zeros(9, int)}, ValueError, 'num_classes must be >= 2'),
    ({'labels': np.zeros(9)}, TypeError, 'labels must be integers'),
    ({'labels': np.zeros([0], int)}, ValueError, 'labels must be a vector'),
  )
  def test_wrong_arguments_are_named(self, arguments, error, message):
    arguments = {'labels': _labels(50), 'num_clients': 10, **arguments}
    with self.assertRaisesRegex(error, message):
      partition.bipartite(**arguments)


class DirichletTest(parameterized.TestCase):
  def test_uses_every_example_without_a_limit(self):
    result = partition.dirichlet(_labels(100), 10, 0.5)
    self.assertEqual(result.num_examples.sum(), 1000)

  def test_uses_the_asked_number_of_examples(self):
    result = partition.dirichlet(_labels(100), 10, 0.5, examples_per_client=30)
    self.assertEqual(result.num_examples.sum(), 300)
    self.assertEqual(result.examples_per_client, 30)

  def test_small_alpha_gives_clients_fewer_classes(self):
    few, many = (
      np.mean(
        [len(c) for c in partition.dirichlet(_labels(500), 20, a).client_labels]
      )
      for a in (0.05, 100.0)
    )
    self.assertLess(few, 5)
    self.assertEqual(many, 10)

  @parameterized.parameters(0.001, 0.01)
  def test_tiny_alpha_still_gives_everyone_an_example(self, alpha):
    result = partition.dirichlet(_labels(100, 3), 50, alpha)
    self.assertEqual(result.num_examples.min(), 1)
    self.assertEqual(result.num_examples.sum(), 300)

  def test_as_many_clients_as_examples_get_one_each(self):
    result = partition.dirichlet(_labels(10, 3), 30, 0.1)
    np.testing.assert_array_equal(result.num_examples, 1)

  @parameterized.parameters(
    ({'alpha': 0.0}, ValueError, 'finite and >= 0.001, found 0.0'),
    ({'alpha': 1e-300}, ValueError, 'finite and >= 0.001, found 1e-300'),
    ({'alpha': float('inf')}, ValueError, 'alpha must be finite'),
    ({'alpha': None}, TypeError, 'alpha must be a number'),
    ({'num_clients': 501}, ValueError, r'examples \(500\), found 501'),
    ({'examples_per_client': 51}, ValueError, r'\(500\), found 51 \* 10'),
  )
  def test_wrong_arguments_are_named(self, arguments, error, message):
    arguments = {'labels': _labels(50), 'num_clients': 10, **arguments}
    with self.assertRaisesRegex(error, message):
      partition.dirichlet(**arguments)


class IidTest(parameterized.TestCase):
  def test_sizes_differ_by_at_most_one(self):
    sizes = partition.iid(_labels(101, 7), 10).num_examples
    self.assertEqual(sizes.sum(), 707)
    self.assertLessEqual(np.ptp(sizes), 1)

  def test_uses_the_asked_number_of_examples(self):
    result = partition.iid(_labels(100), 10, examples_per_client=7)
    np.testing.assert_array_equal(result.num_examples, 7)


class ByOwnerTest(parameterized.TestCase):
  def test_keeps_examples_with_their_owner_in_order(self):
    result = partition.by_owner([4, 5, 4, 6], [1, 0, 1, 0])
    np.testing.assert_array_equal(result.client_indices[0], [1, 3])
    np.testing.assert_array_equal(result.client_indices[1], [0, 2])
    np.testing.assert_array_equal(result.client_labels[0], [5, 6])

  def test_keeps_the_first_owners(self):
    result = partition.by_owner([4, 5, 4, 6], [1, 0, 2, 0], 2)
    self.assertLen(result.client_indices, 2)
    np.testing.assert_array_equal(result.num_examples, [2, 1])

  def test_more_clients_than_owners_is_an_error(self):
    with self.assertRaisesRegex(ValueError, r'clients \(2\), found 3'):
      partition.by_owner([4, 5], [1, 0], 3)


if __name__ == '__main__':
  pytest.main([__file__])
