"""What `scripts.benchmark` measures; each suite is a function.

A suite takes the number of measured rounds (None for its default) and whether
sizes are to be tiny. It returns `headlines`, from what was measured to text,
and `raw`, every number.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tqdm

import fedsteer_tff
from fedsteer_tff import aggregators
from fedsteer_tff import client_work
from fedsteer_tff import participation
from fedsteer_tff import programs
from fedsteer_tff import subspace
from fedsteer_tff.programs import memory
import tasks

Result = Mapping[str, Mapping[str, Any]]

_ROUNDS = 30
_MEMORY_ROUNDS = 2000
# Rounds that compile, fill the core set, and let memory settle.
_WARM_UP = 4
_CLIENTS = 10
_LEARNING_RATE = 0.01
_POPULATION = 100
_CORE_SET_SIZE = 10
_FLOAT = 4
_MIB = 2**20


def round_suite(rounds: Optional[int], small: bool) -> Result:
  """FedSteer's rounds against FedAvg's."""
  work = _Work(small)
  fedavg = work.fedavg()
  fedsteer = work.fedsteer()
  entries = {}
  with programs.LocalRuntime().activate() as runtime:
    for place, process in (('fedavg', fedavg), ('fedsteer', fedsteer)):
      entries[f'{place}, next'] = _passing(process, work.data_for(place))
      entries[f'{place}, resident'] = _resident(
        process, runtime, work.data_for(place)
      )
    entries['fedsteer k = 30, resident'] = _resident(
      work.fedsteer(core_set_size=3 * _CORE_SET_SIZE),
      runtime,
      work.data_for('fedsteer'),
    )
    # What it costs at least to get the states in and out.
    entries['fedavg, state passed'] = _passed(fedavg)
    entries['fedsteer, state passed'] = _passed(fedsteer)
    times = _interleave(runtime, entries, rounds or _ROUNDS)
  return dict(
    headlines={
      'FedSteer / FedAvg, process.next': times.ratio(
        'fedsteer, next', 'fedavg, next'
      ),
      'FedSteer’s state in and out': _seconds(
        times.seconds['fedsteer, state passed']
      ),
      'FedAvg’s state in and out': _seconds(
        times.seconds['fedavg, state passed']
      ),
      'FedSteer / FedAvg, state resident': times.ratio(
        'fedsteer, resident', 'fedavg, resident'
      ),
      'k = 30 / k = 10, state resident': times.ratio(
        'fedsteer k = 30, resident', 'fedsteer, resident'
      ),
      'FedAvg, process.next': _seconds(times.seconds['fedavg, next']),
      'FedAvg, state resident': _seconds(times.seconds['fedavg, resident']),
    },
    raw=dict(weights=work.num_weights, clients=_CLIENTS, **times.raw()),
  )


def population_suite(rounds: Optional[int], small: bool) -> Result:
  """Rounds with a hundred and with a million clients; the state's bytes."""
  work = _Work(small)
  many = 10_000 if small else 1_000_000
  names = {size: f'N = {size:,}' for size in (_POPULATION, many)}
  with programs.LocalRuntime().activate() as runtime:
    entries = {
      name: _resident(
        work.fedsteer(population_size=size, estimator='stable'),
        runtime,
        work.data_for('fedsteer', population_size=size),
      )
      for size, name in names.items()
    }
    times = _interleave(runtime, entries, rounds or _ROUNDS)
  large = _Work(small, dense_model=(100 if small else 1000))
  process = large.fedsteer(population_size=many)
  found = fedsteer_tff.state_size_report(process)
  aggregator = sum(
    size for name, size in found.items() if name.startswith('aggregator/')
  )
  k, weights = _CORE_SET_SIZE, large.num_weights
  formula = _FLOAT * (k * weights + many * k + 4 * many)
  return dict(
    headlines={
      f'{names[many]} / {names[_POPULATION]}, state resident': times.ratio(
        names[many], names[_POPULATION]
      ),
      f'state, N = {many:,}, D = {weights:,}, k = {k}, over'
      ' 4 (k D + N k + 4 N) bytes': f'{aggregator / formula:.3f}',
    },
    raw=dict(**times.raw(), state_bytes=dict(found), formula_bytes=formula),
  )


