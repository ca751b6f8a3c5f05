"""Reading what is compared from a file.

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
"""

from collections.abc import Mapping, Sequence
import json
from typing import Any, Optional

from scripts import compare_matrix

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


def load(path: str) -> compare_matrix.Comparison:
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
    raise compare_matrix.ConfigError(
      f'--config must be a file that can be read: {e}'
    ) from e
  except json.JSONDecodeError as e:
    raise compare_matrix.ConfigError(
      f'{path} must hold JSON, found: {e}'
    ) from e
  try:
    return parse(content)
  except compare_matrix.ConfigError as e:
    raise compare_matrix.ConfigError(f'{path}: {e}') from e


def parse(content: Any) -> compare_matrix.Comparison:
  """Returns the comparison that the content of a file describes.

  Args:
    content: The JSON value.

  Raises:
    ConfigError: If it is not a comparison.
  """
  if not isinstance(content, dict):
    raise compare_matrix.ConfigError(
      f'the file must hold an object, found {content!r:.60}'
    )
  unknown = sorted(set(content) - set(_KEYS))
  if unknown:
    raise compare_matrix.ConfigError(
      f'keys must be among {", ".join(_KEYS)}, found {", ".join(unknown)}'
    )
  for key in ('methods', 'settings', 'seeds'):
    if key not in content:
      raise compare_matrix.ConfigError(f'{key} must be given')
  rounds = content.get('rounds')
  if rounds is not None and not (
    compare_matrix.is_integer(rounds) and rounds >= 1
  ):
    raise compare_matrix.ConfigError(
      f'rounds must be an integer >= 1, found {rounds!r}'
    )
  reserved = _RESERVED + (('rounds',) if rounds is not None else ())
  methods = _named_flags('methods', content['methods'], reserved)
  settings = _named_flags('settings', content['settings'], reserved)
  reference = content.get('reference', _REFERENCE)
  if reference not in methods:
    raise compare_matrix.ConfigError(
      f'reference must be one of the methods {", ".join(methods)}, found'
      f' {reference!r}'
    )
  sweep, values = _sweep(content.get('sweep'), methods, reserved)
  comparison = compare_matrix.Comparison(
    settings=_settings(
      settings,
      _targets(content.get('target_accuracy'), settings),
      sweep,
      values,
    ),
    methods=methods,
    seeds=compare_matrix.check_seeds(content['seeds']),
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


def _named_flags(
  what: str, content: Any, reserved: Sequence[str]
) -> dict[str, tuple[str, ...]]:
  """Checks a mapping of names to lists of flags."""
  if not isinstance(content, dict) or not content:
    raise compare_matrix.ConfigError(
      f'{what} must be an object of names and lists of flags, found'
      f' {content!r:.60}'
    )
  for name, flags in content.items():
    if not isinstance(flags, list) or not all(
      isinstance(flag, str) and flag.startswith('--') for flag in flags
    ):
      raise compare_matrix.ConfigError(
        f'{what}: {name!r} must be a list of flags (--name=value), found'
        f' {flags!r:.60}'
      )
    for flag in flags:
      flag_name = compare_matrix.flag_name(flag)
      if flag_name in reserved:
        raise compare_matrix.ConfigError(
          f'{what}: {name!r} must leave --{flag_name} to the comparison, found'
          f' {flag}'
        )
  return {name: tuple(flags) for name, flags in content.items()}


def _sweep(
  content: Any, methods: Mapping[str, Sequence[str]], reserved: Sequence[str]
) -> tuple[Optional[str], list]:
  """Returns the swept flag and its values, or None and [None]."""
  if content is None:
    return None, [None]
  if not isinstance(content, dict) or len(content) != 1:
    raise compare_matrix.ConfigError(
      f'sweep must be one flag with a list of values, found {content!r:.60}'
    )
  ((name, values),) = content.items()
  if name in (*reserved, 'rounds', 'task', 'algorithm', 'flagfile'):
    raise compare_matrix.ConfigError(f'sweep must not be of {name}')
  if (
    not isinstance(values, list)
    or not values
    or not all(
      isinstance(v, (int, float, str)) and not isinstance(v, bool)
      for v in values
    )
    or len(set(map(str, values))) < len(values)
  ):
    raise compare_matrix.ConfigError(
      f'sweep: {name} must have a list of different numbers or strings, found'
      f' {values!r:.60}'
    )
  for method, flags in methods.items():
    if name in map(compare_matrix.flag_name, flags):
      raise compare_matrix.ConfigError(
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
    raise compare_matrix.ConfigError(
      'target_accuracy must be an object of settings and numbers, found'
      f' {content!r:.60}'
    )
  for name, value in content.items():
    if name not in settings:
      raise compare_matrix.ConfigError(
        f'target_accuracy must name settings, found {name!r}, which is none'
      )
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
      raise compare_matrix.ConfigError(
        f'target_accuracy of {name!r} must be a number in (0, 1], found'
        f' {value!r}'
      )
  return content


def _settings(
  settings: Mapping[str, tuple[str, ...]],
  targets: Mapping[str, float],
  sweep: Optional[str],
  values: Sequence[Any],
) -> tuple[compare_matrix.Setting, ...]:
  """Returns the settings, one for each value if a flag is swept."""
  return tuple(
    compare_matrix.Setting(
      name=name if sweep is None else f'{name}, {sweep} {value}',
      base=name,
      swept=value,
      flags=flags if sweep is None else (*flags, f'--{sweep}={value}'),
      target_accuracy=targets.get(name),
    )
    for name, flags in settings.items()
    for value in values
  )


def _check_folders(what: str, names: Sequence[str]) -> None:
  """Raises `ConfigError` if two names give one folder, or one gives none."""
  seen = {}
  for name in names:
    folder = compare_matrix.slug(name)
    if not folder:
      raise compare_matrix.ConfigError(
        f'{what} must have names with a letter or digit, found {name!r}'
      )
    if folder in seen:
      raise compare_matrix.ConfigError(
        f'{what} must have names that differ in letters and digits, found'
        f' {seen[folder]!r} and {name!r}'
      )
    seen[folder] = name
