# SPDX-License-Identifier: Apache-2.0
"""Routes log records to a command's own handlers while it runs."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence

from tflite_opencl.cli.journal import journal_or
from tflite_opencl.cli.messages import printable

Route = tuple[logging.Logger, logging.Handler, int]  # a logger, its handler, and the lowest level


@contextlib.contextmanager
def routed(routes: Sequence[Route]) -> Iterator[None]:
    """Inside the context, send the records of each logger to its handler only."""
    for logger, handler, least in routes:
        logger.addHandler(handler)
        logger.setLevel(least)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, handler, _ in routes:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True


def lines_on_stderr(level: int) -> list[Route]:
    """Return routes for a long-running command and its delegate: one line per record.

    If stderr leads to systemd's journal, records are its entries.
    """

    class LineFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable(f"{record.levelname}: {record.getMessage()}")

    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    handler = journal_or(handler, "tflite-opencl")
    return [
        (logging.getLogger("tflite_opencl"), handler, level),
        (logging.getLogger("delegate"), handler, logging.WARNING),
    ]
