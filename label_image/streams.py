# SPDX-License-Identifier: Apache-2.0
"""Log records as label_image's lines on stdout and stderr; a reader that has gone is no error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TextIO

from tflite_opencl.common import bars
from tflite_opencl.common.start import OutputError, lead_nowhere
from tflite_opencl.common.words import printable

_LEVEL_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}


def write(stream: TextIO, text: str) -> bool:
    """Write text and a line end at once; a closed pipe (`| head`) is not an error.

    What a terminal would obey is written as an escape, line ends and tabs excepted.
    Returns whether somebody still reads it.
    Raises: OutputError: the text cannot be written.
    """
    text = printable(text, kept="\n\t")
    if stream.isatty() and bars.print_above(text):
        return True
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError:
        lead_nowhere(stream)
        return False
    except OSError as error:
        lead_nowhere(stream)
        raise OutputError("stdout", error) from error
    return True


@contextlib.contextmanager
def logging_to(out: TextIO, err: TextIO, level: int) -> Iterator[None]:
    """Send the records of the delegate, the base and label_image to `err`, as "INFO: text".

    That holds while inside. Records of `tflite_opencl.stdout` go to `out` as they are. `level`: the
    least of what is logged; results, of `label_image.results`, always are.
    """
    lines, plain = _Handler(err, _Formatter()), _Handler(out, logging.Formatter("%(message)s"))
    loggers = [
        (logging.getLogger("delegate"), lines, level),
        (logging.getLogger("label_image"), lines, level),
        (logging.getLogger("label_image.results"), lines, logging.INFO),
        (logging.getLogger("tflite_opencl"), lines, level),
        (logging.getLogger("tflite_opencl.stdout"), plain, max(level, logging.INFO)),
    ]
    for logger, handler, least in loggers:
        logger.addHandler(handler)
        logger.setLevel(least)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, handler, _ in loggers:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True


class _Formatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.levelno == logging.DEBUG:
            return record.message  # tables
        # A message is one line, whatever the name of a file has in it.
        level = _LEVEL_NAMES.get(record.levelname, record.levelname)
        return f"{level}: {printable(record.message)}"


class _Handler(logging.Handler):
    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        write(self._stream, self.format(record))
