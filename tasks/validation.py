"""A part of the training images to tune on, so that the test set stays unseen.

A learning rate that is chosen by the accuracy on the test set makes that
accuracy too good. NumPy only.
"""

import dataclasses

import numpy as np

from tasks import task

_SHARE = 0.1
# Not the run's seed: all runs are judged by the same images.
_SEED = 0x7E57


def hold_out(data: task.LabelledImages) -> task.LabelledImages:
  """Puts a tenth of each class's training images in place of the test set.

  Which ones depends on the training labels alone. A class of at least two
  images gives at least one and keeps at least one.

  Args:
    data: The examples; the test set is dropped.

  Returns:
    The rest of the training examples, in their order, and as test set those
    that were taken out.

  Raises:
    ValueError: If no class has two images.
  """
  generator = np.random.default_rng(_SEED)
  held_out = np.zeros(len(data.train_labels), bool)
  for c in range(data.num_classes):
    members = generator.permutation(np.flatnonzero(data.train_labels == c))
    count = min(max(1, round(_SHARE * len(members))), len(members) - 1)
    held_out[members[: max(count, 0)]] = True
  if not held_out.any():
    raise ValueError(
      'data must have a class with at least two training images, found none'
    )
  owners = data.train_owners
  return dataclasses.replace(
    data,
    train_images=data.train_images[~held_out],
    train_labels=data.train_labels[~held_out],
    train_owners=None if owners is None else owners[~held_out],
    test_images=data.train_images[held_out],
    test_labels=data.train_labels[held_out],
  )
