r"""A federated program as a production pipeline runs it: the server has ids.

```
python -m examples.production_program --output_dir=runs/production --rounds=20
```

Which clients there are, how likely each takes part, and where a client finds
its own examples is all that the server knows; with --participation_estimate it
learns how likely that is. Every client has a file, named by
its id, that only the computation on the client opens; here the files are
written first, from the digits. `tff.learning.programs.train_model` does the
rest. Kill the program whenever you like: the same command goes on, to the same
weights, caches and metrics.

docs/production_program.md explains the parts.
"""

from collections.abc import Sequence
import csv
import datetime
import os
import shutil
import sys

from absl import flags
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import participation
from fedsteer_tff import programs
import tasks

_NUM_EVALUATORS = 4
_PARTICIPATION_RATE = 0.3
# What the server knows of how often clients take part.
_PARTICIPATION = {
  'known': 'known',
  'frequency': participation.RunningFrequency(_PARTICIPATION_RATE),
  'windowed': participation.WindowedFrequency(_PARTICIPATION_RATE),
  'interval': participation.IntervalEstimate(_PARTICIPATION_RATE),
}
_BATCH_SIZE = 32


def main(argv: Sequence[str]) -> int:
  """Runs the program.

  Args:
    argv: The program's name and its flags.

  Returns:
    The exit code: 0; 2 after an error with a message that says what to do; 130
    after Ctrl-C.
  """
  try:
    values = _parse(argv)
    if values.help:
      print(f'{__doc__}{values.get_help()}')
      return 0
    accuracy = _run(values)
  except KeyboardInterrupt:
    print('\nStopped at once; the same command goes on.', file=sys.stderr)
    return 130  # As shells report Ctrl-C.
  except (
    flags.Error,
    programs.CheckpointError,
    programs.LocalRuntimeError,
    programs.RunDirectoryError,
  ) as e:
    return _fail(str(e))
  except Exception as e:
    if not programs.is_full_disk(e):
      raise
    return _fail(f'{e}; make room, and the same command resumes')
  print(f'accuracy after round {values.rounds}: {accuracy:.4f}')
  return 0


def _fail(message: str) -> int:
  print(f'production_program: error: {message}', file=sys.stderr)
  return 2


def _parse(argv: Sequence[str]) -> flags.FlagValues:
  values = flags.FlagValues()
  flags.DEFINE_bool('help', False, 'Shows this help.', flag_values=values)
  flags.DEFINE_string(
    'output_dir', 'runs/production', 'Folder of the run.', flag_values=values
  )
  flags.DEFINE_integer(
    'rounds', 20, 'Rounds to train.', lower_bound=1, flag_values=values
  )
  flags.DEFINE_integer(
    'num_clients', 20, 'N.', lower_bound=2, flag_values=values
  )
  flags.DEFINE_integer(
    'evaluate_every', 5, 'Rounds.', lower_bound=1, flag_values=values
  )
  flags.DEFINE_integer('seed', 0, 'Seed.', lower_bound=0, flag_values=values)
  flags.DEFINE_enum(
    'participation_estimate',
    'known',
    tuple(_PARTICIPATION),
    'known: clients declare how likely they take part. Else nobody knows, and'
    ' it is estimated: by the frequency over all rounds, windowed, or by the'
    ' interval between participations.',
    flag_values=values,
  )
  values(list(argv))
  return values


def _run(values: flags.FlagValues) -> float:
  """Trains, or goes on training.

  Args:
    values: The flags.

  Returns:
    The accuracy at the end, in [0, 1].

  Raises:
    LocalRuntimeError: If the runtime ends.
    RunDirectoryError: If the folder is that of another run, or damaged.
  """
  config = {
    name: getattr(values, name)
    for name in (
      'rounds',
      'num_clients',
      'evaluate_every',
      'seed',
      'participation_estimate',
    )
  }
  directory = programs.RunDirectory(values.output_dir)
  status = directory.open(
    config, may_grow='rounds', defaults={'participation_estimate': 'known'}
  )
  try:
    if status is not programs.RunStatus.FINISHED:
      directory.commit(config, versions={})
      try:
        _train(values, directory)
      except programs.LocalRuntimeError as e:
        # Its rounds begin when the checkpoint of the one before is written.
        store = programs.Checkpoints(directory.checkpoint_dir)
        done = max(store.rounds(), default=0)
        raise programs.LocalRuntimeError(
          f'{e}; the same command resumes after round {done}'
        ) from e
      accuracy = _last_accuracy(os.path.join(directory.path, 'evaluation.csv'))
      directory.write_summary({'rounds': values.rounds, 'accuracy': accuracy})
    return directory.read_summary({'accuracy': float})['accuracy']
  finally:
    directory.close()


