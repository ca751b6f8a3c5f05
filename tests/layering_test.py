"""Tests that imports point downwards only.

scripts, examples -> tasks, programs -> algorithms -> client_work, aggregators
-> subspace (pure TensorFlow), participation (pure NumPy) -> arguments.
"""

import ast
import pathlib

import pytest

from tests import source_tree

# Below all others.
_ARGUMENTS = 'fedsteer_tff.arguments'
_SUBSPACE = 'fedsteer_tff.subspace'
_PARTICIPATION = 'fedsteer_tff.participation'
_AGGREGATORS = 'fedsteer_tff.aggregators'
_CLIENT_WORK = 'fedsteer_tff.client_work'
_ALGORITHMS = 'fedsteer_tff.algorithms'
_PROGRAMS = 'fedsteer_tff.programs'
# How a package imports its names when they are asked for.
_ON_DEMAND = 'fedsteer_tff._on_demand'
_FOUNDATIONS = (_SUBSPACE, _PARTICIPATION, _ARGUMENTS)
_MIDDLE = (*_FOUNDATIONS, _AGGREGATORS, _CLIENT_WORK)

# What a layer may import of this repository besides itself. The layer of a
# module is the longest of these names that its own begins with, so
# `fedsteer_tff` is the package's own modules only.
_ALLOWED = {
  _ARGUMENTS: (),
  _SUBSPACE: (_ARGUMENTS,),
  _PARTICIPATION: (_ARGUMENTS,),
  _AGGREGATORS: _FOUNDATIONS,
  _CLIENT_WORK: _FOUNDATIONS,
  _ALGORITHMS: _MIDDLE,
  _PROGRAMS: (*_MIDDLE, _ALGORITHMS, _ON_DEMAND),
  _ON_DEMAND: (),
  'fedsteer_tff': (*_MIDDLE, _ALGORITHMS, _PROGRAMS, _ON_DEMAND),
  'tasks': ('fedsteer_tff', *_MIDDLE, _ALGORITHMS),
  'scripts': ('fedsteer_tff', *_MIDDLE, _ALGORITHMS, _PROGRAMS, 'tasks'),
  'examples': ('fedsteer_tff', *_MIDDLE, _ALGORITHMS, _PROGRAMS, 'tasks'),
}

_LEARNING = 'tensorflow_federated.learning'
_NO_TFF = ('tensorflow_federated',)

# What a layer must not use of other projects. `tff.learning` of the
# aggregators is what they stay below: no models, no processes.
_FORBIDDEN = {
  _ARGUMENTS: (*_NO_TFF, 'tensorflow', 'numpy'),
  _SUBSPACE: _NO_TFF,
  _PARTICIPATION: (*_NO_TFF, 'tensorflow', 'keras', 'jax', 'pandas'),
  _AGGREGATORS: tuple(
    f'{_LEARNING}.{name}'
    for name in ('algorithms', 'models', 'programs', 'templates')
  ),
  # It has to work without TensorFlow Federated.
  'fedsteer_tff._version_check': (*_NO_TFF, 'tensorflow', 'numpy'),
  # Flags are checked, and results read, without waiting for TensorFlow.
  _ON_DEMAND: (*_NO_TFF, 'tensorflow', 'numpy'),
  **{
    f'{_PROGRAMS}.{name}': (*_NO_TFF, 'tensorflow', 'numpy')
    for name in (
      'addresses',
      'files',
      'metrics_table',
      'run_directory',
      'run_files',
    )
  },
}


def _within(name: str, prefix: str) -> bool:
  return name == prefix or name.startswith(prefix + '.')


def _layer(module: str) -> str:
  """Returns the layer of a module of this repository."""
  return max((name for name in _ALLOWED if _within(module, name)), key=len)


