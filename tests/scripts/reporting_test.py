"""Tests for reporting."""

import collections
import math

import numpy as np
import pytest

from fedsteer_tff import participation
from fedsteer_tff.programs import training_loop
from scripts import reporting

ROWS = [
  {
    'round': str(r),
    'accuracy': '0.5',
    'test_accuracy': str(r / 100) if r % 2 == 0 else '',
    'seconds': '9.0' if r == 1 else '0.5',
    'resident_mib': str(100.0 + r),
  }
  for r in range(1, 41)
]
CONFIG = {'task': 'digits', 'algorithm': 'fedavg', 'seed': 3}


def _summary(rows, peak_bytes=0):
  return reporting.summarize(
    rows,
    config=CONFIG,
    hashes={'partition': '12ab'},
    untrained={'accuracy': 0.1, 'loss': 2.3},
    state_bytes={'model': 1000, 'total': 1234},
    peak_bytes=peak_bytes,
  )


def _result(round_num, loss, accuracy, test_accuracy=None):
  evaluation = None if test_accuracy is None else {'accuracy': test_accuracy}
  return training_loop.RoundResult(
    round_num=round_num,
    state_fn=lambda: None,
    cohort=participation.Cohort(np.int32([]), np.float64([])),
    metrics=collections.OrderedDict(loss=loss, accuracy=accuracy),
    evaluation=evaluation,
    seconds=0.1,
    is_last=False,
  )


def test_the_bar_shows_no_loss_of_a_round_in_which_nobody_took_part(capsys):
  bar = reporting.ProgressBar()
  bar.on_start(0, 3)
  shown = []
  for result in (
    _result(1, 2.0, 0.25, test_accuracy=0.5),
    _result(2, math.nan, math.nan),
    _result(3, 0.0, 1.0),
  ):
    bar.on_round(result)
    shown.append(bar._bar.postfix)
  bar.close()
  assert shown == [
    'loss 2.000, accuracy 0.250, test accuracy 0.500',
    'test accuracy 0.500',
    'loss 0.000, accuracy 1.000, test accuracy 0.500',
  ]
  assert shown[-1] in capsys.readouterr().err


def test_the_final_accuracy_is_the_mean_of_ten_evaluations():
  # Rounds 22, 24, ..., 40 are the last ten that were evaluated.
  summary = _summary(ROWS)
  assert summary['final_test_accuracy'] == pytest.approx(0.31)
  assert summary['evaluations_averaged'] == 10


def test_fewer_evaluations_are_averaged_if_there_are_no_more():
  summary = _summary(ROWS[:4])
  assert summary['final_test_accuracy'] == pytest.approx(0.03)
  assert summary['evaluations_averaged'] == 2


def test_the_first_round_is_no_part_of_the_median():
  assert _summary(ROWS[:2])['seconds_per_round_median'] == 0.5
  assert _summary(ROWS[:2])['seconds_total'] == 9.5


def test_the_peak_covers_earlier_sessions():
  assert _summary(ROWS)['peak_resident_mib'] == 140.0
  assert _summary(ROWS, 200 * 2**20)['peak_resident_mib'] == 200.0


def test_the_table_has_what_a_reader_asks_for():
  text = reporting.table(_summary(ROWS))
  lines = [line.split() for line in text.split('\n')]
  assert 'final test accuracy 0.3100 (mean of the last 10)'.split() in lines
  assert 'accuracy of the untrained model 0.1000'.split() in lines
  assert 'seconds per round 0.500 (median)'.split() in lines
  assert ['total', '1,234'] in lines


def test_the_plot_shows_both_curves(tmp_path):
  from matplotlib import image

  path = tmp_path / 'accuracy.png'
  assert reporting.write_plot(
    ROWS, str(path), title='t', untrained_accuracy=0.1
  )
  pixels = image.imread(path)[..., :3]
  assert min(pixels.shape[:2]) >= 300
  blue = (pixels[..., 2] - pixels[..., 0]) > 0.4
  assert blue.sum() > 200
  # The test curve rises to the right; rows count from the top.
  rows, columns = blue.nonzero()
  left = rows[columns < columns.min() + 60].mean()
  right = rows[columns > columns.max() - 5].mean()
  assert right < left


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
