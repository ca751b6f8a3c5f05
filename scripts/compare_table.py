"""The numbers of a comparison: CSV files and a table in Markdown."""

from collections.abc import Mapping, Sequence
import csv
import io
import math
import statistics
from typing import Any, Optional

import numpy as np

from scripts import compare_matrix
from scripts import compare_runs

_RESAMPLES = 10_000
_CONFIDENCE = 0.95
# With fewer seeds the bootstrap's intervals are too narrow.
_ENOUGH_SEEDS = 10
_NOTHING = '–'


def runs_rows(
  comparison: compare_matrix.Comparison,
  results: Sequence[compare_runs.Result],
) -> list[dict[str, Any]]:
  """Returns the rows of `runs.csv`: one a finished run.

  Args:
    comparison: What was compared.
    results: The finished runs.
  """
  rows = []
  for result in _sorted(comparison, results):
    summary = result.summary
    rows.append(
      {
        **_key(comparison, result.run),
        'rounds': summary['rounds'],
        'final_test_accuracy': round(summary['final_test_accuracy'], 5),
        'untrained_test_accuracy': round(summary['untrained_test_accuracy'], 5),
        'rounds_to_target': result.rounds_to_target,
        'state_bytes': summary['state_bytes']['total'],
        'seconds_per_round': round(summary['seconds_per_round_median'], 3),
        'peak_resident_mib': summary['peak_resident_mib'],
        **{
          f'{name}_hash': result.hashes.get(name)
          for name in ('partition', 'participation', 'initial_weights')
        },
      }
    )
  return rows


