"""How long the aggregation takes, without any training."""

import collections
from collections.abc import Callable, Mapping
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import programs
from fedsteer_tff import subspace
from scripts.benchmark_suites import results
from scripts.benchmark_suites import timing
from scripts.benchmark_suites import training

_FEW_WEIGHTS = 1000


def aggregation_suite(rounds: Optional[int], small: bool) -> results.Result:
  """The aggregation alone of the CNN: made-up updates, no training."""
  dimension = training.Work(small).num_weights
  times = _measure(_aggregations(dimension), rounds)
  passes = _measure(_passes(dimension), rounds)
  # Of so short updates that only what each client costs by itself is left.
  few = _measure(_aggregations(_FEW_WEIGHTS), rounds)

  def beyond(one: str, other: str, measured: timing.Times = times) -> str:
    differences = np.subtract(measured.seconds[one], measured.seconds[other])
    return f'{1000 * np.median(differences):.1f} ms'

  return dict(
    headlines={
      **{
        f'{name}, D = {dimension:,}': f'{1000 * np.median(seconds):.1f} ms'
        for name, seconds in times.seconds.items()
      },
      'fedsteer beyond mean': beyond('fedsteer', 'mean'),
      'sum beyond mean': beyond('sum', 'mean'),
      f'fedsteer beyond mean, D = {_FEW_WEIGHTS:,}': beyond(
        'fedsteer', 'mean', few
      ),
      **{
        f'{name} beyond no pass': beyond(name, 'no pass', passes)
        for name in passes.seconds
        if name != 'no pass'
      },
    },
    raw=dict(
      weights=dimension,
      clients=training.CLIENTS,
      **times.raw(),
      passes=passes.raw(),
      few_weights=few.raw(),
    ),
  )


def large_model_suite(rounds: Optional[int], small: bool) -> results.Result:
  """The aggregation alone of a large model: made-up updates, no training."""
  dimension = 110_000 if small else 11_173_962
  times = _measure(_aggregations(dimension), rounds, keep_freed_memory=True)
  passes = _measure(_passes(dimension), rounds, keep_freed_memory=True)

  def per_million(seconds: Any) -> str:
    return f'{np.median(seconds) / dimension * 1e6:.4f}'

  made_up = np.array(times.seconds['nothing'])
  no_pass = np.array(passes.seconds['no pass'])
  return dict(
    headlines={
      f'seconds per million weights, D = {dimension:,}': per_million(
        times.seconds['fedsteer'] - made_up
      ),
      'without a core set': per_million(times.seconds['sum'] - made_up),
      'TFF’s unweighted mean': per_million(times.seconds['mean'] - made_up),
      'making the updates up, which is taken off': per_million(made_up),
      'a copy of Q, a product with Q, ten sketches': ', '.join(
        per_million(passes.seconds[name] - no_pass)
        for name in ('copy of Q', 'product with Q', 'ten sketches')
      ),
      'FedSteer / inverse-probability sum': times.ratio('fedsteer', 'sum'),
    },
    raw=dict(
      weights=dimension,
      clients=training.CLIENTS,
      **times.raw(),
      passes=passes.raw(),
    ),
  )


def _aggregations(dimension: int) -> Mapping[str, Any]:
  """Builds rounds of what is compared, without any training."""
  return {
    'nothing': _making_up_only(dimension),
    'mean': _mean_only(dimension),
    'sum': _aggregation_only(
      aggregators.FedSteerFactory(training.POPULATION, core_set=()), dimension
    ),
    'fedsteer': _aggregation_only(
      aggregators.FedSteerFactory(
        training.POPULATION,
        core_set_size=training.CORE_SET_SIZE,
        warmup_rounds=2,
      ),
      dimension,
    ),
  }


def _passes(dimension: int) -> Mapping[str, Any]:
  """Builds rounds with one pass over k D numbers each, and with none."""
  return {
    'no pass': _pass_over_q(dimension, _none),
    'copy of Q': _pass_over_q(dimension, _copy, changes=True),
    'product with Q': _pass_over_q(dimension, _product),
    'ten sketches': _pass_over_q(dimension, _sketches),
  }


def _measure(
  processes: Mapping[str, Any],
  rounds: Optional[int],
  keep_freed_memory: bool = False,
) -> timing.Times:
  """Measures rounds of processes in turns, in a runtime of their own."""

  def client_ids(round_num):
    return [
      np.int32((7 * round_num + 11 * i) % training.POPULATION)
      for i in range(training.CLIENTS)
    ]

  made = programs.LocalRuntime(keep_freed_memory=keep_freed_memory)
  with made.activate() as runtime:
    entries = {
      name: timing.resident(process, runtime, client_ids)
      for name, process in processes.items()
    }
    return timing.interleave(runtime, entries, rounds or 10)


class _Aggregation:
  """An aggregation as a learning process without a model."""

  def __init__(self, next_fn, initialize, get_model_weights):
    self.next = next_fn
    self.initialize = initialize
    self.get_model_weights = get_model_weights


