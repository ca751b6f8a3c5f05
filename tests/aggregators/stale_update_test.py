"""Tests of the aggregation that remembers every client's last update."""

import collections
import functools
import itertools

import numpy as np
import pytest
import tensorflow_federated as tff

from fedsteer_tff import aggregators
from tests import numpy_oracle
from tests.aggregators import small_rounds

_METHODS = {
  'fedvarp': {},
  'fedstale': {'beta': 0.6},
  'mifa': {'update_refresh': 'before_aggregation'},
}


@functools.cache
def _build(method, items=()):
  factory = aggregators.StaleUpdateFactory(
    small_rounds.NUM_CLIENTS, **_METHODS[method], **dict(items)
  )
  return factory.create(small_rounds.value_type(), small_rounds.WEIGHT_TYPE)


def _oracle(method, **parameters):
  return numpy_oracle.LastUpdates(
    small_rounds.NUM_CLIENTS,
    small_rounds.DIMENSION,
    method=method,
    beta=_METHODS[method].get('beta', 1.0),
    **parameters,
  )


def _check(output, oracle, delta, metrics, where):
  error = numpy_oracle.relative_error(small_rounds.flat(output.result), delta)
  assert error <= 1e-5, (where, error)
  assert set(output.measurements) == set(metrics)
  for name, wanted in metrics.items():
    np.testing.assert_allclose(
      output.measurements[name], wanted, rtol=1e-4, atol=1e-6, err_msg=name
    )
  state = output.state
  error = numpy_oracle.relative_error(state['updates'], oracle.memory)
  assert error <= 1e-6, (where, error)
  np.testing.assert_array_equal(state['last_seen'], oracle.last_seen)
  np.testing.assert_allclose(state['client_weight'], oracle.weight, rtol=1e-6)
  assert state['round_num'] == oracle.round_num


def _run(method, rounds, **parameters):
  """Runs rounds in both; `parameters` have the factory's names."""
  names = {
    'correction_weighting': 'weighting',
    'correction_smoothing': 'smoothing',
  }
  oracle = _oracle(
    method, **{names.get(k, k): v for k, v in parameters.items()}
  )
  process = _build(method, tuple(sorted(parameters.items())))
  state = process.initialize()
  for number, reports in enumerate(rounds):
    delta, metrics = oracle.aggregate(reports)
    output = small_rounds.run(process, state, reports)
    _check(output, oracle, delta, metrics, f'round {number}')
    state = output.state


@pytest.mark.parametrize('method', _METHODS)
def test_rounds_equal_numpy(method):
  _run(method, small_rounds.simulate(0, 8))


@pytest.mark.parametrize(
  'parameters',
  [
    {'correction_weighting': 'self_normalized', 'correction_smoothing': 0.3},
    {'correction_weighting': 'self_normalized'},
    {'correction_weighting': 'participant_mean'},
    {'correction_smoothing': 0.5},
  ],
)
def test_other_corrections_equal_numpy(parameters):
  _run('fedvarp', small_rounds.simulate(1, 8), **parameters)


@pytest.mark.parametrize('method', _METHODS)
def test_examples_as_weights_equal_numpy(method):
  rounds = small_rounds.simulate(2, 6, weights=small_rounds.EXAMPLES)
  _run(method, rounds, client_weighting='examples')


@pytest.mark.parametrize('method', _METHODS)
def test_empty_rounds_from_the_start_on(method):
  _run(method, small_rounds.simulate(3, 4, empty=(0, 1, 3)))


@pytest.mark.parametrize('method', _METHODS)
def test_bad_reports_are_dropped_counted_and_never_cached(method):
  rounds = small_rounds.simulate(4, 4, empty=())
  rounds[1] += [
    small_rounds.report(0, np.full(12, np.nan)),
    small_rounds.report(1, np.full(12, np.inf)),
    small_rounds.report(2, np.ones(12), weight=np.nan),
    small_rounds.report(3, np.full(12, 1e3), weight=0.0),
    small_rounds.padding(),
  ]
  # A second report of a client is counted, and the first one used.
  rounds[2].append(rounds[2][0])
  rounds[2][-1] = small_rounds.report(rounds[2][0].client_id, np.full(12, 1e3))
  _run(method, rounds)


