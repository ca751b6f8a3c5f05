"""FedSteer as a learning process.

"FedSteer: Taming Extreme Gradient Staleness in Federated Learning with
Corrective Projections and Caching", UAI 2026, arXiv 2606.10124.
"""

import dataclasses
from typing import Any, Callable, Optional

import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff.algorithms import composition


def build_fedsteer(
  model_fn: composition.ModelFn,
  population_size: int,
  *,
  client_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
  server_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
  model_distributor: Optional[
    tff.learning.templates.DistributionProcess
  ] = None,
  metrics_aggregator: Optional[Callable[..., Any]] = None,
  loop_implementation: Optional[tff.learning.LoopImplementation] = None,
  **parameters: Any,
) -> tff.learning.templates.LearningProcess:
  """Builds a learning process that performs FedSteer.

  The process has the methods of `tff.learning.templates.LearningProcess`:

  *   `initialize`: `( -> S@SERVER)`, where `S` is a
      `tff.learning.templates.LearningAlgorithmState` whose `aggregator` is the
      core set's cache and the coordinates of all clients.
  *   `next`: `(<S@SERVER, {B}@CLIENTS> -> <state=S, metrics=M>@SERVER)`, where
      `B` is `<ident=<client_id=int32, weight=float32,
      participation_probability=float32>*, data=<x, y>*>`; see
      `fedsteer_tff.build_client_data`.
  *   `get_model_weights`, `set_model_weights`, `get_hparams`, `set_hparams`.

  In a round every active client trains locally from the current model; g_i is
  the model it started from minus the one it ends with, as in the paper. The
  server estimates sum_i d_i g_i over the whole population and hands it to
  `server_optimizer` as a gradient. With the default, SGD of rate 1, the
  estimate is taken off the model.

  Degenerate case: with `core_set=()` and the 'paper' estimator this is
  `build_fedavg`.

  Example:
      process = fedsteer_tff.build_fedsteer(
          model_fn, population_size=100, estimator='stable')
      state = process.initialize()
      output = process.next(state, [
          fedsteer_tff.build_client_data(
              i, datasets[i], weight=d[i], participation_probability=p[i])
          for i in cohort])

  Args:
    model_fn: A no-argument callable that builds a
      `tff.learning.models.VariableModel` from scratch, or a
      `tff.learning.models.FunctionalModel`.
    population_size: N; client ids are 0, ..., N - 1.
    client_optimizer: Local optimizer; SGD with rate 0.1 if None.
    server_optimizer: SGD with rate 1 if None.
    model_distributor: Sends the model to clients; a plain broadcast if None.
    metrics_aggregator: As in `tff.learning.algorithms`.
    loop_implementation: As in `tff.learning.algorithms`; DATASET_ITERATOR if
      None, see `client_work.build_identified_client_work`.
    **parameters: Those of `fedsteer_tff.aggregators.FedSteerFactory`, such as
      `estimator`, `core_set_size`, `core_set`, `ridge`, `warmup_rounds`,
      `aggregation` and `participation`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    TypeError: If an argument has the wrong type or an unknown name.
    ValueError: If a value is outside its range, or the model has no trainable
      weights.
  """
  known = [f.name for f in dataclasses.fields(aggregators.FedSteerFactory)]
  for name in parameters:
    if name not in known:
      raise TypeError(
        'parameters must be those of FedSteerFactory, '
        f'{", ".join(known)}, found {name}'
      )
  factory = aggregators.FedSteerFactory(population_size, **parameters)
  return composition.compose_process(
    model_fn,
    factory,
    client_weighting=factory.client_weighting,
    client_optimizer=client_optimizer,
    server_optimizer=server_optimizer,
    model_distributor=model_distributor,
    metrics_aggregator=metrics_aggregator,
    loop_implementation=loop_implementation,
  )
