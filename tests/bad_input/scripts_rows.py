"""Bad flags, as the programs of `scripts` answer to them on the terminal."""

import contextlib
import io
import json

from scripts import benchmark
from scripts import compare
from scripts import plot
from scripts import report
from scripts import train_flags
from tests.bad_input import rows
from tests.scripts import training_runs

_USAGE = 2
_COMPARISON = {
  'methods': {'FedSteer stable': ['--estimator=stable']},
  'settings': {'small': ['--num_clients=3', '--rounds=1']},
  'seeds': [0],
}


class Refused(Exception):
  """A program ended with the exit code of a wrong command line."""


def _run(main, arguments):
  """Runs a program; raises what it says last if it refuses its arguments."""
  error = io.StringIO()
  with contextlib.redirect_stderr(error):
    try:
      code = main(['program', *arguments])
    except SystemExit as e:  # That of argparse.
      code = e.code
  if code == _USAGE:
    raise Refused(error.getvalue().splitlines()[-1])


def _train(arguments):
  outcome = training_runs.here(*arguments)
  if outcome.code == _USAGE:
    raise Refused(outcome.stderr.rstrip('\n'))


def _of_train(flag, case, *arguments, message):
  def call(folder):
    _train([f'--output_dir={folder / "run"}', '--num_clients=3', *arguments])

  return rows.Row(
    f'scripts.train --{flag}', case, call, Refused, f'train: error: {message}'
  )


def _of(program, main, flag, case, arguments, message):
  def call(folder):
    _run(main, [a.replace('{folder}', str(folder)) for a in arguments])

  name = program.rpartition('.')[2]
  return rows.Row(
    f'{program} {flag}', case, call, Refused, f'{name}: error: {message}'
  )


def _of_compare(
  flag,
  case,
  *arguments,
  message,
  content=None,
  argparse=False,
  in_the_way=None,
):
  def call(folder):
    path = folder / 'c.json'
    if in_the_way is not None:
      _put(folder, in_the_way)
    if content is not bytes:
      path.write_text(json.dumps({**_COMPARISON, **(content or {})}), 'utf-8')
    _run(
      compare.main,
      [
        f'--config={path}',
        f'--output_dir={folder / "runs"}',
        *(a.replace('{folder}', str(folder)) for a in arguments),
      ],
    )

  name = 'python -m scripts.compare' if argparse else 'compare'
  return rows.Row(
    f'scripts.compare {flag}', case, call, Refused, f'{name}: error: {message}'
  )


def _options(parser):
  """Returns the options and arguments of a parser, but for --help."""
  return [
    action.option_strings[-1] if action.option_strings else action.metavar
    for action in parser._actions
    if action.dest != 'help'
  ]


# What each program takes; the rows have to name all of it. Those of the worker
# and of examples, which start processes, are in the tests of these.
FLAGS = {
  'scripts.train': lambda: [
    f'--{name}' for name in train_flags.defaults() if name not in _ABSL
  ],
  'scripts.compare': lambda: _options(compare.parser()),
  'scripts.benchmark': lambda: _options(benchmark.parser()),
  'scripts.report': lambda: _options(report.parser()),
  'scripts.plot': lambda: _options(plot.parser()),
}
_ABSL = ('help', 'helpfull', 'helpshort', 'helpxml', 'h')

_NOT_FINITE = '--{0} must be a finite number, found {1}'


def _not_finite(flag, *more):
  return tuple(
    _of_train(
      flag,
      value,
      f'--{flag}={value}',
      *more,
      message=_NOT_FINITE.format(flag, value),
    )
    for value in ('nan', 'inf')
  )


_EXPLICIT = '--participation=explicit'
_FREQUENCY = '--participation_estimate=frequency'
_WORKERS = '--workers=a:1'

