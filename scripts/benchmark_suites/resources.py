"""What else there is to pay: memory, bytes on the wire, time to import."""

import functools
import subprocess
import sys
from typing import Optional

import tensorflow_federated as tff
import tqdm

from fedsteer_tff import client_work
from fedsteer_tff import participation
from fedsteer_tff import programs
from fedsteer_tff.programs import memory
from scripts.benchmark_suites import results
from scripts.benchmark_suites import training

_MEMORY_ROUNDS = 2000
# Of all rounds that are run.
_LARGEST_COHORT = 20


def memory_suite(rounds: Optional[int], small: bool) -> results.Result:
  """Memory over many rounds of Bernoulli cohorts."""
  return _memory(rounds, small)


def memory_one_size_suite(rounds: Optional[int], small: bool) -> results.Result:
  """The same with all cohorts filled up to the same size."""
  return _memory(rounds, small, _LARGEST_COHORT)


def _memory(
  rounds: Optional[int], small: bool, filled_to: Optional[int] = None
) -> results.Result:
  work = training.Work(small)
  rounds = rounds or (60 if small else _MEMORY_ROUNDS)
  probabilities = participation.two_group_probabilities(
    training.POPULATION, rate=0.1, skew=5.0
  )
  data = programs.CohortData(
    functools.cache(
      lambda client_id, p: work.client(client_id, training.POPULATION, p)
    ),
    padding=client_work.padding_client_data(work.spec),
    multiple=filled_to or programs.cohort_multiple(probabilities),
  )
  used, alone = [], []
  bar = tqdm.tqdm(total=rounds, unit='round')

  class Watch(programs.Callback):
    def on_round(self, result: programs.RoundResult) -> None:
      used.append(memory.resident_bytes(*runtime.child_pids))
      alone.append(memory.resident_bytes())
      bar.update()

  process = work.fedsteer(estimator='stable')
  with programs.LocalRuntime().activate() as runtime:
    programs.run(
      process,
      participation.BernoulliSampler(probabilities, seed=0),
      data,
      state=process.initialize(),
      runtime=runtime,
      num_rounds=rounds,
      callbacks=[Watch()],
    )
  bar.close()
  settled = min(50, rounds // 2)
  growth, most = (
    f'{100 * (size / used[settled - 1] - 1):+.1f} %'
    for size in (used[-1], max(used[settled:]))
  )
  return dict(
    headlines={
      f'round {rounds:,} against round {settled}': growth,
      f'the most after round {settled} against it': most,
      'resident at the end': results.mebibytes_text(used[-1]),
    },
    raw=dict(resident_bytes=used, without_runtime_bytes=alone),
  )


def traffic_suite(rounds: Optional[int], small: bool) -> results.Result:
  """What a client of the default design downloads, beside the model."""
  del rounds
  work = training.Work(small)
  bytes_down = {
    name: _download_bytes(process)
    for name, process in (
      ('fedavg', work.fedavg()),
      ('fedsteer', work.fedsteer()),
      ('fedsteer client_projection', work.fedsteer('client_projection')),
    )
  }
  model = training.FLOAT * work.num_weights
  extra = bytes_down['fedsteer'] - bytes_down['fedavg']
  exact = bytes_down['fedsteer client_projection'] - bytes_down['fedavg']
  return dict(
    headlines={
      'download beyond FedAvg’s, default design': (
        f'{100 * extra / model:.2f} % of the model'
      ),
      'the same, client_projection': f'{100 * exact / model:.0f} %',
    },
    raw=dict(weights=work.num_weights, download_bytes=bytes_down),
  )


def _download_bytes(process: tff.learning.templates.LearningProcess) -> int:
  """Returns the bytes that the server sends to each client in a round."""
  form = tff.backends.mapreduce.get_map_reduce_form_for_computation(
    process.next
  )
  return results.type_bytes(form.prepare.type_signature.result)


def import_suite(rounds: Optional[int], small: bool) -> results.Result:
  """Importing the package, beyond TFF."""
  code = (
    'import time, tensorflow_federated; start = time.perf_counter();'
    # Its parts are imported when they are asked for.
    ' import fedsteer_tff; fedsteer_tff.build_fedsteer;'
    ' fedsteer_tff.programs.run; print(time.perf_counter() - start)'
  )
  seconds = [
    float(
      subprocess.run(
        [sys.executable, '-c', code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
      ).stdout
    )
    for _ in range(min(rounds or 5, 1 if small else 5))
  ]
  return dict(
    headlines={'beyond TFF': results.seconds_text(seconds)},
    raw=dict(seconds=seconds),
  )
