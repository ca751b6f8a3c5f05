"""Reading a command line, and the rules between the flags."""

from collections.abc import Sequence
import math
import os
from typing import Optional

from absl import flags

from fedsteer_tff.programs import addresses
from scripts.train_flags import arguments
from scripts.train_flags import errors
from scripts.train_flags import groups

# Of what models are made of.
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
# That Keras takes.
_LARGEST_SEED = 2**32 - 1


def parse(
  argv: Sequence[str], values: Optional[flags.FlagValues] = None
) -> None:
  """Parses the command line, with one line for an error.

  Args:
    argv: The command line, the program's name first.
    values: The flags to set; those of the process if None.

  Raises:
    FlagError: If something on it is wrong.
  """
  if values is None:
    values = flags.FLAGS
  try:
    rest = values(list(argv))
  except (flags.Error, UnicodeDecodeError) as e:  # Of a file with flags, too.
    raise errors.FlagError(' '.join(str(e).split())) from e
  if len(rest) > 1:
    raise errors.FlagError(
      f'arguments must be flags (--name=value), found {rest[1]}'
    )
  check(values)


def check(values: flags.FlagValues) -> None:
  """Checks what does not need TensorFlow.

  Args:
    values: The parsed flags.

  Raises:
    FlagError: If a flag is missing, not finite, or given though the chosen
      algorithm or participation does not use it.
  """
  if not values.output_dir:
    raise errors.FlagError('--output_dir must be given')
  unused = []
  for name in groups.all_algorithm_flags():
    users = [a for a, names in groups.ALGORITHM_FLAGS.items() if name in names]
    if values.algorithm not in users:
      unused.append((name, 'algorithm', ' or '.join(users)))
  unused += _unused_correction_flags(values)
  required = groups.REQUIRED_FLAGS.get(values.algorithm)
  if required and values[required].value is None:
    raise errors.FlagError(
      f'--{required} must be given with --algorithm={values.algorithm}'
    )
  if values.algorithm == 'fedsteer':
    if values.enforced_clients is not None:
      raise errors.FlagError(
        '--enforced_clients must not be given with --algorithm=fedsteer, which'
        ' enforces its core set'
      )
  elif bool(values['enforce_core_every'].present) != bool(
    values['enforced_clients'].present
  ):
    raise errors.FlagError(
      '--enforce_core_every and --enforced_clients must be given together with'
      f' --algorithm={values.algorithm}'
    )
  if values.participation != 'two_group':
    unused.append(('participation_skew', 'participation', 'two_group'))
  if values.participation != 'explicit':
    unused.append(('participation_probabilities', 'participation', 'explicit'))
  elif values['participation_rate'].present:
    raise errors.FlagError(
      '--participation_rate is not used with --participation=explicit, found'
      f' {values.participation_rate}'
    )
  for name in groups.all_estimate_flags():
    users = [e for e, names in groups.ESTIMATE_FLAGS.items() if name in names]
    if values.participation_estimate not in users:
      unused.append((name, 'participation_estimate', ' or '.join(users)))
  for name, choice, needed in unused:
    if values[name].present:
      raise errors.FlagError(
        f'--{name} is used with --{choice}={needed} only, found'
        f' --{choice}={values[choice].value}'
      )
  for name in (
    *groups.COMMON_FLAGS,
    *groups.TASK_FLAGS,
    *groups.all_algorithm_flags(),
    *groups.CORRECTION_FLAGS,
    *groups.all_estimate_flags(),
  ):
    value = values[name].value
    if isinstance(value, float) and not math.isfinite(value):
      raise errors.FlagError(f'--{name} must be a finite number, found {value}')
    if isinstance(value, float) and abs(value) > _LARGEST_FLOAT:
      raise errors.FlagError(
        f'--{name} must be finite in float32, found {value}'
      )
  if values.seed > _LARGEST_SEED:
    raise errors.FlagError(
      f'--seed must be at most {_LARGEST_SEED}, found {values.seed}'
    )
  if values.sketch_seed is not None and abs(values.sketch_seed) >= 2**63:
    raise errors.FlagError(
      f'--sketch_seed must have 64 bits, found {values.sketch_seed}'
    )
  if (
    values.participation_estimate != 'known'
    and values.participation == 'explicit'
    and values.participation_prior is None
  ):
    raise errors.FlagError(
      '--participation_prior must be given with --participation=explicit and'
      f' --participation_estimate={values.participation_estimate}'
    )
  if values.evaluate_every > values.rounds:
    raise errors.FlagError(
      f'--evaluate_every must be <= --rounds = {values.rounds}, found'
      f' {values.evaluate_every}'
    )
  if values.core_set is not None and values.core_set_size is not None:
    raise errors.FlagError(
      '--core_set_size must not be given with --core_set, found'
      f' {values.core_set_size}'
    )
  arguments.client_ids(values, 'core_set')
  arguments.client_ids(values, 'enforced_clients')
  arguments.probabilities(values)
  _check_workers(values)


def _check_workers(values: flags.FlagValues) -> None:
  tls = [name for name in groups.TLS_FLAGS if values[name].value]
  if values.workers is None:
    for name in ('worker_timeout', *groups.TLS_FLAGS):
      if values[name].present:
        raise errors.FlagError(f'--{name} is used with --workers only')
    return
  for name, what in (
    ('deterministic', 'threads are'),
    ('keep_freed_memory', 'memory is'),
  ):
    if getattr(values, name):
      raise errors.FlagError(
        f'--{name} is used without --workers only, whose {what} set where they'
        ' are started'
      )
  try:
    addresses.check_addresses(values.workers, '--workers')
    addresses.check_timeout(values.worker_timeout, '--worker_timeout')
  except ValueError as e:
    raise errors.FlagError(str(e)) from e
  if tls and len(tls) < len(groups.TLS_FLAGS):
    missing = [f'--{name}' for name in groups.TLS_FLAGS if name not in tls]
    raise errors.FlagError(
      f'--{" and --".join(groups.TLS_FLAGS)} must be given together, found no'
      f' {" and no ".join(missing)}'
    )
  for name in tls:
    if not os.path.isfile(values[name].value):
      raise errors.FlagError(
        f'--{name} must be a file, found none at {values[name].value}'
      )


def _unused_correction_flags(values: flags.FlagValues) -> list[tuple]:
  """Checks the flags of the correction; returns those that must be absent."""
  if values.algorithm != 'fedsteer':
    return [(name, 'algorithm', 'fedsteer') for name in groups.CORRECTION_FLAGS]
  needed = {
    'sum': (),
    'private': ('correction_norm', 'noise_multiplier'),
  }.get(values.correction, ('correction_norm',))
  for name in needed:
    if values[name].value is None:
      raise errors.FlagError(
        f'--{name} must be given with --correction={values.correction}'
      )
  if values.correction_norm is not None and values.correction_norm <= 0:
    raise errors.FlagError(
      f'--correction_norm must be > 0, found {values.correction_norm}'
    )
  unused = []
  if values.correction == 'sum':
    unused.append(
      ('correction_norm', 'correction', 'clipped, zeroed, secure or private')
    )
  if values.correction != 'private':
    unused.append(('noise_multiplier', 'correction', 'private'))
  return unused
