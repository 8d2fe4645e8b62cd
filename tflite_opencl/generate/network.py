# SPDX-License-Identifier: Apache-2.0
"""Builds a Llama as .tflite graphs: tokens at a position -> the last logits, with KV caches.

Keys and values of all tokens so far are resource variables shared by all graphs of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.generate.llama import EMBEDDING, Sizes
from tflite_opencl.generate.weights import LlamaWeights
from tflite_opencl.models.build import constant, node, tensor
from tflite_opencl.models.build import graph as graph_of

_SHUT = -1e30  # added to the scores of masked positions
_f32 = np.float32


def graphs(weights: LlamaWeights, places: int, piece: int) -> dict[str, Graph]:
    """Return the graphs of a file by signature name.

    decode: tokens (1,), start (1,) -> logits (1, vocabulary). prefill: tokens (piece,), start (1,),
    last (1,) -> the logits after token `last` of these. save: -> the caches. restore: caches ->.
    `places`: the caches' capacity in tokens. `piece`: tokens of a prefill.
    """
    caches = Caches(weights.sizes, places)
    return {
        "decode": _LlamaGraph(weights, caches, 1).graph(),
        "prefill": _LlamaGraph(weights, caches, piece).graph(),
        "save": caches.saved(),
        "restore": caches.restored(),
    }


class Caches:
    """The variables: each block's keys, "k_cache_0", and values, "v_cache_0"."""

    def __init__(self, sizes: Sizes, places: int) -> None:
        self.shape = (sizes.groups, places, sizes.head)
        self._names = [f"{of}_cache_{number}" for number in range(sizes.blocks) for of in "kv"]
        zeros = constant(np.zeros(self.shape, np.float32), name="zeros")
        nodes = []
        for name in self._names:
            made, handle = self._handle(name)
            nodes += [made, node("ASSIGN_VARIABLE", [handle, zeros], [])]
        self._beginning = graph_of(nodes, [], [])

    def begun(self) -> Node:
        """Return the node that zeroes all of them, once; each graph needs one."""
        options = {"init_subgraph_index": 0}  # numbered by the writer
        return replace(node("CALL_ONCE", [], [], options), body=self._beginning)

    def read(self, name: str) -> tuple[list[Node], Tensor, Tensor]:
        """Return the nodes that read a variable, its handle, and the value read."""
        made, handle = self._handle(name)
        value = tensor(self.shape, name=name)
        return [made, node("READ_VARIABLE", [handle], [value])], handle, value

    def saved(self) -> Graph:
        """Return the graph that outputs the variables."""
        nodes, values = [self.begun()], []
        for name in self._names:
            more, _, value = self.read(name)
            nodes += more
            values.append(value)
        return graph_of(nodes, [], values)

    def restored(self) -> Graph:
        """Return the graph that sets the variables to its inputs."""
        nodes, values = [self.begun()], []
        for name in self._names:
            made, handle = self._handle(name)
            values.append(tensor(self.shape, name=name))
            nodes += [made, node("ASSIGN_VARIABLE", [handle, values[-1]], [])]
        return graph_of(nodes, values, [])

    def _handle(self, name: str) -> tuple[Node, Tensor]:
        made = tensor((), "resource", name=f"{name} handle")
        return node("VAR_HANDLE", [], [made], {"container": "", "shared_name": name}), made


