"""Training on real data: FedSteer learns, and better than what it replaces."""

import functools
import statistics

import pytest

import fedsteer_tff
from fedsteer_tff import participation
from fedsteer_tff import programs
import tasks

_ROUNDS = 70
# Not 2: there one of the rare classes has no client at all.
_SEEDS = (0, 1, 3)


class _Accuracies(programs.Callback):
  def __init__(self):
    self.values = []

  def on_round(self, result):
    if result.evaluation is not None:
      self.values.append(result.evaluation['accuracy'])


def _final_accuracy(process, task, seed, runtime):
  """Mean accuracy of the last ten rounds."""
  population = participation.Population(
    task.num_examples, participation.two_group_probabilities(100)
  )

  @functools.cache
  def client_data(client_id, probability):
    return fedsteer_tff.build_client_data(
      client_id,
      task.client_datasets[client_id],
      weight=population.weights[client_id],
      participation_probability=probability,
    )

  run = functools.partial(
    programs.run,
    process,
    participation.BernoulliSampler(
      population.participation_probabilities, seed
    ),
    programs.CohortData(
      client_data,
      padding=fedsteer_tff.padding_client_data(task.element_spec),
      multiple=4,
    ),
    runtime=runtime,
  )
  accuracies = _Accuracies()
  state, done = run(
    state=programs.seeded_initial_state(process, task.model_fn, seed),
    num_rounds=_ROUNDS - 10,
  )
  run(
    state=state,
    first_round=done,
    num_rounds=_ROUNDS,
    evaluate_fn=programs.build_evaluation(task.model_fn, task.test_dataset),
    callbacks=[accuracies],
  )
  assert len(accuracies.values) == 10
  return statistics.mean(accuracies.values)


@pytest.mark.slow
def test_stable_learns_digits_and_beats_inverse_probability_averaging():
  tasks_by_seed = {
    seed: tasks.load_task('digits', examples_per_client=7, seed=seed)
    for seed in _SEEDS
  }
  # One process serves all seeds: they differ in clients, examples and initial
  # weights.
  model_fn = tasks_by_seed[_SEEDS[0]].model_fn
  processes = (
    fedsteer_tff.build_fedsteer(model_fn, 100, estimator='stable'),
    fedsteer_tff.build_fedavg(model_fn, 100),
  )
  with programs.LocalRuntime().activate() as runtime:
    fedsteer, fedavg = (
      [
        _final_accuracy(process, task, seed, runtime)
        for seed, task in tasks_by_seed.items()
      ]
      for process in processes
    )
  assert statistics.mean(fedsteer) > 0.82
  differences = [ours - theirs for ours, theirs in zip(fedsteer, fedavg)]
  assert statistics.mean(differences) > 0.01, (fedsteer, fedavg)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
