"""Errors in one line, with the name of the flag."""

from typing import Optional

from scripts.train_flags import groups

# Arguments in errors of the package whose flags have other names.
_FLAG_OF_ARGUMENT = {
  'name': 'task',
  'num_rounds': 'rounds',
  'population_size': 'num_clients',
  'learning_rate': 'client_learning_rate',
  'rate': 'participation_rate',
  'skew': 'participation_skew',
  'every': 'enforce_core_every',
  'prior_probability': 'participation_prior',
  'prior_rounds': 'participation_prior_rounds',
  'floor': 'participation_floor',
  'window': 'participation_window',
  'cutoff': 'participation_cutoff',
  'population': 'participation_population',
}


class FlagError(ValueError):
  """A flag has a value that it must not have; the message is one line."""


def explain(error: Exception) -> Optional[str]:
  """Returns an error about a value in one line, with the flag's name.

  Args:
    error: What the package raised.

  Returns:
    The line, or None if the error is not about a value that was given: its
    message must start with the name of an argument or state a rule, or it must
    come from the file system.
  """
  message = ' '.join(str(error).split())
  first, _, rest = message.partition(' ')
  name = _FLAG_OF_ARGUMENT.get(first, first)
  known = (
    *groups.COMMON_FLAGS,
    *groups.TASK_FLAGS,
    *groups.all_algorithm_flags(),
    *groups.all_estimate_flags(),
    *groups.LOOP_FLAGS,
    *groups.CORRECTION_FLAGS,
  )
  if name in (*known, 'output_dir'):
    return f'--{name} {rest}'
  if isinstance(error, OSError) or ' must ' in message:
    return message
  return None
