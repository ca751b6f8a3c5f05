"""The flags of `scripts.train` and the rules between them.

No TensorFlow here: a mistyped flag is reported at once.
"""

from scripts.train_flags.arguments import client_ids
from scripts.train_flags.arguments import given
from scripts.train_flags.arguments import probabilities
from scripts.train_flags.checks import check
from scripts.train_flags.checks import parse
from scripts.train_flags.configuration import MAY_CHANGE
from scripts.train_flags.configuration import MAY_GROW
from scripts.train_flags.configuration import config
from scripts.train_flags.configuration import config_of
from scripts.train_flags.configuration import defaults
from scripts.train_flags.definitions import define
from scripts.train_flags.errors import FlagError
from scripts.train_flags.errors import explain
from scripts.train_flags.groups import ALGORITHM_FLAGS
from scripts.train_flags.groups import ALGORITHMS
from scripts.train_flags.groups import CORRECTION_FLAGS
from scripts.train_flags.groups import ESTIMATE_FLAGS
from scripts.train_flags.groups import FEDSTEER_FLAGS
from scripts.train_flags.groups import SAMPLING_FLAGS
from scripts.train_flags.groups import TASK_FLAGS
from scripts.train_flags.groups import TASKS
from scripts.train_flags.groups import TLS_FLAGS

__all__ = [
  'ALGORITHMS',
  'ALGORITHM_FLAGS',
  'CORRECTION_FLAGS',
  'ESTIMATE_FLAGS',
  'FEDSTEER_FLAGS',
  'FlagError',
  'MAY_CHANGE',
  'MAY_GROW',
  'SAMPLING_FLAGS',
  'TASKS',
  'TASK_FLAGS',
  'TLS_FLAGS',
  'check',
  'client_ids',
  'config',
  'config_of',
  'defaults',
  'define',
  'explain',
  'given',
  'parse',
  'probabilities',
]
