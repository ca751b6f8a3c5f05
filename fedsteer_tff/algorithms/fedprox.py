"""FedProx: federated averaging with a proximal term in the local loss."""

import functools
from typing import Any, Optional

import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import client_work
from fedsteer_tff import subspace
from fedsteer_tff.algorithms import composition
from fedsteer_tff.participation import estimates
from fedsteer_tff.participation import identity


def build_fedprox(
  model_fn: composition.ModelFn,
  population_size: int,
  proximal_strength: float,
  *,
  correction_weighting: str = subspace.INVERSE_PROBABILITY,
  correction_smoothing: float = 1.0,
  client_weighting: str = identity.KNOWN,
  correction_factory: Optional[
    tff.aggregators.UnweightedAggregationFactory
  ] = None,
  participation: estimates.Participation = estimates.KNOWN,
  **common: Any,
) -> tff.learning.templates.LearningProcess:
  """Builds FedProx (Li et al., MLSys 2020).

  Clients minimise their loss plus mu / 2 ||w - w_global||^2; the server
  averages as in `build_fedavg`, with the same bias, of the updates that this
  makes. As mu goes to 0 this becomes `build_fedavg`.

  Args:
    model_fn: As in `build_fedsteer`.
    population_size: N; client ids are 0, ..., N - 1.
    proximal_strength: mu > 0.
    correction_weighting: As in `build_fedavg`.
    correction_smoothing: As in `build_fedavg`.
    client_weighting: 'known' or 'examples', as in `FedSteerFactory`.
    correction_factory: Sums what the average is made of, as in
      `FedSteerFactory`; a plain sum if None.
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
    aggregators.InverseProbabilityFactory(
      population_size,
      correction_weighting=correction_weighting,
      correction_smoothing=correction_smoothing,
      client_weighting=client_weighting,
      correction_factory=correction_factory,
      participation=participation,
    ),
    client_weighting=client_weighting,
    build_client_work=functools.partial(
      client_work.build_proximal_client_work,
      proximal_strength=proximal_strength,
    ),
    **composition.shared_arguments(common),
  )
