# SPDX-License-Identifier: Apache-2.0
"""The delegate as a shared library gives it: options are texts, and programs are of any language.

delegate/plugin.c calls `create`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from delegate.opencl_delegate import OpenCLDelegate
from delegate.options import Options
from delegate.tflite.plugin import ThreadKeeper, answer

_log = logging.getLogger("delegate")
_MODEL, _VERBOSE = "model", "verbose"


class _Delegate(OpenCLDelegate):
    def partition(self, context: int, nodes: tuple[int, ...]) -> Any:
        return ThreadKeeper(super().partition(context, nodes))


def create(address: int) -> None:
    """Answer a C program's request for a delegate."""
    answer(address, _make)


def _make(texts: Mapping[str, str]) -> OpenCLDelegate:
    """Return the delegate for these options.

    Raises:
        ValueError: an option is unknown, or its value is none of it.
        As OpenCLDelegate.
    """
    own = dict(texts)
    model = own.pop(_MODEL, None)
    if _truth(own.pop(_VERBOSE, "0")):
        _show_all()
    return _Delegate(model, options=options_of(own))


def options_of(texts: Mapping[str, str]) -> Options:
    """Return the options that these texts mean; lists have commas or spaces between their words.

    Raises:
        ValueError: there is no such option, or the text is none of its values.
    """
    kinds = {field.name: field.type for field in fields(Options)}
    values = {}
    for name, text in texts.items():
        if name not in kinds:
            known = ", ".join(sorted((*kinds, _MODEL, _VERBOSE)))
            raise ValueError(f"there is no option {name}; there are {known}")
        try:
            values[name] = _READERS[kinds[name]](text)
        except ValueError as error:
            raise ValueError(f"option {name}={text}: {error}") from None
    return Options(**values)


def _truth(text: str) -> bool:
    words = {"1": True, "true": True, "0": False, "false": False}
    if text.lower() not in words:
        raise ValueError("1, 0, true or false is wanted")
    return words[text.lower()]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


# By the annotations of Options.
_READERS: Mapping[Any, Callable[[str], Any]] = {
    "str": str,
    "str | None": str,
    "str | DeviceProfile | None": str,
    "str | int | None": str,
    "int": int,
    "bool": _truth,
    "Iterable[str]": _words,
}


def _show_all() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s: OpenCL delegate: %(message)s"))
    if not _log.handlers:
        _log.addHandler(handler)
    _log.setLevel(logging.DEBUG)
