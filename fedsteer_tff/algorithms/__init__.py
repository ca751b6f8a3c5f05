"""Learning processes, one algorithm a file."""

from fedsteer_tff.algorithms.fedavg import build_fedavg
from fedsteer_tff.algorithms.fedprox import build_fedprox
from fedsteer_tff.algorithms.fedstale import build_fedstale
from fedsteer_tff.algorithms.fedsteer import build_fedsteer
from fedsteer_tff.algorithms.fedvarp import build_fedvarp
from fedsteer_tff.algorithms.mifa import build_mifa
from fedsteer_tff.algorithms.scaffold import build_scaffold
from fedsteer_tff.algorithms.state import CoreSetStatus
from fedsteer_tff.algorithms.state import core_set_status
from fedsteer_tff.algorithms.state import estimated_probabilities
from fedsteer_tff.algorithms.state import state_size_report

__all__ = [
  'CoreSetStatus',
  'build_fedavg',
  'build_fedprox',
  'build_fedstale',
  'build_fedsteer',
  'build_fedvarp',
  'build_mifa',
  'build_scaffold',
  'core_set_status',
  'estimated_probabilities',
  'state_size_report',
]
