"""Local training with a client identity."""

from fedsteer_tff.client_work.client_data import build_client_data
from fedsteer_tff.client_work.client_data import build_identity_dataset
from fedsteer_tff.client_work.client_data import identity_type
from fedsteer_tff.client_work.client_data import padding_client_data
from fedsteer_tff.client_work.identified import build_identified_client_work
from fedsteer_tff.client_work.identified import check_model_fn
from fedsteer_tff.client_work.identified import check_optimizer
from fedsteer_tff.client_work.proximal import build_proximal_client_work
from fedsteer_tff.client_work.scaffold import build_scaffold_client_work
from fedsteer_tff.client_work.scaffold import check_scaffold_learning_rate

__all__ = [
  'build_client_data',
  'build_identified_client_work',
  'build_identity_dataset',
  'build_proximal_client_work',
  'build_scaffold_client_work',
  'check_model_fn',
  'check_optimizer',
  'check_scaffold_learning_rate',
  'identity_type',
  'padding_client_data',
]