def _train(values: flags.FlagValues, directory: programs.RunDirectory) -> None:
  """Puts the program together and runs it."""
  task = tasks.load_task(
    'digits', num_clients=values.num_clients, local_epochs=1, seed=values.seed
  )
  clients = os.path.join(directory.path, 'clients')
  evaluators = os.path.join(directory.path, 'evaluators')
  _write_examples(clients, task.client_datasets)
  _write_examples(
    evaluators,
    [
      task.test_dataset.unbatch().shard(_NUM_EVALUATORS, i).batch(_BATCH_SIZE)
      for i in range(_NUM_EVALUATORS)
    ],
  )

  # From here on there are ids only. Shares are not known either: clients report
  # their numbers of examples.
  probabilities = participation.two_group_probabilities(
    values.num_clients, rate=_PARTICIPATION_RATE, skew=3.0
  )
  known = values.participation_estimate == 'known'
  process = programs.compose_with_client_ids(
    fedsteer_tff.build_fedsteer(
      task.model_fn,
      values.num_clients,
      client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      estimator='stable',
      client_weighting='examples',
      core_set_size=4,
      warmup_rounds=3,
      participation=_PARTICIPATION[values.participation_estimate],
    ),
    programs.build_client_data_computation(
      lambda client_id: _read_examples(clients, client_id, task).repeat(5),
      participation.Population(
        np.ones(values.num_clients), probabilities if known else None
      ),
    ),
  )

  @tff.tensorflow.computation(np.int32)
  def evaluator_data(client_id):
    return _read_examples(evaluators, client_id, task)

  evaluation = programs.compose_with_client_ids(
    tff.learning.algorithms.build_fed_eval(task.model_fn), evaluator_data
  )

  releases = programs.Releases()
  scratch = os.path.join(directory.path, 'evaluating')
  shutil.rmtree(scratch, ignore_errors=True)
  evaluation_loop = programs.EvaluationLoop(
    # All of them, always.
    data_source=programs.BernoulliDataSource(np.ones(_NUM_EVALUATORS), seed=0),
    cohort_size=_NUM_EVALUATORS,
    aggregated_metrics_manager=releases.track(
      _metrics_manager(directory, 'evaluation')
    ),
    create_state_manager_fn=lambda name: tff.program.FileProgramStateManager(
      os.path.join(scratch, name)
    ),
    create_process_fn=lambda name: (evaluation, None),
    duration=datetime.timedelta(0),  # Once over the evaluators.
  )

  checkpoints = programs.CheckpointManager(
    directory.checkpoint_dir, releases=releases, warn=_warn
  )

  async def train():
    # Drawn in this process, so that every start draws the same.
    weights = programs.seeded_weights(task.model_fn, values.seed)
    state = await tff.program.materialize_value(process.initialize())
    state = await tff.program.materialize_value(
      process.set_model_weights(state, weights)
    )
    await tff.learning.programs.train_model(
      train_process=checkpoints.pace(process),
      initial_train_state=state,
      train_data_source=programs.BernoulliDataSource(
        probabilities, values.seed
      ),
      # Cohorts are filled up to a multiple of it.
      train_per_round_clients=programs.cohort_multiple(probabilities),
      train_total_rounds=values.rounds,
      program_state_manager=checkpoints,
      model_output_manager=releases.track(
        programs.DurableSavedModels(os.path.join(directory.path, 'models'))
      ),
      train_metrics_manager=releases.track(
        _metrics_manager(directory, 'metrics')
      ),
      evaluation_manager=evaluation_loop,
      evaluation_periodicity=values.evaluate_every,
    )

  with programs.LocalRuntime().activate_for_programs():
    programs.run_program(train())


def _metrics_manager(
  directory: programs.RunDirectory, name: str
) -> tff.program.ReleaseManager:
  """Returns a manager that writes <name>.csv and TensorBoard events."""
  return tff.program.GroupingReleaseManager(
    [
      programs.DurableCsv(os.path.join(directory.path, f'{name}.csv')),
      programs.DurableTensorBoard(
        os.path.join(directory.tensorboard_dir, name)
      ),
    ]
  )


def _write_examples(folder: str, datasets: Sequence[tf.data.Dataset]) -> None:
  """Writes each client's file, unless it is there."""
  os.makedirs(folder, exist_ok=True)
  for client_id, dataset in enumerate(datasets):
    path = os.path.join(folder, f'{client_id}.tfrecord')
    if os.path.exists(path):
      continue
    with tf.io.TFRecordWriter(f'{path}.tmp') as writer:
      for x, y in dataset.unbatch().as_numpy_iterator():
        features = {
          'x': tf.train.Feature(float_list=tf.train.FloatList(value=x.ravel())),
          'y': tf.train.Feature(int64_list=tf.train.Int64List(value=y)),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writer.write(example.SerializeToString())
    os.replace(f'{path}.tmp', path)


def _read_examples(
  folder: str, client_id: tf.Tensor, task: tasks.FederatedTask
) -> tf.data.Dataset:
  """Returns a client's batches, inside the computation on the client."""
  x_spec, _ = task.element_spec
  features = {
    'x': tf.io.FixedLenFeature(x_spec.shape[1:], tf.float32),
    'y': tf.io.FixedLenFeature([1], tf.int64),
  }

  def parse(batch):
    parsed = tf.io.parse_example(batch, features)
    return parsed['x'], tf.cast(parsed['y'], tf.int32)

  path = tf.strings.join(
    [folder, '/', tf.strings.as_string(client_id), '.tfrecord']
  )
  return tf.data.TFRecordDataset(path).batch(_BATCH_SIZE).map(parse)


def _last_accuracy(path: str) -> float:
  """Reads the accuracy in the last row of a table of evaluations.

  Args:
    path: The CSV file.

  Returns:
    The accuracy, in [0, 1].

  Raises:
    RunDirectoryError: If there is no such row.
  """
  rows = []
  try:
    with open(path, encoding='utf-8', newline='') as f:
      rows = list(csv.DictReader(f))
    return float(rows[-1]['model_metrics/accuracy'])
  except (
    OSError,
    csv.Error,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
  ) as e:
    raise programs.RunDirectoryError(
      f'{path} must end with the row of an evaluation, found {rows[-1:]}: {e!r}'
    ) from e


def _warn(text: str) -> None:
  print(f'production_program: warning: {text}', file=sys.stderr)


if __name__ == '__main__':
  sys.exit(main(sys.argv))
