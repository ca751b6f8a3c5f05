"""What a run writes while it trains; each usable by itself."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

from absl import logging
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff.programs import arguments
from fedsteer_tff.programs import checkpoints
from fedsteer_tff.programs import conditioning
from fedsteer_tff.programs import files
from fedsteer_tff.programs import metrics_table
from fedsteer_tff.programs import run_files
from fedsteer_tff.programs import training_loop

# Columns of `round_row` that are no metrics.
_OWN_COLUMNS = ('round', 'cohort_size', 'cohort', 'seconds')


def round_row(
  result: training_loop.RoundResult,
  evaluation_names: Iterable[str] = ('loss', 'accuracy'),
) -> OrderedDict[str, Any]:
  """Returns a round as one flat row.

  Args:
    result: The round.
    evaluation_names: The evaluation's metrics.

  Returns:
    'round', the training metrics, 'test_' + the evaluation's metrics (None
    where the round was not evaluated), the aggregator's metrics, 'cohort_size',
    'cohort' (the ids, separated by blanks) and 'seconds'. All but the last are
    determined by the run's configuration.

  Raises:
    ValueError: If a metric has the name of another column.
  """
  row: OrderedDict[str, Any] = OrderedDict(round=result.round_num)
  evaluation: Mapping[str, float] = result.evaluation or {}
  tests = {f'test_{n}': evaluation.get(n) for n in evaluation_names}
  names = list(result.metrics)
  taken = sorted({*_OWN_COLUMNS, *tests} & set(names))
  if taken:
    raise ValueError(
      f'metrics of the model must not be named {", ".join(_OWN_COLUMNS)} or'
      f' test_..., which are columns of the table, found {", ".join(taken)}'
    )
  for name in ('loss', 'accuracy'):
    if name in names:
      row[name] = result.metrics[name]
      names.remove(name)
  row.update(tests)
  row.update((name, result.metrics[name]) for name in names)
  row['cohort_size'] = result.cohort.num_clients
  row['cohort'] = ' '.join(str(int(i)) for i in result.cohort.client_ids)
  row['seconds'] = round(result.seconds, 4)
  return row


class MetricsCsv(training_loop.Callback):
  """Appends each round to a CSV file; see `round_row` for its columns.

  The start of the loop drops the rows of rounds that will be run again.
  """

  def __init__(
    self,
    path: files.PathLike,
    *,
    evaluation_names: Iterable[str] = ('loss', 'accuracy'),
    extra_columns: Optional[Mapping[str, Callable[[], Any]]] = None,
  ):
    """Does not touch the file system.

    Args:
      path: The CSV file.
      evaluation_names: The evaluation's metrics.
      extra_columns: Further columns, each with a function that is asked for
        the value after every round.

    Raises:
      TypeError: If an argument has the wrong type.
    """
    self._table = metrics_table.MetricsTable(path)
    self._evaluation_names = arguments.names(
      'evaluation_names', evaluation_names
    )
    arguments.check_instance(
      'extra_columns', extra_columns or {}, Mapping, 'a dict of functions'
    )
    self._extra_columns = dict(extra_columns or {})
    for name, value_fn in self._extra_columns.items():
      arguments.check_callable(f'extra_columns[{name!r}]', value_fn)

  def check_columns(
    self, process: tff.learning.templates.LearningProcess
  ) -> None:
    """Checks that the rounds of a process fit to the rows that are there.

    Before anything is written; without it the first round that does not fit is
    an error.

    Args:
      process: The learning process.

    Raises:
      RunDirectoryError: If the table has other columns.
    """
    tests = [f'test_{name}' for name in self._evaluation_names]
    names = training_loop.metric_names(process)
    self._table.check_columns(
      (*_OWN_COLUMNS, *tests, *names, *self._extra_columns)
    )

  def on_start(self, round_num: int, num_rounds: int) -> None:
    """Keeps the rows of the rounds that are done.

    Args:
      round_num: How many rounds are done already.
      num_rounds: Not used.

    Raises:
      RunDirectoryError: If one of those rows is missing, or the file is no
        table of rounds.
    """
    del num_rounds
    self._table.truncate(round_num)

  def on_round(self, result: training_loop.RoundResult) -> None:
    """Appends the row.

    Args:
      result: The round.

    Raises:
      RunDirectoryError: If its columns are not those of the table.
    """
    row = round_row(result, self._evaluation_names)
    for name, value_fn in self._extra_columns.items():
      row[name] = value_fn()
    self._table.append(row)


class TensorBoard(training_loop.Callback):
  """Writes each round's numbers as TensorBoard scalars.

  Names are 'train/...', 'test/...', 'aggregator/...' for the numbers that the
  clients, the evaluation and the aggregator report.
  """

  def __init__(
    self,
    log_dir: files.PathLike,
    *,
    flush_every: int = 10,
    train_names: Iterable[str] = (
      'loss',
      'accuracy',
      'num_examples',
      'num_batches',
    ),
  ):
    """Does not touch the file system.

    Args:
      log_dir: The folder of the event files.
      flush_every: Rounds that are multiples of this reach the disk at once.
      train_names: The metrics of the clients' training; all others are the
        aggregator's.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `flush_every` is not an integer >= 1.
    """
    self._log_dir = arguments.path_text('log_dir', log_dir)
    self._flush_every = arguments.check_integer('flush_every', flush_every, 1)
    self._train_names = frozenset(arguments.names('train_names', train_names))
    self._writer: Any = None

  def on_start(self, round_num: int, num_rounds: int) -> None:
    """Opens a new event file.

    Args:
      round_num: Not used.
      num_rounds: Not used.

    Raises:
      RunDirectoryError: If there can be no such folder.
    """
    del round_num, num_rounds
    run_files.check_folder(self._log_dir)
    self._writer = tf.summary.create_file_writer(self._log_dir)

  def on_round(self, result: training_loop.RoundResult) -> None:
    """Writes the scalars.

    Args:
      result: The round, whose number is the step.
    """
    with self._writer.as_default(step=result.round_num):
      for name, value in result.metrics.items():
        part = 'train' if name in self._train_names else 'aggregator'
        tf.summary.scalar(f'{part}/{name}', value)
      for name, value in (result.evaluation or {}).items():
        tf.summary.scalar(f'test/{name}', value)
      tf.summary.scalar('train/cohort_size', result.cohort.num_clients)
      tf.summary.scalar('train/seconds', result.seconds)
    if result.round_num % self._flush_every == 0:
      self._writer.flush()

  def on_error(self, state: Any, round_num: int) -> None:
    """Closes the event file: the rounds in it will not be run again.

    Args:
      state: Not used.
      round_num: Not used.
    """
    self.on_end(state, round_num)

  def on_end(self, state: Any, round_num: int) -> None:
    """Closes the event file.

    Args:
      state: Not used.
      round_num: Not used.
    """
    del state, round_num
    self._writer.close()


class WarnOfConditioning(training_loop.Callback):
  """Says once if the ridge is too small for float32, with what to do."""

  def __init__(self, warn: Callable[[str], Any] = logging.warning):
    """Says nothing yet.

    Args:
      warn: Takes the line; see `conditioning.advice`.

    Raises:
      TypeError: If it is no function.
    """
    arguments.check_callable('warn', warn)
    self._warn = warn
    self._has_warned = False

  def on_round(self, result: training_loop.RoundResult) -> None:
    """Warns if it has to and has not done so.

    Args:
      result: The round; its metrics are looked at.
    """
    if self._has_warned:
      return
    advice = conditioning.advice(result.metrics)
    if advice is not None:
      self._warn(f'round {result.round_num}: {advice}')
      self._has_warned = True


class SaveCheckpoints(training_loop.Callback):
  """Saves the state every few rounds and at the end of the loop.

  Also if the loop ends by an error, such as a worker that is lost: the state
  before the round that failed, unless it was lost as well.

  Should come after the callbacks whose files must not fall behind a state.
  """

  def __init__(self, store: checkpoints.Checkpoints, every: int):
    """Keeps the arguments.

    Args:
      store: Where to.
      every: Rounds that are multiples of this are saved.

    Raises:
      TypeError: If `store` is something else.
      ValueError: If `every` is not an integer >= 1.
    """
    arguments.check_instance(
      'store', store, checkpoints.Checkpoints, 'Checkpoints'
    )
    self._store = store
    self._every = arguments.check_integer('every', every, 1)

  def on_round(self, result: training_loop.RoundResult) -> None:
    """Saves the state if it is due.

    Args:
      result: The round.

    Raises:
      CheckpointError: If the state cannot be written.
    """
    if result.round_num % self._every == 0:
      self._store.save(result.state, result.round_num)

  def on_error(self, state: Any, round_num: int) -> None:
    """Saves the state, unless there is a newer one.

    Args:
      state: The state of the learning process.
      round_num: How many rounds it has seen.

    Raises:
      CheckpointError: If it cannot be written.
    """
    if round_num > max(self._store.rounds(), default=-1):
      self._store.save(state, round_num)

  def on_end(self, state: Any, round_num: int) -> None:
    """Saves the state.

    Args:
      state: The state of the learning process.
      round_num: How many rounds it has seen.

    Raises:
      CheckpointError: If it cannot be written.
    """
    self._store.save(state, round_num)
