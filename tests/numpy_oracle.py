"""FedSteer in float64 NumPy, written from its equations.

Shares nothing with the package, which the tests compare it with. A sketch is
linear, so it enters as a matrix.
"""

from collections.abc import Callable
import dataclasses
import pathlib
from typing import Optional

import numpy as np

_GOLDEN = pathlib.Path(__file__).parent / 'golden'
_EPSILON32 = 2.0**-23
_SMALLEST_RELATIVE_GAIN = 1e-9

RULES = {
  'paper': ('before_aggregation', 'inverse_probability', 1.0),
  'unbiased': ('after_aggregation', 'inverse_probability', 1.0),
  'stable': ('before_aggregation', 'self_normalized', 0.3),
}


def golden(name: str) -> dict[str, np.ndarray]:
  """Returns the arrays that the paper's published code made."""
  with np.load(_GOLDEN / f'{name}.npz') as arrays:
    return dict(arrays)


def relative_error(found, wanted) -> float:
  """Returns max |found - wanted| / max |wanted|; absolute if wanted is 0."""
  found, wanted = np.asarray(found, float), np.asarray(wanted, float)
  assert found.shape == wanted.shape, (found.shape, wanted.shape)
  if not wanted.size:
    return 0.0
  error = float(np.max(np.abs(found - wanted)))
  if not np.isfinite(error):
    return float('inf')
  scale = float(np.max(np.abs(wanted)))
  return error / scale if scale else error


def ridge_system(gram, ridge, absolute_ridge=None):
  """Returns K + r I, and r, as the projection defines r in float32."""
  size = len(gram)
  mean = np.trace(gram) / size if size else 0.0
  strength = ridge * mean if absolute_ridge is None else absolute_ridge
  strength = max(strength, 16 * size * _EPSILON32 * mean)
  if mean == 0:
    strength = 1.0
  return gram + strength * np.eye(size), strength


def project(basis, updates, ridge, absolute_ridge=None):
  """Returns ridge coordinates [m, k] of the rows of `updates`."""
  matrix, _ = ridge_system(basis @ basis.T, ridge, absolute_ridge)
  return np.linalg.solve(matrix, basis @ np.transpose(updates)).T


def selection_error(candidates, targets, weights, ridges, members) -> float:
  """Returns E(members), by least squares on the vectors themselves."""
  ridges = np.broadcast_to(ridges, [len(targets)])
  basis = candidates[[member for member in members if member >= 0]]
  total = 0.0
  for target, weight, ridge in zip(targets, weights, ridges):
    # min |g - B^T s|^2 + r |s|^2 is a plain least-squares problem of the rows
    # of B^T on top of sqrt(r) I.
    matrix = np.concatenate([basis.T, np.sqrt(ridge) * np.eye(len(basis))])
    wanted = np.concatenate([target, np.zeros(len(basis))])
    solution = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    total += weight * np.sum((wanted - matrix @ solution) ** 2)
  return total


def select(
  candidates,
  targets,
  weights,
  ridge,
  size,
  eligible,
  members=None,
  smallest_gain=0.0,
):
  """Returns greedy start plus best-improving swaps, one scalar ridge.

  With `members`, a list with -1 for places to be filled, the search begins
  there, and the result has the members at their places, -1 where nobody was
  left.
  """

  def error(members):
    members = [i for i in members if i >= 0]
    basis = candidates[members]
    matrix = basis @ basis.T + ridge * np.eye(len(members))
    inner = basis @ targets.T
    explained = np.sum(inner * np.linalg.solve(matrix, inner), axis=0)
    return np.sum(weights * (np.sum(targets**2, axis=1) - explained))

  def best(member_lists):
    errors = [error(members) for members in member_lists]
    return member_lists[int(np.argmin(errors))], min(errors)

  pool = [int(i) for i in np.flatnonzero(eligible)]
  constant = np.sum(weights * np.sum(targets**2, axis=1))
  compact = members is None
  members = [-1] * size if compact else [int(i) for i in members]

  def put(place, candidate):
    return members[:place] + [candidate] + members[place + 1 :]

  for place in range(size):
    outside = [i for i in pool if i not in members]
    if members[place] < 0 and outside:
      members, _ = best([put(place, i) for i in outside])
  current = error(members)
  while True:
    swaps = [
      put(place, i)
      for place in range(size)
      for i in pool
      if members[place] >= 0 and i not in members
    ]
    if not swaps:
      break
    swapped, lowest = best(swaps)
    least = max(
      _SMALLEST_RELATIVE_GAIN * abs(constant), smallest_gain * current
    )
    if not current - lowest > least:
      break
    members, current = swapped, lowest
  return [i for i in members if i >= 0] if compact else members


