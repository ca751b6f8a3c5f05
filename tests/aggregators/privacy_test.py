"""Tests of the private correction: sums, noise and epsilon."""

import collections
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import programs
from tests.aggregators import small_rounds

_DELTA = 1e-3


def _sum(factory, vectors, rounds=1):
  process = factory.create(tff.TensorType(np.float32, [len(vectors[0])]))
  state = process.initialize()
  results = []
  for _ in range(rounds):
    output = process.next(state, [np.float32(v) for v in vectors])
    state = output.state
    results.append(output.result)
  return results


@pytest.mark.parametrize('secure', [False, True])
def test_without_noise_it_is_the_sum_of_clipped_vectors(secure):
  vectors = [[3.0, 4.0], [0.3, -0.4], [0.0, 0.0]]
  sum_factory = tff.aggregators.SecureSumFactory(1.0) if secure else None
  factory = aggregators.private_correction(0.0, 1.0, sum_factory)
  with programs.LocalRuntime(simulate_secure_sums=True).activate():
    (found,) = _sum(factory, vectors)
  # [3, 4] is five times too long; nothing is divided by a number of clients.
  np.testing.assert_allclose(found, [0.6 + 0.3, 0.8 - 0.4], atol=1e-6)


def test_the_noise_is_of_the_sum_and_new_in_every_round():
  size, multiplier, norm = 40_000, 0.7, 3.0
  one = np.zeros(size)
  one[0] = 2.0
  factory = aggregators.private_correction(multiplier, norm)
  results = _sum(factory, [one] * 5, rounds=2)
  noises = np.array(results) - np.float32(5 * one)
  deviation = multiplier * norm
  # Six standard errors of a mean, and of a standard deviation.
  assert np.all(np.abs(noises.mean(axis=1)) < 6 * deviation / size**0.5)
  np.testing.assert_allclose(
    noises.std(axis=1), deviation, rtol=6 / (2 * size) ** 0.5
  )
  correlation = np.corrcoef(noises)[0, 1]
  assert abs(correlation) < 6 / size**0.5


def _normal_cdf(x):
  return math.erfc(-x / math.sqrt(2)) / 2


def _exact_delta(epsilon, noise_multiplier, num_rounds):
  """Delta of composed Gaussian mechanisms, in closed form.

  Together they are one with noise z / sqrt(T); see Balle and Wang, ICML 2018.
  """
  sensitivity = math.sqrt(num_rounds) / noise_multiplier
  return _normal_cdf(sensitivity / 2 - epsilon / sensitivity) - math.exp(
    epsilon
  ) * _normal_cdf(-sensitivity / 2 - epsilon / sensitivity)


def _exact_epsilon(noise_multiplier, num_rounds):
  return _smallest_epsilon(
    lambda epsilon: _exact_delta(epsilon, noise_multiplier, num_rounds)
  )


def _smallest_epsilon(delta_fn):
  """Returns where a decreasing function is down at delta."""
  low, high = 0.0, 100.0
  for _ in range(60):
    middle = (low + high) / 2
    low, high = (middle, high) if delta_fn(middle) > _DELTA else (low, middle)
  return high


@pytest.mark.parametrize(
  ('noise_multiplier', 'num_rounds'), [(1.0, 1), (3.0, 80), (8.0, 150)]
)
def test_epsilon_is_a_close_upper_bound_of_the_exact_one(
  noise_multiplier, num_rounds
):
  found = aggregators.correction_epsilon(noise_multiplier, num_rounds, _DELTA)
  exact = _exact_epsilon(noise_multiplier, num_rounds)
  assert exact <= found <= 1.01 * exact


def _sampled_epsilon(noise_multiplier, probability):
  """Epsilon of one round with a client that takes part by chance.

  By numerical integration of the hockey-stick divergence of the two outcomes'
  densities along the client's vector, in both directions.
  """
  x = np.linspace(-40, 40, 400_001)
  step = x[1] - x[0]

  def density(mean):
    z = (x - mean) / noise_multiplier
    return np.exp(-(z**2) / 2) / (noise_multiplier * math.sqrt(2 * math.pi))

  without = density(0.0)
  with_client = (1 - probability) * without + probability * density(1.0)

  def delta(epsilon):
    return max(
      np.sum(np.maximum(p - math.exp(epsilon) * q, 0)) * step
      for p, q in ((with_client, without), (without, with_client))
    )

  return _smallest_epsilon(delta)


@pytest.mark.parametrize('probability', [0.05, 0.3, 0.9])
def test_epsilon_of_a_client_that_takes_part_by_chance(probability):
  found = aggregators.correction_epsilon(1.0, 1, _DELTA, probability)
  exact = _sampled_epsilon(1.0, probability)
  # The integral has an error, too.
  assert exact - 1e-6 <= found <= 1.01 * exact
  assert found < aggregators.correction_epsilon(1.0, 1, _DELTA)


