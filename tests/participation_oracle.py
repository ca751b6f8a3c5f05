"""Estimates of participation probabilities in NumPy, from whole histories.

Shares nothing with the package but the parameters. It keeps every round and
takes each estimate anew from its definition.
"""

import numpy as np

from fedsteer_tff import participation


class Estimates:
  """The server: a history for each client."""

  def __init__(self, estimator, population_size: int):
    """Starts without rounds.

    Args:
      estimator: Parameters of the package.
      population_size: N.
    """
    self.estimator = estimator
    # Of each client, whether it took part in the rounds that count for it.
    self.histories = [[] for _ in range(population_size)]
    self.seen = np.zeros(population_size, bool)
    self.weights_drawn = []

  @property
  def _grows(self):
    return self.estimator.population == 'growing'

  def estimate(self, client_id: int, history=None) -> float:
    """Returns p_i by a history; by the client's own if None."""
    if history is None:
      history = self.histories[client_id]
    if isinstance(self.estimator, participation.IntervalEstimate):
      intervals = self.intervals(history)
      if not intervals:
        return self.estimator.prior_probability
      return 1 / np.mean(intervals)
    decay = 1.0
    if isinstance(self.estimator, participation.WindowedFrequency):
      decay = 1 - 1 / self.estimator.window
    factors = decay ** np.arange(len(history))[::-1]
    prior = self.estimator.prior_rounds * decay ** len(history)
    taken = prior * self.estimator.prior_probability + factors @ np.array(
      history, float
    )
    return max(taken / (prior + np.sum(factors)), self.estimator.floor)

  def intervals(self, history) -> list[int]:
    """Returns the lengths of the intervals that are over."""
    lengths, length = [], 0
    for took_part in history:
      length += 1
      if took_part or length == self.estimator.cutoff:
        lengths.append(length)
        length = 0
    return lengths

  def active(self, client_id: int) -> float:
    """Returns the p_i that the client is weighted with if it takes part now."""
    history = self.histories[client_id]
    if isinstance(self.estimator, participation.IntervalEstimate):
      return self.estimate(client_id)
    if self._grows and not self.seen[client_id]:
      return self.estimate(client_id)
    return self.estimate(client_id, [*history, True])

  def observe(self, client_ids, certain=(), weights=None) -> dict[int, float]:
    """Learns from a round.

    Args:
      client_ids: Who took part.
      certain: Those of them that were made to.
      weights: n_i of each; 1 if None.

    Returns:
      The p_i that each of them is weighted with.
    """
    used = {i: 1.0 if i in certain else self.active(i) for i in client_ids}
    weights = weights or dict.fromkeys(client_ids, 1.0)
    self.weights_drawn.append(sum(weights[i] / used[i] for i in client_ids))
    for i, history in enumerate(self.histories):
      if i not in certain and (self.seen[i] or not self._grows):
        history.append(i in client_ids)
    for i in client_ids:
      self.seen[i] = True
    return used

  def estimates(self) -> np.ndarray:
    """Returns p_i of all clients, [N]."""
    return np.array([self.estimate(i) for i in range(len(self.histories))])
