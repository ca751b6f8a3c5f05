"""The numbers behind the documentation's pictures."""

import numpy as np
import pytest

from fedsteer_tff import subspace
from scripts import illustrated_world


@pytest.fixture(name='world', scope='module')
def fixture_world():
  return illustrated_world.build_world(
    num_clients=5, num_rare=2, dimension=6, rounds=8, seed=2
  )


def test_the_world_is_determined_by_its_seed(world):
  again = illustrated_world.build_world(
    num_clients=5, num_rare=2, dimension=6, rounds=8, seed=2
  )
  np.testing.assert_array_equal(world.updates, again.updates)
  np.testing.assert_array_equal(world.active, again.active)
  assert world.shares.sum() == pytest.approx(1)
  # Two clients have as much as three.
  np.testing.assert_allclose(world.shares, [1 / 6] * 3 + [1 / 4] * 2)


def test_old_updates_are_exact_at_age_0_and_steering_is_at_every_age(
  world, monkeypatch
):
  # With all clients in the core set but one, which is the mean of two of them,
  # coordinates say all there is to say, but for the ridge.
  monkeypatch.setattr(illustrated_world, 'RIDGE', 1e-6)
  updates = world.updates.copy()
  updates[:, 4] = (updates[:, 0] + updates[:, 1]) / 2
  mixed = illustrated_world.World(
    updates, world.shares, world.probabilities, world.active
  )
  errors = illustrated_world.errors_by_age(mixed, [0, 1, 2, 3], [0, 3])
  assert errors['old'][0] == 0
  assert errors['old'][1] > 0.05
  assert errors['steered'].max() < 1e-3


def test_what_is_remembered_are_the_last_reports(world):
  memory = illustrated_world.remember(world, [0, 3], 6)
  for client in range(5):
    reports = [t for t in range(6) if world.active[t, client]]
    if client in (0, 3):
      reports = [0, *reports]
    expected = world.updates[reports[-1], client] if reports else 0
    np.testing.assert_array_equal(memory.last[client], expected)
  np.testing.assert_array_equal(memory.basis, memory.last[[0, 3]])


@pytest.mark.slow
def test_moments_are_those_of_the_estimators(world):
  memory = illustrated_world.remember(world, [0, 3], 7)
  d, p, g = world.shares, world.probabilities, world.updates[7]
  target = (d @ g) @ (d @ g)

  def moments(name, basis, cached):
    return illustrated_world.moments(
      subspace.named_rule(name), world, 7, basis, cached
    )

  fedavg = moments('unbiased', memory.basis[:0], memory.cached[:, :0])
  variance = (d**2 * (1 - p) / p) @ (g**2).sum(axis=1)
  assert fedavg.squared_bias < 1e-9
  assert fedavg.variance == pytest.approx(variance / target, rel=1e-4)

  unbiased = moments('unbiased', memory.basis, memory.cached)
  residuals = g - memory.cached @ memory.basis
  variance = (d**2 * (1 - p) / p) @ (residuals**2).sum(axis=1)
  assert unbiased.squared_bias < 1e-9
  assert unbiased.variance == pytest.approx(variance / target, rel=1e-4)

  paper = moments('paper', memory.basis, memory.cached)
  fresh = subspace.project(memory.basis, g, 0.01).numpy()
  bias = (d * (1 - p)) @ (memory.cached - fresh) @ memory.basis
  assert paper.squared_bias == pytest.approx(bias @ bias / target, rel=1e-3)

  # The smoothed correction of many rounds, against a simulation of them.
  stable = moments('stable', memory.basis, memory.cached)
  assert stable.variance == pytest.approx(
    _simulated_variance(world, memory, fresh) / target, rel=0.05
  )


def _simulated_variance(world, memory, fresh):
  """The variance of Delta with a = 0.3, of 100,000 rounds that are alike."""
  rng = np.random.default_rng(0)
  d, p, g = world.shares, world.probabilities, world.updates[7]
  smoothed, deltas = np.zeros(g.shape[1]), []
  for draw in rng.random((100_000, len(d))):
    active = draw < p
    coordinates = np.where(active[:, np.newaxis], fresh, memory.cached)
    if active.any():
      weights = active * d / p
      correction = weights @ (g - fresh @ memory.basis) / weights.sum()
      smoothed = 0.7 * smoothed + 0.3 * correction
    deltas.append(d @ coordinates @ memory.basis + smoothed)
  return np.var(deltas[1000:], axis=0).sum()


def test_members_of_the_core_set_have_rows_of_the_right_age():
  world = illustrated_world.build_world(
    num_clients=6, num_rare=2, dimension=4, rounds=16, seed=0
  )
  for eligibility in (subspace.REPORTING, subspace.FREQUENT):
    ages = illustrated_world.core_history(world, eligibility, size=2)
    members = ~np.isnan(ages)
    assert not members[:9].any()
    assert members[-1].sum() == 2
    assert (members.sum(axis=1) <= 2).all()
    for t, client in np.argwhere(members):
      reports = np.flatnonzero(world.active[: t + 1, client])
      assert ages[t, client] == t - reports[-1]


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
