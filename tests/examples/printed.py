"""Runs examples that print what comes of them, and reads it."""

from collections.abc import Sequence
import contextlib
import io
import re
from typing import NamedTuple


class Printed(NamedTuple):
  """What an example left: its exit code and its output."""

  code: int
  lines: Sequence[str]
  error: str

  def accuracy(self, start: str) -> float:
    """Returns the test accuracy in the line that begins so."""
    (line,) = [line for line in self.lines if line.startswith(start)]
    return float(re.search(r'test accuracy (\d\.\d{3})$', line)[1])


def run(module, *arguments: str) -> Printed:
  """Runs an example's `main` in this process.

  Args:
    module: The example.
    *arguments: Its command line, without the program's name.
  """
  output, error = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
    code = module.main([module.__name__, *arguments])
  return Printed(code, output.getvalue().splitlines(), error.getvalue())
