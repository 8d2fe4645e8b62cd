# SPDX-License-Identifier: Apache-2.0
"""GGUF files of Llamas: sizes and weights, and one line for each unusable file."""

from __future__ import annotations

import math
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.llama import BLOCKS, HEAD, SPECIAL, WIDTH, drawn, fields, gguf, write_gguf
from tests.support.tiers import slow
from tflite_opencl.console.errors import CommandError
from tflite_opencl.generate.llama import EMBEDDING, Llama
from tflite_opencl.generate.tokens import files_of

Q = "blk.1.attn_q.weight"


def test_sizes(gguf_file: Path) -> None:
    sizes = Llama(str(gguf_file)).sizes
    assert (sizes.blocks, sizes.width, sizes.head) == (BLOCKS, WIDTH, HEAD)
    assert sizes.vocabulary == 256 + len(SPECIAL) + 6
    assert len(sizes.shapes()) == 2 + 9 * BLOCKS


def test_blocks_equal_floats(gguf_file: Path) -> None:
    llama = Llama(str(gguf_file))
    for name in (Q, "blk.0.ffn_down.weight"):
        assert llama.is_q4_1(name)
        result = llama.blocks(name)
        scales, shifts = (np.repeat(each, 32, 1) for each in (result.scales, result.shifts))
        value = result.values * scales.astype(np.float32) + shifts
        np.testing.assert_allclose(value, llama.floats(name), atol=1e-6)
        assert result.values.min() >= -8
        assert result.values.max() <= 7
        assert result.scales.min() > 0
    assert not llama.is_q4_1(EMBEDDING)


ODD = [0, 1, 3, 2**31 - 1, 2**32 - 1, True, "", "7", "\u00e9" * 99, math.nan, math.inf, -1.0]
ODD += [[0], ["a"], ["a", "b c d"], [1.5, math.nan], [True, False], None]


@pytest.mark.parametrize("name", fields())
def test_wrong_fields(name: str, tmp_path: Path) -> None:
    """Each field has each odd value: a model is made, or one line has the reason."""
    for number, value in enumerate(ODD):
        path = write_gguf(tmp_path / f"{number}.gguf", **{name.replace(".", "__"): value})
        begun, output = time.process_time(), str(path)
        try:
            llama = Llama(str(path))
            files_of(llama)
            llama.whole("llama.context_length", 7)
        except CommandError as error:
            output = str(error)
        assert output.startswith(str(path)) or output.startswith("the chat template is no text")
        assert "\n" not in output
        assert time.process_time() - begun < 1


def _head(*parts: tuple[str, object]) -> bytes:
    return b"".join(struct.pack(f"<{form}", value) for form, value in parts)


