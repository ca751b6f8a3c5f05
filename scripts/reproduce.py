"""Trains every method in every setting and tabulates the accuracies.

```
python -m scripts.reproduce --emnist_dir=DIR --fashion_mnist_dir=DIR
```

Runs `scripts.train` once for each setting, method and seed, in --output_dir,
some at a time; runs that are complete are not repeated and those that were
interrupted are resumed, so the command may be stopped and started again. Then
it writes into --results_dir:

* `runs.csv`: one row a run, with its final accuracy and its cost;
* `accuracy.csv`: every evaluation of every run;
* `table.md`: mean and spread over the seeds, and paired differences;
* `accuracy.png`: accuracy against round.

Seeds decide partition, initial weights and participation, which are the same
for all methods.
"""

import collections
from collections.abc import Sequence
import concurrent.futures
import csv
import dataclasses
import io
import json
import os
import re
import statistics
import subprocess
import sys
from typing import Optional

from absl import app
from absl import flags

FLAGS = flags.FLAGS

_REFERENCE = 'FedAvg'


def methods() -> 'collections.OrderedDict[str, list[str]]':
  """Returns the flags of each method, by the name it has in the tables."""
  fedsteer = ['--algorithm=fedsteer']
  return collections.OrderedDict(
    {
      _REFERENCE: ['--algorithm=fedavg'],
      'FedSteer paper': fedsteer + ['--estimator=paper'],
      'FedSteer unbiased': fedsteer + ['--estimator=unbiased'],
      'FedSteer stable': fedsteer + ['--estimator=stable'],
      'FedSteer stable, enforced core': fedsteer
      + [
        '--estimator=stable',
        '--core_eligibility=received',
        '--enforce_core_every=5',
      ],
    }
  )


@dataclasses.dataclass(frozen=True)
class Run:
  """One run: a setting, a method and a seed.

  Attributes:
    task: Name of the task.
    gamma: Share of clients with common classes, as it was given.
    method: Name of the method.
    seed: The seed, as it was given.
  """

  task: str
  gamma: str
  method: str
  seed: str

  @property
  def folder(self) -> str:
    """Path of the run below the output folder."""
    method = re.sub('[^a-z]+', '_', self.method.lower())
    return os.path.join(self.task, f'gamma{self.gamma}', method, self.seed)


def train(
  run: Run, output_dir: str, rounds: int, data_dir: Optional[str]
) -> str:
  """Trains, resumes or finds complete; returns the run's folder.

  Args:
    run: What to run.
    output_dir: The folder of all runs.
    rounds: How many rounds.
    data_dir: The task's data, or None.

  Raises:
    RuntimeError: If the run fails; the message has the end of its output.
  """
  folder = os.path.join(output_dir, run.folder)
  os.makedirs(os.path.dirname(folder), exist_ok=True)
  command = [
    sys.executable,
    '-m',
    'scripts.train',
    f'--flagfile=scripts/presets/{run.task}.flags',
    *methods()[run.method],
    f'--gamma={run.gamma}',
    f'--seed={run.seed}',
    f'--rounds={rounds}',
    '--evaluate_every=5',
    f'--output_dir={folder}',
  ]
  if data_dir is not None:
    command.append(f'--data_dir={data_dir}')
  log = f'{folder}.log'
  # A file, not a pipe: what a run leaves behind could keep a pipe open.
  with open(log, 'w') as output:
    code = subprocess.call(command, stdout=output, stderr=subprocess.STDOUT)
  if code:
    with open(log) as lines:
      raise RuntimeError(f'{run} failed: {lines.read()[-2000:]}')
  return folder


def read(run: Run, folder: str) -> tuple[dict, list[tuple[int, float]]]:
  """Returns a finished run's row of `runs.csv` and its evaluations."""
  with open(os.path.join(folder, 'summary.json')) as file:
    summary = json.load(file)
  with open(os.path.join(folder, 'metrics.csv')) as file:
    evaluations = [
      (int(row['round']), float(row['test_accuracy']))
      for row in csv.DictReader(file)
      if row['test_accuracy']
    ]
  row = dict(
    dataclasses.asdict(run),
    rounds=summary['rounds'],
    final_test_accuracy=round(summary['final_test_accuracy'], 5),
    untrained_test_accuracy=round(summary['untrained_test_accuracy'], 5),
    state_bytes=summary['state_bytes']['total'],
    seconds_per_round=round(summary['seconds_per_round_median'], 3),
    peak_resident_mib=summary['peak_resident_mib'],
  )
  return row, evaluations


def table(rows: Sequence[dict]) -> str:
  """Returns the accuracies as a Markdown table for each setting.

  Args:
    rows: Rows of `runs.csv`.
  """
  out = io.StringIO()
  settings = collections.OrderedDict.fromkeys(
    (row['task'], row['gamma']) for row in rows
  )
  for task, gamma in settings:
    of_setting = [
      row for row in rows if (row['task'], row['gamma']) == (task, gamma)
    ]
    seeds = list(
      collections.OrderedDict.fromkeys(r['seed'] for r in of_setting)
    )
    accuracy = {
      (row['method'], row['seed']): row['final_test_accuracy']
      for row in of_setting
    }
    heading = ' | '.join(f'seed {seed}' for seed in seeds)
    print(f'\n{task}, gamma {gamma}:\n', file=out)
    print(f'| method | {heading} | mean ± std | minus FedAvg |', file=out)
    print('|---' * (len(seeds) + 3) + '|', file=out)
    for method in methods():
      values = [accuracy.get((method, seed)) for seed in seeds]
      if None in values:
        continue
      differences = [
        value - accuracy[_REFERENCE, seed]
        for value, seed in zip(values, seeds)
        if (_REFERENCE, seed) in accuracy
      ]
      cells = [method, *(f'{value:.3f}' for value in values)]
      cells.append(_mean_and_deviation(values, '.3f'))
      is_reference = method == _REFERENCE or not differences
      cells.append(
        '' if is_reference else _mean_and_deviation(differences, '+.3f')
      )
      print('| ' + ' | '.join(cells) + ' |', file=out)
  return out.getvalue().lstrip('\n')


