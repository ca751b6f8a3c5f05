"""Tests that the BUILD files say what the sources are and import.

BUILD files have the syntax of Python, so `ast` reads them.
"""

import ast
import pathlib

import pytest

from tests import source_tree

_ROOT = source_tree.ROOT
_RULES = ('py_binary', 'py_library', 'py_test')
# Where buildifier puts the attributes that are used here; others come before
# `deps`, by name.
_FIRST_ATTRIBUTES = ('name', 'size', 'timeout', 'testonly', 'srcs')


def _build_files() -> list[pathlib.Path]:
  """Returns the BUILD files of the root and of every folder with sources."""
  folders = {file.parent for file in source_tree.python_files()}
  folders.update(
    file.parent.relative_to(_ROOT)
    for top in ('examples', 'fedsteer_tff', 'scripts', 'tasks', 'tests')
    for file in (_ROOT / top).rglob('BUILD')
  )
  return [_ROOT / folder / 'BUILD' for folder in sorted(folders)]


def _calls(path: pathlib.Path) -> list[ast.Call]:
  """Returns the calls that a BUILD file consists of."""
  calls = []
  for statement in ast.parse(path.read_text(encoding='utf-8')).body:
    assert isinstance(statement, ast.Expr), ast.dump(statement)
    assert isinstance(statement.value, ast.Call), ast.dump(statement)
    calls.append(statement.value)
  return calls


def _attributes(call: ast.Call) -> dict[str, ast.expr]:
  return {keyword.arg: keyword.value for keyword in call.keywords}


def _targets() -> dict[str, tuple[str, dict[str, ast.expr]]]:
  """Returns rule and attributes by label, for every Python target."""
  targets = {}
  for path in _build_files():
    for call in _calls(path):
      if call.func.id in _RULES:
        attributes = _attributes(call)
        label = _label(path.parent.relative_to(_ROOT), attributes['name'].value)
        assert label not in targets, f'{label} is defined twice'
        targets[label] = (call.func.id, attributes)
  return targets


def _label(folder: pathlib.PurePath, name: str) -> str:
  return f'//{"/".join(folder.parts)}:{name}'


def _label_of(file: pathlib.PurePath) -> str:
  """Returns the label of a source: its stem, or its package's own name."""
  name = file.parent.name if file.name == '__init__.py' else file.stem
  return _label(file.parent, name)


def _absolute(label: str, folder: pathlib.PurePath) -> str:
  """Returns a label with package and name, as `_label` does."""
  if label.startswith(':'):
    return _label(folder, label[1:])
  if ':' in label:
    return label
  return f'{label}:{label.rpartition("/")[2]}'


def _rule_of(file: pathlib.PurePath) -> str:
  """Returns the rule that a source needs."""
  if file.name.endswith('_test.py'):
    return 'py_test'
  return 'py_binary' if source_tree.can_be_run(file) else 'py_library'


def _render_value(value: ast.expr, indent: str = '') -> str:
  """Returns an attribute's value as buildifier writes it."""
  if isinstance(value, ast.Constant):
    return (
      f'"{value.value}"' if isinstance(value.value, str) else repr(value.value)
    )
  if isinstance(value, ast.List):
    items = [_render_value(item, indent) for item in value.elts]
    if len(items) == 1:
      return f'[{items[0]}]'
    lines = ''.join(f'{indent}    {item},\n' for item in items)
    return f'[\n{lines}{indent}]' if items else '[]'
  if isinstance(value, ast.Call) and value.func.id == 'glob':
    (patterns,) = value.args
    return f'glob({_render_value(patterns, indent)})'
  raise ValueError(f'unexpected value {ast.dump(value)}')


def _render(call: ast.Call) -> str:
  """Returns a call as buildifier writes it."""
  arguments = [_render_value(value) for value in call.args]
  if call.func.id not in (*_RULES, 'filegroup'):
    keywords = [
      f'{name} = {_render_value(value)}'
      for name, value in _attributes(call).items()
    ]
    return f'{call.func.id}({", ".join(arguments + keywords)})'
  assert not arguments
  lines = ''.join(
    f'    {name} = {_render_value(value, "    ")},\n'
    for name, value in _attributes(call).items()
  )
  return f'{call.func.id}(\n{lines})'


