"""Tests which interpreter `make` picks, and what it says if there is none.

Every test has a PATH of its own that holds the few tools make needs and the
stubs that the test puts there. Most have make print its commands instead of
running them.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_TOOLS = ('echo', 'make', 'mkdir', 'rm', 'sed', 'sh', 'touch')


class _Machine:
  """A PATH with stubs on it, and a copy of what make reads."""

  def __init__(self, root: pathlib.Path):
    """Makes the machine in an existing empty folder."""
    self.clone = root / 'clone'
    (self.clone / 'scripts').mkdir(parents=True)
    for name in ('Makefile', 'requirements.txt', 'scripts/find_python.sh'):
      shutil.copy(_ROOT / name, self.clone / name)
    tools = root / 'tools'
    tools.mkdir()
    for name in _TOOLS:
      (tools / name).symlink_to(shutil.which(name))
    self._root = root
    self._path = [tools]

  def add(self, name: str, script: str, folder: str = 'bin') -> str:
    """Puts a stub into a folder at the end of the PATH and returns its path."""
    path = self._root / folder
    if path not in self._path:
      path.mkdir()
      self._path.append(path)
    stub = path / name
    stub.write_text(f'#!{shutil.which("sh")}\n{script}\n')
    stub.chmod(0o755)
    return str(stub)

  def make(self, *arguments: str) -> subprocess.CompletedProcess:
    """Runs make in the clone with the PATH of this machine only."""
    return subprocess.run(
      ['make', *arguments],
      cwd=self.clone,
      env={'PATH': os.pathsep.join(map(str, self._path))},
      capture_output=True,
      text=True,
      check=False,
    )

  def commands(self, *arguments: str) -> str:
    """Returns the commands that make would run."""
    result = self.make('--dry-run', *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout

  def refusal(self, *arguments: str) -> str:
    """Returns the one line that make stops with, before any command."""
    result = self.make(*arguments)
    assert result.returncode != 0
    assert result.stdout == ''
    (line,) = result.stderr.splitlines()
    return line


def _interpreter(version: str, lacks: str = '') -> str:
  """Returns a stub's script: this interpreter, said to be of that version.

  The probe of the search runs in it for real.

  Args:
    version: The version it reports, such as `3.12.1`.
    lacks: A module that it does not have.
  """
  numbers = ', '.join(version.split('.'))
  prelude = (
    f"import sys; sys.version_info = ({numbers}, 'final', 0); "
    f"sys.modules['{lacks or '_lacks_nothing'}'] = None"
  )
  return f'exec "{sys.executable}" -c "{prelude}\n$2"'


_SHIM = 'echo "pyenv: command not found" >&2; exit 127'


@pytest.fixture(name='machine')
def fixture_machine(tmp_path):
  return _Machine(tmp_path)


@pytest.mark.parametrize('target', ['demo', 'test', 'lint', 'check'])
def test_no_python_is_one_line_that_says_what_to_install(machine, target):
  line = machine.refusal(target)
  assert (
    'Python 3.9 to 3.11 for x86_64 Linux is needed (no python found)' in line
  )
  assert 'install it with its venv module' in line
  assert 'or install uv' in line


def test_only_a_newer_python_without_uv_is_one_line_that_names_it(machine):
  python = machine.add('python3', _interpreter('3.12.1'))
  assert f'is needed ({python} is Python 3.12.1)' in machine.refusal('test')


def test_python_without_ensurepip_and_without_uv_is_named(machine):
  python = machine.add('python3.11', _interpreter('3.11.2', lacks='ensurepip'))
  assert f'({python} is Python 3.11.2 without ensurepip)' in machine.refusal(
    'test'
  )


@pytest.mark.parametrize('version', ['3.8.18', '3.12.1', '3.13.0'])
def test_uv_is_the_way_out_where_no_python_fits(machine, version):
  machine.add('python3', _interpreter(version))
  uv = machine.add('uv', 'echo uv 1.0.0')
  commands = machine.commands('test')
  assert f'"{uv}" --no-config venv' in commands
  assert '--python 3.11' in commands
  assert f'"{uv}" --no-config pip install' in commands
  assert '--no-deps --require-hashes -r requirements.txt' in commands
  assert '-m pip install' not in commands


def test_uv_that_does_not_run_is_passed_over(machine):
  machine.add('uv', _SHIM)
  assert 'no python found' in machine.refusal('test')


@pytest.mark.parametrize('version', ['3.9.18', '3.10.13', '3.11.7'])
def test_fitting_python_is_preferred_to_uv(machine, version):
  python = machine.add('python3', _interpreter(version))
  machine.add('uv', 'echo uv 1.0.0')
  commands = machine.commands('test')
  assert f'"{python}" -m venv ".venv"' in commands
  assert '--no-deps --require-hashes -r requirements.txt' in commands
  assert 'uv' not in commands.replace('venv', '')


def test_python_3_11_is_preferred(machine):
  machine.add('python3', _interpreter('3.10.13'))
  machine.add('python3.10', _interpreter('3.10.13'))
  python = machine.add('python3.11', _interpreter('3.11.7'))
  assert f'"{python}" -m venv' in machine.commands('demo')


def test_shim_that_fails_hides_neither_its_namesake_nor_other_names(machine):
  machine.add('python3.11', _SHIM, folder='shims')
  machine.add('python3.10', _SHIM, folder='shims')
  python = machine.add('python3.10', _interpreter('3.10.13'))
  assert f'"{python}" -m venv' in machine.commands('demo')


def test_name_that_lies_about_its_version_is_not_trusted(machine):
  machine.add('python3.11', _interpreter('3.12.1'))
  python = machine.add('python3', _interpreter('3.9.18'))
  assert f'"{python}" -m venv' in machine.commands('demo')


def test_given_python_is_used(machine):
  machine.add('python3.11', _interpreter('3.11.7'))
  python = machine.add('snake', _interpreter('3.9.18'))
  for given in ('snake', python):
    assert f'"{python}" -m venv' in machine.commands('demo', f'PYTHON={given}')


def test_given_python_that_does_not_fit_is_an_error_whatever_else_is_there(
  machine,
):
  machine.add('python3.11', _interpreter('3.11.7'))
  machine.add('uv', 'echo uv 1.0.0')
  machine.add('snake', _interpreter('3.12.1'))
  line = machine.refusal('demo', 'PYTHON=snake')
  assert 'PYTHON=snake does not fit' in line
  assert 'is Python 3.12.1' in line
  assert 'it does not run' in machine.refusal('demo', 'PYTHON=nothing')


def test_what_goes_away_with_the_old_environment_is_never_chosen(machine):
  # As in a shell where the environment that is made anew is activated.
  environment = machine.clone / '.venv'
  environment.mkdir()
  (environment / '.made-by-make').touch()
  own = machine.add(
    'python3.11', _interpreter('3.11.7'), folder='clone/.venv/bin'
  )
  machine.add('uv', 'echo uv 1.0.0', folder='clone/.venv/bin')
  reason = f'{own} goes away with the old environment'
  assert reason in machine.refusal('install')
  assert reason in machine.refusal('install', f'PYTHON={own}')
  assert f'"{own}" -m venv "other"' in machine.commands('test', 'VENV=other')
  python = machine.add('python3', _interpreter('3.9.18'))
  assert f'"{python}" -m venv ".venv"' in machine.commands('test')


def test_finished_environment_is_not_installed_again_nor_python_sought(machine):
  stamp = machine.clone / '.venv' / '.installed'
  stamp.parent.mkdir()
  stamp.touch()
  commands = machine.commands('test')
  assert 'pip install' not in commands
  assert 'pytest tests' in commands


def test_changed_pins_and_interrupted_installation_install_again(machine):
  machine.add('python3.11', _interpreter('3.11.7'))
  stamp = machine.clone / '.venv' / '.installed'
  stamp.parent.mkdir()
  # An interrupted installation leaves the folder without the stamp.
  assert 'pip install' in machine.commands('test')
  stamp.touch()
  later = stamp.stat().st_mtime + 10
  os.utime(machine.clone / 'requirements.txt', (later, later))
  assert 'pip install' in machine.commands('test')


def test_failed_installation_leaves_no_stamp(machine):
  # The probe passes; creating the environment fails.
  machine.add(
    'python3.11',
    f'[ "$1" = -c ] || exit 1; {_interpreter("3.11.7")}',
  )
  environment = machine.clone / '.venv'
  for _ in range(2):
    # What the first run left is known as made here, so the second starts over.
    result = machine.make('install')
    assert result.returncode != 0
    assert 'was not made by this Makefile' not in result.stderr
    assert [path.name for path in environment.iterdir()] == ['.made-by-make']
    (environment / 'half an installation').touch()


@pytest.mark.parametrize('target', ['install', 'clean'])
def test_folder_that_make_did_not_create_is_never_removed(machine, target):
  machine.add('python3.11', _interpreter('3.11.7'))
  kept = machine.clone / 'mine' / 'thesis.txt'
  kept.parent.mkdir()
  kept.touch()
  result = machine.make(target, 'VENV=mine')
  assert result.returncode != 0
  assert 'VENV=mine was not made by this Makefile' in result.stderr
  assert kept.exists()


def test_help_lists_every_target_that_a_user_may_name(machine):
  lines = machine.make('help').stdout.splitlines()
  targets = [line.split()[1] for line in lines]
  makefile = (machine.clone / 'Makefile').read_text()
  phony = [
    name
    for line in makefile.splitlines()
    if line.startswith('.PHONY:')
    for name in line.split()[1:]
  ]
  assert sorted(targets) == sorted(phony)


def test_search_script_is_plain_posix_shell():
  source = (_ROOT / 'scripts' / 'find_python.sh').read_text()
  assert source.startswith('#!/bin/sh\n')
  for bashism in ('[[', 'local ', 'function ', "$'", '<<<'):
    assert bashism not in source


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
