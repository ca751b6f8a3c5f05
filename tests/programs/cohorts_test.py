"""Tests for cohorts."""

import numpy as np
import pytest

from fedsteer_tff import participation
from fedsteer_tff.programs import cohorts


def _cohort(ids):
  return participation.Cohort(np.int32(ids), np.full(len(ids), 0.5))


def test_capacity_is_mean_plus_four_deviations_plus_forced():
  # 100 clients at 0.1: mean 10, deviation 3, so 10 + 12 + 5.
  assert cohorts.cohort_capacity(np.full(100, 0.1), num_forced=5) == 27


def test_capacity_is_at_most_the_population():
  assert cohorts.cohort_capacity(np.full(10, 0.9), num_forced=5) == 10
  assert cohorts.cohort_capacity(np.ones(10)) == 10


def test_two_group_cohorts_seldom_exceed_the_capacity():
  p = participation.two_group_probabilities(100, rate=0.1, skew=5.0)
  sampler = participation.BernoulliSampler(p, seed=0)
  sizes = [sampler.cohort(r).num_clients for r in range(1, 2001)]
  assert max(sizes) <= cohorts.cohort_capacity(p) <= 2.5 * np.mean(sizes)


def test_small_cohorts_are_filled_up_and_large_ones_are_not_cut():
  data = cohorts.CohortData(
    lambda client_id, p: (client_id, p), padding='nobody', capacity=2
  )
  assert data(_cohort([])) == ['nobody', 'nobody']
  assert data(_cohort([4])) == [(4, 0.5), 'nobody']
  assert data(_cohort([1, 2, 3])) == [(1, 0.5), (2, 0.5), (3, 0.5)]


def test_without_padding_the_size_is_the_cohort_s():
  data = cohorts.CohortData(lambda client_id, p: client_id)
  assert data(_cohort([])) == []
  assert data(_cohort([4, 7])) == [4, 7]


def test_a_negative_capacity_is_refused():
  with pytest.raises(ValueError, match='capacity must be .* found -1'):
    cohorts.CohortData(lambda client_id, p: client_id, capacity=-1)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
