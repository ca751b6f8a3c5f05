"""Tests for training_loop, its callbacks and the evaluation."""

from collections import OrderedDict
import contextlib
import threading

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import client_work
from fedsteer_tff import participation
from fedsteer_tff.programs import callbacks
from fedsteer_tff.programs import checkpoints
from fedsteer_tff.programs import cohorts
from fedsteer_tff.programs import evaluation
from fedsteer_tff.programs import local_runtime
from fedsteer_tff.programs import memory
from fedsteer_tff.programs import metrics_table
from fedsteer_tff.programs import run_files
from fedsteer_tff.programs import training_loop
from tests.programs import small_process


@pytest.fixture(scope='module', autouse=True)
def runtime():
  with local_runtime.LocalRuntime().activate() as active:
    yield active


@pytest.fixture(scope='module', name='process')
def _process():
  return small_process.build_process()


@pytest.fixture(scope='module', name='state')
def _state(process):
  return evaluation.seeded_initial_state(process, small_process.model_fn, 1)


@pytest.fixture(scope='module', name='evaluate')
def _evaluate(process):
  del process  # The learning process must be built first.
  return evaluation.build_evaluation(
    small_process.model_fn, small_process.dataset(99, 30)
  )


class _Log(training_loop.Callback):
  def __init__(self):
    self.results = []
    self.starts = []
    self.ends = []

  def on_start(self, round_num, num_rounds):
    self.starts.append((round_num, num_rounds))

  def on_round(self, result):
    self.results.append(result)

  def on_end(self, state, round_num):
    self.ends.append(round_num)


def _run(process, state, log=None, **kwargs):
  datasets = [
    small_process.dataset(i) for i in range(small_process.NUM_CLIENTS)
  ]
  sampler = participation.BernoulliSampler(
    np.full(small_process.NUM_CLIENTS, 0.5), seed=3
  )
  data = cohorts.CohortData(lambda client_id, p: datasets[client_id])
  more = kwargs.pop('callbacks', [])
  return training_loop.run(
    process,
    sampler,
    data,
    state=state,
    callbacks=([log] if log else []) + more,
    **kwargs,
  )


def _flat(process, state):
  return small_process.flat(process.get_model_weights(state))


def test_rounds_have_cohorts_metrics_and_evaluations(process, state, evaluate):
  log = _Log()
  final, done = _run(
    process, state, log, num_rounds=5, evaluate_fn=evaluate, evaluate_every=2
  )
  assert (done, log.starts, log.ends) == (5, [(0, 5)], [5])
  assert [r.round_num for r in log.results] == [1, 2, 3, 4, 5]
  assert [r.is_last for r in log.results] == [False] * 4 + [True]
  sampler = participation.BernoulliSampler(np.full(6, 0.5), seed=3)
  for r in log.results:
    expected = sampler.cohort(r.round_num).client_ids
    np.testing.assert_array_equal(r.cohort.client_ids, expected)
    assert r.metrics['num_examples'] == 8 * len(expected)
    assert isinstance(r.metrics['loss'], float)
  assert [r.evaluation is not None for r in log.results] == [
    False,
    True,
    False,
    True,
    False,
  ]
  np.testing.assert_array_equal(
    _flat(process, final), _flat(process, log.results[-1].state)
  )


def test_going_on_equals_going_through(process, state):
  straight, _ = _run(process, state, num_rounds=4)
  half, done = _run(process, state, num_rounds=2)
  resumed, _ = _run(process, half, first_round=done, num_rounds=4)
  np.testing.assert_array_equal(
    _flat(process, straight), _flat(process, resumed)
  )


def test_stops_between_rounds_when_asked(process, state):
  log = _Log()
  _, done = _run(
    process,
    state,
    log,
    num_rounds=9,
    stop_requested=lambda: len(log.results) == 2,
  )
  assert done == 2
  assert log.ends == [2]


def test_forced_clients_take_part_with_probability_one(process, state):
  log = _Log()
  asked = []

  def forced(current, round_num):
    asked.append((current is state, round_num))
    return [0, 5]

  _run(process, state, log, num_rounds=2, forced_clients_fn=forced)
  assert asked == [(True, 1), (False, 2)]
  for r in log.results:
    ids = r.cohort.client_ids.tolist()
    for i in (0, 5):
      assert r.cohort.participation_probabilities[ids.index(i)] == 1.0


