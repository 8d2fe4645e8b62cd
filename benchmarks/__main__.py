# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`: models -> a table of times. The only code here that prints or exits."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.measure import BLOCK_RUNS, OPENCL, Result, benchmark
from delegate import DelegateError
from label_image.default_model import DefaultModelError, default_model
from label_image.fetch import fetched
from label_image.runtime import RuntimeMissing, find_runtime

# Looked for beside the checkout; where they are not, the embedded default stands in.
_MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
_DEFAULT_NAMES = (
    "mobilenet_v1_1.0_224_quant",
    "mobilenet_v2_1.0_224_quant",
    "tf2_mobilenet_v2_1.0_224_ptq",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    # As in label_image: PoCL pins its threads to cores only if told so before it is loaded.
    os.environ.setdefault("POCL_AFFINITY", "1")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Time models: OpenCL, and TFLite's own CPU paths"
    )
    parser.add_argument("models", nargs="*", metavar="MODEL.tflite")
    parser.add_argument("--device", help="index, or words of the device's or platform's name")
    parser.add_argument(
        "--runs", type=int, default=200, help=f"a path, in blocks of {BLOCK_RUNS} (default 200)"
    )
    parser.add_argument("--json", metavar="FILE", help="also write everything measured there")
    options = parser.parse_args(arguments)
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: at least one run must be timed")

    load = os.getloadavg()[0]
    threads = len(os.sched_getaffinity(0))
    try:
        runtime = find_runtime()
        models = [str(fetched(name) or name) for name in options.models] or _default_models()
        results = [
            benchmark(model, runtime, options.device, threads, options.runs) for model in models
        ]
    except (
        DefaultModelError, DelegateError, OSError, RuntimeError, RuntimeMissing, ValueError,
    ) as error:  # fmt: skip
        print(f"ERROR: {error}", file=sys.stderr)
        return 1
    device = results[0].device
    machine = {
        "CPU": f"{_cpu()}, {threads} threads, load {load:.2f} before",
        "OpenCL": f"{device.name} ({device.platform}, driver {device.driver})",
        "TFLite": f"{runtime.name} {runtime.version}",
    }
    console = Console(width=max(120, Console().width), highlight=False)
    for name, value in machine.items():
        console.print(f"{name}: {value}", markup=False)
    console.print(_times(results), _delegated(results))
    if options.json:
        document = {"machine": machine, "models": [asdict(result) for result in results]}
        Path(options.json).write_text(json.dumps(document, indent=2) + "\n")
    return 0


def _default_models() -> list[str]:
    found = [_MODELS / f"{name}.tflite" for name in _DEFAULT_NAMES]
    if all(path.is_file() for path in found):
        return [str(path) for path in found]
    model = default_model()
    if isinstance(model, bytes):
        raise DefaultModelError("the default model has no file: give the path of a model")
    return [str(model)]


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _times(results: Sequence[Result]) -> Table:
    table = Table(box=box.MARKDOWN)
    table.add_column("model", no_wrap=True)
    table.add_column("path")
    for heading in ("minimum, ms", "median, ms", f"over {results[0].peer}", "quartiles"):
        table.add_column(heading, justify="right")
    for result in results:
        name = Path(result.model).stem
        for path, times in result.paths.items():
            table.add_row(
                name if path == OPENCL else "",
                path,
                f"{times.min_ms:.2f}",
                f"{times.median_ms:.2f}",
                f"{times.ratio:.2f}",
                "{:.2f} to {:.2f}".format(*times.ratio_quartiles),
            )
    return table


def _delegated(results: Sequence[Result]) -> Table:
    table = Table(box=box.MARKDOWN)
    table.add_column("on OpenCL, a run")
    for heading in ("nodes", "partitions", "launches", "bytes up", "bytes down"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            Path(result.model).stem,
            f"{result.delegated} of {result.nodes}",
            str(result.partitions),
            str(result.launches),
            str(result.up_bytes),
            str(result.down_bytes),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
