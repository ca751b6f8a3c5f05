"""Tests of aggregators that estimate participation, in the real runtime."""

import functools

import numpy as np
import pytest

from fedsteer_tff import aggregators
from fedsteer_tff import participation
from fedsteer_tff.aggregators import probability_estimates
from tests import numpy_oracle
from tests import participation_oracle
from tests.aggregators import small_rounds

# Weights are applied on the clients, on the way and on the server.
_DESIGNS = ('sketched_projection', 'server_projection', 'dense')
_FREQUENCY = participation.RunningFrequency(0.5, prior_rounds=3.0)
_WINDOWED = participation.WindowedFrequency(
  0.4, window=5.0, prior_rounds=2.0, floor=0.3
)
_INTERVAL = participation.IntervalEstimate(cutoff=3)
_GROWING = participation.RunningFrequency(
  0.4, prior_rounds=3.0, population='growing'
)
_METRICS = (
  'participation_absolute_error',
  'participation_relative_error',
  'participation_standard_error',
  'participation_relative_standard_error',
  'participation_expected_clients',
)


class _Server:
  """What an estimator adds to NumPy's servers."""

  def start(self, estimator, population_size=small_rounds.NUM_CLIENTS):
    """Starts without rounds; returns the server."""
    self.estimates = participation_oracle.Estimates(estimator, population_size)
    return self

  def aggregate(self, reports):
    """Aggregates with estimates in place of what clients report."""
    usable = {}
    for r in reports:
      counts = r.client_id >= 0 and r.weight > 0 and np.isfinite(r.weight)
      if counts and np.isfinite(r.update).all():
        usable.setdefault(r.client_id, r)
    used = self.estimates.observe(
      list(usable),
      [i for i, r in usable.items() if r.probability == 1],
      {i: r.weight for i, r in usable.items()},
    )
    replaced = [
      numpy_oracle.Report(
        r.client_id, r.update, r.weight, used.get(r.client_id, 1.0)
      )
      for r in reports
    ]
    return super().aggregate(replaced)

  def _population_weight(self):
    if self.known_weights or self.estimates.estimator.population == 'fixed':
      return super()._population_weight()
    return max(np.mean(self.estimates.weights_drawn), np.sum(self.weight))


class _FedSteer(_Server, numpy_oracle.FedSteer):
  """Selects by the estimates of the round in which it does."""

  def _targets(self):
    for place, (client_id, sketch, _) in self.pool.items():
      estimate = self.estimates.estimate(client_id)
      self.pool[place] = (client_id, sketch, estimate)
    return super()._targets()


class _LastUpdates(_Server, numpy_oracle.LastUpdates):
  """FedVARP, FedStale and MIFA."""


def _run(estimator, rounds, /, *, duplicates='first', **parameters):
  """Runs FedSteer in both and compares; returns the outputs."""
  process = small_rounds.build(participation=estimator, **parameters)
  oracle = small_rounds.build_oracle(
    duplicates, oracle_class=_FedSteer, **parameters
  ).start(estimator)
  state = process.initialize()
  outputs = []
  for number, reports in enumerate(rounds):
    delta, metrics = oracle.aggregate(reports)
    padded = reports + [small_rounds.padding()] * (10 - len(reports))
    output = small_rounds.run(process, state, padded)
    state = output.state
    core_metrics = output.measurements
    if 'fedsteer' in core_metrics:
      core_metrics = core_metrics['fedsteer']
    metrics.update((name, core_metrics[name]) for name in _METRICS)
    small_rounds.check_round(output, oracle, delta, metrics, f'round {number}:')
    found = probability_estimates.estimated_probabilities(
      estimator, small_rounds.core_state(state)
    )
    np.testing.assert_allclose(found, oracle.estimates.estimates(), rtol=1e-5)
    outputs.append(output)
  return outputs


@pytest.mark.parametrize(
  ('design', 'estimator', 'rule'),
  [
    *((design, _FREQUENCY, 'stable') for design in _DESIGNS),
    ('sketched_projection', _WINDOWED, 'paper'),
    ('server_projection', _INTERVAL, 'unbiased'),
    ('client_projection', _INTERVAL, 'paper'),
    ('dense', _WINDOWED, 'unbiased'),
  ],
)
def test_rounds_equal_numpy(design, estimator, rule):
  _run(
    estimator,
    small_rounds.simulate(31, 7, empty=(2, 5)),
    aggregation=design,
    estimator=rule,
  )


@pytest.mark.parametrize(
  'parameters',
  [
    {'correction_factory': 'sum'},
    {'correction_factory': 'sum', 'aggregation': 'server_projection'},
    {'correction_weighting': 'participant_mean'},
    {'core_set': (), 'aggregation': 'client_projection'},
    {'reselect_every': 1, 'core_eligibility': 'received'},
  ],
  ids=str,
)
def test_other_ways_of_weighting_equal_numpy(parameters):
  _run(_FREQUENCY, small_rounds.simulate(32, 6), **parameters)