@pytest.mark.parametrize(
  ('arguments', 'match'),
  [
    ({'num_rounds': -1}, 'num_rounds must be an integer >= 0, found -1'),
    ({'num_rounds': 1.5}, 'num_rounds must be an integer >= 0, found 1.5'),
    (
      {'num_rounds': 1, 'first_round': 2},
      'first_round must be <= num_rounds = 1, found 2',
    ),
    (
      {'num_rounds': 1, 'evaluate_every': 0},
      'evaluate_every must be an integer >= 1, found 0',
    ),
  ],
)
def test_numbers_are_checked(process, state, arguments, match):
  with pytest.raises(ValueError, match=match):
    _run(process, state, **arguments)


def test_the_initial_state_follows_the_seed(process, state):
  again = evaluation.seeded_initial_state(process, small_process.model_fn, 1)
  other = evaluation.seeded_initial_state(process, small_process.model_fn, 2)
  np.testing.assert_array_equal(_flat(process, state), _flat(process, again))
  assert np.abs(_flat(process, state) - _flat(process, other)).max() > 0.01


def test_the_evaluation_equals_numpy(process, state, evaluate):
  kernel, bias = process.get_model_weights(state).trainable
  x, y = (
    np.concatenate(parts) for parts in zip(*small_process.dataset(99, 30))
  )
  logits = x @ np.asarray(kernel) + np.asarray(bias)
  shifted = logits - logits.max(axis=1, keepdims=True)
  log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
  loss = -np.take_along_axis(log_softmax, y, axis=1).mean()
  for _ in range(2):  # Nothing is carried over to the second time.
    result = evaluate(process.get_model_weights(state))
    assert result['accuracy'] == pytest.approx(
      (logits.argmax(axis=1) == y[:, 0]).mean(), abs=1e-6
    )
    assert result['loss'] == pytest.approx(loss, rel=1e-5)
    assert set(result) == {'loss', 'accuracy'}


def test_an_empty_test_set_is_refused():
  with pytest.raises(ValueError, match='test_dataset must have at least one'):
    evaluation.build_evaluation(
      small_process.model_fn, small_process.dataset(0).take(0)
    )


def test_metrics_are_flattened_in_order():
  flat = training_loop.flatten_metrics(
    {
      'distributor': (),
      'client_work': {'train': {'loss': np.float32(0.5)}},
      'aggregator': OrderedDict(
        [('b', np.int32(2)), ('a', {'c': np.float64(1), 'd': np.zeros([2])})]
      ),
      'finalizer': (),
    }
  )
  assert list(flat.items()) == [('loss', 0.5), ('b', 2), ('a/c', 1.0)]
  assert isinstance(flat['b'], int)


def test_own_metrics_beside_those_of_a_factory_keep_their_names():
  flat = training_loop.flatten_metrics(
    {
      'aggregator': OrderedDict(
        [('fedsteer', {'a': 1}), ('correction', {'a': 2, 'dp': ()})]
      ),
    }
  )
  assert list(flat.items()) == [('a', 1), ('correction/a', 2)]


