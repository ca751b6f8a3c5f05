"""What choosing the core set costs, and what its sketch loses."""

import time
from typing import Optional

import numpy as np
import tensorflow as tf

from fedsteer_tff import aggregators
from fedsteer_tff import subspace
from fedsteer_tff.programs import memory
from scripts.benchmark_suites import results
from scripts.benchmark_suites import training
import tasks


def selection_suite(rounds: Optional[int], small: bool) -> results.Result:
  """A core set of 20 among 10,000 candidates, sketched to 256 numbers."""
  candidates, width, k = (300, 32, 5) if small else (10_000, 256, 20)
  sketches = np.random.default_rng(0).normal(size=[candidates, width])
  sketches = tf.constant(sketches, tf.float32)
  before = memory.peak_resident_bytes()
  seconds = []
  for _ in range(rounds or 3):
    start = time.perf_counter()
    selection = subspace.select_core_set_from_vectors(
      sketches, sketches, tf.ones([candidates]), k, ridge=0.01
    )
    selection.core_set.numpy()
    seconds.append(time.perf_counter() - start)
  grown = memory.peak_resident_bytes() - before
  return dict(
    headlines={
      f'{k} of {candidates:,} candidates': results.seconds_text(seconds),
      'memory for it, at most': results.mebibytes_text(grown),
    },
    raw=dict(
      seconds=seconds,
      peak_growth_bytes=grown,
      num_swaps=int(selection.num_swaps),
      core_set=selection.core_set.numpy().tolist(),
    ),
  )


def residual_suite(rounds: Optional[int], small: bool) -> results.Result:
  """How much worse coordinates from sketches are than exact ones.

  Fashion-MNIST (digits if small) is trained by plain averaging for a while;
  then every client trains once, and the updates are projected on those of a
  core set chosen among them.
  """
  task = tasks.load_task(
    'digits' if small else 'fashion_mnist',
    num_clients=20 if small else training.POPULATION,
    examples_per_client=20 if small else 80,
    model=None if small else 'small_cnn',
    gamma=0.9,
    class_ratio=0.5,
    seed=0,
  )
  updates = _updates_of_all(task, rounds or (2 if small else 40))
  unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
  weights = np.ones(len(updates))
  sketch_size = aggregators.FedSteerFactory(training.POPULATION).sketch_size
  ratios = {}
  for k in (training.CORE_SET_SIZE, 2 * training.CORE_SET_SIZE):
    core_set = subspace.select_core_set_from_vectors(
      unit, unit, weights, k, 0.01
    ).core_set.numpy()
    basis = updates[core_set]
    exact = _residual(updates, basis, subspace.project(basis, updates))
    ratios[f'k = {k}'] = [
      _residual(
        updates,
        basis,
        subspace.project(
          subspace.sketch(basis, sketch_size, seed),
          subspace.sketch(updates, sketch_size, seed),
        ),
      )
      / exact
      for seed in range(8)
    ]
  return dict(
    headlines={
      f'residual, sketched / exact, {name}': (
        f'{np.mean(values):.3f} (at most {max(values):.3f})'
      )
      for name, values in ratios.items()
    },
    raw=dict(
      task=task.name, weights=updates.shape[1], b=sketch_size, ratios=ratios
    ),
  )


def _updates_of_all(task: tasks.FederatedTask, rounds: int) -> np.ndarray:
  """Returns every client's update [N, D] after some rounds of averaging."""
  model = task.keras_model_fn()
  variables = model.trainable_variables
  loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

  @tf.function
  def train(dataset):
    for x, y in dataset:
      with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
      for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(0.1 * gradient)

  def update_of(client, weights):
    for variable, weight in zip(variables, weights):
      variable.assign(weight)
    train(task.client_datasets[client])
    return [w - v.numpy() for w, v in zip(weights, variables)]

  weights = [v.numpy() for v in variables]
  rng = np.random.default_rng(0)
  for _ in range(rounds):
    cohort = rng.choice(task.num_clients, training.CLIENTS, replace=False)
    updates = [update_of(client, weights) for client in cohort]
    weights = [
      w - np.mean(parts, axis=0) for w, *parts in zip(weights, *updates)
    ]
  return np.stack(
    [
      np.concatenate([part.ravel() for part in update_of(client, weights)])
      for client in range(task.num_clients)
    ]
  )


def _residual(
  updates: np.ndarray, basis: np.ndarray, coordinates: tf.Tensor
) -> float:
  """Returns ||G - S Q|| / ||G||."""
  difference = updates - coordinates.numpy() @ basis
  return float(np.linalg.norm(difference) / np.linalg.norm(updates))
