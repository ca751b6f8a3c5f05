"""The flags of `scripts.train` and the rules between them.

No TensorFlow here: a mistyped flag is reported at once.
"""

from collections.abc import Mapping, Sequence
import copy
import math
import os
from typing import Any, Optional

from absl import app
from absl import flags

from fedsteer_tff.programs import addresses

TASKS = ('cifar10', 'digits', 'emnist', 'fashion_mnist')
ALGORITHMS = (
  'fedsteer',
  'fedavg',
  'fedprox',
  'fedvarp',
  'fedstale',
  'mifa',
  'scaffold',
)
PARTICIPATION = ('two_group', 'uniform', 'explicit')
# Who takes part: what these say must be the same for methods to be compared.
SAMPLING_FLAGS = (
  'participation',
  'participation_rate',
  'participation_skew',
  'participation_probabilities',
)
# What is known of that, by --participation_estimate: the flags that each uses.
ESTIMATE_FLAGS = {
  'known': (),
  'frequency': (
    'participation_prior',
    'participation_prior_rounds',
    'participation_floor',
    'participation_population',
  ),
  'windowed': (
    'participation_prior',
    'participation_window',
    'participation_prior_rounds',
    'participation_floor',
    'participation_population',
  ),
  'interval': (
    'participation_prior',
    'participation_cutoff',
    'participation_population',
  ),
}

# Flags by who takes them. A flag without a value (None) leaves the choice to
# what it is passed to, whose documentation states the default.
TASK_FLAGS = (
  'data_dir',
  'partition',
  'num_clients',
  'gamma',
  'class_ratio',
  'alpha',
  'examples_per_client',
  'batch_size',
  'local_epochs',
  'model',
  'label_set',
  'evaluate_on',
  'mask_absent_classes',
)
FEDSTEER_FLAGS = (
  'estimator',
  'core_set_size',
  'core_set',
  'coordinate_refresh',
  'correction_weighting',
  'correction_smoothing',
  'ridge',
  'absolute_ridge',
  'warmup_rounds',
  'reselect_every',
  'core_eligibility',
  'client_weighting',
  'aggregation',
  'sketch_size',
  'sketch_seed',
  'candidate_pool_size',
  'max_core_norm',
)
# How FedSteer's correction is summed, see `train_setup`.
CORRECTION_FLAGS = ('correction', 'correction_norm', 'noise_multiplier')
CORRECTIONS = ('sum', 'clipped', 'zeroed', 'secure', 'private')
_AVERAGE_FLAGS = (
  'correction_weighting',
  'correction_smoothing',
  'client_weighting',
)
# What each algorithm's `build_...` function takes.
ALGORITHM_FLAGS = {
  'fedsteer': FEDSTEER_FLAGS,
  'fedavg': _AVERAGE_FLAGS,
  'fedprox': ('proximal_strength', *_AVERAGE_FLAGS),
  'fedvarp': _AVERAGE_FLAGS,
  'fedstale': ('beta', *_AVERAGE_FLAGS),
  'mifa': ('client_weighting',),
  'scaffold': _AVERAGE_FLAGS,
}
# Without these there is no such algorithm.
_REQUIRED_FLAGS = {'fedprox': 'proximal_strength', 'fedstale': 'beta'}
# Used by the training loop.
LOOP_FLAGS = ('enforce_core_every', 'enforced_clients')
COMMON_FLAGS = (
  'task',
  'algorithm',
  'rounds',
  'seed',
  'client_learning_rate',
  'server_learning_rate',
  *SAMPLING_FLAGS,
  'participation_estimate',
  'evaluate_every',
  'checkpoint_every',
  'workers',
  'deterministic',
  'keep_freed_memory',
)
TLS_FLAGS = ('tls_ca', 'tls_certificate', 'tls_key')

# What the run directory's guard makes of changes. Data may be moved: their
# content is guarded by a hash. Workers may move, too; another number of them
# adds in another order, of which `scripts.train` warns.
MAY_GROW = 'rounds'
MAY_CHANGE = ('checkpoint_every', 'data_dir', 'keep_freed_memory', 'workers')

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


