"""Bad parameters of aggregators and of the mathematics below them."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import aggregators
from fedsteer_tff import subspace
from tests.aggregators import small_rounds
from tests.bad_input import rows

_NAN, _INF = float('nan'), float('inf')


def _create(factory, value_type=None, weight_type=small_rounds.WEIGHT_TYPE):
  value_type = value_type or small_rounds.value_type()
  return factory.create(value_type, weight_type)


_RULE = {
  'coordinate_refresh': 'before_aggregation',
  'correction_weighting': 'self_normalized',
  'correction_smoothing': 0.5,
}
_EPSILON = {'noise_multiplier': 1.0, 'num_rounds': 10, 'delta': 1e-5}
_GRAMS = {
  'candidate_gram': np.eye(2),
  'cross_gram': np.eye(2),
  'target_squared_norms': np.ones(2),
  'weights': np.ones(2),
  'core_set_size': 1,
  'ridge': 0.1,
}
_VECTORS = {
  'candidates': np.eye(2),
  'targets': np.eye(2),
  'weights': np.ones(2),
  'core_set_size': 1,
  'ridge': 0.1,
}

ROWS = (
  *rows.table(
    'aggregators.FedSteerFactory',
    aggregators.FedSteerFactory,
    {'population_size': 7, 'core_set_size': 2},
    (
      'zero clients',
      {'population_size': 0},
      ValueError,
      'population_size must be >= 1, found 0',
    ),
    (
      'a population as text',
      {'population_size': '7'},
      TypeError,
      "population_size must be an integer, found '7'",
    ),
    (
      'a population that ids of 32 bits do not reach',
      {'population_size': 2**31 + 1},
      ValueError,
      f'population_size must be <= {2**31}, found {2**31 + 1}',
    ),
    (
      'k = 0',
      {'core_set_size': 0},
      ValueError,
      'core_set_size must be >= 1, found 0',
    ),
    (
      'k > N',
      {'core_set_size': 8},
      ValueError,
      'core_set_size must be <= population_size=7, found 8',
    ),
    (
      'k that is a truth value',
      {'core_set_size': True},
      TypeError,
      'core_set_size must be an integer, found True',
    ),
    (
      'a core client twice',
      {'core_set': [1, 1]},
      ValueError,
      'core_set ids must be distinct, found [1, 1]',
    ),
    (
      'an unknown core client',
      {'core_set': [7]},
      ValueError,
      'core_set ids must be < population_size=7, found 7',
    ),
    (
      'a core client that is padding',
      {'core_set': [-1]},
      ValueError,
      'core_set ids must be >= 0, found -1',
    ),
    (
      'a core client as text',
      {'core_set': ['1']},
      TypeError,
      "core_set ids must be an integer, found '1'",
    ),
    (
      'a core set that is a number',
      {'core_set': 3},
      TypeError,
      'core_set must be a sequence of client ids, found 3',
    ),
    (
      'an unknown estimator',
      {'estimator': 'best'},
      ValueError,
      "estimator must be one of 'paper', 'unbiased', 'stable', found 'best'",
    ),
    (
      'estimators as an array',
      {'estimator': np.array(['paper', 'stable'])},
      ValueError,
      "estimator must be one of 'paper', 'unbiased', 'stable', found array",
    ),
    (
      'smoothing NaN',
      {'correction_smoothing': _NAN},
      ValueError,
      'correction_smoothing must be in (0, 1], found nan',
    ),
    (
      'a negative ridge',
      {'ridge': -1.0},
      ValueError,
      'ridge must be finite and >= 0, found -1.0',
    ),
    (
      'a ridge as text',
      {'ridge': 'small'},
      TypeError,
      "ridge must be a number, found 'small'",
    ),
    (
      'an infinite absolute ridge',
      {'absolute_ridge': _INF},
      ValueError,
      'absolute_ridge must be finite and >= 0, found inf',
    ),
    (
      'a longest norm of 0',
      {'max_core_norm': 0.0},
      ValueError,
      'max_core_norm must be > 0 and finite in float32, found 0.0',
    ),
    (
      'a longest norm that is not a number',
      {'max_core_norm': float('nan')},
      ValueError,
      'max_core_norm must be > 0 and finite in float32, found nan',
    ),
    (
      'a longest norm as text',
      {'max_core_norm': '1'},
      TypeError,
      "max_core_norm must be a number, found '1'",
    ),
    (
      'no warm-up',
      {'warmup_rounds': 0},
      ValueError,
      'warmup_rounds must be >= 1, found 0',
    ),
    (
      'a choice anew every -1 rounds',
      {'reselect_every': -1},
      ValueError,
      'reselect_every must be >= 0, found -1',
    ),
    (
      'a choice anew of what is given',
      {'core_set': [1], 'reselect_every': 5},
      ValueError,
      'reselect_every must be 0 where core_set is given, found 5',
    ),
    (
      'an unknown eligibility',
      {'core_eligibility': 'everybody'},
      ValueError,
      "core_eligibility must be one of 'reporting', 'frequent', 'received',"
      " found 'everybody'",
    ),
    (
      'reporting clients where their updates are hidden',
      {'core_eligibility': 'reporting', 'aggregation': 'dense'},
      ValueError,
      "core_eligibility='reporting' needs updates of single clients:"
      " aggregation must be one of ... found 'dense' and None",
    ),
    (
      'an unknown weighting',
      {'client_weighting': 'size'},
      ValueError,
      "client_weighting must be one of 'known', 'examples', found 'size'",
    ),
    (
      'an unknown design',
      {'aggregation': 'federated_select'},
      ValueError,
      "aggregation must be one of 'sketched_projection', ... found"
      " 'federated_select'",
    ),
    (
      'no sketch',
      {'sketch_size': 0},
      ValueError,
      'sketch_size must be >= 1, found 0',
    ),
    (
      'a seed that is no integer',
      {'sketch_seed': 0.5},
      TypeError,
      'sketch_seed must be an integer, found 0.5',
    ),
    (
      'a pool that is smaller than the core set',
      {'candidate_pool_size': 1},
      ValueError,
      'candidate_pool_size must be at least core_set_size=2, found 1',
    ),
    (
      'a weighted factory',
      {'correction_factory': tff.aggregators.MeanFactory()},
      TypeError,
      'correction_factory must be a'
      ' tff.aggregators.UnweightedAggregationFactory, found',
    ),
    (
      'probabilities as participation',
      {'participation': [0.5] * 7},
      TypeError,
      "participation must be 'known' or one of RunningFrequency,"
      ' WindowedFrequency, IntervalEstimate, found [0.5',
    ),
  ),
  *rows.table(
    'aggregators.FedSteerFactory.create',
    _create,
    {'factory': aggregators.FedSteerFactory(7, core_set_size=2)},
    (
      'an update without an identity',
      {'value_type': tff.TensorType(np.float32, [3])},
      aggregators.ValueTypeError,
      'value_type must be <update=..., client_id=int32,'
      ' participation_probability=float32>, found float32[3]',
    ),
    (
      'ids as text',
      {
        'value_type': small_rounds.value_type(client_id=tff.TensorType(np.str_))
      },
      aggregators.ValueTypeError,
      'value_type.client_id must be int32, found str',
    ),
    (
      'a weight of 64 bits',
      {'weight_type': tff.TensorType(np.float64)},
      aggregators.ValueTypeError,
      'weight_type must be float32, found float64',
    ),
    (
      'weights that are integers',
      {'value_type': small_rounds.value_type(tff.TensorType(np.int32, [3]))},
      aggregators.ValueTypeError,
      'value_type.update must have floating tensors of fixed shapes only, found'
      ' int32[3]',
    ),
    (
      'a weight of unknown shape',
      {
        'value_type': small_rounds.value_type(
          tff.TensorType(np.float32, [None])
        )
      },
      aggregators.ValueTypeError,
      'value_type.update must have floating tensors of fixed shapes only, found'
      ' float32[?]',
    ),
    (
      'no trainable weight',
      {'value_type': small_rounds.value_type([])},
      ValueError,
      'the model must have at least one trainable weight, found none',
    ),
  ),
  *rows.table(
    'aggregators.InverseProbabilityFactory',
    aggregators.InverseProbabilityFactory,
    {'population_size': 7},
    (
      'a negative population',
      {'population_size': -7},
      ValueError,
      'population_size must be >= 1, found -7',
    ),
    (
      'an unknown weighting',
      {'correction_weighting': 'equal'},
      ValueError,
      "correction_weighting must be one of ... found 'equal'",
    ),
    (
      'smoothing 0',
      {'correction_smoothing': 0},
      ValueError,
      'correction_smoothing must be in (0, 1], found 0',
    ),
  ),
  *rows.table(
    'aggregators.StaleUpdateFactory',
    aggregators.StaleUpdateFactory,
    {'population_size': 7},
    (
      'a population that is no integer',
      {'population_size': 7.5},
      TypeError,
      'population_size must be an integer, found 7.5',
    ),
    ('beta 2', {'beta': 2}, ValueError, 'beta must be in [0, 1], found 2'),
    (
      'beta NaN',
      {'beta': _NAN},
      ValueError,
      'beta must be in [0, 1], found nan',
    ),
    (
      'beta as text',
      {'beta': 'half'},
      TypeError,
      "beta must be a number, found 'half'",
    ),
    (
      'an unknown refresh',
      {'update_refresh': 'never'},
      ValueError,
      "update_refresh must be one of ... found 'never'",
    ),
    (
      'an unknown participation',
      {'participation': 'unknown'},
      ValueError,
      "participation must be 'known' or one of ... found 'unknown'",
    ),
  ),
  *rows.table(
    'aggregators.private_correction',
    aggregators.private_correction,
    {'noise_multiplier': 1.0, 'clipping_norm': 1.0},
    (
      'a negative multiplier',
      {'noise_multiplier': -1},
      ValueError,
      'noise_multiplier must be >= 0, found -1',
    ),
    (
      'norm 0',
      {'clipping_norm': 0},
      ValueError,
      'clipping_norm must be > 0, found 0',
    ),
    (
      'an infinite norm',
      {'clipping_norm': _INF},
      ValueError,
      'clipping_norm must be finite, found inf',
    ),
    (
      'a norm as text',
      {'clipping_norm': '1'},
      TypeError,
      "clipping_norm must be a number, found '1'",
    ),
    (
      'a sum that is a function',
      {'sum_factory': sum},
      TypeError,
      'sum_factory must be a tff.aggregators.UnweightedAggregationFactory,'
      ' found <built-in function sum>',
    ),
  ),
  *rows.table(
    'aggregators.correction_epsilon',
    aggregators.correction_epsilon,
    _EPSILON,
    (
      'no noise',
      {'noise_multiplier': 0},
      ValueError,
      'noise_multiplier must be > 0, since without noise nothing is private,'
      ' found 0',
    ),
    (
      'no rounds',
      {'num_rounds': 0},
      ValueError,
      'num_rounds must be >= 1, found 0',
    ),
    ('delta 1', {'delta': 1}, ValueError, 'delta must be in (0, 1), found 1'),
    (
      'p NaN',
      {'participation_probabilities': [0.5, _NAN]},
      ValueError,
      'participation_probabilities must be numbers in (0, 1], found [0.5, nan]',
    ),
    (
      'p as text',
      {'participation_probabilities': 'rare'},
      TypeError,
      "participation_probabilities must be numbers in (0, 1], found 'rare'",
    ),
  ),
  *rows.table(
    'subspace.EstimatorRule',
    subspace.EstimatorRule,
    _RULE,
    (
      'smoothing above 1',
      {'correction_smoothing': 1.1},
      ValueError,
      'correction_smoothing must be in (0, 1], found 1.1',
    ),
    (
      'smoothing that is a truth value',
      {'correction_smoothing': True},
      TypeError,
      'correction_smoothing must be a number, found True',
    ),
    (
      'no refresh',
      {'coordinate_refresh': None},
      ValueError,
      'coordinate_refresh must be one of ... found None',
    ),
  ),
  *rows.table(
    'subspace.named_rule',
    subspace.named_rule,
    {'name': 'paper'},
    (
      'a list of names',
      {'name': ['paper']},
      ValueError,
      "estimator must be one of 'paper', 'unbiased', 'stable', found ['paper']",
    ),
  ),
  *rows.table(
    'subspace.check_choice',
    subspace.check_choice,
    {'name': 'color', 'value': 'red', 'choices': ('red', 'blue')},
    (
      'another',
      {'value': 'green'},
      ValueError,
      "color must be one of 'red', 'blue', found 'green'",
    ),
  ),
  *rows.table(
    'subspace.check_ridge',
    subspace.check_ridge,
    {'ridge': 0.1},
    (
      'NaN',
      {'ridge': _NAN},
      ValueError,
      'ridge must be finite and >= 0, found nan',
    ),
    ('none', {'ridge': None}, TypeError, 'ridge must be a number, found None'),
  ),
  *rows.table(
    'subspace.project',
    subspace.project,
    {'basis': np.eye(2), 'updates': np.eye(2)},
    (
      'updates of integers',
      {'updates': np.eye(2, dtype=np.int64)},
      TypeError,
      'updates must be floats, found int64',
    ),
    (
      'a negative ridge',
      {'ridge': -0.1},
      ValueError,
      'ridge must be finite and >= 0, found -0.1',
    ),
  ),
  *rows.table(
    'subspace.check_sketch_size',
    subspace.check_sketch_size,
    {'size': 4},
    (
      'a size that is no integer',
      {'size': 4.0},
      TypeError,
      'sketch_size must be an integer, found 4.0',
    ),
  ),
  *rows.table(
    'subspace.sketch',
    subspace.sketch,
    {'vectors': tf.eye(8), 'size': 4},
    (
      'no buckets',
      {'size': 0},
      ValueError,
      'sketch_size must be >= 1, found 0',
    ),
  ),
  *rows.table(
    'subspace.select_core_set',
    subspace.select_core_set,
    _GRAMS,
    (
      'k = 0',
      {'core_set_size': 0},
      ValueError,
      'core_set_size must be >= 1, found 0',
    ),
    (
      'k that is a truth value',
      {'core_set_size': True},
      TypeError,
      'core_set_size must be an integer, found True',
    ),
  ),
  *rows.table(
    'subspace.select_core_set_from_vectors',
    subspace.select_core_set_from_vectors,
    _VECTORS,
    (
      'k that is no integer',
      {'core_set_size': 1.5},
      TypeError,
      'core_set_size must be an integer, found 1.5',
    ),
  ),
)
