"""The server's side of a FedSteer round, as TensorFlow code on its state."""

import collections
from collections.abc import Mapping
import dataclasses
from typing import Any, Optional

import tensorflow as tf

from fedsteer_tff import subspace
from fedsteer_tff.aggregators import probability_estimates
from fedsteer_tff.aggregators import registry
from fedsteer_tff.aggregators import reports

State = Mapping[str, Any]

# What a change of the core set changes.
_CORE_ENTRIES = (
  'core_set',
  'core_round',
  'coordinates',
  'baseline',
  'smoothed_correction',
)


@dataclasses.dataclass(frozen=True)
class RoundConfig:
  """Everything static that the server's side of a round depends on.

  Attributes:
    spec: The sizes, and the estimator.
    given_core_set: Client ids, or None if the core set is chosen.
    warmup_rounds: Rounds before the core set is chosen.
    reselect_every: Rounds between later choices, 0 for none; where clients of a
      round may enter the core set, rounds between such rounds.
    core_eligibility: Who may be chosen.
    weights_are_shares: Whether weights sum to 1 over the population.
    pool_size: P, places for sketches of candidates.
  """

  spec: reports.ReportSpec
  given_core_set: Optional[tuple[int, ...]]
  warmup_rounds: int
  reselect_every: int
  core_eligibility: str
  weights_are_shares: bool
  pool_size: int

  @property
  def selects(self) -> bool:
    """Whether the core set is chosen by the process."""
    return self.given_core_set is None


def initial_state(config: RoundConfig) -> State:
  """Returns the state before the first round.

  N is the population, k the core set's size, D the model's, P the pool's, b a
  sketch's. Every part is O(N k + k D + P b), and P b is bounded whatever N and
  D are.

  Args:
    config: Static parameters.

  Returns:
    * the entries of `registry.empty_registry`;
    * core_set: int32 [k], client ids, -1 for an empty slot.
    * core_updates: float32 [k, D], Q; a row is zero until its client reports.
    * core_sketch: float32 [k, b], sk(Q); absent where it is not used, or not
      shorter than Q.
    * core_round: int32 [k], the round a row is from, -1 if from none.
    * coordinates: float32 [N, k], S.
    * baseline: float64 [k], c = sum_i n_i s_i.
    * smoothed_correction: float32 [D], R; [0] if the estimator keeps none.
    * collecting: bool, whether sketches are collected in the next round.
    * pool: see `subspace.empty_pool`; absent if the core set is given.
    * participation: see `probability_estimates.initial_state`; absent if
      participation probabilities are known.
  """
  spec = config.spec
  size, k = spec.population_size, spec.core_set_size
  core_set = config.given_core_set if not config.selects else [-1] * k
  state = registry.empty_registry(size)
  state.update(
    core_set=tf.constant(core_set, tf.int32, [k]),
    core_updates=tf.zeros([k, spec.dimension]),
  )
  if spec.keeps_core_sketch:
    state['core_sketch'] = tf.zeros([k, spec.sketch_size])
  state.update(
    core_round=tf.fill([k], -1),
    coordinates=tf.zeros([size, k]),
    baseline=tf.zeros([k], tf.float64),
    smoothed_correction=tf.zeros([spec.dimension if spec.rule.smooths else 0]),
    collecting=tf.constant(config.selects),
  )
  if config.selects:
    state['pool'] = subspace.empty_pool(config.pool_size, spec.sketch_width)
  if spec.estimator is not None:
    state['participation'] = probability_estimates.initial_state(
      spec.estimator, size
    )
  return state


