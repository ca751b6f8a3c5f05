"""Tests of how flags say what sums the correction."""

from absl import flags
from absl.testing import flagsaver
import numpy as np
import pytest
import tensorflow_federated as tff

from fedsteer_tff import programs
from scripts import train_flags
from scripts import train_setup

_VECTORS = np.float32([[3.0, 4.0], [0.3, -0.4]])


@pytest.fixture(name='simulation', scope='module', autouse=True)
def _simulation():
  with programs.LocalRuntime(simulate_secure_sums=True).activate():
    yield


@pytest.mark.parametrize(
  ('arguments', 'wanted'),
  [
    # [3, 4] has the norm 5.
    (['--correction=clipped'], [0.6 + 0.3, 0.8 - 0.4]),
    (['--correction=zeroed'], [0.3, -0.4]),
    # Every entry is brought into [-1, 1].
    (['--correction=secure'], [1.0 + 0.3, 1.0 - 0.4]),
    (
      ['--correction=private', '--noise_multiplier=0'],
      [0.6 + 0.3, 0.8 - 0.4],
    ),
  ],
  ids=lambda value: value[0] if isinstance(value[0], str) else '',
)
def test_corrections_sum_what_their_norm_leaves(arguments, wanted):
  train_flags.define()
  with flagsaver.flagsaver():
    train_flags.parse(
      ['train', '--output_dir=x', '--correction_norm=1', *arguments]
    )
    factory = train_setup.correction_factory(flags.FLAGS)
  process = factory.create(tff.TensorType(np.float32, [2]))
  found = process.next(process.initialize(), list(_VECTORS)).result
  np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_without_a_choice_the_correction_is_a_plain_sum():
  train_flags.define()
  with flagsaver.flagsaver():
    train_flags.parse(['train', '--output_dir=x'])
    assert train_setup.correction_factory(flags.FLAGS) is None


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
