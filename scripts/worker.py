r"""Starts a TensorFlow Federated worker, which trains clients for others.

```
python -m scripts.worker --port=10000
```

`scripts.train --workers=HOST:10000,...` then trains on it. Ends with Ctrl-C or
SIGTERM, and with its terminal unless it was started by `nohup`. Whoever reaches
the port can run computations here: see docs/several_machines.md before the port
is open to a network.
"""

import asyncio
from collections.abc import Sequence
import ctypes
import importlib.metadata
import importlib.util
import os
import pathlib
import signal
import socket
import sys
from typing import Optional

from absl import app
from absl import flags

from fedsteer_tff.programs import interruption
from fedsteer_tff.programs import runtime_environment
from scripts import lasting_output
from scripts import tls_proxy

_EXIT_ENDED = 1
_EXIT_USAGE = 2
# A start takes two seconds, and many times that where processors are scarce;
# one that fails is noticed by its end.
_START_SECONDS = 180.0
_STOP_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1
_TLS_FLAGS = ('tls_certificate', 'tls_key', 'tls_ca')

app.define_help_flags()
_PORT = flags.DEFINE_integer(
  'port', 10000, 'Where to listen.', lower_bound=1, upper_bound=65535
)
_MAX_CONCURRENT = flags.DEFINE_integer(
  'max_concurrent_clients',
  0,
  'How many train at the same time; 0: all.',
  lower_bound=0,
)
_TLS_CERTIFICATE = flags.DEFINE_string(
  'tls_certificate', None, 'PEM file: this worker’s certificate.'
)
_TLS_KEY = flags.DEFINE_string('tls_key', None, 'PEM file: its key.')
_TLS_CA = flags.DEFINE_string(
  'tls_ca', None, 'PEM file: the authority that callers’ certificates are from.'
)
_PLAIN_PORT = flags.DEFINE_integer(
  'plain_port',
  None,
  'With TLS: where TFF listens, without TLS, behind it; a free port if not'
  ' given. Must be closed to the network.',
  lower_bound=1,
  upper_bound=65535,
)


class WorkerError(RuntimeError):
  """The worker cannot start; the message is one line."""


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  try:
    rest = flags.FLAGS(list(argv))
    if len(rest) > 1:
      raise WorkerError(
        f'arguments must be flags (--name=value), found {rest[1]}'
      )
    return asyncio.run(_run())
  except (WorkerError, flags.Error) as e:
    print(f'worker: error: {" ".join(str(e).split())}', file=sys.stderr)
    return _EXIT_USAGE


async def _run() -> int:
  """Runs TFF's worker until it ends or this process is asked to."""
  tls = _tls_context()
  binary, version = _find_binary()
  _check_free(_PORT.value)
  plain_port = _PORT.value
  if tls is not None:
    plain_port = _PLAIN_PORT.value or _free_port()
    _check_free(plain_port)

  stopped = asyncio.Event()
  signals = []
  loop = asyncio.get_running_loop()
  for number in interruption.stop_signals():
    loop.add_signal_handler(
      number, lambda n=number: (signals.append(n), stopped.set())
    )
  process = await _start_process(binary, plain_port)
  ended = asyncio.ensure_future(process.wait())
  waiting = asyncio.ensure_future(stopped.wait())
  try:
    if await _answers(plain_port, ended, waiting):
      if tls is not None:
        await tls_proxy.start(tls, _PORT.value, plain_port)
      print(_greeting(version, plain_port), flush=True)
    await asyncio.wait([ended, waiting], return_when=asyncio.FIRST_COMPLETED)
  finally:
    waiting.cancel()
    await _stop_process(process)
  if signals:
    return 128 + signals[0]
  print(
    f'worker: error: TFF’s worker must stay alive, found that its process'
    f' {process.pid} ended with code {process.returncode}',
    file=sys.stderr,
  )
  return _EXIT_ENDED


def _greeting(version: str, plain_port: int) -> str:
  text = f'TFF {version} worker {os.getpid()} is ready on port {_PORT.value}'
  if plain_port == _PORT.value:
    return f'{text}, without TLS: whoever reaches it can use it.'
  return (
    f'{text}, with TLS. Port {plain_port} behind it has none: close it to the'
    ' network.'
  )


