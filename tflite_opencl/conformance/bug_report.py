# SPDX-License-Identifier: Apache-2.0
"""A reduced case as files for a bug report: model, inputs, and a script that shows the fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from delegate.inspect import write_model
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.conformance.outcome import Result
from tflite_opencl.conformance.runner import Workers
from tflite_opencl.conformance.shrink import Candidate


def write(
    found: Candidate, result: Result, workers: Workers, runtime: Runtime, folder: Path
) -> list[str]:
    """Write the model, its inputs and a script that prints both answers; return the files' names.

    Raises: OSError: the folder cannot be written.
    """
    names = ["reduced.tflite", "reduced.py"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_bytes(write_model(found.graph))
    for number, values in enumerate(found.inputs):
        names.append(f"reduced_{number}.npy")
        np.save(folder / names[-1], values)
    (folder / names[1]).write_text(_script(result, workers, runtime, len(found.inputs)))
    return names


def _script(result: Result, workers: Workers, runtime: Runtime, inputs: int) -> str:
    module = {"ai-edge-litert": "ai_edge_litert", "tflite-runtime": "tflite_runtime"}[runtime.name]
    spec, options = workers.delegate, workers.options
    model = "'reduced.tflite'"
    if spec == "opencl":
        named = f", alternative={options['alternative']!r}" if "alternative" in options else ""
        made = f"__import__('delegate').OpenCLDelegate({model}, device={workers.device!r}{named})"
    elif spec.startswith("python:"):
        where, _, name = spec.removeprefix("python:").partition(":")
        made = (
            f"__import__({where!r}, fromlist=['_']).{name}(open({model}, 'rb').read(), {options})"
        )
    else:
        made = f"tflite.load_delegate({spec!r}, {options})"
    ways = "dict(experimental_op_resolver_type=tflite.OpResolverType.BUILTIN_REF)"
    other = "{}" if spec == "xnnpack" else (
        f"dict(experimental_delegates=[{made}], "
        "experimental_op_resolver_type=tflite.OpResolverType.BUILTIN_REF)"
    )  # fmt: skip
    return (
        f"# {result.result}: {' '.join(result.detail.split())}\n"
        f"import numpy, os, {module}.interpreter as tflite\n"
        "os.chdir(os.path.dirname(os.path.abspath(__file__)))\n"
        f"for words in ({ways}, {other}):\n"
        f"    made = tflite.Interpreter({model}, **words); made.allocate_tensors()\n"
        f"    [made.set_tensor(d['index'], numpy.load(f'reduced_{{i}}.npy')) "
        f"for i, d in enumerate(made.get_input_details()[:{inputs}])]; made.invoke()\n"
        "    print([made.get_tensor(d['index']).tolist() for d in made.get_output_details()])\n"
    )
