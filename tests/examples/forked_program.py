"""Starts a program again and again without importing TensorFlow every time.

Every start is a process of its own, forked from one that has done the imports
and nothing else.
"""

from collections.abc import Sequence
import importlib
import multiprocessing
import os
import sys


def start(
  module: str, flags: Sequence[str], log_path
) -> multiprocessing.process.BaseProcess:
  """Starts `main` of a module in a process of its own.

  Args:
    module: The program's module.
    flags: Its command line, without the program's name.
    log_path: What the process prints is appended to this file.

  Returns:
    The process; its exit code is what `main` returns.
  """
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload([module])
  process = context.Process(
    target=_run, args=(module, list(flags), os.fspath(log_path))
  )
  process.start()
  return process


def _run(module: str, flags: list[str], log_path: str) -> None:
  log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
  os.dup2(log, 1)
  os.dup2(log, 2)
  sys.exit(importlib.import_module(module).main([module, *flags]))
