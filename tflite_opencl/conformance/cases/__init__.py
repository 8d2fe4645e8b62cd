# SPDX-License-Identifier: Apache-2.0
"""All cases: each module of this folder without a leading `_` yields those of its family."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from tflite_opencl.common.build import Case


def all_cases() -> Iterator[Case]:
    """Yield every case, families in the order of their names; no model is built.

    Raises:
        ValueError: two cases have one name.
    """
    seen: set[str] = set()
    for module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if module.startswith("_"):
            continue
        for case in importlib.import_module(f"{__name__}.{module}").cases():
            if case.name in seen:
                raise ValueError(f"two cases are called {case.name}")
            seen.add(case.name)
            yield case
