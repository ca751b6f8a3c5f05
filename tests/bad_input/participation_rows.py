"""Bad populations, probabilities, cohorts and estimates of them."""

from fedsteer_tff import participation
from tests.bad_input import rows

_NAN, _INF = float('nan'), float('inf')
_ESTIMATE = {'prior_probability': 0.5}

ROWS = (
  *rows.table(
    'participation.Population',
    participation.Population,
    {'weights': [1, 2], 'participation_probabilities': [0.5, 1.0]},
    (
      'zero clients',
      {'weights': []},
      ValueError,
      'weights must be a vector with at least one entry, found shape (0,)',
    ),
    (
      'a weight that is NaN',
      {'weights': [1, _NAN]},
      ValueError,
      'weights must be finite and >= 0, found nan for client 1',
    ),
    (
      'an infinite weight',
      {'weights': [_INF, 1]},
      ValueError,
      'weights must be finite and >= 0, found inf for client 0',
    ),
    (
      'a negative weight',
      {'weights': [1, -1]},
      ValueError,
      'weights must be finite and >= 0, found -1.0 for client 1',
    ),
    (
      'all weights 0',
      {'weights': [0, 0]},
      ValueError,
      'weights must have a positive sum, found all zero',
    ),
    (
      'weights that are text',
      {'weights': ['1', '2']},
      TypeError,
      "weights must be a vector of numbers, found ['1', '2']",
    ),
    (
      'weights that are truth values',
      {'weights': [True, False]},
      TypeError,
      'weights must be a vector of numbers, found [True, False]',
    ),
    (
      'weights in rows of different lengths',
      {'weights': [[1], [1, 2]]},
      TypeError,
      'weights must be a vector of numbers, found [[1], [1, 2]]',
    ),
    (
      'weights as a matrix',
      {'weights': [[1, 2]]},
      ValueError,
      'weights must be a vector with at least one entry, found shape (1, 2)',
    ),
    (
      'fewer probabilities than weights',
      {'participation_probabilities': [0.5]},
      ValueError,
      'weights and participation_probabilities must have the same length, found'
      ' 2 and 1',
    ),
    (
      'p = 0',
      {'participation_probabilities': [0.5, 0]},
      ValueError,
      'participation_probabilities must be in (0, 1], or NaN where it is not'
      ' known, found 0.0 for client 1',
    ),
    (
      'p > 1',
      {'participation_probabilities': [1.5, 1]},
      ValueError,
      'participation_probabilities must be in (0, 1], or NaN where it is not'
      ' known, found 1.5 for client 0',
    ),
    (
      'p as text',
      {'participation_probabilities': ['often', 'rarely']},
      TypeError,
      'participation_probabilities must be a vector of numbers, found'
      " ['often', 'rarely']",
    ),
  ),
  *rows.table(
    'participation.two_group_probabilities',
    participation.two_group_probabilities,
    {'num_clients': 10, 'rate': 0.2},
    (
      'zero clients',
      {'num_clients': 0},
      ValueError,
      'num_clients must be >= 1, found 0',
    ),
    (
      'a number of clients that is none',
      {'num_clients': 10.0},
      TypeError,
      'num_clients must be an integer, found 10.0',
    ),
    ('rate 0', {'rate': 0}, ValueError, 'rate must be in (0, 1], found 0'),
    (
      'rate NaN',
      {'rate': _NAN},
      ValueError,
      'rate must be in (0, 1], found nan',
    ),
    (
      'a rate as text',
      {'rate': '0.1'},
      TypeError,
      "rate must be a number, found '0.1'",
    ),
    (
      'infinite skew',
      {'skew': _INF},
      ValueError,
      'skew must be finite and >= 0, found inf',
    ),
    (
      'a skew as text',
      {'skew': 'much'},
      TypeError,
      "skew must be a number, found 'much'",
    ),
    (
      'less than one client expected',
      {'num_clients': 1},
      ValueError,
      'rate * num_clients must be at least 1, found 0.2 * 1',
    ),
    (
      'a probability above 1',
      {'rate': 0.9},
      ValueError,
      'rate=0.9 and skew=5.0 must keep every probability <= 1, found 1.54286',
    ),
  ),
  *rows.table(
    'participation.uniform_probabilities',
    participation.uniform_probabilities,
    {'num_clients': 3, 'rate': 0.5},
    (
      'rate above 1',
      {'rate': 2},
      ValueError,
      'rate must be in (0, 1], found 2',
    ),
    (
      'zero clients',
      {'num_clients': 0},
      ValueError,
      'num_clients must be >= 1, found 0',
    ),
  ),
  *rows.table(
    'participation.draw',
    participation.draw,
    {'probabilities': [0.5, 1.0], 'uniforms': [0.1, 0.9]},
    (
      'p = 0',
      {'probabilities': [0.5, 0.0]},
      ValueError,
      'probabilities must be in (0, 1], found 0.0 for client 1',
    ),
    (
      'p NaN',
      {'probabilities': [_NAN, 0.5]},
      ValueError,
      'probabilities must be in (0, 1], found nan for client 0',
    ),
    (
      'as many numbers as for another population',
      {'uniforms': [0.5]},
      ValueError,
      'uniforms must have the shape of probabilities, (2,), found (1,)',
    ),
    (
      'numbers outside of their interval',
      {'uniforms': [0.5, 1.0]},
      ValueError,
      'uniforms must be in [0, 1), found 1.0',
    ),
    (
      'numbers as text',
      {'uniforms': ['a', 'b']},
      TypeError,
      "uniforms must be a vector of numbers, found ['a', 'b']",
    ),
  ),
  *rows.table(
    'participation.BernoulliSampler',
    participation.BernoulliSampler,
    {'probabilities': [0.5], 'seed': 0},
    (
      'a negative seed',
      {'seed': -1},
      ValueError,
      'seed must be >= 0, found -1',
    ),
    (
      'a seed as text',
      {'seed': 'x'},
      TypeError,
      "seed must be an integer, found 'x'",
    ),
    (
      'zero clients',
      {'probabilities': []},
      ValueError,
      'probabilities must be a vector with at least one entry, found shape',
    ),
    (
      'p NaN',
      {'probabilities': [_NAN]},
      ValueError,
      'probabilities must be in (0, 1], found nan for client 0',
    ),
  ),
  *rows.table(
    'participation.BernoulliSampler.cohort',
    participation.BernoulliSampler([0.5, 0.5], 0).cohort,
    {'round_num': 1, 'forced_clients': [1]},
    (
      'a negative round',
      {'round_num': -1},
      ValueError,
      'round_num must be >= 0, found -1',
    ),
    (
      'an unknown client is forced',
      {'forced_clients': [2]},
      ValueError,
      'forced_clients must be ids in [0, 2), found [2]',
    ),
    (
      'a client is forced twice',
      {'forced_clients': [1, 1]},
      ValueError,
      'forced_clients must be distinct, found more than once: [1]',
    ),
    (
      'an id as text',
      {'forced_clients': ['1']},
      TypeError,
      "forced_clients must be a sequence of integer ids, found ['1']",
    ),
  ),
  *rows.table(
    'participation.overdue_core_clients',
    participation.overdue_core_clients,
    {'core_set': [3, -1], 'last_active': [0, -1], 'round_num': 5, 'every': 2},
    (
      'a client in two slots',
      {'core_set': [3, 3]},
      ValueError,
      'core_set must not name a client twice, found more than once: [3]',
    ),
    (
      'ids that are no integers',
      {'core_set': [0.5, 1.0]},
      TypeError,
      'core_set must consist of integers, found float64',
    ),
    (
      'a round missing',
      {'last_active': [0]},
      ValueError,
      'core_set and last_active must have the same length, found 2 and 1',
    ),
    ('every -1', {'every': -1}, ValueError, 'every must be >= 0, found -1'),
  ),
  *rows.table(
    'participation.RunningFrequency',
    participation.RunningFrequency,
    _ESTIMATE,
    (
      'prior 0',
      {'prior_probability': 0},
      ValueError,
      'prior_probability must be in (0, 1], found 0',
    ),
    (
      'prior NaN',
      {'prior_probability': _NAN},
      ValueError,
      'prior_probability must be in (0, 1], found nan',
    ),
    (
      'infinitely many prior rounds',
      {'prior_rounds': _INF},
      ValueError,
      'prior_rounds must be finite and > 0, found inf',
    ),
    ('floor 2', {'floor': 2}, ValueError, 'floor must be in (0, 1], found 2'),
    (
      'an unknown population',
      {'population': 'shrinking'},
      ValueError,
      "population must be one of 'fixed', 'growing', found 'shrinking'",
    ),
  ),
  *rows.table(
    'participation.WindowedFrequency',
    participation.WindowedFrequency,
    _ESTIMATE,
    (
      'a window of one round',
      {'window': 1},
      ValueError,
      'window must be finite and > 1, found 1',
    ),
    (
      'a window as text',
      {'window': 'wide'},
      TypeError,
      "window must be a number, found 'wide'",
    ),
    (
      'a prior that outlasts the window',
      {'window': 5.0},
      ValueError,
      'prior_rounds must be <= window=5.0, found 10.0',
    ),
  ),
  *rows.table(
    'participation.IntervalEstimate',
    participation.IntervalEstimate,
    {},
    ('cutoff 0', {'cutoff': 0}, ValueError, 'cutoff must be >= 1, found 0'),
    (
      'a cutoff that is no integer',
      {'cutoff': 5.5},
      TypeError,
      'cutoff must be an integer, found 5.5',
    ),
    (
      'a prior above 1',
      {'prior_probability': 1.1},
      ValueError,
      'prior_probability must be in (0, 1], found 1.1',
    ),
  ),
)
