"""Rounds of a small population, run by the aggregators and by NumPy."""

import collections
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import subspace
from tests import numpy_oracle

NUM_CLIENTS = 7
DIMENSION = 12
CORE_SET_SIZE = 2
WEIGHT_TYPE = tff.TensorType(np.float32)
PROBABILITIES = np.float32([0.9, 0.8, 0.8, 0.7, 0.5, 0.4, 0.3])
SHARES = np.float32(np.array([3, 1, 2, 1, 4, 2, 2]) / 15)
EXAMPLES = np.float32([30, 10, 20, 10, 40, 20, 20])

_STEERING_METRICS = (
  'relative_residual',
  'effective_shrinkage',
  'variance_estimate',
  'variance_estimate_without_steering',
  'variance_ratio',
)

# Longer than any honest client's part of the correction.
LOOSE_NORM = 8.0

CORRECTION_FACTORIES = {
  'sum': tff.aggregators.SumFactory(),
  'clipping': tff.aggregators.clipping_factory(
    1.0, tff.aggregators.SumFactory()
  ),
  'loose clipping': tff.aggregators.clipping_factory(
    LOOSE_NORM, tff.aggregators.SumFactory()
  ),
  'loose zeroing': tff.aggregators.zeroing_factory(
    LOOSE_NORM, tff.aggregators.SumFactory(), norm_order=2.0
  ),
}


def _clip(norm, vector):
  return vector * min(1.0, norm / np.linalg.norm(vector))


def _zero(norm, vector):
  return vector * (np.linalg.norm(vector) <= norm)


# What they make of one client's vector.
_LIMITS = {
  'clipping': functools.partial(_clip, 1.0),
  'loose clipping': functools.partial(_clip, LOOSE_NORM),
  'loose zeroing': functools.partial(_zero, LOOSE_NORM),
}


def value_type(update_type=None, **replaced):
  """Returns the type of an identified update, with parts replaced."""
  if update_type is None:
    update_type = [
      tff.TensorType(np.float32, [2, 3]),
      tff.TensorType(np.float32, [6]),
    ]
  parts = collections.OrderedDict(
    update=update_type,
    client_id=tff.TensorType(np.int32),
    participation_probability=tff.TensorType(np.float32),
  )
  parts.update(replaced)
  return tff.to_type(parts)


def build(**parameters):
  """Builds a process once for equal parameters."""
  arguments = {
    'population_size': NUM_CLIENTS,
    'core_set_size': CORE_SET_SIZE,
    'warmup_rounds': 3,
    'aggregation': 'sketched_projection',
    'estimator': 'paper',
    **parameters,
  }
  return _build(tuple(sorted(arguments.items())))


@functools.cache
def _build(items):
  arguments = dict(items)
  name = arguments.get('correction_factory')
  if name:
    arguments['correction_factory'] = CORRECTION_FACTORIES[name]
  factory = aggregators.FedSteerFactory(**arguments)
  return factory.create(value_type(), WEIGHT_TYPE)


def build_oracle(
  duplicates='first', oracle_class=numpy_oracle.FedSteer, **parameters
):
  """Builds the same in NumPy."""
  arguments = {
    'core_set_size': CORE_SET_SIZE,
    'warmup_rounds': 3,
    **parameters,
  }
  correction = arguments.pop('correction_factory', None)
  arguments['plain_sum'] = correction is None
  if correction in _LIMITS:
    arguments['limit'] = _LIMITS[correction]
  estimator = arguments.pop('estimator', 'paper')
  refresh, weighting, smoothing = numpy_oracle.RULES[estimator]
  rule = (
    arguments.pop('coordinate_refresh', refresh),
    arguments.pop('correction_weighting', weighting),
    arguments.pop('correction_smoothing', smoothing),
  )
  matrix = subspace.sketch(
    np.eye(DIMENSION, dtype=np.float32),
    arguments.pop('sketch_size', 384),
    arguments.pop('sketch_seed', 0),
  )
  return oracle_class(
    NUM_CLIENTS,
    DIMENSION,
    rule=rule,
    sketch_matrix=matrix.numpy().astype(float),
    duplicates=duplicates,
    **arguments,
  )


def report(client_id, update, weight=None, probability=None):
  """Returns a report, its numbers rounded as they travel."""
  weight = SHARES[client_id] if weight is None else weight
  probability = PROBABILITIES[client_id] if probability is None else probability
  return numpy_oracle.Report(
    int(client_id),
    np.float32(update).astype(float),
    float(np.float32(weight)),
    float(np.float32(probability)),
  )


def padding():
  """A client that is not there, with an update that must not matter."""
  return report(-1, np.full(DIMENSION, 1e3), 1.0, 0.5)


def run(process, state, reports):
  """Runs one round."""
  values = [
    collections.OrderedDict(
      update=[
        np.float32(r.update[:6]).reshape([2, 3]),
        np.float32(r.update[6:]),
      ],
      client_id=np.int32(r.client_id),
      participation_probability=np.float32(r.probability),
    )
    for r in reports
  ]
  weights = [np.float32(r.weight) for r in reports]
  return process.next(state, values, weights)


