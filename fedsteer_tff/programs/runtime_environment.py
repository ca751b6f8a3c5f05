"""The environment of a process that runs TFF computations.

No TensorFlow here: it looks at the environment when it starts.
"""

import os

# One arena of the C library's malloc: cohorts of changing size fragment many.
_MALLOC = {'MALLOC_ARENA_MAX': '1'}

# Malloc gives blocks of 32 MiB and more back to the kernel at once, unless it
# is told to keep them. To get zeroed pages again takes longer than to compute
# with them.
_KEEP = {
  'MALLOC_MMAP_THRESHOLD_': str(2**40),
  'MALLOC_TRIM_THRESHOLD_': str(2**40),
}

# Else TensorFlow shares out the work of an operation, and of several, among as
# many threads as there are processors, and adds the parts of a sum in an order
# that depends on how many there are.
ONE_THREAD = {'TF_NUM_INTRAOP_THREADS': '1', 'TF_NUM_INTEROP_THREADS': '1'}


def runtime_environment(
  *, keep_freed_memory: bool = False, one_thread: bool = False
) -> dict[str, str]:
  """Returns the environment to start TFF's runtime in.

  Args:
    keep_freed_memory: Whether what is freed stays with the process.
    one_thread: Whether TensorFlow uses one thread, whatever is set.

  Returns:
    That of this process, in which whatever is set wins, but for `one_thread`.
  """
  return {
    **_MALLOC,
    **(_KEEP if keep_freed_memory else {}),
    **os.environ,
    **(ONE_THREAD if one_thread else {}),
  }
