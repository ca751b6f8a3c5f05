"""Settings of every test process, and the end of what it leaves running."""

import collections
import gc
import os
import signal

import psutil

# TFF ends its executors by SIGINT and waits for them. Where the tests run in
# the background of a shell, SIGINT is ignored, and they would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# TensorFlow reads it when it is imported, which the tests do later.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


def pytest_collection_modifyitems(items):
  """Puts files with slow tests first.

  Where several processes take one file after another, the last ones are then
  short, so that no process ends long after the others.
  """
  slow = collections.Counter(
    item.path for item in items if item.get_closest_marker('slow')
  )
  items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish():
  """Leaves what was imported out of the search for garbage: it stays anyway.

  TensorFlow has a million of such objects, and its graphs are searched often.
  """
  gc.collect()
  gc.freeze()


def pytest_unconfigure():
  """Ends the executors that TensorFlow Federated started in this process.

  It leaves that to destructors, which need not run when Python ends: one
  executor process of a few hundred MB would then outlive every test process.
  """
  executors = [
    child
    for child in psutil.Process().children()
    if child.name().startswith('worker_binary')
  ]
  for executor in executors:
    executor.kill()
  psutil.wait_procs(executors, timeout=10)
