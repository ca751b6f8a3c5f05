"""Models by name."""

from collections.abc import Callable

import tensorflow as tf

from tasks.models import published
from tasks.models import residual
from tasks.models import small

_BUILDERS = {
  'mlp': small.mlp,
  'paper_emnist_cnn': published.paper_emnist_cnn,
  'paper_fashion_cnn': published.paper_fashion_cnn,
  'preact_resnet18': residual.preact_resnet18,
  'small_cnn': small.small_cnn,
  'small_resnet': residual.small_resnet,
}

MODEL_NAMES = tuple(sorted(_BUILDERS))


def get_builder(name: str) -> Callable[..., tf.keras.Model]:
  """Looks up a model by name.

  Args:
    name: One of `MODEL_NAMES`.

  Returns:
    A function (input_shape, num_classes, seed) -> model.

  Raises:
    ValueError: If the name is unknown.
  """
  if name not in _BUILDERS:
    raise ValueError(
      f'model must be one of {", ".join(MODEL_NAMES)}, found {name!r}'
    )
  return _BUILDERS[name]
