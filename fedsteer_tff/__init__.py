"""FedSteer for TensorFlow Federated: training that survives stale clients."""

from fedsteer_tff._version import __version__
from fedsteer_tff._version_check import check_tff_version

check_tff_version()

# pylint: disable=wrong-import-position
from fedsteer_tff import aggregators  # noqa: E402
from fedsteer_tff import participation  # noqa: E402
from fedsteer_tff import programs  # noqa: E402
from fedsteer_tff import subspace  # noqa: E402
from fedsteer_tff.algorithms import CoreSetStatus  # noqa: E402
from fedsteer_tff.algorithms import build_fedavg  # noqa: E402
from fedsteer_tff.algorithms import build_fedprox  # noqa: E402
from fedsteer_tff.algorithms import build_fedstale  # noqa: E402
from fedsteer_tff.algorithms import build_fedsteer  # noqa: E402
from fedsteer_tff.algorithms import build_fedvarp  # noqa: E402
from fedsteer_tff.algorithms import build_mifa  # noqa: E402
from fedsteer_tff.algorithms import build_scaffold  # noqa: E402
from fedsteer_tff.algorithms import core_set_status  # noqa: E402
from fedsteer_tff.algorithms import estimated_probabilities  # noqa: E402
from fedsteer_tff.algorithms import state_size_report  # noqa: E402
from fedsteer_tff.client_work import build_client_data  # noqa: E402
from fedsteer_tff.client_work import build_identity_dataset  # noqa: E402
from fedsteer_tff.client_work import identity_type  # noqa: E402
from fedsteer_tff.client_work import padding_client_data  # noqa: E402

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
