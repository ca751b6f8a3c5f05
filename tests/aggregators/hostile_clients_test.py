"""What one client does that sends a million times its update."""

import functools
import itertools
import math
import pathlib
import re

import numpy as np
import pytest

from fedsteer_tff import aggregators
from tests import numpy_oracle
from tests.aggregators import small_rounds

_PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'robustness.md'
_DESIGNS = (
  'sketched_projection',
  'server_projection',
  'client_projection',
  'dense',
)
_FACTOR = 1e6
# Longer than any honest client's update.
_BOUND = 8.0
_CORE_SET = (0, 1)
_ATTACKERS = {'core client': 0, 'another client': 3}
_ATTACK, _AWAY, _BACK, _AFTER = 3, 4, 5, 6
_GUARDS = {
  'none': {},
  '`zeroing_factory`': {'correction_factory': 'loose zeroing'},
  '`clipping_factory`': {'correction_factory': 'loose clipping'},
  '`max_core_norm`': {'max_core_norm': _BOUND},
  '`zeroing_factory`, `max_core_norm`': {
    'correction_factory': 'loose zeroing',
    'max_core_norm': _BOUND,
  },
}


def _parameters(guard, design):
  return {'aggregation': design, 'core_set': _CORE_SET, **_GUARDS[guard]}


@functools.cache
def _rounds(attacker, factor):
  """All report, but for the attacker in the round after its attack."""
  rng = np.random.default_rng(40)
  groups = rng.normal(size=[3, small_rounds.DIMENSION])
  rounds = []
  for number in range(_AFTER + 1):
    noise = 0.3 * rng.normal(
      size=[small_rounds.NUM_CLIENTS, small_rounds.DIMENSION]
    )
    reports = []
    for i in range(small_rounds.NUM_CLIENTS):
      if number == _AWAY and i == attacker:
        continue
      update = groups[i % 3] + noise[i]
      assert np.linalg.norm(update) < _BOUND
      if number == _ATTACK and i == attacker:
        update = factor * update
      reports.append(small_rounds.report(i, update))
    rounds.append(reports)
  return rounds


@functools.cache
def _honest(attacker):
  oracle = small_rounds.build_oracle(core_set=_CORE_SET)
  return [oracle.aggregate(r)[0] for r in _rounds(attacker, 1.0)]


def _deviations(guard, design, attacker):
  """Returns how far each round's result is from that without the attack."""
  parameters = _parameters(guard, design)
  process = small_rounds.build(**parameters)
  oracle = small_rounds.build_oracle(**parameters)
  state = process.initialize()
  deviations = []
  for number, reports in enumerate(_rounds(attacker, _FACTOR)):
    wanted, _ = oracle.aggregate(reports)
    padded = reports + [small_rounds.padding()] * (8 - len(reports))
    before = small_rounds.core_state(state)
    lengths = np.linalg.norm(before['core_updates'], axis=1)
    output = small_rounds.run(process, state, padded)
    state = output.state
    found = small_rounds.flat(output.result)
    # What float64 may lose of the running sum comes back times a row of Q.
    lost = 2.0**-52 * np.max(np.abs(before['baseline'])) * np.max(lengths)
    error = np.max(np.abs(found - wanted))
    assert error <= 1e-5 * np.max(np.abs(wanted)) + lost, number
    small_rounds.check_state(state, oracle, f'round {number}')
    honest = _honest(attacker)[number]
    deviations.append(np.linalg.norm(found - honest) / np.linalg.norm(honest))
  return deviations


@functools.cache
def _table():
  """Returns the documented deviations by guard, design and attacker."""
  text = _PAGE.read_text('utf-8')
  rows = re.findall(
    rf'^\| (.*) \| `({"|".join(_DESIGNS)})` \| (.*) \| (.*) \|$', text, re.M
  )
  return {
    (guard, design, attacker): [float(number) for number in numbers.split(', ')]
    for guard, design, *cells in rows
    for attacker, numbers in zip(_ATTACKERS, cells)
  }


@pytest.mark.parametrize('attacker', _ATTACKERS)
@pytest.mark.parametrize(
  ('guard', 'design'),
  [
    *itertools.product(_GUARDS, ('sketched_projection', 'client_projection')),
    *itertools.product(
      ('`zeroing_factory`, `max_core_norm`',), ('server_projection', 'dense')
    ),
  ],
)
def test_the_documented_effect_is_what_happens(guard, design, attacker):
  deviations = _deviations(guard, design, _ATTACKERS[attacker])
  # Nothing happens before the attack, whatever the guard.
  assert max(deviations[:_ATTACK]) <= 1e-5
  documented = _table()[guard, design, attacker]
  assert len(documented) == 4
  for found, wanted in zip(deviations[_ATTACK:], documented):
    # Two digits, and noise of float32 where there is nothing.
    assert float(f'{found:.1e}') == wanted or max(found, wanted) < 1e-4


