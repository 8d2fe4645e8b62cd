# SPDX-License-Identifier: Apache-2.0
"""The table of instructions agrees with kernels, profiles and itself."""

from __future__ import annotations

import platform

import pytest

from delegate.inspect import device_profile_names, read_device_profile
from delegate.isa import (
    ASSEMBLY,
    BY_NAME,
    DOTS,
    FEATURES,
    LANES16,
    LOOKUPS,
    ORDERS,
    instructions,
    lacked_by,
    that_need,
    tried_on,
)
from delegate.plan.sources import files
from tests.support.cases import EVERY_STRATEGY


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(FEATURES)


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_row_names_self_test_and_implying_rows(feature: object) -> None:
    row = next(each for each in FEATURES if each is feature)
    assert f"\nKERNEL({row.kernel})\n" in files()["runtime_isa.cl"].read_text()
    assert not row.macro or row.macro in files()["dot.clh"].read_text()
    for other in row.proven_by:
        # It must be tested earlier, so that its result is available.
        assert FEATURES.index(BY_NAME[other]) < FEATURES.index(row)


@pytest.mark.parametrize(
    ("processor", "own"),
    [
        ("x86_64", ["avx2", "vnni", "amx", "order_x86"]),
        ("aarch64", ["dotprod", "i8mm", "order_arm"]),
        ("riscv64", []),
    ],
)
def test_device_types_test_their_instructions(
    processor: str, own: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: processor)
    common = ["nearest", "params_argument", "stored_halves", "fp16", "lanes16"]
    assert tried_on("cpu") == ["own_builtins", *own, *common]
    others = [
        *("dp4a", "mma", "order_ptx", "dot", "mixed_dot", "arm_dot", "qcom_dot"),
        *("nearest", "params_argument", "order", "stored_halves", "fp16"),
    ]
    for device_type in ("gpu", "accelerator", "custom"):
        assert tried_on(device_type) == others
    assert FEATURES[-1].name == LANES16  # its limit on CPU time stays


@pytest.mark.parametrize(
    ("processor", "flags", "lacked"),
    [
        ("x86_64", "sse2 avx2", {"vnni", "amx"}),
        ("x86_64", "sse2 avx2 avx_vnni", {"amx"}),
        ("aarch64", "fp asimd", {"dotprod", "i8mm"}),
        ("aarch64", "fp asimd asimddp i8mm", set()),
        ("aarch64", "sse2 avx2", set()),
        ("riscv64", "", set()),
    ],
)
def test_cpu_flags_limit_self_tests(
    processor: str, flags: str, lacked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: processor)
    own = {each.name for each in FEATURES if processor in each.processors}
    assert lacked_by(flags.split()) & own == lacked


def test_groups() -> None:
    assert {"order_x86", "order_arm", "order_ptx", "order"} == ORDERS
    results = {*instructions("cpu"), *instructions("gpu")}
    assert that_need(ASSEMBLY) == results | {"order_x86", "order_arm", "order_ptx"}
    # each has a strategy that runs, and so builds, its kernels
    assert results == {name for strategy in EVERY_STRATEGY for name in strategy.isa}
    assert [dot.name for dot in DOTS][:4] == ["dot", "mixed_dot", "arm_dot", "qcom_dot"]
    assert [each.name for each in LOOKUPS] == ["vnni", "avx2"]
    for each in LOOKUPS:
        assert f"\nKERNEL(lookup_{each.name})\n" in files()["lookup.cl"].read_text()


@pytest.mark.parametrize("name", device_profile_names())
def test_profiles_name_known_instructions(name: str) -> None:
    profile = read_device_profile(name)
    assert set(profile.isa) <= set(tried_on(profile.device_type))
