"""The folder of one training run, and the guard of what is in it.

A run directory holds

```
config.json     what was asked for: a flat mapping; versions of the code; and
                hashes of what runs that are compared must have in common
metrics.csv     one row a round
checkpoints/    the newest states of the learning process
tensorboard/    event files
summary.json    written when the run is complete
```

Opening it says which of three things is to be done: start, go on, or nothing.
Everything else is refused, so that no result is ever overwritten by mistake.
"""

from collections.abc import Collection, Mapping
import contextlib
import enum
import fcntl
import os
from typing import IO, Any, Optional

from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import files
from fedsteer_tff.programs import metrics_table
from fedsteer_tff.programs import run_config
from fedsteer_tff.programs import run_files

_LOCK = '.lock'


class RunStatus(enum.Enum):
  """What an opened run directory holds.

  Attributes:
    NEW: Nothing: the run starts.
    UNFINISHED: A run with this configuration that can go on.
    FINISHED: A complete run with this configuration.
  """

  NEW = 'new'
  UNFINISHED = 'unfinished'
  FINISHED = 'finished'


class RunDirectory:
  """One run's folder; see the module's docstring for what it holds."""

  def __init__(self, path: files.PathLike):
    """Does not touch the file system.

    Args:
      path: The folder; need not exist.

    Raises:
      TypeError: If it is no path.
    """
    self._path = arguments.path_text('path', path)
    self._lock: Optional[IO[bytes]] = None

  @property
  def path(self) -> str:
    """The folder."""
    return self._path

  @property
  def config_path(self) -> str:
    """What the run was asked for."""
    return os.path.join(self._path, run_config.FILE_NAME)

  @property
  def metrics_path(self) -> str:
    """The table with one row a round."""
    return os.path.join(self._path, 'metrics.csv')

  @property
  def summary_path(self) -> str:
    """The result of a complete run."""
    return os.path.join(self._path, 'summary.json')

  @property
  def checkpoint_dir(self) -> str:
    """The folder of the checkpoints."""
    return os.path.join(self._path, 'checkpoints')

  @property
  def tensorboard_dir(self) -> str:
    """The folder of the TensorBoard events."""
    return os.path.join(self._path, 'tensorboard')

  def open(
    self,
    config: Mapping[str, Any],
    *,
    may_grow: Optional[str] = None,
    may_change: Collection[str] = (),
    defaults: Optional[Mapping[str, Any]] = None,
  ) -> RunStatus:
    """Checks the folder against `config` and locks it for this process.

    Nothing but an empty, locked folder is made here; `commit` writes the
    configuration. The lock ends with the process, however that ends.

    Args:
      config: Names and JSON values (numbers, strings, booleans, None, lists)
        that determine the run's results.
      may_grow: The name of the entry, an integer, that may be larger than at
        the start (the number of rounds): the run then goes on from its end.
      may_change: Names of entries that do not influence the results.
      defaults: Values of entries that were no part of the configuration when
        the run was started; None for those that are not named.

    Returns:
      What the folder holds.

    Raises:
      RunDirectoryError: If the path is a file or none at all, if the folder
        holds something that is not a run, if its run has another configuration,
        if what it left is damaged or incomplete, or if another process is using
        it.
    """
    run_files.check_path(self._path)
    if os.path.exists(self._path) and not os.path.isdir(self._path):
      raise run_files.RunDirectoryError(
        f'output_dir must be a folder, found a file: {self._path}'
      )
    self._check_kinds()
    is_run = os.path.isfile(self.config_path)
    if os.path.isdir(self._path) and not is_run:
      found = sorted(
        set(os.listdir(self._path)) - {_LOCK, f'{run_config.FILE_NAME}.tmp'}
      )
      if found:
        raise run_files.RunDirectoryError(
          'output_dir must be new, empty or the folder of a run, found'
          f' {self._path} without {run_config.FILE_NAME} but with {found[0]}'
        )
    try:
      os.makedirs(self._path, exist_ok=True)
      self._acquire_lock()
    except OSError as e:
      raise run_files.RunDirectoryError(
        f'output_dir must be a folder that can be written, found: {e}'
      ) from e
    try:
      return self._status(config, may_grow, may_change, defaults or {})
    except BaseException:
      self.close()
      raise

  def commit(
    self,
    config: Mapping[str, Any],
    versions: Mapping[str, str],
    hashes: Optional[Mapping[str, str]] = None,
  ) -> None:
    """Writes the configuration: from now on the folder is that of a run.

    The summary of a run that is complete and goes on now, since it may grow, is
    kept under another name.

    Args:
      config: As for `open`, which must have been called.
      versions: Versions of the software. Those that the run was begun with are
        kept beside the configuration.
      hashes: Hashes of data, cohorts and the like, kept there too.
    """
    if os.path.isfile(self.summary_path):
      os.replace(self.summary_path, self._free_name('summary_before_{}.json'))
    begun_with = {}
    if os.path.isfile(self.config_path):
      begun_with = self.stored_versions()
    content = {
      'flags': dict(config),
      'versions': {**versions, **begun_with},
      'hashes': dict(hashes or {}),
    }
    if not os.path.isfile(self.config_path) or content != self._content():
      files.write_json(self.config_path, content)

  def close(self) -> None:
    """Gives the folder back; removes it if it is empty and no run."""
    if self._lock is None:
      return
    if not os.path.isfile(self.config_path):
      os.remove(self._lock.name)
      with contextlib.suppress(OSError):  # Not empty, or not ours to remove.
        os.rmdir(self._path)
    self._lock.close()
    self._lock = None

  def stored_config(self) -> dict[str, Any]:
    """Reads the configuration.

    Returns:
      It, as it was committed last.

    Raises:
      RunDirectoryError: If config.json is damaged.
    """
    return dict(self._content()['flags'])

  def stored_versions(self) -> dict[str, str]:
    """Reads the versions.

    Returns:
      Those that the run was begun with.

    Raises:
      RunDirectoryError: If config.json is damaged.
    """
    return self._content().get('versions') or {}

  def stored_hashes(self) -> dict[str, str]:
    """Reads the hashes.

    Returns:
      Those that are kept beside the configuration, maybe none.

    Raises:
      RunDirectoryError: If config.json is damaged.
    """
    return self._content().get('hashes') or {}

  def read_summary(
    self, required: Optional[Mapping[str, Any]] = None
  ) -> dict[str, Any]:
    """Reads the result of a complete run.

    Args:
      required: What must be in it, see `run_files.read_object`.

    Returns:
      The result.

    Raises:
      RunDirectoryError: If summary.json is damaged or lacks that.
    """
    return run_files.read_object(self.summary_path, required)

  def write_summary(self, summary: Mapping[str, Any]) -> None:
    """Writes the result: the run counts as complete from now on.

    Args:
      summary: Names to what JSON can hold.
    """
    files.write_json(self.summary_path, summary)

  def _check_kinds(self) -> None:
    """Checks that what is there are files and folders, each in its place.

    Raises:
      RunDirectoryError: If one is there in place of the other.
    """
    run_files.check_file(self.config_path)
    if not os.path.isfile(self.config_path):
      return  # Whatever it holds is not of a run.
    for path in (self.config_path, self.metrics_path, self.summary_path):
      run_files.check_file(path)
      run_files.check_file(f'{path}.tmp')  # Where it is written.
    run_files.check_folder(self.checkpoint_dir)
    run_files.check_folder(self.tensorboard_dir)

  def _free_name(self, pattern: str) -> str:
    number = 1
    while os.path.exists(os.path.join(self._path, pattern.format(number))):
      number += 1
    return os.path.join(self._path, pattern.format(number))

  def _content(self) -> dict[str, Any]:
    """Returns what is in config.json."""
    return run_config.read(self.config_path)

  def _status(
    self,
    config: Mapping[str, Any],
    may_grow: Optional[str],
    may_change: Collection[str],
    defaults: Mapping[str, Any],
  ) -> RunStatus:
    """Returns what the locked folder holds."""
    if not os.path.isfile(self.config_path):
      return RunStatus.NEW
    stored = self.stored_config()
    if may_grow is not None:
      run_files.check_members(
        self.config_path, stored, {may_grow: int}, within='flags.'
      )
    self._check_unchanged(stored, config, may_grow, may_change, defaults)
    if os.path.isfile(self.summary_path):
      if may_grow is None:
        return RunStatus.FINISHED
      summary = self.read_summary({may_grow: int})
      if summary[may_grow] == config[may_grow]:
        return RunStatus.FINISHED
    self._check_goes_on()
    return RunStatus.UNFINISHED

  def _check_goes_on(self) -> None:
    """Checks that the run would not be begun anew over what it wrote.

    The state before the first round is saved before the first row is written.

    Raises:
      RunDirectoryError: If it would.
    """
    if not metrics_table.MetricsTable(self.metrics_path).rows():
      return
    if os.path.isdir(self.checkpoint_dir) and os.listdir(self.checkpoint_dir):
      return
    raise run_files.RunDirectoryError(
      f'{self.checkpoint_dir} must hold a checkpoint of the run that wrote'
      f' {self.metrics_path}, found none; move the run away to start anew'
    )

  def _acquire_lock(self) -> None:
    """Takes the folder for this process; the kernel frees it at its end.

    Raises:
      RunDirectoryError: If another process has it.
    """
    lock = open(os.path.join(self._path, _LOCK), 'ab')
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
      lock.close()
      raise run_files.RunDirectoryError(
        'output_dir must not be in use, found another process that is'
        f' training in {self._path}'
      ) from e
    self._lock = lock

  def _check_unchanged(
    self,
    stored: Mapping[str, Any],
    config: Mapping[str, Any],
    may_grow: Optional[str],
    may_change: Collection[str],
    defaults: Mapping[str, Any],
  ) -> None:
    """Checks that the folder's run has the same configuration.

    Args:
      stored: That of the run.
      config: The one that is wanted.
      may_grow: The entry that may be larger than in the run; None for none.
      may_change: The entries that may differ.
      defaults: Values of entries that the run does not have.

    Raises:
      RunDirectoryError: If others do; it names them all.
    """
    changed = []
    for name, (old, new) in run_config.changed_entries(
      stored, config, defaults
    ).items():
      if name in may_change:
        continue
      if name == may_grow and config[name] > stored[name] >= 0:
        continue
      origin = run_config.origin_of_change(name, stored, config, defaults)
      changed.append(f'--{name}: {old} -> {new}{origin}')
    if changed:
      growth = f' (--{may_grow} may only be raised)' if may_grow else ''
      raise run_files.RunDirectoryError(
        f'the run in {self._path} has another configuration:'
        f' {"; ".join(changed)}{growth}; choose another output_dir'
      )