def test_callbacks_write_a_table_events_and_checkpoints(
  process, state, evaluate, tmp_path
):
  def files():
    store = checkpoints.Checkpoints(tmp_path / 'c')
    return store, [
      callbacks.MetricsCsv(tmp_path / 'm.csv', extra_columns={'x': lambda: 7}),
      callbacks.TensorBoard(tmp_path / 't'),
      callbacks.SaveCheckpoints(store, every=2),
    ]

  def run(start, **kwargs):
    return _run(
      process, start, evaluate_fn=evaluate, evaluate_every=2, **kwargs
    )

  store, writers = files()
  run(state, num_rounds=3, callbacks=writers)
  assert store.rounds() == [2, 3]
  table = metrics_table.MetricsTable(tmp_path / 'm.csv')
  rows = table.rows()
  assert [row['round'] for row in rows] == ['1', '2', '3']
  assert list(rows[0])[:5] == [
    'round',
    'loss',
    'accuracy',
    'test_loss',
    'test_accuracy',
  ]
  assert list(rows[0])[-4:] == ['cohort_size', 'cohort', 'seconds', 'x']
  assert [bool(row['test_accuracy']) for row in rows] == [False, True, False]
  assert [len(row['cohort'].split()) for row in rows] == [
    int(row['cohort_size']) for row in rows
  ]

  # Going on appends the fourth row to the others.
  restored, done = store.restore(state)
  assert done == 3
  store, writers = files()
  run(restored, first_round=3, num_rounds=4, callbacks=writers)
  straight = []
  run(state, num_rounds=4, callbacks=[_Collect(straight)])
  assert [row['loss'] for row in table.rows()] == [repr(v) for v in straight]

  (first, second) = sorted((tmp_path / 't').iterdir())
  steps = [
    (event.step, value.tag)
    for path in (first, second)
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  ]
  assert [s for s, tag in steps if tag == 'train/loss'] == [1, 2, 3, 4]
  assert [s for s, tag in steps if tag == 'test/accuracy'] == [2, 4]


@pytest.mark.slow
def test_memory_stays_flat_over_cohorts_of_varying_size(
  process, state, runtime
):
  datasets = [small_process.dataset(i) for i in range(10)]
  data = cohorts.CohortData(
    lambda client_id, p: datasets[client_id],
    padding=small_process.dataset(0).take(0),
    multiple=5,
  )
  sampler = participation.BernoulliSampler(np.full(10, 0.4), seed=0)
  resident = []

  class Watch(training_loop.Callback):
    def on_round(self, result):
      resident.append(memory.resident_bytes(runtime.pid))

  training_loop.run(
    process, sampler, data, state=state, num_rounds=80, callbacks=[Watch()]
  )
  sizes = {sampler.cohort(r).num_clients for r in range(1, 81)}
  assert len(sizes) > 5
  assert resident[-1] < 1.03 * resident[30]


class _Collect(training_loop.Callback):
  def __init__(self, losses):
    self._losses = losses

  def on_round(self, result):
    self._losses.append(result.metrics['loss'])


class _FailedError(RuntimeError):
  """What a round of these tests raises."""


def _fail(*unused_arguments):
  raise _FailedError


@pytest.mark.parametrize('resident', [False, True])
@pytest.mark.parametrize('where', ['in a round', 'in an evaluation'])
def test_a_round_that_fails_leaves_the_state_before_it(
  process, state, evaluate, runtime, tmp_path, where, resident
):
  def files():
    store = checkpoints.Checkpoints(tmp_path / 'c')
    return store, [
      callbacks.MetricsCsv(tmp_path / 'm.csv'),
      callbacks.TensorBoard(tmp_path / 't', flush_every=100),
      callbacks.SaveCheckpoints(store, every=100),
    ]

  after = []

  def forced(unused_state, round_num):
    return _fail() if round_num == 4 and where == 'in a round' else []

  def evaluate_three_times(weights):
    after.append(weights)
    return _fail() if len(after) == 4 else evaluate(weights)

  options = dict(
    runtime=runtime if resident else None, num_rounds=5, evaluate_fn=evaluate
  )
  store, writers = files()
  with pytest.raises(_FailedError):
    _run(
      process,
      state,
      callbacks=writers,
      forced_clients_fn=forced,
      **{**options, 'evaluate_fn': evaluate_three_times},
    )
  assert store.rounds() == [3]
  restored, done = store.restore(state)
  np.testing.assert_array_equal(
    _flat(process, restored), small_process.flat(after[2])
  )

  # It goes on as if nothing had been.
  _, writers = files()
  resumed, _ = _run(
    process, restored, first_round=done, callbacks=writers, **options
  )
  log = _Log()
  straight, _ = _run(process, state, log, **options)
  np.testing.assert_array_equal(
    _flat(process, resumed), _flat(process, straight)
  )
  rows = metrics_table.MetricsTable(tmp_path / 'm.csv').rows()
  assert [row['loss'] for row in rows] == [
    repr(result.metrics['loss']) for result in log.results
  ]
  steps = [
    event.step
    for path in sorted((tmp_path / 't').iterdir())
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
    if value.tag == 'train/loss'
  ]
  assert steps == [1, 2, 3, 4, 5]


