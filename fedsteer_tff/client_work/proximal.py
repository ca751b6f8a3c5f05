"""FedProx's local training, with a client identity.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020. The
client work of the same name in TFF 0.87 adds mu (w_0 - w) to the gradient,
which is the gradient of the *negative* proximal term and drives clients away
from the global model; so it is not used here.
"""

import collections
from collections.abc import Mapping
from typing import Any, Callable, Optional

import tensorflow as tf
import tensorflow_federated as tff

from fedsteer_tff import arguments
from fedsteer_tff.client_work import client_data
from fedsteer_tff.client_work import identified
from fedsteer_tff.client_work import weight_term
from fedsteer_tff.participation import identity as identity_lib


def build_proximal_client_work(
  model_fn: weight_term.ModelFn,
  optimizer: tff.learning.optimizers.Optimizer,
  *,
  proximal_strength: float,
  client_weighting: str = identity_lib.KNOWN,
  metrics_aggregator: Optional[Callable[..., Any]] = None,
  loop_implementation: Optional[tff.learning.LoopImplementation] = None,
) -> tff.learning.templates.ClientWorkProcess:
  """Builds local training on the loss plus mu / 2 ||w - w_0||^2.

  w_0 is the model that the client starts from. All else is as in
  `build_identified_client_work`.

  Args:
    model_fn: As in `build_identified_client_work`.
    optimizer: The local optimizer.
    proximal_strength: mu > 0.
    client_weighting: 'known' or 'examples'.
    metrics_aggregator: As in `tff.learning.algorithms`.
    loop_implementation: As in `build_identified_client_work`.

  Returns:
    A `ClientWorkProcess`.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If `proximal_strength` is not finite and above 0.
  """
  arguments.check_positive('proximal_strength', proximal_strength)
  mu = proximal_strength
  identified.check_model_fn(model_fn)
  training = identified.build_identified_client_work(
    weight_term.with_term(model_fn, curvature=float(mu)),
    optimizer,
    client_weighting=client_weighting,
    metrics_aggregator=metrics_aggregator,
    loop_implementation=loop_implementation,
  )
  state_type, weights_type, _ = training.next.type_signature.parameter
  data_type = client_data.client_data_type(model_fn)

  @tff.tensorflow.computation(weights_type.member, data_type)
  def add_center(
    weights: tff.learning.models.ModelWeights,
    data: Mapping[str, tf.data.Dataset],
  ) -> collections.OrderedDict[str, Any]:
    slope = tuple(-mu * w for w in weights.trainable)
    return collections.OrderedDict(
      ident=data['ident'],
      data=weight_term.add_slope(model_fn, data['data'], slope),
    )

  @tff.federated_computation(
    state_type,
    weights_type,
    tff.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(
    state: tff.Value, weights: tff.Value, data: tff.Value
  ) -> tff.templates.MeasuredProcessOutput:
    return training.next(
      state, weights, tff.federated_map(add_center, (weights, data))
    )

  return tff.learning.templates.ClientWorkProcess(
    training.initialize,
    next_fn,
    get_hparams_fn=training.get_hparams,
    set_hparams_fn=training.set_hparams,
  )
