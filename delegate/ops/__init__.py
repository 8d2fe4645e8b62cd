# SPDX-License-Identifier: Apache-2.0
"""One file per TFLite op or op family. Every public module in this folder is imported."""

import importlib
import pkgutil

from delegate.ops._registry import lower, ops

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["lower", "ops"]
