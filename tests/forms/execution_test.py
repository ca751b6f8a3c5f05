"""Forms that are compiled from a process run as the process does."""

import functools

import numpy as np
import pytest
import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import programs
from tests.algorithms import small_training

pytestmark = pytest.mark.slow

_COHORTS = ((0, 3, 4), (1, 2, 7), (), (0, 1, 5))
_PADDED = 4


def _map_reduce(computation):
  return tff.backends.mapreduce.get_computation_for_map_reduce_form(
    tff.backends.mapreduce.get_map_reduce_form_for_computation(computation)
  )


def _distribute_aggregate(computation):
  form = tff.backends.mapreduce.get_distribute_aggregate_form_for_computation(
    computation
  )
  return tff.backends.mapreduce.get_computation_for_distribute_aggregate_form(
    form
  )


@pytest.fixture(name='simulation', scope='module', autouse=True)
def _simulation():
  # What a form is turned back into has secure sums, if only empty ones.
  with programs.LocalRuntime(simulate_secure_sums=True).activate():
    yield


@pytest.fixture(name='merging', scope='module')
def _merging():
  return tff.backends.native.create_mergeable_comp_execution_context(
    [
      tff.backends.native.create_async_local_cpp_execution_context()
      for _ in range(2)
    ]
  )


@functools.cache
def _build(design, **parameters):
  return fedsteer_tff.build_fedsteer(
    small_training.model_fn,
    small_training.NUM_CLIENTS,
    client_optimizer=tff.learning.optimizers.build_sgdm(
      small_training.LEARNING_RATE
    ),
    aggregation=design,
    **{'estimator': 'stable', 'core_set_size': 2, 'warmup_rounds': 1}
    | parameters,
  )


def _data(ids):
  padded = [*ids, *[-1] * (_PADDED - len(ids))]
  return [small_training.client_data(i) for i in padded]


def _leaves(value):
  """Returns the numbers of a structure, in its order and whatever it is of."""
  structure = tff.structure.from_container(value, recursive=True)
  arrays = [np.asarray(leaf) for leaf in tff.structure.flatten(structure)]
  return [array for array in arrays if array.dtype.kind in 'biuf']


def _check_rounds(process, *runs, tolerance=1e-6):
  """Asserts that all of `runs` do what `process.next` does, round for round."""
  state = process.initialize()
  form_states = [state] * len(runs)
  initial = _leaves(state)
  for number, ids in enumerate(_COHORTS):
    output = process.next(state, _data(ids))
    state = output.state
    for index, run in enumerate(runs):
      # A form gives a pair in place of TFF's class of outputs.
      form_states[index], metrics = run(form_states[index], _data(ids))
      found_state = _leaves(form_states[index])
      assert len(found_state) == len(_leaves(state)) == len(initial)
      for found, wanted in zip(found_state, _leaves(state)):
        np.testing.assert_allclose(
          found,
          wanted,
          rtol=tolerance,
          atol=tolerance,
          err_msg=f'run {index}, round {number}',
        )
      assert len(_leaves(metrics)) == len(_leaves(output.metrics)) > 0
      for found, wanted in zip(_leaves(metrics), _leaves(output.metrics)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
  assert any(
    not np.array_equal(one, other)
    for one, other in zip(initial, _leaves(state))
  )


def _over_two(merging, process):
  """Returns what runs a round's mergeable form, over two executors."""

  def run(state, data):
    # The context compiles to the form, and merges what the executors found.
    with tff.framework.get_context_stack().install(merging):
      output = process.next(state, data)
    return output.state, output.metrics

  return run


@pytest.mark.parametrize(
  'compile_fn', [_map_reduce, _distribute_aggregate], ids=lambda f: f.__name__
)
def test_both_forms_of_dense_do_what_the_process_does(compile_fn):
  process = _build('dense')
  form = compile_fn(process.next)
  _check_rounds(process, form)


def test_the_map_reduce_form_of_the_default_design_does_so_too():
  process = _build('sketched_projection')
  _check_rounds(process, _map_reduce(process.next))


# What the other tests do not execute.
_OTHERS = {
  'server_projection': lambda: _build('server_projection'),
  'max_core_norm': lambda: _build('client_projection', max_core_norm=0.01),
  'fedavg': lambda: _build_baseline('fedavg'),
  'fedprox': lambda: _build_baseline('fedprox', proximal_strength=0.5),
  'fedvarp': lambda: _build_baseline('fedvarp'),
  'fedstale': lambda: _build_baseline('fedstale', beta=0.5),
  'mifa': lambda: _build_baseline('mifa'),
  'scaffold': lambda: _build_baseline('scaffold'),
}


def _build_baseline(algorithm, **parameters):
  if algorithm == 'scaffold':
    parameters['client_learning_rate'] = small_training.LEARNING_RATE
  else:
    parameters['client_optimizer'] = tff.learning.optimizers.build_sgdm(
      small_training.LEARNING_RATE
    )
  return getattr(fedsteer_tff, f'build_{algorithm}')(
    small_training.model_fn, small_training.NUM_CLIENTS, **parameters
  )


# One with each way of adding up, of those that are not merged elsewhere.
_MERGED = ('fedavg', 'fedvarp', 'scaffold')


@pytest.mark.parametrize('name', _OTHERS)
def test_forms_of_other_designs_and_algorithms_do_so_too(name, merging):
  process = _OTHERS[name]()
  runs = [_map_reduce(process.next)]
  if name in _MERGED:
    runs.append(_over_two(merging, process))
  _check_rounds(process, *runs)


def test_a_secure_sum_in_the_distribute_aggregate_form_is_the_process():
  process = _build(
    'dense',
    core_set=(0, 1),
    correction_factory=tff.aggregators.SecureSumFactory(4.0),
  )
  _check_rounds(process, _distribute_aggregate(process.next))


def test_the_mergeable_form_over_two_executors_is_the_process(merging):
  process = _build('client_projection')
  _check_rounds(process, _over_two(merging, process))


def test_fedavg_as_one_sum_is_fedavg():
  process = _build('dense', estimator='paper', core_set=())
  form = _distribute_aggregate(process.next)
  fedavg = small_training.build_fedavg()
  state, form_state = fedavg.initialize(), process.initialize()
  for ids in _COHORTS:
    state = fedavg.next(state, _data(ids)).state
    form_state, _ = form(form_state, _data(ids))
    # The weights come first.
    found, wanted = (
      small_training.flat(_leaves(s)[:4]) for s in (form_state, state)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
  assert np.max(np.abs(wanted - small_training.trainer().initial)) > 0.01


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
