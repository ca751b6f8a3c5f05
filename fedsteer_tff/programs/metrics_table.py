"""A CSV file with one row a round that survives a killed process."""

from collections.abc import Mapping, Sequence
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

  def append(self, row: Mapping[str, Optional[Cell]]) -> None:
    """Adds one row; the first row of a table decides its columns.

    Args:
      row: Values by column; None leaves the cell empty. Must have the entry
        'round'.

    Raises:
      ValueError: If the columns are not those of the table.
    """
    if self._columns is None:
      self._columns = list(row)
      files.write_text(
        self._path,
        _line(self._columns) + _line([_format(v) for v in row.values()]),
      )
      return
    if set(row) != set(self._columns):
      differing = sorted(set(row) ^ set(self._columns))
      raise ValueError(
        f'row must have the columns of {self._path}, found a difference in'
        f' {differing}'
      )
    with open(self._path, 'a', encoding='utf-8', newline='') as f:
      f.write(_line([_format(row[c]) for c in self._columns]))
