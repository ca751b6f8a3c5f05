"""Averaging those who took part: the estimators behind federated averaging."""

import dataclasses
from typing import Optional

import tensorflow_federated as tff

from fedsteer_tff import subspace
from fedsteer_tff.aggregators import designs
from fedsteer_tff.aggregators import fedsteer
from fedsteer_tff.participation import estimates
from fedsteer_tff.participation import identity


@dataclasses.dataclass(frozen=True)
class InverseProbabilityFactory(tff.aggregators.WeightedAggregationFactory):
  """Estimates sum_i d_i g_i by sum_{i active} (d_i / p_i) g_i.

  This is FedSteer without a core set, and is built as that: the same identity
  channel, handling of bad reports, metrics and state layout (with k = 0).
  With the defaults unbiased (Horvitz and Thompson, 1952), and a round without
  reports gives 0. With other weights, E[Delta] = sum_i d_i g_i u_i with

  * 'self_normalized': u_i = E[1{i in A} / p_i / sum_{j in A} d_j / p_j];
  * 'participant_mean': u_i = E[1{i in A} / sum_{j in A} d_j];

  and with 'self_normalized' a round without reports repeats the last estimate.

  Attributes:
    population_size: N >= 1.
    correction_weighting: 'inverse_probability', 'self_normalized' or
      'participant_mean', see `subspace.EstimatorRule`.
    correction_smoothing: a in (0, 1], averages the estimate over rounds.
    client_weighting: 'known' or 'examples', as in `FedSteerFactory`.
    correction_factory: Sums float32 [D] vectors over clients in place of a
      plain sum, if not None.
    participation: Where p_i come from, as in `FedSteerFactory`. If they are
      estimated and used, clients download N numbers.
  """

  population_size: int
  correction_weighting: str = subspace.INVERSE_PROBABILITY
  correction_smoothing: float = 1.0
  client_weighting: str = identity.KNOWN
  correction_factory: Optional[tff.aggregators.UnweightedAggregationFactory] = (
    None
  )
  participation: estimates.Participation = estimates.KNOWN

  def __post_init__(self) -> None:
    _ = self._without_core_set

  def create(
    self, value_type: tff.Type, weight_type: tff.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation process, as `FedSteerFactory.create` does.

    Args:
      value_type: As that takes it.
      weight_type: Float32.

    Returns:
      A process with the same result and measurements.

    Raises:
      ValueTypeError: If the types are others.
      ValueError: If the model has no trainable weights.
    """
    return self._without_core_set.create(value_type, weight_type)

  @property
  def _without_core_set(self) -> fedsteer.FedSteerFactory:
    return fedsteer.FedSteerFactory(
      population_size=self.population_size,
      core_set=(),
      estimator='paper',
      correction_weighting=self.correction_weighting,
      correction_smoothing=self.correction_smoothing,
      client_weighting=self.client_weighting,
      # With k = 0 it downloads nothing, and its norms are exact.
      aggregation=designs.CLIENT_PROJECTION,
      correction_factory=self.correction_factory,
      participation=self.participation,
    )