def define() -> None:
  """Defines the flags, unless that is done."""
  if 'task' in flags.FLAGS:
    return
  app.define_help_flags()
  flags.DEFINE_enum('task', 'digits', TASKS, 'What is learned.')
  flags.DEFINE_enum('algorithm', 'fedsteer', ALGORITHMS, 'How it is learned.')
  flags.DEFINE_string(
    'output_dir', None, 'Folder of the results; a run in it is resumed.'
  )
  flags.DEFINE_integer(
    'rounds', 150, 'How many rounds; may be raised later.', lower_bound=1
  )
  flags.DEFINE_integer(
    'seed', 0, 'Of partition, weights and cohorts.', lower_bound=0
  )
  flags.DEFINE_float(
    'client_learning_rate', 0.1, 'Of the clients’ SGD.', lower_bound=0
  )
  flags.DEFINE_float(
    'server_learning_rate', 1.0, 'Of the server’s SGD.', lower_bound=0
  )
  flags.DEFINE_integer(
    'evaluate_every', 1, 'Test after every so many rounds.', lower_bound=1
  )
  flags.DEFINE_integer(
    'checkpoint_every', 10, 'Save after every so many rounds.', lower_bound=1
  )
  _define_participation()
  _define_workers()
  _define_task()
  _define_baselines()
  _define_fedsteer()
  _define_correction()


def _define_participation() -> None:
  flags.DEFINE_enum(
    'participation', 'two_group', PARTICIPATION, 'Who takes part how often.'
  )
  flags.DEFINE_float('participation_rate', 0.1, 'Mean share of active clients.')
  flags.DEFINE_float(
    'participation_skew',
    5.0,
    'two_group: the first half takes part 1 + skew times as often.',
  )
  flags.DEFINE_list(
    'participation_probabilities',
    None,
    'explicit: p_i of each client, in (0, 1].',
  )
  flags.DEFINE_enum(
    'participation_estimate',
    'known',
    tuple(ESTIMATE_FLAGS),
    'known: weights use the true p_i. Else they are estimated: frequency over'
    ' all rounds, windowed, or interval between participations.',
  )
  flags.DEFINE_float(
    'participation_prior',
    None,
    'p_i of a client nothing is known of; --participation_rate if not given.',
  )
  flags.DEFINE_float(
    'participation_prior_rounds', None, 'Rounds that the prior counts as.'
  )
  flags.DEFINE_float('participation_floor', None, 'Of estimates, in (0, 1].')
  flags.DEFINE_float(
    'participation_window', None, 'windowed: rounds that are remembered, > 1.'
  )
  flags.DEFINE_integer(
    'participation_cutoff', None, 'interval: the longest interval, in rounds.'
  )
  flags.DEFINE_string(
    'participation_population',
    None,
    'fixed, or growing: clients are judged from their first report on.',
  )


def _define_workers() -> None:
  flags.DEFINE_list(
    'workers',
    None,
    'host:port of each scripts.worker that trains; this machine if not given.',
  )
  flags.DEFINE_boolean(
    'deterministic',
    False,
    'One thread, and one client at a time: the same bits on any number of'
    ' processors; slower.',
  )
  flags.DEFINE_boolean(
    'keep_freed_memory',
    False,
    'Keep the memory that the runtime has needed once: faster with models of'
    ' more than 8 million weights.',
  )
  flags.DEFINE_float(
    'worker_timeout',
    20.0,
    'Seconds in which a worker must answer.',
    lower_bound=0.1,
  )
  flags.DEFINE_string(
    'tls_ca',
    None,
    'PEM file: the authority that workers’ certificates are from.',
  )
  flags.DEFINE_string(
    'tls_certificate', None, 'PEM file: the certificate shown to workers.'
  )
  flags.DEFINE_string('tls_key', None, 'PEM file: its key.')


