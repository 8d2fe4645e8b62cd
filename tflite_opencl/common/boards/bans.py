# SPDX-License-Identifier: Apache-2.0
"""What no start does, because child processes died of it: for people, and for JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from delegate.inspect import Ban
from tflite_opencl.common.tables import render


def bans_text(bans: Sequence[Ban], width: int) -> str:
    """Return a table of bans."""
    if not bans:
        return "nothing is left out: no child process died of a kernel"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("device", "left out", "two child processes", "until"):
        table.add_column(heading, overflow="fold")
    for ban in bans:
        where = "" if ban.holds else ", and in another environment alone"
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(ban.until))
        table.add_row(_device(ban), f"to {ban.trial.words}", ban.end, f"{until}{where}")
    return render(width, table)


def ban_entry(ban: Ban) -> dict[str, Any]:
    """Return a ban for JSON; times are seconds since 1970."""
    return {
        "device": _device(ban),
        "what": ban.trial.words,
        "build": ban.trial.build,
        "end": ban.end,
        "since": ban.since,
        "until": ban.until,
        "holds_here": ban.holds,
    }


def _device(ban: Ban) -> str:
    platform, *more = ban.device.split("|")  # DeviceInfo.identity, and a profile's
    return f"{more[1]} ({', '.join((platform, *more[2:]))})" if more[2:] else ban.device
