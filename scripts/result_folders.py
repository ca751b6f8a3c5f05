"""Reading what runs and comparisons leave: their tables, without TensorFlow.

A run folder is what `scripts.train` writes (`metrics.csv`, `config.json`, and
`summary.json` once it is complete); a results folder is what `scripts.compare`
writes (`runs.csv`, `curves.csv`, `table.md`).
"""

from collections.abc import Mapping, Sequence
import dataclasses
import enum
import os
import re
from typing import Any, Optional, Union

from fedsteer_tff.programs import metrics_table
from fedsteer_tff.programs import run_config
from fedsteer_tff.programs import run_files
from scripts import compare_matrix

# The final accuracy is the mean of so many last evaluations.
_AVERAGED_EVALUATIONS = 10
_KEYS = ('setting', 'method')
# Kinds of what is used of a run's flags and summary, where they have it.
_FLAGS = {
  'task': str,
  'algorithm': str,
  'estimator': str,
  'seed': int,
  'rounds': int,
  'num_clients': int,
}
_SUMMARY = {
  'untrained_test_accuracy': float,
  'state_bytes': dict[str, int],
  'hashes': dict[str, str],
}


class FolderError(run_files.RunDirectoryError):
  """A folder is not what it should be; the message is one line."""


class Kind(enum.Enum):
  """What a folder holds.

  Attributes:
    RUN: A training run.
    RESULTS: The results of a comparison.
  """

  RUN = 'run'
  RESULTS = 'results'


@dataclasses.dataclass(frozen=True)
class Run:
  """A training run, complete or not.

  Attributes:
    path: Its folder.
    rows: The rows of `metrics.csv`, text by column, at least one.
    flags: The flags of `scripts.train`; empty if there is no `config.json`.
    versions: Versions of what it ran with, likewise.
    summary: `summary.json`; None while the run is not complete.
  """

  path: str
  rows: Sequence[Mapping[str, str]]
  flags: Mapping[str, Any]
  versions: Mapping[str, str]
  summary: Optional[Mapping[str, Any]]

  @property
  def name(self) -> str:
    """The folder's own name."""
    return os.path.basename(os.path.abspath(self.path))

  @property
  def untrained_accuracy(self) -> Optional[float]:
    """Test accuracy of the initial model, None if it is not known."""
    return (self.summary or {}).get('untrained_test_accuracy')


@dataclasses.dataclass(frozen=True)
class Results:
  """The results of a comparison.

  Attributes:
    path: Their folder.
    comparison: What was compared, as far as the tables tell: flags are empty.
    runs: The rows of `runs.csv`, at least one; numbers are numbers and empty
      cells None.
    curves: The rows of `curves.csv`, likewise.
    table: The text of `table.md`.
  """

  path: str
  comparison: compare_matrix.Comparison
  runs: Sequence[Mapping[str, Any]]
  curves: Sequence[Mapping[str, Any]]
  table: str

  @property
  def name(self) -> str:
    """The folder's own name."""
    return os.path.basename(os.path.abspath(self.path))


def kind(path: str) -> Kind:
  """Returns what a folder holds.

  Args:
    path: The folder.

  Raises:
    FolderError: If it is neither.
    RunDirectoryError: If a table of it is a folder.
  """
  for name, found in (('metrics.csv', Kind.RUN), ('runs.csv', Kind.RESULTS)):
    table_path = os.path.join(path, name)
    run_files.check_file(table_path)
    if os.path.isfile(table_path):
      return found
  raise FolderError(
    'FOLDER must hold a run (metrics.csv) or the results of a comparison'
    f' (runs.csv, curves.csv, table.md), found {_content(path)} in {path}'
  )


def read_run(path: str) -> Run:
  """Reads a run folder; the run may be in progress.

  Args:
    path: The folder.

  Raises:
    FolderError: If it holds no rounds.
    RunDirectoryError: If a file in it is damaged.
  """
  table_path = os.path.join(path, 'metrics.csv')
  rows = _rows(table_path, 'round')
  metrics_table.MetricsTable(table_path).rows()  # Checks that it is one.
  check_numbers(table_path, rows)
  config, summary = {}, None
  config_path = os.path.join(path, 'config.json')
  if os.path.exists(config_path):
    config = run_config.read(config_path)
    run_files.check_members(
      config_path, config['flags'], optional=_FLAGS, within='flags.'
    )
  summary_path = os.path.join(path, 'summary.json')
  if os.path.exists(summary_path):
    summary = run_files.read_object(summary_path, optional=_SUMMARY)
  return Run(
    path=path,
    rows=rows,
    flags=config.get('flags', {}),
    versions=config.get('versions') or {},
    summary=summary,
  )


