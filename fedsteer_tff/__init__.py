"""FedSteer for TensorFlow Federated: training that survives stale clients."""

from typing import TYPE_CHECKING

from fedsteer_tff import _on_demand
from fedsteer_tff._version import __version__
from fedsteer_tff._version_check import check_tff_version

check_tff_version()

if TYPE_CHECKING:
  from fedsteer_tff import aggregators
  from fedsteer_tff import participation
  from fedsteer_tff import programs
  from fedsteer_tff import subspace
  from fedsteer_tff.algorithms import CoreSetStatus
  from fedsteer_tff.algorithms import build_fedavg
  from fedsteer_tff.algorithms import build_fedprox
  from fedsteer_tff.algorithms import build_fedstale
  from fedsteer_tff.algorithms import build_fedsteer
  from fedsteer_tff.algorithms import build_fedvarp
  from fedsteer_tff.algorithms import build_mifa
  from fedsteer_tff.algorithms import build_scaffold
  from fedsteer_tff.algorithms import core_set_status
  from fedsteer_tff.algorithms import estimated_probabilities
  from fedsteer_tff.algorithms import state_size_report
  from fedsteer_tff.client_work import build_client_data
  from fedsteer_tff.client_work import build_identity_dataset
  from fedsteer_tff.client_work import identity_type
  from fedsteer_tff.client_work import padding_client_data

__all__ = [
  'CoreSetStatus',
  '__version__',
  'aggregators',
  'build_client_data',
  'build_fedavg',
  'build_fedprox',
  'build_fedstale',
  'build_fedsteer',
  'build_fedvarp',
  'build_identity_dataset',
  'build_mifa',
  'build_scaffold',
  'core_set_status',
  'estimated_probabilities',
  'identity_type',
  'padding_client_data',
  'participation',
  'programs',
  'state_size_report',
  'subspace',
]

if not TYPE_CHECKING:
  __getattr__ = _on_demand.build_getattr(
    __name__,
    __all__,
    modules=(
      'aggregators',
      'algorithms',
      'client_work',
      'participation',
      'programs',
      'subspace',
    ),
  )


def __dir__() -> list[str]:
  return __all__