def _define_task() -> None:
  flags.DEFINE_string(
    'data_dir', None, 'cifar10, emnist, fashion_mnist: folder of the files.'
  )
  flags.DEFINE_string(
    'partition', None, 'bipartite, dirichlet, iid or natural (emnist).'
  )
  flags.DEFINE_integer('num_clients', None, 'N.', lower_bound=1)
  flags.DEFINE_float('gamma', None, 'bipartite: share of the majority.')
  flags.DEFINE_float(
    'class_ratio', None, 'bipartite: share of its classes a client has.'
  )
  flags.DEFINE_float('alpha', None, 'dirichlet: concentration.')
  flags.DEFINE_integer(
    'examples_per_client', None, 'Mean examples of a client.', lower_bound=1
  )
  flags.DEFINE_integer('batch_size', None, 'Of local training.', lower_bound=1)
  flags.DEFINE_integer(
    'local_epochs', None, 'Passes of local training.', lower_bound=1
  )
  flags.DEFINE_string('model', None, 'The network, see the task.')
  flags.DEFINE_string('label_set', None, 'emnist: digits, byclass, balanced.')
  flags.DEFINE_string(
    'evaluate_on',
    None,
    'test, or validation: training images that no client gets, for tuning.',
  )
  flags.DEFINE_boolean(
    'mask_absent_classes',
    None,
    'Clients train with logits of classes they do not have set to 0: as the'
    ' published code does, to reproduce it only.',
  )


def _define_baselines() -> None:
  flags.DEFINE_string('client_weighting', None, 'known or examples.')
  flags.DEFINE_string(
    'correction_weighting',
    None,
    'inverse_probability, self_normalized or participant_mean.',
  )
  flags.DEFINE_float('correction_smoothing', None, 'In (0, 1].')
  flags.DEFINE_float('proximal_strength', None, 'fedprox: mu > 0.')
  flags.DEFINE_float('beta', None, 'fedstale: trust in old updates, in [0, 1].')


def _define_fedsteer() -> None:
  flags.DEFINE_enum(
    'estimator',
    'paper',
    ('paper', 'unbiased', 'stable'),
    'Sets coordinate_refresh, correction_weighting and correction_smoothing,'
    ' unless they are given.',
  )
  flags.DEFINE_string(
    'coordinate_refresh', None, 'before_aggregation or after_aggregation.'
  )
  flags.DEFINE_integer('core_set_size', None, 'k.')
  flags.DEFINE_list(
    'core_set', None, 'Ids of the core clients; if not given, they are chosen.'
  )
  flags.DEFINE_float('ridge', None, 'Relative ridge, >= 0.')
  flags.DEFINE_float('absolute_ridge', None, 'Instead of the relative ridge.')
  flags.DEFINE_integer('warmup_rounds', None, 'Before the core is chosen.')
  flags.DEFINE_integer('reselect_every', None, 'Choose again; 0 for never.')
  flags.DEFINE_string(
    'core_eligibility', None, 'reporting, frequent or received.'
  )
  flags.DEFINE_string(
    'aggregation',
    None,
    'sketched_projection, server_projection, client_projection or dense.',
  )
  flags.DEFINE_integer('sketch_size', None, 'Numbers in an update’s sketch.')
  flags.DEFINE_integer('sketch_seed', None, 'Of the sketch.')
  flags.DEFINE_integer('candidate_pool_size', None, 'Of the core selection.')
  flags.DEFINE_float(
    'max_core_norm',
    None,
    'Longer updates are remembered as if they had this L2 norm; no bound if not'
    ' given.',
  )
  flags.DEFINE_integer(
    'enforce_core_every',
    0,
    'Core clients take part once in so many rounds at least; 0: no matter.',
    lower_bound=0,
  )
  flags.DEFINE_list(
    'enforced_clients',
    None,
    'Ids for --enforce_core_every, with algorithms without a core set.',
  )


def _define_correction() -> None:
  flags.DEFINE_enum(
    'correction',
    'sum',
    CORRECTIONS,
    'fedsteer: how the correction is summed; see docs/privacy.md. A secure sum'
    ' is simulated, with --workers too: it hides nothing.',
  )
  flags.DEFINE_float(
    'correction_norm',
    None,
    'clipped, private: vectors are clipped to this L2 norm; zeroed: longer ones'
    ' become 0; secure: bound of the absolute value of an entry.',
  )
  flags.DEFINE_float(
    'noise_multiplier',
    None,
    'private: standard deviation of the noise over correction_norm.',
    lower_bound=0,
  )


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
  except flags.Error as e:
    raise FlagError(' '.join(str(e).split())) from e
  if len(rest) > 1:
    raise FlagError(f'arguments must be flags (--name=value), found {rest[1]}')
  check(values)


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
  define()
  values = flags.FlagValues()
  for flag in flags.FLAGS.get_key_flags_for_module(__name__):
    values[flag.name] = copy.deepcopy(flag)
    values[flag.name].unparse()
  parse(['train', *arguments], values)
  return config(values)


