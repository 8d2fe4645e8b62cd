# SPDX-License-Identifier: Apache-2.0
"""Dataclass fields that hold a flag's row: what it takes, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tflite_opencl.cli.flag_values import integer, output_path, path, truth
from tflite_opencl.cli.flags import SHARED, Flag

T = TypeVar("T")
D = TypeVar("D")
# What the help calls a value, if not N.
_METAVARS: dict[Any, str] = {truth: "BOOL", str: "WORD", path: "FILE", output_path: "FILE"}


@dataclass(frozen=True, slots=True)
class Row(Flag):
    """A flag of label_image.

    Attributes:
        no_effect: why a value other than the default does nothing here. needs: the flag without
            which it does nothing. page: the document that says more. is_common: --help shows it;
            --help_all shows all. is_for_one: it is for one picture, not for several.
            is_repeatable: every value counts, not the last.
    """

    default: Any = None
    no_effect: str = ""
    needs: str = ""
    page: str = ""
    is_common: bool = False
    is_for_one: bool = False
    is_repeatable: bool = False

    def text(self, has_detail: bool) -> str:
        """Return what is said of it, with a number's default."""
        is_number = type(self.default) in (int, float) and not self.no_effect
        default = f" (default: {self.default:g})" if is_number else ""
        return f"{self.help}{self.detail if has_detail else ''}{default}"


def _field(row: Row) -> Any:
    if isinstance(row.default, (dict, list)):
        return field(default_factory=lambda: row.default, metadata={"row": row})
    return field(default=row.default, metadata={"row": row})


def flag(
    help: str, convert: Callable[[str], T], default: D, metavar: str = "", **more: Any
) -> T | D:
    """Return the field of a flag; `more`: of its Row."""
    row = Row(help, convert, metavar or _METAVARS.get(convert, "N"), default=default, **more)
    return _field(row)  # type: ignore[no-any-return]


def switch(help: str, **more: Any) -> bool:
    """Return the field of a flag that takes no value."""
    return _field(Row(help, None, default=False, **more))  # type: ignore[no-any-return]


def shared(name: str, default: Any, text: str = "", detail: str = "", **more: Any) -> Any:
    """Return the field of a flag that other commands have, too; `text`: what is said of it here."""
    of_all = SHARED[name]
    row = Row(f"{of_all.help}{text}", of_all.convert, of_all.metavar, of_all.short,
              f"{of_all.detail}{detail}", default)  # fmt: skip
    return _field(replace(row, **more))


def no_effect(help: str, why: str, default: T, metavar: str = "", short: str = "") -> T:
    """Return the field of a flag that does nothing; its default says what it takes."""
    kinds: dict[type, Callable[[str], Any]] = {bool: truth, int: integer, str: str}
    made: T = flag(help, kinds[type(default)], default, metavar, short=short, no_effect=why)
    return made
