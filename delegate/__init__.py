# SPDX-License-Identifier: Apache-2.0
"""TFLite delegate that runs ops as OpenCL kernels: the public names."""

from delegate.errors import (
    DelegateError,
    DeviceError,
    ModelError,
    NoDeviceError,
    PlanError,
    ProfileError,
    SignatureError,
    TooLarge,
    Unsupported,
)
from delegate.graph.verdict import Verdict
from delegate.host.opencl_delegate import OpenCLDelegate
from delegate.model.model import Model
from delegate.model.run import Run
from delegate.options import Options
from delegate.run.device_list import DeviceInfo, list_devices

__all__ = [
    "DelegateError",
    "DeviceError",
    "DeviceInfo",
    "Model",
    "ModelError",
    "NoDeviceError",
    "OpenCLDelegate",
    "Options",
    "PlanError",
    "ProfileError",
    "Run",
    "SignatureError",
    "TooLarge",
    "Unsupported",
    "Verdict",
    "list_devices",
]