@pytest.mark.parametrize('resident', [False, True])
def test_prefetched_data_trains_the_same_to_the_bit(
  process, state, evaluate, runtime, resident
):
  runs = []
  for prefetch in (False, True):
    log = _Log()
    final, done = _run(
      process,
      state,
      log,
      num_rounds=5,
      first_round=1,
      runtime=runtime if resident else None,
      evaluate_fn=evaluate,
      evaluate_every=2,
      prefetch=prefetch,
    )
    assert done == 5
    runs.append((final, log))
  (plain, plain_log), (prefetched, prefetched_log) = runs
  np.testing.assert_array_equal(
    _flat(process, plain), _flat(process, prefetched)
  )
  for one, other in zip(plain_log.results, prefetched_log.results):
    assert one.round_num == other.round_num
    assert one.metrics == other.metrics
    assert one.evaluation == other.evaluation
    np.testing.assert_array_equal(
      one.cohort.client_ids, other.cohort.client_ids
    )


class _Data:
  """Client data that fails in one round, and says who made it."""

  def __init__(self, fails_in=None):
    self._fails_in = fails_in
    self.rounds = 0
    self.threads = set()

  def __call__(self, cohort):
    self.rounds += 1
    self.threads.add(threading.current_thread())
    if self.rounds == self._fails_in:
      _fail()
    return [small_process.dataset(int(i)) for i in cohort.client_ids]


@pytest.mark.parametrize('resident', [False, True])
def test_the_leaves_of_another_state_are_named(
  process, state, runtime, resident
):
  weights = state.global_model_weights
  other = state._replace(
    global_model_weights=weights._replace(
      trainable=[np.zeros([3, 2], np.float32), weights.trainable[1]]
    ),
    finalizer=(),
  )
  with pytest.raises(TypeError) as caught:
    _run(process, other, num_rounds=1, runtime=runtime if resident else None)
  assert str(caught.value) == (
    'state must be what process.next takes, found another type:'
    ' global_model_weights.trainable.0 must be float32[2, 2], found'
    ' float32[3, 2]; finalizer.learning_rate must be float32[], found none'
  )


@pytest.mark.parametrize('column', ['loss', 'x', 'seconds', 'test_loss'])
def test_the_columns_of_rounds_are_known_before_the_first_one(
  process, state, evaluate, tmp_path, column
):
  def table():
    return callbacks.MetricsCsv(
      tmp_path / 'm.csv', extra_columns={'x': lambda: 7}
    )

  table().check_columns(process)  # There is no table.
  log = _Log()
  _run(
    process,
    state,
    log,
    num_rounds=1,
    evaluate_fn=evaluate,
    callbacks=[table()],
  )
  (result,) = log.results
  assert list(training_loop.metric_names(process)) == list(result.metrics)
  table().check_columns(process)
  path = tmp_path / 'm.csv'
  header, *lines = path.read_text().splitlines()
  columns = ['other' if name == column else name for name in header.split(',')]
  text = '\n'.join([','.join(columns), *lines, ''])
  path.write_text(text)
  with pytest.raises(run_files.RunDirectoryError) as caught:
    table().check_columns(process)
  assert str(caught.value) == (
    f'{path} must have the columns of the rounds to come, with {column}, found'
    ' other instead'
  )
  assert path.read_text() == text


def _run_prefetched(process, state, data, **kwargs):
  sampler = participation.BernoulliSampler(
    np.full(small_process.NUM_CLIENTS, 0.5), seed=3
  )
  return training_loop.run(
    process, sampler, data, state=state, prefetch=True, **kwargs
  )


