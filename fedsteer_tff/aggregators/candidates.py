"""Clients of a round that may enter the core set after it, while it comes in.

The server keeps the updates of the k that should enter first.
"""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def offer(
  candidates: Mapping[str, Any],
  report: Mapping[str, tf.Tensor],
  eligible: tf.Tensor,
) -> collections.OrderedDict[str, Any]:
  """Returns the candidates, at most k, with that of a report if it is better.

  Ids, scores and places are in order of arrival. Every update has a place of
  its own, so that another's arrival does not copy it.

  Args:
    candidates: `id`, `score` and `place` [c], and k `updates` [1, D], or [0, D]
      in a place that nobody has.
    report: See `reports.build_report`.
    eligible: Bool scalar, whether the report is a candidate's.

  Returns:
    The same as `candidates`.
  """
  scores, places = candidates['score'], candidates['place']
  count, most = tf.size(scores), len(candidates['updates'])
  full = count >= most
  # The last of the lowest; there is none before the first arrival.
  latest_first = tf.reverse(tf.concat([scores, [float('inf')]], 0), axis=[0])
  lowest = count - tf.argmin(latest_first, output_type=tf.int32)
  beaten = report['admission_score'] > tf.reduce_min(latest_first)
  enters = eligible & (~full | beaten)
  stays = ~(full & enters & tf.equal(tf.range(count), lowest))
  place = tf.where(full, tf.concat([places, [0]], 0)[lowest], count)

  def listed(name: str, value: tf.Tensor) -> tf.Tensor:
    return append_if(tf.boolean_mask(candidates[name], stays), value, enters)

  def placed(number: int, occupant: tf.Tensor) -> tf.Tensor:
    return tf.cond(
      enters & tf.equal(place, number),
      lambda: report['update'][tf.newaxis],
      lambda: occupant,
    )

  return collections.OrderedDict(
    id=listed('id', report['client_id']),
    score=listed('score', report['admission_score']),
    place=listed('place', place),
    updates=[placed(i, old) for i, old in enumerate(candidates['updates'])],
  )


def merge(
  first: Mapping[str, Any], second: Mapping[str, Any], first_ids: tf.Tensor
) -> collections.OrderedDict[str, Any]:
  """Returns the best of two accumulators' candidates.

  Args:
    first: See `offer`.
    second: Candidates that came later; those whose clients are among
      `first_ids` are left out.
    first_ids: Int32 [n].

  Returns:
    The same as `first`.
  """
  others = ~tf.reduce_any(
    tf.equal(second['id'][:, tf.newaxis], first_ids[tf.newaxis]), axis=1
  )
  return best_of(
    len(first['updates']),
    *(
      tf.concat([ours, tf.boolean_mask(theirs, others)], axis=0)
      for ours, theirs in (
        (first['id'], second['id']),
        (updates_in_order(first), updates_in_order(second)),
        (first['score'], second['score']),
      )
    ),
  )


def updates_in_order(candidates: Mapping[str, Any]) -> tf.Tensor:
  """Returns the candidates' updates in order of arrival.

  Args:
    candidates: See `offer`.

  Returns:
    [c, D].
  """
  places = candidates['place']
  by_place = tf.concat(candidates['updates'], axis=0)
  in_order = tf.reduce_all(tf.equal(places, tf.range(tf.size(places))))
  return tf.cond(
    in_order, lambda: by_place, lambda: tf.gather(by_place, places)
  )


def best_of(
  most: int,
  client_ids: tf.Tensor,
  updates: tf.Tensor,
  scores: tf.Tensor,
) -> collections.OrderedDict[str, Any]:
  """Returns the candidates of the largest scores, in order of arrival.

  Args:
    most: How many.
    client_ids: Int32 [c].
    updates: [c, D].
    scores: [c].

  Returns:
    See `offer`.
  """
  everybody = (client_ids, updates, scores)

  def best() -> tuple[tf.Tensor, ...]:
    places = tf.sort(tf.math.top_k(scores, most).indices)
    return tuple(tf.gather(values, places) for values in everybody)

  client_ids, updates, scores = tf.cond(
    tf.size(scores) > most, best, lambda: everybody
  )
  return collections.OrderedDict(
    id=client_ids,
    score=scores,
    place=tf.range(tf.size(client_ids)),
    updates=[updates[i : i + 1] for i in range(most)],
  )


def append_if(
  values: tf.Tensor, value: tf.Tensor, condition: tf.Tensor
) -> tf.Tensor:
  """Appends a value along the first axis if a condition holds.

  Args:
    values: [n, ...].
    value: [...], of the same dtype.
    condition: Bool scalar.

  Returns:
    [n + 1, ...], with `value` at the end; `values` if it does not hold.
  """
  # A branch: most updates are appended to nothing, and should not be copied.
  return tf.cond(
    condition,
    lambda: tf.concat([values, value[tf.newaxis]], axis=0),
    lambda: values,
  )