def large_model_suite(rounds: Optional[int], small: bool) -> Result:
  """The aggregation alone of a large model: made-up updates, no training."""
  dimension = 110_000 if small else 11_173_962
  processes = {
    'nothing': _making_up_only(dimension),
    'sum': _aggregation_only(
      aggregators.FedSteerFactory(_POPULATION, core_set=()), dimension
    ),
    'fedsteer': _aggregation_only(
      aggregators.FedSteerFactory(
        _POPULATION, core_set_size=_CORE_SET_SIZE, warmup_rounds=2
      ),
      dimension,
    ),
  }
  with programs.LocalRuntime(keep_freed_memory=True).activate() as runtime:
    entries = {
      name: _resident(
        process,
        runtime,
        lambda round_num: [
          np.int32((7 * round_num + 11 * i) % _POPULATION)
          for i in range(_CLIENTS)
        ],
      )
      for name, process in processes.items()
    }
    times = _interleave(runtime, entries, rounds or 10)

  def per_million(seconds: Any) -> str:
    return f'{np.median(seconds) / dimension * 1e6:.4f}'

  made_up = np.array(times.seconds['nothing'])
  return dict(
    headlines={
      f'seconds per million weights, D = {dimension:,}': per_million(
        times.seconds['fedsteer'] - made_up
      ),
      'without a core set': per_million(times.seconds['sum'] - made_up),
      'making the updates up, which is taken off both': per_million(made_up),
      'FedSteer / inverse-probability sum': times.ratio('fedsteer', 'sum'),
    },
    raw=dict(weights=dimension, clients=_CLIENTS, **times.raw()),
  )