@pytest.mark.parametrize('resident', [False, True])
def test_data_that_cannot_be_prefetched_leaves_the_state_before_its_round(
  process, state, runtime, resident
):
  kept = []

  class Keep(_Log):
    def on_error(self, state, round_num):
      kept.append((state, round_num))

  data, log = _Data(fails_in=3), Keep()
  with pytest.raises(_FailedError):
    _run_prefetched(
      process,
      state,
      data,
      num_rounds=5,
      runtime=runtime if resident else None,
      callbacks=[log],
    )
  # Round 2 was run to its end, although the data of round 3 had failed.
  assert [r.round_num for r in log.results] == [1, 2]
  ((newest, done),) = kept
  assert (done, data.rounds) == (2, 3)
  expected, _ = _run(process, state, num_rounds=2)
  np.testing.assert_array_equal(
    _flat(process, newest), _flat(process, expected)
  )
  assert not any(thread.is_alive() for thread in data.threads)


def test_the_next_round_is_prefetched_before_a_round_is_over(process, state):
  begun = [threading.Event() for _ in range(3)]
  waited = []

  class Data(_Data):
    def __call__(self, cohort):
      begun[self.rounds].set()
      return super().__call__(cohort)

  class Waits(training_loop.Callback):
    def on_round(self, result):
      if not result.is_last:
        waited.append(begun[result.round_num].wait(60))

  data = Data()
  _run_prefetched(process, state, data, num_rounds=3, callbacks=[Waits()])
  assert (waited, data.rounds) == ([True, True], 3)


@pytest.mark.parametrize(
  'how', ['is over', 'is asked to stop', 'is broken off']
)
def test_nothing_is_prefetched_once_the_loop_ends(process, state, how):
  data, log = _Data(), _Log()

  class Ends(training_loop.Callback):
    def on_round(self, result):
      if how == 'is broken off':
        raise KeyboardInterrupt

  with contextlib.ExitStack() as stack:
    if how == 'is broken off':
      stack.enter_context(pytest.raises(KeyboardInterrupt))
    _run_prefetched(
      process,
      state,
      data,
      num_rounds=2,
      callbacks=[log, Ends()],
      stop_requested=lambda: how == 'is asked to stop' and bool(log.results),
    )
  # The loop's own thread made none, and the other one is no more.
  (thread,) = data.threads
  assert thread is not threading.current_thread()
  assert not thread.is_alive()
  # That of the second round may or may not have begun when the first ended.
  assert data.rounds in ({2} if how == 'is over' else {1, 2})


@pytest.mark.slow
@pytest.mark.parametrize('resident', [True, False])
def test_nothing_is_traced_again_after_the_first_round_of_a_size(
  runtime, resident
):
  traces = []

  class Counts(tf.keras.layers.Dense):
    def call(self, inputs):
      traces.append(inputs.shape)
      return super().call(inputs)

  def model_fn():
    keras_model = tf.keras.Sequential(
      [tf.keras.layers.InputLayer([2]), Counts(2)]
    )
    return tff.learning.models.from_keras_model(
      keras_model,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=small_process.SPEC,
    )

  process = fedsteer_tff.build_fedsteer(
    model_fn,
    population_size=small_process.NUM_CLIENTS,
    client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
    core_set_size=2,
  )
  evaluate = evaluation.build_evaluation(model_fn, small_process.dataset(9))
  after = []

  class Watch(training_loop.Callback):
    def on_round(self, result):
      after.append((len(result.cohort.client_ids), len(traces)))

  training_loop.run(
    process,
    participation.BernoulliSampler(
      np.full(small_process.NUM_CLIENTS, 0.5), seed=3
    ),
    cohorts.CohortData(
      lambda client_id, p: fedsteer_tff.build_client_data(
        client_id,
        small_process.dataset(client_id),
        weight=1 / small_process.NUM_CLIENTS,
        participation_probability=p,
      )
    ),
    state=process.initialize(),
    runtime=runtime if resident else None,
    num_rounds=6,
    evaluate_fn=evaluate,
    callbacks=[Watch()],
  )
  sizes, counts = zip(*after)
  assert len(set(sizes)) >= 3
  # Building the process traces the model, and so does the first evaluation.
  assert counts[0] > 0
  assert len(set(counts)) == 1


class _Kill(training_loop.Callback):
  """Ends a runtime after the third round."""

  def __init__(self, mortal):
    self._mortal = mortal

  def on_round(self, result):
    if result.round_num == 3:
      self.kill()

  def kill(self):
    psutil.Process(self._mortal.pid).kill()


