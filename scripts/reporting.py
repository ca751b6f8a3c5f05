"""What a person sees of a run: progress bar, summary table and plot."""

from collections.abc import Mapping, Sequence
import io
import math
import statistics
import sys
from typing import Any, Optional

from fedsteer_tff.programs import files
from fedsteer_tff.programs import metrics_table
from fedsteer_tff.programs import training_loop
from scripts import result_folders
from scripts import run_plots

# Kinds of what `table` needs of a `summary.json`.
SUMMARY = {
  'rounds': int,
  'final_test_accuracy': float,
  'evaluations_averaged': int,
  'untrained_test_accuracy': float,
  'state_bytes': dict[str, int],
  'seconds_per_round_median': float,
  'seconds_total': float,
  'peak_resident_mib': float,
}


class ProgressBar(training_loop.Callback):
  """A line on stderr with the round, the loss and the accuracy."""

  def __init__(self):
    """Prints nothing yet."""
    self._bar = None
    self._test_accuracy = None

  def on_start(self, round_num: int, num_rounds: int) -> None:
    """Draws the bar."""
    import tqdm  # Imported here: only this class needs it.

    self._bar = tqdm.tqdm(
      total=num_rounds,
      initial=round_num,
      unit='round',
      dynamic_ncols=True,
      # A file gets a line now and then instead of an animation.
      mininterval=0.1 if sys.stderr.isatty() else 10.0,
    )

  def on_round(self, result: training_loop.RoundResult) -> None:
    """Moves the bar."""
    if result.evaluation is not None:
      self._test_accuracy = result.evaluation.get('accuracy')
    numbers = {
      'loss': result.metrics.get('loss'),
      'accuracy': result.metrics.get('accuracy'),
      'test accuracy': self._test_accuracy,
    }
    self._bar.set_postfix_str(
      ', '.join(
        f'{name} {value:.3f}'
        for name, value in numbers.items()
        # Where nobody took part there is no loss.
        if value is not None and not math.isnan(value)
      ),
      refresh=False,
    )
    self._bar.update()

  def on_end(self, state: Any, round_num: int) -> None:
    """Leaves the bar as it is."""
    del state, round_num
    self.close()

  def close(self) -> None:
    """Ends the bar's line, so that an error message has one of its own."""
    if self._bar is not None:
      self._bar.close()


def summarize(
  rows: Sequence[Mapping[str, str]],
  *,
  config: Mapping[str, Any],
  hashes: Mapping[str, str],
  untrained: Mapping[str, float],
  state_bytes: Mapping[str, int],
  peak_bytes: int,
) -> dict[str, Any]:
  """Returns the content of `summary.json`.

  Args:
    rows: All rows of `metrics.csv`, at least one of them evaluated.
    config: The run's flags.
    hashes: Of what the run has in common with others, see `train_setup`.
    untrained: The evaluation of the initial model.
    state_bytes: Bytes of the server's state by part.
    peak_bytes: Largest memory use since the program was started.

  Returns:
    A JSON object. Seconds per round leave out the first one, which compiles.
  """
  last = result_folders.final_accuracies(rows)
  seconds = [float(row['seconds']) for row in rows]
  resident = [float(row['resident_mib']) for row in rows]
  peak_mib = max([peak_bytes / 2**20, *resident])
  return {
    'task': config['task'],
    'algorithm': config['algorithm'],
    'estimator': config.get('estimator'),
    'seed': config['seed'],
    'rounds': len(rows),
    'final_test_accuracy': sum(last) / len(last),
    'evaluations_averaged': len(last),
    'untrained_test_accuracy': untrained['accuracy'],
    'state_bytes': dict(state_bytes),
    'seconds_per_round_median': statistics.median(seconds[1:] or seconds),
    'seconds_total': sum(seconds),
    'peak_resident_mib': round(peak_mib, 1),
    'hashes': dict(hashes),
  }


def table(summary: Mapping[str, Any]) -> str:
  """Returns the summary as a table of two columns."""
  count = summary['evaluations_averaged']
  of_last = f'mean of the last {count}' if count > 1 else 'last evaluation'
  lines = [
    ('rounds', f'{summary["rounds"]}'),
    (
      'final test accuracy',
      f'{summary["final_test_accuracy"]:.4f} ({of_last})',
    ),
    (
      'accuracy of the untrained model',
      f'{summary["untrained_test_accuracy"]:.4f}',
    ),
    (
      'seconds per round',
      f'{summary["seconds_per_round_median"]:.3f} (median)',
    ),
    ('seconds in all rounds', f'{summary["seconds_total"]:.1f}'),
    ('peak memory', f'{summary["peak_resident_mib"]:.0f} MiB'),
  ]
  lines.append(('server state, bytes', ''))
  lines.extend(
    (f'  {name}', f'{size:,}') for name, size in summary['state_bytes'].items()
  )
  width = max(len(name) for name, _ in lines)
  body = [f'{name:<{width}}  {value}'.rstrip() for name, value in lines]
  rule = '-' * max(len(line) for line in body)
  return '\n'.join([rule, *body, rule])


def write_plot(
  rows: Sequence[Mapping[str, str]],
  path: str,
  *,
  title: str,
  untrained_accuracy: Optional[float] = None,
) -> bool:
  """Draws the accuracy over the rounds as a PNG file.

  Args:
    rows: Rows of `metrics.csv`, at least one of them evaluated.
    path: The file; replaced if it exists.
    title: Above the plot.
    untrained_accuracy: Drawn as the point of round 0, if not None.

  Returns:
    False, and nothing is drawn, if matplotlib is not installed.
  """
  try:
    fig = run_plots.accuracy(
      {'': rows}, title=title, untrained={'': untrained_accuracy}
    )
  except ImportError:
    return False
  buffer = io.BytesIO()
  fig.savefig(buffer, format='png')
  files.write_bytes(path, buffer.getvalue())
  return True


def read_rows(path: str) -> list[dict[str, str]]:
  """Returns the rows of a `metrics.csv`."""
  return metrics_table.MetricsTable(path).rows()
