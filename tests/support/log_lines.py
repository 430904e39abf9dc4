"""The lines that the program logs."""

import contextlib
import logging


@contextlib.contextmanager
def heard():
    """The lines that the program logs meanwhile, as they come."""
    lines, handler = [], logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())
    loggers = [logging.getLogger(name) for name in ("transformer", "experiments")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