def memory_suite(rounds: Optional[int], small: bool) -> Result:
  """Memory over many rounds of Bernoulli cohorts."""
  work = _Work(small)
  rounds = rounds or (60 if small else _MEMORY_ROUNDS)
  probabilities = participation.two_group_probabilities(
    _POPULATION, rate=0.1, skew=5.0
  )
  data = programs.CohortData(
    functools.cache(
      lambda client_id, p: work.client(client_id, _POPULATION, p)
    ),
    padding=client_work.padding_client_data(work.spec),
    multiple=4,
  )
  used = []
  bar = tqdm.tqdm(total=rounds, unit='round')

  class Watch(programs.Callback):
    def on_round(self, result: programs.RoundResult) -> None:
      used.append(memory.resident_bytes(*runtime.child_pids))
      bar.update()

  process = work.fedsteer(estimator='stable')
  with programs.LocalRuntime().activate() as runtime:
    programs.run(
      process,
      participation.BernoulliSampler(probabilities, seed=0),
      data,
      state=process.initialize(),
      runtime=runtime,
      num_rounds=rounds,
      callbacks=[Watch()],
    )
  bar.close()
  settled = min(50, rounds // 2)
  growth, most = (
    f'{100 * (size / used[settled - 1] - 1):+.1f} %'
    for size in (used[-1], max(used[settled:]))
  )
  return dict(
    headlines={
      f'round {rounds:,} against round {settled}': growth,
      f'the most after round {settled} against it': most,
      'resident at the end': f'{used[-1] / _MIB:.0f} MiB',
    },
    raw=dict(resident_bytes=used),
  )


def selection_suite(rounds: Optional[int], small: bool) -> Result:
  """A core set of 20 among 10,000 candidates, sketched to 256 numbers."""
  candidates, width, k = (300, 32, 5) if small else (10_000, 256, 20)
  sketches = np.random.default_rng(0).normal(size=[candidates, width])
  sketches = tf.constant(sketches, tf.float32)
  before = memory.peak_resident_bytes()
  seconds = []
  for _ in range(rounds or 3):
    start = time.perf_counter()
    selection = subspace.select_core_set_from_vectors(
      sketches, sketches, tf.ones([candidates]), k, ridge=0.01
    )
    selection.core_set.numpy()
    seconds.append(time.perf_counter() - start)
  grown = memory.peak_resident_bytes() - before
  return dict(
    headlines={
      f'{k} of {candidates:,} candidates': _seconds(seconds),
      'memory for it, at most': f'{grown / _MIB:.0f} MiB',
    },
    raw=dict(
      seconds=seconds,
      peak_growth_bytes=grown,
      num_swaps=int(selection.num_swaps),
      core_set=selection.core_set.numpy().tolist(),
    ),
  )


def traffic_suite(rounds: Optional[int], small: bool) -> Result:
  """What a client of the default design downloads, beside the model."""
  del rounds
  work = _Work(small)
  bytes_down = {
    name: _download_bytes(process)
    for name, process in (
      ('fedavg', work.fedavg()),
      ('fedsteer', work.fedsteer()),
      ('fedsteer client_projection', work.fedsteer('client_projection')),
    )
  }
  model = _FLOAT * work.num_weights
  extra = bytes_down['fedsteer'] - bytes_down['fedavg']
  exact = bytes_down['fedsteer client_projection'] - bytes_down['fedavg']
  return dict(
    headlines={
      'download beyond FedAvg’s, default design': (
        f'{100 * extra / model:.2f} % of the model'
      ),
      'the same, client_projection': f'{100 * exact / model:.0f} %',
    },
    raw=dict(weights=work.num_weights, download_bytes=bytes_down),
  )


def residual_suite(rounds: Optional[int], small: bool) -> Result:
  """How much worse coordinates from sketches are than exact ones.

  Fashion-MNIST (digits if small) is trained by plain averaging for a while;
  then every client trains once, and the updates are projected on those of a
  core set chosen among them.
  """
  task = tasks.load_task(
    'digits' if small else 'fashion_mnist',
    num_clients=20 if small else _POPULATION,
    examples_per_client=20 if small else 80,
    model=None if small else 'small_cnn',
    gamma=0.9,
    class_ratio=0.5,
    seed=0,
  )
  updates = _updates_of_all(task, rounds or (2 if small else 40))
  unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
  weights = np.ones(len(updates))
  sketch_size = aggregators.FedSteerFactory(_POPULATION).sketch_size
  ratios = {}
  for k in (_CORE_SET_SIZE, 2 * _CORE_SET_SIZE):
    core_set = subspace.select_core_set_from_vectors(
      unit, unit, weights, k, 0.01
    ).core_set.numpy()
    basis = updates[core_set]
    exact = _residual(updates, basis, subspace.project(basis, updates))
    ratios[f'k = {k}'] = [
      _residual(
        updates,
        basis,
        subspace.project(
          subspace.sketch(basis, sketch_size, seed),
          subspace.sketch(updates, sketch_size, seed),
        ),
      )
      / exact
      for seed in range(8)
    ]
  return dict(
    headlines={
      f'residual, sketched / exact, {name}': (
        f'{np.mean(values):.3f} (at most {max(values):.3f})'
      )
      for name, values in ratios.items()
    },
    raw=dict(
      task=task.name, weights=updates.shape[1], b=sketch_size, ratios=ratios
    ),
  )


def feed_suite(rounds: Optional[int], small: bool) -> Result:
  """How long a cohort's data take to the runtime, kept and made anew."""
  work = _Work(small)
  kept = work.data_for('fedsteer')
  anew = work.data_for('fedsteer', keep=False)
  client_type = client_work.client_data.client_data_type(work.model_fn)

  @tff.federated_computation(tff.FederatedType(client_type, tff.CLIENTS))
  def count(clients):
    @tff.tensorflow.computation(client_type)
    def batches(client):
      return client['data'].reduce(0, lambda total, _: total + 1)

    return tff.federated_sum(tff.federated_map(batches, clients))

  with programs.LocalRuntime().activate() as runtime:
    times = _interleave(
      runtime,
      {
        'kept': lambda round_num: count(kept(round_num)),
        'made anew': lambda round_num: count(anew(round_num)),
      },
      rounds or _ROUNDS,
    )
  return dict(
    headlines={
      f'{_CLIENTS} clients’ data, kept': _seconds(times.seconds['kept']),
      f'{_CLIENTS} clients’ data, made anew': _seconds(
        times.seconds['made anew']
      ),
    },
    raw=dict(**times.raw()),
  )


def import_suite(rounds: Optional[int], small: bool) -> Result:
  """Importing the package, beyond TFF."""
  code = (
    'import time, tensorflow_federated; start = time.perf_counter();'
    # Its parts are imported when they are asked for.
    ' import fedsteer_tff; fedsteer_tff.build_fedsteer;'
    ' fedsteer_tff.programs.run; print(time.perf_counter() - start)'
  )
  seconds = [
    float(
      subprocess.run(
        [sys.executable, '-c', code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
      ).stdout
    )
    for _ in range(min(rounds or 5, 1 if small else 5))
  ]
  return dict(
    headlines={'beyond TFF': _seconds(seconds)}, raw=dict(seconds=seconds)
  )


class _Work:
  """The local work of the suites: a CNN, three batches of 20 images."""

  def __init__(self, small: bool, dense_model: Optional[int] = None):
    self._width = 1 if small else 16
    self._dense_model = dense_model
    self.num_weights = self._keras_model().count_params()
    size = dense_model or (8 if small else 28)
    shape = [size] if dense_model else [size, size, 1]
    self._shape = shape
    self.spec = (
      tf.TensorSpec([None, *shape], tf.float32),
      tf.TensorSpec([None, 1], tf.int32),
    )

  def _keras_model(self) -> tf.keras.Model:
    layers = tf.keras.layers
    if self._dense_model:
      size = self._dense_model
      return tf.keras.Sequential([layers.Dense(size, input_shape=(size,))])
    width = self._width
    size = 28 if width > 1 else 8
    conv = functools.partial(
      layers.Conv2D, kernel_size=5, padding='same', activation='relu'
    )
    return tf.keras.Sequential(
      [
        layers.InputLayer([size, size, 1]),
        conv(width),
        layers.MaxPool2D(),
        conv(2 * width),
        layers.MaxPool2D(),
        layers.Flatten(),
        layers.Dense(16 * width, activation='relu'),
        layers.Dense(62),
      ]
    )

  def model_fn(self) -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
      self._keras_model(),
      tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      self.spec,
    )

  def fedavg(self) -> tff.learning.templates.LearningProcess:
    return tff.learning.algorithms.build_unweighted_fed_avg(
      self.model_fn,
      tff.learning.optimizers.build_sgdm(_LEARNING_RATE),
      # As FedSteer trains, and faster than TFF's default.
      loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )

  def fedsteer(
    self, aggregation: str = 'sketched_projection', **kwargs: Any
  ) -> tff.learning.templates.LearningProcess:
    arguments: dict[str, Any] = dict(
      aggregation=aggregation,
      population_size=_POPULATION,
      core_set_size=_CORE_SET_SIZE,
      client_optimizer=tff.learning.optimizers.build_sgdm(_LEARNING_RATE),
      warmup_rounds=2,
    )
    return fedsteer_tff.build_fedsteer(self.model_fn, **{**arguments, **kwargs})

  def dataset(self, client_id: int) -> tf.data.Dataset:
    rng = np.random.default_rng(client_id)
    x = rng.normal(size=[60, *self._shape]).astype(np.float32)
    y = rng.integers(0, 62, size=[60, 1]).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(20)

  def client(
    self, client_id: int, population_size: int, probability: float
  ) -> Mapping[str, tf.data.Dataset]:
    return fedsteer_tff.build_client_data(
      client_id,
      self.dataset(client_id),
      weight=1 / population_size,
      participation_probability=probability,
    )

  def data_for(
    self, algorithm: str, population_size: int = _POPULATION, keep: bool = True
  ) -> Callable[[int], Sequence[Any]]:
    """Returns a function from a round to the data of its ten clients."""
    if algorithm == 'fedavg':
      make = self.dataset
    else:
      make = functools.partial(
        self.client,
        population_size=population_size,
        probability=_CLIENTS / _POPULATION,
      )
    if keep:
      make = functools.cache(make)

    def data(round_num):
      # All clients of 30 have been there when rounds are measured.
      return [make((round_num + 3 * i) % 30) for i in range(_CLIENTS)]

    return data


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
    own = dimension // _POPULATION
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
        participation_probability=tf.constant(_CLIENTS / _POPULATION),
      ),
      tf.constant(1 / _POPULATION),
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