def read_results(path: str) -> Results:
  """Reads a results folder.

  Args:
    path: The folder.

  Raises:
    FolderError: If a table is empty or has not the columns that it should.
    RunDirectoryError: If one is missing or damaged.
  """
  runs, curves = (
    [
      {column: _value(column, text) for column, text in row.items()}
      for row in _rows(os.path.join(path, name), *_KEYS, *more)
    ]
    for name, more in (
      ('runs.csv', ('seed', 'final_test_accuracy', 'state_bytes')),
      ('curves.csv', ('seed', 'round', 'test_accuracy', 'variance_ratio')),
    )
  )
  table = run_files.read_text(os.path.join(path, 'table.md'))
  return Results(path, _comparison(runs, table), runs, curves, table)


def evaluations(rows: Sequence[Mapping[str, str]]) -> list[tuple[int, float]]:
  """Returns (round, test accuracy) of the evaluated rows of `metrics.csv`.

  Args:
    rows: The rows.
  """
  return [
    (int(row['round']), float(row['test_accuracy']))
    for row in rows
    if row.get('test_accuracy')
  ]


def final_accuracies(rows: Sequence[Mapping[str, str]]) -> list[float]:
  """Returns the test accuracies whose mean is the final one: the last ten.

  Args:
    rows: The rows of `metrics.csv`.
  """
  return [a for _, a in evaluations(rows)[-_AVERAGED_EVALUATIONS:]]


def numbers(
  rows: Sequence[Mapping[str, str]], column: str
) -> tuple[list[int], list[float]]:
  """Returns the rounds in which a column has a number, and these numbers.

  What is not defined in a round, such as the loss if nobody took part, is NaN
  there, and left out.

  Args:
    rows: The rows of `metrics.csv`.
    column: A column; one that the table does not have is empty.
  """
  found = [
    (int(row['round']), float(row[column])) for row in rows if row.get(column)
  ]
  found = [(number, value) for number, value in found if value == value]
  return [number for number, _ in found], [value for _, value in found]


def check_numbers(path: str, rows: Sequence[Mapping[str, str]]) -> None:
  """Checks that cells of `metrics.csv` are numbers, but those of the cohort.

  Args:
    path: The file, for the message.
    rows: Its rows.

  Raises:
    FolderError: If one is not.
  """
  for row in rows:
    for column, text in row.items():
      try:
        if column != 'cohort':
          float(text or 0)
      except ValueError as e:
        raise FolderError(
          f'{path} must have numbers in the column {column}, found {text!r}'
        ) from e


def _comparison(runs, table: str) -> compare_matrix.Comparison:
  """What was compared, from the tables.

  A swept flag's column stands between the setting and the method.
  """
  columns = list(runs[0])
  between = columns[columns.index('setting') + 1 : columns.index('method')]
  sweep = between[0] if between else None
  targets = dict(
    re.findall(r'^### (.*)\n\n.*\| rounds to ([\d.]+) \|', table, re.M)
  )
  settings = {}
  for row in runs:
    base, swept = row['setting'], row[sweep] if sweep else None
    name = base if sweep is None else f'{base}, {sweep} {swept}'
    target = targets.get(name)
    settings[name] = compare_matrix.Setting(
      name=name,
      base=base,
      swept=swept,
      flags=(),
      target_accuracy=None if target is None else float(target),
    )
  reference = re.search(r'\| minus ([^|]*) \|', table)
  return compare_matrix.Comparison(
    settings=tuple(settings.values()),
    methods={row['method']: () for row in runs},
    seeds=tuple(dict.fromkeys(row['seed'] for row in runs)),
    reference=reference[1] if reference else '',
    sweep=sweep,
  )


def _value(column: str, text: str) -> Union[None, int, float, str]:
  """A cell's number, its text if it is a name or hash, or None."""
  if column in _KEYS or column.endswith('_hash'):
    return text
  if not text:
    return None
  for number in (int, float):
    try:
      return number(text)
    except ValueError:
      continue
  return text


def _rows(path: str, *columns: str) -> list[dict[str, str]]:
  """The complete rows of a CSV file that must have some columns."""
  text = run_files.read_text(path)
  # The last row of a run in progress may be cut short.
  rows = metrics_table.parse(text[: text.rfind('\n') + 1])
  if not rows:
    raise FolderError(f'{path} must hold at least one row, found none')
  missing = [column for column in columns if column not in rows[0]]
  if missing:
    raise FolderError(
      f'{path} must have the columns {", ".join(columns)}, found none named'
      f' {", ".join(missing)}'
    )
  return rows


def _content(path: str) -> str:
  """What is in a folder, for a message."""
  if not os.path.isdir(path):
    return 'no folder'
  names = sorted(os.listdir(path))
  return ', '.join(names[:5]) or 'nothing'
