# SPDX-License-Identifier: Apache-2.0
"""Says at the end of a run how many cases of each op were compared with TFLite."""

from __future__ import annotations

from typing import Any

from tests.support.cases import RUN


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if RUN:
        counts = ", ".join(f"{op} {count}" for op, count in sorted(RUN.items()))
        terminalreporter.write_line(f"cases equal to TFLite's reference kernels: {counts}")
