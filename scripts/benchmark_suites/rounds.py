"""How long rounds take, and what of it is for states and data."""

from typing import Optional

import tensorflow_federated as tff

import fedsteer_tff
from fedsteer_tff import client_work
from fedsteer_tff import programs
from scripts.benchmark_suites import results
from scripts.benchmark_suites import timing
from scripts.benchmark_suites import training

_ROUNDS = 30


def round_suite(rounds: Optional[int], small: bool) -> results.Result:
  """FedSteer's rounds against FedAvg's."""
  work = training.Work(small)
  fedavg = work.fedavg()
  fedsteer = work.fedsteer()
  # Each in a runtime of its own, for what passes through Python leaves memory
  # behind that what stays in the runtime would have to find its way around.
  with programs.LocalRuntime().activate() as runtime:
    entries = {
      f'{place}, resident': timing.resident(
        process, runtime, work.data_for(place)
      )
      for place, process in (('fedavg', fedavg), ('fedsteer', fedsteer))
    }
    entries['fedavg with identities, resident'] = timing.resident(
      work.fedavg_with_identities(), runtime, work.data_for('fedsteer')
    )
    for size, arguments in (
      (0, dict(core_set=())),
      (
        3 * training.CORE_SET_SIZE,
        dict(core_set_size=3 * training.CORE_SET_SIZE),
      ),
    ):
      entries[f'fedsteer k = {size}, resident'] = timing.resident(
        work.fedsteer(**arguments), runtime, work.data_for('fedsteer')
      )
    stays = timing.interleave(runtime, entries, rounds or _ROUNDS)
  with programs.LocalRuntime().activate() as runtime:
    entries = {
      f'{place}, next': timing.passing(process, work.data_for(place))
      for place, process in (('fedavg', fedavg), ('fedsteer', fedsteer))
    }
    # What it costs at least to get the states in and out.
    entries['fedavg, state passed'] = timing.passed(fedavg)
    entries['fedsteer, state passed'] = timing.passed(fedsteer)
    passes = timing.interleave(runtime, entries, rounds or _ROUNDS)
  times = stays.beside(passes)
  state_bytes = {
    name: results.type_bytes(process.next.type_signature.parameter[0].member)
    for name, process in (('fedavg', fedavg), ('fedsteer', fedsteer))
  }
  return dict(
    headlines={
      'FedSteer / FedAvg, process.next': times.ratio(
        'fedsteer, next', 'fedavg, next'
      ),
      'FedSteer’s state in and out': results.seconds_text(
        times.seconds['fedsteer, state passed']
      ),
      'FedAvg’s state in and out': results.seconds_text(
        times.seconds['fedavg, state passed']
      ),
      'FedSteer / FedAvg, state resident': times.ratio(
        'fedsteer, resident', 'fedavg, resident'
      ),
      'k = 30 / k = 10, state resident': times.ratio(
        'fedsteer k = 30, resident', 'fedsteer, resident'
      ),
      'the same without a core set': times.ratio(
        'fedsteer k = 0, resident', 'fedavg, resident'
      ),
      'FedAvg with identities / FedAvg, state resident': times.ratio(
        'fedavg with identities, resident', 'fedavg, resident'
      ),
      'FedAvg, process.next': results.seconds_text(
        times.seconds['fedavg, next']
      ),
      'FedAvg, state resident': results.seconds_text(
        times.seconds['fedavg, resident']
      ),
    },
    raw=dict(
      weights=work.num_weights,
      clients=training.CLIENTS,
      state_bytes=state_bytes,
      **times.raw(),
    ),
  )


def population_suite(rounds: Optional[int], small: bool) -> results.Result:
  """Rounds with a hundred and with a million clients; the state's bytes."""
  work = training.Work(small)
  few, many = training.POPULATION, 10_000 if small else 1_000_000
  names = {size: f'N = {size:,}' for size in (few, many)}
  with programs.LocalRuntime().activate() as runtime:
    entries = {
      name: timing.resident(
        work.fedsteer(population_size=size, estimator='stable'),
        runtime,
        work.data_for('fedsteer', population_size=size),
      )
      for size, name in names.items()
    }
    times = timing.interleave(runtime, entries, rounds or _ROUNDS)
  large = training.Work(small, dense_model=(100 if small else 1000))
  process = large.fedsteer(population_size=many)
  found = fedsteer_tff.state_size_report(process)
  aggregator = sum(
    size for name, size in found.items() if name.startswith('aggregator/')
  )
  k, weights = training.CORE_SET_SIZE, large.num_weights
  formula = training.FLOAT * (k * weights + many * k + 4 * many)
  return dict(
    headlines={
      f'{names[many]} / {names[few]}, state resident': times.ratio(
        names[many], names[few]
      ),
      f'state, N = {many:,}, D = {weights:,}, k = {k}, over'
      ' 4 (k D + N k + 4 N) bytes': f'{aggregator / formula:.3f}',
    },
    raw=dict(**times.raw(), state_bytes=dict(found), formula_bytes=formula),
  )


def feed_suite(rounds: Optional[int], small: bool) -> results.Result:
  """How long a cohort's data take to the runtime, kept and made anew."""
  work = training.Work(small)
  kept = work.data_for('fedsteer')
  anew = work.data_for('fedsteer', keep=False)
  client_type = client_work.client_data.client_data_type(work.model_fn)

  @tff.federated_computation(tff.FederatedType(client_type, tff.CLIENTS))
  def count(clients):
    @tff.tensorflow.computation(client_type)
    def batches(client):
      return client['data'].reduce(0, lambda total, _: total + 1)

    return tff.federated_sum(tff.federated_map(batches, clients))

  with programs.LocalRuntime().activate() as runtime:
    times = timing.interleave(
      runtime,
      {
        'kept': lambda round_num: count(kept(round_num)),
        'made anew': lambda round_num: count(anew(round_num)),
      },
      rounds or _ROUNDS,
    )
  return dict(
    headlines={
      f'{training.CLIENTS} clients’ data, kept': results.seconds_text(
        times.seconds['kept']
      ),
      f'{training.CLIENTS} clients’ data, made anew': results.seconds_text(
        times.seconds['made anew']
      ),
    },
    raw=dict(**times.raw()),
  )
