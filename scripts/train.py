r"""Trains one algorithm on one task and keeps everything in one folder.

```
python -m scripts.train --task=digits --algorithm=fedsteer --gamma=0.9 \
    --rounds=150 --output_dir=runs/x
python -m scripts.train --flagfile=scripts/presets/demo.flags
```

Writes `config.json`, `metrics.csv`, TensorBoard events, checkpoints,
`summary.json` and `accuracy.png` into --output_dir. Ctrl-C ends the run after
the round in progress; the same command resumes it.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import os
import sys
import tempfile
from typing import Any

from absl import flags
from absl import logging

from fedsteer_tff.programs import run_files
from fedsteer_tff.programs import runtime_environment
from scripts import lasting_output
from scripts import result_folders
from scripts import train_flags

_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130


@dataclasses.dataclass(frozen=True)
class _Run:
  """What is decided of a run before its rounds.

  Attributes:
    values: The flags.
    config: Those that determine the run, for `config.json`.
    directory: The `programs.RunDirectory`.
    training: The `train_setup.Training`.
    hashes: Those of the training.
  """

  values: flags.FlagValues
  config: Mapping[str, Any]
  directory: Any
  training: Any
  hashes: Mapping[str, str]


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  try:
    train_flags.parse(argv)
    if flags.FLAGS.deterministic:
      # Of this process, which evaluates; the runtime has its own.
      os.environ.update(runtime_environment.ONE_THREAD)
    return _train(flags.FLAGS)
  except train_flags.FlagError as e:
    return _fail(str(e))
  except KeyboardInterrupt:
    print('\nStopped at once; the same command resumes.', file=sys.stderr)
    return _EXIT_INTERRUPTED


def _fail(message: str) -> int:
  print(f'train: error: {message}', file=sys.stderr)
  return _EXIT_USAGE


def _quiet_libraries() -> None:
  """Keeps the terminal for the progress bar; errors still raise."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  with _stderr_held_back():
    import tensorflow  # noqa: F401
  logging.set_verbosity(logging.ERROR)


@contextlib.contextmanager
def _stderr_held_back() -> Iterator[None]:
  """Drops what is written to stderr, by C++ too; shows it if an error ends it.

  TensorFlow's libraries greet with lines that look like errors and that no log
  level silences without silencing true errors.
  """
  sys.stderr.flush()
  kept = os.dup(2)
  with tempfile.TemporaryFile() as held:
    os.dup2(held.fileno(), 2)
    try:
      yield
    except BaseException:
      held.seek(0)
      with contextlib.suppress(OSError):  # Nobody may be there to read it.
        os.write(kept, held.read())
      raise
    finally:
      os.dup2(kept, 2)
      os.close(kept)


def _train(values: flags.FlagValues) -> int:
  """Trains, resumes or reports, as the output folder demands."""
  _quiet_libraries()
  # Importing TensorFlow takes seconds: not before the flags are known good.
  from fedsteer_tff import programs
  from scripts import reporting

  config = train_flags.config(values)
  directory = programs.RunDirectory(values.output_dir)
  try:
    status = directory.open(
      config,
      may_grow=train_flags.MAY_GROW,
      may_change=train_flags.MAY_CHANGE,
      defaults=train_flags.defaults(),
    )
  except programs.RunDirectoryError as e:
    return _fail(train_flags.explain(e) or str(e))
  try:
    if status is programs.RunStatus.FINISHED:
      print(f'{directory.path} holds this run, complete. Nothing to do.')
      print(reporting.table(directory.read_summary(reporting.SUMMARY)))
      return 0
    return _run(values, config, directory, status)
  except programs.RunDirectoryError as e:
    return _fail(str(e))
  except Exception as e:
    if not programs.is_full_disk(e):
      raise
    return _fail(
      f'{directory.path} cannot be written: {e}; make room, and the same'
      ' command resumes'
    )
  finally:
    directory.close()


def _run(
  values: flags.FlagValues, config: dict[str, Any], directory, status
) -> int:
  """Runs the rounds that are missing."""
  from fedsteer_tff import programs
  from scripts import reporting
  from scripts import train_setup

  # Now, and not after all rounds.
  for suffix in ('', '.tmp'):
    run_files.check_file(f'{_plot_path(directory)}{suffix}')
  result_folders.check_numbers(
    directory.metrics_path, reporting.read_rows(directory.metrics_path)
  )
  try:
    training = train_setup.build(values)
  except (ValueError, TypeError, OSError) as e:
    message = train_flags.explain(e)
    if message is None:
      raise  # Not about a flag: the traceback is needed.
    return _fail(message)
  versions = train_setup.versions()
  if status is programs.RunStatus.UNFINISHED:
    changed = _changed_hashes(values, directory, training)
    if changed:
      return _fail(
        f'the run in {directory.path} was begun with another'
        f' {"; ".join(changed)}: the data or the code have changed; choose'
        ' another output_dir'
      )
    _warn_of_versions(directory.stored_versions(), versions)
    stored = directory.stored_config()
    run_files.check_members(
      directory.config_path,
      stored,
      optional={'workers': list},
      within='flags.',
    )
    _warn_of_workers(stored, config)
  _table(directory, lambda: 0).check_columns(training.process)
  hashes = train_setup.hashes(
    training, seed=values.seed, num_rounds=values.rounds
  )
  directory.commit(config, versions, hashes)
  run = _Run(values, config, directory, training, hashes)

  with programs.Interruption() as interruption:
    try:
      store = programs.Checkpoints(
        directory.checkpoint_dir,
        warn=lambda text: print(f'train: warning: {text}', file=sys.stderr),
      )
      with train_setup.runtime(values).activate() as runtime:
        with contextlib.closing(reporting.ProgressBar()) as bar:
          complete = _rounds(run, store, interruption, runtime, bar)
    except (programs.LocalRuntimeError, programs.RemoteRuntimeError) as e:
      return _fail(f'{e}; the same command {_goes_on(store)}')
    except programs.CheckpointError as e:
      return _fail(str(e))
  return 0 if complete else interruption.exit_code