def _make_up_fn(dimension: int) -> tff.Computation:
  """Builds a computation from an id to an update with its id, and a weight."""

  @tff.tensorflow.computation(np.int32)
  def make_up(client_id):
    # Cheap to make, as it must not hide the aggregation, and no two alike, so
    # that clients enter the core set: some is common, a part only its own.
    own = dimension // training.POPULATION
    before = own * client_id
    update = tf.concat(
      [
        tf.fill([before], 0.1),
        tf.fill([own], 1.0 + tf.cast(client_id, tf.float32)),
        tf.fill([dimension - own - before], 0.1),
      ],
      axis=0,
    )
    return (
      collections.OrderedDict(
        update=tf.ensure_shape(update, [dimension]),
        client_id=client_id,
        participation_probability=tf.constant(
          training.CLIENTS / training.POPULATION
        ),
      ),
      tf.constant(1 / training.POPULATION),
    )

  return make_up


def _aggregation_only(
  factory: aggregators.FedSteerFactory, dimension: int
) -> _Aggregation:
  """Builds rounds in which clients make up updates from their ids."""
  make_up = _make_up_fn(dimension)
  process = factory.create(*make_up.type_signature.result)
  state_type = process.next.type_signature.parameter[0]

  @tff.federated_computation(
    state_type, tff.FederatedType(np.int32, tff.CLIENTS)
  )
  def next_fn(state, ids):
    made_up = tff.federated_map(make_up, ids)
    output = process.next(state, made_up[0], made_up[1])
    return tff.learning.templates.LearningProcessOutput(
      output.state, output.measurements
    )

  return _without_weights(next_fn, process.initialize)


def _making_up_only(dimension: int) -> _Aggregation:
  """Builds rounds in which nothing is done with the same updates."""
  make_up = _make_up_fn(dimension)

  @tff.tensorflow.computation(make_up.type_signature.result)
  def look_at(value, weight):
    del weight
    return value['update'][-1]

  @tff.federated_computation(
    tff.FederatedType(np.float32, tff.SERVER),
    tff.FederatedType(np.int32, tff.CLIENTS),
  )
  def next_fn(state, ids):
    seen = tff.federated_map(look_at, tff.federated_map(make_up, ids))
    return tff.learning.templates.LearningProcessOutput(
      state, tff.federated_sum(seen)
    )

  @tff.federated_computation
  def initialize():
    return tff.federated_value(np.float32(0), tff.SERVER)

  return _without_weights(next_fn, initialize)


def _mean_only(dimension: int) -> _Aggregation:
  """Builds rounds in which TFF's own FedAvg averages the same updates."""
  make_up = _make_up_fn(dimension)
  update_type = make_up.type_signature.result[0].update
  process = tff.aggregators.UnweightedMeanFactory().create(update_type)

  @tff.tensorflow.computation(make_up.type_signature.result)
  def update_of(value, weight):
    del weight
    return value['update']

  # A round is over when what it measures is there.
  @tff.tensorflow.computation(update_type)
  def last(mean):
    return mean[-1]

  @tff.federated_computation(
    process.next.type_signature.parameter[0],
    tff.FederatedType(np.int32, tff.CLIENTS),
  )
  def next_fn(state, ids):
    updates = tff.federated_map(update_of, tff.federated_map(make_up, ids))
    output = process.next(state, updates)
    return tff.learning.templates.LearningProcessOutput(
      output.state, tff.federated_map(last, output.result)
    )

  return _without_weights(next_fn, process.initialize)


def _none(core_updates):
  return core_updates[0, :1]


def _copy(core_updates):
  # As `server_round` writes it, with a row for each client.
  slots = tf.range(training.CORE_SET_SIZE)
  written = tf.dynamic_stitch(
    [slots, slots[:0]], [core_updates, core_updates[:0]]
  )
  return tf.ensure_shape(written, core_updates.shape)


def _product(core_updates):
  # That of the correction, and that of the baseline.
  coordinates = tf.ones([2, training.CORE_SET_SIZE])
  return subspace.reconstruct(core_updates, coordinates)


def _sketches(core_updates):
  # As many clients' as Q has rows.
  size = aggregators.FedSteerFactory(training.POPULATION).sketch_size
  return subspace.sketch(core_updates, size)


def _pass_over_q(
  dimension: int, function: Callable[[Any], Any], changes: bool = False
) -> _Aggregation:
  """Builds rounds with nothing but one of the passes over k D numbers.

  Args:
    dimension: D.
    function: From Q to a tensor.
    changes: Whether that is the new Q.
  """
  q_type = tff.TensorType(np.float32, [training.CORE_SET_SIZE, dimension])

  @tff.tensorflow.computation(q_type)
  def compute(core_updates):
    result = function(core_updates)
    # A round is over when what it measures is there.
    return (result if changes else core_updates), tf.reshape(result, [-1])[-1]

  @tff.federated_computation(
    tff.FederatedType(q_type, tff.SERVER),
    tff.FederatedType(np.int32, tff.CLIENTS),
  )
  def next_fn(state, ids):
    del ids
    return tff.learning.templates.LearningProcessOutput(
      *tff.federated_map(compute, state)
    )

  @tff.tensorflow.computation
  def ones():
    return tf.ones([training.CORE_SET_SIZE, dimension])

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(ones, tff.SERVER)

  return _without_weights(next_fn, initialize)


def _without_weights(next_fn, initialize) -> _Aggregation:
  @tff.tensorflow.computation(next_fn.type_signature.parameter[0].member)
  def no_weights(state):
    del state
    return tf.constant(0.0)

  return _Aggregation(next_fn, initialize, no_weights)
