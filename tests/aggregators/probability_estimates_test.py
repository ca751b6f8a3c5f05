"""Tests of the estimates of participation probabilities against NumPy."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

from fedsteer_tff import participation
from fedsteer_tff.aggregators import probability_estimates
from fedsteer_tff.aggregators import registry
from fedsteer_tff.participation import estimates
from tests import participation_oracle

_N = 9
_NEVER, _LATE, _FORCED = 6, 7, 8
_P = np.array([1.0, 0.9, 0.6, 0.4, 0.2, 0.05, 0.0, 0.5, 0.3])

_ESTIMATORS = {
  'frequency': participation.RunningFrequency(0.2, prior_rounds=4.0),
  'frequency with a floor': participation.RunningFrequency(
    0.3, prior_rounds=2.5, floor=0.15
  ),
  'frequency of a growing population': participation.RunningFrequency(
    0.2, prior_rounds=4.0, population='growing'
  ),
  'windowed': participation.WindowedFrequency(
    0.2, window=8.0, prior_rounds=8.0
  ),
  'windowed in a growing population': participation.WindowedFrequency(
    0.2, window=8.0, prior_rounds=3.0, floor=0.05, population='growing'
  ),
  'interval': participation.IntervalEstimate(cutoff=7),
  'interval of a growing population': participation.IntervalEstimate(
    prior_probability=0.3, cutoff=4, population='growing'
  ),
}


class _Server:
  """The state that estimates need, and a round on it."""

  def __init__(self, estimator, population_size=_N):
    self.estimator, self.population_size = estimator, population_size
    self.state = registry.empty_registry(population_size)
    self.state['participation'] = probability_estimates.initial_state(
      estimator, population_size
    )

  def estimates(self):
    return probability_estimates.estimated_probabilities(
      self.estimator, self.state
    ).numpy()

  def active(self):
    return probability_estimates.active_probabilities(
      self.estimator, self.state
    ).numpy()

  def round(self, client_ids, reported, weights=None):
    """Runs a round; ids may repeat. Returns the used p_i and the metrics."""
    if weights is None:
      weights = np.ones(len(client_ids))
    self.state, used, metrics = _build_round(
      self.estimator, self.population_size
    )(
      self.state,
      tf.constant(client_ids, tf.int32, [len(client_ids)]),
      tf.constant(reported, tf.float32, [len(client_ids)]),
      tf.constant(weights, tf.float32, [len(client_ids)]),
    )
    return used.numpy(), {name: m.numpy() for name, m in metrics.items()}


@pytest.fixture(scope='module', autouse=True)
def forget_functions():
  yield
  # They must not outlive TensorFlow.
  _build_round.cache_clear()


@functools.cache
def _build_round(estimator, population_size):
  """Returns a compiled round."""
  state_spec = tf.nest.map_structure(
    tf.type_spec_from_value, _Server(estimator, population_size).state
  )

  @tf.function(
    input_signature=(
      state_spec,
      tf.TensorSpec([None], tf.int32),
      tf.TensorSpec([None], tf.float32),
      tf.TensorSpec([None], tf.float32),
    )
  )
  def run(state, client_ids, reported, weights):
    used = probability_estimates.used_probabilities(
      reported,
      client_ids,
      probability_estimates.active_probabilities(estimator, state),
    )
    gathered = {
      'client_id': client_ids,
      'weight': weights,
      'probability': used,
      'reported_probability': reported,
    }
    _, first = registry.first_reports(client_ids)
    new = collections.OrderedDict(state)
    new['participation'] = probability_estimates.observe(
      estimator, state, gathered, first
    )
    new['last_seen'] = registry.replace_rows(
      state['last_seen'],
      client_ids,
      tf.fill(tf.shape(client_ids), state['round_num']),
      first,
    )
    new['round_num'] = state['round_num'] + 1
    metrics = probability_estimates.metrics(estimator, new, gathered, first)
    return new, used, metrics

  return run


def _cohorts(num_rounds, seed=0):
  """Yields ids and who of them was made to take part; one joins late."""
  rng = np.random.default_rng(seed)
  for number in range(num_rounds):
    active = rng.uniform(size=_N) < _P
    active[_LATE] &= number >= num_rounds // 2
    forced = number % 3 == 1
    active[_FORCED] |= forced
    ids = [int(i) for i in np.flatnonzero(active)]
    if number in (0, 5, 6):
      ids, forced = [], False
    yield ids, [_FORCED] if forced else []


@pytest.mark.parametrize('name', _ESTIMATORS)
def test_estimates_of_many_rounds_are_those_of_the_whole_history(name):
  estimator = _ESTIMATORS[name]
  server = _Server(estimator)
  oracle = participation_oracle.Estimates(estimator, _N)
  rng = np.random.default_rng(1)
  for number, (ids, certain) in enumerate(_cohorts(80)):
    expected = [oracle.active(i) for i in range(_N)]
    np.testing.assert_allclose(server.active(), expected, rtol=2e-5)
    used = oracle.observe(ids, certain)
    # A second report of a client, somewhere, changes nothing.
    repeated = [*ids, *rng.permutation(ids)[:2]]
    reported = [1.0 if i in certain else 0.5 for i in repeated]
    found, _ = server.round(repeated, reported)
    np.testing.assert_allclose(
      found, [used[i] for i in repeated], rtol=2e-5, err_msg=f'round {number}'
    )
    np.testing.assert_allclose(
      server.estimates(), oracle.estimates(), rtol=2e-5
    )
  assert not oracle.seen[_NEVER]
  assert oracle.seen[[0, 5, _LATE, _FORCED]].all()


@pytest.mark.parametrize('name', _ESTIMATORS)
def test_metrics_equal_numpy(name):
  estimator = _ESTIMATORS[name]
  server = _Server(estimator)
  oracle = participation_oracle.Estimates(estimator, _N)
  for ids, certain in _cohorts(30, seed=2):
    used = oracle.observe(ids, certain)
    # Client 2 does not know its probability.
    reported = {i: 0.0 if i == 2 else min(_P[i], 0.99) for i in ids}
    reported.update(dict.fromkeys(certain, 1.0))
    _, metrics = server.round(ids, [reported[i] for i in ids])
    free = [i for i in ids if reported[i] != 1]
    known = [i for i in free if i != 2]
    errors = np.array([abs(used[i] - reported[i]) for i in known])
    relative = errors / [reported[i] for i in known]
    deviations = np.array([_deviation(oracle, i) for i in free])
    there = [i for i in range(_N) if oracle.seen[i] or not oracle._grows]
    wanted = {
      'participation_absolute_error': errors.mean() if known else np.nan,
      'participation_relative_error': relative.mean() if known else np.nan,
      'participation_standard_error': deviations.mean() if free else np.nan,
      'participation_relative_standard_error': (
        np.mean(deviations / [used[i] for i in free]) if free else np.nan
      ),
      'participation_expected_clients': sum(map(oracle.estimate, there)),
    }
    assert set(metrics) == set(wanted)
    for metric, value in wanted.items():
      np.testing.assert_allclose(
        metrics[metric], value, rtol=1e-4, err_msg=metric
      )


def _deviation(oracle, client_id):
  """Returns the standard deviation of a Beta distribution, from its pairs."""
  estimator, history = oracle.estimator, oracle.histories[client_id]
  if isinstance(estimator, participation.IntervalEstimate):
    intervals = oracle.intervals(history)
    a, b = 1 + len(intervals), 1 + sum(intervals) - len(intervals)
    return np.sqrt(a * b / (a + b) ** 2 / (a + b + 1))
  decay = estimator.decay
  weight = estimator.prior_rounds * decay ** len(history)
  factors = decay ** np.arange(len(history))[::-1]
  taken = weight * estimator.prior_probability + factors @ np.array(history)
  offered = weight + factors.sum()
  mean = taken / offered
  if decay == 1:
    size = offered
  else:
    # Of a geometric series of weights with that sum.
    length = np.log(max(1 - (1 - decay) * offered, 0) or 1e-300) / np.log(decay)
    squares = (1 - decay ** (2 * length)) / (1 - decay**2)
    size = offered**2 / squares
  return np.sqrt(mean * (1 - mean) / (size + 1))


_TRUE = np.array([0.9, 0.5, 0.2, 0.1, 0.05])
_COPIES = 60


def _long_run(estimator, num_rounds):
  """Returns the estimates of some clients of each probability: [5, copies]."""
  probabilities = np.repeat(_TRUE, _COPIES)
  server = _Server(estimator, len(probabilities))
  rng = np.random.default_rng(3)
  for _ in range(num_rounds):
    ids = np.flatnonzero(rng.uniform(size=len(probabilities)) < probabilities)
    server.round(ids, probabilities[ids])
  return np.reshape(server.estimates(), [len(_TRUE), _COPIES])


@pytest.mark.parametrize(
  ('estimator', 'rounds_told'),
  [
    (participation.RunningFrequency(0.3, 1.0), 600),
    (participation.RunningFrequency(0.3, 1.0, population='growing'), 600),
    # As much as that many rounds of equal weight tell.
    (participation.WindowedFrequency(0.3, window=60.0), 119),
    (participation.IntervalEstimate(0.3, cutoff=600), 600),
    (
      participation.IntervalEstimate(0.3, cutoff=600, population='growing'),
      600,
    ),
  ],
)
def test_estimates_converge_to_the_probabilities(estimator, rounds_told):
  errors = _long_run(estimator, 600) - _TRUE[:, np.newaxis]
  deviation = np.sqrt(_TRUE * (1 - _TRUE) / rounds_told)
  assert np.all(np.sqrt(np.mean(errors**2, axis=1)) < 1.3 * deviation)
  assert np.all(np.abs(np.mean(errors, axis=1)) < 0.5 * deviation)


def test_an_interval_that_is_cut_off_bounds_the_weight():
  found = _long_run(participation.IntervalEstimate(cutoff=5), 200)
  assert np.all(found >= 0.2 - 1e-6)
  # Truncated at 5, the mean interval is (1 - (1 - p)^5) / p.
  wanted = _TRUE / (1 - (1 - _TRUE) ** 5)
  np.testing.assert_allclose(np.mean(found, axis=1), wanted, rtol=0.02)


@pytest.mark.parametrize(
  ('estimator', 'share_of_the_past'),
  [
    # Of 200 rounds before the drift and 150 after it, and a prior that counts
    # as 10: all alike, or each by 39/40 less than the next.
    (participation.RunningFrequency(0.5), 205 / 360),
    (participation.WindowedFrequency(0.5, window=40.0), (39 / 40) ** 150),
  ],
)
def test_only_a_window_follows_probabilities_that_drift(
  estimator, share_of_the_past
):
  before = np.repeat([0.8, 0.2], _COPIES)
  server = _Server(estimator, len(before))
  rng = np.random.default_rng(5)
  for probabilities in [before] * 200 + [1 - before] * 150:
    ids = np.flatnonzero(rng.uniform(size=len(before)) < probabilities)
    server.round(ids, probabilities[ids])
  found = np.mean(np.reshape(server.estimates(), [2, _COPIES]), axis=1)
  # Mirrored by 0.5, which is the prior: 5 rounds of it are of each kind.
  wanted = 0.2 + 0.6 * share_of_the_past
  np.testing.assert_allclose(found, [wanted, 1 - wanted], atol=0.02)


def test_an_active_client_is_weighted_without_bias_but_for_the_first_rounds():
  # E[1{active} / p^] over all histories of T rounds, by their number of ones.
  estimator = participation.RunningFrequency(0.5, prior_rounds=1e-6, floor=1e-6)
  for p in (0.1, 0.5, 0.9):
    for num_rounds in (0, 3, 12):
      server = _Server(estimator, num_rounds + 1)
      ones = np.arange(num_rounds + 1)
      part = server.state['participation']
      part['taken'] += tf.constant(ones, tf.float32)
      part['offered'] += num_rounds
      chance = (
        np.array(
          [float(tf.exp(_log_binomial(num_rounds, int(x)))) for x in ones]
        )
        * p**ones
        * (1 - p) ** (num_rounds - ones)
      )
      assert abs(chance.sum() - 1) < 1e-6
      expectation = np.sum(chance * p / server.active())
      np.testing.assert_allclose(
        expectation, 1 - (1 - p) ** (num_rounds + 1), rtol=1e-5
      )


def _log_binomial(n, k):
  parts = tf.constant([n + 1.0, k + 1.0, n - k + 1.0], tf.float64)
  whole, left, right = tf.unstack(tf.math.lgamma(parts))
  return whole - left - right


def test_before_the_first_round_there_is_the_prior():
  for estimator in (
    participation.RunningFrequency(0.25),
    participation.WindowedFrequency(0.25),
    participation.IntervalEstimate(0.25),
  ):
    np.testing.assert_array_equal(_Server(estimator).estimates(), [0.25] * _N)
  np.testing.assert_array_equal(
    _Server(participation.IntervalEstimate()).estimates(), [1.0] * _N
  )
  # A floor above the prior is a floor.
  floored = participation.RunningFrequency(0.1, floor=0.4)
  np.testing.assert_allclose(_Server(floored).estimates(), [0.4] * _N)


def test_a_client_never_seen_falls_to_the_floor_or_keeps_the_prior():
  def after(estimator, num_rounds=200):
    server = _Server(estimator, 2)
    for _ in range(num_rounds):
      server.round([0], [0.5])
    return server.estimates()[1]

  running = after(participation.RunningFrequency(0.2, floor=0.001))
  np.testing.assert_allclose(running, 2 / 210, rtol=1e-5)
  assert after(participation.RunningFrequency(0.2, floor=0.02)) == np.float32(
    0.02
  )
  windowed = participation.WindowedFrequency(0.2, window=20.0, floor=0.01)
  assert after(windowed) == np.float32(0.01)
  np.testing.assert_allclose(
    after(participation.IntervalEstimate(0.2, cutoff=40)), 1 / 40
  )
  for estimator in (
    participation.RunningFrequency(0.2, population='growing'),
    participation.WindowedFrequency(0.2, population='growing'),
    participation.IntervalEstimate(0.2, population='growing'),
  ):
    np.testing.assert_allclose(after(estimator, 50), 0.2)


@pytest.mark.parametrize('population', ['fixed', 'growing'])
def test_the_windowed_estimate_of_a_client_that_vanishes_falls_to_the_floor(
  population,
):
  estimator = participation.WindowedFrequency(
    0.2, window=20.0, floor=0.01, population=population
  )
  server = _Server(estimator, 2)
  for _ in range(100):
    server.round([0, 1], [0.9, 0.9])
  assert server.estimates()[1] > 0.98
  found = []
  for _ in range(120):
    server.round([0], [0.9])
    found.append(server.estimates()[1])
  assert np.all(np.diff(found) <= 0)
  assert found[-1] == np.float32(0.01)
  # If it comes back it is weighted as one that takes part once in a window.
  np.testing.assert_allclose(server.active()[1], 1 / 20, rtol=0.1)
  assert server.estimates()[0] > 0.98


def _vanish(estimator, present, absent):
  """Client 1 takes part in all of the first rounds, and in no later one."""
  server = _Server(estimator, 2)
  for _ in range(present):
    server.round([0, 1], [0.9, 0.9])
  found = [server.estimates()[1]]
  for _ in range(absent):
    server.round([0], [0.9])
    found.append(server.estimates()[1])
  return server, found


@pytest.mark.parametrize(
  # Of a growing population the round of the first report does not count.
  ('population', 'counted'),
  [('fixed', 40), ('growing', 39)],
)
def test_the_frequency_of_a_client_that_vanishes_remembers_when_it_was_there(
  population, counted
):
  estimator = participation.RunningFrequency(
    0.5, prior_rounds=4.0, floor=0.1, population=population
  )
  server, found = _vanish(estimator, 40, 400)
  # (4 * 0.5 + 40) / (4 + 40 + absent): as slow as all that it remembers.
  taken, offered = 2 + counted, 4 + counted
  np.testing.assert_allclose(found[0], taken / offered, rtol=1e-6)
  np.testing.assert_allclose(found[40], taken / (offered + 40), rtol=1e-6)
  np.testing.assert_allclose(found[200], taken / (offered + 200), rtol=1e-6)
  # 42 / 444 and 41 / 443 are below the floor.
  assert found[400] == np.float32(0.1)
  below = [number for number, p in enumerate(found) if p <= np.float32(0.1)]
  # 42 / (44 + 376) = 41 / (43 + 367) = 0.1.
  assert abs(below[0] - {'fixed': 376, 'growing': 367}[population]) <= 1
  # If it comes back it is weighted with that round counted, at the floor yet.
  np.testing.assert_allclose(
    server.active()[1], max(0.1, (taken + 1) / (offered + 401)), rtol=1e-6
  )
  # Who stays is not touched.
  np.testing.assert_allclose(
    server.estimates()[0], (taken + 400) / (offered + 400), rtol=1e-6
  )


@pytest.mark.parametrize(
  ('population', 'counted'), [('fixed', 40), ('growing', 39)]
)
def test_the_intervals_of_a_client_that_vanishes_are_cut_off(
  population, counted
):
  estimator = participation.IntervalEstimate(
    0.5, cutoff=20, population=population
  )
  server, found = _vanish(estimator, 40, 207)
  # An interval of one round for each that counted, and then one of 20 rounds
  # for every 20 in which nobody came: 40 / 40, 41 / 60, 42 / 80, ..., 50 / 240.
  wanted = [
    (counted + absent // 20) / (counted + 20 * (absent // 20))
    for absent in range(208)
  ]
  np.testing.assert_allclose(found, wanted, rtol=1e-6)
  assert found[19] == 1 > found[20]
  np.testing.assert_allclose(
    found[207], {'fixed': 50 / 240, 'growing': 49 / 239}[population], rtol=1e-6
  )
  # If it comes back it is weighted without the interval that ends then, of 7
  # rounds that are over and this one; which counts afterwards.
  assert server.active()[1] == found[207]
  used, _ = server.round([0, 1], [0.9, 0.9])
  assert used[1] == found[207]
  np.testing.assert_allclose(
    server.estimates()[1],
    {'fixed': 51 / 248, 'growing': 50 / 247}[population],
    rtol=1e-6,
  )
  assert server.estimates()[0] == 1


@pytest.mark.parametrize(
  'build',
  [
    functools.partial(participation.RunningFrequency, 0.2),
    functools.partial(participation.WindowedFrequency, 0.2, 200.0),
    functools.partial(participation.IntervalEstimate, 0.2, 50),
  ],
)
def test_a_client_that_joins_late_is_judged_from_then_on_if_clients_may(build):
  joined, rounds = 150, 150
  rng = np.random.default_rng(4)
  draws = rng.uniform(size=[joined + rounds, 2]) < 0.5
  draws[:joined, 1] = False
  found = {}
  for population in ('fixed', 'growing'):
    server = _Server(build(population=population), 2)
    for draw in draws:
      ids = np.flatnonzero(draw)
      server.round(ids, np.full(len(ids), 0.5))
    found[population] = server.estimates()[1]
  assert abs(found['growing'] - 0.5) < 0.1
  assert found['fixed'] < 0.45
  assert abs(found['growing'] - 0.5) < abs(found['fixed'] - 0.5)


@pytest.mark.parametrize('name', _ESTIMATORS)
def test_rounds_in_which_a_client_is_made_to_take_part_do_not_count(name):
  estimator = _ESTIMATORS[name]
  plain, forced = _Server(estimator, 2), _Server(estimator, 2)
  rng = np.random.default_rng(5)
  for server in (plain, forced):
    server.round([0, 1], [0.4, 0.4])
  for _ in range(40):
    used, _ = forced.round([0], [1.0])
    np.testing.assert_array_equal(used, [1.0])
    ids = np.flatnonzero(rng.uniform(size=2) < 0.4)
    for server in (plain, forced):
      server.round(ids, np.full(len(ids), 0.4))
  np.testing.assert_array_equal(plain.estimates()[0], forced.estimates()[0])


def test_the_weight_of_a_growing_population_is_what_is_drawn_at_first():
  estimator = participation.RunningFrequency(
    0.1, prior_rounds=4.0, population='growing'
  )
  server = _Server(estimator, 30)
  server.round([3, 5], [0.5, 1.0], [10.0, 40.0])
  np.testing.assert_allclose(
    server.state['participation']['weight_drawn'], 10 / 0.1 + 40, rtol=1e-6
  )
  for seen, wanted in ((50.0, 140.0), (150.0, 150.0)):
    state = dict(server.state)
    state.update(
      round_num=tf.constant(0), weight_seen=tf.constant(seen, 'double')
    )
    total = registry.population_weight(state, 30, False)
    np.testing.assert_allclose(total, wanted, rtol=1e-6)
    assert registry.population_weight(state, 30, True) == 1
  # A report again is no second draw, and no report draws nothing.
  server.round([3, 3], [1.0, 1.0], [7.0, 9.0])
  server.round([], [])
  np.testing.assert_allclose(
    server.state['participation']['weight_drawn'], 147, rtol=1e-6
  )


@pytest.mark.parametrize(
  ('build', 'error', 'message'),
  [
    (
      lambda: participation.RunningFrequency(0.0),
      ValueError,
      'prior_probability must be in (0, 1], found 0.0',
    ),
    (
      lambda: participation.RunningFrequency(float('nan')),
      ValueError,
      'prior_probability must be in (0, 1], found nan',
    ),
    (
      lambda: participation.IntervalEstimate('often'),
      TypeError,
      "prior_probability must be a number, found 'often'",
    ),
    (
      lambda: participation.RunningFrequency(0.1, prior_rounds=0),
      ValueError,
      'prior_rounds must be finite and > 0, found 0',
    ),
    (
      lambda: participation.WindowedFrequency(0.1, prior_rounds=float('inf')),
      ValueError,
      'prior_rounds must be finite and > 0, found inf',
    ),
    (
      lambda: participation.RunningFrequency(0.1, floor=0),
      ValueError,
      'floor must be in (0, 1], found 0',
    ),
    (
      lambda: participation.WindowedFrequency(0.1, floor=1.5),
      ValueError,
      'floor must be in (0, 1], found 1.5',
    ),
    (
      lambda: participation.WindowedFrequency(0.1, 8.0, prior_rounds=9),
      ValueError,
      'prior_rounds must be <= window=8.0, found 9',
    ),
    (
      lambda: participation.WindowedFrequency(0.1, window=1),
      ValueError,
      'window must be finite and > 1, found 1',
    ),
    (
      lambda: participation.WindowedFrequency(0.1, window=True),
      TypeError,
      'window must be a number, found True',
    ),
    (
      lambda: participation.IntervalEstimate(cutoff=0),
      ValueError,
      'cutoff must be >= 1, found 0',
    ),
    (
      lambda: participation.IntervalEstimate(cutoff=2.0),
      TypeError,
      'cutoff must be an integer, found 2.0',
    ),
    (
      lambda: participation.IntervalEstimate(population='open'),
      ValueError,
      "population must be one of 'fixed', 'growing', found 'open'",
    ),
    (
      lambda: estimates.check_participation('participation', 'guess'),
      ValueError,
      "participation must be 'known' or one of RunningFrequency,"
      " WindowedFrequency, IntervalEstimate, found 'guess'",
    ),
    (
      lambda: estimates.check_participation('participation', 0.3),
      TypeError,
      "participation must be 'known' or one of RunningFrequency,"
      ' WindowedFrequency, IntervalEstimate, found 0.3',
    ),
  ],
)
def test_a_wrong_parameter_is_named(build, error, message):
  with pytest.raises(error) as caught:
    build()
  assert str(caught.value) == message


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
