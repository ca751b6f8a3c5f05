"""Federated averaging with inverse-probability weights, as a baseline."""

from typing import Callable, Optional

import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff.algorithms import composition
from fedsteer_tff.participation import identity


def build_fedavg(
  model_fn: composition.ModelFn,
  population_size: int,
  *,
  client_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
  server_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
  client_weighting: str = identity.KNOWN,
  model_distributor: Optional[
    tff.learning.templates.DistributionProcess
  ] = None,
  metrics_aggregator: Optional[Callable] = None,
  loop_implementation: Optional[tff.learning.LoopImplementation] = None,
) -> tff.learning.templates.LearningProcess:
  """Builds FedAvg that averages by sum_{i active} (d_i / p_i) g_i.

  Client data, client work, metrics and state layout are those of
  `build_fedsteer`, so that the two differ in the estimator alone. The estimate
  of sum_i d_i g_i is unbiased.

  Args:
    model_fn: As in `build_fedsteer`.
    population_size: N; client ids are 0, ..., N - 1.
    client_optimizer: Local optimizer; SGD with rate 0.1 if None.
    server_optimizer: SGD with rate 1 if None.
    client_weighting: 'known' or 'examples', as in `FedSteerFactory`.
    model_distributor: Sends the model to clients; a plain broadcast if None.
    metrics_aggregator: As in `tff.learning.algorithms`.
    loop_implementation: As in `tff.learning.algorithms`; DATASET_ITERATOR if
      None, see `client_work.build_identified_client_work`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If a value is outside its range, or the model has no trainable
      weights.
  """
  return composition.compose_process(
    model_fn,
    aggregators.InverseProbabilityFactory(population_size, client_weighting),
    client_weighting=client_weighting,
    client_optimizer=client_optimizer,
    server_optimizer=server_optimizer,
    model_distributor=model_distributor,
    metrics_aggregator=metrics_aggregator,
    loop_implementation=loop_implementation,
  )
