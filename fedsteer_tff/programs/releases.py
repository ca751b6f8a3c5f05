"""What a program gives out, in step with its checkpoints.

`tff.learning.programs.train_model` releases a round's metrics and writes its
checkpoint at the same time, and evaluates at leisure. A program that is killed
in between would go on after a round whose metrics nobody has. Here everything
of a round is out before its checkpoint counts, so that a program that goes on
from any checkpoint releases the rest, and nothing but the rest, again.
"""

import asyncio
import csv
import os
from typing import Any

import tensorflow_federated as tff

from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import files
from fedsteer_tff.programs import run_files


class Releases:
  """Knows what is being released; see `CheckpointManager(releases=...)`.

  ```python
  releases = Releases()
  await tff.learning.programs.train_model(
      program_state_manager=CheckpointManager(path, releases=releases),
      train_metrics_manager=releases.track(metrics_manager),
      model_output_manager=releases.track(model_manager),
      ...)
  ```
  """

  def __init__(self) -> None:
    """Nothing is being released."""
    self._begun: set[asyncio.Future[None]] = set()

  def track(
    self, manager: tff.program.ReleaseManager
  ) -> tff.program.ReleaseManager:
    """Returns a manager that releases through `manager` and is waited for.

    Args:
      manager: Any release manager.

    Returns:
      The manager to be used.

    Raises:
      TypeError: If `manager` is something else.
    """
    arguments.check_instance(
      'manager',
      manager,
      tff.program.ReleaseManager,
      'a tff.program.ReleaseManager',
    )
    return _Tracked(manager, self._begun)

  async def finished(self) -> None:
    """Waits for what has been begun, in the same turn of the event loop too.

    Raises:
      Exception: That of a release that failed, whenever that was.
    """
    await asyncio.sleep(0)
    await asyncio.gather(*self._begun)


class _Tracked(tff.program.ReleaseManager):
  """Notes its releases in a set, and removes those that succeed."""

  def __init__(
    self, manager: tff.program.ReleaseManager, begun: set[asyncio.Future[None]]
  ):
    self._manager = manager
    self._begun = begun

  async def release(self, value: Any, key: Any) -> None:
    release = asyncio.ensure_future(self._manager.release(value, key))
    self._begun.add(release)
    await release
    self._begun.remove(release)


class DurableCsv(tff.program.CSVFileReleaseManager):
  """Metrics as rows of a CSV file that is whole at any moment.

  The file is replaced for every row. One that is appended to, as TFF does by
  default, may end with half a row if the program is killed, and the next row
  goes on where that one ends.
  """

  def __init__(self, file_path: files.PathLike, key_fieldname: str = 'round'):
    """Reads the file, if there is one.

    Args:
      file_path: The file.
      key_fieldname: The column of the release's key. A release removes rows
        with the same or a larger key.

    Raises:
      TypeError: If `file_path` is no path.
      RunDirectoryError: If the file is something else.
    """
    file_path = arguments.path_text('file_path', file_path)
    self._folder, self._name = os.path.split(os.path.abspath(file_path))
    files.remove_unfinished(self._folder, self._name)
    try:
      super().__init__(
        os.path.join(self._folder, self._name),
        save_mode=tff.program.CSVSaveMode.WRITE,
        key_fieldname=key_fieldname,
      )
    except (
      tff.program.CSVKeyFieldnameNotFoundError,
      UnicodeDecodeError,
      csv.Error,
    ) as e:
      raise run_files.RunDirectoryError(
        f'{os.fspath(file_path)} must be a table with the column'
        f' {key_fieldname!r}, found another file: {e}'
      ) from e

  async def release(self, value: Any, key: int) -> None:
    """Writes numbers as a row, and removes the rows of later keys.

    Args:
      value: A structure of numbers, or of references to them.
      key: An integer, such as the round.
    """
    try:
      await super().release(value, key)
    except Exception:
      # It takes room on a disk that may be full.
      files.remove_unfinished(self._folder, self._name)
      raise


class DurableSavedModels(tff.program.SavedModelFileReleaseManager):
  """SavedModels that are whole, and nothing beside them."""

  def __init__(self, root_dir: files.PathLike, prefix: str = 'release_'):
    """Removes what a killed program had not finished.

    Args:
      root_dir: The folder of the SavedModels.
      prefix: What their names begin with; the release's key follows.

    Raises:
      TypeError: If `root_dir` is no path.
      RunDirectoryError: If there can be no such folder.
    """
    root_dir = _folder('root_dir', root_dir)
    files.remove_unfinished(root_dir, prefix)
    super().__init__(root_dir, prefix)
    self._folder, self._name = root_dir, prefix

  async def release(self, value: Any, key: Any) -> None:
    """Writes a SavedModel, in the place of one with the same key.

    Args:
      value: A structure of arrays, such as a model's weights, or of references
        to them.
      key: What the name ends with, such as the round.
    """
    try:
      await super().release(value, key)
    except Exception:
      # It takes room on a disk that may be full.
      files.remove_unfinished(self._folder, self._name)
      raise


class DurableTensorBoard(tff.program.TensorBoardReleaseManager):
  """TensorBoard events that are written when they count as released."""

  def __init__(self, summary_dir: files.PathLike):
    """Opens an event file.

    Args:
      summary_dir: The folder of the event files.

    Raises:
      TypeError: If it is no path.
      RunDirectoryError: If there can be no such folder.
    """
    super().__init__(_folder('summary_dir', summary_dir))

  async def release(self, value: Any, key: int) -> None:
    """Writes numbers as events.

    Args:
      value: A structure of numbers, or of references to them.
      key: An integer, the events' step.
    """
    await super().release(value, key)
    self._summary_writer.flush()


def _folder(name: str, path: files.PathLike) -> str:
  """Returns the path of a folder that there is or can be.

  Args:
    name: The argument's name, for the error message.
    path: The folder.

  Returns:
    It, as a string.

  Raises:
    TypeError: If it is no path.
    RunDirectoryError: If it is a file.
  """
  path = arguments.path_text(name, path)
  if os.path.exists(path) and not os.path.isdir(path):
    raise run_files.RunDirectoryError(
      f'{name} must be a folder, found a file: {path}'
    )
  return path


class EvaluationLoop(tff.learning.programs.EvaluationManager):
  """Evaluations that end before the round's checkpoint is written.

  `tff.learning.programs.EvaluationManager` evaluates beside the training and
  keeps the progress in files of its own. A program that is killed after it
  began to evaluate a round, and before the round's checkpoint, evaluates that
  round twice then, or cannot be started any more. Here the training waits, so
  there is no progress to keep: `create_state_manager_fn` should write into a
  folder that is emptied when the program starts.
  """

  async def start_evaluation(
    self,
    train_round: int,
    start_timestamp_seconds: int,
    model_weights: tff.learning.models.ModelWeights,
  ) -> None:
    """Evaluates and releases; see `tff.learning.programs.EvaluationManager`.

    Args:
      train_round: The round of training whose model is evaluated.
      start_timestamp_seconds: When that is, in whole seconds since 1970.
      model_weights: The model's weights.
    """
    await super().start_evaluation(
      train_round, start_timestamp_seconds, model_weights
    )
    await self.wait_for_evaluations_to_finish()
