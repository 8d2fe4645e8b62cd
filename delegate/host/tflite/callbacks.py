# SPDX-License-Identifier: Apache-2.0
"""TFLite's C callbacks (prepare, init, invoke, free), forwarded to Python hooks.

Exceptions never propagate into C: they become TFLite's error status with a message.
"""

from __future__ import annotations

import ctypes as C
import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from delegate.errors import AbiMismatch, DelegateError
from delegate.format import schema
from delegate.guard.children import process
from delegate.host.tflite import abi
from delegate.host.tflite.views import Bytes, Views, tensor_bytes

T = TypeVar("T")

Shapes = dict[int, tuple[int, ...]]  # tensor index -> sizes
Constants = dict[int, Bytes]  # tensor index -> TFLite's own copy


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node of TFLite's execution plan."""

    index: int
    op: str  # the builtin's name, or the custom op's own
    inputs: tuple[int, ...]  # tensor indices, -1 = omitted
    outputs: tuple[int, ...]


class Kernel(Protocol):
    """One partition, as called by TFLite."""

    @property
    def inputs(self) -> Sequence[int]:
        """The tensor indices to fill before a run; `prepare` may change both."""

    @property
    def outputs(self) -> Sequence[int]:
        """The tensor indices that a run fills."""

    def prepare(self, shapes: Shapes) -> Shapes:
        """Prepare for these shapes of all tensors; return those of the outputs."""

    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once; the arrays are TFLite's memory, valid only during the call."""

    def close(self) -> None:
        """Release its memory."""


class Hooks(Protocol):
    """The delegate's side of the callbacks, without C."""

    def claim(
        self, context: int, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
    ) -> Sequence[int]:
        """Return the indices of the nodes to take."""

    def partition(self, context: int, nodes: tuple[int, ...]) -> Kernel:
        """Return the kernel of a group of claimed nodes."""

    def failed(self, error: BaseException) -> None:
        """Called with an exception before it becomes a TFLite error."""


# Callbacks that C may still call must not be collected, even if the garbage collector frees an
# interpreter and its delegate in one cycle, in any order. At most one idle entry is left over.
_in_use: set[NativeDelegate] = set()


