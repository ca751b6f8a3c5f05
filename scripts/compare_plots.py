"""The plots of a comparison, drawn from the rows of its CSV files."""

from collections.abc import Mapping, Sequence
import os
import statistics
from typing import Any, Optional

from scripts import compare_matrix
from scripts import run_plots

# Without that of a sweep.
_NAMES = ('accuracy', 'variance_ratio', 'accuracy_by_state_bytes')
_PANEL_SIZE = (5.2, 3.8)
_DPI = 110
# Of the legend, for a method with a long name.
_COLUMN_INCHES = 2.5
# So that lines can be told apart without colours too.
_MARKERS = 'osD^vP*X<>h'


def write(
  comparison: compare_matrix.Comparison,
  runs: Sequence[Mapping[str, Any]],
  curves: Sequence[Mapping[str, Any]],
  folder: str,
) -> list[str]:
  """Writes all plots for which there are numbers.

  Args:
    comparison: What was compared.
    runs: Rows of `runs.csv`.
    curves: Rows of `curves.csv`.
    folder: Where the PNG files go.

  Returns:
    Their names; none if matplotlib is not installed.
  """
  try:
    drawn = figures(comparison, runs, curves)
  except ImportError:
    return []
  written = []
  for name, fig in drawn.items():
    fig.savefig(os.path.join(folder, f'{name}.png'))
    written.append(f'{name}.png')
  return written


def names(comparison: compare_matrix.Comparison) -> list[str]:
  """Returns the names of all plots that `write` may write.

  Args:
    comparison: What is compared.
  """
  plots = [*_NAMES]
  if comparison.sweep is not None:
    plots.append(f'accuracy_by_{comparison.sweep}')
  return [f'{name}.png' for name in plots]


