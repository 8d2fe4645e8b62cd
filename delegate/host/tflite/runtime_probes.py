# SPDX-License-Identifier: Apache-2.0
"""Probes a TFLite's kernels for their arithmetic rules.

Kernels run through TFLite's C interface, or the Interpreter of a Python package. The C interface
has the optimised kernels; reference kernels are available only if the library also exports TFLite's
C++ functions, as Debian's does.
"""

from __future__ import annotations

import ctypes as C
import importlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from delegate.format import schema
from delegate.host.tflite import abi
from delegate.host.tflite.questions import ANY, BUILTIN, REFERENCE, Question, of_rows, questions
from delegate.target import Rules

_log = logging.getLogger("delegate")


class CannotProbe(Exception):
    """The kernel to probe is not accessible."""


# Returns the output for a question; None: TFLite rejects the model.
Kernels = Callable[[Question], bytes | None]


def probed_rules(rules: Rules, kernels: Kernels) -> Rules:
    """Return the rules, corrected by probing these kernels.

    A rule that cannot be probed, or whose probes disagree, is unchanged; the latter is logged.
    """
    found: dict[str, Any] = {}
    by_rule: dict[str, set[bool | str | None]] = {}
    for question in questions():
        first = by_rule.get(question.after, {False})
        unasked = None if first == {None} else True
        answer = _is_older(question, kernels) if first == {False} else unasked
        by_rule.setdefault(question.rule, set()).add(answer)
    for rule, answers in by_rule.items():
        told = answers - {None}
        if told in ({True}, {False}):
            # Every rule has one alternative to the newest.
            found[rule] = getattr(Rules(), rule) is not (True in told)
        elif told:
            _log.warning(
                "TFLite %s answers like neither of the two that are known: %s is taken for %s",
                rules.version,
                rule,
                getattr(rules, rule),
            )
    return replace(rules, **found)


def rounds_rows_twice(kernels: Kernels) -> bool | None:
    """Return the rule of that name on this processor; None: unknown."""
    answer = _is_older(of_rows(), kernels)
    return answer if isinstance(answer, bool) else None


def _is_older(question: Question, kernels: Kernels) -> bool | str | None:
    """Whether the output is the older one; "neither", or None if it cannot be probed."""
    try:
        answer = kernels(question)
    except CannotProbe:
        return None
    if answer in question.older:
        return True
    return False if answer == question.newer else "neither"


def package_kernels(package: str) -> Kernels | None:
    """Return the kernels of a Python package with TFLite's Interpreter; None: it has none."""
    if _interpreter_module(package) is None:
        return None

    def answer(question: Question) -> bytes | None:
        is_built_in = question.kernel == BUILTIN
        found = package_outputs(package, question.model, question.inputs, is_built_in)
        return found[0] if found else None

    return answer


def package_outputs(
    package: str, model: bytes, inputs: Sequence[bytes], is_built_in: bool = False
) -> list[bytes] | None:
    """Return a model's outputs on a package's reference kernels; None: it fails to run.

    `is_built_in`: on the optimised kernels.
    """
    if _interpreter_module(package) is None:
        return None
    try:
        made = open_interpreter(package, model, is_built_in)
        for detail, content in zip(made.get_input_details(), inputs, strict=True):
            values = np.frombuffer(content, detail["dtype"]).reshape(detail["shape"])
            made.set_tensor(detail["index"], values)
        made.invoke()
        details = made.get_output_details()
        return [bytes(made.get_tensor(detail["index"]).tobytes()) for detail in details]
    except (RuntimeError, ValueError):
        return None


def open_interpreter(package: str, model: bytes, is_built_in: bool = False) -> Any:
    """Return an allocated Interpreter of a package on its reference kernels.

    `is_built_in`: on the optimised kernels.

    Raises:
        ImportError: no such package. RuntimeError, ValueError: TFLite rejects the model.
    """
    module = importlib.import_module(f"{package}.interpreter")
    types = module.OpResolverType
    kind = types.BUILTIN_WITHOUT_DEFAULT_DELEGATES if is_built_in else types.BUILTIN_REF
    made = module.Interpreter(model_content=model, experimental_op_resolver_type=kind)
    made.allocate_tensors()
    return made


def _interpreter_module(package: str) -> Any:
    try:
        return importlib.import_module(f"{package}.interpreter")
    except ImportError:
        return None


