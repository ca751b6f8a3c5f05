"""What the tests of programs share."""

import contextlib
import resource

import pytest


@pytest.fixture
def limited_file_size():
  """A context in which this process cannot write files above some size.

  The kernel refuses the write, as it does when the disk is full.
  """

  @contextlib.contextmanager
  def limited(num_bytes):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
      yield
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

  return limited
