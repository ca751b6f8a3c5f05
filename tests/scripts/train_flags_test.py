"""Tests for train_flags."""

import inspect
import pathlib
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import pytest

from scripts import train
from scripts import train_flags
import tasks

assert train  # Defines the flags.


@pytest.fixture(autouse=True)
def restore_flags():
  with flagsaver.flagsaver():
    yield


def _parse(*arguments):
  train_flags.parse(['train', '--output_dir=x', *arguments])
  return flags.FLAGS


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--rounds=abc'], '--rounds=abc: invalid literal'),
    (['--rounds=0'], '--rounds=0: 0 is not a positive integer'),
    (['--client_learning_rate=-1'], '--client_learning_rate=-1'),
    (
      ['--client_learning_rate=nan'],
      '--client_learning_rate must be a finite number, found nan',
    ),
    (['--gamma=inf'], '--gamma must be a finite number, found inf'),
    (['--estimator=best'], '--estimator=best: value should be one of'),
    (['--task=imagenet'], '--task=imagenet: value should be one of'),
    (['--ruonds=3'], "Unknown command line flag 'ruonds'"),
    (['150'], r'arguments must be flags .* found 150'),
    (
      ['--rounds=5', '--evaluate_every=6'],
      '--evaluate_every must be <= --rounds = 5, found 6',
    ),
    (
      ['--core_set=1,b'],
      '--core_set must be client ids separated by commas, found 1,b',
    ),
    (
      ['--core_set=1,2', '--core_set_size=2'],
      '--core_set_size must not be given with --core_set, found 2',
    ),
    (['--output_dir='], '--output_dir must be given'),
    (
      ['--participation=uniform', '--participation_skew=5'],
      '--participation_skew is used with --participation=two_group only,'
      ' found --participation=uniform',
    ),
    (
      ['--algorithm=fedavg', '--enforce_core_every=5'],
      '--enforce_core_every and --enforced_clients must be given together with'
      ' --algorithm=fedavg',
    ),
    (['--workers=a'], "--workers must be host:port, .* found 'a' in 'a'$"),
    (['--workers=a:1,b:c'], "--workers must be .* 'b:c' in 'a:1,b:c'$"),
    (['--workers=a:1,,b:2'], "--workers must be .* '' in 'a:1,,b:2'$"),
    (['--workers=http://a:1'], "--workers must be host:port, .* 'http://a:1'"),
    (['--workers=a:١'], "--workers must be host:port, .* found 'a:١'"),
    (
      ['--workers=a:1', '--deterministic'],
      '--deterministic is used without --workers only, whose threads are set'
      ' where they are started',
    ),
    (
      ['--workers=a:1', '--keep_freed_memory'],
      '--keep_freed_memory is used without --workers only, whose memory is set'
      ' where they are started',
    ),
    (['--max_core_norm=nan'], '--max_core_norm must be a finite number'),
    (
      ['--algorithm=fedavg', '--max_core_norm=1'],
      '--max_core_norm is used with --algorithm=fedsteer only',
    ),
    (['--workers='], '--workers must be at least one host:port, found none'),
    (
      ['--workers=A:1,a:01'],
      "--workers must be different addresses, found 'A:1' and 'a:01'",
    ),
    *(
      (
        ['--workers=a:1', f'--worker_timeout={seconds}'],
        f'--worker_timeout must be > 0 and at most a day .* found {seconds}',
      )
      for seconds in ('nan', 'inf', '86401.0')
    ),
    (['--workers=a:1', '--worker_timeout=0'], '--worker_timeout=0'),
    (['--worker_timeout=5'], '--worker_timeout is used with --workers only'),
    (['--tls_ca=x'], '--tls_ca is used with --workers only'),
    (
      ['--workers=a:1', '--tls_ca=x'],
      '--tls_ca and --tls_certificate and --tls_key must be given together,'
      ' found no --tls_certificate and no --tls_key',
    ),
    (
      [
        '--workers=a:1',
        '--tls_ca=no_such_file',
        '--tls_certificate=y',
        '--tls_key=z',
      ],
      '--tls_ca must be a file, found none at no_such_file',
    ),
    (
      ['--algorithm=mifa', '--enforced_clients=1,2'],
      '--enforce_core_every and --enforced_clients must be given together',
    ),
    (
      ['--enforce_core_every=5', '--enforced_clients=1'],
      '--enforced_clients must not be given with --algorithm=fedsteer',
    ),
    (
      ['--algorithm=mifa', '--enforce_core_every=5', '--enforced_clients=a'],
      '--enforced_clients must be client ids separated by commas, found a',
    ),
    (
      ['--algorithm=fedstale'],
      '--beta must be given with --algorithm=fedstale',
    ),
    (
      ['--algorithm=fedprox'],
      '--proximal_strength must be given with --algorithm=fedprox',
    ),
    (
      ['--algorithm=fedvarp', '--beta=0.5'],
      '--beta is used with --algorithm=fedstale only, found'
      ' --algorithm=fedvarp',
    ),
    (
      ['--algorithm=mifa', '--correction_smoothing=0.5'],
      '--correction_smoothing is used with --algorithm=fedsteer or fedavg or',
    ),
    (
      ['--algorithm=fedavg', '--correction=secure'],
      '--correction is used with --algorithm=fedsteer only, found'
      ' --algorithm=fedavg',
    ),
    (
      ['--correction=clipped'],
      '--correction_norm must be given with --correction=clipped',
    ),
    (
      ['--correction=private', '--correction_norm=1'],
      '--noise_multiplier must be given with --correction=private',
    ),
    (
      ['--correction_norm=1'],
      '--correction_norm is used with --correction=clipped, zeroed, secure or'
      ' private only, found --correction=sum',
    ),
    (
      ['--correction=secure', '--correction_norm=1', '--noise_multiplier=1'],
      '--noise_multiplier is used with --correction=private only, found'
      ' --correction=secure',
    ),
    (
      ['--correction=zeroed', '--correction_norm=0'],
      '--correction_norm must be > 0, found 0.0',
    ),
    (
      ['--correction=zeroed', '--correction_norm=inf'],
      '--correction_norm must be a finite number, found inf',
    ),
    (
      ['--participation_estimate=guess'],
      '--participation_estimate=guess: value should be one of',
    ),
    (
      ['--participation_prior=0.1'],
      '--participation_prior is used with --participation_estimate=frequency or'
      ' windowed or interval only, found --participation_estimate=known',
    ),
    (
      ['--participation_estimate=interval', '--participation_floor=0.1'],
      '--participation_floor is used with --participation_estimate=frequency or'
      ' windowed only, found --participation_estimate=interval',
    ),
    (
      ['--participation_estimate=frequency', '--participation_window=9'],
      '--participation_window is used with --participation_estimate=windowed'
      ' only, found --participation_estimate=frequency',
    ),
    (
      ['--participation_estimate=windowed', '--participation_cutoff=9'],
      '--participation_cutoff is used with --participation_estimate=interval'
      ' only, found --participation_estimate=windowed',
    ),
    (
      ['--participation_estimate=frequency', '--participation_prior=nan'],
      '--participation_prior must be a finite number, found nan',
    ),
    (
      [
        '--participation=explicit',
        '--participation_probabilities=0.5,1',
        '--participation_estimate=frequency',
      ],
      '--participation_prior must be given with --participation=explicit and'
      ' --participation_estimate=frequency',
    ),
  ],
)
def test_a_wrong_flag_is_one_line_with_its_name(arguments, message):
  with pytest.raises(train_flags.FlagError, match=message) as error:
    _parse(*arguments)
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'name',
  sorted(
    set(train_flags.FEDSTEER_FLAGS) - set(train_flags.ALGORITHM_FLAGS['fedavg'])
  ),
)
def test_fedavg_refuses_every_flag_of_fedsteer_alone(name):
  value = 'paper' if name == 'estimator' else '1'
  with pytest.raises(
    train_flags.FlagError, match=f'--{name} is used with --algorithm=fedsteer'
  ):
    _parse('--algorithm=fedavg', f'--{name}={value}')