def _without_weights(next_fn, initialize) -> _Aggregation:
  @tff.tensorflow.computation(next_fn.type_signature.parameter[0].member)
  def no_weights(state):
    del state
    return tf.constant(0.0)

  return _Aggregation(next_fn, initialize, no_weights)


def _passing(process, data) -> Callable[[int], None]:
  state = process.initialize()

  def run(round_num):
    nonlocal state
    state = process.next(state, data(round_num)).state

  return run


def _passed(
  process: tff.learning.templates.LearningProcess,
) -> Callable[[int], None]:
  """Passes a state to a computation that returns it."""
  state = process.initialize()
  state_type = process.next.type_signature.parameter[0]

  @tff.tensorflow.computation(state_type.member)
  def copy(value):
    return tf.nest.map_structure(tf.identity, value)

  @tff.federated_computation(state_type)
  def through(value):
    return tff.federated_map(copy, value)

  return lambda _: through(state)


def _resident(process, runtime, data) -> Callable[[int], None]:
  resident = programs.ResidentProcess(process, runtime)
  resident.put(process.initialize())

  def run(round_num):
    resident.next(data(round_num))

  return run


@dataclasses.dataclass(frozen=True)
class _Times:
  """Each entry's measured rounds: seconds, and CPU seconds of all processes."""

  seconds: Mapping[str, list[float]]
  cpu_seconds: Mapping[str, list[float]]

  def ratio(self, one: str, other: str) -> str:
    """Returns the median of the rounds' ratios, quartiles, and that of CPU."""
    ratios = np.divide(self.seconds[one], self.seconds[other])
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    cpu = sum(self.cpu_seconds[one]) / sum(self.cpu_seconds[other])
    return f'{median:.2f} ({low:.2f} to {high:.2f}), of CPU time {cpu:.2f}'

  def raw(self) -> Mapping[str, Any]:
    """Returns every number."""
    return dict(seconds=self.seconds, cpu_seconds=self.cpu_seconds)


