"""Values of flags, as the parts of a run take them."""

from collections.abc import Sequence
from typing import Any, Optional

from absl import flags

from scripts.train_flags import errors


def given(values: flags.FlagValues, names: Sequence[str]) -> dict[str, Any]:
  """Returns the flags among `names` that have a value, as arguments."""
  arguments = {n: values[n].value for n in names if values[n].value is not None}
  if 'core_set' in arguments:
    arguments['core_set'] = client_ids(values, 'core_set')
  return arguments


def client_ids(values: flags.FlagValues, name: str) -> Optional[list[int]]:
  """Returns a flag's list of client ids, or None."""
  found = values[name].value
  if found is None:
    return None
  try:
    return [int(i) for i in found]
  except ValueError as e:
    raise errors.FlagError(
      f'--{name} must be client ids separated by commas, found'
      f' {",".join(found)}'
    ) from e


def probabilities(values: flags.FlagValues) -> Optional[list[float]]:
  """Returns the explicit participation probabilities, or None."""
  if values.participation != 'explicit':
    return None
  found = values.participation_probabilities or []
  try:
    result = [float(p) for p in found]
  except ValueError:
    result = []
  if not result or not all(0 < p <= 1 for p in result):
    raise errors.FlagError(
      '--participation_probabilities must be numbers in (0, 1] separated by'
      f' commas, found {",".join(found) or "nothing"}'
    )
  return result