@pytest.mark.parametrize(
  ('name', 'tolerance'), [('b_step_1_f64', 1e-5), ('b_step_1_f32', 1e-5)]
)
@pytest.mark.parametrize('method', ['fedvarp', 'fedstale', 'mifa', 'fedavg'])
def test_the_published_step(method, name, tolerance):
  golden = numpy_oracle.golden(name)
  population, dimension = golden['H'].shape
  # Its factor of FedStale is 1 for all who ever took part, so that it is
  # FedVARP there, and 0 for those whose remembered update is 0 anyway.
  assert set(golden['beta']) == {0.0, 1.0}
  assert not golden['H'][golden['beta'] == 0].any()
  if method == 'fedavg':
    factory = aggregators.InverseProbabilityFactory(population)
  else:
    parameters = {**_METHODS[method], 'beta': 1.0}
    factory = aggregators.StaleUpdateFactory(population, **parameters)
  process = factory.create(
    small_rounds.value_type([tff.TensorType(np.float32, [dimension])]),
    small_rounds.WEIGHT_TYPE,
  )
  state = collections.OrderedDict(process.initialize())
  if method != 'fedavg':
    state.update(
      updates=np.float32(golden['H']),
      client_weight=np.float32(golden['d']),
      last_seen=np.zeros(population, np.int32),
      weight_seen=np.float64(1.0),
      clients_seen=np.int32(population),
    )
  values = [
    collections.OrderedDict(
      update=[np.float32(golden['G'][i])],
      client_id=np.int32(i),
      participation_probability=np.float32(golden['p'][i]),
    )
    for i in golden['active']
  ]
  weights = [np.float32(golden['d'][i]) for i in golden['active']]
  output = process.next(state, values, weights)
  # The server takes the estimate off its weights.
  found = golden['w0'] - np.asarray(output.result[0], float)
  error = numpy_oracle.relative_error(found, golden[f'w_{method}'])
  assert error <= tolerance


_SUBSETS = [
  members
  for size in range(4)
  for members in itertools.combinations(range(3), size)
]


@functools.cache
def _all_active_sets(kind, weighting):
  """Returns every Delta over the active sets of 3 clients, with its chance."""
  if kind == 'average':
    factory = aggregators.InverseProbabilityFactory(
      3, correction_weighting=weighting
    )
  else:
    factory = aggregators.StaleUpdateFactory(
      3, correction_weighting=weighting, **_METHODS[kind]
    )
  process = factory.create(
    small_rounds.value_type([tff.TensorType(np.float32, [4])]),
    small_rounds.WEIGHT_TYPE,
  )
  rng = np.random.default_rng(5)
  d, p = np.float32([0.5, 0.3, 0.2]), np.float32([0.8, 0.5, 0.25])
  old, new = np.float32(rng.normal(size=[2, 3, 4]))

  def run(state, members, updates):
    values = [
      collections.OrderedDict(
        update=[updates[i]],
        client_id=np.int32(i),
        participation_probability=p[i],
      )
      for i in members
    ]
    return process.next(state, values, [d[i] for i in members])

  state = run(process.initialize(), range(3), old).state
  outcomes = []
  for members in _SUBSETS:
    chance = np.prod(
      [p[i].astype(float) if i in members else 1 - p[i] for i in range(3)]
    )
    delta = np.asarray(run(state, members, new).result[0], float)
    outcomes.append((members, chance, delta))
  d, p, old, new = (array.astype(float) for array in (d, p, old, new))
  return outcomes, d, p, old, new


def _expectation(outcomes):
  assert abs(sum(chance for _, chance, _ in outcomes) - 1) < 1e-9
  return sum(chance * delta for _, chance, delta in outcomes)


@pytest.mark.parametrize('kind', ['fedvarp', 'fedstale', 'average'])
def test_inverse_probability_weights_are_unbiased(kind):
  outcomes, d, _, _, new = _all_active_sets(kind, 'inverse_probability')
  error = numpy_oracle.relative_error(_expectation(outcomes), d @ new)
  assert error <= 1e-6


