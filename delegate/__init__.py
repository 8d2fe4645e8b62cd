# SPDX-License-Identifier: Apache-2.0
"""A TFLite delegate whose ops run as OpenCL kernels: the public names."""

from delegate.cache import cache_folder, write_cached
from delegate.details import TensorDetails
from delegate.errors import (
    AbiMismatch,
    CacheError,
    DelegateError,
    DeviceError,
    KernelBuildError,
    ModelError,
    NoDeviceError,
    ProfileError,
    TooLarge,
    Unsupported,
)
from delegate.graph.dump import graph_table
from delegate.graph.ir import Graph, Node, Quantization, Tensor
from delegate.graph.known import known
from delegate.graph.verdict import Verdict
from delegate.launch import NodeAlternatives
from delegate.model import Model
from delegate.opencl_delegate import OpenCLDelegate
from delegate.options import Options
from delegate.pieces import PendingPiece, Portion
from delegate.probe import Proof, examine
from delegate.profiles import (
    DeviceProfile,
    device_profile_names,
    device_profile_text,
    read_device_profile,
)
from delegate.progress import Progress, Watch, watched
from delegate.records import Ban, lift_bans, list_bans
from delegate.rehearsal import start_early
from delegate.runtime.device_list import DeviceInfo, list_devices, several_devices
from delegate.runtime.icds import Icd, ask_platforms, list_icds
from delegate.runtime.kernel_build import KernelBuild, KernelBuilder
from delegate.runtime.steps import LaunchSize, LaunchTime, PartitionRun, StepRun
from delegate.runtime.survey import (
    DeviceLimits,
    DeviceRates,
    PlatformInfo,
    device_limits,
    device_rates,
    device_registers,
    list_platforms,
    profile_of,
)
from delegate.slots import Pending
from delegate.tflite.metadata import (
    AssociatedFile,
    ModelMetadata,
    TensorMetadata,
    read_metadata,
)
from delegate.tflite.reader import read_model
from delegate.tflite.schema import builtin_op_numbers
from delegate.tflite.writer import write_model

__all__ = [
    "AbiMismatch",
    "AssociatedFile",
    "Ban",
    "CacheError",
    "DelegateError",
    "DeviceError",
    "DeviceInfo",
    "DeviceLimits",
    "DeviceProfile",
    "DeviceRates",
    "Graph",
    "Icd",
    "KernelBuild",
    "KernelBuildError",
    "KernelBuilder",
    "LaunchSize",
    "LaunchTime",
    "Model",
    "ModelError",
    "ModelMetadata",
    "NoDeviceError",
    "Node",
    "NodeAlternatives",
    "OpenCLDelegate",
    "Options",
    "PartitionRun",
    "Pending",
    "PendingPiece",
    "PlatformInfo",
    "Portion",
    "ProfileError",
    "Progress",
    "Proof",
    "Quantization",
    "StepRun",
    "Tensor",
    "TensorDetails",
    "TensorMetadata",
    "TooLarge",
    "Unsupported",
    "Verdict",
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
    "known",
    "lift_bans",
    "list_bans",
    "list_devices",
    "list_icds",
    "list_platforms",
    "profile_of",
    "read_device_profile",
    "read_metadata",
    "read_model",
    "several_devices",
    "start_early",
    "watched",
    "write_cached",
    "write_model",
]
