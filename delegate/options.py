# SPDX-License-Identifier: Apache-2.0
"""class Options: all that OpenCLDelegate and Model can be told, as one frozen record."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from delegate.plan.passes import PASSES
from delegate.plan.tuning.chooser import MODES
from delegate.profiles import DeviceProfile, read_device_profile

FP32, FP16 = PRECISIONS = ("fp32", "fp16")
_LISTS = (("exclude_ops", "op names"), ("exclude_isa", "names"), ("passes", "names"))


@dataclass(frozen=True, slots=True)
class Options:
    """What OpenCLDelegate and Model can be told; each field is a keyword of theirs.

    Attributes:
        device: an index of list_devices() or words of a name; None takes the first that works.
        exclude_ops: names of ops to leave to the CPU.
        min_nodes_per_partition: smaller partitions are left to the CPU; 0 = those that cost more
            than they save.
        max_delegated_partitions: 0 = no limit.
        profiling: keep launches apart and take their times.
        tune: "off" takes the first alternative of each node, "quick" measures for a few seconds
            a start, and "full" to the end, with more runs and more ways to launch; what was found
            is kept on disk.
        exclude_isa: instructions not to use, of Target.isa; "all" for every one.
        device_profile: a name of device_profile_names(), a FILE.toml or what was read of one:
            limits of another device to keep here; a node that would not run there stays on the CPU,
            with the limit named.
        own_context: open an OpenCL context of its own. Else all delegates and models of this
            process share one for each device (and device profile), with the programs built in it.
        alternative: a name of OpenCLDelegate.alternatives: nodes that have an alternative of this
            name run it, without measuring. For tests of drivers; None leaves the choice to `tune`.
        in_child_first: let a child process do first what this process has not seen the driver do;
            what the child dies of is not used. For processes that may die, False is faster.
        passes: what may join nodes of a partition, by name ("fuse_pad", "fuse_add", ...); () keeps
            each node apart. The outputs are the same.
        precision: "fp32", or "fp16": floats may be halves between the nodes of a partition, and
            products of halves where the device has cl_khr_fp16. Faster on many GPUs, and the
            outputs of float models are others; quantised ones stay. What may be beyond the range
            of halves stays float32, and so does a model whose outputs are. TFLite's own GPU
            delegate calls the permission `gpu_precision_loss_allowed`.
        plan: a file that `tflite-opencl plan` wrote: what it says is done, and nothing is measured;
            one of another device, model, shape or version is refused.
        isolate: execute plans in a child process of their own, so that a driver that aborts, hangs
            or lies costs a run and not this process: that run is a DeviceError, and the next one
            has a new child. After three of them within a minute TFLite's own kernels run what they
            can, and all else is a DeviceError. State that is kept over runs ends with the child.
        run_timeout: seconds that a run may take in such a child; 0 = no limit.
    Raises:
        TypeError: one string where a list of names is meant.
        ValueError: a number below 0, `isolate` with `profiling`, or `tune`, `precision` or one of
            `passes` is not one of its words.
    """

    device: str | int | None = None
    exclude_ops: Iterable[str] = ()  # kept as a tuple
    min_nodes_per_partition: int = 0
    max_delegated_partitions: int = 0
    profiling: bool = False
    tune: str = "quick"
    exclude_isa: Iterable[str] = ()  # kept as a tuple
    device_profile: str | DeviceProfile | None = None
    own_context: bool = False
    alternative: str | None = None
    in_child_first: bool = True
    passes: Iterable[str] = tuple(PASSES)  # kept as a tuple
    precision: str = FP32
    plan: str | os.PathLike[str] | None = None
    isolate: bool = False
    run_timeout: float = 0.0

    def __post_init__(self) -> None:
        for field, meant in _LISTS:
            given = getattr(self, field)
            if isinstance(given, str):
                raise TypeError(f"{field} is a list of {meant}: ['{given}']")
            # A frozen record is set this way only: an iterator could be read once.
            object.__setattr__(self, field, tuple(given))
        for field in ("min_nodes_per_partition", "max_delegated_partitions", "run_timeout"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field}={getattr(self, field)} is less than 0")
        if self.isolate and self.profiling:
            raise ValueError("isolate=True: launches are not profiled in a process of their own")
        for name in self.passes:
            if name not in PASSES:
                raise ValueError(f"passes={name!r}: one of {', '.join(PASSES)}")
        for field, words in (("tune", MODES), ("precision", PRECISIONS)):
            if (given := getattr(self, field)) not in words:
                raise ValueError(f"{field}='{given}': one of {', '.join(words)}")

    @property
    def allows_fp16(self) -> bool:
        """Whether floats may be halves."""
        return self.precision == FP16

    @property
    def profile(self) -> DeviceProfile | None:
        """The limits of `device_profile`; None: only the device's own.

        Raises:
            ProfileError: the profile is unknown, unreadable or wrong.
        """
        given = self.device_profile
        return read_device_profile(given) if isinstance(given, str) else given
