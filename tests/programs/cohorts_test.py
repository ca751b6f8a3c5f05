"""Tests for cohorts."""

import numpy as np
import pytest

from fedsteer_tff import participation
from fedsteer_tff.programs import cohorts


def _cohort(ids):
  return participation.Cohort(np.int32(ids), np.full(len(ids), 0.5))


def test_cohorts_are_filled_up_to_the_next_multiple():
  data = cohorts.CohortData(
    lambda client_id, p: (client_id, p), padding='nobody', multiple=2
  )
  assert data(_cohort([4])) == [(4, 0.5), 'nobody']
  assert data(_cohort([1, 2])) == [(1, 0.5), (2, 0.5)]
  assert data(_cohort([1, 2, 3]))[3:] == ['nobody']


def test_an_empty_cohort_is_filled_up_too():
  data = cohorts.CohortData(
    lambda client_id, p: client_id, padding='nobody', multiple=3
  )
  assert data(_cohort([])) == ['nobody'] * 3


def test_bernoulli_cohorts_come_in_few_sizes():
  p = participation.two_group_probabilities(100, rate=0.1, skew=5.0)
  sampler = participation.BernoulliSampler(p, seed=0)
  data = cohorts.CohortData(
    lambda client_id, p: client_id,
    padding=-1,
    multiple=cohorts.cohort_multiple(p),
  )
  sizes = {len(data(sampler.cohort(round_num))) for round_num in range(1000)}
  assert sizes == {11, 22}


@pytest.mark.parametrize(
  ('probabilities', 'multiple'),
  [
    # Mean 10, deviation 2.83: 21.3 is nearly 2 times 4 deviations.
    (participation.two_group_probabilities(100, rate=0.1, skew=5.0), 11),
    # Mean 100, deviation 9.5: 137.9 is nearly 4 times 37.9.
    ([0.1] * 1000, 35),
    # Mean 50, deviation 5: 70 is 3.5 times 20, and 4 is even.
    ([0.5] * 100, 18),
    # All clients, of whom there are fewer than the mean and 4 deviations.
    ([0.5] * 4, 4),
    ([1.0] * 7, 7),
    # Mean 0.01: largest cohorts of 0.41 clients.
    ([0.001] * 10, 1),
  ],
)
def test_the_multiple_covers_most_cohorts_with_two_or_three_sizes(
  probabilities, multiple
):
  assert cohorts.cohort_multiple(probabilities) == multiple


@pytest.mark.parametrize('rate', [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize('num_clients', [10, 100, 3000])
def test_the_sizes_of_bernoulli_cohorts_are_three_at_most(num_clients, rate):
  multiple = cohorts.cohort_multiple([rate] * num_clients)
  drawn = np.random.default_rng(0).binomial(num_clients, rate, 2000)
  filled = {size + cohorts.num_padding(int(size), multiple) for size in drawn}
  assert 1 <= multiple <= num_clients
  assert len(filled) <= 3


def test_without_padding_the_size_is_the_cohort_s():
  data = cohorts.CohortData(lambda client_id, p: client_id)
  assert data(_cohort([])) == []
  assert data(_cohort([4, 7])) == [4, 7]


@pytest.mark.parametrize('multiple', [0, -1, 1.5])
def test_a_multiple_below_one_is_refused(multiple):
  with pytest.raises(ValueError, match='multiple must be .* found'):
    cohorts.CohortData(lambda client_id, p: client_id, multiple=multiple)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