_TRAIN = (
  _of_train(
    'task',
    'another',
    '--task=imagenet',
    message='flag --task=imagenet: value should be one of <cifar10|digits|',
  ),
  _of_train(
    'algorithm',
    'another',
    '--algorithm=adam',
    message='flag --algorithm=adam: value should be one of <fedsteer|fedavg|',
  ),
  _of_train(
    'output_dir',
    'none',
    '--output_dir=',
    message='--output_dir must be given',
  ),
  _of_train(
    'rounds',
    '0',
    '--rounds=0',
    message='flag --rounds=0: 0 is not a positive integer',
  ),
  _of_train(
    'rounds',
    'text',
    '--rounds=many',
    message='flag --rounds=many: invalid literal',
  ),
  _of_train(
    'seed',
    'negative',
    '--seed=-1',
    message='flag --seed=-1: -1 is not a non-negative integer',
  ),
  _of_train(
    'seed',
    'of more than 32 bits',
    '--seed=4294967296',
    message='--seed must be at most 4294967295, found 4294967296',
  ),
  _of_train(
    'sketch_seed',
    'of more than 64 bits',
    f'--sketch_seed={2**70}',
    message=f'--sketch_seed must have 64 bits, found {2**70}',
  ),
  *(
    _of_train(
      flag,
      'beyond float32',
      f'--{flag}=1e300',
      *more,
      message=f'--{flag} must be finite in float32, found 1e+300',
    )
    for flag, *more in (
      ('client_learning_rate',),
      ('server_learning_rate',),
      ('correction_norm', '--correction=clipped'),
      ('participation_prior_rounds', '--participation_estimate=frequency'),
      (
        'noise_multiplier',
        '--correction=private',
        '--correction_norm=1',
      ),
    )
  ),
  *_not_finite('client_learning_rate'),
  _of_train(
    'client_learning_rate',
    '0 with SCAFFOLD',
    '--client_learning_rate=0',
    '--algorithm=scaffold',
    '--participation=uniform',
    '--participation_rate=0.5',
    message='--client_learning_rate must be finite and > 0, found 0.0',
  ),
  *_not_finite('server_learning_rate'),
  _of_train(
    'evaluate_every',
    'more than the rounds',
    '--rounds=2',
    '--evaluate_every=3',
    message='--evaluate_every must be <= --rounds = 2, found 3',
  ),
  _of_train(
    'checkpoint_every',
    '0',
    '--checkpoint_every=0',
    message='flag --checkpoint_every=0: 0 is not a positive integer',
  ),
  _of_train(
    'participation',
    'another',
    '--participation=often',
    message='flag --participation=often: value should be one of',
  ),
  _of_train(
    'participation_rate',
    'above 1',
    '--participation_rate=2',
    message='--participation_rate must be in (0, 1], found 2.0',
  ),
  _of_train(
    'participation_skew',
    'negative',
    '--participation_rate=0.5',
    '--participation_skew=-1',
    message='--participation_skew must be finite and >= 0, found -1.0',
  ),
  _of_train(
    'participation_probabilities',
    'p = 0',
    _EXPLICIT,
    '--participation_probabilities=0.5,0,1',
    message='--participation_probabilities must be numbers in (0, 1] separated'
    ' by commas, found 0.5,0,1',
  ),
  _of_train(
    'participation_probabilities',
    'of other clients',
    _EXPLICIT,
    '--participation_probabilities=0.5,1',
    message='--participation_probabilities must be one for each of the 3'
    ' clients, found 2',
  ),
  _of_train(
    'participation_estimate',
    'another',
    '--participation_estimate=guess',
    message='flag --participation_estimate=guess: value should be one of',
  ),
  *(
    _of_train(
      flag,
      'out of range',
      '--participation_rate=0.5',
      '--participation_skew=0',
      f'--participation_estimate={estimate}',
      f'--{flag}={value}',
      message=f'--{flag} {message}',
    )
    for flag, estimate, value, message in (
      ('participation_prior', 'frequency', 2, 'must be in (0, 1], found 2.0'),
      (
        'participation_prior_rounds',
        'frequency',
        0,
        'must be finite and > 0, found 0.0',
      ),
      ('participation_floor', 'frequency', 0, 'must be in (0, 1], found 0.0'),
      (
        'participation_window',
        'windowed',
        1,
        'must be finite and > 1, found 1.0',
      ),
      ('participation_cutoff', 'interval', 0, 'must be >= 1, found 0'),
      (
        'participation_population',
        'interval',
        'shrinking',
        "must be one of 'fixed', 'growing', found 'shrinking'",
      ),
    )
  ),
  _of_train(
    'workers',
    'no port',
    '--workers=a',
    message="--workers must be host:port, ... found 'a'",
  ),
  _of_train(
    'deterministic',
    'with workers',
    _WORKERS,
    '--deterministic',
    message='--deterministic is used without --workers only, whose threads are',
  ),
  _of_train(
    'keep_freed_memory',
    'with workers',
    _WORKERS,
    '--keep_freed_memory',
    message='--keep_freed_memory is used without --workers only, whose memory',
  ),
  _of_train(
    'max_core_norm',
    'nothing',
    '--participation_rate=0.5',
    '--core_set_size=1',
    '--max_core_norm=0',
    message='--max_core_norm must be > 0 and finite in float32, found 0.0',
  ),
  _of_train(
    'worker_timeout',
    '0 seconds',
    _WORKERS,
    '--worker_timeout=0',
    message='flag --worker_timeout=0',
  ),
  _of_train(
    'tls_ca',
    'alone',
    _WORKERS,
    '--tls_ca=x',
    message='--tls_ca and --tls_certificate and --tls_key must be given'
    ' together, found no --tls_certificate and no --tls_key',
  ),
  *(
    _of_train(
      flag,
      'without workers',
      f'--{flag}=x',
      message=f'--{flag} is used with --workers only',
    )
    for flag in ('tls_certificate', 'tls_key')
  ),
  _of_train(
    'data_dir',
    'of a task that has its data',
    '--data_dir=x',
    message='--data_dir must be given with task cifar10 or emnist or',
  ),
  _of_train(
    'partition',
    'another',
    '--partition=fair',
    message='--partition must be one of bipartite, dirichlet, iid, natural,'
    " found 'fair'",
  ),
  _of_train(
    'num_clients',
    '0',
    '--num_clients=0',
    message='flag --num_clients=0: 0 is not a positive integer',
  ),
  _of_train(
    'gamma',
    'above 1',
    '--gamma=1.5',
    message='--gamma must be in [0, 1], found 1.5',
  ),
  _of_train(
    'class_ratio',
    '0',
    '--class_ratio=0',
    message='--class_ratio must be in (0, 1], found 0.0',
  ),
  _of_train(
    'alpha',
    '0',
    '--partition=dirichlet',
    '--alpha=0',
    message='--alpha must be finite and >= 0.001, found 0.0',
  ),
  _of_train(
    'examples_per_client',
    'more than there are',
    '--examples_per_client=5000',
    message='--examples_per_client needs more examples than there are: found',
  ),
  _of_train(
    'batch_size',
    '0',
    '--batch_size=0',
    message='flag --batch_size=0: 0 is not a positive integer',
  ),
  _of_train(
    'local_epochs',
    'a half',
    '--local_epochs=0.5',
    message='flag --local_epochs=0.5: invalid literal',
  ),
  _of_train(
    'model',
    'another',
    '--model=gpt',
    message="--model must be one of mlp, ... found 'gpt'",
  ),
  _of_train(
    'label_set',
    'of another task',
    '--label_set=digits',
    message="--label_set must be given with task emnist only, found label_set='"
    "digits' with task digits",
  ),
  _of_train(
    'evaluate_on',
    'another',
    '--evaluate_on=train',
    message='--evaluate_on must be one of test, validation, found',
  ),
  _of_train(
    'mask_absent_classes',
    'text',
    '--mask_absent_classes=maybe',
    message="flag --mask_absent_classes=maybe: ('Non-boolean argument to",
  ),
  _of_train(
    'client_weighting',
    'another',
    '--client_weighting=equal',
    '--participation_rate=0.5',
    '--participation_skew=0',
    '--core_set_size=1',
    message="--client_weighting must be one of 'known', 'examples', found"
    " 'equal'",
  ),
  *(
    _of_train(
      flag,
      case,
      f'--algorithm={algorithm}',
      f'--{flag}={value}',
      '--participation_rate=0.5',
      '--participation_skew=0',
      *more,
      message=f'--{flag} {message}',
    )
    for flag, case, algorithm, value, message, more in (
      (
        'correction_weighting',
        'another',
        'fedavg',
        'equal',
        "must be one of ... found 'equal'",
        (),
      ),
      (
        'correction_smoothing',
        '0',
        'fedavg',
        0,
        'must be in (0, 1], found 0.0',
        (),
      ),
      (
        'proximal_strength',
        '0',
        'fedprox',
        0,
        'must be finite and > 0, found 0.0',
        (),
      ),
      ('beta', 'above 1', 'fedstale', 2, 'must be in [0, 1], found 2.0', ()),
      (
        'coordinate_refresh',
        'another',
        'fedsteer',
        'never',
        "must be one of ... found 'never'",
        (),
      ),
      (
        'core_set_size',
        'k > N',
        'fedsteer',
        4,
        'must be <= population_size=3, found 4',
        (),
      ),
      (
        'core_set',
        'an unknown client',
        'fedsteer',
        '0,3',
        'ids must be < population_size=3, found 3',
        (),
      ),
      (
        'ridge',
        'negative',
        'fedsteer',
        -1,
        'must be finite and >= 0, found -1.0',
        ('--core_set_size=1',),
      ),
      (
        'absolute_ridge',
        'negative',
        'fedsteer',
        -1,
        'must be finite and >= 0, found -1.0',
        ('--core_set_size=1',),
      ),
      (
        'warmup_rounds',
        '0',
        'fedsteer',
        0,
        'must be >= 1, found 0',
        ('--core_set_size=1',),
      ),
      (
        'reselect_every',
        'negative',
        'fedsteer',
        -1,
        'must be >= 0, found -1',
        ('--core_set_size=1',),
      ),
      (
        'core_eligibility',
        'another',
        'fedsteer',
        'all',
        "must be one of ... found 'all'",
        ('--core_set_size=1',),
      ),
      (
        'aggregation',
        'another',
        'fedsteer',
        'gossip',
        "must be one of ... found 'gossip'",
        ('--core_set_size=1',),
      ),
      (
        'sketch_size',
        '0',
        'fedsteer',
        0,
        'must be >= 1, found 0',
        ('--core_set_size=1',),
      ),
      (
        'candidate_pool_size',
        '0',
        'fedsteer',
        0,
        'must be >= 1, found 0',
        ('--core_set_size=1',),
      ),
    )
  ),
  _of_train(
    'core_set',
    'a name',
    '--core_set=0,me',
    message='--core_set must be client ids separated by commas, found 0,me',
  ),
  _of_train(
    'estimator',
    'another',
    '--estimator=best',
    message='flag --estimator=best: value should be one of',
  ),
  _of_train(
    'sketch_seed',
    'text',
    '--sketch_seed=x',
    message='flag --sketch_seed=x: invalid literal',
  ),
  _of_train(
    'enforce_core_every',
    'negative',
    '--enforce_core_every=-1',
    message='flag --enforce_core_every=-1: -1 is not a non-negative integer',
  ),
  _of_train(
    'enforced_clients',
    'an unknown client',
    '--algorithm=fedavg',
    '--participation_rate=0.5',
    '--participation_skew=0',
    '--enforce_core_every=2',
    '--enforced_clients=0,3',
    message='--enforced_clients must be ids in [0, 3), found [3]',
  ),
  _of_train(
    'enforced_clients',
    'a client twice',
    '--algorithm=fedavg',
    '--participation_rate=0.5',
    '--participation_skew=0',
    '--enforce_core_every=2',
    '--enforced_clients=0,0',
    message='--enforced_clients must be distinct, found [0, 0]',
  ),
  _of_train(
    'correction',
    'another',
    '--correction=hidden',
    message='flag --correction=hidden: value should be one of',
  ),
  _of_train(
    'correction_norm',
    '0',
    '--correction=clipped',
    '--correction_norm=0',
    message='--correction_norm must be > 0, found 0.0',
  ),
  _of_train(
    'noise_multiplier',
    'without a private correction',
    '--noise_multiplier=1',
    message='--noise_multiplier is used with --correction=private only, found'
    ' --correction=sum',
  ),
)

