"""Tests that no file depends on one machine or names a package registry."""

import re

import pytest

from tests import source_tree

_SUFFIXES = {'', '.cfg', '.csv', '.flags', '.in', '.json', '.md', '.py', '.sh'}
_SUFFIXES |= {'.toml', '.txt', '.yaml', '.yml'}
# Not the project's: environments, caches, what runs wrote.
_IGNORED_FOLDERS = {
  'build',
  'dist',
  'mutants',
  'runs',
  'venv',
  '__pycache__',
}

_ROOTS = '|'.join(['Users', 'home', 'root', 'work'])
_HOSTS = '|'.join(
  rf'{host}\.{domain}'
  for host, domain in [
    ('pypi', 'org'),
    ('python' + 'hosted', 'org'),
    ('npm' + 'js', '(?:org|com)'),
    ('debian', 'org'),
  ]
)
_RULES = {
  'absolute path of a machine': re.compile(
    rf'(?<![\w.~/}}\])-])/(?:{_ROOTS})/'
  ),
  'package registry': re.compile(_HOSTS),
}


def _text_files():
  """Yields the project's text files, relative to the root."""
  folders = [source_tree.ROOT]
  while folders:
    for path in sorted(folders.pop().iterdir()):
      name = path.name
      if path.is_dir():
        hidden = name.startswith('.') and name != '.ci'
        if (
          not (hidden or name in _IGNORED_FOLDERS or name.endswith('.egg-info'))
          and not (path / 'pyvenv.cfg').exists()
        ):
          folders.append(path)
      elif path.suffix in _SUFFIXES and name != '.git':
        yield path.relative_to(source_tree.ROOT)


def _findings(text: str) -> list[str]:
  """Returns what is wrong with a text, one entry a line and rule."""
  return [
    f'line {number}: {what}'
    for number, line in enumerate(text.splitlines(), 1)
    for what, pattern in _RULES.items()
    if pattern.search(line)
  ]


def test_files_name_no_machine_and_no_registry():
  findings = {}
  for file in _text_files():
    text = (source_tree.ROOT / file).read_text(encoding='utf-8')
    if _findings(text):
      findings[str(file)] = _findings(text)
  assert not findings


def test_the_files_that_matter_are_looked_at():
  files = {str(file) for file in _text_files()}
  assert {'Makefile', 'BUILD', 'requirements.txt', '.ci/run'} <= files
  assert {'fedsteer_tff/__init__.py', 'tests/hygiene_test.py'} <= files


@pytest.mark.parametrize(
  ('text', 'count'),
  [
    ("data_dir = '/{}/someone/data'", 1),
    ('see `/{}/x`', 1),
    ('../{}/data', 0),
    ('fedsteer_tff/client_{}/client_data.py', 0),
    ('{{root}}/{}/x', 0),
  ],
)
def test_absolute_paths_are_found_and_relative_ones_are_not(text, count):
  for name in _ROOTS.split('|'):
    assert len(_findings(text.format(name))) == count


def test_registries_are_found():
  for host in ('pypi.', 'files.python' + 'hosted.', 'registry.npm' + 'js.'):
    assert len(_findings(f'-i https://{host}org/simple')) == 1
  assert not _findings('pip install tensorflow-federated')


def test_pins_say_nothing_of_an_index_or_a_file():
  lines = (source_tree.ROOT / 'requirements.txt').read_text().splitlines()
  pin = re.compile(r'[a-z0-9-]+==[\w.]+ ; [^/]+ \\')
  hash_line = re.compile(r'    --hash=sha256:[0-9a-f]{64}( \\)?')
  assert not [
    line
    for line in lines
    if not (
      line.startswith('# ')
      or line.strip() == '#    make requirements'
      or pin.fullmatch(line)
      or hash_line.fullmatch(line)
    )
  ]


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
