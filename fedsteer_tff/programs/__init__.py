"""Running a learning process: the loop, its callbacks and checkpoints."""

from typing import TYPE_CHECKING

from fedsteer_tff import _on_demand

if TYPE_CHECKING:
  from fedsteer_tff.programs.callbacks import MetricsCsv
  from fedsteer_tff.programs.callbacks import SaveCheckpoints
  from fedsteer_tff.programs.callbacks import TensorBoard
  from fedsteer_tff.programs.callbacks import WarnOfConditioning
  from fedsteer_tff.programs.checkpoints import CheckpointError
  from fedsteer_tff.programs.checkpoints import CheckpointManager
  from fedsteer_tff.programs.checkpoints import CheckpointMismatchError
  from fedsteer_tff.programs.checkpoints import Checkpoints
  from fedsteer_tff.programs.client_ids import BernoulliDataSource
  from fedsteer_tff.programs.client_ids import BernoulliDataSourceIterator
  from fedsteer_tff.programs.client_ids import build_client_data_computation
  from fedsteer_tff.programs.client_ids import compose_with_client_ids
  from fedsteer_tff.programs.cohorts import CohortData
  from fedsteer_tff.programs.cohorts import cohort_multiple
  from fedsteer_tff.programs.evaluation import build_evaluation
  from fedsteer_tff.programs.evaluation import seeded_initial_state
  from fedsteer_tff.programs.evaluation import seeded_weights
  from fedsteer_tff.programs.execution import ComputationError
  from fedsteer_tff.programs.files import is_full_disk
  from fedsteer_tff.programs.interruption import Interruption
  from fedsteer_tff.programs.local_runtime import LocalRuntime
  from fedsteer_tff.programs.local_runtime import LocalRuntimeError
  from fedsteer_tff.programs.releases import DurableCsv
  from fedsteer_tff.programs.releases import DurableSavedModels
  from fedsteer_tff.programs.releases import DurableTensorBoard
  from fedsteer_tff.programs.releases import EvaluationLoop
  from fedsteer_tff.programs.releases import Releases
  from fedsteer_tff.programs.remote_runtime import RemoteRuntime
  from fedsteer_tff.programs.remote_runtime import RemoteRuntimeError
  from fedsteer_tff.programs.resident_state import ResidentProcess
  from fedsteer_tff.programs.run_directory import RunDirectory
  from fedsteer_tff.programs.run_directory import RunStatus
  from fedsteer_tff.programs.run_files import RunDirectoryError
  from fedsteer_tff.programs.running import run_program
  from fedsteer_tff.programs.training_loop import Callback
  from fedsteer_tff.programs.training_loop import RoundResult
  from fedsteer_tff.programs.training_loop import run

__all__ = [
  'BernoulliDataSource',
  'BernoulliDataSourceIterator',
  'Callback',
  'CheckpointError',
  'CheckpointManager',
  'CheckpointMismatchError',
  'Checkpoints',
  'CohortData',
  'ComputationError',
  'DurableCsv',
  'DurableSavedModels',
  'DurableTensorBoard',
  'EvaluationLoop',
  'Interruption',
  'LocalRuntime',
  'LocalRuntimeError',
  'MetricsCsv',
  'Releases',
  'RemoteRuntime',
  'RemoteRuntimeError',
  'ResidentProcess',
  'RoundResult',
  'RunDirectory',
  'RunDirectoryError',
  'RunStatus',
  'SaveCheckpoints',
  'TensorBoard',
  'WarnOfConditioning',
  'build_client_data_computation',
  'build_evaluation',
  'cohort_multiple',
  'compose_with_client_ids',
  'is_full_disk',
  'run',
  'run_program',
  'seeded_initial_state',
  'seeded_weights',
]

if not TYPE_CHECKING:
  __getattr__ = _on_demand.build_getattr(
    __name__,
    __all__,
    modules=(
      'callbacks',
      'checkpoints',
      'client_ids',
      'cohorts',
      'evaluation',
      'execution',
      'files',
      'interruption',
      'local_runtime',
      'releases',
      'remote_runtime',
      'resident_state',
      'run_directory',
      'run_files',
      'running',
      'training_loop',
    ),
  )


def __dir__() -> list[str]:
  return __all__