_COMPARE = (
  _of_compare(
    '--config',
    'no file',
    content=bytes,
    message='--config must be a file that can be read: ',
  ),
  _of_compare(
    '--config',
    'flags that scripts.train refuses',
    content={'settings': {'small': ['--gama=1']}},
    message="{folder}/c.json: setting 'small' with method 'FedSteer stable':",
  ),
  _of_compare(
    '--config',
    'a reference that is no method',
    content={'reference': 'X'},
    message='{folder}/c.json: reference must be one of the methods FedSteer'
    " stable, found 'X'",
  ),
  _of_compare(
    '--data_dirs',
    'no folder',
    '--data_dirs=emnist',
    argparse=True,
    message='argument --data_dirs: must be TASK:DIR with TASK in ... found'
    " 'emnist'",
  ),
  _of_compare(
    '--output_dir',
    'a path with a NUL',
    '--output_dir=a\0b',
    message='--output_dir must be a path, without NUL bytes',
  ),
  _of_compare(
    '--results_dir',
    'a path with a NUL',
    '--results_dir=a\0b',
    message='--results_dir must be a path, without NUL bytes',
  ),
  *(
    _of_compare(
      flag,
      'out of range',
      f'{flag}={value}',
      argparse=True,
      message=f'argument {flag}: {message}',
    )
    for flag, value, message in (
      ('--jobs', '0', "must be an integer >= 1, found '0'"),
      ('--rounds', '-1', "must be an integer >= 1, found '-1'"),
      ('--seeds', '0,0', 'must be different integers >= 0 separated by commas'),
    )
  ),
  _of_compare(
    '--settings',
    'another',
    '--settings=large',
    message='--settings must be among small, found large',
  ),
  _of_compare(
    '--methods',
    'another',
    '--methods=SGD',
    message='--methods must be among FedSteer stable, found SGD',
  ),
)

