# SPDX-License-Identifier: Apache-2.0
"""Records of loggers go to a command's own handlers, while it runs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

Route = tuple[logging.Logger, logging.Handler, int]  # a logger, its handler, and the least level


@contextlib.contextmanager
def routed(routes: Sequence[Route]) -> Iterator[None]:
    """Send the records of each logger to its handler alone while inside."""
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
