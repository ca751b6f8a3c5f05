"""The plots of training runs, drawn from the rows of their `metrics.csv`.

Each function takes one run or several, which then share the axes. What a
column means is told where it is computed: `fedsteer_tff.subspace.diagnostics`
and `fedsteer_tff.aggregators.server_round`.

No TensorFlow here, and matplotlib only when something is drawn.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from scripts import result_folders

Rows = Sequence[Mapping[str, str]]

_SIZE = (6.4, 4.0)
_DPI = 120
# Rounds over which the jumps of single rounds are evened out.
_WINDOW = 10
_LIGHT = '0.75'


def figures(
  runs: Mapping[str, Rows],
  *,
  title: str = '',
  untrained: Optional[Mapping[str, Optional[float]]] = None,
) -> dict[str, Any]:
  """Draws all plots for which the runs have numbers.

  Args:
    runs: Rows of `metrics.csv` by what the run is called in the legend.
    title: Above the accuracy.
    untrained: Test accuracies of the initial models, by the same names.

  Returns:
    matplotlib figures by name: 'accuracy', 'variance_ratio', 'staleness',
    'residuals' and 'participation'.
  """
  drawn = {
    'accuracy': accuracy(runs, title=title, untrained=untrained),
    'variance_ratio': variance_ratio(runs),
    'staleness': staleness(runs),
    'residuals': residuals(runs),
    'participation': participation(runs),
  }
  return {name: fig for name, fig in drawn.items() if fig is not None}


def accuracy(
  runs: Mapping[str, Rows],
  *,
  title: str = '',
  untrained: Optional[Mapping[str, Optional[float]]] = None,
) -> Optional[Any]:
  """Draws the test accuracy over the rounds; of one run, the training's too.

  Args:
    runs: As for `figures`.
    title: Above the plot.
    untrained: Drawn as the point of round 0, where it is known.

  Returns:
    A figure; None if nothing was evaluated.
  """
  if not any(result_folders.evaluations(rows) for rows in runs.values()):
    return None
  fig, axes = _axes()
  for name, rows in runs.items():
    one = len(runs) == 1
    if one:
      axes.plot(
        *result_folders.numbers(rows, 'accuracy'),
        color=_LIGHT,
        linewidth=1,
        label='training, active clients',
      )
    points = result_folders.evaluations(rows)
    start = (untrained or {}).get(name)
    if start is not None:
      points = [(0, start), *points]
    axes.plot(*zip(*points), label='test' if one else name)
  axes.set(xlabel='round', ylabel='accuracy', title=title, ylim=(0, 1))
  _finish(axes, 'lower right')
  return fig


def staleness(runs: Mapping[str, Rows]) -> Optional[Any]:
  """Draws how old what the server remembers is, in rounds.

  Args:
    runs: As for `figures`.

  Returns:
    A figure with a panel for the rows of Q and one for the coordinates (for
    methods without them, for what they keep of the clients): mean as a line,
    and up to the maximum as a band. None if there are no such numbers.
  """
  panels = [
    (kind, label)
    for kind, label in (
      ('core', 'rows of the core set'),
      ('coordinate', 'all clients'),
    )
    if _has(runs, f'{kind}_staleness_mean')
  ]
  if not panels:
    return None
  fig, all_axes = _panels(len(panels))
  for (kind, label), axes in zip(panels, all_axes):
    for name, rows in runs.items():
      rounds, means = result_folders.numbers(rows, f'{kind}_staleness_mean')
      (line,) = axes.plot(
        rounds, means, label='mean' if len(runs) == 1 else name
      )
      oldest = result_folders.numbers(rows, f'{kind}_staleness_max')
      if oldest[0] == rounds:
        axes.fill_between(
          rounds,
          means,
          oldest[1],
          color=line.get_color(),
          alpha=0.13,
          linewidth=0,
          label='up to the oldest' if len(runs) == 1 else None,
        )
    axes.set(xlabel='round', ylabel='age in rounds', title=label)
    _finish(axes, 'upper left')
  return fig


def residuals(runs: Mapping[str, Rows]) -> Optional[Any]:
  """Draws how much of an active client's update the subspace misses.

  Args:
    runs: As for `figures`.

  Returns:
    A figure with ||g - Q^T s|| / ||g||, and for one run ||Q^T s|| / ||g||
    too, evened out over ten rounds; None if there are no such numbers.
  """
  if not _has(runs, 'relative_residual'):
    return None
  columns = {'relative_residual': 'missed (residual)'}
  if len(runs) == 1:
    columns['effective_shrinkage'] = 'length of the estimate'
  fig, axes = _axes()
  for name, rows in runs.items():
    for column, label in columns.items():
      rounds, values = result_folders.numbers(rows, column)
      smooth = [sum(part) / len(part) for part in _windows(values)]
      (line,) = axes.plot(
        rounds, smooth, label=label if len(runs) == 1 else name
      )
      axes.plot(
        rounds, values, color=line.get_color(), alpha=0.25, linewidth=0.8
      )
  axes.set(
    xlabel='round',
    ylabel='share of the update’s length',
    ylim=(0, None),
  )
  _finish(axes, 'lower left')
  return fig


def variance_ratio(runs: Mapping[str, Rows]) -> Optional[Any]:
  """Draws the variance of the sum relative to that without estimates.

  Args:
    runs: As for `figures`.

  Returns:
    A figure with a point a round, and as a line the ratio of the sums of the
    last ten rounds, in which rounds count as much as they vary; None if there
    are no such numbers.
  """
  if not _has(runs, 'variance_ratio'):
    return None
  fig, axes = _axes()
  for name, rows in runs.items():
    rounds, smooth = smooth_variance_ratio(rows)
    (line,) = axes.plot(
      rounds, smooth, label='last ten rounds' if len(runs) == 1 else name
    )
    points = zip(*result_folders.numbers(rows, 'variance_ratio'))
    # A logarithm has no zero.
    points = [(number, value) for number, value in points if value > 0]
    axes.plot(
      *zip(*points),
      color=line.get_color(),
      alpha=0.35,
      linestyle='none',
      marker='.',
      markersize=4,
      label='one round' if len(runs) == 1 else None,
    )
  axes.axhline(1, color='0.4', linewidth=0.9, linestyle=':')
  plain_log_axis(axes)
  axes.set(xlabel='round', ylabel='variance ratio (below 1: steering helps)')
  _finish(axes, 'best')
  return fig


def smooth_variance_ratio(rows: Rows) -> tuple[list[int], list[float]]:
  """Returns rounds and the variance ratio over the last ten rounds of each.

  Args:
    rows: Rows of `metrics.csv`.
  """
  rounds, steered = result_folders.numbers(rows, 'variance_estimate')
  _, plain = result_folders.numbers(rows, 'variance_estimate_without_steering')
  ratios = [
    (number, sum(above) / sum(below))
    for number, above, below in zip(rounds, _windows(steered), _windows(plain))
    if sum(above) > 0 and sum(below) > 0
  ]
  return [number for number, _ in ratios], [ratio for _, ratio in ratios]


def participation(runs: Mapping[str, Rows]) -> Optional[Any]:
  """Draws in how many rounds each client took part, most active first.

  Args:
    runs: As for `figures`.

  Returns:
    A figure; None if the rows do not say who took part.
  """
  counts = {name: participation_counts(rows) for name, rows in runs.items()}
  if not any(counts.values()):
    return None
  fig, axes = _axes()
  for name, of_run in counts.items():
    values = sorted(of_run.values(), reverse=True)
    axes.step(range(1, len(values) + 1), values, where='mid', label=name)
  axes.set(
    xlabel='clients that took part, most active first',
    ylabel='rounds',
    ylim=(0, None),
  )
  axes.grid(alpha=0.3)
  if len(runs) > 1:
    axes.legend(loc='upper right')
  return fig


def participation_counts(rows: Rows) -> Mapping[int, int]:
  """Returns in how many rounds each client took part.

  Args:
    rows: Rows of `metrics.csv`.

  Returns:
    Counts by client id; clients that never took part are not in it.
  """
  return collections.Counter(
    int(client) for row in rows for client in row.get('cohort', '').split()
  )


def plain_log_axis(axes: Any) -> None:
  """Makes the y axis logarithmic, with numbers as 0.5 instead of powers.

  Args:
    axes: Of matplotlib.
  """
  from matplotlib import ticker

  axes.set_yscale('log')
  axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
  axes.yaxis.set_major_formatter('{x:g}')
  axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def _has(runs: Mapping[str, Rows], column: str) -> bool:
  return any(result_folders.numbers(rows, column)[0] for rows in runs.values())


def _windows(values: Sequence[float]) -> list[Sequence[float]]:
  """For each place the values of the last ten rounds, this one included."""
  return [
    values[max(0, end - _WINDOW) : end] for end in range(1, len(values) + 1)
  ]


def _axes():
  """Returns a figure and its axes."""
  fig, (axes,) = _panels(1)
  return fig, axes


def _panels(columns: int):
  """Returns a figure and the axes of its panels."""
  from matplotlib import figure

  width, height = _SIZE
  fig = figure.Figure(
    figsize=(width * (1 if columns == 1 else 0.75 * columns), height),
    dpi=_DPI,
    layout='constrained',
  )
  return fig, list(fig.subplots(1, columns, squeeze=False)[0])


def _finish(axes, legend: str) -> None:
  axes.grid(alpha=0.3)
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.legend(loc=legend, fontsize='small')
