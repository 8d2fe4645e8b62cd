# SPDX-License-Identifier: Apache-2.0
"""Macros are expanded as C says, and conditions that only the driver knows are asked."""

from __future__ import annotations

import pytest

from tflite_opencl.faults.preprocessor import MacroExpander


def expanded(text: str, **answers: bool) -> str:
    return " ".join(MacroExpander(answers).run(text)).strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#define N 4\nint x = N;", "int x = 4 ;"),
        ("#define F(a, b) a * b\nF(1, g(2, 3))", "1 * g ( 2 , 3 )"),
        ("#define F(a) a\nF\n(1) F", "1 F"),
        ("#define J_(a, b) a##b\n#define J(a, b) J_(a, b)\n#define W 4\nJ(int, W) J_(int, W)",
         "int4 intW"),
        ("#define J(a, b) x a##b\nJ(, y) J(y, )", "x y x y"),
        ("#define S(a) #a\nS(b + 1)", '"b + 1"'),
        ("#define A B\n#define B A\nA", "A"),
        ("#define F(x) F(x + 1)\nF(1)", "F ( 1 + 1 )"),
        ("#define P(x) (params[x])\n#define X P(3)\nX", "( params [ 3 ] )"),
        ("#define L(i) \\\n  _Pragma(\"unroll\") for (i)\nL(j)", "#pragma unroll \n for ( j )"),
        ("// N\n#define N 1 // one\n/* N */ N", "1"),
        ("#define N 1\n#undef N\nN", "N"),
    ],
)  # fmt: skip
def test_expansion(text: str, expected: str) -> None:
    assert expanded(text) == expected


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("1 + 2 * 3 == 7 && !(4 < 3)", True),
        ("(1 << 4) - 16 || -7 / 2 != -3", False),
        ("defined(N) && N >= 0x10", True),
        ("!defined N", False),
        ("UNKNOWN", False),
    ],
)
def test_condition(condition: str, holds: bool) -> None:
    text = f"#define N 16\n#if {condition}\nyes\n#else\nno\n#endif"
    assert expanded(text) == ("yes" if holds else "no")


def test_nested_branches() -> None:
    text = "#if 0\n#if 1\na\n#else\nb\n#endif\n#elif 1\n#ifndef X\nc\n#endif\n#else\nd\n#endif"
    assert expanded(text) == "c"


def test_driver_is_asked() -> None:
    text = "#ifdef __FMA__\nfma\n#endif"
    expander = MacroExpander({})
    assert expander.run(text) == []
    assert [*expander.unknown] == ["defined ( __FMA__ )"]
    assert MacroExpander({"defined ( __FMA__ )": True}).run(text) == ["fma"]


@pytest.mark.parametrize("text", ["#if 1\na", "#define F(a) a\nF(1", "#error no"])
def test_malformed_source(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        expanded(text)
