"""Running what is missing of a comparison, and reading what there is.

No TensorFlow here: a comparison that is complete is tabulated at once.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import fcntl
import os
import subprocess
import sys
import time
from typing import Any, Optional

from fedsteer_tff.programs import interruption
from fedsteer_tff.programs import metrics_table
from fedsteer_tff.programs import run_config
from fedsteer_tff.programs import run_files
from scripts import compare_matrix
from scripts import train_flags

_POLL_SECONDS = 0.2
# What an error message shows of a log.
_LOG_LINES = 15
# Runs that are not comparable differ in one of these.
_SHARED = {
  'partition': 'partition',
  'participation': 'participation schedule',
  'initial_weights': 'initial weights',
}

# What a table needs of a summary.
_SUMMARY = {
  'rounds': int,
  'final_test_accuracy': float,
  'untrained_test_accuracy': float,
  'state_bytes': dict[str, int],
  'seconds_per_round_median': float,
  'peak_resident_mib': float,
}

# Runs in the child before the program: ask Linux to send it SIGTERM when its
# parent ends (1 is PR_SET_PDEATHSIG), so that it saves its state even if this
# command is killed, then become the program. Elsewhere the request fails
# quietly.
_LAUNCHER = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
try:
  ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))
except (OSError, AttributeError):
  pass
if os.getppid() != parent:
  sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclasses.dataclass(frozen=True)
class Result:
  """A finished run.

  Attributes:
    run: The run.
    summary: Its `summary.json`.
    rows: The rows of its `metrics.csv`.
  """

  run: compare_matrix.Run
  summary: Mapping[str, Any]
  rows: Sequence[Mapping[str, str]]

  @property
  def hashes(self) -> Mapping[str, str]:
    """What it shares with other runs; empty if that is unknown."""
    return self.summary.get('hashes') or {}

  @property
  def evaluations(self) -> list[tuple[int, float]]:
    """The rounds that were evaluated, with the test accuracies."""
    return [
      (int(row['round']), float(row['test_accuracy']))
      for row in self.rows
      if row.get('test_accuracy')
    ]

  @property
  def rounds_to_target(self) -> Optional[int]:
    """The first evaluated round with the target accuracy, or None."""
    target = self.run.setting.target_accuracy
    if target is None:
      return None
    return next(
      (number for number, value in self.evaluations if value >= target), None
    )


def log_path(run: compare_matrix.Run) -> str:
  """Returns the file that a run's output goes to."""
  return f'{run.folder}.log'


def check_paths(run: compare_matrix.Run) -> None:
  """Checks that a run can be made, or read, as far as its paths go.

  Args:
    run: The run.

  Raises:
    RunDirectoryError: If a folder is in the place of a file, or the other way
      round.
  """
  run_files.check_folder(run.folder)
  run_files.check_file(log_path(run))
  for name in ('config.json', 'metrics.csv', 'summary.json'):
    run_files.check_file(os.path.join(run.folder, name))


def rounds_done(run: compare_matrix.Run) -> int:
  """Returns how many rounds of a run are in its `metrics.csv`."""
  try:
    with open(os.path.join(run.folder, 'metrics.csv'), 'rb') as file:
      return max(file.read().count(b'\n') - 1, 0)
  except FileNotFoundError:
    return 0


def is_finished(run: compare_matrix.Run) -> bool:
  """Returns whether a run has all its rounds."""
  path = os.path.join(run.folder, 'summary.json')
  if not os.path.exists(path):
    return False
  return run_files.read_object(path).get('rounds') == run.rounds


def changed_flags(run: compare_matrix.Run) -> list[str]:
  """Returns the flags in which the run that is kept differs from the wanted.

  The same rules as when `scripts.train` resumes, so that runs are refused
  before others are made for hours.

  Args:
    run: The wanted run.
  """
  path = os.path.join(run.folder, 'config.json')
  if not os.path.exists(path):
    return []
  stored, wanted = run_config.read(path)['flags'], run.config
  defaults = train_flags.defaults()
  changed = []
  entries = run_config.changed_entries(stored, wanted, defaults)
  for name, (old, new) in entries.items():
    if name in train_flags.MAY_CHANGE:
      continue
    if name == train_flags.MAY_GROW and isinstance(old, int) and old < new:
      continue
    origin = run_config.origin_of_change(name, stored, wanted, defaults)
    changed.append(f'--{name}: {old} in the run, {new} wanted{origin}')
  return changed


def read(run: compare_matrix.Run) -> Result:
  """Returns a finished run.

  Args:
    run: The run.

  Raises:
    ConfigError: If its table of rounds is missing.
    RunDirectoryError: If what it left is damaged.
  """
  path = os.path.join(run.folder, 'metrics.csv')
  if not os.path.exists(path):
    raise compare_matrix.ConfigError(
      f'{run.folder} must have metrics.csv beside summary.json, found none'
    )
  rows = metrics_table.MetricsTable(path).rows()
  summary_path = os.path.join(run.folder, 'summary.json')
  summary = run_files.read_object(
    summary_path, _SUMMARY, optional={'hashes': dict[str, str]}
  )
  run_files.check_members(
    summary_path, summary['state_bytes'], {'total': int}, within='state_bytes.'
  )
  return Result(run, summary, rows)


