# SPDX-License-Identifier: Apache-2.0
"""The command with two delegates in one interpreter: a library's and ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.inspect import read_model
from delegate.run.executor import Executor
from tests.support.command import FILES, ROOT, Ran, Run
from tests.support.model import chain_model, op, t
from tests.support.subgraphs import two_signatures
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.console.errors import RunError
from tflite_opencl.harness.chain import open_judge
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.interpreters.runtime import find_runtime

Chain = Callable[..., tuple[Ran, dict[str, Any]]]


@pytest.fixture
def adder(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that makes the library of a delegate for float ADD, with a fault."""

    def make(fault: str) -> str:
        path = tmp_path / "libadder.so"
        source = ROOT / "tests" / "attacks" / "liar.c"
        flags = ["-shared", "-fPIC", f"-DFAULT={fault}"]
        try:
            subprocess.run(["cc", *flags, "-o", path, source], check=True)
        except FileNotFoundError:
            pytest.skip("no C compiler (cc) for a delegate library")
        return str(path)

    return make


@pytest.fixture
def chain(device: DeviceInfo, files: Path, run: Run) -> Chain:
    """Return a function that runs floats' ADD, then quantised nodes; gives OpenCL's JSON, too."""
    floats, size = (1, 4, 4, 3), {"stride_w": 4, "stride_h": 4, "filter_width": 4}
    source, added = t(floats, "float32"), t(floats, "float32")
    quantised, pooled = t(floats, "uint8", 0.02, 128), t((1, 1, 1, 3), "uint8", 0.02, 128)
    nodes = [
        op("ADD", [source, source], [added]),
        op("QUANTIZE", [added], [quantised]),
        op("AVERAGE_POOL_2D", [quantised], [pooled],
           {"padding": "VALID", "filter_height": 4, **size}),
        op("RESHAPE", [pooled], [t((1, 3), "uint8", 0.02, 128)], {"new_shape": [1, 3]}),
    ]  # fmt: skip
    (files / "model.tflite").write_bytes(chain_model(nodes))

    def call(*arguments: str) -> tuple[Ran, dict[str, Any]]:
        own = ("--device", str(device.index), "--min_nodes_per_partition", "1")
        ran = run(*FILES, *arguments, *own, "--json", "out.json")
        return ran, json.loads((files / "out.json").read_text())

    return call


@slow
@pytest.mark.parametrize(
    ("order", "excluded", "taken"),
    [
        (["EXTERNAL", "GPU"], "", ([0], 3)),
        (["EXTERNAL", "GPU"], "RESHAPE", ([0], 2)),
        (["GPU", "EXTERNAL"], "", ([], 4)),
        (["GPU", "EXTERNAL"], "ADD,RESHAPE", ([0], 2)),
    ],
    ids=["the-rest", "and-the-cpu", "nothing-left", "opencl-first"],
)
def test_delegates_choose_nodes_in_the_order_of_their_flags(
    chain: Chain,
    adder: Callable[[str], str],
    order: list[str],
    excluded: str,
    taken: tuple[list[int], int],
) -> None:
    flags = {"EXTERNAL": f"--external_delegate_path={adder('NONE')}", "GPU": "--use_gpu"}
    ran, document = chain(*(flags[name] for name in order), f"--exclude_ops={excluded}")
    assert ran.code == 0
    applied = [f"INFO: Applied {name} delegate." for name in order]
    assert [line for line in ran.lines if "Applied" in line] == applied
    others, own = taken
    gpu = document["gpu"]
    assert gpu["external"] == {"library": "libadder.so", "nodes": others}
    assert (gpu["delegated"], len(gpu["not_delegated"])) == (own, 4 - own - len(others))
    assert document["max_difference_quanta_reference"] == 0
    text = ran.table
    rest = f"{len(others)} by libadder.so, {4 - own - len(others)} on the CPU"
    assert f"nodes {own} of 4 on OpenCL, in 1 partition, {rest}" in text
    is_idle = "WARN: libadder.so took none of the model's 4 nodes" in text
    assert is_idle == (not others)
    assert "cpu" in document


