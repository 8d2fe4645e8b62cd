# SPDX-License-Identifier: Apache-2.0
"""The set-up of a run: models, devices, threads, and a description of the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import generators, networks
from benchmarks.measure import Skipped
from benchmarks.peers import Workload, versions
from benchmarks.results import Goal, RowResult
from delegate import DelegateError, DeviceInfo, Model, NoDeviceError, OpenCLDelegate, list_devices
from delegate.inspect import Graph, write_model
from tflite_opencl import __version__
from tflite_opencl.console.errors import one_line
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.default_model import DefaultModelError, default_model
from tflite_opencl.models.fetch import fetched
from tflite_opencl.timing.machine import cpu_name

# Looked for beside the checkout.
MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
# The variables for the number of threads of PoCL and llvmpipe.
THREAD_VARIABLES = ("POCL_MAX_PTHREAD_COUNT", "LP_NUM_THREADS")
V1 = "mobilenet_v1_1.0_224_quant"
DEFAULT = "the default model"
SQUEEZENET = "squeezenet_1.1 of random weights"
SQUEEZENET_FLOAT = "squeezenet_1.0 in float32 of random weights"
V2_FLOAT = "mobilenet_v2 in float32 of random weights"
SHUFFLENET = "shufflenet_v2_1.0 in int8 of random weights"
EDGETPU = "mobilenet_edgetpu_0.75 in int8 of random weights"
SSD = "ssd_mobilenet_v1 of random weights"
DCGAN = "dcgan's generator in float32 of random weights"
DCGAN_INT8 = "dcgan's generator of digits in int8 of random weights"
PIX2PIX = "pix2pix's generator in int8 of random weights"
SUPER_RESOLUTION = "super-resolution in int8 of random weights"
# Networks that are generated if their file is missing; only V1 has an official one.
_GENERATED: Mapping[str, Callable[[], Graph]] = {
    V1: partial(networks.mobilenet_v1, 1.0, 224),
    SQUEEZENET: networks.squeezenet,
    SQUEEZENET_FLOAT: partial(networks.squeezenet, version="1.0", dtype="float32"),
    V2_FLOAT: networks.mobilenet_v2,
    SHUFFLENET: networks.shufflenet_v2,
    EDGETPU: networks.mobilenet_edgetpu,
    SSD: networks.ssd_mobilenet_v1,
    DCGAN: generators.dcgan,
    DCGAN_INT8: generators.dcgan_int8,
    PIX2PIX: generators.pix2pix_int8,
    SUPER_RESOLUTION: generators.super_resolution_int8,
}
POCL, RUSTICL, NVIDIA = "pocl", "rusticl", "nvidia"  # words of their platforms' names


@dataclass(frozen=True, slots=True)
class Setup:
    """The choices of one run."""

    runtime: Runtime
    folder: Path  # for generated files
    device: str | None = None  # instead of the one a row names
    threads: int = 1
    runs: int = 200
    tune: str = "full"  # the steady state is what is timed
    models: Path = MODELS
    before: Path | None = None  # an older checkout

    def model(self, name: str | Path) -> tuple[str, str]:
        """Return the file of a model, and a note where it is a stand-in of equal structure.

        `name`: of the table's models, or a path. Raises: Skipped: it does not exist.
        """
        if isinstance(name, Path):
            return str(name), ""
        if name == DEFAULT:
            try:
                model = default_model()
            except DefaultModelError as error:
                raise Skipped(str(error)) from error
            return self.written("default", model) if isinstance(model, bytes) else str(model), ""
        path = self.models / f"{name}.tflite"
        if (result := path if path.is_file() else fetched(name)) is not None:
            return str(result), ""
        if name not in _GENERATED:
            raise Skipped(f"there is no {name}.tflite in {self.models.name}/ (--models)")
        note = "random weights: the official file is not here" if name == V1 else ""
        return self.written(name, write_model(_GENERATED[name]())), note

    def written(self, name: str, model: bytes) -> str:
        """Return the file of a generated model."""
        path = self.folder / f"{name}.tflite"
        path.write_bytes(model)
        return str(path)

    def workload(self, model: str) -> Workload:
        """Return a model's file in the formats of all peers."""
        return Workload(model, self.runtime, self.threads)

    def delegate(self, model: str, info: DeviceInfo, **options: Any) -> OpenCLDelegate:
        """Return a delegate on a device; `options`: for OpenCLDelegate."""
        return OpenCLDelegate(model, info.index, tune=self.tune, **options)

    def opened(self, model: str, device: int | str, batch: int = 1) -> closing[Model]:
        """Return a delegate's Model of a file on a device, which is closed at the end."""
        return closing(Model(model, device, batch=batch, tune=self.tune))

    def find(self, words: str) -> DeviceInfo:
        """Return the device a row wants, or the one chosen for all rows.

        Raises: Skipped: there is none; NoDeviceError: the chosen one is not there.
        """
        try:
            devices = list_devices()
        except NoDeviceError as error:
            raise Skipped(str(error)) from error
        wanted = words if self.device is None else self.device
        if (result := next((info for info in devices if info.matches(wanted)), None)) is not None:
            return result
        if self.device is None:
            raise Skipped(f"there is no OpenCL device '{words}' here (--device chooses another)")
        raise NoDeviceError(f"no OpenCL device matches '{wanted}'")


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the table."""

    name: str
    case: str
    goals: tuple[Goal, ...]
    # Given the device and the model's file, which is "" where the row names none.
    measure: Callable[[TableRow, Setup, DeviceInfo, str], RowResult]
    model: str | Path = ""
    device: str = POCL
    exclude_isa: tuple[str, ...] = ()
    is_slow: bool = False  # timed as often as a figure needs, and no more
    has_tinygrad: bool = False  # which takes long to start

    def runs(self, setup: Setup) -> int:
        """Return how often its contenders are timed."""
        return min(setup.runs, 100) if self.is_slow else setup.runs

    def result(self, setup: Setup) -> RowResult:
        """Return what it measured, or why it was not measured, or what broke."""
        try:
            info = setup.find(self.device)
            model, note = setup.model(self.model) if self.model else ("", "")
            outcome = self.measure(self, setup, info, model)
            notes = [*([note] if note else []), *outcome.notes]
            outcome = replace(outcome, device=outcome.device or named(info), notes=notes)
        except Skipped as reason:
            outcome = RowResult(skipped=str(reason))
        except (DelegateError, OSError, RuntimeError, ValueError) as error:
            outcome = RowResult(failed=one_line(error))
        return replace(outcome, row=self.name, case=self.case)


def named(info: DeviceInfo) -> str:
    """Return a device in words."""
    return f"{info.name} ({info.platform}, {info.driver})"


def machine(runtime: Runtime, threads: int, load: float) -> Mapping[str, str]:
    """Return what a reader must know of this machine; its name is not part of it."""
    packages = {
        "tflite-opencl": __version__,
        "Python": platform.python_version(),
        "numpy": np.__version__,
        **versions(runtime),
    }
    facts = {
        "CPU": cpu_name(),
        "threads": f"{threads}, load {load:.2f} before",
        "versions": ", ".join(f"{name} {version}" for name, version in packages.items()),
        "POCL_AFFINITY": os.environ.get("POCL_AFFINITY", "unset"),
    }
    try:
        devices = list_devices()
        if gpus := [info.name for info in devices if info.type == "gpu"]:
            facts["GPU"] = ", ".join(gpus)
        for info in devices:
            facts[f"OpenCL {info.index}"] = f"{info.name}: {info.platform}, driver {info.driver}"
    except NoDeviceError as error:
        facts["OpenCL"] = str(error)
    return facts
