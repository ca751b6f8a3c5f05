"""Tests the version check, and that importing the package is silent."""

import importlib.metadata
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_CHECK = _ROOT / 'fedsteer_tff' / '_version_check.py'


def _run_check(root: pathlib.Path, path=(), flags=(), prelude=''):
  """Runs a copy of the check under `root` in a fresh interpreter.

  Args:
    root: An existing folder to put `fedsteer_tff/_version_check.py` into.
    path: Folders to put in front of `sys.path`.
    flags: Flags of the interpreter.
    prelude: Source to run before the check is imported.

  Returns:
    The text after `ImportError: ` in what the interpreter wrote to stderr, or
    None if the check passed.
  """
  package = root / 'fedsteer_tff'
  package.mkdir()
  shutil.copy(_CHECK, package)
  source = (
    f'import sys; sys.path[:0] = {[str(p) for p in (package, *path)]!r}\n'
    f'{prelude}\n'
    'import _version_check\n'
    '_version_check.check_tff_version()\n'
    "assert 'tensorflow_federated' not in sys.modules\n"
  )
  result = subprocess.run(
    [sys.executable, *flags, '-c', source],
    capture_output=True,
    text=True,
    check=False,
  )
  if result.returncode == 0:
    return None
  last = result.stderr.splitlines()[-1]
  prefix = 'ImportError: '
  assert last.startswith(prefix), result.stderr
  return last[len(prefix) :]


def _install_metadata(root: pathlib.Path, version: str) -> pathlib.Path:
  """Returns a folder that has the metadata of that TFF version."""
  folder = root / 'packages'
  info = folder / f'tensorflow_federated-{version}.dist-info'
  info.mkdir(parents=True)
  (info / 'METADATA').write_text(
    f'Metadata-Version: 2.1\nName: tensorflow-federated\nVersion: {version}\n'
  )
  return folder


def test_accepts_the_installed_version_without_importing_it(tmp_path):
  assert importlib.metadata.version('tensorflow-federated') == '0.87.0'
  assert _run_check(tmp_path) is None


@pytest.mark.parametrize('version', ['0.20.0', '0.86.0', '0.87.1', '0.88.0'])
def test_other_version_is_named_with_the_needed_one(tmp_path, version):
  packages = _install_metadata(tmp_path, version)
  message = _run_check(tmp_path, path=[packages])
  assert message.startswith(
    f'fedsteer_tff needs tensorflow-federated 0.87.0, found {version}. '
    'To install it, run: '
  )


def test_missing_tff_is_said(tmp_path):
  # Without site-packages there is no TensorFlow Federated.
  message = _run_check(tmp_path, flags=['-I', '-S'])
  assert message.startswith(
    'fedsteer_tff needs tensorflow-federated 0.87.0, none is installed. '
    'To install it, run: '
  )


def test_command_in_a_clone_installs_the_pins(tmp_path):
  root = tmp_path / 'a clone'
  root.mkdir()
  for name in ('requirements.txt', 'setup.py'):
    shutil.copy(_ROOT / name, root)
  message = _run_check(root, flags=['-I', '-S'])
  python, *arguments = shlex.split(message.partition('run: ')[2])
  assert pathlib.Path(python).samefile(sys.executable)
  requirements = str(root.resolve() / 'requirements.txt')
  assert arguments == [
    *('-m', 'pip', 'install', '--no-deps', '--require-hashes'),
    *('-r', requirements),
  ]


def test_command_elsewhere_replaces_the_jax_that_is_not_published(tmp_path):
  message = _run_check(tmp_path, flags=['-I', '-S'])
  command = message.partition('run: ')[2]
  write, install_uv, install = command.split(' && ')
  assert write == r"printf 'jax==0.4.18\njaxlib==0.4.18\n' > overrides.txt"
  assert install_uv.endswith(' -m pip install uv')
  assert install.endswith(
    '--override overrides.txt tensorflow-federated==0.87.0'
  )
  # The overrides are those that `uv pip install .` uses.
  assert (
    'override-dependencies = ["jax==0.4.18", "jaxlib==0.4.18"]'
    in (_ROOT / 'pyproject.toml').read_text()
  )


@pytest.mark.parametrize('version', [(3, 8, 20), (3, 12, 1)])
def test_unfit_python_is_named_instead_of_a_command(tmp_path, version):
  message = _run_check(
    tmp_path,
    flags=['-I', '-S'],
    prelude=f'sys.version_info = {version + ("final", 0)!r}',
  )
  assert 'for Python 3.9 to 3.11' in message
  assert 'this is Python {}.{}.{}:'.format(*version) in message


def test_pins_and_metadata_have_the_needed_version():
  pins = (_ROOT / 'requirements.txt').read_text().splitlines()
  assert [p for p in pins if p.startswith('tensorflow-federated==0.87.0 ')]
  assert 'tensorflow-federated==0.87.0' in (_ROOT / 'setup.py').read_text()


def _import_output(module: str):
  """Returns what a fresh interpreter prints while it imports the module."""
  result = subprocess.run(
    [sys.executable, '-c', f'import {module}'],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  # TensorFlow's own lines begin with a time, and its order is its own.
  time = re.compile(r'^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: ')
  errors = sorted(time.sub('', line) for line in result.stderr.splitlines())
  return result.stdout, errors


def test_import_prints_no_more_than_tff_does():
  assert _import_output('fedsteer_tff') == ('', [])
  # With all that its names need.
  stdout, stderr = _import_output('fedsteer_tff.algorithms')
  assert stdout == ''
  assert stderr == _import_output('tensorflow_federated')[1]


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