def run_round(
  config: RoundConfig, state: State, gathered: Mapping[str, tf.Tensor]
) -> tuple[Any, State, Mapping[str, tf.Tensor]]:
  """Aggregates a round's reports and refreshes the caches.

  Args:
    config: Static parameters.
    state: See `initial_state`.
    gathered: See `gathering.gathered_spec`.

  Returns:
    Delta in the structure of the model's weights, the new state, and the
    round's metrics: int32 active_clients, core_clients_refreshed,
    nonfinite_clients, duplicate_clients; float32 core_staleness_mean and _max,
    coordinate_staleness_mean and _max (rounds since a row of Q, a client's
    coordinates were refreshed, this round's included), ridge_condition, those
    of `subspace.steering_metrics` and, where probabilities are estimated, of
    `probability_estimates.metrics`.
  """
  owners = gathered['client_id']
  ids, first = registry.first_reports(owners)
  cohort = subspace.Cohort(
    weights=gathered['weight'],
    previous_weights=tf.gather(state['client_weight'], owners),
    probabilities=gathered['probability'],
    fresh=tf.gather(gathered['coordinates'], ids),
    cached=tf.gather(state['coordinates'], owners),
    subtracted=gathered['subtracted'],
    multiplicity=gathered['multiplicity'],
    first=first,
  )
  new = registry.register(state, cohort, owners)
  estimator = config.spec.estimator
  if estimator is not None:
    new['participation'] = probability_estimates.observe(
      estimator, state, gathered, first
    )
  population_weight = registry.population_weight(
    new, config.spec.population_size, config.weights_are_shares
  )
  estimate = subspace.estimate_update(
    config.spec.rule,
    state['core_updates'],
    state['baseline'],
    cohort,
    gathered['weighted_sum'],
    population_weight,
    state['smoothed_correction'],
  )
  new['smoothed_correction'] = estimate.smoothed_correction
  new['baseline'] = subspace.updated_baseline(
    state['baseline'], cohort, cohort.fresh
  )
  slots = gathered['core_slot']
  if config.spec.core_set_size:  # TensorFlow cannot scatter into nothing.
    new['coordinates'] = registry.replace_rows(
      state['coordinates'], owners, cohort.fresh, first
    )
    new['core_updates'] = _with_rows(config, state['core_updates'], gathered)
    if config.spec.keeps_core_sketch:
      new['core_sketch'] = tf.tensor_scatter_nd_update(
        state['core_sketch'],
        slots[:, tf.newaxis],
        config.spec.sketch(config.spec.remembered(gathered['core_update'])),
      )
    new['core_round'] = tf.tensor_scatter_nd_update(
      state['core_round'],
      slots[:, tf.newaxis],
      tf.fill(tf.shape(slots), state['round_num']),
    )
  metrics = _metrics(config, state, new, gathered, cohort, population_weight)
  if estimator is not None:
    metrics.update(
      probability_estimates.metrics(estimator, new, gathered, first)
    )
  if config.selects:
    new = _select_if_due(config, state, new, gathered, first)
  new['round_num'] = state['round_num'] + 1
  new = collections.OrderedDict((name, new[name]) for name in state)
  return config.spec.unflatten(estimate.delta), new, metrics


def _with_rows(
  config: RoundConfig,
  core_updates: tf.Tensor,
  gathered: Mapping[str, Any],
  entered: Optional[tf.Tensor] = None,
) -> tf.Tensor:
  """Returns Q with what came in a round, in one pass over it.

  Args:
    config: Static parameters.
    core_updates: Q.
    gathered: See `gathering.gathered_spec`.
    entered: Int32 [k], which of the candidates enters a slot, -1 for none.

  Returns:
    Q with fresh rows, and with the updates of the clients that enter.
  """
  slots = tf.range(core_updates.shape[0])
  places = [slots, gathered['core_slot']]
  rows = [core_updates, gathered['core_update']]
  if entered is not None:
    candidate = tf.concat([gathered['candidate_place'], [-1]], axis=0)
    # -1, the last one, is that of none.
    came_from = tf.gather(candidate, entered % tf.size(candidate))
    for place, update in enumerate(gathered['candidate_updates']):
      slot = tf.boolean_mask(slots, tf.equal(came_from, place))
      places.append(slot)
      rows.append(update[: tf.size(slot)])
  rows[1:] = [config.spec.remembered(row) for row in rows[1:]]
  # Later ones win.
  written = tf.dynamic_stitch(places, rows)
  return tf.ensure_shape(written, core_updates.shape)


def _metrics(
  config: RoundConfig,
  state: State,
  new: State,
  gathered: Mapping[str, tf.Tensor],
  cohort: subspace.Cohort,
  population_weight: tf.Tensor,
) -> collections.OrderedDict[str, tf.Tensor]:
  shares = registry.shares(gathered['weight'], population_weight)
  now = state['round_num']
  core_mean, core_max = subspace.staleness(now, new['core_round'])
  client_mean, client_max = subspace.staleness(now, new['last_seen'])
  metrics = collections.OrderedDict(
    active_clients=tf.reduce_sum(tf.cast(cohort.first, tf.int32)),
    core_clients_refreshed=tf.size(gathered['core_slot']),
    nonfinite_clients=gathered['nonfinite_clients'],
    duplicate_clients=gathered['duplicate_clients'],
    core_staleness_mean=core_mean,
    core_staleness_max=core_max,
    coordinate_staleness_mean=client_mean,
    coordinate_staleness_max=client_max,
  )
  spec = config.spec
  metrics['ridge_condition'] = tf.cast(
    subspace.ridge_condition(gathered['gram'], spec.ridge, spec.absolute_ridge),
    tf.float32,
  )
  metrics.update(
    subspace.steering_metrics(
      gathered['gram'],
      gathered['inner_products'],
      gathered['squared_norm'],
      cohort.cached,
      gathered['coordinates'],
      shares,
      gathered['probability'],
    )
  )
  return metrics


