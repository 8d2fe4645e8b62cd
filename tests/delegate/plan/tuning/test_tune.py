# SPDX-License-Identifier: Apache-2.0
"""The choice among alternatives: comparison, measurement and memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from delegate import DeviceError, Unsupported
from delegate.graph.ir import Node
from delegate.guard.store import Store
from delegate.launch import Alternative, Launch
from delegate.plan.tuning import chooser as choosing
from delegate.plan.tuning.bench import DeviceBench, Reference
from delegate.plan.tuning.chooser import Choice, Chooser
from delegate.plan.tuning.tune import Tuner, fingerprint
from tests.support.cache_files import overwrite_records, truncate_records
from tests.support.model import op, t

NODE = op("ADD", [t((4,))], [t((4,))])


def launch(kernel: str, tiles: int = 1, **defines: int) -> Launch:
    source = t((4,))
    return Launch("file", kernel, tiles, 1, {"input": source, "zero": 3}, (source,), (), defines)


FAST, MIDDLE, PLAIN = (Alternative(n, (launch(n),)) for n in ("fast", "middle", "plain"))
ALL = (MIDDLE, FAST, PLAIN)


@dataclass
class FakeBench(DeviceBench):
    """A fake device with given times, unsupported alternatives and wrong ones."""

    seconds: dict[str, float]
    unable: tuple[str, ...] = ()
    lying: tuple[str, ...] = ()
    fails: bool = False
    measured: list[list[str]] = field(default_factory=list)
    literal: list[set[bool]] = field(default_factory=list)

    def source_of(self, launch: Launch) -> str:
        return f"source of {launch.kernel}"

    def check(self, alternative: Alternative) -> str | None:
        return f"{alternative.name} does not build" if alternative.name in self.unable else None

    def are_correct(
        self, node: Node, alternatives: Sequence[Alternative], reference: Reference
    ) -> list[bool]:
        assert node is NODE
        return [each.name not in self.lying for each in alternatives]

    def fastest(
        self, alternatives: Sequence[Alternative], rounds: int, batch: int, is_joined: bool
    ) -> tuple[int, list[float]]:
        if self.fails:
            raise DeviceError("no memory")
        self.measured.append([each.name for each in alternatives])
        self.literal.append({e.is_specialised for each in alternatives for e in each.launches})
        # The slowest one for a picture is the fastest in a batch.
        times = [self.seconds[each.name] * (1 if batch == 1 else -1) for each in alternatives]
        return times.index(min(times)), times


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path))


def bench(**facts: object) -> FakeBench:
    return FakeBench({"fast": 1, "middle": 2, "plain": 3}, **facts)  # type: ignore[arg-type]


def chooser(mode: str = "quick", identity: str = "device 1") -> Chooser:
    return Chooser(mode, Store(identity))


def tuner(fake: FakeBench, mode: str = "quick", identity: str = "device 1") -> Tuner:
    return Tuner(chooser(mode, identity), fake)


def test_fastest_is_used_and_stored() -> None:
    fake = bench()
    first = tuner(fake)
    assert first.choose(NODE, ALL) is FAST
    assert first.choose(NODE, ALL) is FAST
    assert fake.measured == [["middle", "fast"]]  # the fallback is a candidate only if alone
    first._chooser.save()
    for mode in ("quick", "full"):
        later = bench()
        assert tuner(later, mode).choose(NODE, ALL) is FAST
        assert later.measured == []
    other = bench()
    tuner(other, identity="device 2").choose(NODE, ALL)
    assert other.measured != []


def test_choice_of_other_shape_is_reused_only_within_graph() -> None:
    def measured(origin: str, known: str) -> list[list[str]]:
        """Return what is measured for an origin if a choice for another shape is known."""
        own = chooser()
        of_first = Tuner(own, bench())
        assert of_first.choose(NODE, [*ALL], origin=known) is FAST
        own._recorded = {
            key: result for key, result in own._recorded.items() if key.startswith("family")
        }
        later = bench()
        assert Tuner(own, later).choose(NODE, [*ALL], origin=origin) is FAST
        return later.measured

    assert measured("graph", known="graph") == []
    assert measured("graph", known="another graph") == [["middle", "fast"]]
    assert measured("", known="") == [["middle", "fast"]]


def test_batch_is_measured_separately() -> None:
    fake = bench()
    one = tuner(fake)
    assert [one.choose(NODE, ALL, batch) for batch in (1, 8, 1, 8)] == [FAST, MIDDLE, FAST, MIDDLE]
    assert len(fake.measured) == 2


@pytest.mark.parametrize(("mode", "literal"), [("quick", {False}), ("full", {True})])
def test_batch_is_measured_as_batch(mode: str, literal: set[bool]) -> None:
    fake = bench()
    result = tuner(fake, mode)
    assert [result.choose(NODE, ALL, batch) for batch in (8, 1)] == [MIDDLE, FAST]
    assert fake.literal == [literal, {False}]


def test_off_uses_first_that_runs_without_disk(tmp_path: Path) -> None:
    fake = bench(unable=("middle",))
    off = tuner(fake, "off")
    assert off.choose(NODE, ALL) is FAST
    off._chooser.save()
    assert (fake.measured, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize(
    ("wanted", "unable", "chosen"),
    [("middle", (), MIDDLE), ("middle", ("middle",), FAST), ("no such name", (), FAST)],
)
def test_named_alternative_is_used_without_measuring(
    wanted: str, unable: tuple[str, ...], chosen: Alternative
) -> None:
    fake = bench(unable=unable)
    tuner = Tuner(chooser(), fake, wanted)
    assert tuner.choose(NODE, ALL) is chosen
    assert (fake.measured == []) == (chosen is MIDDLE)


def test_wrong_alternative_is_rejected_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "delegate"):
        assert tuner(bench(lying=("fast",))).choose(NODE, ALL) is MIDDLE
    assert caplog.messages == [
        "node -1 (ADD): 'fast' computes wrongly on this device and is not used"
    ]
    assert tuner(bench(lying=("fast", "middle"))).choose(NODE, ALL) is PLAIN


def test_fallback_kernel_can_be_rejected(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "delegate"):
        assert tuner(bench(lying=("plain",))).choose(NODE, ALL) is FAST
    assert caplog.messages == [
        "node -1 (ADD): 'plain' computes wrongly on this device and is not used"
    ]


def test_node_without_right_alternative_stays_on_cpu() -> None:
    first = tuner(bench(lying=("fast", "middle", "plain")))
    for _ in range(2):
        with pytest.raises(Unsupported, match="this device computes it wrongly"):
            first.choose(NODE, ALL)
    first._chooser.save()
    with pytest.raises(Unsupported, match="this device computes it wrongly"):
        tuner(bench()).choose(NODE, ALL)


def test_build_error_is_no_candidate() -> None:
    fake = bench(unable=("fast",))
    assert tuner(fake).choose(NODE, ALL) is MIDDLE
    assert tuner(bench(unable=("fast", "middle"))).choose(NODE, ALL) is PLAIN
    with pytest.raises(Unsupported, match="plain does not build"):
        tuner(bench(unable=("fast", "middle", "plain"))).choose(NODE, ALL)


def test_device_failure_selects_first(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "delegate"):
        assert tuner(bench(fails=True)).choose(NODE, ALL) is MIDDLE
    assert caplog.messages == ["node -1 (ADD) was not tuned: no memory"]


def test_quick_has_time_limit_and_full_has_none() -> None:
    for mode, expected in (("quick", MIDDLE), ("full", FAST)):
        chosen = tuner(bench(), mode)
        if mode == "quick":
            chosen._chooser.seconds_left = 0
        assert chosen.choose(NODE, ALL) is expected
        assert chosen.choose(NODE, ALL) is expected
        assert chosen._chooser.unmeasured == (mode == "quick")


def test_later_measurement_reduces_pending() -> None:
    chosen = tuner(bench())
    chosen._chooser.seconds_left = 0
    chosen.choose(NODE, ALL)
    assert chosen._chooser.unmeasured == 1
    chosen._chooser.seconds_left = 100
    assert chosen.choose(NODE, ALL) is FAST
    assert chosen._chooser.unmeasured == 0


def test_slow_alternatives_are_measured_only_by_full() -> None:
    choice = Choice("whole", ["a"], default="b", is_long=True)
    quick = chooser()
    assert (quick.choose(choice, lambda: "a"), quick.unmeasured) == ("b", 0)
    patient = chooser("full")
    assert patient.choose(choice, lambda: "a") == "a"
    patient.save()
    assert chooser().choose(choice, lambda: None) == "a"


def test_unmeasurable_choice_is_not_pending() -> None:
    chosen = tuner(bench(fails=True))
    chosen.choose(NODE, ALL)
    assert chosen._chooser.unmeasured == 0


def test_long_measurement_is_stored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_UNSAVED_SECONDS", 0.0)
    tuner(bench()).choose(NODE, ALL)  # and the process ends without `save`
    later = bench()
    assert tuner(later).choose(NODE, ALL) is FAST
    assert later.measured == []


def test_signature_has_kernels_and_sizes_not_values() -> None:
    def of(**changes: object) -> str:
        each = launch("fast")
        fields = {name: getattr(each, name) for name in Launch.__slots__} | changes
        alternative = Alternative("fast", (Launch(**fields),))  # type: ignore[arg-type]
        return fingerprint([alternative], bench().source_of)

    assert of() == of(params={"input": t((4,)), "zero": 7})
    assert of() != of(params={"input": t((5,)), "zero": 3})
    assert of() != of(tiles=2)
    assert of() != of(kernel="other")


def test_damaged_file_is_measured_again() -> None:
    first = tuner(bench())
    first.choose(NODE, ALL)
    first._chooser.save()
    truncate_records()
    fake = bench()
    assert tuner(fake).choose(NODE, ALL) is FAST
    assert fake.measured != []


FOREIGN = {
    "no JSON": b"fast",
    "no text": b"\xff\xfe",
    "empty": b"",
    "a list": b"[1]",
    "a number": b"7",
    "other values": b'{"choices": {"transfer": 7}}',
    "other tables": b'{"choices": 7}',
    "deep": b"[" * 100_000,
    "a huge number": b"9" * 10_000,
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_file_is_measured_again(content: bytes) -> None:
    first = tuner(bench())
    first.choose(NODE, ALL)
    first._chooser.save()
    overwrite_records(content)
    fake = bench()
    later = tuner(fake)
    assert later.choose(NODE, ALL) is FAST
    assert fake.measured != []
    later._chooser.save()
    fake = bench()
    assert tuner(fake).choose(NODE, ALL) is FAST
    assert fake.measured == []


def test_unknown_name_is_measured_again() -> None:
    first = chooser()
    first.choose(Choice("transfer", ["thrown"]), lambda: "thrown")
    first.save()
    assert chooser().choose(Choice("transfer", ["mapped"]), lambda: "mapped") == "mapped"


def test_processes_preserve_each_others_choices() -> None:
    one, two = chooser(), chooser()
    one.choose(Choice("first", ("x", "y")), lambda: "x")
    two.choose(Choice("second", ("x", "y")), lambda: "y")
    one.save()
    two.save()
    fresh = chooser()
    assert fresh.choose(Choice("first", ("x", "y")), lambda: None) == "x"
    assert fresh.choose(Choice("second", ("x", "y")), lambda: None) == "y"


def test_invalid_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="tune='fast': one of off, quick, full"):
        tuner(bench(), "fast")
