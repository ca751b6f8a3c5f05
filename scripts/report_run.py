"""The report of one training run: what its numbers say, in sentences."""

import statistics
from typing import Any, Optional

from fedsteer_tff.programs import conditioning
from scripts import report_page
from scripts import result_folders
from scripts import run_plots

# A fall of the accuracy from its best that is more than the usual noise.
_LARGE_FALL = 0.05
# What the accuracy must gain on the untrained model to be called learning.
_SMALL_GAIN = 0.05

_CAPTIONS = {
  'accuracy': (
    'Accuracy on the test set, and in grey that of the active clients while'
    ' they train on their own few classes.'
  ),
  'staleness': (
    'Rounds since what the server remembers was refreshed. FedSteer estimates'
    ' absent clients from the rows of the core set, so these must stay young;'
    ' coordinates may be old.'
  ),
  'residuals': (
    'How much of an active client’s update the core set cannot represent, and'
    ' how long the estimate is: 0 and 1 would be perfect. Thin lines are single'
    ' rounds. Before there is a core set, everything is missed.'
  ),
  'variance_ratio': (
    'The variance that the draw of the clients gives to the sum, relative to'
    ' what it would be without estimates of absent clients. Below the dotted'
    ' line, the estimates help.'
  ),
  'participation': 'In how many rounds each client took part.',
}


def page(run: result_folders.Run) -> str:
  """Returns the page.

  Args:
    run: The run; it may be in progress.
  """
  return report_page.page(title(run), _lead(run), _parts(run))


def title(run: result_folders.Run) -> str:
  """Returns what a run is called: algorithm, estimator and task, if known.

  Args:
    run: The run.
  """
  if not run.flags.get('algorithm') or not run.flags.get('task'):
    return run.name  # Not a run of `scripts.train`.
  estimator = run.flags.get('estimator')
  algorithm = run.flags['algorithm'] + (f' ({estimator})' if estimator else '')
  return f'{algorithm} on {run.flags["task"]}'


def _lead(run: result_folders.Run) -> str:
  done, planned = len(run.rows), run.flags.get('rounds')
  if run.summary is not None:
    state = f'Complete: {done} rounds'
  elif planned:
    state = f'In progress: {done} of {planned} rounds'
  else:
    state = f'{done} rounds'
  seed = run.flags.get('seed')
  return (
    f'{state}{"" if seed is None else f", seed {seed}"}. Folder {run.name}.'
  )


def _parts(run: result_folders.Run) -> list[str]:
  figures = run_plots.figures(
    {run.name: run.rows}, untrained={run.name: run.untrained_accuracy}
  )
  parts = [
    report_page.cards(_cards(run)),
    report_page.heading('What the numbers say'),
    report_page.findings(findings(run)),
    report_page.heading('Pictures'),
    report_page.pictures(figures, _CAPTIONS),
    report_page.heading('Details'),
  ]
  if run.flags:
    given = {k: v for k, v in run.flags.items() if v is not None}
    parts.append(
      report_page.fold(
        'Flags (those that are not listed have their defaults)',
        _two_columns('flag', {f'--{name}': v for name, v in given.items()}),
      )
    )
  if run.summary is not None:
    for summary, key in (
      ('Server state in bytes', 'state_bytes'),
      ('Hashes of what comparable runs share', 'hashes'),
    ):
      if run.summary.get(key):
        parts.append(
          report_page.fold(summary, _two_columns('part', run.summary[key]))
        )
  if run.versions:
    parts.append(
      report_page.fold('Versions', _two_columns('package', run.versions))
    )
  parts.append(
    report_page.footer(
      'What to do about a warning is in the documentation, "Choosing'
      ' parameters".'
    )
  )
  return parts


def _cards(run: result_folders.Run) -> dict[str, str]:
  rows = run.rows
  cards = {}
  last = result_folders.final_accuracies(rows)
  if last:
    count = 'last evaluation' if len(last) == 1 else f'mean of last {len(last)}'
    cards[f'test accuracy ({count})'] = f'{statistics.mean(last):.3f}'
  if run.untrained_accuracy is not None:
    cards['accuracy of the untrained model'] = f'{run.untrained_accuracy:.3f}'
  ratio = _late_variance_ratio(run)
  if ratio is not None:
    cards['variance ratio, second half'] = f'{ratio:.2f}'
  sizes = (run.summary or {}).get('state_bytes') or {}
  if 'total' in sizes:
    cards['server state'] = _bytes(sizes['total'])
  _, seconds = result_folders.numbers(rows, 'seconds')
  if seconds:
    cards['seconds per round (median)'] = (
      f'{statistics.median(seconds[1:] or seconds):.2f}'
    )
  _, cohort_sizes = result_folders.numbers(rows, 'cohort_size')
  if cohort_sizes:
    cards['active clients per round'] = f'{statistics.mean(cohort_sizes):.1f}'
  return cards


def findings(run: result_folders.Run) -> list[tuple[str, str]]:
  """Returns what a reader should know of a run.

  Args:
    run: The run.

  Returns:
    Pairs of a level ('good', 'note' or 'warning') and a text.
  """
  return [
    found
    for found in (
      _learning(run),
      _fall(run),
      _steering(run),
      _representation(run),
      _age(run),
      _conditioning(run),
      _dropped(run, 'nonfinite_clients', 'not finite'),
      _dropped(run, 'duplicate_clients', 'further ones of a client'),
      _absent(run),
      _empty_rounds(run),
    )
    if found is not None
  ]