def figures(
  comparison: compare_matrix.Comparison,
  runs: Sequence[Mapping[str, Any]],
  curves: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
  """Draws all plots for which there are numbers.

  Args:
    comparison: What was compared.
    runs: Rows of `runs.csv`.
    curves: Rows of `curves.csv`.

  Returns:
    matplotlib figures by name.
  """
  drawn = {
    'accuracy': _against_round(
      comparison, curves, 'test_accuracy', 'test accuracy'
    ),
    'variance_ratio': _against_round(
      comparison, curves, 'variance_ratio', 'variance ratio', log=True
    ),
    'accuracy_by_state_bytes': _against_state(comparison, runs),
  }
  if comparison.sweep is not None:
    drawn[f'accuracy_by_{comparison.sweep}'] = _against_sweep(comparison, runs)
  return {name: fig for name, fig in drawn.items() if fig is not None}


def _against_round(
  comparison, curves, column: str, label: str, *, log: bool = False
):
  """A panel a setting: mean over seeds as lines, their range as bands."""
  if not any(row[column] is not None for row in curves):
    return None
  settings = comparison.settings
  columns = len(settings)
  if comparison.sweep is not None:
    columns = len({setting.swept for setting in settings})
  elif columns > 3:
    columns = 2
  fig, panels = _panels(len(settings), columns)
  for setting, panel in zip(settings, panels):
    of_setting = [
      row
      for row in curves
      if row['setting'] == setting.base
      and (comparison.sweep is None or row[comparison.sweep] == setting.swept)
    ]
    for style, method in _styles(comparison):
      by_round = {}
      for row in of_setting:
        if row['method'] == method and row[column] is not None:
          by_round.setdefault(row['round'], []).append(row[column])
      _line_with_band(panel, by_round, style, method, markers=False)
    if setting.target_accuracy is not None and column == 'test_accuracy':
      panel.axhline(
        setting.target_accuracy, color='0.6', linewidth=0.8, linestyle=':'
      )
    if log:
      run_plots.plain_log_axis(panel)
      panel.axhline(1, color='0.6', linewidth=0.8, linestyle=':')
    panel.set_title(setting.name, fontsize='medium')
    panel.set_xlabel('round')
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.set_ylabel(label)
  _finish(fig, panels, 'mean and range over seeds')
  return fig


def _against_sweep(comparison, runs):
  """A panel a setting: final accuracy against the swept flag."""
  names = list(dict.fromkeys(setting.base for setting in comparison.settings))
  fig, panels = _panels(len(names), min(len(names), 2))
  for name, panel in zip(names, panels):
    for style, method in _styles(comparison):
      by_value = {}
      for row in runs:
        if (row['setting'], row['method']) == (name, method):
          by_value.setdefault(row[comparison.sweep], []).append(
            row['final_test_accuracy']
          )
      _line_with_band(panel, by_value, style, method, markers=True)
    values = [setting.swept for setting in comparison.settings]
    if all(isinstance(v, (int, float)) for v in values):
      if min(values) > 0 and max(values) >= 4 * min(values):
        panel.set_xscale('log')
      ticks = sorted(set(values))
      panel.set_xticks(ticks, [f'{v:g}' for v in ticks])
      panel.set_xticks([], minor=True)
    panel.set_title(name, fontsize='medium')
    panel.set_xlabel(comparison.sweep.replace('_', ' '))
    panel.set_ylabel('final test accuracy')
  _finish(fig, panels, 'mean and range over seeds')
  return fig


def _against_state(comparison, runs):
  """A panel a setting: what accuracy costs in the server's memory.

  With a sweep, the mean over seeds is taken at each method's best value.
  """
  names = list(dict.fromkeys(setting.base for setting in comparison.settings))
  fig, panels = _panels(len(names), min(len(names), 2))
  for name, panel in zip(names, panels):
    for style, method in _styles(comparison):
      rows = [
        row for row in runs if (row['setting'], row['method']) == (name, method)
      ]
      best = _best(rows, comparison.sweep)
      if not best:
        continue
      values = [row['final_test_accuracy'] for row in best]
      mean = statistics.mean(values)
      panel.errorbar(
        [statistics.mean(row['state_bytes'] for row in best)],
        [mean],
        yerr=[[mean - min(values)], [max(values) - mean]],
        color=style['color'],
        marker=style['marker'],
        markersize=7,
        linestyle='none',
        capsize=3,
        label=method,
      )
    panel.set_xscale('log')
    # Methods whose states are of one size would else give an axis of nothing.
    low, high = panel.get_xlim()
    panel.set_xlim(low / 2, high * 2)
    panel.set_title(name, fontsize='medium')
    panel.set_xlabel('bytes of server state')
    panel.set_ylabel('final test accuracy')
  how = 'mean and range over seeds'
  if comparison.sweep is not None:
    how += f', at the best {comparison.sweep.replace("_", " ")} of each method'
  _finish(fig, panels, how)
  return fig


def _best(rows, sweep: Optional[str]):
  """The rows of the swept value with the highest mean accuracy."""
  by_value = {}
  for row in rows:
    by_value.setdefault(row[sweep] if sweep else None, []).append(row)
  if not by_value:
    return []
  return max(
    by_value.values(),
    key=lambda group: statistics.mean(r['final_test_accuracy'] for r in group),
  )


def _panels(count: int, columns: int):
  """Returns a figure and its `count` panels, in rows of `columns`."""
  from matplotlib import figure

  rows = -(-count // columns)
  fig = figure.Figure(
    figsize=(_PANEL_SIZE[0] * columns, _PANEL_SIZE[1] * rows + 0.8),
    dpi=_DPI,
    layout='constrained',
  )
  panels = fig.subplots(rows, columns, squeeze=False).ravel()
  for panel in panels[count:]:
    panel.set_visible(False)
  return fig, list(panels[:count])


def _styles(comparison):
  """Yields style and name of each method; the reference stands out."""
  import matplotlib

  colours = matplotlib.colormaps['tab10'].colors
  for i, method in enumerate(comparison.methods):
    yield (
      {
        'color': colours[i % len(colours)],
        'marker': _MARKERS[i % len(_MARKERS)],
        'linestyle': '-' if i < len(colours) else '--',
        'linewidth': 2.2 if method == comparison.reference else 1.3,
      },
      method,
    )


def _line_with_band(panel, by_x, style, label: str, *, markers: bool) -> None:
  if not by_x:
    return
  xs = sorted(by_x)
  values = [by_x[x] for x in xs]
  # A single point is no line.
  marker = style['marker'] if markers or len(xs) == 1 else None
  panel.plot(
    xs,
    [statistics.mean(v) for v in values],
    **dict(style, marker=marker),
    markersize=5,
    label=label,
  )
  panel.fill_between(
    xs,
    [min(v) for v in values],
    [max(v) for v in values],
    color=style['color'],
    alpha=0.13,
    linewidth=0,
  )


def _finish(fig, panels, title: str) -> None:
  """Adds the grid, one legend for all panels, and what the lines are."""
  handles = {}
  for panel in panels:
    panel.grid(alpha=0.3)
    for handle, label in zip(*panel.get_legend_handles_labels()):
      handles.setdefault(label, handle)
  fig.legend(
    handles.values(),
    handles.keys(),
    loc='outside lower center',
    ncols=max(1, min(len(handles), int(fig.get_figwidth() / _COLUMN_INCHES))),
    fontsize='small',
    frameon=False,
  )
  fig.suptitle(title, fontsize='small', color='0.35')
