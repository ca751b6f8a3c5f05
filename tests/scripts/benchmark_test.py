"""Tests for the program that measures what FedSteer costs."""

import json

import pytest

from scripts import benchmark

_TIMED = {
  'round': [
    'fedavg, resident',
    'fedsteer, resident',
    'fedavg with identities, resident',
    'fedsteer k = 0, resident',
    'fedsteer k = 30, resident',
    'fedavg, next',
    'fedsteer, next',
    'fedavg, state passed',
    'fedsteer, state passed',
  ],
  'population': ['N = 100', 'N = 10,000'],
  'aggregation': ['nothing', 'mean', 'sum', 'fedsteer'],
  'large_model': ['nothing', 'mean', 'sum', 'fedsteer'],
  'feed': ['kept', 'made anew'],
}


@pytest.fixture(scope='module', name='measured')
def _measured(tmp_path_factory):
  folder = tmp_path_factory.mktemp('benchmark')
  code = benchmark.main(
    ['benchmark', '--small', '--rounds=2', f'--output_dir={folder}']
  )
  assert code == 0
  content = json.loads((folder / 'benchmark.json').read_text())
  assert content['arguments'] == ['--small', '--rounds=2']
  return content['results']


@pytest.mark.slow
def test_every_suite_has_headlines_and_numbers(measured):
  assert list(measured) == list(benchmark.SUITES)
  for result in measured.values():
    assert result['headlines'] and result['raw']


@pytest.mark.slow
@pytest.mark.parametrize('suite', list(_TIMED))
def test_rounds_are_measured_in_turns(measured, suite):
  raw = measured[suite]['raw']
  assert list(raw['seconds']) == _TIMED[suite]
  for times in (raw['seconds'], raw['cpu_seconds']):
    assert all(len(values) == 2 for values in times.values())
  assert all(x > 0 for values in raw['seconds'].values() for x in values)


@pytest.mark.slow
def test_a_ratio_is_that_of_the_same_rounds(measured):
  seconds = measured['population']['raw']['seconds']
  ratios = sorted(
    b / a for a, b in zip(seconds['N = 100'], seconds['N = 10,000'])
  )
  text = measured['population']['headlines'][
    'N = 10,000 / N = 100, state resident'
  ]
  assert text.startswith(f'{sum(ratios) / 2:.2f} (')


@pytest.mark.slow
def test_figures_that_need_no_clock(measured):
  # k = 10, D = 1 * 10 * 10 + 100, N = 10,000.
  population = measured['population']['raw']
  formula = 4 * (10 * 10_100 + 10_000 * 10 + 4 * 10_000)
  assert population['formula_bytes'] == formula
  # Two numbers a client are kept, not four; 1,024 sketches with two numbers
  # each, and the sketch of Q.
  wanted = formula - 4 * 2 * 10_000 + 4 * (1024 * 386 + 10 * 384)
  total = sum(
    size
    for name, size in population['state_bytes'].items()
    if name.startswith('aggregator/')
  )
  assert wanted <= total <= wanted + 1000
  assert len(set(measured['selection']['raw']['core_set'])) == 5
  traffic = measured['traffic']['raw']
  down, weights = traffic['download_bytes'], traffic['weights']
  # The model and its core set's rows; the rest is a few numbers.
  exact = down['fedsteer client_projection'] - down['fedavg']
  assert 4 * 10 * weights <= exact <= 4 * 10 * weights + 2000
  ratios = measured['residual']['raw']['ratios']
  assert all(0.99 < x < 1.3 for values in ratios.values() for x in values)


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    (
      '--suites=round,speed',
      'argument --suites: must be some of round,population,aggregation,'
      'large_model,memory,memory_one_size,selection,traffic,residual,feed,'
      'import, found',
    ),
    ('--suites=', 'argument --suites: must be some of'),
    ('--rounds=0', "argument --rounds: must be an integer >= 1, found '0'"),
  ],
)
def test_wrong_flags_are_named(capsys, flag, message):
  with pytest.raises(SystemExit) as caught:
    benchmark.main(['benchmark', flag])
  assert caught.value.code == 2
  assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named(tmp_path, capsys):
  path = tmp_path / 'file'
  path.write_text('')
  code = benchmark.main(
    ['benchmark', '--suites=import', f'--output_dir={path}']
  )
  assert code == 2
  assert capsys.readouterr().err.startswith(
    'benchmark: error: --output_dir must be a folder, found '
  )


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
