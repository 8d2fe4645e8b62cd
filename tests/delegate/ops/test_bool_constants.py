# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import ops
from delegate.errors import Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.target import Rules, Target

TARGET = Target(device_type="cpu", vector_width=1, compute_units=1, registers=0, rules=Rules())
CONSTANT = Tensor(0, "constant", (2,), "bool", data=np.array([0, 1], np.uint8).view(np.bool_))
OTHER, OUTPUT = Tensor(1, "other", (2,), "bool"), Tensor(2, "output", (2,), "bool")


def test_a_bool_is_0_or_1() -> None:
    node = Node(0, "LOGICAL_AND", 1, (CONSTANT, OTHER), (OUTPUT,), {})
    assert ops.lower(node, TARGET)
    odd = replace(CONSTANT, data=np.array([0, 2], np.uint8).view(np.bool_))
    with pytest.raises(Unsupported, match="a constant of bool has bytes besides 0 and 1"):
        ops.lower(replace(node, inputs=(odd, OTHER)), TARGET)
