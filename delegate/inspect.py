# SPDX-License-Identifier: Apache-2.0
"""What tools need besides the public names: they may change with each release."""

from delegate.cache import cache_folder, write_cached
from delegate.devices.model_io import TensorDetails
from delegate.devices.spread import Portion
from delegate.errors import AbiMismatch, CacheError, KernelBuildError
from delegate.graph.dump import graph_table
from delegate.graph.edit import with_tensors
from delegate.graph.infer import infer
from delegate.graph.ir import Graph, Node, Quantization, Tensor
from delegate.graph.shapes import output_shapes
from delegate.kernel_uses import ExpectedLaunch, KernelUse, kernel_uses
from delegate.launch import NodeAlternatives
from delegate.profiles import (
    DeviceProfile,
    device_profile_names,
    device_profile_text,
    read_device_profile,
)
from delegate.progress import Progress, Watch, watched
from delegate.runtime.device_list import several_devices
from delegate.runtime.icds import Icd, ask_platforms, list_icds
from delegate.runtime.inspection import LaunchSize, LaunchTime, PartitionRun, StepRun
from delegate.runtime.rounding import sum_bound
from delegate.runtime.survey import (
    DeviceLimits,
    DeviceRates,
    KernelBuild,
    KernelBuilder,
    PlatformInfo,
    device_limits,
    device_rates,
    device_registers,
    profile_of,
)
from delegate.sandbox.records import Ban, lift_bans, list_bans
from delegate.start.probe import Proof, examine
from delegate.start.rehearsal import start_early
from delegate.tflite.metadata import AssociatedFile, ModelMetadata, TensorMetadata, read_metadata
from delegate.tflite.reader import read_model
from delegate.tflite.schema import builtin_op_numbers
from delegate.tflite.writer import write_model

__all__ = [
    "AbiMismatch",
    "AssociatedFile",
    "Ban",
    "CacheError",
    "DeviceLimits",
    "DeviceProfile",
    "DeviceRates",
    "ExpectedLaunch",
    "Graph",
    "Icd",
    "KernelBuild",
    "KernelBuildError",
    "KernelBuilder",
    "KernelUse",
    "LaunchSize",
    "LaunchTime",
    "ModelMetadata",
    "Node",
    "NodeAlternatives",
    "PartitionRun",
    "PlatformInfo",
    "Portion",
    "Progress",
    "Proof",
    "Quantization",
    "StepRun",
    "Tensor",
    "TensorDetails",
    "TensorMetadata",
    "Watch",
    "ask_platforms",
    "builtin_op_numbers",
    "cache_folder",
    "device_limits",
    "device_profile_names",
    "device_profile_text",
    "device_rates",
    "device_registers",
    "examine",
    "graph_table",
    "infer",
    "kernel_uses",
    "lift_bans",
    "list_bans",
    "list_icds",
    "output_shapes",
    "profile_of",
    "read_device_profile",
    "read_metadata",
    "read_model",
    "several_devices",
    "start_early",
    "sum_bound",
    "watched",
    "with_tensors",
    "write_cached",
    "write_model",
]
