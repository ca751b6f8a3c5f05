"""Aggregators that know updates and client ids, and nothing of models."""

from fedsteer_tff.aggregators.designs import DESIGNS
from fedsteer_tff.aggregators.fedsteer import FedSteerFactory
from fedsteer_tff.aggregators.inverse_probability import (
  InverseProbabilityFactory,
)
from fedsteer_tff.aggregators.privacy import correction_epsilon
from fedsteer_tff.aggregators.privacy import private_correction
from fedsteer_tff.aggregators.stale_update import StaleUpdateFactory
from fedsteer_tff.aggregators.value_types import ValueTypeError

__all__ = [
  'DESIGNS',
  'FedSteerFactory',
  'InverseProbabilityFactory',
  'StaleUpdateFactory',
  'ValueTypeError',
  'correction_epsilon',
  'private_correction',
]
