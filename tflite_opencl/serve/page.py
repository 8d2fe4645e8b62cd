# SPDX-License-Identifier: Apache-2.0
"""The service's root page, as text for curl and as HTML for browsers.

File names and request headers are untrusted: HTML escapes them, and commands quote them.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from string import Template
from urllib.parse import quote

from tflite_opencl import __version__
from tflite_opencl.cli.messages import printable
from tflite_opencl.serve.models import Served
from tflite_opencl.serve.tensors import Named

TITLE = "tflite-opencl serve"
ABOUT = (
    f"tflite-opencl {__version__} runs TFLite models on OpenCL and answers over HTTP, by the Open "
    "Inference Protocol (KServe's v2) and with pictures."
)
ADDRESSES = (
    ("GET", "/", "this page"),
    ("GET", "/v2", "name, version and extensions of this service"),
    ("GET", "/v2/health/live", "200 while it lives"),
    ("GET", "/v2/health/ready", "200 when all models are ready, else 503; each model's device"),
    ("GET", "/v2/models/{model}", "names, types and shapes; versions/1 may follow the model"),
    ("GET", "/v2/models/{model}/ready", "the same of one model as /v2/health/ready"),
    ("POST", "/v2/models/{model}/infer", "the outputs, of tensors as JSON or as bytes"),
    ("POST", "/classify", "what a picture shows; ?model=NAME&most=5"),
    ("GET", "/metrics", "counts and times in Prometheus' format"),
)
# Content security policy: nothing but inline style.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_MOST_VALUES = 64  # of an example's input
_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")
_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --line: #8886; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem;
  padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .4rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; }
p { margin: .3rem 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border: 1px solid var(--line); padding: .2rem .6rem; text-align: left; }
pre { border: 1px solid var(--line); border-radius: .4rem; overflow-wrap: anywhere;
  padding: .6rem; white-space: pre-wrap; }
</style>
</head>
<body>
<h1>$title</h1>
<p>$about</p>
<h2>Models</h2>
$models
<h2>Addresses</h2>
$addresses
</body>
</html>
""")


@dataclass(frozen=True, slots=True)
class Front:
    """The page's content: `state` as of the server, "" if ready; `host`: as the client sees it."""

    state: str
    models: Sequence[Served]
    host: str

    def text(self) -> str:
        """Return the page as plain text."""
        lines = [ABOUT, "", "Models", *([f"  {self.state}"] if self.state else [])]
        for each in self.models:
            lines.append(f"  {each.name}: {_where(each)}")
            lines += [f"    {' '.join(row)}" for row in _tensors(each)]
            lines.append(f"    {self._example(each)}")
        wide = max(len(address) for _, address, _ in ADDRESSES)
        rows = [f"  {way:4} {address:{wide}}  {what}" for way, address, what in ADDRESSES]
        return "\n".join([*lines, "", "Addresses", *rows, ""])

    def html(self) -> str:
        """Return the page as self-contained HTML."""
        models = [f"<p>{escape(self.state)}</p>"] if self.state else []
        for each in self.models:
            models += [
                f"<h3>{escape(each.name)}</h3>",
                f"<p>{escape(_where(each))}</p>",
                _table(_tensors(each)),
                f"<pre>{escape(self._example(each))}</pre>",
            ]
        return _PAGE.substitute(
            title=TITLE,
            about=escape(ABOUT),
            models="\n".join(models),
            addresses=_table(ADDRESSES),
        )

    def _example(self, model: Served) -> str:
        """Return a command that works unchanged, except for the picture's file."""
        if model.pictures is not None:
            which = f"?model={quote(model.name, safe='')}" if len(self.models) > 1 else ""
            return f"curl --data-binary @picture.jpg {self._url(f'/classify{which}')}"
        path = f"/v2/models/{quote(model.name, safe='')}"
        shapes = [(1, *each.row) if model.signature.takes_several else each.shape
                  for each in model.signature.inputs]  # fmt: skip
        if sum(map(math.prod, shapes)) > _MOST_VALUES:
            return f"curl {self._url(path)}"
        zeros: dict[str, object] = {"b": False, "f": 0.0}
        inputs = [
            {
                "name": each.name, "datatype": each.datatype, "shape": [*shape],
                "data": [zeros.get(each.dtype.kind, 0)] * math.prod(shape),
            }
            for each, shape in zip(model.signature.inputs, shapes, strict=True)
        ]  # fmt: skip
        asked = shlex.quote(json.dumps({"inputs": inputs}))
        return f"curl -d {asked} {self._url(f'{path}/infer')}"

    def _url(self, path: str) -> str:
        return shlex.quote(f"http://{self.host}{path}")


def host_of(told: str, own: Sequence[object]) -> str:
    """Return HOST:PORT: the client's name for this machine, or `own`, a socket's address."""
    if _HOST.fullmatch(told):
        return told
    host, port = own[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def _where(model: Served) -> str:
    state = {key: printable(each) if isinstance(each, str) else each
             for key, each in model.state.items()}  # fmt: skip
    if not state["ready"]:
        return f"failed: {state['failure']}"
    sizes = ", ".join(map(str, state["batches"]))
    told = f"{state['nodes_on_opencl']} of {state['nodes']} nodes on OpenCL, {state['device']}"
    failure = f"; before: {state['failure']}" if "failure" in state else ""
    return f"{told}, batches of {sizes}{failure}"


def _tensors(model: Served) -> list[tuple[str, str, str, str]]:
    several, own = model.signature.takes_several, model.signature

    def row(kind: str, tensor: Named) -> tuple[str, str, str, str]:
        told = tensor.metadata(several)
        return kind, printable(tensor.name), tensor.datatype, str(told["shape"])

    return [*(row("input", t) for t in own.inputs), *(row("output", t) for t in own.outputs)]


def _table(rows: Sequence[Sequence[str]]) -> str:
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    return f'<div class="scroll"><table>\n{body}\n</table></div>'
