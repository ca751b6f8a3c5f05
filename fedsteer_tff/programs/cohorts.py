"""From a round's cohort to the client data that `process.next` takes."""

from collections.abc import Callable, Sequence
import math
from typing import Any

import numpy as np

from fedsteer_tff import participation

# The chance that a cohort exceeds mean + 4 standard deviations is about 1e-4.
_STANDARD_DEVIATIONS = 4.0


def cohort_capacity(probabilities, num_forced: int = 0) -> int:
  """Returns a number of clients that a Bernoulli cohort seldom exceeds.

  TFF builds a new stack of executors for every cohort size it meets, and keeps
  memory for each. Filling cohorts up to one size avoids that.

  Args:
    probabilities: Float [N], p_i in (0, 1].
    num_forced: How many further clients may be forced to take part.

  Returns:
    The mean of the cohort's size, plus four standard deviations, plus
    `num_forced`, at most N.
  """
  probabilities = np.asarray(probabilities, np.float64)
  mean = probabilities.sum()
  deviation = math.sqrt((probabilities * (1.0 - probabilities)).sum())
  size = math.ceil(mean + _STANDARD_DEVIATIONS * deviation) + num_forced
  return min(size, len(probabilities))


class CohortData:
  """Client data of a cohort, filled up to a constant number of clients."""

  def __init__(
    self,
    client_data_fn: Callable[[int, float], Any],
    *,
    padding: Any = None,
    capacity: int = 0,
  ):
    """Keeps the arguments.

    Args:
      client_data_fn: From a client id and its participation probability in
        the round to its element of `process.next`'s client data.
      padding: The element that stands for nobody, such as
        `client_work.padding_client_data(...)`; None for no filling up.
      capacity: The number of clients to fill up to; larger cohorts stay as
        they are.

    Raises:
      ValueError: If `capacity` is not an integer >= 0.
    """
    if not isinstance(capacity, int) or capacity < 0:
      raise ValueError(f'capacity must be an integer >= 0, found {capacity!r}')
    self._client_data_fn = client_data_fn
    self._padding = padding
    self._capacity = capacity

  def __call__(self, cohort: participation.Cohort) -> Sequence[Any]:
    """Returns the list of client data for `process.next`."""
    data = [
      self._client_data_fn(int(client_id), float(probability))
      for client_id, probability in zip(
        cohort.client_ids, cohort.participation_probabilities
      )
    ]
    if self._padding is not None:
      data.extend([self._padding] * (self._capacity - len(data)))
    return data
