# SPDX-License-Identifier: Apache-2.0
"""Precision "ieee": the reference's bits, exact quotients and roots, the host's functions."""

from __future__ import annotations

import contextlib
import ctypes
import re
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, Model, Options, ops
from delegate.errors import DeviceError, Unsupported
from delegate.inspect import Graph, Node, write_model
from delegate.isa import DENORMALS, DIVISION, IEEE
from delegate.launch import Launch
from delegate.plan import ieee
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.sources import files, text_of
from delegate.run.device import Device
from delegate.target import Target
from tests.support.compare import RUNTIME
from tests.support.model import const, graph_of, op, t
from tests.support.nets import conv_pool
from tests.support.nodes import built_nodes
from tests.support.process import ROOT
from tests.support.tiers import slow
from tflite_opencl.oracle.oracle import oracle

WITHOUT = pytest.mark.parametrize("without", [(), (DIVISION,)], ids=["own", "software"])
COUNT = 1 << 16
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 2.0**-126, 3.4e38, 1.0], np.float32
)
MOST = float(np.finfo(np.float32).max)


def words(values: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the bits of floats, those of NaN being the same."""
    found = np.ascontiguousarray(values, np.float32)
    return np.where(np.isnan(found), np.uint32(0x7FC00000), found.view(np.uint32))


def assert_same_bits(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    np.testing.assert_array_equal(words(ours), words(theirs))


def network() -> Graph:
    """Return convolutions, sums, quotients and moves, whose results are sums in a fixed order."""
    rng = np.random.default_rng(5)

    def weights(*shape: int) -> Any:
        return const(rng.standard_normal(shape).astype(np.float32) / 5)

    window = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1}
    window |= {"dilation_h_factor": 1}
    pool = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "filter_width": 3, "filter_height": 3}
    x = t((1, 9, 7, 3))
    first, deep, joined, total = (t((1, 9, 7, 8)) for _ in range(4))
    pooled, mean, scores, norm = t((1, 5, 4, 8)), t((1, 8)), t((1, 11)), t((1, 11))
    axes = const(np.array([1, 2], np.int32))
    nodes = [
        op("CONV_2D", [x, weights(8, 3, 3, 3), weights(8)], [first],
           window | {"fused_activation_function": "RELU6"}),
        op("DEPTHWISE_CONV_2D", [first, weights(1, 3, 3, 8), weights(8)], [deep],
           window | {"depth_multiplier": 1}),
        op("CONV_2D", [deep, weights(8, 1, 1, 8), weights(8)], [joined], window),
        op("ADD", [joined, first], [total]),
        op("AVERAGE_POOL_2D", [total], [pooled], pool),
        op("MEAN", [pooled, axes], [mean], {"keep_dims": False}),
        op("FULLY_CONNECTED", [mean, weights(11, 8), weights(11)], [scores]),
        op("L2_NORMALIZATION", [scores], [norm]),
    ]  # fmt: skip
    return graph_of(nodes, [x], [total, mean, norm])


@WITHOUT
def test_outputs_have_the_bits_of_the_reference(device: DeviceInfo, without: Any) -> None:
    graph = network()
    inputs = [np.random.default_rng(6).standard_normal((1, 9, 7, 3)).astype(np.float32)]
    known = oracle(RUNTIME, graph, write_model(graph), [inputs])
    with Model(graph, device.index, precision="ieee", exclude_isa=without) as model:
        for ours, theirs in zip(model.run(inputs), known.outputs[0], strict=True):
            assert_same_bits(ours, theirs)


@WITHOUT
def test_quotients_and_roots_are_the_nearest(device: DeviceInfo, without: Any) -> None:
    a, b, quotient, root, inverse = (t((1, COUNT)) for _ in range(5))
    nodes = [op("DIV", [a, b], [quotient]), op("SQRT", [a], [root]), op("RSQRT", [a], [inverse])]
    graph = graph_of(nodes, [a, b], [quotient, root, inverse])
    rng = np.random.default_rng(7)
    with Model(graph, device.index, tune="off", precision="ieee", exclude_isa=without) as model:
        for mask, bits in ((0xFFFFFFFF, 0), (0x80FFFFFF, 0x3F000000), (0x86800FFF, 0)):
            x, y = rng.integers(0, 2**32, (2, COUNT), np.uint32) & np.uint32(mask) | np.uint32(bits)
            x, y = x.view(np.float32), y.view(np.float32)
            x[:100], y[:100] = np.repeat(SPECIAL, 10), np.tile(SPECIAL, 10)
            ours = model.run([x[None], y[None]])
            with np.errstate(all="ignore"):
                theirs = np.clip(x / y, -MOST, MOST), np.sqrt(x), np.float32(1) / np.sqrt(x)
            for one, other in zip(ours, theirs, strict=True):
                assert_same_bits(one[0], other)


# OpenCL C of the functions as C, where each operation of floats is rounded once.
_HOST = """
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef uint32_t uint;
#define global
#define overloadable
#define IEEE 1
#define EXACT_DIVISION 1
static float as_float(uint x) { float y; memcpy(&y, &x, 4); return y; }
static uint as_uint(float x) { uint y; memcpy(&y, &x, 4); return y; }
static int as_int(float x) { return (int)as_uint(x); }
static int max(int a, int b) { return a > b ? a : b; }
static uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
static uint mul_hi(uint a, uint b) { return (uint64_t)a * b >> 32; }
#define sqrt sqrtf
#define floor floorf
#define fabs fabsf
#define copysign copysignf
#define LOCAL(name) name
#define JOIN(a, b) a
#define ROUNDER 12582912.0f
#define ROUNDER_BITS 0x4b400000
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#define MATH_TANH 1
#define MATH_LOG 1
#define MATH_ERFC 1
#define MATH_POWER 1
#define ANGLES_ATAN2 1
%s
#define EACH(name, call) \\
  void name(const float* x, const float* y, float* z, int n) { \\
    for (int i = 0; i < n; i++) z[i] = call; \\
  }
EACH(EXP, exp_float(x[i]))
EACH(LOG, log_float(x[i]))
EACH(TANH, tanh_float(x[i]))
EACH(LOGISTIC, logistic_float(x[i]))
EACH(POW, power_float(x[i], y[i]))
EACH(ATAN2, atan2_float(x[i], y[i]))
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return the functions of math.clh, compiled for the host."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("host")
    source, library = folder / "math.c", folder / "math.so"
    kept = (text_of(name) for name in ("math.clh", "logistic.clh", "angles.clh"))
    source.write_text(_HOST % "\n".join(kept))
    options = ["-std=gnu99", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, source, "-o", library, "-lm"], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("name", ["EXP", "LOG", "TANH", "LOGISTIC", "POW", "ATAN2"])
@WITHOUT
def test_functions_have_the_bits_of_the_host(
    device: DeviceInfo, host: ctypes.CDLL, name: str, without: Any
) -> None:
    x, y, z = (t((1, COUNT)) for _ in range(3))
    given = [x, y] if name in ("POW", "ATAN2") else [x]
    rng = np.random.default_rng(8)
    values = rng.standard_normal((2, COUNT)) * 10 ** rng.uniform(-6, 2, (2, COUNT))
    left, right = values.astype(np.float32)
    left[:100], right[:100] = np.repeat(SPECIAL, 10), np.tile(SPECIAL, 10)
    theirs = np.zeros(COUNT, np.float32)
    pointers = (each.ctypes.data_as(ctypes.c_void_p) for each in (left, right, theirs))
    getattr(host, name)(*pointers, COUNT)
    graph = graph_of([op(name, given, [z])], given, [z])
    with Model(graph, device.index, tune="off", precision="ieee", exclude_isa=without) as model:
        (ours,) = model.run([left[None], right[None]][: len(given)])
    assert_same_bits(ours[0], theirs)


def test_unproven_devices_and_other_orders_are_refused() -> None:
    add, *_ = (node for node in network().nodes if node.op == "ADD")
    with pytest.raises(Unsupported, match="not proven to round each product and sum of floats"):
        ops.lower(add, Target(is_ieee=True))
    target = Target(is_ieee=True, isa=frozenset({IEEE}))
    (first, *_) = ops.lower(add, target)
    assert {launch.defines["EXACT_DIVISION"] for launch in first.launches} == {0}
    refused = {node.op for node in built_nodes() if _is_refused(node, target)}
    # Passes make these of nodes that are then left apart.
    assert refused == {"attention", "layer_norm", "rms_norm"}


def _is_refused(node: Node, target: Target) -> bool:
    try:
        ops.lower(node, Target())
    except Unsupported:
        return False
    try:
        return not ops.lower(node, target)
    except Unsupported:
        return True


def test_lstm_of_an_arm_has_no_sums_in_two_parts() -> None:
    kernels = {"IN_TWO_PARTS": 1}, {"ROUNDS_ONCE": 1}
    x, y = t((1, 4)), t((1, 4))
    node = op("EXP", [x], [y])
    (plain, *_) = ops.lower(node, Target())
    (launch, *_) = plain.launches
    both = tuple(replace(launch, defines={**launch.defines, **each}) for each in kernels)
    parts, other = (replace(plain, launches=each) for each in (both, both[:1]))
    (kept,) = ieee.in_order(node, (parts, other), {IEEE})
    assert len(kept.launches) == 1


def test_nodes_without_floats_keep_their_alternatives() -> None:
    node = conv_pool().nodes[0]
    one, other = (ops.lower(node, Target(is_ieee=each)) for each in (False, True))
    assert [each.name for each in one] == [each.name for each in other]


def test_ops_unlike_the_reference_are_documented() -> None:
    text = (ROOT / "docs/ops.md").read_text()
    _, _, after = text.partition("## Floats without a tolerance")
    rows = [row for row in after.split("\n## ")[0].splitlines() if "equal on all devices" in row]
    named = {name for row in rows for name in re.findall(r"\w+", row)}
    assert {op for op in ieee.UNLIKE_REFERENCE if not op.endswith("LSTM")} <= named
    assert "LSTMs" in named


@pytest.mark.parametrize(
    ("name", "activation", "processor", "expected"),
    [
        ("RNN", "RELU", "x86_64", True),
        ("RNN", "TANH", "x86_64", False),
        ("UNIDIRECTIONAL_SEQUENCE_RNN", "RELU", "aarch64", False),
        ("SVDF", "NONE", "aarch64", False),
        ("ADD", "NONE", "aarch64", True),
        ("LSTM", "NONE", "x86_64", False),
    ],
)
def test_where_the_reference_has_the_same_bits(
    name: str, activation: str, processor: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: processor)
    node = op(name, [], [], {"fused_activation_function": activation})
    assert ieee.is_equal_to_reference(node) is expected


def test_devices_are_described() -> None:
    assert "stay on the CPU" in ieee.warning(())
    assert "below 2^-126" in ieee.warning((IEEE,))
    assert ieee.warning((IEEE, DENORMALS)) == ""


def test_kernels_exist_and_share_the_macro() -> None:
    kernels = "".join(path.read_text() for path in files().values())
    for name in ieee.KERNELS | ieee.EXACT:
        assert f"TILE({name})" in kernels
    assert Options(precision="ieee").is_ieee


@slow
def test_kernels_build_without_warnings(device: DeviceInfo) -> None:
    kernels, wrong = Kernels(Device(device)), {}
    launches: dict[tuple[object, ...], Launch] = {}
    for node in built_nodes():
        # Some of these nodes keep their float kernels, others are refused.
        with contextlib.suppress(Unsupported):
            for each in ops.lower(node, Target(is_ieee=True, isa=frozenset({IEEE}))):
                for launch in each.launches:
                    launches[(launch.kernel, *launch.defines.items())] = launch
    of_ieee = {key: launch for key, launch in launches.items() if "IEEE" in launch.defines}
    assert {launch.kernel for launch in of_ieee.values()} > {"conv_2d_float", "softmax_float"}
    for key, launch in of_ieee.items():
        try:
            kernels.rebuild(launch.file, kernels.source_of(launch), ["-Werror"])
        except DeviceError as error:
            wrong[key] = str(error)
    assert wrong == {}
