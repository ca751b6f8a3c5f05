"""Tests of the population and of participation probabilities."""

import pathlib

from absl.testing import parameterized
import numpy as np
import pytest

from fedsteer_tff import participation

_GOLDEN = pathlib.Path(__file__).parents[1] / 'golden' / 'd_probs.npz'


class PopulationTest(parameterized.TestCase):
  def test_weights_are_divided_by_their_sum(self):
    population = participation.Population([2, 6], [0.5, 1])
    np.testing.assert_array_equal(population.weights, [0.25, 0.75])
    self.assertEqual(population.weights.dtype, np.float64)
    np.testing.assert_array_equal(
      population.participation_probabilities, [0.5, 1]
    )
    self.assertEqual(population.num_clients, 2)

  def test_a_client_may_have_weight_zero(self):
    population = participation.Population([0, 3.5], [0.5, 1])
    np.testing.assert_array_equal(population.weights, [0, 1])

  def test_huge_weights_do_not_overflow(self):
    population = participation.Population([1e308, 1e308, 1e308], [1, 1, 1])
    np.testing.assert_allclose(population.weights, 1 / 3, rtol=1e-15)

  def test_arrays_are_read_only_copies(self):
    weights = np.array([1.0, 1.0])
    population = participation.Population(weights, [0.5, 0.5])
    weights[0] = 9
    np.testing.assert_array_equal(population.weights, [0.5, 0.5])
    with self.assertRaises(ValueError):
      population.weights[0] = 1
    with self.assertRaises(ValueError):
      population.participation_probabilities[0] = 1

  @parameterized.parameters([[None, 0.5]], [[np.nan, 0.5]])
  def test_a_probability_may_be_unknown(self, probabilities):
    population = participation.Population([1, 3], probabilities)
    np.testing.assert_array_equal(
      population.participation_probabilities, [np.nan, 0.5]
    )
    np.testing.assert_array_equal(population.weights, [0.25, 0.75])

  def test_none_says_that_no_probability_is_known(self):
    population = participation.Population([1, 3], None)
    found = population.participation_probabilities
    np.testing.assert_array_equal(found, [np.nan, np.nan])
    self.assertEqual(found.dtype, np.float64)
    with self.assertRaises(ValueError):
      found[0] = 1

  def test_nobody_draws_by_probabilities_that_are_unknown(self):
    population = participation.Population([1, 3], [0.5, None])
    with self.assertRaisesRegex(
      ValueError, r'probabilities must be in \(0, 1\], found nan for client 1'
    ):
      participation.BernoulliSampler(population.participation_probabilities, 0)

  @parameterized.parameters(
    ([1, -1.0], [1, 1], ValueError, r'weights .* found -1.0 for client 1'),
    ([1, np.nan], [1, 1], ValueError, 'weights must be finite'),
    ([1, np.inf], [1, 1], ValueError, 'weights must be finite'),
    ([0, 0], [1, 1], ValueError, 'weights must have a positive sum'),
    (
      [1, 1],
      [1, 0],
      ValueError,
      r'participation_probabilities must be in \(0, 1\], or NaN where it is not'
      ' known, found 0.0 for client 1',
    ),
    ([1, 1], [1.5, 1], ValueError, 'not known, found 1.5 for client 0'),
    ([1, 1], [np.nan, -1], ValueError, 'not known, found -1.0 for client 1'),
    ([1, 1], [None], ValueError, 'same length, found 2 and 1'),
    ([1, 1], [1], ValueError, 'same length, found 2 and 1'),
    ([], [], ValueError, 'weights must be a vector with at least one'),
    ([[1]], [1], ValueError, r'found shape \(1, 1\)'),
    (['a'], [1], TypeError, 'weights must be a vector of numbers'),
  )
  def test_wrong_arguments_are_named(self, weights, p, error, message):
    with self.assertRaisesRegex(error, message):
      participation.Population(weights, p)


class TwoGroupProbabilitiesTest(parameterized.TestCase):
  def test_reproduces_the_published_probabilities(self):
    golden = np.load(_GOLDEN)
    for case in range(int(golden['n'])):
      probabilities = participation.two_group_probabilities(
        int(golden[f'{case}_N']),
        float(golden[f'{case}_C']),
        float(golden[f'{case}_givenProb']),
      )
      np.testing.assert_allclose(probabilities, golden[f'{case}_p'], rtol=1e-14)
      self.assertAlmostEqual(probabilities.sum(), int(golden[f'{case}_m']))

  def test_defaults_are_six_and_one_thirty_fifths(self):
    probabilities = participation.two_group_probabilities(100)
    np.testing.assert_allclose(probabilities[:50], 6 / 35, rtol=1e-14)
    np.testing.assert_allclose(probabilities[50:], 1 / 35, rtol=1e-14)

  def test_odd_population_puts_the_smaller_half_first(self):
    probabilities = participation.two_group_probabilities(5, 0.4, 1.0)
    np.testing.assert_allclose(
      probabilities, 2 * np.array([2, 2, 1, 1, 1]) / 7, rtol=1e-14
    )

  def test_expected_count_survives_rounding_of_the_rate(self):
    # 0.29 * 100 is 28.999999999999996 in binary.
    probabilities = participation.two_group_probabilities(100, 0.29, 0.5)
    self.assertAlmostEqual(probabilities.sum(), 29)

  def test_no_skew_is_uniform(self):
    np.testing.assert_allclose(
      participation.two_group_probabilities(10, 0.5, 0.0),
      participation.uniform_probabilities(10, 0.5),
      rtol=1e-14,
    )

  @parameterized.parameters(
    ((10, 1.0, 5.0), ValueError, 'keep every probability <= 1, found 1.714'),
    ((10, 0.05), ValueError, r'rate \* num_clients must be at least 1'),
    ((10, 0.0), ValueError, r'rate must be in \(0, 1\], found 0.0'),
    ((10, 1.1), ValueError, r'rate must be in \(0, 1\], found 1.1'),
    ((10, 0.5, -1.0), ValueError, 'skew must be finite and >= 0'),
    ((0, 0.5), ValueError, 'num_clients must be >= 1, found 0'),
    ((1.5, 0.5), TypeError, 'num_clients must be an integer, found 1.5'),
    ((10, 'x'), TypeError, "rate must be a number, found 'x'"),
    ((10, 0.5, None), TypeError, 'skew must be a number'),
  )
  def test_wrong_arguments_are_named(self, arguments, error, message):
    with self.assertRaisesRegex(error, message):
      participation.two_group_probabilities(*arguments)


class UniformProbabilitiesTest(parameterized.TestCase):
  def test_all_are_the_rate(self):
    np.testing.assert_array_equal(
      participation.uniform_probabilities(3, 0.2), [0.2, 0.2, 0.2]
    )

  @parameterized.parameters(0.0, 1.1, -0.5)
  def test_rate_outside_its_range_is_an_error(self, rate):
    with self.assertRaisesRegex(ValueError, r'rate must be in \(0, 1\]'):
      participation.uniform_probabilities(3, rate)


if __name__ == '__main__':
  pytest.main([__file__])
