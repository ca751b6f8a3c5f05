"""Which clients take part in which round."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsteer_tff import arguments
from fedsteer_tff.participation import population

# Keeps this stream apart from others that are keyed by the same seed.
_STREAM = 0x9A47


@dataclasses.dataclass(frozen=True, eq=False)
class Cohort:
  """The clients that are active in one round.

  Attributes:
    client_ids: Int32 [m], ascending. m may be 0.
    participation_probabilities: Float64 [m], the probability with which each
      of them was active: 1 for a client that was forced to be.
  """

  client_ids: npt.NDArray[np.int32]
  participation_probabilities: npt.NDArray[np.float64]

  @property
  def num_clients(self) -> int:
    """The number m of active clients."""
    return len(self.client_ids)


def draw(
  probabilities: npt.ArrayLike, uniforms: npt.ArrayLike
) -> npt.NDArray[np.bool_]:
  """Decides who is active: client i is, if u_i >= 1 - p_i.

  Args:
    probabilities: Float [N], p_i in (0, 1].
    uniforms: Float [N], u_i uniform in [0, 1).

  Returns:
    Bool [N]. Entry i is true with probability p_i; always, if p_i = 1.

  Raises:
    TypeError: If an argument does not consist of numbers.
    ValueError: If a number is outside of its interval, or the lengths differ.
  """
  probabilities = population.check_probabilities(probabilities, 'probabilities')
  uniforms = population.numeric_vector(uniforms, 'uniforms')
  if uniforms.shape != probabilities.shape:
    raise ValueError(
      'uniforms must have the shape of probabilities,'
      f' {probabilities.shape}, found {uniforms.shape}'
    )
  outside = uniforms[~((uniforms >= 0) & (uniforms < 1))]
  if outside.size:
    raise ValueError(f'uniforms must be in [0, 1), found {outside[0]!r}')
  return uniforms >= 1 - probabilities


class BernoulliSampler:
  """Independent participation of every client in every round.

  A round's draws depend on (seed, round_num) alone: not on which rounds were
  drawn before, nor on who was forced. So a resumed run, and runs of different
  algorithms with the same seed, see the same clients.
  """

  def __init__(self, probabilities: npt.ArrayLike, seed: int):
    """Initializes the sampler.

    Args:
      probabilities: Array-like of float, [N], p_i in (0, 1].
      seed: A non-negative integer.

    Raises:
      TypeError: If `seed` is not an integer, or the probabilities are not
        numbers.
      ValueError: If `seed` is negative, or a probability is outside (0, 1].
    """
    self._probabilities = population.check_probabilities(
      probabilities, 'probabilities'
    )
    self._seed = arguments.check_integer('seed', seed, 0)

  @property
  def num_clients(self) -> int:
    """N, the size of the population."""
    return len(self._probabilities)

  @property
  def probabilities(self) -> npt.NDArray[np.float64]:
    """Float64 [N], read-only."""
    return self._probabilities

  @property
  def seed(self) -> int:
    """The seed of all draws."""
    return self._seed

  def cohort(
    self, round_num: int, forced_clients: Sequence[int] = ()
  ) -> Cohort:
    """Draws the active clients of a round.

    Args:
      round_num: The round, a non-negative integer.
      forced_clients: Distinct ids of clients that are active in this round in
        any case, with p_i = 1. The other clients' draws do not depend on it.

    Returns:
      The round's `Cohort`. It may be empty.

    Raises:
      TypeError: If `round_num` or a forced id is not an integer.
      ValueError: If `round_num` is negative, or a forced id is unknown or
        occurs twice.
    """
    round_num = arguments.check_integer('round_num', round_num, 0)
    forced = self._check_forced(forced_clients)
    generator = np.random.default_rng([_STREAM, self._seed, round_num])
    probabilities = self._probabilities.copy()
    probabilities[forced] = 1
    active = draw(probabilities, generator.random(self.num_clients))
    client_ids = np.flatnonzero(active).astype(np.int32)
    return Cohort(client_ids, probabilities[client_ids])

  def _check_forced(
    self, forced_clients: Sequence[int]
  ) -> npt.NDArray[np.integer[Any]]:
    forced = np.asarray(forced_clients)
    if not forced.size:
      return np.zeros([0], np.int64)
    if forced.ndim != 1 or not np.issubdtype(forced.dtype, np.integer):
      raise TypeError(
        'forced_clients must be a sequence of integer ids, found'
        f' {forced_clients!r}'
      )
    unknown = forced[(forced < 0) | (forced >= self.num_clients)]
    if unknown.size:
      raise ValueError(
        f'forced_clients must be ids in [0, {self.num_clients}), found'
        f' {unknown.tolist()}'
      )
    ids, counts = np.unique(forced, return_counts=True)
    if (counts > 1).any():
      raise ValueError(
        'forced_clients must be distinct, found more than once:'
        f' {ids[counts > 1].tolist()}'
      )
    return forced


def overdue_core_clients(
  core_set: npt.ArrayLike,
  last_active: npt.ArrayLike,
  round_num: int,
  every: int,
) -> npt.NDArray[np.int32]:
  """Core clients that must take part, to do so once in `every` rounds.

  To make them active keeps their cached updates fresh ("enforce" in FedSteer,
  arXiv 2606.10124): pass the result as `forced_clients` to the sampler.

  Args:
    core_set: Integers [k], the core clients' ids; -1 is an empty slot.
    last_active: Integers [k], the round in which each of them last reported;
      -1 for never.
    round_num: The round that is about to run, counted as in `last_active`.
    every: A core client is overdue if `round_num - last_active >= every`, or
      if it never reported. 0 turns this off.

  Returns:
    Int32 array of the overdue clients' ids, ascending.

  Raises:
    TypeError: If an argument does not consist of integers.
    ValueError: If the arrays' shapes differ or are not [k], `every` or
      `round_num` is negative, or a client is in two slots.
  """
  every = arguments.check_integer('every', every, 0)
  round_num = arguments.check_integer('round_num', round_num, 0)
  core_set = _integer_vector(core_set, 'core_set')
  last_active = _integer_vector(last_active, 'last_active')
  if core_set.shape != last_active.shape:
    raise ValueError(
      'core_set and last_active must have the same length, found'
      f' {len(core_set)} and {len(last_active)}'
    )
  filled = core_set >= 0
  ids, counts = np.unique(core_set[filled], return_counts=True)
  if (counts > 1).any():
    raise ValueError(
      'core_set must not name a client twice, found more than once:'
      f' {ids[counts > 1].tolist()}'
    )
  if every == 0:
    return np.zeros([0], np.int32)
  overdue = (last_active < 0) | (round_num - last_active >= every)
  return np.sort(core_set[filled & overdue]).astype(np.int32)


def _integer_vector(
  values: npt.ArrayLike, name: str
) -> npt.NDArray[np.integer[Any]]:
  array = np.asarray(values)
  if not array.size:
    return np.zeros([0], np.int64)
  if not np.issubdtype(array.dtype, np.integer):
    raise TypeError(f'{name} must consist of integers, found {array.dtype}')
  if array.ndim != 1:
    raise ValueError(f'{name} must be a vector, found shape {array.shape}')
  return array
