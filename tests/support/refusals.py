# SPDX-License-Identifier: Apache-2.0
"""What many ops refuse in the same words: entries of the tables of `factories.refused`."""

from __future__ import annotations

from typing import Any

from delegate.inspect import Node
from tests.support.cases import changed

Refusal = tuple[Node, str]  # with the reason


def unquantised(node: Node, position: int, what: str = "") -> Refusal:
    """One tensor has no scale; `what`: the word for it where that is not its type."""
    tensor = (*node.inputs, *node.outputs[:1])[position]
    assert tensor is not None
    reason = f"{what or tensor.dtype} without quantisation: scale and zero point are missing"
    return changed(node, position, quantization=None), reason


def rescaled(node: Node, position: int) -> Refusal:
    """One tensor has no scale, where the others' is moved with the bytes."""
    changes = changed(node, position, quantization=None)
    return changes, "input and output differ in scale or zero point"


def sparse(node: Node, position: int, **fields: Any) -> Refusal:
    """One input is sparse; `fields`: what else is another one."""
    reason = f"input {position} is sparse: only dense tensors are implemented"
    return changed(node, position, is_sparse=True, **fields), reason


def activated(node: Node, activation: str, option: str = "fused_activation_function") -> Refusal:
    """A function follows that no convolution's kernel has."""
    reason = f"fused activation {activation}: only NONE, RELU, RELU6, RELU_N1_TO_1"
    return changed(node, options={option: activation}), reason
