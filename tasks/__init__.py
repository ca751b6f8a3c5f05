"""Federated tasks: real data, a partition over clients, a model, metrics."""

from tasks.load import PARTITION_NAMES
from tasks.load import TASK_NAMES
from tasks.load import load_task
from tasks.task import FederatedTask

__all__ = ['FederatedTask', 'PARTITION_NAMES', 'TASK_NAMES', 'load_task']
