"""Splitting a labelled set of examples over clients. NumPy only.

Every rule returns indices into the given labels, uses an index at most once,
gives every client at least one example, and depends on its seed alone.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Optional, Union

import numpy as np
import numpy.typing as npt

from fedsteer_tff import arguments

# Products such as 0.29 * 100 fall just short of the integer that is meant.
_ROUNDING = 1e-9
# NumPy's Dirichlet draws do not end for extremely small concentrations.
_SMALLEST_ALPHA = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
  """Which examples each client holds.

  Attributes:
    client_indices: N int64 arrays, indices of the client's examples in the
      order in which the client holds them. Disjoint.
    client_labels: N int64 arrays, the classes of the client: those it was
      given by the rule ('bipartite', in the drawn order), else those that
      occur among its examples, ascending.
    examples_per_client: The mean number of examples of a client.
  """

  client_indices: tuple[np.ndarray, ...]
  client_labels: tuple[np.ndarray, ...]
  examples_per_client: float

  @property
  def num_examples(self) -> np.ndarray:
    """Int64 [N], n_i."""
    return np.array([len(i) for i in self.client_indices], np.int64)


def bipartite(
  labels: npt.ArrayLike,
  num_clients: int,
  gamma: float = 0.9,
  class_ratio: float = 0.5,
  examples_per_client: Optional[int] = None,
  seed: Union[int, np.random.RandomState] = 0,
  num_classes: Optional[int] = None,
) -> Partition:
  """Many clients share the common classes, few hold the rare ones.

  The experimental setting of FedSteer (arXiv 2606.10124). The C classes are
  split at random into C // 2 common and C - C // 2 rare ones, the clients into
  a majority of floor(gamma * N) and a minority. A majority client owns
  max(1, floor(class_ratio * (C // 2))) random common classes, a minority client
  the same fraction of the rare ones.

  The total T = N * examples_per_client is divided evenly over the classes; the
  majority share the common classes' part equally, the minority the rare
  classes' part. So with a large gamma a minority client holds much more than a
  majority client. A client's examples cycle through its classes.

  If one of the groups is empty (gamma 0 or 1, or rounded to that), only the
  other group's classes are used, and T is divided over those alone: the mean
  number of examples of a client stays `examples_per_client`.

  Args:
    labels: Integers [n], the class of every example.
    num_clients: N >= 1.
    gamma: Fraction of clients in the majority, in [0, 1].
    class_ratio: Fraction of its group's classes that a client owns, in (0, 1].
    examples_per_client: Mean number of examples of a client, >= 1. None takes
      a number that fits, while one more would exhaust a class.
    seed: A seed, or the generator to draw from. The order of draws is part of
      the rule: each class's examples, the classes, the clients, then the
      classes of each majority and each minority client.
    num_classes: C >= 2; None means the largest label + 1.

  Returns:
    The `Partition`. A class of which no client is an owner is not used.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If an argument is out of range, or a class has fewer examples
      than its owners need.
  """
  labels, num_classes = _check_labels(labels, num_classes)
  num_clients = arguments.check_integer('num_clients', num_clients, 1)
  if num_classes < 2:
    raise ValueError(f'num_classes must be >= 2, found {num_classes}')
  arguments.check_fraction('gamma', gamma, or_zero=True)
  arguments.check_fraction('class_ratio', class_ratio)
  if examples_per_client is not None:
    examples_per_client = arguments.check_integer(
      'examples_per_client', examples_per_client, 1
    )
  if isinstance(seed, np.random.RandomState):
    generator = seed
  else:
    generator = np.random.RandomState(arguments.check_integer('seed', seed, 0))

  pools = [np.flatnonzero(labels == c) for c in range(num_classes)]
  for pool in pools:
    generator.shuffle(pool)
  classes = np.arange(num_classes)
  generator.shuffle(classes)
  common, rare = np.split(classes, [num_classes // 2])
  clients = np.arange(num_clients)
  generator.shuffle(clients)
  num_majority = math.floor(gamma * num_clients + _ROUNDING)
  majority, minority = np.split(clients, [num_majority])
  owned = [None] * num_clients
  for group, group_classes in ((majority, common), (minority, rare)):
    count = max(1, math.floor(class_ratio * len(group_classes) + _ROUNDING))
    for client in group:
      owned[client] = generator.choice(group_classes, count, replace=False)

  groups = ((majority, common, False), (minority, rare, True))
  available = np.array([len(pool) for pool in pools])
  if examples_per_client is None:
    sizes = _largest_fit(len(labels), num_clients, groups, owned, available)
  else:
    sizes = _bipartite_sizes(examples_per_client, num_clients, groups)
    _check_nonempty(sizes, examples_per_client)
    _check_fits(_needed(sizes, owned, num_classes), available)

  taken = np.zeros(num_classes, np.int64)
  client_indices = []
  for size, own in zip(sizes, owned):
    indices = np.empty(size, np.int64)
    for position, c in enumerate(own):
      places = indices[position :: len(own)]
      places[:] = pools[c][taken[c] : taken[c] + len(places)]
      taken[c] += len(places)
    client_indices.append(indices)
  return Partition(
    tuple(client_indices),
    tuple(own.astype(np.int64) for own in owned),
    float(np.mean(sizes)),
  )


def _bipartite_sizes(examples_per_client, num_clients, groups) -> np.ndarray:
  """Returns the clients' numbers of examples, int64 [N]; some 0 if too few."""
  total = examples_per_client * num_clients
  used = [c for clients, classes, _ in groups if len(clients) for c in classes]
  per_class, left_over = divmod(total, len(used))
  # The left-over examples go to the classes with the lowest ids.
  extra = set(sorted(used)[:left_over])
  sizes = np.zeros(num_clients, np.int64)
  for clients, classes, nearest in groups:
    if not len(clients):
      continue
    share = sum(per_class + (c in extra) for c in classes)
    size = share // len(clients)
    # The published rule rounds the minority's sizes to the nearest integer and
    # leaves the rest to the last client: only as long as there is a rest.
    if nearest and round(share / len(clients)) * (len(clients) - 1) < share:
      size = round(share / len(clients))
    sizes[clients] = size
    sizes[clients[-1]] = share - size * (len(clients) - 1)
  return sizes


def _needed(sizes, owned, num_classes) -> np.ndarray:
  """Returns how many examples of each class the owners take, int64 [C]."""
  needed = np.zeros(num_classes, np.int64)
  for size, own in zip(sizes, owned):
    count, left_over = divmod(int(size), len(own))
    needed[own] += count
    needed[own[:left_over]] += 1
  return needed


def _check_nonempty(sizes, examples_per_client) -> None:
  empty = np.count_nonzero(sizes < 1)
  if empty:
    raise ValueError(
      'examples_per_client must give every client at least one example,'
      f' found {examples_per_client}, which leaves {empty} of'
      f' {len(sizes)} clients empty'
    )


def _check_fits(needed, available) -> None:
  short = np.flatnonzero(needed > available)
  if short.size:
    classes = ', '.join(
      f'class {c} (needed {needed[c]}, available {available[c]})' for c in short
    )
    raise ValueError(
      'examples_per_client needs more examples than there are: found'
      f' {classes}; lower it, or leave it out to use the largest that fits'
    )


def _largest_fit(num_examples, num_clients, groups, owned, available):
  """Returns sizes for a mean that fits while the next one does not."""

  def fits(mean):
    sizes = _bipartite_sizes(mean, num_clients, groups)
    return (_needed(sizes, owned, len(available)) <= available).all()

  # A mean of 0 fits, `high` never does.
  low, high = 0, num_examples // num_clients + 1
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if fits(middle) else (low, middle)
  # If nothing useful fits, complain about the smallest useful mean.
  mean = max(low, 1)
  sizes = _bipartite_sizes(mean, num_clients, groups)
  while sizes.min() < 1 and mean * num_clients <= num_examples:
    mean += 1
    sizes = _bipartite_sizes(mean, num_clients, groups)
  _check_nonempty(sizes, mean)
  _check_fits(_needed(sizes, owned, len(available)), available)
  return sizes


def dirichlet(
  labels: npt.ArrayLike,
  num_clients: int,
  alpha: float = 0.3,
  examples_per_client: Optional[int] = None,
  seed: int = 0,
  num_classes: Optional[int] = None,
) -> Partition:
  """Splits each class by a draw from a symmetric Dirichlet distribution.

  The smaller alpha, the fewer clients share a class, and the more the clients'
  sizes differ. A client that would get nothing takes one example from the
  client that holds most at that time.

  Args:
    labels: Integers [n], the class of every example.
    num_clients: N >= 1.
    alpha: Concentration, finite and >= 0.001: there already, nearly every
      class goes to one client.
    examples_per_client: Mean number of examples of a client, >= 1: a random
      subset is split. None uses all.
    seed: A non-negative integer.
    num_classes: Number of classes; None means the largest label + 1.

  Returns:
    The `Partition`.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If an argument is out of range, or there are too few examples.
  """
  labels, num_classes = _check_labels(labels, num_classes)
  arguments.check_number('alpha', alpha)
  if not math.isfinite(alpha) or alpha < _SMALLEST_ALPHA:
    raise ValueError(
      f'alpha must be finite and >= {_SMALLEST_ALPHA}, found {alpha!r}'
    )
  generator, chosen = _random_subset(
    labels, num_clients, examples_per_client, seed
  )
  parts = [[] for _ in range(num_clients)]
  for c in range(num_classes):
    pool = chosen[labels[chosen] == c]
    shares = generator.dirichlet(np.full(num_clients, float(alpha)))
    ends = np.round(np.cumsum(shares) * len(pool)).astype(np.int64)
    for client, part in enumerate(np.split(pool, ends[:-1])):
      parts[client].append(part)
  clients = [np.concatenate(part) for part in parts]
  sizes = np.array([len(client) for client in clients])
  for empty in np.flatnonzero(sizes == 0):
    donor = int(np.argmax(sizes))
    clients[empty], clients[donor] = clients[donor][-1:], clients[donor][:-1]
    sizes[empty], sizes[donor] = 1, sizes[donor] - 1
  # In random order, so that a batch does not hold one class alone.
  clients = [generator.permutation(client) for client in clients]
  return _partition(clients, labels)


def iid(
  labels: npt.ArrayLike,
  num_clients: int,
  examples_per_client: Optional[int] = None,
  seed: int = 0,
) -> Partition:
  """Shuffles the examples and deals them out evenly.

  Args:
    labels: Integers [n], the class of every example.
    num_clients: N >= 1.
    examples_per_client: Number of examples of a client, >= 1: a random subset
      is split. None uses all; sizes then differ by at most one.
    seed: A non-negative integer.

  Returns:
    The `Partition`.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If an argument is out of range, or there are too few examples.
  """
  labels, _ = _check_labels(labels, None)
  _, chosen = _random_subset(labels, num_clients, examples_per_client, seed)
  return _partition(np.array_split(chosen, num_clients), labels)


def by_owner(
  labels: npt.ArrayLike,
  owners: npt.ArrayLike,
  num_clients: Optional[int] = None,
) -> Partition:
  """Keeps the examples with those who made them.

  Args:
    labels: Integers [n], the class of every example.
    owners: Integers [n], who made it; 0, 1, ... in the order of the clients.
    num_clients: How many owners to keep: the first ones. None keeps all.

  Returns:
    The `Partition`.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If an argument is out of range, there are fewer owners than
      `num_clients`, or one of them has no example.
  """
  labels, _ = _check_labels(labels, None)
  owners = np.asarray(owners)
  if owners.shape != labels.shape:
    raise ValueError(
      'owners must have one entry for each label, found shape'
      f' {owners.shape} for {labels.shape}'
    )
  if not np.issubdtype(owners.dtype, np.integer):
    raise TypeError(f'owners must be integers, found {owners.dtype}')
  if owners.min() < 0:
    raise ValueError(f'owners must be >= 0, found {owners.min()}')
  num_owners = int(owners.max()) + 1
  if num_clients is None:
    num_clients = num_owners
  num_clients = arguments.check_integer('num_clients', num_clients, 1)
  if num_clients > num_owners:
    raise ValueError(
      'num_clients must be <= the number of natural clients'
      f' ({num_owners}), found {num_clients}'
    )
  order = np.argsort(owners, kind='stable')
  ends = np.searchsorted(owners[order], np.arange(1, num_clients + 1))
  clients = np.split(order, ends)[:num_clients]
  for client, indices in enumerate(clients):
    if not len(indices):
      raise ValueError(f'owners must each have an example, {client} has none')
  return _partition(clients, labels)


def _random_subset(
  labels: np.ndarray,
  num_clients: int,
  examples_per_client: Optional[int],
  seed: int,
):
  """Draws which examples are split.

  Args:
    labels: Integers [n].
    num_clients: N, in [1, n].
    examples_per_client: Mean number of examples of a client, >= 1; None for all
      examples.
    seed: A non-negative integer.

  Returns:
    The generator, and the shuffled indices of the examples.

  Raises:
    TypeError: If a number is not an integer.
    ValueError: If one is out of range, or there are too few examples.
  """
  num_clients = arguments.check_integer('num_clients', num_clients, 1)
  generator = np.random.default_rng(arguments.check_integer('seed', seed, 0))
  if num_clients > len(labels):
    raise ValueError(
      f'num_clients must be <= the number of examples ({len(labels)}), found'
      f' {num_clients}'
    )
  chosen = generator.permutation(len(labels))
  if examples_per_client is None:
    return generator, chosen
  total = num_clients * arguments.check_integer(
    'examples_per_client', examples_per_client, 1
  )
  if total > len(labels):
    raise ValueError(
      'examples_per_client * num_clients must be <= the number of examples'
      f' ({len(labels)}), found {examples_per_client} * {num_clients}'
    )
  return generator, chosen[:total]


def _partition(clients: Sequence[np.ndarray], labels: np.ndarray) -> Partition:
  clients = tuple(np.asarray(client, np.int64) for client in clients)
  return Partition(
    clients,
    tuple(np.unique(labels[client]).astype(np.int64) for client in clients),
    float(np.mean([len(client) for client in clients])),
  )


def _check_labels(labels, num_classes: Optional[int]):
  labels = np.asarray(labels)
  if labels.ndim != 1 or not labels.size:
    raise ValueError(
      f'labels must be a vector of at least one entry, found {labels.shape}'
    )
  if not np.issubdtype(labels.dtype, np.integer):
    raise TypeError(f'labels must be integers, found {labels.dtype}')
  found = int(labels.max()) + 1
  if num_classes is None:
    num_classes = found
  num_classes = arguments.check_integer('num_classes', num_classes, 1)
  if labels.min() < 0 or found > num_classes:
    raise ValueError(
      f'labels must be in [0, {num_classes}), found'
      f' {int(labels.min())} ... {found - 1}'
    )
  return labels, num_classes
