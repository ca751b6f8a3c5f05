"""Random populations, cohorts and updates, against the NumPy oracle.

Most examples call the TensorFlow code of `next` in this process, see
`in_process`; some go through TFF's runtime. Hypothesis is seeded, so that each
run of the tests sees the same examples.
"""

import copy
import functools
import itertools

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from fedsteer_tff import aggregators
from fedsteer_tff import subspace
from tests import numpy_oracle
from tests.aggregators import in_process
from tests.aggregators import small_rounds

pytestmark = pytest.mark.slow

# Seeded by the test's name: the examples are the same everywhere.
_SETTINGS = hypothesis.settings(
  derandomize=True,
  database=None,
  deadline=None,
  print_blob=False,
  suppress_health_check=list(hypothesis.HealthCheck),
)
# Of each configuration; together more than 2,000.
_EXAMPLES = 195
_EXAMPLES_IN_RUNTIME = 20

_DIMENSION = small_rounds.DIMENSION
# Of float32 sums, relative to the sizes of what is added up.
_TOLERANCE = 1e-5
# E of two core sets that are equally good, relative to E of none.
_TIE = 1e-6

# Together every design, estimator, weighting and kind of selection, with core
# sets from nobody to everybody.
_CONFIGURATIONS = {
  'default': {'core_set_size': 2, 'warmup_rounds': 1},
  'stable, short sketches': {
    'core_set_size': 3,
    'warmup_rounds': 1,
    'estimator': 'stable',
    'sketch_size': 5,
    'sketch_seed': 3,
  },
  'no core set': {
    'core_set': (),
    'correction_weighting': 'participant_mean',
    'correction_smoothing': 0.5,
  },
  'server, absolute ridge': {
    'aggregation': 'server_projection',
    'core_set_size': 2,
    'warmup_rounds': 1,
    'reselect_every': 2,
    'absolute_ridge': 0.7,
  },
  'server, everybody is core': {
    'aggregation': 'server_projection',
    'core_set_size': 7,
    'warmup_rounds': 2,
    'estimator': 'stable',
    'core_eligibility': 'received',
    'reselect_every': 1,
    'ridge': 0.1,
  },
  'server, small pool': {
    'aggregation': 'server_projection',
    'core_set_size': 2,
    'warmup_rounds': 1,
    'candidate_pool_size': 3,
    'client_weighting': 'examples',
    'coordinate_refresh': 'after_aggregation',
    'correction_weighting': 'self_normalized',
    'correction_smoothing': 0.4,
  },
  'client, chosen once': {
    'aggregation': 'client_projection',
    'core_set_size': 3,
    'warmup_rounds': 1,
    'estimator': 'unbiased',
    'client_weighting': 'examples',
    'ridge': 0.1,
  },
  'client, summed by a factory': {
    'aggregation': 'client_projection',
    'core_set_size': 2,
    'warmup_rounds': 1,
    'reselect_every': 1,
    'correction_factory': 'sum',
  },
  'dense, chosen again': {
    'aggregation': 'dense',
    'core_set_size': 2,
    'warmup_rounds': 1,
    'reselect_every': 1,
    'estimator': 'stable',
  },
  'dense, given core set': {
    'aggregation': 'dense',
    'core_set': (6, 2, 3),
    'client_weighting': 'examples',
  },
}


def _population_size(name):
  return _CONFIGURATIONS[name].get('population_size', small_rounds.NUM_CLIENTS)


@functools.cache
def _process(name):
  parameters = dict(_CONFIGURATIONS[name])
  parameters.setdefault('population_size', small_rounds.NUM_CLIENTS)
  factory = parameters.pop('correction_factory', None)
  if factory is not None:
    factory = small_rounds.CORRECTION_FACTORIES[factory]
  return aggregators.FedSteerFactory(
    **parameters, correction_factory=factory
  ).create(small_rounds.value_type(), small_rounds.WEIGHT_TYPE)


