"""Settings of every test process, and the end of what it leaves running."""

import os
import signal

import psutil

# TFF ends its executors by SIGINT and waits for them. Where the tests run in
# the background of a shell, SIGINT is ignored, and they would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# TensorFlow reads it when it is imported, which the tests do later.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


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
