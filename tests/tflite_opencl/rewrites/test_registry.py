# SPDX-License-Identifier: Apache-2.0
"""The registered passes, their bundles, and exact passes on real models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from delegate.inspect import Graph, read_model, write_model
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.convolution import Convolution
from tests.support.model import const, graph_of, graph_values, op, t
from tests.support.nets import assert_equal_outputs
from tests.support.rewrites import CHAINS, chain, whole
from tests.support.subgraphs import write_subgraphs
from tests.support.tiers import slow
from tflite_opencl.rewrites import graph_passes, pass_bundles, passes, rewrite, rewrite_model
from tflite_opencl.rewrites.registry import rewrite_steps

REAL_MODELS = sorted((Path(__file__).parents[4] / "shared" / "models").glob("*.tflite"))
real_models = pytest.mark.skipif(
    not REAL_MODELS, reason="no real models in ../shared/models beside the checkout"
)
# All models take half a minute on the reference kernels, for each set of passes.
SMALL_MODELS = [path for path in REAL_MODELS if path.stat().st_size < 1 << 20]
each_small_model = pytest.mark.parametrize("path", SMALL_MODELS, ids=lambda path: path.stem)
each_model = pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path in SMALL_MODELS else slow) for path in REAL_MODELS],
    ids=lambda path: path.stem,
)
EXACT = [name for name, each in graph_passes().items() if each.is_exact]


def forked() -> Graph:
    """Return x -RELU-> y -RELU6-> z, and a dead MUL."""
    x, y, z, a = (t((2, 3), name=name) for name in "xyza")
    nodes = [
        op("ADD", [x, x], [y]),
        op("RELU6", [y], [z]),
        op("MUL", [x, const(np.float32([[2, 3, 4]]))], [a]),
    ]
    return whole(graph_of(nodes, outputs=[z]))


def test_every_pass_file_is_registered() -> None:
    files = Path(passes.__path__[0]).glob("*.py")
    results = {
        each.stem for each in files if "\ndef rewrite(graph: Graph, notes:" in each.read_text()
    }
    assert results == set(graph_passes())


def test_names_of_passes() -> None:
    assert all(name == each.name for name, each in graph_passes().items())
    assert all(name == each.name for name, each in pass_bundles().items())


def test_bundles_are_in_order() -> None:
    order = list(graph_passes())
    for bundle in pass_bundles().values():
        assert set(bundle.passes) <= set(order), bundle.name


def test_unknown_pass_is_refused_before_any_runs() -> None:
    graph = forked()
    with pytest.raises(ValueError, match="'fuse' is no pass; there are: fold_constants, "):
        rewrite(graph, ["remove_dead", "fuse"])


def test_steps_have_sizes_and_notes() -> None:
    graph = forked()
    dead, fused = rewrite_steps(graph, ["remove_dead", "fuse_activations"])
    assert (dead.before.nodes, dead.after.nodes, fused.after.nodes) == (3, 2, 1)
    assert (dead.before.weight_bytes, dead.after.weight_bytes) == (12, 0)
    assert [note.op for note in dead.notes] == ["MUL"]
    assert [note.op for note in fused.notes] == ["RELU6"]
    assert fused.graph.nodes[0].op == "ADD"
    assert rewrite(fused.graph, list(EXACT)) is fused.graph


def test_every_subgraph_is_rewritten() -> None:
    graph = forked()
    model = write_subgraphs(graph, graph, signatures=(0, 1))
    calls: list[None] = []
    content = rewrite_model(model, ["remove_dead"], lambda: calls.append(None))
    assert [[step.after.nodes for step in steps] for steps in content.steps] == [[2], [2]]
    assert len(calls) == 2
    runner = interpreter(content.content).get_signature_runner("graph 1")
    x = np.float32([[1, -1, 9]] * 2)
    (outputs,) = runner(x0=x).values()
    assert outputs.tolist() == np.clip(2 * x, 0, 6).tolist()


@slow
@given(CHAINS)
@settings(max_examples=15)
def test_all_exact_passes_on_random_chains(cases: list[Convolution]) -> None:
    graph = chain(cases)
    after = rewrite(graph, EXACT)
    old, new = interpreter(write_model(graph)), interpreter(write_model(after))
    for given_inputs in inputs_for(graph, seed=3):
        expected = invoke(old, given_inputs)
        assert_equal_outputs(invoke(new, given_inputs), expected, "all exact passes")


def _same_outputs(path: Path, content: bytes) -> None:
    before, after = (interpreter(each) for each in (path.read_bytes(), content))
    given = inputs_for(read_model(path), seed=7)[0]
    assert_equal_outputs(invoke(after, given), invoke(before, given), path.stem)


def _runs(path: Path) -> bool:
    return not any(node.is_custom for node in read_model(path).nodes)


@pytest.mark.model
@real_models
@each_small_model
def test_exact_pass_on_real_model(path: Path) -> None:
    if not _runs(path):
        pytest.skip("it has a custom op, which TFLite runs nowhere")
    seen = {rewrite_model(path, []).content}
    for name in EXACT:
        model = rewrite_model(path, [name])
        assert rewrite_model(model.content, [name]).content == model.content
        if model.content not in seen:
            seen.add(model.content)
            _same_outputs(path, model.content)


@pytest.mark.model
@real_models
@each_model
def test_all_exact_passes_on_real_model(path: Path) -> None:
    if not _runs(path):
        pytest.skip("it has a custom op, which TFLite runs nowhere")
    model = rewrite_model(path, EXACT)
    _same_outputs(path, model.content)
    last = model.steps[0][-1].graph
    assert graph_values(read_model(model.content))["inputs"] == graph_values(last)["inputs"]