@pytest.mark.parametrize(
  ('estimator', 'rule'), [(_FREQUENCY, 'paper'), (_GROWING, 'stable')]
)
def test_examples_as_weights_equal_numpy(estimator, rule):
  rounds = small_rounds.simulate(33, 7, weights=small_rounds.EXAMPLES)
  _run(estimator, rounds, estimator=rule, client_weighting='examples')


@functools.cache
def _stale(items):
  factory = aggregators.StaleUpdateFactory(
    small_rounds.NUM_CLIENTS, **dict(items)
  )
  return factory.create(small_rounds.value_type(), small_rounds.WEIGHT_TYPE)


@pytest.mark.parametrize(
  ('method', 'parameters', 'estimator'),
  [
    ('fedvarp', {}, _FREQUENCY),
    ('fedstale', {'beta': 0.6}, _WINDOWED),
    ('mifa', {'update_refresh': 'before_aggregation'}, _INTERVAL),
  ],
)
def test_methods_that_remember_every_update_equal_numpy(
  method, parameters, estimator
):
  process = _stale(tuple({**parameters, 'participation': estimator}.items()))
  oracle = _LastUpdates(
    small_rounds.NUM_CLIENTS,
    small_rounds.DIMENSION,
    method=method,
    beta=parameters.get('beta', 1.0),
  ).start(estimator)
  state = process.initialize()
  for reports in small_rounds.simulate(34, 7, empty=(0, 4)):
    delta, metrics = oracle.aggregate(reports)
    output = small_rounds.run(process, state, reports)
    state = output.state
    error = numpy_oracle.relative_error(small_rounds.flat(output.result), delta)
    assert error <= 1e-5
    assert set(output.measurements) == {*metrics, *_METRICS}
    for name, wanted in metrics.items():
      np.testing.assert_allclose(
        output.measurements[name], wanted, rtol=1e-4, atol=1e-6, err_msg=name
      )


def _with_probability(reports, value):
  return [
    small_rounds.report(r.client_id, r.update, r.weight, value) for r in reports
  ]


@pytest.mark.parametrize('design', _DESIGNS)
def test_clients_need_not_know_their_probability(design):
  process = small_rounds.build(
    aggregation=design, participation=_FREQUENCY, estimator='stable'
  )
  states = [process.initialize()] * 2
  for reports in small_rounds.simulate(35, 4):
    told = reports + [small_rounds.padding()] * (8 - len(reports))
    silent = _with_probability(reports, np.nan)
    silent += [small_rounds.padding()] * (8 - len(reports))
    told, silent = (
      small_rounds.run(process, state, cohort)
      for state, cohort in zip(states, (told, silent))
    )
    states = [told.state, silent.state]
    for one, other in zip(*map(small_rounds.memory_of, states)):
      np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
      small_rounds.flat(told.result),
      small_rounds.flat(silent.result),
      rtol=1e-5,
      atol=1e-6,
    )
    for name in _METRICS:
      if 'absolute_error' in name or 'relative_error' in name:
        assert np.isnan(silent.measurements[name])
        assert np.isfinite(told.measurements[name]) == bool(reports)
      else:
        np.testing.assert_allclose(
          silent.measurements[name], told.measurements[name], rtol=1e-5
        )


@pytest.mark.parametrize('design', _DESIGNS)
def test_forced_clients_count_once_and_teach_nothing(design):
  rounds = small_rounds.simulate(36, 6, empty=())
  for number, reports in enumerate(rounds):
    rounds[number] = [
      small_rounds.report(
        r.client_id, r.update, r.weight, 1.0 if number % 2 else r.probability
      )
      if r.client_id < 2
      else r
      for r in reports
    ]
  assert sum(r.probability == 1 for r in rounds[1] + rounds[3]) >= 2
  _run(_FREQUENCY, rounds, aggregation=design, estimator='stable')


@pytest.mark.parametrize('design', _DESIGNS)
def test_who_is_dropped_did_not_take_part_and_who_repeats_did_once(design):
  rounds = small_rounds.simulate(37, 4, empty=())
  first = rounds[1][0]
  rounds[1][0] = small_rounds.report(first.client_id, np.full(12, np.nan))
  rounds[2].append(
    small_rounds.report(
      rounds[2][0].client_id, rounds[2][0].update, rounds[2][0].weight
    )
  )
  nobody = next(
    i for i in range(7) if i not in [r.client_id for r in rounds[3]]
  )
  rounds[3].append(small_rounds.report(nobody, np.ones(12), weight=0.0))
  outputs = _run(
    _FREQUENCY,
    rounds,
    duplicates='mean' if design == 'dense' else 'first',
    aggregation=design,
    estimator='stable',
  )
  taken = np.array(
    [output.state['participation']['taken'] for output in outputs]
  )
  change = np.diff(taken, axis=0)
  assert change[0][first.client_id] == 0
  assert change[1][rounds[2][0].client_id] == 1
  assert change[2][nobody] == 0
  assert outputs[1].measurements['nonfinite_clients'] == 1
  assert outputs[2].measurements['duplicate_clients'] == 1