def unequal_conditions(results: Sequence[Result]) -> list[str]:
  """Returns what runs of one setting and seed do not share but should.

  Args:
    results: Finished runs. Hashes that a run lacks are not compared, nor is
      the participation of methods that decide on it themselves.

  Returns:
    A line for each setting, seed and kind of difference.
  """
  found = {}
  for result in results:
    run = result.run
    for kind, value in result.hashes.items():
      if kind in _SHARED and not (
        kind == 'participation' and run.own_participation
      ):
        key = (run.setting.name, run.seed, kind)
        found.setdefault(key, {}).setdefault(value, []).append(run.method)
  return [
    f'{setting}, seed {seed}: the {_SHARED[kind]} must be the same for all'
    ' methods, found '
    + '; '.join(f'{value} for {", ".join(m)}' for value, m in by_hash.items())
    for (setting, seed, kind), by_hash in found.items()
    if len(by_hash) > 1
  ]


def execute(
  runs: Sequence[compare_matrix.Run],
  *,
  jobs: int,
  stop: interruption.Interruption,
  progress: Any,
) -> dict[compare_matrix.Run, str]:
  """Makes runs, some at a time, until all have ended or a stop is requested.

  Must be called from the main thread: the kernel ends the children with the
  thread that made them.

  Args:
    runs: The runs, none of them finished.
    jobs: How many at a time, >= 1.
    stop: Asked all the time. The children then finish their rounds, and are
      killed if this is interrupted once more.
    progress: Told by `update(active, waiting)` what is going on, by
      `ended(run, error)` of ends, and by `stopping()` of the stop.

  Returns:
    Of each run that failed, why. A failure does not keep others from running.
  """
  waiting, active, failures = list(runs), {}, {}
  told_to_stop = False
  try:
    while active or (waiting and not stop.requested):
      if stop.requested and not told_to_stop:
        told_to_stop = True
        progress.stopping()
        for child in active.values():
          child.terminate()
      elif not stop.requested:
        # A run of a command that was killed may be about to end.
        free = [run for run in waiting if not _is_in_use(run)]
        for run in free[: jobs - len(active)]:
          waiting.remove(run)
          if is_finished(run):  # By who was using it.
            progress.ended(run, None)
          else:
            active[run] = _Child(run)
      progress.update(list(active), waiting)
      for run, child in list(active.items()):
        code = child.poll()
        if code is None:
          continue
        del active[run]
        if code == 0 and is_finished(run):
          progress.ended(run, None)
        elif not stop.requested:
          failures[run] = child.failure(code)
          progress.ended(run, failures[run])
      time.sleep(_POLL_SECONDS)
  finally:
    for child in active.values():
      child.kill()
  return failures


class _Child:
  """A process that makes one run, apart from this command's terminal."""

  def __init__(self, run: compare_matrix.Run):
    """Starts it."""
    os.makedirs(os.path.dirname(run.folder), exist_ok=True)
    self._log = log_path(run)
    # A file, not a pipe: what a run leaves behind could keep a pipe open.
    with open(self._log, 'ab') as log:
      self._log_start = log.tell()
      self._process = subprocess.Popen(
        [
          sys.executable,
          '-I',
          '-S',
          '-c',
          _LAUNCHER,
          str(os.getpid()),
          sys.executable,
          '-m',
          'scripts.train',
          *run.arguments,
        ],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        # Ctrl-C must reach it once, from here, not from the terminal too.
        start_new_session=True,
      )

  def poll(self) -> Optional[int]:
    """Returns the exit code, None while it runs."""
    return self._process.poll()

  def terminate(self) -> None:
    """Asks it to end after the round in progress."""
    self._process.terminate()

  def kill(self) -> None:
    """Ends it at once."""
    self._process.kill()
    self._process.wait()

  def failure(self, code: int) -> str:
    """Returns why it ended: the exit code and the end of its output."""
    with open(self._log, 'rb') as log:
      log.seek(self._log_start)
      text = log.read().decode('utf-8', errors='replace')
    lines = text.replace('\r', '\n').splitlines()
    tail = '\n'.join(f'    {line}' for line in lines[-_LOG_LINES:])
    return f'exit code {code}; the end of {self._log}:\n{tail}'


def _is_in_use(run: compare_matrix.Run) -> bool:
  """Returns whether a process is training in the run's folder."""
  try:
    with open(os.path.join(run.folder, '.lock'), 'rb') as lock:
      fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
  except FileNotFoundError:
    return False
  except BlockingIOError:
    return True
  return False
