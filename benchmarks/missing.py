# SPDX-License-Identifier: Apache-2.0
"""What cannot be measured here is left out, and says why: in one exception."""

from __future__ import annotations

import importlib
from types import ModuleType


class Skipped(Exception):
    """A row or a peer cannot run here; the text is one line that says why."""


def imported(module: str, package: str = "") -> ModuleType:
    """Return an optional module.

    Raises: Skipped: it is not installed, or does not load.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            package = package or module
            raise Skipped(f"{package} is not installed (pip install {package})") from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Skipped(f"{package or module} does not load: {reason}") from error