_BENCHMARK = tuple(
  rows.Row(
    f'scripts.benchmark {flag}',
    case,
    lambda folder, a=arguments: _run(
      benchmark.main, [x.replace('{folder}', str(folder)) for x in a]
    ),
    Refused,
    message,
  )
  for flag, case, arguments, message in (
    (
      '--suites',
      'another',
      ['--suites=speed'],
      'python -m scripts.benchmark: error: argument --suites: must be some of'
      " ... found 'speed'",
    ),
    (
      '--rounds',
      '0',
      ['--rounds=0'],
      'python -m scripts.benchmark: error: argument --rounds: must be an'
      " integer >= 1, found '0'",
    ),
    (
      '--small',
      'with a value',
      ['--small=yes'],
      'python -m scripts.benchmark: error: argument --small: ignored explicit'
      " argument 'yes'",
    ),
    (
      '--output_dir',
      'a file',
      [f'--output_dir={__file__}'],
      'benchmark: error: --output_dir must be a folder, found ',
    ),
    (
      '--output_dir',
      'a path with a NUL',
      ['--output_dir=a\0b'],
      'benchmark: error: --output_dir must be a path, without NUL bytes',
    ),
  )
)

_REPORT = (
  _of(
    'scripts.report',
    report.main,
    'FOLDER',
    'an empty folder',
    ['{folder}'],
    'FOLDER must hold a run (metrics.csv) or the results of a comparison ...'
    ' found nothing in {folder}',
  ),
  _of(
    'scripts.report',
    report.main,
    '--output',
    'a path with a NUL',
    ['{folder}', '--output=a\0b'],
    '--output must be a path, without NUL bytes',
  ),
)