def test_the_client_that_takes_part_most_decides():
  probabilities = [0.02, 0.3, 0.1]
  wanted = aggregators.correction_epsilon(1.0, 40, _DELTA, 0.3)
  found = aggregators.correction_epsilon(1.0, 40, _DELTA, probabilities)
  assert found == wanted
  assert aggregators.correction_epsilon(1.0, 40, _DELTA, 0.1) < wanted
  # Whoever always takes part is not hidden by chance.
  assert aggregators.correction_epsilon(
    1.0, 40, _DELTA, [0.1, 1.0]
  ) == aggregators.correction_epsilon(1.0, 40, _DELTA)


def _estimates(updates_of_clients, **parameters):
  """Returns the estimates and metrics of two rounds with all clients."""
  process = aggregators.FedSteerFactory(
    len(updates_of_clients),
    aggregation='client_projection',
    correction_factory=aggregators.private_correction(0.0, 1e-3),
    **parameters,
  ).create(
    small_rounds.value_type([tff.TensorType(np.float32, [3])]),
    small_rounds.WEIGHT_TYPE,
  )
  state = process.initialize()
  values = [
    collections.OrderedDict(
      update=[np.float32(update)],
      client_id=np.int32(i),
      participation_probability=np.float32(0.5),
    )
    for i, update in enumerate(updates_of_clients)
  ]
  estimates = []
  for _ in range(2):
    output = process.next(state, values, [np.float32(0.25)] * len(values))
    state = output.state
    estimates.append(output.result[0])
  return np.array(estimates), output.measurements['fedsteer']


def test_without_a_core_set_the_estimate_is_made_of_clipped_sums_alone():
  updates = np.float32([[1, 2, 0], [0, 3, 1], [2, 0, 1], [-1, 0, 4]])
  longer = updates * np.float32([[1], [10], [3], [7]])  # Clipped to the same.
  first, metrics = _estimates(updates, core_set=())
  second, other_metrics = _estimates(longer, core_set=())
  np.testing.assert_allclose(second, first, rtol=1e-5)
  # The metrics come from norms as they are.
  assert (
    other_metrics['variance_estimate'] > 2 * metrics['variance_estimate'] > 0
  )


def test_with_a_core_set_the_estimate_has_coordinates_without_noise():
  updates = np.float32([[1, 2, 0], [0, 3, 1], [2, 0, 1], [-1, 0, 4]])
  longer = updates.copy()
  longer[2] *= 3  # Not a member of the core set.
  first, _ = _estimates(updates, core_set=(0, 1))
  second, _ = _estimates(longer, core_set=(0, 1))
  # The sums of clipped vectors, at most 4e-3 long, cannot make up for this.
  assert np.linalg.norm(second[1] - first[1]) > 0.1


@pytest.mark.parametrize(
  ('arguments', 'error', 'message'),
  [
    ((-0.5, 1.0), ValueError, 'noise_multiplier must be >= 0, found -0.5'),
    (('1', 1.0), TypeError, "noise_multiplier must be a number, found '1'"),
    ((1.0, 0.0), ValueError, 'clipping_norm must be > 0, found 0.0'),
    (
      (1.0, float('inf')),
      ValueError,
      'clipping_norm must be finite, found inf',
    ),
    (
      (1.0, 1.0, tff.aggregators.MeanFactory),
      TypeError,
      'sum_factory must be a tff.aggregators.UnweightedAggregationFactory, '
      f'found {tff.aggregators.MeanFactory!r}',
    ),
  ],
)
def test_a_wrong_argument_of_the_sum_is_named(arguments, error, message):
  with pytest.raises(error) as caught:
    aggregators.private_correction(*arguments)
  assert str(caught.value) == message


@pytest.mark.parametrize(
  ('arguments', 'error', 'message'),
  [
    (
      (0.0, 1, 0.1),
      ValueError,
      'noise_multiplier must be > 0, since without noise nothing is private, '
      'found 0.0',
    ),
    ((1.0, 0, 0.1), ValueError, 'num_rounds must be >= 1, found 0'),
    ((1.0, 1.5, 0.1), TypeError, 'num_rounds must be an integer, found 1.5'),
    ((1.0, 1, 1.0), ValueError, 'delta must be in (0, 1), found 1.0'),
    ((1.0, 1, True), TypeError, 'delta must be a number, found True'),
    (
      (1.0, 1, 0.1, [0.5, 0.0]),
      ValueError,
      'participation_probabilities must be numbers in (0, 1], found [0.5, 0.0]',
    ),
    (
      (1.0, 1, 0.1, []),
      ValueError,
      'participation_probabilities must be numbers in (0, 1], found []',
    ),
  ],
)
def test_a_wrong_argument_of_epsilon_is_named(arguments, error, message):
  with pytest.raises(error) as caught:
    aggregators.correction_epsilon(*arguments)
  assert str(caught.value) == message


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
