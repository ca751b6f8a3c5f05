"""Keras models for the tasks.

All end in logits and have no batch normalisation (its running statistics are
not trainable, so they would not be part of a client's update).
"""

from tasks.models.class_mask import with_class_mask
from tasks.models.published import paper_emnist_cnn
from tasks.models.published import paper_fashion_cnn
from tasks.models.registry import MODEL_NAMES
from tasks.models.registry import get_builder
from tasks.models.residual import preact_resnet18
from tasks.models.residual import small_resnet
from tasks.models.small import mlp
from tasks.models.small import small_cnn

__all__ = [
  'MODEL_NAMES',
  'get_builder',
  'mlp',
  'paper_emnist_cnn',
  'paper_fashion_cnn',
  'preact_resnet18',
  'small_cnn',
  'small_resnet',
  'with_class_mask',
]