def _mean_and_deviation(values, form):
  mean = format(statistics.mean(values), form)
  if len(values) < 2:
    return mean
  return f'{mean} ± {statistics.stdev(values):.3f}'


def plot(evaluations: Sequence[dict], path: str) -> None:
  """Draws mean accuracy over seeds against round, a panel a setting.

  Args:
    evaluations: Rows of `accuracy.csv`.
    path: The PNG to write.
  """
  import matplotlib.figure  # Only needed here, and slow to import.

  settings = list(
    collections.OrderedDict.fromkeys(
      (row['task'], row['gamma']) for row in evaluations
    )
  )
  figure = matplotlib.figure.Figure(
    figsize=(6 * len(settings), 4.5), layout='constrained'
  )
  panels = figure.subplots(1, len(settings), squeeze=False)[0]
  for (task, gamma), panel in zip(settings, panels):
    for method in methods():
      by_round = collections.defaultdict(list)
      for row in evaluations:
        if (row['task'], row['gamma'], row['method']) == (task, gamma, method):
          by_round[row['round']].append(row['test_accuracy'])
      if not by_round:
        continue
      rounds = sorted(by_round)
      values = [by_round[number] for number in rounds]
      (line,) = panel.plot(
        rounds, [statistics.mean(v) for v in values], label=method, linewidth=1
      )
      panel.fill_between(
        rounds,
        [min(v) for v in values],
        [max(v) for v in values],
        color=line.get_color(),
        alpha=0.12,
        linewidth=0,
      )
    panel.set_title(f'{task}, gamma {gamma}')
    panel.set_xlabel('round')
    panel.set_ylabel('test accuracy (mean and range over seeds)')
    panel.grid(alpha=0.3)
    panel.legend(loc='lower right', fontsize='small')
  figure.savefig(path, dpi=100)


def define_flags() -> None:
  """Defines the command's flags."""
  flags.DEFINE_string('output_dir', 'runs/reproduce', 'Of the runs.')
  flags.DEFINE_string('results_dir', 'docs/results', 'Where the tables go.')
  flags.DEFINE_string('emnist_dir', None, 'See --data_dir of train.')
  flags.DEFINE_string('fashion_mnist_dir', None, 'See --data_dir of train.')
  flags.DEFINE_list('tasks', ['fashion_mnist', 'emnist'], 'Which tasks.')
  flags.DEFINE_list('gammas', ['0.9', '0.7'], 'Which heterogeneities.')
  flags.DEFINE_list('seeds', ['0', '1', '2'], 'Which seeds.')
  flags.DEFINE_list('methods', None, 'Which methods; all if not given.')
  flags.DEFINE_integer('rounds', 150, 'Of every run.', lower_bound=1)
  flags.DEFINE_integer('jobs', 2, 'Runs at a time.', lower_bound=1)


def main(argv: Sequence[str]) -> None:
  """Runs what is missing and writes the results."""
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments: {argv[1:]}')
  chosen = FLAGS.methods or list(methods())
  unknown = sorted(set(chosen) - set(methods()))
  if unknown:
    raise app.UsageError(
      f'--methods must be among {list(methods())}, found {unknown}'
    )
  data_dirs = {
    'emnist': FLAGS.emnist_dir,
    'fashion_mnist': FLAGS.fashion_mnist_dir,
  }
  runs = [
    Run(task, gamma, method, seed)
    for gamma in FLAGS.gammas
    for task in FLAGS.tasks
    for seed in FLAGS.seeds
    for method in chosen
  ]
  import tqdm  # Not needed by who only asks for --help.

  with concurrent.futures.ThreadPoolExecutor(FLAGS.jobs) as pool:
    futures = {
      pool.submit(
        train,
        run,
        FLAGS.output_dir,
        FLAGS.rounds,
        data_dirs.get(run.task),
      ): run
      for run in runs
    }
    finished = concurrent.futures.as_completed(futures)
    folders = {}
    try:
      for future in tqdm.tqdm(finished, total=len(runs), unit='run'):
        folders[futures[future]] = future.result()
    except BaseException:
      pool.shutdown(wait=False, cancel_futures=True)
      raise

  rows, evaluations = [], []
  for run in runs:
    row, accuracies = read(run, folders[run])
    rows.append(row)
    evaluations.extend(
      dict(dataclasses.asdict(run), round=number, test_accuracy=round(value, 5))
      for number, value in accuracies
    )
  os.makedirs(FLAGS.results_dir, exist_ok=True)
  for name, content in (('runs', rows), ('accuracy', evaluations)):
    path = os.path.join(FLAGS.results_dir, f'{name}.csv')
    with open(path, 'w', newline='') as file:
      writer = csv.DictWriter(file, list(content[0]), lineterminator='\n')
      writer.writeheader()
      writer.writerows(content)
  text = table(rows)
  with open(os.path.join(FLAGS.results_dir, 'table.md'), 'w') as file:
    file.write(text)
  plot(evaluations, os.path.join(FLAGS.results_dir, 'accuracy.png'))
  print(text)


if __name__ == '__main__':
  define_flags()
  app.run(main)