def _table(directory, resident_mib):
  """Returns what writes `metrics.csv`."""
  from fedsteer_tff import programs

  return programs.MetricsCsv(
    directory.metrics_path, extra_columns={'resident_mib': resident_mib}
  )


def _plot_path(directory) -> str:
  return os.path.join(directory.path, 'accuracy.png')


def _goes_on(store) -> str:
  """Says where a run goes on, from its checkpoints."""
  done = max(store.rounds(), default=0)
  return f'resumes after round {done}' if done else 'begins anew'


def _changed_hashes(values, directory, training) -> list[str]:
  """Returns what differs between the run and how it was begun."""
  from scripts import train_setup

  stored = directory.stored_hashes()  # Empty in runs of earlier versions.
  # Of the rounds that were planned then: there may be more of them now.
  then = train_setup.hashes(
    training,
    seed=values.seed,
    num_rounds=directory.stored_config()[train_flags.MAY_GROW],
  )
  return [
    f'{name.replace("_", " ")} (hash {stored[name]} -> {then[name]})'
    for name in sorted(set(stored) & set(then))
    if stored[name] != then[name]
  ]


def _warn_of_versions(old: dict[str, str], new: dict[str, str]) -> None:
  for name in sorted(set(old) & set(new)):
    if old[name] != new[name]:
      print(
        f'train: warning: the run began with {name} {old[name]}, now'
        f' {new[name]}: the results may differ from an undisturbed run',
        file=sys.stderr,
      )


def _warn_of_workers(old: dict[str, Any], new: dict[str, Any]) -> None:
  # A single worker adds in the same order as this machine alone.
  before, now = (max(1, len(c.get('workers') or ())) for c in (old, new))
  if before != now:
    print(
      f'train: warning: the run was split over {before} workers, now over'
      f' {now}: sums are rounded differently than in an undisturbed run',
      file=sys.stderr,
    )


def _rounds(run: _Run, store, interruption, runtime, bar) -> bool:
  """The rounds inside a TFF runtime; returns whether all are done."""
  from fedsteer_tff import programs
  from fedsteer_tff.programs import memory
  from scripts import reporting

  values, directory, training = run.values, run.directory, run.training
  process, model_fn = training.process, training.task.model_fn
  state = programs.seeded_initial_state(process, model_fn, values.seed)
  evaluate = programs.build_evaluation(model_fn, training.task.test_dataset)
  untrained = evaluate(process.get_model_weights(state))

  restored = store.restore(state)
  if restored is not None:
    state, done = restored
    if done > values.rounds:
      raise run_files.RunDirectoryError(
        f'{directory.path} must hold states of at most --rounds ='
        f' {values.rounds} rounds, found one of {done}'
      )
    if done:
      print(f'Resuming {directory.path} after round {done}.', file=sys.stderr)
  else:
    done = 0
    store.save(state, done)

  state, done = programs.run(
    process,
    training.sampler,
    training.client_data_fn,
    state=state,
    runtime=runtime,
    first_round=done,
    num_rounds=values.rounds,
    forced_clients_fn=training.forced_clients_fn,
    evaluate_fn=evaluate,
    evaluate_every=values.evaluate_every,
    callbacks=[
      _table(
        directory,
        lambda: round(memory.resident_bytes(*runtime.child_pids) / 2**20, 1),
      ),
      programs.TensorBoard(
        directory.tensorboard_dir, flush_every=values.checkpoint_every
      ),
      programs.WarnOfConditioning(
        lambda text: print(f'\ntrain: warning: {text}', file=sys.stderr)
      ),
      programs.SaveCheckpoints(store, values.checkpoint_every),
      bar,
    ],
    stop_requested=lambda: interruption.requested,
  )

  rows = reporting.read_rows(directory.metrics_path)
  if any(row['test_accuracy'] for row in rows):
    reporting.write_plot(
      rows,
      _plot_path(directory),
      title=f'{values.algorithm} on {values.task}',
      untrained_accuracy=untrained['accuracy'],
    )
  if done < values.rounds:
    print(
      f'Stopped after round {done} of {values.rounds}; everything is in'
      f' {directory.path}. The same command resumes.',
      file=sys.stderr,
    )
    return False
  summary = reporting.summarize(
    rows,
    config=run.config,
    hashes=run.hashes,
    untrained=untrained,
    state_bytes=training.state_bytes,
    peak_bytes=memory.peak_resident_bytes(*runtime.child_pids),
  )
  # Last, since it marks the run as complete.
  directory.write_summary(summary)
  print(reporting.table(summary))
  return True


train_flags.define()
flags.adopt_module_key_flags(train_flags.definitions)

if __name__ == '__main__':
  sys.exit(lasting_output.run(main, sys.argv))
