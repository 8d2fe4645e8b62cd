# SPDX-License-Identifier: Apache-2.0
"""The value of --scheduler: the address of a cluster's workers. Does not import Dask."""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass

from tflite_opencl.cli.flag_values import at_most, positive
from tflite_opencl.console.errors import RunError

_PROTOCOLS = ("tcp", "tls")
_MOST_WORKERS = 1024


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A running Dask scheduler, or local workers."""

    address: str  # as given
    workers: int = 0  # to start; 0: they are already running

    @property
    def is_local(self) -> bool:
        """Whether this command starts the workers."""
        return self.workers > 0


def scheduler(text: str) -> Scheduler:
    """Parse tcp://HOST:PORT or local:N."""
    kind, _, rest = text.partition(":")
    if kind == "local":
        return Scheduler(text, at_most(_MOST_WORKERS, positive)(rest))
    host, _, port = rest.removeprefix("//").rpartition(":")
    if kind not in _PROTOCOLS or not (rest.startswith("//") and host and port.isdecimal()):
        raise argparse.ArgumentTypeError(f"'{text}' is neither tcp://HOST:PORT nor local:N")
    return Scheduler(text)


def require_distributed() -> None:
    """Raise RunError if Dask is missing."""
    if importlib.util.find_spec("distributed") is None:
        raise RunError("--scheduler needs distributed (pip install tflite-opencl[cluster])")
