"""Rows of the table of bad inputs, and what each has to do."""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import pathlib
import re
import traceback
from typing import Any

import pytest

from tests import source_tree

# Where an error may be raised: not inside of what the package is built on.
_OWN_FOLDERS = ('fedsteer_tff', 'tasks', 'scripts')


@dataclasses.dataclass(frozen=True)
class Row:
  """One bad input.

  Attributes:
    what: The public name that gets it, as in `subspace.named_rule`, or a
      program and its flag.
    case: What is bad.
    call: Does it; gets an empty folder.
    error: The exact type of the error.
    message: The beginning of the message. `{folder}` is the folder, and ` ... `
      stands for any text.
  """

  what: str
  case: str
  call: Callable[[pathlib.Path], Any]
  error: type[BaseException]
  message: str

  @property
  def id(self) -> str:
    """The name of the test."""
    return f'{self.what}: {self.case}'


def table(
  what: str,
  function: Callable[..., Any],
  good: Mapping[str, Any],
  *cases: tuple[str, Mapping[str, Any], type[BaseException], str],
) -> Iterator[Row]:
  """Yields rows that differ from good arguments in what is bad.

  Args:
    what: The public name.
    function: What has that name.
    good: Arguments that it accepts.
    *cases: What is bad, in words and as arguments, the error and its message.
  """
  for case, bad, error, message in cases:

    def call(_, bad=bad):
      return function(**{**good, **bad})

    yield Row(what, case, call, error, message)


def check(row: Row, folder: pathlib.Path) -> None:
  """Asserts that a row is refused as it says, by code of this repository."""
  with pytest.raises(row.error) as caught:
    row.call(folder)
  assert type(caught.value) is row.error, caught.value
  first, *others = str(caught.value).splitlines()
  assert not others, caught.value
  assert matches(row.message.replace('{folder}', str(folder)), first), first
  raised_in = pathlib.Path(traceback.extract_tb(caught.tb)[-1].filename)
  own = [source_tree.ROOT / name for name in (*_OWN_FOLDERS, 'tests/bad_input')]
  assert any(path in raised_in.parents for path in own), raised_in


def matches(message: str, text: str) -> bool:
  """Whether a text begins as a message says, see `Row`."""
  parts = (re.escape(part) for part in message.split(' ... '))
  return re.match(' (?:.* )?'.join(parts), text) is not None
