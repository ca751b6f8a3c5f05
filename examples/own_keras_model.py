r"""Trains one's own Keras model on one's own `tf.data` pipelines.

```
python -m examples.own_keras_model --rounds=40
```

Clinics train one classifier of tumours together, on scikit-learn's breast
cancer data. The first clinics see mostly benign ones and take part often, the
last ones mostly malignant ones and take part rarely.

docs/own_keras_model.md says what to change for a model and data of your own.
"""

from collections.abc import Sequence
import functools
import sys

from absl import flags
import numpy as np
from sklearn import datasets
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import participation
from fedsteer_tff import programs

_LOCAL_EPOCHS = 5
_BATCH_SIZE = 16
# (x, y) of a clinic.
_Examples = tuple[np.ndarray, np.ndarray]


def keras_model() -> tf.keras.Model:
  """Builds a model: put yours here.

  Returns:
    A new one, from float32 [b, 30], measurements, to [b, 1], logits.
  """
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([30]),
      tf.keras.layers.Dense(16, activation='relu'),
      tf.keras.layers.Dense(1),
    ]
  )


def load_clinics(num_clients: int, seed: int):
  """Loads the data and gives each clinic its part.

  Args:
    num_clients: How many clinics there are.
    seed: A non-negative integer: who gets what.

  Returns:
    A list of (x, y), one for each clinic, and (x, y) of the test set: x float64
    [n, 30], measurements, and y int64 [n], 1 for a benign tumour.
  """
  x, y = datasets.load_breast_cancer(return_X_y=True)
  rng = np.random.default_rng(seed)
  order = rng.permutation(len(y))
  test, train = np.split(order, [len(order) // 4])
  # Label 1 is benign. Sorted, but not strictly, so that clinics differ.
  train = train[np.argsort(rng.normal(scale=0.5, size=len(train)) - y[train])]
  sizes = 1 + np.arange(num_clients) % 3  # Some see three times as many.
  ends = len(train) * np.cumsum(sizes) // np.sum(sizes)
  parts = np.split(train, ends[:-1])
  return [(x[part], y[part]) for part in parts], (x[test], y[test])


def build_pipelines(clinics: Sequence[_Examples], test: _Examples, seed: int):
  """Builds the datasets of training and test.

  Args:
    clinics: (x, y) of each clinic, see `load_clinics`.
    test: (x, y) of the test set.
    seed: A non-negative integer, of the order of the examples.

  Returns:
    A list with what each clinic trains on in a round, and the test set: batches
    of x float32 [b, 30], scaled, and y float32 [b, 1].
  """
  # Of all clinics here; of some public data where they may not be pooled.
  pooled = np.concatenate([x for x, _ in clinics])
  mean, deviation = np.float32(pooled.mean(0)), np.float32(pooled.std(0))

  def preprocess(x, y):
    """Returns a raw batch as float32, with labels of shape [None, 1]."""
    x = (tf.cast(x, tf.float32) - mean) / deviation
    return x, tf.cast(y, tf.float32)[:, tf.newaxis]

  def pipeline(x, y):
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    # With a seed, TFF gets the same order in every round: it can be repeated.
    dataset = dataset.shuffle(len(y), seed=seed).repeat(_LOCAL_EPOCHS)
    return dataset.batch(_BATCH_SIZE).map(preprocess)

  test = tf.data.Dataset.from_tensor_slices(test).batch(64).map(preprocess)
  return [pipeline(x, y) for x, y in clinics], test


def train(values: flags.FlagValues) -> None:
  """Trains, and prints how well the model does.

  Args:
    values: The flags that `main` defines.
  """
  # Beside their own, shuffles take the global seed that they are made under.
  tf.keras.utils.set_random_seed(values.seed)
  clinics, test = load_clinics(values.num_clients, values.seed)
  pipelines, test = build_pipelines(clinics, test, values.seed)
  population = participation.Population(
    weights=[len(y) for _, y in clinics],
    participation_probabilities=np.linspace(0.6, 0.1, len(clinics)),
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
      keras_model(),
      loss=tf.keras.losses.BinaryCrossentropy(from_logits=True),
      input_spec=test.element_spec,
    )

  process = fedsteer_tff.build_fedsteer(
    model_fn,
    population.num_clients,
    estimator='stable',
    client_optimizer=tff.learning.optimizers.build_sgdm(0.05),
    core_set_size=4,
    warmup_rounds=5,
  )

  @functools.cache  # A new dataset in each round would take memory each time.
  def client_data(i, probability):
    return fedsteer_tff.build_client_data(
      i,
      pipelines[i],
      weight=float(population.weights[i]),
      participation_probability=probability,
    )

  clients = programs.CohortData(
    client_data,
    padding=fedsteer_tff.padding_client_data(test.element_spec),
    multiple=programs.cohort_multiple(population.participation_probabilities),
  )
  sampler = participation.BernoulliSampler(
    population.participation_probabilities, values.seed
  )
  model = keras_model()
  model.compile(metrics=[tf.keras.metrics.BinaryAccuracy(threshold=0.0)])

  def accuracy(state):
    process.get_model_weights(state).assign_weights_to(model)
    return model.evaluate(test, verbose=0, return_dict=True)['binary_accuracy']

  with programs.LocalRuntime().activate():
    state = programs.seeded_initial_state(process, model_fn, values.seed)
    print(f'untrained: test accuracy {accuracy(state):.3f}')
    for round_num in range(1, values.rounds + 1):
      cohort = sampler.cohort(round_num)
      state, metrics = process.next(state, clients(cohort))
      if round_num % values.print_every == 0:
        loss = metrics['client_work']['train']['loss']
        print(
          f'round {round_num}: {cohort.num_clients} clinics, training loss'
          f' {loss:.3f}, test accuracy {accuracy(state):.3f}'
        )
    print(f'trained: test accuracy {accuracy(state):.3f}')


def main(argv: Sequence[str]) -> int:
  """Runs the program.

  Args:
    argv: The program's name and its flags.

  Returns:
    The exit code: 0, or 2 if a flag is wrong.
  """
  values = flags.FlagValues()
  flags.DEFINE_bool('help', False, 'Shows this help.', flag_values=values)
  for name, default, least, most, text in (
    ('rounds', 40, 1, None, 'Rounds to train.'),
    ('num_clients', 20, 4, 100, 'Clinics.'),
    ('print_every', 5, 1, None, 'Prints a line after each so many rounds.'),
    ('seed', 0, 0, None, 'Of the split, the weights and the cohorts.'),
  ):
    flags.DEFINE_integer(name, default, text, least, most, flag_values=values)
  try:
    values(list(argv))
  except flags.Error as e:
    print(f'own_keras_model: error: {e}', file=sys.stderr)
    return 2
  if values.help:
    print(f'{__doc__}{values.get_help()}')
    return 0
  train(values)
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
