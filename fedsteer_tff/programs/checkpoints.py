"""Checkpoints that survive a killed process, damage and a full disk.

One rule for all runs. A state is written under a temporary name and takes its
final one when it is complete, and the states before are removed only then. With
it go the names and types of its leaves, so that another program's state is told
by them, and a digest of its files, so that every change of a byte is noticed.
What cannot be read is set aside and the state before is used.
"""

import asyncio
from collections.abc import Callable, Sequence
import os
import shutil
from typing import Any, Optional

from absl import logging
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import digests
from fedsteer_tff.programs import files
from fedsteer_tff.programs import pacing
from fedsteer_tff.programs import releases as releases_lib
from fedsteer_tff.programs import run_files
from fedsteer_tff.programs import state_types

_PREFIX = 'program_state_'
_UNREADABLE = 'unreadable_'
_LEAVES = 'leaves.json'


class CheckpointError(ValueError):
  """A run cannot go on from what its checkpoints hold, or cannot write them."""


class CheckpointAccessError(CheckpointError):
  """A checkpoint could not be read this time; it may be a good one."""


class CheckpointMismatchError(CheckpointError):
  """A checkpoint is whole, and not one of this program's states."""


class CheckpointManager(tff.program.FileProgramStateManager):
  """TFF's state manager for programs, with this module's rule.

  For `tff.learning.programs.train_model`; `Checkpoints` is for loops that do
  not use asyncio. Only one process at a time may use the folder, see
  `run_directory.RunDirectory`.
  """

  def __init__(
    self,
    root_dir: files.PathLike,
    *,
    keep: int = 2,
    warn: Callable[[str], None] = logging.warning,
    releases: Optional[releases_lib.Releases] = None,
  ):
    """Creates the folder if needed and removes unfinished states from it.

    Args:
      root_dir: The folder of the checkpoints.
      keep: How many of the newest states are kept.
      warn: Called with one line for each state that cannot be read.
      releases: A state is written when what they began to release is
        released, so that nothing is missing if the run goes on from it.

    Raises:
      TypeError: If `root_dir` is no path.
      ValueError: If `keep` is not an integer >= 1.
      CheckpointError: If there can be no such folder.
    """
    arguments.check_integer('keep', keep, 1)
    self._directory = arguments.path_text('root_dir', root_dir)
    try:
      os.makedirs(self._directory, exist_ok=True)
      files.remove_unfinished(self._directory, _PREFIX)
    except OSError as e:
      raise CheckpointError(
        f'{self._directory} must be a folder that can be written, found:'
        f' {_first_line(e)}; {files.advice(e)}, and the same command goes on'
      ) from e
    super().__init__(
      self._directory, prefix=_PREFIX, keep_total=keep, keep_first=False
    )
    self._warn = warn
    self._releases = releases
    # Made where it is used: before Python 3.10 it belongs to an event loop.
    self._writing: Optional[asyncio.Lock] = None

  async def save(
    self,
    program_state: Any,
    version: int,
    *,
    names: Optional[Sequence[str]] = None,
  ) -> None:
    """Writes a state.

    Args:
      program_state: The state, as for `tff.program.FileProgramStateManager`.
      version: How many rounds it has seen.
      names: What its leaves are called if it is told that it is another
        program's; their paths in it if None.

    Raises:
      CheckpointError: If it cannot be written, for instance since the disk is
        full, and what helps. The states before are as they were.
      ProgramStateExistsError: That of `tff.program`, if this version is there.
    """
    if self._writing is None:
      self._writing = asyncio.Lock()
    # States are removed after writing one: two at a time would collide.
    async with self._writing:
      if self._releases is not None:
        await self._releases.finished()
      try:
        # Before that the types are not known.
        program_state = await tff.program.materialize_value(program_state)
        await super().save(program_state, version)
        types = state_types.to_json(_types(program_state, names))
        files.write_json(self._path(version, _LEAVES), types)
        digests.write(self._path(version))
      except (OSError, tf.errors.OpError) as e:
        files.remove_unfinished(self._directory, _PREFIX)
        raise CheckpointError(await self._write_failure(version, e)) from e

  async def load(
    self,
    version: int,
    structure: Any,
    *,
    names: Optional[Sequence[str]] = None,
  ) -> Any:
    """Returns a state.

    Args:
      version: How many rounds it has seen.
      structure: A state of the same program.
      names: As for `save`.

    Returns:
      The state, in that structure.

    Raises:
      CheckpointAccessError: If the system does not let it be read, for now.
      CheckpointMismatchError: If it belongs to another program.
      CheckpointError: If it is damaged.
      ProgramStateNotFoundError: That of `tff.program`, if it is not there.
    """
    expected = _types(structure, names)
    whole = False
    try:
      # One without a digest is of an earlier release, or its process ended just
      # after it was complete.
      whole = digests.check(self._path(version))
      if whole:
        self._check_types(version, expected)
      state = await super().load(version, structure)
      # States of earlier releases have no names, but their leaves have places.
      _check_same(expected, _types(state, names))
    except tff.program.ProgramStateNotFoundError:
      raise
    except Exception as e:  # Damage has as many types as TensorFlow readers.
      if files.is_unreadable(e):
        raise CheckpointAccessError(
          f'the checkpoint of round {version} in {self._directory} must be'
          f' readable, found: {_first_line(e)}; it is left as it is, and the'
          ' same command tries again'
        ) from e
      if whole:
        raise CheckpointMismatchError(
          f'the checkpoint of round {version} in {self._directory} must be a'
          f' state of this process, of the same model and population, found:'
          f' {_first_line(e)}; it is left as it is'
        ) from e
      raise CheckpointError(
        f'the checkpoint of round {version} in {self._directory} cannot be'
        f' read: {_first_line(e)}'
      ) from e
    return state

  async def load_latest(
    self, structure: Any, *, names: Optional[Sequence[str]] = None
  ) -> tuple[Any, int]:
    """Returns the newest state that can be read, and its version.

    Those that are damaged are renamed to 'unreadable_<version>'. A state that
    the system does not let be read may be a good one, and one that is whole is
    one of another program: both are left alone.

    Args:
      structure: A state of the same program.
      names: As for `save`.

    Returns:
      (None, 0) if there is no state.

    Raises:
      CheckpointAccessError: If the system does not let one be read, for now.
      CheckpointMismatchError: If the newest one belongs to another program.
      CheckpointError: If there are states and all of them are damaged, now or
        when it was tried before.
    """
    try:
      versions = await self.get_versions() or []
    except (OSError, tf.errors.OpError) as e:
      raise CheckpointAccessError(
        f'{self._directory} must be a folder that can be read, found:'
        f' {_first_line(e)}'
      ) from e
    for version in reversed(versions):
      try:
        return await self.load(version, structure, names=names), version
      except (CheckpointAccessError, CheckpointMismatchError):
        raise
      except CheckpointError as e:
        self._warn(f'{e}; it is set aside')
        self._set_aside(version)
    if versions:
      raise CheckpointError(
        f'{self._directory} must hold a checkpoint that can be read, found'
        f' none among those of rounds {versions}'
      )
    aside = [
      n for n in os.listdir(self._directory) if n.startswith(_UNREADABLE)
    ]
    if aside:  # To begin anew would overwrite what the run wrote.
      raise CheckpointError(
        f'{self._directory} must hold a checkpoint that can be read, found only'
        f' {", ".join(sorted(aside))}; move the run away to start anew'
      )
    return None, 0

  async def written(self) -> None:
    """Waits until the states that are being saved are written."""
    await asyncio.sleep(0)  # For those that are about to be.
    if self._writing is not None:
      async with self._writing:
        pass

  def pace(
    self, process: tff.learning.templates.LearningProcess
  ) -> tff.learning.templates.LearningProcess:
    """Returns the process with rounds that wait for the states before.

    `tff.learning.programs.train_model` goes on with the next round while a
    state is being written. Where rounds are faster, states to be written pile
    up in memory, and a program that is killed loses as many rounds. With the
    result as `train_process` it loses one at most.

    Args:
      process: A learning process, to be called in a program's context.

    Returns:
      A process of the same types.
    """
    return pacing.paced_process(process, self.written)

  def _path(self, version: int, *names: str) -> str:
    return os.path.join(self._directory, f'{_PREFIX}{version}', *names)

  def _set_aside(self, version: int) -> None:
    """Renames a state, so that the round can be written again."""
    target = os.path.join(self._directory, f'{_UNREADABLE}{version}')
    if os.path.isdir(target):
      shutil.rmtree(target, ignore_errors=True)
    elif os.path.lexists(target):  # A file was in a state's place.
      os.remove(target)
    os.rename(self._path(version), target)

  def _check_types(self, version: int, expected: state_types.LeafTypes) -> None:
    """Checks that a state's leaves are those of the same program.

    Args:
      version: How many rounds the state has seen.
      expected: What it should consist of.

    Raises:
      ValueError: If it consists of something else. States of earlier releases
        do not say.
    """
    path = self._path(version, _LEAVES)
    if os.path.exists(path):
      found = state_types.from_json(run_files.read_object(path))
      _check_same(expected, found)

  async def _write_failure(self, version: int, error: Exception) -> str:
    versions = await self.get_versions()
    last = 'there is none before it'
    if versions:
      last = f'the last good one is of round {versions[-1]}'
    return (
      f'the checkpoint of round {version} cannot be written to'
      f' {self._directory} ({_first_line(error)}): {last};'
      f' {files.advice(error)}, and the same command resumes'
    )