class _LlamaGraph:
    """A graph under construction: `count` tokens after earlier ones."""

    def __init__(self, weights: LlamaWeights, caches: Caches, count: int) -> None:
        self._weights, self._caches, self._count = weights, caches, count
        self._sizes = weights.sizes
        self._nodes: list[Node] = [caches.begun()]
        self._start = tensor((1,), "int32", name="start")
        self._tokens = tensor((count,), "int32", name="tokens")
        self._sums: dict[Tensor, Tensor] = {}  # block sums of inputs shared by several matrices

    def graph(self) -> Graph:
        """Return the whole graph; inputs and outputs have the signature's names."""
        sizes, count = self._sizes, self._count
        inputs = [self._tokens, self._start]
        self._prepare()
        table = self._weights.matrix(EMBEDDING)
        tokens = self._within(self._tokens, sizes.vocabulary, "tokens in range")
        x = self._add((count, sizes.width), "EMBEDDING_LOOKUP", [tokens, table], version=3)
        for number in range(sizes.blocks):
            x = self._block(x, number)
        x = self._norm(x, "output_norm.weight")
        if count > 1:  # the output matrix is the largest, and only one row is needed
            inputs.append(tensor((1,), "int32", name="last"))
            last = self._within(inputs[-1], count, "last in range")
            x = self._add((1, sizes.width), "GATHER", [x, last], axis=0)
        logits = replace(self._dense(x, self._weights.head), name="logits")
        self._nodes[-1] = replace(self._nodes[-1], outputs=(logits,))
        return graph_of(self._nodes, inputs, [logits])

    def _add(
        self,
        shape: Sequence[int],
        op: str,
        inputs: Sequence[Tensor | None],
        dtype: str = "float32",
        version: int = 1,
        **options: Any,
    ) -> Tensor:
        made = tensor(shape, dtype)
        self._nodes.append(node(op, inputs, [made], options, version))
        return made

    def _within(self, indices: Tensor, count: int, name: str) -> Tensor:
        """Clamp indices to their range, so that a delegate need not trust the caller."""
        most = self._weights.number(f"most of {name}", np.int32(count - 1))
        least = self._weights.number(f"least of {name}", np.int32(0))
        below = self._add(indices.shape, "MINIMUM", [indices, most], "int32")
        return self._add(indices.shape, "MAXIMUM", [below, least], "int32")

    def _ints(self, *values: int) -> Tensor:
        return self._weights.number(f"ints {values}", np.array(values, np.int32))

    def _reshape(self, x: Tensor, *shape: int) -> Tensor:
        return self._add(shape, "RESHAPE", [x, self._ints(*shape)], x.dtype, new_shape=shape)

    def _transpose(self, x: Tensor, *shape: int) -> Tensor:
        """Swap the first two of three dimensions; `shape`: of the result."""
        return self._add(shape, "TRANSPOSE", [x, self._ints(1, 0, 2)])

    def _prepare(self) -> None:
        """Add nodes shared by all blocks: RoPE angles, cache positions, the mask."""
        sizes, count, places = self._sizes, self._count, self._caches.shape[1]
        number = self._weights.number
        order = number(f"0 to {count - 1}", np.arange(count, dtype=np.int32))
        at = self._reshape(self._add((count,), "ADD", [self._start, order], "int32"), count, 1)
        row = self._add((count, 1), "CAST", [at], in_data_type="int32", out_data_type="float32")
        half = sizes.head // 2
        rates = (1.0 / sizes.base ** (np.arange(half) / half)).astype(_f32)[None]
        angles = self._add((count, half), "MUL", [row, number("rates", rates)])
        self._cos = self._add((count, half), "COS", [angles])
        self._sin = self._add((count, half), "SIN", [angles])
        every = number("places", np.arange(places, dtype=np.int32)[None])
        seen = self._add((count, places), "LESS_EQUAL", [every, at], "bool")
        values = [number("open", _f32(0)), number("shut", _f32(_SHUT))]
        mask = self._add((count, places), "SELECT_V2", [seen, *values])
        each = sizes.heads // sizes.groups
        if count > 1 and each > 1:  # the rows of a group are ordered by head
            shape = self._ints(each, count, places)
            mask = self._add((each, count, places), "BROADCAST_TO", [mask, shape], version=2)
            mask = self._reshape(mask, each * count, places)
        self._mask = mask
        zero = self._ints(0)
        self._place = self._add((3,), "CONCATENATION", [zero, self._start, zero], "int32", axis=0)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        shape = x.shape
        square = self._add(shape, "MUL", [x, x])
        one = (shape[0], 1)
        mean = self._add(one, "MEAN", [square, self._ints(1)], keep_dims=True)
        epsilon = self._weights.number("epsilon", _f32(self._sizes.epsilon))
        root = self._add(one, "RSQRT", [self._add(one, "ADD", [mean, epsilon])])
        by_root = self._add(shape, "MUL", [x, root])
        return self._add(shape, "MUL", [by_root, self._weights.row(name)])

    def _dense(self, x: Tensor, name: str) -> Tensor:
        """Multiply rows by a matrix, given by its rows."""
        matrix, shifts = self._weights.matrix(name), self._weights.shifts(name)
        shape = x.shape[0], matrix.shape[0]
        made = self._add(
            shape, "FULLY_CONNECTED", [x, matrix, None], version=9 if shifts is None else 12,
            keep_num_dims=True, asymmetric_quantize_inputs=True,
        )  # fmt: skip
        if shifts is None:
            return made
        given = [self._block_sums(x, shifts.shape[1]), shifts, None]
        more = self._add(shape, "FULLY_CONNECTED", given, keep_num_dims=True)
        return self._add(shape, "ADD", [made, more])

    def _block_sums(self, x: Tensor, blocks: int) -> Tensor:
        """Return the sum of each block in rows. Shapes: (rows, columns) -> (rows, blocks)"""
        if x not in self._sums:
            rows, columns = x.shape
            apart = self._reshape(x, rows * blocks, columns // blocks)
            sums = self._add((rows * blocks,), "SUM", [apart, self._ints(1)])
            self._sums[x] = self._reshape(sums, rows, blocks)
        return self._sums[x]

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        """Shapes: (tokens, heads * head) -> (heads, tokens, head)"""
        count, head = self._count, self._sizes.head
        if count == 1:
            return self._reshape(x, heads, 1, head)
        return self._transpose(self._reshape(x, count, heads, head), heads, count, head)

    def _turn(self, x: Tensor) -> Tensor:
        """Apply RoPE. Shapes: (heads, tokens, head) -> the same"""
        heads, count, head = x.shape
        half = (heads, count, head // 2)
        one, two = (
            self._add(half, "SLICE", [x, self._ints(0, 0, at), self._ints(*half)])
            for at in (0, head // 2)
        )

        def by(a: Tensor, b: Tensor) -> Tensor:
            return self._add(half, "MUL", [a, b])

        turned = [
            self._add(half, "SUB", [by(one, self._cos), by(two, self._sin)]),
            self._add(half, "ADD", [by(two, self._cos), by(one, self._sin)]),
        ]
        return self._add(x.shape, "CONCATENATION", turned, axis=2)

    def _cached(self, name: str, values: Tensor) -> Tensor:
        """Write values to a cache at their positions; return the whole cache."""
        nodes, handle, before = self._caches.read(name)
        self._nodes += nodes
        given = [before, values, self._place]
        after = self._add(self._caches.shape, "DYNAMIC_UPDATE_SLICE", given)
        self._nodes.append(node("ASSIGN_VARIABLE", [handle, after], []))
        return after

    def _attention(self, x: Tensor, number: int) -> Tensor:
        """Attention of each token to all tokens so far."""
        sizes, count, block = self._sizes, self._count, f"blk.{number}"
        (groups, places, head), heads = self._caches.shape, sizes.heads
        q = self._turn(self._heads(self._dense(x, f"{block}.attn_q.weight"), heads))
        k = self._turn(self._heads(self._dense(x, f"{block}.attn_k.weight"), groups))
        v = self._heads(self._dense(x, f"{block}.attn_v.weight"), groups)
        keys = self._cached(f"k_cache_{number}", k)
        values = self._cached(f"v_cache_{number}", v)
        rows = heads // groups * count
        q = self._reshape(q, groups, rows, head)
        shape = (groups, rows, places)
        scores = self._add(shape, "BATCH_MATMUL", [q, keys], adj_y=True)
        root = self._weights.number("1 by the root of a head", _f32(head**-0.5))
        scores = self._add(shape, "MUL", [scores, root])
        scores = self._add(shape, "ADD", [scores, self._mask])
        shares = self._add(shape, "SOFTMAX", [scores], beta=1.0)
        taken = self._add((groups, rows, head), "BATCH_MATMUL", [shares, values])
        if count > 1:
            taken = self._transpose(self._reshape(taken, heads, count, head), count, heads, head)
        taken = self._reshape(taken, count, heads * head)
        return self._dense(taken, f"{block}.attn_output.weight")

    def _block(self, x: Tensor, number: int) -> Tensor:
        block = f"blk.{number}"
        taken = self._attention(self._norm(x, f"{block}.attn_norm.weight"), number)
        x = self._add(x.shape, "ADD", [x, taken])
        h = self._norm(x, f"{block}.ffn_norm.weight")
        gate = self._dense(h, f"{block}.ffn_gate.weight")
        shape = gate.shape
        silu = self._add(shape, "MUL", [gate, self._add(shape, "LOGISTIC", [gate])])
        up = self._add(shape, "MUL", [silu, self._dense(h, f"{block}.ffn_up.weight")])
        return self._add(x.shape, "ADD", [x, self._dense(up, f"{block}.ffn_down.weight")])
