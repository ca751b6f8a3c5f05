"""The documentation's pictures are there."""

import pathlib
from xml.etree import ElementTree

import pytest

from scripts import illustrations

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize('name', ['steering', 'estimators', 'core_set'])
def test_pictures_are_committed(name):
  root = ElementTree.parse(ROOT / 'docs' / 'images' / f'{name}.svg').getroot()
  assert root.tag.endswith('svg')
  assert f'def draw_{name}' in pathlib.Path(illustrations.__file__).read_text()


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
