"""Running a program of `tff.program` so that no error is lost."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fedsteer_tff.programs import arguments

_T = TypeVar('_T')


def run_program(program: Coroutine[Any, Any, _T]) -> _T:
  """Runs a coroutine like `asyncio.run`, and ends it if a task of it fails.

  `tff.learning.programs.train_model` writes checkpoints and releases metrics in
  tasks of their own. An error in one of them, such as a full disk, is no more
  than a line in the log there, and the training goes on without checkpoints.

  Args:
    program: The program.

  Returns:
    What the program returns.

  Raises:
    TypeError: If it is no coroutine.
    Exception: The program's, or that of the first task that failed.
  """
  arguments.check_instance(
    'program', program, Coroutine, 'a coroutine, what an async function returns'
  )
  return asyncio.run(_run(program))


async def _run(program: Coroutine[Any, Any, _T]) -> _T:
  main = asyncio.ensure_future(program)
  errors = []

  def on_error(
    loop: asyncio.AbstractEventLoop, context: dict[str, Any]
  ) -> None:
    error = context.get('exception')
    if error is None:
      loop.default_exception_handler(context)
      return
    # What follows from the first error is not worth a line.
    errors.append(error)
    main.cancel()

  asyncio.get_running_loop().set_exception_handler(on_error)
  try:
    result = await main
  except asyncio.CancelledError:
    if errors:
      raise errors[0] from None
    raise
  if errors:
    raise errors[0]
  return result