@pytest.mark.parametrize('design', ['sketched_projection', 'client_projection'])
def test_a_poisoned_row_is_replaced_when_its_client_returns(design):
  process = small_rounds.build(aggregation=design, core_set=_CORE_SET)
  state, lengths = process.initialize(), []
  for reports in _rounds(0, _FACTOR):
    padded = reports + [small_rounds.padding()] * (8 - len(reports))
    state = small_rounds.run(process, state, padded).state
    lengths.append(np.linalg.norm(state['core_updates'], axis=1))
  assert lengths[_ATTACK][0] > 1e5
  assert lengths[_AWAY][0] == lengths[_ATTACK][0]
  assert max(lengths[_BACK]) < _BOUND
  # Nor does anything of its size stay in the sums.
  products = state['coordinates'] * state['client_weight'][:, np.newaxis]
  np.testing.assert_allclose(
    state['baseline'], np.sum(products.astype(float), axis=0), atol=1e-9
  )


# A bound that shortens about half of the honest updates as well.
_SHORT = 4.0


def _attacked(seed, added=(0.0, 0.0, 0.0, 0.0)):
  """Rounds in which some updates are far too long, or not finite."""
  rounds = small_rounds.simulate(seed, 8)
  for number, addend in zip((1, 2, 5, 6), added):
    first = rounds[number][0]
    update = _FACTOR * first.update
    update[number] += addend
    rounds[number][0] = small_rounds.report(first.client_id, update)
  return rounds


@pytest.mark.parametrize(
  'parameters',
  [
    *({'aggregation': design} for design in _DESIGNS),
    {'aggregation': 'server_projection', 'estimator': 'unbiased'},
    {
      'aggregation': 'sketched_projection',
      'estimator': 'stable',
      'sketch_size': 5,
    },
    {'aggregation': 'server_projection', 'correction_factory': 'clipping'},
  ],
  ids=str,
)
def test_no_more_than_the_bound_is_remembered(parameters):
  parameters = {'max_core_norm': _SHORT, **parameters}
  outputs = small_rounds.run_against_oracle(
    _attacked(41), pad_to=8, **parameters
  )
  lengths = [
    np.linalg.norm(small_rounds.core_state(o.state)['core_updates'], axis=1)
    for o in outputs
  ]
  assert np.max(lengths) <= _SHORT * (1 + 1e-6)
  assert (np.array(lengths[-1]) > 0).all()


@pytest.mark.parametrize('design', _DESIGNS)
def test_a_bound_lets_no_update_in_that_is_not_finite(design):
  outputs = small_rounds.run_against_oracle(
    _attacked(42, (np.nan, np.inf, -np.inf, 0.0)),
    pad_to=8,
    max_core_norm=_SHORT,
    aggregation=design,
  )
  counts = [int(o.measurements['nonfinite_clients']) for o in outputs]
  assert counts == [0, 1, 1, 0, 0, 1, 0, 0]
  for part in small_rounds.memory_of(outputs[-1].state):
    assert np.isfinite(part).all()


@pytest.mark.slow
def test_the_unbiased_estimator_stays_so_with_a_bound_and_an_attack():
  process = small_rounds.build(
    estimator='unbiased', core_set=_CORE_SET, max_core_norm=_BOUND
  )
  rounds = _rounds(0, _FACTOR)
  state = process.initialize()
  for reports in rounds[: _ATTACK + 1]:
    padded = reports + [small_rounds.padding()]
    state = small_rounds.run(process, state, padded).state
  # Client 0 is in the core set and attacks again, in one of 128 cohorts each.
  reports = rounds[_ATTACK]
  expected = np.zeros(small_rounds.DIMENSION)
  for active in itertools.product([False, True], repeat=len(reports)):
    chance = math.prod(
      r.probability if a else 1 - r.probability for a, r in zip(active, reports)
    )
    cohort = [r for a, r in zip(active, reports) if a]
    padded = cohort + [small_rounds.padding()] * (8 - len(cohort))
    output = small_rounds.run(process, state, padded)
    expected += chance * small_rounds.flat(output.result)
  wanted = sum(r.weight * r.update for r in reports)
  assert numpy_oracle.relative_error(expected, wanted) <= 1e-5


@pytest.mark.parametrize(
  ('value', 'error', 'rule'),
  [
    (0, ValueError, '> 0 and finite in float32'),
    (-1.0, ValueError, '> 0 and finite in float32'),
    (float('nan'), ValueError, '> 0 and finite in float32'),
    (float('inf'), ValueError, '> 0 and finite in float32'),
    (1e39, ValueError, '> 0 and finite in float32'),
    (1e-50, ValueError, '> 0 and finite in float32'),
    (True, TypeError, 'a number'),
    ('8', TypeError, 'a number'),
    ([8.0], TypeError, 'a number'),
  ],
  ids=repr,
)
def test_a_wrong_bound_is_named(value, error, rule):
  with pytest.raises(error) as caught:
    aggregators.FedSteerFactory(7, core_set_size=2, max_core_norm=value)
  assert str(caught.value) == f'max_core_norm must be {rule}, found {value!r}'


@pytest.mark.parametrize('design', ['sketched_projection', 'client_projection'])
def test_a_bound_that_nobody_reaches_changes_no_bit(design):
  states = []
  for guard in ('none', '`max_core_norm`'):
    process = small_rounds.build(**_parameters(guard, design))
    state = process.initialize()
    for reports in _rounds(0, 1.0):
      padded = reports + [small_rounds.padding()] * (8 - len(reports))
      state = small_rounds.run(process, state, padded).state
    states.append(small_rounds.memory_of(state))
  for one, other in zip(*states):
    np.testing.assert_array_equal(one, other)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
