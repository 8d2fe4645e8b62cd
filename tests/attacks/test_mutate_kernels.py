# SPDX-License-Identifier: Apache-2.0
"""The mutations of kernels: where they are made, and that detection is reported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.attacks.mutate_kernels import NOTICED, UNCOMPILED, UNNOTICED, Judge
from tests.attacks.mutations import Mutation, drawn, includers, mutations, planted

TEXT = """// a + b, 1
#include "kernel.clh"
#pragma unroll 4
#if LANES == 4
#define SUM(a, b) ((a) + (b))
#endif
static int LOCAL(f)(global const int* x, float y) {
  for (int i = get_local_id(0); i < COUNT; i++) x1[i] = min(x[i] << 2, (int)(y * 0.5f));
  __asm__("add %0, 7;" : "=r"(i));
}
"""


def _changes(text: str) -> list[str]:
    return [f"{each.line} {each.old} {each.new}" for each in mutations("f.cl", text)]


def test_only_code_is_mutated() -> None:
    assert _changes(TEXT) == [
        "5 + -",
        "8 < <=",
        "8 << >>",
        "8 * +",
        "8 2 3",
        "8 0.5f (0.5f * 1.5f)",
        "8 min max",
    ]


def test_continued_macro_is_code() -> None:
    assert _changes("#define F(x) \\\n  (x + 0x10)\n") == ["2 + -", "2 0x10 0x11"]


def test_mutation_is_applied_in_place() -> None:
    change = Mutation("f.cl", 2, 4, "+", "-")
    assert planted(change, "a + b\n1 + + b\n") == "a + b\n1 + - b\n"
    with pytest.raises(ValueError, match=r"f\.cl:2:5"):
        planted(change, "a + b\na - b\n")


def test_drawing_alternates_between_files_and_is_deterministic() -> None:
    texts = {"a.cl": "x = 1 + 2 + 3 + 4;\n", "b.cl": "y = 1;\n"}
    chosen = drawn(texts, 3, seed=1)
    assert chosen == drawn(texts, 3, seed=1)
    assert sorted(each.file for each in chosen) == ["a.cl", "a.cl", "b.cl"]
    assert len(drawn(texts, 100, seed=1)) == 8


def test_includers_of_header() -> None:
    texts = {"a.clh": "", "b.clh": '#include "a.clh"\n', "c.cl": '#include "b.clh"\n', "d.cl": ""}
    assert includers(texts, "a.clh") == {"c.cl"}
    assert includers(texts, "d.cl") == {"d.cl"}


@pytest.mark.parametrize(
    ("fails_on", "verdict"), [("a - b", NOTICED), ("#error", UNNOTICED), ("nothing", UNCOMPILED)]
)
def test_judge_runs_users_and_restores_file(fails_on: str, verdict: str, tmp_path: Path) -> None:
    kernel = tmp_path / "kernels" / "f.cl"
    kernel.parent.mkdir()
    kernel.write_text("one\na + b\n")
    script = f"import sys; sys.exit({fails_on!r} in open('kernels/f.cl').read())"
    judge = Judge({"f": ["a"]}, lambda names: [sys.executable, "-c", script], None, False, seed=0)
    fault = Mutation("f.cl", 2, 2, "+", "-")
    assert judge.verdict(fault, tmp_path, frozenset({"f.cl"})) == verdict
    assert kernel.read_text() == "one\na + b\n"


def test_users_that_fail_without_mutation_are_an_error(tmp_path: Path) -> None:
    kernel = tmp_path / "kernels" / "f.cl"
    kernel.parent.mkdir()
    kernel.write_text("a + b\n")
    judge = Judge({}, lambda names: [sys.executable, "-c", "1 / 0"], None, False, seed=0)
    with pytest.raises(RuntimeError, match="fail without a fault"):
        judge.verdict(Mutation("f.cl", 1, 2, "+", "-"), tmp_path, frozenset({"f.cl"}))
