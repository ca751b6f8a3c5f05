"""Who takes part: the population, its probabilities and each round's cohort."""

from fedsteer_tff.participation.estimates import IntervalEstimate
from fedsteer_tff.participation.estimates import RunningFrequency
from fedsteer_tff.participation.estimates import WindowedFrequency
from fedsteer_tff.participation.population import Population
from fedsteer_tff.participation.probabilities import two_group_probabilities
from fedsteer_tff.participation.probabilities import uniform_probabilities
from fedsteer_tff.participation.sampler import BernoulliSampler
from fedsteer_tff.participation.sampler import Cohort
from fedsteer_tff.participation.sampler import draw
from fedsteer_tff.participation.sampler import overdue_core_clients

__all__ = [
  'BernoulliSampler',
  'Cohort',
  'IntervalEstimate',
  'Population',
  'RunningFrequency',
  'WindowedFrequency',
  'draw',
  'overdue_core_clients',
  'two_group_probabilities',
  'uniform_probabilities',
]
