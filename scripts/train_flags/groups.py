"""Flags by who takes them, and the choices that decide it."""

from collections.abc import Sequence

TASKS = ('cifar10', 'digits', 'emnist', 'fashion_mnist')
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
ALGORITHMS = tuple(ALGORITHM_FLAGS)
# Without these there is no such algorithm.
REQUIRED_FLAGS = {'fedprox': 'proximal_strength', 'fedstale': 'beta'}
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


def all_algorithm_flags() -> Sequence[str]:
  """Returns the flags that one or another algorithm takes, each once."""
  names = [name for flags_ in ALGORITHM_FLAGS.values() for name in flags_]
  return tuple(dict.fromkeys(names))


def all_estimate_flags() -> Sequence[str]:
  """Returns the flags that one or another estimate takes, each once."""
  names = [name for flags_ in ESTIMATE_FLAGS.values() for name in flags_]
  return tuple(dict.fromkeys(names))
