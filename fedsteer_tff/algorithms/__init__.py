"""Learning processes, one algorithm a file."""

from fedsteer_tff.algorithms.fedavg import build_fedavg
from fedsteer_tff.algorithms.fedsteer import build_fedsteer
from fedsteer_tff.algorithms.state import CoreSetStatus
from fedsteer_tff.algorithms.state import core_set_status
from fedsteer_tff.algorithms.state import state_size_report
