r"""Measures how many rounds a second this machine does with workers on it.

```
python -m scripts.measure_workers --numbers_of_workers=0,1,2 \
    --measured_rounds=20 --output_dir=runs/scaling --task=digits ...
```

Takes the flags of `scripts.train`, and writes `scaling.json` and a table on
stdout. 0 workers: training in this process's own runtime, as without --workers.
With --one_core_each, a worker has one core, as if it were a small machine.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
from typing import Any

from absl import flags

from scripts import lasting_output
from scripts import train_flags

_EXIT_USAGE = 2


def define() -> None:
  """Defines the flags beside those of `scripts.train`."""
  train_flags.define()
  flags.adopt_module_key_flags(train_flags.definitions)
  flags.DEFINE_list('numbers_of_workers', ['0', '1', '2'], 'What is compared.')
  flags.DEFINE_integer(
    'measured_rounds', 20, 'How many, after one that compiles.', lower_bound=1
  )
  flags.DEFINE_boolean('one_core_each', False, 'Workers have one core each.')


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  define()
  try:
    train_flags.parse(argv)
    values = flags.FLAGS
    if values.workers is not None:
      raise train_flags.FlagError('--workers must not be given here')
    numbers = _numbers(values.numbers_of_workers)
  except train_flags.FlagError as e:
    print(f'measure_workers: error: {e}', file=sys.stderr)
    return _EXIT_USAGE

  from fedsteer_tff.programs import files
  from scripts import train_setup

  training = train_setup.build(values)
  results = []
  for number in numbers:
    with _workers(number, values.one_core_each) as addresses:
      values.workers = addresses or None
      results.append({'workers': number, **_measure(values, training)})
      print(_row(results[-1]), file=sys.stderr, flush=True)
  os.makedirs(values.output_dir, exist_ok=True)
  files.write_json(
    os.path.join(values.output_dir, 'scaling.json'),
    {
      'arguments': [a for a in argv[1:] if 'output_dir' not in a],
      'cores': len(os.sched_getaffinity(0)),
      'machine': platform.machine(),
      'state_bytes': training.state_bytes['total'],
      'results': results,
    },
  )
  print(_table(results))
  return 0


def _numbers(values: Sequence[str]) -> list[int]:
  if not values or not all(v.isdecimal() for v in values):
    raise train_flags.FlagError(
      '--numbers_of_workers must be integers >= 0 separated by commas, found'
      f' {",".join(values) or "none"}'
    )
  return [int(v) for v in values]


def _measure(values: flags.FlagValues, training) -> Mapping[str, Any]:
  """Trains from the beginning; returns how long rounds take."""
  from fedsteer_tff import programs
  from scripts import train_setup

  seconds = []

  class Log(programs.Callback):
    def on_round(self, result):
      seconds.append(result.seconds)

  with train_setup.runtime(values).activate() as runtime:
    programs.run(
      training.process,
      training.sampler,
      training.client_data_fn,
      runtime=runtime,
      state=programs.seeded_initial_state(
        training.process, training.task.model_fn, values.seed
      ),
      num_rounds=values.measured_rounds + 1,
      callbacks=[Log()],
    )
  first, *others = seconds
  return {
    'first_round_seconds': first,
    'median_seconds': statistics.median(others),
    'fastest_seconds': min(others),
    'rounds_per_second': 1 / statistics.median(others),
    'seconds': others,
  }


@contextlib.contextmanager
def _workers(number: int, one_core_each: bool) -> Iterator[list[str]]:
  """Runs workers on this machine inside the block; yields their addresses."""
  cores = sorted(os.sched_getaffinity(0))
  processes, addresses = [], []
  try:
    for i in range(number):
      with socket.socket() as s:
        s.bind(('', 0))
        port = s.getsockname()[1]
      command = [sys.executable, '-m', 'scripts.worker', f'--port={port}']
      if one_core_each:
        command = ['taskset', '-c', str(cores[i % len(cores)]), *command]
      processes.append(
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
      )
      addresses.append(f'localhost:{port}')
    for process in processes:
      process.stdout.readline()  # It is ready, or has ended with an error.
    yield addresses
  finally:
    for process in processes:
      process.send_signal(signal.SIGTERM)
    for process in processes:
      process.wait()
      process.stdout.close()


def _row(result: Mapping[str, Any]) -> str:
  return (
    f'| {result["workers"]} | {result["median_seconds"]:.3f}'
    f' | {result["fastest_seconds"]:.3f} | {result["rounds_per_second"]:.2f}'
    f' | {result["first_round_seconds"]:.1f} |'
  )


def _table(results: Sequence[Mapping[str, Any]]) -> str:
  return '\n'.join(
    [
      '| workers | median s / round | fastest | rounds / s | first round, s |',
      '|---|---|---|---|---|',
      *(_row(result) for result in results),
    ]
  )


if __name__ == '__main__':
  sys.exit(lasting_output.run(main, sys.argv))