_COUNTS = ("I", 0x46554747), ("I", 3)  # magic and version
_NAMED = ("Q", 1), ("1s", b"a")  # a field's name
LIES = {
    "fields": _head(*_COUNTS, ("Q", 0), ("Q", 2**40)),
    "tensors": _head(*_COUNTS, ("Q", 2**40), ("Q", 0)),
    "a name": _head(*_COUNTS, ("Q", 0), ("Q", 1), ("Q", 2**63)),
    "a string": _head(*_COUNTS, ("Q", 0), ("Q", 1), *_NAMED, ("I", 8), ("Q", 2**64 - 1)),
    "strings": _head(*_COUNTS, ("Q", 0), ("Q", 1), *_NAMED, ("I", 9), ("I", 8), ("Q", 2**40)),
    "numbers": _head(*_COUNTS, ("Q", 0), ("Q", 1), *_NAMED, ("I", 9), ("I", 0), ("Q", 2**40)),
    "arrays": _head(*_COUNTS, ("Q", 0), ("Q", 1), *_NAMED, ("I", 9), ("I", 9), ("Q", 2**20)),
    "empty strings": _head(*_COUNTS, ("Q", 0), ("Q", 1), *_NAMED, ("I", 9), ("I", 8), ("Q", 2**20)),
    "dimensions": _head(*_COUNTS, ("Q", 1), ("Q", 0), *_NAMED, ("I", 2**32 - 1)),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("zeros", [0, 1 << 16])
def test_wrong_counts_are_cheap(lie: str, zeros: int, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(LIES[lie] + bytes(zeros))
    tracemalloc.start()
    begun = time.process_time()
    try:
        with pytest.raises(CommandError, match=r"a\.gguf cannot be used: ") as caught:
            Llama(str(tmp_path / "a.gguf"))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert time.process_time() - begun < 1


def test_constant_block_has_positive_scale(tmp_path: Path) -> None:
    weights = drawn()
    weights[Q][:, :32] = 0.25
    result = Llama(str(write_gguf(tmp_path / "a.gguf", weights))).blocks(Q)
    assert result.values[:, :32].any() == np.False_
    np.testing.assert_array_equal(result.scales[:, 0], 1)
    np.testing.assert_array_equal(result.shifts[:, 0], 0.25)


def test_rows_of_heads_are_reordered(gguf_file: Path) -> None:
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(gguf_file).tensors}
    stored = gguf.dequantize(tensors[Q].data, tensors[Q].tensor_type)
    result = Llama(str(gguf_file)).floats(Q)
    np.testing.assert_array_equal(result[HEAD], stored[HEAD])  # first row of the second head
    np.testing.assert_array_equal(result[HEAD + 1], stored[HEAD + 2])
    np.testing.assert_array_equal(result[HEAD + HEAD // 2], stored[HEAD + 1])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"architecture": "gpt2"}, "its architecture is 'gpt2', and only 'llama' is known"),
    ({"llama__block_count": None}, "it lacks llama.block_count"),
    ({"llama__block_count": 3}, "it lacks the tensor blk.2.attn_norm.weight"),
    ({"llama__block_count": 1}, "it has a tensor blk.1.attn_norm.weight, which is not known"),
    ({"llama__feed_forward_length": 32}, "is (96, 64), where its sizes say (32, 64)"),
    ({"llama__attention__head_count": 0}, "its sizes are no Llama's"),
    ({"llama__attention__head_count_kv": 3}, "its sizes are no Llama's"),
    ({"llama__rope__dimension_count": 8}, "8 of 16 values of a head are turned"),
    ({"llama__rope__scaling__type": "yarn"}, "llama.rope.scaling.type is 'yarn'"),
    ({"llama__expert_count": 8}, "llama.expert_count is 8, which is not known"),
    ({"llama__block_count": "two"}, "llama.block_count is 'two', and not a whole number"),
    ({"llama__block_count": 2**31 - 1}, "20 tensors, too few for 2147483647 blocks"),
    ({"llama__rope__freq_base": math.nan}, "llama.rope.freq_base is nan, and not a number above 0"),
    ({"llama__rope__freq_base": "10000"}, "llama.rope.freq_base is '10000', and not a number"),
    ({"llama__attention__layer_norm_rms_epsilon": -1.0}, "is -1.0, and not a number above 0"),
    ({"llama__rope__freq_base": 1e-45}, "e-45, and not a number above 0 of float32"),
]


@pytest.mark.parametrize(("changes", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_other_architecture_is_one_line(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "a.gguf", **changes)
    with pytest.raises(CommandError) as caught:
        Llama(str(path))
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_are_finite(tmp_path: Path) -> None:
    weights = drawn()
    weights["output_norm.weight"][3] = np.nan
    llama = Llama(str(write_gguf(tmp_path / "a.gguf", weights)))
    with pytest.raises(CommandError, match=r"output_norm\.weight has a value that is not finite"):
        llama.floats("output_norm.weight")


@pytest.mark.parametrize("kept", [0, 3, 4, 20, 300, 4000, 20_000])
def test_truncated_file_is_one_line(kept: int, gguf_file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(gguf_file.read_bytes()[:kept])
    with pytest.raises(CommandError, match=r"a\.gguf cannot be used: "):
        Llama(str(tmp_path / "a.gguf"))


@pytest.mark.parametrize("lie", [2**32, 2**63, 2**64 - 32])
@pytest.mark.parametrize("place", ["size", "offset"])
def test_tensor_past_end_is_one_line(
    lie: int, place: str, gguf_file: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Neither a size nor an offset wraps around into the file."""
    content, name = gguf_file.read_bytes(), Q.encode()
    first = content.find(name) + len(name) + 4  # its two sizes, type and offset
    at = first if place == "size" else first + 20
    damaged = content[:at] + lie.to_bytes(8, "little") + content[at + 8 :]
    (tmp_path / "a.gguf").write_bytes(damaged)
    with pytest.raises(CommandError, match=r"a\.gguf cannot be used: it ends early"):
        Llama(str(tmp_path / "a.gguf"))
    assert not recwarn.list


@pytest.mark.parametrize("count", [266, 10**6, 2**31 - 1, 2**64 - 1])
def test_unterminated_array_is_one_line(count: int, gguf_file: Path, tmp_path: Path) -> None:
    """For any file size: gguf's reader returns empty values past the end."""
    content = gguf_file.read_bytes()
    name = b"tokenizer.ggml.token_type"
    at = content.find(name) + len(name) + 8  # after the types of the array and its values
    for more in range(4):
        damaged = content[:at] + count.to_bytes(8, "little") + content[at + 8 :] + bytes(more)
        (tmp_path / "a.gguf").write_bytes(damaged)
        with pytest.raises(CommandError, match=r"cannot be used: (it |When )"):
            Llama(str(tmp_path / "a.gguf"))


@slow
def test_damaged_bytes(gguf_file: Path, tmp_path: Path) -> None:
    """A hundred files with a damaged byte in the header are read or refused."""
    content = gguf_file.read_bytes()
    rng, errors = np.random.default_rng(5), list[str]()
    for at in rng.integers(4, 4000, 100):
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "a.gguf").write_bytes(damaged)
        try:
            llama = Llama(str(tmp_path / "a.gguf"))
            for name in llama.sizes.shapes():
                llama.floats(name)
        except CommandError as error:
            errors.append(str(error))
    assert errors
    assert not any("\n" in line for line in errors)


def test_special_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"cannot read .*: No such file"):
        Llama(str(tmp_path / "none.gguf"))