# Return type -> functions.
_FUNCTIONS = {
    C.c_void_p: "ModelCreate InterpreterOptionsCreate InterpreterCreate InterpreterGetInputTensor"
    " InterpreterGetOutputTensor",
    C.c_size_t: "TensorByteSize",
    C.c_int: "ModelDelete InterpreterAllocateTensors InterpreterDelete InterpreterInvoke"
    " InterpreterOptionsDelete InterpreterOptionsSetErrorReporter InterpreterOptionsSetNumThreads"
    " InterpreterOptionsSetOpResolver TensorCopyFromBuffer TensorCopyToBuffer",
}
_Find = C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_int, C.c_int)
_FindCustom = C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_char_p, C.c_int)
_Report = C.CFUNCTYPE(None, C.c_void_p, C.c_char_p, C.c_void_p)


def library_kernels(file: str) -> Kernels | None:
    """Return the kernels of a loaded library or the program; None: it exports no C interface.

    Source: tflite/c/c_api.h, c_api_experimental.h
    """
    try:
        library = C.CDLL(file, os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        library = C.CDLL(None)  # an executable cannot be opened as a library
    try:
        return _CKernels(library)
    except AttributeError:
        return None


class _CKernels:
    """Runs models through the C interface of one library."""

    def __init__(self, library: C.CDLL) -> None:
        """Raises AttributeError if a function is missing."""
        self._library = library
        for returned, names in _FUNCTIONS.items():
            for name in names.split():
                getattr(library, f"TfLite{name}").restype = returned
        # A rejected model is a valid answer, not an error to report.
        self._silence = _Report(lambda *_: None)

    def __call__(self, question: Question) -> bytes | None:
        """Run a question's model.

        Raises:
            CannotProbe: the reference kernel is needed, but not exported.
        """
        registration = self._registration(question)
        address = None if registration is None else C.addressof(registration)
        find = _Find(lambda *_: address)
        library = self._library
        content = C.create_string_buffer(question.model, len(question.model))
        model = C.c_void_p(library.TfLiteModelCreate(content, C.c_size_t(len(question.model))))
        options = C.c_void_p(library.TfLiteInterpreterOptionsCreate())
        library.TfLiteInterpreterOptionsSetErrorReporter(options, self._silence, None)
        library.TfLiteInterpreterOptionsSetNumThreads(options, 1)
        if address is not None:
            library.TfLiteInterpreterOptionsSetOpResolver(options, find, _no_custom, None)
        interpreter = C.c_void_p(library.TfLiteInterpreterCreate(model, options))
        try:
            return self._run(interpreter, question.inputs) if interpreter else None
        finally:
            library.TfLiteInterpreterDelete(interpreter)
            library.TfLiteInterpreterOptionsDelete(options)
            library.TfLiteModelDelete(model)

    def _run(self, interpreter: C.c_void_p, inputs: Iterable[bytes]) -> bytes | None:
        library = self._library
        if library.TfLiteInterpreterAllocateTensors(interpreter) != abi.OK:
            return None
        for number, content in enumerate(inputs):
            tensor = C.c_void_p(library.TfLiteInterpreterGetInputTensor(interpreter, number))
            size = C.c_size_t(len(content))
            if library.TfLiteTensorCopyFromBuffer(tensor, content, size) != abi.OK:
                return None
        if library.TfLiteInterpreterInvoke(interpreter) != abi.OK:
            return None
        tensor = C.c_void_p(library.TfLiteInterpreterGetOutputTensor(interpreter, 0))
        result = C.create_string_buffer(library.TfLiteTensorByteSize(tensor))
        if library.TfLiteTensorCopyToBuffer(tensor, result, C.c_size_t(len(result))) != abi.OK:
            return None
        return result.raw

    def _registration(self, question: Question) -> abi.TfLiteRegistration | None:
        """Return the kernel to probe; None: any kernel, chosen by the library."""
        endings = {REFERENCE: ("_REF",), BUILTIN: ("",), ANY: ("_REF", "")}[question.kernel]
        for ending in endings:
            name = f"Register_{question.op}{ending}"
            try:
                # Mangled name of tflite::ops::builtin::NAME()
                register = getattr(self._library, f"_ZN6tflite3ops7builtin{len(name)}{name}Ev")
            except AttributeError:
                continue
            register.restype = C.c_void_p
            # Like TFLite's resolvers, copy it and set the op, which selects the options parser.
            # The fields after the version differ between TFLite versions, and may be zero in all.
            copy = abi.TfLiteRegistration()
            C.memmove(
                C.byref(copy), register(), abi.TfLiteRegistration.registration_external.offset
            )
            copy.builtin_code = schema.enum_values("BuiltinOperator")[question.op]
            return copy
        if question.kernel == REFERENCE:
            raise CannotProbe(f"the reference kernel of {question.op} is not exported")
        return None


_no_custom = _FindCustom(lambda *_: None)
