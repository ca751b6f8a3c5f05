"""Ending a run between two rounds when the process is asked to stop."""

import signal
import threading
from types import FrameType
from typing import Any, Optional

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
  """Turns SIGINT (Ctrl-C) and SIGTERM into a wish that a loop can ask for.

  The first signal is noted, so that the round in progress is finished and
  everything is written. A second one ends the program at once, by a
  `KeyboardInterrupt`.

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
    self._previous: dict[int, Any] = {}

  @property
  def requested(self) -> bool:
    """Whether a signal has arrived."""
    return self._signal is not None

  @property
  def exit_code(self) -> int:
    """0, or 128 + signal as shells report it (130 for Ctrl-C)."""
    return 0 if self._signal is None else 128 + int(self._signal)

  def __enter__(self) -> 'Interruption':
    if threading.current_thread() is threading.main_thread():
      for number in _SIGNALS:
        self._previous[number] = signal.signal(number, self._handle)
    return self

  def __exit__(self, *unused_exception_info: object) -> None:
    for number, handler in self._previous.items():
      signal.signal(number, handler)
    self._previous = {}

  def _handle(self, number: int, unused_frame: Optional[FrameType]) -> None:
    if self._signal is not None:
      raise KeyboardInterrupt
    self._signal = number
