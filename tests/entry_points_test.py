"""Every program of this repository says what it does when it is asked."""

import ast
import subprocess
import sys

import pytest

from tests import source_tree

_PROGRAMS = {
  source_tree.module_name(file): file
  for file in source_tree.python_files()
  if file.parts[0] in ('examples', 'scripts') and source_tree.can_be_run(file)
}


def test_programs_are_found():
  assert {'examples.production_program', 'scripts.train'} < set(_PROGRAMS)


@pytest.mark.slow
@pytest.mark.parametrize('program', _PROGRAMS)
def test_program_answers_help(program):
  result = subprocess.run(
    [sys.executable, '-m', program, '--help'],
    cwd=source_tree.ROOT,
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  # Those with flags of absl end with 1, as all do that use its help.
  assert result.returncode in (0, 1), result.stderr
  assert 'Traceback' not in result.stderr
  source = (source_tree.ROOT / _PROGRAMS[program]).read_text(encoding='utf-8')
  summary = ast.get_docstring(ast.parse(source)).splitlines()[0]
  assert summary in result.stdout
  assert '--' in result.stdout


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
