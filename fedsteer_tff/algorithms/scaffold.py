"""SCAFFOLD: local steps corrected by control variates."""

import functools
from typing import Any, Optional

import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import client_work
from fedsteer_tff import subspace
from fedsteer_tff.algorithms import composition
from fedsteer_tff.participation import estimates
from fedsteer_tff.participation import identity


def build_scaffold(
  model_fn: composition.ModelFn,
  population_size: int,
  *,
  client_learning_rate: float = composition.DEFAULT_CLIENT_LEARNING_RATE,
  correction_weighting: str = subspace.PARTICIPANT_MEAN,
  correction_smoothing: float = 1.0,
  client_weighting: str = identity.KNOWN,
  correction_factory: Optional[
    tff.aggregators.UnweightedAggregationFactory
  ] = None,
  participation: estimates.Participation = estimates.KNOWN,
  **common: Any,
) -> tff.learning.templates.LearningProcess:
  """Builds SCAFFOLD with option II (Karimireddy et al., ICML 2020).

  Clients train as `client_work.build_scaffold_client_work` says; the server
  averages as in `build_fedavg`, by default over the participants, as SCAFFOLD
  does, with that mean's bias. Controls are averaged with weights 1 / N, as
  published: so even with full participation SCAFFOLD ends at a minimum of
  (1 / N) sum_i f_i, whatever the shares d_i are. The state keeps (N + 1) D
  numbers of controls, all of which every client downloads in a round.
  Degenerate case: in the first round all controls are 0, so that it is a round
  of FedAvg.

  Args:
    model_fn: As in `build_fedsteer`.
    population_size: N; client ids are 0, ..., N - 1.
    client_learning_rate: eta > 0 of the local SGD.
    correction_weighting: As in `build_fedavg`.
    correction_smoothing: As in `build_fedavg`.
    client_weighting: 'known' or 'examples', as in `FedSteerFactory`.
    correction_factory: Sums what the average is made of, as in
      `FedSteerFactory`; a plain sum if None.
    participation: Where p_i come from, as in `FedSteerFactory`; of use for
      metrics alone with 'participant_mean'.
    **common: `server_optimizer`, `model_distributor`, `metrics_aggregator` and
      `loop_implementation`, as in `build_fedsteer`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    TypeError: If an argument has the wrong type or an unknown name.
    ValueError: If a value is outside its range, or the model has no trainable
      weights.
  """
  client_work.check_scaffold_learning_rate(
    'client_learning_rate', client_learning_rate
  )
  if common.get('client_optimizer') is not None:
    raise TypeError(
      'client_optimizer must not be given: SCAFFOLD trains by SGD with '
      f'client_learning_rate, found {common["client_optimizer"]!r}'
    )
  common['client_optimizer'] = tff.learning.optimizers.build_sgdm(
    client_learning_rate
  )
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
      client_work.build_scaffold_client_work,
      learning_rate=client_learning_rate,
      population_size=population_size,
    ),
    **composition.shared_arguments(common),
  )
