# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the whole tree: fixed seeds, and every OpenCL device found."""

from __future__ import annotations

import os

# Before any driver loads: rusticl shows llvmpipe only when asked to.
os.environ.setdefault("RUSTICL_ENABLE", "llvmpipe")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("default")
