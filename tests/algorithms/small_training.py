"""A small federated training, by TFF and by Keras alone."""

import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from tests import numpy_oracle

NUM_CLIENTS = 12
NUM_FEATURES = 5
NUM_CLASSES = 3
CORE_SET_SIZE = 3
WARMUP_ROUNDS = 3
LEARNING_RATE = 0.2
SPEC = (
  tf.TensorSpec([None, NUM_FEATURES], tf.float32),
  tf.TensorSpec([None, 1], tf.int32),
)
# Two groups of clients, one of which takes part more often.
PROBABILITIES = np.float32(np.repeat([0.7, 0.35], NUM_CLIENTS // 2))


def keras_model(dtype='float32'):
  """Returns a fresh model, always with the same weights."""
  initializers = [
    tf.keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)
  ]
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([NUM_FEATURES], dtype=dtype),
      tf.keras.layers.Dense(
        4,
        activation='tanh',
        kernel_initializer=initializers[0],
        dtype=dtype,
      ),
      tf.keras.layers.Dense(
        NUM_CLASSES, kernel_initializer=initializers[1], dtype=dtype
      ),
    ]
  )


def _loss():
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def model_fn():
  """Returns the model as TFF takes it."""
  return tff.learning.models.from_keras_model(
    keras_model(),
    loss=_loss(),
    input_spec=SPEC,
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy(name='accuracy')],
  )


