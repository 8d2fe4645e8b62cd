# SPDX-License-Identifier: Apache-2.0
"""Functions of 8 and 16 bits at scales whose results no int32 holds: TFLite's, or a refusal."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.host.tflite.library import installed_rules
from tests.support.cases import SIMT, assert_exact_strategy, refusal
from tests.support.model import chain_model, op, t

IN_SCALES = (1e-38, 1e-14, 1e-6, 1.0, 7.0, 1e9, 1e38)
OUT_SCALES = (1e-40, 1e-22, 1e-9, 0.1, 1e9, 1e30)
VERSIONS = {"EXP": 2, "LOG": 2, "GELU": 2, "ELU": 1}
EVERY_VALUE = {
    "int8": np.arange(-128, 128, dtype=np.int8),
    "uint8": np.arange(256, dtype=np.uint8),
}


@pytest.mark.skipif(
    not installed_rules().saturating_cast, reason="this TFLite leaves these to the processor"
)
@pytest.mark.parametrize("in_scale", IN_SCALES)
@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "int8") for name in VERSIONS), ("GELU", "uint8")]
)
def test_steps_beyond_32_bits(name: str, dtype: str, in_scale: float, device: DeviceInfo) -> None:
    zero = 100 if dtype == "uint8" else 3
    source = t((256,), dtype, in_scale, zero)
    nodes = [
        op(name, [source], [t((256,), dtype, out_scale, 5)], version=VERSIONS[name])
        for out_scale in OUT_SCALES
    ]
    assert_exact_strategy(chain_model(nodes), device, SIMT, inputs=[[EVERY_VALUE[dtype]]])


@pytest.mark.parametrize(
    ("name", "scale"), [*itertools.product(("LOGISTIC", "TANH"), (3.7e-14, 1e-22, 1e-44))]
)
def test_int16_at_a_scale_whose_multiplier_is_zero(name: str, scale: float) -> None:
    node = op(name, [t((9,), "int16", scale)], [t((9,), "int16", 2.0**-15)])
    reason = f"input scale {np.float32(scale):g}: TFLite's shift exceeds 31 bits below 3.8e-14"
    assert refusal(node) == reason


@pytest.mark.parametrize("name", ["LOGISTIC", "TANH"])
def test_int16_at_the_least_scale(name: str, device: DeviceInfo) -> None:
    values = np.arange(-32768, 32768).astype(np.int16)
    node = op(name, [t(values.shape, "int16", 3.9e-14)], [t(values.shape, "int16", 2.0**-15)])
    assert_exact_strategy(chain_model([node]), device, SIMT, inputs=[[values]])
