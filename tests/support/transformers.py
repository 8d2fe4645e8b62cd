# SPDX-License-Identifier: Apache-2.0
"""BERT, MobileBERT and encoders as converters write them with dynamic-range quantisation.

Weights are random. Products and tables have int8 weights of one scale; all else is float32.
Sizes: github.com/google-research/bert, "uncased_L-2_H-128_A-2"; arXiv 2004.02984, table 1;
github.com/openai/whisper, "tiny"; arXiv 2005.08100, table 1, "S"; its attention is that of arXiv
1901.02860, section 3.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from delegate.inspect import Graph, Tensor
from tests.support.hybrid import NONE, Hybrid
from tests.support.model import const, graph_of, op, t


@dataclass(frozen=True, slots=True)
class Bert:
    """A BERT's sizes; its graph has two logits for each place, for question answering."""

    layers: int = 2
    width: int = 128
    heads: int = 2
    feed: int = 512  # width of the feed-forward layer
    words: int = 30_522
    places: int = 128

    def graph(self, seed: int = 0) -> Graph:
        """Return the model of token ids, mask and segment ids: int32 (1, places) each."""
        writer = _Writer(np.random.default_rng(seed), sizes=self)
        ids, counted, segments = (t((1, self.places), "int32") for _ in range(3))
        mask = writer.mask(counted)
        words = writer.looked_up(ids, self.words, self.width)
        x = writer.pair("ADD", words, writer.looked_up(segments, 2, self.width))
        x = writer.pair("ADD", x, writer.floats(self.places, self.width))
        x = writer.normal(x)
        for _ in range(self.layers):
            result = writer.dense(writer.attention(x, mask), self.width)
            x = writer.normal(writer.pair("ADD", result, x))
            wide = writer.gelu(writer.dense(x, self.feed))
            x = writer.normal(writer.pair("ADD", writer.dense(wide, self.width), x))
        return graph_of(writer.nodes, [ids, counted, segments], [writer.dense(x, 2)])


@dataclass(frozen=True, slots=True)
class MobileBert:
    """A MobileBERT's sizes; its graph has two logits for each place, for question answering."""

    layers: int = 24
    width: int = 128  # within a layer
    outer: int = 512  # between them
    heads: int = 4
    feed: int = 512
    feeds: int = 4  # feed-forward networks of a layer
    words: int = 30_522
    places: int = 384

    def graph(self, seed: int = 0) -> Graph:
        """Return the model of token ids, mask and segment ids: int32 (1, places) each."""
        writer = _Writer(np.random.default_rng(seed), sizes=self)
        ids, counted, segments = (t((1, self.places), "int32") for _ in range(3))
        mask = writer.mask(counted)
        x = writer.neighbours(writer.looked_up(ids, self.words, self.width))
        more = writer.looked_up(segments, 2, self.outer)
        x = writer.pair("ADD", writer.dense(x, self.outer), more)
        x = writer.scaled(writer.pair("ADD", x, writer.floats(self.places, self.outer)))
        for _ in range(self.layers):
            within = writer.scaled(writer.dense(x, self.width))
            asking = writer.scaled(writer.dense(x, self.width))
            result = writer.attention(asking, mask, x)
            y = writer.beside(writer.dense(result, self.width), within)
            for _ in range(self.feeds):
                wide = writer.dense(y, self.feed)
                wide = writer.add("RELU", [wide], wide.shape)
                y = writer.beside(writer.dense(wide, self.width), y)
            x = writer.beside(writer.dense(y, self.outer), x)
        return graph_of(writer.nodes, [ids, counted, segments], [writer.dense(x, 2)])


@dataclass(frozen=True, slots=True)
class Whisper:
    """The sizes of Whisper's encoder; its graph computes features of a log-mel spectrogram."""

    layers: int = 4
    width: int = 384
    heads: int = 6
    bands: int = 80
    places: int = 1500  # half as many as the spectrogram has steps: 30 s

    def graph(self, seed: int = 0) -> Graph:
        """Return the model of float32 (1, 2 places, bands) -> (places, width)."""
        writer = _Writer(np.random.default_rng(seed), sizes=self)
        mel = t((1, 2 * self.places, self.bands))
        shape = (1, 1, 2 * self.places, self.bands)
        x = writer.reshaped(mel, shape)
        for stride in (1, 2):
            x = writer.gelu(writer.along(x, self.width, stride))
        x = writer.reshaped(x, (self.places, self.width))
        x = writer.pair("ADD", x, writer.floats(self.places, self.width))
        for _ in range(self.layers):
            x = writer.pair("ADD", x, writer.dense(writer.attention(writer.normal(x)), self.width))
            wide = writer.gelu(writer.dense(writer.normal(x), 4 * self.width))
            x = writer.pair("ADD", x, writer.dense(wide, self.width))
        return graph_of(writer.nodes, [mel], [writer.normal(x)])