class _Server(numpy_oracle.FedSteer):
  """NumPy's server, which takes what the tested one took where both are right.

  Of core sets that explain the updates equally well either may be chosen.
  """

  # The core set of the tested server after the round.
  observed = None
  # The size of what Delta is summed from.
  size = 0.0
  # The largest n_i s_i that there has been.
  largest_product = 0.0

  def aggregate(self, reports):
    groups, _, _ = self._sort_out(reports)
    rows = np.linalg.norm(self.basis, axis=1)
    before = copy.deepcopy(self.__dict__)
    outcome = super().aggregate(reports)
    self.size = _size(before, self, groups, rows)
    products = self.coordinates * self.weight[:, np.newaxis]
    self.largest_product = max(
      self.largest_product, 1.1 * np.max(np.abs(products), initial=0.0)
    )
    return outcome

  def _best(self, scores, size):
    best = super()._best(scores, size)
    if len(scores) <= size:
      return best
    least = min(scores[i] for i in best)
    # Equally good ones that the other server has preferred.
    ties = [
      i
      for i in scores
      if i in self.observed and scores[i] >= (1 - _TIE) * least - 1e-12
    ]
    return best | set(ties)

  def _search(
    self,
    ids,
    candidates,
    targets,
    weights,
    ridge,
    size,
    eligible,
    members=None,
    smallest_gain=0.0,
  ):
    arguments = candidates, targets, weights, ridge
    own = super()._search(
      ids, *arguments, size, eligible, members, smallest_gain
    )
    ids = [int(i) for i in ids]
    found = []
    for place, client in enumerate(self.observed):
      stays = members is not None and client == self.core[place]
      if client < 0:
        found += [] if members is None else [-1]
      elif stays:
        found.append(place)
      elif client in ids:
        found.append(ids.index(client, 0 if members is None else size))
      else:
        return own
    allowed = [m for m in found if m >= (0 if members is None else size)]
    if not all(eligible[m] for m in allowed):
      return own
    errors = [
      numpy_oracle.selection_error(*arguments, choice)
      for choice in (own, found, [])
    ]
    return found if abs(errors[0] - errors[1]) <= _TIE * errors[2] else own


def _size(before, after, groups, rows):
  """Returns a bound of the absolute values that Delta is summed from."""
  total = after._population_weight()
  importance = {}
  size = 0.0
  for i, group in groups.items():
    for report in group:
      weight = report.weight
      if after.weighting != 'participant_mean':
        weight = weight / report.probability
      importance[i] = importance.get(i, 0.0) + weight
      size += weight * np.linalg.norm(report.update)
      # Fresh ones may have been set to 0 by a change of the core set.
      scale = max(np.linalg.norm(rows), 1e-300)
      used = np.linalg.norm(before['coordinates'][i]) * scale
      if after.refresh == 'before_aggregation':
        used = np.linalg.norm(report.update)
      size += weight * used
  divisor = total
  if after.weighting != 'inverse_probability':
    divisor = sum(importance.values())
  size = size / divisor if divisor else 0.0
  baseline = np.abs(before['coordinates']) @ rows
  for i, group in groups.items():
    if after.refresh == 'before_aggregation':
      baseline[i] = max(np.linalg.norm(r.update) for r in group)
  if total:
    size += after.weight @ baseline / total
  return size + np.linalg.norm(before['smoothed'])


def _server(name):
  parameters = {
    key: value
    for key, value in _CONFIGURATIONS[name].items()
    if key
    in (
      'core_set_size',
      'core_set',
      'ridge',
      'absolute_ridge',
      'warmup_rounds',
      'reselect_every',
      'core_eligibility',
      'client_weighting',
      'aggregation',
      'candidate_pool_size',
    )
  }
  configuration = _CONFIGURATIONS[name]
  refresh, weighting, smoothing = numpy_oracle.RULES[
    configuration.get('estimator', 'paper')
  ]
  duplicates = 'first'
  if configuration.get('aggregation') == 'dense':
    duplicates = 'mean'
  elif 'correction_factory' in configuration:
    duplicates = 'counted'
  matrix = subspace.sketch(
    np.eye(_DIMENSION, dtype=np.float32),
    configuration.get('sketch_size', 384),
    configuration.get('sketch_seed', 0),
  )
  return _Server(
    _population_size(name),
    _DIMENSION,
    rule=(
      configuration.get('coordinate_refresh', refresh),
      configuration.get('correction_weighting', weighting),
      configuration.get('correction_smoothing', smoothing),
    ),
    sketch_matrix=matrix.numpy().astype(float),
    duplicates=duplicates,
    plain_sum='correction_factory' not in configuration,
    **parameters,
  )