def test_an_empty_core_set_can_be_given():
  values = _parse('--core_set=')
  assert train_flags.given(values, train_flags.FEDSTEER_FLAGS)['core_set'] == []


def test_the_configuration_tells_how_the_correction_is_summed():
  values = _parse(
    '--correction=private', '--correction_norm=0.5', '--noise_multiplier=2'
  )
  found = train_flags.config(values)
  assert {name: found[name] for name in train_flags.CORRECTION_FLAGS} == {
    'correction': 'private',
    'correction_norm': 0.5,
    'noise_multiplier': 2.0,
  }


def test_the_configuration_of_a_baseline_says_nothing_of_the_correction():
  baseline = train_flags.config(_parse('--algorithm=fedavg'))
  assert not set(train_flags.CORRECTION_FLAGS) & set(baseline)


def test_only_flags_with_a_value_become_arguments():
  values = _parse(
    '--gamma=0.7', '--core_set=4,2', '--ridge=0', '--max_core_norm=8'
  )
  assert train_flags.given(values, train_flags.TASK_FLAGS) == {'gamma': 0.7}
  assert train_flags.given(values, train_flags.FEDSTEER_FLAGS) == {
    'estimator': 'paper',
    'core_set': [4, 2],
    'ridge': 0.0,
    'max_core_norm': 8.0,
  }


