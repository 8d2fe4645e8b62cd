# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl graph MODEL`: where each node runs and why, as a table or HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from delegate.inspect import graph_table
from tflite_opencl.cli.flags import add_device_arguments, add_flag, add_models, model_of
from tflite_opencl.cli.outputs import shown
from tflite_opencl.graph.page import GraphFacts, graph_facts, html, require_jinja
from tflite_opencl.interpreters.interpreter import read_graph

HELP = "show where each node of a model runs and why, as a table or as a page of HTML"
EXAMPLES = (
    ("tflite-opencl graph model.tflite", "a table: each node, where it runs, and why"),
    ("tflite-opencl graph model.tflite --html graph.html", "a page with each node's time"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add_models(parser)
    add_flag(parser, "signature")
    add_device_arguments(parser)
    add_flag(parser, "html", more="; it has each node's time, and works offline")


def run(options: argparse.Namespace) -> str:
    """Return the table, or the name of the file written.

    Raises: CommandError: the model cannot be read, FILE cannot be written, or something named
        does not exist.
    """
    model = model_of(options)
    if options.html is not None:
        require_jinja()
    file = read_graph(model, options.signature)
    facts = graph_facts(model, file, options, with_times=options.html is not None)
    if options.html is None:
        table = graph_table(facts.graph, facts.verdicts)
        if not facts.device:  # without counts, as no device was queried
            table = "\n".join(table.splitlines()[: len(facts.verdicts) + 1])
        return f"{_head(facts)}\n{table}"
    said = f"{options.html}: {len(facts.graph.nodes)} nodes; {_head(facts)}"
    return shown(options, said, html=lambda: html(Path(model).name, facts))


def _head(facts: GraphFacts) -> str:
    count = len(facts.verdicts)
    if not facts.device:
        return f"where its nodes would run is not known: {facts.why_not}"
    return f"{facts.device}: {sum(v.is_taken for v in facts.verdicts)} of {count} nodes on OpenCL"
