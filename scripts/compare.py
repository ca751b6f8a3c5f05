"""Compares methods: makes the runs of a matrix, tables and plots.

```
python -m scripts.compare --config=scripts/comparisons/named_estimators.json
```

Runs `scripts.train` once for each setting, method and seed of the
configuration, in --output_dir, some at a time. Runs that are complete are not
repeated and those that were interrupted are resumed, so the command may be
stopped and started again. Then it writes into --results_dir:

* `table.md`: accuracies, differences, rounds to a target, costs;
* `runs.csv`: one row a run;
* `curves.csv`: one row an evaluated round of a run;
* plots as PNG files.

A run that fails does not keep the others from running; what is missing is named
in the table, and the exit code is 1.
"""

import argparse
from collections.abc import Mapping, Sequence
import os
import sys
from typing import Optional

from fedsteer_tff.programs import interruption
from fedsteer_tff.programs import run_files
from scripts import compare_config
from scripts import compare_matrix
from scripts import compare_plots
from scripts import compare_runs
from scripts import compare_table
from scripts import lasting_output
from scripts import train_flags

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_KILLED = 130
_TABLES = ('runs.csv', 'curves.csv', 'table.md')


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  # Not absl's flags: those of `scripts.train` are there, some of equal names.
  options = parser().parse_args(argv[1:])
  try:
    run_files.check_path(options.output_dir, '--output_dir')
    run_files.check_folder(options.output_dir, '--output_dir')
    if options.results_dir:
      run_files.check_path(options.results_dir, '--results_dir')
    comparison = compare_config.load(options.config).select(
      settings=options.settings,
      methods=options.methods,
      seeds=options.seeds,
      rounds=options.rounds,
    )
    # Now, and not when hours of rounds are done.
    _check_results_dir(comparison, results_dir(options))
    runs = comparison.runs(options.output_dir, options.data_dirs)
    for run in runs:
      compare_runs.check_paths(run)
    _check_kept_runs(runs)
    with interruption.Interruption() as stop:
      failures = _make(runs, options.jobs, stop)
    if stop.requested:
      return _stopped(runs, stop.exit_code)
    return _report(comparison, runs, failures, results_dir(options))
  except (compare_matrix.ConfigError, run_files.RunDirectoryError) as e:
    print(f'compare: error: {e}', file=sys.stderr)
    return _EXIT_USAGE
  except KeyboardInterrupt:
    print(
      '\nStopped at once; the same command resumes at the last checkpoints.',
      file=sys.stderr,
    )
    return _EXIT_KILLED


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  result = argparse.ArgumentParser(
    prog='python -m scripts.compare',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  result.add_argument(
    '--config', required=True, help='the comparison, a JSON file'
  )
  result.add_argument(
    '--data_dirs',
    type=_data_dirs,
    default={},
    metavar='TASK:DIR,...',
    help='where the data of tasks are, see --data_dir of scripts.train',
  )
  result.add_argument(
    '--output_dir', default='runs/compare', help='folder of the runs'
  )
  result.add_argument(
    '--results_dir',
    help='folder of tables and plots; docs/results/ and the name of --config'
    ' if not given',
  )
  result.add_argument(
    '--jobs', type=_at_least_one, default=2, help='runs at a time (2)'
  )
  result.add_argument(
    '--rounds', type=_at_least_one, help='of every run, instead of the config’s'
  )
  result.add_argument(
    '--seeds', type=_seeds, help='instead of the config’s, as 0,1,2'
  )
  for what in ('settings', 'methods'):
    result.add_argument(
      f'--{what}',
      type=_names,
      help='only these, names separated by commas, as in the config or as'
      ' their folders are called',
    )
  return result


def _names(text: str) -> list[str]:
  return [name.strip() for name in text.split(',') if name.strip()]


def _at_least_one(text: str) -> int:
  if not text.isdecimal() or int(text) < 1:
    raise argparse.ArgumentTypeError(f'must be an integer >= 1, found {text!r}')
  return int(text)


def _seeds(text: str) -> tuple[int, ...]:
  try:
    return compare_matrix.check_seeds([int(seed) for seed in _names(text)])
  except ValueError as e:
    raise argparse.ArgumentTypeError(
      f'must be different integers >= 0 separated by commas, found {text!r}'
    ) from e


def _data_dirs(text: str) -> dict[str, str]:
  folders = {}
  for item in _names(text):
    task, colon, folder = item.partition(':')
    if task not in train_flags.TASKS or not colon or not folder:
      raise argparse.ArgumentTypeError(
        f'must be TASK:DIR with TASK in {", ".join(train_flags.TASKS)}, found'
        f' {item!r}'
      )
    folders[task] = folder
  return folders


def results_dir(options: argparse.Namespace) -> str:
  """Returns the folder that tables and plots are written to."""
  name, _ = os.path.splitext(os.path.basename(options.config))
  return options.results_dir or os.path.join('docs', 'results', name)


def _check_results_dir(
  comparison: compare_matrix.Comparison, folder: str
) -> None:
  """Raises `RunDirectoryError` if the results cannot be written there."""
  run_files.check_folder(folder, '--results_dir')
  for name in (*_TABLES, *compare_plots.names(comparison)):
    run_files.check_file(os.path.join(folder, name))


def _check_kept_runs(runs: Sequence[compare_matrix.Run]) -> None:
  """Raises `ConfigError` if what is kept are other runs than are wanted."""
  problems = []
  for run in runs:
    changed = compare_runs.changed_flags(run)
    if changed:
      problems.append(f'\n  {run.folder}: {"; ".join(changed)}')
  if problems:
    raise compare_matrix.ConfigError(
      '--output_dir must hold no runs of another configuration, found'
      + ''.join(problems)
    )
  unequal = compare_runs.unequal_conditions(_finished(runs))
  if unequal:
    raise compare_matrix.ConfigError(_conditions_error(unequal))


def _conditions_error(problems: Sequence[str]) -> str:
  return (
    'runs of one setting and seed must have the same conditions:'
    + ''.join(f'\n  {problem}' for problem in problems)
  )


def _finished(
  runs: Sequence[compare_matrix.Run],
) -> list[compare_runs.Result]:
  return [
    compare_runs.read(run) for run in runs if compare_runs.is_finished(run)
  ]


def _make(
  runs: Sequence[compare_matrix.Run],
  jobs: int,
  stop: interruption.Interruption,
) -> Mapping[compare_matrix.Run, str]:
  """Makes the runs that are missing; returns why some failed."""
  missing = [run for run in runs if not compare_runs.is_finished(run)]
  print(
    f'{len(runs) - len(missing)} of {len(runs)} runs are complete.',
    file=sys.stderr,
  )
  if not missing:
    return {}
  progress = _Progress(runs, missing)
  try:
    return compare_runs.execute(
      missing, jobs=jobs, stop=stop, progress=progress
    )
  finally:
    progress.close()


class _Progress:
  """A bar on stderr with the rounds of all runs, and a line a finished run."""

  def __init__(
    self,
    runs: Sequence[compare_matrix.Run],
    missing: Sequence[compare_matrix.Run],
  ):
    """Draws the bar.

    Args:
      runs: All runs.
      missing: Those that are to be made.
    """
    import tqdm  # Not needed by who only asks for --help.

    self._done = {run: run.rounds for run in runs}
    self._done.update({run: compare_runs.rounds_done(run) for run in missing})
    self._bar = tqdm.tqdm(
      total=sum(run.rounds for run in runs),
      initial=sum(self._done.values()),
      unit='round',
      dynamic_ncols=True,
      # The mean speed so far: rounds of different runs take different times.
      smoothing=0,
      miniters=0,  # What is running changes though no round is done.
      # A file gets a line now and then instead of an animation.
      mininterval=0.5 if sys.stderr.isatty() else 30.0,
    )

  def update(
    self,
    active: Sequence[compare_matrix.Run],
    waiting: Sequence[compare_matrix.Run],
  ) -> None:
    """Shows how far the runs are.

    Args:
      active: Those that are running.
      waiting: Those that are not.
    """
    for run in active:
      self._done[run] = compare_runs.rounds_done(run)
    text = ', '.join(
      f'{run.label} {self._done[run]}/{run.rounds}' for run in active
    )
    if waiting and not active:
      text = f'waiting for another process that makes {waiting[0].label}'
    self._bar.set_postfix_str(text, refresh=False)
    self._move()

  def ended(self, run: compare_matrix.Run, error: Optional[str]) -> None:
    """Prints a line.

    Args:
      run: The run.
      error: Why it failed, None if it did not.
    """
    if error is None:
      self._done[run] = run.rounds
      self._move()
      self._bar.write(f'complete: {run.label}', file=sys.stderr)
    else:
      reason = error.partition(';')[0]
      self._bar.write(f'FAILED: {run.label}, {reason}', file=sys.stderr)

  def stopping(self) -> None:
    """Says that the command is about to end."""
    self._bar.write(
      'Stopping after the rounds in progress; once more stops at once.',
      file=sys.stderr,
    )

  def close(self) -> None:
    """Leaves the bar as it is."""
    self._bar.set_postfix_str('', refresh=False)
    self._bar.close()

  def _move(self) -> None:
    self._bar.update(sum(self._done.values()) - self._bar.n)


def _stopped(runs: Sequence[compare_matrix.Run], exit_code: int) -> int:
  done = sum(compare_runs.is_finished(run) for run in runs)
  print(
    f'Stopped; {done} of {len(runs)} runs are complete. The same command'
    ' resumes.',
    file=sys.stderr,
  )
  return exit_code


def _report(
  comparison: compare_matrix.Comparison,
  runs: Sequence[compare_matrix.Run],
  failures: Mapping[compare_matrix.Run, str],
  results_dir: str,
) -> int:
  """Writes the results; returns the exit code."""
  results = _finished(runs)
  problems = compare_runs.unequal_conditions(results)
  if results and not problems:
    _write(comparison, results, failures, results_dir)
  if failures:
    print(f'{len(failures)} of {len(runs)} runs failed:', file=sys.stderr)
    for run, reason in failures.items():
      print(f'  {run.label}: {reason}', file=sys.stderr)
    print('The same command tries them again.', file=sys.stderr)
  if problems:
    print(f'compare: error: {_conditions_error(problems)}', file=sys.stderr)
  return _EXIT_FAILED if failures or problems else 0


def _write(
  comparison: compare_matrix.Comparison,
  results: Sequence[compare_runs.Result],
  failures: Mapping[compare_matrix.Run, str],
  results_dir: str,
) -> None:
  """Writes CSV files, table and plots, and prints the table."""
  unknown = [result for result in results if not result.hashes]
  if unknown:
    print(f'Note: {compare_table.unknown_note(unknown)}', file=sys.stderr)
  missing = {
    run: f'failed, {reason.partition(";")[0]}'
    for run, reason in failures.items()
  }
  rows = compare_table.runs_rows(comparison, results)
  curves = compare_table.curves_rows(comparison, results)
  text = compare_table.table(comparison, results, missing)
  os.makedirs(results_dir, exist_ok=True)
  contents = (
    compare_table.csv_text(rows),
    compare_table.csv_text(curves),
    text,
  )
  for name, content in zip(_TABLES, contents):
    path = os.path.join(results_dir, name)
    with open(path, 'w', encoding='utf-8', newline='') as file:
      file.write(content)
  plots = compare_plots.write(comparison, rows, curves, results_dir)
  print(text)
  names = ', '.join(['table.md', 'runs.csv', 'curves.csv', *plots])
  print(f'Wrote {names} into {results_dir}.')


if __name__ == '__main__':
  sys.exit(lasting_output.run(main, sys.argv))