def _tls_context():
  given = [name for name in _TLS_FLAGS if flags.FLAGS[name].value]
  if not given:
    if _PLAIN_PORT.value is not None:
      raise WorkerError('--plain_port must be given with --tls_... only')
    return None
  missing = [f'--{name}' for name in _TLS_FLAGS if name not in given]
  if missing:
    raise WorkerError(
      f'--{" and --".join(_TLS_FLAGS)} must be given together, found no'
      f' {" and no ".join(missing)}'
    )
  for name in _TLS_FLAGS:
    if not os.path.isfile(flags.FLAGS[name].value):
      raise WorkerError(
        f'--{name} must be a file, found none at {flags.FLAGS[name].value}'
      )
  try:
    return tls_proxy.server_context(
      _TLS_CERTIFICATE.value, _TLS_KEY.value, _TLS_CA.value
    )
  except OSError as e:
    raise WorkerError(
      f'--{" and --".join(_TLS_FLAGS)} must be PEM files that fit, found: {e}'
    ) from e


def _find_binary() -> tuple[str, str]:
  """Returns the path of TFF's worker and TFF's version.

  TFF itself is not imported: that takes seconds, and hundreds of megabytes for
  as long as the worker runs.

  Raises:
    WorkerError: If TFF, or its worker, is not installed.
  """
  spec = importlib.util.find_spec('tensorflow_federated')
  if spec is None or spec.origin is None:
    raise WorkerError('tensorflow_federated must be installed, found none')
  binary = pathlib.Path(spec.origin).parent / 'data' / 'worker_binary'
  if not binary.is_file():
    raise WorkerError(
      'tensorflow_federated must contain data/worker_binary, found none at'
      f' {binary}'
    )
  return str(binary), importlib.metadata.version('tensorflow-federated')


def _check_free(port: int) -> None:
  """Raises an error if a port is taken: gRPC would share it without a word."""
  try:
    with socket.socket() as s:
      s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      s.bind(('', port))
  except OSError as e:
    raise WorkerError(f'port {port} must be free, found: {e.strerror}') from e


def _free_port() -> int:
  with socket.socket() as s:
    s.bind(('', 0))
    return s.getsockname()[1]


async def _start_process(binary: str, port: int) -> asyncio.subprocess.Process:
  parent = os.getpid()
  libc = ctypes.CDLL(None)

  def end_with_parent():
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
      os._exit(1)

  return await asyncio.create_subprocess_exec(
    binary,
    f'--port={port}',
    f'--max_concurrent_computation_calls={_MAX_CONCURRENT.value}',
    stdin=asyncio.subprocess.DEVNULL,
    start_new_session=True,  # Ctrl-C reaches it through this process only.
    preexec_fn=end_with_parent,
    env={
      'TF_CPP_MIN_LOG_LEVEL': '2',
      **runtime_environment.runtime_environment(),
    },
  )


async def _answers(
  port: int, ended: asyncio.Future, waiting: asyncio.Future
) -> bool:
  """Waits until the port accepts connections; False if that is not to be."""
  deadline = asyncio.get_running_loop().time() + _START_SECONDS
  while not ended.done() and not waiting.done():
    try:
      _, writer = await asyncio.open_connection('127.0.0.1', port)
    except OSError:
      if asyncio.get_running_loop().time() > deadline:
        raise WorkerError(
          f'TFF’s worker must listen within {_START_SECONDS:.0f} s, found'
          f' nothing on port {port}'
        ) from None
      await asyncio.sleep(0.05)
    else:
      writer.close()
      return True
  return False


async def _stop_process(process: asyncio.subprocess.Process) -> Optional[int]:
  """Ends the process if it runs; returns its exit code."""
  if process.returncode is None:
    process.terminate()
    try:
      await asyncio.wait_for(process.wait(), _STOP_SECONDS)
    except asyncio.TimeoutError:
      process.kill()
  return await process.wait()


if __name__ == '__main__':
  sys.exit(lasting_output.run(main, sys.argv))
