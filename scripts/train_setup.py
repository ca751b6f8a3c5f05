"""From flags to the parts of a training run."""

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import hashlib
import importlib.metadata
import pathlib
import platform
from typing import Any, Optional, Union

from absl import flags
import grpc
import numpy as np
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import aggregators
from fedsteer_tff import algorithms
from fedsteer_tff import client_work
from fedsteer_tff import participation
from fedsteer_tff import programs
from fedsteer_tff.programs import training_loop
from scripts import train_flags
import tasks

# Hexadecimal digits of a hash.
_HASH_DIGITS = 16

# The class of each --participation_estimate, and its arguments' flags.
_ESTIMATORS = {
  'frequency': participation.RunningFrequency,
  'windowed': participation.WindowedFrequency,
  'interval': participation.IntervalEstimate,
}
_ESTIMATOR_ARGUMENTS = {
  'participation_prior': 'prior_probability',
  'participation_prior_rounds': 'prior_rounds',
  'participation_floor': 'floor',
  'participation_window': 'window',
  'participation_cutoff': 'cutoff',
  'participation_population': 'population',
}

_PACKAGES = ('tensorflow-federated', 'tensorflow', 'numpy', 'keras')


@dataclasses.dataclass(frozen=True)
class Training:
  """Everything that a run needs.

  Attributes:
    task: The task.
    process: The learning process.
    sampler: Draws the cohorts.
    client_data_fn: From a cohort to client data.
    forced_clients_fn: See `training_loop.run`; None if nobody is forced.
    state_bytes: Bytes of the server's state by part.
  """

  task: tasks.FederatedTask
  process: tff.learning.templates.LearningProcess
  sampler: participation.BernoulliSampler
  client_data_fn: programs.CohortData
  forced_clients_fn: Optional[training_loop.ForcedClientsFn]
  state_bytes: Mapping[str, int]


def build(values: flags.FlagValues) -> Training:
  """Builds what the flags describe.

  Args:
    values: Flags that have passed `train_flags.check`.

  Returns:
    The parts of the run.

  Raises:
    ValueError: If a value is refused; the message starts with the argument.
    TypeError: Likewise.
  """
  task = tasks.load_task(
    values.task,
    seed=values.seed,
    **train_flags.given(values, train_flags.TASK_FLAGS),
  )
  num_clients = len(task.client_datasets)
  population = participation.Population(
    task.num_examples, _probabilities(values, num_clients)
  )
  process = _build_process(values, task, num_clients)
  return Training(
    task=task,
    process=process,
    sampler=participation.BernoulliSampler(
      population.participation_probabilities, values.seed
    ),
    client_data_fn=_cohort_data(task, population),
    forced_clients_fn=_forced_clients_fn(values, num_clients),
    state_bytes=algorithms.state_size_report(process),
  )


def runtime(
  values: flags.FlagValues,
) -> Union[programs.LocalRuntime, programs.RemoteRuntime]:
  """Starts the runtime that the flags describe, or connects to it.

  Args:
    values: Flags that have passed `train_flags.check`.

  Returns:
    The runtime; `activate()` uses it and ends it.

  Raises:
    programs.LocalRuntimeError: If it does not start.
    programs.RemoteRuntimeError: If a worker does not answer.
  """
  simulate_secure_sums = values.correction == 'secure'
  if values.workers is None:
    return programs.LocalRuntime(
      simulate_secure_sums=simulate_secure_sums,
      deterministic=values.deterministic,
      keep_freed_memory=values.keep_freed_memory,
    )
  credentials = None
  if values.tls_ca:
    ca, certificate, key = (
      pathlib.Path(values[name].value).read_bytes()
      for name in train_flags.TLS_FLAGS
    )
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
  return programs.RemoteRuntime(
    values.workers,
    timeout_seconds=values.worker_timeout,
    credentials=credentials,
    simulate_secure_sums=simulate_secure_sums,
  )


def participation_argument(values: flags.FlagValues) -> Any:
  """Returns the argument `participation` of `build_...` functions.

  Args:
    values: Flags that have passed `train_flags.check`.

  Raises:
    ValueError: If a value is refused; the message starts with the argument.
  """
  choice = values.participation_estimate
  if choice == 'known':
    return choice
  given = train_flags.given(values, train_flags.ESTIMATE_FLAGS[choice])
  # A server knows how large its cohorts are, if not who is in them how often.
  given.setdefault('participation_prior', values.participation_rate)
  return _ESTIMATORS[choice](
    **{_ESTIMATOR_ARGUMENTS[name]: value for name, value in given.items()}
  )


def versions() -> dict[str, str]:
  """Returns the versions of Python and the packages that results hang on."""
  found = {
    'python': platform.python_version(),
    'fedsteer-tff': fedsteer_tff.__version__,
  }
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found[package] = 'unknown'
  return found


