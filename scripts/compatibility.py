"""Finds what every algorithm compiles to, and writes it down.

```
python -m scripts.compatibility --output=docs/compatibility.md
```

Every cell of the page is the outcome of an attempt on a small model: a form is
compiled, a model trained, a round with a factory for the correction compared
with one without. Why something fails is known by TensorFlow Federated's own
error; one that is not known ends the program. Takes a few minutes.
"""

import argparse
from collections.abc import Sequence
import sys
import textwrap

from fedsteer_tff import programs
from fedsteer_tff.programs import files
from scripts import compatibility_attempts
from scripts import lasting_output

_PAGE = """# What compiles to what

Forms are what pipelines other than this library's runtime take in place of a
TensorFlow Federated computation. This page is written by
`python -m scripts.compatibility --output=docs/compatibility.md` from what it
finds, and a test repeats every attempt.

Commands that begin with `python -m` run in a clone, after `make install` and
`. .venv/bin/activate`.

## Algorithms

Whole learning processes, `process.next`. "yes" under a form: it compiles from
the process of a Keras model. Under a way of summing: with a
`correction_factory` of all three in one, in place of the plain sum, the same
weights come out. Under the two kinds of model: it trains, and both to the same
weights.

{algorithms}

## Factories for the correction

What the aggregations, without a model around them, compile to. A round with
each of the factories (bounds so wide that they do not matter, noise of 0)
equals the one without. What they are good for is in [privacy.md](privacy.md).

{corrections}

{reasons}

## Running a form

`tff.backends.mapreduce.get_computation_for_map_reduce_form(form)` and
`get_computation_for_distribute_aggregate_form(form)` give a computation with
the signature of `process.next`. TensorFlow Federated's local runtimes refuse
secure sums, and a computation that was made from a form has some that are
empty: use `tff.backends.test.set_sync_test_cpp_execution_context()`, or
`fedsteer_tff.programs.LocalRuntime(simulate_secure_sums=True)`. Nobody calls
`MergeableCompForm` by hand:
`tff.backends.native.set_mergeable_comp_execution_context` compiles to it and
runs it over several executors. `tests/forms/execution_test.py` runs all three,
and compares with the process after each of several rounds.
"""

_COLUMNS = (
  'algorithm',
  '`aggregation`',
  *(f'`{form}`' for form in compatibility_attempts.FORMS),
)
_COLUMNS += (
  *compatibility_attempts.CORRECTIONS,
  'functional model',
  'Keras model',
)


def page(
  algorithm_lines: Sequence[str], correction_lines: Sequence[str]
) -> str:
  """Returns the whole page.

  Args:
    algorithm_lines: One for each of `ALGORITHMS`.
    correction_lines: One for each of `AGGREGATORS`.
  """
  return _PAGE.format(
    algorithms='\n'.join([*_head(_COLUMNS), *algorithm_lines]),
    corrections='\n'.join(
      [
        *_head(['aggregation', *compatibility_attempts.CORRECTIONS]),
        *correction_lines,
      ]
    ),
    reasons='\n\n'.join(
      textwrap.fill(
        f'({reason.mark}) {reason.text}',
        80,
        break_long_words=False,
        break_on_hyphens=False,
      )
      for reason in compatibility_attempts.REASONS
    ),
  )


def _head(columns: Sequence[str]) -> list[str]:
  return [
    compatibility_attempts.table_line(columns),
    f'|{"---|" * len(columns)}',
  ]


def main(argv: Sequence[str]) -> int:
  """Runs the program; returns its exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m scripts.compatibility',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('--output', help='the file; printed if not given')
  options = parser.parse_args(argv[1:])
  with programs.LocalRuntime(simulate_secure_sums=True).activate():
    text = page(
      [
        compatibility_attempts.algorithm_line(algorithm)
        for algorithm in compatibility_attempts.ALGORITHMS
      ],
      [
        compatibility_attempts.correction_line(name)
        for name in compatibility_attempts.AGGREGATORS
      ],
    )
  if options.output:
    files.write_bytes(options.output, text.encode())
  else:
    print(text, end='')
  return 0


if __name__ == '__main__':
  sys.exit(lasting_output.run(main, sys.argv, prints_result=True))
