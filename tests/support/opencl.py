# SPDX-License-Identifier: Apache-2.0
"""Errors as a driver's calls raise them."""

from __future__ import annotations

import pyopencl as cl
from pyopencl import _cl


def opencl_error(kind: type[cl.Error], call: str, status: int) -> cl.Error:
    """Return pyopencl's exception for a call that gave this status."""
    return kind(_cl._ErrorRecord(call, status, ""))
