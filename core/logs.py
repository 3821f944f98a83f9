"""Takes secrets out of what is logged, before any handler sees it.

Whoever embeds a bridge has handlers of their own, so the loggers of this package, and of the servers that run its apps,
pass their records through a filter while a bridge is open. The command line masks every line of every logger besides.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Redact = Callable[[str], str]

_LOGGERS = ("bascule", "uvicorn", "hypercorn", "quart", "asyncio")
_active: list[Redact] = []


def mask(text: str) -> str:
    """``text`` without the secrets that any open bridge knows."""
    for redact in tuple(_active):
        text = redact(text)
    return text


@contextmanager
def masked(redact: Redact) -> Iterator[None]:
    """Mask what is logged meanwhile; modules that are imported later are not reached, so enter it again after them."""
    masking = _Masking(redact)
    reached = [
        logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in _LOGGERS
    ]
    for logger in reached:
        logger.addFilter(masking)
    _active.append(redact)
    try:
        yield
    finally:
        _active.remove(redact)
        for logger in reached:
            logger.removeFilter(masking)


class _Masking(logging.Filter):
    def __init__(self, redact: Redact) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - logging itself complains of it
            return True
        shown = self._redact(text)
        if shown != text:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[1] is not None:
            self._mask_exception(record, record.exc_info[1])
        return True

    def _mask_exception(self, record: logging.LogRecord, error: BaseException) -> None:
        whole = "".join(traceback.format_exception(error)).rstrip("\n")
        shown = self._redact(whole)
        if shown != whole:
            record.exc_text = shown
            stand_in = type(type(error).__name__, (Exception,), {})(self._redact(str(error)))
            record.exc_info = (type(stand_in), stand_in, None)
