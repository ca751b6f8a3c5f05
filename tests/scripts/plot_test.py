"""Tests of the pictures of runs and comparisons."""

import pathlib
import subprocess
import sys
from xml.etree import ElementTree

from matplotlib import image
from matplotlib.backends import backend_agg
import numpy as np
import pytest

from scripts import compare_plots
from scripts import plot
from scripts import result_folders
from scripts import run_plots
from tests.scripts import run_folders

ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_A_RUN = {
  'accuracy',
  'participation',
  'residuals',
  'staleness',
  'variance_ratio',
}
ROWS = [
  {name: str(cell) for name, cell in row.items()} for row in run_folders.rows()
]


def _lines(figure, panel=0):
  """Returns x and y of a panel's lines, by their label."""
  return {
    line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
    for line in figure.axes[panel].lines
  }


def test_help_answers_without_tensorflow_or_matplotlib():
  for module in ('plot', 'report'):
    code = f"""
import sys
from scripts import {module}
try:
  {module}.main(['{module}', '--help'])
except SystemExit as e:
  assert not e.code
slow = {{'tensorflow', 'tensorflow_federated', 'matplotlib'}} & set(sys.modules)
assert not slow, slow
"""
    output = subprocess.run(
      [sys.executable, '-c', code],
      cwd=ROOT,
      stdout=subprocess.PIPE,
      text=True,
      check=True,
    ).stdout
    assert f'python -m scripts.{module}' in output
    assert 'FOLDER' in output


def test_all_pictures_of_a_run_are_written(tmp_path, capsys):
  folder = run_folders.write_run(tmp_path / 'x')
  assert plot.main(['plot', folder]) == 0
  written = [pathlib.Path(p) for p in capsys.readouterr().out.splitlines()]
  assert {path.stem for path in written} == OF_A_RUN
  for path in written:
    assert path.parent == tmp_path / 'x'
    pixels = image.imread(path)[..., :3]
    assert min(pixels.shape[:2]) >= 300
    # There is something on the white ground.
    assert (pixels.min(axis=-1) < 0.9).mean() > 0.005


def test_other_formats_go_where_they_should(tmp_path, capsys):
  folder = run_folders.write_run(tmp_path / 'x')
  output = tmp_path / 'deep' / 'er'
  arguments = [folder, f'--output_dir={output}', '--format=svg']
  assert plot.main(['plot', *arguments]) == 0
  capsys.readouterr()
  assert {path.stem for path in output.iterdir()} == OF_A_RUN
  for path in output.iterdir():
    assert ElementTree.parse(path).getroot().tag.endswith('svg')


def test_several_runs_share_their_pictures(tmp_path, capsys):
  folders = [run_folders.write_run(tmp_path / n / '0') for n in ('a', 'b')]
  output = tmp_path / 'pictures'
  assert plot.main(['plot', *folders, f'--output_dir={output}']) == 0
  assert len(capsys.readouterr().out.splitlines()) == len(OF_A_RUN)
  assert {path.stem for path in output.iterdir()} == OF_A_RUN


@pytest.mark.parametrize(
  ('sweep', 'names'),
  [
    (None, {'accuracy', 'variance_ratio', 'accuracy_by_state_bytes'}),
    (
      {'participation_rate': [0.05, 0.2]},
      {
        'accuracy',
        'variance_ratio',
        'accuracy_by_state_bytes',
        'accuracy_by_participation_rate',
      },
    ),
  ],
)
def test_a_comparison_gets_the_plots_of_the_comparison(
  tmp_path, capsys, sweep, names
):
  compared = run_folders.comparison(**({'sweep': sweep} if sweep else {}))
  folder = run_folders.write_results(tmp_path / 'results', compared)
  assert plot.main(['plot', folder, f'--output_dir={tmp_path}/out']) == 0
  capsys.readouterr()
  assert {path.stem for path in (tmp_path / 'out').iterdir()} == names


