# SPDX-License-Identifier: Apache-2.0
"""class Options: the options of OpenCLDelegate and Model, as one frozen record."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from delegate.plan.passes import PASSES
from delegate.plan.tuning.chooser import MODES
from delegate.profiles import DeviceProfile, read_device_profile

FP32, FP16, IEEE = PRECISIONS = ("fp32", "fp16", "ieee")
# Of delegates alone: a Model runs the whole graph on the device, with launches that may be merged.
DELEGATE_ONLY = frozenset(
    ("exclude_ops", "min_nodes_per_partition", "max_delegated_partitions", "placement", "profiling")
)
DEVICE, FASTEST, OFFLOAD = PLACEMENTS = ("device", "fastest", "offload")
_TIE = 1.05  # the device's advantage: it frees the processor
_OFFLOADED = 2.0  # the same for "offload" without a factor
_LISTS = (("exclude_ops", "op names"), ("exclude_isa", "names"), ("passes", "names"))
# By the words of an annotation: a string for a bool would be true, even "no".
_TYPES: Mapping[str, type] = {
    "str": str, "int": Integral, "float": Real, "bool": Integral, "None": type(None),
    "os.PathLike[str]": os.PathLike, "DeviceProfile": DeviceProfile, "Iterable[str]": Iterable,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """The options of OpenCLDelegate and Model; each field is a keyword argument of theirs.

    Attributes:
        device: an index of list_devices() or words of a name; None selects the first that works.
        exclude_ops: names of ops to leave to the CPU.
        min_nodes_per_partition: smaller partitions stay on the CPU; 0 = those that cost more
            than they save.
        max_delegated_partitions: 0 = no limit.
        placement: "device" takes every node that it supports; "fastest" times each partition on
            TFLite's CPU path, too, and leaves it, or its first or last nodes, to the CPU where that
            is faster by more than 5 %; "offload" or "offload:FACTOR" does so where the device takes
            more than FACTOR (2) times as long. Timings are cached, for each number of threads.
        profiling: keep launches separate and time them.
        tune: "off" takes the first alternative of each node, "quick" measures for a few seconds
            per start, and "full" measures everything, with more runs and more dispatch modes;
            results are cached on disk.
        exclude_isa: instruction sets not to use, of Target.isa; "all" for every one.
        device_profile: a name of device_profile_names(), a FILE.toml or a parsed profile:
            limits of another device to enforce; a node that would not run there stays on the CPU,
            and the reason names the limit.
        own_context: open a separate OpenCL context. By default all delegates and models of this
            process share one per device (and device profile), with the programs built in it.
        alternative: a name of OpenCLDelegate.alternatives: nodes that have such an alternative
            use it, without measuring. For tests of drivers; None leaves the choice to `tune`.
        in_child_first: let a child process do first whatever this process has not seen the driver
            do; what kills the child is not used. False is faster, for processes that may crash.
        passes: graph rewrites to apply, by name ("fuse_pad", "fuse_add", ...); () keeps each node
            separate. The outputs are the same.
        precision: "fp32", or "fp16": store floats as fp16 between the nodes of a partition, and
            multiply in fp16 if the device has cl_khr_fp16. Faster on many GPUs, but outputs of
            float models differ; quantised ones do not. Values that may exceed the range of fp16
            stay float32, as does a model whose outputs overflow. TFLite's own GPU
            delegate calls this `gpu_precision_loss_allowed`. "ieee": float results have the same
            bits on every device, in the order of TFLite's reference kernels; ops for which this is
            not implemented stay on the CPU. docs/ops.md lists them.
        plan: a file written by `tflite-opencl plan`, which replaces planning and measuring;
            one of another device, model, shape or version is rejected.
        isolate: execute plans in a separate child process, so that a driver that aborts or hangs
            costs a run and not this process: that run is a DeviceError, and the next one
            has a new child. After three deaths within a minute TFLite's own kernels run what they
            can, and everything else is a DeviceError. Persistent tensors are lost with the child.
        run_timeout: time limit in seconds of a run in such a child; 0 = none.
    Raises:
        TypeError: a value of another type, or one string instead of a list of names.
        ValueError: a number below 0 or NaN, `isolate` with `profiling`, "ieee" with a placement by
            timings, or an invalid value of `tune`, `precision`, `placement` or `passes`.
    """

    device: str | int | None = None
    exclude_ops: Iterable[str] = ()  # stored as a tuple
    min_nodes_per_partition: int = 0
    max_delegated_partitions: int = 0
    placement: str = DEVICE
    profiling: bool = False
    tune: str = "quick"
    exclude_isa: Iterable[str] = ()  # stored as a tuple
    device_profile: str | DeviceProfile | None = None
    own_context: bool = False
    alternative: str | None = None
    in_child_first: bool = True
    passes: Iterable[str] = tuple(PASSES)  # stored as a tuple
    precision: str = FP32
    plan: str | os.PathLike[str] | None = None
    isolate: bool = False
    run_timeout: float = 0.0

    def __post_init__(self) -> None:
        for option in fields(self):
            given, words = getattr(self, option.name), str(option.type)
            if not isinstance(given, tuple(_TYPES[word] for word in words.split(" | "))):
                raise TypeError(f"{option.name}={given!r}: its type is {words}")
        for field, meant in _LISTS:
            given = getattr(self, field)
            names = (given,) if isinstance(given, str) else (*given,)
            if isinstance(given, str) or not all(isinstance(name, str) for name in names):
                raise TypeError(f"{field} is a list of {meant}: {[*names]}")
            # The record is frozen; and an iterator could be read only once.
            object.__setattr__(self, field, names)
        for field in ("min_nodes_per_partition", "max_delegated_partitions", "run_timeout"):
            if not getattr(self, field) >= 0:  # nor is NaN
                raise ValueError(f"{field}={getattr(self, field)} is less than 0")
        if self.isolate and self.profiling:
            raise ValueError("isolate=True: launches are not profiled in a process of their own")
        if self.is_ieee and self.placement_factor < math.inf:
            raise ValueError(
                f"placement='{self.placement}' leaves the bits of floats to timings: not "
                "with precision='ieee'"
            )
        for name in self.passes:
            if name not in PASSES:
                raise ValueError(f"passes={name!r}: one of {', '.join(PASSES)}")
        _ = self.placement_factor
        for field, known in (("tune", MODES), ("precision", PRECISIONS)):
            if (given := getattr(self, field)) not in known:
                raise ValueError(f"{field}='{given}': one of {', '.join(known)}")

    @property
    def placement_factor(self) -> float:
        """The device's time, in the CPU's, up to which nodes stay on the device; inf: any.

        Raises: ValueError: an invalid `placement`.
        """
        word, _, factor = self.placement.partition(":")
        try:
            found = {DEVICE: math.inf, FASTEST: _TIE, OFFLOAD: float(factor or _OFFLOADED)}[word]
        except (KeyError, ValueError):
            found = math.nan
        if not found >= 1 or (factor and word != OFFLOAD):
            words = ", ".join(PLACEMENTS)
            raise ValueError(f"placement='{self.placement}': one of {words}, offload:FACTOR (>= 1)")
        return found

    def of_model(self) -> dict[str, Any]:
        """Return the keywords for class Model: all options that apply to one."""
        names = {field.name for field in fields(self)} - DELEGATE_ONLY
        return {name: getattr(self, name) for name in names}

    @property
    def allows_fp16(self) -> bool:
        """Whether floats may be stored as fp16."""
        return self.precision == FP16

    @property
    def is_ieee(self) -> bool:
        """Whether float results must have the same bits on every device."""
        return self.precision == IEEE

    @property
    def profile(self) -> DeviceProfile | None:
        """The limits of `device_profile`; None: none beside the device's own.

        Raises:
            ProfileError: the profile is unknown, unreadable or invalid.
        """
        given = self.device_profile
        return read_device_profile(given) if isinstance(given, str) else given
