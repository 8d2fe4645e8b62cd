# SPDX-License-Identifier: Apache-2.0
"""The kernels that a model may launch on a device that only its facts tell of."""

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
# Nothing else of them is read.
FACTS = {"compute_units": 4, "int_vector_width": 1, "registers": 0, "max_argument_bytes": 1024}
LIMITS = DeviceLimits(**{field.name: FACTS.get(field.name) for field in fields(DeviceLimits)})


def uses(model: bytes, isa: tuple[str, ...] | None, is_literal: bool = False) -> list[KernelUse]:
    """Return the uses, of which no two are the same kernel."""
    found = kernel_uses([model], INFO, LIMITS, isa)
    assert len({(use.kernel, use.source) for use in found}) == len(found)
    return [use for use in found if use.is_specialised == is_literal]


def test_a_fused_node_is_expected_and_the_plain_ones_are_not() -> None:
    conv = Convolution(kernel=(1, 1), out_c=8).node()
    middle = conv.outputs[0]
    other, result = t(middle.shape, "uint8", 0.5, 128), t(middle.shape, "uint8", 0.75, 128)
    model = chain_model([conv, op("ADD", [middle, other], [result], {})])
    found = uses(model, ("nearest",))
    fused = [use for use in found if "HAS_RESIDUAL=1" in use.macros]
    alone = [use for use in found if "HAS_RESIDUAL=1" not in use.macros]
    assert {use.kernel for use in fused} == {"conv_2d_float4_quant8", "conv_2d_quant8"}
    assert {use.kernel for use in alone} >= {"add_quant8", "conv_2d_quant8"}
    # One launch runs: what is expected to be the fastest of the fused node's alternatives.
    (launch,) = next(use.expected for use in fused if use.expected)
    positions, channels = math.prod(result.shape), conv.inputs[0].shape[-1]
    assert launch.products == positions * channels
    assert launch.size_bytes >= 2 * positions + math.prod(conv.inputs[0].shape)
    assert launch.items % 64 == 0
    assert [(use.kernel, use.launches) for use in fused if use.expected] == [
        ("conv_2d_float4_quant8", 1)
    ]
    assert sum(len(use.expected) for use in found) == 1


def test_rows_that_two_products_read_are_quantised_once_and_multiply_nothing() -> None:
    rows, first, second = t((2, 64), "float32"), t((2, 32), "float32"), t((2, 32), "float32")
    options = {"fused_activation_function": "NONE", "asymmetric_quantize_inputs": True}
    nodes = [
        op("FULLY_CONNECTED", [rows, const(np.full((32, 64), n, np.int8), 0.01)], [out], options, 9)
        for n, out in enumerate((first, second), 1)
    ]
    found = uses(write_model(graph_of(nodes, [rows], [first, second])), None)
    expected = [(use.kernel, each.products) for use in found for each in use.expected]
    assert [products for kernel, products in expected if "quantize_row" in kernel] == [0]
    others = [products for kernel, products in expected if "quantize_row" not in kernel]
    assert others == [2 * 32 * 64] * 2


def test_equal_nodes_share_a_kernel_and_views_launch_none() -> None:
    first, second, third = (t((1, 8, 8, 4), "uint8", 0.5) for _ in range(3))
    window = {"stride_w": 1, "stride_h": 1, "filter_width": 2, "filter_height": 2}
    pool = {"padding": "SAME", **window}
    nodes = [
        op("AVERAGE_POOL_2D", [first], [second], pool),
        op("AVERAGE_POOL_2D", [second], [third], pool),
        op("RESHAPE", [third], [t((1, 256), "uint8", 0.5)], {"new_shape": [1, 256]}),
    ]
    *found, joined = uses(chain_model(nodes), ("nearest",))
    assert {use.launches for use in found} == {2}
    assert sum(len(use.expected) for use in found) == 2
    assert (joined.kernel, joined.variants) == ("runtime_joined", ("joined",))
    assert joined.macros == ("pool_2d_vector_quant8=1", "pool_2d_vector_quant8=1")
    assert (joined.launches, joined.expected) == (1, ())
    # Where all launches may be one, these are not.
    assert uses(chain_model(nodes), ("nearest", "order")) == found


def test_a_literal_kernel_is_of_the_largest_layer_that_is_expected_to_run_it() -> None:
    small, large = (Convolution(kernel=(1, 1), out_c=8, size=(n, n, 8)).node() for n in (4, 40))
    model = chain_model([small, large])
    ((loaded,), (literal,)) = (
        [use for use in uses(model, None, numbers) if use.kernel == "conv_2d_float4_quant8"]
        for numbers in (False, True)
    )
    assert (literal.launches, literal.expected) == (loaded.launches, ()) == (2, ())
    assert literal.macros == (*loaded.macros, "literal")
    assert literal.variants == tuple(f"{name}, literal" for name in loaded.variants)
    assert "#define PIXELS (params[" in loaded.source
    assert "#define PIXELS (1600)" in literal.source
    plain = [use for use in uses(model, None, True) if use.kernel == "conv_2d_quant8"]
    assert plain == []  # it is not expected to run


def test_what_is_proven_decides() -> None:
    model = chain_model([Convolution(kernel=(1, 1), out_c=8).node()])
    nearest = {macro for use in uses(model, ("nearest",)) for macro in use.macros}
    nothing = {macro for use in uses(model, ()) for macro in use.macros}
    assert "IS_NEAREST=1" in nearest
    assert "IS_NEAREST=1" not in nothing
    # Where the self-test did not pass, what OpenCL C 1.2 alone can express is taken for proven.
    assert portable_on("gpu") == ["nearest", "params_argument", "order"]
    unproven = {macro for use in uses(model, None) for macro in use.macros}
    assert all("#define FIELDS" in use.source for use in uses(model, None))
    assert not any("#define FIELDS" in use.source for use in uses(model, ("nearest",)))
    assert unproven == nearest


def test_a_signature_has_the_kernels_of_its_own_graph() -> None:
    def kernels(signature: str | None) -> set[str]:
        found = kernel_uses([two_signatures()], INFO, LIMITS, None, signature=signature)
        return {use.kernel for use in found}

    assert kernels(None) == kernels("graph 0")
    assert kernels("graph 1") - kernels("graph 0") >= {"pool_2d_quant8"}
    with pytest.raises(SignatureError):
        kernels("no such graph")


def test_what_cannot_be_read() -> None:
    with pytest.raises(ModelError):
        kernel_uses([b"no model"], INFO, LIMITS, None)
    with pytest.raises(FileNotFoundError):
        kernel_uses(["none.tflite"], INFO, LIMITS, None)


def test_nodes_between_resource_variables_are_launched() -> None:
    found = {macro for use in uses(counter_model(), ("nearest",)) for macro in use.macros}
    assert {"OP=ADD", "OP=MULTIPLY"} <= found
