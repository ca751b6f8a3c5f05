"""The repository's Python files and what they import from one another."""

import ast
import pathlib
from typing import Optional

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOP_FOLDERS = ('examples', 'fedsteer_tff', 'scripts', 'tasks', 'tests')


def python_files() -> list[pathlib.PurePath]:
  """Returns the paths of all Python files, relative to the root, sorted."""
  files = list(ROOT.glob('*.py'))
  for folder in TOP_FOLDERS:
    files.extend((ROOT / folder).rglob('*.py'))
  return sorted(file.relative_to(ROOT) for file in files)


def module_file(module: str) -> Optional[pathlib.PurePath]:
  """Returns the file of a module of this repository, or None if it has none.

  Args:
    module: A dotted name. The name of a package stands for its `__init__.py`.
  """
  path = pathlib.PurePath(*module.split('.'))
  for file in (path.with_suffix('.py'), path / '__init__.py'):
    if file.parts[0] in TOP_FOLDERS and (ROOT / file).is_file():
      return file
  return None


def module_name(file: pathlib.PurePath) -> str:
  """Returns the dotted name that `file` is imported by."""
  parts = file.with_suffix('').parts
  return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


def can_be_run(file: pathlib.PurePath) -> bool:
  """Returns whether a module does something when it is run as a script.

  Args:
    file: Its path relative to the root.
  """
  if file.name == 'setup.py':
    return True
  tree = ast.parse((ROOT / file).read_text(encoding='utf-8'))
  return any(
    isinstance(statement, ast.If)
    and ast.unparse(statement.test) == "__name__ == '__main__'"
    for statement in tree.body
  )


def imported_modules(source: str, file: pathlib.PurePath) -> set[str]:
  """Returns the dotted names of everything that a module imports.

  `from a.b import c` gives `a.b.c` if that is a module of this repository,
  else `a.b`; an import of another project's module gives both, as nothing is
  known of it. Imports inside functions count.

  Args:
    source: The module's text.
    file: Its path relative to the root; relative imports start there.
  """
  names = set()
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      base = node.module or ''
      if node.level:
        package = file.parts[: len(file.parts) - node.level]
        base = '.'.join((*package, *filter(None, [base])))
      for alias in node.names:
        member = f'{base}.{alias.name}'
        if module_file(member):
          names.add(member)
        elif base.split('.')[0] in TOP_FOLDERS:
          names.add(base)
        else:
          names.update((base, member))
  return names


def imported_files(file: pathlib.PurePath) -> set[pathlib.PurePath]:
  """Returns the files of this repository that `file` imports.

  Args:
    file: A path relative to the root.

  Raises:
    ValueError: If the import of a module of this repository has no file.
  """
  files = set()
  source = (ROOT / file).read_text(encoding='utf-8')
  for module in imported_modules(source, file):
    if module.split('.')[0] not in TOP_FOLDERS:
      continue
    imported = module_file(module)
    if imported is None:
      raise ValueError(f'{file} imports {module}, which has no file')
    files.add(imported)
  return files - {file}
