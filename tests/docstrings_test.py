"""Tests that docstrings of public functions have all their sections.

pydoclint holds those that a docstring has against the signature. It asks for
none where one sentence is all that there is, as is right for private functions;
for Python 3.9 there is no pydoclint that tells those from public ones.
"""

import ast
from collections.abc import Iterator
import re
from typing import Union

import pytest

from tests import source_tree

_LIBRARIES = ('examples', 'fedsteer_tff', 'tasks')
# Of methods with such names, those that a caller gives arguments of his own.
_CALLED = ('__call__', '__init__')
_PROPERTIES = {'property', 'cached_property'}

_Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _public_functions(
  scope: Union[ast.Module, ast.ClassDef], name: str = ''
) -> Iterator[tuple[str, _Function, str]]:
  """Yields names of functions, them, and docstrings that their class has."""
  for node in scope.body:
    if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
      continue
    if node.name.startswith('_') and node.name not in _CALLED:
      continue
    if isinstance(node, ast.ClassDef):
      yield from _public_functions(node, f'{name}{node.name}.')
    else:
      of_class = ast.get_docstring(scope) or ''
      yield f'{name}{node.name}', node, of_class


def _body(node: ast.AST) -> Iterator[ast.AST]:
  """Yields what a function executes itself, without functions inside it."""
  for child in ast.iter_child_nodes(node):
    if not isinstance(child, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
      yield child
      yield from _body(child)


def _decorators(function: _Function) -> set[str]:
  return {ast.unparse(d).split('.')[-1] for d in function.decorator_list}


def _arguments(function: _Function, is_method: bool) -> list[str]:
  """Returns the names of what a caller gives."""
  given = function.args
  names = [a.arg for a in (*given.posonlyargs, *given.args)]
  if is_method and 'staticmethod' not in _decorators(function):
    del names[0]
  names += [a.arg for a in given.kwonlyargs]
  names += [f'*{a.arg}' for a in [given.vararg] if a]
  return names + [f'**{a.arg}' for a in [given.kwarg] if a]


def _gives_something(function: _Function, body: list[ast.AST]) -> bool:
  if function.returns is not None:
    return ast.unparse(function.returns) not in ('None', 'NoReturn')
  return any(isinstance(n, ast.Return) and n.value for n in body)


def _sections(docstring: str) -> dict[str, str]:
  parts = re.split(r'^(Args|Returns|Yields|Raises):$', docstring, flags=re.M)
  return dict(zip(parts[1::2], parts[2::2]))


def _complaints(source: str) -> list[str]:
  """Returns what docstrings of a module lack, one entry a function and part."""
  found = []
  for name, function, of_class in _public_functions(ast.parse(source)):
    sections = _sections(ast.get_docstring(function) or '')
    if function.name == '__init__':
      sections = {**_sections(of_class), **sections}
    described = re.findall(r'^  (\*{0,2}\w+):', sections.get('Args', ''), re.M)
    found.extend(
      f'{name}: {argument} is not in Args'
      for argument in _arguments(function, is_method='.' in name)
      if argument not in described
    )
    body = list(_body(function))
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in body):
      expected = ['Yields']
    elif _gives_something(function, body):
      expected = ['Returns'] * (not _decorators(function) & _PROPERTIES)
    else:
      expected = []
    if any(isinstance(n, ast.Raise) and n.exc for n in body):
      expected.append('Raises')
    found.extend(f'{name}: no {s}' for s in expected if s not in sections)
  return found


def test_public_functions_have_all_sections():
  complaints = {}
  for file in source_tree.python_files():
    if file.parts[0] in _LIBRARIES:
      found = _complaints((source_tree.ROOT / file).read_text(encoding='utf-8'))
      if found:
        complaints[str(file)] = found
  assert not complaints


_SOUND = '''def quotients(a: int, *others: int) -> list[float]:
  """Divides.

  Args:
    a: A number.
    *others: Others.

  Returns:
    What they are.

  Raises:
    ValueError: If one is 0.
  """
  if 0 in others:
    raise ValueError('others must not be 0')
  return [a / b for b in others]
'''


def test_sound_docstring_passes():
  assert not _complaints(_SOUND)


@pytest.mark.parametrize(
  ('part', 'flaw', 'complaints'),
  [
    (
      _SOUND[_SOUND.index('\n\n  Args') : _SOUND.index('"""\n  if')],
      '',
      [
        'quotients: a is not in Args',
        'quotients: *others is not in Args',
        'quotients: no Returns',
        'quotients: no Raises',
      ],
    ),
    ('    a: A number.\n', '', ['quotients: a is not in Args']),
    ('  Returns:\n    What they are.\n\n', '', ['quotients: no Returns']),
    ('  return [', '  yield [', ['quotients: no Yields']),
    ('  Raises:\n    ValueError: If one', '  If one', ['quotients: no Raises']),
  ],
  ids=['sentence', 'argument', 'result', 'yielded', 'error'],
)
def test_what_is_missing_is_found(part, flaw, complaints):
  assert part in _SOUND
  assert _complaints(_SOUND.replace(part, flaw)) == complaints


@pytest.mark.parametrize(
  ('source', 'complaints'),
  [
    ('def f() -> None:\n  """Does."""', []),
    ('def f():\n  """Does."""\n  return 1', ['f: no Returns']),
    ('def _f(a):\n  """Returns."""\n  return a', []),
    ('async def f(*, a):\n  """Does."""', ['f: a is not in Args']),
    ('def f(**a):\n  """Does."""', ['f: **a is not in Args']),
    ('def f():\n  def g(a):\n    raise a\n    return a', []),
    ('def f():\n  try: 1\n  except OSError: raise', []),
    ('class C:\n  def f(self, a):\n    """."""', ['C.f: a is not in Args']),
    ('class _C:\n  def f(self, a):\n    """."""', []),
    (
      'class C:\n  @staticmethod\n  def f(a):\n    """."""',
      ['C.f: a is not in Args'],
    ),
    ('class C:\n  @property\n  def f(self) -> int:\n    """."""', []),
    (
      'class C:\n  """.\n\n  Args:\n    a: A.\n  """\n'
      '  def __init__(self, a): 1',
      [],
    ),
    ('class C:\n  def __init__(self, a): 1', ['C.__init__: a is not in Args']),
    ('class C:\n  def __call__(self) -> int: 1', ['C.__call__: no Returns']),
    ('class C:\n  def __eq__(self, other) -> bool: 1', []),
  ],
)
def test_who_is_asked_for_what(source, complaints):
  assert _complaints(source) == complaints


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
