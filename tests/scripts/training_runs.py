"""Starts `scripts.train`, and reads what it leaves."""

from collections.abc import Mapping, Sequence
import contextlib
import csv
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from absl import logging
from absl.testing import flagsaver
import numpy as np
import tensorflow as tf

from scripts import train
from tests import forked_program
from tests import source_tree

# What may differ between two runs with the same seed.
MEASURED = ('seconds', 'resident_mib')

_SECONDS = 400


class Outcome(NamedTuple):
  """The exit code of a run and what it printed."""

  code: int
  stdout: str
  stderr: str


def command(*flags: str) -> Outcome:
  """Runs the command as a user does.

  Args:
    *flags: Its command line, without the program's name.
  """
  done = subprocess.run(
    [sys.executable, '-m', 'scripts.train', *flags],
    cwd=source_tree.ROOT,
    capture_output=True,
    text=True,
    timeout=_SECONDS,
  )
  return Outcome(done.returncode, done.stdout, done.stderr)


def here(*flags: str) -> Outcome:
  """Runs its `main` in this process, which has TensorFlow imported already.

  Args:
    *flags: Its command line, without the program's name.
  """
  output, error = io.StringIO(), io.StringIO()
  verbosity = logging.get_verbosity()
  try:
    with flagsaver.flagsaver(), contextlib.redirect_stdout(output):
      with contextlib.redirect_stderr(error):
        code = train.main(['train', *flags])
  finally:
    logging.set_verbosity(verbosity)
  return Outcome(code, output.getvalue(), error.getvalue())


class Forked:
  """A run in a process of its own that can be killed."""

  def __init__(self, folder: pathlib.Path, *flags: str):
    """Starts it.

    Args:
      folder: Its output folder; what it prints is kept beside it.
      *flags: The rest of its command line.
    """
    self._folder = folder
    printed = pathlib.Path(tempfile.mkdtemp(prefix='out', dir=folder.parent))
    self._paths = printed / 'stdout', printed / 'stderr'
    for path in self._paths:
      path.touch()
    self.process = forked_program.start(
      train.__name__,
      [f'--output_dir={folder}', *flags],
      self._paths[0],
      error_path=self._paths[1],
    )

  @property
  def pid(self) -> int:
    """The id of the process, and of its group."""
    return self.process.pid

  def wait_for_rows(self, count: int) -> None:
    """Waits for as many rows of metrics."""
    path = self._folder / 'metrics.csv'
    self.wait_until(
      lambda: path.exists() and path.read_text('utf-8').count('\n') > count
    )

  def wait_until(self, condition) -> None:
    """Waits until a condition holds; the run must not end before."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
      assert self.process.is_alive(), self._printed()
      assert time.monotonic() < deadline, self._printed()
      time.sleep(0.01)

  def finish(self) -> Outcome:
    """Waits for its end."""
    self.process.join(_SECONDS)
    assert self.process.exitcode is not None, self._printed()
    return Outcome(self.process.exitcode, *self._printed())

  def _printed(self) -> Sequence[str]:
    return [path.read_text('utf-8') for path in self._paths]


def rows(folder: pathlib.Path) -> list[dict[str, str]]:
  """Returns the rows of a run's metrics."""
  with open(folder / 'metrics.csv', encoding='utf-8', newline='') as f:
    return list(csv.DictReader(f))


def determined(folder: pathlib.Path) -> list[dict[str, str]]:
  """Returns its rows without what is measured, which must be positive."""
  found = rows(folder)
  for row in found:
    for name in MEASURED:
      assert float(row.pop(name)) > 0
  return found


def hashes(folder: pathlib.Path) -> dict[str, str]:
  """Returns the hashes, which both files must have."""
  config = json.loads((folder / 'config.json').read_text())
  summary = json.loads((folder / 'summary.json').read_text())
  assert config['hashes'] == summary['hashes']
  return config['hashes']


def checkpoints(folder: pathlib.Path) -> list[int]:
  """Returns the rounds of the complete states, ascending."""
  names = os.listdir(folder / 'checkpoints')
  rounds = [name.rpartition('program_state_')[2] for name in names]
  return sorted(int(r) for r in rounds if r.isdigit())


def state(folder: pathlib.Path, round_num: int) -> Mapping[str, np.ndarray]:
  """Returns all numbers of the state after a round."""
  path = folder / f'checkpoints/program_state_{round_num}/variables/variables'
  reader = tf.train.load_checkpoint(str(path))
  return {
    name: reader.get_tensor(name)
    for name in reader.get_variable_to_shape_map()
    if name != '_CHECKPOINTABLE_OBJECT_GRAPH'
  }


def assert_same_state(
  folder: pathlib.Path, other: pathlib.Path, round_num: int
) -> None:
  """Asserts that two runs have the same state, to the bit."""
  actual, expected = state(folder, round_num), state(other, round_num)
  assert actual.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(actual[name], value, err_msg=name)


def snapshot(folder: pathlib.Path) -> Mapping[str, tuple[int, bytes]]:
  """Returns when each file of a folder was written, and its content."""
  return {
    str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
    for path in sorted(folder.rglob('*'))
    if path.is_file()
  }