def _interleave(
  runtime: programs.LocalRuntime,
  entries: Mapping[str, Callable[[int], Any]],
  rounds: int,
) -> _Times:
  """Runs all entries in turns, and measures them after a few rounds."""
  times = _Times({name: [] for name in entries}, {name: [] for name in entries})
  names = list(entries)
  for round_num in tqdm.trange(_WARM_UP + rounds, unit='round'):
    # So that none always follows the same other one.
    shift = round_num % len(names)
    for name in names[shift:] + names[:shift]:
      start, cpu_start = time.perf_counter(), _cpu_seconds(runtime)
      entries[name](round_num)
      if round_num >= _WARM_UP:
        times.seconds[name].append(time.perf_counter() - start)
        times.cpu_seconds[name].append(_cpu_seconds(runtime) - cpu_start)
  return times


def _cpu_seconds(runtime: programs.LocalRuntime) -> float:
  """Returns the CPU time that this process and the runtime have used."""
  ticks = 0
  for pid in runtime.child_pids:
    with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as f:
      fields = f.read().rpartition(')')[2].split()
    ticks += int(fields[11]) + int(fields[12])  # utime and stime
  return time.process_time() + ticks / os.sysconf('SC_CLK_TCK')


def _seconds(values: Sequence[float]) -> str:
  return f'{statistics.median(values):.3f} s'


def _download_bytes(process: tff.learning.templates.LearningProcess) -> int:
  """Returns the bytes that the server sends to each client in a round."""
  form = tff.backends.mapreduce.get_map_reduce_form_for_computation(
    process.next
  )
  return sum(
    tensor.dtype.itemsize * int(np.prod(tensor.shape))
    for tensor in tff.structure.flatten(form.prepare.type_signature.result)
  )


def _updates_of_all(task: tasks.FederatedTask, rounds: int) -> np.ndarray:
  """Returns every client's update [N, D] after some rounds of averaging."""
  model = task.keras_model_fn()
  variables = model.trainable_variables
  loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

  @tf.function
  def train(dataset):
    for x, y in dataset:
      with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
      for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(0.1 * gradient)

  def update_of(client, weights):
    for variable, weight in zip(variables, weights):
      variable.assign(weight)
    train(task.client_datasets[client])
    return [w - v.numpy() for w, v in zip(weights, variables)]

  weights = [v.numpy() for v in variables]
  rng = np.random.default_rng(0)
  for _ in range(rounds):
    cohort = rng.choice(task.num_clients, _CLIENTS, replace=False)
    updates = [update_of(client, weights) for client in cohort]
    weights = [
      w - np.mean(parts, axis=0) for w, *parts in zip(weights, *updates)
    ]
  return np.stack(
    [
      np.concatenate([part.ravel() for part in update_of(client, weights)])
      for client in range(task.num_clients)
    ]
  )


def _residual(
  updates: np.ndarray, basis: np.ndarray, coordinates: tf.Tensor
) -> float:
  """Returns ||G - S Q|| / ||G||."""
  difference = updates - coordinates.numpy() @ basis
  return float(np.linalg.norm(difference) / np.linalg.norm(updates))
