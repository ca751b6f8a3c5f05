r"""Trains on an existing `tff.simulation.datasets.ClientData`.

```
python -m examples.client_data --rounds=40
python -m examples.client_data --rounds=200 --num_clients=100 --emnist_dir=DIR
```

The first command needs no network: its ClientData is made from scikit-learn's
digits, so that each client has few of the ten classes. With --emnist_dir it is
that of TFF's federated EMNIST, digits only. In either case the first half of
the clients takes part four times as often as the rest.

docs/client_data.md says what to change for another ClientData.
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

_NUM_DIGIT_WRITERS = 20
_EXPECTED_SHARE = 0.3  # Of the clients, in a round.


class FlagError(ValueError):
  """A flag has a value that it must not have."""


def load(emnist_dir: str):
  """Loads the `ClientData` of training and test: put yours here.

  Args:
    emnist_dir: The folder of TFF's emnist_all.sqlite, which is downloaded to it
      if it is missing; '' for scikit-learn's digits instead.

  Returns:
    Two `tff.simulation.datasets.ClientData`. Examples are `<pixels, label>`:
    float32 [28, 28], or [8, 8] for the digits, 1 being white, and an int32
    scalar.

  Raises:
    FlagError: If EMNIST is not there and cannot be downloaded.
  """
  if emnist_dir:
    try:
      return tff.simulation.datasets.emnist.load_data(cache_dir=emnist_dir)
    except Exception as e:  # TFF's have no class in common.
      raise FlagError(
        "--emnist_dir must be a folder with TFF's emnist_all.sqlite, or one"
        f' that it can be downloaded to, found {emnist_dir}: {e}'
      ) from e
  digits = datasets.load_digits()
  # Sorted by class, but not strictly.
  noise = np.random.default_rng(0).normal(size=len(digits.target))
  train, test = {}, {}
  for i, indices in enumerate(
    np.array_split(np.argsort(digits.target + noise), _NUM_DIGIT_WRITERS)
  ):
    every_fourth = np.arange(len(indices)) % 4 == 0
    for split, chosen in (
      (train, indices[~every_fourth]),
      (test, indices[every_fourth]),
    ):
      split[f'writer_{i:03d}'] = {
        'pixels': np.float32(1 - digits.images[chosen] / 16),  # As in EMNIST.
        'label': np.int32(digits.target[chosen]),
      }
  test_client_data = tff.simulation.datasets.TestClientData
  return test_client_data(train), test_client_data(test)


def to_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """From a client's examples to (x, y) as the model takes them.

  Args:
    dataset: Examples as `load` describes them.

  Returns:
    Batches of up to 20: x float32 [b, height, width], 0 being white, and
    y int32 [b, 1].
  """
  return dataset.batch(20).map(
    lambda e: (1 - e['pixels'], e['label'][:, tf.newaxis])
  )


def local_epochs(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """From a client's examples to what it trains on in a round.

  Args:
    dataset: Examples as `load` describes them.

  Returns:
    Three epochs of them, each in an order of its own, in batches.
  """
  return to_batches(dataset.shuffle(1000, seed=0).repeat(3))


def train(values: flags.FlagValues) -> None:
  """Trains, and prints how well the model does.

  Args:
    values: The flags that `main` defines.

  Raises:
    FlagError: If there are fewer clients than --num_clients, or no data.
  """
  # Beside their own, shuffles take the global seed that they are made under.
  tf.keras.utils.set_random_seed(values.seed)
  train_data, test_data = load(values.emnist_dir)
  # A client's number is its place in this list, at every start of the program.
  ids = sorted(train_data.client_ids)[: values.num_clients]
  if len(ids) < values.num_clients:
    raise FlagError(
      f'--num_clients must be <= {len(ids)}, the clients that there are, found'
      f' {values.num_clients}'
    )
  batches = train_data.preprocess(local_epochs)
  element_spec = batches.element_type_structure
  probabilities = participation.two_group_probabilities(
    len(ids), rate=_EXPECTED_SHARE, skew=3.0
  )
  if values.known:
    counts = [
      train_data.create_tf_dataset_for_client(i).reduce(0, lambda n, _: n + 1)
      for i in ids
    ]
    weights = participation.Population(counts, probabilities).weights
    learned = {}
  else:
    weights = np.ones(len(ids))  # Not used: clients report their counts.
    learned = dict(
      client_weighting='examples',
      participation=participation.RunningFrequency(_EXPECTED_SHARE),
    )

  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [
          tf.keras.layers.InputLayer(element_spec[0].shape[1:]),
          tf.keras.layers.Flatten(),
          tf.keras.layers.Dense(32, activation='relu'),
          tf.keras.layers.Dense(10),
        ]
      ),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=element_spec,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy('accuracy')],
    )

  process = fedsteer_tff.build_fedsteer(
    model_fn,
    len(ids),
    estimator='stable',
    core_set_size=5,
    warmup_rounds=5,
    **learned,
  )

  @functools.cache  # A new dataset in each round would take memory each time.
  def client_data(number, probability):
    return fedsteer_tff.build_client_data(
      number,
      batches.create_tf_dataset_for_client(ids[number]),
      weight=float(weights[number]),
      participation_probability=probability if values.known else None,
    )

  clients = programs.CohortData(
    client_data,
    padding=fedsteer_tff.padding_client_data(element_spec),
    multiple=programs.cohort_multiple(probabilities),
  )
  sampler = participation.BernoulliSampler(probabilities, values.seed)
  test = test_data.create_tf_dataset_from_all_clients(seed=0).take(5000)
  evaluate = programs.build_evaluation(model_fn, to_batches(test))

  def accuracy(state):
    return evaluate(process.get_model_weights(state))['accuracy']

  with programs.LocalRuntime().activate():
    state = programs.seeded_initial_state(process, model_fn, values.seed)
    print(f'untrained: test accuracy {accuracy(state):.3f}')
    for round_num in range(1, values.rounds + 1):
      cohort = sampler.cohort(round_num)
      state, _ = process.next(state, clients(cohort))
      if round_num % values.print_every == 0:
        print(
          f'round {round_num}: {cohort.num_clients} clients, test accuracy'
          f' {accuracy(state):.3f}'
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
  for name, default, least, text in (
    ('rounds', 40, 1, 'Rounds to train.'),
    ('num_clients', 20, 5, 'N, the first of the sorted client ids.'),
    ('print_every', 5, 1, 'Prints a line after each so many rounds.'),
    ('seed', 0, 0, 'Of the weights and the cohorts.'),
  ):
    flags.DEFINE_integer(name, default, text, least, flag_values=values)
  flags.DEFINE_string(
    'emnist_dir', '', "Folder of TFF's EMNIST.", flag_values=values
  )
  flags.DEFINE_bool(
    'known',
    False,
    'Shares and probabilities of the clients are known: else they are learned.',
    flag_values=values,
  )
  try:
    values(list(argv))
    if values.help:
      print(f'{__doc__}{values.get_help()}')
    else:
      train(values)
  except (flags.Error, FlagError) as e:
    print(f'client_data: error: {e}', file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
