"""Starts programs again and again without importing TensorFlow every time.

Every start is a process of its own, forked from one that has done the imports
and nothing else.
"""

from collections.abc import Sequence
import importlib
import multiprocessing
import os
import sys
from typing import Optional

# What the programs import. All of it always, since the process that the others
# are forked from is started once.
_PRELOADED = (
  'examples.production_program',
  'scripts.reporting',
  'scripts.train_setup',
)


def start(
  module: str, flags: Sequence[str], log_path, *, error_path=None
) -> multiprocessing.process.BaseProcess:
  """Starts `main` of a module in a process of its own.

  It leads a process group, as a program does that is started in a terminal.

  Args:
    module: The program's module.
    flags: Its command line, without the program's name.
    log_path: What the process prints is appended to this file.
    error_path: What it prints to stderr is appended to this one; None for the
      same.

  Returns:
    The process; its exit code is what `main` returns.
  """
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(list(_PRELOADED))
  process = context.Process(
    target=_run,
    args=(
      module,
      list(flags),
      os.fspath(log_path),
      None if error_path is None else os.fspath(error_path),
    ),
    daemon=True,  # If a test fails, the program ends with the tests.
  )
  process.start()
  return process


def _run(
  module: str, flags: list[str], log_path: str, error_path: Optional[str]
) -> None:
  os.setsid()
  for number, path in ((1, log_path), (2, error_path or log_path)):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, number)
    os.close(file)
  sys.exit(importlib.import_module(module).main([module, *flags]))
