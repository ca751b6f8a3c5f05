"""What all algorithms of the package share: client identity and composition."""

import collections.abc
from collections.abc import Mapping
from typing import Any, Callable, Optional, Union

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import client_work

ModelFn = Union[
  Callable[[], tff.learning.models.VariableModel],
  tff.learning.models.FunctionalModel,
]

DEFAULT_CLIENT_LEARNING_RATE = 0.1
DEFAULT_SERVER_LEARNING_RATE = 1.0


_SHARED = (
  'client_optimizer',
  'server_optimizer',
  'model_distributor',
  'metrics_aggregator',
  'loop_implementation',
)


def shared_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
  """Returns what every `build_...` function takes beside its own parameters.

  Args:
    arguments: Keyword arguments.

  Returns:
    The same arguments.

  Raises:
    TypeError: If there is another one among them.
  """
  for name in arguments:
    if name not in _SHARED:
      raise TypeError(
        'arguments must be own parameters or among '
        f'{", ".join(_SHARED)}, found {name}'
      )
  return arguments


def compose_process(
  model_fn: ModelFn,
  aggregation_factory: tff.aggregators.WeightedAggregationFactory,
  *,
  client_weighting: str,
  client_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
  server_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
  model_distributor: Optional[
    tff.learning.templates.DistributionProcess
  ] = None,
  metrics_aggregator: Optional[Callable[..., Any]] = None,
  loop_implementation: Optional[tff.learning.LoopImplementation] = None,
  build_client_work: Callable[
    ..., tff.learning.templates.ClientWorkProcess
  ] = client_work.build_identified_client_work,
) -> tff.learning.templates.LearningProcess:
  """Composes a learning process whose clients say who they are.

  Args:
    model_fn: A no-argument callable that builds a
      `tff.learning.models.VariableModel` from scratch, or a
      `tff.learning.models.FunctionalModel`.
    aggregation_factory: Aggregates identified updates.
    client_weighting: 'known' or 'examples', as the factory's.
    client_optimizer: Local optimizer; SGD with rate 0.1 if None.
    server_optimizer: Optimizer that applies the aggregate; SGD with rate 1,
      which takes it off the model, if None.
    model_distributor: Sends the model to clients; a plain broadcast if None.
    metrics_aggregator: As in `tff.learning.algorithms`.
    loop_implementation: As in `tff.learning.algorithms`; DATASET_ITERATOR if
      None, see `client_work.build_identified_client_work`.
    build_client_work: Builds the local training, with the arguments of that
      function.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    TypeError: If an optimizer or the model has the wrong type.
    ValueError: If the model has no trainable weights.
  """
  client_optimizer = client_optimizer or tff.learning.optimizers.build_sgdm(
    DEFAULT_CLIENT_LEARNING_RATE
  )
  server_optimizer = server_optimizer or tff.learning.optimizers.build_sgdm(
    DEFAULT_SERVER_LEARNING_RATE
  )
  for name, optimizer in (
    ('client_optimizer', client_optimizer),
    ('server_optimizer', server_optimizer),
  ):
    client_work.check_optimizer(name, optimizer)
  for name, value, kind, words in (
    (
      'model_distributor',
      model_distributor,
      tff.learning.templates.DistributionProcess,
      'a tff.learning.templates.DistributionProcess',
    ),
    (
      'metrics_aggregator',
      metrics_aggregator,
      collections.abc.Callable,
      'a function',
    ),
    (
      'loop_implementation',
      loop_implementation,
      tff.learning.LoopImplementation,
      'a tff.learning.LoopImplementation',
    ),
  ):
    if value is not None and not isinstance(value, kind):
      raise TypeError(f'{name} must be {words} or None, found {value!r}')
  initial_weights = _build_initial_weights(model_fn)
  weights_type = initial_weights.type_signature.result
  if not len(weights_type.trainable):
    raise ValueError(
      'model_fn must build a model with at least one trainable weight, found '
      'none'
    )
  work = build_client_work(
    model_fn,
    client_optimizer,
    client_weighting=client_weighting,
    metrics_aggregator=metrics_aggregator,
    loop_implementation=loop_implementation,
  )
  result_type = work.next.type_signature.result.result.member
  return tff.learning.templates.compose_learning_process(
    initial_weights,
    model_distributor
    or tff.learning.templates.build_broadcast_process(weights_type),
    work,
    aggregation_factory.create(result_type.update, result_type.update_weight),
    tff.learning.templates.build_apply_optimizer_finalizer(
      server_optimizer, weights_type
    ),
  )


def _build_initial_weights(model_fn: ModelFn) -> tff.Computation:
  client_work.check_model_fn(model_fn)
  if callable(model_fn):

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
      model = model_fn()
      if not isinstance(model, tff.learning.models.VariableModel):
        raise TypeError(
          'model_fn must build a tff.learning.models.VariableModel, found '
          f'{type(model).__name__}; tff.learning.models.from_keras_model wraps '
          'a Keras model'
        )
      return tff.learning.models.ModelWeights.from_model(model)

  else:

    @tff.tensorflow.computation
    def initial_weights() -> tff.learning.models.ModelWeights:
      trainable, non_trainable = model_fn.initial_weights
      return tff.learning.models.ModelWeights(
        tuple(tf.convert_to_tensor(weight) for weight in trainable),
        tuple(tf.convert_to_tensor(weight) for weight in non_trainable),
      )

  return initial_weights