def _used_names(source: str, file: pathlib.PurePath) -> set[str]:
  """Returns imported names, and dotted names that are reached through them.

  With `import tensorflow_federated as tff`, a use of `tff.learning.models`
  counts as `tensorflow_federated.learning.models`.

  Args:
    source: The module's text.
    file: Its path relative to the root.
  """
  tree = ast.parse(source)
  names = source_tree.imported_modules(source, file)
  aliases = {
    alias.asname or alias.name: alias.name
    for node in ast.walk(tree)
    if isinstance(node, ast.Import)
    for alias in node.names
  }
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute):
      head, _, rest = ast.unparse(node).partition('.')
      if head in aliases:
        names.add(f'{aliases[head]}.{rest}')
  return names


def _violations(source: str, file: pathlib.PurePath) -> list[str]:
  """Returns what a module uses that its layer must not, sorted."""
  module = source_tree.module_name(file)
  layer = _layer(module)
  found = set()
  for name in source_tree.imported_modules(source, file):
    if _within(name, 'tests'):
      found.add(name)
    elif any(
      _within(name, top)
      for top in ('fedsteer_tff', 'tasks', 'scripts', 'examples')
    ):
      target = _layer(name)
      if target not in (layer, *_ALLOWED[layer]):
        found.add(name)
  for scope, forbidden in _FORBIDDEN.items():
    if _within(module, scope):
      for name in _used_names(source, file):
        found.update(f for f in forbidden if _within(name, f))
  return sorted(found)


_SOURCES = [
  file
  for file in source_tree.python_files()
  if len(file.parts) > 1 and file.parts[0] != 'tests'
]


@pytest.mark.parametrize('file', _SOURCES, ids=str)
def test_imports_point_downwards(file):
  source = (source_tree.ROOT / file).read_text(encoding='utf-8')
  assert not _violations(source, file)


def test_version_check_imports_nothing_of_the_repository():
  file = pathlib.PurePath('fedsteer_tff/_version_check.py')
  assert not source_tree.imported_files(file)


@pytest.mark.parametrize(
  ('file', 'source', 'violations'),
  [
    (
      'fedsteer_tff/subspace/new.py',
      'import tensorflow_federated as tff',
      ['tensorflow_federated'],
    ),
    (
      'fedsteer_tff/subspace/new.py',
      'def f():\n  from fedsteer_tff import participation',
      ['fedsteer_tff.participation'],
    ),
    ('fedsteer_tff/subspace/new.py', 'import tensorflow as tf', []),
    (
      'fedsteer_tff/subspace/new.py',
      'from fedsteer_tff.subspace import projection',
      [],
    ),
    (
      'fedsteer_tff/participation/new.py',
      'from tensorflow import linalg',
      ['tensorflow'],
    ),
    ('fedsteer_tff/participation/new.py', 'import numpy as np', []),
    (
      'fedsteer_tff/aggregators/new.py',
      'import tensorflow_federated as f\nx = f.learning.models.ModelWeights',
      ['tensorflow_federated.learning.models'],
    ),
    (
      'fedsteer_tff/aggregators/new.py',
      'import tensorflow_federated as tff\nx = tff.aggregators.SumFactory()',
      [],
    ),
    (
      'fedsteer_tff/aggregators/new.py',
      'from ..client_work import identified',
      ['fedsteer_tff.client_work.identified'],
    ),
    (
      'fedsteer_tff/client_work/new.py',
      'from fedsteer_tff.algorithms import fedsteer',
      ['fedsteer_tff.algorithms.fedsteer'],
    ),
    (
      'fedsteer_tff/algorithms/new.py',
      'import fedsteer_tff.programs',
      ['fedsteer_tff.programs'],
    ),
    ('fedsteer_tff/algorithms/new.py', 'import fedsteer_tff', ['fedsteer_tff']),
    ('fedsteer_tff/programs/new.py', 'import scripts.train', ['scripts.train']),
    ('fedsteer_tff/programs/new.py', 'import tasks.digits', ['tasks.digits']),
    ('tasks/new.py', 'from tests import source_tree', ['tests.source_tree']),
    ('scripts/new.py', 'import tasks\nimport fedsteer_tff.programs', []),
  ],
)
def test_checker_finds_upward_imports(file, source, violations):
  assert _violations(source, pathlib.PurePath(file)) == violations


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
