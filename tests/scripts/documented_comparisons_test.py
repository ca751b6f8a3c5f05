"""Tests that the comparisons in the documentation can be run as they stand.

On made-up images in the formats of the real data sets: what is tested is that
every command still runs and draws its plots, not what it finds.
"""

from collections.abc import Sequence
import pathlib
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

from scripts import compare
from scripts import compare_config
from scripts import compare_matrix
from tests import source_tree
from tests.tasks import data_files

_ROOT = source_tree.ROOT


def _commands() -> list[tuple[str, ...]]:
  """Returns the arguments of the comparisons in the documentation."""
  commands = []
  for path in (_ROOT / 'README.md', *sorted(_ROOT.glob('docs/**/*.md'))):
    text = path.read_text('utf-8').replace('\\\n', ' ')
    for line in re.findall(r'python -m scripts\.compare (--config.*)', text):
      commands.append(tuple(shlex.split(line)))
  return commands


def _comparison(arguments: Sequence[str]) -> compare_matrix.Comparison:
  options = compare.parser().parse_args(arguments)
  return compare_config.load(options.config).select(
    settings=options.settings, methods=options.methods, seeds=options.seeds
  )


class _Case(NamedTuple):
  """A command, and those of its methods that no command before has."""

  arguments: tuple[str, ...]
  methods: tuple[str, ...]


def _cases() -> list[_Case]:
  """Returns all commands; a method's flags are run by the first that has them.

  Each command is run in all its settings, by one method at least: a setting's
  and a method's flags are all that makes a run, and all methods of all commands
  would be four times the runs.
  """
  seen = set()
  cases = []
  for arguments in _commands():
    methods = _comparison(arguments).methods
    new = [name for name, flags in methods.items() if flags not in seen]
    seen.update(methods.values())
    cases.append(_Case(arguments, tuple(new or [*methods][:1])))
  return cases


def _images(num_classes, num_each, shape) -> tuple[np.ndarray, np.ndarray]:
  """Returns images of one grey per class, and their labels."""
  labels = np.arange(num_classes * num_each) % num_classes
  greys = (labels * 255 // num_classes).astype(np.uint8)
  images = np.broadcast_to(
    greys.reshape(-1, *[1] * len(shape)), (len(labels), *shape)
  )
  return np.ascontiguousarray(images), labels


@pytest.fixture(name='data_dirs', scope='module')
def _data_dirs(tmp_path_factory) -> str:
  """Returns folders with made-up data, as --data_dirs takes them."""
  folder = tmp_path_factory.mktemp('data')
  for split, num_each in (('train', 6000), ('t10k', 10)):
    data_files.write_idx(folder, split, *_images(10, num_each, (28, 28)))
  arrays = {}
  for split, num_each in (('train', 1700), ('test', 10)):
    images, labels = _images(10, num_each, (32, 32, 3))
    arrays.update({f'x_{split}': images, f'y_{split}': labels})
  np.savez(folder / 'cifar10.npz', **arrays)
  examples = [
    data_files.emnist_example(np.full([28, 28], label / 62, np.float32), label)
    for label in range(62)
  ]
  data_files.write_emnist(
    folder,
    {
      'all_train': {'f0000_00': examples * 300},
      'all_test': {'f0000_00': examples * 2},
    },
  )
  return ','.join(
    f'{t}:{folder}' for t in ('fashion_mnist', 'cifar10', 'emnist')
  )


def test_documented_commands_are_there():
  configs = {
    pathlib.Path(compare.parser().parse_args(arguments).config).stem
    for arguments in _commands()
  }
  assert {'methods', 'learning_rates', 'population_500', 'digits'} <= configs


@pytest.mark.parametrize('arguments', _commands(), ids=' '.join)
def test_documented_commands_have_arguments_that_exist(arguments, monkeypatch):
  monkeypatch.chdir(_ROOT)
  data_dirs = compare.parser().parse_args(arguments).data_dirs
  assert _comparison(arguments).runs('runs', data_dirs)


@pytest.mark.slow
@pytest.mark.parametrize('case', _cases(), ids=lambda c: ' '.join(c.arguments))
def test_documented_commands_run(case, data_dirs, tmp_path, monkeypatch):
  monkeypatch.chdir(_ROOT)
  runs = _comparison(case.arguments).runs('runs')
  # At least two, and as many as it takes until all have been evaluated.
  rounds = max(2, *(run.config['evaluate_every'] for run in runs))
  command = [
    *(sys.executable, '-m', 'scripts.compare'),
    *case.arguments,
    f'--methods={",".join(map(compare_matrix.slug, case.methods))}',
    f'--rounds={rounds}',
    '--seeds=0',
    f'--data_dirs={data_dirs}',
    f'--output_dir={tmp_path}/runs',
    f'--results_dir={tmp_path}/results',
  ]
  with open(tmp_path / 'log', 'wb') as log:
    code = subprocess.call(
      command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
  assert code == 0, (tmp_path / 'log').read_text('utf-8')
  table = (tmp_path / 'results' / 'table.md').read_text('utf-8')
  for method in case.methods:
    assert re.search(rf'\| {re.escape(method)} \| [01]\.\d{{3}} \|', table)
  assert 'Missing' not in table
  assert (tmp_path / 'results' / 'accuracy.png').stat().st_size > 10_000


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
