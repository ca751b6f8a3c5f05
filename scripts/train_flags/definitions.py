"""The definitions of the flags, with their defaults and what `--help` says."""

from collections.abc import Sequence

from absl import app
from absl import flags

from scripts.train_flags import groups


def define() -> None:
  """Defines the flags, unless that is done."""
  if 'task' in flags.FLAGS:
    return
  app.define_help_flags()
  flags.DEFINE_enum('task', 'digits', groups.TASKS, 'What is learned.')
  flags.DEFINE_enum(
    'algorithm', 'fedsteer', groups.ALGORITHMS, 'How it is learned.'
  )
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
    'participation',
    'two_group',
    groups.PARTICIPATION,
    'Who takes part how often.',
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
    tuple(groups.ESTIMATE_FLAGS),
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
    groups.CORRECTIONS,
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


def defined() -> Sequence[flags.Flag]:
  """Returns the flags, which are defined if that is not done."""
  define()
  return flags.FLAGS.get_key_flags_for_module(__name__)