@dataclass(frozen=True, slots=True)
class Conformer:
    """The sizes of a Conformer's encoder; its graph computes features of a log-mel spectrogram."""

    layers: int = 16
    width: int = 144
    heads: int = 4
    window: int = 32  # steps of a depthwise convolution
    bands: int = 80
    places: int = 250  # a quarter as many as the spectrogram has steps: 10 s

    def graph(self, seed: int = 0) -> Graph:
        """Return the model of float32 (1, 4 places, bands, 1) -> (places, width)."""
        writer = _Writer(np.random.default_rng(seed), sizes=self)
        mel = t((1, 4 * self.places, self.bands, 1))
        x = writer.halved(writer.halved(mel, self.width), self.width)
        x = writer.dense(
            writer.reshaped(x, (self.places, self.bands // 4 * self.width)), self.width
        )
        for _ in range(self.layers):
            x = writer.half_fed(x)
            result = writer.attention(writer.normal(x), is_relative=True)
            x = writer.pair("ADD", x, writer.dense(result, self.width))
            x = writer.pair("ADD", x, writer.gated(writer.normal(x), self.window))
            x = writer.normal(writer.half_fed(x))
        return graph_of(writer.nodes, [mel], [x])


@dataclass(slots=True, kw_only=True)
class _Writer(Hybrid):
    """The nodes of a transformer in construction."""

    sizes: Bert | MobileBert | Whisper | Conformer

    def gelu(self, x: Tensor) -> Tensor:
        return self.add("GELU", [x], x.shape, approximate=False)

    def along(self, x: Tensor, channels: int, stride: int) -> Tensor:
        """Return a convolution over three steps. Shapes: (1, 1, steps, depth)"""
        _, _, steps, depth = x.shape
        options = {**NONE, "padding": "SAME", "stride_w": stride, "stride_h": 1}
        inputs = [x, self.filters(0, channels, 1, 3, depth), self.floats(channels)]
        return self.add("CONV_2D", inputs, (1, 1, -(-steps // stride), channels), **options)

    def filters(self, axis: int, *shape: int) -> Tensor:
        """Return per-channel weights of a convolution."""
        values = np.clip(40 * self.rng.standard_normal(shape), -127, 127).astype(np.int8)
        scale = 1 / (40 * math.sqrt(math.prod(shape) / shape[axis]))
        return const(values, np.full(shape[axis], scale, np.float32), axis=axis)

    def halved(self, x: Tensor, channels: int) -> Tensor:
        """Return a convolution with stride 2. Shapes: (1, steps, bands, depth)"""
        _, steps, bands, depth = x.shape
        options = {"padding": "SAME", "stride_w": 2, "stride_h": 2}
        options["fused_activation_function"] = "RELU"
        inputs = [x, self.filters(0, channels, 3, 3, depth), self.floats(channels)]
        return self.add("CONV_2D", inputs, (1, -(-steps // 2), -(-bands // 2), channels), **options)

    def swish(self, x: Tensor) -> Tensor:
        return self.pair("MUL", x, self.add("LOGISTIC", [x], x.shape))

    def half_fed(self, x: Tensor) -> Tensor:
        """Return x + feed_forward(x) / 2."""
        _, width = x.shape
        result = self.dense(self.swish(self.dense(self.normal(x), 4 * width)), width)
        return self.pair("ADD", x, self.pair("MUL", result, const(np.float32(0.5))))

    def gated(self, x: Tensor, window: int) -> Tensor:
        """Return the Conformer's convolution module: GLU, depthwise convolution, product."""
        places, width = x.shape
        parts = [t(x.shape) for _ in range(2)]
        inputs = [const(np.array(1, np.int32)), self.dense(x, 2 * width)]
        self.nodes.append(op("SPLIT", inputs, parts, {"num_splits": 2}))
        x = self.pair("MUL", parts[0], self.add("LOGISTIC", [parts[1]], x.shape))
        x = self.reshaped(x, (1, 1, places, width))
        options = {**NONE, "padding": "SAME", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
        inputs = [x, self.filters(3, 1, 1, window, width), self.floats(width)]
        x = self.add("DEPTHWISE_CONV_2D", inputs, x.shape, **options)
        return self.dense(self.reshaped(self.swish(x), (places, width)), width)

    def pair(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        shape = np.broadcast_shapes(x.shape, y.shape)
        return self.add(name, [x, y], shape, **({} if "SQUARED" in name else NONE))

    def normal(self, x: Tensor) -> Tensor:
        """Return the layer norm of rows."""
        rows, axis = (x.shape[0], 1), const(np.array([1], np.int32))
        mean = self.add("MEAN", [x, axis], rows, keep_dims=True)
        square = self.pair("SQUARED_DIFFERENCE", x, mean)
        variance = self.add("MEAN", [square, axis], rows, keep_dims=True)
        raised = self.pair("ADD", variance, const(np.float32(1e-12)))
        scale = self.pair(
            "MUL", self.add("RSQRT", [raised], rows), self.floats(x.shape[1], about=1)
        )
        moved = self.pair("SUB", self.floats(x.shape[1]), self.pair("MUL", mean, scale))
        return self.pair("ADD", self.pair("MUL", x, scale), moved)

    def split(self, x: Tensor) -> Tensor:
        """Return rows as (1, heads, places, width of a head)."""
        heads, places = self.sizes.heads, self.sizes.places
        shape = (1, places, heads, x.shape[1] // heads)
        apart = self.reshaped(x, shape)
        order = const(np.array([0, 2, 1, 3], np.int32))
        return self.add("TRANSPOSE", [apart, order], (1, heads, places, shape[3]))

    def attention(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        values: Tensor | None = None,
        is_relative: bool = False,
    ) -> Tensor:
        """Return multi-head attention of x; `values`: source of the values, by default x.

        `is_relative`: with relative positions.
        """
        heads, places, width = self.sizes.heads, self.sizes.places, self.sizes.width
        query, key, value = (self.split(self.dense(each, width)) for each in (x, x, values or x))
        square, adjoint = (1, heads, places, places), {"adj_x": False, "adj_y": True}
        near = (
            self.pair("ADD", query, self.floats(heads, 1, width // heads)) if is_relative else query
        )
        scores = self.add("BATCH_MATMUL", [near, key], square, **adjoint)
        if is_relative:
            scores = self.pair("ADD", scores, self.distances(query))
        scaled = self.pair("MUL", scores, const(np.float32(math.sqrt(heads / width))))
        masked = scaled if mask is None else self.pair("ADD", scaled, mask)
        shares = self.add("SOFTMAX", [masked], square, beta=1.0)
        result = self.add("BATCH_MATMUL", [shares, value], query.shape, adj_x=False, adj_y=False)
        order = const(np.array([0, 2, 1, 3], np.int32))
        beside = self.add("TRANSPOSE", [result, order], (1, places, heads, width // heads))
        return self.reshaped(beside, (places, width))

    def distances(self, query: Tensor) -> Tensor:
        """Return the scores of relative positions: (1, heads, places, places).

        Rows of the product begin at the largest distance; the next place begins a column earlier.
        """
        _, heads, places, depth = query.shape
        far = 2 * places - 1
        moved = self.pair("ADD", query, self.floats(heads, 1, depth))
        inputs = [moved, self.weights(1, heads, far, depth)]
        options = {"adj_x": False, "adj_y": True, "asymmetric_quantize_inputs": self.is_asymmetric}
        product = self.add("BATCH_MATMUL", inputs, (1, heads, places, far), **options)
        # Padding by one column shifts each row by one when the product is reshaped.
        lines = const(np.array([[0, 0], [0, 0], [0, 0], [1, 0]], np.int32))
        padded = self.add("PAD", [product, lines], (1, heads, places, far + 1))
        turned = self.reshaped(padded, (1, heads, far + 1, places))
        rows = self.cut(turned, 2, 1, far)
        return self.cut(self.reshaped(rows, (1, heads, places, far)), 3, 0, places)

    def cut(self, x: Tensor, axis: int, first: int, count: int) -> Tensor:
        """Return a SLICE of one axis."""
        begin, size = [0] * len(x.shape), list(x.shape)
        begin[axis], size[axis] = first, count
        inputs = [x, const(np.array(begin, np.int32)), const(np.array(size, np.int32))]
        return self.add("SLICE", inputs, tuple(size))

    def mask(self, counted: Tensor) -> Tensor:
        """Return the additive mask: 0 for tokens that count, and -10000 for others."""
        shape = (1, 1, 1, self.sizes.places)
        places = t(shape, "int32")
        size = const(np.array(shape, np.int32))
        self.nodes.append(op("RESHAPE", [counted, size], [places], {"new_shape": shape}))
        floats = self.add("CAST", [places], shape, in_data_type="int32", out_data_type="float32")
        beside = self.pair("SUB", const(np.float32(1)), floats)
        return self.pair("MUL", beside, const(np.float32(-10_000)))

    def scaled(self, x: Tensor) -> Tensor:
        """Return MobileBERT's NoNorm: columns scaled and shifted."""
        grown = self.pair("MUL", x, self.floats(x.shape[1], about=0.5))
        return self.pair("ADD", grown, self.floats(x.shape[1]))

    def beside(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.scaled(self.pair("ADD", x, residual))

    def neighbours(self, x: Tensor) -> Tensor:
        """Return the next, the same and the previous row, concatenated: (places, 3 width)."""
        places, width = x.shape
        parts = [x, x, x]
        for part, first in ((0, 1), (2, 0)):
            begin, size = const(np.array([first, 0], np.int32)), (places - 1, width)
            moved = self.add("SLICE", [x, begin, const(np.array(size, np.int32))], size)
            lines = const(np.array([[1 - first, first], [0, 0]], np.int32))
            parts[part] = self.add("PAD", [moved, lines], x.shape)
        return self.add("CONCATENATION", parts, (places, 3 * width), axis=1, **NONE)

    def looked_up(self, given: Tensor, count: int, width: int) -> Tensor:
        """Return the embeddings of ids from a table. Shapes: (1, places) -> (places, width)"""
        shape = (self.sizes.places,)
        flat, size = t(shape, "int32"), const(np.array(shape, np.int32))
        self.nodes.append(op("RESHAPE", [given, size], [flat], {"new_shape": shape}))
        return self.add("EMBEDDING_LOOKUP", [flat, self.weights(count, width)], (*shape, width))
