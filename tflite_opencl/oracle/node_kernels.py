# SPDX-License-Identifier: Apache-2.0
"""Records which kernels compute the reference of each node, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from delegate.inspect import Graph, Node

REFERENCE, BUILTIN, NUMPY = "reference", "builtin", "numpy"
JUDGE = "judge"  # of a Job: the reference kernels, chosen for each node
_NAMES = {REFERENCE: "reference kernels", BUILTIN: "built-in kernels", NUMPY: "numpy's kernels"}
_SHOWN = 4  # nodes listed per kind

Kind = tuple[str, tuple[str, ...]]  # an op and its tensors' types


class NoOracle(RuntimeError):
    """No kernels can compute the reference outputs; the text is the reason."""


def kind_of(node: Node) -> Kind:
    """Return a key shared by nodes with the same reference kernel function."""
    return node.op, tuple(t.dtype for t in (*node.inputs, *node.outputs) if t is not None)


@dataclass(frozen=True, slots=True)
class NodeKernels:
    """The kernels that compute each node's reference."""

    ops: tuple[str, ...]  # of each node
    by_node: tuple[str, ...]  # REFERENCE, BUILTIN or NUMPY
    # Node -> why its reference kernel is not used. Excludes nodes that the CPU runs: their outputs
    # are not compared.
    why: Mapping[int, str]

    @classmethod
    def all_of(cls, graph: Graph, kind: str, why: str = "") -> NodeKernels:
        """Return the record of a graph whose nodes all run on one kind."""
        found = dict.fromkeys(range(len(graph.nodes)), why) if why else {}
        ops = tuple(node.op for node in graph.nodes)
        return cls(ops, (kind,) * len(ops), found)

    @property
    def name(self) -> str:
        """Name them for people: "reference kernels and built-in kernels"."""
        judged = [kind for i, kind in enumerate(self.by_node) if kind != BUILTIN or i in self.why]
        kinds = [kind for kind in _NAMES if kind in judged] or [REFERENCE]
        return " and ".join(_NAMES[kind] for kind in kinds)

    @property
    def reasons(self) -> str:
        """List the nodes on other kernels than the reference ones, and why: one line, or ""."""
        others: dict[tuple[str, str, str], list[int]] = {}
        for index, reason in sorted(self.why.items()):
            others.setdefault((self.ops[index], self.by_node[index], reason), []).append(index)
        return "; ".join(
            f"{op}, node{'s' * (len(nodes) > 1)} {_listed(nodes)}, by {_NAMES[kind]}: {reason}"
            for (op, kind, reason), nodes in others.items()
        )


def _listed(nodes: Sequence[int]) -> str:
    shown = ", ".join(map(str, nodes[:_SHOWN]))
    return f"{shown} and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else shown
