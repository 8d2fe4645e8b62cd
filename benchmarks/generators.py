# SPDX-License-Identifier: Apache-2.0
"""Networks that make pictures, with random weights: the structures of published ones."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.network import Network
from delegate.inspect import Graph, Tensor
from tflite_opencl.models.build import numbers, tensor

# Channels after each TRANSPOSE_CONV of stride 2, and its window.
# Source: DCGAN (arXiv 1511.06434), figure 1, at half its width.
_UPWARDS = ((256, 5), (128, 5), (64, 5), (3, 5))
# Channels of pix2pix's first halvings, at half of their width; the last ones are the U's bottom.
# Source: Image-to-image translation (arXiv 1611.07004), appendix 6.1.1.
_HALVINGS = (32, 64, 128, 256, 256, 256)


def dcgan() -> Graph:
    """Return DCGAN's generator in float32, as converters write it: MUL and ADD normalise a batch.

    Shapes: code (1, 100) -> picture (1, 64, 64, 3)
    """
    network = Network("float32")

    def a_channel(op: str, x: Tensor) -> Tensor:
        return network.add(op, [x, network.floats(x.shape[3:], 1)], network.tensor(x.shape))

    x = network.fully_connected(network.tensor((1, 100)), 4 * 4 * 512)
    x = network.reshaped(x, (1, 4, 4, 512))
    for out_c, window in _UPWARDS:
        x = a_channel("ADD", a_channel("MUL", x))
        x = network.add("LEAKY_RELU", [x], network.tensor(x.shape), alpha=0.2)
        _, height, width, in_c = x.shape
        shape = (1, 2 * height, 2 * width, out_c)
        weights = network.floats((out_c, window, window, in_c), window * window * in_c / 4)
        options = {"padding": "SAME", "stride_w": 2, "stride_h": 2}
        result = network.tensor(shape)
        x = network.add("TRANSPOSE_CONV", [numbers(shape), weights, x], result, **options)
    x = a_channel("ADD", x)
    network.add("TANH", [x], network.tensor(x.shape))
    return network.graph("DCGAN's generator")


def dcgan_int8() -> Graph:
    """Return a generator of digits, its strides 1, 2 and 2, with floats at both ends.

    Source: TensorFlow's tutorial of DCGAN (www.tensorflow.org/tutorials/generative/dcgan)

    Shapes: code (1, 100) -> picture (1, 28, 28, 1)
    """
    network = Network("int8")
    code = network.tensor((1, 100), "linear")
    code = network.add("QUANTIZE", [tensor((1, 100))], code)
    x = _leaky(network, network.fully_connected(code, 7 * 7 * 256), 0.3)
    x = network.reshaped(x, (1, 7, 7, 256))
    for out_c, stride in ((128, 1), (64, 2)):
        x = _leaky(network, network.transposed(x, out_c, 5, stride, "linear"), 0.3)
    x = _tanh(network, network.transposed(x, 1, 5, 2, "linear"))
    network.add("DEQUANTIZE", [x], tensor(x.shape))
    return network.graph("DCGAN's generator of digits, int8")


def pix2pix_int8(resolution: int = 128) -> Graph:
    """Return the U of pix2pix, whose windows are 4x4: it halves a picture, then doubles it.

    Shapes: picture -> picture, both (1, resolution, resolution, 3)
    """
    network = Network("int8")
    x = network.tensor((1, resolution, resolution, 3), "picture")
    skipped = []
    for out_c in _HALVINGS:
        x = network.convolution(x, out_c, 4, 2, activation="NONE", holds="linear")
        x = _leaky(network, x, 0.2)
        skipped.append(x)
    for skip in reversed(skipped[:-1]):
        x = network.transposed(x, skip.shape[3], 4, 2, "linear")
        x = network.joined([network.add("RELU", [x], replace(x)), skip])
    _tanh(network, network.transposed(x, 3, 4, 2, "linear"))
    return network.graph(f"pix2pix's generator at {resolution}, int8")


def super_resolution_int8(side: int = 64) -> Graph:
    """Return a network that makes a picture four times as large, by windows of 3x3 and 2x2.

    Shapes: picture (1, side, side, 3) -> picture (1, 4 * side, 4 * side, 3)
    """
    network = Network("int8")
    x = network.convolution(network.tensor((1, side, side, 3), "picture"), 32, 3)
    for _ in range(3):
        x = network.convolution(x, 32, 3)
    x = network.transposed(x, 32, 3, 2, "linear")
    x = network.transposed(network.add("RELU", [x], replace(x)), 3, 2, 2, "picture")
    return network.graph(f"super-resolution of {side}, int8")


def _leaky(network: Network, x: Tensor, alpha: float) -> Tensor:
    return network.add("LEAKY_RELU", [x], network.tensor(x.shape, "linear"), alpha=alpha)


def _tanh(network: Network, x: Tensor) -> Tensor:
    return network.add("TANH", [x], network.tensor(x.shape, "tanh"))
