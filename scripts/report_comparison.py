"""The report of a comparison: who is ahead, by how much, and at what cost."""

import statistics

from scripts import compare_plots
from scripts import report_page
from scripts import result_folders

# How `compare_table` begins what it says of a run.
_MISSING = 'Missing: '
_CAPTIONS = {
  'accuracy': (
    'Test accuracy over the rounds: the mean over the seeds as a line, their'
    ' range as a band. A dotted line is a target.'
  ),
  'variance_ratio': (
    'The variance that the draw of the clients gives to the sum, relative to'
    ' what it would be without estimates of absent clients; below the dotted'
    ' line, the estimates help.'
  ),
  'accuracy_by_state_bytes': (
    'What the final accuracy costs in the server’s memory: up and to the left'
    ' is better.'
  ),
}


def page(results: result_folders.Results) -> str:
  """Returns the page.

  Args:
    results: The results of `scripts.compare`.
  """
  comparison = results.comparison
  lead = '; '.join(
    f'{len(values)} {what}{"" if len(values) == 1 else "s"}'
    for what, values in (
      ('setting', comparison.settings),
      ('method', comparison.methods),
      ('seed', comparison.seeds),
    )
  )
  return report_page.page(
    f'Comparison: {results.name.replace("_", " ")}',
    f'{lead}; {len(results.runs)} runs.',
    [
      report_page.heading('What the numbers say'),
      report_page.findings(findings(results)),
      report_page.heading('Pictures'),
      report_page.pictures(
        compare_plots.figures(comparison, results.runs, results.curves),
        _CAPTIONS,
      ),
      report_page.heading('Tables'),
      report_page.markdown(results.table),
      report_page.fold('All runs', report_page.table(results.runs)),
    ],
  )


def findings(results: result_folders.Results) -> list[tuple[str, str]]:
  """Returns what a reader should know of a comparison.

  Args:
    results: The results.

  Returns:
    Pairs of a level ('good', 'note' or 'warning') and a text.
  """
  found = []
  for setting in results.comparison.settings:
    sweep = results.comparison.sweep
    accuracies = {}
    for row in results.runs:
      if row['setting'] == setting.base and (
        sweep is None or row[sweep] == setting.swept
      ):
        accuracies.setdefault(row['method'], {})[row['seed']] = row[
          'final_test_accuracy'
        ]
    found.append(('note', f'{setting.name}: {_ranking(accuracies)}'))
  missing = len(results.comparison.settings) * len(
    results.comparison.methods
  ) * len(results.comparison.seeds) - len(results.runs)
  # A setting, method or seed of which no run is complete is in the table alone.
  named = sum(line.startswith(_MISSING) for line in results.table.splitlines())
  missing = max(missing, named)
  if missing:
    found.append(
      (
        'warning',
        f'{missing} of the runs that the tables name are missing; means over'
        ' different seeds should not be compared.',
      )
    )
  return found


def _ranking(accuracies) -> str:
  """The best two methods, and whether their order is that of every seed."""
  means = {
    method: statistics.mean(by_seed.values())
    for method, by_seed in accuracies.items()
  }
  first, *others = sorted(means, key=means.get, reverse=True)
  text = f'{first} has the highest final accuracy, {means[first]:.3f}'
  if not others:
    return f'{text}.'
  second = others[0]
  text += f', before {second} with {means[second]:.3f}'
  shared = sorted(set(accuracies[first]) & set(accuracies[second]))
  if not shared:
    return f'{text}.'
  ahead = sum(
    accuracies[first][seed] > accuracies[second][seed] for seed in shared
  )
  if len(shared) == 1:
    return f'{text}, of one seed.'
  if ahead == len(shared):
    return f'{text}, ahead with each of {len(shared)} seeds.'
  return (
    f'{text}, but ahead with {ahead} of {len(shared)} seeds only: take it for'
    ' a tie.'
  )
