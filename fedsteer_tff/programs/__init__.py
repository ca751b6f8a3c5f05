"""Running a learning process: the loop, its callbacks and checkpoints."""

from fedsteer_tff.programs.callbacks import MetricsCsv
from fedsteer_tff.programs.callbacks import SaveCheckpoints
from fedsteer_tff.programs.callbacks import TensorBoard
from fedsteer_tff.programs.checkpoints import CheckpointError
from fedsteer_tff.programs.checkpoints import Checkpoints
from fedsteer_tff.programs.cohorts import CohortData
from fedsteer_tff.programs.evaluation import build_evaluation
from fedsteer_tff.programs.evaluation import seeded_initial_state
from fedsteer_tff.programs.evaluation import seeded_weights
from fedsteer_tff.programs.interruption import Interruption
from fedsteer_tff.programs.local_runtime import LocalRuntime
from fedsteer_tff.programs.local_runtime import LocalRuntimeError
from fedsteer_tff.programs.run_directory import RunDirectory
from fedsteer_tff.programs.run_directory import RunDirectoryError
from fedsteer_tff.programs.run_directory import RunStatus
from fedsteer_tff.programs.training_loop import Callback
from fedsteer_tff.programs.training_loop import RoundResult
from fedsteer_tff.programs.training_loop import run

__all__ = [
  'Callback',
  'CheckpointError',
  'Checkpoints',
  'CohortData',
  'Interruption',
  'LocalRuntime',
  'LocalRuntimeError',
  'MetricsCsv',
  'RoundResult',
  'RunDirectory',
  'RunDirectoryError',
  'RunStatus',
  'SaveCheckpoints',
  'TensorBoard',
  'build_evaluation',
  'run',
  'seeded_initial_state',
  'seeded_weights',
]
