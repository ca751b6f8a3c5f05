"""Tests of what is found out about clients' data before a round."""

from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

import fedsteer_tff
from fedsteer_tff import participation
from fedsteer_tff.programs import cohorts
from fedsteer_tff.programs import data_types
from fedsteer_tff.programs import local_runtime
from fedsteer_tff.programs import training_loop
from tests.programs import small_process

WANTED = '<float32[?,2],int32[?,1]>*'


@pytest.fixture(scope='module', name='plain')
def _plain():
  """A process whose client data are batches alone."""
  return small_process.build_process()


@pytest.fixture(scope='module', name='identified')
def _identified():
  """A process whose clients say who they are."""
  return fedsteer_tff.build_fedsteer(
    small_process.model_fn, small_process.NUM_CLIENTS, core_set_size=2
  )


def _cohort(*ids):
  return participation.Cohort(np.int32(ids), np.ones(len(ids), np.float32))


def _check(process, data):
  """Checks the data of clients 3, 4, ... and, if there are more, of nobody."""
  ids = range(3, 3 + min(len(data), 2))
  found = data_types.checked(lambda cohort: data, process)(_cohort(*ids))
  assert found is data


def _data(dataset):
  return fedsteer_tff.build_client_data(
    0, dataset, weight=0.1, participation_probability=0.5
  )


GOOD = {
  'batches': lambda d: d,
  'no batches': lambda d: d.take(0),
  'batches of one size': lambda d: d.unbatch().batch(2, drop_remainder=True),
  'lists': lambda d: d.map(lambda x, y: [x, y]),
  'repeated': lambda d: d.repeat(3),
}
BAD = {
  'examples': (
    lambda d: d.unbatch(),
    '<float32[2],int32[1]>* (examples that are not batched)',
  ),
  'batches of batches': (
    lambda d: d.batch(2),
    '<float32[?,?,2],int32[?,?,1]>* (batches that are batched once more)',
  ),
  'names': (
    lambda d: d.map(lambda x, y: OrderedDict(x=x, y=y)),
    '<x=float32[?,2],y=int32[?,1]>*',
  ),
  'float64': (
    lambda d: d.map(lambda x, y: (tf.cast(x, tf.float64), y)),
    '<float64[?,2],int32[?,1]>*',
  ),
  'labels without an axis': (
    lambda d: d.map(lambda x, y: (x, y[:, 0])),
    '<float32[?,2],int32[?]>*',
  ),
  'a lost shape': (
    lambda d: d.map(
      lambda x, y: (tf.py_function(lambda a: a, [x], tf.float32), y)
    ),
    "<'float32'(shape=None),int32[?,1]>*",
  ),
  'features alone': (lambda d: d.map(lambda x, y: x), 'float32[?,2]*'),
}


@pytest.mark.parametrize('case', GOOD)
def test_what_the_model_takes_passes(plain, identified, case):
  dataset = GOOD[case](small_process.dataset(0))
  _check(plain, [dataset] * 2)
  _check(plain, (dataset, small_process.dataset(1)))
  padding = fedsteer_tff.padding_client_data(small_process.SPEC)
  _check(identified, [_data(dataset)] * 2 + [padding])


@pytest.mark.parametrize('case', BAD)
def test_another_type_is_said_with_its_client_and_reason(
  plain, identified, case
):
  change, found = BAD[case]
  good, bad = small_process.dataset(0), change(small_process.dataset(1))
  for process, data, member in (
    (plain, [good, bad], 'the data'),
    (identified, [_data(good), _data(bad)], "'data'"),
  ):
    with pytest.raises(TypeError) as caught:
      _check(process, data)
    assert str(caught.value) == (
      f'client_data_fn must return {WANTED}, found {found} as {member} of'
      ' client 4'
    )


def test_padding_of_another_type_is_not_a_clients(plain):
  good = small_process.dataset(0)
  with pytest.raises(TypeError, match=r'not batched\) as .* of the padding$'):
    _check(plain, [good, good, good.unbatch()])


def test_data_without_an_identity_are_said(identified):
  with pytest.raises(TypeError) as caught:
    _check(identified, [small_process.dataset(0)])
  assert str(caught.value) == (
    'client_data_fn must return <ident=<client_id=int32,weight=float32,'
    f'participation_probability=float32>*,data={WANTED}>, found {WANTED} as'
    ' the data of client 3'
  )


@pytest.mark.parametrize('identified_data', [False, True])
def test_data_without_an_end_are_said(plain, identified, identified_data):
  endless = small_process.dataset(0).repeat()
  process, data, member = plain, [endless], 'the data'
  if identified_data:
    data = [{**_data(small_process.dataset(0)), 'data': endless}]
    process, member = identified, "'data'"
  with pytest.raises(ValueError) as caught:
    _check(process, data)
  assert str(caught.value) == (
    'client_data_fn must return datasets that have an end, found one that'
    f' repeats for ever as {member} of client 3: give repeat a number'
  )


@pytest.mark.parametrize('data', [[], [None], [[1, 2]], [{'ident': 3}], 'ab'])
def test_what_are_no_datasets_is_left_to_tff(identified, data):
  _check(identified, data)


@pytest.mark.parametrize('prefetch', [False, True])
def test_the_loop_says_it_before_the_round(plain, prefetch):
  with local_runtime.LocalRuntime().activate():
    with pytest.raises(TypeError) as caught:
      training_loop.run(
        plain,
        participation.BernoulliSampler(np.ones(2), seed=0),
        cohorts.CohortData(
          lambda client_id, p: small_process.dataset(client_id).unbatch()
        ),
        state=plain.initialize(),
        num_rounds=2,
        prefetch=prefetch,
      )
  assert str(caught.value).endswith('not batched) as the data of client 0')


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
