"""The README's example runs as it is written there."""

import contextlib
import io
import pathlib
import re

import pytest

_README = pathlib.Path(__file__).parent.parent / 'README.md'


@pytest.mark.slow
def test_the_example_with_an_own_keras_model_trains():
  (example,) = re.findall(r'```python\n(.*?)```', _README.read_text(), re.S)
  output = io.StringIO()
  with contextlib.redirect_stdout(output):
    exec(compile(example, str(_README), 'exec'), {})
  lines = [line.split() for line in output.getvalue().splitlines()]
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
