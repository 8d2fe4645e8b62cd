# SPDX-License-Identifier: Apache-2.0
"""Who may do what: the user's process, a child, one that does without; and what is kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delegate import cache
from delegate.errors import KilledChild, Untried
from delegate.runtime.trials import (
    BINARY,
    DONE,
    FAILED,
    SOURCE,
    Free,
    Guarded,
    Records,
    Told,
    file_of,
    name_of,
)

PROGRAM, KERNEL, RUN = "program a1", "kernel a1 add 1 1", "run a1 add 1 1"


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """Return those of a device that nothing is known of."""
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))
    return Records("device")


def test_the_user_s_process_does_what_a_child_did(records: Records) -> None:
    guarded = Guarded(records)
    for tried in (lambda: guarded.of(PROGRAM).__enter__(), lambda: guarded.is_due(PROGRAM)):
        with pytest.raises(Untried, match=f"^{PROGRAM}$"):
            tried()
    records.add({PROGRAM: BINARY})
    with guarded.of(PROGRAM) as trial:
        assert trial.how == BINARY
    assert not guarded.is_due(PROGRAM)
    assert guarded.known(PROGRAM) == BINARY
    assert guarded.known(RUN) is None


def test_what_killed_a_child_is_not_done(records: Records) -> None:
    guarded = Guarded(records)
    records.add({KERNEL: DONE, PROGRAM: f"{FAILED}it died"})
    for name in (PROGRAM, KERNEL, RUN):  # the program's kernels neither, tried or not
        assert guarded.known(name) is None
        with pytest.raises(KilledChild, match=r"^it died$"), guarded.of(name):
            pytest.fail("it was done")
    records.add({"executor b2": f"{FAILED}it hung"})
    with pytest.raises(KilledChild, match=r"^it hung$"):
        guarded.is_due("executor b2")


def test_a_child_tells_each_trial_before_and_after() -> None:
    said: list[dict[str, Any]] = []
    told = Told({"program c3": f"{FAILED}it died", "run d4": DONE}, lambda **it: said.append(it))
    assert told.is_due(PROGRAM)
    with told.of(PROGRAM) as trial:
        assert said == [{"trying": PROGRAM}]
        trial.how = SOURCE
    assert said[1:] == [{"tried": PROGRAM, "how": SOURCE}]
    assert not told.is_due(PROGRAM)
    with pytest.raises(ZeroDivisionError), told.of(RUN):
        raise ZeroDivisionError
    assert said[2:] == [{"trying": RUN}, {"tried": RUN, "how": DONE}]
    with pytest.raises(KilledChild), told.of("program c3"):
        pytest.fail("it was done")
    assert len(said) == 4
    assert not told.is_due("run d4")


def test_who_does_without_keeps_nothing() -> None:
    free = Free()
    with free.of(PROGRAM):
        free.note(RUN, DONE)
    assert (free.known(PROGRAM), free.known(RUN), free.is_due(PROGRAM)) == (None, None, False)


def test_records_are_kept_by_device_and_those_of_others_stay(records: Records) -> None:
    other = Records("device")
    records.add({PROGRAM: SOURCE})
    other.add({RUN: DONE})
    assert Records("device").known == {PROGRAM: SOURCE, RUN: DONE}
    assert Records("another device").known == {}


@pytest.mark.parametrize("content", [b"\xff", b"[]", b'{"a": 1}', b"{", b"[" * 100_000])
def test_foreign_records_are_none(records: Records, content: bytes) -> None:
    records.add({PROGRAM: SOURCE})
    (path,) = cache.cache_folder().rglob("trials/*")
    assert cache.store(f"trials/{path.name}", content)
    assert Records("device").known == {}


def test_a_file_that_was_given_up_fails_all_its_programs() -> None:
    program = "program add_vector-0a1b"
    assert file_of("run add_vector-0a1b add_vector_quant8 1 64") == file_of(program)
    assert file_of("binary add_vector-77") == file_of(program) != file_of("program add-0a1b")
    told = Told({file_of(program): f"{FAILED}they died"}, lambda **it: None)
    for name in (program, "binary add_vector-77", "run add_vector-0a1b add_vector_quant8 1 64"):
        with pytest.raises(KilledChild, match="they died"), told.of(name):
            pytest.fail("it was done")
    with told.of("program add-0a1b"):
        pass


def test_names_differ_by_all_that_a_driver_is_given() -> None:
    assert name_of("executor", [1, 2], "x") == name_of("executor", [1, 2], "x")
    assert name_of("executor", [1, 2], "x") != name_of("executor", [1, 2], "y")
    assert name_of("executor", [1, 2]).startswith("executor ")
