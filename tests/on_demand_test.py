"""Tests that the package imports TensorFlow only when it is needed."""

import subprocess
import sys

import pytest

import fedsteer_tff
from fedsteer_tff import _on_demand
from fedsteer_tff import programs
from tests import source_tree

_REPORT = """
import sys
{imports}
print(sorted({{'tensorflow', 'tensorflow_federated'}} & set(sys.modules)))
"""


def _slow_modules(imports):
  output = subprocess.run(
    [sys.executable, '-c', _REPORT.format(imports=imports)],
    cwd=source_tree.ROOT,
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  return output.strip()


@pytest.mark.parametrize(
  'imports',
  [
    'import fedsteer_tff; fedsteer_tff.__version__; dir(fedsteer_tff)',
    'from fedsteer_tff import participation',
    'from fedsteer_tff.programs import files, run_directory, metrics_table',
    'from scripts import compare, plot, report, train, train_flags',
  ],
)
def test_what_needs_no_tensorflow_imports_none(imports):
  assert _slow_modules(imports) == '[]'


@pytest.mark.parametrize('package', [fedsteer_tff, programs])
def test_every_public_name_is_there(package):
  assert sorted(package.__all__) == dir(package)
  for name in package.__all__:
    assert getattr(package, name) is getattr(package, name)


@pytest.mark.parametrize('package', [fedsteer_tff, programs])
def test_other_names_are_not_there(package):
  with pytest.raises(
    AttributeError,
    match=f"module '{package.__name__}' has no attribute 'nothing'",
  ):
    _ = package.nothing


def test_a_module_is_an_attribute_and_a_name_comes_from_it():
  find = _on_demand.build_getattr(
    programs.__name__, ['RunDirectory'], ['files', 'run_directory']
  )
  assert find('files').__name__ == 'fedsteer_tff.programs.files'
  assert find('RunDirectory') is find('run_directory').RunDirectory
  with pytest.raises(AttributeError):
    find('RunStatus')  # In a module, and not public.


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
