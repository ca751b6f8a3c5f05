"""Draws the pictures of the documentation.

```
python -m scripts.illustrations docs/images
```

They are of a small made-up world, in which every client's update is known in
every round, and of the package's own functions at work in it:

* `steering.svg`: an old update, and an old update that is steered;
* `estimators.svg`: bias and variance, from all sets of active clients;
* `core_set.svg`: who is in the core set, and how old the rows are.

The seeds are fixed, so that the pictures change only with the code.
"""

import argparse
from collections.abc import Sequence
import os
import sys
from typing import Any

import numpy as np

from fedsteer_tff import subspace
from scripts import illustrated_world
from scripts import lasting_output

_OLD, _STEERED, _TRUE = 'tab:orange', 'tab:blue', '0.25'


def draw_steering() -> Any:
  """Returns the figure of an old update and a steered one."""
  world = illustrated_world.build_world(
    num_clients=40, num_rare=4, dimension=30, rounds=60, seed=3
  )
  core_set = [0, 8, 16, 24, 32, 36, 38]
  ages = list(range(0, 31, 2))
  errors = illustrated_world.errors_by_age(world, core_set, ages)
  fig, (left, right) = _figure(2)
  _draw_vectors(left, world, core_set, client=5, then=2, now=14)
  right.plot(ages, errors['old'], color=_OLD, label='the old update itself')
  right.plot(
    ages, errors['steered'], color=_STEERED, label='steered: old coordinates'
  )
  right.set(
    xlabel='age in rounds',
    ylabel='relative error of the estimate',
    title='All clients outside the core set',
    ylim=(0, None),
  )
  right.grid(alpha=0.3)
  right.legend(loc='upper left')
  return fig


def draw_estimators() -> Any:
  """Returns the figure of bias and variance."""
  world = illustrated_world.build_world(
    num_clients=8, num_rare=2, dimension=30, rounds=26, seed=1
  )
  round_num = len(world.updates) - 1
  memory = illustrated_world.remember(world, [0, 1, 2, 6, 7], round_num)
  found = {}
  for name, rule, basis, cached in (
    ('FedAvg', 'unbiased', memory.basis[:0], memory.cached[:, :0]),
    ('FedVARP', 'unbiased', None, memory.last),
    ('unbiased', 'unbiased', memory.basis, memory.cached),
    ('paper', 'paper', memory.basis, memory.cached),
    ('stable', 'stable', memory.basis, memory.cached),
  ):
    found[name] = illustrated_world.moments(
      subspace.named_rule(rule), world, round_num, basis, cached
    )
  fig, (axes,) = _figure(1)
  unit = found['FedAvg'].variance
  places = np.arange(len(found))
  for offset, colour, label, values in (
    (-0.2, _OLD, 'squared bias', [m.squared_bias for m in found.values()]),
    (0.2, _STEERED, 'variance', [m.variance for m in found.values()]),
  ):
    axes.bar(
      places + offset,
      np.array(values) / unit,
      width=0.4,
      color=colour,
      label=label,
    )
  axes.set_xticks(
    places,
    [name if name.startswith('Fed') else f'FedSteer\n{name}' for name in found],
  )
  axes.set_yscale('log')
  axes.set(
    # Of what is unbiased, rounding is all the bias there is.
    ylim=(1e-4, 2),
    ylabel='mean squared error, FedAvg’s as unit',
    title=f'One round, over all {2**world.num_clients} sets of active clients',
  )
  axes.grid(alpha=0.3, axis='y')
  axes.set_axisbelow(True)
  axes.legend()
  return fig


def draw_core_set() -> Any:
  """Returns the figure of two ways to choose a core set."""
  world = illustrated_world.build_world(
    num_clients=20, num_rare=2, dimension=30, rounds=60, seed=4
  )
  fig, panels = _figure(2)
  reports = np.argwhere(world.active)
  for eligibility, axes in zip((subspace.REPORTING, subspace.FREQUENT), panels):
    ages = illustrated_world.core_history(world, eligibility, size=5)
    image = axes.imshow(
      ages.T,
      aspect='auto',
      origin='lower',
      cmap='viridis_r',
      vmin=0,
      vmax=20,
      interpolation='nearest',
      extent=(-0.5, len(ages) - 0.5, -0.5, world.num_clients - 0.5),
    )
    axes.plot(reports[:, 0], reports[:, 1], '.', color='0.15', markersize=3)
    axes.axhline(world.num_clients / 2 - 0.5, color='0.6', linewidth=0.8)
    axes.set(xlabel='round', title=f"core_eligibility='{eligibility}'")
    axes.set_yticks([4.5, 13.5, 18.5], ['frequent', 'rare', 'rare, rare data'])
    axes.tick_params(axis='y', length=0)
  fig.colorbar(image, ax=panels, label='age of the row in rounds', extend='max')
  return fig


def _draw_vectors(axes, world, core_set, *, client: int, then: int, now: int):
  """Arrows in the plane of the client's update then and now."""
  core_set = np.asarray(core_set)
  old, new = world.updates[then, client], world.updates[now, client]
  coordinates = subspace.project(
    world.updates[then, core_set], old[np.newaxis], illustrated_world.RIDGE
  )
  steered = subspace.reconstruct(
    world.updates[now, core_set], coordinates
  ).numpy()[0]
  first = old / np.linalg.norm(old)
  second = new - first * (first @ new)
  plane = np.stack([first, second / np.linalg.norm(second)])
  for vector, colour, label in (
    (old, _OLD, f'sent in round {then}'),
    (new, _TRUE, f'what it would send in round {now}'),
    (steered, _STEERED, f'steered estimate in round {now}'),
  ):
    x, y = plane @ vector
    axes.plot([0, x], [0, y], color=colour, linewidth=2.5, label=label)
    axes.plot([x], [y], 'o', color=colour, markersize=7)
  axes.plot([0], [0], 'k.', markersize=4)
  axes.set_aspect('equal', adjustable='datalim')
  axes.set_xticks([])
  axes.set_yticks([])
  axes.set(title='The update of one client')
  axes.legend(loc='best', fontsize='small')


def _figure(columns: int):
  """Returns a figure and its axes in a row."""
  from matplotlib import figure

  fig = figure.Figure(
    figsize=(9.6 if columns > 1 else 6.4, 4.0), dpi=110, layout='constrained'
  )
  return fig, list(fig.subplots(1, columns, squeeze=False)[0])


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  result = argparse.ArgumentParser(
    prog='python -m scripts.illustrations',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  result.add_argument('folder', metavar='FOLDER', help='of the pictures')
  return result


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  import matplotlib

  options = parser().parse_args(argv[1:])
  os.makedirs(options.folder, exist_ok=True)
  for name, draw in (
    ('steering', draw_steering),
    ('estimators', draw_estimators),
    ('core_set', draw_core_set),
  ):
    path = os.path.join(options.folder, f'{name}.svg')
    # Neither the date nor random names: equal pictures are equal files.
    with matplotlib.rc_context({'svg.hashsalt': name}):
      draw().savefig(path, metadata={'Date': None})
    print(path)
  return 0


if __name__ == '__main__':
  sys.exit(lasting_output.run(main, sys.argv))