def test_the_configuration_has_the_flags_that_are_used():
  values = _parse('--algorithm=fedavg', '--participation=uniform')
  config = train_flags.config(values)
  assert config['algorithm'] == 'fedavg'
  assert config['participation_rate'] == 0.1
  assert config['deterministic'] is False
  assert 'output_dir' not in config
  assert not {'participation_skew', 'estimator', 'ridge'} & set(config)


def test_the_configuration_of_a_baseline_has_its_own_flags():
  config = train_flags.config(
    _parse(
      '--algorithm=fedstale',
      '--beta=0.5',
      '--enforce_core_every=5',
      '--enforced_clients=3,1',
    )
  )
  assert config['beta'] == 0.5
  assert config['enforced_clients'] == [3, 1]
  assert {'correction_weighting', 'client_weighting'} <= set(config)
  assert not {'proximal_strength', 'ridge'} & set(config)


def test_the_configuration_of_fedsteer_has_all_its_flags():
  fedsteer = train_flags.config(_parse('--core_set=1'))
  assert fedsteer['core_set'] == [1]
  assert set(train_flags.FEDSTEER_FLAGS) <= set(fedsteer)


def test_the_configuration_has_the_flags_of_the_estimate_that_is_used():
  known = train_flags.config(_parse('--algorithm=fedavg'))
  assert known['participation_estimate'] == 'known'
  assert not [n for n in known if n.startswith('participation_prior')]
  interval = train_flags.config(
    _parse('--participation_estimate=interval', '--participation_cutoff=20')
  )
  assert interval['participation_cutoff'] == 20
  assert interval['participation_prior'] is None
  assert not {'participation_floor', 'participation_window'} & set(interval)


@pytest.mark.parametrize(
  ('error', 'line'),
  [
    (
      ValueError('prior_probability must be in (0, 1], found 2.0'),
      '--participation_prior must be in (0, 1], found 2.0',
    ),
    (
      ValueError('window must be finite and > 1, found 1.0'),
      '--participation_window must be finite and > 1, found 1.0',
    ),
    (ValueError('ridge must be >= 0'), '--ridge must be >= 0'),
    (
      ValueError('max_core_norm must be > 0 and finite in float32, found 0.0'),
      '--max_core_norm must be > 0 and finite in float32, found 0.0',
    ),
    (
      ValueError('population_size must be >= 1, found 0'),
      '--num_clients must be >= 1, found 0',
    ),
    (ValueError('it must be so,\n  found not'), 'it must be so, found not'),
    (OSError('no such file'), 'no such file'),
    (ValueError('shapes differ'), None),
  ],
)
def test_errors_of_the_package_name_the_flag(error, line):
  assert train_flags.explain(error) == line


_PRESETS = pathlib.Path('scripts/presets')
_TASK_OF_PRESET = {
  'cifar10': 'cifar10',
  'demo': 'digits',
  'digits': 'digits',
  'emnist': 'emnist',
  'fashion_mnist': 'fashion_mnist',
  'paper_cifar10': 'cifar10',
  'paper_emnist': 'emnist',
  'paper_fashion_mnist': 'fashion_mnist',
}


def test_every_preset_is_tested():
  folder = pathlib.Path(__file__).resolve().parents[2] / _PRESETS
  found = {path.stem for path in folder.glob('*.flags')}
  assert found == {*_TASK_OF_PRESET, 'paper_fedsteer'}


@pytest.mark.parametrize(('preset', 'task'), _TASK_OF_PRESET.items())
def test_presets_parse(preset, task):
  values = _parse(f'--flagfile={_PRESETS}/{preset}.flags')
  assert values.task == task
  assert not values.mask_absent_classes
  assert values.evaluate_on is None  # The test set.


