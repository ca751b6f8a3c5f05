"""Packages whose public names are imported when they are asked for.

TensorFlow and TensorFlow Federated take ten seconds to import. Programs that
check their flags, or read what a run has left, need some modules of this
package and none of these two, and should answer at once.
"""

from collections.abc import Callable, Sequence
import importlib
import sys
from typing import Any


def build_getattr(
  package: str, names: Sequence[str], modules: Sequence[str]
) -> Callable[[str], Any]:
  """Returns the `__getattr__` of a package (PEP 562).

  Args:
    package: The package's name.
    names: Its public names, its `__all__`.
    modules: Modules of it, relative to the package, in which the names are
      found; they are attributes of the package as well.

  Returns:
    A function from a name to its value, which becomes an attribute of the
    package. It raises `AttributeError` for other names.
  """

  def find(name: str) -> Any:
    if name in modules:
      return importlib.import_module(f'{package}.{name}')
    if name in names:
      for module in modules:
        found = importlib.import_module(f'{package}.{module}')
        if hasattr(found, name):
          return getattr(found, name)
    raise AttributeError(f'module {package!r} has no attribute {name!r}')

  def package_getattr(name: str) -> Any:
    value = find(name)
    setattr(sys.modules[package], name, value)
    return value

  return package_getattr