_PLOT = (
  _of(
    'scripts.plot',
    plot.main,
    'FOLDER',
    'no folder',
    ['{folder}/x'],
    'FOLDER must hold a run (metrics.csv) or the results of a comparison ...'
    ' found no folder in {folder}/x',
  ),
  rows.Row(
    'scripts.plot --format',
    'another',
    lambda folder: _run(plot.main, ['--format=gif', str(folder)]),
    Refused,
    'python -m scripts.plot: error: argument --format: invalid choice:',
  ),
)


def _put(folder, name):
  """Puts something that is in the way: 'x/' is a folder, 'x' is a file."""
  path = folder / name
  path.parent.mkdir(parents=True, exist_ok=True)
  if name.endswith('/'):
    (path / 'mine').mkdir(parents=True)
  else:
    path.write_text('mine')


def _in_the_way(program, main, flag, name, arguments, message, table=None):
  """A row whose program finds a file for a folder or the other way round."""

  def call(folder):
    if table is not None:
      (folder / 'metrics.csv').write_text(table)
    _put(folder, name)
    before = sorted(folder.rglob('*'))
    try:
      _run(main, [a.replace('{folder}', str(folder)) for a in arguments])
    finally:
      assert sorted(folder.rglob('*')) == before

  short = program.rpartition('.')[2]
  return rows.Row(
    f'{program} {flag}',
    f'{name} is in the way',
    call,
    Refused,
    f'{short}: error: {message}',
  )


