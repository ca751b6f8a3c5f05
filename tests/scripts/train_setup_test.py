"""Tests for train_setup."""

from absl import flags
from absl.testing import flagsaver
import pytest

from fedsteer_tff import participation
from scripts import train_flags
from scripts import train_setup

train_flags.define()


@pytest.mark.parametrize(
  ('arguments', 'wanted'),
  [
    ([], 'known'),
    (
      ['frequency', '--participation_rate=0.2'],
      participation.RunningFrequency(0.2),
    ),
    (
      [
        'frequency',
        '--participation_prior=0.5',
        '--participation_prior_rounds=3',
        '--participation_floor=0.02',
        '--participation_population=growing',
      ],
      participation.RunningFrequency(0.5, 3.0, 0.02, 'growing'),
    ),
    (
      ['windowed', '--participation_window=50'],
      participation.WindowedFrequency(0.1, 50.0),
    ),
    (
      ['interval', '--participation_prior=1', '--participation_cutoff=20'],
      participation.IntervalEstimate(1.0, 20),
    ),
    (
      [
        'interval',
        '--participation=explicit',
        '--participation_probabilities=0.5,0.1',
        '--participation_prior=0.3',
      ],
      participation.IntervalEstimate(0.3),
    ),
  ],
)
def test_flags_choose_the_estimator(arguments, wanted):
  if arguments:
    arguments = [f'--participation_estimate={arguments[0]}', *arguments[1:]]
  with flagsaver.flagsaver():
    train_flags.parse(['train', '--output_dir=x', *arguments])
    assert train_setup.participation_argument(flags.FLAGS) == wanted


@pytest.mark.parametrize(
  ('arguments', 'line'),
  [
    (
      ['frequency', '--participation_prior=2'],
      '--participation_prior must be in (0, 1], found 2.0',
    ),
    (
      ['windowed', '--participation_window=1'],
      '--participation_window must be finite and > 1, found 1.0',
    ),
    (
      ['interval', '--participation_cutoff=0'],
      '--participation_cutoff must be >= 1, found 0',
    ),
    (
      ['interval', '--participation_population=open'],
      "--participation_population must be one of 'fixed', 'growing', found"
      " 'open'",
    ),
  ],
)
def test_a_wrong_parameter_of_an_estimator_names_its_flag(arguments, line):
  arguments = [f'--participation_estimate={arguments[0]}', *arguments[1:]]
  with flagsaver.flagsaver():
    train_flags.parse(['train', '--output_dir=x', *arguments])
    with pytest.raises(ValueError) as caught:
      train_setup.participation_argument(flags.FLAGS)
  assert train_flags.explain(caught.value) == line


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
