"""Bad arguments and damaged files of programs, before any round."""

import errno
import functools
import os
from unittest import mock

import numpy as np
import tensorflow_federated as tff

from fedsteer_tff import participation
from fedsteer_tff import programs
from tests.bad_input import rows
from tests.programs import small_process

_PROBABILITIES = [0.5, 0.5]
_CONFIG = {'rounds': 3, 'task': 'digits'}
_STATE = {'weights': np.float32([1, 2])}


@functools.cache
def _process():
  return small_process.build_process()


def _row(what, case, call, error, message):
  return rows.Row(what, case, call, error, message)


def _committed(folder):
  """A folder with the files of a run of three rounds that is not complete."""
  directory = programs.RunDirectory(folder / 'run')
  directory.open(_CONFIG, may_grow='rounds')
  directory.commit(_CONFIG, {'fedsteer-tff': '0'})
  directory.close()
  return folder / 'run'


def _open_damaged(name, content, config=None):
  def call(folder):
    path = _committed(folder)
    (path / name).write_bytes(content)
    programs.RunDirectory(path).open(config or _CONFIG, may_grow='rounds')

  return call


def _open_file(folder):
  (folder / 'run').write_text('mine')
  programs.RunDirectory(folder / 'run').open(_CONFIG)


def _open_foreign(folder):
  (folder / 'thesis.tex').write_text('mine')
  programs.RunDirectory(folder).open(_CONFIG)


def _open_below_a_file(folder):
  (folder / 'file').write_text('mine')
  programs.RunDirectory(folder / 'file' / 'run').open(_CONFIG)


def _open_read_only(folder):
  error = OSError(errno.EROFS, os.strerror(errno.EROFS), str(folder))
  with mock.patch.object(os, 'makedirs', side_effect=error):
    programs.RunDirectory(folder / 'run').open(_CONFIG)


def _open_twice(folder):
  first = programs.RunDirectory(folder / 'run')
  first.open(_CONFIG)
  try:
    programs.RunDirectory(folder / 'run').open(_CONFIG)
  finally:
    first.close()


def _open_other(folder):
  programs.RunDirectory(_committed(folder)).open(
    {**_CONFIG, 'task': 'emnist'}, may_grow='rounds'
  )


def _restore_damaged(damage, like=None):
  def call(folder):
    store = programs.Checkpoints(folder / 'c', warn=lambda text: None)
    store.save(_STATE, 1)
    for root, _, files in os.walk(folder / 'c'):
      for name in files:
        damage(os.path.join(root, name))
    store.restore(_STATE if like is None else like)

  return call


