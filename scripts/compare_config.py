"""What is compared: the matrix of settings, methods and seeds, from a file.

The file is a JSON object with

```
methods          flags of scripts.train by the method's name
settings         flags of scripts.train by the setting's name
seeds            a list of integers
reference        the method that differences are taken from; 'FedSteer stable'
                 if not given
target_accuracy  numbers by setting: the rounds until then are told; optional
rounds           of every run; left to the settings' flags if not given
sweep            a flag with a list of values: every setting is taken with each
                 of them, to plot the accuracy against the value; optional
```

A run gets the setting's flags, the value of the sweep, and the method's flags,
of which later ones win. Methods with flags that say who takes part
(`--participation`, `--participation_rate`, ...) are taken to differ in that on
purpose.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import re
from typing import Any, Optional

from scripts import train_flags

_REFERENCE = 'FedSteer stable'
_KEYS = (
  'methods',
  'settings',
  'seeds',
  'reference',
  'target_accuracy',
  'rounds',
  'sweep',
)
# What the command itself sets for each run.
_RESERVED = ('seed', 'output_dir', 'data_dir')


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
              for name in map(_flag_name, self.methods[method])
            ),
          )
        )
    return runs

  def _arguments(self, setting: Setting, method: str) -> list[str]:
    arguments = [*setting.flags, *self.methods[method]]
    if self.rounds is not None:
      arguments.append(f'--rounds={self.rounds}')
    return arguments


def load(path: str) -> Comparison:
  """Reads a comparison and checks it, down to the flags of every run.

  Args:
    path: A JSON file, see the module's docstring.

  Raises:
    ConfigError: If it is not a comparison.
  """
  try:
    with open(path, encoding='utf-8') as file:
      content = json.load(file)
  except OSError as e:
    raise ConfigError(f'--config must be a file that can be read: {e}') from e
  except json.JSONDecodeError as e:
    raise ConfigError(f'{path} must hold JSON, found: {e}') from e
  try:
    return parse(content)
  except ConfigError as e:
    raise ConfigError(f'{path}: {e}') from e


def parse(content: Any) -> Comparison:
  """Returns the comparison that the content of a file describes.

  Args:
    content: The JSON value.

  Raises:
    ConfigError: If it is not a comparison.
  """
  if not isinstance(content, dict):
    raise ConfigError(f'the file must hold an object, found {content!r:.60}')
  unknown = sorted(set(content) - set(_KEYS))
  if unknown:
    raise ConfigError(
      f'keys must be among {", ".join(_KEYS)}, found {", ".join(unknown)}'
    )
  for key in ('methods', 'settings', 'seeds'):
    if key not in content:
      raise ConfigError(f'{key} must be given')
  rounds = content.get('rounds')
  if rounds is not None and not (_is_integer(rounds) and rounds >= 1):
    raise ConfigError(f'rounds must be an integer >= 1, found {rounds!r}')
  reserved = _RESERVED + (('rounds',) if rounds is not None else ())
  methods = _named_flags('methods', content['methods'], reserved)
  settings = _named_flags('settings', content['settings'], reserved)
  reference = content.get('reference', _REFERENCE)
  if reference not in methods:
    raise ConfigError(
      f'reference must be one of the methods {", ".join(methods)}, found'
      f' {reference!r}'
    )
  sweep, values = _sweep(content.get('sweep'), methods, reserved)
  comparison = Comparison(
    settings=_settings(
      settings,
      _targets(content.get('target_accuracy'), settings),
      sweep,
      values,
    ),
    methods=methods,
    seeds=check_seeds(content['seeds']),
    reference=reference,
    sweep=sweep,
    rounds=rounds,
  )
  for what, names in (
    ('methods', list(methods)),
    ('settings', [setting.name for setting in comparison.settings]),
  ):
    _check_folders(what, names)
  comparison.runs('unused')
  return comparison


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
    or not all(_is_integer(seed) and seed >= 0 for seed in seeds)
    or len(set(seeds)) < len(seeds)
  ):
    raise ConfigError(
      f'seeds must be different integers >= 0, at least one, found {seeds!r}'
    )
  return tuple(seeds)


def _named_flags(
  what: str, content: Any, reserved: Sequence[str]
) -> dict[str, tuple[str, ...]]:
  """Checks a mapping of names to lists of flags."""
  if not isinstance(content, dict) or not content:
    raise ConfigError(
      f'{what} must be an object of names and lists of flags, found'
      f' {content!r:.60}'
    )
  for name, flags in content.items():
    if not isinstance(flags, list) or not all(
      isinstance(flag, str) and flag.startswith('--') for flag in flags
    ):
      raise ConfigError(
        f'{what}: {name!r} must be a list of flags (--name=value), found'
        f' {flags!r:.60}'
      )
    for flag in flags:
      if _flag_name(flag) in reserved:
        raise ConfigError(
          f'{what}: {name!r} must leave --{_flag_name(flag)} to the'
          f' comparison, found {flag}'
        )
  return {name: tuple(flags) for name, flags in content.items()}


def _sweep(
  content: Any, methods: Mapping[str, Sequence[str]], reserved: Sequence[str]
) -> tuple[Optional[str], list]:
  """Returns the swept flag and its values, or None and [None]."""
  if content is None:
    return None, [None]
  if not isinstance(content, dict) or len(content) != 1:
    raise ConfigError(
      f'sweep must be one flag with a list of values, found {content!r:.60}'
    )
  ((name, values),) = content.items()
  if name in (*reserved, 'rounds', 'task', 'algorithm', 'flagfile'):
    raise ConfigError(f'sweep must not be of {name}')
  if (
    not isinstance(values, list)
    or not values
    or not all(
      isinstance(v, (int, float, str)) and not isinstance(v, bool)
      for v in values
    )
    or len(set(map(str, values))) < len(values)
  ):
    raise ConfigError(
      f'sweep: {name} must have a list of different numbers or strings, found'
      f' {values!r:.60}'
    )
  for method, flags in methods.items():
    if name in map(_flag_name, flags):
      raise ConfigError(
        f'sweep must be of a flag that no method sets, found {name}, which'
        f' {method!r} sets'
      )
  return name, values


def _targets(
  content: Any, settings: Mapping[str, Sequence[str]]
) -> Mapping[str, float]:
  if content is None:
    return {}
  if not isinstance(content, dict):
    raise ConfigError(
      'target_accuracy must be an object of settings and numbers, found'
      f' {content!r:.60}'
    )
  for name, value in content.items():
    if name not in settings:
      raise ConfigError(
        f'target_accuracy must name settings, found {name!r}, which is none'
      )
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
      raise ConfigError(
        f'target_accuracy of {name!r} must be a number in (0, 1], found'
        f' {value!r}'
      )
  return content


def _settings(
  settings: Mapping[str, tuple[str, ...]],
  targets: Mapping[str, float],
  sweep: Optional[str],
  values: Sequence[Any],
) -> tuple[Setting, ...]:
  """Returns the settings, one for each value if a flag is swept."""
  return tuple(
    Setting(
      name=name if sweep is None else f'{name}, {sweep} {value}',
      base=name,
      swept=value,
      flags=flags if sweep is None else (*flags, f'--{sweep}={value}'),
      target_accuracy=targets.get(name),
    )
    for name, flags in settings.items()
    for value in values
  )


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


def _check_folders(what: str, names: Sequence[str]) -> None:
  """Raises `ConfigError` if two names give one folder, or one gives none."""
  seen = {}
  for name in names:
    folder = slug(name)
    if not folder:
      raise ConfigError(
        f'{what} must have names with a letter or digit, found {name!r}'
      )
    if folder in seen:
      raise ConfigError(
        f'{what} must have names that differ in letters and digits, found'
        f' {seen[folder]!r} and {name!r}'
      )
    seen[folder] = name


def _flag_name(flag: str) -> str:
  """Returns the name of the flag that an argument sets."""
  return flag.lstrip('-').partition('=')[0]


def _is_integer(value: Any) -> bool:
  return isinstance(value, int) and not isinstance(value, bool)
