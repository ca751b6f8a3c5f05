"""The committed page of forms is what attempts find."""

import pathlib

import pytest

from fedsteer_tff import programs
from scripts import compatibility
from scripts import compatibility_attempts
from scripts import train_flags

_PAGE = pathlib.Path(__file__).parents[2] / 'docs' / 'compatibility.md'


@pytest.fixture(name='simulation', scope='module')
def _simulation():
  with programs.LocalRuntime(simulate_secure_sums=True).activate():
    yield


def _lines():
  return _PAGE.read_text(encoding='utf-8').splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
  'algorithm',
  compatibility_attempts.ALGORITHMS,
  ids=lambda a: '-'.join(filter(None, [a.name, a.design])),
)
def test_an_algorithm_compiles_to_what_the_page_says(simulation, algorithm):
  assert compatibility_attempts.algorithm_line(algorithm) in _lines()


@pytest.mark.slow
@pytest.mark.parametrize('name', compatibility_attempts.AGGREGATORS)
def test_factories_of_the_correction_do_what_the_page_says(simulation, name):
  assert compatibility_attempts.correction_line(name) in _lines()


def test_the_rest_of_the_page_is_as_the_script_writes_it():
  lines = _lines()
  tables = [line for line in lines if line.startswith('| ')]
  count = len(compatibility_attempts.ALGORITHMS)
  # The first line of a table has the names of its columns.
  algorithms, corrections = tables[1 : count + 1], tables[count + 2 :]
  assert len(corrections) == len(compatibility_attempts.AGGREGATORS)
  assert compatibility.page(algorithms, corrections) == '\n'.join(lines) + '\n'


def test_all_algorithms_are_on_the_page():
  names = {algorithm.name for algorithm in compatibility_attempts.ALGORITHMS}
  assert names == set(train_flags.ALGORITHMS)


def test_an_error_without_a_known_reason_is_not_written_down_as_no():
  def fail():
    raise ValueError('something else')

  with pytest.raises(ValueError, match='something else'):
    compatibility_attempts.attempt(fail)


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
