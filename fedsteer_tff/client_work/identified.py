"""Local training by a client whose update keeps the client's identity."""

import collections
from collections.abc import Mapping
import math
from typing import Any, Callable, Optional

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.client_work import client_data
from fedsteer_tff.client_work import weight_term
from fedsteer_tff.participation import identity as identity_lib

# What TFF's client work measures, and the count in it that Keras models have.
_TRAIN, _NUM_EXAMPLES = 'train', 'num_examples'


def build_identified_client_work(
  model_fn: weight_term.ModelFn,
  optimizer: tff.learning.optimizers.Optimizer,
  *,
  client_weighting: str = identity_lib.KNOWN,
  metrics_aggregator: Optional[Callable[..., Any]] = None,
  loop_implementation: Optional[tff.learning.LoopImplementation] = None,
) -> tff.learning.templates.ClientWorkProcess:
  """Wraps TFF's model-delta client work so that it knows who trains.

  Client data is `<ident, data>`, see `client_data`. The result of `next` is a
  `ClientResult` whose `update` is

      <update=<model's trainable weights>,
       client_id=int32, participation_probability=float32>

  and whose `update_weight` is the client's weight: `ident.weight`, or the
  number of examples processed. TFF replaces an update that is not finite by
  zeros; here its weight becomes NaN, so that the aggregator can drop it, count
  it and keep it out of its caches. It drops one whose squared norm overflows by
  itself.

  Metrics of a round without examples, such as one in which nobody takes part,
  would be 0 where TFF divides by their number. Here those that are not integers
  are NaN then, if the model counts `num_examples`, as Keras models do.

  Args:
    model_fn: A no-argument callable that builds a `VariableModel`, or a
      `FunctionalModel`.
    optimizer: The local optimizer.
    client_weighting: 'known' or 'examples'.
    metrics_aggregator: As in `tff.learning.algorithms`.
    loop_implementation: As in `tff.learning.algorithms`. DATASET_ITERATOR if
      None: the same result as TFF's own default, DATASET_REDUCE, which runs
      convolutions on CPUs at less than half the speed.

  Returns:
    A `ClientWorkProcess`.

  Raises:
    TypeError: If `model_fn` or `optimizer` is something else.
    ValueError: If `client_weighting` is neither of its values.
  """
  check_model_fn(model_fn)
  check_optimizer('optimizer', optimizer)
  if client_weighting not in identity_lib.CLIENT_WEIGHTINGS:
    raise ValueError(
      "client_weighting must be 'known' or 'examples', found "
      f'{client_weighting!r}'
    )
  training = _build_training(
    model_fn,
    optimizer,
    metrics_aggregator,
    loop_implementation,
    client_weighting,
  )
  state_type, weights_type, data_type = training.next.type_signature.parameter
  identified_data_type = tff.to_type(
    collections.OrderedDict(
      ident=tff.SequenceType(client_data.identity_type()), data=data_type.member
    )
  )

  result_type = training.next.type_signature.result.result.member

  def identified(
    client_result: tff.learning.templates.ClientResult,
    identity: Mapping[str, tf.Tensor],
    weight: tf.Tensor,
    is_finite: tf.Tensor,
  ) -> tff.learning.templates.ClientResult:
    return tff.learning.templates.ClientResult(
      update=collections.OrderedDict(
        update=client_result.update,
        client_id=identity['client_id'],
        participation_probability=identity['participation_probability'],
      ),
      update_weight=tf.where(is_finite, weight, float('nan')),
    )

  # TFF weighs an update that is not finite by 0.
  if client_weighting == identity_lib.KNOWN:

    @tff.tensorflow.computation(result_type, identified_data_type.ident)
    def identify(
      client_result: tff.learning.templates.ClientResult, ident: tf.data.Dataset
    ) -> tff.learning.templates.ClientResult:
      identity = read_identity(ident)
      return identified(
        client_result,
        identity,
        identity['weight'],
        client_result.update_weight > 0,
      )

  else:

    @tff.tensorflow.computation(result_type, identified_data_type)
    def identify(
      client_result: tff.learning.templates.ClientResult,
      data: Mapping[str, tf.data.Dataset],
    ) -> tff.learning.templates.ClientResult:
      examples = tf.cast(client_result.update_weight, tf.float32)
      num_batches = data['data'].take(1).reduce(0, lambda count, _: count + 1)
      return identified(
        client_result,
        read_identity(data['ident']),
        examples,
        # No examples weigh nothing either.
        (examples > 0) | tf.equal(num_batches, 0),
      )

  without_examples = _build_metrics_without_examples(
    training.next.type_signature.result.measurements.member
  )

  @tff.federated_computation(
    state_type,
    weights_type,
    tff.FederatedType(identified_data_type, tff.CLIENTS),
  )
  def next_fn(
    state: tff.Value, weights: tff.Value, data: tff.Value
  ) -> tff.templates.MeasuredProcessOutput:
    # Selected as a value of TFF, not by TensorFlow code, which would read a
    # dataset and write it again.
    output = training.next(state, weights, data.data)
    known = client_weighting == identity_lib.KNOWN
    result = tff.federated_map(
      identify, (output.result, data.ident if known else data)
    )
    measurements = output.measurements
    if without_examples is not None:
      measurements = tff.federated_map(without_examples, measurements)
    return tff.templates.MeasuredProcessOutput(
      output.state, result, measurements
    )

  return tff.learning.templates.ClientWorkProcess(
    training.initialize,
    next_fn,
    get_hparams_fn=training.get_hparams,
    set_hparams_fn=training.set_hparams,
  )


