"""Running a learning process: the loop, its callbacks and checkpoints."""

from fedsteer_tff.programs.callbacks import (
    MetricsCsv,
    SaveCheckpoints,
    TensorBoard,
)
from fedsteer_tff.programs.checkpoints import Checkpoints
from fedsteer_tff.programs.cohorts import CohortData, cohort_capacity
from fedsteer_tff.programs.evaluation import (
    build_evaluation,
    seeded_initial_state,
)
from fedsteer_tff.programs.interruption import Interruption
from fedsteer_tff.programs.local_runtime import LocalRuntime, LocalRuntimeError
from fedsteer_tff.programs.run_directory import (
    RunDirectory,
    RunDirectoryError,
    RunStatus,
)
from fedsteer_tff.programs.training_loop import Callback, RoundResult, run

__all__ = [
    'Callback',
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
    'cohort_capacity',
    'run',
    'seeded_initial_state',
]
