# SPDX-License-Identifier: Apache-2.0
"""The kernels that a model may launch on a device of which only facts are known."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

from delegate import DeviceInfo, ModelError, SignatureError
from delegate.inspect import DeviceLimits, KernelUse, kernel_uses, write_model
from delegate.isa import portable_on
from tests.support.convolution import Convolution
from tests.support.model import chain_model, const, graph_of, op, t
from tests.support.subgraphs import two_signatures
from tests.support.variables import counter_model

INFO = DeviceInfo(0, "a platform", "1", "a GPU", "nobody", "OpenCL 3.0", "1", "gpu")
# No other attribute is read.
FACTS = {"compute_units": 4, "int_vector_width": 1, "registers": 0, "max_argument_bytes": 1024}
LIMITS = DeviceLimits(**{field.name: FACTS.get(field.name) for field in fields(DeviceLimits)})


def uses(model: bytes, isa: tuple[str, ...] | None, is_literal: bool = False) -> list[KernelUse]:
    """Return the uses, each of a different kernel."""
    result = kernel_uses([model], INFO, LIMITS, isa)
    assert len({(use.kernel, use.source) for use in result}) == len(result)
    return [use for use in result if use.is_specialised == is_literal]


def test_fused_node_is_expected_to_run() -> None:
    conv = Convolution(kernel=(1, 1), out_c=8).node()
    middle = conv.outputs[0]
    other, result = t(middle.shape, "uint8", 0.5, 128), t(middle.shape, "uint8", 0.75, 128)
    model = chain_model([conv, op("ADD", [middle, other], [result], {})])
    outcome = uses(model, ("nearest",))
    fused = [use for use in outcome if "HAS_RESIDUAL=1" in use.macros]
    alone = [use for use in outcome if "HAS_RESIDUAL=1" not in use.macros]
    assert {use.kernel for use in fused} == {"conv_2d_float4_quant8", "conv_2d_quant8"}
    assert {use.kernel for use in alone} >= {"add_quant8", "conv_2d_quant8"}
    # One launch is expected to run: the fused node's alternative that is expected to be fastest.
    (launch,) = next(use.expected for use in fused if use.expected)
    positions, channels = math.prod(result.shape), conv.inputs[0].shape[-1]
    assert launch.products == positions * channels
    assert launch.size_bytes >= 2 * positions + math.prod(conv.inputs[0].shape)
    assert launch.items % 64 == 0
    assert [(use.kernel, use.launches) for use in fused if use.expected] == [
        ("conv_2d_float4_quant8", 1)
    ]
    assert sum(len(use.expected) for use in outcome) == 1


def test_shared_quantised_rows_are_counted_once() -> None:
    rows, first, second = t((2, 64), "float32"), t((2, 32), "float32"), t((2, 32), "float32")
    options = {"fused_activation_function": "NONE", "asymmetric_quantize_inputs": True}
    nodes = [
        op("FULLY_CONNECTED", [rows, const(np.full((32, 64), n, np.int8), 0.01)], [out], options, 9)
        for n, out in enumerate((first, second), 1)
    ]
    result = uses(write_model(graph_of(nodes, [rows], [first, second])), None)
    expected = [(use.kernel, each.products) for use in result for each in use.expected]
    assert [products for kernel, products in expected if "quantize_row" in kernel] == [0]
    others = [products for kernel, products in expected if "quantize_row" not in kernel]
    assert others == [2 * 32 * 64] * 2


def test_equal_nodes_share_a_kernel_and_views_have_none() -> None:
    first, second, third = (t((1, 8, 8, 4), "uint8", 0.5) for _ in range(3))
    window = {"stride_w": 1, "stride_h": 1, "filter_width": 2, "filter_height": 2}
    pool = {"padding": "SAME", **window}
    nodes = [
        op("AVERAGE_POOL_2D", [first], [second], pool),
        op("AVERAGE_POOL_2D", [second], [third], pool),
        op("RESHAPE", [third], [t((1, 256), "uint8", 0.5)], {"new_shape": [1, 256]}),
    ]
    *result, joined = uses(chain_model(nodes), ("nearest",))
    assert {use.launches for use in result} == {2}
    assert sum(len(use.expected) for use in result) == 2
    assert (joined.kernel, joined.variants) == ("runtime_fused", ("fused",))
    assert joined.macros == ("pool_2d_vector_quant8=1", "pool_2d_vector_quant8=1")
    assert (joined.launches, joined.expected) == (1, ())
    # Not on devices with a persistent launch.
    apart = uses(chain_model(nodes), ("nearest", "order"))
    assert [use.kernel for use in apart] == [use.kernel for use in result]
    for found, calls in ((result, {0}), (apart, {0, 1})):
        assert {each.call for use in found for each in use.expected} == calls


def test_specialised_kernel_is_for_largest_layer() -> None:
    small, large = (Convolution(kernel=(1, 1), out_c=8, size=(n, n, 8)).node() for n in (4, 40))
    model = chain_model([small, large])
    ((loaded,), (literal,)) = (
        [use for use in uses(model, None, numbers) if use.kernel == "conv_2d_float4_quant8"]
        for numbers in (False, True)
    )
    assert (literal.launches, literal.expected) == (loaded.launches, ()) == (2, ())
    assert literal.macros == (*loaded.macros, "specialised")
    assert literal.variants == tuple(f"{name}, specialised" for name in loaded.variants)
    assert "#define PIXELS (params[" in loaded.source
    assert "#define PIXELS (1600)" in literal.source
    plain = [use for use in uses(model, None, True) if use.kernel == "conv_2d_quant8"]
    assert plain == []  # it is not expected to run


def test_proven_instructions_decide() -> None:
    model = chain_model([Convolution(kernel=(1, 1), out_c=8).node()])
    nearest = {macro for use in uses(model, ("nearest",)) for macro in use.macros}
    nothing = {macro for use in uses(model, ()) for macro in use.macros}
    assert "IS_NEAREST=1" in nearest
    assert "IS_NEAREST=1" not in nothing
    # Without a passed self-test, what plain OpenCL C 1.2 can express counts as proven.
    assert portable_on("gpu") == ["nearest", "params_argument", "order"]
    unproven = {macro for use in uses(model, None) for macro in use.macros}
    assert all("#define FIELDS" in use.source for use in uses(model, None))
    assert not any("#define FIELDS" in use.source for use in uses(model, ("nearest",)))
    assert unproven == nearest


def test_signature_has_kernels_of_its_graph() -> None:
    def kernels(signature: str | None) -> set[str]:
        result = kernel_uses([two_signatures()], INFO, LIMITS, None, signature=signature)
        return {use.kernel for use in result}

    assert kernels(None) == kernels("graph 0")
    assert kernels("graph 1") - kernels("graph 0") >= {"pool_2d_quant8"}
    with pytest.raises(SignatureError):
        kernels("no such graph")


def test_unreadable_model() -> None:
    with pytest.raises(ModelError):
        kernel_uses([b"no model"], INFO, LIMITS, None)
    with pytest.raises(FileNotFoundError):
        kernel_uses(["none.tflite"], INFO, LIMITS, None)


def test_nodes_between_resource_variables_are_launched() -> None:
    results = {macro for use in uses(counter_model(), ("nearest",)) for macro in use.macros}
    assert {"OP=ADD", "OP=MULTIPLY"} <= results
