"""The code in README.md and docs/ works.

Python blocks of docs/ are executed, those of a page one after another, each
page in a folder of its own. What every page does not say again is known to
them: fedsteer_tff, np, tf, tff, and the `model_fn` of a small model. The
example of README.md, which trains for longer, is run by tests/readme_test.py.

Shell commands are not executed, since most of them install packages or train
for minutes: their targets, modules, flags and files are checked against the
programs' own parsers. What `scripts.plot` and `scripts.report` do is tested in
tests/scripts.
"""

import contextlib
import functools
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

import pytest

from examples import client_data
from examples import own_keras_model
from examples import production_program
from scripts import compare
from scripts import compare_config
from scripts import compatibility
from scripts import illustrations
from scripts import plot
from scripts import report
from scripts import train_flags

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md'))]
_PROGRAMS = ('make', 'python', 'pip', 'uv')
# They import TensorFlow before anything else, and know their own flags only.
# That they answer as processes is tested by tests/entry_points_test.py.
_ASKED_HERE = {
  module.__name__: module
  for module in (
    client_data,
    compatibility,
    own_keras_model,
    production_program,
  )
}

# Runs the pages' code; each page is one file with the page's line numbers.
_RUNNER = """
import os, pathlib, runpy, signal, sys
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import fedsteer_tff

signal.signal(signal.SIGINT, signal.default_int_handler)


def model_fn():
  model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
  spec = (tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1]))
  return tff.learning.models.from_keras_model(
    model, tf.keras.losses.MeanSquaredError(), spec
  )


known = dict(
  np=np, tf=tf, tff=tff, fedsteer_tff=fedsteer_tff, model_fn=model_fn
)
for path in map(pathlib.Path, sys.argv[1:]):
  print('page', path.stem, flush=True)
  os.chdir(path.parent)
  runpy.run_path(str(path), init_globals=known, run_name='__main__')
print('all pages', flush=True)
"""


class Block(NamedTuple):
  """A code block: its language, the line it begins after, and its text."""

  language: str
  line: int
  text: str


def blocks(text: str) -> list[Block]:
  """Returns the fenced blocks of a page."""
  return [
    Block(match[1], text[: match.start()].count('\n') + 1, match[2])
    for match in re.finditer(r'^```(\w*)\n(.*?)^```$', text, re.M | re.S)
  ]


def program(command: list[str]) -> str:
  """Returns the name of the program that a command begins with."""
  return os.path.basename(command[0])


def commands(block: Block) -> list[list[str]]:
  """Returns the commands of a block, none if it is not one of shell commands.

  Blocks without a language are, if a line begins with a program that is known.
  """
  if block.language not in ('', 'sh'):
    return []
  lines = block.text.replace('\\\n', ' ').splitlines()
  programs = {program(line.split()) for line in lines if line.split()}
  if not block.language and not programs & set(_PROGRAMS):
    return []
  # Three dots stand for what is said elsewhere.
  found = [
    [word for word in shlex.split(line, comments=True) if word != '...']
    for line in lines
  ]
  return [command for command in found if command]


def make_targets() -> set[str]:
  return set(re.findall(r'^([a-z]+):', (ROOT / 'Makefile').read_text(), re.M))


@functools.cache
def help_of(module: str) -> str:
  """Returns what a program says to --help."""
  if module in _ASKED_HERE:
    output = io.StringIO()
    # argparse ends the program.
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
      _ASKED_HERE[module].main([module, '--help'])
    return output.getvalue()
  return subprocess.run(
    [sys.executable, '-m', module, '--help'],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
    check=False,
  ).stdout


def check_module(module: str, arguments: list[str]) -> None:
  """Checks a call of `python -m module arguments`."""
  parsers = {
    'scripts.illustrations': illustrations.parser,
    'scripts.plot': plot.parser,
    'scripts.report': report.parser,
  }
  if module == 'scripts.train':
    # Certificates and keys are made by commands of the page itself: any file
    # will do.
    arguments = [
      re.sub(r'=.*\.(pem|key)$', f'={__file__}', argument)
      for argument in arguments
    ]
    train_flags.config_of([*arguments, '--output_dir=unused'])
  elif module == 'scripts.compare':
    options = compare.parser().parse_args(arguments)
    compare_config.load(options.config).select(
      settings=options.settings, methods=options.methods, seeds=options.seeds
    )
  elif module in parsers:
    parsers[module]().parse_args(arguments)
  elif module in ('pytest', 'jupyter'):
    paths = [a for a in arguments if '/' in a or a == 'tests']
    assert paths and all((ROOT / path).exists() for path in paths)
  else:
    assert module.split('.')[0] in ('examples', 'scripts'), module
    flags = {a.partition('=')[0] for a in arguments if a.startswith('--')}
    known = set(re.findall(r'--(?:\[no\])?\w+', help_of(module)))
    known = {flag.replace('[no]', '') for flag in known}
    assert known and flags <= known, flags - known