@functools.cache
def examples():
  """Returns the arrays (x, y) of every client; few classes each."""
  rng = np.random.default_rng(0)
  centers = rng.normal(size=[NUM_CLASSES, NUM_FEATURES])
  clients = []
  for client_id in range(NUM_CLIENTS):
    count = int(rng.integers(3, 12))
    y = rng.choice(
      [client_id % NUM_CLASSES, (client_id // 4) % NUM_CLASSES], size=count
    )
    x = centers[y] + 0.7 * rng.normal(size=[count, NUM_FEATURES])
    clients.append((np.float32(x), np.int32(y[:, np.newaxis])))
  return clients


def num_examples():
  """Returns [N]."""
  return np.array([len(y) for _, y in examples()])


def shares():
  """Returns d [N], float32 as it travels."""
  return np.float32(num_examples() / np.sum(num_examples()))


@functools.cache
def dataset(client_id):
  """Returns a client's batches: two epochs of batches of four."""
  x, y = examples()[client_id]
  return tf.data.Dataset.from_tensor_slices((x, y)).batch(4).repeat(2).cache()


def client_data(client_id, data=None):
  """Returns what TFF's process takes for a client."""
  if client_id < 0:
    return fedsteer_tff.padding_client_data(SPEC)
  return fedsteer_tff.build_client_data(
    client_id,
    dataset(client_id) if data is None else data,
    weight=float(shares()[client_id]),
    participation_probability=float(PROBABILITIES[client_id]),
  )


def cohorts(num_rounds=10, empty=(6,), seed=3):
  """Returns the active clients of every round."""
  rng = np.random.default_rng(seed)
  drawn = [
    np.flatnonzero(rng.uniform(size=NUM_CLIENTS) < PROBABILITIES)
    for _ in range(num_rounds)
  ]
  return [
    [] if number in empty else [int(i) for i in ids]
    for number, ids in enumerate(drawn)
  ]


def flat(weights):
  """Concatenates tensors in their order."""
  return np.concatenate([np.ravel(np.asarray(w)) for w in weights])


class Trainer:
  """Local training of the Keras model, without TFF.

  TFF changes Keras' global state. So of the model only variables, and one
  function that is traced at once, are used later.
  """

  def __init__(self):
    model = keras_model()
    self._variables = model.trainable_variables
    loss_fn = _loss()

    @tf.function(
      input_signature=(
        tf.TensorSpec([None, NUM_FEATURES], tf.float32),
        tf.TensorSpec([None, 1], tf.int32),
        tf.TensorSpec([None], tf.float32),
      )
    )
    def step(x, y, pull):
      with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
      gradients = tape.gradient(loss, self._variables)
      start = 0
      for variable, gradient in zip(self._variables, gradients):
        end = start + variable.shape.num_elements()
        part = tf.reshape(pull[start:end], variable.shape)
        variable.assign_sub(LEARNING_RATE * (gradient + part))
        start = end

    self._step = step.get_concrete_function()
    self.initial = self._get()

  def _get(self):
    return flat(variable.numpy() for variable in self._variables)

  def _set(self, vector):
    start = 0
    for variable in self._variables:
      size = variable.shape.num_elements()
      part = vector[start : start + size]
      variable.assign(np.reshape(part, variable.shape))
      start += size

  def update(self, vector, client_id, slope=0.0, proximal_strength=0.0):
    """Trains a client.

    Args:
      vector: Weights before.
      client_id: Who.
      slope: Added to every gradient.
      proximal_strength: Times the way so far, added to the gradient as well.

    Returns:
      g_i: weights before training minus those after it, float64.
    """
    vector = np.float32(vector)
    self._set(vector)
    x, y = examples()[client_id]
    for _ in range(2):
      for start in range(0, len(y), 4):
        pull = slope + proximal_strength * (self._get() - vector)
        self._step(
          tf.constant(x[start : start + 4]),
          tf.constant(y[start : start + 4]),
          tf.constant(np.float32(pull)),
        )
    return (vector - self._get()).astype(float)

  @staticmethod
  def num_steps(client_id):
    """Returns K, how many steps `update` makes."""
    return 2 * -(-len(examples()[client_id][1]) // 4)


@functools.cache
def trainer():
  """Returns the one trainer."""
  return Trainer()


@functools.cache
def oracle_run(estimator, design='sketched_projection', num_rounds=10):
  """Trains by NumPy and Keras.

  Args:
    estimator: 'paper', 'unbiased' or 'stable'.
    design: How updates travel, on which the default of who may enter the core
      set depends.
    num_rounds: How many.

  Returns:
    For every round weights, S, Q, the core set and the metrics.
  """
  work = trainer()
  oracle = numpy_oracle.FedSteer(
    NUM_CLIENTS,
    len(work.initial),
    core_set_size=CORE_SET_SIZE,
    warmup_rounds=WARMUP_ROUNDS,
    rule=numpy_oracle.RULES[estimator],
    aggregation=design,
  )
  weights = work.initial.astype(float)
  history = []
  for ids in cohorts(num_rounds):
    reports = [
      numpy_oracle.Report(
        i, work.update(weights, i), float(shares()[i]), float(PROBABILITIES[i])
      )
      for i in ids
    ]
    delta, metrics = oracle.aggregate(reports)
    weights = weights - delta
    history.append(
      (
        weights.copy(),
        oracle.coordinates.copy(),
        oracle.basis.copy(),
        oracle.core.copy(),
        metrics,
      )
    )
  return history


@functools.cache
def build(design='sketched_projection', estimator='paper', **parameters):
  """Builds FedSteer once for equal parameters."""
  return fedsteer_tff.build_fedsteer(
    model_fn,
    NUM_CLIENTS,
    client_optimizer=tff.learning.optimizers.build_sgdm(LEARNING_RATE),
    core_set_size=CORE_SET_SIZE,
    warmup_rounds=WARMUP_ROUNDS,
    aggregation=design,
    estimator=estimator,
    **parameters,
  )


@functools.cache
def build_fedavg():
  """Builds inverse-probability FedAvg once."""
  return fedsteer_tff.build_fedavg(
    model_fn,
    NUM_CLIENTS,
    client_optimizer=tff.learning.optimizers.build_sgdm(LEARNING_RATE),
  )


def run(process, state, ids, pad_to=NUM_CLIENTS):
  """Runs a round with the given clients, padded to one size of cohort."""
  ids = list(ids) + [-1] * (pad_to - len(ids))
  return process.next(state, [client_data(i) for i in ids])
