"""Writes one HTML page about a training run or a comparison.

```
python -m scripts.report runs/demo
python -m scripts.report docs/results/methods --output=methods.html
```

FOLDER is what `scripts.train` wrote, also while it is running, or the results
folder of `scripts.compare`. The page has its pictures inside and needs no
network: it can be mailed, and opened in any browser.
"""

import argparse
from collections.abc import Sequence
import os
import sys

from fedsteer_tff.programs import run_files
from scripts import lasting_output
from scripts import report_comparison
from scripts import report_run
from scripts import result_folders

_EXIT_USAGE = 2


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  options = parser().parse_args(argv[1:])
  output = options.output or os.path.join(options.folder, 'report.html')
  try:
    run_files.check_path(output, '--output')
    run_files.check_file(output, '--output')
    text = _page(options.folder)
    with open(output, 'w', encoding='utf-8') as file:
      file.write(text)
  except ImportError as e:
    return _fail(f'matplotlib and markdown must be installed, found: {e}')
  except (run_files.RunDirectoryError, OSError) as e:
    return _fail(str(e))
  print(output)
  return 0


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  result = argparse.ArgumentParser(
    prog='python -m scripts.report',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  result.add_argument('folder', metavar='FOLDER')
  result.add_argument(
    '--output', help='the HTML file; report.html in FOLDER if not given'
  )
  return result


def _fail(message: str) -> int:
  print(f'report: error: {message}', file=sys.stderr)
  return _EXIT_USAGE


def _page(folder: str) -> str:
  if result_folders.kind(folder) is result_folders.Kind.RUN:
    return report_run.page(result_folders.read_run(folder))
  return report_comparison.page(result_folders.read_results(folder))


if __name__ == '__main__':
  sys.exit(lasting_output.run(main, sys.argv))
