# SPDX-License-Identifier: Apache-2.0
"""The conformance suite names each fault of liar.c, a delegate library."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.suite import run_cases
from tests.support.tiers import slow
from tflite_opencl.conformance.results import CaseResult
from tflite_opencl.conformance.subject import LibraryError

SOURCE = Path(__file__).with_name("liar.c")
ADD = "add/float32/1x7x5x3"
BEHAVIOUR = "behaviour/float32/{}-add"
Build = Callable[[str], Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that compiles the library with a fault."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc libc6-dev")
    folder = tmp_path_factory.mktemp("libraries")

    def compiled(fault: str) -> Path:
        library = folder / f"lib{fault.lower()}.so"
        command = [compiler, "-O1", "-shared", "-fPIC", f"-DFAULT={fault}", "-o", str(library)]
        subprocess.run([*command, str(SOURCE)], check=True, timeout=60)
        return library

    return compiled


def run(
    library: Path, names: list[str], limits: dict[str, float] | None = None, **options: str
) -> dict[str, CaseResult]:
    """Return the results of these cases by name, without repetition."""
    return run_cases(str(library), names, options, limits=limits)


@slow
def test_correct_library_passes(build: Build) -> None:
    checks = (
        "twice", "inputs_unchanged", "guard_bytes", "reallocate", "resize", "two_interpreters",
        "reopen", "reopen_100",
    )  # fmt: skip
    names = [ADD, *map(BEHAVIOUR.format, checks)]
    results = run(build("NONE"), names, fine="yes")
    assert {name: result.result for name, result in results.items()} == dict.fromkeys(names, "Pass")


@slow
@pytest.mark.parametrize(
    ("fault", "wrong", "result", "words"),
    [
        ("OFF_BY_ONE", ADD, "Fail", "1 of 105 elements differ"),
        ("BATCH_2", BEHAVIOUR.format("resize"), "Fail", "in 1 of 3 rows"),
        ("CRASH", ADD, "Crash", "the process died (SIGSEGV)"),
        ("PAST", BEHAVIOUR.format("guard_bytes"), "Fail", "wrote outside the outputs"),
        ("LEAK", BEHAVIOUR.format("reopen_100"), "Fail", "bytes of memory"),
        ("HANDLES", BEHAVIOUR.format("reopen_100"), "Fail", "leaks 1 of file handles"),
        ("NOTHING", ADD, "Fail", "the output was never written"),
        ("DIFFERS", BEHAVIOUR.format("twice"), "Fail", "run 3 differs from run 1"),
        ("REFUSE", ADD, "Fail", "delegate"),
    ],
)
def test_fault_is_named(build: Build, fault: str, wrong: str, result: str, words: str) -> None:
    outcome = run(build(fault), [wrong])[wrong]
    assert outcome.result == result
    assert words in outcome.detail


@slow
def test_stale_pointers_are_found(build: Build) -> None:
    # Writing to freed memory may also crash the process.
    result = run(build("STALE"), [BEHAVIOUR.format("reallocate"), ADD])
    assert result[BEHAVIOUR.format("reallocate")].result in ("Fail", "Crash")
    assert result[ADD].result == "Pass"


@slow
def test_hang_is_ended(build: Build) -> None:
    result = run(build("HANG"), [ADD, "relu/float32/in3"], limits={ADD: 3})
    assert result[ADD].result == "Timeout"
    assert result["relu/float32/in3"].result == "NotDelegated"


@slow
def test_options_reach_library(build: Build) -> None:
    with pytest.raises(LibraryError, match="unknown option"):
        run(build("NONE"), [ADD], fine="no")


@slow
def test_missing_library() -> None:
    with pytest.raises(LibraryError, match=r"cannot load .*/libnone\.so"):
        run(Path("libnone.so").resolve(), [ADD])
