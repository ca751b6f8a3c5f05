"""Tests for the program that starts a worker."""

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from tests import source_tree
from tests import worker_processes


@pytest.fixture(name='worker')
def _worker(tmp_path):
  with worker_processes.workers(tmp_path, 1) as started:
    yield started[0]


def _run(*flags):
  done = subprocess.run(
    [sys.executable, '-m', 'scripts.worker', *flags],
    cwd=source_tree.ROOT,
    capture_output=True,
    text=True,
    timeout=60,
  )
  return done.returncode, done.stdout, done.stderr


def test_says_what_is_ready_and_how_open_it_is(worker):
  assert worker.output == (
    f'TFF 0.87.0 worker {worker.process.pid} is ready on port {worker.port},'
    ' without TLS: whoever reaches it can use it.\n'
  )
  # Beside TFF's own process, that is.
  assert psutil.Process(worker.process.pid).memory_info().rss < 100 * 2**20


@pytest.mark.parametrize(
  'number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
)
def test_a_signal_ends_all_of_it(worker, number):
  runtime = worker.runtime
  worker.process.send_signal(number)
  assert worker.process.wait(20) == 128 + number
  assert not runtime.is_running()


def test_tff_ends_with_a_killed_worker(worker):
  runtime = worker.runtime
  worker.process.kill()
  psutil.wait_procs([runtime], timeout=10)
  assert not runtime.is_running()


def test_a_worker_ends_with_its_tff_and_says_so(worker):
  runtime = worker.runtime
  runtime.kill()
  assert worker.process.wait(20) == 1
  assert f'process {runtime.pid} ended with code -9' in worker.output


def test_a_port_that_is_taken_is_an_error():
  with socket.socket() as s:
    s.bind(('', 0))
    s.listen()
    port = s.getsockname()[1]
    code, stdout, stderr = _run(f'--port={port}')
  assert (code, stdout) == (2, '')
  assert stderr == (
    f'worker: error: port {port} must be free, found: Address already in use\n'
  )


def test_files_that_are_no_certificates_are_an_error(tmp_path):
  path = tmp_path / 'empty.pem'
  path.write_text('')
  code, _, stderr = _run(
    f'--tls_certificate={path}', f'--tls_key={path}', f'--tls_ca={path}'
  )
  assert code == 2
  assert 'must be PEM files that fit, found: ' in stderr
  assert len(stderr.splitlines()) == 1


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    (['--port=0'], 'flag --port=0: 0 is not an integer in the range'),
    (
      ['--max_concurrent_clients=-1'],
      'flag --max_concurrent_clients=-1: -1 is not a non-negative',
    ),
    (['10000'], 'arguments must be flags (--name=value), found 10000'),
    (
      ['--tls_key=x'],
      '--tls_certificate and --tls_key and --tls_ca must be given together,'
      ' found no --tls_certificate and no --tls_ca',
    ),
    (
      [f'--tls_{name}={os.devnull}' for name in ('key', 'ca', 'certificate')],
      f'--tls_certificate must be a file, found none at {os.devnull}',
    ),
    (['--plain_port=1'], '--plain_port must be given with --tls_... only'),
  ],
)
def test_wrong_flags_are_one_line(flags, message):
  code, stdout, stderr = _run(*flags)
  assert (code, stdout) == (2, '')
  assert stderr.startswith(f'worker: error: {message}')
  assert len(stderr.splitlines()) == 1


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