def check(command: list[str]) -> None:
  """Checks a command; raises an error if it could not be run."""
  name, arguments = program(command), command[1:]
  if name == 'make':
    assert {a for a in arguments if '=' not in a} <= make_targets()
  elif name == 'python':
    assert arguments[0] == '-m', command
    check_module(arguments[1], arguments[2:])
  else:
    assert name in ('pip', 'uv'), command
    assert 'install' in arguments[:2]
    for flag, value in zip(arguments, arguments[1:]):
      assert flag != '-r' or (ROOT / value).is_file()


def name_of(page: pathlib.Path) -> str:
  return str(page.relative_to(ROOT))


@pytest.mark.parametrize('page', PAGES, ids=name_of)
def test_pages_say_once_what_their_commands_need(page):
  text = page.read_text(encoding='utf-8')
  commands_need_it = re.search('(?<!bin/)python -m', text)
  sentence = r'after\s`make\sinstall`\sand\s`. .venv/bin/activate`'
  assert len(re.findall(sentence, text)) == bool(commands_need_it)


@pytest.mark.parametrize('page', PAGES, ids=name_of)
def test_blocks_say_what_they_are(page):
  text = page.read_text(encoding='utf-8')
  found = blocks(text)
  assert 2 * len(found) == len(re.findall('^ *```', text, re.M))
  assert {block.language for block in found} <= {'', 'python', 'sh', 'text'}


@pytest.mark.parametrize('page', PAGES, ids=name_of)
def test_commands_name_what_there_is(page, monkeypatch):
  monkeypatch.chdir(ROOT)
  for block in blocks(page.read_text(encoding='utf-8')):
    for command in commands(block):
      check(command)


def test_the_commands_of_the_first_pages_are_found():
  found = [
    ' '.join(command)
    for page in ('README.md', 'docs/index.md', 'docs/results/README.md')
    for block in blocks((ROOT / page).read_text(encoding='utf-8'))
    for command in commands(block)
  ]
  assert found.count('make demo') == 3
  assert '.venv/bin/python -m scripts.report runs/demo' in found
  assert any('scripts.train --task=fashion_mnist' in c for c in found)
  assert any('scripts/comparisons/designs.json' in c for c in found)


@pytest.mark.parametrize(
  'command',
  [
    'make coffee',
    'python -m scripts.train --ruonds=3',
    'python -m scripts.train --algorithm=fedavg --ridge=0.1',
    'python -m scripts.compare --config=no.json',
    'python -m scripts.compare --config=scripts/comparisons/digits.json'
    ' --methods=nothing',
    'python -m scripts.report',
    'python -m scripts.report runs/x --outptu=y',
    'python -m scripts.nothing --flag',
    'python -m pytest tests/nothing_test.py',
    'python train.py',
    'pip install -r nothing.txt',
    'curl example.com',
  ],
)
def test_commands_that_would_fail_are_noticed(command, monkeypatch, capsys):
  monkeypatch.chdir(ROOT)
  with pytest.raises((AssertionError, SystemExit, ValueError)):
    check(shlex.split(command))
  capsys.readouterr()


@pytest.mark.slow
def test_python_blocks_run(tmp_path):
  scripts = []
  for page in PAGES[1:]:
    code = ''
    for block in blocks(page.read_text(encoding='utf-8')):
      if block.language == 'python':
        code += '\n' * (block.line - code.count('\n')) + block.text
    if code:
      folder = tmp_path / page.stem
      folder.mkdir()
      scripts.append(folder / f'{page.stem}.py')
      scripts[-1].write_text(code, encoding='utf-8')
  assert {'index', 'how_it_works', 'choosing_parameters'} <= {
    script.stem for script in scripts
  }
  log = tmp_path / 'log'
  with open(log, 'w') as output:
    subprocess.call(
      [sys.executable, '-c', _RUNNER, *map(str, scripts)],
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=subprocess.STDOUT,
      env={**os.environ, 'PYTHONPATH': str(ROOT)},
    )
  text = log.read_text()
  assert text.splitlines()[-1] == 'all pages', text[-5000:]


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
