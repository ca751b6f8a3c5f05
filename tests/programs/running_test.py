"""Tests for running."""

import asyncio

import numpy as np
import pytest

from fedsteer_tff.programs import checkpoints
from fedsteer_tff.programs import running


def test_returns_what_the_program_returns():
  async def program():
    await asyncio.sleep(0)
    return 7

  assert running.run_program(program()) == 7


def test_raises_what_the_program_raises():
  async def program():
    raise KeyError('mine')

  with pytest.raises(KeyError, match='mine'):
    running.run_program(program())


def _task_as_train_model_makes_it(coroutine):
  """Its error is raised in a callback, where nobody can catch it."""
  task = asyncio.ensure_future(coroutine)
  task.add_done_callback(lambda done: done.result())
  return task


async def _fail():
  await asyncio.sleep(0)
  raise OSError('no room')


def test_a_failed_task_ends_a_program_that_would_go_on():
  progress = []

  async def program():
    task = _task_as_train_model_makes_it(_fail())
    for i in range(1000):
      progress.append(i)
      await asyncio.sleep(0.01)
    return task

  with pytest.raises(OSError, match='no room'):
    running.run_program(program())
  assert len(progress) < 1000


def test_a_failed_task_is_the_error_of_a_program_that_ends():
  async def program():
    await asyncio.wait([_task_as_train_model_makes_it(_fail())])
    return 'done'

  with pytest.raises(OSError, match='no room'):
    running.run_program(program())


def test_the_first_of_two_errors_is_raised():
  async def late():
    await asyncio.sleep(0)
    await _fail()

  async def early():
    raise ValueError('first')

  async def program():
    tasks = [_task_as_train_model_makes_it(c) for c in (late(), early())]
    await asyncio.wait(tasks)

  with pytest.raises(ValueError, match='first'):
    running.run_program(program())


def test_a_checkpoint_that_cannot_be_written_ends_the_program(
  tmp_path, limited_file_size
):
  manager = checkpoints.CheckpointManager(tmp_path)
  state = [np.zeros([10000], np.float32)]

  async def program():
    await manager.save(state, 1)
    tasks = [_task_as_train_model_makes_it(manager.save(state, 2))]
    for _ in range(1000):
      await asyncio.sleep(0.1)
    return tasks

  with (
    limited_file_size(20000),
    pytest.raises(checkpoints.CheckpointError, match='of round 1 cannot be'),
  ):
    running.run_program(program())


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
