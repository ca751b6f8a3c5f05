"""FedSteer's aggregation: projection, reconstruction, correction, refresh.

The value that is aggregated is

    <update=<model's trainable weights>,
     client_id=int32, participation_probability=float32>

and the weight is n_i: the share d_i of the client in the population, or its
number of examples. See `client_work.build_identified_client_work`.
"""

import collections
from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, Optional

import numpy as np
import tensorflow_federated as tff

from fedsteer_tff import subspace
from fedsteer_tff.aggregators import designs
from fedsteer_tff.aggregators import parameters
from fedsteer_tff.aggregators import reports
from fedsteer_tff.aggregators import server_round
from fedsteer_tff.aggregators import value_types
from fedsteer_tff.participation import estimates
from fedsteer_tff.participation import identity

# Designs in which the server gets every update, if a plain sum is enough.
_SHOWS_UPDATES = (designs.SKETCHED_PROJECTION, designs.SERVER_PROJECTION)


@dataclasses.dataclass(frozen=True)
class FedSteerFactory(tff.aggregators.WeightedAggregationFactory):
  """Builds FedSteer's `tff.templates.AggregationProcess`.

  The result of `next` estimates sum_i d_i g_i over the whole population, from
  the clients that took part: a baseline of reconstructions Q^T s_i for all,
  and a correction by those that reported (FedSteer, arXiv 2606.10124). State is
  O(N k + k D) plus, unless the core set is given, the pool of sketches, at most
  `candidate_pool_size` times `sketch_size` numbers; see
  `server_round.initial_state` for what is in it.

  Degenerate cases: with an empty core set (`core_set=()`) and
  `estimator='paper'` this is inverse-probability FedAvg. In the first
  `warmup_rounds` rounds the core set is empty too, so that Delta is the
  correction alone, weighted and smoothed as the estimator says: inverse
  probabilities with 'paper' and 'unbiased'. A round without reports applies the
  baseline. A client whose update or weight is not finite is dropped, counted
  and never cached. Of several reports of one client in a round the first is
  used and the others are counted; where a plain sum has already taken them in
  ('dense', or a `correction_factory`, or partial sums that were made apart),
  they count in that round's correction, and the caches hold one report, or the
  reports' mean in 'dense'.

  Attributes:
    population_size: N >= 1; client ids are 0, ..., N - 1.
    core_set_size: k, 1 <= k <= N. Not used if `core_set` is given.
    core_set: Client ids of the core set. It is then never changed, and no
      sketches are collected.
    estimator: 'paper', 'unbiased' or 'stable', see `subspace.named_rule`.
      'stable' is the best choice for training; 'paper' is the default, since
      that is what a reader of the paper expects.
    coordinate_refresh: Replaces that part of the estimator if not None.
    correction_weighting: Replaces that part of the estimator if not None.
    correction_smoothing: Replaces that part of the estimator if not None.
    ridge: Relative ridge c >= 0 of the projection, dimensionless.
    absolute_ridge: Ridge in units of a squared update norm, instead of `ridge`.
    warmup_rounds: Rounds before the core set is chosen, >= 1. If too few
      clients have reported by then to fill all slots, the choice is repeated
      after each round until they are filled.
    reselect_every: Chooses the core set anew after each so many rounds; 0 for
      never. None for 1 if `core_eligibility` is 'reporting', and 0 otherwise.
    core_eligibility: Who may be chosen. 'reporting', the clients of the round
      that has just ended: the first such round fills the core set, and later
      ones exchange members one by one where that pays, so that clients that
      hardly ever take part get their row at once. The server needs updates of
      single clients for that: not with 'client_projection', 'dense' or a
      `correction_factory`. 'frequent', clients of at least median participation
      probability; or 'received', every client that reported: those get a row
      when they report again. Choose 'received' if core members can be made to
      take part. None for 'reporting' where that is possible, and 'frequent'
      otherwise.
    client_weighting: 'known', weights are the shares d_i, which sum to 1 over
      the population; or 'examples', weights are example counts n_i, and d_i is
      n_i over N times their mean over the clients seen so far.
    aggregation: How updates travel, see `designs`.
    sketch_size: Buckets of the sketches.
    sketch_seed: Seed of the sketches.
    candidate_pool_size: At most so many clients' sketches are kept.
    correction_factory: An unweighted factory that *sums* float32 [D] vectors
      over clients, in place of a plain sum: clipping, zeroing, secure or
      private sums. One that returns a mean, or a sum over a number of clients
      as `tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed` does,
      makes Delta too short: for a private one take `private_correction`.
      Clients that are dropped or padding enter with a zero vector.
    max_core_norm: M > 0, in units of an update's L2 norm, or None for no bound.
      What the server remembers of an update g_i, its row of Q, its sketch and
      its coordinates, is that of min(1, M / ||g_i||) g_i. The sum gets g_i as
      it is, corrected by what was remembered, so that 'unbiased' stays exactly
      unbiased; `correction_factory` bounds that part.
    participation: 'known', clients report their participation probabilities; or
      `participation.RunningFrequency`, `WindowedFrequency` or
      `IntervalEstimate`, by which they are estimated. See
      `probability_estimates` for what reported ones mean then, and `designs`
      for what it costs.
  """

  population_size: int
  core_set_size: int = 10
  core_set: Optional[Sequence[int]] = None
  estimator: str = 'paper'
  coordinate_refresh: Optional[str] = None
  correction_weighting: Optional[str] = None
  correction_smoothing: Optional[float] = None
  ridge: float = 0.01
  absolute_ridge: Optional[float] = None
  warmup_rounds: int = 10
  reselect_every: Optional[int] = None
  core_eligibility: Optional[str] = None
  client_weighting: str = identity.KNOWN
  aggregation: str = designs.SKETCHED_PROJECTION
  sketch_size: int = 384
  sketch_seed: int = 0
  candidate_pool_size: int = 1024
  correction_factory: Optional[tff.aggregators.UnweightedAggregationFactory] = (
    None
  )
  max_core_norm: Optional[float] = None
  participation: estimates.Participation = estimates.KNOWN

  def __post_init__(self) -> None:
    parameters.check_population_size('population_size', self.population_size)
    _ = self.rule
    estimates.check_participation('participation', self.participation)
    if self.core_set is None:
      parameters.check_integer(
        'core_set_size',
        self.core_set_size,
        1,
        self.population_size,
        'population_size',
      )
    else:
      object.__setattr__(
        self,
        'core_set',
        parameters.checked_core_set(self.core_set, self.population_size),
      )
    subspace.check_ridge(self.ridge, self.absolute_ridge)
    parameters.check_integer('warmup_rounds', self.warmup_rounds, 1)
    if self.reselect_every is not None:
      parameters.check_integer('reselect_every', self.reselect_every, 0)
    if self.core_eligibility is not None:
      subspace.check_choice(
        'core_eligibility', self.core_eligibility, subspace.ELIGIBILITIES
      )
    subspace.check_choice(
      'client_weighting', self.client_weighting, identity.CLIENT_WEIGHTINGS
    )
    subspace.check_choice('aggregation', self.aggregation, designs.DESIGNS)
    subspace.check_sketch_size(self.sketch_size)
    parameters.check_integer('sketch_seed', self.sketch_seed)
    parameters.check_integer('candidate_pool_size', self.candidate_pool_size, 1)
    if self.max_core_norm is not None:
      parameters.check_norm('max_core_norm', self.max_core_norm)
    if self.core_set is None and self.candidate_pool_size < self.core_set_size:
      raise ValueError(
        'candidate_pool_size must be at least core_set_size='
        f'{self.core_set_size}, found {self.candidate_pool_size}'
      )
    if self.core_set is not None and self.reselect_every:
      raise ValueError(
        'reselect_every must be 0 where core_set is given, found '
        f'{self.reselect_every}'
      )
    if self.correction_factory is not None and not isinstance(
      self.correction_factory, tff.aggregators.UnweightedAggregationFactory
    ):
      raise TypeError(
        'correction_factory must be a '
        'tff.aggregators.UnweightedAggregationFactory, found '
        f'{self.correction_factory!r}'
      )
    if self.core_eligibility == subspace.REPORTING and not self._sees_updates:
      raise ValueError(
        "core_eligibility='reporting' needs updates of single clients: "
        f'aggregation must be one of {", ".join(map(repr, _SHOWS_UPDATES))} '
        'and correction_factory None, found '
        f'{self.aggregation!r} and {self.correction_factory!r}'
      )

  @property
  def _sees_updates(self) -> bool:
    return (
      self.aggregation in _SHOWS_UPDATES and self.correction_factory is None
    )

  @property
  def eligibility(self) -> str:
    """Who may be chosen for the core set."""
    if self.core_eligibility is not None:
      return self.core_eligibility
    return subspace.REPORTING if self._sees_updates else subspace.FREQUENT

  @property
  def rule(self) -> subspace.EstimatorRule:
    """The estimator that the parameters choose."""
    return subspace.named_rule(
      self.estimator,
      coordinate_refresh=self.coordinate_refresh,
      correction_weighting=self.correction_weighting,
      correction_smoothing=self.correction_smoothing,
    )

  def create(
    self, value_type: tff.Type, weight_type: tff.Type
  ) -> tff.templates.AggregationProcess:
    """Creates the aggregation process.

    Args:
      value_type: See this module's docstring.
      weight_type: Float32.

    Returns:
      A process whose result has the type of the model's trainable weights and
      whose measurements are flat scalars, see `server_round.run_round`; those
      of the `correction_factory` are added as `correction`.

    Raises:
      ValueTypeError: If the types are others.
      ValueError: If the model has no trainable weights.
    """
    config = self._round_config(
      value_types.check_value_type(value_type, weight_type)
    )
    spec = config.spec
    if self.correction_factory is None:
      correction_process = None
    else:
      correction_process = self.correction_factory.create(
        tff.TensorType(np.float32, [spec.dimension])
      )

    @tff.tensorflow.computation
    def initial_state() -> server_round.State:
      return server_round.initial_state(config)

    state_type = initial_state.type_signature.result

    @tff.federated_computation
    def init_fn() -> tff.Value:
      state = tff.federated_eval(initial_state, tff.SERVER)
      if correction_process is None:
        return state
      return tff.federated_zip(
        collections.OrderedDict(
          fedsteer=state, correction=correction_process.initialize()
        )
      )

    gather, gathered_type = designs.build_gather(
      self.aggregation, spec, state_type, value_type, correction_process
    )

    @tff.tensorflow.computation(state_type, gathered_type)
    def run_round(
      state: server_round.State, gathered: Mapping[str, Any]
    ) -> tuple[Any, server_round.State, Mapping[str, Any]]:
      return server_round.run_round(config, state, gathered)

    @tff.federated_computation(
      init_fn.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(
      state: tff.Value, value: tff.Value, weight: tff.Value
    ) -> tff.templates.MeasuredProcessOutput:
      correction_state = None
      if correction_process is not None:
        state, correction_state = state.fedsteer, state.correction
      gathered, correction_state, correction_metrics = gather(
        state, value, weight, correction_state
      )
      delta, state, metrics = tff.federated_map(run_round, (state, gathered))
      if correction_process is not None:
        state = tff.federated_zip(
          collections.OrderedDict(fedsteer=state, correction=correction_state)
        )
        metrics = tff.federated_zip(
          collections.OrderedDict(
            fedsteer=metrics, correction=correction_metrics
          )
        )
      return tff.templates.MeasuredProcessOutput(state, delta, metrics)

    return tff.templates.AggregationProcess(init_fn, next_fn)

  def _round_config(self, update_type: tff.Type) -> server_round.RoundConfig:
    core_set = None if self.core_set is None else tuple(self.core_set)
    admits = core_set is None and self.eligibility == subspace.REPORTING
    reselect_every = self.reselect_every
    if reselect_every is None:
      reselect_every = 1 if admits else 0
    size = self.core_set_size if core_set is None else len(core_set)
    return server_round.RoundConfig(
      spec=reports.ReportSpec(
        update_type=update_type,
        population_size=self.population_size,
        core_set_size=size,
        sketch_size=self.sketch_size,
        sketch_seed=self.sketch_seed,
        collects_sketches=core_set is None,
        projects_sketches=(
          size > 0 and self.aggregation == designs.SKETCHED_PROJECTION
        ),
        ridge=self.ridge,
        absolute_ridge=self.absolute_ridge,
        rule=self.rule,
        participation=self.participation,
        admits_reporting=admits,
        max_core_norm=self.max_core_norm,
      ),
      given_core_set=core_set,
      warmup_rounds=self.warmup_rounds,
      reselect_every=reselect_every,
      core_eligibility=self.eligibility,
      weights_are_shares=self.client_weighting == identity.KNOWN,
      pool_size=min(self.population_size, self.candidate_pool_size),
    )