def check(values: flags.FlagValues) -> None:
  """Checks what does not need TensorFlow.

  Args:
    values: The parsed flags.

  Raises:
    FlagError: If a flag is missing, not finite, or given though the chosen
      algorithm or participation does not use it.
  """
  if not values.output_dir:
    raise FlagError('--output_dir must be given')
  unused = []
  for name in _all_algorithm_flags():
    users = [a for a, names in ALGORITHM_FLAGS.items() if name in names]
    if values.algorithm not in users:
      unused.append((name, 'algorithm', ' or '.join(users)))
  unused += _unused_correction_flags(values)
  required = _REQUIRED_FLAGS.get(values.algorithm)
  if required and values[required].value is None:
    raise FlagError(
      f'--{required} must be given with --algorithm={values.algorithm}'
    )
  if values.algorithm == 'fedsteer':
    if values.enforced_clients is not None:
      raise FlagError(
        '--enforced_clients must not be given with --algorithm=fedsteer, which'
        ' enforces its core set'
      )
  elif bool(values['enforce_core_every'].present) != bool(
    values['enforced_clients'].present
  ):
    raise FlagError(
      '--enforce_core_every and --enforced_clients must be given together with'
      f' --algorithm={values.algorithm}'
    )
  if values.participation != 'two_group':
    unused.append(('participation_skew', 'participation', 'two_group'))
  if values.participation != 'explicit':
    unused.append(('participation_probabilities', 'participation', 'explicit'))
  elif values['participation_rate'].present:
    raise FlagError(
      '--participation_rate is not used with --participation=explicit, found'
      f' {values.participation_rate}'
    )
  for name in _all_estimate_flags():
    users = [e for e, names in ESTIMATE_FLAGS.items() if name in names]
    if values.participation_estimate not in users:
      unused.append((name, 'participation_estimate', ' or '.join(users)))
  for name, choice, needed in unused:
    if values[name].present:
      raise FlagError(
        f'--{name} is used with --{choice}={needed} only, found'
        f' --{choice}={values[choice].value}'
      )
  for name in (
    *COMMON_FLAGS,
    *TASK_FLAGS,
    *_all_algorithm_flags(),
    *CORRECTION_FLAGS,
    *_all_estimate_flags(),
  ):
    value = values[name].value
    if isinstance(value, float) and not math.isfinite(value):
      raise FlagError(f'--{name} must be a finite number, found {value}')
  if (
    values.participation_estimate != 'known'
    and values.participation == 'explicit'
    and values.participation_prior is None
  ):
    raise FlagError(
      '--participation_prior must be given with --participation=explicit and'
      f' --participation_estimate={values.participation_estimate}'
    )
  if values.evaluate_every > values.rounds:
    raise FlagError(
      f'--evaluate_every must be <= --rounds = {values.rounds}, found'
      f' {values.evaluate_every}'
    )
  if values.core_set is not None and values.core_set_size is not None:
    raise FlagError(
      '--core_set_size must not be given with --core_set, found'
      f' {values.core_set_size}'
    )
  client_ids(values, 'core_set')
  client_ids(values, 'enforced_clients')
  probabilities(values)
  _check_workers(values)


