"""Tests of FedSteer's aggregation against NumPy, in the real runtime."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from fedsteer_tff import aggregators
from tests import numpy_oracle
from tests.aggregators import small_rounds

_DESIGNS = (
  'sketched_projection',
  'server_projection',
  'client_projection',
  'dense',
)
_ESTIMATORS = ('paper', 'unbiased', 'stable')
# Rounds before the selection, with which every client has reported.
_ROUNDS = 8


@pytest.mark.parametrize('estimator', _ESTIMATORS)
@pytest.mark.parametrize('design', _DESIGNS)
def test_rounds_equal_numpy(design, estimator):
  small_rounds.run_against_oracle(
    small_rounds.simulate(1, _ROUNDS),
    # Cohorts of changing size in one of the three, padded ones in the others.
    pad_to=None if estimator == 'paper' else 8,
    aggregation=design,
    estimator=estimator,
  )


@pytest.mark.parametrize(
  'parameters',
  [
    {'client_weighting': 'examples'},
    {'client_weighting': 'examples', 'estimator': 'unbiased'},
    {'client_weighting': 'examples', 'estimator': 'stable'},
    {'reselect_every': 2},
    {'reselect_every': 1, 'aggregation': 'dense', 'estimator': 'stable'},
    {'core_eligibility': 'received'},
    {'core_eligibility': 'frequent'},
    {'reselect_every': 0},
    {'reselect_every': 3, 'aggregation': 'server_projection'},
    {'core_set_size': 4, 'estimator': 'stable'},
    {'core_set_size': 1, 'aggregation': 'server_projection'},
    {'core_set': (5, 0)},
    {'core_set': (5, 0), 'estimator': 'stable', 'aggregation': 'dense'},
    {'core_set': ()},
    {'core_set': (), 'estimator': 'stable'},
    {'sketch_size': 5},
    {'sketch_size': 5, 'sketch_seed': 3, 'aggregation': 'server_projection'},
    {'candidate_pool_size': 3},
    {'candidate_pool_size': 3, 'aggregation': 'dense', 'reselect_every': 2},
    {'core_set_size': 7, 'core_eligibility': 'received', 'ridge': 0.1},
    {'core_set_size': 1, 'warmup_rounds': 1},
    {'absolute_ridge': 0.7},
    {'absolute_ridge': 0.7, 'aggregation': 'client_projection'},
    {'correction_smoothing': 0.4},
    {'correction_weighting': 'self_normalized'},
    {'estimator': 'stable', 'coordinate_refresh': 'after_aggregation'},
  ],
  ids=str,
)
def test_every_parameter_does_what_numpy_says(parameters):
  weights = None
  if parameters.get('client_weighting') == 'examples':
    weights = small_rounds.EXAMPLES
  small_rounds.run_against_oracle(
    small_rounds.simulate(2, _ROUNDS, weights=weights),
    pad_to=8,
    **parameters,
  )


@pytest.mark.parametrize('design', _DESIGNS[:2])
def test_a_rare_client_gets_its_row_when_it_first_reports(design):
  # Everybody else looks the same, so that one row says it all.
  common = np.arange(1.0, 13.0)
  rare = np.where(np.arange(12) % 2, 40.0, -40.0)

  def round_of(ids, scale):
    return [
      small_rounds.report(i, rare if i == 6 else scale * (common + i))
      for i in ids
    ]

  rounds = [round_of(range(6), 1.0 + 0.1 * t) for t in range(4)]
  rounds += [round_of([1, 2, 6], 1.5), round_of([1, 2, 3], 1.6)]
  outputs = small_rounds.run_against_oracle(rounds, aggregation=design)
  states = [output.state for output in outputs]
  # The third round fills both slots at once, with what it brought.
  np.testing.assert_array_equal(states[1]['core_set'], [-1, -1])
  assert sorted(states[2]['core_round']) == [2, 2]
  assert 6 not in states[3]['core_set']
  slot = list(states[4]['core_set']).index(6)
  assert states[4]['core_round'][slot] == 4
  np.testing.assert_allclose(states[4]['core_updates'][slot], rare, rtol=1e-6)
  # It is explained from then on, though it stays away.
  estimate = states[5]['coordinates'][6] @ states[5]['core_updates']
  assert numpy_oracle.relative_error(estimate, rare) <= 0.05


@pytest.mark.parametrize(
  ('parameters', 'eligibility'),
  [
    ({}, 'reporting'),
    ({'aggregation': 'server_projection'}, 'reporting'),
    ({'aggregation': 'client_projection'}, 'frequent'),
    ({'aggregation': 'dense'}, 'frequent'),
    ({'correction_factory': tff.aggregators.SumFactory()}, 'frequent'),
    ({'core_eligibility': 'received'}, 'received'),
  ],
)
def test_clients_of_a_round_may_enter_where_their_updates_are_seen(
  parameters, eligibility
):
  factory = aggregators.FedSteerFactory(7, core_set_size=2, **parameters)
  assert factory.eligibility == eligibility


@pytest.mark.parametrize('weighting', ['known', 'examples'])
@pytest.mark.parametrize('estimator', _ESTIMATORS)
def test_empty_rounds_from_the_start_on(estimator, weighting):
  weights = small_rounds.EXAMPLES if weighting == 'examples' else None
  outputs = small_rounds.run_against_oracle(
    small_rounds.simulate(3, 6, weights=weights, empty=(0, 2, 5)),
    pad_to=8,
    estimator=estimator,
    client_weighting=weighting,
    core_set=(0, 1),
  )
  np.testing.assert_array_equal(
    small_rounds.flat(outputs[0].result), np.zeros(small_rounds.DIMENSION)
  )


@pytest.mark.parametrize('design', _DESIGNS)
def test_an_empty_round_applies_the_baseline(design):
  parameters = {'aggregation': design, 'core_set': (0, 1)}
  outputs = small_rounds.run_against_oracle(
    small_rounds.simulate(4, 4, empty=()), pad_to=8, **parameters
  )
  state = outputs[-1].state
  output = small_rounds.run(small_rounds.build(**parameters), state, [])
  wanted = state['baseline'] @ state['core_updates']
  error = numpy_oracle.relative_error(small_rounds.flat(output.result), wanted)
  assert error <= 1e-6
  for name in state:
    if name != 'round_num':
      np.testing.assert_array_equal(output.state[name], state[name])


@pytest.mark.parametrize('estimator', ['paper', 'stable'])
@pytest.mark.parametrize('design', _DESIGNS)
def test_bad_reports_are_dropped_counted_and_never_cached(design, estimator):
  rounds = small_rounds.simulate(5, 6, empty=())
  for number, bad in (
    (1, np.nan),
    (2, np.inf),
    (3, -np.inf),
    (4, 1e30),
    (5, None),
  ):
    reports = rounds[number]
    first = reports[0]
    if bad is None:
      reports[0] = small_rounds.report(first.client_id, first.update, np.nan)
      assert len(reports) > 1
      reports[1] = small_rounds.report(
        reports[1].client_id, reports[1].update, np.inf
      )
    else:
      update = first.update.copy()
      update[number] = bad
      reports[0] = small_rounds.report(first.client_id, update)
  # A finite number whose square is not is as bad for inner products.
  for r in rounds[4]:
    if np.max(np.abs(r.update)) > 1e20:
      r.update[:] = np.nan
  outputs = small_rounds.run_against_oracle(
    rounds,
    pad_to=8,
    aggregation=design,
    estimator=estimator,
    core_set=(0, 1),
  )
  counts = [int(o.measurements['nonfinite_clients']) for o in outputs]
  assert counts == [0, 1, 1, 1, 1, 2]
  for part in small_rounds.memory_of(outputs[-1].state):
    assert np.isfinite(part).all()


@pytest.mark.parametrize('design', _DESIGNS)
def test_an_update_with_an_infinite_square_is_dropped(design):
  rounds = small_rounds.simulate(5, 2, empty=())
  process = small_rounds.build(
    aggregation=design, estimator='paper', core_set=(0, 1)
  )
  state = small_rounds.run(process, process.initialize(), rounds[0]).state
  huge = small_rounds.report(0, np.full(small_rounds.DIMENSION, 1e30))
  output = small_rounds.run(process, state, [huge, *rounds[1][1:]])
  assert output.measurements['nonfinite_clients'] == 1
  for part in small_rounds.memory_of(output.state):
    assert np.isfinite(part).all()


@pytest.mark.parametrize('scale', [1e-15, 1e-12, 1e12])
@pytest.mark.parametrize('design', _DESIGNS)
def test_huge_and_tiny_updates_are_estimated_as_well(design, scale):
  rounds = small_rounds.simulate(6, 5, scale=scale, empty=())
  parameters = {'aggregation': design, 'core_set': (0, 1)}
  process = small_rounds.build(**parameters)
  oracle = small_rounds.build_oracle(**parameters)
  state = process.initialize()
  for reports in rounds:
    wanted, _ = oracle.aggregate(reports)
    padded = reports + [small_rounds.padding()] * (8 - len(reports))
    output = small_rounds.run(process, state, padded)
    state = output.state
    error = numpy_oracle.relative_error(
      small_rounds.flat(output.result), wanted
    )
    assert error <= 1e-5
    small_rounds.check_state(state, oracle)


def _with_duplicates(seed):
  """Rounds in which some clients report twice or three times, and those."""
  rounds = small_rounds.simulate(seed, 6, empty=())
  rng = np.random.default_rng(seed)
  repeated = []
  for reports in rounds:
    again = [
      small_rounds.report(r.client_id, rng.normal(size=len(r.update)))
      for r in (reports[0], reports[0], reports[-1])
    ]
    repeated.append([*reports, *again])
  return rounds, repeated


@pytest.mark.parametrize('estimator', ['paper', 'stable'])
@pytest.mark.parametrize('design', _DESIGNS[:3])
def test_of_duplicate_reports_the_first_is_used(design, estimator):
  once, repeated = _with_duplicates(7)
  parameters = {'aggregation': design, 'estimator': estimator}
  outputs = small_rounds.run_against_oracle(repeated, pad_to=10, **parameters)
  process = small_rounds.build(**parameters)
  state = process.initialize()
  for reports, output in zip(once, outputs):
    padded = reports + [small_rounds.padding()] * (8 - len(reports))
    wanted = small_rounds.run(process, state, padded)
    state = wanted.state
    # One more client does nothing, but may change the order of a sum.
    error = numpy_oracle.relative_error(
      small_rounds.flat(output.result), small_rounds.flat(wanted.result)
    )
    assert error <= 1e-5
    assert output.measurements['duplicate_clients'] == 3
    assert (
      output.measurements['active_clients']
      == wanted.measurements['active_clients']
    )


@pytest.mark.parametrize('estimator', _ESTIMATORS)
def test_of_duplicate_reports_dense_caches_the_mean(estimator):
  _, repeated = _with_duplicates(8)
  outputs = small_rounds.run_against_oracle(
    repeated,
    pad_to=10,
    duplicates='mean',
    aggregation='dense',
    estimator=estimator,
  )
  assert all(o.measurements['duplicate_clients'] == 3 for o in outputs)


@pytest.mark.parametrize('design', _DESIGNS)
@pytest.mark.parametrize('estimator', ['stable'])
def test_a_sum_factory_for_the_correction_equals_the_plain_sum(
  design, estimator
):
  small_rounds.run_against_oracle(
    small_rounds.simulate(9, 6),
    pad_to=8,
    aggregation=design,
    estimator=estimator,
    correction_factory='sum',
  )


@pytest.mark.parametrize('estimator', ['stable'])
@pytest.mark.parametrize('design', _DESIGNS)
def test_a_factory_for_the_correction_counts_duplicates(design, estimator):
  _, repeated = _with_duplicates(10)
  outputs = small_rounds.run_against_oracle(
    repeated,
    pad_to=10,
    duplicates='mean' if design == 'dense' else 'counted',
    aggregation=design,
    estimator=estimator,
    correction_factory='sum',
  )
  for output in outputs:
    assert output.measurements['fedsteer']['duplicate_clients'] == 3


@pytest.mark.parametrize('design', _DESIGNS)
def test_clipping_limits_the_correction_and_leaves_the_caches_raw(design):
  rounds = small_rounds.simulate(11, 5, empty=())
  parameters = {
    'aggregation': design,
    'core_set': (0, 1),
    'correction_factory': 'clipping',
  }
  process = small_rounds.build(**parameters)
  parameters['aggregation'] = design
  oracle = small_rounds.build_oracle(**parameters)
  state = process.initialize()
  for reports in rounds:
    basis, coordinates = oracle.basis.copy(), oracle.coordinates.copy()
    _, metrics = oracle.aggregate(reports)
    padded = reports + [small_rounds.padding()] * (8 - len(reports))
    output = small_rounds.run(process, state, padded)
    small_rounds.check_state(output.state, oracle)
    fresh = {r.client_id: oracle.coordinates[r.client_id] for r in reports}
    wanted = np.zeros(small_rounds.DIMENSION)
    clipped = 0
    residual = design in ('client_projection', 'dense')
    for r in reports:
      importance = r.weight / r.probability
      estimate = fresh[r.client_id] @ basis
      vector = importance * (r.update - residual * estimate)
      norm = np.linalg.norm(vector)
      clipped += norm > 1
      wanted += vector / max(norm, 1) - (not residual) * importance * estimate
      coordinates[r.client_id] = fresh[r.client_id]
    wanted += oracle.weight @ coordinates @ basis
    error = numpy_oracle.relative_error(
      small_rounds.flat(output.result), wanted
    )
    assert error <= 1e-5
    measurements = output.measurements
    assert measurements['fedsteer']['active_clients'] == len(reports)
    assert measurements['correction']['clipped_count'] == clipped
    np.testing.assert_allclose(
      measurements['fedsteer']['variance_estimate'],
      metrics['variance_estimate'],
      rtol=1e-4,
    )
    state = output.state


@pytest.mark.parametrize('design', _DESIGNS)
def test_padding_and_clients_of_weight_zero_are_ignored(design):
  process = small_rounds.build(aggregation=design, core_set=(0, 1))
  rounds = small_rounds.simulate(12, 2, empty=())
  state = small_rounds.run(process, process.initialize(), rounds[0]).state
  reports = rounds[1][:2]
  absent = 6
  assert absent not in [r.client_id for r in reports]
  nothing = small_rounds.report(absent, np.full(12, 5.0), weight=0.0)
  broken = small_rounds.report(absent, np.full(12, np.nan), weight=0.0)
  unknown = small_rounds.report(-1, np.full(12, np.nan), np.nan, np.nan)
  wanted = small_rounds.run(process, state, reports)
  found = small_rounds.run(
    process,
    state,
    [small_rounds.padding(), reports[0], nothing, unknown, reports[1], broken],
  )
  error = numpy_oracle.relative_error(
    small_rounds.flat(found.result), small_rounds.flat(wanted.result)
  )
  assert error <= 1e-6
  assert found.state['last_seen'][absent] == state['last_seen'][absent]
  for name, value in wanted.measurements.items():
    np.testing.assert_allclose(
      found.measurements[name], value, rtol=1e-6, err_msg=name
    )
  for one, other in zip(
    small_rounds.memory_of(found.state), small_rounds.memory_of(wanted.state)
  ):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


_WRONG_PROBABILITY = (
  'participation_probability must be in (0, 1] (where it is not known, NaN, the'
  ' process has to estimate it: see participation=), found'
)


@pytest.mark.parametrize('design', _DESIGNS)
@pytest.mark.parametrize(
  ('client_id', 'weight', 'probability', 'message'),
  [
    (7, 0.1, 0.5, 'client_id must be in [0, population_size=7), found'),
    (-2, 0.1, 0.5, 'client_id must be in [0, population_size=7), found'),
    (3, 0.1, 0.0, _WRONG_PROBABILITY),
    (3, 0.1, -0.5, _WRONG_PROBABILITY),
    (3, 0.1, 1.5, _WRONG_PROBABILITY),
    (3, 0.1, np.nan, _WRONG_PROBABILITY),
    (3, -0.1, 0.5, 'weight must be >= 0, found'),
  ],
)
def test_a_wrong_identity_is_an_error(
  design, client_id, weight, probability, message
):
  process = small_rounds.build(aggregation=design, core_set=(0, 1))
  bad = small_rounds.report(client_id, np.ones(12), weight, probability)
  with pytest.raises(Exception) as caught:  # noqa: B017
    small_rounds.run(process, process.initialize(), [bad])
  assert message in str(caught.value)


@pytest.mark.parametrize(('seed', 'scale'), [(20, 1e-3), (21, 1e3)])
@pytest.mark.parametrize('estimator', _ESTIMATORS)
@pytest.mark.parametrize('design', _DESIGNS)
def test_rescaling_all_updates_rescales_the_estimate(
  design, estimator, seed, scale
):
  process = small_rounds.build(aggregation=design, estimator=estimator)

  def run(factor):
    state = process.initialize()
    for reports in small_rounds.simulate(seed, 5, scale=factor):
      padded = reports + [small_rounds.padding()] * (8 - len(reports))
      output = small_rounds.run(process, state, padded)
      state = output.state
      yield small_rounds.flat(output.result), state

  for (before, state), (after, scaled_state) in zip(run(1.0), run(scale)):
    assert numpy_oracle.relative_error(after, scale * before) <= 1e-4
    np.testing.assert_array_equal(scaled_state['core_set'], state['core_set'])
    error = numpy_oracle.relative_error(
      scaled_state['coordinates'], state['coordinates']
    )
    assert error <= 1e-4
  assert (state['core_set'] >= 0).all()


@pytest.mark.parametrize('estimator', ['paper', 'stable'])
@pytest.mark.parametrize('design', _DESIGNS)
def test_the_order_of_the_cohort_does_not_matter(design, estimator):
  process = small_rounds.build(aggregation=design, estimator=estimator)
  states = [process.initialize(), process.initialize()]
  rng = np.random.default_rng(0)
  for reports in small_rounds.simulate(13, 6):
    padded = reports + [small_rounds.padding()] * (8 - len(reports))
    shuffled = [padded[i] for i in rng.permutation(8)]
    outputs = [
      small_rounds.run(process, state, cohort)
      for state, cohort in zip(states, (padded, shuffled))
    ]
    states = [output.state for output in outputs]
    error = numpy_oracle.relative_error(
      small_rounds.flat(outputs[1].result), small_rounds.flat(outputs[0].result)
    )
    assert error <= 1e-5
    np.testing.assert_array_equal(states[0]['core_set'], states[1]['core_set'])


def test_the_same_rounds_give_the_same_state_bit_for_bit():
  process = small_rounds.build(estimator='stable')
  states = []
  for _ in range(2):
    state = process.initialize()
    for reports in small_rounds.simulate(14, 4):
      padded = reports + [small_rounds.padding()] * (8 - len(reports))
      state = small_rounds.run(process, state, padded).state
    states.append(small_rounds.memory_of(state))
  for one, other in zip(*states):
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
  ('parameters', 'error', 'message'),
  [
    (
      {'population_size': 0},
      ValueError,
      'population_size must be >= 1, found 0',
    ),
    (
      {'population_size': 7.0},
      TypeError,
      'population_size must be an integer, found 7.0',
    ),
    (
      {'core_set_size': 8},
      ValueError,
      'core_set_size must be <= population_size=7, found 8',
    ),
    ({'core_set_size': 0}, ValueError, 'core_set_size must be >= 1, found 0'),
    (
      {'core_set_size': True},
      TypeError,
      'core_set_size must be an integer, found True',
    ),
    (
      {'core_set': (1, 1)},
      ValueError,
      'core_set ids must be distinct, found [1, 1]',
    ),
    (
      {'core_set': (1, 7)},
      ValueError,
      'core_set ids must be < population_size=7, found 7',
    ),
    ({'core_set': (-1,)}, ValueError, 'core_set ids must be >= 0, found -1'),
    (
      {'core_set': (0.5,)},
      TypeError,
      'core_set ids must be an integer, found 0.5',
    ),
    (
      {'core_set': 3},
      TypeError,
      'core_set must be a sequence of client ids, found 3',
    ),
    (
      {'core_set': (1,), 'reselect_every': 5},
      ValueError,
      'reselect_every must be 0 where core_set is given, found 5',
    ),
    (
      {'estimator': 'best'},
      ValueError,
      "estimator must be one of 'paper', 'unbiased', 'stable', found 'best'",
    ),
    (
      {'coordinate_refresh': 'later'},
      ValueError,
      "coordinate_refresh must be one of 'before_aggregation', "
      "'after_aggregation', found 'later'",
    ),
    (
      {'correction_weighting': 'none'},
      ValueError,
      "correction_weighting must be one of 'inverse_probability', "
      "'self_normalized', 'participant_mean', found 'none'",
    ),
    (
      {'correction_smoothing': 0.0},
      ValueError,
      'correction_smoothing must be in (0, 1], found 0.0',
    ),
    ({'ridge': -1.0}, ValueError, 'ridge must be finite and >= 0, found -1.0'),
    (
      {'absolute_ridge': float('inf')},
      ValueError,
      'absolute_ridge must be finite and >= 0, found inf',
    ),
    ({'warmup_rounds': 0}, ValueError, 'warmup_rounds must be >= 1, found 0'),
    (
      {'reselect_every': -1},
      ValueError,
      'reselect_every must be >= 0, found -1',
    ),
    (
      {'core_eligibility': 'all'},
      ValueError,
      "core_eligibility must be one of 'reporting', 'frequent', 'received', "
      "found 'all'",
    ),
    (
      {'core_eligibility': 'reporting', 'aggregation': 'dense'},
      ValueError,
      "core_eligibility='reporting' needs updates of single clients: "
      "aggregation must be one of 'sketched_projection', 'server_projection' "
      "and correction_factory None, found 'dense' and None",
    ),
    (
      {'client_weighting': 'equal'},
      ValueError,
      "client_weighting must be one of 'known', 'examples', found 'equal'",
    ),
    (
      {'aggregation': 'fast'},
      ValueError,
      "aggregation must be one of 'sketched_projection', "
      "'server_projection', 'client_projection', 'dense', found 'fast'",
    ),
    (
      {'sketch_size': 0},
      ValueError,
      'sketch_size must be >= 1, found 0',
    ),
    (
      {'sketch_seed': 0.5},
      TypeError,
      'sketch_seed must be an integer, found 0.5',
    ),
    (
      {'candidate_pool_size': 0},
      ValueError,
      'candidate_pool_size must be >= 1, found 0',
    ),
    (
      {'candidate_pool_size': 1},
      ValueError,
      'candidate_pool_size must be at least core_set_size=2, found 1',
    ),
    (
      {'correction_factory': tff.aggregators.MeanFactory},
      TypeError,
      'correction_factory must be a '
      'tff.aggregators.UnweightedAggregationFactory, found '
      f'{tff.aggregators.MeanFactory!r}',
    ),
  ],
  ids=lambda value: str(value) if isinstance(value, dict) else '',
)
def test_a_wrong_parameter_is_named(parameters, error, message):
  arguments = {'population_size': 7, 'core_set_size': 2, **parameters}
  with pytest.raises(error) as caught:
    aggregators.FedSteerFactory(**arguments)
  assert str(caught.value) == message


@pytest.mark.parametrize('integer', [np.int32, np.int64])
def test_integers_of_numpy_are_integers(integer):
  factory = aggregators.FedSteerFactory(
    population_size=integer(7), core_set=np.array([2, 5], integer)
  )
  assert factory.core_set == (2, 5)
  aggregators.FedSteerFactory(
    population_size=integer(7),
    core_set_size=integer(2),
    sketch_size=int(integer(5)),
    warmup_rounds=integer(3),
  )


@pytest.mark.parametrize(
  ('value', 'weight', 'message'),
  [
    (
      tff.TensorType(np.float32, [3]),
      small_rounds.WEIGHT_TYPE,
      'value_type must be <update=..., client_id=int32, '
      'participation_probability=float32>, found float32[3]',
    ),
    (
      small_rounds.value_type(client_id=tff.TensorType(np.int64)),
      small_rounds.WEIGHT_TYPE,
      'value_type.client_id must be int32, found int64',
    ),
    (
      small_rounds.value_type(
        participation_probability=tff.TensorType(np.float64)
      ),
      small_rounds.WEIGHT_TYPE,
      'value_type.participation_probability must be float32, found float64',
    ),
    (
      small_rounds.value_type(),
      tff.TensorType(np.int32),
      'weight_type must be float32, found int32',
    ),
    (
      small_rounds.value_type(tff.TensorType(np.int32, [3])),
      small_rounds.WEIGHT_TYPE,
      'value_type.update must have floating tensors of fixed shapes only, '
      'found int32[3]',
    ),
    (
      small_rounds.value_type(tff.TensorType(np.float32, [None])),
      small_rounds.WEIGHT_TYPE,
      'value_type.update must have floating tensors of fixed shapes only, '
      'found float32[?]',
    ),
    (
      small_rounds.value_type(tff.SequenceType(np.float32)),
      small_rounds.WEIGHT_TYPE,
      'value_type.update must be a structure of tensors, found float32*',
    ),
  ],
)
def test_a_wrong_type_is_named(value, weight, message):
  factory = aggregators.FedSteerFactory(7, core_set_size=2)
  with pytest.raises(aggregators.ValueTypeError) as caught:
    factory.create(value, weight)
  assert str(caught.value).startswith(message)
  assert isinstance(caught.value, TypeError)


def test_named_tensors_in_any_order_come_back_under_their_name():
  update_type = collections.OrderedDict(
    kernel=tff.TensorType(np.float32, [3]),
    bias=tff.TensorType(np.float32, [3]),
  )
  process = aggregators.FedSteerFactory(7, core_set=()).create(
    small_rounds.value_type(update_type), small_rounds.WEIGHT_TYPE
  )
  value = collections.OrderedDict(
    update=collections.OrderedDict(
      kernel=np.float32([1, 2, 3]), bias=np.float32([4, 5, 6])
    ),
    client_id=np.int32(0),
    participation_probability=np.float32(1),
  )
  output = process.next(process.initialize(), [value], [np.float32(1)])
  np.testing.assert_array_equal(output.result['kernel'], [1, 2, 3])
  np.testing.assert_array_equal(output.result['bias'], [4, 5, 6])


@pytest.mark.parametrize('update', [(), tff.TensorType(np.float32, [0])])
def test_a_model_without_weights_is_an_error(update):
  factory = aggregators.FedSteerFactory(7, core_set_size=2)
  with pytest.raises(ValueError, match='at least one trainable weight'):
    factory.create(small_rounds.value_type(update), small_rounds.WEIGHT_TYPE)


@pytest.mark.parametrize(
  'update_type',
  [
    tff.TensorType(np.float32, [12]),
    (tff.TensorType(np.float32, [2, 3]), tff.TensorType(np.float32, [6])),
    [('a', [np.float32, tff.TensorType(np.float32, [3])]), ('b', np.float32)],
    tff.TensorType(np.float64, [3]),
    tff.TensorType(np.float16, [3]),
  ],
  ids=str,
)
def test_the_result_has_the_type_of_the_update(update_type):
  value_type = small_rounds.value_type(update_type)
  process = aggregators.FedSteerFactory(7, core_set_size=2).create(
    value_type, small_rounds.WEIGHT_TYPE
  )
  result = process.next.type_signature.result.result.member
  assert result.is_equivalent_to(value_type.update), (result, update_type)


def test_aggregation_is_weighted():
  assert small_rounds.build(estimator='stable').is_weighted


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
