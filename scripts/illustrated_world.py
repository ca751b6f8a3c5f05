"""What the pictures of the documentation show, in numbers.

A small made-up world, in which every client's update is known in every round,
and what the package's own functions make of it.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import itertools
from typing import Optional

import numpy as np
import tensorflow as tf

from fedsteer_tff import participation
from fedsteer_tff import subspace

RIDGE = 0.01
_COMMON_KINDS = (0, 1, 2)
_RARE_KINDS = (3, 4)
# How much clients differ beside their mixtures.
_NOISE = 0.2


@dataclasses.dataclass(frozen=True)
class World:
  """Clients with quadratic losses, on the way to the optimum of their mean.

  Client i's loss is half of (w - c_i)^T A_i (w - c_i), so its update, a
  gradient step, is A_i (w - c_i) times a rate. The data are of a few kinds, and
  a client has a mixture of them: its optimum c_i is the same mixture of the
  kinds' optima, up to noise. The curvatures A_i have much in common.

  Attributes:
    updates: Float32 [T, N, D], g_i in round t.
    shares: Float64 [N], d_i.
    probabilities: Float64 [N], p_i.
    active: Bool [T, N], who takes part.
  """

  updates: np.ndarray
  shares: np.ndarray
  probabilities: np.ndarray
  active: np.ndarray

  @property
  def num_clients(self) -> int:
    """N."""
    return self.updates.shape[1]


def build_world(
  *, num_clients: int, num_rare: int, dimension: int, rounds: int, seed: int
) -> World:
  """Simulates a world; the model takes the steps of full participation.

  Args:
    num_clients: N.
    num_rare: Clients of the smaller group, the last ones; they hold as much
      data as the others together, and rarely take part.
    dimension: D.
    rounds: T.
    seed: Of everything that is drawn.
  """
  rng = np.random.default_rng(seed)
  rare = np.arange(num_clients) >= num_clients - num_rare
  # The last clients have the rare kinds only, the others the common ones.
  kinds = 3 * rng.normal(
    size=(len(_COMMON_KINDS) + len(_RARE_KINDS), dimension)
  )
  optima = _NOISE * rng.normal(size=(num_clients, dimension))
  for i in range(num_clients):
    own = _RARE_KINDS if rare[i] else _COMMON_KINDS
    optima[i] += rng.dirichlet(np.ones(len(own))) @ kinds[list(own)]
  axes, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
  common = np.geomspace(0.01, 0.5, dimension)
  curvatures = common * np.exp(
    _NOISE * rng.normal(size=(num_clients, dimension))
  )
  weights = np.where(rare, num_clients - num_rare, num_rare).astype(float)
  shares = weights / weights.sum()
  probabilities = participation.two_group_probabilities(
    num_clients, rate=0.2, skew=5.0
  )
  sampler = participation.BernoulliSampler(probabilities, seed)

  model = 6 * rng.normal(size=dimension)
  updates = np.empty((rounds, num_clients, dimension))
  active = np.zeros((rounds, num_clients), bool)
  for t in range(rounds):
    updates[t] = ((model - optima) @ axes * curvatures) @ axes.T
    active[t, sampler.cohort(t).client_ids] = True
    model = model - shares @ updates[t]
  return World(updates.astype(np.float32), shares, probabilities, active)


@dataclasses.dataclass(frozen=True)
class Memory:
  """What a server remembers before a round.

  Attributes:
    core_set: Int [k], client ids.
    basis: Float32 [k, D], Q: the core clients' latest updates.
    cached: Float32 [N, k], s_i.
    last: Float32 [N, D], the clients' latest updates; 0 before the first.
  """

  core_set: np.ndarray
  basis: np.ndarray
  cached: np.ndarray
  last: np.ndarray


def remember(world: World, core_set: Sequence[int], round_num: int) -> Memory:
  """Returns what is remembered if a core set was there from the start.

  Args:
    world: The world.
    core_set: Client ids; they are made to report in the first round.
    round_num: The round before which it is asked for.
  """
  core_set = np.asarray(core_set)
  last = np.zeros_like(world.updates[0])
  last[core_set] = world.updates[0, core_set]
  cached = np.zeros((world.num_clients, len(core_set)), np.float32)
  for t in range(round_num):
    fresh = subspace.project(last[core_set], world.updates[t], RIDGE).numpy()
    active = world.active[t]
    cached[active] = fresh[active]
    last[active] = world.updates[t, active]
  return Memory(core_set, last[core_set], cached, last)


def errors_by_age(
  world: World, core_set: Sequence[int], ages: Sequence[int]
) -> Mapping[str, np.ndarray]:
  """Compares old updates and steered ones with what clients would send now.

  Rows of the core set are of the current round.

  Args:
    world: The world.
    core_set: Client ids.
    ages: How many rounds ago the clients reported.

  Returns:
    'old' and 'steered': mean of ||estimate - g|| / ||g|| for each age, over
    rounds and all clients that are not in the core set.
  """
  core_set = np.asarray(core_set)
  others = np.setdiff1d(np.arange(world.num_clients), core_set)
  last_round = len(world.updates) - max(ages)
  old, steered = np.zeros(len(ages)), np.zeros(len(ages))
  for t in range(last_round):
    then = world.updates[t, others]
    coordinates = subspace.project(world.updates[t, core_set], then, RIDGE)
    for j, age in enumerate(ages):
      now = world.updates[t + age, others]
      estimate = subspace.reconstruct(
        world.updates[t + age, core_set], coordinates
      ).numpy()
      old[j] += _relative_error(then, now) / last_round
      steered[j] += _relative_error(estimate, now) / last_round
  return {'old': old, 'steered': steered}


@dataclasses.dataclass(frozen=True)
class Moments:
  """What the draw of the active clients makes of an estimate.

  Attributes:
    squared_bias: ||E[Delta] - g||^2 / ||g||^2 with g = sum_i d_i g_i.
    variance: E||Delta - E[Delta]||^2 / ||g||^2.
  """

  squared_bias: float
  variance: float


def moments(
  rule: subspace.EstimatorRule,
  world: World,
  round_num: int,
  basis: Optional[np.ndarray],
  cached: np.ndarray,
) -> Moments:
  """Computes bias and variance exactly, by going through all active sets.

  A smoothed correction is taken as it is after many rounds like this one.

  Args:
    rule: The estimator.
    world: The world.
    round_num: The round.
    basis: Float32 [k, D], Q; None for the identity.
    cached: Float32 [N, k], s_i before the round.
  """
  updates = world.updates[round_num]
  size = world.num_clients
  if basis is None:
    fresh = updates
  elif len(basis):
    fresh = subspace.project(basis, updates, RIDGE).numpy()
  else:
    fresh = np.zeros((size, 0), np.float32)
  sets = np.array(list(itertools.product([False, True], repeat=size)))
  chances = np.where(sets, world.probabilities, 1 - world.probabilities).prod(1)
  estimate = _estimator(rule, world.shares @ cached, basis)

  def all_estimates(smoothed):
    deltas, corrections = [], []
    for active in sets:
      found = estimate(
        _cohort(world, active, fresh, cached),
        tf.constant(
          _weighted_sum(rule, world, updates, active), dtype=tf.float32
        ),
        tf.constant(smoothed, tf.float32),
      )
      deltas.append(found.delta.numpy())
      corrections.append(found.smoothed_correction.numpy())
    return np.array(deltas, np.float64), np.array(corrections, np.float64)

  nothing = np.zeros(updates.shape[1] if rule.smooths else 0)
  deltas, corrections = all_estimates(nothing)
  remembered = 0.0
  if rule.smooths:
    # R is a mean over rounds: its own mean is that of a correction, and of the
    # correction's variance a / (2 - a) is left.
    a = rule.correction_smoothing
    somebody = sets.any(axis=1)
    chance = chances[somebody] / chances[somebody].sum()
    of_round = corrections[somebody] / a
    mean = chance @ of_round
    variance = chance @ ((of_round - mean) ** 2).sum(axis=1) * a / (2 - a)
    deltas, _ = all_estimates(mean)
    nobody = chances[~somebody].sum()
    remembered = variance * (nobody + (1 - nobody) * (1 - a) ** 2)
  target = world.shares @ updates
  mean = chances @ deltas
  scale = (target**2).sum()
  spread = chances @ ((deltas - mean) ** 2).sum(axis=1)
  return Moments(
    float(((mean - target) ** 2).sum() / scale),
    float((spread + remembered) / scale),
  )


def core_history(world: World, eligibility: str, size: int) -> np.ndarray:
  """Follows a core set over the rounds.

  Args:
    world: The world.
    eligibility: 'reporting' or 'frequent'.
    size: k.

  Returns:
    Float64 [T, N], the age in rounds of the row that a client has in Q after
    round t; NaN where it has none.
  """
  warmup = 10
  rounds, num_clients, dimension = world.updates.shape
  probabilities = world.probabilities.astype(np.float32)
  weights = tf.constant(world.shares, tf.float32)
  pool = subspace.empty_pool(num_clients, dimension)
  core_set = np.full(size, -1, np.int32)
  rows = np.zeros((size, dimension), np.float32)
  row_round = np.full(size, -1)
  ages = np.full((rounds, num_clients), np.nan)
  for t in range(rounds):
    active = np.flatnonzero(world.active[t]).astype(np.int32)
    updates = world.updates[t, active]
    pool = subspace.add_reports(
      pool,
      tf.constant(active),
      tf.constant(updates),
      tf.constant(probabilities[active]),
    )
    for slot in np.flatnonzero(np.isin(core_set, active)):
      rows[slot], row_round[slot] = world.updates[t, core_set[slot]], t
    outside = ~np.isin(active, core_set)
    ridge = {'ridge': RIDGE, 'absolute_ridge': None}
    if eligibility == subspace.REPORTING:
      if t + 1 >= warmup and outside.any():
        new = subspace.admit_reporting(
          pool,
          weights,
          tf.constant(core_set),
          tf.constant(rows),
          tf.constant(active[outside]),
          tf.constant(updates[outside]),
          **ridge,
        )
        entered = new.entered.numpy()
        core_set = new.core_set.numpy()
        for slot in np.flatnonzero(entered >= 0):
          rows[slot], row_round[slot] = updates[outside][entered[slot]], t
    elif t + 1 == warmup:
      core_set = subspace.select_from_pool(
        pool, weights, tf.constant(core_set), eligibility=eligibility, **ridge
      ).core_set.numpy()
    filled = row_round >= 0
    ages[t, core_set[filled]] = t - row_round[filled]
  return ages


def _relative_error(estimates, truth) -> float:
  error = np.linalg.norm(estimates - truth, axis=1)
  return float((error / np.linalg.norm(truth, axis=1)).mean())


def _estimator(rule, baseline, basis):
  """`subspace.estimate_update` as a function of what differs between sets."""

  @tf.function(reduce_retracing=True)
  def estimate(cohort, weighted_sum, smoothed):
    return subspace.estimate_update(
      rule,
      None if basis is None else tf.constant(basis),
      tf.constant(baseline, tf.float64),
      cohort,
      weighted_sum,
      tf.constant(1.0, tf.float64),
      smoothed,
    )

  return estimate


def _cohort(world, active, fresh, cached) -> subspace.Cohort:
  weights = tf.constant(world.shares[active], tf.float32)
  return subspace.Cohort(
    weights=weights,
    previous_weights=weights,
    probabilities=tf.constant(world.probabilities[active], tf.float32),
    fresh=tf.constant(fresh[active]),
    cached=tf.constant(cached[active]),
    subtracted=tf.zeros_like(fresh[active]),
    multiplicity=tf.ones_like(weights),
    first=tf.ones_like(weights, tf.bool),
  )


def _weighted_sum(rule, world, updates, active) -> np.ndarray:
  importance = rule.importance(
    tf.constant(world.shares[active]), tf.constant(world.probabilities[active])
  ).numpy()
  return importance @ updates[active]