def hashes(training: Training, *, seed: int, num_rounds: int) -> dict[str, str]:
  """Returns hashes of what runs must have in common to be compared.

  Args:
    training: The parts of the run.
    seed: The run's seed.
    num_rounds: How many rounds are planned.

  Returns:
    'partition': of the clients' examples and the test set; 'participation': of
    who is drawn in the planned rounds and with which probability, nobody being
    forced; 'initial_weights': of the model before the first round.
  """
  participation_hash = hashlib.sha256()
  for round_num in range(1, num_rounds + 1):
    cohort = training.sampler.cohort(round_num)
    for array in (
      np.int64(cohort.num_clients),
      cohort.client_ids.astype(np.int64),
      cohort.participation_probabilities.astype(np.float64),
    ):
      participation_hash.update(array.tobytes())
  weights_hash = hashlib.sha256()
  weights = programs.seeded_weights(training.task.model_fn, seed)
  for array in (*weights.trainable, *weights.non_trainable):
    weights_hash.update(str(array.shape).encode())
    weights_hash.update(array.tobytes())
  return {
    'partition': training.task.fingerprint[:_HASH_DIGITS],
    'participation': participation_hash.hexdigest()[:_HASH_DIGITS],
    'initial_weights': weights_hash.hexdigest()[:_HASH_DIGITS],
  }


def _probabilities(values: flags.FlagValues, num_clients: int) -> np.ndarray:
  if values.participation == 'explicit':
    return _explicit_probabilities(values, num_clients)
  if values.participation == 'two_group':
    return participation.two_group_probabilities(
      num_clients,
      rate=values.participation_rate,
      skew=values.participation_skew,
    )
  return participation.uniform_probabilities(
    num_clients, rate=values.participation_rate
  )


def _explicit_probabilities(
  values: flags.FlagValues, num_clients: int
) -> np.ndarray:
  found = train_flags.probabilities(values)
  if len(found) != num_clients:
    raise ValueError(
      'participation_probabilities must be one for each of the'
      f' {num_clients} clients, found {len(found)}'
    )
  return np.array(found)


def _build_process(
  values: flags.FlagValues, task: tasks.FederatedTask, num_clients: int
) -> tff.learning.templates.LearningProcess:
  sgd = tff.learning.optimizers.build_sgdm
  arguments = train_flags.given(
    values, train_flags.ALGORITHM_FLAGS[values.algorithm]
  )
  if values.algorithm == 'fedsteer':
    arguments['correction_factory'] = correction_factory(values)
  arguments['participation'] = participation_argument(values)
  if values.algorithm == 'scaffold':
    arguments['client_learning_rate'] = values.client_learning_rate
  else:
    arguments['client_optimizer'] = sgd(values.client_learning_rate)
  return getattr(algorithms, f'build_{values.algorithm}')(
    task.model_fn,
    num_clients,
    server_optimizer=sgd(values.server_learning_rate),
    **arguments,
  )


def correction_factory(
  values: flags.FlagValues,
) -> Optional[tff.aggregators.UnweightedAggregationFactory]:
  """Returns what sums FedSteer's correction; None for a plain sum."""
  norm = values.correction_norm
  if values.correction == 'clipped':
    return tff.aggregators.clipping_factory(norm, tff.aggregators.SumFactory())
  if values.correction == 'zeroed':
    return tff.aggregators.zeroing_factory(
      norm, tff.aggregators.SumFactory(), norm_order=2.0
    )
  if values.correction == 'secure':
    return tff.aggregators.SecureSumFactory(norm)
  if values.correction == 'private':
    return aggregators.private_correction(values.noise_multiplier, norm)
  return None


def _cohort_data(
  task: tasks.FederatedTask,
  population: participation.Population,
) -> programs.CohortData:
  # Kept: TensorFlow never frees all of a dataset, so that new ones in every
  # round would let the memory grow. There are two for a client at most: one for
  # its own probability and one for rounds in which it is forced.
  @functools.cache
  def client_data(client_id: int, probability: float) -> Any:
    return client_work.build_client_data(
      client_id,
      task.client_datasets[client_id],
      weight=float(population.weights[client_id]),
      participation_probability=probability,
    )

  return programs.CohortData(
    client_data,
    padding=client_work.padding_client_data(task.element_spec),
    multiple=programs.cohort_multiple(population.participation_probabilities),
  )


def _forced_clients_fn(
  values: flags.FlagValues,
  num_clients: int,
) -> Optional[training_loop.ForcedClientsFn]:
  if not values.enforce_core_every:
    return None
  enforced = train_flags.client_ids(values, 'enforced_clients')
  if enforced is not None:
    _check_enforced(enforced, num_clients)
  return functools.partial(_overdue, values.enforce_core_every, enforced)


def _check_enforced(enforced: Sequence[int], num_clients: int) -> None:
  """Raises ValueError unless these are different clients."""
  unknown = [i for i in enforced if not 0 <= i < num_clients]
  if unknown:
    raise ValueError(
      f'enforced_clients must be ids in [0, {num_clients}), found {unknown}'
    )
  if len(set(enforced)) < len(enforced):
    raise ValueError(
      f'enforced_clients must be distinct, found {list(enforced)}'
    )


def _overdue(
  every: int, enforced: Optional[Sequence[int]], state: Any, round_num: int
) -> Sequence[int]:
  del round_num  # The state counts for itself.
  status = algorithms.core_set_status(state, enforced)
  return participation.overdue_core_clients(
    status.core_set, status.last_active, status.round_num, every
  )
