# SPDX-License-Identifier: Apache-2.0
"""Reads a Llama from a GGUF file: its dimensions, weights, and tokenizer data.

Everything is validated before use: a damaged or unsupported file gives a one-line error.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflite_opencl.console.errors import CommandError, cannot_read, one_line

Floats = NDArray[np.float32]
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
_BLOCK = 32  # values of a block of Q4_1
_ARRAY = 9  # GGUFValueType of arrays: element type, count, elements
_Q4_1_BYTES = 20  # two float16, and 32 values of 4 bits
_TURNED = ("attn_q.weight", "attn_k.weight")
# In the file: the arrays of the largest vocabularies together have half of it.
_MOST_VALUES, _MOST_FIELDS, _MOST_TENSORS = 1 << 21, 1 << 12, 1 << 16
_FLOAT = np.finfo(np.float32)  # smaller numbers have an infinite reciprocal
# Fields that would change the network, and their required values.
_KEYS = {"rope.scaling.type": "none", "expert_count": 0}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The dimensions of the network."""

    blocks: int
    width: int  # embedding length
    feed: int  # feed-forward length
    heads: int
    groups: int  # key/value heads; each serves heads // groups query heads
    head: int  # length of a head
    vocabulary: int
    base: float  # RoPE frequency base
    epsilon: float

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each tensor, by its name in GGUF."""
        width, keys = self.width, self.groups * self.head
        found: dict[str, tuple[int, ...]] = {
            EMBEDDING: (self.vocabulary, width),
            "output_norm.weight": (width,),
        }
        for number in range(self.blocks):
            own = {
                "attn_norm": (width,), "ffn_norm": (width,),
                "attn_q": (self.heads * self.head, width), "attn_k": (keys, width),
                "attn_v": (keys, width), "attn_output": (width, self.heads * self.head),
                "ffn_gate": (self.feed, width), "ffn_up": (self.feed, width),
                "ffn_down": (width, self.feed),
            }  # fmt: skip
            found |= {f"blk.{number}.{name}.weight": shape for name, shape in own.items()}
        return found


@dataclass(frozen=True, slots=True)
class Q4Blocks:
    """A matrix in blocks of 32 values, w = scale * value + shift: Q4_1 with an offset of 8."""

    values: NDArray[np.int8]  # (rows, columns), -8 to 7
    scales: NDArray[np.float16]  # (rows, blocks)
    shifts: Floats  # (rows, blocks)


class Llama:
    """The file: `sizes`, weights one by one, and `field` for the rest."""

    def __init__(self, path: str) -> None:
        """Read all but the weights. Raises: CommandError: damaged, or another architecture."""
        self.path = path
        with self._checked():
            # Importing takes a third of a second, which converted models do not need.
            import gguf

            self._gguf = gguf
            self._reader = _careful(gguf)(path)
            self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
            self.sizes = self._sizes()
            self._require_tensors()

    @property
    def has_head(self) -> bool:
        """Whether the output matrix is separate from the embedding."""
        return HEAD in self._tensors

    def field(self, name: str, default: Any = None) -> Any:
        """Return a field of the file; without a default it is required."""
        found = self._reader.fields.get(name)
        if found is None:
            if default is None:
                raise ValueError(f"it lacks {name}")
            return default
        return found.contents()

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a non-negative integer field of the file; without a default it is required.

        Raises: CommandError: it has another type or value.
        """
        with self._checked():
            found = self.field(name, default)
            if type(found) is not int or found < 0:
                raise ValueError(f"{name} is {found!r:.40}, and not a whole number")
            return found

    def _number(self, name: str, default: float | None = None) -> float:
        found = self.field(name, default)
        if type(found) not in (int, float) or not _FLOAT.tiny <= found <= _FLOAT.max:
            raise ValueError(f"{name} is {found!r:.40}, and not a number above 0 of float32")
        return float(found)

    def is_q4_1(self, name: str) -> bool:
        """Whether a tensor is stored in blocks of 32 4-bit values with a scale and a minimum."""
        return bool(self._tensors[name].tensor_type == self._gguf.GGMLQuantizationType.Q4_1)

    def floats(self, name: str) -> Floats:
        """Return a tensor as floats, with the rows of heads in half-split order.

        Raises: CommandError: its type is unsupported, or a value is not finite.
        """
        tensor = self._tensors[name]
        with self._checked(), np.errstate(all="ignore"):  # of values rejected below
            found = np.asarray(self._gguf.dequantize(tensor.data, tensor.tensor_type), np.float32)
            found = self._turned(name, found)
            if not np.isfinite(found).all():
                raise ValueError(f"{name} has a value that is not finite")
            return np.ascontiguousarray(found)

    def blocks(self, name: str) -> Q4Blocks:
        """Return a Q4_1 tensor losslessly.

        Raises: CommandError: a scale is not finite.
        """
        columns, rows = map(int, self._tensors[name].shape)  # GGUF has the last dimension first
        raw = np.asarray(self._tensors[name].data).reshape(rows, columns // _BLOCK, _Q4_1_BYTES)
        scales, least = (
            np.ascontiguousarray(raw[..., at : at + 2]).view(np.float16)[..., 0] for at in (0, 2)
        )
        values = np.concatenate([raw[..., 4:] & 15, raw[..., 4:] >> 4], -1).astype(np.int8) - 8
        with np.errstate(all="ignore"):  # of values rejected below
            shifts = least.astype(np.float32) + np.float32(8) * scales.astype(np.float32)
        # XNNPACK requires positive scales. A constant block is stored in the shift.
        is_flat = scales == 0
        values = np.where(is_flat[..., None], np.int8(0), values).astype(np.int8)
        scales = np.where(is_flat, np.float16(1), scales)
        with self._checked():
            if not (np.isfinite(scales).all() and np.isfinite(shifts).all()):
                raise ValueError(f"{name} has a value that is not finite")
            return Q4Blocks(
                np.ascontiguousarray(self._turned(name, values).reshape(rows, columns)),
                np.ascontiguousarray(self._turned(name, scales)),
                np.ascontiguousarray(self._turned(name, shifts)),
            )

    def _turned(self, name: str, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows of Q and K in the network's RoPE order: value i pairs with value i + half.

        GGUF pairs neighbours: value 2 i with value 2 i + 1.
        """
        if not name.endswith(_TURNED):
            return rows
        pairs = rows.reshape(-1, self.sizes.head // 2, 2, *rows.shape[1:])
        turned: NDArray[Any] = pairs.swapaxes(1, 2).reshape(rows.shape)
        return turned

    def _sizes(self) -> Sizes:
        kind = self.field("general.architecture")
        if kind != "llama":
            raise ValueError(f"its architecture is {kind!r}, and only 'llama' is known")
        own = {
            name: self.whole(f"llama.{key}")
            for name, key in (
                ("blocks", "block_count"), ("width", "embedding_length"),
                ("feed", "feed_forward_length"), ("heads", "attention.head_count"),
            )
        }  # fmt: skip
        heads, width = own["heads"], own["width"]
        head = self.whole("llama.attention.key_length", width // max(1, heads))
        found = Sizes(
            **own,
            groups=self.whole("llama.attention.head_count_kv", heads),
            head=head,
            vocabulary=len(self.field("tokenizer.ggml.tokens")),
            base=self._number("llama.rope.freq_base", 10000.0),
            epsilon=self._number("llama.attention.layer_norm_rms_epsilon"),
        )
        numbers = [found.blocks, width, found.feed, heads, found.groups, head]
        if min(numbers) < 1 or heads % found.groups or head % 2:
            raise ValueError(f"its sizes are no Llama's: {found}")
        if (turned := self.whole("llama.rope.dimension_count", head)) != head:
            raise ValueError(f"{turned} of {head} values of a head are turned; all are needed")
        for key, usual in _KEYS.items():
            if (given := self.field(f"llama.{key}", usual)) != usual:
                raise ValueError(f"llama.{key} is {given!r}, which is not known")
        return found

    def _require_tensors(self) -> None:
        if len(self._tensors) < self.sizes.blocks:  # before all of their names are built
            count = len(self._tensors)
            raise ValueError(f"it has {count} tensors, too few for {self.sizes.blocks} blocks")
        wanted = self.sizes.shapes()
        if self.has_head:
            wanted[HEAD] = wanted[EMBEDDING]
        for name, shape in wanted.items():
            if name not in self._tensors:
                raise ValueError(f"it lacks the tensor {name}")
            found = tuple(int(size) for size in reversed(self._tensors[name].shape))
            if found != shape:
                raise ValueError(f"{name} is {found}, where its sizes say {shape}")
        if more := [name for name in self._tensors if name not in wanted]:
            raise ValueError(f"it has a tensor {more[0]}, which is not known")

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except CommandError:
            raise
        except ImportError as error:
            why = "gguf is not installed: pip install 'tflite-opencl[generate]'"
            raise CommandError(why) from error
        except OSError as error:
            raise cannot_read(self.path, error) from error
        except Exception as error:  # gguf raises many types on damaged files
            raise CommandError(f"{self.path} cannot be used: {one_line(error)}") from error


def _careful(gguf: Any) -> Any:
    """Return gguf's reader, hardened against wrong counts and arrays beyond the end of the file.

    It has no limits: it would loop over empty values, or create an object for each number.
    """

    class Careful(gguf.GGUFReader):  # type: ignore[misc]
        data: NDArray[np.uint8]
        _values = 0  # in all arrays so far

        def _get(self, offset: int, dtype: Any, count: int = 1, **more: Any) -> Any:
            # In Python integers: 64-bit counts overflow in numpy's.
            if offset + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError("it ends early")
            if type(self.data) is np.memmap:  # slicing one is five times as slow
                self.data = self.data.view(np.ndarray)
            return super()._get(offset, dtype, count, **more)

        def _get_field_parts(self, offset: int, kind: int) -> Any:
            if kind != _ARRAY:
                return super()._get_field_parts(offset, kind)
            inner, (count,) = self._get(offset, np.uint32), self._get(offset + 4, np.uint64)
            if inner[0] == _ARRAY:
                raise ValueError("it has an array of arrays")
            dtype = self.gguf_scalar_to_np.get(inner[0])
            self._values += int(count)
            if self._values > _MOST_VALUES:
                raise ValueError(f"it has an array of {count} values, {_MOST_VALUES} are the most")
            if dtype is None:
                self._get(offset + 12, np.uint64, count)  # strings have at least their lengths
                return super()._get_field_parts(offset, kind)
            values = self._get(offset + 12, dtype, count)
            types = [gguf.GGUFValueType(kind), gguf.GGUFValueType(inner[0])]
            length = self._get(offset + 4, np.uint64)
            return 12 + values.nbytes, [inner, length, values], [2], types

        def _build_fields(self, offset: int, count: int) -> Any:
            return super()._build_fields(offset, _within(count, _MOST_FIELDS, "fields"))

        def _build_tensor_info(self, offset: int, count: int) -> Any:
            return super()._build_tensor_info(offset, _within(count, _MOST_TENSORS, "tensors"))

        def _build_tensors(self, start: int, fields: Any) -> None:
            for field in fields:  # in Python integers, too
                *_, sizes, _, at = field.parts
                elements = math.prod(sizes.tolist())  # each has at least a bit
                if int(start) + int(at[0]) > len(self.data) or elements > 8 * len(self.data):
                    raise ValueError("it ends early")
            super()._build_tensors(start, fields)

    return Careful


def _within(count: int, most: int, what: str) -> int:
    if count > most:
        raise ValueError(f"it has {count} {what}, and {most} are the most")
    return count
