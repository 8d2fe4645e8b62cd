# SPDX-License-Identifier: Apache-2.0
"""Each node on the device beside TFLite's reference kernels. It prints and formats nothing.

Twice: on what the device computed before, which shows how errors grow, and on what the reference
kernels computed before, which isolates each node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from delegate import OpenCLDelegate, Options, Verdict
from delegate.inspect import Graph, Node, StepRun
from tflite_opencl.common import bars
from tflite_opencl.common.bounds import Bounds, float_bounds
from tflite_opencl.common.build import graph as graph_of
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.interpreter import delegated, failed, failures
from tflite_opencl.common.interpreter import run as run_once
from tflite_opencl.common.oracle import NoOracle, reference, run_graph
from tflite_opencl.common.profile import joined_nodes
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.verify.records import (
    Apart,
    Array,
    Check,
    Fault,
    Values,
    Verification,
    apart,
    worse,
)


@dataclass(frozen=True, slots=True)
class InputSets:
    """What the model is given, one set after the other: many would not fit into memory at once."""

    count: int
    of: Callable[[int], Sequence[Array]]  # the number of a set, from 0 -> an array an input


class _Reference:
    """The model on TFLite's own kernels, every tensor of which can be read."""

    def __init__(self, model: str, graph: Graph, runtime: Runtime) -> None:
        self._tensors = [*graph.inputs, *(t for node in graph.nodes for t in node.outputs)]
        try:
            self.kernels, self._made = reference(
                runtime, graph, model, lambda made: made, keeps_all=True
            )
        except NoOracle as error:
            raise failed(model, error) from error

    def values(self, inputs: Sequence[Array]) -> Values:
        """Run once; return every tensor that numpy can hold."""
        with failures():
            run_once(self._made, inputs)
        found = {}
        for tensor in self._tensors:
            try:
                found[tensor.index] = np.array(self._made.get_tensor(tensor.index))
            except ValueError:  # it has no memory: a state, or a list
                continue
        return found


def verified(
    model: str,
    graph: Graph,
    options: Options,
    runtime: Runtime,
    sets: InputSets,
    tolerance: int,
) -> Verification:
    """Compare every node on the device with the reference kernels, on each set of inputs.

    `tolerance`: quanta that an integer may be off.

    Raises:
        CommandError: nothing runs on the device, no node has the alternative that was asked for, or
            a run fails. DelegateError: no device.
    """
    reference = _Reference(model, graph, runtime)
    with delegated(model, graph, options, runtime, reference.kernels) as (interpreter, delegate):
        if not any(verdict.is_taken for verdict in delegate.verdicts):
            reasons = dict.fromkeys(f"{each.op}: {each.reason}" for each in delegate.verdicts)
            raise CommandError(f"no node runs on OpenCL ({'; '.join([*reasons][:3])})")
        _require_alternative(options.alternative, delegate)
        verdicts = tuple(delegate.verdicts)
        judge = _Judge(graph, verdicts, runtime, reference.kernels, tolerance)
        with bars.parts() as tell:
            for number in range(sets.count):
                tell(number / sets.count, f"comparing nodes, input {number + 1} of {sets.count}")
                inputs = sets.of(number)
                values = reference.values(inputs)

                def run(inputs: Sequence[Array] = inputs) -> None:
                    with failures():
                        run_once(interpreter, inputs)

                after = delegate.step_through(run)
                judge.add(number, values, delegate.isolated(values), after)
        device = delegate.device_name
    options = dataclasses.replace(options, profiling=False)
    whole = _whole(model, graph, options, runtime, reference, sets)
    return Verification(
        device=device,
        reference=runtime.kernels(reference.kernels),
        count=sets.count,
        checks=[*judge.checks.values()],
        verdicts=verdicts,
        constants=judge.constants,
        fault=judge.fault,
        whole=[each for each in whole if each is not None and each.most > tolerance],
        whole_is_judged=not judge.has_floats,
    )


def _require_alternative(name: str | None, delegate: OpenCLDelegate) -> None:
    known = sorted({each for node in delegate.alternatives for each in node.names})
    if name is not None and name not in known:
        raise CommandError(f"no node has an alternative '{name}'; there are {', '.join(known)}")


def _whole(
    model: str,
    graph: Graph,
    options: Options,
    runtime: Runtime,
    reference: _Reference,
    sets: InputSets,
) -> list[Apart | None]:
    """Return how the model's outputs differ where it runs as label_image runs it."""
    found = []
    waiting = bars.waiting("running the whole model")
    with delegated(model, graph, options, runtime, reference.kernels) as (interpreter, _), waiting:
        for inputs in map(sets.of, range(sets.count)):
            values = reference.values(inputs)
            with failures():
                run_once(interpreter, inputs)
            for number, detail in enumerate(interpreter.get_output_details()):
                index = int(detail["index"])
                if index in values:
                    got = interpreter.get_tensor(index)
                    found.append(apart(got, values[index], None, 0, f"output {number}"))
    return found