@pytest.mark.slow
@pytest.mark.parametrize(
  ('looks_at_the_state', 'kills', 'kept'),
  [
    # The states before the rounds are looked at, and one is lost.
    (True, 'between rounds', 2),
    (True, 'in a round', 3),
    # Nobody looks at any.
    (False, 'between rounds', 0),
  ],
)
def test_of_a_runtime_that_ends_what_is_at_hand_is_kept(
  process, state, tmp_path, looks_at_the_state, kills, kept
):
  store = checkpoints.Checkpoints(tmp_path)
  store.save(state, 0)
  log = _Log()
  with local_runtime.LocalRuntime().activate() as mortal:
    kill = _Kill(mortal)

    def forced(unused_state, round_num):
      if (kills, round_num) == ('in a round', 4):
        kill.kill()
      return []

    with pytest.raises(
      local_runtime.LocalRuntimeError, match='the TFF runtime must stay alive'
    ):
      _run(
        process,
        state,
        log,
        runtime=mortal,
        num_rounds=5,
        forced_clients_fn=forced if looks_at_the_state else None,
        callbacks=[
          callbacks.SaveCheckpoints(store, every=100),
          *([kill] if kills == 'between rounds' else []),
        ],
      )
  assert len(log.results) == 3
  restored, done = store.restore(state)
  assert done == kept
  expected, _ = _run(process, state, num_rounds=kept)
  np.testing.assert_array_equal(
    _flat(process, restored), _flat(process, expected)
  )


def test_a_state_that_cannot_be_kept_does_not_hide_why(process, state, caplog):
  class Full(training_loop.Callback):
    def on_error(self, state, round_num):
      raise OSError('no room')

  with caplog.at_level('WARNING', logger='absl'):
    with pytest.raises(_FailedError):
      _run(
        process,
        state,
        num_rounds=1,
        forced_clients_fn=_fail,
        callbacks=[Full()],
      )
  assert 'the state after round 0 could not be kept: no room' in caplog.text


def test_an_error_of_a_callback_is_not_one_of_the_round(process, state):
  seen = []

  class Fails(training_loop.Callback):
    def on_round(self, result):
      _fail()

    def on_error(self, state, round_num):
      seen.append(round_num)

  with pytest.raises(_FailedError):
    _run(process, state, num_rounds=1, callbacks=[Fails()])
  assert not seen


def test_a_round_of_nobody_has_no_loss_in_the_table(tmp_path):
  process = fedsteer_tff.build_fedavg(small_process.model_fn, 2)
  sampler = participation.BernoulliSampler([0.3, 0.3], seed=0)
  sizes = [sampler.cohort(r).num_clients for r in range(1, 5)]
  assert 0 in sizes and max(sizes) > 0

  def client_data(client_id, p):
    return client_work.build_client_data(
      client_id,
      small_process.dataset(client_id),
      weight=0.5,
      participation_probability=p,
    )

  training_loop.run(
    process,
    sampler,
    cohorts.CohortData(client_data),
    state=process.initialize(),
    num_rounds=4,
    callbacks=[
      callbacks.MetricsCsv(tmp_path / 'm.csv'),
      callbacks.TensorBoard(tmp_path / 't'),
    ],
  )
  rows = metrics_table.MetricsTable(tmp_path / 'm.csv').rows()
  for row, size in zip(rows, sizes):
    assert int(row['cohort_size']) == size
    assert int(row['num_examples']) == 8 * size
    for name in ('loss', 'accuracy'):
      assert np.isnan(float(row[name])) == (size == 0)
  (path,) = (tmp_path / 't').iterdir()
  losses = [
    float(tf.make_ndarray(value.tensor))
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
    if value.tag == 'train/loss'
  ]
  np.testing.assert_array_equal(np.isnan(losses), np.equal(sizes, 0))


@pytest.mark.parametrize('every', [0, 1.5, True])
def test_the_checkpoint_interval_is_checked(every, tmp_path):
  with pytest.raises(ValueError, match='every must be an integer >= 1'):
    callbacks.SaveCheckpoints(checkpoints.Checkpoints(tmp_path), every)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
