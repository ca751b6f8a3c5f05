"""The notebooks run from top to bottom and give what is stored in them."""

import asyncio
import pathlib

import nbclient
import nbformat
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / 'docs' / 'notebooks').glob('*.ipynb'))


def kinds(notebook):
  """Returns the kinds of outputs of each cell, without what libraries say."""
  return [
    [
      'image/png' if 'image/png' in output.get('data', {}) else output.name
      for output in cell.outputs
      if output.get('name') != 'stderr'
    ]
    for cell in notebook.cells
    if cell.cell_type == 'code'
  ]


@pytest.mark.slow
@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_gives_outputs_of_the_stored_kinds(path):
  stored = nbformat.read(path, as_version=4)
  fresh = nbformat.read(path, as_version=4)
  client = nbclient.NotebookClient(
    fresh,
    timeout=600,
    kernel_name='python3',
    resources={'metadata': {'path': str(path.parent)}},
  )
  asyncio.run(client.async_execute())
  assert kinds(fresh) == kinds(stored)


def test_the_pictures_are_stored():
  (path,) = NOTEBOOKS
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  outputs = [kind for of_cell in kinds(notebook) for kind in of_cell]
  assert outputs == ['stdout', 'stdout'] + 4 * ['image/png']


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