class Checkpoints:
  """The newest states of one run, keyed by the number of rounds they have seen.

  `CheckpointManager` for loops that do not use asyncio.
  """

  def __init__(
    self,
    directory: files.PathLike,
    *,
    keep: int = 2,
    warn: Callable[[str], None] = logging.warning,
  ):
    """Creates the folder if needed and removes unfinished states from it.

    Args:
      directory: The folder of the checkpoints.
      keep: How many of the newest states are kept.
      warn: Called with one line for each state that cannot be read.

    Raises:
      ValueError: If `keep` is not an integer >= 1.
      CheckpointError: If there can be no such folder.
    """
    directory = arguments.path_text('directory', directory)
    self._manager = CheckpointManager(directory, keep=keep, warn=warn)

  def save(self, state: Any, round_num: int) -> None:
    """Writes `state`, unless the state after `round_num` rounds is there.

    Args:
      state: The state of a `tff.learning.templates.LearningProcess`.
      round_num: How many rounds it has seen.

    Raises:
      CheckpointError: If it cannot be written.
    """
    if round_num in self.rounds():
      return
    # Plain leaves: the manager keeps no container types, `restore` puts the
    # leaves back into them.
    leaves = [np.int64(round_num), *map(np.asarray, tf.nest.flatten(state))]
    asyncio.run(self._manager.save(leaves, round_num, names=_names(state)))

  def rounds(self) -> list[int]:
    """Returns which states are there.

    Returns:
      How many rounds each of them has seen, ascending; empty if there is none.
    """
    return asyncio.run(self._manager.get_versions()) or []

  def restore(self, like: Any) -> Optional[tuple[Any, int]]:
    """Returns the newest state that can be read.

    Args:
      like: A state of the same process, which gives the structure.

    Returns:
      The state and how many rounds it has seen, or None if there is none.

    Raises:
      CheckpointError: If there are states and all of them are damaged, or the
        system does not let the newest one be read.
    """
    expected = [np.int64(0), *map(np.asarray, tf.nest.flatten(like))]
    stored, _ = asyncio.run(
      self._manager.load_latest(expected, names=_names(like))
    )
    if stored is None:
      return None
    stored_round, *leaves = stored
    return tf.nest.pack_sequence_as(like, leaves), int(stored_round)


def _names(state: Any) -> list[str]:
  """Returns the names of what `Checkpoints` writes: the round, and leaves."""
  return ['(round)', *state_types.of_value(state)]


def _types(state: Any, names: Optional[Sequence[str]]) -> state_types.LeafTypes:
  """Returns what a state consists of.

  Args:
    state: The state.
    names: Those of its leaves; None for the state's own.

  Returns:
    The types of the leaves by name.
  """
  types = state_types.of_value(state)
  return types if names is None else dict(zip(names, types.values()))


def _check_same(
  expected: state_types.LeafTypes, found: state_types.LeafTypes
) -> None:
  """Checks that a state is one of the same program.

  Args:
    expected: What it should consist of.
    found: What it consists of.

  Raises:
    ValueError: If that is something else.
  """
  differing = state_types.differences(expected, found)
  if differing is not None:
    raise ValueError(differing)


def _first_line(error: Exception) -> str:
  return (str(error).splitlines() or [type(error).__name__])[0]
