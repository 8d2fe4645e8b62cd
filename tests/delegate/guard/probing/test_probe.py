# SPDX-License-Identifier: Apache-2.0
"""A device's self-test in a child process: failures, and results that are remembered."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, NoDeviceError, Options
from delegate.guard import helper_child
from delegate.guard.children import helper
from delegate.guard.children.channel import Channel
from delegate.guard.children.trials import FRESH, PASSED, SELF_TEST, Trial
from delegate.guard.probing import opening, probe, self_tests
from delegate.guard.probing.opening import open_device
from delegate.guard.probing.probe import Proof, examine
from delegate.guard.probing.self_tests import feature_test, self_test
from delegate.inspect import lift_bans, list_bans
from delegate.isa import ASSEMBLY, BY_NAME, ORDERS, Feature, that_need
from delegate.run.device import Device
from delegate.run.executor import Executor
from tests.support.cache_files import overwrite_records, truncate_records
from tests.support.tiers import slow

PYTHON = sys.executable  # before a test replaces it
POCL = "Portable Computing Language"


@pytest.fixture
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path / "cache"))


def info(index: int = 0, name: str = "Dev", platform: str = "Plat") -> DeviceInfo:
    return DeviceInfo(index, platform, f"{platform} 1", name, "Maker", "OpenCL 3.0", "1", "gpu")


CHILD = """
import json, os, pickle, signal, sys, time
count = json.loads(sys.stdin.buffer.readline())["bytes"]
(word, _, _, tests, passed), seconds, *_ = pickle.loads(sys.stdin.buffer.read(count))
names = [test[1] for test in tests]
def tell(**told):
    for word in ('trying', 'tried'):
        if word in told:
            if told[word] not in names: return
            told[word] = tests[names.index(told[word])]
    print(json.dumps(told), flush=True)
"""


def child_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Make the helper run this code instead of delegate.guard.helper_child."""
    helper._close(is_idle=False)
    script = tmp_path / "child"
    script.write_text(f"#!{PYTHON}\n{CHILD}\n{code}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


@pytest.fixture(autouse=True)
def _no_helper_of_another_test() -> Iterator[None]:
    yield
    helper._close(is_idle=False)


@pytest.mark.usefixtures("_empty_cache")
def test_digests_of_self_tests_are_stored_for_this_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, digests, created = info().identity, probe._digests, list[tuple[str, ...]]()

    def counted(isas: tuple[str, ...]) -> dict[str, str]:
        created.append(isas)
        return digests(isas)

    def tests(*isas: str) -> list[str]:
        probe._tests.cache_clear()
        return [test.digest for test in probe._tests(own, isas)]

    monkeypatch.setattr(probe, "_digests", counted)
    expected = [digests(("dot",))[name] for name in ("device", "dot")]
    assert [tests("dot"), tests("dot"), tests()] == [expected, expected, expected[:1]]
    assert created == [("dot",)]
    monkeypatch.setattr(probe, "installation_key", lambda: "another one")
    assert tests("dot") == expected
    assert len(created) == 2
    for foreign in (None, [], "text", ["another one"], ["another one", 3]):
        probe.Store(own).save(probe.FACTS, {probe._SOURCES: foreign})
        assert tests("dot") == expected
    assert len(created) == 7
    probe._tests.cache_clear()


GOOD = "tell(tried='device', how='passed'); tell(answer=None)"


@slow
@pytest.mark.usefixtures("_empty_cache")
@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "its self-test died with SIGSEGV"),
        (
            "sys.stderr.write('one\\nld: not found\\n\\n'); sys.stderr.flush(); os.abort()",
            "its self-test died with SIGABRT: ld: not found",
        ),
        ("sys.exit(3)", "its self-test ended with code 3"),
        ("print('hello'); sys.exit('no')", "its self-test ended with code 1: no"),
        ("print('{}')", "its self-test ended with code 0"),
        ("tell(trying='device'); time.sleep(60)", "its self-test gave no answer within 0.5 s"),
        ("tell(tried='device', how='it is wrong'); tell(answer=None)", "it is wrong"),
    ],
    ids=["signal", "abort-with-words", "status", "words", "json-of-others", "hang", "wrong"],
)
def test_failing_device_is_skipped_with_reason(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    code: str,
    failure: str,
) -> None:
    child_that(monkeypatch, tmp_path, code)
    monkeypatch.setattr(probe, "TIMEOUT_SECONDS", 0.5 if "sleep" in code else 30)
    monkeypatch.setattr(helper, "_SLACK_SECONDS", 0)
    monkeypatch.setattr(opening, "matching", lambda selector: (info(), info(1, "Other")))
    assert examine(info()).failure == failure
    with caplog.at_level(logging.WARNING, "delegate"), pytest.raises(NoDeviceError) as raised:
        open_device(Options())
    assert caplog.messages == [
        f"device 0 is skipped: Dev (Plat 1): {failure}",
        f"device 1 is skipped: Other (Plat 1): {failure}",
    ]
    assert str(raised.value) == (
        f"no OpenCL device works: Dev (Plat 1): {failure}; Other (Plat 1): {failure}"
    )


