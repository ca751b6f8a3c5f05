"""Draws the pictures of a training run, of several runs, or of a comparison.

```
python -m scripts.plot runs/demo
python -m scripts.plot runs/a runs/b --output_dir=pictures
python -m scripts.plot docs/results/methods --output_dir=pictures
```

FOLDER is what `scripts.train` wrote, also while it is running, or the results
folder of `scripts.compare`. Of a run: accuracy, staleness, residuals, variance
ratio and participation. Several runs share their pictures. Of a comparison: the
plots that `scripts.compare` draws.
"""

import argparse
from collections.abc import Sequence
import os
import sys

from fedsteer_tff.programs import run_files
from scripts import compare_plots
from scripts import lasting_output
from scripts import report_run
from scripts import result_folders
from scripts import run_plots

_EXIT_USAGE = 2
_FORMATS = ('png', 'svg', 'pdf')


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  options = parser().parse_args(argv[1:])
  try:
    written = _draw(options)
  except ImportError as e:
    return _fail(f'matplotlib must be installed, found: {e}')
  except (run_files.RunDirectoryError, OSError) as e:
    return _fail(str(e))
  for path in written:
    print(path)
  return 0


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  result = argparse.ArgumentParser(
    prog='python -m scripts.plot',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  result.add_argument('folders', nargs='+', metavar='FOLDER')
  result.add_argument(
    '--output_dir',
    help='folder of the pictures; the first FOLDER if not given',
  )
  result.add_argument(
    '--format', choices=_FORMATS, default='png', help='of the pictures (png)'
  )
  return result


def _fail(message: str) -> int:
  print(f'plot: error: {message}', file=sys.stderr)
  return _EXIT_USAGE


def _draw(options: argparse.Namespace) -> list[str]:
  """Draws and writes all pictures; returns their paths."""
  kinds = {result_folders.kind(folder) for folder in options.folders}
  output_dir = options.output_dir or options.folders[0]
  run_files.check_path(output_dir, '--output_dir')
  run_files.check_folder(output_dir, '--output_dir')
  if kinds == {result_folders.Kind.RUN}:
    figures = _of_runs(options.folders)
  elif len(options.folders) == 1:
    results = result_folders.read_results(options.folders[0])
    figures = compare_plots.figures(
      results.comparison, results.runs, results.curves
    )
  else:
    raise result_folders.FolderError(
      'FOLDER must be runs, or the results of one comparison, found'
      f' {", ".join(options.folders)}'
    )
  os.makedirs(output_dir, exist_ok=True)
  paths = [
    os.path.join(output_dir, f'{name}.{options.format}') for name in figures
  ]
  for path in paths:  # All before the first one is replaced.
    run_files.check_file(path)
  for path, figure in zip(paths, figures.values()):
    figure.savefig(path)
  return paths


def _of_runs(folders: Sequence[str]) -> dict:
  """The plots of one run, or of several on the same axes."""
  runs = [result_folders.read_run(folder) for folder in folders]
  title = report_run.title(runs[0]) if len(runs) == 1 else ''
  names = _distinct_names(folders)
  return run_plots.figures(
    {name: run.rows for name, run in zip(names, runs)},
    title=title,
    untrained={name: run.untrained_accuracy for name, run in zip(names, runs)},
  )


def _distinct_names(folders: Sequence[str]) -> list[str]:
  """The folders as seen from the one that holds them all."""
  paths = [os.path.abspath(folder) for folder in folders]
  if len(set(paths)) < len(paths):
    raise result_folders.FolderError(
      f'FOLDER must be different folders, found {", ".join(folders)}'
    )
  if len(paths) == 1:
    return [os.path.basename(paths[0])]
  common = os.path.commonpath(paths)
  return [os.path.relpath(path, common) for path in paths]


if __name__ == '__main__':
  sys.exit(lasting_output.run(main, sys.argv))
