"""Tests for callbacks."""

from collections import OrderedDict

import numpy as np
import pytest

from fedsteer_tff import participation
from fedsteer_tff.programs import callbacks
from fedsteer_tff.programs import training_loop


def _result(**metrics):
  return training_loop.RoundResult(
    round_num=3,
    state_fn=lambda: None,
    cohort=participation.Cohort(np.int32([4, 7]), np.float64([0.5, 1])),
    metrics=OrderedDict(metrics),
    evaluation=OrderedDict(loss=2.0),
    seconds=0.25,
    is_last=False,
  )


def test_a_row_has_the_cohort_and_what_was_measured():
  row = callbacks.round_row(_result(active_clients=2, loss=0.5))
  assert list(row.items()) == [
    ('round', 3),
    ('loss', 0.5),
    ('test_loss', 2.0),
    ('test_accuracy', None),
    ('active_clients', 2),
    ('cohort_size', 2),
    ('cohort', '4 7'),
    ('seconds', 0.25),
  ]


@pytest.mark.parametrize('name', ['round', 'cohort', 'seconds', 'test_loss'])
def test_a_metric_with_the_name_of_another_column_is_refused(name):
  with pytest.raises(
    ValueError, match=f'metrics of the model must not .* found {name}'
  ):
    callbacks.round_row(_result(**{name: 1.0}))


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