# What a client may report, beside an update of its own.
_KINDS = (
  'own',
  'own',
  'own',
  'own',
  'common',
  'zero',
  'not finite',
  'huge',
  'infinite weight',
  'weight 0',
)


@st.composite
def _examples(draw, name):
  """Draws a population and some rounds of it: lists of reports."""
  size = _population_size(name)
  configuration = _CONFIGURATIONS[name]
  rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
  probabilities = [
    draw(st.sampled_from([0.001, 0.05, 0.3, 0.5, 0.9, 1.0]))
    for _ in range(size)
  ]
  weights = [draw(st.sampled_from([0.01, 0.5, 1.0, 20.0])) for _ in range(size)]
  known = configuration.get('client_weighting') != 'examples'
  if known:
    weights = [weight / sum(weights) for weight in weights]
  # An absolute ridge is for updates whose size one knows.
  any_scale = 'absolute_ridge' not in configuration
  scale = 10.0 ** draw(st.integers(-6, 6) if any_scale else st.just(0))
  spread = draw(st.sampled_from([0, 3])) if any_scale else 0
  common = rng.normal(size=_DIMENSION)
  directions = rng.normal(size=[3, _DIMENSION])
  everything_equal = draw(st.integers(0, 9)) == 0

  def report(client_id):
    kind = 'common' if everything_equal else draw(st.sampled_from(_KINDS))
    update = directions[client_id % 3] + 0.5 * rng.normal(size=_DIMENSION)
    update *= 10.0 ** draw(st.integers(-spread, spread))
    if kind == 'common':
      update = common.copy()
    update *= scale
    weight = weights[client_id]
    if not known:
      weight *= int(rng.integers(1, 4))
    if kind == 'zero':
      update[:] = 0
    elif kind == 'not finite':
      update[int(rng.integers(_DIMENSION))] = rng.choice([np.nan, np.inf])
    elif kind == 'huge':
      update[:] = 1e30
    elif kind == 'infinite weight':
      weight = np.inf
    elif kind == 'weight 0':
      weight = 0.0
    # In some rounds it is made to take part.
    forced = draw(st.integers(0, 4)) == 0
    probability = 1.0 if forced else probabilities[client_id]
    return small_rounds.report(client_id, update, weight, probability)

  rounds = []
  for _ in range(draw(st.integers(1, 4))):
    # With clients that are there twice, and padding.
    least = draw(st.sampled_from([0, 3, 3]))
    ids = draw(st.lists(st.integers(-1, size - 1), min_size=least, max_size=5))
    reports = [small_rounds.padding() if i < 0 else report(i) for i in ids]
    # A client that reports again has the weight and p_i that it has.
    same = {}
    for r in reports:
      if r.client_id >= 0 and 0 < r.weight < np.inf:
        said = r.weight, r.probability
        r.weight, r.probability = same.setdefault(r.client_id, said)
    split = draw(st.integers(0, len(ids)))
    first, second = ids[:split], ids[split:]
    # Which sums drop a client that is in both parts is another test's.
    if set(first) & set(second) - {-1}:
      split = 0
    rounds.append((reports, split))
  return rounds


def _as_numpy_sees_it(reports):
  """Updates with an infinite square are not finite."""
  seen = []
  for r in reports:
    seen.append(copy.copy(r))
    if np.isfinite(r.update).all() and np.max(np.abs(r.update)) > 1e20:
      seen[-1].update = np.full(_DIMENSION, np.nan)
  return seen


def _close(found, wanted, size, what):
  error = np.max(np.abs(np.asarray(found, float) - wanted), initial=0.0)
  assert error <= _TOLERANCE * size, (what, error, size)


