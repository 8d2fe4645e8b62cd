# SPDX-License-Identifier: Apache-2.0
"""Compiler input of a launch: its macros, then its kernel file with includes resolved."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from pathlib import Path

from delegate.isa import PARAMS_ARGUMENT
from delegate.launch import Launch

POINTER_BYTES = 8  # of a kernel argument; half of it with 32-bit addresses
_FIELDS = "FIELDS"  # the macro of kernel.clh: number of params in the kernel argument
_INCLUDE = re.compile(r'^#include "(\w+\.clh)"$', re.MULTILINE)


@cache
def folder() -> Path:
    """Return the folder of the .cl files: in the installed package, else in the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


@cache
def files() -> dict[str, Path]:
    """Return the path of each .cl and .clh file by name; names are unique."""
    return {path.name: path for path in sorted(folder().rglob("*.cl*"))}


@cache
def text_of(file: str) -> str:
    """Return a file with includes resolved: not every driver can, and the cache key covers them."""
    text = files()[file].read_text()
    return _INCLUDE.sub(lambda match: text_of(match[1]), text)


def defines_of(launch: Launch, is_argument: bool = False) -> dict[str, str]:
    """Return every macro a launch is built with; `is_argument`: see `may_be_argument`."""
    chosen = {name: str(value) for name, value in launch.defines.items()}
    own = {_FIELDS: str(len(launch.params))} if is_argument else {}
    return {f"USES_{launch.kernel.upper()}": "1", **chosen, **own, **launch.fields()}


def may_be_argument(launch: Launch, proven: Collection[str], max_bytes: int) -> bool:
    """Whether a launch's parameter block may be a kernel argument instead of a buffer.

    `max_bytes`: of all arguments of a kernel.
    """
    needed = 2 * POINTER_BYTES + block_bytes(len(launch.params))  # with arena and constants
    return PARAMS_ARGUMENT in proven and len(launch.params) > 0 and needed <= max_bytes


def block_bytes(fields: int) -> int:
    """Return the size of a parameter block as an argument: two ints before its fields."""
    return 4 * (2 + fields)


def chosen_of(defines: Mapping[str, str]) -> dict[str, str]:
    """Return the macros without parameter offsets, which mean nothing to users."""
    own = {name: value for name, value in defines.items() if not value.startswith("(params")}
    return {name: value for name, value in own.items() if name != _FIELDS}


def source_for(launch: Launch, is_argument: bool) -> str:
    """Return the compiler input of a launch, one object for launches that share it."""
    if launch.is_specialised:
        return source_of(launch.file, defines_of(launch, is_argument))
    file, defines = launch.file, tuple(launch.defines.items())
    fields = tuple(launch.params)
    return _generic_source(text_of(f"{file}.cl"), file, launch.kernel, fields, defines, is_argument)


@lru_cache(1 << 12)  # a model has far fewer kernels than nodes
def _generic_source(
    text: str,
    file: str,
    kernel: str,
    fields: tuple[str, ...],
    defines: tuple[tuple[str, int | str], ...],
    is_argument: bool,
) -> str:
    launch = Launch(file, kernel, 1, 1, dict.fromkeys(fields, 0), (), (), dict(defines))
    return _with_macros(text, file, defines_of(launch, is_argument))


def source_of(file: str, defines: Mapping[str, str]) -> str:
    """Return the compiler input; macros become lines, as drivers parse options differently."""
    return _with_macros(text_of(f"{file}.cl"), file, defines)


def _with_macros(text: str, file: str, defines: Mapping[str, str]) -> str:
    lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    return f'{lines}#line 1 "{file}.cl"\n{text}'
