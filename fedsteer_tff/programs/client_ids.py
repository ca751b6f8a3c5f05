"""Cohorts as data sources of `tff.program`, and processes that take only ids.

A program of `tff.learning.programs` gets its clients from a data source and
keeps the source's iterator in its checkpoints. Here the iterator is no more
than a `participation.BernoulliSampler` and the number of draws made, so that a
program, a resumed program and `training_loop.run` of the same seed train the
same clients: draw r is the cohort of round r.

Clients that are forced to take part (`participation.overdue_core_clients`) have
no place here: whom to force follows from the state of the learning process,
which a data source does not see, and a forced client has to declare p_i = 1 in
that round alone, which an id cannot. `training_loop.run` has both at hand.
"""

import base64
import collections
from collections.abc import Callable
import json
from typing import Optional

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import client_work
from fedsteer_tff import participation
from fedsteer_tff.participation import identity
from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import cohorts

_ENTRIES = ('num_draws', 'probabilities', 'seed')


def _ids_type() -> tff.FederatedType:
  return tff.FederatedType(np.int32, tff.CLIENTS)


class BernoulliDataSourceIterator(tff.program.FederatedDataSourceIterator):
  """Yields the cohorts of a sampler, one after the other.

  Compares equal to an iterator that will yield the same cohorts: one with the
  same seed, probabilities and number of draws made. As that number changes, an
  iterator has no hash.
  """

  def __init__(
    self, sampler: participation.BernoulliSampler, num_draws: int = 0
  ):
    """Keeps the arguments.

    Args:
      sampler: Draws the cohorts.
      num_draws: How many have been drawn.

    Raises:
      TypeError: If `sampler` is something else.
      ValueError: If `num_draws` is not an integer >= 0.
    """
    arguments.check_instance(
      'sampler',
      sampler,
      participation.BernoulliSampler,
      'a participation.BernoulliSampler',
    )
    arguments.check_integer('num_draws', num_draws, 0)
    self._sampler = sampler
    self._num_draws = num_draws

  @property
  def federated_type(self) -> tff.FederatedType:
    """`{int32}@CLIENTS`: a client's id."""
    return _ids_type()

  @property
  def num_draws(self) -> int:
    """How many cohorts have been selected."""
    return self._num_draws

  def select(self, k: Optional[int] = None) -> list[np.int32]:
    """Draws the next cohort.

    Args:
      k: Does not choose how many clients take part, since each does or does
        not by itself; cohorts are filled up to the next multiple of it by
        `participation.identity.PADDING_CLIENT_ID`, see `cohorts.CohortData`
        for the reason. None for no filling up.

    Returns:
      The ids, ascending, and those that fill up.

    Raises:
      ValueError: If `k` is neither None nor an integer >= 1.
    """
    if k is not None:
      cohorts.check_multiple(k, 'k')
    self._num_draws += 1
    client_ids = list(self._sampler.cohort(self._num_draws).client_ids)
    if k is not None:
      padding = np.int32(identity.PADDING_CLIENT_ID)
      client_ids += [padding] * cohorts.num_padding(len(client_ids), k)
    return client_ids

  def to_bytes(self) -> bytes:
    """Serializes the seed, the probabilities and the number of draws.

    Returns:
      JSON in ASCII, for `from_bytes`.
    """
    probabilities = self._sampler.probabilities.astype('<f8').tobytes()
    content = {
      'num_draws': self._num_draws,
      'probabilities': base64.b64encode(probabilities).decode('ascii'),
      'seed': self._sampler.seed,
    }
    return json.dumps(content).encode('ascii')

  @classmethod
  def from_bytes(cls, buffer: bytes) -> 'BernoulliDataSourceIterator':
    """Returns the iterator that `to_bytes` was called on.

    Args:
      buffer: What `to_bytes` returned.

    Returns:
      An iterator that equals that one.

    Raises:
      ValueError: If it is something else.
    """
    try:
      content = json.loads(buffer)
      num_draws, encoded, seed = (content[name] for name in _ENTRIES)
      decoded = base64.b64decode(encoded, validate=True)
      probabilities = np.frombuffer(decoded, '<f8')
    except (KeyError, TypeError, ValueError) as e:
      raise ValueError(
        f'buffer must hold an iterator with {", ".join(_ENTRIES)}, found'
        f' {buffer[:40]!r}: {e}'
      ) from e
    return cls(participation.BernoulliSampler(probabilities, seed), num_draws)

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, BernoulliDataSourceIterator):
      return NotImplemented
    return self._num_draws == other._num_draws and _same_draws(
      self._sampler, other._sampler
    )


