"""What `scripts.benchmark` measures; each suite is a function.

A suite takes the number of measured rounds (None for its default) and whether
sizes are to be tiny. It returns `headlines`, from what was measured to text,
and `raw`, every number.
"""

from scripts.benchmark_suites.aggregation import aggregation_suite
from scripts.benchmark_suites.aggregation import large_model_suite
from scripts.benchmark_suites.core_set import residual_suite
from scripts.benchmark_suites.core_set import selection_suite
from scripts.benchmark_suites.resources import import_suite
from scripts.benchmark_suites.resources import memory_one_size_suite
from scripts.benchmark_suites.resources import memory_suite
from scripts.benchmark_suites.resources import traffic_suite
from scripts.benchmark_suites.rounds import feed_suite
from scripts.benchmark_suites.rounds import population_suite
from scripts.benchmark_suites.rounds import round_suite

__all__ = [
  'aggregation_suite',
  'feed_suite',
  'import_suite',
  'large_model_suite',
  'memory_one_size_suite',
  'memory_suite',
  'population_suite',
  'residual_suite',
  'round_suite',
  'selection_suite',
  'traffic_suite',
]