@dataclasses.dataclass
class Report:
  """What one client tells the server."""

  client_id: int
  update: np.ndarray
  weight: float
  probability: float


class FedSteer:
  """The server: caches, and one method that aggregates a round."""

  def __init__(
    self,
    population_size: int,
    dimension: int,
    *,
    core_set_size: int = 10,
    core_set: Optional[tuple[int, ...]] = None,
    rule=RULES['paper'],
    ridge: float = 0.01,
    absolute_ridge: Optional[float] = None,
    warmup_rounds: int = 10,
    reselect_every: Optional[int] = None,
    core_eligibility: Optional[str] = None,
    client_weighting: str = 'known',
    aggregation: str = 'sketched_projection',
    sketch_matrix: Optional[np.ndarray] = None,
    candidate_pool_size: int = 1024,
    duplicates: str = 'first',
    plain_sum: bool = True,
    max_core_norm: float = np.inf,
    limit: Callable[[np.ndarray], np.ndarray] = lambda vector: vector,
  ):
    """Starts with empty caches.

    Args:
      population_size: N.
      dimension: D.
      core_set_size: k.
      core_set: Given core set, or None.
      rule: (coordinate refresh, correction weighting, smoothing).
      ridge: Relative ridge.
      absolute_ridge: Absolute ridge or None.
      warmup_rounds: Rounds before the selection.
      reselect_every: Rounds between selections, 0 for none; 1 if None and
        clients of a round may enter, else 0.
      core_eligibility: 'reporting', 'frequent' or 'received'; the default of
        the design if None.
      client_weighting: 'known' or 'examples'.
      aggregation: The design; only whether it sketches matters here.
      sketch_matrix: [D, b], sk(x) = x @ matrix; the identity if None.
      candidate_pool_size: Places in the pool, at most N.
      duplicates: 'first': further reports are left out; 'counted': they take
        part in the correction; 'mean': as well, and caches hold the mean.
      plain_sum: Whether there is no factory for the correction.
      max_core_norm: The longest that an update is remembered.
      limit: What the factory for the correction makes of one client's vector.
    """
    self.max_core_norm, self.limit = max_core_norm, limit
    # Whether a client takes its reconstruction off before it sends the rest.
    self.sends_residuals = aggregation in ('client_projection', 'dense')
    self.refresh, self.weighting, self.smoothing = rule
    self.population_size, self.dimension = population_size, dimension
    self.given = core_set is not None
    self.core = np.array(core_set if self.given else [-1] * core_set_size, int)
    k = len(self.core)
    self.ridge, self.absolute_ridge = ridge, absolute_ridge
    self.warmup_rounds = warmup_rounds
    shows_updates = aggregation in ('sketched_projection', 'server_projection')
    if core_eligibility is None:
      core_eligibility = (
        'reporting' if shows_updates and plain_sum else 'frequent'
      )
    self.core_eligibility = core_eligibility
    if reselect_every is None:
      reselect_every = int(core_eligibility == 'reporting')
    self.reselect_every = reselect_every
    self.known_weights = client_weighting == 'known'
    self.sketched = aggregation == 'sketched_projection'
    self.sketch_matrix = (
      np.eye(dimension) if sketch_matrix is None else sketch_matrix
    )
    self.duplicates = duplicates
    self.round_num = 0
    self.basis = np.zeros([k, dimension])
    self.row_round = np.full(k, -1)
    self.coordinates = np.zeros([population_size, k])
    self.last_seen = np.full(population_size, -1)
    self.weight = np.zeros(population_size)
    self.smoothed = np.zeros(dimension)
    self.pool_size = min(population_size, candidate_pool_size)
    self.pool = {}

  def _seen(self, vectors):
    return vectors @ self.sketch_matrix if self.sketched else vectors

  def _remembered(self, update):
    norm = np.linalg.norm(update)
    if norm <= self.max_core_norm:
      return update
    return update * (self.max_core_norm / norm)

  def _population_weight(self):
    if self.known_weights:
      return 1.0
    seen = self.last_seen >= 0
    if not seen.any():
      return 0.0
    return self.population_size * np.mean(self.weight[seen])

  def _sort_out(self, reports):
    """Returns reports that count grouped by client, and what was dropped."""
    groups, nonfinite = {}, 0
    for report in reports:
      if report.client_id == -1 or report.weight == 0:
        continue
      finite = np.isfinite(report.weight) and np.isfinite(report.update).all()
      if not finite:
        nonfinite += 1
        continue
      groups.setdefault(report.client_id, []).append(report)
    duplicates = sum(len(group) - 1 for group in groups.values())
    if self.duplicates == 'first':
      groups = {i: group[:1] for i, group in groups.items()}
    return groups, nonfinite, duplicates

  def _cached_report(self, group):
    if self.duplicates != 'mean':
      return group[0]
    return Report(
      group[0].client_id,
      np.mean([report.update for report in group], axis=0),
      np.mean([report.weight for report in group]),
      np.mean([report.probability for report in group]),
    )

  def aggregate(self, reports):
    """Returns Delta [D] and the metrics of one round."""
    groups, nonfinite, duplicates = self._sort_out(reports)
    active = {i: self._cached_report(group) for i, group in groups.items()}
    seen_basis = np.array(self._seen(self.basis))
    gram = seen_basis @ seen_basis.T
    matrix, _ = ridge_system(gram, self.ridge, self.absolute_ridge)
    whole, fresh = (
      {
        i: np.linalg.solve(matrix, seen_basis @ self._seen(shorten(r.update)))
        for i, r in active.items()
      }
      for shorten in (np.copy, self._remembered)
    )
    cached = {i: self.coordinates[i].copy() for i in active}
    used = fresh if self.refresh == 'before_aggregation' else cached

    for i, report in active.items():
      self.weight[i] = report.weight
      self.last_seen[i] = self.round_num
    total = self._population_weight()

    correction, importance = np.zeros(self.dimension), 0.0
    for i, group in groups.items():
      taken_off = self.basis.T @ fresh[i] if self.sends_residuals else 0.0
      estimate = self.basis.T @ used[i]
      for report in group:
        share = report.weight
        if self.weighting != 'participant_mean':
          share = share / report.probability
        correction += self.limit(share * (report.update - taken_off))
        correction += share * (taken_off - estimate)
        importance += share
    if self.weighting == 'participant_mean':
      if importance:
        correction = correction / importance
      self.smoothed = (
        1 - self.smoothing
      ) * self.smoothed + self.smoothing * correction
    elif self.weighting == 'self_normalized':
      if importance:
        self.smoothed = (
          1 - self.smoothing
        ) * self.smoothed + self.smoothing * correction / importance
    else:
      correction = correction / total if total else correction * 0
      self.smoothed = (
        1 - self.smoothing
      ) * self.smoothed + self.smoothing * correction

    coordinates = self.coordinates.copy()
    for i in active:
      coordinates[i] = used[i]
    delta = self.smoothed.copy()
    if total:
      delta += self.basis.T @ (self.weight @ coordinates) / total

    for i, report in active.items():
      self.coordinates[i] = fresh[i]
      for slot in np.flatnonzero(self.core == i):
        self.basis[slot] = self._remembered(report.update)
        self.row_round[slot] = self.round_num
    metrics = self._metrics(active, gram, seen_basis, cached, fresh, total)
    metrics['nonfinite_clients'] = nonfinite
    metrics['duplicate_clients'] = duplicates
    self._select_if_due(active, whole, seen_basis)
    self.round_num += 1
    return delta, metrics

  def _select_if_due(self, active, fresh, seen_basis):
    if self.given:
      return
    incomplete = -1 in self.core
    if incomplete or self.reselect_every:
      for i, report in active.items():
        place = i % self.pool_size
        probability = report.probability
        if place in self.pool and self.pool[place][0] == i:
          probability = min(probability, self.pool[place][2])
        sketch = self._remembered(report.update) @ self.sketch_matrix
        self.pool[place] = (i, sketch, probability)
    since = self.round_num + 1 - self.warmup_rounds
    again = (
      self.reselect_every and since > 0 and not (since % self.reselect_every)
    )
    if (since >= 0 and incomplete) or again:
      if self.core_eligibility == 'reporting':
        self._admit(active, fresh, seen_basis)
      else:
        self._select()

  def _admit(self, active, fresh, seen_basis):
    """Lets clients of the round into the core set, see the factory."""
    size = len(self.core)
    scores = {}
    for i, report in active.items():
      if i in self.core:
        continue
      seen = self._seen(report.update)
      residual = seen - seen_basis.T @ fresh[i]
      norm = seen @ seen
      scores[i] = (
        report.weight**2
        * (1 - report.probability)
        / report.probability
        * ((residual @ residual) / norm if norm else 0.0)
      )
    best = self._best(scores, size)
    outside = [i for i in active if i in best]
    if not outside:
      return
    ids, targets, weights = self._targets()
    rows = (
      np.concatenate(
        [
          self.basis,
          [self._remembered(active[i].update) for i in outside],
        ]
      )
      @ self.sketch_matrix
    )
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    members = self._search(
      [*self.core, *outside],
      unit,
      targets / np.linalg.norm(targets, axis=1, keepdims=True),
      weights,
      self.ridge if self.absolute_ridge is None else 0.01,
      size,
      (np.arange(len(rows)) >= size) & (norms[:, 0] > 0),
      members=[j if i >= 0 else -1 for j, i in enumerate(self.core)],
      smallest_gain=0.02,
    )
    if max(members) < size:
      return
    if (self.core < 0).all():
      self.smoothed[:] = 0
    for slot, member in enumerate(members):
      if member >= size:
        self.core[slot] = outside[member - size]
        self.basis[slot] = self._remembered(active[self.core[slot]].update)
        self.row_round[slot] = self.round_num
        self.coordinates[:, slot] = 0
    filled = np.array(members) >= 0
    core_sketches = filled[:, np.newaxis] * rows[members]
    self.coordinates[ids] = project(
      core_sketches, targets, self.ridge, self.absolute_ridge
    )

  def _best(self, scores, size):
    """Returns the clients of the largest scores, of equal ones the first."""
    return set(sorted(scores, key=scores.get, reverse=True)[:size])

  def _search(self, ids, *arguments, **options):
    """Returns what `select` does; `ids` are the candidates' clients."""
    del ids  # Of use for those who want to know better.
    return select(*arguments, **options)

  def _targets(self):
    """Returns ids, sketches and weights of the clients in the pool."""
    rows = [
      self.pool[place]
      for place in sorted(self.pool)
      if np.any(self.pool[place][1])
    ]
    ids = np.array([row[0] for row in rows], int)
    sketches = np.reshape(
      [row[1] for row in rows], [-1, self.sketch_matrix.shape[1]]
    )
    probabilities = np.array([row[2] for row in rows])
    weights = self.weight[ids] ** 2 * (1 - probabilities) / probabilities
    if not weights.any():
      weights = np.ones(len(rows))
    return ids, sketches, weights

  def _select(self):
    ids, sketches, weights = self._targets()
    probabilities = np.array([self.pool[i % self.pool_size][2] for i in ids])
    size = len(self.core)
    chosen = []
    if len(ids):
      unit = sketches / np.linalg.norm(sketches, axis=1, keepdims=True)
      eligible = np.ones(len(ids), bool)
      if self.core_eligibility == 'frequent':
        threshold = np.median(probabilities)
        if len(ids) >= size:
          threshold = min(threshold, np.sort(probabilities)[::-1][size - 1])
        else:
          threshold = 0
        eligible = probabilities >= threshold
      rho = self.ridge if self.absolute_ridge is None else 0.01
      members = self._search(ids, unit, unit, weights, rho, size, eligible)
      chosen = [int(ids[j]) for j in members]
    incoming = [i for i in chosen if i not in self.core]
    for slot in range(size):
      if self.core[slot] in chosen:
        continue
      self.core[slot] = incoming.pop(0) if incoming else -1
      self.basis[slot] = 0
      self.row_round[slot] = -1
      self.coordinates[:, slot] = 0
    assert not incoming
    if len(ids):
      core_sketches = np.zeros([size, sketches.shape[1]])
      for slot, client_id in enumerate(self.core):
        if client_id >= 0:
          core_sketches[slot] = sketches[list(ids).index(client_id)]
      self.coordinates[ids] = project(
        core_sketches, sketches, self.ridge, self.absolute_ridge
      )

  def _metrics(self, active, gram, seen_basis, cached, fresh, total):
    now = self.round_num

    def ages(last):
      ages = now - last[last >= 0]
      return (np.mean(ages), np.max(ages)) if len(ages) else (0.0, 0.0)

    residuals, shrinkages, variance, variance_without = [], [], 0.0, 0.0
    for i, report in active.items():
      seen = self._seen(report.update)
      norm = np.linalg.norm(seen)
      if norm:
        estimate = seen_basis.T @ fresh[i]
        residuals.append(np.linalg.norm(seen - estimate) / norm)
        shrinkages.append(np.linalg.norm(estimate) / norm)
      share, p = report.weight / total, report.probability
      scale = share**2 * (1 - p) / p**2
      variance += scale * np.sum((seen - seen_basis.T @ cached[i]) ** 2)
      variance_without += scale * norm**2
    filled = np.diag(gram) > 0
    condition = ridge_condition = 0.0
    if filled.any():
      eigenvalues = np.linalg.eigvalsh(gram[np.ix_(filled, filled)])
      smallest = max(eigenvalues[0], _EPSILON32 * eigenvalues[-1])
      condition = eigenvalues[-1] / smallest
      _, ridge = ridge_system(gram, self.ridge, self.absolute_ridge)
      smallest = max(eigenvalues[0], 0.0) + ridge
      ridge_condition = (eigenvalues[-1] + ridge) / smallest
    core_mean, core_max = ages(self.row_round)
    client_mean, client_max = ages(self.last_seen)
    return {
      'active_clients': len(active),
      'core_clients_refreshed': sum(i in self.core for i in active),
      'core_staleness_mean': core_mean,
      'core_staleness_max': core_max,
      'coordinate_staleness_mean': client_mean,
      'coordinate_staleness_max': client_max,
      'relative_residual': np.mean(residuals) if residuals else np.nan,
      'effective_shrinkage': np.mean(shrinkages) if shrinkages else np.nan,
      'core_condition': condition,
      'ridge_condition': ridge_condition,
      'variance_estimate': variance,
      'variance_estimate_without_steering': variance_without,
      'variance_ratio': (
        variance / variance_without if variance_without else np.nan
      ),
    }


