# SPDX-License-Identifier: Apache-2.0
"""A small Llama with random weights as a GGUF file, and its float reference in NumPy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Tensor, write_signatures
from tests.support.model import const, graph_of, op, t
from tflite_opencl.generate.llama import Llama
from tflite_opencl.generate.network import graphs
from tflite_opencl.generate.weights import LlamaWeights

gguf = pytest.importorskip("gguf", reason="gguf, of the extra [generate], is not installed")
pytest.importorskip("tokenizers", reason="tokenizers, of the extra [generate], is not installed")

BLOCKS, WIDTH, FEED, HEADS, GROUPS = 2, 64, 96, 4, 2
HEAD = WIDTH // HEADS
BASE, EPSILON = 10000.0, 1e-5
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r"]
_BITS_4, _BITS_8 = "Q4_1", "Q8_0"
_NORMAL, _CONTROL = 1, 3

Array = NDArray[Any]


def vocabulary() -> list[str]:
    """Return the tokens: special ones, each byte, and the results of merges."""
    from tokenizers import pre_tokenizers

    merged = [merge.replace(" ", "") for merge in MERGES]
    return [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *merged]


def drawn(seed: int = 1) -> dict[str, Array]:
    """Return random weights by their names in GGUF."""
    rng = np.random.default_rng(seed)
    keys = GROUPS * HEAD

    def matrix(rows: int, columns: int) -> Array:
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns) * 2).astype(np.float32)

    def row() -> Array:
        return rng.uniform(0.5, 1.5, WIDTH).astype(np.float32)

    drawn = {"token_embd.weight": matrix(len(vocabulary()), WIDTH), "output_norm.weight": 3 * row()}
    for number in range(BLOCKS):
        block = {
            "attn_norm": row(), "ffn_norm": row(), "attn_q": matrix(WIDTH, WIDTH),
            "attn_k": matrix(keys, WIDTH), "attn_v": matrix(keys, WIDTH),
            "attn_output": matrix(WIDTH, WIDTH), "ffn_gate": matrix(FEED, WIDTH),
            "ffn_up": matrix(FEED, WIDTH), "ffn_down": matrix(WIDTH, FEED),
        }  # fmt: skip
        drawn |= {f"blk.{number}.{name}.weight": values for name, values in block.items()}
    return drawn


def fields() -> dict[str, Any]:
    """Return the file's metadata; lists are arrays of strings or numbers."""
    tokens = vocabulary()
    return {
        "llama.block_count": BLOCKS, "llama.context_length": 1024,
        "llama.embedding_length": WIDTH, "llama.feed_forward_length": FEED,
        "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": GROUPS,
        "llama.rope.freq_base": BASE, "llama.attention.layer_norm_rms_epsilon": EPSILON,
        "llama.rope.dimension_count": HEAD, "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            _CONTROL if token in SPECIAL else _NORMAL for token in tokens
        ],
        "tokenizer.ggml.merges": MERGES, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
    }  # fmt: skip


def write_gguf(
    path: Path,
    weights: Mapping[str, Array] | None = None,
    architecture: str = "llama",
    **changes: Any,
) -> Path:
    """Write the file and return its path. `changes`: fields, "." as "__"; None omits one."""
    writer = gguf.GGUFWriter(path, architecture)
    given = fields() | {name.replace("__", "."): value for name, value in changes.items()}
    for name, value in given.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif value is not None:
            writer.add_uint32(name, value)
    for name, values in (weights or drawn()).items():
        kind = gguf.GGMLQuantizationType[_type_of(name, values)]
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _type_of(name: str, values: Array) -> str:
    if values.ndim == 1:
        return "F32"
    return _BITS_8 if name == "token_embd.weight" else _BITS_4


def carried_model(path: Path, places: int, pieces: Sequence[int], has_mask: bool) -> bytes:
    """Return the file's model as litert-torch writes it: caches are inputs and outputs."""
    weights = LlamaWeights(Llama(str(path)), "int8", lambda part: None)
    by_signature = {f"prefill_{size}": graphs(weights, places, size)["prefill"] for size in pieces}
    by_signature["decode"] = graphs(weights, places, pieces[0])["decode"]
    return write_signatures(
        {name: _carried(graph, has_mask) for name, graph in by_signature.items()}
    )


