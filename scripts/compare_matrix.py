"""What is compared: the matrix of settings, methods and seeds.

A run gets the setting's flags, the value of the sweep, and the method's flags,
of which later ones win. Methods with flags that say who takes part
(`--participation`, `--participation_rate`, ...) are taken to differ in that on
purpose.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import re
from typing import Any, Optional

from scripts import train_flags


class ConfigError(ValueError):
  """The comparison is not well described; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Setting:
  """One condition under which all methods are compared.

  Attributes:
    name: The name in tables; with a sweep it ends with the value.
    base: The name in the configuration, without the value.
    swept: The value of the swept flag, or None.
    flags: Flags of `scripts.train`.
    target_accuracy: The rounds until it is reached are told, unless None.
  """

  name: str
  base: str
  swept: Any
  flags: tuple[str, ...]
  target_accuracy: Optional[float]


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """One run of the matrix.

  Attributes:
    setting: The setting.
    method: The method's name.
    seed: The seed.
    folder: Where it is kept.
    arguments: Of `scripts.train`.
    config: The flags as `config.json` should have them.
    own_participation: Whether the method decides for itself who takes part.
  """

  setting: Setting
  method: str
  seed: int
  folder: str
  arguments: tuple[str, ...]
  config: Mapping[str, Any]
  own_participation: bool

  @property
  def label(self) -> str:
    """What a person calls the run."""
    return f'{self.setting.name} / {self.method} / seed {self.seed}'

  @property
  def rounds(self) -> int:
    """How many rounds it has."""
    return self.config['rounds']


@dataclasses.dataclass(frozen=True)
class Comparison:
  """The matrix, in the order of the tables.

  Attributes:
    settings: The settings.
    methods: Flags by the method's name.
    seeds: The seeds.
    reference: The method that differences are taken from.
    sweep: The swept flag, or None.
    rounds: Rounds of every run; None leaves them to the settings' flags.
    left_out: What was left out of the configuration's matrix, a phrase each.
  """

  settings: tuple[Setting, ...]
  methods: Mapping[str, tuple[str, ...]]
  seeds: tuple[int, ...]
  reference: str
  sweep: Optional[str] = None
  rounds: Optional[int] = None
  left_out: tuple[str, ...] = ()

  def select(
    self,
    *,
    settings: Optional[Sequence[str]] = None,
    methods: Optional[Sequence[str]] = None,
    seeds: Optional[Sequence[int]] = None,
    rounds: Optional[int] = None,
  ) -> 'Comparison':
    """Returns a part of the matrix, or other seeds or rounds.

    Args:
      settings: Names of settings, or of their folders; None for all.
      methods: Likewise.
      seeds: Any seeds; None for those that there are.
      rounds: Instead of the configuration's.

    Raises:
      ConfigError: If a name is unknown.
    """
    bases = list(dict.fromkeys(setting.base for setting in self.settings))
    chosen_settings = _choose('--settings', settings, bases)
    chosen_methods = _choose('--methods', methods, list(self.methods))
    chosen_seeds = self.seeds if seeds is None else check_seeds(seeds)
    left_out = []
    for what, all_values, chosen in (
      ('setting', bases, chosen_settings),
      ('method', list(self.methods), chosen_methods),
      ('seed', list(self.seeds), chosen_seeds),
    ):
      rest = [str(value) for value in all_values if value not in chosen]
      if rest:
        left_out.append(f'{what} {", ".join(rest)}')
    return dataclasses.replace(
      self,
      settings=tuple(s for s in self.settings if s.base in chosen_settings),
      methods={m: self.methods[m] for m in chosen_methods},
      seeds=tuple(chosen_seeds),
      rounds=self.rounds if rounds is None else rounds,
      left_out=(*self.left_out, *left_out),
    )

  def runs(
    self, output_dir: str, data_dirs: Optional[Mapping[str, str]] = None
  ) -> list[Run]:
    """Returns all runs, in the order in which they should be made.

    Seed by seed, so that what there is can be compared at any time.

    Args:
      output_dir: The folder of all runs; a run is in
        `<setting>/<method>/<seed>` below it, names written as `slug` does.
      data_dirs: Folders with data, by task.

    Raises:
      ConfigError: If `scripts.train` would refuse the flags of a run.
    """
    configs = {}
    for setting in self.settings:
      for method in self.methods:
        arguments = self._arguments(setting, method)
        try:
          config = train_flags.config_of([*arguments, '--output_dir=unused'])
        except train_flags.FlagError as e:
          raise ConfigError(
            f'setting {setting.name!r} with method {method!r}: {e}'
          ) from e
        configs[setting, method] = (arguments, config)
    runs = []
    for seed in self.seeds:
      for (setting, method), (arguments, config) in configs.items():
        folder = os.path.join(
          output_dir, slug(setting.name), slug(method), str(seed)
        )
        own = [f'--seed={seed}', f'--output_dir={folder}']
        if config['task'] in (data_dirs or {}):
          own.append(f'--data_dir={data_dirs[config["task"]]}')
        runs.append(
          Run(
            setting=setting,
            method=method,
            seed=seed,
            folder=folder,
            arguments=(*arguments, *own),
            config=dict(config, seed=seed),
            own_participation=any(
              name in train_flags.SAMPLING_FLAGS
              for name in map(flag_name, self.methods[method])
            ),
          )
        )
    return runs

  def _arguments(self, setting: Setting, method: str) -> list[str]:
    arguments = [*setting.flags, *self.methods[method]]
    if self.rounds is not None:
      arguments.append(f'--rounds={self.rounds}')
    return arguments


def slug(name: str) -> str:
  """Returns a name as it is written in paths."""
  return re.sub('[^a-z0-9.]+', '_', name.lower()).strip('_.')


def check_seeds(seeds: Any) -> tuple[int, ...]:
  """Returns the seeds.

  Args:
    seeds: What should be different integers >= 0, at least one.

  Raises:
    ConfigError: If it is not.
  """
  if (
    not isinstance(seeds, (list, tuple))
    or not seeds
    or not all(is_integer(seed) and seed >= 0 for seed in seeds)
    or len(set(seeds)) < len(seeds)
  ):
    raise ConfigError(
      f'seeds must be different integers >= 0, at least one, found {seeds!r}'
    )
  return tuple(seeds)


def flag_name(flag: str) -> str:
  """Returns the name of the flag that an argument sets."""
  return flag.lstrip('-').partition('=')[0]


def is_integer(value: Any) -> bool:
  """Returns whether a value from a file is an integer."""
  return isinstance(value, int) and not isinstance(value, bool)


def _choose(
  flag: str, chosen: Optional[Sequence[str]], names: Sequence[str]
) -> list[str]:
  """Returns the chosen names in the order of all."""
  if chosen is None:
    return list(names)
  by_any_name = {
    **{slug(name): name for name in names},
    **{n: n for n in names},
  }
  unknown = [name for name in chosen if name not in by_any_name]
  if unknown or not chosen:
    raise ConfigError(
      f'{flag} must be among {", ".join(names)}, found {", ".join(unknown)}'
    )
  wanted = {by_any_name[name] for name in chosen}
  return [name for name in names if name in wanted]