def test_what_another_delegate_computes_is_no_fault_of_ours(
    chain: Chain, adder: Callable[[str], str]
) -> None:
    library = adder("OFF_BY_ONE")
    ran, document = chain(f"--external_delegate_path={library}", "--use_gpu")
    text = ran.table
    assert ran.code == 0
    assert document["max_difference_quanta_reference"] > 0
    assert "failure" not in document
    assert "outputs DIFFER from TFLite's reference kernels: " in text
    where = "TFLite's reference kernels on what reached them"
    assert f"OpenCL's nodes alone: equal to {where}" in text
    assert f"libadder.so's nodes alone: floats up to 1 from {where}" in text
    assert "computes wrongly" not in text
    assert document["shares"]["opencl"] == {"max_difference_quanta": 0, "max_difference": None}
    assert document["shares"]["external"]["max_difference"] == pytest.approx(1)


def test_what_opencl_computes_is_no_fault_of_the_other_delegate(
    chain: Chain, adder: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, device: DeviceInfo
) -> None:
    def lie(self: Executor, inputs: Any, outputs: Any) -> None:
        honest(self, inputs, outputs)
        outputs[0].reshape(-1)[:1] ^= 4

    honest = Executor.run
    monkeypatch.setattr(Executor, "run", lie)
    ran, document = chain(f"--external_delegate_path={adder('NONE')}", "--use_gpu")
    assert ran.code == 2
    words = "its outputs are up to 4 quanta from TFLite's reference kernels"
    assert f"ERROR: {device.name} computes wrongly: {words}" in ran.lines
    assert document["shares"] == {
        "opencl": {"max_difference_quanta": 4, "max_difference": None},
        "external": {"max_difference_quanta": None, "max_difference": 0.0},
    }


@pytest.mark.parametrize("excluded", ["", "QUANTIZE"], ids=["two", "the-cpu-between"])
def test_both_delegates_are_right(chain: Chain, adder: Callable[[str], str], excluded: str) -> None:
    flags = [f"--external_delegate_path={adder('NONE')}", "--use_gpu"]
    ran, document = chain(*flags, f"--exclude_ops={excluded}")
    assert ran.code == 0
    assert document["shares"]["opencl"]["max_difference_quanta"] == 0
    assert document["shares"]["external"]["max_difference"] == 0.0


@needs_tflite
def test_without_a_device_the_other_delegate_runs(files: Path, run: Run, library: str) -> None:
    external = f"--external_delegate_path={library}"
    ran = run(*FILES, external, "--use_gpu", "--device", "no such one", "--json", "out.json")
    assert ran.code == 2
    assert "WARN: libdelegate.so and the CPU run the model instead" in ran.lines
    assert "external" in json.loads((files / "out.json").read_text())


@pytest.mark.parametrize("fault", ["REFUSE"])
def test_a_library_that_fails_is_no_failure_of_opencl(
    device: DeviceInfo, files: Path, run: Run, adder: Callable[[str], str], fault: str
) -> None:
    ran = run(
        *FILES, f"--external_delegate_path={adder(fault)}", "--use_gpu", "--device",
        str(device.index),
    )  # fmt: skip
    assert ran.code == 255
    assert ran.lines[-1] == "ERROR: Failed to apply EXTERNAL delegate."


def test_a_file_of_several_graphs_cannot_be_judged() -> None:
    job, taken = Job(two_signatures(), np.zeros(1)), Delegation("", "", "", (), ())
    why = "the chain cannot be judged: a graph of a model with 2 subgraphs cannot be written"
    with (
        pytest.raises(RunError, match=why),
        open_judge(job, find_runtime(), read_model(job.model), taken),
    ):
        pass
