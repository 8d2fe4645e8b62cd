# SPDX-License-Identifier: Apache-2.0
"""Device profiles, and ops under each of them: exact, or refused with the limit's name."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo, Model, NoDeviceError, OpenCLDelegate, ProfileError, profiles
from delegate.inspect import (
    DeviceProfile,
    Tensor,
    device_profile_names,
    device_profile_text,
    read_device_profile,
)
from delegate.launch import Launch
from delegate.plan import sources
from delegate.run.device_list import matching
from delegate.target import Target
from tests.support.compare import assert_exact, interpreter, refusals
from tests.support.model import chain_model, const, one_op_model, op, t
from tests.support.tiers import slow

NAMES = device_profile_names()
V3D = device_profile_text(read_device_profile("v3d"), {})


def test_numbers_have_sources() -> None:
    for name in NAMES:
        lines = (Path(profiles.__file__).parent / f"{name}.toml").read_text().splitlines()
        for number, line in enumerate(lines):
            if re.match(r"\w+ = (\d+|true|false|\[)", line):
                assert "#" in line or lines[number - 1].startswith("#"), f"{name}: {line}"


def test_profiles_of_boards_exist() -> None:
    boards = {"etnaviv-gc7000", "etnaviv-npu", "freedreno-a630", "panfrost-g52", "v3d"}
    assert boards <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_profiles_respect_minima_of_standard(name: str) -> None:
    # OpenCL 1.2, section 10: minima of the embedded profile.
    profile = read_device_profile(name)
    assert profile.name == name
    assert profile.local_mem_bytes >= 1024
    assert profile.max_argument_bytes >= 256
    assert profile.max_alloc_bytes >= 2**20


@pytest.mark.parametrize("name", NAMES)
def test_written_profile_round_trips(name: str, tmp_path: Path) -> None:
    profile = replace(read_device_profile(name), description='two "words" \\ and\na line')
    path = tmp_path / f"{name}.toml"
    path.write_text(device_profile_text(profile, {"local_mem_bytes": "a driver's word"}))
    assert "  # a driver's word\n" in path.read_text()
    assert read_device_profile(str(path)) == replace(
        profile, description='two "words" \\ and a line'
    )


def test_identity_has_every_limit() -> None:
    profile = read_device_profile("v3d")
    others = {profile.identity}
    for field in fields(DeviceProfile):
        value = getattr(profile, field.name)
        other = not value if isinstance(value, bool) else value * 2
        others.add(replace(profile, **{field.name: other}).identity)
    assert len(others) == 1 + len(fields(DeviceProfile))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'description' is missing"),
        (V3D + "speed = 3\n", "unknown key 'speed'"),
        (V3D.replace("max_work_group_size = 256", 'max_work_group_size = "256"'), "is no int"),
        (V3D.replace("max_work_group_size = 256", "max_work_group_size = true"), "is no int"),
        (V3D.replace("max_work_group_size = 256", "max_work_group_size = 0"), "less than 1"),
        (V3D.replace('"gpu"', '"fpga"'), "is none of gpu, accelerator, cpu, custom"),
        (V3D.replace('["nearest", "order", "params_argument"]', "[1]"), "isa has 1, which is no"),
        ("max_work_group_size == 1\n", "line 1"),
    ],
    ids=["empty", "unknown-key", "text", "truth", "zero", "type", "isa", "not-toml"],
)
def test_invalid_file_is_explained(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=re.escape(why)) as raised:
        read_device_profile(str(path))
    assert str(raised.value).startswith("device profile mine: ")


def test_missing_profile_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no device profile 'pi': one of .*v3d, or a FILE.toml"):
        read_device_profile("pi")
    with pytest.raises(ProfileError, match=r"none\.toml: No such file"):
        read_device_profile(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match=r"bytes\.toml: .* decode"):
        read_device_profile(str(tmp_path / "bytes.toml"))


def _sample() -> bytes:
    """Return a classifier with every common op, in a chain."""
    rng = np.random.default_rng(7)

    def weights(*shape: int) -> Tensor:
        return const(rng.integers(0, 256, shape).astype(np.uint8), 0.02, 120)

    def bias(count: int) -> Tensor:
        return const(rng.integers(-99, 99, count).astype(np.int32), 0.01)

    def image(*shape: int) -> Tensor:
        return t(shape, "uint8", 0.5, 128)

    one = {"stride_w": 1, "stride_h": 1, "padding": "SAME"}
    two = {"stride_w": 2, "stride_h": 2, "padding": "SAME"}
    window = {"filter_width": 3, "filter_height": 3}
    a, b, c, d, e, f = (image(1, h, w, k) for h, w, k in _SIZES)
    flat, logits, shares = image(1, 60), image(1, 101), t((1, 101), "uint8", 1 / 256)
    nodes = [
        op("CONV_2D", [a, weights(12, 3, 3, 3), bias(12)], [b], two),
        op("DEPTHWISE_CONV_2D", [b, weights(1, 3, 3, 12), bias(12)], [c],
           {"depth_multiplier": 1, **one}),
        op("CONV_2D", [c, weights(17, 1, 1, 12), bias(17)], [d], one),
        op("MAX_POOL_2D", [d], [e], {**two, **window}),
        op("CONV_2D", [e, weights(10, 1, 1, 17), bias(10)], [f], one),
        op("RESHAPE", [f], [flat], {"new_shape": [1, 60]}),
        op("FULLY_CONNECTED", [flat, weights(101, 60), bias(101)], [logits], {}),
        op("SOFTMAX", [logits], [shares], {"beta": 0.1}),
    ]  # fmt: skip
    return chain_model(nodes)


_SIZES = ((11, 7, 3), (6, 4, 12), (6, 4, 12), (6, 4, 17), (3, 2, 17), (3, 2, 10))
ADD = one_op_model(
    "ADD",
    [t((1, 5, 5, 7), "int8", 0.5, 3), t((1, 5, 5, 7), "int8", 0.3, -4)],
    [t((1, 5, 5, 7), "int8", 0.7, 9)],
)
SOFTMAX = one_op_model(
    "SOFTMAX", [t((2, 101), "uint8", 0.1, 5)], [t((2, 101), "uint8", 1 / 256)], {"beta": 1.0}
)


@slow
@pytest.mark.device
@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", NAMES)
def test_ops_under_every_profile(name: str) -> None:
    try:
        device, *_ = matching("portable computing language")
    except NoDeviceError as error:
        pytest.skip(str(error))
    assert_exact(_sample(), device, device_profile=name)


@slow
def test_ops_under_narrowest_profile(device: DeviceInfo, tmp_path: Path) -> None:
    path = tmp_path / "narrow.toml"
    narrow = replace(read_device_profile("etnaviv-gc7000ul"), max_work_group_size=8, isa=())
    path.write_text(device_profile_text(narrow, {}))
    assert_exact(_sample(), device, device_profile=str(path))


@slow
def test_batches_respect_profile(device: DeviceInfo) -> None:
    with pytest.raises(ProfileError, match="no device profile 'pi'"):
        Model(ADD, device.index, device_profile="pi")
    pictures = [np.ones((3, 5, 5, 7), np.int8), np.full((3, 5, 5, 7), 9, np.int8)]
    got = []
    for profile in (None, "v3d"):
        with Model(ADD, device.index, batch=3, device_profile=profile) as model:
            got += model.run(pictures)
    assert np.array_equal(*got)


@slow
def test_node_beyond_profile_stays_on_cpu_with_reason(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_of = sources.text_of
    planted = "static long LOCAL(twice)(int x) { return 2L * x; }"

    def text(file: str) -> str:
        return text_of(file) + planted * (file == "softmax.cl")

    monkeypatch.setattr(sources, "text_of", text)
    without = OpenCLDelegate(SOFTMAX, device.index, tune="off")
    interpreter(SOFTMAX, without)
    assert refusals(without) == {}
    limited = OpenCLDelegate(SOFTMAX, device.index, tune="off", device_profile="v3d")
    interpreter(SOFTMAX, limited)
    assert "device profile v3d: there are no 64-bit integers" in refusals(limited)[0]


def test_launches_do_not_name_devices() -> None:
    # Profiles limit the runtime; lowering sees them only as facts of the target.
    assert "profile" not in {field.name for field in (*fields(Launch), *fields(Target))}