def check_model_fn(model_fn: Any) -> None:
  """Checks that an argument is a model as client work takes it.

  Args:
    model_fn: The argument.

  Raises:
    TypeError: If it is neither a callable, which a Keras model does not count
      as, nor a `FunctionalModel`.
  """
  if isinstance(model_fn, tf.keras.Model):
    raise TypeError(
      'model_fn must be a function that builds a model, found the Keras model '
      f'{model_fn.name!r}; build it inside a function and wrap it by '
      'tff.learning.models.from_keras_model'
    )
  if not callable(model_fn) and not isinstance(
    model_fn, tff.learning.models.FunctionalModel
  ):
    raise TypeError(
      'model_fn must be a callable or a tff.learning.models.FunctionalModel, '
      f'found {model_fn!r}'
    )


def check_optimizer(name: str, value: Any) -> None:
  """Checks that an argument is one of TFF's optimizers.

  Args:
    name: Its name, for the message.
    value: Its value.

  Raises:
    TypeError: If it is none.
  """
  if not isinstance(value, tff.learning.optimizers.Optimizer):
    raise TypeError(
      f'{name} must be a tff.learning.optimizers.Optimizer, found {value!r}'
    )


def read_identity(ident: Any) -> 'collections.OrderedDict[str, tf.Tensor]':
  """Reads who a client is; TensorFlow code that runs on the client.

  Args:
    ident: A dataset of exactly one element, see `client_data`.

  Returns:
    The element: scalars client_id, int32, weight and
    participation_probability, float32.
  """
  # Not `reduce`, which optimizes the dataset first: that takes as long as a
  # batch of training.
  return ident.get_single_element()


def _build_metrics_without_examples(
  metrics_type: tff.Type,
) -> Optional[tff.Computation]:
  """Returns a computation that makes metrics NaN if there were no examples.

  Args:
    metrics_type: The type of what a client work measures, on the server.

  Returns:
    It; None if nobody counts the examples.
  """
  train = getattr(metrics_type, _TRAIN, None)
  count = getattr(train, _NUM_EXAMPLES, None)
  if not isinstance(count, tff.TensorType) or count.shape != ():
    return None

  @tff.tensorflow.computation(metrics_type)
  def without_examples(metrics: Any) -> Any:
    empty = tf.equal(metrics[_TRAIN][_NUM_EXAMPLES], 0)

    def unless_empty(value: tf.Tensor) -> tf.Tensor:
      if not value.dtype.is_floating:
        return value
      return tf.where(empty, tf.constant(math.nan, value.dtype), value)

    changed = collections.OrderedDict(metrics)
    changed[_TRAIN] = collections.OrderedDict(
      (name, tf.nest.map_structure(unless_empty, value))
      for name, value in metrics[_TRAIN].items()
    )
    return changed

  return without_examples


def _build_training(
  model_fn: weight_term.ModelFn,
  optimizer: tff.learning.optimizers.Optimizer,
  metrics_aggregator: Optional[Callable[..., Any]],
  loop: Optional[tff.learning.LoopImplementation],
  client_weighting: str,
) -> tff.learning.templates.ClientWorkProcess:
  arguments = dict(
    optimizer=optimizer,
    client_weighting=(
      tff.learning.ClientWeighting.UNIFORM
      if client_weighting == identity_lib.KNOWN
      else tff.learning.ClientWeighting.NUM_EXAMPLES
    ),
    metrics_aggregator=metrics_aggregator,
    loop_implementation=loop
    or tff.learning.LoopImplementation.DATASET_ITERATOR,
  )
  if callable(model_fn):
    return tff.learning.templates.build_model_delta_client_work(
      model_fn=model_fn, **arguments
    )
  return tff.learning.templates.build_functional_model_delta_client_work(
    model=model_fn, **arguments
  )
