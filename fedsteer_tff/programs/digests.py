"""Digests that tell whether a byte of a folder's files has changed."""

from collections.abc import Iterator
import contextlib
import hashlib
import os

from fedsteer_tff.programs import files

_DIGEST = 'digest.sha256'
_READ_BYTES = 2**20


def write(folder: str) -> None:
  """Writes the digest of a folder into it.

  Args:
    folder: It; all that is to be protected is there.
  """
  files.write_text(os.path.join(folder, _DIGEST), of_folder(folder))


def check(folder: str) -> bool:
  """Checks that a folder has the digest that was written into it.

  Args:
    folder: It; need not exist.

  Returns:
    Whether there is a digest that says so.

  Raises:
    OSError: If something cannot be read, with its name.
    ValueError: If the digest is another.
  """
  if not os.path.exists(folder):
    return False  # For the caller to notice.
  # Without a stored digest too: what cannot be read is noticed here, where the
  # system's error is seen, and not by TensorFlow.
  found = of_folder(folder)
  path = os.path.join(folder, _DIGEST)
  try:
    with _naming(path), open(path, 'rb') as f:
      stored = f.read()
  except FileNotFoundError:
    return False
  if stored != found.encode():
    raise ValueError(
      f'its files must have the digest in {_DIGEST}, found {found}'
    )
  return True


def of_folder(folder: str) -> str:
  """Returns the digest of the names and contents of a folder's files.

  Args:
    folder: It. A digest that it holds is left out.

  Returns:
    SHA-256 in hexadecimal digits.

  Raises:
    OSError: If something cannot be read, with its name.
  """
  digest = hashlib.sha256()
  names = sorted(
    os.path.relpath(os.path.join(inner, name), folder)
    for inner, _, file_names in os.walk(folder, onerror=_raise)
    for name in file_names
  )
  for name in names:
    if name.startswith(_DIGEST):  # The digest, or what was to become it.
      continue
    path = os.path.join(folder, name)
    with _naming(path):
      digest.update(f'{name}\n{os.path.getsize(path)}\n'.encode())
      with open(path, 'rb') as f:
        while block := f.read(_READ_BYTES):
          digest.update(block)
  return digest.hexdigest()


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
  """Puts a file's name into errors of the system that are about it.

  Args:
    path: The file.

  Yields:
    Nothing.

  Raises:
    OSError: The block's own, with the name if it had none.
  """
  try:
    yield
  except OSError as e:
    if e.errno is not None and e.filename is None:
      raise OSError(e.errno, os.strerror(e.errno), path) from e
    raise


def _raise(error: OSError) -> None:
  raise error