def _run_with_capacity(capacity, estimator, rounds, /, **parameters):
  process = small_rounds.build(
    population_size=capacity, participation=estimator, **parameters
  )
  state = process.initialize()
  for reports in rounds:
    padded = reports + [small_rounds.padding()] * (8 - len(reports))
    output = small_rounds.run(process, state, padded)
    state = output.state
    yield output


@pytest.mark.slow
@pytest.mark.parametrize(
  ('weighting', 'estimator', 'rule'),
  [
    ('known', _FREQUENCY, 'stable'),
    ('known', _INTERVAL, 'stable'),
    ('examples', _GROWING, 'paper'),
  ],
)
def test_places_for_clients_that_never_come_change_nothing(
  weighting, estimator, rule
):
  weights = small_rounds.EXAMPLES if weighting == 'examples' else None
  rounds = small_rounds.simulate(38, 6, weights=weights)
  parameters = {
    'client_weighting': weighting,
    'estimator': rule,
    'warmup_rounds': 2,
  }
  size = small_rounds.NUM_CLIENTS
  for output, wanted in zip(
    _run_with_capacity(50, estimator, rounds, **parameters),
    _run_with_capacity(size, estimator, rounds, **parameters),
  ):
    np.testing.assert_allclose(
      small_rounds.flat(output.result),
      small_rounds.flat(wanted.result),
      rtol=1e-5,
      atol=1e-6,
    )
    found, expected = output.state, wanted.state
    np.testing.assert_array_equal(found['core_set'], expected['core_set'])
    np.testing.assert_allclose(
      found['baseline'], expected['baseline'], rtol=1e-5, atol=1e-7
    )
    for name, part in expected['participation'].items():
      kept = found['participation'][name]
      np.testing.assert_array_equal(kept[:size] if part.shape else kept, part)
    for name, value in wanted.measurements.items():
      if name == 'participation_expected_clients':
        if estimator.population == 'fixed':
          continue
      np.testing.assert_allclose(
        output.measurements[name], value, rtol=1e-4, atol=1e-6, err_msg=name
      )


def test_a_client_that_joins_late_enters_with_the_prior_and_then_its_own():
  process = small_rounds.build(participation=_GROWING, core_set=())
  state = process.initialize()
  old, new = 0, 6

  def delta(state, ids):
    cohort = [small_rounds.report(i, np.full(12, 1.0 + i)) for i in ids]
    output = small_rounds.run(process, state, cohort)
    return output.state, small_rounds.flat(output.result)

  for _ in range(20):
    state, _ = delta(state, [old])
  # (3 * 0.4 + 19 of 19 and this one) / (3 + 20).
  weight = float(small_rounds.SHARES[old]) * 23 / 21.2
  _, found = delta(state, [old])
  np.testing.assert_allclose(found, weight, rtol=1e-5)
  state, found = delta(state, [new])
  np.testing.assert_allclose(
    found, 7 * float(small_rounds.SHARES[new]) / 0.4, rtol=1e-5
  )
  state, found = delta(state, [new])
  np.testing.assert_allclose(
    found, 7 * float(small_rounds.SHARES[new]) * 4 / 2.2, rtol=1e-5
  )


def test_a_probability_that_is_not_known_is_an_error_where_it_is_needed():
  process = small_rounds.build(core_set=(0, 1))
  bad = small_rounds.report(3, np.ones(12), 0.1, np.nan)
  with pytest.raises(Exception, match='participation_probability must be in'):
    small_rounds.run(process, process.initialize(), [bad])


@pytest.mark.parametrize('probability', [0.0, -0.5, 1.5, np.inf])
def test_a_wrong_probability_is_an_error_where_it_is_estimated(probability):
  process = small_rounds.build(core_set=(0, 1), participation=_FREQUENCY)
  bad = small_rounds.report(3, np.ones(12), 0.1, probability)
  with pytest.raises(Exception, match='participation_probability must be in'):
    small_rounds.run(process, process.initialize(), [bad])


@pytest.mark.parametrize(
  'factory',
  [
    aggregators.FedSteerFactory,
    aggregators.InverseProbabilityFactory,
    aggregators.StaleUpdateFactory,
  ],
)
def test_a_wrong_participation_is_named(factory):
  with pytest.raises(ValueError, match="participation must be 'known' or one"):
    factory(12, participation='frequency')
  with pytest.raises(TypeError, match="participation must be 'known' or one"):
    factory(12, participation=participation.RunningFrequency)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