@slow
@pytest.mark.usefixtures("_empty_cache")
def test_answer_survives_output_of_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child_that(monkeypatch, tmp_path, f"print('driver 1.0'); print('[1]'); {GOOD}; print('bye')")
    assert examine(info()).failure is None


@slow
@pytest.mark.usefixtures("_empty_cache")
@pytest.mark.parametrize(
    ("platform", "words", "advice"),
    [
        (POCL, "", "; PoCL from PyPI links kernels with ld: install binutils"),
        (
            POCL,
            "unknown target CPU 'znver9'",
            ": unknown target CPU 'znver9'; this PoCL's LLVM is older than the CPU: "
            "install a newer PoCL, on Debian pocl-opencl-icd",
        ),
        ("Other", "", ""),
    ],
    ids=["pocl", "old-pocl", "other"],
)
def test_crash_of_pocl_has_advice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, words: str, advice: str
) -> None:
    code = f'sys.stderr.write("{words}"); sys.stderr.flush(); os.abort()'
    child_that(monkeypatch, tmp_path, code)
    assert examine(info(platform=platform)).failure == f"its self-test died with SIGABRT{advice}"


@slow
@pytest.mark.usefixtures("_empty_cache")
def test_pass_is_remembered_until_driver_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counter = tmp_path / "calls"
    child_that(monkeypatch, tmp_path, f"open({str(counter)!r}, 'a').write('x'); {GOOD}")
    monkeypatch.setattr(probe, "tried_on", lambda device_type, is_ieee=False: [])
    for _ in range(3):
        assert examine(info()).failure is None
    assert counter.read_text() == "x"
    examine(info(name="Another"))
    assert counter.read_text() == "xx"
    truncate_records()
    examine(info())
    assert counter.read_text() == "xxx"


@slow
@pytest.mark.usefixtures("_empty_cache")
@pytest.mark.parametrize("content", [b"\xff", b'{"trials": 1}', b'{"trials": {"a": 1}}'])
def test_foreign_proof_is_tested_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    monkeypatch.setattr(probe, "tried_on", lambda device_type, is_ieee=False: ["a"])
    monkeypatch.setattr(probe, "BY_NAME", {"a": BY_NAME["nearest"]})
    child_that(monkeypatch, tmp_path, f"tell(tried='a', how='passed'); {GOOD}")
    proof = Proof(None, frozenset({"a"}))
    assert examine(info()) == proof
    overwrite_records(content)
    assert examine(info()) == proof


