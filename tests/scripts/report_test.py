"""Tests of the page about a run or a comparison."""

import base64
import hashlib
from html import parser as html_parser
import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from scripts import report
from scripts import report_comparison
from scripts import report_run
from scripts import result_folders
from tests.scripts import run_folders

_VOID = {'br', 'hr', 'img', 'link', 'meta'}
_BROWSER = shutil.which('chromium') or shutil.which('google-chrome')
# Writes what the browser made of the page where the test can read it.
_PROBE = """<script>onload = () => document.title = JSON.stringify([
  [...document.images].map(i => i.complete && i.naturalWidth > 100),
  document.documentElement.scrollWidth <= innerWidth]).replaceAll('"', '')
</script></body>"""


class _Page(html_parser.HTMLParser):
  """Checks that tags are closed in order; keeps images and text."""

  def __init__(self, text):
    super().__init__()
    self.open, self.tags, self.images, self.text = [], [], [], []
    self.feed(text)
    self.close()
    assert not self.open

  def handle_starttag(self, tag, attrs):
    self.tags.append(tag)
    if tag == 'img':
      self.images.append(dict(attrs))
    for name, value in attrs:
      assert name not in ('href', 'onclick', 'srcset'), (name, value)
    if tag not in _VOID:
      self.open.append(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    if self.open and self.open[-1] not in ('style', 'title'):
      self.text.append(data)


def _write(folder, tmp_path, capsys):
  output = tmp_path / 'page.html'
  assert report.main(['report', folder, f'--output={output}']) == 0
  assert capsys.readouterr().out.splitlines() == [str(output)]
  return output


@pytest.fixture(
  name='folder', params=['run', 'run in progress', 'comparison', 'sweep']
)
def fixture_folder(request, tmp_path):
  path = tmp_path / 'a <b> & "c"'
  if request.param.startswith('run'):
    return run_folders.write_run(path, complete=request.param == 'run'), 5
  if request.param == 'comparison':
    return run_folders.write_results(path, run_folders.comparison()), 3
  compared = run_folders.comparison(sweep={'participation_rate': [0.05, 0.2]})
  return run_folders.write_results(path, compared), 4


def test_the_page_is_whole_and_needs_nothing_else(folder, tmp_path, capsys):
  path, num_images = folder
  text = _write(path, tmp_path, capsys).read_text(encoding='utf-8')
  page = _Page(text)
  assert text.startswith('<!DOCTYPE html>')
  assert not {'script', 'link', 'iframe'} & set(page.tags)
  assert 'url(' not in text
  assert 'http' not in re.sub('base64,[^"]*', '', text)
  assert len(page.images) == num_images
  for image in page.images:
    assert image['alt']
    kind, _, content = image['src'].partition(',')
    assert kind == 'data:image/svg+xml;base64'
    root = ElementTree.fromstring(base64.b64decode(content))
    assert root.tag.endswith('svg')
  assert 'a <b> & "c"' in ''.join(page.text)


@pytest.mark.slow
@pytest.mark.skipif(
  _BROWSER is None, reason='shows pages in Chromium, which is not installed'
)
@pytest.mark.parametrize('folder', ['run', 'comparison'], indirect=True)
@pytest.mark.parametrize('width', [400, 1200])
def test_a_browser_shows_it(folder, tmp_path, capsys, width):
  path, num_images = folder
  page = _write(path, tmp_path, capsys)
  text = page.read_text(encoding='utf-8').replace('</body>', _PROBE)
  page.write_text(text, encoding='utf-8')
  shown = subprocess.run(
    [
      *(_BROWSER, '--headless', '--no-sandbox', '--disable-gpu'),
      *('--disable-quic', '--no-first-run', '--disable-sync'),
      *('--disable-background-networking', '--disable-component-update'),
      *(f'--user-data-dir={tmp_path}/profile', f'--window-size={width},900'),
      *('--dump-dom', page.as_uri()),
    ],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    timeout=120,
    text=True,
    check=True,
  ).stdout
  (title,) = re.findall('<title>(.*?)</title>', shown)
  assert title == f'[[{",".join(["true"] * num_images)}],true]'


def test_equal_numbers_give_an_equal_page(tmp_path, capsys):
  folder = run_folders.write_run(tmp_path / 'x')
  hashes = {
    hashlib.sha256(_write(folder, tmp_path, capsys).read_bytes()).hexdigest()
    for _ in range(2)
  }
  assert len(hashes) == 1


def test_the_page_is_in_the_folder_if_nothing_else_is_said(tmp_path, capsys):
  folder = run_folders.write_run(tmp_path / 'x')
  assert report.main(['report', folder]) == 0
  assert (tmp_path / 'x' / 'report.html').is_file()
  assert result_folders.kind(folder) is result_folders.Kind.RUN
  capsys.readouterr()


def test_what_cannot_be_reported_is_one_line(tmp_path, capsys):
  assert report.main(['report', str(tmp_path)]) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith('report: error: FOLDER must hold a run')
  folder = run_folders.write_run(tmp_path / 'x')
  nowhere = tmp_path / 'no' / 'page.html'
  assert report.main(['report', folder, f'--output={nowhere}']) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert str(nowhere) in line
  assert report.main(['report', folder, '--output=a\0b']) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith('report: error: --output must be a path, without NUL')


@pytest.mark.parametrize('name', ['config.json', 'summary.json'])
def test_a_damaged_run_is_one_line_that_names_the_file(tmp_path, capsys, name):
  folder = run_folders.write_run(tmp_path / 'x')
  (tmp_path / 'x' / name).write_text('[]')
  assert report.main(['report', folder]) == 2
  (line,) = capsys.readouterr().err.splitlines()
  assert line == (
    f'report: error: {folder}/{name} must hold a JSON object, found a list'
  )


def test_a_run_of_another_program_is_called_by_its_folder(tmp_path):
  folder = run_folders.write_run(tmp_path / 'x')
  (tmp_path / 'x' / 'config.json').write_text('{"flags": {"rounds": 20}}')
  (tmp_path / 'x' / 'summary.json').write_text('{"state_bytes": {"a": 1}}')
  run = result_folders.read_run(folder)
  assert report_run.title(run) == 'x'
  assert 'Complete: 20 rounds' in report_run.page(run)


def _findings(folder, table=None, **options):
  run_folders.write_run(folder, table, **options)
  return report_run.findings(result_folders.read_run(str(folder)))


def test_a_run_is_told_in_sentences(tmp_path):
  found = _findings(tmp_path)
  assert (
    'good',
    'The test accuracy is 0.750 at the end, 0.100 before training.',
  ) in found
  text = ' '.join(sentence for _, sentence in found)
  assert 'take away 75% of the variance' in text
  assert 'misses 40% of the length' in text
  assert '3.0 rounds old on average over the second half' in text
  assert 'the oldest ever was 7' in text
  # Clients 0, 1, 2 and 3 of 6.
  assert '4 different clients took part; 2 of 6 never did.' in text
  assert 'In 1 round nobody took part.' in text
  warnings = [sentence for level, sentence in found if level == 'warning']
  assert warnings == [
    '3 reports in 1 round were left out because they were not finite.'
  ]


def _with(**cells):
  return [dict(row, **cells) for row in run_folders.rows()]


def test_what_is_wrong_is_a_warning(tmp_path):
  worse = _with(variance_estimate=4.0)
  falling = [
    dict(row, test_accuracy=0.9 if row['round'] == 1 else row['test_accuracy'])
    for row in run_folders.rows()
  ]
  for number, (table, message) in enumerate(
    (
      (worse, 'add to the variance (variance ratio 2.00)'),
      (falling, 'was best in round 1, 0.900, and is 0.150 lower'),
      (_with(test_accuracy=0.12), 'has learned next to nothing'),
      (_with(ridge_condition=1e5), 'found 100000: rows of the core set are'),
    )
  ):
    found = _findings(tmp_path / str(number), table)
    (sentence,) = [text for _, text in found if message in text]
    assert ('warning', sentence) in found


def test_methods_without_estimates_are_not_judged_by_them(tmp_path):
  found = _findings(tmp_path, _with(variance_estimate=2.0), algorithm='fedavg')
  assert not [text for _, text in found if 'variance ratio' in text]


def test_a_run_that_was_not_evaluated_is_told_so(tmp_path):
  found = _findings(tmp_path, _with(test_accuracy=''), complete=False)
  assert found[0] == ('note', 'Nothing was evaluated yet.')


def _compared(folder, accuracy=None, **options):
  compared = run_folders.comparison(settings={'easy': []}, target_accuracy={})
  path = run_folders.write_results(folder, compared, accuracy, **options)
  return report_comparison.findings(result_folders.read_results(path))


def test_a_comparison_says_who_is_ahead(tmp_path):
  assert _compared(tmp_path) == [
    (
      'note',
      'easy: FedSteer stable has the highest final accuracy, 0.605, before'
      ' FedAvg with 0.505, ahead with each of 2 seeds.',
    )
  ]


def test_a_lead_that_seeds_do_not_share_is_a_tie(tmp_path):
  def accuracy(run):
    return 0.5 + (0.2 if run.seed else -0.1) * ('Steer' in run.method)

  ((_, text),) = _compared(tmp_path, accuracy)
  assert 'ahead with 1 of 2 seeds only: take it for a tie' in text


def test_missing_runs_are_a_warning(tmp_path):
  found = _compared(tmp_path, leave_out=[3])
  assert [level for level, _ in found] == ['note', 'warning']
  assert found[1][1].startswith('1 of the runs that the tables name are')


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
