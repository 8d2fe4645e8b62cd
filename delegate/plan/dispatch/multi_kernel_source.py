# SPDX-License-Identifier: Apache-2.0
"""Combines several kernel files into one source, for kernels that run several launches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from delegate.launch import Launch
from delegate.plan.sources import defines_of, source_of, text_of

_DEFINED = re.compile(r"^[ \t]*#define[ \t]+(\w+)", re.MULTILINE)
_BODY = "@BODY@"


def body(launch: Launch, space: str = "global") -> str:
    """Return a launch's kernel file, to be combined with others by `numbered`.

    `space`: address space of its params.
    """
    own = {"IS_PERSISTENT": "1", "BODY": _BODY, "PARAMS_SPACE": space}
    defines: Mapping[str, str] = {**own, **defines_of(launch)}
    macros = dict.fromkeys((*defines, *_macros_of(launch.file)))
    text = source_of(launch.file, defines)
    return text + "".join(f"\n#undef {macro}" for macro in macros) + "\n"


def numbered(bodies: Mapping[str, int]) -> str:
    """Return all bodies; the functions of each carry its number, as in `tile_function`."""
    return "".join(text.replace(_BODY, f"_{number}") for text, number in bodies.items())


def tile_function(launch: Launch, number: int) -> str:
    """Return the name of the function that computes a tile of a launch."""
    return f"{launch.kernel}_tile_{number}"


def in_groups_of(items: int, launch: Launch) -> Launch:
    """Return the launch with scratch memory for `items` work-items, if its groups have fewer.

    Its kernel may store data per work-item.
    """
    own = int(launch.defines.get("SCRATCH_INTS", 0))
    scratch = own * -(-items // launch.group_items)
    return replace(launch, defines={**launch.defines, "SCRATCH_INTS": scratch}) if own else launch


def scratch_of(launches: Iterable[Launch]) -> dict[str, str]:
    """Return the macro of scratch memory that suffices for each launch, if any needs it."""
    most = max((int(launch.defines.get("SCRATCH_INTS", 0)) for launch in launches), default=0)
    return {"SCRATCH_INTS": str(most)} if most else {}


@cache
def _macros_of(file: str) -> tuple[str, ...]:
    """Return the macros that a kernel file defines; cached, as the search is slow."""
    return tuple(_DEFINED.findall(text_of(f"{file}.cl")))
