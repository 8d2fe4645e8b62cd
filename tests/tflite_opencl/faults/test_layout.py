# SPDX-License-Identifier: Apache-2.0
"""Tokens become lines that a person reads."""

from __future__ import annotations

from tflite_opencl.faults.layout import formatted
from tflite_opencl.faults.tokens import tokens_of

TEXT = """\
static int f(global const uchar *x, float4 y) {
  for (int i = 0; i < 4; i++)
    if (x[i] > -1)
      break;
    else {
      y += (float4)(*x) * -y.x;
    }
  return !x ? (int)x[0] : ~i;
}

typedef struct {
  int fields[3];
} block;
"""


def test_layout() -> None:
    assert formatted([token.text for token in tokens_of(TEXT)]) == TEXT


def test_pragmas_have_lines_of_their_own() -> None:
    tokens = ["{", "#pragma unroll", "\n", "for", "(", ";", ";", ")", "f", "(", ")", ";", "}"]
    assert formatted(tokens) == "{\n#pragma unroll\n  for (;;)\n    f();\n}\n\n"


def test_long_lines_are_broken() -> None:
    words = [text for number in range(60) for text in (f"argument_{number}", "+")]
    lines = formatted(["x", "=", *words[:-1], ";"]).splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= 100
