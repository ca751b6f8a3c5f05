"""Measures what FedSteer costs: time, memory and bytes.

```
python -m scripts.benchmark --suites=round,selection
```

Suites:

* round: rounds of FedSteer against those of TFF's own FedAvg, on the same data,
  in turns; with the state in Python and in the runtime, with k = 10 and 30.
* population: rounds with few and with very many clients, and the state's bytes.
* aggregation: the aggregation alone, against TFF's unweighted mean, and what it
  consists of.
* large_model: the same, of a model with 11 million weights.
* memory: growth over many rounds with cohorts of varying size.
* memory_one_size: the same, with cohorts filled up to one size.
* selection: choosing a core set among very many candidates.
* traffic: what a client downloads beside the model.
* residual: coordinates from sketches against exact ones; needs Fashion-MNIST.
* feed: getting clients' data to the runtime.
* import: importing the package.

Writes `benchmark.json`, with every measurement, and prints a table. Times hang
on the machine and on what else it does: compare ratios within one run. --small
uses sizes that say nothing, to see whether everything works.
"""

import argparse
from collections.abc import Sequence
import os
import platform
import sys

from fedsteer_tff.programs import run_files
from scripts import lasting_output

_EXIT_USAGE = 2
SUITES = (
  'round',
  'population',
  'aggregation',
  'large_model',
  'memory',
  'memory_one_size',
  'selection',
  'traffic',
  'residual',
  'feed',
  'import',
)


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  options = parser().parse_args(argv[1:])
  try:
    run_files.check_path(options.output_dir, '--output_dir')
    os.makedirs(options.output_dir, exist_ok=True)
  except run_files.RunDirectoryError as e:
    print(f'benchmark: error: {e}', file=sys.stderr)
    return _EXIT_USAGE
  except OSError as e:
    print(
      f'benchmark: error: --output_dir must be a folder, found {e}',
      file=sys.stderr,
    )
    return _EXIT_USAGE
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  # Importing TensorFlow takes seconds: not before the flags are known good.
  from fedsteer_tff.programs import files
  from scripts import benchmark_suites

  results = {}
  for name in options.suites:
    print(f'{name} ...', file=sys.stderr, flush=True)
    suite = getattr(benchmark_suites, f'{name}_suite')
    results[name] = suite(options.rounds, options.small)
    files.write_json(
      os.path.join(options.output_dir, 'benchmark.json'),
      {
        'arguments': [a for a in argv[1:] if 'output_dir' not in a],
        'cores': len(os.sched_getaffinity(0)),
        'machine': platform.machine(),
        'results': results,
      },
    )
  print(table(results))
  return 0


def parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  result = argparse.ArgumentParser(
    prog='python -m scripts.benchmark',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  result.add_argument(
    '--suites',
    type=_suites,
    default=SUITES,
    help=f'some of {",".join(SUITES)}; all if not given',
  )
  result.add_argument(
    '--rounds',
    type=_at_least_one,
    help='measured rounds; 30, and 2,000 of memory suites, if not given',
  )
  result.add_argument('--small', action='store_true', help='tiny sizes')
  result.add_argument(
    '--output_dir', default='runs/benchmark', help='folder of the results'
  )
  return result


def _suites(text: str) -> tuple[str, ...]:
  names = tuple(name for name in text.split(',') if name)
  unknown = [name for name in names if name not in SUITES]
  if unknown or not names:
    raise argparse.ArgumentTypeError(
      f'must be some of {",".join(SUITES)}, found {text!r}'
    )
  return names


def _at_least_one(text: str) -> int:
  if not text.isdecimal() or int(text) < 1:
    raise argparse.ArgumentTypeError(f'must be an integer >= 1, found {text!r}')
  return int(text)


def table(results: dict) -> str:
  """Returns the headline figures of the suites as a Markdown table.

  Args:
    results: Suites' names to what they returned: headlines and raw numbers.
  """
  rows = ['| suite | what | measured |', '|---|---|---|']
  for suite, result in results.items():
    for what, value in result['headlines'].items():
      rows.append(f'| {suite} | {what} | {value} |')
  return '\n'.join(rows)


if __name__ == '__main__':
  sys.exit(lasting_output.run(main, sys.argv))