def _check_workers(values: flags.FlagValues) -> None:
  tls = [name for name in TLS_FLAGS if values[name].value]
  if values.workers is None:
    for name in ('worker_timeout', *TLS_FLAGS):
      if values[name].present:
        raise FlagError(f'--{name} is used with --workers only')
    return
  for name, what in (
    ('deterministic', 'threads are'),
    ('keep_freed_memory', 'memory is'),
  ):
    if getattr(values, name):
      raise FlagError(
        f'--{name} is used without --workers only, whose {what} set where they'
        ' are started'
      )
  try:
    addresses.check_addresses(values.workers, '--workers')
    addresses.check_timeout(values.worker_timeout, '--worker_timeout')
  except ValueError as e:
    raise FlagError(str(e)) from e
  if tls and len(tls) < len(TLS_FLAGS):
    missing = [f'--{name}' for name in TLS_FLAGS if name not in tls]
    raise FlagError(
      f'--{" and --".join(TLS_FLAGS)} must be given together, found no'
      f' {" and no ".join(missing)}'
    )
  for name in tls:
    if not os.path.isfile(values[name].value):
      raise FlagError(
        f'--{name} must be a file, found none at {values[name].value}'
      )


def _unused_correction_flags(values: flags.FlagValues) -> list[tuple]:
  """Checks the flags of the correction; returns those that must be absent."""
  if values.algorithm != 'fedsteer':
    return [(name, 'algorithm', 'fedsteer') for name in CORRECTION_FLAGS]
  needed = {
    'sum': (),
    'private': ('correction_norm', 'noise_multiplier'),
  }.get(values.correction, ('correction_norm',))
  for name in needed:
    if values[name].value is None:
      raise FlagError(
        f'--{name} must be given with --correction={values.correction}'
      )
  if values.correction_norm is not None and values.correction_norm <= 0:
    raise FlagError(
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


def _all_algorithm_flags() -> Sequence[str]:
  names = [name for flags_ in ALGORITHM_FLAGS.values() for name in flags_]
  return tuple(dict.fromkeys(names))


def _all_estimate_flags() -> Sequence[str]:
  names = [name for flags_ in ESTIMATE_FLAGS.values() for name in flags_]
  return tuple(dict.fromkeys(names))


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
    raise FlagError(
      '--participation_probabilities must be numbers in (0, 1] separated by'
      f' commas, found {",".join(found) or "nothing"}'
    )
  return result


def client_ids(values: flags.FlagValues, name: str) -> Optional[list[int]]:
  """Returns a flag's list of client ids, or None."""
  found = values[name].value
  if found is None:
    return None
  try:
    return [int(i) for i in found]
  except ValueError as e:
    raise FlagError(
      f'--{name} must be client ids separated by commas, found'
      f' {",".join(found)}'
    ) from e


def given(values: flags.FlagValues, names: Sequence[str]) -> dict[str, Any]:
  """Returns the flags among `names` that have a value, as arguments."""
  arguments = {n: values[n].value for n in names if values[n].value is not None}
  if 'core_set' in arguments:
    arguments['core_set'] = client_ids(values, 'core_set')
  return arguments


def config(values: flags.FlagValues) -> Mapping[str, Any]:
  """Returns the flags that determine the run, for `config.json`."""
  names = list(COMMON_FLAGS) + list(TASK_FLAGS)
  if values.participation != 'two_group':
    names.remove('participation_skew')
  if values.participation == 'explicit':
    names.remove('participation_rate')
  else:
    names.remove('participation_probabilities')
  names += [
    *ALGORITHM_FLAGS[values.algorithm],
    *LOOP_FLAGS,
    *ESTIMATE_FLAGS[values.participation_estimate],
  ]
  if values.algorithm == 'fedsteer':
    names += CORRECTION_FLAGS
  result = {name: values[name].value for name in names}
  for name in ('core_set', 'enforced_clients'):
    if result.get(name) is not None:
      result[name] = client_ids(values, name)
  if 'participation_probabilities' in result:
    result['participation_probabilities'] = probabilities(values)
  return result


def defaults() -> Mapping[str, Any]:
  """Returns the default of every flag, by name."""
  define()
  return {
    flag.name: flag.default
    for flag in flags.FLAGS.get_key_flags_for_module(__name__)
  }


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
    *COMMON_FLAGS,
    *TASK_FLAGS,
    *_all_algorithm_flags(),
    *_all_estimate_flags(),
    *LOOP_FLAGS,
    *CORRECTION_FLAGS,
  )
  if name in (*known, 'output_dir'):
    return f'--{name} {rest}'
  if isinstance(error, OSError) or ' must ' in message:
    return message
  return None
