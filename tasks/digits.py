"""The embedded task: scikit-learn's handwritten digits, no download needed."""

import numpy as np
from sklearn import datasets

from tasks import task

_TEST_SHARE = 0.2
_SPLIT_SEED = 0


def load() -> task.LabelledImages:
  """Loads 1,797 images of 8x8 pixels, ten classes.

  A fifth of each class is the test set. The split is always the same.

  Returns:
    The images and labels.
  """
  bunch = datasets.load_digits()
  images = bunch.images.astype(np.uint8)[..., np.newaxis]
  labels = bunch.target.astype(np.int64)
  generator = np.random.default_rng(_SPLIT_SEED)
  train, test = [], []
  for c in range(10):
    indices = generator.permutation(np.flatnonzero(labels == c))
    num_test = round(_TEST_SHARE * len(indices))
    test.append(indices[:num_test])
    train.append(indices[num_test:])
  train, test = np.sort(np.concatenate(train)), np.sort(np.concatenate(test))
  return task.LabelledImages(
    train_images=images[train],
    train_labels=labels[train],
    test_images=images[test],
    test_labels=labels[test],
    num_classes=10,
    largest_pixel=16,
  )
