"""What a run was asked for, and how that differs from what is asked now."""

from collections.abc import Mapping
from typing import Any

from fedsteer_tff.programs import files
from fedsteer_tff.programs import run_files

FILE_NAME = 'config.json'


def changed_entries(
  stored: Mapping[str, Any],
  config: Mapping[str, Any],
  defaults: Mapping[str, Any],
) -> dict[str, tuple[Any, Any]]:
  """Returns what differs between a run and the one that is wanted.

  An entry that only one of them has is None in the other, and no difference if
  it is None there, too: unused. For an entry that was added after the run was
  begun its default stands in.

  Args:
    stored: The run's configuration.
    config: The one that is wanted.
    defaults: The defaults of entries by name.

  Returns:
    The run's value and the wanted one, by name in alphabetical order.
  """
  changed = {}
  for name in sorted({*stored, *config}):
    default = defaults.get(name) if name in config else None
    old, new = stored.get(name, default), config.get(name)
    if old != new:
      changed[name] = old, new
  return changed


def origin_of_change(
  name: str,
  stored: Mapping[str, Any],
  config: Mapping[str, Any],
  defaults: Mapping[str, Any],
) -> str:
  """Says what explains a change that may not have been asked for.

  Args:
    name: The entry that differs.
    stored: The run's configuration.
    config: The one that is wanted.
    defaults: The defaults of entries by name; empty if they are not known.

  Returns:
    Words in parentheses, to follow the values; empty if there are none.
  """
  if defaults and name not in config and name not in defaults:
    return ' (there is no such flag any more)'
  if name not in defaults or name not in config:
    return ''
  if name not in stored:
    return f' ({FILE_NAME} has none, so {defaults[name]}, the default)'
  return ' (the default)' if config[name] == defaults[name] else ''


def read(path: files.PathLike) -> dict[str, Any]:
  """Returns what is in the config.json of a run.

  Args:
    path: The file.

  Returns:
    'flags', and maybe 'versions' and 'hashes': objects.

  Raises:
    RunDirectoryError: If it is damaged.
  """
  return run_files.read_object(
    path,
    required={'flags': dict},
    optional={'versions': dict[str, str], 'hashes': dict[str, str]},
  )
