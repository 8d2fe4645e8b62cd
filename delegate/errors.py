# SPDX-License-Identifier: Apache-2.0
"""The exceptions this package raises."""


class DelegateError(Exception):
    """Base of every error this package raises on purpose; its text is one complete sentence."""


class ModelError(DelegateError):
    """The .tflite file cannot be read; the text names the part that is wrong."""


class SignatureError(DelegateError):
    """The model has no signature of this name; the text names those that it has."""


class Unsupported(DelegateError):
    """This node stays on the CPU, as many do; the text names the value and the rule it breaks."""


class KernelBuildError(DelegateError):
    """A kernel did not build.

    Attributes:
        file: the .cl file's name; defines: the macros it was built with; log: the driver's words.
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
    """The cache folder takes no file; the text says which, why, and how to choose another."""


class ProfileError(DelegateError):
    """A device profile cannot be used; the text names it and what is wrong."""


class PlanError(DelegateError):
    """A plan's file cannot be used here; the text says what differs, or what is wrong with it."""


class DeviceError(DelegateError):
    """An OpenCL call failed; the text holds the call and the CL status name."""


class NoDeviceError(DeviceError):
    """No OpenCL device can be used; the text says what was found and what to install."""


class TooLarge(DeviceError):
    """The device works, and what was asked of it is beyond its memory or its limits."""


class KilledChild(DeviceError):
    """A child process died of what was asked, or hung in it; the text says how."""


class NotRestarted(DeviceError):
    """The process that executes plans ended too often; the text says how it did last."""


class InvalidValue(DelegateError):
    """A run met a value on which TFLite's kernel fails; the text names node, value and rule."""


class AbiMismatch(DelegateError):
    """A node handed over by TFLite differs from the parsed file's node of that index."""


# For these a partition goes to the CPU, in whole or in part.
REFUSALS = (KilledChild, NotRestarted, TooLarge, Unsupported)
