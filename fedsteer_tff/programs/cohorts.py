"""From a round's cohort to the client data that `process.next` takes."""

from collections.abc import Callable, Sequence
from typing import Any

from fedsteer_tff import participation


class CohortData:
  """Client data of a cohort, filled up to a multiple of some number.

  TFF builds a new stack of executors for every number of clients that it
  meets, and keeps memory for each. Filled up to multiples of a number about as
  large as the mean cohort, cohorts of all sizes share a few stacks, and the
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
      ValueError: If `multiple` is not an integer >= 1.
    """
    if not isinstance(multiple, int) or multiple < 1:
      raise ValueError(f'multiple must be an integer >= 1, found {multiple!r}')
    self._client_data_fn = client_data_fn
    self._padding = padding
    self._multiple = multiple

  def __call__(self, cohort: participation.Cohort) -> Sequence[Any]:
    """Returns the list of client data for `process.next`."""
    data = [
      self._client_data_fn(int(client_id), float(probability))
      for client_id, probability in zip(
        cohort.client_ids, cohort.participation_probabilities
      )
    ]
    if self._padding is not None:
      missing = -len(data) % self._multiple if data else self._multiple
      data.extend([self._padding] * missing)
    return data