class BernoulliDataSource(tff.program.FederatedDataSource):
  """Yields ids of clients, each taking part independently of all others.

  The cohorts are those of `participation.BernoulliSampler`, which is drawn from
  by the probabilities with which the clients do take part. What a client tells
  the server about its probability, known or estimated, is up to the data that
  its id stands for: see `build_client_data_computation`.
  """

  def __init__(self, probabilities: npt.ArrayLike, seed: int):
    """Initializes the source.

    Args:
      probabilities: Array-like of float, [N], p_i in (0, 1].
      seed: A non-negative integer.

    Raises:
      TypeError: If `seed` is not an integer, or the probabilities are not
        numbers.
      ValueError: If `seed` is negative, or a probability is outside (0, 1].
    """
    self._sampler = participation.BernoulliSampler(probabilities, seed)

  @property
  def federated_type(self) -> tff.FederatedType:
    """`{int32}@CLIENTS`: a client's id."""
    return _ids_type()

  def iterator(self) -> BernoulliDataSourceIterator:
    """Begins with the first draw.

    Returns:
      A new iterator.
    """
    return BernoulliDataSourceIterator(self._sampler)

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, BernoulliDataSource):
      return NotImplemented
    return _same_draws(self._sampler, other._sampler)

  def __hash__(self) -> int:
    return hash((self._sampler.seed, self._sampler.probabilities.tobytes()))


def _same_draws(
  one: participation.BernoulliSampler, other: participation.BernoulliSampler
) -> bool:
  return one.seed == other.seed and np.array_equal(
    one.probabilities, other.probabilities
  )


def build_client_data_computation(
  dataset_fn: Callable[[tf.Tensor], tf.data.Dataset],
  population: participation.Population,
) -> tff.Computation:
  """Returns the computation from a client's id to its data.

  Args:
    dataset_fn: From an id (an int32 scalar tensor in [0, N)) to the client's
      batches, as the model takes them. Called once, inside a graph: it has to
      find the data by TensorFlow's means, such as a file named by the id.
    population: The N clients' weights, and the participation probabilities
      that they declare: the true ones, estimates, or NaN for those that are not
      known, which the process has to estimate then.

  Returns:
    A `tff.Computation` from int32 to `client_work.client_data_type`. The id
    that fills cohorts up gives a client that is ignored; other ids outside of
    [0, N) keep their number, and no data, for the server to refuse.

  Raises:
    TypeError: If an argument is something else, or `dataset_fn` returns no
      dataset.
  """
  arguments.check_callable('dataset_fn', dataset_fn)
  arguments.check_instance(
    'population',
    population,
    participation.Population,
    'a participation.Population',
  )
  # Copies: what is traced must not change with the caller's arrays.
  weights = population.weights.astype(np.float32)
  probabilities = population.participation_probabilities.astype(np.float32)

  @tff.tensorflow.computation(np.int32)
  def client_data(
    client_id: tf.Tensor,
  ) -> collections.OrderedDict[str, tf.data.Dataset]:
    known = (client_id >= 0) & (client_id < len(weights))
    index = tf.where(known, client_id, 0)
    dataset = dataset_fn(index)
    if not isinstance(dataset, tf.data.Dataset):
      raise TypeError(
        f'dataset_fn must return a tf.data.Dataset, found {dataset!r}'
      )
    everything, nothing = tf.constant(-1, tf.int64), tf.constant(0, tf.int64)
    return collections.OrderedDict(
      ident=client_work.build_identity_dataset(
        client_id,
        tf.where(known, tf.gather(weights, index), 0.0),
        tf.where(known, tf.gather(probabilities, index), 1.0),
      ),
      data=dataset.take(tf.where(known, everything, nothing)),
    )

  return client_data


def compose_with_client_ids(
  process: tff.learning.templates.LearningProcess,
  client_data_computation: tff.Computation,
) -> tff.learning.templates.LearningProcess:
  """Returns the process whose clients are given by their ids alone.

  TFF's `compose_dataset_computation_with_learning_process` does this for client
  data that are one sequence; here they may be a structure of sequences, such as
  `<ident, data>`.

  Args:
    process: A learning process; an evaluation such as `build_fed_eval` gives
      is one too.
    client_data_computation: From a client's id (any tensor type) to the
      client's data as `process.next` takes it; it runs on the client. See
      `build_client_data_computation`.

  Returns:
    A process that differs from `process` in the second argument of `next`.

  Raises:
    TypeError: If an argument is something else, or the computation does not
      return what `process.next` takes.
  """
  arguments.check_instance(
    'process',
    process,
    tff.learning.templates.LearningProcess,
    'a learning process',
  )
  arguments.check_instance(
    'client_data_computation',
    client_data_computation,
    tff.Computation,
    'a tff.Computation',
  )
  state_type, data_type = process.next.type_signature.parameter
  found = client_data_computation.type_signature.result
  if not data_type.member.is_assignable_from(found):
    raise TypeError(
      'client_data_computation must return the client data of process.next,'
      f' {data_type.member}, found {found}'
    )
  ids_type = tff.FederatedType(
    client_data_computation.type_signature.parameter, tff.CLIENTS
  )

  @tff.federated_computation(state_type, ids_type)
  def next_fn(state: tff.Value, client_ids: tff.Value) -> tff.Value:
    return process.next(
      state, tff.federated_map(client_data_computation, client_ids)
    )

  return tff.learning.templates.LearningProcess(
    process.initialize,
    next_fn,
    process.get_model_weights,
    process.set_model_weights,
    get_hparams_fn=process.get_hparams,
    set_hparams_fn=process.set_hparams,
  )
