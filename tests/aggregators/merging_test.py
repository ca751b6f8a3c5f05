"""Tests of partial sums that are made apart and merged."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import numpy_oracle
from tests.aggregators import small_rounds

_DESIGNS = (
  'sketched_projection',
  'server_projection',
  'client_projection',
  'dense',
)


@pytest.fixture(name='merging', scope='module')
def _merging():
  """A context in which two executors get half of the clients each."""
  return tff.backends.native.create_mergeable_comp_execution_context(
    [
      tff.backends.native.create_async_local_cpp_execution_context()
      for _ in range(2)
    ]
  )


def _rounds():
  """Rounds of 8 reports, padded, without repetitions."""
  return [
    reports + [small_rounds.padding()] * (8 - len(reports))
    for reports in small_rounds.simulate(30, 4, empty=())
  ]


@pytest.mark.parametrize('factory', [None, 'sum'])
@pytest.mark.parametrize('design', _DESIGNS)
def test_merged_halves_equal_the_whole(merging, design, factory):
  parameters = {
    'aggregation': design,
    'estimator': 'stable',
    'correction_factory': factory,
  }
  process = small_rounds.build(**parameters)
  oracle = small_rounds.build_oracle(**parameters)
  state = process.initialize()
  for number, reports in enumerate(_rounds()):
    delta, metrics = oracle.aggregate(reports)
    with tff.framework.get_context_stack().install(merging):
      output = small_rounds.run(process, state, reports)
    small_rounds.check_round(output, oracle, delta, metrics, f'round {number}:')
    state = output.state


@pytest.mark.parametrize('factory', [None, 'sum'])
@pytest.mark.parametrize('design', _DESIGNS)
def test_a_client_in_both_halves_is_cached_once_and_counted(
  merging, design, factory
):
  parameters = {
    'aggregation': design,
    'estimator': 'stable',
    'correction_factory': factory,
    'core_set': (0, 1),
  }
  # Only where updates are listed can a merge leave one out of their sum.
  duplicates = 'counted'
  if design == 'dense':
    duplicates = 'mean'
  elif design == 'server_projection' and factory is None:
    duplicates = 'first'
  process = small_rounds.build(**parameters)
  oracle = small_rounds.build_oracle(duplicates, **parameters)
  rng = np.random.default_rng(0)
  state = process.initialize()
  for number in range(4):
    ids = [0, 1, 2, 3, 4, 0, 5, 6]  # Client 0 is in both halves.
    # It says the same in both, as which half comes first is not defined.
    updates = rng.normal(size=[7, small_rounds.DIMENSION])
    reports = [small_rounds.report(i, updates[i]) for i in ids]
    delta, metrics = oracle.aggregate(reports)
    with tff.framework.get_context_stack().install(merging):
      output = small_rounds.run(process, state, reports)
    small_rounds.check_round(output, oracle, delta, metrics, f'round {number}:')
    assert metrics['duplicate_clients'] == 1
    state = output.state


@pytest.mark.parametrize('factory', [None, 'sum'])
@pytest.mark.parametrize('design', _DESIGNS)
def test_repetitions_within_and_across_halves_are_all_counted(
  merging, design, factory
):
  process = small_rounds.build(
    aggregation=design,
    estimator='stable',
    correction_factory=factory,
    core_set=(0, 1),
  )
  update = np.arange(1.0, 13.0)
  # The same update each time: what is kept does not depend on the order.
  reports = [
    small_rounds.report(i, update * (i + 1)) for i in [0, 0, 1, 2, 0, 1, 1, 3]
  ]
  with tff.framework.get_context_stack().install(merging):
    output = small_rounds.run(process, process.initialize(), reports)
  metrics = output.measurements
  metrics = metrics['fedsteer'] if factory else metrics
  assert metrics['active_clients'] == 4
  assert metrics['duplicate_clients'] == 4
  assert metrics['core_clients_refreshed'] == 2
  state = small_rounds.core_state(output.state)
  error = numpy_oracle.relative_error(
    state['core_updates'], np.stack([update, 2 * update])
  )
  assert error <= 1e-6
  np.testing.assert_array_equal(state['last_seen'], [0, 0, 0, 0, -1, -1, -1])


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
