"""Tests of the warning of too small a ridge."""

import collections

import numpy as np
import pytest

from fedsteer_tff import participation
from fedsteer_tff.programs import callbacks
from fedsteer_tff.programs import conditioning
from fedsteer_tff.programs import training_loop


def _result(round_num, **metrics):
  return training_loop.RoundResult(
    round_num=round_num,
    state_fn=lambda: None,
    cohort=participation.Cohort(np.int32([]), np.float64([])),
    metrics=collections.OrderedDict(metrics),
    evaluation=None,
    seconds=0.1,
    is_last=False,
  )


@pytest.mark.parametrize(
  'metrics',
  [
    {},
    {'loss': 1.0},
    {'ridge_condition': 0.0},
    {'ridge_condition': 83886.0},
    {'ridge_condition': float('nan')},
    {'ridge_condition': None},
  ],
  ids=str,
)
def test_nothing_is_said_if_coordinates_are_good_to_a_percent(metrics):
  assert conditioning.advice(metrics) is None


def test_advice_names_the_metric_the_rule_the_value_and_what_to_do():
  # 0.01 / 2^-23 = 83886.08.
  assert conditioning.advice({'ridge_condition': 83887.0}) == (
    'ridge_condition must be <= 83886 for coordinates to be good to 1% in'
    ' float32, found 83887: rows of the core set are nearly dependent, and the'
    ' ridge is too small for them; take a larger ridge (the default is 0.01) or'
    ' a smaller core_set_size'
  )


def test_a_run_is_warned_once():
  said = []
  callback = callbacks.WarnOfConditioning(said.append)
  callback.on_start(0, 4)
  for number, condition in enumerate((0.0, 5.0, 1e5, 5e5), 1):
    callback.on_round(_result(number, ridge_condition=condition))
  assert len(said) == 1
  assert said[0].startswith('round 3: ridge_condition must be <= 83886 ')
  assert 'found 100000: ' in said[0]


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
