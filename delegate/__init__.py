# SPDX-License-Identifier: Apache-2.0
"""A TFLite delegate whose ops run as OpenCL kernels: the public names."""

from delegate.cache import cache_folder, write_cached
from delegate.errors import (
    AbiMismatch,
    CacheError,
    DelegateError,
    DeviceError,
    KernelBuildError,
    ModelError,
    NoDeviceError,
    Unsupported,
)
from delegate.graph.ir import Graph, Node, Quantization, Tensor
from delegate.model import Model, Pending, TensorDetails
from delegate.opencl_delegate import OpenCLDelegate
from delegate.runtime.device import DeviceInfo, list_devices
from delegate.runtime.executor import LaunchTime
from delegate.tflite.reader import read_model
from delegate.tflite.writer import write_model

__all__ = [
    "AbiMismatch",
    "CacheError",
    "DelegateError",
    "DeviceError",
    "DeviceInfo",
    "Graph",
    "KernelBuildError",
    "LaunchTime",
    "Model",
    "ModelError",
    "NoDeviceError",
    "Node",
    "OpenCLDelegate",
    "Pending",
    "Quantization",
    "Tensor",
    "TensorDetails",
    "Unsupported",
    "cache_folder",
    "list_devices",
    "read_model",
    "write_cached",
    "write_model",
]
