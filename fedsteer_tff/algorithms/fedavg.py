"""Federated averaging, the baseline of every comparison."""

from typing import Any, Optional

import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import subspace
from fedsteer_tff.algorithms import composition
from fedsteer_tff.participation import estimates
from fedsteer_tff.participation import identity


def build_fedavg(
  model_fn: composition.ModelFn,
  population_size: int,
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
  """Builds FedAvg that averages by sum_{i active} (d_i / p_i) g_i.

  Client data, client work, metrics and state layout are those of
  `build_fedsteer`, so that the two differ in the estimator alone. The estimate
  of sum_i d_i g_i is unbiased; with another weighting it is not, see
  `aggregators.InverseProbabilityFactory`. If all clients take part in every
  round, with p_i = 1, this is FedAvg with full participation, and all
  weightings are the same.

  Args:
    model_fn: As in `build_fedsteer`.
    population_size: N; client ids are 0, ..., N - 1.
    correction_weighting: 'inverse_probability'; 'self_normalized', the same
      weights divided by their sum over the cohort; or 'participant_mean', the
      classic mean of the participants with weights d_i (McMahan et al., 2017).
    correction_smoothing: a in (0, 1], averages the estimate over rounds; 1 does
      not.
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
    **composition.shared_arguments(common),
  )
