"""Ending a run between two rounds when the process is asked to stop."""

import signal
import threading
from types import FrameType
from typing import Any, Optional

# Of the terminal that the program was started in, when it is closed. None where
# terminals send no signals.
_HANGUP: Optional[signal.Signals] = getattr(signal, 'SIGHUP', None)


def stop_signals() -> tuple[signal.Signals, ...]:
  """Returns the signals that ask this process to stop.

  Returns:
    SIGINT and SIGTERM; also SIGHUP where there is one, but not if it is ignored
    already: whoever started the program, as `nohup` does, wants it to outlive
    the terminal.
  """
  signals = (signal.SIGINT, signal.SIGTERM)
  if _HANGUP is None or signal.getsignal(_HANGUP) is signal.SIG_IGN:
    return signals
  return (*signals, _HANGUP)


class Interruption:
  """Turns signals that ask a program to stop into a wish that a loop can ask.

  They are SIGINT (Ctrl-C), SIGTERM, and SIGHUP (a terminal that is closed)
  unless it is ignored, as under `nohup`.

  The first signal is noted, so that the round in progress is finished and
  everything is written. A second SIGINT or SIGTERM ends the program at once, by
  a `KeyboardInterrupt`. SIGHUP is not counted, since nobody is impatient: the
  kernel and the shell may both send it, and with it goes a SIGTERM where a
  session ends.

  ```python
  with Interruption() as interruption:
    while not interruption.requested:
      ...
  ```

  Outside of the main thread, where Python has no signal handlers, nothing is
  installed and nothing is ever requested.
  """

  def __init__(self) -> None:
    """Installs nothing; entering the context does."""
    self._signal: Optional[int] = None
    self._impatient = False
    self._previous: dict[int, Any] = {}

  @property
  def requested(self) -> bool:
    """Whether a signal has arrived."""
    return self._signal is not None

  @property
  def exit_code(self) -> int:
    """0, or 128 + the first signal as shells report it (130 for Ctrl-C)."""
    return 0 if self._signal is None else 128 + int(self._signal)

  def __enter__(self) -> 'Interruption':
    if threading.current_thread() is threading.main_thread():
      for number in stop_signals():
        self._previous[number] = signal.signal(number, self._handle)
    return self

  def __exit__(self, *unused_exception_info: object) -> None:
    for number, handler in self._previous.items():
      signal.signal(number, handler)
    self._previous = {}

  def _handle(self, number: int, unused_frame: Optional[FrameType]) -> None:
    if self._signal is None:
      self._signal = number
    if number == _HANGUP:
      return
    if self._impatient:
      raise KeyboardInterrupt
    self._impatient = True
