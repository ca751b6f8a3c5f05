"""Bad client data, client work and learning processes, before any round."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import client_work
from fedsteer_tff import participation
from tests.algorithms import small_training
from tests.bad_input import rows

_NAN, _INF = float('nan'), float('inf')
_SGD = tff.learning.optimizers.build_sgdm(0.1)
_BUILD = {'model_fn': small_training.model_fn, 'population_size': 3}


def _untrainable_model():
  layer = tf.keras.layers.Dense(3, trainable=False)
  model = tf.keras.Sequential([tf.keras.layers.InputLayer([5]), layer])
  return tff.learning.models.from_keras_model(
    model,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=small_training.SPEC,
  )


def _state():
  """As much of a state as tells who is in the core set."""
  aggregator = {
    'core_set': np.int32([0, 2]),
    'last_seen': np.int32([4, -1, 3]),
    'round_num': np.int32(5),
  }
  return tff.learning.templates.LearningAlgorithmState(
    (), (), (), aggregator, ()
  )


def _core_set_status(**bad):
  return fedsteer_tff.core_set_status(**{'state': _state(), **bad})


def _estimated_probabilities(**bad):
  return fedsteer_tff.estimated_probabilities(**{'state': _state(), **bad})


_SHARED = (
  (
    'a Keras optimizer',
    {'client_optimizer': tf.keras.optimizers.SGD(0.1)},
    TypeError,
    'client_optimizer must be a tff.learning.optimizers.Optimizer, found',
  ),
  (
    'a metrics aggregator that is none',
    {'metrics_aggregator': 3},
    TypeError,
    'metrics_aggregator must be a function or None, found 3',
  ),
  (
    'a loop by its name',
    {'loop_implementation': 'fast'},
    TypeError,
    'loop_implementation must be a tff.learning.LoopImplementation or None,'
    " found 'fast'",
  ),
  (
    'a distributor that is none',
    {'model_distributor': 3},
    TypeError,
    'model_distributor must be a tff.learning.templates.DistributionProcess or'
    ' None, found 3',
  ),
  (
    'a model function that returns a Keras model',
    {'model_fn': small_training.keras_model},
    TypeError,
    'model_fn must build a tff.learning.models.VariableModel, found Sequential;'
    ' tff.learning.models.from_keras_model wraps a Keras model',
  ),
  (
    'no model',
    {'model_fn': 3},
    TypeError,
    'model_fn must be a callable or a tff.learning.models.FunctionalModel,'
    ' found 3',
  ),
  (
    'a model without trainable weights',
    {'model_fn': _untrainable_model},
    ValueError,
    'model_fn must build a model with at least one trainable weight, found'
    ' none',
  ),
)


def _of_builder(name, more=None, *cases):
  function = getattr(fedsteer_tff, name)
  return rows.table(
    name,
    function,
    {**_BUILD, **(more or {})},
    (
      'zero clients',
      {'population_size': 0},
      ValueError,
      'population_size must be >= 1, found 0',
    ),
    (
      'an unknown client weighting',
      {'client_weighting': 'equal'},
      ValueError,
      "client_weighting must be one of 'known', 'examples', found 'equal'",
    ),
    *cases,
  )


ROWS = (
  *rows.table(
    'build_client_data',
    fedsteer_tff.build_client_data,
    {
      'client_id': 0,
      'dataset': small_training.dataset(0),
      'weight': 0.1,
      'participation_probability': 0.5,
    },
    (
      'an id as text',
      {'client_id': '0'},
      TypeError,
      "client_id must be an integer, found '0'",
    ),
    (
      'a negative id',
      {'client_id': -1},
      ValueError,
      'client_id must be >= 0, found -1',
    ),
    (
      'an id of more than 31 bits',
      {'client_id': 2**31},
      ValueError,
      f'client_id must be below 2**31, found {2**31}',
    ),
    (
      'arrays instead of a dataset',
      {'dataset': [1, 2]},
      TypeError,
      'dataset must be a tf.data.Dataset, found [1, 2]',
    ),
    (
      'a dataset without an end',
      {'dataset': small_training.dataset(0).repeat()},
      ValueError,
      'dataset must have an end, found one that repeats for ever for client 0',
    ),
    (
      'examples without batches',
      {'dataset': tf.data.Dataset.from_tensor_slices(([[1.0, 2.0]], [1]))},
      TypeError,
      'dataset must be of batches, tensors whose first axis is that of the'
      ' examples, found elements of (TensorSpec(',
    ),
    (
      'a weight beyond float32',
      {'weight': 1e39},
      ValueError,
      'weight must be finite and >= 0, found 1e+39 for client 0',
    ),
    (
      'a probability that is 0 in float32',
      {'participation_probability': 1e-46},
      ValueError,
      'participation_probability must be in (0, 1], found 1e-46 for client 0',
    ),
    (
      'weight NaN',
      {'weight': _NAN},
      ValueError,
      'weight must be finite and >= 0, found nan for client 0',
    ),
    (
      'infinite weight',
      {'weight': _INF},
      ValueError,
      'weight must be finite and >= 0, found inf for client 0',
    ),
    (
      'weight as text',
      {'weight': '1'},
      TypeError,
      "weight must be a number, found '1'",
    ),
    (
      'p = 0',
      {'participation_probability': 0},
      ValueError,
      'participation_probability must be in (0, 1], found 0 for client 0',
    ),
    (
      'p > 1',
      {'participation_probability': 1.01},
      ValueError,
      'participation_probability must be in (0, 1], found 1.01 for client 0',
    ),
    (
      'p NaN',
      {'participation_probability': _NAN},
      ValueError,
      'participation_probability must be in (0, 1], found nan for client 0',
    ),
  ),
  *rows.table(
    'build_identity_dataset',
    fedsteer_tff.build_identity_dataset,
    {'client_id': 0, 'weight': 1.0, 'participation_probability': 0.5},
    (
      'an id as text',
      {'client_id': 'a'},
      TypeError,
      "client_id must be an integer, found 'a'",
    ),
    (
      'an id that is no integer',
      {'client_id': 0.5},
      TypeError,
      'client_id must be an integer, found 0.5',
    ),
    (
      'an id of more than 31 bits',
      {'client_id': 2**40},
      ValueError,
      'client_id must be in [0, 2**31), or -1 for a client that stands for'
      f' nobody, found {2**40}',
    ),
    (
      'a negative id that is not padding',
      {'client_id': -2},
      ValueError,
      'client_id must be in [0, 2**31), or -1 for a client that stands for'
      ' nobody, found -2',
    ),
    (
      'several ids',
      {'client_id': [1, 2]},
      TypeError,
      'client_id must be an integer, found [1, 2]',
    ),
    (
      'a weight as text',
      {'weight': 'heavy'},
      TypeError,
      "weight must be a number, found 'heavy'",
    ),
  ),
  *rows.table(
    'padding_client_data',
    fedsteer_tff.padding_client_data,
    {'element_spec': small_training.SPEC},
    (
      'a model',
      {'element_spec': 'x'},
      TypeError,
      'element_spec must be that of a dataset of batches, tensors whose first'
      " axis is that of the examples, found 'x'",
    ),
    (
      'a spec of single numbers',
      {'element_spec': (tf.TensorSpec([], tf.float32),)},
      TypeError,
      'element_spec must be that of a dataset of batches, ... found (Tensor',
    ),
  ),
  *rows.table(
    'client_work.build_identified_client_work',
    client_work.build_identified_client_work,
    {'model_fn': small_training.model_fn, 'optimizer': _SGD},
    (
      'no optimizer',
      {'optimizer': 0.1},
      TypeError,
      'optimizer must be a tff.learning.optimizers.Optimizer, found 0.1',
    ),
    (
      'a Keras model',
      {'model_fn': tf.keras.Sequential(name='mine')},
      TypeError,
      'model_fn must be a function that builds a model, found the Keras model'
      " 'mine'",
    ),
    (
      'an unknown weighting',
      {'client_weighting': 'equal'},
      ValueError,
      "client_weighting must be 'known' or 'examples', found 'equal'",
    ),
  ),
  *rows.table(
    'client_work.build_proximal_client_work',
    client_work.build_proximal_client_work,
    {
      'model_fn': small_training.model_fn,
      'optimizer': _SGD,
      'proximal_strength': 1.0,
    },
    (
      'strength 0',
      {'proximal_strength': 0},
      ValueError,
      'proximal_strength must be finite and > 0, found 0',
    ),
    (
      'no model',
      {'model_fn': None},
      TypeError,
      'model_fn must be a callable or a tff.learning.models.FunctionalModel,'
      ' found None',
    ),
  ),
  *rows.table(
    'client_work.build_scaffold_client_work',
    client_work.build_scaffold_client_work,
    {
      'model_fn': small_training.model_fn,
      'optimizer': _SGD,
      'learning_rate': 0.1,
      'population_size': 3,
    },
    (
      'a rate NaN',
      {'learning_rate': _NAN},
      ValueError,
      'learning_rate must be finite and > 0, found nan',
    ),
    (
      'an infinite rate',
      {'learning_rate': _INF},
      ValueError,
      'learning_rate must be finite and > 0, found inf',
    ),
    (
      'zero clients',
      {'population_size': 0},
      ValueError,
      'population_size must be >= 1, found 0',
    ),
    (
      'a population as text',
      {'population_size': '3'},
      TypeError,
      "population_size must be an integer, found '3'",
    ),
  ),
  *rows.table(
    'client_work.check_scaffold_learning_rate',
    client_work.check_scaffold_learning_rate,
    {'name': 'rate', 'value': 0.1},
    (
      'a rate as text',
      {'value': 'fast'},
      TypeError,
      "rate must be a number, found 'fast'",
    ),
  ),
  *rows.table(
    'client_work.check_model_fn',
    client_work.check_model_fn,
    {'model_fn': small_training.model_fn},
    (
      'a number',
      {'model_fn': 1},
      TypeError,
      'model_fn must be a callable or a tff.learning.models.FunctionalModel,'
      ' found 1',
    ),
  ),
  *rows.table(
    'client_work.check_optimizer',
    client_work.check_optimizer,
    {'name': 'optimizer', 'value': _SGD},
    (
      'none',
      {'value': None},
      TypeError,
      'optimizer must be a tff.learning.optimizers.Optimizer, found None',
    ),
  ),
  *_of_builder('build_fedavg', None, *_SHARED),
  *_of_builder(
    'build_fedavg',
    None,
    (
      'an unknown argument',
      {'core_set_size': 2},
      TypeError,
      'arguments must be own parameters or among client_optimizer, ... found'
      ' core_set_size',
    ),
  ),
  *_of_builder(
    'build_fedsteer',
    {'core_set_size': 2},
    (
      'k > N',
      {'core_set_size': 10},
      ValueError,
      'core_set_size must be <= population_size=3, found 10',
    ),
    (
      'an unknown argument',
      {'beta': 1},
      TypeError,
      'parameters must be those of FedSteerFactory, population_size, ... found'
      ' beta',
    ),
    (
      'a Keras optimizer on the server',
      {'server_optimizer': tf.keras.optimizers.SGD(1.0)},
      TypeError,
      'server_optimizer must be a tff.learning.optimizers.Optimizer, found',
    ),
  ),
  *_of_builder(
    'build_fedprox',
    {'proximal_strength': 1.0},
    (
      'an infinite strength',
      {'proximal_strength': _INF},
      ValueError,
      'proximal_strength must be finite and > 0, found inf',
    ),
  ),
  *_of_builder('build_fedvarp'),
  *_of_builder(
    'build_fedstale',
    {'beta': 0.5},
    ('beta -1', {'beta': -1}, ValueError, 'beta must be in [0, 1], found -1'),
  ),
  *_of_builder('build_mifa'),
  *_of_builder(
    'build_scaffold',
    {'client_learning_rate': 0.1},
    (
      'a rate of 0',
      {'client_learning_rate': 0},
      ValueError,
      'client_learning_rate must be finite and > 0, found 0',
    ),
    (
      'an optimizer of its own',
      {'client_optimizer': _SGD},
      TypeError,
      'client_optimizer must not be given: SCAFFOLD trains by SGD with'
      ' client_learning_rate, found',
    ),
  ),
  *rows.table(
    'core_set_status',
    _core_set_status,
    {},
    (
      'a state of something else',
      {'state': 7},
      ValueError,
      'state must be that of a process built by fedsteer_tff, found NoneType',
    ),
    (
      'an unknown client',
      {'clients': [99]},
      ValueError,
      'clients must be ids below the population size 3, found [99]',
    ),
    (
      'a client that no int32 can name',
      {'clients': [2**32]},
      ValueError,
      f'clients must be ids below the population size 3, found [{2**32}]',
    ),
    (
      'ids that are no integers',
      {'clients': [0.5]},
      TypeError,
      'clients must be a sequence of ids, found [0.5]',
    ),
    (
      'one id alone',
      {'clients': 1},
      TypeError,
      'clients must be a sequence of ids, found 1',
    ),
  ),
  *rows.table(
    'estimated_probabilities',
    _estimated_probabilities,
    {},
    (
      'nothing is estimated',
      {'participation': participation.IntervalEstimate()},
      ValueError,
      'state must have the estimates of participation=IntervalEstimate(',
    ),
    (
      'an estimator that is none',
      {'participation': 0.5},
      TypeError,
      "participation must be 'known' or one of ... found 0.5",
    ),
  ),
  *rows.table(
    'state_size_report',
    fedsteer_tff.state_size_report,
    {},
    (
      'no process',
      {'process': 3},
      TypeError,
      'process must be a learning process, found 3',
    ),
  ),
)