def _train_in_the_way(name, message):
  """The same of a run that is to go on."""
  arguments = ['--num_clients=3', '--algorithm=fedavg']

  def call(folder):
    run = folder / 'run'
    arguments_here = [f'--output_dir={run}', *arguments]
    if name != 'config.json/':
      run.mkdir()
      flags = train_flags.config_of(arguments_here)
      (run / 'config.json').write_text(json.dumps({'flags': flags}))
    _put(run, name)
    before = training_runs.snapshot(run)
    try:
      _train(arguments_here)
    finally:
      after = training_runs.snapshot(run)
      after.pop('.lock', None)
      assert after == before
      assert (run / name).exists()

  return rows.Row(
    'scripts.train --output_dir',
    f'{name} is in the way',
    call,
    Refused,
    f'train: error: {message}',
  )


def _train_on(case, change, message):
  """A row of a run whose flags were others when it was begun."""
  arguments = ['--num_clients=3', '--algorithm=fedavg', '--local_epochs=2']

  def call(folder):
    run = folder / 'run'
    run.mkdir()
    flags = dict(train_flags.config_of([f'--output_dir={run}', *arguments]))
    change(flags)
    (run / 'config.json').write_text(json.dumps({'flags': flags}))
    before = training_runs.snapshot(run)
    try:
      _train([f'--output_dir={run}', *arguments])
    finally:
      after = training_runs.snapshot(run)
      after.pop('.lock', None)
      assert after == before

  return rows.Row(
    'scripts.train --output_dir',
    case,
    call,
    Refused,
    'train: error: the run in {folder}/run has another configuration:'
    f' {message} (--rounds may only be raised); choose another output_dir',
  )