def _select_if_due(
  config: RoundConfig,
  state: State,
  new: collections.OrderedDict[str, Any],
  gathered: Mapping[str, tf.Tensor],
  first: tf.Tensor,
) -> collections.OrderedDict[str, Any]:
  """Returns the state with sketches collected, and selects if that is due."""
  admits = config.spec.admits_reporting
  done = state['round_num'] + 1
  since = done - config.warmup_rounds
  incomplete = tf.reduce_any(state['core_set'] < 0)
  due = (since >= 0) & incomplete
  if config.reselect_every:
    due |= (since > 0) & tf.equal(since % config.reselect_every, 0)
  collected = first & state['collecting']
  new['pool'] = subspace.add_reports(
    state['pool'],
    tf.boolean_mask(gathered['client_id'], collected),
    tf.boolean_mask(gathered['sketch'], collected),
    tf.boolean_mask(gathered['probability'], collected),
  )
  if config.spec.estimator is not None:
    # Those of the rounds in which the sketches came are out of date.
    probabilities = probability_estimates.estimated_probabilities(
      config.spec.estimator, new
    )
    new['pool']['participation_probability'] = tf.gather(
      probabilities, tf.maximum(new['pool']['client_id'], 0)
    )
  names = [*_CORE_ENTRIES, *(['core_sketch'] * config.spec.keeps_core_sketch)]
  if not admits:
    names.append('core_updates')
  before = {name: new[name] for name in names}
  if admits:
    before['entered'] = tf.fill([config.spec.core_set_size], -1)
    due &= tf.size(gathered['candidate_id']) > 0
  after = tf.cond(
    due,
    lambda: (
      _admit(config, new, gathered, before) if admits else _select(config, new)
    ),
    lambda: before,
  )
  if admits:
    new['core_updates'] = _with_rows(
      config, state['core_updates'], gathered, after.pop('entered')
    )
  new.update(after)
  if config.reselect_every:
    new['collecting'] = tf.constant(True)
  else:
    new['collecting'] = tf.reduce_any(new['core_set'] < 0)
  return new


def _select(config: RoundConfig, state: State) -> dict[str, tf.Tensor]:
  """Returns the entries of the state that a selection changes."""
  pool = state['pool']
  selected = subspace.select_from_pool(
    pool,
    tf.gather(state['client_weight'], tf.maximum(pool['client_id'], 0)),
    state['core_set'],
    eligibility=config.core_eligibility,
    ridge=config.spec.ridge,
    absolute_ridge=config.spec.absolute_ridge,
  )
  kept = selected.kept
  after = dict(
    core_set=selected.core_set,
    core_round=tf.where(kept, state['core_round'], -1),
    smoothed_correction=state['smoothed_correction'],
    **_with_new_coordinates(state, selected),
  )
  for name in ('core_updates', 'core_sketch'):
    if name in state:
      after[name] = state[name] * tf.cast(kept, tf.float32)[:, tf.newaxis]
  return after


def _admit(
  config: RoundConfig,
  state: State,
  gathered: Mapping[str, tf.Tensor],
  before: dict[str, tf.Tensor],
) -> dict[str, tf.Tensor]:
  """Returns the same after clients of the round were let in, or `before`."""
  pool, spec = state['pool'], config.spec
  candidates = gathered['candidate_id']
  sketches = tf.gather(
    gathered['sketch'], reports.core_slots(gathered['client_id'], candidates)
  )
  admitted = subspace.admit_reporting(
    pool,
    tf.gather(state['client_weight'], tf.maximum(pool['client_id'], 0)),
    state['core_set'],
    spec.core_sketch(state),
    candidates,
    sketches,
    ridge=spec.ridge,
    absolute_ridge=spec.absolute_ridge,
  )
  enters = admitted.entered >= 0

  def exchange() -> dict[str, tf.Tensor]:
    slots = tf.where(enters)
    entered = tf.boolean_mask(admitted.entered, enters)
    # Before there is a core set, R holds whole updates. The baseline has them
    # from now on.
    was_empty = tf.reduce_all(state['core_set'] < 0)
    after = dict(
      core_set=admitted.core_set,
      core_round=tf.where(enters, state['round_num'], state['core_round']),
      smoothed_correction=tf.where(
        was_empty, 0.0, state['smoothed_correction']
      ),
      entered=admitted.entered,
      **_with_new_coordinates(state, admitted),
    )
    if 'core_sketch' in state:
      after['core_sketch'] = tf.tensor_scatter_nd_update(
        state['core_sketch'], slots, tf.gather(sketches, entered)
      )
    return after

  return tf.cond(tf.reduce_any(enters), exchange, lambda: before)


def _with_new_coordinates(
  state: State, selected: subspace.NewCoreSet
) -> dict[str, tf.Tensor]:
  """Returns `coordinates` and `baseline` for a new core set."""
  # A coordinate belongs to the client of its slot: it goes when that one does.
  kept = tf.cast(selected.kept, tf.float32)
  coordinates = tf.tensor_scatter_nd_update(
    state['coordinates'] * kept,
    selected.client_ids[:, tf.newaxis],
    selected.coordinates,
  )
  products = coordinates * state['client_weight'][:, tf.newaxis]
  baseline = tf.reduce_sum(tf.cast(products, tf.float64), axis=0)
  return dict(coordinates=coordinates, baseline=baseline)
