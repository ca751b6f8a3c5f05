"""The table of bad inputs: every public name, and what it says to them.

`*_rows.py` have the rows. Each is refused by this repository's own code, with
one line that names the argument, the rule and what was found. Rows that need a
round are in `rounds_test`.
"""

import collections
import inspect

import pytest

import fedsteer_tff
from fedsteer_tff import aggregators
from fedsteer_tff import client_work
from fedsteer_tff import participation
from fedsteer_tff import programs
from fedsteer_tff import subspace
import tasks
from tests.bad_input import aggregators_rows
from tests.bad_input import algorithms_rows
from tests.bad_input import participation_rows
from tests.bad_input import programs_rows
from tests.bad_input import rows
from tests.bad_input import scripts_rows
from tests.bad_input import tasks_rows

_ROWS = (
  *participation_rows.ROWS,
  *aggregators_rows.ROWS,
  *algorithms_rows.ROWS,
  *programs_rows.ROWS,
  *tasks_rows.ROWS,
  *scripts_rows.ROWS,
)

# Public names that nothing bad can be given to, by the reason.
_WITHOUT_ROWS = {
  'what is returned, made by the package alone': (
    'CoreSetStatus',
    'participation.Cohort',
    'programs.RoundResult',
    'programs.RunStatus',
    'subspace.Cohort',
    'subspace.CoreSelection',
    'subspace.Estimate',
    'subspace.NewCoreSet',
    'tasks.FederatedTask',
  ),
  'errors': (
    'aggregators.ValueTypeError',
    'programs.CheckpointError',
    'programs.CheckpointMismatchError',
    'programs.ComputationError',
    'programs.LocalRuntimeError',
    'programs.RemoteRuntimeError',
    'programs.RunDirectoryError',
  ),
  'without arguments, or to be overridden': (
    'identity_type',
    'programs.Callback',
    'programs.Interruption',
  ),
  'for any value whatever: rows of what is allowed have it': (
    'programs.is_full_disk',
  ),
  'with the arguments and the checks of its class in TFF': (
    'programs.EvaluationLoop',
  ),
  # Tensors of a round inside of a graph, whose shapes and ranges the factories
  # and the clients' reports have checked.
  'parts of a graph': (
    'subspace.add_reports',
    'subspace.admission_scores',
    'subspace.admit_reporting',
    'subspace.condition_number',
    'subspace.core_set_error',
    'subspace.empty_pool',
    'subspace.estimate_update',
    'subspace.gram_matrix',
    'subspace.reconstruct',
    'subspace.ridge_condition',
    'subspace.ridge_factor',
    'subspace.select_from_pool',
    'subspace.sketch_width',
    'subspace.solve_coordinates',
    'subspace.squared_residuals',
    'subspace.staleness',
    'subspace.steering_metrics',
    'subspace.updated_baseline',
    'subspace.variance_metrics',
  ),
}


def _public_names():
  """Returns the callables in the `__all__` of the packages."""
  names = set()
  for package, prefix in (
    (fedsteer_tff, ''),
    (aggregators, 'aggregators.'),
    (client_work, 'client_work.'),
    (participation, 'participation.'),
    (programs, 'programs.'),
    (subspace, 'subspace.'),
    (tasks, 'tasks.'),
    (tasks.models, 'tasks.models.'),
  ):
    for name in package.__all__:
      value = getattr(package, name)
      if callable(value) and not (
        package is client_work and hasattr(fedsteer_tff, name)
      ):
        names.add(f'{prefix}{name}')
  return names


@pytest.mark.parametrize('row', _ROWS, ids=lambda row: row.id)
def test_is_refused_in_one_line(row, tmp_path):
  rows.check(row, tmp_path)


def test_there_are_more_than_150_rows_and_none_is_there_twice():
  counts = collections.Counter(row.id for row in _ROWS)
  assert len(counts) >= 150
  # Builders share rows: the same case of the same name is one row.
  assert all(
    count <= 2 and row_id.startswith('build_fedavg')
    for row_id, count in counts.items()
    if count > 1
  )


def test_every_public_name_has_a_row():
  have = {row.what for row in _ROWS}
  have |= {row.what.rpartition('.')[0] for row in _ROWS}
  without = [name for names in _WITHOUT_ROWS.values() for name in names]
  assert len(set(without)) == len(without)
  assert set(without) <= _public_names()
  assert not set(without) & have
  assert _public_names() - set(without) <= have


def test_every_function_of_a_partition_or_a_loader_has_a_row():
  have = {row.what for row in _ROWS}
  for module in (
    tasks.cifar10,
    tasks.emnist,
    tasks.fashion_mnist,
    tasks.partition,
    tasks.task,
    tasks.validation,
  ):
    name = module.__name__
    public = {
      f'{name}.{f}'
      for f, function in inspect.getmembers(module, inspect.isfunction)
      if function.__module__ == name and not f.startswith('_')
    }
    assert public
    assert public <= have, public - have


@pytest.mark.parametrize('program', scripts_rows.FLAGS)
def test_every_flag_has_a_row(program):
  have = {row.what for row in scripts_rows.ROWS}
  wanted = {f'{program} {flag}' for flag in scripts_rows.FLAGS[program]()}
  assert wanted
  assert wanted <= have, wanted - have


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
