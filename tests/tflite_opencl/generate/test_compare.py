# SPDX-License-Identifier: Apache-2.0
"""Paths of a comparison: interleaved runs, medians and reasons of failures."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import pytest

from tests.support.tiers import slow
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.exit_codes import NO_DEVICE
from tflite_opencl.generate.compare import PathCommand, compared, rows_of
from tflite_opencl.generate.measured import Measured

# The outcome of each request of a child; the first one is its start.
_CHILD = """
import dataclasses, sys
from delegate.guard.children.channel import serving
from tflite_opencl.generate.measured import Measured
name, code, *words = sys.argv[1:]
with serving() as parent:
    for number, (word, request) in enumerate(zip(words, parent.messages())):
        found = Measured(name, "1 of 1", 2.0, 10, tokens=[1, 2, number], cpu_load=1.5)
        if word == "die":
            sys.exit(7)
        elif word == "fail":
            parent.send(failed="no such device", code=int(code))
        elif word == "open":
            parent.send(opened=True)
        else:
            found.first_token_s = found.decode_s = float(word)
            found.decode_rates, found.peak_bytes = {"64": 1 / found.decode_s}, number << 20
            parent.send(**dataclasses.asdict(found))
"""


def path(name: str, *words: object) -> PathCommand:
    return PathCommand([sys.executable, "-c", _CHILD, name, str(NO_DEVICE), *map(str, words)], {})


def run_paths(
    paths: Mapping[str, Sequence[object]],
) -> tuple[dict[str, Measured], list[str], list[str]]:
    """Return the results of children with these outcomes, the messages, and the failures."""
    output, why = list[str](), list[str]()
    given = {name: path(name, *words) for name, words in paths.items()}
    result = compared(
        given, {"prompt": [1]}, output.append, lambda name, error: why.append(f"{name}: {error}")
    )
    return result, output, why


@slow
def test_paths_are_interleaved_and_medians_count() -> None:
    result, output, why = run_paths({"one": ["open", 9, 2, 4], "other": ["open", 1, 1, 1]})
    rounds = [line.partition(": ")[2] for line in output if "round" in line]
    assert rounds == ["one", "other", "other", "one", "one", "other"]
    one = result["one"]
    assert (one.first_token_s, one.prefill_s, one.decode_s) == (9, 3, 4)
    assert (one.decode_rates, one.peak_bytes, one.gpu_load) == ({"64": 0.25}, 3 << 20, None)
    assert why == []


@slow
def test_slow_path_has_one_round() -> None:
    result, output, _ = run_paths({"slow": ["open", 61], "fast": ["open", 1, 1, 1]})
    assert result["slow"].prefill_rate == pytest.approx(10 / 61)
    assert len([line for line in output if line.endswith(": slow")]) == 1


@slow
def test_failed_path_is_named_and_others_continue() -> None:
    words = {"dead": ["open", 1, "die"], "failed": ["fail"], "well": ["open", 1, 1, 1]}
    result, _, why = run_paths(words)
    assert [*result] == ["well"]
    assert why == ["failed: no such device", "dead: the process of dead ended with code 7"]


def test_failure_has_exit_code() -> None:
    def fail(name: str, error: CommandError) -> None:
        raise CommandError(f"{name}: {error}", error.code)

    with pytest.raises(CommandError, match="failed: no such device") as caught:
        compared({"failed": path("failed", "fail")}, {}, lambda text: None, fail)
    assert caught.value.code == NO_DEVICE


def test_row_without_values() -> None:
    one = Measured("a", "", 1.0, 34, 0.5, 2.0, [1, 2, 3, 4], None, {"64": 3.25})
    other = Measured("b", "7 of 7", 1.0, 34, 0.5, 2.0, [1, 2, 4], 0.25, {"64": 3.0}, 1.5, 0.25)
    rows = dict(rows_of([one, other]))
    assert rows["nodes on the device"] == ["-", "7 of 7"]
    assert rows["prefill, tokens/s"] == ["68", "136"]
    assert rows["decode, tokens/s"] == ["1.5", "1.0"]
    assert rows["decode at place 64, tokens/s"] == ["3.2", "3.0"]
    assert rows["GPU load, engines"] == ["-", "0.25"]
    assert rows["peak memory, MiB"] == ["-", "-"]
    assert rows["tokens alike"] == ["2 of 4", "3 of 3"]
