"""Local training by a client whose update keeps the client's identity."""

import collections
from typing import Any, Callable, Optional, Union

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.client_work import client_data
from fedsteer_tff.participation import identity as identity_lib


def build_identified_client_work(
  model_fn: Union[
    Callable[[], tff.learning.models.VariableModel],
    tff.learning.models.FunctionalModel,
  ],
  optimizer: tff.learning.optimizers.Optimizer,
  *,
  client_weighting: str = identity_lib.KNOWN,
  metrics_aggregator: Optional[Callable] = None,
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
  it and keep it out of its caches. So does that of an update whose squared norm
  is not finite.

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
    ValueError: If `client_weighting` is neither of its values.
  """
  if client_weighting not in identity_lib.CLIENT_WEIGHTINGS:
    raise ValueError(
      "client_weighting must be 'known' or 'examples', found "
      f'{client_weighting!r}'
    )
  training = _build_training(
    model_fn, optimizer, metrics_aggregator, loop_implementation
  )
  state_type, weights_type, data_type = training.next.type_signature.parameter
  identified_data_type = tff.to_type(
    collections.OrderedDict(
      ident=tff.SequenceType(client_data.identity_type()), data=data_type.member
    )
  )

  @tff.tensorflow.computation(
    training.next.type_signature.result.result.member, identified_data_type
  )
  def identify(client_result, data):
    identity = read_identity(data)
    num_batches = data['data'].take(1).reduce(0, lambda count, _: count + 1)
    examples = tf.cast(client_result.update_weight, tf.float32)
    # TFF weighs an update by its examples, and by 0 if it is not finite.
    is_finite = (examples > 0) | tf.equal(num_batches, 0)
    is_finite &= tf.math.is_finite(_squared_norm(client_result.update))
    weight = (
      identity['weight'] if client_weighting == identity_lib.KNOWN else examples
    )
    return tff.learning.templates.ClientResult(
      update=collections.OrderedDict(
        update=client_result.update,
        client_id=identity['client_id'],
        participation_probability=identity['participation_probability'],
      ),
      update_weight=tf.where(is_finite, weight, float('nan')),
    )

  @tff.tensorflow.computation(identified_data_type)
  def examples_only(data):
    return data['data']

  @tff.federated_computation(
    state_type,
    weights_type,
    tff.FederatedType(identified_data_type, tff.CLIENTS),
  )
  def next_fn(state, weights, data):
    output = training.next(
      state, weights, tff.federated_map(examples_only, data)
    )
    identified = tff.federated_map(identify, (output.result, data))
    return tff.templates.MeasuredProcessOutput(
      output.state, identified, output.measurements
    )

  return tff.learning.templates.ClientWorkProcess(
    training.initialize,
    next_fn,
    get_hparams_fn=training.get_hparams,
    set_hparams_fn=training.set_hparams,
  )


def read_identity(data: Any) -> 'collections.OrderedDict[str, tf.Tensor]':
  """Returns the element of `ident`; TensorFlow code that runs on a client."""
  nobody = tf.nest.map_structure(
    lambda spec: tf.zeros(spec.shape, spec.dtype), data['ident'].element_spec
  )
  return data['ident'].reduce(nobody, lambda _, element: element)


def _squared_norm(update):
  return tf.add_n(
    [
      tf.reduce_sum(tf.cast(part, tf.float32) ** 2)
      for part in tf.nest.flatten(update)
    ]
  )


def _build_training(model_fn, optimizer, metrics_aggregator, loop):
  arguments = dict(
    optimizer=optimizer,
    client_weighting=tff.learning.ClientWeighting.NUM_EXAMPLES,
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
