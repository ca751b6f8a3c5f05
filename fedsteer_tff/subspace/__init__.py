"""What the FedSteer algorithm is: pure TensorFlow, no federated computation."""

from fedsteer_tff.subspace.candidate_pool import ELIGIBILITIES
from fedsteer_tff.subspace.candidate_pool import FREQUENT
from fedsteer_tff.subspace.candidate_pool import RECEIVED
from fedsteer_tff.subspace.candidate_pool import REPORTING
from fedsteer_tff.subspace.candidate_pool import NewCoreSet
from fedsteer_tff.subspace.candidate_pool import add_reports
from fedsteer_tff.subspace.candidate_pool import admission_scores
from fedsteer_tff.subspace.candidate_pool import admit_reporting
from fedsteer_tff.subspace.candidate_pool import empty_pool
from fedsteer_tff.subspace.candidate_pool import select_from_pool
from fedsteer_tff.subspace.core_objective import core_set_error
from fedsteer_tff.subspace.core_set import CoreSelection
from fedsteer_tff.subspace.core_set import select_core_set
from fedsteer_tff.subspace.core_set import select_core_set_from_vectors
from fedsteer_tff.subspace.diagnostics import condition_number
from fedsteer_tff.subspace.diagnostics import ridge_condition
from fedsteer_tff.subspace.diagnostics import staleness
from fedsteer_tff.subspace.diagnostics import steering_metrics
from fedsteer_tff.subspace.diagnostics import variance_metrics
from fedsteer_tff.subspace.estimator import AFTER_AGGREGATION
from fedsteer_tff.subspace.estimator import BEFORE_AGGREGATION
from fedsteer_tff.subspace.estimator import COORDINATE_REFRESHES
from fedsteer_tff.subspace.estimator import CORRECTION_WEIGHTINGS
from fedsteer_tff.subspace.estimator import INVERSE_PROBABILITY
from fedsteer_tff.subspace.estimator import PARTICIPANT_MEAN
from fedsteer_tff.subspace.estimator import SELF_NORMALIZED
from fedsteer_tff.subspace.estimator import Cohort
from fedsteer_tff.subspace.estimator import Estimate
from fedsteer_tff.subspace.estimator import EstimatorRule
from fedsteer_tff.subspace.estimator import check_choice
from fedsteer_tff.subspace.estimator import estimate_update
from fedsteer_tff.subspace.estimator import named_rule
from fedsteer_tff.subspace.estimator import updated_baseline
from fedsteer_tff.subspace.projection import check_ridge
from fedsteer_tff.subspace.projection import gram_matrix
from fedsteer_tff.subspace.projection import project
from fedsteer_tff.subspace.projection import reconstruct
from fedsteer_tff.subspace.projection import ridge_factor
from fedsteer_tff.subspace.projection import solve_coordinates
from fedsteer_tff.subspace.projection import squared_residuals
from fedsteer_tff.subspace.sketching import check_sketch_size
from fedsteer_tff.subspace.sketching import sketch
from fedsteer_tff.subspace.sketching import sketch_width

__all__ = [
  'AFTER_AGGREGATION',
  'BEFORE_AGGREGATION',
  'COORDINATE_REFRESHES',
  'CORRECTION_WEIGHTINGS',
  'Cohort',
  'CoreSelection',
  'ELIGIBILITIES',
  'Estimate',
  'EstimatorRule',
  'FREQUENT',
  'INVERSE_PROBABILITY',
  'NewCoreSet',
  'PARTICIPANT_MEAN',
  'RECEIVED',
  'REPORTING',
  'SELF_NORMALIZED',
  'add_reports',
  'admission_scores',
  'admit_reporting',
  'check_choice',
  'check_ridge',
  'check_sketch_size',
  'condition_number',
  'core_set_error',
  'empty_pool',
  'estimate_update',
  'gram_matrix',
  'named_rule',
  'project',
  'reconstruct',
  'ridge_condition',
  'ridge_factor',
  'select_core_set',
  'select_core_set_from_vectors',
  'select_from_pool',
  'sketch',
  'sketch_width',
  'solve_coordinates',
  'squared_residuals',
  'staleness',
  'steering_metrics',
  'updated_baseline',
  'variance_metrics',
]
