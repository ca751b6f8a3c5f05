"""The README's example runs as it is written there."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

_README = pathlib.Path(__file__).parent.parent / 'README.md'
_CHILDREN = """
import psutil
print('children', len(psutil.Process().children()))
"""


def _example():
  (example,) = re.findall(r'```python\n(.*?)```', _README.read_text(), re.S)
  return example


def test_the_example_has_at_most_20_lines_beside_its_imports():
  lines = [line for line in _example().splitlines() if line]
  assert len([line for line in lines if not line.startswith('import')]) <= 20


@pytest.mark.slow
def test_the_example_with_an_own_keras_model_trains(tmp_path):
  script, log = tmp_path / 'example.py', tmp_path / 'log'
  script.write_text(_example() + _CHILDREN)
  with open(log, 'w') as output:
    code = subprocess.call(
      [sys.executable, str(script)],
      stdout=output,
      stderr=subprocess.DEVNULL,
      env={**os.environ, 'PYTHONPATH': str(_README.parent)},
    )
  assert code == 0, log.read_text()
  *lines, end = [line.split() for line in log.read_text().splitlines()]
  assert end == ['children', '0']
  assert [int(number) for number, _ in lines] == list(range(20))
  losses = [float(loss) for _, loss in lines]
  assert sum(losses[-5:]) < sum(losses[:5])


def test_its_commands_are_targets_of_make():
  commands = re.findall(r'^make (\w+)', _README.read_text(), re.M)
  makefile = (_README.parent / 'Makefile').read_text()
  assert set(commands) == {'demo', 'test'}
  for command in commands:
    assert re.search(f'^{command}:', makefile, re.M)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
