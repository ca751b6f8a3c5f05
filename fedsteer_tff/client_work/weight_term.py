"""Models with a term in the weights beside their loss, a part of it per batch.

The gradient of <c, w> + mu / 2 ||w||^2 with respect to w is c + mu w. So a
local loop that trains such a model takes steps along its own gradient plus
that, whatever the loop. This is how SCAFFOLD's control variates and FedProx's
proximal term mu / 2 ||w - w_0||^2 (c = -mu w_0) enter TFF's training loops,
which stay as they are. Metrics are those of the model without the term.
"""

import collections
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import tensorflow as tf
import tensorflow_federated as tff

_BATCH, _SLOPE = 'batch', 'slope'

ModelFn = Union[
  Callable[[], tff.learning.models.VariableModel],
  tff.learning.models.FunctionalModel,
]


def with_term(model_fn: ModelFn, curvature: float = 0.0) -> ModelFn:
  """Returns the model with the term, of the same kind as it is given.

  Args:
    model_fn: A no-argument callable that builds a `VariableModel`, or a
      `FunctionalModel`.
    curvature: mu.

  Returns:
    The same for batches that `add_slope` makes. mu may be 0.
  """
  if callable(model_fn):
    return lambda: _ModelWithTerm(model_fn(), curvature)
  return _functional(model_fn, curvature)


def add_slope(
  model_fn: ModelFn, dataset: tf.data.Dataset, slope: tuple[tf.Tensor, ...]
) -> tf.data.Dataset:
  """Returns batches that carry c.

  Args:
    model_fn: The model without the term.
    dataset: Batches for it.
    slope: c, one tensor for each trainable weight, in their order.

  Returns:
    A dataset of as many batches, for the model that `with_term` returns.
  """

  def join(*batch: Any) -> Any:
    # `map` takes tuples apart, those of one part too.
    batch = tf.nest.pack_sequence_as(
      dataset.element_spec, tf.nest.flatten(batch)
    )
    if callable(model_fn):
      return collections.OrderedDict([(_BATCH, batch), (_SLOPE, slope)])
    x, y = _parts(batch)
    return (x, slope), y

  return dataset.map(join)


def _term(
  slope: Any, curvature: float, weights: Any, dtype: tf.DType
) -> tf.Tensor:
  parts = []
  for c, w in zip(tf.nest.flatten(slope), tf.nest.flatten(weights)):
    w = tf.convert_to_tensor(w)
    product = (tf.cast(c, w.dtype) + curvature / 2 * w) * w
    parts.append(tf.cast(tf.reduce_sum(product), dtype))
  return tf.add_n(parts)


def _parts(batch: Any) -> tuple[Any, Any]:
  """Returns x and y of a functional model's batch."""
  if isinstance(batch, collections.abc.Mapping):
    return batch['x'], batch['y']
  return batch


class _ModelWithTerm(tff.learning.models.VariableModel):
  """A `VariableModel` with the term; all else is the model inside."""

  def __init__(
    self, model: tff.learning.models.VariableModel, curvature: float
  ):
    self._model = model
    self._curvature = curvature

  @property
  def trainable_variables(self) -> Sequence[tf.Variable]:
    return self._model.trainable_variables

  @property
  def non_trainable_variables(self) -> Sequence[tf.Variable]:
    return self._model.non_trainable_variables

  @property
  def local_variables(self) -> Sequence[tf.Variable]:
    return self._model.local_variables

  @property
  def input_spec(self) -> collections.OrderedDict[str, Any]:
    slope = tuple(
      tf.TensorSpec(v.shape, v.dtype) for v in self._model.trainable_variables
    )
    return collections.OrderedDict(
      [(_BATCH, self._model.input_spec), (_SLOPE, slope)]
    )

  def forward_pass(
    self, batch_input: Any, training: bool = True
  ) -> tff.learning.models.BatchOutput:
    output = self._model.forward_pass(batch_input[_BATCH], training)
    return output._replace(
      loss=output.loss
      + _term(
        batch_input[_SLOPE],
        self._curvature,
        self._model.trainable_variables,
        output.loss.dtype,
      )
    )

  def predict_on_batch(self, x: Any, training: bool = True) -> Any:
    return self._model.predict_on_batch(x, training)

  def report_local_unfinalized_metrics(
    self,
  ) -> collections.OrderedDict[str, Any]:
    return self._model.report_local_unfinalized_metrics()

  def metric_finalizers(
    self,
  ) -> collections.OrderedDict[str, Callable[[Any], Any]]:
    return self._model.metric_finalizers()

  def reset_metrics(self) -> None:
    self._model.reset_metrics()


def _functional(
  model: tff.learning.models.FunctionalModel, curvature: float
) -> tff.learning.models.FunctionalModel:
  """Returns a `FunctionalModel` with the term; its output is (output, term)."""
  x_spec, y_spec = _parts(model.input_spec)
  slope_spec = tuple(
    tf.TensorSpec(w.shape, w.dtype) for w in model.initial_weights[0]
  )

  @tf.function
  def predict_on_batch(model_weights: Any, x: Any, training: bool) -> Any:
    x, slope = x
    output = model.predict_on_batch(model_weights, x, training)
    return output, _term(slope, curvature, model_weights[0], tf.float32)

  def loss(
    output: Any, label: Any, sample_weight: Optional[Any] = None
  ) -> tf.Tensor:
    output, term = output
    own = model.loss(output, label, sample_weight)
    return own + tf.cast(term, own.dtype)

  @tf.function
  def update_metrics_state(
    state: Any,
    labels: Any,
    batch_output: tff.learning.models.BatchOutput,
    sample_weight: Optional[Any] = None,
  ) -> Any:
    output, term = batch_output.predictions
    own = batch_output._replace(
      loss=batch_output.loss - tf.cast(term, batch_output.loss.dtype),
      predictions=output,
    )
    return model.update_metrics_state(state, labels, own, sample_weight)

  return tff.learning.models.FunctionalModel(
    initial_weights=model.initial_weights,
    predict_on_batch_fn=predict_on_batch,
    loss_fn=loss,
    metrics_fns=(
      model.initialize_metrics_state,
      update_metrics_state,
      model.finalize_metrics,
    ),
    input_spec=((x_spec, slope_spec), y_spec),
  )
