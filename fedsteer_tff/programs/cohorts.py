"""From a round's cohort to the client data that `process.next` takes."""

from collections.abc import Callable, Sequence
import math
from typing import Any

import numpy.typing as npt

from fedsteer_tff import participation
from fedsteer_tff.participation import population
from fedsteer_tff.programs import arguments

# Cohorts that many standard deviations above the mean are hardly ever met.
_DEVIATIONS = 4


def cohort_multiple(participation_probabilities: npt.ArrayLike) -> int:
  """Returns a number whose multiples suit cohorts of independent clients.

  Cohorts that are filled up to multiples of it, see `CohortData`, come in two
  or three sizes, about four standard deviations of a cohort's size apart: few
  enough for the runtime's memory to stay flat, and near enough to have few
  clients that stand for nobody. If everybody always takes part, it is N.

  Args:
    participation_probabilities: Float [N], p_i in (0, 1].

  Returns:
    An integer in [1, N].

  Raises:
    TypeError: If the probabilities are not numbers.
    ValueError: If a probability is outside (0, 1], or there is none.
  """
  p = population.check_probabilities(
    participation_probabilities, 'participation_probabilities'
  )
  step = _DEVIATIONS * math.sqrt((p * (1 - p)).sum())
  largest = min(len(p), p.sum() + step)
  num_sizes = max(1, round(largest / step)) if step else 1
  return math.ceil(largest / num_sizes)


def check_multiple(value: Any, name: str = 'multiple') -> int:
  """Returns what cohorts are filled up to multiples of.

  Args:
    value: The number.
    name: The argument's name, for the error message.

  Returns:
    The number.

  Raises:
    ValueError: If it is not an integer >= 1.
  """
  return arguments.check_integer(name, value, 1)


def num_padding(num_clients: int, multiple: int) -> int:
  """Returns how many clients that stand for nobody fill a cohort up.

  Args:
    num_clients: The cohort's size, which may be 0.
    multiple: Cohorts are filled up to the next multiple of this, an empty one
      to this itself.

  Returns:
    How many are missing; 0 to `multiple`.
  """
  return -num_clients % multiple if num_clients else multiple


class CohortData:
  """Client data of a cohort, filled up to a multiple of some number.

  TFF builds a new stack of executors for every number of clients that it
  meets, and keeps memory for each. Filled up to multiples of a number such as
  `cohort_multiple` returns, cohorts of all sizes share a few stacks, and the
  clients that stand for nobody cost little.
  """

  def __init__(
    self,
    client_data_fn: Callable[[int, float], Any],
    *,
    padding: Any = None,
    multiple: int = 1,
  ):
    """Keeps the arguments.

    Args:
      client_data_fn: From a client id and its participation probability in
        the round to its element of `process.next`'s client data.
      padding: The element that stands for nobody, such as
        `client_work.padding_client_data(...)`; None for no filling up.
      multiple: Cohorts are filled up to the next multiple of this, an empty
        one to this itself.

    Raises:
      TypeError: If `client_data_fn` is no function.
      ValueError: If `multiple` is not an integer >= 1.
    """
    arguments.check_callable('client_data_fn', client_data_fn)
    self._client_data_fn = client_data_fn
    self._padding = padding
    self._multiple = check_multiple(multiple)

  def __call__(self, cohort: participation.Cohort) -> Sequence[Any]:
    """Returns the client data of a round, as `process.next` takes it.

    Args:
      cohort: Who takes part, and with which probabilities.

    Returns:
      One element for each client, in the order of the cohort; then those that
      fill it up.
    """
    data = [
      self._client_data_fn(int(client_id), float(probability))
      for client_id, probability in zip(
        cohort.client_ids, cohort.participation_probabilities
      )
    ]
    if self._padding is not None:
      data.extend([self._padding] * num_padding(len(data), self._multiple))
    return data