def test_what_cannot_be_drawn_is_one_line(tmp_path, capsys):
  run = run_folders.write_run(tmp_path / 'x')
  results = run_folders.write_results(
    tmp_path / 'results', run_folders.comparison()
  )
  for folders, message in (
    ([str(tmp_path)], 'FOLDER must hold a run (metrics.csv) or the results'),
    ([run, results], 'FOLDER must be runs, or the results of one comparison'),
    ([results, results], 'FOLDER must be runs, or the results of one'),
    ([run, run], 'FOLDER must be different folders, found'),
  ):
    assert plot.main(['plot', *folders]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('plot: error: ')
    assert message in line


@pytest.mark.parametrize('name', ['config.json', 'summary.json'])
def test_a_damaged_run_is_one_line_that_names_the_file(tmp_path, capsys, name):
  run = run_folders.write_run(tmp_path / 'x')
  (tmp_path / 'x' / name).write_text('{"')
  assert plot.main(['plot', run]) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith(f'plot: error: {run}/{name} must hold JSON, found')


def test_a_path_that_is_none_is_one_line(tmp_path, capsys):
  run = run_folders.write_run(tmp_path / 'x')
  assert plot.main(['plot', run, '--output_dir=a\0b']) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith(
    'plot: error: --output_dir must be a path, without NUL'
  )


def test_the_accuracy_begins_with_the_untrained_model():
  figure = run_plots.accuracy({'x': ROWS}, untrained={'x': 0.1})
  lines = _lines(figure)
  assert lines['test'] == ([0, *range(2, 21, 2)], [0.1] + 10 * [0.75])
  assert lines['training, active clients'][0] == list(range(1, 21))
  both = _lines(run_plots.accuracy({'x': ROWS, 'y': ROWS}))
  assert set(both) == {'x', 'y'}


def test_staleness_has_a_panel_for_rows_and_one_for_clients():
  figure = run_plots.staleness({'x': ROWS})
  assert _lines(figure, 0)['mean'][1] == 10 * [0.0] + 10 * [3.0]
  assert _lines(figure, 1)['mean'][1] == [n / 2 for n in range(1, 21)]
  (band,) = figure.axes[0].collections
  assert band.get_paths()[0].get_extents().y1 == 7.0


def test_residuals_are_evened_out_over_ten_rounds():
  lines = _lines(run_plots.residuals({'x': ROWS}))
  _, smooth = lines['missed (residual)']
  # Round 15: five rounds of 1 and five of 0.4.
  np.testing.assert_allclose(smooth[14], 0.7)
  np.testing.assert_allclose(smooth[19], 0.4)
  assert 'length of the estimate' in lines
  assert 'length of the estimate' not in _lines(
    run_plots.residuals({'x': ROWS, 'y': ROWS})
  )


def test_the_variance_ratio_weights_rounds_by_their_variance():
  rows = [
    {
      'round': '1',
      'variance_estimate': '1',
      'variance_estimate_without_steering': '1',
      'variance_ratio': '1',
    },
    {
      'round': '2',
      'variance_estimate': '2',
      'variance_estimate_without_steering': '11',
      'variance_ratio': '0.18',
    },
    # Nobody reported.
    {
      'round': '3',
      'variance_estimate': '0',
      'variance_estimate_without_steering': '0',
      'variance_ratio': 'nan',
    },
  ]
  assert run_plots.smooth_variance_ratio(rows) == ([1, 2, 3], [1, 0.25, 0.25])
  lines = _lines(run_plots.variance_ratio({'x': rows}))
  assert lines['one round'] == ([1, 2], [1, 0.18])


def test_participation_counts_rounds():
  rows = [{'round': '1', 'cohort': '4 7'}, {'round': '2', 'cohort': '7'}]
  rows.append({'round': '3', 'cohort': ''})
  assert run_plots.participation_counts(rows) == {4: 1, 7: 2}
  assert _lines(run_plots.participation({'x': rows}))['x'] == ([1, 2], [2, 1])


def test_a_run_without_steering_has_fewer_pictures():
  rows = [{'round': str(n), 'test_accuracy': '0.5'} for n in (1, 2)]
  assert set(run_plots.figures({'x': rows})) == {'accuracy'}
  assert run_plots.figures({'x': [{'round': '1'}]}) == {}


@pytest.mark.parametrize('folder', ['methods', 'ablations'])
def test_the_legend_of_many_methods_fits_into_one_panel(folder: str):
  results = result_folders.read_results(str(ROOT / 'docs/results' / folder))
  methods = set(results.comparison.methods)
  assert len(methods) >= 10
  drawn = compare_plots.figures(
    results.comparison, results.runs, results.curves
  )
  for name, fig in drawn.items():
    canvas = backend_agg.FigureCanvasAgg(fig)
    fig.draw(canvas.get_renderer())
    (legend,) = fig.legends
    named = {text.get_text() for text in legend.get_texts()}
    # Only FedSteer and its kind have a variance ratio.
    assert named == methods if name != 'variance_ratio' else named <= methods
    box = legend.get_window_extent()
    assert 0 <= box.x0 and box.x1 <= fig.bbox.x1
    assert 0 <= box.y0


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
