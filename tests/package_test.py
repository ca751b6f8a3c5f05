"""The package as it is given away: built, installed, and without its sources.

The wheel is built from the source distribution, so that both are complete.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

from tests import source_tree

_PACKAGE = 'fedsteer_tff'
_NOT_SOURCES = shutil.ignore_patterns('__pycache__', '*.py[co]', 'runs')

# Runs where the wheel is installed. Prints what it finds of it.
_REPORT = """
import importlib.metadata
import json

from packaging import requirements

import fedsteer_tff

distribution = importlib.metadata.distribution('fedsteer-tff')
needed = map(requirements.Requirement, distribution.requires)
unmet = [
  str(requirement)
  for requirement in needed
  if requirement.marker is None
  and importlib.metadata.version(requirement.name) not in requirement.specifier
]
found = {
  'file': fedsteer_tff.__file__,
  'names': [n for n in fedsteer_tff.__all__ if hasattr(fedsteer_tff, n)],
  'all': fedsteer_tff.__all__,
  'version': fedsteer_tff.__version__,
  'distribution_version': distribution.version,
  'license': distribution.read_text('licenses/LICENSE')
    or distribution.read_text('LICENSE'),
  'commands': [entry.name for entry in distribution.entry_points],
  'unmet': unmet,
}
print(json.dumps(found))
"""


def _run(*command, **options) -> str:
  """Runs a command and returns its output; an error shows all of it."""
  result = subprocess.run(
    [os.fspath(part) for part in command],
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=False,
    **options,
  )
  assert result.returncode == 0, result.stdout + result.stderr
  return result.stdout


@pytest.fixture(name='built', scope='module')
def fixture_built(tmp_path_factory):
  """What is built, in a copy: setuptools writes beside what it reads."""
  source = tmp_path_factory.mktemp('source')
  for path in source_tree.ROOT.iterdir():
    if path.name in source_tree.TOP_FOLDERS:
      shutil.copytree(path, source / path.name, ignore=_NOT_SOURCES)
    elif path.is_file():
      shutil.copy(path, source)
  built = tmp_path_factory.mktemp('built')
  _run(
    sys.executable, '-m', 'build', '--no-isolation', '--outdir', built, source
  )
  (wheel,) = built.glob('*.whl')
  (source_distribution,) = built.glob('*.tar.gz')
  return {'wheel': wheel, 'source distribution': source_distribution}


@pytest.mark.slow
def test_wheel_holds_the_package_and_nothing_else(built):
  names = set(zipfile.ZipFile(built['wheel']).namelist())
  files = {name for name in names if '.dist-info/' not in name}
  modules = {
    str(file)
    for file in source_tree.python_files()
    if file.parts[0] == _PACKAGE
  }
  assert files == modules | {f'{_PACKAGE}/py.typed'}


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['wheel', 'source distribution'])
def test_it_works_where_the_sources_are_not(built, kind, tmp_path):
  environment = tmp_path / 'environment'
  venv.create(environment, with_pip=True)
  python = environment / 'bin' / 'python'
  # What it needs, and is built with, is that of the environment that the tests
  # run in: TensorFlow once more would take minutes.
  (site_packages,) = environment.glob('lib/python*/site-packages')
  others = [path for path in sys.path if path.endswith('-packages')]
  (site_packages / 'others.pth').write_text('\n'.join(others))
  install = ['install', '--no-index', '--no-deps', '--no-build-isolation']
  _run(python, '-m', 'pip', *install, built[kind])

  found = json.loads(_run(python, '-I', '-c', _REPORT, cwd=tmp_path))
  assert found['file'] == str(site_packages / _PACKAGE / '__init__.py')
  assert found['names'] == found['all']
  assert found['version'] == found['distribution_version']
  assert 'Apache License' in found['license']
  assert found['unmet'] == []
  # A library; the programs are those of the repository.
  assert found['commands'] == []


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
