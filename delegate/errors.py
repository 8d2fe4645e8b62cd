# SPDX-License-Identifier: Apache-2.0
"""The exceptions this package raises."""


class DelegateError(Exception):
    """Base of all errors that this package raises deliberately; the text is a complete sentence."""


class ModelError(DelegateError):
    """The .tflite file cannot be read; the text names the invalid part."""


class SignatureError(DelegateError):
    """The model has no signature of this name; the text lists those that exist."""


class Unsupported(DelegateError):
    """This node stays on the CPU; the text names the value and the rule it violates."""


class KernelBuildError(DelegateError):
    """A kernel failed to build.

    Attributes:
        file: the .cl file's name; defines: the macros it was built with; log: the build log.
    """

    def __init__(self, file: str, defines: dict[str, str], log: str) -> None:
        self.file = file
        self.defines = defines
        self.log = log.strip()
        macros = " ".join(f"{name}={value}" for name, value in defines.items())
        first_line = next((line for line in self.log.splitlines() if "error" in line.lower()), "")
        super().__init__(
            f"kernel {file} does not build ({macros or 'no defines'}): "
            f"{first_line.strip() or self.log[:200] or 'the driver gives no log'}"
        )


class CacheError(DelegateError):
    """The cache folder is not writable; the text says which, why, and how to choose another."""


class ProfileError(DelegateError):
    """A device profile cannot be used; the text names it and what is wrong."""


class PlanError(DelegateError):
    """A plan file cannot be used here; the text says what differs, or what is wrong with it."""


class DeviceError(DelegateError):
    """An OpenCL call failed; the text contains the call and the CL status name."""


class NoDeviceError(DeviceError):
    """No OpenCL device is usable; the text says what exists and what to install."""


class TooLarge(DeviceError):
    """The device works, but the request exceeds its memory or limits."""


class KilledChild(DeviceError):
    """A child process died or hung in the request; the text says how."""


class NotRestarted(DeviceError):
    """The process that executes plans died too often; the text describes its last death."""


class InvalidValue(DelegateError):
    """A run met a value on which TFLite's kernel fails; the text names node, value and rule."""


class AbiMismatch(DelegateError):
    """A node handed over by TFLite differs from the parsed file's node of that index."""


# On these a partition goes to the CPU, in whole or in part.
REFUSALS = (KilledChild, NotRestarted, TooLarge, Unsupported)
