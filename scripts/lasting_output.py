"""Programs that outlive whoever reads what they print.

A run takes hours, and its results are files: that `head` has read enough, a
terminal is gone or the disk of a log is full must neither end it nor change its
exit code. So the first write that fails is the last one, without a word. Only
if what is printed is all there is (`--help`) is its loss an error.
"""

from collections.abc import Callable, Iterable, Sequence
import contextlib
import os
import sys
from typing import Any, Optional, TextIO

_EXIT_LOST = 1
_DESCRIPTORS = (0, 1, 2)


class LastingStream:
  """A text stream that drops everything after the first error.

  For all that is not about writing it is the stream that it is made of.
  """

  def __init__(self, stream: Optional[TextIO]):
    """Writes nothing.

    Args:
      stream: What to write to; None, what Python has for a closed one, for
        dropping everything.
    """
    self._is_missing = stream is None
    if stream is None:
      stream = open(os.devnull, 'w', encoding='utf-8')
    self._stream = stream
    self._error: Optional[Exception] = None

  @property
  def error(self) -> Optional[Exception]:
    """Why something was dropped; None if nothing was."""
    return self._error

  def write(self, text: str) -> int:
    """Writes, or drops.

    Args:
      text: What its encoding lacks is written as an escape sequence.

    Returns:
      The text's length.
    """
    if self._is_missing and text:
      self._error = self._error or ValueError('a closed stream')
    if self._error is None:
      try:
        try:
          self._stream.write(text)
        except UnicodeEncodeError as e:
          plain = text.encode(e.encoding, 'backslashreplace')
          self._stream.write(plain.decode(e.encoding))
      except (OSError, ValueError) as e:
        self._drop(e)
    return len(text)

  def writelines(self, lines: Iterable[str]) -> None:
    """Writes several, or drops them."""
    for line in lines:
      self.write(line)

  def flush(self) -> None:
    """Makes sure that what was written is out, or drops it."""
    if self._error is None:
      try:
        self._stream.flush()
      except (OSError, ValueError) as e:
        self._drop(e)

  def isatty(self) -> bool:
    """Returns whether somebody may be looking."""
    try:
      return self._error is None and self._stream.isatty()
    except (OSError, ValueError):
      return False

  def __getattr__(self, name: str) -> Any:
    return getattr(self._stream, name)

  def _drop(self, error: Exception) -> None:
    self._error = error
    # Also what Python still holds and would try to write at the end, and what
    # libraries write without Python. A closed stream has no descriptor.
    with contextlib.suppress(OSError, ValueError):
      _point_to_nothing(self._stream.fileno())


def run(
  main: Callable[[Sequence[str]], int],
  argv: Sequence[str],
  *,
  prints_result: bool = False,
) -> int:
  """Runs a program whose results do not depend on who reads its output.

  Args:
    main: Takes the command line, and returns the exit code.
    argv: The command line.
    prints_result: Whether what it prints on stdout is in no file.

  Returns:
    The program's exit code. 1, instead of 0, if the result was to be printed
    and could not be; with a line on stderr, but for a reader that has read
    enough.

  Raises:
    SystemExit: If the program does.
  """
  _open_descriptors()
  stdout, stderr = LastingStream(sys.stdout), LastingStream(sys.stderr)
  sys.stdout, sys.stderr = stdout, stderr
  try:
    code = main(argv)
  except SystemExit as e:
    if e.code or not _is_lost(
      stdout
    ):  # Without an error: it was asked for help.
      raise
    return _EXIT_LOST
  if prints_result and code == 0 and _is_lost(stdout):
    return _EXIT_LOST
  return code


def _is_lost(stdout: LastingStream) -> bool:
  """Returns whether something was not printed, and says so."""
  stdout.flush()
  if stdout.error is None:
    return False
  if not isinstance(stdout.error, BrokenPipeError):
    print(
      f'error: stdout must be open for what is printed, found {stdout.error}',
      file=sys.stderr,
    )
  return True


def _open_descriptors() -> None:
  """Opens those of stdin, stdout and stderr that are closed.

  Else the next file that is opened gets the number, and what libraries print is
  in a checkpoint.
  """
  for number in _DESCRIPTORS:
    try:
      os.fstat(number)
    except OSError:
      _point_to_nothing(number)


def _point_to_nothing(number: int) -> None:
  nothing = os.open(os.devnull, os.O_RDWR)
  if nothing != number:
    os.dup2(nothing, number)
    os.close(nothing)
  else:
    os.set_inheritable(number, True)
