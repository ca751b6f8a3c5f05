"""Estimates with every client's last update: FedVARP, FedStale and MIFA.

FedSteer's estimator with the identity as subspace: a client's coordinates are
its last update itself, h_i. So state and memory are O(N D), which is what
FedSteer avoids.

    Delta = (1 / Z) sum_i n_i beta h~_i + R
    R     = (1 - a) R_before + a sum_{i in A} w_i (g_i - beta h~_i) / W

with the choices of h~_i, w_i, W and a that `subspace.EstimatorRule` describes,
and a factor beta. With inverse-probability weights and a = 1:

* FedVARP (Jhunjhunwala et al., UAI 2022): cached h~_i = h_i, beta = 1.
  Unbiased.
* FedStale (Rodio and Neglia, ECAI 2024): the same with beta in [0, 1].
  Unbiased for every beta; beta = 0 is inverse-probability FedAvg.
* MIFA (Gu et al., NeurIPS 2021): fresh h~_i = g_i for active clients, beta = 1,
  so that there is no correction and Delta = sum_i d_i h~_i. Its expectation is
  sum_i d_i (p_i g_i + (1 - p_i) h_i).

A client that never reported has h_i = 0.
"""

import collections
from collections.abc import Mapping
import dataclasses
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import arguments
from fedsteer_tff import subspace
from fedsteer_tff.aggregators import designs
from fedsteer_tff.aggregators import parameters
from fedsteer_tff.aggregators import probability_estimates
from fedsteer_tff.aggregators import registry
from fedsteer_tff.aggregators import reports
from fedsteer_tff.aggregators import value_types
from fedsteer_tff.participation import estimates
from fedsteer_tff.participation import identity

State = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class StaleUpdateFactory(tff.aggregators.WeightedAggregationFactory):
  """Builds an aggregation that remembers the last update of every client.

  The value that is aggregated, the handling of reports that cannot be used and
  the client's weight are those of `FedSteerFactory`. The server collects the
  updates of a round, m D numbers, beside the N D of its state. Degenerate case:
  `beta=0` is `InverseProbabilityFactory`.

  Attributes:
    population_size: N >= 1; client ids are 0, ..., N - 1.
    beta: beta in [0, 1], how far remembered updates are trusted.
    update_refresh: 'after_aggregation', the updates remembered before the round
      serve both terms; or 'before_aggregation', active clients' new ones do.
    correction_weighting: As in `subspace.EstimatorRule`.
    correction_smoothing: a in (0, 1].
    client_weighting: 'known' or 'examples', as in `FedSteerFactory`.
    participation: Where p_i come from, as in `FedSteerFactory`; no more
      travels if they are estimated.
  """

  population_size: int
  beta: float = 1.0
  update_refresh: str = subspace.AFTER_AGGREGATION
  correction_weighting: str = subspace.INVERSE_PROBABILITY
  correction_smoothing: float = 1.0
  client_weighting: str = identity.KNOWN
  participation: estimates.Participation = estimates.KNOWN

  def __post_init__(self) -> None:
    estimates.check_participation('participation', self.participation)
    parameters.check_population_size('population_size', self.population_size)
    arguments.check_fraction('beta', self.beta, or_zero=True)
    subspace.check_choice(
      'update_refresh', self.update_refresh, subspace.COORDINATE_REFRESHES
    )
    _ = self.rule
    subspace.check_choice(
      'client_weighting', self.client_weighting, identity.CLIENT_WEIGHTINGS
    )

  @property
  def rule(self) -> subspace.EstimatorRule:
    """The estimator that the parameters choose."""
    return subspace.EstimatorRule(
      self.update_refresh,
      self.correction_weighting,
      self.correction_smoothing,
    )

  def create(
    self, value_type: tff.Type, weight_type: tff.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation process.

    Args:
      value_type: As `FedSteerFactory.create` takes it.
      weight_type: Float32.

    Returns:
      A process whose result has the type of the model's trainable weights and
      whose measurements are flat scalars, see `run_round`.

    Raises:
      ValueTypeError: If the types are others.
      ValueError: If the model has no trainable weights.
    """
    spec = reports.ReportSpec(
      update_type=value_types.check_value_type(value_type, weight_type),
      population_size=self.population_size,
      core_set_size=0,
      sketch_size=1,
      sketch_seed=0,
      collects_sketches=False,
      ridge=0.0,
      absolute_ridge=None,
      rule=self.rule,
      keeps_updates=True,
      participation=self.participation,
    )

    @tff.tensorflow.computation
    def create_state() -> State:
      return initial_state(spec)

    state_type = create_state.type_signature.result

    @tff.tensorflow.computation(state_type)
    def without_core_set(state: State) -> collections.OrderedDict[str, Any]:
      core = collections.OrderedDict(
        core_set=tf.zeros([0], tf.int32),
        core_updates=tf.zeros([0, spec.dimension]),
        collecting=tf.constant(False),
      )
      if spec.estimator is not None:
        core['last_seen'] = state['last_seen']
        core['participation'] = state['participation']
      return core

    gather, gathered_type = designs.build_gather(
      designs.SERVER_PROJECTION,
      spec,
      without_core_set.type_signature.result,
      value_type,
      correction_process=None,
    )

    @tff.tensorflow.computation(state_type, gathered_type)
    def finish_round(
      state: State, gathered: Mapping[str, tf.Tensor]
    ) -> tuple[Any, State, Mapping[str, tf.Tensor]]:
      return run_round(
        spec,
        self.beta,
        self.client_weighting == identity.KNOWN,
        state,
        gathered,
      )

    @tff.federated_computation
    def init_fn() -> tff.Value:
      return tff.federated_eval(create_state, tff.SERVER)

    @tff.federated_computation(
      init_fn.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(
      state: tff.Value, value: tff.Value, weight: tff.Value
    ) -> tff.templates.MeasuredProcessOutput:
      core = tff.federated_map(without_core_set, state)
      gathered, _, _ = gather(core, value, weight, None)
      delta, state, metrics = tff.federated_map(finish_round, (state, gathered))
      return tff.templates.MeasuredProcessOutput(state, delta, metrics)

    return tff.templates.AggregationProcess(init_fn, next_fn)


def initial_state(spec: reports.ReportSpec) -> State:
  """Returns the state before the first round.

  Args:
    spec: The sizes, and the estimator.

  Returns:
    * the entries of `registry.empty_registry`;
    * updates: float32 [N, D], h_i.
    * smoothed_correction: float32 [D], R; [0] if the estimator keeps none.
    * participation: see `probability_estimates.initial_state`; absent if
      participation probabilities are known.
  """
  state = registry.empty_registry(spec.population_size)
  state.update(
    updates=tf.zeros([spec.population_size, spec.dimension]),
    smoothed_correction=tf.zeros([spec.dimension if spec.rule.smooths else 0]),
  )
  if spec.estimator is not None:
    state['participation'] = probability_estimates.initial_state(
      spec.estimator, spec.population_size
    )
  return state


def run_round(
  spec: reports.ReportSpec,
  beta: float,
  weights_are_shares: bool,
  state: State,
  gathered: Mapping[str, tf.Tensor],
) -> tuple[Any, State, Mapping[str, tf.Tensor]]:
  """Aggregates a round's reports and remembers their updates.

  Args:
    spec: The sizes, and the estimator.
    beta: The factor on remembered updates.
    weights_are_shares: Whether weights sum to 1 over the population.
    state: See `initial_state`.
    gathered: See `gathering.gathered_spec`, of distinct clients.

  Returns:
    Delta in the structure of the model's weights, the new state, and the
    round's metrics: int32 active_clients, nonfinite_clients,
    duplicate_clients; float32 update_staleness_mean and _max (rounds since a
    client's update was refreshed), those of `subspace.variance_metrics`, with
    the updates remembered before the round as estimates: the variance of
    FedVARP's estimator, whatever the rule is; and, where probabilities are
    estimated, of `probability_estimates.metrics`.
  """
  owners, updates = gathered['client_id'], gathered['update']
  first = tf.ones_like(owners, tf.bool)
  before = state['updates']
  after = registry.replace_rows(before, owners, updates, first)
  table = after if spec.rule.refreshes_before else before
  used = beta * tf.gather(table, owners)
  cohort = subspace.Cohort(
    weights=gathered['weight'],
    previous_weights=tf.gather(state['client_weight'], owners),
    probabilities=gathered['probability'],
    fresh=used,
    cached=used,
    # The server has both: what is subtracted here leaves no rounding behind.
    subtracted=used,
    multiplicity=gathered['multiplicity'],
    first=first,
  )
  new = registry.register(state, cohort, owners)
  if spec.estimator is not None:
    new['participation'] = probability_estimates.observe(
      spec.estimator, state, gathered, first
    )
  importance = spec.rule.importance(cohort.weights, cohort.probabilities)
  population_weight = registry.population_weight(
    new, spec.population_size, weights_are_shares
  )
  # The sum over all is taken anew: a table of this size is copied in a round
  # anyway, and one huge update would leave its rounding in a running sum.
  baseline = beta * tf.linalg.matvec(
    table, new['client_weight'], transpose_a=True
  )
  estimate = subspace.estimate_update(
    spec.rule,
    None,
    tf.cast(baseline, tf.float64),
    cohort._replace(previous_weights=cohort.weights),
    tf.linalg.matvec(updates - used, importance, transpose_a=True),
    population_weight,
    state['smoothed_correction'],
  )
  new['smoothed_correction'] = estimate.smoothed_correction
  new['updates'] = after
  mean, largest = subspace.staleness(state['round_num'], new['last_seen'])
  metrics = collections.OrderedDict(
    active_clients=tf.size(owners),
    nonfinite_clients=gathered['nonfinite_clients'],
    duplicate_clients=gathered['duplicate_clients'],
    update_staleness_mean=mean,
    update_staleness_max=largest,
  )
  metrics.update(
    subspace.variance_metrics(
      tf.reduce_sum((updates - beta * tf.gather(before, owners)) ** 2, axis=1),
      gathered['squared_norm'],
      registry.shares(gathered['weight'], population_weight),
      gathered['probability'],
    )
  )
  if spec.estimator is not None:
    metrics.update(
      probability_estimates.metrics(spec.estimator, new, gathered, first)
    )
  new['round_num'] = state['round_num'] + 1
  return spec.unflatten(estimate.delta), new, metrics