# All but the demo leave the algorithm to the user.
@pytest.mark.parametrize('preset', sorted({*_TASK_OF_PRESET} - {'demo'}))
def test_presets_of_settings_fit_fedavg(preset):
  values = _parse(f'--flagfile={_PRESETS}/{preset}.flags', '--algorithm=fedavg')
  assert values.algorithm == 'fedavg'


@pytest.mark.parametrize(
  ('preset', 'model', 'rate', 'examples'),
  [
    ('paper_emnist', 'paper_emnist_cnn', 0.5, 80),
    ('paper_fashion_mnist', 'paper_fashion_cnn', 0.01, 80),
    ('paper_cifar10', 'preact_resnet18', 0.1, 90),
  ],
)
def test_presets_of_the_paper_have_its_setting(preset, model, rate, examples):
  values = _parse(
    f'--flagfile={_PRESETS}/{preset}.flags',
    f'--flagfile={_PRESETS}/paper_fedsteer.flags',
  )
  config = train_flags.config(values)
  expected = {
    'algorithm': 'fedsteer',
    'model': model,
    'client_learning_rate': rate,
    'server_learning_rate': 1.0,
    'partition': 'bipartite',
    'num_clients': 100,
    'gamma': 0.9,
    'class_ratio': 0.5,
    'examples_per_client': examples,
    'batch_size': 500,
    'local_epochs': 5,
    'rounds': 150,
    'participation': 'two_group',
    'participation_rate': 0.1,
    'participation_skew': 5.0,
    'core_set_size': 10,
    'warmup_rounds': 5,
  }
  assert {name: config[name] for name in expected} == expected


def test_task_flags_become_arguments_of_the_task():
  values = _parse(
    '--task=cifar10', '--evaluate_on=validation', '--mask_absent_classes'
  )
  assert train_flags.given(values, train_flags.TASK_FLAGS) == {
    'evaluate_on': 'validation',
    'mask_absent_classes': True,
  }
  assert train_flags.config(values)['evaluate_on'] == 'validation'


def test_flags_offer_the_tasks_that_there_are():
  assert train_flags.TASKS == tasks.TASK_NAMES
  parameters = inspect.signature(tasks.load_task).parameters
  assert {*train_flags.TASK_FLAGS, 'name', 'seed'} == set(parameters)


def test_explicit_probabilities_are_read():
  values = _parse(
    '--participation=explicit', '--participation_probabilities=0.5,1,0.25'
  )
  assert train_flags.probabilities(values) == [0.5, 1.0, 0.25]
  config = train_flags.config(values)
  assert config['participation_probabilities'] == [0.5, 1.0, 0.25]
  assert 'participation_rate' not in config


@pytest.mark.parametrize('value', ['0.5,0', '1.5', 'often', ''])
def test_wrong_explicit_probabilities_are_refused(value):
  with pytest.raises(train_flags.FlagError, match='in \\(0, 1\\].* found'):
    _parse('--participation=explicit', f'--participation_probabilities={value}')


def test_probabilities_need_explicit_participation():
  with pytest.raises(train_flags.FlagError, match='participation=explicit'):
    _parse('--participation_probabilities=0.5')


def test_the_configuration_of_other_arguments_leaves_the_flags_alone():
  values = _parse('--gamma=0.7')
  config = train_flags.config_of(['--output_dir=y', '--algorithm=fedavg'])
  assert config['algorithm'] == 'fedavg'
  assert config['gamma'] is None
  assert (values.gamma, values.algorithm) == (0.7, 'fedsteer')
  with pytest.raises(train_flags.FlagError, match="flag 'ruonds'"):
    train_flags.config_of(['--output_dir=y', '--ruonds=3'])


def test_every_entry_of_the_configuration_has_a_default():
  _parse('--gamma=0.7')
  defaults = train_flags.defaults()
  config = train_flags.config_of(['--output_dir=y'])
  assert {name: defaults[name] for name in config} == config


def test_help_lists_the_flags():
  result = subprocess.run(
    [sys.executable, '-m', 'scripts.train', '--help'],
    cwd=pathlib.Path(__file__).resolve().parents[2],
    capture_output=True,
    text=True,
    timeout=60,
  )
  assert 'Trains one algorithm on one task' in result.stdout
  assert '--estimator' in result.stdout
  assert '--participation_probabilities' in result.stdout


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