def _carried(graph: Graph, has_mask: bool) -> Graph:
    """Return a graph of network.py with its variables as inputs and outputs.

    A prefill has no other outputs, so it ends where the last variable is assigned.
    """
    tokens, start, *_ = graph.inputs
    count, inputs, outputs = tokens.shape[0], list[Tensor](), dict[str, Tensor]()
    nodes: list[Node] = []
    names: dict[Tensor, str] = {}  # of variables, by their handles

    def given(name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
        inputs.append(t(shape, dtype, name=name))
        return inputs[-1]

    rows = given("tokens", (1, count), "int32")
    nodes.append(op("RESHAPE", [rows, const(np.array([count], np.int32))], [tokens]))
    at, first, one = given("input_pos", (count,), "int32"), [0], [1]
    sizes = [const(np.array(each, np.int32)) for each in (first, one)]
    nodes.append(op("SLICE", [at, *sizes], [start]))
    now: dict[Tensor, Tensor] = {}
    for node in graph.nodes:
        own = tuple(now.get(x, x) if x is not None else None for x in node.inputs)
        if node.op == "VAR_HANDLE":
            names[node.outputs[0]] = str(node.options["shared_name"]).replace("_cache", "")
        elif node.op == "READ_VARIABLE":
            (read,) = node.outputs
            name = f"kv_cache_{names[node.inputs[0]]}"
            now[read] = given(name, read.shape, read.dtype)
        elif node.op == "ASSIGN_VARIABLE":
            outputs[f"kv_cache_{names[node.inputs[0]]}"] = own[1]
            if count > 1 and len(outputs) == 2 * BLOCKS:
                break
        elif node.op == "SELECT_V2" and has_mask:
            (open_,) = node.outputs
            mask = given("mask", (1, 1, *open_.shape), "float32")
            shape = const(np.array(open_.shape, np.int32))
            nodes.append(op("RESHAPE", [mask, shape], [open_]))
        elif node.op != "CALL_ONCE":
            nodes.append(dataclasses.replace(node, inputs=own))
    if count == 1:
        outputs["logits"] = graph.outputs[0]
    whole_graph = graph_of(nodes, inputs, [*outputs.values()])
    indices = dict(zip(outputs, (tensor.index for tensor in whole_graph.outputs), strict=True))
    return dataclasses.replace(whole_graph, output_names=indices)


class FloatLlama:
    """The network in float64, with the file's weights and interleaved rotary embedding."""

    def __init__(self, path: Path) -> None:
        self._w = {
            tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for tensor in gguf.GGUFReader(path).tensors
        }

    def logits(self, tokens: Sequence[int]) -> Array:
        """Return the logits after each token. Shapes: (tokens,) -> (tokens, vocabulary)"""
        count = len(tokens)
        x = self._w["token_embd.weight"][list(tokens)]
        later = np.triu(np.full((count, count), -np.inf), 1)
        for number in range(BLOCKS):
            w = {
                name: self._w[f"blk.{number}.{name}.weight"]
                for name in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm",
                             "ffn_gate", "ffn_up", "ffn_down")
            }  # fmt: skip
            h = _norm(x, w["attn_norm"])
            q = _rotated((h @ w["attn_q"].T).reshape(count, HEADS, HEAD))
            k = _rotated((h @ w["attn_k"].T).reshape(count, GROUPS, HEAD))
            v = (h @ w["attn_v"].T).reshape(count, GROUPS, HEAD)
            k, v = (np.repeat(each, HEADS // GROUPS, 1) for each in (k, v))
            scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(HEAD) + later
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            attended = np.einsum("hij,jhd->ihd", shares, v).reshape(count, WIDTH)
            x = x + attended @ w["attn_output"].T
            h = _norm(x, w["ffn_norm"])
            gate = h @ w["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
        logits: Array = _norm(x, self._w["output_norm.weight"]) @ self._w["token_embd.weight"].T
        return logits


def _norm(x: Array, weights: Array) -> Array:
    normalised: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weights
    return normalised


def _rotated(x: Array) -> Array:
    """Rotate values 2 i and 2 i + 1 of each head. Shapes: (tokens, heads, head) -> the same"""
    rates = BASE ** -(np.arange(0, HEAD, 2) / HEAD)
    rotations = np.exp(1j * np.arange(len(x))[:, None, None] * rates)
    pairs = (x[..., ::2] + 1j * x[..., 1::2]) * rotations
    return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)
