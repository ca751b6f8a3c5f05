"""Tests of the cohort sampler and of the rule for overdue core clients."""

import pathlib

from absl.testing import parameterized
import numpy as np
import pytest

from fedsteer_tff import participation

_GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'd_probs.npz'


class DrawTest(parameterized.TestCase):
  def test_reproduces_the_published_draws(self):
    golden = np.load(_GOLDEN)
    for case in range(int(golden['n'])):
      p = golden[f'{case}_p']
      stream = np.random.RandomState(int(golden[f'{case}_seed']))
      active = np.flatnonzero(
        participation.draw(p, stream.random_sample(len(p)))
      )
      np.testing.assert_array_equal(active, golden[f'{case}_chosen'])
      np.testing.assert_array_equal(p[active], golden[f'{case}_p_list'])

  def test_probability_one_is_always_active(self):
    np.testing.assert_array_equal(
      participation.draw([1.0, 0.5, 0.5], [0.0, 0.49, 0.5]),
      [True, False, True],
    )


class BernoulliSamplerTest(parameterized.TestCase):
  def test_cohort_is_sorted_and_carries_its_probabilities(self):
    p = participation.two_group_probabilities(200)
    cohort = participation.BernoulliSampler(p, 0).cohort(3)
    self.assertEqual(cohort.client_ids.dtype, np.int32)
    self.assertEqual(cohort.participation_probabilities.dtype, np.float64)
    self.assertEqual(cohort.num_clients, len(cohort.client_ids))
    self.assertTrue((np.diff(cohort.client_ids) > 0).all())
    np.testing.assert_array_equal(
      cohort.participation_probabilities, p[cohort.client_ids]
    )

  def test_rounds_do_not_depend_on_the_order_they_are_drawn_in(self):
    p = participation.two_group_probabilities(100)
    forwards = participation.BernoulliSampler(p, 7)
    backwards = participation.BernoulliSampler(p, 7)
    first = [forwards.cohort(r).client_ids for r in range(10)]
    last = [backwards.cohort(r).client_ids for r in reversed(range(10))]
    for a, b in zip(first, reversed(last)):
      np.testing.assert_array_equal(a, b)

  def test_seeds_and_rounds_give_different_cohorts(self):
    p = participation.uniform_probabilities(100, 0.5)
    cohorts = {
      tuple(participation.BernoulliSampler(p, seed).cohort(r).client_ids)
      for seed in range(3)
      for r in range(3)
    }
    self.assertLen(cohorts, 9)

  def test_frequencies_are_the_probabilities(self):
    # 4,000 rounds: a frequency's standard deviation is below 0.0080; 200 of
    # them stay within five of these with probability > 1 - 2e-4.
    p = np.concatenate(
      [
        participation.two_group_probabilities(100),
        participation.uniform_probabilities(100, 0.5),
      ]
    )
    sampler = participation.BernoulliSampler(p, 1)
    counts = np.zeros(200)
    pairs = 0
    for r in range(4000):
      ids = sampler.cohort(r).client_ids
      counts[ids] += 1
      pairs += 100 in ids and 101 in ids
    deviation = np.abs(counts / 4000 - p) / np.sqrt(p * (1 - p) / 4000)
    self.assertLess(deviation.max(), 5)
    # Two clients are active together with probability 1/4: independent.
    self.assertLess(abs(pairs / 4000 - 0.25), 5 * np.sqrt(3 / 16 / 4000))

  def test_probability_one_is_in_every_round(self):
    sampler = participation.BernoulliSampler([1.0, 0.01], 0)
    for r in range(50):
      self.assertIn(0, sampler.cohort(r).client_ids)

  def test_forced_clients_are_active_and_change_no_other_draw(self):
    p = participation.two_group_probabilities(100)
    sampler = participation.BernoulliSampler(p, 0)
    for r in range(20):
      plain = sampler.cohort(r)
      forced = sampler.cohort(r, forced_clients=[99, 0])
      self.assertSetEqual(
        set(forced.client_ids), set(plain.client_ids) | {0, 99}
      )
      for client, probability in zip(
        forced.client_ids, forced.participation_probabilities
      ):
        self.assertEqual(probability, 1 if client in (0, 99) else p[client])
    np.testing.assert_array_equal(sampler.probabilities, p)

  def test_a_round_may_be_empty(self):
    cohort = participation.BernoulliSampler([1e-9], 0).cohort(0)
    self.assertEqual(cohort.num_clients, 0)
    self.assertEqual(cohort.participation_probabilities.shape, (0,))

  @parameterized.parameters(
    ([3], ValueError, r'ids in \[0, 3\), found \[3\]'),
    ([0, -1], ValueError, r'found \[-1\]'),
    ([1, 1, 0], ValueError, r'distinct, found more than once: \[1\]'),
    ([0.5], TypeError, 'forced_clients must be a sequence of integer ids'),
    ([[0]], TypeError, 'forced_clients must be a sequence'),
  )
  def test_wrong_forced_clients_are_named(self, forced, error, message):
    sampler = participation.BernoulliSampler([0.5, 0.5, 0.5], 0)
    with self.assertRaisesRegex(error, message):
      sampler.cohort(0, forced)

  @parameterized.parameters(
    ([0.0], 0, ValueError, r'probabilities must be in \(0, 1\], found 0.0'),
    ([1.1], 0, ValueError, r'probabilities must be in \(0, 1\], found 1.1'),
    ([0.5], -1, ValueError, 'seed must be >= 0, found -1'),
    ([0.5], 0.5, TypeError, 'seed must be an integer, found 0.5'),
  )
  def test_wrong_arguments_are_named(self, p, seed, error, message):
    with self.assertRaisesRegex(error, message):
      participation.BernoulliSampler(p, seed)

  def test_negative_round_is_an_error(self):
    sampler = participation.BernoulliSampler([0.5], 0)
    with self.assertRaisesRegex(ValueError, 'round_num must be >= 0'):
      sampler.cohort(-1)


class OverdueCoreClientsTest(parameterized.TestCase):
  @parameterized.parameters(
    (5, [3, 7]),  # Silent for 5 and for ever.
    (6, [7]),
    (4, [3, 7]),
    (3, [3, 7, 9]),
    (1, [3, 7, 9]),
    (0, []),
  )
  def test_silent_members_are_overdue(self, every, expected):
    overdue = participation.overdue_core_clients(
      core_set=[9, -1, 3, 7],
      last_active=[7, -1, 5, -1],
      round_num=10,
      every=every,
    )  # pyformat: disable
    np.testing.assert_array_equal(overdue, expected)
    self.assertEqual(overdue.dtype, np.int32)

  def test_without_a_core_set_nobody_is(self):
    self.assertEqual(
      participation.overdue_core_clients([], [], 3, 5).shape, (0,)
    )

  @parameterized.parameters(
    ([1], [1, 2], 3, 1, ValueError, 'same length, found 1 and 2'),
    ([1, 1], [1, 2], 3, 1, ValueError, r'found more than once: \[1\]'),
    ([1], [1], 3, -1, ValueError, 'every must be >= 0, found -1'),
    ([1], [1], 3, 1.5, TypeError, 'every must be an integer'),
    ([0.5], [1], 3, 1, TypeError, 'core_set must consist of integers'),
    ([[1]], [[1]], 3, 1, ValueError, 'core_set must be a vector'),
  )
  def test_wrong_arguments_are_named(
    self, core_set, last_active, round_num, every, error, message
  ):
    with self.assertRaisesRegex(error, message):
      participation.overdue_core_clients(
        core_set, last_active, round_num, every
      )


if __name__ == '__main__':
  pytest.main([__file__])
