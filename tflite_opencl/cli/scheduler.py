# SPDX-License-Identifier: Apache-2.0
"""--scheduler: where many workers are, as a flag's value. Nothing of Dask is imported here."""

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
    """A Dask scheduler that somebody started, or workers of this machine's own."""

    address: str  # as it was given
    workers: int = 0  # that this command starts; 0: somebody did

    @property
    def is_local(self) -> bool:
        """Whether the workers are this command's own."""
        return self.workers > 0


def scheduler(text: str) -> Scheduler:
    """Return what tcp://HOST:PORT or local:N means."""
    kind, _, rest = text.partition(":")
    if kind == "local":
        return Scheduler(text, at_most(_MOST_WORKERS, positive)(rest))
    host, _, port = rest.removeprefix("//").rpartition(":")
    if kind not in _PROTOCOLS or not (rest.startswith("//") and host and port.isdecimal()):
        raise argparse.ArgumentTypeError(f"'{text}' is neither tcp://HOST:PORT nor local:N")
    return Scheduler(text)


def require_distributed() -> None:
    """Raise RunError where Dask is missing."""
    if importlib.util.find_spec("distributed") is None:
        raise RunError("--scheduler needs distributed (pip install tflite-opencl[cluster])")
