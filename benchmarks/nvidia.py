# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs: one picture as fast as can be, and batches, against PyTorch in half precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Contender, PathTimes, compared, in_turns
from benchmarks.missing import Skipped, imported
from benchmarks.peers import Peers, Workload
from benchmarks.results import OPENCL, Figure, RowResult
from benchmarks.setup import Row, Setup
from benchmarks.versus import difference, named, new_delegate, too_few
from delegate import Model, list_devices
from delegate.inspect import Graph

BATCH = 256
_THROUGH_MODEL = f"{OPENCL}, Model"
_ONE_GPU = f"{OPENCL}, one GPU"
_PYTORCH = "PyTorch fp16"
_BATCHES_A_RUN = 16  # a run streams so many, that uploads and compute overlap
_ROUNDS_OF_BATCHES = 100


def one_picture(row: Row, setup: Setup) -> RowResult:
    """Time one picture from its tensor in host memory to the scores in host memory."""
    info = setup.find(row.device)
    model, note = setup.model(row.model)
    workload = Workload(model, setup.runtime, setup.threads)
    ours = Model(model, info.index, tune=setup.tune)
    picture = workload.inputs[0]
    delegate = new_delegate(model, info, setup)
    others = Peers()
    others.add(OPENCL, lambda: workload.interpreter("auto", [delegate]))
    others.add(setup.runtime.kernels("auto"), lambda: workload.interpreter("auto"))
    others.add(f"{_PYTORCH}, CUDA graph", lambda: _pytorch(workload.graph, 1, is_graph=True))
    contenders = [Contender(_THROUGH_MODEL, lambda: ours.run(picture)), *others.contenders]
    paths = compared(in_turns(contenders, setup.runs), _THROUGH_MODEL)
    fastest = min((_THROUGH_MODEL, OPENCL), key=lambda name: paths[name].min_ms)
    reference = workload.interpreter("reference", threads=1)
    result = RowResult(
        row.name,
        row.case,
        device=named(info),
        paths=paths,
        figures=[Figure(row.goals[0], paths[fastest].min_ms, _reason(info.name, setup))],
        exact=difference(ours.run(picture), reference.outputs()),
        missing=others.missing,
        notes=[note] if note else [],
    )
    ours.close()
    return result


def many_pictures(row: Row, setup: Setup) -> RowResult:
    """Time a stream of batches from host memory to host memory."""
    info = setup.find(row.device)
    model, note = setup.model(row.model)
    workload = Workload(model, setup.runtime, setup.threads)
    ours = Model(model, info.index, batch=BATCH, tune=setup.tune)
    batch = np.concatenate([workload.inputs[0]] * BATCH)
    others = Peers()
    name = f"{_PYTORCH}, channels last"
    others.add(name, lambda: _repeated(_pytorch(workload.graph, BATCH, is_graph=False)))
    contenders = [Contender(OPENCL, _stream(ours, batch)), *others.contenders]
    paths = compared(in_turns(contenders, min(setup.runs, _ROUNDS_OF_BATCHES)), OPENCL)
    rates = _rates(paths)
    reference = workload.interpreter("reference", threads=1)
    scores = ours.run(batch)
    result = RowResult(
        row.name,
        row.case,
        device=named(info),
        paths=paths,
        figures=[Figure(row.goals[0], rates[OPENCL], _reason(info.name, setup))],
        exact=difference([scores[0][-1:]], reference.outputs()),
        missing=others.missing,
        notes=[*([note] if note else []), _in_words(rates)],
    )
    ours.close()
    return result


def all_gpus(row: Row, setup: Setup) -> RowResult:
    """Time a stream of batches on all of the machine's GPUs, and on the first of them alone."""
    words = setup.device or row.device
    found = [info for info in list_devices() if info.matches(words)]
    if len(found) < 2:
        raise Skipped(f"{len(found)} devices match '{words}': this row is for two or more")
    model, note = setup.model(row.model)
    workload = Workload(model, setup.runtime, setup.threads)
    alone = Model(model, found[0].index, batch=BATCH, tune=setup.tune)
    together = Model(model, f"all {words}", batch=BATCH, tune=setup.tune)
    batch = np.concatenate([workload.inputs[0]] * BATCH)
    contenders = [
        Contender(OPENCL, _stream(together, batch)),
        Contender(_ONE_GPU, _stream(alone, batch)),
    ]
    paths = compared(in_turns(contenders, min(setup.runs, _ROUNDS_OF_BATCHES)), OPENCL)
    rates = _rates(paths)
    reference = workload.interpreter("reference", threads=1)
    pieces = together.run_on_each(batch)
    result = RowResult(
        row.name,
        row.case,
        device=f"{len(found)} x {named(found[0])}",
        paths=paths,
        figures=[Figure(row.goals[0], rates[OPENCL] / rates[_ONE_GPU], too_few(setup.runs))],
        exact=difference(
            [scores[-1:] for _, (scores,) in pieces], reference.outputs() * len(pieces)
        ),
        notes=[*([note] if note else []), _in_words(rates)],
    )
    alone.close()
    together.close()
    return result