def flat(update):
  """Returns an aggregated update as a vector."""
  kernel, bias = update
  assert kernel.shape == (2, 3)
  return np.concatenate([np.ravel(kernel), bias])


def simulate(seed, num_rounds, *, scale=1.0, weights=None, empty=(4,)):
  """Returns the reports of some rounds, of clients that change slowly.

  Args:
    seed: Of everything random.
    num_rounds: How many.
    scale: Factor on all updates.
    weights: [N], shares if None; example counts vary from round to round.
    empty: Rounds in which nobody is active.
  """
  rng = np.random.default_rng(seed)
  groups = rng.normal(size=[3, DIMENSION])
  base = groups[np.arange(NUM_CLIENTS) % 3]
  base = base + 0.5 * rng.normal(size=base.shape)
  rounds = []
  for round_num in range(num_rounds):
    noise = 0.3 * rng.normal(size=base.shape)
    active = rng.uniform(size=NUM_CLIENTS) < PROBABILITIES
    factors = rng.integers(1, 4, size=NUM_CLIENTS)
    if round_num in empty:
      active[:] = False
    rounds.append(
      [
        report(
          i,
          scale * (base + noise)[i],
          None if weights is None else weights[i] * factors[i],
        )
        for i in np.flatnonzero(active)
      ]
    )
  return rounds


def core_state(state):
  """The part of the state that is FedSteer's."""
  return state['fedsteer'] if 'fedsteer' in state else state


def check_round(output, oracle, delta, metrics, where=''):
  """Asserts that a round had the outcome that NumPy says.

  Metrics of steering are left out where reports that repeat a client take part
  in the correction: what they count then is not defined.

  Args:
    output: Of the process.
    oracle: NumPy's server after the round.
    delta: NumPy's estimate.
    metrics: NumPy's metrics.
    where: The place in a run, for messages.
  """
  error = numpy_oracle.relative_error(flat(output.result), delta)
  assert error <= 1e-5, (where, 'delta', error)
  check_state(output.state, oracle, where)
  found = output.measurements
  found = found['fedsteer'] if 'fedsteer' in found else found
  assert set(found) == set(metrics), (set(found), set(metrics))
  merged = oracle.duplicates != 'first' and metrics['duplicate_clients']
  for name, wanted in metrics.items():
    if merged and name in _STEERING_METRICS:
      assert np.isfinite(found[name])
      continue
    np.testing.assert_allclose(
      found[name], wanted, rtol=1e-4, atol=1e-6, err_msg=f'{where} {name}'
    )


def check_state(state, oracle, where=''):
  """Asserts that the caches are those of NumPy."""
  state = core_state(state)
  for name, wanted in (
    ('round_num', oracle.round_num),
    ('core_set', oracle.core),
    ('core_round', oracle.row_round),
    ('last_seen', oracle.last_seen),
    ('clients_seen', np.sum(oracle.last_seen >= 0)),
  ):
    np.testing.assert_array_equal(
      state[name], wanted, err_msg=f'{where} {name}'
    )
  for name, wanted, tolerance in (
    ('core_updates', oracle.basis, 1e-4),
    ('coordinates', oracle.coordinates, 1e-4),
    ('client_weight', oracle.weight, 1e-6),
    ('weight_seen', np.sum(oracle.weight), 1e-6),
  ):
    error = numpy_oracle.relative_error(state[name], wanted)
    assert error <= tolerance, (where, name, error)
  if 'core_sketch' in state:
    wanted = oracle.basis @ oracle.sketch_matrix
    error = numpy_oracle.relative_error(state['core_sketch'], wanted)
    assert error <= 1e-4, (where, 'core_sketch', error)
  # The running sum is exact for the coordinates that are in the cache.
  products = state['coordinates'] * state['client_weight'][:, np.newaxis]
  np.testing.assert_allclose(
    state['baseline'],
    np.sum(products.astype(float), axis=0),
    atol=1e-9,
    rtol=1e-9,
    err_msg=f'{where} baseline',
  )


def run_against_oracle(
  rounds, *, duplicates='first', pad_to=None, **parameters
):
  """Runs rounds in both and compares after each; returns the outputs."""
  process = build(**parameters)
  oracle = build_oracle(duplicates, **parameters)
  state = process.initialize()
  outputs = []
  for round_num, reports in enumerate(rounds):
    delta, metrics = oracle.aggregate(reports)
    padded = list(reports)
    while pad_to and len(padded) < pad_to:
      padded.append(padding())
    output = run(process, state, padded)
    check_round(output, oracle, delta, metrics, f'round {round_num}:')
    outputs.append(output)
    state = output.state
  return outputs


def memory_of(value):
  """Returns all numbers of a state, for exact comparison."""
  return [np.asarray(part) for part in tf.nest.flatten(value)]
