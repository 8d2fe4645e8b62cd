# SPDX-License-Identifier: Apache-2.0
"""The source of a reproducer without macros: one program for all of its kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from delegate.inspect import CallPlan, ProgramPlan, Reproducer, TensorSlice
from tflite_opencl.faults.layout import formatted
from tflite_opencl.faults.preprocessor import LINE_END, MacroExpander
from tflite_opencl.faults.prune import pruned
from tflite_opencl.faults.tokens import tokens_of

_FIELD = re.compile(r"^#define (\w+) \(params\[(\d+)\]\)\n", re.MULTILINE)
_LINE = re.compile(r"^#line [^\n]*\n", re.MULTILINE)
_ROUNDS = 4  # of questions: an answer may reveal another #if
# A reproducer -> its outputs; () if it fails.
Run = Callable[[Reproducer], Sequence[np.typing.NDArray[np.uint8]]]


def resolved(source: str, kernels: Sequence[str], like: Reproducer, run: Run) -> str:
    """Return a source without macros, comments and what these kernels do not use.

    `like`: has the options of the build; `run`: asks the driver which macros it defines.
    Raises: ValueError: the source is malformed.
    """
    text = _LINE.sub("", source)
    fields = [(found[1], int(found[2])) for found in _FIELD.finditer(text)]
    # Names instead of numbers: params[IN_H].
    text = _FIELD.sub(lambda found: f"#define {found[1]} params[{found[1]}]\n", text)
    defines = [option[2:] for option in like.options if option.startswith("-D")]
    text = "".join(f"#define {name.replace('=', ' ')}\n" for name in defines) + text
    answers: dict[str, bool] = {}
    for _ in range(_ROUNDS):
        preprocessor = MacroExpander(answers)
        tokens = preprocessor.run(text)
        if not (unknown := [*preprocessor.unknown]):
            break
        found = _asked(unknown, like, run)
        if not found:
            break  # the driver does not run even that
        answers |= dict(zip(unknown, found, strict=True))
    values = [text for name, at in fields for text in (name, "=", str(at), ",")]
    enum = tokens_of("enum {") if fields else []
    end = tokens_of("};") if fields else []
    whole = [*(t.text for t in enum), *values[:-1], *(t.text for t in end), *tokens]
    return formatted(_without_brackets(pruned(_merged_pragmas(whole), kernels)))


def _asked(conditions: Sequence[str], like: Reproducer, run: Run) -> list[bool]:
    """Return which of these conditions of #if hold in this driver; [] if it cannot say."""
    lines = "".join(
        f"#if {condition}\n  out[{at}] = 1;\n#else\n  out[{at}] = 0;\n#endif\n"
        for at, condition in enumerate(conditions)
    )
    head = "kernel void ask(global int* out, global int* a, global int* b, int c)"
    source = f"{head} {{\n{lines}}}\n"
    call = CallPlan(ProgramPlan("ask", source, "", False), "ask", 1, 1, None, 0)
    size = 4 * len(conditions)
    place = TensorSlice(0, "int32", (len(conditions),), 0, size)
    asking = replace(
        like, calls=(call,), arena=np.zeros(size, np.uint8), inputs=(), outputs=(place,)
    )
    outputs = run(asking)
    return [bool(value) for value in outputs[0].view(np.int32)] if outputs else []


def _merged_pragmas(tokens: Sequence[str]) -> list[str]:
    """Return the tokens with each FP_CONTRACT pragma once, at the top."""
    first = [text for text in tokens if text.startswith("#pragma OPENCL FP_CONTRACT")]
    if len({*first}) != 1:
        return [*tokens]
    rest: list[str] = []
    skips = False
    for text in tokens:
        if not (text == first[0] or (skips and text == LINE_END)):
            rest.append(text)
        skips = text == first[0]
    return [first[0], LINE_END, *rest]


def _without_brackets(tokens: Sequence[str]) -> list[str]:
    """Return the tokens without brackets around one name, number or parameter."""
    done: list[str] = []
    at = 0
    while at < len(tokens):
        text, inside = tokens[at], _simple(tokens, at + 1)
        before = done[-1] if done else ""
        end = at + 1 + inside
        is_closed = inside > 0 and tokens[end : end + 1] == [")"]
        after = "".join(tokens[end + 1 : end + 2])
        is_attribute = done[-2:] == ["__attribute__", "("]
        if text == "(" and is_closed and not is_attribute and before in _BEFORE and after in _AFTER:
            done += tokens[at + 1 : end]
            at = end + 1
            continue
        done.append(text)
        at += 1
    return done


_OPERATORS = (
    *("+", "-", "*", "/", "%", "<", ">", "<=", ">=", "==", "!=", "&&", "||", "&", "|", "^"),
    *("<<", ">>", "=", "+=", "-=", "*=", "&=", "|="),
)
_BEFORE = (*_OPERATORS, "(", "[", ",", "return", "{", ";", "?", ":")
_AFTER = (*_OPERATORS, ")", "]", ",", ";", "?", ":")
_TYPE_WORD = re.compile(r"u?(?:char|short|int|long|float|half)\d*\Z")


def _simple(tokens: Sequence[str], at: int) -> int:
    """Return how many tokens from `at` on are one operand; 0: none."""
    text = tokens[at] if at < len(tokens) else ""
    if text == "params" and tokens[at + 1] == "[" and tokens[at + 3] == "]":
        return 4
    is_word = re.match(r"[A-Za-z_]\w*\Z|\d\w*\Z|\d+\.\d*f?\Z", text) is not None
    return 1 if is_word and not _TYPE_WORD.match(text) else 0


def programs_of(given: Reproducer, run: Run) -> dict[str, str]:
    """Return the resolved form of each source. Raises: ValueError: a source is malformed."""
    kernels: dict[str, list[str]] = {}
    for call in given.calls:
        kernels.setdefault(call.program.source, []).append(call.kernel)
    return {source: resolved(source, names, given, run) for source, names in kernels.items()}