def _reason(device: str, setup: Setup) -> str:
    return too_few(setup.runs) if "H200" in device else "the figure is for an H200"


def _rates(paths: Mapping[str, PathTimes]) -> dict[str, float]:
    """Return each path's pictures a second, in its fastest run."""
    pictures = BATCH * _BATCHES_A_RUN
    return {path: pictures / times.min_ms * 1e3 for path, times in paths.items()}


def _in_words(rates: Mapping[str, float]) -> str:
    told = ", ".join(f"{path}: {rate:,.0f} pictures/s" for path, rate in rates.items())
    return f"a run is {_BATCHES_A_RUN} batches; {told}"


def _stream(model: Model, batch: NDArray[Any]) -> Callable[[], object]:
    """Return a run of many batches, whose uploads and kernels overlap."""
    given = model.empty_input()
    assert isinstance(given, np.ndarray)
    given[:] = batch

    def stream() -> None:
        pending = [model.run_async(given) for _ in range(_BATCHES_A_RUN)]
        for each in pending:
            each.result()

    return stream


def _repeated(run: Callable[[], object]) -> Callable[[], object]:
    def stream() -> None:
        for _ in range(_BATCHES_A_RUN):
            run()

    return stream


def _pytorch(graph: Graph, batch: int, is_graph: bool) -> Callable[[], object]:
    """Return the network in half precision with random weights, copies in and out included."""
    torch = imported("torch")
    if not torch.cuda.is_available():
        raise Skipped("PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True
    network = _layers(torch, graph)
    _, height, width, channels = graph.inputs[0].shape
    host = torch.zeros((batch, height, width, channels), dtype=torch.uint8).pin_memory()
    source = torch.zeros((batch, height, width, channels), dtype=torch.uint8, device="cuda")

    def forward() -> Any:
        # NHWC in memory is what PyTorch calls channels last.
        x = source.permute(0, 3, 1, 2).half().mul(1 / 127.5).sub(1)
        return network(x.contiguous(memory_format=torch.channels_last))

    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                scores = forward()
        torch.cuda.current_stream().wait_stream(side)
        answer = torch.zeros(scores.shape, dtype=scores.dtype).pin_memory()
        if is_graph:
            recorded = torch.cuda.CUDAGraph()
            with torch.cuda.graph(recorded):
                scores = forward()

    def run() -> object:
        with torch.no_grad():
            source.copy_(host, non_blocking=True)
            if is_graph:
                recorded.replay()
                answer.copy_(scores, non_blocking=True)
            else:
                answer.copy_(forward(), non_blocking=True)
            torch.cuda.synchronize()
        return answer

    return run


def _layers(torch: Any, graph: Graph) -> Any:
    """Return the graph's convolutions, pool and softmax as a PyTorch network."""
    layers: list[Any] = []
    for node in graph.nodes:
        if node.op in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            weights = node.inputs[1]
            assert weights is not None
            _, height, width, in_c = weights.shape
            is_depthwise = node.op == "DEPTHWISE_CONV_2D"
            out_c = weights.shape[3 if is_depthwise else 0]
            layers.append(
                torch.nn.Conv2d(
                    out_c if is_depthwise else in_c,
                    out_c,
                    (height, width),
                    stride=(node.options["stride_h"], node.options["stride_w"]),
                    # As many pixels as SAME gives; where it pads does not change the time.
                    padding=(height // 2, width // 2),
                    groups=out_c if is_depthwise else 1,
                )
            )
            if node.options.get("fused_activation_function") == "RELU6":
                layers.append(torch.nn.ReLU6(inplace=True))
        elif node.op == "AVERAGE_POOL_2D":
            layers.append(torch.nn.AdaptiveAvgPool2d(1))
        elif node.op == "SOFTMAX":
            layers += [torch.nn.Flatten(), torch.nn.Softmax(dim=1)]
        elif node.op != "RESHAPE":
            raise Skipped(f"op {node.op} has no PyTorch translation here")
    network = torch.nn.Sequential(*layers).eval().half().cuda()
    return network.to(memory_format=torch.channels_last)
