"""MIFA: the mean of what every client sent last."""

from typing import Any

import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import subspace
from fedsteer_tff.algorithms import composition
from fedsteer_tff.participation import estimates
from fedsteer_tff.participation import identity


def build_mifa(
  model_fn: composition.ModelFn,
  population_size: int,
  *,
  client_weighting: str = identity.KNOWN,
  participation: estimates.Participation = estimates.KNOWN,
  **common: Any,
) -> tff.learning.templates.LearningProcess:
  """Builds MIFA (Gu et al., NeurIPS 2021).

      Delta = sum_i d_i h_i,  h_i = g_i for active clients

  where h_i is the update that client i sent last, this round's included, 0 if
  none. Biased: E[Delta] = sum_i d_i (p_i g_i + (1 - p_i) h_i) with h_i from
  before the round. Participation probabilities are not used. The server keeps
  N x D numbers. Degenerate case: if all clients take part, this is FedAvg.

  Args:
    model_fn: As in `build_fedsteer`.
    population_size: N; client ids are 0, ..., N - 1.
    client_weighting: 'known' or 'examples', as in `FedSteerFactory`.
    participation: Where p_i come from, as in `FedSteerFactory`; of use for
      metrics alone.
    **common: `client_optimizer`, `server_optimizer`, `model_distributor`,
      `metrics_aggregator` and `loop_implementation`, as in `build_fedsteer`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    TypeError: If an argument has the wrong type or an unknown name.
    ValueError: If a value is outside its range, or the model has no trainable
      weights.
  """
  return composition.compose_process(
    model_fn,
    aggregators.StaleUpdateFactory(
      population_size,
      update_refresh=subspace.BEFORE_AGGREGATION,
      client_weighting=client_weighting,
      participation=participation,
    ),
    client_weighting=client_weighting,
    **composition.shared_arguments(common),
  )
