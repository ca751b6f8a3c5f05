"""What determines a run: the flags that it uses, for `config.json`."""

from collections.abc import Mapping, Sequence
import copy
from typing import Any

from absl import flags

from scripts.train_flags import arguments as arguments_lib
from scripts.train_flags import checks
from scripts.train_flags import definitions
from scripts.train_flags import groups

# What the run directory's guard makes of changes. Data may be moved: their
# content is guarded by a hash. Workers may move, too; another number of them
# adds in another order, of which `scripts.train` warns.
MAY_GROW = 'rounds'
MAY_CHANGE = ('checkpoint_every', 'data_dir', 'keep_freed_memory', 'workers')


def config(values: flags.FlagValues) -> Mapping[str, Any]:
  """Returns the flags that determine the run, for `config.json`."""
  names = list(groups.COMMON_FLAGS) + list(groups.TASK_FLAGS)
  if values.participation != 'two_group':
    names.remove('participation_skew')
  if values.participation == 'explicit':
    names.remove('participation_rate')
  else:
    names.remove('participation_probabilities')
  names += [
    *groups.ALGORITHM_FLAGS[values.algorithm],
    *groups.LOOP_FLAGS,
    *groups.ESTIMATE_FLAGS[values.participation_estimate],
  ]
  if values.algorithm == 'fedsteer':
    names += groups.CORRECTION_FLAGS
  result = {name: values[name].value for name in names}
  for name in ('core_set', 'enforced_clients'):
    if result.get(name) is not None:
      result[name] = arguments_lib.client_ids(values, name)
  if 'participation_probabilities' in result:
    result['participation_probabilities'] = arguments_lib.probabilities(values)
  return result


def config_of(arguments: Sequence[str]) -> Mapping[str, Any]:
  """Returns the configuration of the run that a command line describes.

  The flags of this process are left as they are.

  Args:
    arguments: The command line without the program's name.

  Returns:
    See `config`.

  Raises:
    FlagError: If something on it is wrong.
  """
  values = flags.FlagValues()
  for flag in definitions.defined():
    values[flag.name] = copy.deepcopy(flag)
    values[flag.name].unparse()
  checks.parse(['train', *arguments], values)
  return config(values)


def defaults() -> Mapping[str, Any]:
  """Returns the default of every flag, by name."""
  return {flag.name: flag.default for flag in definitions.defined()}
