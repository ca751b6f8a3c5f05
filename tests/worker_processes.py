"""Starts workers as `scripts.worker` does on other machines, for tests."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

import psutil

from tests import source_tree

_START_SECONDS = 120


def free_port() -> int:
  """Returns a port that nobody listens on."""
  with socket.socket() as s:
    s.bind(('', 0))
    return s.getsockname()[1]


class Worker:
  """One worker process and its address; `end` must be called."""

  def __init__(self, folder: pathlib.Path, port: int, *flags: str):
    """Starts the worker and waits until it says that it is ready."""
    self.port = port
    self.address = f'localhost:{port}'
    self._log = folder / f'worker_{port}.log'
    with open(self._log, 'ab') as log:
      begin = log.tell()
      self._process = subprocess.Popen(
        [sys.executable, '-m', 'scripts.worker', f'--port={port}', *flags],
        cwd=source_tree.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
      )
    deadline = time.monotonic() + _START_SECONDS
    while 'is ready' not in self.output[begin:]:
      if self._process.poll() is not None or time.monotonic() > deadline:
        self.end()
        raise AssertionError(f'the worker did not start: {self.output}')
      time.sleep(0.05)

  @property
  def output(self) -> str:
    """What the workers on this port have printed."""
    return self._log.read_text(encoding='utf-8')

  @property
  def process(self) -> subprocess.Popen:
    """The process of `scripts.worker`."""
    return self._process

  @property
  def runtime(self) -> psutil.Process:
    """TFF's process in it."""
    (child,) = psutil.Process(self._process.pid).children()
    return child

  def cpu_seconds(self) -> float:
    """How long TFF has computed."""
    return self.runtime.cpu_times().user

  def end(self) -> None:
    """Kills the worker as a power cut would, and waits."""
    children = []
    with contextlib.suppress(psutil.NoSuchProcess):
      children = psutil.Process(self._process.pid).children()
    self._process.kill()
    self._process.wait()
    psutil.wait_procs(children, timeout=10)


@contextlib.contextmanager
def workers(
  folder: pathlib.Path, number: int, *flags: str
) -> Iterator[list[Worker]]:
  """Runs workers inside the block; those in the list at its end are ended.

  Args:
    folder: Where their output goes.
    number: How many.
    *flags: Given to each.

  Yields:
    The workers. One that was ended may be replaced in the list.
  """
  os.makedirs(folder, exist_ok=True)
  started = []
  try:
    for _ in range(number):
      started.append(Worker(folder, free_port(), *flags))
    yield started
  finally:
    for worker in started:
      worker.end()
