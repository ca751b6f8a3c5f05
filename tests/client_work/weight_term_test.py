"""Tests of models with a term in the weights."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.client_work import weight_term
from tests.algorithms import small_training

_CURVATURE = 0.5


def _batch():
  x, y = small_training.examples()[0]
  return tf.constant(x), tf.constant(y)


def _slope(weights):
  return tuple(tf.fill(weight.shape, 0.25) for weight in weights)


def _term(weights):
  """1/4 sum w + 1/4 sum w^2."""
  vector = small_training.flat(weights)
  return 0.25 * np.sum(vector) + _CURVATURE / 2 * np.sum(vector**2)


def test_a_variable_models_loss_has_the_term_and_its_metrics_have_not():
  plain = small_training.model_fn()
  model = weight_term.with_term(small_training.model_fn, _CURVATURE)()
  wanted = plain.forward_pass(_batch())
  batch = collections.OrderedDict(
    batch=_batch(), slope=_slope(plain.trainable_variables)
  )
  found = model.forward_pass(batch)
  np.testing.assert_allclose(
    found.loss - wanted.loss, _term(plain.trainable_variables), rtol=1e-5
  )
  np.testing.assert_array_equal(found.predictions, wanted.predictions)
  assert found.num_examples == wanted.num_examples
  for name, value in plain.report_local_unfinalized_metrics().items():
    np.testing.assert_array_equal(
      model.report_local_unfinalized_metrics()[name], value
    )
  np.testing.assert_array_equal(
    model.predict_on_batch(_batch()[0]), plain.predict_on_batch(_batch()[0])
  )
  model.reset_metrics()
  assert model.report_local_unfinalized_metrics()['num_examples'] == [0]


def test_the_gradient_of_the_term_is_the_slope_and_the_way_from_the_origin():
  model = weight_term.with_term(small_training.model_fn, _CURVATURE)()
  weights = model.trainable_variables
  slope = _slope(weights)
  gradients = []
  for factor in (0.0, 1.0):
    with tf.GradientTape() as tape:
      batch = collections.OrderedDict(
        batch=_batch(), slope=tuple(factor * c for c in slope)
      )
      loss = model.forward_pass(batch).loss
    gradients.append(small_training.flat(tape.gradient(loss, weights)))
  np.testing.assert_allclose(
    gradients[1] - gradients[0], small_training.flat(slope), atol=1e-6
  )
  plain = small_training.model_fn()
  with tf.GradientTape() as tape:
    loss = plain.forward_pass(_batch()).loss
  own = small_training.flat(tape.gradient(loss, plain.trainable_variables))
  np.testing.assert_allclose(
    gradients[0] - own,
    _CURVATURE * small_training.flat(weights),
    atol=1e-6,
  )


def test_a_functional_model_sees_its_own_loss_in_its_metrics():
  seen = {}

  @tf.function
  def update(state, labels, batch_output, sample_weight=None):
    del labels, sample_weight
    seen['predictions'] = batch_output.predictions
    return state + batch_output.loss

  @tf.function
  def predict(model_weights, x, training):
    del training
    return tf.matmul(x, model_weights[0][0])

  def squared_error(output, label, sample_weight=None):
    del sample_weight
    return tf.reduce_mean((output - tf.cast(label, tf.float32)) ** 2)

  kernel = np.float32(np.arange(15).reshape([5, 3]) / 10)
  model = tff.learning.models.FunctionalModel(
    initial_weights=((kernel,), ()),
    predict_on_batch_fn=predict,
    loss_fn=squared_error,
    metrics_fns=(
      tf.function(lambda: tf.constant(0.0)),
      update,
      tf.function(lambda state: collections.OrderedDict(loss=state)),
    ),
    input_spec=small_training.SPEC,
  )
  changed = weight_term.with_term(model, _CURVATURE)
  weights = tf.nest.map_structure(tf.constant, model.initial_weights)
  x, y = _batch()
  wanted = model.loss(model.predict_on_batch(weights, x, True), y)
  dataset = weight_term.add_slope(
    model, tf.data.Dataset.from_tensors((x, y)), _slope(weights[0])
  )
  ((x, slope), y) = next(iter(dataset))
  output = changed.predict_on_batch(weights, (x, slope), True)
  loss = changed.loss(output, y)
  np.testing.assert_allclose(loss - wanted, _term(weights[0]), rtol=1e-5)
  state = changed.update_metrics_state(
    changed.initialize_metrics_state(),
    y,
    tff.learning.models.BatchOutput(loss, output, len(y)),
  )
  np.testing.assert_allclose(state, wanted, rtol=1e-5)
  assert seen['predictions'].shape[1] == 3


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
