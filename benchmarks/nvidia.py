# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs: one picture as fast as can be, and batches, against PyTorch in half precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Contender, PathTimes, Skipped, imported, repeated, timed
from benchmarks.peers import Peers
from benchmarks.results import OPENCL, Figure, RowResult
from benchmarks.setup import Setup, TableRow, named
from benchmarks.versus import difference, too_few
from delegate import DeviceInfo, Model, list_devices
from delegate.inspect import Graph

BATCH = 256
_THROUGH_MODEL = f"{OPENCL}, Model"
_ONE_GPU = f"{OPENCL}, one GPU"
_PYTORCH = "PyTorch fp16"
_BATCHES_A_RUN = 16  # a run streams so many, that uploads and compute overlap
_ROUNDS_OF_BATCHES = 100


def one_picture(row: TableRow, setup: Setup, info: DeviceInfo, model: str) -> RowResult:
    """Time one picture from its tensor in host memory to the scores in host memory."""
    workload, delegate = setup.workload(model), setup.delegate(model, info)
    (picture,) = workload.inputs
    with setup.opened(model, info.index) as ours:
        result = Peers([Contender(_THROUGH_MODEL, lambda: ours.run(picture))])
        result.add(OPENCL, lambda: workload.interpreter("auto", [delegate]).invoke)
        result.add(setup.runtime.kernels("auto"), lambda: workload.interpreter("auto").invoke)
        result.add(f"{_PYTORCH}, CUDA graph", lambda: _pytorch(workload.graph, 1, is_graph=True))
        paths = timed(result.contenders, setup.runs)
        exact = difference(ours.run(picture), workload.reference())
    fastest_ms = min(paths[name].min_ms for name in (_THROUGH_MODEL, OPENCL))
    return RowResult(
        paths=paths,
        figures=[Figure(row.goals[0], fastest_ms, _reason(info, setup))],
        exact=exact,
        missing=result.missing,
    )


def many_pictures(row: TableRow, setup: Setup, info: DeviceInfo, model: str) -> RowResult:
    """Time a stream of batches from host memory to host memory."""
    workload = setup.workload(model)
    batch = np.concatenate([workload.inputs[0]] * BATCH)
    with setup.opened(model, info.index, BATCH) as ours:
        available = Peers([Contender(OPENCL, _stream(ours, batch))])
        name = f"{_PYTORCH}, channels last"
        available.add(
            name, lambda: repeated(_pytorch(workload.graph, BATCH, False), _BATCHES_A_RUN)
        )
        paths = timed(available.contenders, min(setup.runs, _ROUNDS_OF_BATCHES))
        (scores,) = ours.run(batch)
    rates, notes = _rates(paths)
    return RowResult(
        paths=paths,
        figures=[Figure(row.goals[0], rates[OPENCL], _reason(info, setup))],
        exact=difference([scores[-1:]], workload.reference()),
        missing=available.missing,
        notes=notes,
    )


def all_gpus(row: TableRow, setup: Setup, info: DeviceInfo, model: str) -> RowResult:
    """Time a stream of batches on all of the machine's GPUs, and on the first of them alone."""
    words = setup.device or row.device
    count = sum(each.matches(words) for each in list_devices())
    if count < 2:
        raise Skipped(f"{count} devices match '{words}': this row is for two or more")
    workload = setup.workload(model)
    batch = np.concatenate([workload.inputs[0]] * BATCH)
    everywhere = setup.opened(model, f"all {words}", BATCH)
    with setup.opened(model, info.index, BATCH) as alone, everywhere as together:
        streams = {OPENCL: _stream(together, batch), _ONE_GPU: _stream(alone, batch)}
        contenders = [Contender(name, run) for name, run in streams.items()]
        paths = timed(contenders, min(setup.runs, _ROUNDS_OF_BATCHES))
        pieces = together.run_on_each(batch)
    rates, notes = _rates(paths)
    last = [scores[-1:] for _, (scores,) in pieces]
    return RowResult(
        device=f"{count} x {named(info)}",
        paths=paths,
        figures=[Figure(row.goals[0], rates[OPENCL] / rates[_ONE_GPU], too_few(setup.runs))],
        exact=difference(last, workload.reference() * len(pieces)),
        notes=notes,
    )


def _reason(info: DeviceInfo, setup: Setup) -> str:
    return too_few(setup.runs) if "H200" in info.name else "the figure is for an H200"


def _rates(paths: Mapping[str, PathTimes]) -> tuple[dict[str, float], list[str]]:
    """Return each path's pictures a second, in its fastest run, and a note of them."""
    pictures = BATCH * _BATCHES_A_RUN
    rates = {path: pictures / times.min_ms * 1e3 for path, times in paths.items()}
    note = ", ".join(f"{path}: {rate:,.0f} pictures/s" for path, rate in rates.items())
    return rates, [f"a run is {_BATCHES_A_RUN} batches; {note}"]


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
            out_c, height, width, in_c = weights.shape
            groups = 1
            if node.op == "DEPTHWISE_CONV_2D":
                groups = out_c = in_c
            # As many pixels as SAME gives; where it pads does not change the time.
            padding = height // 2, width // 2
            stride = node.options["stride_h"], node.options["stride_w"]
            layers.append(
                torch.nn.Conv2d(in_c, out_c, (height, width), stride, padding, groups=groups)
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