_OF_OTHER_VERSIONS = (
  _train_on(
    'a run with a flag that is no longer there',
    lambda flags: flags.update(momentum=0.9),
    '--momentum: 0.9 -> None (there is no such flag any more)',
  ),
  _train_on(
    'a run from before a flag',
    lambda flags: flags.pop('local_epochs'),
    '--local_epochs: None -> 2 (config.json has none, so None, the default)',
  ),
  _train_on(
    'a run from when a flag had another default',
    lambda flags: flags.update(client_learning_rate=0.05),
    '--client_learning_rate: 0.05 -> 0.1 (the default)',
  ),
)
_ROUNDS = 'round,test_accuracy\n1,0.5\n'
_IN_THE_WAY = (
  *(
    _train_in_the_way(
      f'{name}/', f'{{folder}}/run/{name} must be a file, found a folder'
    )
    for name in (
      'config.json',
      'config.json.tmp',
      'metrics.csv',
      'metrics.csv.tmp',
      'summary.json',
      'summary.json.tmp',
      'accuracy.png',
      'accuracy.png.tmp',
    )
  ),
  *(
    _train_in_the_way(
      name, f'{{folder}}/run/{name} must be a folder, found a file'
    )
    for name in ('checkpoints', 'tensorboard')
  ),
  *(
    _in_the_way(program, main, flag, name, arguments, message, table)
    for program, main, flag, name, arguments, message, table in (
      (
        'scripts.plot',
        plot.main,
        '--output_dir',
        'p',
        ['{folder}', '--output_dir={folder}/p/q'],
        '--output_dir must be a folder, found a file: {folder}/p',
        _ROUNDS,
      ),
      (
        'scripts.plot',
        plot.main,
        '--output_dir',
        'accuracy.png/',
        ['{folder}'],
        '{folder}/accuracy.png must be a file, found a folder',
        _ROUNDS,
      ),
      (
        'scripts.plot',
        plot.main,
        'FOLDER',
        'metrics.csv/',
        ['{folder}'],
        '{folder}/metrics.csv must be a file, found a folder',
        None,
      ),
      (
        'scripts.plot',
        plot.main,
        'FOLDER',
        'config.json/',
        ['{folder}'],
        '{folder}/config.json must be a text that can be read, found: ... Is a',
        _ROUNDS,
      ),
      (
        'scripts.report',
        report.main,
        '--output',
        'report.html/',
        ['{folder}'],
        '--output must be a file, found a folder: {folder}/report.html',
        _ROUNDS,
      ),
      (
        'scripts.report',
        report.main,
        'FOLDER',
        'runs.csv/',
        ['{folder}'],
        '{folder}/runs.csv must be a file, found a folder',
        None,
      ),
    )
  ),
  *(
    _of_compare(
      flag,
      f'{name} is in the way',
      f'--results_dir={{folder}}/{results}',
      message=message,
      in_the_way=name,
    )
    for flag, name, results, message in (
      (
        '--output_dir',
        'runs',
        'r',
        '--output_dir must be a folder, found a file: {folder}/runs',
      ),
      (
        '--output_dir',
        'runs/small/fedsteer_stable',
        'r',
        '{folder}/runs/small/fedsteer_stable/0 must be a folder, found a file:'
        ' {folder}/runs/small/fedsteer_stable',
      ),
      (
        '--output_dir',
        'runs/small/fedsteer_stable/0.log/',
        'r',
        '{folder}/runs/small/fedsteer_stable/0.log must be a file, found a',
      ),
      (
        '--output_dir',
        'runs/small/fedsteer_stable/0/metrics.csv/',
        'r',
        '{folder}/runs/small/fedsteer_stable/0/metrics.csv must be a file,',
      ),
      (
        '--results_dir',
        'r',
        'r/s',
        '--results_dir must be a folder, found a file: {folder}/r',
      ),
      *(
        (
          '--results_dir',
          f'r/{name}/',
          'r',
          f'{{folder}}/r/{name} must be a file, found a folder',
        )
        for name in ('table.md', 'curves.csv', 'accuracy.png')
      ),
    )
  ),
)


def _plot_into(output):
  def call(folder):
    (folder / 'metrics.csv').write_text('round,test_accuracy\n1,0.5\n')
    _run(plot.main, [str(folder), f'--output_dir={output}'])

  return call


def _damaged_table(content):
  def call(folder):
    (folder / 'metrics.csv').write_bytes(content)
    _run(report.main, [str(folder)])

  return call


ROWS = (
  *_TRAIN,
  *_COMPARE,
  *_BENCHMARK,
  *_REPORT,
  *_PLOT,
  *_IN_THE_WAY,
  *_OF_OTHER_VERSIONS,
  rows.Row(
    'scripts.plot --output_dir',
    'a file',
    _plot_into(__file__),
    Refused,
    'plot: error: ',
  ),
  rows.Row(
    'scripts.report FOLDER',
    'a table that is no text',
    _damaged_table(b'\xff\xfe\n'),
    Refused,
    'report: error: {folder}/metrics.csv must be a text that can be read',
  ),
  rows.Row(
    'scripts.report FOLDER',
    'an empty table',
    _damaged_table(b'round\n'),
    Refused,
    'report: error: {folder}/metrics.csv must hold at least one row, found'
    ' none',
  ),
  rows.Row(
    'scripts.report FOLDER',
    'an accuracy that is none',
    _damaged_table(b'round,test_accuracy\n1,good\n'),
    Refused,
    'report: error: {folder}/metrics.csv must have numbers in the column'
    " test_accuracy, found 'good'",
  ),
  rows.Row(
    'scripts.report FOLDER',
    'a round that is none',
    _damaged_table(b'round,test_accuracy\nx,0.5\n'),
    Refused,
    'report: error: {folder}/metrics.csv must be a table with one row for each'
    ' round, found',
  ),
)
