# SPDX-License-Identifier: Apache-2.0
"""Dataclass fields that describe flags: type, default and help text."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tflite_opencl.cli.flag_values import integer, output_path, path, truth
from tflite_opencl.cli.flags import SHARED, STDOUT, Flag
from tflite_opencl.console.files import file_obstacle

T = TypeVar("T")
D = TypeVar("D")
# The metavar of a value other than N.
_METAVARS: dict[Any, str] = {truth: "BOOL", str: "WORD", path: "FILE", output_path: "FILE"}


@dataclass(frozen=True, slots=True)
class FlagRow(Flag):
    """A flag of label_image.

    Attributes:
        no_effect: why a value other than the default does nothing here. needs: the flag it has no
            effect without. page: the document with details. is_common: listed by --help;
            --help_all lists all. is_for_one: applies to one picture, not to several.
            is_repeatable: all values count, not only the last. is_profile: times each launch,
            so OpenCL runs in this process, and on fully tuned kernels. obstacle: of an output
            path, returns why nothing can be written there, or None.
    """

    default: Any = None
    no_effect: str = ""
    needs: str = ""
    page: str = ""
    is_common: bool = False
    is_for_one: bool = False
    is_repeatable: bool = False
    is_profile: bool = False
    obstacle: Callable[[str], str | None] = file_obstacle

    @property
    def takes_stdout(self) -> bool:
        """Whether "-" is stdout."""
        return STDOUT in self.help + self.detail

    def text(self, has_detail: bool) -> str:
        """Return the help text, with a number's default."""
        is_number = type(self.default) in (int, float) and not self.no_effect
        default = f" (default: {self.default:g})" if is_number else ""
        return f"{self.help}{self.detail if has_detail else ''}{default}"


def needs_module(module: str, extra: str, *endings: str) -> Callable[[str], str | None]:
    """Return the obstacle of files that an optional dependency writes.

    `endings`: names with one of these are written without it.
    """
    but = "".join(f"; FILE{each} does without" for each in endings)

    def obstacle(path: str) -> str | None:
        if not path.endswith(endings) and importlib.util.find_spec(module) is None:
            return f"it needs {module} (pip install tflite-opencl[{extra}]){but}"
        return file_obstacle(path)

    return obstacle


def picture_obstacle(path: str) -> str | None:
    """Return why no picture can be written to a file of this name, or None."""
    # Here, as --help needs no picture.
    from PIL import Image

    Image.init()
    ending = os.path.splitext(path)[1].lower()
    if Image.registered_extensions().get(ending) not in Image.SAVE:
        return f"'{ending}' is no format of pictures: use .png, .jpg, .webp or .bmp"
    return file_obstacle(path)


def _field(row: FlagRow) -> Any:
    if isinstance(row.default, (dict, list)):
        return field(default_factory=lambda: row.default, metadata={"row": row})
    return field(default=row.default, metadata={"row": row})


def flag(
    help: str, convert: Callable[[str], T], default: D, metavar: str = "", **more: Any
) -> T | D:
    """Return the field of a flag; `more`: arguments of its Row."""
    row = FlagRow(help, convert, metavar or _METAVARS.get(convert, "N"), default=default, **more)
    return _field(row)  # type: ignore[no-any-return]


def switch(help: str, **more: Any) -> bool:
    """Return the field of a flag that takes no value."""
    return _field(FlagRow(help, None, default=False, **more))  # type: ignore[no-any-return]


def shared(name: str, default: Any, text: str = "", detail: str = "", **more: Any) -> Any:
    """Return the field of a flag shared with other commands; `text`: its help text here."""
    of_all = SHARED[name]
    row = FlagRow(f"{of_all.help}{text}", of_all.convert, of_all.metavar, of_all.short,
              f"{of_all.detail}{detail}", default)  # fmt: skip
    return _field(replace(row, **more))


def no_effect(help: str, why: str, default: T, metavar: str = "", short: str = "") -> T:
    """Return the field of a flag that does nothing; its type is the default's."""
    kinds: dict[type, Callable[[str], Any]] = {bool: truth, int: integer, str: str}
    made: T = flag(help, kinds[type(default)], default, metavar, short=short, no_effect=why)
    return made
