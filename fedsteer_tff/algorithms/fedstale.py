"""FedStale: between averaging participants and FedVARP."""

from typing import Any

import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import subspace
from fedsteer_tff.algorithms import composition
from fedsteer_tff.participation import estimates
from fedsteer_tff.participation import identity


def build_fedstale(
  model_fn: composition.ModelFn,
  population_size: int,
  beta: float,
  *,
  correction_weighting: str = subspace.INVERSE_PROBABILITY,
  correction_smoothing: float = 1.0,
  client_weighting: str = identity.KNOWN,
  participation: estimates.Participation = estimates.KNOWN,
  **common: Any,
) -> tff.learning.templates.LearningProcess:
  """Builds FedStale (Rodio and Neglia, ECAI 2024).

      Delta = sum_i d_i beta h_i + sum_{i active} (d_i / p_i) (g_i - beta h_i)

  where h_i is the update that client i sent last, 0 if none. With the other
  defaults unbiased for every beta. The server keeps N x D numbers. Degenerate
  cases: beta = 0 is inverse-probability FedAvg, beta = 1 is FedVARP.

  Args:
    model_fn: As in `build_fedsteer`.
    population_size: N; client ids are 0, ..., N - 1.
    beta: In [0, 1], how far remembered updates are trusted.
    correction_weighting: Of the second sum, see `subspace.EstimatorRule`.
    correction_smoothing: a in (0, 1], averages that sum over rounds; 1 does
      not.
    client_weighting: 'known' or 'examples', as in `FedSteerFactory`.
    participation: Where p_i come from, as in `FedSteerFactory`.
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
      beta=beta,
      correction_weighting=correction_weighting,
      correction_smoothing=correction_smoothing,
      client_weighting=client_weighting,
      participation=participation,
    ),
    client_weighting=client_weighting,
    **composition.shared_arguments(common),
  )
