"""The documentation builds as a site that needs no network."""

from html import parser as html_parser
import os
import pathlib
import re
import subprocess
import sys

import pytest

from scripts import docs_hooks

ROOT = pathlib.Path(__file__).resolve().parents[2]

# MkDocs in a process that must not connect to anything.
_BUILD = """
import runpy, socket, sys


def refuse(*arguments):
  raise OSError(f'no network here: {arguments[1:]}')


socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = refuse
runpy.run_module('mkdocs', run_name='__main__')
"""


class _Loads(html_parser.HTMLParser):
  """Collects what a browser loads to show a page."""

  _ATTRIBUTES = {
    'iframe': 'src',
    'img': 'src',
    'link': 'href',
    'script': 'src',
    'source': 'src',
    'video': 'src',
  }
  _LINKS_THAT_LOAD = ('icon', 'modulepreload', 'preload', 'stylesheet')

  def __init__(self):
    super().__init__()
    self.addresses = []

  def handle_starttag(self, tag, attrs):
    attributes = dict(attrs)
    address = attributes.get(self._ATTRIBUTES.get(tag))
    if address is None:
      return
    if tag != 'link' or attributes.get('rel') in self._LINKS_THAT_LOAD:
      self.addresses.append(address)


@pytest.fixture(name='site', scope='module')
def fixture_site(tmp_path_factory):
  folder = tmp_path_factory.mktemp('site')
  log = folder / 'log'
  with open(log, 'w') as output:
    code = subprocess.call(
      [
        *(sys.executable, '-c', _BUILD, 'build', '--strict', '--quiet'),
        *('--site-dir', str(folder / 'site')),
      ],
      cwd=ROOT,
      stdin=subprocess.DEVNULL,
      stdout=output,
      stderr=subprocess.STDOUT,
      env={**os.environ, 'NO_MKDOCS_2_WARNING': '1'},
    )
  assert code == 0, log.read_text()
  return folder / 'site'


@pytest.mark.slow
def test_every_page_is_built_and_loads_nothing_from_elsewhere(site):
  pages = sorted(site.rglob('*.html'))
  sources = sorted((ROOT / 'docs').rglob('*.md'))
  assert len(pages) > len(sources)  # Notebooks and "not found" come to them.
  for page in pages:
    loads = _Loads()
    loads.feed(page.read_text(encoding='utf-8'))
    assert loads.addresses
    for address in loads.addresses:
      if address.startswith('data:image/png;base64,'):
        continue
      assert not re.match('[a-z]+:|//', address), f'{page} loads {address}'
      if page.name != '404.html':  # Its addresses begin at the site's root.
        assert (page.parent / address.partition('?')[0]).exists(), address


@pytest.mark.slow
def test_equations_are_mathml_without_rests_of_tex(site):
  text = (site / 'how_it_works.html').read_text(encoding='utf-8')
  equations = re.findall('<math.*?</math>', text, re.S)
  assert len(equations) > 60
  for equation in equations:
    assert '\\' not in equation
  assert 'class="arithmatex">\\' not in text


@pytest.mark.slow
def test_the_reference_has_every_public_name(site):
  text = ''.join(
    page.read_text(encoding='utf-8') for page in (site / 'api').glob('*.html')
  )
  names = set()
  for init in (ROOT / 'fedsteer_tff').rglob('__init__.py'):
    names |= set(
      re.findall(
        r'^from (fedsteer_tff\.\S+) import (\w+)', init.read_text(), re.M
      )
    )
  functions = {
    f'{module}.{name}'
    for module, name in names
    if name.islower() and '.' in module.partition('.')[2]
  }
  documented = set(re.findall(r'id="(fedsteer_tff\.[\w.]+)"', text))
  assert len(functions) > 40
  assert functions <= documented


def test_a_notebook_becomes_a_page_with_its_outputs():
  notebook = """{"cells": [
    {"cell_type": "markdown", "source": ["# Title\\n", "Text."]},
    {"cell_type": "code", "source": ["print(1)"], "outputs": [
      {"output_type": "stream", "name": "stderr", "text": ["noise"]},
      {"output_type": "stream", "name": "stdout", "text": ["1\\n"]},
      {"output_type": "display_data", "data": {"image/png": "QUJD\\n"}}]}]}"""
  assert docs_hooks.notebook_page(notebook) == (
    '# Title\nText.\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n'
    '![picture](data:image/png;base64,QUJD)\n'
  )


def test_an_output_that_has_no_place_on_a_page_is_refused():
  notebook = """{"cells": [{"cell_type": "code", "source": [], "outputs": [
    {"output_type": "display_data", "data": {"text/html": "<b>"}}]}]}"""
  with pytest.raises(ValueError, match='found display_data with text/html'):
    docs_hooks.notebook_page(notebook)


def test_equations_become_mathml():
  html = docs_hooks.on_page_content(
    '<p>a <span class="arithmatex">\\(p_i &lt; 1\\)</span></p>'
    '<div class="arithmatex">\\[\nx\n\\]</div>'
  )
  assert html.count('<math') == 2
  assert html.count('display="block"') == 1
  assert '<msub><mi>p</mi><mi>i</mi></msub><mo>&lt;</mo><mn>1</mn>' in re.sub(
    '&#x0003C;', '&lt;', html
  )
  assert '\\' not in html


if __name__ == '__main__':
  raise SystemExit(pytest.main([__file__]))
