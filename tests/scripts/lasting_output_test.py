"""Programs whose output nobody can or wants to read any more."""

import errno
import io
import os
import signal
import subprocess
import sys
import time

import pytest

from scripts import lasting_output
from tests import source_tree
from tests.scripts import training_runs

FULL = '/dev/full'
# What a program is told to do; its result is the file.
PROGRAM = """
import sys
from scripts import lasting_output

def main(argv):
  print('one', flush=True)
  print('two', file=sys.stderr)
  print('three')
  with open(argv[1], 'w', encoding='utf-8') as file:
    file.write('result')
  if argv[2] == 'help':
    sys.exit()
  return int(argv[2])

sys.exit(lasting_output.run(main, sys.argv, prints_result=argv3))
"""
LOST = 'error: stdout must be open for what is printed, found '


class _Failing(io.StringIO):
  """Takes some writes, and no more."""

  def __init__(self, takes, error):
    super().__init__()
    self._takes = takes
    self._error = error
    self.attempts = 0

  def write(self, text):
    self.attempts += 1
    if self.attempts > self._takes:
      raise self._error
    return super().write(text)


@pytest.mark.parametrize(
  'error',
  [
    BrokenPipeError(errno.EPIPE, 'Broken pipe'),
    OSError(errno.ENOSPC, 'No space left on device'),
    OSError(errno.EIO, 'Input/output error'),
    ValueError('I/O operation on closed file'),
  ],
)
def test_after_the_first_error_all_is_dropped(error):
  inner = _Failing(2, error)
  stream = lasting_output.LastingStream(inner)
  stream.writelines(['a', 'b'])
  assert stream.error is None
  assert [stream.write(text) for text in ('cd', 'e')] == [2, 1]
  stream.flush()
  assert stream.error is error
  assert inner.getvalue() == 'ab'
  assert inner.attempts == 3  # It is not tried again.
  assert not stream.isatty()


def test_a_flush_may_be_what_fails():
  with open(FULL, 'w', encoding='utf-8') as inner:
    stream = lasting_output.LastingStream(inner)
    stream.write('kept in Python')
    assert stream.error is None
    stream.flush()
    assert stream.error.errno == errno.ENOSPC
    stream.flush()
  # Closing it raised nothing: its descriptor leads nowhere by then.


def test_a_closed_stream_is_one_that_fails():
  inner = io.TextIOWrapper(io.BytesIO(), encoding='utf-8')
  inner.close()
  stream = lasting_output.LastingStream(inner)
  assert not stream.isatty()
  stream.flush()
  assert isinstance(stream.error, ValueError)


def test_no_stream_drops_all_and_knows_of_it():
  stream = lasting_output.LastingStream(None)
  assert stream.write('') == 0
  stream.flush()
  assert stream.error is None
  assert stream.write('abc') == 3
  assert str(stream.error) == 'a closed stream'
  assert not stream.isatty()


def test_letters_that_the_encoding_lacks_are_escaped():
  inner = io.TextIOWrapper(io.BytesIO(), encoding='ascii', write_through=True)
  stream = lasting_output.LastingStream(inner)
  stream.write('0.9 ± 0.1')
  stream.write('!')
  assert inner.buffer.getvalue() == b'0.9 \\xb1 0.1!'
  assert stream.error is None


def test_all_else_is_the_streams():
  inner = io.TextIOWrapper(io.BytesIO(), encoding='latin-1')
  stream = lasting_output.LastingStream(inner)
  assert stream.encoding == 'latin-1'
  assert stream.buffer is inner.buffer
  with pytest.raises(AttributeError):
    _ = stream.nothing


def _shell(redirection, *arguments):
  """Runs Python in a shell; returns code and stderr."""
  done = subprocess.run(
    # The arguments are of the shell, which needs no quotes for them.
    ['bash', '-o', 'pipefail', '-c', f'"$@" {redirection}', 'bash']
    + [sys.executable, *map(str, arguments)],
    cwd=source_tree.ROOT,
    capture_output=True,
    text=True,
    timeout=400,
  )
  return done.returncode, done.stderr


def _program(redirection, *arguments, prints_result=False):
  """Runs PROGRAM."""
  text = PROGRAM.replace('argv3', str(prints_result))
  return _shell(redirection, '-c', text, *arguments)


@pytest.mark.parametrize('code', [0, 3])
@pytest.mark.parametrize(
  ('redirection', 'stderr'),
  [
    (f'>{FULL}', 'two\n'),
    (f'>{FULL} 2>{FULL}', ''),
    ('>&-', 'two\n'),
    ('>&- 2>&-', ''),
    ('<&- >&- 2>&-', ''),
    ('2>&1 | true', ''),
    ('| head -n 0', 'two\n'),
  ],
)
def test_a_program_with_files_keeps_its_exit_code(
  redirection, stderr, code, tmp_path
):
  path = tmp_path / 'result'
  assert _program(redirection, path, code) == (code, stderr)
  # Not what is printed: its descriptor is none that was free.
  assert path.read_text() == 'result'