class NativeDelegate:
    """A TfLiteDelegate structure.

    Attributes:
        address: of the structure; valid while this object lives.
    """

    def __init__(self, name: str, hooks: Hooks) -> None:
        # A copy: another thread may be adding its own.
        for idle in [native for native in tuple(_in_use) if not native._kernels]:
            _in_use.discard(idle)
        # Weak: the delegate owns this object, and its device memory must be freed with it.
        self._hooks_reference = weakref.ref(hooks)
        self._kernels: dict[int, Kernel] = {}
        self._views: dict[Kernel, Views] = {}
        self._handles = itertools.count(1)
        self._failure: BaseException | None = None  # init cannot report it; the next prepare does
        self._registration = abi.TfLiteRegistration(
            init=abi.Init(_kept_whole(self._init)),
            free=abi.Free(_kept_whole(self._free)),
            prepare=abi.NodeCall(_kept_whole(self._prepare_kernel)),
            invoke=abi.NodeCall(_kept_whole(self._invoke)),
            builtin_code=abi.BUILTIN_DELEGATE,
            custom_name=name.encode(),
            version=1,
        )
        self._delegate = abi.TfLiteDelegate(
            Prepare=abi.DelegatePrepare(_kept_whole(self._prepare_delegate)), flags=abi.FLAGS
        )
        self.address: int = C.addressof(self._delegate)

    @property
    def _hooks(self) -> Hooks:
        hooks = self._hooks_reference()
        if hooks is None:
            raise AbiMismatch("the delegate object is gone: keep it as long as its interpreter")
        return hooks

    def close(self) -> None:
        """Close every kernel; TFLite may still call, and gets errors."""
        for kernel in tuple(self._kernels.values()):
            kernel.close()

    def _prepare_delegate(self, context: int, delegate: int) -> int:
        try:
            view = abi.TfLiteContext.from_address(context)
            plan = _plan(context, view)
            claimed = tuple(self._hooks.claim(context, plan, _shapes(view), _constants(view)))
            array = abi.int_array(claimed)
            pointer = C.cast(array, C.POINTER(abi.TfLiteIntArray))
            return int(
                view.ReplaceNodeSubsetsWithDelegateKernels(
                    context, self._registration, pointer, delegate
                )
            )
        except BaseException as error:  # C needs a status, also for Ctrl-C
            return self._report(context, error)

    def _init(self, context: int, buffer: int, length: int) -> int:
        try:
            params = abi.TfLiteDelegateParams.from_address(buffer)
            kernel = self._hooks.partition(context, abi.ints(params.nodes_to_replace))
        except BaseException as error:  # init cannot fail in C; prepare will
            self._failure = error
            return 0
        handle = next(self._handles)
        self._kernels[handle] = kernel
        _in_use.add(self)
        return handle

    def _free(self, context: int, handle: int | None) -> None:
        kernel = self._kernels.pop(handle or 0, None)
        if kernel is not None:
            self._views.pop(kernel, None)
            try:
                kernel.close()
            except Exception as error:  # free returns no status
                self._tell(error)

    def _prepare_kernel(self, context: int, node: Any) -> int:
        try:
            kernel = self._kernel(node)
            view = abi.TfLiteContext.from_address(context)
            self._views.pop(kernel, None)  # inputs and outputs may change
            # TFLite prepares readers of a dynamic tensor during the run, once its size is known.
            for index, shape in kernel.prepare(_shapes(view)).items():
                _give_shape(context, view, index, shape)
        except BaseException as error:
            return self._report(context, error)
        return abi.OK

    def _invoke(self, context: int, node: Any) -> int:
        try:
            kernel = self._kernel(node)
            views = self._views.get(kernel)
            if views is None or views.context != context:
                views = self._views[kernel] = Views(context, kernel.inputs, kernel.outputs)
            kernel.invoke(*views.now())
        except BaseException as error:
            return self._report(context, error)
        return abi.OK

    def _kernel(self, node: Any) -> Kernel:
        kernel = self._kernels.get(node.contents.user_data or 0)
        if kernel is None:
            raise self._failure or AbiMismatch("a delegated node without its kernel")
        return kernel

    def _tell(self, error: BaseException) -> None:
        hooks = self._hooks_reference()
        if hooks is not None:
            hooks.failed(error)

    def _report(self, context: int, error: BaseException) -> int:
        self._tell(error)
        known = isinstance(error, DelegateError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        view = abi.TfLiteContext.from_address(context)
        # A newline, as TFLite appends text.
        view.ReportError(context, b"%s\n", f"OpenCL delegate: {text}".encode())
        return abi.ERROR


def _kept_whole(call: Callable[..., T]) -> Callable[..., T]:
    """Return a callback that the process's exit waits for."""
    inside = process.ProtectedCall()

    def kept_whole(*arguments: Any) -> T:
        with inside:
            return call(*arguments)

    return kept_whole


def _plan(context: int, view: abi.TfLiteContext) -> list[PlannedNode]:
    """Return the nodes of the plan."""
    plan = C.POINTER(abi.TfLiteIntArray)()
    if view.GetExecutionPlan(context, C.byref(plan)) != abi.OK:
        raise AbiMismatch("TFLite gave no execution plan")
    nodes = []
    # Copied first: TFLite may reuse the array in the calls below.
    for index in abi.ints(plan):
        node = C.POINTER(abi.TfLiteNode)()
        registration = C.POINTER(abi.TfLiteRegistration)()
        status = view.GetNodeAndRegistration(context, index, C.byref(node), C.byref(registration))
        if status != abi.OK:
            raise AbiMismatch(f"TFLite gave no node {index}")
        op = schema.builtin_name(registration.contents.builtin_code)
        if op == "CUSTOM":
            op = (registration.contents.custom_name or b"").decode(errors="replace")
        inputs, outputs = abi.ints(node.contents.inputs), abi.ints(node.contents.outputs)
        nodes.append(PlannedNode(index, op, inputs, outputs))
    return nodes


def _shapes(view: abi.TfLiteContext) -> Shapes:
    return {i: abi.ints(view.tensors[i].dims) for i in range(view.tensors_size)}


def _give_shape(context: int, view: abi.TfLiteContext, index: int, shape: tuple[int, ...]) -> None:
    """Set the shape of an output that TFLite took for dynamic."""
    tensor = view.tensors[index]
    if tensor.allocation_type != abi.DYNAMIC and abi.ints(tensor.dims) == shape:
        return
    if tensor.allocation_type == abi.DYNAMIC:
        # As TFLite's own kernels do once they know the size; its planner then allocates memory.
        tensor.allocation_type = abi.ARENA
        tensor.data = None
    if view.ResizeTensor(context, C.pointer(tensor), abi.new_int_array(shape)) != abi.OK:
        raise AbiMismatch(f"TFLite did not take shape {shape} for tensor {index}")


def _constants(view: abi.TfLiteContext) -> Constants:
    return {
        i: tensor_bytes(view.tensors[i], i)
        for i in range(view.tensors_size)
        if view.tensors[i].allocation_type == abi.READ_ONLY and view.tensors[i].data
    }
