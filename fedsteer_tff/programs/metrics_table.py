"""A CSV file with one row a round that survives a killed process."""

from collections.abc import Collection, Mapping, Sequence
import csv
import io
import os
import re
from typing import Any, Optional, Union

from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import files
from fedsteer_tff.programs import run_files

Cell = Union[int, float, str]


def _format(value: Optional[Cell]) -> str:
  # repr of a Python float is its shortest exact decimal form, so that equal
  # text means equal bits.
  if value is None:
    return ''
  return repr(value) if isinstance(value, float) else str(value)


def _line(cells: Sequence[str]) -> str:
  buffer = io.StringIO()
  csv.writer(buffer, lineterminator='\n').writerow(cells)
  return buffer.getvalue()


def parse(text: str, *, strict: bool = False) -> list[dict[str, str]]:
  """Returns the rows of a CSV file whose cells may be of any length.

  Args:
    text: The file's content.
    strict: Whether what is no good CSV is an error.

  Returns:
    They, text by column.

  Raises:
    csv.Error: If it is no good CSV.
  """
  # A cell holds the ids of a cohort; Python allows 131,072 characters.
  limit = csv.field_size_limit(len(text) + 1)
  try:
    return list(csv.DictReader(io.StringIO(text), strict=strict))
  finally:
    csv.field_size_limit(limit)


def _is_round(row: Mapping[Any, Any]) -> bool:
  """Returns whether a row has the table's columns, and a round's number."""
  # A cell too many has no name, one too few no value.
  if None in row or None in row.values():
    return False
  return re.fullmatch('[0-9]+', row.get('round', ''), re.ASCII) is not None


def _check_columns(
  path: str, found: Sequence[str], expected: Collection[str]
) -> None:
  """Checks the columns of a table.

  Args:
    path: Its file, for the message.
    found: Its columns.
    expected: Those of further rows.

  Raises:
    RunDirectoryError: If they are others, or one is there twice.
  """
  twice = [name for name in dict.fromkeys(found) if found.count(name) > 1]
  if twice:
    raise run_files.RunDirectoryError(
      f'{path} must have every column once, found several named'
      f' {", ".join(twice)}'
    )
  missing = [name for name in expected if name not in found]
  unknown = [name for name in found if name not in expected]
  if missing:
    raise run_files.RunDirectoryError(
      f'{path} must have the columns of the rounds to come, with'
      f' {", ".join(missing)}, found {", ".join(unknown) or "none"} instead'
    )
  if unknown:
    raise run_files.RunDirectoryError(
      f'{path} must have no columns but those of the rounds to come, found'
      f' {", ".join(unknown)}'
    )


class MetricsTable:
  """Rows keyed by the round, appended as they come.

  Every row is handed to the operating system before `append` returns, so that
  a process that is killed leaves all rows it appended, the last one perhaps
  cut short. `truncate` drops what came after the state that a resumed run
  starts from.
  """

  def __init__(self, path: files.PathLike):
    """Does not touch the file system.

    Args:
      path: The CSV file; need not exist.

    Raises:
      TypeError: If it is no path.
    """
    self._path = arguments.path_text('path', path)
    self._columns: Optional[list[str]] = None

  def rows(self) -> list[dict[str, str]]:
    """Reads the complete rows.

    Returns:
      They, oldest first; none if there is no file.

    Raises:
      RunDirectoryError: If the file cannot be read or is no table of rounds.
    """
    if not os.path.exists(self._path):
      return []
    text = run_files.read_text(self._path)
    # A row whose end is missing was cut short by the end of a process.
    text = text[: text.rfind('\n') + 1]
    try:
      rows = parse(text, strict=True)
      wrong = [row for row in rows if not _is_round(row)]
    except csv.Error as e:
      raise run_files.RunDirectoryError(
        f'{self._path} must be a table with one row for each round, found: {e}'
      ) from e
    if wrong and 'round' not in rows[0]:
      raise run_files.RunDirectoryError(
        f'{self._path} must be a table with one row for each round, found no'
        ' column named round'
      )
    if wrong:
      raise run_files.RunDirectoryError(
        f'{self._path} must be a table with one row for each round, found'
        f' {wrong[0]}'
      )
    return rows

  def truncate(self, num_rounds: int) -> None:
    """Keeps the rows of rounds 1 to `num_rounds`.

    Args:
      num_rounds: How many rounds the state has seen.

    Raises:
      RunDirectoryError: If one of those rows is missing, or the file is no
        table of rounds.
    """
    rows = self.rows()
    kept = [r for r in rows if int(r['round']) <= num_rounds]
    if [int(r['round']) for r in kept] != list(range(1, num_rounds + 1)):
      raise run_files.RunDirectoryError(
        f'{self._path} must hold one row for each of the {num_rounds} rounds'
        f' before the checkpoint, found {len(kept)} of them; it was changed'
        ' after the run wrote it'
      )
    if not os.path.exists(self._path):
      return
    if not kept:
      os.remove(self._path)
      self._columns = None
      return
    self._columns = list(kept[0])
    lines = [_line(self._columns)]
    lines.extend(_line([row[c] for c in self._columns]) for row in kept)
    files.write_text(self._path, ''.join(lines))

  def check_columns(self, expected: Collection[str]) -> None:
    """Checks that further rows fit to those that are there.

    Args:
      expected: The columns of further rows, in any order.

    Raises:
      RunDirectoryError: If the table has others, or lacks one; or if the file
        is no table of rounds.
    """
    if not self.rows():
      return
    header, *_ = run_files.read_text(self._path).splitlines()
    _check_columns(self._path, next(csv.reader([header])), expected)

  def append(self, row: Mapping[str, Optional[Cell]]) -> None:
    """Adds one row; the first row of a table decides its columns.

    Args:
      row: Values by column; None leaves the cell empty. Must have the entry
        'round'.

    Raises:
      RunDirectoryError: If the columns are not those of the table.
    """
    if self._columns is None:
      self._columns = list(row)
      files.write_text(
        self._path,
        _line(self._columns) + _line([_format(v) for v in row.values()]),
      )
      return
    _check_columns(self._path, self._columns, row)
    with open(self._path, 'a', encoding='utf-8', newline='') as f:
      f.write(_line([_format(row[c]) for c in self._columns]))
