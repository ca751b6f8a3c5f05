"""Seeded random projections that keep inner products.

A CountSketch (Charikar, Chen and Farach-Colton, 2002) adds every entry of a
vector, with a random sign, to one of `size` buckets. For the same seed
E<sk(x), sk(y)> = <x, y> with variance at most 2 ||x||^2 ||y||^2 / size, and it
costs O(D). Two uses: clients find their coordinates from the sketch of Q
instead of Q itself, and the warm-up remembers updates in `size` numbers each.
"""

from typing import Union

import tensorflow as tf


def check_sketch_size(size: int) -> None:
  """Raises ValueError unless `size` is a positive integer."""
  if isinstance(size, bool) or not isinstance(size, int) or size < 1:
    raise ValueError(f'sketch_size must be an integer >= 1, found {size!r}')


def sketch_width(dimension: int, size: int) -> int:
  """Returns the length of a sketch: `size`, or D where that is not longer."""
  return min(dimension, size)


def sketch(
  vectors: tf.Tensor, size: int, seed: Union[int, tf.Tensor] = 0
) -> tf.Tensor:
  """Sketches the rows of `vectors`.

  Args:
    vectors: Float [n, D] with a static D.
    size: Number of buckets. A vector that is not longer than this is returned
      as it is: its sketch is exact.
    seed: Sketches are comparable if they have the same seed, size and D.

  Returns:
    Float [n, min(D, size)].

  Raises:
    ValueError: If `size` is not a positive integer.
  """
  check_sketch_size(size)
  vectors = tf.convert_to_tensor(vectors)
  dimension = vectors.shape[-1]
  if dimension <= size:
    return vectors
  # Drawn anew from the seed wherever they are needed: D integers are cheaper
  # to make than to store or to send. The algorithm is named, since clients and
  # server must draw the same on whatever device.
  buckets = tf.random.stateless_uniform(
    [dimension], [seed, 0], maxval=size, dtype=tf.int32, alg='philox'
  )
  bits = tf.random.stateless_uniform(
    [dimension], [seed, 1], maxval=2, dtype=tf.int32, alg='philox'
  )
  signs = tf.cast(2 * bits - 1, vectors.dtype)
  sums = tf.math.unsorted_segment_sum(
    tf.transpose(vectors * signs), buckets, size
  )
  return tf.transpose(sums)