@slow
@pytest.mark.usefixtures("_empty_cache")
def test_crash_disables_only_one_instruction(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "asked"
    child_that(
        monkeypatch,
        tmp_path,
        f"""
open({str(log)!r}, 'a').write(' '.join(names) + '\\n')
for isa in names:
    tell(trying=isa)
    if isa == 'b': os.kill(os.getpid(), signal.SIGILL)
    if isa == 'd': os.abort()
    tell(tried=isa, how='other numbers' if isa == 'c' else 'passed')
tell(answer=None)
""",
    )
    monkeypatch.setattr(
        probe, "tried_on", lambda device_type, is_ieee=False: ["a", "b", "c", "d", "e"]
    )
    monkeypatch.setattr(probe, "BY_NAME", dict.fromkeys("abcde", BY_NAME["nearest"]))
    proof = examine(info())
    assert proof == Proof(None, frozenset({"a", "e"}))
    # A second child repeats the fatal trial, and a fallback kernel is tried before the ban.
    assert log.read_text().split("\n") == [
        "device", "a b c d e", "b c d e", FRESH, "c d e", "d e", FRESH, "e", ""
    ]  # fmt: skip
    assert sorted(ban.trial.name for ban in list_bans()) == ["b", "d"]
    assert examine(info()) == proof
    assert len(log.read_text().split("\n")) == 9
    # Lifted bans are tried again, and other results stay.
    lift_bans()
    assert examine(info()) == proof
    assert log.read_text().split("\n")[8:] == ["b d", "b d", FRESH, "d", "d", FRESH, ""]


@slow
@pytest.mark.usefixtures("_empty_cache")
@pytest.mark.parametrize(("kills", "proven"), [(1, {"a", "b", "c"}), (2, {"a", "c"})])
def test_killed_child_bans_no_instruction(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kills: int,
    proven: set[str],
) -> None:
    child_that(
        monkeypatch,
        tmp_path,
        f"""
for isa in names:
    tell(trying=isa)
    killed = [f'{tmp_path}/killed{{number}}' for number in range({kills})]
    left = [path for path in killed if not os.path.exists(path)]
    if isa == 'b' and left:
        open(left[0], 'w').close()
        os.kill(os.getpid(), signal.SIGKILL)
    tell(tried=isa, how='passed')
tell(answer=None)
""",
    )
    monkeypatch.setattr(probe, "tried_on", lambda device_type, is_ieee=False: ["a", "b", "c"])
    monkeypatch.setattr(probe, "BY_NAME", dict.fromkeys("abc", BY_NAME["nearest"]))
    with caplog.at_level(logging.WARNING, "delegate"):
        assert examine(info()) == Proof(None, frozenset(proven))
    death = "a child process died with SIGKILL, as it tried to pass the self-test of b"
    assert caplog.messages[0] == f"{death}: another one tries it again"
    assert (f"{death} again: this start does without" in caplog.text) == (kills == 2)
    # The next start tests what is missing.
    assert examine(info()) == Proof(None, frozenset("abc"))
    assert list_bans() == []


def test_instructions_implied_by_others_are_not_tested(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    outcomes: dict[Trial, str] = {}

    def passes(opened: Device, feature: Feature) -> str:
        requests.append(feature.name)
        return PASSED

    monkeypatch.setattr(self_tests, "feature_test", passes)
    tests = [Trial(SELF_TEST, name) for name in ("order_ptx", "nearest", "order")]

    def tell(**said: Any) -> None:
        if "tried" in said:
            outcomes[said["tried"]] = said["how"]

    monkeypatch.setattr(helper_child._log, "setLevel", lambda level: None)
    child = helper_child._RequestHandler(helper_child._EventSender(Channel(0, 1)))
    monkeypatch.setattr(child, "_send", tell)
    child.self_tests(device, None, tests, ())
    assert requests == ["order_ptx", "nearest"]
    assert outcomes == dict(zip(tests, (PASSED, PASSED, "not needed"), strict=True))
    # The successor of a killed child knows what passed.
    child.self_tests(device, None, tests[2:], ["order_ptx"])
    assert requests == ["order_ptx", "nearest"]


@pytest.mark.parametrize("isa", [*sorted(that_need(ASSEMBLY)), "order", "nearest", "dot"])
def test_wrong_results_prove_nothing(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, isa: str
) -> None:
    proven = examine(device).isa
    # "order" is tested only if no instruction of the processor passed.
    if isa not in proven | {"nearest"} and not (isa == "order" and proven & ORDERS):
        pytest.skip(f"{device.name} has no {isa}")
    opened = Device(device, proven=[isa])
    if isa not in proven and feature_test(opened, BY_NAME[isa]) != PASSED:
        pytest.skip(f"{device.name} has no {isa}")
    assert feature_test(opened, BY_NAME[isa]) == PASSED
    run = Executor.run

    def slightly_wrong(self: Executor, inputs: list[object], outputs: list[object]) -> None:
        run(self, inputs, outputs)  # type: ignore[arg-type]
        outputs[0].view(np.int32).reshape(-1)[3] ^= 1  # type: ignore[attr-defined]

    monkeypatch.setattr(Executor, "run", slightly_wrong)
    assert feature_test(opened, BY_NAME[isa]) == "other numbers than expected"


@pytest.mark.parametrize("is_signed", [True, False])
def test_dot_product_self_test_has_right_numbers(device: DeviceInfo, is_signed: bool) -> None:
    # No device here has them, so the kernel emulates the extension.
    name = "emulated_dot" if is_signed else "emulated_mixed_dot"
    assert feature_test(Device(device), BY_NAME[name]) == PASSED


@slow
@pytest.mark.usefixtures("_empty_cache")
def test_failure_is_not_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child_that(monkeypatch, tmp_path, "sys.exit(3)")
    assert examine(info()).failure is not None
    child_that(monkeypatch, tmp_path, GOOD)
    assert examine(info()).failure is None


@slow
@pytest.mark.usefixtures("_empty_cache")
def test_working_device_passes_in_child(device: DeviceInfo) -> None:
    assert self_test(Device(device)) is None
    proof = examine(device)
    assert proof.failure is None
    assert examine(device) == proof  # from the cache, with all proven instructions


@slow
@pytest.mark.usefixtures("_empty_cache")
def test_child_opens_the_same_device_or_fails(device: DeviceInfo) -> None:
    moved = DeviceInfo(device.index, *([""] * 7))
    failure = examine(moved).failure
    assert failure is not None
    assert failure.startswith("its self-test ended with code 1: ")
    assert failure.endswith(f"device {device.index} is now {device.identity}")


@pytest.mark.parametrize(
    ("column", "what"), list(enumerate(("two roundings", "one rounding", "vectors", "division")))
)
def test_device_with_wrong_results_fails(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, column: int, what: str
) -> None:
    run = Executor.run

    def slightly_wrong(self: Executor, inputs: list[object], outputs: list[object]) -> None:
        run(self, inputs, outputs)  # type: ignore[arg-type]
        outputs[0].view(np.int32).reshape(-1, 4)[5, column] += 1  # type: ignore[attr-defined]

    monkeypatch.setattr(Executor, "run", slightly_wrong)
    failure = self_test(Device(device))
    assert failure is not None
    assert failure.startswith(f"its self-test is wrong ({what}): [")


def test_first_of_several_matches_is_used_and_named(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "matching", lambda selector: (device, info(9)))
    with caplog.at_level(logging.INFO, "delegate"):
        opened = open_device(Options("words"))
        assert opened.info == device
        assert caplog.messages == [f"device 'words' is {device.index}: {device.name}"]
        open_device(Options())
    assert len(caplog.messages) == 1


def test_next_device_replaces_failing_one(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "matching", lambda selector: (info(9), device))
    answers = {9: Proof("broken"), device.index: Proof(None, frozenset({"dot"}))}
    monkeypatch.setattr(opening, "examine", lambda found, *about: answers[found.index])
    with caplog.at_level(logging.WARNING, "delegate"):
        opened = open_device(Options("words"))
    assert opened.info == device
    assert opened.proven == {"dot"}
    assert caplog.messages == ["device 9 is skipped: Dev (Plat 1): broken"]