def _check(server, state, delta, found_delta, metrics, found):
  """Asserts that a round had the outcome that NumPy says."""
  _close(found_delta, delta, server.size, 'delta')
  for name, wanted in (
    ('round_num', server.round_num),
    ('core_set', server.core),
    ('core_round', server.row_round),
    ('last_seen', server.last_seen),
    ('clients_seen', np.sum(server.last_seen >= 0)),
  ):
    np.testing.assert_array_equal(state[name], wanted, err_msg=name)
  largest = np.max(np.abs(server.basis), initial=0.0)
  _close(state['core_updates'], server.basis, largest, 'core_updates')
  # Of a small row in the subspace the coordinate is small, or huge.
  largest = np.max(np.abs(server.coordinates), initial=0.0)
  _close(state['coordinates'], server.coordinates, 10 * largest, 'coordinates')
  largest = np.max(server.weight, initial=0.0)
  _close(state['client_weight'], server.weight, largest, 'client_weight')
  _close(state['weight_seen'], np.sum(server.weight), largest, 'weight_seen')
  products = state['coordinates'] * state['client_weight'][:, np.newaxis]
  exact = np.sum(products.astype(float), axis=0)
  error = np.max(np.abs(state['baseline'] - exact), initial=0.0)
  assert error <= 1e-12 * server.largest_product, ('baseline', error)
  for name in (
    'active_clients',
    'core_clients_refreshed',
    'nonfinite_clients',
    'duplicate_clients',
    'core_staleness_mean',
    'core_staleness_max',
    'coordinate_staleness_mean',
    'coordinate_staleness_max',
  ):
    np.testing.assert_allclose(
      found[name], metrics[name], rtol=1e-6, err_msg=name
    )


def _delta(kernel, bias):
  return np.concatenate([np.ravel(kernel), np.ravel(bias)])


def _leaves(report):
  return [
    np.float32(report.update[:6]).reshape([2, 3]),
    np.float32(report.update[6:]),
    np.int32(report.client_id),
    np.float32(report.probability),
    np.float32(report.weight),
  ]


def _run_and_compare(name, rounds, state, run_round):
  """Runs rounds in both and compares after each.

  Args:
    name: Of the configuration.
    rounds: Pairs of reports and where to split them.
    state: The initial state.
    run_round: From a state, reports and where to split them to the new state,
      its part that is FedSteer's, Delta and the metrics.
  """
  server = _server(name)
  for reports, split in rounds:
    state, part, found_delta, found = run_round(state, reports, split)
    server.observed = [int(i) for i in part['core_set']]
    delta, metrics = server.aggregate(_as_numpy_sees_it(reports))
    _check(server, part, delta, found_delta, metrics, found)


@functools.cache
def _form(name):
  form = in_process.AggregationForm(_process(name))
  measurements = _process(name).next.type_signature.result.measurements.member
  return form, form.initialize(), measurements


@pytest.fixture(scope='module', autouse=True)
def forget_forms():
  """Lets go of TensorFlow's functions while there is a TensorFlow."""
  yield
  _form.cache_clear()


@pytest.mark.parametrize('name', _CONFIGURATIONS)
def test_rounds_equal_numpy(name):
  form, initial_state, measurements_type = _form(name)

  def run_round(state, reports, split):
    clients = [_leaves(r) for r in reports]
    state, (kernel, bias, *numbers) = form.next(state, clients, split)
    part = small_rounds.core_state(form.named(state))
    metrics = in_process.packed(measurements_type, numbers)
    metrics = metrics.get('fedsteer', metrics)
    return state, part, _delta(kernel, bias), metrics

  count = itertools.count()

  @hypothesis.settings(_SETTINGS, max_examples=_EXAMPLES)
  @hypothesis.given(_examples(name))
  def check(rounds):
    next(count)
    _run_and_compare(name, rounds, initial_state, run_round)

  check()
  # Small spaces of examples would be searched to their end.
  assert next(count) >= _EXAMPLES


@pytest.mark.parametrize(
  'name',
  ['stable, short sketches', 'server, small pool', 'dense, chosen again'],
)
def test_rounds_in_the_runtime_equal_numpy(name):
  process = _process(name)

  def run_round(state, reports, split):
    del split
    output = small_rounds.run(process, state, reports)
    part = small_rounds.core_state(output.state)
    return output.state, part, _delta(*output.result), output.measurements

  @hypothesis.settings(_SETTINGS, max_examples=_EXAMPLES_IN_RUNTIME)
  @hypothesis.given(_examples(name))
  def check(rounds):
    _run_and_compare(name, rounds, process.initialize(), run_round)

  check()


def test_there_are_more_than_two_thousand_examples():
  examples = _EXAMPLES * len(_CONFIGURATIONS) + 3 * _EXAMPLES_IN_RUNTIME
  assert examples >= 2000


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
