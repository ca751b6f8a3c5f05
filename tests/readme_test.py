"""The README's example runs as it is written there."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

_README = pathlib.Path(__file__).parent.parent / 'README.md'
_END_OF_CHILDREN = """
import psutil
for child in psutil.Process().children():
  child.kill()
"""


@pytest.mark.slow
def test_the_example_with_an_own_keras_model_trains(tmp_path):
  (example,) = re.findall(r'```python\n(.*?)```', _README.read_text(), re.S)
  script, log = tmp_path / 'example.py', tmp_path / 'log'
  # Only the end is added: what TFF leaves running must not outlive the script.
  script.write_text(example + _END_OF_CHILDREN)
  with open(log, 'w') as output:
    code = subprocess.call(
      [sys.executable, str(script)],
      stdout=output,
      stderr=subprocess.DEVNULL,
      env={**os.environ, 'PYTHONPATH': str(_README.parent)},
    )
  assert code == 0, log.read_text()
  lines = [line.split() for line in log.read_text().splitlines()]
  assert [int(number) for number, _ in lines] == list(range(20))
  accuracies = [float(accuracy) for _, accuracy in lines]
  assert sum(accuracies[-5:]) > sum(accuracies[:5])


def test_its_commands_are_targets_of_make():
  commands = re.findall(r'^make (\w+)', _README.read_text(), re.M)
  makefile = (_README.parent / 'Makefile').read_text()
  assert set(commands) == {'demo', 'test'}
  for command in commands:
    assert re.search(f'^{command}:', makefile, re.M)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
