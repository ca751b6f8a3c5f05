"""Local training with a client identity."""

from fedsteer_tff.client_work.client_data import build_client_data
from fedsteer_tff.client_work.client_data import build_identity_dataset
from fedsteer_tff.client_work.client_data import identity_type
from fedsteer_tff.client_work.client_data import padding_client_data
from fedsteer_tff.client_work.identified import build_identified_client_work