@dataclass(eq=False)
class _Judge:
    """Keeps of each tensor its worst input, and the first fault's values."""

    graph: Graph
    verdicts: Sequence[Verdict]
    runtime: Runtime
    kernels: str  # of the reference
    tolerance: int
    checks: dict[int, Check] = field(default_factory=dict)  # by tensor index
    constants: tuple[int, ...] = ()
    _faults: dict[bool, Fault] = field(default_factory=dict)  # by whether they are wrong alone

    @property
    def has_floats(self) -> bool:
        """Whether a node computes floats."""
        outputs = (tensor for node in self.graph.nodes for tensor in node.outputs)
        return any(tensor.dtype == "float32" and tensor.data is None for tensor in outputs)

    @property
    def fault(self) -> Fault | None:
        """The first node that is wrong alone; else the first that is wrong after the others."""
        return self._faults.get(True) or self._faults.get(False)

    def add(
        self, number: int, values: Values, alone: Sequence[StepRun], after: Sequence[StepRun]
    ) -> None:
        """Compare one input's run; both lists are of the same program."""
        joined: dict[int, tuple[int, ...]] = {}
        homes = joined_nodes(self.graph, self.verdicts, {step.node for step in alone})
        for index, home in sorted(homes.items()):
            joined[home] = (*joined.get(home, ()), index)
        own = {index: array for step in after for index, array in step.values.items()}
        self.constants = tuple(step.node for step in alone if not step.values)
        for step in alone:
            node = self.graph.nodes[step.node]
            nodes = [self.graph.nodes[index] for index in (*joined.get(step.node, ()), step.node)]
            for tensor in (t for t in node.outputs if t.index in step.values):
                if tensor.index not in values:
                    raise CommandError(f"TFLite does not tell the values of tensor {tensor.index}")
                expected = values[tensor.index]
                bounds = self._bounds(nodes, step, values)
                bound = None if bounds is None else bounds[node.outputs.index(tensor)]
                where, got = f"input {number}", step.values[tensor.index]
                one = apart(got, expected, bound, self.tolerance, where)
                other = apart(own[tensor.index], expected, bound, self.tolerance, where)
                known = self.checks.get(tensor.index)
                self.checks[tensor.index] = check = Check(
                    step,
                    tensor,
                    joined.get(step.node, ()),
                    worse(one, None if known is None else known.alone),
                    worse(other, None if known is None else known.after_others),
                )
                given = {i: values[i] for i in step.inputs if i in values}
                if one is not None and one.is_beyond:
                    self._keep(Fault(check, True, number, got, expected, given))
                elif other is not None and other.is_beyond and not self.has_floats:
                    wrong = own[tensor.index]
                    given = {i: own.get(i, given[i]) for i in given}
                    self._keep(Fault(check, False, number, wrong, expected, given))

    def _keep(self, fault: Fault) -> None:
        """Keep it if it is the first of its kind: the others' values are not needed."""
        known, order = self._faults.get(fault.is_alone), [*self.checks]
        if known is None or order.index(fault.check.tensor.index) < order.index(
            known.check.tensor.index
        ):
            self._faults[fault.is_alone] = fault

    def _bounds(self, nodes: Sequence[Node], step: StepRun, values: Values) -> Bounds | None:
        """Return how far floats may be off: rounding in another order, of these nodes alone."""
        last = nodes[-1]
        if all(tensor.dtype != "float32" for tensor in last.outputs):
            return None
        now = {
            t: dataclasses.replace(t, shape=values[t.index].shape) if t.index in values else t
            for node in nodes
            for t in (*node.inputs, *node.outputs)
            if t is not None
        }
        own = {t for node in nodes for t in node.outputs}
        given = [t for t in now if t not in own and t.data is None]
        part = graph_of(
            [
                dataclasses.replace(
                    node,
                    inputs=tuple(None if t is None else now[t] for t in node.inputs),
                    outputs=tuple(now[t] for t in node.outputs),
                )
                for node in nodes
            ],
            [now[t] for t in given],
            [now[t] for t in last.outputs],
        )
        inputs = [values[t.index] for t in given]
        outputs = [values[t.index] for t in last.outputs]
        run = partial(run_graph, self.runtime, self.kernels)
        return float_bounds(run, part, inputs, outputs)
