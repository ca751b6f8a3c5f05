"""What MkDocs does with this project's pages beside what its plugins do.

* Equations become MathML, which browsers draw by themselves, so that no script
  has to be fetched or shipped for them.
* Notebooks become pages: `docs/notebooks/x.ipynb` is the page
  `notebooks/x.md`, with the outputs that are stored in it.

The functions whose names begin with `on_` are called by MkDocs; see `hooks` in
mkdocs.yml.
"""

import html as html_lib
import json
import pathlib
import re
from typing import Any

import latex2mathml.converter

_EQUATION = re.compile(
  r'<(?P<tag>span|div) class="arithmatex">'
  r'\\(?P<open>[(\[])(?P<tex>.*?)\\[)\]]'
  r'</(?P=tag)>',
  re.DOTALL,
)


def on_page_content(html: str, **unused_context: Any) -> str:
  """Returns a page's HTML with MathML in place of TeX.

  Args:
    html: With equations as `pymdownx.arithmatex` leaves them.
    **unused_context: What else MkDocs says of the page.
  """
  return _EQUATION.sub(_mathml, html)


def on_files(files: Any, *, config: Any) -> Any:
  """Returns MkDocs' files with a page for each notebook.

  Args:
    files: The files of the docs folder.
    config: MkDocs' configuration.
  """
  from mkdocs.structure import files as files_lib

  for file in list(files):
    if file.src_uri.endswith('.ipynb'):
      content = notebook_page(
        pathlib.Path(file.abs_src_path).read_text('utf-8')
      )
      name = file.src_uri.removesuffix('.ipynb') + '.md'
      files.append(files_lib.File.generated(config, name, content=content))
  return files


def notebook_page(text: str) -> str:
  """Returns a notebook as Markdown.

  Args:
    text: The notebook's JSON. Outputs may be text and PNG images.

  Raises:
    ValueError: If an output is of another kind.
  """
  parts = []
  for cell in json.loads(text)['cells']:
    source = ''.join(cell['source'])
    if cell['cell_type'] == 'markdown':
      parts.append(source)
      continue
    parts.append(f'```python\n{source}\n```')
    parts += [
      _output(output)
      for output in cell['outputs']
      # What libraries have to say is of no interest to readers.
      if output.get('name') != 'stderr'
    ]
  return '\n\n'.join(parts) + '\n'


def _output(output) -> str:
  """An output of a notebook's cell as Markdown."""
  if output['output_type'] == 'stream':
    text = ''.join(output['text']).rstrip('\n')
    return f'```text\n{text}\n```'
  data = output.get('data', {})
  if 'image/png' in data:
    content = ''.join(data['image/png']).replace('\n', '')
    return f'![picture](data:image/png;base64,{content})'
  raise ValueError(
    'outputs of a notebook must be text and PNG images, found'
    f' {output["output_type"]} with {", ".join(data) or "nothing"}'
  )


def _mathml(match: re.Match) -> str:
  display = 'block' if match['open'] == '[' else 'inline'
  tex = html_lib.unescape(match['tex']).strip()
  mathml = latex2mathml.converter.convert(tex, display=display)
  return f'<{match["tag"]} class="arithmatex">{mathml}</{match["tag"]}>'
