"""Seeded random projections that keep inner products.

As in a CountSketch (Charikar, Chen and Farach-Colton, 2002), every entry of a
vector is added to one of `size` buckets with a random sign. To be fast, where
entries go is not drawn for each of them: the vector is cut into rows as long as
the sketch, and row r is added with a random sign, rotated by a random number of
places, after every place's entry got a random sign, the same in all rows. Two
entries of a row never share a bucket; two of different rows do with probability
1 / size. For the same seed E<sk(x), sk(y)> = <x, y> with variance at most
4 ||x||^2 ||y||^2 / size (2 for a CountSketch), at O(D) cost: rows move as
blocks, and of random numbers 2 D / size + size are needed.

Of more than 256 rows, 256 sums are made first: each row is added to one of them
with a random sign, and the sums are sketched as above. That costs one pass
over the vector instead of five, keeps the expectation, and adds at most
2 ||x||^2 ||y||^2 / 256 to the variance, where all rows are alike, and hardly
anything where they are not.

Two uses: clients find their coordinates from the sketch of Q instead of Q
itself, and the server remembers updates in `size` numbers each.
"""

from typing import Union

import tensorflow as tf

from fedsteer_tff import arguments

# Sums that the rows of a long vector are gathered in.
_NUM_SUMS = 256


def check_sketch_size(size: int) -> None:
  """Checks the number of buckets of a sketch.

  Args:
    size: What should be an integer >= 1.

  Raises:
    TypeError: If it is no integer.
    ValueError: If it is below 1.
  """
  arguments.check_integer('sketch_size', size, 1)


def sketch_width(dimension: int, size: int) -> int:
  """Returns the length of a sketch.

  Args:
    dimension: D, the length of the vectors.
    size: Number of buckets, >= 1.

  Returns:
    `size`, or D where that is not longer.
  """
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
  num_rows = -(-dimension // size)
  # Random numbers are drawn anew from the seed wherever they are needed, which
  # is cheaper than to store or to send them.
  if num_rows > _NUM_SUMS:
    rows = _sum_rows(vectors, size, seed)
    num_rows = _NUM_SUMS
  else:
    padded = tf.pad(vectors, [[0, 0], [0, num_rows * size - dimension]])
    rows = tf.reshape(padded, [-1, num_rows, size])
  shifts = _draw(num_rows, seed, 0, size)
  row_signs = _draw_signs(num_rows, seed, 1, vectors.dtype)
  place_signs = _draw_signs(size, seed, 2, vectors.dtype)
  rows = _rotate(rows * place_signs, shifts)
  signs = tf.broadcast_to(row_signs, tf.shape(rows)[:2])
  return tf.linalg.matvec(rows, signs, transpose_a=True)


def _sum_rows(
  vectors: tf.Tensor, size: int, seed: Union[int, tf.Tensor]
) -> tf.Tensor:
  """Adds each of a vector's rows of length `size` to one of the sums.

  Reads the vectors once and makes no copy of them, as long as there is one.

  Args:
    vectors: [n, D].
    size: The rows' length.
    seed: See `sketch`.

  Returns:
    The sums, [n, _NUM_SUMS, size].
  """
  dimension = vectors.shape[-1]
  whole, rest = divmod(dimension, size)
  num_rows = whole + (rest > 0)
  # A sum of the rows that are added, and one of those that are taken off.
  sums = _draw(num_rows, seed, 3, _NUM_SUMS)
  sums += _NUM_SUMS * _draw(num_rows, seed, 4, 2)
  num_vectors, num_sums = tf.shape(vectors)[0], 2 * _NUM_SUMS
  if vectors.shape[0] == 1:  # The beginning of one axis is cut without a copy.
    cut = vectors[0][: whole * size]
  else:
    cut = vectors[:, : whole * size]
  first = num_sums * tf.range(num_vectors)[:, tf.newaxis]
  added = tf.math.unsorted_segment_sum(
    tf.reshape(cut, [-1, size]),
    tf.reshape(first + sums[:whole], [-1]),
    num_sums * num_vectors,
  )
  added = tf.reshape(added, [-1, num_sums, size])
  if rest:
    tail = tf.pad(vectors[:, whole * size :], [[0, 0], [0, size - rest]])
    place = tf.one_hot(sums[whole], num_sums, dtype=vectors.dtype)
    added += place[:, tf.newaxis] * tail[:, tf.newaxis]
  return added[:, :_NUM_SUMS] - added[:, _NUM_SUMS:]


def _draw(
  count: int, seed: Union[int, tf.Tensor], stream: int, maximum: int
) -> tf.Tensor:
  # The algorithm is named, since clients and server must draw the same on
  # whatever device.
  return tf.random.stateless_uniform(
    [count], [seed, stream], maxval=maximum, dtype=tf.int32, alg='philox'
  )


def _draw_signs(
  count: int, seed: Union[int, tf.Tensor], stream: int, dtype: tf.DType
) -> tf.Tensor:
  return tf.cast(2 * _draw(count, seed, stream, 2) - 1, dtype)


def _rotate(rows: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
  """Returns [n, r, size], row r of each matrix rotated right by shifts[r]."""
  _, num_rows, size = rows.shape
  # All rows together may have more entries than 32 bits can count.
  num_vectors = tf.shape(rows, tf.int64)[0]
  # A ragged tensor with two parts for each row, in which the parts that belong
  # together change places: `tf.gather` of single entries takes six times as
  # long as copying parts.
  starts = size * tf.range(num_vectors * num_rows)
  cuts = starts + tf.tile(size - tf.cast(shifts, tf.int64), [num_vectors])
  parts = tf.RaggedTensor.from_row_starts(
    tf.reshape(rows, [-1]),
    tf.reshape(tf.stack([starts, cuts], axis=1), [-1]),
    validate=False,
  )
  order = tf.range(2 * num_vectors * num_rows)
  swapped = tf.bitwise.bitwise_xor(order, 1)
  return tf.reshape(tf.gather(parts, swapped).flat_values, tf.shape(rows))
