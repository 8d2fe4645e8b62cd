# SPDX-License-Identifier: Apache-2.0
"""The table: rows that are measured by default, and their goals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks import nvidia, processes, setup, versus
from benchmarks.peers import ONNX_RUNTIME, OPENVINO
from benchmarks.results import Goal
from benchmarks.setup import V1, TableRow


def model_row(model: Path) -> TableRow:
    """Return the row of a given model, which has no goals."""
    return TableRow(model.stem, str(model), (), versus.against_peers, model, device="")


def _of_xnnpack(limit: float, aim: float | None = None) -> Goal:
    return Goal("of XNNPACK's time", limit, aim, against=("XNNPACK",))


_OF_ONNX = Goal(
    "of the faster of OpenVINO's and ONNX Runtime's", 0.95, 0.77, against=(OPENVINO, ONNX_RUNTIME)
)
_OF_OPENVINO = Goal("of OpenVINO's time", 1.0, 0.9, against=(OPENVINO,))
# Name, model and figures of the rows on PoCL.
_MODELS = (
    ("v1", V1, (_of_xnnpack(0.42, 0.34), _OF_ONNX)),
    ("v2", "mobilenet_v2_1.0_224_quant", (_of_xnnpack(0.50, 0.40),)),
    ("tf2-v2", "tf2_mobilenet_v2_1.0_224_ptq", (_of_xnnpack(0.70, 0.60), _OF_OPENVINO)),
    ("default", setup.DEFAULT, (_of_xnnpack(0.85),)),
    ("deeplabv3", "deeplabv3_mnv2_pascal_quant", (_of_xnnpack(0.85),)),
    ("squeezenet", setup.SQUEEZENET, (_of_xnnpack(0.85),)),
    ("shufflenet", setup.SHUFFLENET, (_of_xnnpack(0.80, 0.60),)),
    ("edgetpu", setup.EDGETPU, (_of_xnnpack(0.80, 0.60),)),
    ("dcgan", setup.DCGAN, (_of_xnnpack(1.0, 0.80),)),
    ("dcgan-int8", setup.DCGAN_INT8, (_of_xnnpack(0.80),)),
    ("pix2pix", setup.PIX2PIX, (_of_xnnpack(0.80, 0.50),)),
    ("resolution", setup.SUPER_RESOLUTION, (_of_xnnpack(0.80, 0.50),)),
    # 32x32 pixels: 12 launches of a few microseconds, and a call into Python.
    ("resnet", "pretrainedResnet_quant", ()),
    ("float", "mobilenet_v1_0.25_128", (_of_xnnpack(1.1, 0.9),)),
    ("squeezenet-float", setup.SQUEEZENET_FLOAT, (_of_xnnpack(1.0, 0.85),)),
    ("v2-float", setup.V2_FLOAT, (_of_xnnpack(0.95, 0.8),)),
)

_ROWS = (
    *(
        TableRow(name, f"{model}, PoCL", goals, versus.against_peers, model,
            is_slow=name == "deeplabv3", has_tinygrad=name == "v1")
        for name, model, goals in _MODELS
    ),
    TableRow("v1-avx2", f"{V1}, PoCL without VNNI", (_of_xnnpack(0.60),), versus.against_peers, V1,
        exclude_isa=("vnni",)),
    TableRow("calls", "a model of one small node, PoCL",
        (Goal("a run beside its kernel", 0.015, 0.008, "ms"),), versus.beside_kernels),
    TableRow("v1-rusticl", f"{V1}, rusticl on llvmpipe",
        (Goal("of our portable kernels' time on PoCL", 2.5, against=(versus.PORTABLE,)),),
        versus.against_pocl, V1, setup.RUSTICL, is_slow=True),
    TableRow("nvidia-1", f"{V1}, one H200, tensor in, scores out",
        (Goal("wall time", 0.13, 0.10, "ms"),), nvidia.one_picture, V1, setup.NVIDIA),
    TableRow("nvidia-256", f"{V1}, one H200, batches of {nvidia.BATCH}, host memory in and out",
        (Goal("throughput", 120_000, 150_000, "pictures/s", is_least=True),),
        nvidia.many_pictures, V1, setup.NVIDIA),
    TableRow("nvidia-all", f"{V1}, all H200s of a machine, each with batches of {nvidia.BATCH}",
        (Goal("of one GPU's throughput, by two", 1.9, 2.0, is_least=True),),
        nvidia.all_gpus, V1, setup.NVIDIA),
    TableRow("process", f"label_image --use_gpu -c 1 --compare=false, {V1}, PoCL",
        (Goal("first time ever", 4, 3, unit="s"),
         Goal("more than the CPU's run, with a warm cache", 0.8, unit="s")),
        processes.wall_times, V1),
    TableRow("memory", f"memory of a process, {V1}, PoCL",
        (Goal("more than the CPU's run, without the driver's own", 40, unit="MB"),),
        processes.memory, V1),
)  # fmt: skip
ROWS: Mapping[str, TableRow] = {row.name: row for row in _ROWS}