def test_the_expectation_of_mifa_is_its_formula():
  outcomes, d, p, old, new = _all_active_sets('mifa', 'inverse_probability')
  wanted = (d * p) @ new + (d * (1 - p)) @ old
  assert numpy_oracle.relative_error(_expectation(outcomes), wanted) <= 1e-6
  # Which is not the mean of the updates.
  assert numpy_oracle.relative_error(wanted, d @ new) > 0.1


@pytest.mark.parametrize('weighting', ['self_normalized', 'participant_mean'])
def test_the_expectation_of_a_mean_of_participants_is_its_formula(weighting):
  outcomes, d, p, old, new = _all_active_sets('average', weighting)
  w = d / p if weighting == 'self_normalized' else d
  factors = np.zeros(3)
  nobody = 0.0
  for members, chance, _ in outcomes:
    for i in members:
      factors[i] += chance * (w / d)[i] / sum(w[j] for j in members)
    if not members and weighting == 'self_normalized':
      nobody = chance
  # A round of nobody repeats the first round's estimate, which had everybody.
  first = w @ old / np.sum(w)
  wanted = (d * factors) @ new + nobody * first
  assert numpy_oracle.relative_error(_expectation(outcomes), wanted) <= 1e-6
  assert numpy_oracle.relative_error(wanted, d @ new) > 0.01


def test_without_trust_it_is_the_inverse_probability_average():
  stale = aggregators.StaleUpdateFactory(small_rounds.NUM_CLIENTS, beta=0.0)
  plain = aggregators.InverseProbabilityFactory(small_rounds.NUM_CLIENTS)
  processes = [
    factory.create(small_rounds.value_type(), small_rounds.WEIGHT_TYPE)
    for factory in (stale, plain)
  ]
  states = [process.initialize() for process in processes]
  for reports in small_rounds.simulate(6, 4):
    outputs = [
      small_rounds.run(process, state, reports)
      for process, state in zip(processes, states)
    ]
    states = [output.state for output in outputs]
    found, wanted = (small_rounds.flat(output.result) for output in outputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_mifa_does_not_depend_on_the_probabilities():
  reports = small_rounds.simulate(7, 1, empty=())[0]
  rare = [
    small_rounds.report(r.client_id, r.update, probability=1e-6)
    for r in reports
  ]
  process = _build('mifa')
  deltas = [
    small_rounds.flat(
      small_rounds.run(process, process.initialize(), one).result
    )
    for one in (reports, rare)
  ]
  np.testing.assert_array_equal(deltas[0], deltas[1])


@pytest.mark.parametrize('method', _METHODS)
def test_one_huge_update_is_forgotten_with_the_next_of_its_client(method):
  process = _build(method)
  state = process.initialize()
  everyone = range(small_rounds.NUM_CLIENTS)

  def run(state, size):
    reports = [
      small_rounds.report(i, np.full(12, size if i == 0 else 1.0), None, 1.0)
      for i in everyone
    ]
    return small_rounds.run(process, state, reports)

  for size in (1e17, 1.0, 1.0):
    output = run(state, size)
    state = output.state
  np.testing.assert_allclose(small_rounds.flat(output.result), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
  ('parameters', 'error', 'message'),
  [
    ({'population_size': 0}, ValueError, 'population_size must be >= 1'),
    ({'beta': 1.5}, ValueError, r'beta must be in \[0, 1\], found 1.5'),
    ({'beta': float('nan')}, ValueError, r'beta must be in \[0, 1\]'),
    ({'beta': '1'}, TypeError, "beta must be a number, found '1'"),
    ({'update_refresh': 'x'}, ValueError, 'update_refresh must be one of'),
    (
      {'correction_weighting': 'x'},
      ValueError,
      'correction_weighting must be one of',
    ),
    (
      {'correction_smoothing': 0.0},
      ValueError,
      r'correction_smoothing must be in \(0, 1\]',
    ),
    ({'client_weighting': 'x'}, ValueError, 'client_weighting must be one of'),
  ],
)
def test_a_wrong_parameter_is_named(parameters, error, message):
  with pytest.raises(error, match=message):
    aggregators.StaleUpdateFactory(**{'population_size': 3, **parameters})


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
