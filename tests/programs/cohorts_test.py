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
    lambda client_id, p: client_id, padding=-1, multiple=8
  )
  sizes = {len(data(sampler.cohort(round_num))) for round_num in range(1000)}
  assert sizes <= {8, 16, 24, 32}


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