def _learning(run) -> Optional[tuple[str, str]]:
  last = result_folders.final_accuracies(run.rows)
  if not last:
    return 'note', 'Nothing was evaluated yet.'
  text = f'The test accuracy is {statistics.mean(last):.3f} at the end'
  if run.untrained_accuracy is None:
    return 'note', f'{text}.'
  text += f', {run.untrained_accuracy:.3f} before training.'
  if statistics.mean(last) < run.untrained_accuracy + _SMALL_GAIN:
    return 'warning', f'{text} The model has learned next to nothing.'
  return 'good', text


def _fall(run) -> Optional[tuple[str, str]]:
  points = result_folders.evaluations(run.rows)
  last = result_folders.final_accuracies(run.rows)
  if not points:
    return None
  number, best = max(points, key=lambda point: point[1])
  fall = best - statistics.mean(last)
  if fall < _LARGE_FALL or len(points) <= len(last):
    return None
  return 'warning', (
    f'The accuracy was best in round {number}, {best:.3f}, and is'
    f' {fall:.3f} lower at the end: steps may be too large or too noisy. A'
    ' smaller rate or the estimator "stable" steadies it.'
  )


def _steering(run) -> Optional[tuple[str, str]]:
  ratio = _late_variance_ratio(run)
  if ratio is None:
    return None
  if run.flags.get('algorithm') in ('fedavg', 'fedprox', 'scaffold'):
    return None  # Without estimates the ratio is 1 by its definition.
  if ratio < 1:
    return 'good', (
      'In the second half, the estimates of absent clients take away'
      f' {1 - ratio:.0%} of the variance that the draw of the clients gives to'
      f' the sum (variance ratio {ratio:.2f}).'
    )
  return 'warning', (
    'In the second half, the estimates of absent clients add to the variance'
    f' (variance ratio {ratio:.2f}): the core set’s rows may be too old, or the'
    ' core set too small for what the clients have in common.'
  )


def _representation(run) -> Optional[tuple[str, str]]:
  residual = _late_mean(run, 'relative_residual')
  if residual is None:
    return None
  text = (
    f'The core set misses {residual:.0%} of the length of an active client’s'
    ' update, on average over the second half.'
  )
  if residual >= 0.999:
    return 'note', f'{text} There was no core set, or it was empty.'
  return 'note', text


def _age(run) -> Optional[tuple[str, str]]:
  mean = _late_mean(run, 'core_staleness_mean')
  if mean is None:
    return None
  _, oldest = result_folders.numbers(run.rows, 'core_staleness_max')
  return 'note', (
    f'Rows of the core set are {mean:.1f} rounds old on average over the second'
    f' half; the oldest ever was {max(oldest, default=0):.0f}.'
  )


def _conditioning(run) -> Optional[tuple[str, str]]:
  _, conditions = result_folders.numbers(run.rows, 'ridge_condition')
  advice = conditioning.advice(
    {'ridge_condition': max(conditions, default=0.0)}
  )
  return None if advice is None else ('warning', f'{advice}.')


def _dropped(run, column: str, why: str) -> Optional[tuple[str, str]]:
  _, counts = result_folders.numbers(run.rows, column)
  if not sum(counts):
    return None
  reports = _count(sum(counts), 'report')
  rounds = _count(sum(count > 0 for count in counts), 'round')
  return 'warning', (
    f'{reports} in {rounds} were left out because they were {why}.'
  )


def _absent(run) -> Optional[tuple[str, str]]:
  seen = run_plots.participation_counts(run.rows)
  population = run.flags.get('num_clients')
  if not seen:
    return None
  text = f'{len(seen)} different clients took part'
  if population is None:
    return 'note', f'{text}.'
  never = population - len(seen)
  return 'note', (
    f'{text}; {never} of {population} never did.'
    if never > 0
    else f'All {population} clients took part at least once.'
  )


def _empty_rounds(run) -> Optional[tuple[str, str]]:
  _, sizes = result_folders.numbers(run.rows, 'cohort_size')
  empty = sum(size == 0 for size in sizes)
  if not empty:
    return None
  return 'note', f'In {_count(empty, "round")} nobody took part.'


def _late_variance_ratio(run) -> Optional[float]:
  """The ratio of the variances summed over the second half of the rounds."""
  rows = _second_half(run)
  _, above = result_folders.numbers(rows, 'variance_estimate')
  _, below = result_folders.numbers(rows, 'variance_estimate_without_steering')
  return sum(above) / sum(below) if sum(below) > 0 else None


def _late_mean(run, column: str) -> Optional[float]:
  _, values = result_folders.numbers(_second_half(run), column)
  return statistics.mean(values) if values else None


def _second_half(run):
  return run.rows[len(run.rows) // 2 :]


def _two_columns(name: str, values: dict[str, Any]) -> str:
  return report_page.table(
    [{name: key, 'value': value} for key, value in values.items()]
  )


def _count(number: float, what: str) -> str:
  return f'{number:.0f} {what}{"" if number == 1 else "s"}'


def _bytes(number: int) -> str:
  for unit in ('B', 'kB', 'MB'):
    if number < 1000:
      return f'{number:.3g} {unit}'
    number /= 1000
  return f'{number:.3g} GB'
