"""Loads a task by its name."""

from typing import Optional

from tasks import cifar10
from tasks import digits
from tasks import emnist
from tasks import fashion_mnist
from tasks import partition as partition_lib
from tasks import task as task_lib
from tasks import validation

TASK_NAMES = ('cifar10', 'digits', 'emnist', 'fashion_mnist')
PARTITION_NAMES = ('bipartite', 'dirichlet', 'iid', 'natural')
EVALUATION_NAMES = ('test', 'validation')

_DEFAULT_MODELS = {
  'cifar10': 'small_resnet',
  'digits': 'mlp',
  'emnist': 'small_cnn',
  'fashion_mnist': 'small_cnn',
}
_DEFAULT_NUM_CLIENTS = 100


def load_task(
  name: str,
  *,
  data_dir: Optional[str] = None,
  partition: str = 'bipartite',
  num_clients: Optional[int] = None,
  gamma: Optional[float] = None,
  class_ratio: Optional[float] = None,
  alpha: Optional[float] = None,
  examples_per_client: Optional[int] = None,
  batch_size: int = 500,
  local_epochs: int = 5,
  model: Optional[str] = None,
  label_set: Optional[str] = None,
  evaluate_on: str = 'test',
  mask_absent_classes: bool = False,
  seed: int = 0,
) -> task_lib.FederatedTask:
  """Loads the data, splits them over clients, and adds a model.

  Args:
    name: 'cifar10', 'digits' (embedded), 'emnist' or 'fashion_mnist'.
    data_dir: Folder with the data, not for 'digits'; None looks in the usual
      places. The tasks' modules say which files.
    partition: 'bipartite', 'dirichlet', 'iid', or 'natural' ('emnist' only:
      the writers).
    num_clients: N. None means 100; with 'natural' all writers, otherwise the
      first N of them, sorted by id.
    gamma: 'bipartite': fraction of clients with common classes; default 0.9.
    class_ratio: 'bipartite': fraction of its group's classes that a client
      owns; default 0.5.
    alpha: 'dirichlet': concentration; default 0.3.
    examples_per_client: Mean number of examples of a client, not for
      'natural'. None uses as many as the data allow.
    batch_size: Largest local batch. With the default of 500 most clients have
      one batch per epoch.
    local_epochs: Passes over a client's data in one round.
    model: One of `models.MODEL_NAMES`; None means 'mlp' for 'digits',
      'small_resnet' for 'cifar10', else 'small_cnn'.
    label_set: 'emnist': 'balanced' (47 classes, the default), 'byclass' (62)
      or 'digits' (10).
    evaluate_on: 'test', or 'validation': a tenth of the training images of each
      class, the same for all seeds, which no client gets then, takes the test
      set's place. For choosing learning rates and the like.
    mask_absent_classes: Trains a client with the logits of classes that it does
      not have set to 0. A quirk of the published experiments, to reproduce them
      only, see `models.with_class_mask`.
    seed: Determines the partition, the initial weights and the order of a
      client's examples.

  Returns:
    The task.

  Raises:
    TypeError: If an argument has the wrong type.
    ValueError: If a name is unknown, an argument is out of range, is given
      although this task or partition has no use for it, or a file is broken.
    FileNotFoundError: If the data are missing.
  """
  if name not in TASK_NAMES:
    raise ValueError(
      f'name must be one of {", ".join(TASK_NAMES)}, found {name!r}'
    )
  if partition not in PARTITION_NAMES:
    raise ValueError(
      f'partition must be one of {", ".join(PARTITION_NAMES)}, found'
      f' {partition!r}'
    )
  if evaluate_on not in EVALUATION_NAMES:
    raise ValueError(
      f'evaluate_on must be one of {", ".join(EVALUATION_NAMES)}, found'
      f' {evaluate_on!r}'
    )
  files = tuple(other for other in TASK_NAMES if other != 'digits')
  _check_used('data_dir', data_dir, name, 'task', files)
  _check_used('label_set', label_set, name, 'task', ('emnist',))
  if partition == 'natural' and name != 'emnist':
    raise ValueError(
      f'partition natural must be used with task emnist, found task {name}'
    )
  for argument, value, users in (
    ('gamma', gamma, ('bipartite',)),
    ('class_ratio', class_ratio, ('bipartite',)),
    ('alpha', alpha, ('dirichlet',)),
    (
      'examples_per_client',
      examples_per_client,
      ('bipartite', 'dirichlet', 'iid'),
    ),
  ):
    _check_used(argument, value, partition, 'partition', users)

  parameters = {
    'task': name,
    'partition': partition,
    'evaluate_on': evaluate_on,
  }
  if name == 'digits':
    data = digits.load()
  elif name == 'cifar10':
    data = cifar10.load(data_dir)
  elif name == 'emnist':
    parameters['label_set'] = _default(label_set, 'balanced')
    data = emnist.load(data_dir, parameters['label_set'])
  else:
    data = fashion_mnist.load(data_dir)
  if evaluate_on == 'validation':
    data = validation.hold_out(data)

  labels, num_classes = data.train_labels, data.num_classes
  if partition == 'natural':
    split = partition_lib.by_owner(labels, data.train_owners, num_clients)
  else:
    num_clients = _default(num_clients, _DEFAULT_NUM_CLIENTS)
    if partition == 'bipartite':
      parameters['gamma'] = _default(gamma, 0.9)
      parameters['class_ratio'] = _default(class_ratio, 0.5)
      split = partition_lib.bipartite(
        labels,
        num_clients,
        parameters['gamma'],
        parameters['class_ratio'],
        examples_per_client,
        seed,
        num_classes,
      )
    elif partition == 'dirichlet':
      parameters['alpha'] = _default(alpha, 0.3)
      split = partition_lib.dirichlet(
        labels,
        num_clients,
        parameters['alpha'],
        examples_per_client,
        seed,
        num_classes,
      )
    else:
      split = partition_lib.iid(labels, num_clients, examples_per_client, seed)
  parameters['num_clients'] = len(split.client_indices)
  parameters['examples_per_client'] = split.examples_per_client
  return task_lib.assemble(
    name,
    data,
    split,
    model=_default(model, _DEFAULT_MODELS[name]),
    batch_size=batch_size,
    local_epochs=local_epochs,
    seed=seed,
    mask_absent_classes=mask_absent_classes,
    parameters=parameters,
  )


def _default(value, default):
  return default if value is None else value


def _check_used(argument, value, found, kind, users) -> None:
  if value is not None and found not in users:
    raise ValueError(
      f'{argument} must be given with {kind} {" or ".join(users)} only,'
      f' found {argument}={value!r} with {kind} {found}'
    )
