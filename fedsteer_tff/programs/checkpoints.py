"""Checkpoints of a learning process on `tff.program`'s state manager."""

import asyncio
from collections.abc import Callable, Sequence
import os
import re
import shutil
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.programs import files

# How `tff.program.FileProgramStateManager` names a state that it has not
# finished writing.
_UNFINISHED = re.compile(r'program_state_\d+_temp\d+')


class CheckpointError(ValueError):
  """A run cannot go on from what its checkpoints hold."""


class Checkpoints:
  """The newest states of one run, keyed by the number of rounds they have seen.

  A state is written under a temporary name and takes its final one when it is
  complete, so a process that dies while writing leaves the former states.
  """

  def __init__(
    self,
    directory: files.PathLike,
    *,
    keep: int = 2,
    warn: Optional[Callable[[str], None]] = None,
  ):
    """Creates the folder if needed and removes unfinished states from it.

    Args:
      directory: The folder of the checkpoints.
      keep: How many of the newest states are kept.
      warn: Called with one line for each state that cannot be read.

    Raises:
      ValueError: If `keep` is not an integer >= 1.
    """
    if not isinstance(keep, int) or isinstance(keep, bool) or keep < 1:
      raise ValueError(f'keep must be an integer >= 1, found {keep!r}')
    self._directory = os.fspath(directory)
    self._warn = warn
    self._manager = tff.program.FileProgramStateManager(
      self._directory, keep_total=keep, keep_first=False
    )
    for name in os.listdir(self._directory):
      if _UNFINISHED.fullmatch(name):
        shutil.rmtree(os.path.join(self._directory, name))

  def save(self, state: Any, round_num: int) -> None:
    """Writes `state`, unless the state after `round_num` rounds is there.

    Args:
      state: The state of a `tff.learning.templates.LearningProcess`.
      round_num: How many rounds it has seen.
    """
    if round_num in self.rounds():
      return
    # Plain leaves: the manager keeps no container types, `restore` puts the
    # leaves back into them.
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(state)]
    asyncio.run(self._manager.save([np.int64(round_num), *leaves], round_num))

  def rounds(self) -> list[int]:
    """Returns the round numbers of the states that are there, oldest first."""
    return asyncio.run(self._manager.get_versions()) or []

  def restore(self, like: Any) -> Optional[tuple[Any, int]]:
    """Returns the newest state that can be read.

    Args:
      like: A state of the same process, which gives the structure.

    Returns:
      The state and how many rounds it has seen, or None if there is none.

    Raises:
      CheckpointError: If there are states and none of them can be read.
    """
    rounds = self.rounds()
    expected = [np.asarray(leaf) for leaf in tf.nest.flatten(like)]
    for round_num in reversed(rounds):
      try:
        stored_round, *leaves = asyncio.run(
          self._manager.load(round_num, [np.int64(0), *expected])
        )
        self._check_leaves(leaves, expected)
      except Exception as e:  # Damage has as many types as TensorFlow readers.
        if self._warn is not None:
          first_line = (str(e).splitlines() or [type(e).__name__])[0]
          self._warn(
            f'the checkpoint of round {round_num} in {self._directory} cannot'
            f' be read and is set aside: {first_line}'
          )
        self._set_aside(round_num)
        continue
      return tf.nest.pack_sequence_as(like, leaves), int(stored_round)
    if rounds:
      raise CheckpointError(
        f'{self._directory} must hold a checkpoint that can be read, found'
        f' none among those of rounds {rounds}'
      )
    return None

  def _check_leaves(
    self, leaves: Sequence[Any], expected: Sequence[np.ndarray]
  ) -> None:
    """Raises `ValueError` if the leaves are not those of the same process."""
    for i, (leaf, like) in enumerate(zip(leaves, expected)):
      leaf = np.asarray(leaf)
      if leaf.dtype != like.dtype or leaf.shape != like.shape:
        raise ValueError(
          f'leaf {i} of the state must be {like.dtype}{list(like.shape)},'
          f' found {leaf.dtype}{list(leaf.shape)}'
        )

  def _set_aside(self, round_num: int) -> None:
    """Renames a state, so that the round can be written again."""
    path = os.path.join(self._directory, f'program_state_{round_num}')
    target = os.path.join(self._directory, f'unreadable_{round_num}')
    shutil.rmtree(target, ignore_errors=True)
    os.rename(path, target)
