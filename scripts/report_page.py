"""The parts of a report: one HTML page that needs nothing beside itself."""

import base64
from collections.abc import Iterable, Mapping, Sequence
import html
import io
from typing import Any

# Wider pictures get a row of their own.
_BROAD_INCHES = 8
_STYLE = """
:root { color-scheme: light; --ink: #1d2733; --soft: #5b6875; --line: #dde3ea;
  --back: #f5f7f9; --good: #1a7f4b; --note: #2563a8; --warning: #b4540a; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { max-width: 46rem; margin: .5rem 0; }
.lead { color: var(--soft); margin-bottom: 1.5rem; }
.cards { display: grid; gap: .75rem;
  grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); }
.card, figure, .wide, details { background: #fff;
  border: 1px solid var(--line); border-radius: .5rem; }
.card { padding: .75rem 1rem; }
.card b { display: block; font-size: 1.45rem; line-height: 1.3; }
.card span { color: var(--soft); font-size: .85rem; }
ul.findings { list-style: none; padding: 0; margin: 0; display: grid;
  gap: .6rem; }
ul.findings li { background: #fff; border: 1px solid var(--line);
  border-left: .3rem solid var(--note); border-radius: .35rem;
  padding: .55rem .9rem; }
ul.findings li.good { border-left-color: var(--good); }
ul.findings li.warning { border-left-color: var(--warning); }
.pictures { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); }
figure { margin: 0; padding: .75rem; break-inside: avoid; }
figure.broad { grid-column: 1 / -1; }
figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .875rem; padding: .5rem .25rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .4rem .75rem; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
tr:last-child td { border-bottom: 0; }
details { padding: .5rem 1rem; margin-top: .75rem; }
details .wide { border: 0; margin-top: .5rem; }
summary { cursor: pointer; font-weight: 600; }
footer { color: var(--soft); font-size: .85rem; margin-top: 2.5rem; }
@media print { body { background: #fff; } details { break-inside: avoid; } }
"""


def page(title: str, lead: str, parts: Iterable[str]) -> str:
  """Returns a whole page.

  Args:
    title: Plain text.
    lead: A sentence below it, plain text.
    parts: HTML, from the functions below.
  """
  return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{html.escape(title)}</h1>
<p class="lead">{html.escape(lead)}</p>
{chr(10).join(parts)}
</main>
</body>
</html>
"""


def heading(text: str) -> str:
  """Returns the heading of a section.

  Args:
    text: Plain text.
  """
  return f'<h2>{html.escape(text)}</h2>'


def paragraph(text: str) -> str:
  """Returns a paragraph.

  Args:
    text: Plain text.
  """
  return f'<p>{html.escape(text)}</p>'


def cards(values: Mapping[str, str]) -> str:
  """Returns the numbers that a reader looks for first.

  Args:
    values: What is shown large, by what it is.
  """
  items = ''.join(
    f'<div class="card"><b>{html.escape(value)}</b>'
    f'<span>{html.escape(name)}</span></div>'
    for name, value in values.items()
  )
  return f'<div class="cards">{items}</div>'


def findings(sentences: Sequence[tuple[str, str]]) -> str:
  """Returns a list of what the numbers say.

  Args:
    sentences: Pairs of a level ('good', 'note' or 'warning') and plain text.
  """
  items = ''.join(
    f'<li class="{level}">{html.escape(text)}</li>' for level, text in sentences
  )
  return f'<ul class="findings">{items}</ul>'


def pictures(figures: Mapping[str, Any], captions: Mapping[str, str]) -> str:
  """Returns figures with their captions, the images inside the page.

  Args:
    figures: matplotlib figures by name.
    captions: Plain text by name.
  """
  items = []
  for name, figure in figures.items():
    caption = html.escape(captions.get(name, name.replace('_', ' ')))
    place = ' class="broad"' if figure.get_figwidth() > _BROAD_INCHES else ''
    items.append(
      f'<figure{place}><img alt="{html.escape(name.replace("_", " "))}"'
      f' src="{_data_uri(figure)}"><figcaption>{caption}</figcaption></figure>'
    )
  return f'<div class="pictures">{"".join(items)}</div>'


def table(rows: Sequence[Mapping[str, Any]]) -> str:
  """Returns a table.

  Args:
    rows: Cells by column; at least one row, all with the same columns.
  """
  head = ''.join(f'<th>{html.escape(column)}</th>' for column in rows[0])
  body = ''.join(
    '<tr>'
    + ''.join(f'<td>{html.escape(_text(cell))}</td>' for cell in row.values())
    + '</tr>'
    for row in rows
  )
  return wide(
    f'<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
  )


def wide(content: str) -> str:
  """Returns HTML that scrolls by itself where it is wider than the page.

  Args:
    content: HTML.
  """
  return f'<div class="wide">{content}</div>'


def markdown(text: str) -> str:
  """Returns Markdown with tables as HTML.

  Args:
    text: The Markdown.
  """
  import markdown as markdown_lib  # Not needed by who only asks for --help.

  rendered = markdown_lib.markdown(text, extensions=['tables'])
  return rendered.replace('<table>', '<div class="wide"><table>').replace(
    '</table>', '</table></div>'
  )


def fold(summary: str, content: str) -> str:
  """Returns something that is shown when it is asked for.

  Args:
    summary: What it is, plain text.
    content: HTML.
  """
  return (
    f'<details><summary>{html.escape(summary)}</summary>{content}</details>'
  )


def footer(text: str) -> str:
  """Returns the last line of a page.

  Args:
    text: Plain text.
  """
  return f'<footer>{html.escape(text)}</footer>'


def _data_uri(figure: Any) -> str:
  import matplotlib

  buffer = io.BytesIO()
  # Neither a date nor random names: equal numbers give an equal page.
  with matplotlib.rc_context({'svg.hashsalt': 'report'}):
    figure.savefig(buffer, format='svg', metadata={'Date': None})
  content = base64.b64encode(buffer.getvalue()).decode('ascii')
  return f'data:image/svg+xml;base64,{content}'


def _text(cell: Any) -> str:
  if cell is None:
    return ''
  if isinstance(cell, bool) or not isinstance(cell, (int, float)):
    return str(cell)
  return f'{cell:,}' if isinstance(cell, int) else f'{cell:.6g}'
