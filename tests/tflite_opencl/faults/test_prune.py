# SPDX-License-Identifier: Apache-2.0
"""What a kernel does not use is dropped, and what it uses stays."""

from __future__ import annotations

import pytest

from tflite_opencl.faults.prune import pruned
from tflite_opencl.faults.tokens import tokens_of


def kept(text: str) -> str:
    return " ".join(pruned([token.text for token in tokens_of(text)], ["k"]))


def test_unused_declarations_are_dropped() -> None:
    text = (
        "int __attribute__((const)) min(int, int); float min(float, float); int max(int, int);"
        "typedef struct { int a[2]; } used; typedef int unused; enum { IN, OUT };"
        "static int f(int x) { return min(x, 1); } static int g(used x) { return f(2); }"
        "constant int table[2] = { 1, 2 };"
        "kernel void other() { max(1, 2); } kernel void k(used x) { g(x); }"
    )
    found = kept(text)
    for word in ("float min", "int __attribute__", "used ;", "f ( int", "g ( used", "void k"):
        assert word in found
    for word in ("max", "unused", "OUT", "table", "other"):
        assert word not in found


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x = 1 ? a : b;", "x = a ;"),
        ("x = 0 ? a + 1 : b + c;", "x = b + c ;"),
        ("f(!0 ? a : b, c);", "f ( a , c ) ;"),
        ("x = (1) ? (y ? 1 : 2) : 3;", "x = ( ( y ? 1 : 2 ) ) ;"),
        ("x = 1 ? y ? 1 : 2 : 3;", "x = ( y ? 1 : 2 ) ;"),
        ("x = y ? 0 ? 1 : 2 : 3;", "x = y ? 2 : 3 ;"),
        ("x = 2 + 1 ? a : b;", "x = 2 + 1 ? a : b ;"),
        ("x = y == 1 ? a : b;", "x = y == 1 ? a : b ;"),
        ("if (0) f(); else { g(); }", "{ g ( ) ; }"),
        ("if (1) for (;;) if (x) f(); else g(); else h();",
         "for ( ; ; ) if ( x ) f ( ) ; else g ( ) ;"),
        ("if (0) f();", ";"),
        ("if (x) if (0) f();", "if ( x ) ;"),
    ],
)  # fmt: skip
def test_dead_branches(statement: str, expected: str) -> None:
    assert kept(f"kernel void k() {{ {statement} }}") == f"kernel void k ( ) {{ {expected} }}"