@pytest.mark.parametrize('what', ['help', '0'])
@pytest.mark.parametrize(
  ('redirection', 'code', 'stderr'),
  [
    ('', 0, 'two\n'),
    ('| cat', 0, 'two\n'),
    ('| (exec <&-; sleep 0.5)', 1, 'two\n'),
    (f'>{FULL}', 1, f'two\n{LOST}[Errno 28] No space left on device\n'),
    ('>&-', 1, f'two\n{LOST}a closed stream\n'),
    ('>&- 2>&-', 1, ''),
  ],
)
def test_a_result_that_was_only_printed_must_be(
  what, redirection, code, stderr, tmp_path
):
  assert _program(
    redirection, tmp_path / 'result', what, prints_result=True
  ) == (code, stderr)


def test_another_exit_code_is_not_replaced(tmp_path):
  assert _program(f'>{FULL}', tmp_path / 'result', 3, prints_result=True) == (
    3,
    'two\n',
  )


@pytest.mark.parametrize(
  'file',
  [
    file
    for file in source_tree.python_files()
    if file.parts[0] == 'scripts' and source_tree.can_be_run(file)
  ],
  ids=str,
)
def test_every_program_runs_this_way(file):
  text = (source_tree.ROOT / file).read_text(encoding='utf-8')
  assert 'sys.exit(lasting_output.run(main, sys.argv' in text


@pytest.mark.parametrize(
  ('program', 'redirection', 'code', 'message'),
  [
    ('compare', '| (exec <&-; sleep 2)', 1, ''),
    ('plot', f'>{FULL}', 1, f'{LOST}[Errno 28] No space left on device\n'),
  ],
)
def test_help_that_nobody_gets_ends_quietly(
  program, redirection, code, message
):
  arguments = ['-m', f'scripts.{program}', '--help']
  assert _shell(redirection, *arguments) == (code, message)


# Real runs.

ROUNDS = 2
FLAGS = (
  '--task=digits',
  '--algorithm=fedavg',
  '--num_clients=10',
  '--examples_per_client=5',
  '--participation_rate=0.5',
  '--local_epochs=1',
  f'--rounds={ROUNDS}',
)


def _check_complete(folder):
  assert len(training_runs.rows(folder)) == ROUNDS
  assert training_runs.checkpoints(folder)[-1] == ROUNDS
  training_runs.hashes(folder)  # Of both files.
  assert (folder / 'accuracy.png').stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize(
  'redirection', ['2>&1 | true', f'>{FULL} 2>&1', '<&- >&- 2>&-']
)
def test_a_training_that_nobody_listens_to_is_complete(redirection, tmp_path):
  folder = tmp_path / 'run'
  arguments = ['-m', 'scripts.train', f'--output_dir={folder}', *FLAGS]
  assert _shell(redirection, *arguments) == (0, '')
  _check_complete(folder)


def _start_in_terminal(folder, *, ignores_hangup):
  """Starts a training in a terminal of its own; returns it and the terminal."""
  terminal, end = os.openpty()

  def enter():
    os.setsid()
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # Becomes the controlling one.
    signal.signal(
      signal.SIGHUP, signal.SIG_IGN if ignores_hangup else signal.SIG_DFL
    )

  process = subprocess.Popen(
    [
      sys.executable,
      '-m',
      'scripts.train',
      f'--output_dir={folder}',
      *FLAGS[:-1],
      f'--rounds={200 if not ignores_hangup else ROUNDS}',
    ],
    cwd=source_tree.ROOT,
    stdin=end,
    stdout=end,
    stderr=end,
    preexec_fn=enter,
  )
  os.close(end)
  return process, terminal


@pytest.mark.slow
@pytest.mark.parametrize('ignores_hangup', [False, True])
def test_a_terminal_that_goes_away_loses_no_round(ignores_hangup, tmp_path):
  folder = tmp_path / 'run'
  process, terminal = _start_in_terminal(folder, ignores_hangup=ignores_hangup)
  try:
    deadline = time.monotonic() + 400
    # When there is a round to lose.
    while not (folder / 'metrics.csv').exists():
      assert process.poll() is None
      assert time.monotonic() < deadline
      time.sleep(0.02)
    os.close(terminal)
    code = process.wait(400)
  finally:
    process.kill()
    process.wait()
  if ignores_hangup:
    assert code == 0
    _check_complete(folder)
  else:
    assert code == 128 + signal.SIGHUP
    done = len(training_runs.rows(folder))
    assert 1 <= done < 200
    assert training_runs.checkpoints(folder)[-1] == done
    assert not (folder / 'summary.json').exists()


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