def _truncate(path):
  os.truncate(path, os.path.getsize(path) // 2)


def _flip(path):
  with open(path, 'r+b') as file:
    first = file.read(1)
    file.seek(0)
    file.write(bytes([first[0] ^ 255]))


def _leave(path):
  del path


def _checkpoints_in_a_file(folder):
  (folder / 'c').write_text('mine')
  programs.Checkpoints(folder / 'c')


def _csv_continued(content, num_rounds):
  def call(folder):
    (folder / 'metrics.csv').write_text(content)
    programs.MetricsCsv(folder / 'metrics.csv').on_start(num_rounds, 9)

  return call


def _durable_csv(content):
  def call(folder):
    (folder / 'm.csv').write_bytes(content)
    programs.DurableCsv(folder / 'm.csv')

  return call


def _in_a_file(release):
  def call(folder):
    (folder / 'f').write_text('mine')
    release(folder / 'f')

  return call


def _iterator(buffer):
  return programs.BernoulliDataSourceIterator.from_bytes(buffer)


def _compose(**bad):
  return programs.compose_with_client_ids(
    **{'process': _process(), 'client_data_computation': None, **bad}
  )


@tff.tensorflow.computation(np.int32)
def _no_data(client_id):
  return client_id


def _run(**bad):
  good = {
    'process': _process(),
    'sampler': participation.BernoulliSampler(_PROBABILITIES, 0),
    'client_data_fn': lambda cohort: [],
    'state': None,
    'num_rounds': 1,
  }
  return programs.run(**{**good, **bad})


def _seeded_initial_state(**bad):
  good = {'process': _process(), 'model_fn': small_process.model_fn, 'seed': 0}
  return programs.seeded_initial_state(**{**good, **bad})


def _resident(**bad):
  return programs.ResidentProcess(
    **{'process': _process(), 'runtime': None, **bad}
  )


def _run_with(make_dataset):
  """Runs a round with such data of client 1, whoever else takes part."""

  def call(_):
    data = programs.CohortData(
      lambda client_id, p: make_dataset(small_process.dataset(client_id))
    )
    sampler = participation.BernoulliSampler([1.0, 1.0], 0)
    _run(sampler=sampler, client_data_fn=data)

  return call


_DAMAGED = '{folder}/c must hold a checkpoint that can be read, found none'
_DIRECTORY_ERROR = programs.RunDirectoryError

ROWS = (
  _row(
    'programs.run',
    'examples that are not batched',
    _run_with(lambda dataset: dataset.unbatch()),
    TypeError,
    'client_data_fn must return <float32[?,2],int32[?,1]>*, found'
    ' <float32[2],int32[1]>* (examples that are not batched) as the data of'
    ' client 0',
  ),
  _row(
    'programs.run',
    'batches of batches',
    _run_with(lambda dataset: dataset.batch(2)),
    TypeError,
    'client_data_fn must return ... (batches that are batched once more)',
  ),
  _row(
    'programs.run',
    'data of another type',
    _run_with(lambda dataset: dataset.map(lambda x, y: (y, x))),
    TypeError,
    'client_data_fn must return ... found <int32[?,1],float32[?,2]>* as the',
  ),
  _row(
    'programs.run',
    'data without an end',
    _run_with(lambda dataset: dataset.repeat()),
    ValueError,
    'client_data_fn must return datasets that have an end, found one that'
    ' repeats for ever as the data of client 0: give repeat a number',
  ),
  _row(
    'programs.RunDirectory',
    'no path',
    lambda _: programs.RunDirectory(3),
    TypeError,
    'path must be a path, found 3',
  ),
  _row(
    'programs.RunDirectory',
    'a path with a NUL',
    lambda _: programs.RunDirectory('a\0b').open(_CONFIG),
    _DIRECTORY_ERROR,
    'output_dir must be a path, without NUL bytes ... found ',
  ),
  _row(
    'programs.RunDirectory',
    'a file',
    _open_file,
    _DIRECTORY_ERROR,
    'output_dir must be a folder, found a file: {folder}/run',
  ),
  _row(
    'programs.RunDirectory',
    'a folder of something else',
    _open_foreign,
    _DIRECTORY_ERROR,
    'output_dir must be new, empty or the folder of a run, found {folder}'
    ' without config.json but with thesis.tex',
  ),
  _row(
    'programs.RunDirectory',
    'a folder that cannot be made',
    _open_below_a_file,
    _DIRECTORY_ERROR,
    'output_dir must be a folder that can be written, found: ',
  ),
  _row(
    'programs.RunDirectory',
    'a folder on a file system that is read-only',
    _open_read_only,
    _DIRECTORY_ERROR,
    'output_dir must be a folder that can be written, found: [Errno 30]',
  ),
  _row(
    'programs.RunDirectory',
    'a folder that another process uses',
    _open_twice,
    _DIRECTORY_ERROR,
    'output_dir must not be in use, found another process',
  ),
  _row(
    'programs.RunDirectory',
    'another configuration',
    _open_other,
    _DIRECTORY_ERROR,
    'the run in {folder}/run has another configuration: --task: digits ->'
    ' emnist',
  ),
  _row(
    'programs.RunDirectory',
    'fewer rounds than the run has',
    _open_damaged('note', b'', {**_CONFIG, 'rounds': 2}),
    _DIRECTORY_ERROR,
    'the run in {folder}/run has another configuration: --rounds: 3 -> 2',
  ),
  _row(
    'programs.RunDirectory',
    'a truncated configuration',
    _open_damaged('config.json', b'{"flags": {'),
    _DIRECTORY_ERROR,
    '{folder}/run/config.json must hold JSON, found: ',
  ),
  _row(
    'programs.RunDirectory',
    'a configuration of another version',
    _open_damaged('config.json', b'{"arguments": {}}'),
    _DIRECTORY_ERROR,
    '{folder}/run/config.json must have an object named flags, found none',
  ),
  _row(
    'programs.RunDirectory',
    'a configuration that is no text',
    _open_damaged('config.json', b'\xff\xfe'),
    _DIRECTORY_ERROR,
    '{folder}/run/config.json must be a text that can be read, found: ',
  ),
  _row(
    'programs.RunDirectory',
    'a summary without its rounds',
    _open_damaged('summary.json', b'{}'),
    _DIRECTORY_ERROR,
    '{folder}/run/summary.json must have an integer named rounds, found none',
  ),
  _row(
    'programs.RunDirectory',
    'rows without checkpoints',
    _open_damaged('metrics.csv', b'round,loss\n1,0.5\n'),
    _DIRECTORY_ERROR,
    '{folder}/run/checkpoints must hold a checkpoint of the run that wrote',
  ),
  _row(
    'programs.MetricsCsv',
    'no path',
    lambda _: programs.MetricsCsv(3),
    TypeError,
    'path must be a path, found 3',
  ),
  _row(
    'programs.MetricsCsv',
    'one name for several',
    lambda folder: programs.MetricsCsv(folder, evaluation_names='loss'),
    TypeError,
    "evaluation_names must be a list of names, found 'loss'",
  ),
  _row(
    'programs.MetricsCsv',
    'a column that is no function',
    lambda folder: programs.MetricsCsv(folder, extra_columns={'x': 3}),
    TypeError,
    "extra_columns['x'] must be a function, found 3",
  ),
  _row(
    'programs.MetricsCsv',
    'columns as a list',
    lambda folder: programs.MetricsCsv(folder, extra_columns=['x']),
    TypeError,
    "extra_columns must be a dict of functions, found ['x']",
  ),
  _row(
    'programs.TensorBoard',
    'one name for several',
    lambda folder: programs.TensorBoard(folder, train_names='loss'),
    TypeError,
    "train_names must be a list of names, found 'loss'",
  ),
  _row(
    'programs.TensorBoard',
    'a file',
    _in_a_file(lambda path: programs.TensorBoard(path).on_start(0, 1)),
    _DIRECTORY_ERROR,
    '{folder}/f must be a folder, found a file',
  ),
  _row(
    'programs.TensorBoard',
    'no names',
    lambda folder: programs.TensorBoard(folder, train_names=None),
    TypeError,
    'train_names must be a list of names, found None',
  ),
  _row(
    'programs.MetricsCsv',
    'a row that is missing',
    _csv_continued('round,loss\n1,0.5\n3,0.5\n', 3),
    _DIRECTORY_ERROR,
    '{folder}/metrics.csv must hold one row for each of the 3 rounds before the'
    ' checkpoint, found 2 of them',
  ),
  _row(
    'programs.MetricsCsv',
    'no column of the round',
    _csv_continued('rnd,loss\n1,0.5\n', 1),
    _DIRECTORY_ERROR,
    '{folder}/metrics.csv must be a table with one row for each round, found no'
    ' column named round',
  ),
  _row(
    'programs.MetricsCsv',
    'a cell too many',
    _csv_continued('round,loss\n1,0.5,7\n', 1),
    _DIRECTORY_ERROR,
    '{folder}/metrics.csv must be a table with one row for each round, found',
  ),
  _row(
    'programs.MetricsCsv',
    'a table of something else',
    _csv_continued('name,age\na,1\n', 0),
    _DIRECTORY_ERROR,
    '{folder}/metrics.csv must be a table with one row for each round, found',
  ),
  _row(
    'programs.TensorBoard',
    'no path',
    lambda _: programs.TensorBoard(None),
    TypeError,
    'log_dir must be a path, found None',
  ),
  _row(
    'programs.TensorBoard',
    'flushed every 0 rounds',
    lambda folder: programs.TensorBoard(folder, flush_every=0),
    ValueError,
    'flush_every must be an integer >= 1, found 0',
  ),
  _row(
    'programs.WarnOfConditioning',
    'text instead of a function',
    lambda _: programs.WarnOfConditioning('stderr'),
    TypeError,
    "warn must be a function, found 'stderr'",
  ),
  _row(
    'programs.SaveCheckpoints',
    'a path instead of a store',
    lambda folder: programs.SaveCheckpoints('checkpoints', 1),
    TypeError,
    "store must be Checkpoints, found 'checkpoints'",
  ),
  _row(
    'programs.SaveCheckpoints',
    'every 0 rounds',
    lambda folder: programs.SaveCheckpoints(programs.Checkpoints(folder), 0),
    ValueError,
    'every must be an integer >= 1, found 0',
  ),
  _row(
    'programs.Checkpoints',
    'no path',
    lambda _: programs.Checkpoints(3),
    TypeError,
    'directory must be a path, found 3',
  ),
  _row(
    'programs.Checkpoints',
    'none is kept',
    lambda folder: programs.Checkpoints(folder, keep=0),
    ValueError,
    'keep must be an integer >= 1, found 0',
  ),
  _row(
    'programs.Checkpoints',
    'a file',
    _checkpoints_in_a_file,
    programs.CheckpointError,
    '{folder}/c must be a folder that can be written, found: ... make the path'
    ' one of folders',
  ),
  _row(
    'programs.Checkpoints',
    'truncated files',
    _restore_damaged(_truncate),
    programs.CheckpointError,
    _DAMAGED,
  ),
  _row(
    'programs.Checkpoints',
    'a changed byte',
    _restore_damaged(_flip),
    programs.CheckpointError,
    _DAMAGED,
  ),
  _row(
    'programs.Checkpoints',
    'lost files',
    _restore_damaged(os.remove),
    programs.CheckpointError,
    _DAMAGED,
  ),
  _row(
    'programs.Checkpoints',
    'a state of another version',
    _restore_damaged(_leave, {'weights': np.float32([1, 2, 3])}),
    programs.CheckpointMismatchError,
    'the checkpoint of round ... must be a state of this process, of the same'
    ' model and population, found: weights must be float32[3], found'
    ' float32[2]; it is left as it is',
  ),
  _row(
    'programs.CheckpointManager',
    'no path',
    lambda _: programs.CheckpointManager(3),
    TypeError,
    'root_dir must be a path, found 3',
  ),
  _row(
    'programs.CheckpointManager',
    'a number of states as text',
    lambda folder: programs.CheckpointManager(folder, keep='all'),
    ValueError,
    "keep must be an integer >= 1, found 'all'",
  ),
  _row(
    'programs.DurableCsv',
    'no path',
    lambda _: programs.DurableCsv(3),
    TypeError,
    'file_path must be a path, found 3',
  ),
  _row(
    'programs.DurableCsv',
    'a table without the column',
    _durable_csv(b'name,age\na,1\n'),
    _DIRECTORY_ERROR,
    "{folder}/m.csv must be a table with the column 'round', found another",
  ),
  _row(
    'programs.DurableCsv',
    'no text',
    _durable_csv(b'\xff\xfe\x00'),
    _DIRECTORY_ERROR,
    "{folder}/m.csv must be a table with the column 'round', found another",
  ),
  _row(
    'programs.DurableSavedModels',
    'no path',
    lambda _: programs.DurableSavedModels(3),
    TypeError,
    'root_dir must be a path, found 3',
  ),
  _row(
    'programs.DurableSavedModels',
    'a file',
    _in_a_file(programs.DurableSavedModels),
    _DIRECTORY_ERROR,
    'root_dir must be a folder, found a file: {folder}/f',
  ),
  _row(
    'programs.DurableTensorBoard',
    'no path',
    lambda _: programs.DurableTensorBoard(3),
    TypeError,
    'summary_dir must be a path, found 3',
  ),
  _row(
    'programs.DurableTensorBoard',
    'a file',
    _in_a_file(programs.DurableTensorBoard),
    _DIRECTORY_ERROR,
    'summary_dir must be a folder, found a file: {folder}/f',
  ),
  _row(
    'programs.Releases',
    'a manager that is none',
    lambda _: programs.Releases().track(print),
    TypeError,
    'manager must be a tff.program.ReleaseManager, found',
  ),
  _row(
    'programs.BernoulliDataSource',
    'p = 0',
    lambda _: programs.BernoulliDataSource([0.0], 0),
    ValueError,
    'probabilities must be in (0, 1], found 0.0 for client 0',
  ),
  _row(
    'programs.BernoulliDataSourceIterator',
    'probabilities instead of a sampler',
    lambda _: programs.BernoulliDataSourceIterator([0.5]),
    TypeError,
    'sampler must be a participation.BernoulliSampler, found [0.5]',
  ),
  _row(
    'programs.BernoulliDataSourceIterator',
    'a negative number of draws',
    lambda _: programs.BernoulliDataSourceIterator(
      participation.BernoulliSampler([0.5], 0), -1
    ),
    ValueError,
    'num_draws must be an integer >= 0, found -1',
  ),
  _row(
    'programs.BernoulliDataSourceIterator',
    'cohorts filled up to multiples of 0',
    lambda _: programs.BernoulliDataSource([0.5], 0).iterator().select(0),
    ValueError,
    'k must be an integer >= 1, found 0',
  ),
  _row(
    'programs.BernoulliDataSourceIterator',
    'truncated bytes',
    lambda _: _iterator(b'{"num_draws": 1'),
    ValueError,
    'buffer must hold an iterator with num_draws, probabilities, seed, found',
  ),
  _row(
    'programs.BernoulliDataSourceIterator',
    'bytes of another version',
    lambda _: _iterator(b'{"num_draws": 1}'),
    ValueError,
    'buffer must hold an iterator with num_draws, probabilities, seed, found',
  ),
  *rows.table(
    'programs.build_client_data_computation',
    programs.build_client_data_computation,
    {
      'dataset_fn': lambda client_id: small_process.dataset(0),
      'population': participation.Population([1], [1]),
    },
    (
      'a list of datasets',
      {'dataset_fn': [1]},
      TypeError,
      'dataset_fn must be a function, found [1]',
    ),
    (
      'weights instead of a population',
      {'population': [1.0]},
      TypeError,
      'population must be a participation.Population, found [1.0]',
    ),
    (
      'a function that returns no dataset',
      {'dataset_fn': lambda client_id: 3},
      TypeError,
      'dataset_fn must return a tf.data.Dataset, found 3',
    ),
  ),
  *rows.table(
    'programs.compose_with_client_ids',
    _compose,
    {},
    (
      'no computation',
      {},
      TypeError,
      'client_data_computation must be a tff.Computation, found None',
    ),
    (
      'no process',
      {'process': 3},
      TypeError,
      'process must be a learning process, found 3',
    ),
    (
      'a computation of something else',
      {'client_data_computation': _no_data},
      TypeError,
      'client_data_computation must return the client data of process.next,'
      ' ... found int32',
    ),
  ),
  *rows.table(
    'programs.cohort_multiple',
    programs.cohort_multiple,
    {'participation_probabilities': [0.5]},
    (
      'nobody',
      {'participation_probabilities': []},
      ValueError,
      'participation_probabilities must be a vector with at least one entry,'
      ' found shape (0,)',
    ),
    (
      'a probability above 1',
      {'participation_probabilities': [0.5, 1.5]},
      ValueError,
      'participation_probabilities must be in (0, 1], found 1.5',
    ),
  ),
  *rows.table(
    'programs.CohortData',
    programs.CohortData,
    {'client_data_fn': lambda client_id, p: None},
    (
      'a list of data',
      {'client_data_fn': []},
      TypeError,
      'client_data_fn must be a function, found []',
    ),
    (
      'multiples of 0',
      {'multiple': 0},
      ValueError,
      'multiple must be an integer >= 1, found 0',
    ),
  ),
  *rows.table(
    'programs.build_evaluation',
    programs.build_evaluation,
    {
      'model_fn': small_process.model_fn,
      'test_dataset': small_process.dataset(0),
    },
    (
      'an empty test set',
      {'test_dataset': small_process.dataset(0).take(0)},
      ValueError,
      'test_dataset must have at least one batch, found none',
    ),
    (
      'a test set without an end',
      {'test_dataset': small_process.dataset(0).repeat()},
      ValueError,
      'test_dataset must have an end, found one that repeats for ever',
    ),
    (
      'arrays',
      {'test_dataset': [1]},
      TypeError,
      'test_dataset must be a tf.data.Dataset, found [1]',
    ),
    (
      'no model',
      {'model_fn': 3},
      TypeError,
      'model_fn must be a function, found 3',
    ),
  ),
  *rows.table(
    'programs.seeded_weights',
    programs.seeded_weights,
    {'model_fn': small_process.model_fn, 'seed': 0},
    (
      'a seed as text',
      {'seed': 'x'},
      ValueError,
      "seed must be an integer >= 0, found 'x'",
    ),
    (
      'a seed of 41 bits',
      {'seed': 2**40},
      ValueError,
      f'seed must be below 2**32, found {2**40}',
    ),
  ),
  *rows.table(
    'programs.seeded_initial_state',
    _seeded_initial_state,
    {},
    (
      'no process',
      {'process': 3},
      TypeError,
      'process must be a learning process, found 3',
    ),
  ),
  *rows.table(
    'programs.LocalRuntime',
    programs.LocalRuntime,
    {},
    (
      'a number of calls as text',
      {'max_concurrent_calls': 'all'},
      TypeError,
      "max_concurrent_calls must be an integer, found 'all'",
    ),
    (
      'a log that is no path',
      {'log_path': 3},
      TypeError,
      'log_path must be a path, found 3',
    ),
  ),
  _row(
    'programs.LocalRuntime',
    'a log that is a folder',
    lambda folder: programs.LocalRuntime(log_path=folder),
    programs.LocalRuntimeError,
    'log_path must be a file that can be written, found: ',
  ),
  *rows.table(
    'programs.RemoteRuntime',
    programs.RemoteRuntime,
    {'workers': ['localhost:1']},
    (
      'no worker',
      {'workers': []},
      ValueError,
      'workers must be at least one host:port, found none',
    ),
    (
      'a number of workers',
      {'workers': 3},
      TypeError,
      'workers must be a sequence of host:port, found 3',
    ),
    (
      'a worker twice',
      {'workers': ['a:1', 'A:01']},
      ValueError,
      "workers must be different addresses, found 'a:1' and 'A:01'",
    ),
    (
      'no time to answer',
      {'timeout_seconds': 0},
      ValueError,
      'timeout_seconds must be > 0 and at most a day (86400 seconds), found 0',
    ),
    (
      'a certificate as credentials',
      {'credentials': b'PEM'},
      TypeError,
      "credentials must be grpc.ChannelCredentials or None, found b'PEM'",
    ),
  ),
  *rows.table(
    'programs.ResidentProcess',
    _resident,
    {},
    (
      'no runtime',
      {},
      TypeError,
      'runtime must be a LocalRuntime, found None',
    ),
    (
      'no process',
      {'process': 3},
      TypeError,
      'process must be a learning process, found 3',
    ),
  ),
  *rows.table(
    'programs.run',
    _run,
    {},
    (
      'a number of rounds that is none',
      {'num_rounds': 1.5},
      ValueError,
      'num_rounds must be an integer >= 0, found 1.5',
    ),
    (
      'a first round after the last',
      {'first_round': 2},
      ValueError,
      'first_round must be <= num_rounds = 1, found 2',
    ),
    (
      'evaluated every 0 rounds',
      {'evaluate_every': 0},
      ValueError,
      'evaluate_every must be an integer >= 1, found 0',
    ),
    (
      'probabilities instead of a sampler',
      {'sampler': [0.5]},
      TypeError,
      'sampler must have a method cohort, found [0.5]',
    ),
    (
      'data instead of a function',
      {'client_data_fn': {}},
      TypeError,
      'client_data_fn must be a function, found {}',
    ),
    (
      'no process',
      {'process': None},
      TypeError,
      'process must be a learning process, found None',
    ),
    (
      'a number of rounds to prefetch',
      {'prefetch': 1},
      TypeError,
      'prefetch must be True or False, found 1',
    ),
    (
      'prefetched with forced clients',
      {'prefetch': True, 'forced_clients_fn': lambda state, round_num: []},
      ValueError,
      'prefetch must be False with forced_clients_fn, found True: the forced'
      ' clients come from the state after the round before',
    ),
  ),
  _row(
    'programs.run_program',
    'a function instead of its coroutine',
    lambda _: programs.run_program(print),
    TypeError,
    'program must be a coroutine, what an async function returns, found',
  ),
)
