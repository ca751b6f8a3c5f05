"""Evaluation of the global model on a central test set."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.programs import arguments

EvaluateFn = Callable[
  [tff.learning.models.ModelWeights], OrderedDict[str, float]
]

# Metrics that count the test set instead of judging the model.
_COUNTS = ('num_examples', 'num_batches')


def build_evaluation(
  model_fn: Callable[[], tff.learning.models.VariableModel],
  test_dataset: tf.data.Dataset,
) -> EvaluateFn:
  """Returns a function that judges model weights on a test set.

  The batches are kept in memory as tensors and the forward pass is compiled
  once, so that an evaluation costs little more than its arithmetic; no
  federated computation is involved.

  Args:
    model_fn: As for the learning process. Called once, here; the learning
      process must have been built before.
    test_dataset: Batches as the model takes them.

  Returns:
    A function from `tff.learning.models.ModelWeights` to an `OrderedDict` of
    Python floats: the model's finalized metrics (such as 'loss').

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If the test set is empty, or has no end.
  """
  arguments.check_callable('model_fn', model_fn)
  arguments.check_instance(
    'test_dataset', test_dataset, tf.data.Dataset, 'a tf.data.Dataset'
  )
  if test_dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
    raise ValueError(
      'test_dataset must have an end, found one that repeats for ever'
    )
  batches = list(test_dataset)
  if not batches:
    raise ValueError('test_dataset must have at least one batch, found none')
  model = model_fn()
  # Keras finalizers are `tf.function`s that make a metric, and so can run only
  # once; what they wrap has no such limit.
  finalizers = {
    name: getattr(finalizer, 'python_function', finalizer)
    for name, finalizer in model.metric_finalizers().items()
  }

  @tf.function(input_signature=[test_dataset.element_spec])
  def forward(batch: Any) -> None:
    model.forward_pass(batch, training=False)

  def evaluate(
    weights: tff.learning.models.ModelWeights,
  ) -> OrderedDict[str, float]:
    weights.assign_weights_to(model)
    model.reset_metrics()
    for batch in batches:
      forward(batch)
    metrics = model.report_local_unfinalized_metrics()
    return OrderedDict(
      (name, float(finalizers[name](value)))
      for name, value in metrics.items()
      if name not in _COUNTS
    )

  return evaluate


def seeded_weights(
  model_fn: Callable[[], tff.learning.models.VariableModel], seed: int
) -> tff.learning.models.ModelWeights:
  """Returns a model's initial weights as drawn from a seed.

  Keras initializers without a seed of their own draw differently in every TFF
  runtime. Here the weights are drawn in this process instead, which makes two
  runs with the same seed equal. Sets the global seeds of Python, NumPy and
  TensorFlow.

  Args:
    model_fn: As for the learning process.
    seed: The seed of the weights.

  Returns:
    The weights as NumPy arrays.

  Raises:
    TypeError: If `model_fn` is no function.
    ValueError: If `seed` is not an integer in [0, 2^32).
  """
  arguments.check_callable('model_fn', model_fn)
  arguments.check_integer('seed', seed, 0)
  if seed >= 2**32:
    raise ValueError(f'seed must be below 2**32, found {seed}')
  tf.keras.utils.set_random_seed(seed)
  weights = tff.learning.models.ModelWeights.from_model(model_fn())
  return tf.nest.map_structure(lambda v: v.numpy(), weights)


def seeded_initial_state(
  process: tff.learning.templates.LearningProcess,
  model_fn: Callable[[], tff.learning.models.VariableModel],
  seed: int,
) -> Any:
  """Returns the process's initial state with weights drawn from a seed.

  Sets the global seeds, see `seeded_weights`.

  Args:
    process: A learning process over models of `model_fn`.
    model_fn: As for the learning process.
    seed: The seed of the weights.

  Returns:
    A state for `process.next`.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If `seed` is not an integer in [0, 2^32).
  """
  arguments.check_instance(
    'process',
    process,
    tff.learning.templates.LearningProcess,
    'a learning process',
  )
  state = process.initialize()
  return process.set_model_weights(state, seeded_weights(model_fn, seed))
