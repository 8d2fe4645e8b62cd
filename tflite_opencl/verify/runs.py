# SPDX-License-Identifier: Apache-2.0
"""Compares each node on the device with TFLite's reference kernels. Prints and formats nothing.

Twice: on inputs that the device computed, which shows how errors accumulate, and on inputs that
the reference kernels computed, which isolates each node.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import Options, Verdict
from delegate.inspect import Graph, Node, StepRun, Tensor, is_equal_to_reference, with_tensors
from tflite_opencl.console import bars
from tflite_opencl.console.errors import CommandError
from tflite_opencl.interpreters.interpreter import delegated, failed, failures
from tflite_opencl.interpreters.interpreter import run as run_once
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import Array
from tflite_opencl.models.build import graph as graph_of
from tflite_opencl.oracle.bounds import float_bounds
from tflite_opencl.oracle.judge import cpu_kernels_beside, judged_graph, open_judge
from tflite_opencl.oracle.node_kernels import NoOracle
from tflite_opencl.oracle.values import OutputMismatch, compare, worst
from tflite_opencl.timing.profile import joined_nodes
from tflite_opencl.verify.records import (
    Check,
    Fault,
    InputSets,
    NothingRuns,
    Values,
    Verification,
)


def verified(
    model: str, graph: Graph, options: Options, runtime: Runtime, sets: InputSets, tolerance: int
) -> Verification:
    """Compare every node on the device with the reference kernels, on each set of inputs.

    `tolerance`: allowed difference of integers in quanta.

    Raises: CommandError: nothing runs on the device, no node has the requested alternative,
        or a run fails. DelegateError: no device.
    """
    verifier = _Verifier(model, graph, runtime, sets, tolerance)
    verifier.is_ieee = options.is_ieee
    device, verdicts = verifier.compare_nodes(options)
    whole = verifier.compare_outputs(dataclasses.replace(options, profiling=False))
    return Verification(
        device=device,
        reference=verifier.name,
        reasons=verifier.reasons,
        count=sets.count,
        checks=[*verifier.checks.values()],
        verdicts=verdicts,
        constants=verifier.constants,
        # The first node wrong in isolation; else the first wrong on the device's inputs.
        fault=verifier.faults.get(True) or verifier.faults.get(False),
        whole=[each for each in whole if each is not None and each.most > tolerance],
        whole_is_judged=not verifier.has_floats,
    )


class _Verifier:
    """A model on TFLite's own kernels and on the device.

    Attributes:
        name, reasons: of the reference, for people. checks: by tensor index, for the worst input.
        faults: the first by whether it is wrong in isolation. constants: as in Verification.
        is_ieee: floats have the reference's bits, except of some functions.
    """

    def __init__(
        self, model: str, graph: Graph, runtime: Runtime, sets: InputSets, tolerance: int
    ) -> None:
        self._model, self._graph, self._runtime, self._sets = model, graph, runtime, sets
        self._tolerance, self.is_ieee = tolerance, False
        self.checks: dict[int, Check] = {}
        self.faults: dict[bool, Fault] = {}
        self.constants: tuple[int, ...] = ()
        computed = [tensor for node in graph.nodes for tensor in node.outputs]
        self._tensors = [*graph.inputs, *computed]
        floats = ("float16", "float32")
        self.has_floats = any(t.dtype in floats and t.data is None for t in computed)
        self.name = self.reasons = ""
        self._made: Any = None  # the reference's interpreter
        with self._judging():
            # The kernels that the CPU runs besides the device, so that results are comparable.
            self._cpu = cpu_kernels_beside(runtime, graph, model)

    @contextlib.contextmanager
    def _judging(self) -> Iterator[None]:
        """Turn the error of a model without a reference into a CommandError."""
        try:
            yield
        except NoOracle as error:
            raise failed(self._model, error) from error

    @contextlib.contextmanager
    def _judge(self, verdicts: Sequence[Verdict]) -> Iterator[None]:
        """Open the reference for the delegated nodes, with initial variables."""
        left = [verdict.node for verdict in verdicts if not verdict.is_taken]
        given = self._runtime, self._graph, self._model
        with self._judging():
            self._made = open_judge(*given, left=left, keeps_all=True)
        with contextlib.closing(self._made):
            yield
            self.name, self.reasons = self._made.short_name, self._made.reasons

    def _values(self, inputs: Sequence[Array]) -> Values:
        """Run once; return every tensor that numpy can hold, with variables as before the run."""
        found = self._now(tensor for tensor in self._graph.tensors if tensor.is_variable)
        with failures():
            run_once(self._made, inputs)
        return self._now(self._tensors) | found

    def _now(self, tensors: Iterable[Tensor]) -> dict[int, Array]:
        """Return the tensors that TFLite exposes: variables and lists have no data."""
        found: dict[int, Array] = self._made.tensors([tensor.index for tensor in tensors])
        return found

    def compare_nodes(self, options: Options) -> tuple[str, Sequence[Verdict]]:
        """Compare node by node; return the device, and its verdicts on the nodes."""
        opened = delegated(self._model, self._graph, options, self._runtime, self._cpu)
        with opened as (interpreter, delegate), bars.parts() as tell:
            verdicts, count = tuple(delegate.verdicts), self._sets.count
            if not any(verdict.is_taken for verdict in verdicts):
                reasons = dict.fromkeys(f"{each.op}: {each.reason}" for each in verdicts)
                why = "; ".join([*reasons][:3]) or "the model has none"
                words = f"no node runs on OpenCL ({why})"
                raise NothingRuns(words, verdicts)
            known = sorted({each for node in delegate.alternatives for each in node.names})
            if (name := options.alternative) is not None and name not in known:
                words = f"no node has an alternative '{name}'; there are {', '.join(known)}"
                raise CommandError(words)
            with self._judge(verdicts):
                for number in range(count):
                    tell(number / count, f"comparing nodes, input {number + 1} of {count}")
                    inputs = self._sets.of(number)
                    values = self._values(inputs)

                    def run(inputs: Sequence[Array] = inputs) -> None:
                        with failures():
                            run_once(interpreter, inputs)

                    after = delegate.step_through(run)
                    self._compare(number, verdicts, values, delegate.isolated(values), after)
            return delegate.device_name, verdicts

    def compare_outputs(self, options: Options) -> list[OutputMismatch | None]:
        """Return the differences of the model's outputs, run as in label_image."""
        found = []
        opened = delegated(self._model, self._graph, options, self._runtime, self._cpu)
        with (
            opened as (interpreter, delegate),
            self._judge(tuple(delegate.verdicts)),
            bars.waiting("running the whole model"),
        ):
            for inputs in map(self._sets.of, range(self._sets.count)):
                values = self._values(inputs)
                with failures():
                    run_once(interpreter, inputs)
                for number, detail in enumerate(interpreter.get_output_details()):
                    index = int(detail["index"])
                    if index in values:
                        got = interpreter.get_tensor(index)
                        found.append(_difference(got, values[index], None, 0, f"output {number}"))
        return found

    def _compare(
        self,
        number: int,
        verdicts: Sequence[Verdict],
        values: Values,
        steps: Sequence[StepRun],
        after: Sequence[StepRun],
    ) -> None:
        """Compare one input's run; `steps`: isolated; both lists are of the same program."""
        # After a resize, a node's shapes differ from the file's.
        shaped = {
            tensor: dataclasses.replace(tensor, shape=values[tensor.index].shape)
            for tensor in self._graph.tensors
            if tensor.index in values
        }
        graph = with_tensors(self._graph, shaped)
        homes = joined_nodes(graph, verdicts, {step.node for step in steps})
        own = {index: array for step in after for index, array in step.values.items()}
        self.constants = tuple(step.node for step in steps if not step.values)
        where = f"input {number}"
        needed = {*graph.outputs, *(tensor for node in graph.nodes for tensor in node.inputs)}
        for step in steps:
            fused = tuple(index for index, home in sorted(homes.items()) if home == step.node)
            nodes = [graph.nodes[index] for index in (*fused, step.node)]
            given = {i: values[i] for i in step.inputs if i in values}
            for tensor in nodes[-1].outputs:
                index = tensor.index
                # TFLite allocates nothing for values that a loop passes through unused.
                if index not in step.values or (index not in values and tensor not in needed):
                    continue
                if index not in values:
                    raise CommandError(f"TFLite does not tell the values of tensor {index}")
                got, after_got, expected = step.values[index], own[index], values[index]
                bound = self._bound(nodes, tensor, values)
                one = _difference(got, expected, bound, self._tolerance, where)
                other = _difference(after_got, expected, bound, self._tolerance, where)
                check = Check(step, tensor, fused, one, other, number)
                if (known := self.checks.get(index)) is not None:
                    alone = worst(filter(None, (known.alone, one)))
                    later = worst(filter(None, (known.after_others, other)))
                    which = number if alone is one else known.number
                    check = dataclasses.replace(
                        check, alone=alone, after_others=later, number=which
                    )
                self.checks[index] = check
                if one is not None and one.is_beyond:
                    self._keep(Fault(check, True, number, got, expected, given))
                elif other is not None and other.is_beyond and not self.has_floats:
                    given = {i: own.get(i, given[i]) for i in given}
                    self._keep(Fault(check, False, number, after_got, expected, given))

    def _keep(self, fault: Fault) -> None:
        """Keep only the first fault of its kind: the values of others are not needed."""
        known, place = self.faults.get(fault.is_alone), [*self.checks].index
        if known is None or place(fault.check.tensor.index) < place(known.check.tensor.index):
            self.faults[fault.is_alone] = fault

    def _bound(
        self, nodes: Sequence[Node], result: Tensor, values: Values
    ) -> NDArray[np.float64] | None:
        """Return the error bound of floats: another rounding order, in these nodes only."""
        own = {tensor for node in nodes for tensor in node.outputs}
        read = dict.fromkeys(t for node in nodes for t in node.inputs if t and t.data is None)
        given = [t for t in read if t not in own]
        run, part = partial(judged_graph, self._runtime), graph_of(nodes, given, [result])
        inputs, outputs = [values[tensor.index] for tensor in given], [values[result.index]]
        is_exact = self.is_ieee and all(map(is_equal_to_reference, nodes))
        return None if is_exact else float_bounds(run, part, inputs, outputs)[0]


def _difference(
    got: Array, expected: Array, bound: NDArray[np.float64] | None, tolerance: int, where: str
) -> OutputMismatch | None:
    """Compare as `compare` does. Raises: CommandError: the tensors do not match."""
    try:
        return compare(got, expected, bound, tolerance, where)
    except ValueError as error:
        raise CommandError(str(error)) from error