def _attribute_key(name: str):
  if name in _FIRST_ATTRIBUTES:
    return (0, _FIRST_ATTRIBUTES.index(name), name)
  return (2 if name == 'deps' else 1, 0, name)


def _label_key(label: str):
  """Orders labels as buildifier does: of this package, of others, external."""
  phase = 1 if label.startswith(':') else 2 if label.startswith('//') else 3
  if label.startswith('@'):
    phase = 4
  return (phase, label.replace(':', '.').split('.'))


@pytest.mark.parametrize(
  'path', _build_files(), ids=lambda path: str(path.relative_to(_ROOT))
)
def test_build_file_has_the_canonical_form(path):
  calls = _calls(path)
  order = ['load', 'package', 'licenses', 'exports_files']
  heads = [call.func.id for call in calls if call.func.id in order]
  assert [call.func.id for call in calls][: len(heads)] == heads
  assert heads == [name for name in order if name in heads]
  assert {'package', 'licenses'} <= set(heads)

  rules = [call for call in calls if call.func.id in _RULES]
  loads = [call for call in calls if call.func.id == 'load']
  loaded = [argument.value for call in loads for argument in call.args]
  if rules:
    assert loaded == [
      '@rules_python//python:defs.bzl',
      *sorted({call.func.id for call in rules}),
    ]
  else:
    assert not loaded
  names = [_attributes(call)['name'].value for call in rules]
  assert names == sorted(names)
  for call in rules:
    attributes = _attributes(call)
    assert list(attributes) == sorted(attributes, key=_attribute_key)
    for name in ('data', 'deps'):
      if isinstance(attributes.get(name), ast.List):
        labels = ast.literal_eval(attributes[name])
        assert labels == sorted(set(labels), key=_label_key)

  text = '\n\n'.join(_render(call) for call in calls) + '\n'
  assert path.read_text(encoding='utf-8') == text


def test_every_source_is_in_exactly_one_target_of_its_name():
  sources = {}
  for label, (_, attributes) in _targets().items():
    folder = pathlib.PurePath(label[2:].partition(':')[0])
    (name,) = ast.literal_eval(attributes['srcs'])
    file = folder / name
    assert file not in sources, f'{file} is in {label} and in {sources[file]}'
    sources[file] = label
  assert sources == {
    file: _label_of(file) for file in source_tree.python_files()
  }


def test_rules_fit_the_sources():
  rules = {label: rule for label, (rule, _) in _targets().items()}
  assert rules == {
    _label_of(file): _rule_of(file) for file in source_tree.python_files()
  }


def test_tests_run_when_their_file_is_run():
  # That is how Bazel runs a py_test: a file that only defines tests would pass
  # without running one.
  assert not [
    str(file)
    for file in source_tree.python_files()
    if file.name.endswith('_test.py') and not source_tree.can_be_run(file)
  ]


def test_dependencies_are_the_imports():
  dependencies = {
    label: {
      _absolute(dependency, pathlib.PurePath(label[2:].partition(':')[0]))
      for dependency in ast.literal_eval(attributes.get('deps', ast.List([])))
    }
    for label, (_, attributes) in _targets().items()
  }
  assert dependencies == {
    _label_of(file): {
      _label_of(imported) for imported in source_tree.imported_files(file)
    }
    for file in source_tree.python_files()
  }


def test_dependencies_have_no_cycle():
  imports = {
    file: source_tree.imported_files(file)
    for file in source_tree.python_files()
  }
  while True:
    leaves = {file for file, imported in imports.items() if not imported}
    if not leaves:
      break
    imports = {
      file: imported - leaves
      for file, imported in imports.items()
      if file not in leaves
    }
  assert not imports, 'these import one another in a circle'


def test_data_exists():
  for label, (_, attributes) in _targets().items():
    data = attributes.get('data')
    folder = pathlib.PurePath(label[2:].partition(':')[0])
    if isinstance(data, ast.Call):
      for pattern in ast.literal_eval(data.args[0]):
        assert list((_ROOT / folder).glob(pattern)), f'{label}: {pattern}'
    elif data is not None:
      for item in ast.literal_eval(data):
        package, _, name = _absolute(item, folder)[2:].partition(':')
        build = (_ROOT / package / 'BUILD').read_text(encoding='utf-8')
        assert f'"{name}"' in build, f'{label}: {item}'


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
