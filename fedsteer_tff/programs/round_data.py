"""Who takes part in a round, and with which data: on demand or ahead of time.

```
sampler -> cohort -> client data
```
"""

from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Optional, Protocol

from fedsteer_tff import participation


class Sampler(Protocol):
  """What the loop needs of a sampler; see `participation.BernoulliSampler`."""

  def cohort(
    self, round_num: int, forced_clients: Sequence[int] = ()
  ) -> participation.Cohort:
    """Draws the active clients of a round.

    Args:
      round_num: The round, 1 for the first one.
      forced_clients: Distinct ids of clients that are active in any case.

    Returns:
      The round's `Cohort`, which may be empty.
    """


class RoundData:
  """Makes a round's cohort and client data when they are asked for."""

  def __init__(
    self,
    sampler: Sampler,
    client_data_fn: Callable[[participation.Cohort], Sequence[Any]],
  ):
    """Keeps the arguments.

    Args:
      sampler: Draws the cohorts.
      client_data_fn: From a cohort to its client data.
    """
    self._sampler = sampler
    self._client_data_fn = client_data_fn

  def make(
    self, round_num: int, forced_clients: Sequence[int] = ()
  ) -> tuple[participation.Cohort, Sequence[Any]]:
    """Returns who takes part in a round, and their data.

    Args:
      round_num: The round, 1 for the first one.
      forced_clients: Distinct ids of clients that are active in any case.

    Returns:
      The cohort and its client data.
    """
    cohort = self._sampler.cohort(round_num, forced_clients=forced_clients)
    return cohort, self._client_data_fn(cohort)

  def close(self) -> None:
    """Ends what is under way."""


class PrefetchedRoundData(RoundData):
  """Makes those of the round after the one that was asked for meanwhile.

  All are made in one thread of its own, in the order of the rounds. An error
  is raised by `make` of the round whose data could not be made.
  """

  def __init__(
    self,
    sampler: Sampler,
    client_data_fn: Callable[[participation.Cohort], Sequence[Any]],
    last_round: int,
  ):
    """Starts nothing; `make` does.

    Args:
      sampler: Draws the cohorts.
      client_data_fn: From a cohort to its client data.
      last_round: After this round, nothing is made ahead of time.
    """
    super().__init__(sampler, client_data_fn)
    self._last_round = last_round
    # It starts its thread when it is first given something to do.
    self._executor = futures.ThreadPoolExecutor(
      max_workers=1, thread_name_prefix='round_data'
    )
    # What is made ahead of time, and for which round.
    self._ahead: Optional[futures.Future[Any]] = None
    self._ahead_round = 0

  def make(
    self, round_num: int, forced_clients: Sequence[int] = ()
  ) -> tuple[participation.Cohort, Sequence[Any]]:
    """Returns who takes part in a round, and their data.

    Waits for them, then has those of the round after it made.

    Args:
      round_num: The round, one more than the last time.
      forced_clients: None; a cohort is drawn before it is known who is forced.

    Returns:
      The cohort and its client data.

    Raises:
      ValueError: If there are forced clients, or another round was made ahead
        of time.
    """
    if forced_clients:
      raise ValueError(
        'forced_clients must be empty for cohorts that are drawn ahead of'
        f' time, found {forced_clients!r:.200}'
      )
    if self._ahead is not None and round_num != self._ahead_round:
      raise ValueError(
        f'round_num must be {self._ahead_round}, the round after the last one'
        f' that was made, found {round_num}'
      )
    # Not kept here, so that the data goes when the round is done with it.
    ahead, self._ahead = self._ahead, None
    if ahead is None:
      ahead = self._submit(round_num)
    made: tuple[participation.Cohort, Sequence[Any]] = ahead.result()
    if round_num < self._last_round:
      self._ahead_round = round_num + 1
      self._ahead = self._submit(self._ahead_round)
    return made

  def _submit(self, round_num: int) -> futures.Future[Any]:
    return self._executor.submit(super().make, round_num)

  def close(self) -> None:
    """Ends the thread, as soon as what it is making is made."""
    self._executor.shutdown(wait=True, cancel_futures=True)
    self._ahead = None
