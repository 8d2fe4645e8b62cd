# SPDX-License-Identifier: Apache-2.0
"""CONV_2D and FULLY_CONNECTED in words of four terms: what is offered, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.launch import Constant, Launch
from delegate.target import Rules, Target
from tests.support.cases import (
    DOTS,
    FLOAT4,
    FUSED,
    LANES_8,
    NEAREST,
    REGISTERS,
    SEEDS,
    STAGED,
    Strategy,
    assert_constants,
    assert_exact_or_refused,
    assert_exact_strategy,
    integers,
    only_launch,
)
from tests.support.convolution import Convolution, convolutions
from tests.support.model import chain_model, const, op, t

STRATEGIES = (FLOAT4, *REGISTERS, NEAREST, STAGED, DOTS[1], DOTS[0])

# What lower() returns.


def _names(case: Convolution, strategy: Strategy, **facts: Any) -> list[str]:
    strategy = replace(strategy, facts={**strategy.facts, **facts})
    return [alternative.name for alternative in ops.lower(case.node(), strategy.target)]


def _launch(case: Convolution, strategy: Strategy) -> Launch:
    found = [
        a
        for a in ops.lower(case.node(), strategy.target)
        if a.name.startswith(strategy.alternative)
    ]
    launch = only_launch(found[0])
    assert_constants(launch)
    return launch


@pytest.mark.parametrize(
    ("case", "names"),
    [
        (Convolution(out_c=3), []),
        (Convolution(out_c=4), ["float4 4x4"]),
        (Convolution(out_c=7), ["float4 4x4"]),
        (Convolution(out_c=8), ["float4 4x8"]),
        (Convolution(size=(1, 3, 8), out_c=8), ["float4 1x8"]),
    ],
    ids=str,
)
def test_blocks_that_fit(case: Convolution, names: list[str]) -> None:
    assert _names(case, FLOAT4) == [*names, "plain"]
    dots = [name.replace("float4", "emulated_dot") for name in names]
    assert _names(case, DOTS[0]) == [*dots, *names, "plain"]
    assert not {"float4", "staged"} & {name.split()[0] for name in _names(case, LANES_8)}


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (Convolution(out_c=8), "staged 16x4"),
        (Convolution(out_c=32), "staged 16x4"),
        (Convolution(out_c=33), "staged 16x8"),
        (Convolution(size=(3, 5, 3)), "staged 8x4"),
        (Convolution(size=(1, 7, 3)), "staged 4x4"),
        (Convolution(size=(1, 3, 3)), ""),
        # 7168 words of local memory: 448 for each of 16 pixels, and one a tap says where it is
        (Convolution(size=(4, 4, 4 * 448), kernel=(1, 1)), "staged 16x4"),
        (Convolution(size=(4, 4, 4 * 448 + 1), kernel=(1, 1)), "staged 8x4"),
        (Convolution(size=(4, 4, 4 * 63), kernel=(7, 1)), "staged 16x4"),
        (Convolution(size=(4, 4, 4 * 64), kernel=(7, 1)), "staged 8x4"),
        (Convolution(size=(4, 4, 4 * 1793), kernel=(1, 1)), ""),
    ],
    ids=str,
)
def test_staged_where_the_windows_fit_local_memory(case: Convolution, name: str) -> None:
    assert _names(case, STAGED)[:-2] == [name] * bool(name)
    assert not any(n.startswith("staged") for n in _names(case, FLOAT4))


def test_staged_launch() -> None:
    # 25 pixels are 2 tiles of 16; 37 blocks of 8 channels are 2 groups of 19.
    launch = _launch(Convolution(size=(5, 5, 6), out_c=290), STAGED)
    assert (launch.tiles, launch.group_items) == (4, 19)
    assert (launch.params["words"], launch.params["steps"]) == (2, 18)
    assert launch.defines["IS_MATRIX"] == launch.defines["IS_PACKED"] == 0
    # With some tiles a core a group has more of the channels.
    wide = Convolution(size=(16, 16, 8), out_c=290, kernel=(1, 1))
    launch = _launch(wide, STAGED)
    assert (launch.tiles, launch.group_items) == (16, 37)
    assert launch.defines["IS_MATRIX"] == launch.defines["IS_PACKED"] == 1
    for moved in (
        replace(wide, stride=(1, 2)),
        replace(wide, stride=(2, 1)),
        replace(wide, kernel=(1, 2)),
    ):
        assert _launch(moved, STAGED).defines["IS_MATRIX"] == 0


def test_blocks_are_items_pixels_first() -> None:
    launch = _launch(Convolution(size=(5, 5, 6), out_c=90), FLOAT4)  # 7 blocks x 12
    assert (launch.params["pixel_blocks"], launch.params["items"]) == (7, 84)
    assert (launch.tiles, launch.group_items) == (2, 64)


def test_sums_are_moved_to_integers_where_floats_end() -> None:
    short = Convolution(size=(4, 4, 64), kernel=(1, 1), zeros=(0, 255, 0))
    assert _launch(short, FLOAT4).defines["HAS_CHUNKS"] == 0
    long = _launch(replace(short, size=(4, 4, 999)), FLOAT4)
    assert (long.defines["HAS_CHUNKS"], long.params["chunk_words"]) == (1, 64)  # 258 products
    taps = _launch(replace(short, kernel=(3, 3), size=(4, 4, 99)), FLOAT4)
    assert (taps.defines["HAS_CHUNKS"], taps.params["chunk_words"]) == (1, 25)  # each tap is one


@pytest.mark.parametrize(
    ("registers", "case", "names"),
    [
        (24, {}, ["floats 2x4", "float4 1x4"]),
        (24, {"kernel": (3, 3)}, ["floats 1x4", "float4 1x4"]),
        (24, {"size": (5, 6, 8)}, ["float4 1x4"]),  # 30 pixels
        (48, {}, ["float4 4x4", "floats 4x4"]),
        (96, {}, ["floats 4x8", "float4 4x8"]),
        (0, {}, ["float4 4x8"]),  # nobody knows
        (96, {"size": (5, 6, 8)}, ["float4 4x8"]),  # 30 pixels
        (96, {"size": (8, 8, 2048), "out_c": 512}, ["floats 4x8", "float4 4x8"]),
        (96, {"size": (8, 8, 2048), "out_c": 513}, ["float4 4x8"]),
        # Windows and second sums need registers, too.
        (48, {"kernel": (3, 3)}, ["float4 2x4", "floats 2x4"]),
        (48, {"size": (7, 5, 999)}, ["float4 2x4", "floats 2x4"]),
    ],
)
def test_blocks_by_registers(registers: int, case: dict[str, Any], names: list[str]) -> None:
    matrix = Convolution(**{"size": (7, 5, 8), "kernel": (1, 1), "zeros": (0, 255, 0), **case})
    assert _names(matrix, FLOAT4, registers=registers) == [*names, "plain"]


@pytest.mark.parametrize(
    ("registers", "once", "twice"),
    [(24, "float4 1x4", "float4 1x4"), (48, "float4 1x4", "float4 4x4"), (96, "4x8", "4x8")],
)
def test_one_rounding_takes_registers_too(registers: int, once: str, twice: str) -> None:
    for rounds_twice, name in ((False, once), (True, twice)):
        rules = Rules(fully_connected_double_rounding=rounds_twice)
        target = Target(device_type="gpu", registers=registers, rules=rules)
        names = [each.name for each in ops.lower(_rows(16, 8, 5, "int8"), target)]
        assert names[0].endswith(name)


def test_words_are_loaded_together_where_pixels_begin_so() -> None:
    def words(in_c: int, registers: int = 0, kernel: tuple[int, int] = (2, 3)) -> Any:
        case = Convolution(size=(7, 5, in_c), kernel=kernel)
        return _launch(case, replace(FLOAT4, facts={**FLOAT4.facts, "registers": registers}))

    taken = {in_c: words(in_c).defines["LOAD_WORDS"] for in_c in (3, 4, 8, 12, 16)}
    assert taken == {3: 1, 4: 1, 8: 2, 12: 1, 16: 2}
    taken = {in_c: words(in_c, 48, (1, 1)).defines["LOAD_WORDS"] for in_c in (4, 8, 12, 16, 32)}
    assert taken == {4: 1, 8: 2, 12: 1, 16: 4, 32: 4}
    assert words(8, registers=24).defines["LOAD_WORDS"] == 1
    strategy = Strategy("floats", {"device_type": "gpu", "registers": 96}, "floats")
    for kernel, count in (((1, 1), 4), ((2, 3), 2)):  # windows leave no room for four
        case = Convolution(size=(7, 5, 16), kernel=kernel, out_c=8)
        assert _launch(case, strategy).defines["LOAD_WORDS"] == count
    long = replace(Convolution(), size=(4, 4, 1000), kernel=(1, 1), zeros=(0, 255, 0))
    launch = _launch(long, FLOAT4)
    assert launch.defines["HAS_CHUNKS"] == 1
    assert isinstance(launch.params["chunk_words"], int)
    assert launch.params["chunk_words"] % 2 == 0


def test_floats_are_the_weights_less_their_zero_point_by_place() -> None:
    case = Convolution(size=(7, 5, 6), out_c=9, zeros=(3, 7, 0))
    bytes_, floats = (
        _launch(case, replace(FLOAT4, facts={"device_type": "gpu", "registers": 96}, alternative=n))
        for n in ("float4", "floats")
    )
    stored, centred = bytes_.params["weights"], floats.params["weights"]
    assert isinstance(stored, Constant)
    assert isinstance(centred, Constant)
    places = stored.pack().reshape(-1, 4, 4).astype(np.float32) - 7  # words, terms, channels
    assert (centred.pack().reshape(-1, 4, 4) * 256.0 ** np.arange(4)[:, None] == places).all()


def test_floats_scale_only_where_rounding_was_proven() -> None:
    assert _launch(Convolution(), FLOAT4).defines["IS_NEAREST"] == 0
    assert _launch(Convolution(), NEAREST).defines["IS_NEAREST"] == 1
    cpu = Strategy("cpu", {**STAGED.facts, "isa": NEAREST.facts["isa"]}, "float4")
    assert _launch(Convolution(), cpu).defines["IS_NEAREST"] == 0


@pytest.mark.parametrize(
    ("isa", "macro"),
    [
        ("dot", {"DOT_KHR": 1}),
        ("mixed_dot", {"DOT_KHR_MIXED": 0}),
        ("arm_dot", {"DOT_ARM": 1}),
        ("qcom_dot", {"DOT_QCOM": 0}),
        ("emulated_dot", {"DOT_EMULATED": 1}),
        ("emulated_mixed_dot", {"DOT_EMULATED": 0}),
    ],
)
def test_dot_products_by_what_was_proven(isa: str, macro: dict[str, int]) -> None:
    strategy = Strategy(isa, {"device_type": "gpu", "isa": frozenset({isa})}, isa)
    defines = _launch(Convolution(), strategy).defines
    assert {n: v for n, v in defines.items() if n.startswith("DOT")} == macro


def test_one_kind_of_dot_product_is_offered() -> None:
    strategy = Strategy(
        "all", {"device_type": "gpu", "isa": frozenset({"qcom_dot", "arm_dot", "dot"})}
    )
    assert _names(Convolution(), strategy) == ["dot 4x8", "float4 4x8", "plain"]


@pytest.mark.parametrize("strategy", DOTS, ids=str)
@pytest.mark.parametrize(
    ("dtype", "zero", "least", "most", "difference"),
    [
        ("uint8", 120, 0, 247, 0),
        ("uint8", 120, 0, 248, 8),
        ("uint8", 130, 1, 255, -2),
        ("uint8", 130, 2, 255, 0),
        ("int8", 0, -128, 127, 0),
    ],
)
def test_weights_beyond_int8_need_the_pixels_sums(
    strategy: Strategy, dtype: str, zero: int, least: int, most: int, difference: int
) -> None:
    launch = _launch_of(_weighted(dtype, zero, least, most), strategy)
    assert launch.params["difference"] == difference
    assert launch.defines["HAS_PIXEL_SUMS"] == (difference != 0)


def _weighted(dtype: str, zero: int, least: int, most: int, in_c: int = 7) -> Node:
    """A convolution whose weights have these ends of their range."""
    case = Convolution(size=(5, 5, in_c), dtype=dtype, zeros=(11, zero, 7), multiplier=2.0**-11)
    node = case.node()
    source, weights, *rest = node.inputs
    assert weights is not None
    assert weights.data is not None
    values = np.clip(weights.data.astype(np.int16), least, most)
    values.flat[:2] = least, most
    data = values.astype(dtype)
    return replace(node, inputs=(source, replace(weights, data=data), *rest))


def _launch_of(node: Node, strategy: Strategy) -> Launch:
    found = [a for a in ops.lower(node, strategy.target) if a.name.startswith(strategy.alternative)]
    return only_launch(found[0])


# Its numbers.

CASES = [
    # around a work-item's pixels, those of several rows and pictures
    *(
        Convolution(size=(h, w, 8), kernel=(1, 1), batch=n, out_c=12)
        for n, h, w in [
            (1, 1, 1), (1, 1, 3), (1, 2, 2), (1, 1, 5), (1, 1, 7), (1, 2, 4), (3, 1, 3), (1, 3, 5),
            (1, 4, 4), (1, 1, 17), (2, 4, 4), (3, 3, 5), (1, 9, 15),
        ]
    ),
    # around a work-item's channels, and a group of staged ones
    *(
        Convolution(size=(3, 6, 8), kernel=(1, 2), out_c=out_c)
        for out_c in (4, 5, 7, 8, 9, 15, 16, 31, 32, 33, 36, 40, 61, 257, 300)
    ),
    # around a word
    *(Convolution(size=(4, 5, in_c), kernel=(3, 2)) for in_c in (1, 2, 3, 4, 5, 7, 8, 9, 61)),
    *(
        Convolution(size=(11, 13, in_c), kernel=k, stride=s, dilation=d, padding=p, batch=2)
        for in_c in (4, 5)
        for k, s, d, p in [
            ((3, 3), (2, 2), (1, 1), "SAME"),
            ((3, 3), (1, 2), (2, 3), "VALID"),
            ((5, 2), (3, 1), (1, 1), "SAME"),
            ((1, 1), (2, 2), (1, 1), "SAME"),
            ((7, 7), (1, 1), (1, 2), "SAME"),
        ]
    ),
    *(Convolution(zeros=(i, w, o)) for i in (0, 255) for w in (0, 255) for o in (0, 255)),
    *(Convolution(fused=fused, multiplier=2.0**-11) for fused in FUSED[1:]),
    *(Convolution(multiplier=m) for m in (1.0, 1.7, 300.0, 2.0**-20, 1e-12)),
]  # fmt: skip


def _is_offered(case: Convolution, strategy: Strategy) -> bool:
    height, width = case.out_size()
    return case.out_c >= 4 and (strategy is not STAGED or case.batch * height * width >= 4)


@pytest.mark.parametrize(
    ("case", "strategy"),
    [(c, w) for c in CASES for w in STRATEGIES[::2] if _is_offered(c, w)],
    ids=str,
)
def test_conv_2d(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    assert assert_exact_strategy(case.model(), device, strategy)


@pytest.mark.parametrize(
    ("case", "strategy"),
    [(c, w) for c in CASES[::2] for w in STRATEGIES if _is_offered(c, w)],
    ids=str,
)
def test_int8_per_channel(case: Convolution, strategy: Strategy, device: DeviceInfo) -> None:
    if case.zeros is not None:
        case = replace(case, zeros=(case.zeros[0] - 128, 0, case.zeros[2] - 128))
    case = replace(case, dtype="int8", per_channel=True)
    assert assert_exact_strategy(case.model(), device, strategy)


@pytest.mark.parametrize("strategy", [FLOAT4, NEAREST], ids=str)
@pytest.mark.parametrize(("in_c", "kernel"), [(6000, (1, 1)), (1000, (2, 3))])
def test_sums_beyond_a_float(
    in_c: int, kernel: tuple[int, int], strategy: Strategy, device: DeviceInfo
) -> None:
    # The first terms come to some 5 * 10^7 and the others back, where a result's step is 512.
    case = Convolution(
        size=(10, 11, in_c), kernel=kernel, zeros=(0, 128, 128), multiplier=2.0**-9, padding="VALID"
    )
    node = case.node()
    source, weights, *rest = node.inputs
    assert weights is not None
    assert weights.data is not None
    data = np.full_like(weights.data, 1)
    data.reshape(len(data), 6000)[:, :3000] = 255
    model = chain_model([replace(node, inputs=(source, replace(weights, data=data), *rest))])
    assert assert_exact_strategy(model, device, strategy) == {"float4 4x8"}


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(f"{name}{registers}", {"device_type": "gpu", "registers": registers}, name)
        for registers in (24, 48, 96)
        for name in ("floats", "float4")
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "case",
    [
        *(Convolution(size=(7, 5, in_c), kernel=(1, 1), out_c=13) for in_c in (5, 8, 12, 16, 48)),
        Convolution(size=(9, 8, 7), zeros=(0, 255, 3)),
        Convolution(size=(7, 5, 999), kernel=(1, 1), zeros=(255, 0, 128), multiplier=2.0**-11),
        Convolution(size=(7, 5, 1008), kernel=(1, 1), zeros=(0, 255, 128), multiplier=2.0**-11),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_unpacked_weights(
    dtype: str, case: Convolution, strategy: Strategy, device: DeviceInfo
) -> None:
    if dtype == "int8":
        zeros = case.zeros or (128, 0, 128)
        case = replace(case, dtype=dtype, zeros=(zeros[0] - 128, 0, zeros[2] - 128))
    (taken,) = assert_exact_strategy(case.model(), device, strategy)
    assert taken.startswith(strategy.alternative)


@pytest.mark.parametrize("strategy", DOTS, ids=str)
@pytest.mark.parametrize("in_c", [5, 6, 7, 8])
@pytest.mark.parametrize(
    ("dtype", "zero", "least", "most"),
    [("uint8", 0, 0, 255), ("uint8", 255, 0, 255), ("uint8", 151, 0, 255), ("int8", 0, -128, 127)],
)
def test_whole_range_of_weights(
    dtype: str, zero: int, least: int, most: int, in_c: int, strategy: Strategy, device: DeviceInfo
) -> None:
    model = chain_model([_weighted(dtype, zero, least, most, in_c)])
    assert assert_exact_strategy(model, device, strategy) == {f"{strategy.alternative} 4x8"}


@given(case=convolutions(), strategy=st.sampled_from(STRATEGIES), seed=SEEDS)
def test_drawn_conv_2d(
    device: DeviceInfo, case: Convolution, strategy: Strategy, seed: int
) -> None:
    if _is_offered(case, strategy):
        assert_exact_or_refused(case.model(seed), device, strategy, seed)


def _rows(in_c: int, out_c: int, rows: int, dtype: str) -> Node:
    weights = integers((out_c, in_c), dtype)
    if dtype == "int8":
        weights = np.maximum(weights, -127)
    zeros = (131, 120, 117) if dtype == "uint8" else (3, 0, -11)
    return op(
        "FULLY_CONNECTED",
        [
            t((rows, in_c), dtype, 0.0625, zeros[0]),
            const(weights, 0.03, zeros[1]),
            const(integers((out_c,), "int8").astype(np.int32), 0.0625 * 0.03),
        ],
        [t((rows, out_c), dtype, 0.7, zeros[2])],
        {"fused_activation_function": "NONE", "weights_format": "DEFAULT"},
    )


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("in_c", "out_c", "rows"), [(61, 33, 1), (16, 8, 5), (5, 40, 17)])
def test_fully_connected(
    in_c: int, out_c: int, rows: int, dtype: str, strategy: Strategy, device: DeviceInfo
) -> None:
    if strategy is STAGED and rows < 4:
        return
    assert assert_exact_strategy(chain_model([_rows(in_c, out_c, rows, dtype)]), device, strategy)
