# SPDX-License-Identifier: Apache-2.0
"""Reads a graph whose resource variables are persistent tensors, set up by all graphs."""

from __future__ import annotations

from delegate.errors import ModelError
from delegate.format.reader import Subgraphs, read_model
from delegate.format.source import Source, named, open_model
from delegate.graph.ir import Graph, Resources
from delegate.graph.resources import resources_of, touches, with_resources


def read_stateful(source: Source, signature: str | None = None) -> Graph:
    """Return a graph of a model, as `read_model` does, with persistent variables.

    Raises: as `read_model`.
    """
    graph = read_model(source, signature)
    if not touches(graph):
        return graph
    with named(source):
        return with_resources(graph, resources_in(Subgraphs(open_model(source))))


def resources_in(subgraphs: Subgraphs) -> Resources:
    """Return the resource variables in the graphs of a model."""
    try:
        return resources_of([*subgraphs])
    except ModelError as error:  # TFLite may never run a damaged one
        return Resources(why_not=f"a graph of the file cannot be read: {error}")
