"""Scales, dependent rows, many rows and many rounds against float64."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import subspace
from fedsteer_tff.aggregators import reports
from fedsteer_tff.aggregators import server_round
from fedsteer_tff.programs import conditioning
from tests import numpy_oracle
from tests.aggregators import small_rounds

_DESIGNS = (
  'sketched_projection',
  'server_projection',
  'client_projection',
  'dense',
)


def _run(process, rounds):
  state = process.initialize()
  for cohort in rounds:
    padded = cohort + [small_rounds.padding()] * (8 - len(cohort))
    output = small_rounds.run(process, state, padded)
    state = output.state
    yield output


@pytest.mark.parametrize('power', [-40, 40])
@pytest.mark.parametrize('design', _DESIGNS)
def test_a_power_of_two_on_all_updates_changes_no_digit(design, power):
  # About 1e-12 and 1e12.
  factor = 2.0**power
  process = small_rounds.build(aggregation=design, core_set=(0, 1))
  outputs = [
    _run(process, small_rounds.simulate(50, 4, scale=scale, empty=()))
    for scale in (1.0, factor)
  ]
  for plain, scaled in zip(*outputs):
    np.testing.assert_array_equal(
      small_rounds.flat(scaled.result),
      np.float32(factor) * small_rounds.flat(plain.result),
    )
    for name in ('coordinates', 'baseline'):
      np.testing.assert_array_equal(scaled.state[name], plain.state[name])
    for name in ('relative_residual', 'ridge_condition', 'core_condition'):
      assert scaled.measurements[name] == plain.measurements[name]
  assert np.max(np.abs(plain.state['coordinates'])) > 0.1


@pytest.mark.parametrize('scale', [1e-20, 1e-18, 1e-15, 1e15, 1e18])
@pytest.mark.parametrize('design', _DESIGNS)
def test_at_any_scale_of_float32_full_participation_is_exact(design, scale):
  # With p = 1 the result is sum_i d_i g_i whatever the estimates are, and below
  # about 1e-19, where squares vanish, there are none.
  rng = np.random.default_rng(51)
  process = small_rounds.build(aggregation=design, core_set=(0, 1))
  rounds = [
    [
      small_rounds.report(
        i, scale * rng.normal(size=small_rounds.DIMENSION), probability=1.0
      )
      for i in range(small_rounds.NUM_CLIENTS)
    ]
    for _ in range(3)
  ]
  for cohort, output in zip(rounds, _run(process, rounds)):
    wanted = sum(r.weight * r.update for r in cohort)
    error = numpy_oracle.relative_error(
      small_rounds.flat(output.result), wanted
    )
    assert error <= 1e-5
    assert output.measurements['nonfinite_clients'] == 0
    for part in small_rounds.memory_of(output.state):
      assert np.isfinite(part).all()


@pytest.mark.parametrize('design', _DESIGNS)
def test_above_that_reports_are_dropped_and_counted(design):
  process = small_rounds.build(aggregation=design, core_set=(0, 1))
  rounds = small_rounds.simulate(52, 2, scale=1e20, empty=())
  for cohort, output in zip(rounds, _run(process, rounds)):
    assert output.measurements['nonfinite_clients'] == len(cohort)
    np.testing.assert_array_equal(small_rounds.flat(output.result), 0)
    for part in small_rounds.memory_of(output.state):
      assert np.isfinite(part).all()


@pytest.mark.parametrize('design', _DESIGNS)
def test_fifty_core_clients_equal_numpy(design):
  population, k, dimension = 60, 50, 64
  factory = aggregators.FedSteerFactory(
    population, core_set=tuple(range(k)), aggregation=design
  )
  process = factory.create(
    small_rounds.value_type([tff.TensorType(np.float32, [dimension])]),
    small_rounds.WEIGHT_TYPE,
  )
  oracle = numpy_oracle.FedSteer(
    population, dimension, core_set=tuple(range(k)), aggregation=design
  )
  rng = np.random.default_rng(53)
  # As many directions as rows, a few of which are long.
  mixing = rng.normal(size=[dimension, dimension]) / np.arange(1, dimension + 1)
  state = process.initialize()
  for number in range(4):
    cohort = [
      numpy_oracle.Report(
        i,
        np.float32(mixing @ rng.normal(size=dimension)).astype(float),
        float(np.float32(1 / population)),
        0.5,
      )
      # All in the first round, then a third.
      for i in range(population)
      if number == 0 or i % 3 == number - 1
    ]
    output = process.next(
      state,
      [
        collections.OrderedDict(
          update=[np.float32(r.update)],
          client_id=np.int32(r.client_id),
          participation_probability=np.float32(r.probability),
        )
        for r in cohort
      ],
      [np.float32(r.weight) for r in cohort],
    )
    state = output.state
    wanted, metrics = oracle.aggregate(cohort)
    # See docs/robustness.md; there are no coordinates in the first round.
    bound = max(metrics['ridge_condition'], 10.0) * 2.0**-23
    for found, expected in (
      (output.result[0], wanted),
      (state['coordinates'], oracle.coordinates),
    ):
      error = numpy_oracle.relative_error(found, expected)
      assert error <= bound, (number, error, bound)
    np.testing.assert_allclose(
      output.measurements['ridge_condition'],
      metrics['ridge_condition'],
      rtol=1e-3,
    )


def _nearly_dependent(seed, k=6, dimension=4096):
  """Pairs of rows that differ by 1e-7 of their length."""
  rng = np.random.default_rng(seed)
  pairs = rng.normal(size=[k // 2, dimension])
  rows = np.repeat(pairs, 2, axis=0)
  rows[1::2] += 1e-7 * rng.normal(size=pairs.shape)
  updates = (
    0.5 * rng.normal(size=[5, dimension]) + rng.normal(size=[5, k]) @ rows
  )
  return np.float32(rows), np.float32(updates)


@pytest.mark.parametrize('seed', [54, 55])
@pytest.mark.parametrize('ridge', [0.1, 0.01, 1e-3, 1e-4, 1e-6, 0.0])
def test_coordinates_are_as_good_as_the_condition_says(ridge, seed):
  rows, updates = _nearly_dependent(seed)
  gram = subspace.gram_matrix(rows)
  condition = float(subspace.ridge_condition(gram, ridge))
  found = subspace.project(rows, updates, ridge).numpy()
  wanted = numpy_oracle.project(
    rows.astype(float), updates.astype(float), ridge
  )
  errors = np.linalg.norm(found - wanted, axis=1)
  lengths = np.linalg.norm(wanted, axis=1)
  assert np.max(errors / lengths) <= condition * 2.0**-23
  # 1 + k / c, or what the smallest ridge of float32 leaves.
  assert condition <= 1 + min(6 / max(ridge, 1e-30), 2.0**23 / 16) * 1.001
  # Estimates are right in any case: what is ill determined is how they are
  # made of rows that are the same.
  estimates = found.astype(float) @ rows
  error = np.linalg.norm(estimates - wanted @ rows, axis=1)
  assert np.max(error / np.linalg.norm(updates, axis=1)) <= 1e-4


@pytest.mark.parametrize(
  ('ridge', 'warned'), [(0.01, False), (1e-3, False), (1e-5, True), (0.0, True)]
)
def test_too_small_a_ridge_for_equal_rows_is_told_and_the_default_is_fine(
  ridge, warned
):
  rng = np.random.default_rng(56)
  update = rng.normal(size=small_rounds.DIMENSION)
  process = small_rounds.build(
    aggregation='client_projection', core_set=(0, 1), ridge=ridge
  )
  rounds = [[small_rounds.report(i, update + 1e-7 * i) for i in (0, 1)]] * 2
  metrics = [output.measurements for output in _run(process, rounds)]
  # There were no rows in the first round.
  assert metrics[0]['ridge_condition'] == 0
  assert conditioning.advice(metrics[0]) is None
  assert (conditioning.advice(metrics[1]) is not None) == warned


def _config(core_set_size=3, population_size=20, dimension=6, **replaced):
  update_type = tff.to_type([tff.TensorType(np.float32, [dimension])])
  spec = reports.ReportSpec(
    update_type=update_type,
    population_size=population_size,
    core_set_size=core_set_size,
    sketch_size=384,
    sketch_seed=0,
    collects_sketches=False,
    ridge=0.01,
    absolute_ridge=None,
    rule=subspace.named_rule('stable'),
  )
  return server_round.RoundConfig(
    spec=spec,
    given_core_set=tuple(range(core_set_size)),
    warmup_rounds=1,
    reselect_every=0,
    core_eligibility='frequent',
    weights_are_shares=False,
    pool_size=population_size,
    **replaced,
  )


_COHORT = 6


def _server_round(config, state, ids, updates, weights):
  """Returns the state after a round of reports of whole updates."""
  spec = config.spec
  basis = state['core_updates']
  gram = subspace.gram_matrix(basis)
  inner = tf.matmul(updates, basis, transpose_b=True)
  factor = subspace.ridge_factor(gram, spec.ridge)
  slots = reports.core_slots(state['core_set'], ids)
  probabilities = tf.fill([_COHORT], 0.3)
  importance = spec.rule.importance(weights, probabilities)
  coordinates = subspace.solve_coordinates(factor, inner)
  gathered = dict(
    weighted_sum=tf.linalg.matvec(updates, importance, transpose_a=True),
    client_id=ids,
    weight=weights,
    probability=probabilities,
    coordinates=coordinates,
    inner_products=inner,
    squared_norm=tf.reduce_sum(updates**2, axis=1),
    subtracted=tf.zeros_like(coordinates),
    multiplicity=tf.ones([_COHORT]),
    gram=gram,
    core_slot=tf.boolean_mask(slots, slots >= 0),
    core_update=tf.boolean_mask(updates, slots >= 0),
    nonfinite_clients=tf.constant(0),
    duplicate_clients=tf.constant(0),
  )
  _, new, _ = server_round.run_round(config, state, gathered)
  return tf.nest.map_structure(tf.ensure_shape, new, _shapes(state))


def _shapes(state):
  return tf.nest.map_structure(lambda part: part.shape, state)


@pytest.mark.slow
def test_five_thousand_rounds_of_incremental_sums_do_not_drift():
  num_rounds, population, dimension = 5_000, 20, 6
  config = _config(population_size=population, dimension=dimension)
  rng = np.random.default_rng(57)
  ids = np.argsort(rng.uniform(size=[num_rounds, population]))[:, :_COHORT]
  # Lengths differ by orders of magnitude, and weights change.
  lengths = 10.0 ** rng.uniform(-3, 3, size=[num_rounds, _COHORT, 1])
  updates = lengths * rng.normal(size=[num_rounds, _COHORT, dimension])
  weights = rng.integers(1, 1000, size=[num_rounds, _COHORT])

  @tf.function
  def run(ids, updates, weights):
    state = server_round.initial_state(config)
    largest = tf.zeros([], tf.float64)
    products = tf.zeros([population, 3], tf.float64)
    for number in tf.range(num_rounds):
      state = _server_round(
        config, state, ids[number], updates[number], weights[number]
      )
      products = tf.cast(
        state['coordinates'] * state['client_weight'][:, tf.newaxis],
        tf.float64,
      )
      total = tf.reduce_max(tf.reduce_sum(tf.abs(products), axis=0))
      largest = tf.maximum(largest, total)
    return state, products, largest

  state, products, largest = run(
    np.int32(ids), np.float32(updates), np.float32(weights)
  )
  assert state['round_num'] == num_rounds
  # The bound of docs/robustness.md: 2 m + 1 roundings in a round.
  bound = num_rounds * (2 * _COHORT + 1) * 2.0**-53
  assert bound < 1e-11
  drift = np.max(np.abs(state['baseline'] - np.sum(products, axis=0)))
  assert drift <= bound * largest
  weights_now = np.sum(state['client_weight'].numpy().astype(float))
  assert abs(state['weight_seen'] - weights_now) <= bound * population * 1000


@pytest.mark.parametrize('design', ['sketched_projection', 'dense'])
def test_a_new_core_set_sums_anew_and_ends_what_drift_there_is(design):
  process = small_rounds.build(aggregation=design, reselect_every=2)
  rounds = small_rounds.simulate(58, 5, empty=())
  state, drifts = process.initialize(), []
  for number, cohort in enumerate(rounds):
    before = state['core_set']
    if number == 3:
      # Far more than rounding does.
      state['baseline'] = state['baseline'] + 0.25
    padded = cohort + [small_rounds.padding()] * (8 - len(cohort))
    state = small_rounds.run(process, state, padded).state
    products = state['coordinates'] * state['client_weight'][:, np.newaxis]
    recomputed = np.sum(products.astype(float), axis=0)
    drifts.append(np.max(np.abs(state['baseline'] - recomputed)))
    assert (state['core_set'] != before).any() == (number in (2, 4))
  np.testing.assert_allclose(drifts, [0, 0, 0, 0.25, 0], atol=1e-12)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