class LastUpdates:
  """FedVARP, FedStale and MIFA: a server that remembers every last update."""

  def __init__(
    self,
    population_size: int,
    dimension: int,
    *,
    method: str = 'fedvarp',
    beta: float = 1.0,
    weighting: str = 'inverse_probability',
    smoothing: float = 1.0,
    client_weighting: str = 'known',
  ):
    """Starts with an empty memory.

    Args:
      population_size: N.
      dimension: D.
      method: 'fedvarp', 'fedstale' (which uses `beta`) or 'mifa'.
      beta: Factor on remembered updates.
      weighting: Of the correction.
      smoothing: Of the correction.
      client_weighting: 'known' or 'examples'.
    """
    self.method, self.beta = method, beta
    self.weighting, self.smoothing = weighting, smoothing
    self.known_weights = client_weighting == 'known'
    self.memory = np.zeros([population_size, dimension])
    self.weight = np.zeros(population_size)
    self.last_seen = np.full(population_size, -1)
    self.smoothed = np.zeros(dimension)
    self.round_num = 0

  def aggregate(self, reports):
    """Returns Delta [D] and the metrics of one round."""
    active, nonfinite, duplicates = {}, 0, 0
    for report in reports:
      if report.client_id == -1 or report.weight == 0:
        continue
      if not (np.isfinite(report.weight) and np.isfinite(report.update).all()):
        nonfinite += 1
      elif report.client_id in active:
        duplicates += 1
      else:
        active[report.client_id] = report
    before = self.beta * self.memory
    for i, report in active.items():
      self.weight[i] = report.weight
      self.last_seen[i] = self.round_num
      self.memory[i] = report.update
    seen = self.last_seen >= 0
    total = 1.0
    if not self.known_weights:
      total = len(seen) * np.mean(self.weight[seen]) if seen.any() else 0.0
    shares = self.weight / total if total else self.weight * 0

    if self.method == 'mifa':
      delta = shares @ self.memory
    else:
      residuals = {i: r.update - before[i] for i, r in active.items()}
      self._correct(active, residuals, total)
      delta = shares @ before + self.smoothed
    variance = without = 0.0
    for i, report in active.items():
      p = report.probability
      scale = (report.weight / total) ** 2 * (1 - p) / p**2
      variance += scale * np.sum((report.update - before[i]) ** 2)
      without += scale * np.sum(report.update**2)
    ages = self.round_num - self.last_seen[seen]
    self.round_num += 1
    return delta, {
      'active_clients': len(active),
      'nonfinite_clients': nonfinite,
      'duplicate_clients': duplicates,
      'update_staleness_mean': np.mean(ages) if len(ages) else 0.0,
      'update_staleness_max': np.max(ages) if len(ages) else 0.0,
      'variance_estimate': variance,
      'variance_estimate_without_steering': without,
      'variance_ratio': variance / without if without else np.nan,
    }

  def _correct(self, active, residuals, total):
    weights = {
      i: r.weight
      / (1 if self.weighting == 'participant_mean' else r.probability)
      for i, r in active.items()
    }
    divisor = total
    if self.weighting != 'inverse_probability':
      divisor = sum(weights.values())
    if not active and self.weighting == 'self_normalized':
      return
    correction = 0.0
    for i, residual in residuals.items():
      correction = correction + weights[i] / divisor * residual
    self.smoothed = (
      1 - self.smoothing
    ) * self.smoothed + self.smoothing * correction
