"""The example with one's own Keras model: its data, and that it learns."""

import collections

import numpy as np
import pytest
from sklearn import datasets
import tensorflow as tf
import tensorflow_federated as tff

from examples import own_keras_model
from fedsteer_tff import programs
from tests.examples import printed


@pytest.fixture(scope='module', name='run')
def _run():
  return printed.run(own_keras_model, '--rounds=12', '--print_every=4')


@pytest.mark.slow
def test_it_prints_a_line_after_every_few_rounds(run):
  assert run.code == 0
  starts = [line.split(':')[0] for line in run.lines]
  assert starts == ['untrained', 'round 4', 'round 8', 'round 12', 'trained']
  assert run.accuracy('trained') == run.accuracy('round 12')


@pytest.mark.slow
def test_it_learns(run):
  _, (_, labels) = own_keras_model.load_clinics(20, seed=0)
  # What always saying the same would give.
  constant = max(np.mean(labels), 1 - np.mean(labels))
  assert constant < 0.7
  best_guess = max(constant, run.accuracy('untrained'))
  assert run.accuracy('trained') > best_guess + 0.15


@pytest.mark.slow
def test_the_same_seed_gives_the_same_training(run):
  again = printed.run(own_keras_model, '--rounds=4', '--print_every=4')
  assert again.lines[:2] == run.lines[:2]


def test_every_example_is_with_one_clinic_or_in_the_test_set():
  clinics, test = own_keras_model.load_clinics(13, seed=3)
  assert len(clinics) == 13
  found = collections.Counter(
    (*x, y) for part in (*clinics, test) for x, y in zip(*part)
  )
  assert found == collections.Counter(
    (*x, y) for x, y in zip(*datasets.load_breast_cancer(return_X_y=True))
  )


def test_the_last_clinics_see_what_the_first_hardly_do():
  clinics, _ = own_keras_model.load_clinics(20, seed=0)
  benign = [np.mean(y) for _, y in clinics]
  assert np.mean(benign[:5]) > 0.9 and np.mean(benign[-5:]) < 0.1


def test_a_clinic_trains_several_times_on_each_example():
  clinics, test = own_keras_model.load_clinics(20, seed=0)
  pipelines, test_batches = own_keras_model.build_pipelines(clinics, test, 0)
  assert all(p.element_spec == test_batches.element_spec for p in pipelines)
  batches = list(pipelines[2].as_numpy_iterator())
  assert max(len(y) for _, y in batches) == 16
  x, y = (np.concatenate(part) for part in zip(*batches))
  # The examples of an epoch come in another order each time.
  epochs = np.split(x, 5)
  assert np.any(epochs[0] != epochs[1])
  pooled = np.concatenate([x for x, _ in clinics])
  wanted = (clinics[2][0] - pooled.mean(0)) / pooled.std(0)
  for epoch in epochs:
    np.testing.assert_allclose(
      np.sort(epoch, axis=0), np.sort(wanted, axis=0), rtol=1e-4, atol=1e-4
    )
  assert np.sum(y) == 5 * np.sum(clinics[2][1])


def test_tff_gets_the_same_batches_in_every_round():
  clinics, test = own_keras_model.load_clinics(4, seed=0)
  (pipeline, *_), _ = own_keras_model.build_pipelines(clinics, test, 0)

  @tff.tensorflow.computation(
    tff.SequenceType(tff.types.tensorflow_to_type(pipeline.element_spec))
  )
  def rows(batches):
    return batches.reduce(
      tf.zeros([0, 30]), lambda seen, batch: tf.concat([seen, batch[0]], 0)
    )

  with programs.LocalRuntime().activate():
    first, second = rows(pipeline), rows(pipeline)
  assert len(first) == 5 * len(clinics[0][1])
  np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--rounds=0', 'flag --rounds=0: 0 is not a positive integer'),
    ('--num_clients=3', 'flag --num_clients=3: 3 is not an integer in the'),
    ('--num_clients=101', 'flag --num_clients=101: 101 is not an integer in'),
    ('--seed=a', "flag --seed=a: invalid literal for int() with base 10: 'a'"),
    ('--round=4', "Unknown command line flag 'round'"),
  ],
)
def test_a_wrong_flag_is_named_with_its_rule_and_value(argument, message):
  found = printed.run(own_keras_model, argument)
  assert found.code == 2
  assert not found.lines
  assert found.error.startswith(f'own_keras_model: error: {message}')


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
