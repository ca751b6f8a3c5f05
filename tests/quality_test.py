"""What `make lint` checks holds, and it would be noticed if it did not."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests import source_tree


def _commands() -> list[list[str]]:
  """Returns the commands of `make lint`, for the running interpreter."""
  makefile = (source_tree.ROOT / 'Makefile').read_text(encoding='utf-8')
  variables = dict(re.findall(r'^([A-Z]+) := (.*)$', makefile, re.MULTILINE))
  variables['BIN'] = os.path.dirname(sys.executable)
  (recipe,) = re.findall(r'^lint:.*\n((?:\t.*\n)+)', makefile, re.MULTILINE)
  return [
    shlex.split(re.sub(r'\$\((\w+)\)', lambda m: variables[m[1]], line))
    for line in recipe.splitlines()
  ]


def _name(command: list[str]) -> str:
  return ' '.join([os.path.basename(command[0]), *command[1:2]])


def _complaint(command: list[str], folder: pathlib.Path) -> str:
  """Returns what a command prints if it fails in a folder, else nothing."""
  result = subprocess.run(
    command,
    cwd=folder,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    check=False,
  )
  return result.stdout if result.returncode else ''


@pytest.mark.slow
@pytest.mark.parametrize('command', _commands(), ids=_name)
def test_sources_pass(command):
  assert not _complaint(command, source_tree.ROOT)


@pytest.fixture(name='complaints')
def fixture_complaints(tmp_path):
  """A function from a module's text to what the commands say about it."""
  shutil.copy(source_tree.ROOT / 'pyproject.toml', tmp_path)
  for command in _commands():
    for path in command[1:]:
      if (source_tree.ROOT / path).is_dir():
        (tmp_path / path).mkdir(exist_ok=True)
  (tmp_path / 'setup.py').write_text('"""Nothing."""\n')

  def complaints(text: str) -> str:
    file = tmp_path / 'fedsteer_tff' / '__init__.py'
    file.write_text(f'"""A module."""\n\n\n{text}')
    return ''.join(_complaint(command, tmp_path) for command in _commands())

  return complaints


_SOUND = '''def quotient(a: int, b: int) -> float:
  """Divides.

  Args:
    a: A number.
    b: Another.

  Returns:
    What it is.

  Raises:
    ValueError: If b is 0.
  """
  if b == 0:
    raise ValueError(f'b must not be 0, found {b}')
  return a / b
'''


def test_sound_module_passes(complaints):
  assert not complaints(_SOUND)


@pytest.mark.parametrize(
  ('part', 'flaw', 'complaint'),
  [
    (_SOUND[_SOUND.index('  """') : _SOUND.index('  if')], '', 'D103'),
    ('    b: Another.\n', '', 'DOC101'),
    ('  Returns:\n    What it is.\n\n', '', 'DOC201'),
    (
      '\n  Raises:\n    ValueError: If b is 0.\n',
      '',
      'docstring-missing-exception',
    ),
    (
      _SOUND[_SOUND.index('\n\n  Args') : _SOUND.index('"""\n  if')],
      '',
      'docstring-missing-exception',
    ),
    ('(a: int, b: int) -> float', '(a, b)', 'no-untyped-def'),
    ('-> float', '-> str', 'return-value'),
    ("'", '"', 'would be reformatted'),
  ],
  ids=[
    'no docstring',
    'an argument without a word',
    'a result without a word',
    'an error without a word',
    'a sentence that says nothing of an error',
    'no annotations',
    'a wrong annotation',
    'another format',
  ],
)
def test_flaw_is_found(complaints, part, flaw, complaint):
  assert part in _SOUND
  assert complaint in complaints(_SOUND.replace(part, flaw))


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