def curves_rows(
  comparison: compare_matrix.Comparison,
  results: Sequence[compare_runs.Result],
) -> list[dict[str, Any]]:
  """Returns the rows of `curves.csv`: one an evaluated round of a run.

  The variance ratio, which jumps from round to round, is the mean over the
  rounds since the evaluation before.

  Args:
    comparison: What was compared.
    results: The finished runs.
  """
  rows = []
  for result in _sorted(comparison, results):
    ratios = []
    for row in result.rows:
      ratio = row.get('variance_ratio')
      # NaN in rounds without a variance.
      if ratio and not math.isnan(float(ratio)):
        ratios.append(float(ratio))
      if not row.get('test_accuracy'):
        continue
      rows.append(
        {
          **_key(comparison, result.run),
          'round': int(row['round']),
          'test_accuracy': round(float(row['test_accuracy']), 5),
          'test_loss': _rounded(row.get('test_loss')),
          'variance_ratio': _rounded(statistics.mean(ratios) if ratios else ''),
        }
      )
      ratios = []
  return rows


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
  """Returns rows as CSV; None becomes an empty cell.

  Args:
    rows: At least one row; all have the same columns.
  """
  out = io.StringIO()
  writer = csv.DictWriter(out, list(rows[0]), lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  return out.getvalue()


def bootstrap_interval(
  values: Sequence[float],
) -> Optional[tuple[float, float]]:
  """Returns the 95 % interval of the mean by the percentile bootstrap.

  Args:
    values: Independent numbers. The order and other calls have no influence.

  Returns:
    Lower and upper end; None for fewer than two values.
  """
  if len(values) < 2:
    return None
  ordered = np.sort(np.asarray(values, np.float64))
  generator = np.random.default_rng(0)
  picks = generator.integers(0, len(ordered), (_RESAMPLES, len(ordered)))
  tail = (1 - _CONFIDENCE) / 2
  low, high = np.quantile(ordered[picks].mean(axis=1), [tail, 1 - tail])
  return float(low), float(high)


def table(
  comparison: compare_matrix.Comparison,
  results: Sequence[compare_runs.Result],
  missing: Mapping[compare_matrix.Run, str],
) -> str:
  """Returns a Markdown table for each setting, and what is missing.

  Args:
    comparison: What was compared.
    results: The finished runs.
    missing: Why the other runs are missing.
  """
  out = []
  if comparison.left_out:
    out += [f'Left out by choice: {"; ".join(comparison.left_out)}.', '']
  for setting in comparison.settings:
    of_setting = [r for r in results if r.run.setting == setting]
    out += _setting_table(comparison, setting, of_setting)
    for run, why in missing.items():
      if run.setting == setting:
        out.append(f'Missing: {run.method}, seed {run.seed} ({why}).')
    out += [''] if out[-1] else []
  out += _notes(comparison, results)
  return '\n'.join(out).rstrip('\n') + '\n'


def _setting_table(comparison, setting, results) -> list[str]:
  reference = comparison.reference
  headings = [
    'method',
    'final accuracy',
    f'minus {reference}',
    '95 % interval',
    f'rounds to {setting.target_accuracy}',
    'state bytes',
    's / round',
  ]
  by_method = {
    method: {r.run.seed: r for r in results if r.run.method == method}
    for method in comparison.methods
  }
  rows = [
    [
      method,
      _accuracy_cell(comparison, of_method),
      *_difference_cells(
        comparison, of_method, by_method.get(reference, {}), method == reference
      ),
      _target_cell(of_method),
      _state_cell(of_method),
      _seconds_cell(of_method),
    ]
    for method, of_method in by_method.items()
  ]
  if setting.target_accuracy is None:
    for row in (headings, *rows):
      del row[4]
  lines = [
    f'### {setting.name}',
    '',
    _line(headings),
    '|---' * len(headings) + '|',
    *map(_line, rows),
    '',
  ]
  if reference in by_method and not by_method[reference]:
    lines.append(
      f'There are no differences here: {reference} has no complete run.'
    )
  return lines


def _accuracy_cell(comparison, of_method) -> str:
  values = [r.summary['final_test_accuracy'] for r in of_method.values()]
  if not values:
    return _NOTHING
  cell = f'{statistics.mean(values):.3f}'
  if len(values) > 1:
    cell += f' ± {statistics.stdev(values):.3f}'
  return cell + _of_seeds(len(values), len(comparison.seeds))


def _difference_cells(comparison, of_method, of_reference, is_reference):
  """The mean of the differences of equal seeds, and its interval."""
  if is_reference:
    return ['', '']
  differences = [
    result.summary['final_test_accuracy']
    - of_reference[seed].summary['final_test_accuracy']
    for seed, result in of_method.items()
    if seed in of_reference
  ]
  if not differences:
    return [_NOTHING, _NOTHING]
  interval = bootstrap_interval(differences)
  return [
    f'{statistics.mean(differences):+.3f}'
    + _of_seeds(len(differences), len(comparison.seeds)),
    _NOTHING if interval is None else '{:+.3f} to {:+.3f}'.format(*interval),
  ]


def _target_cell(of_method) -> str:
  """The mean over the seeds that get there, and how many do."""
  rounds = [r.rounds_to_target for r in of_method.values()]
  reached = [number for number in rounds if number is not None]
  if not rounds:
    return _NOTHING
  mean = f'{statistics.mean(reached):.0f}' if reached else _NOTHING
  return f'{mean} ({len(reached)} of {len(rounds)})'


def _state_cell(of_method) -> str:
  sizes = [r.summary['state_bytes']['total'] for r in of_method.values()]
  if not sizes:
    return _NOTHING
  return ' to '.join(f'{size:,}' for size in sorted({min(sizes), max(sizes)}))


def _seconds_cell(of_method) -> str:
  seconds = [r.summary['seconds_per_round_median'] for r in of_method.values()]
  return f'{statistics.median(seconds):.2f}' if seconds else _NOTHING


def _notes(comparison, results) -> list[str]:
  """What a reader has to know to read the tables."""
  has_reference = comparison.reference in comparison.methods
  has_differences = has_reference and len(comparison.methods) > 1
  several_seeds = len(comparison.seeds) > 1
  how = ['Final accuracy: mean of the last ten evaluations of a run']
  if several_seeds:
    how[0] += '; mean and standard deviation over seeds'
  if has_differences:
    how.append(
      'Differences are taken seed by seed, on the same partition,'
      ' participation schedule and initial weights'
    )
    if several_seeds:
      how[-1] += '; the interval is that of the percentile bootstrap over seeds'
  notes = ['. '.join([*how, 's / round: median.'])]
  if not has_reference:
    notes.append(
      f'There are no differences: {comparison.reference} was left out.'
    )
  if not several_seeds:
    notes.append(
      'There is one seed: no deviations and no intervals, and nothing tells how'
      ' much of a difference is chance.'
    )
  elif has_differences and len(comparison.seeds) < _ENOUGH_SEEDS:
    notes.append(
      f'Seeds are few ({len(comparison.seeds)}): the intervals are too narrow,'
      ' and say little more than the range of the differences.'
    )
  if any(
    setting.target_accuracy is not None for setting in comparison.settings
  ):
    notes.append(
      'Rounds to a target: the first evaluation that reaches it, mean over the'
      ' seeds that do, and in brackets how many of them do.'
    )
  unknown = [r for r in results if not r.hashes]
  if unknown:
    notes.append(unknown_note(unknown))
  return [line for note in notes for line in (note, '')]


def unknown_note(results: Sequence[compare_runs.Result]) -> str:
  """Returns what to tell of runs whose conditions were not recorded.

  Args:
    results: These runs.
  """
  return (
    f'{len(results)} runs have no hashes, having been made by an earlier'
    ' version: that partition, participation and initial weights were the same'
    ' follows from the seeds, but was not checked.'
  )


def _key(comparison, run) -> dict[str, Any]:
  """The columns that say which run it is."""
  key = {'setting': run.setting.base}
  if comparison.sweep is not None:
    key[comparison.sweep] = run.setting.swept
  return {**key, 'method': run.method, 'seed': run.seed}


def _sorted(comparison, results):
  methods = list(comparison.methods)
  return sorted(
    results,
    key=lambda r: (
      comparison.settings.index(r.run.setting),
      methods.index(r.run.method),
      comparison.seeds.index(r.run.seed),
    ),
  )


def _of_seeds(found: int, wanted: int) -> str:
  """Says so if a number is not over all seeds."""
  return '' if found == wanted else f' ({found} of {wanted} seeds)'


def _rounded(value) -> Optional[float]:
  return None if value in (None, '') else float(f'{float(value):.4g}')


def _line(cells: Sequence[str]) -> str:
  return f'| {" | ".join(cells)} |'
