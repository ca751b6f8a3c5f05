"""Checks the installed TensorFlow Federated before it is imported.

Where the current TensorFlow Federated does not resolve, pip silently picks a
release of years ago, whose import fails far from the cause. So the version is
read from the metadata of the package, which costs no import.
"""

from importlib import metadata
import pathlib
import shlex
import sys

_NEEDED = '0.87.0'
_FITTING_PYTHONS = ((3, 9), (3, 11))
# TensorFlow Federated asks for a jax release that is not published any more.
_OVERRIDES = ('jax==0.4.18', 'jaxlib==0.4.18')


def _installing_command(root: pathlib.Path) -> str:
  """Returns the shell command that installs the needed version.

  Args:
    root: The folder that contains the package's folder: a clone of the
      repository, which has the pinned requirements, or `site-packages`.

  Returns:
    One line, for the interpreter that runs.
  """
  python = shlex.quote(sys.executable or 'python')
  requirements = root / 'requirements.txt'
  if requirements.is_file() and (root / 'setup.py').is_file():
    return (
      f'{python} -m pip install --no-deps --require-hashes '
      f'-r {shlex.quote(str(requirements))}'
    )
  lines = r'\n'.join(_OVERRIDES)
  return (
    f"printf '{lines}\\n' > overrides.txt && {python} -m pip install uv && "
    f'{python} -m uv pip install --python {python} '
    f'--override overrides.txt tensorflow-federated=={_NEEDED}'
  )


def check_tff_version() -> None:
  """Raises an error if TensorFlow Federated is missing or of another version.

  TensorFlow Federated itself is not imported.

  Raises:
    ImportError: If the installed version is not the needed one. The message
      states the version found, the version needed and the command that installs
      the latter.
  """
  try:
    found = metadata.version('tensorflow-federated')
  except metadata.PackageNotFoundError:
    found = None
  if found == _NEEDED:
    return

  what = 'none is installed' if found is None else f'found {found}'
  message = f'fedsteer_tff needs tensorflow-federated {_NEEDED}, {what}. '
  if _FITTING_PYTHONS[0] <= sys.version_info[:2] <= _FITTING_PYTHONS[1]:
    root = pathlib.Path(__file__).resolve().parent.parent
    message += f'To install it, run: {_installing_command(root)}'
  else:
    first, last = ('.'.join(map(str, v)) for v in _FITTING_PYTHONS)
    running = '.'.join(map(str, sys.version_info[:3]))
    message += (
      f'It exists for Python {first} to {last}, this is Python {running}: '
      'create an environment with one of those, for example with `make install`'
    )
  raise ImportError(message, name='tensorflow_federated')
