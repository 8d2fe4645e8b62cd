# SPDX-License-Identifier: Apache-2.0
"""The nodes that the op tests export, for the tests of all ops: no list here names an op.

An op's test may export
    nodes_of(dtype, channels, size)  its nodes of a size and an 8-bit type
    NODES                            nodes that other code lowers than those, by name
    BUILT                            more nodes, which launch other kernels or macros
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from delegate.inspect import Node
from tests.support.process import ROOT

_TESTS = ROOT / "tests/delegate/ops"
CHANNELS = (1, 2, 4, 8, 16, 32)  # as many as each number of lanes
SIZES = (1, 5)  # one pixel, and enough of them for a tile


@cache
def _exported(name: str) -> list[Any]:
    """Return the exports of this name, of all op tests."""
    # test_registry.py reads the others' exports, so it cannot be imported here.
    files = [path for path in sorted(_TESTS.rglob("test_*.py")) if path.stem != "test_registry"]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    modules = [import_module(name) for name in names]
    return [getattr(module, name) for module in modules if hasattr(module, name)]


def valid_nodes(dtype: str, channels: int = 8, size: int = 5) -> dict[str, Node]:
    """Return a node of each op that has an 8-bit type, on 1 x size x size x channels, by its op."""
    nodes = [node for of in _exported("nodes_of") for node in of(dtype, channels, size)]
    return {node.op: node for node in nodes}


def other_nodes() -> dict[str, Node]:
    """Return the nodes of other types and of other code, by their names."""
    return {name: node for named in _exported("NODES") for name, node in named.items()}


def built_nodes() -> Iterator[Node]:
    """Yield nodes that between them launch every kernel, with all of its macros."""
    for dtype in ("uint8", "int8"):
        for channels in CHANNELS:
            for size in SIZES:
                yield from valid_nodes(dtype, channels, size).values()
    yield from other_nodes().values()
    for nodes in _exported("BUILT"):
        yield from nodes
