# SPDX-License-Identifier: Apache-2.0
"""Errors of subcommands: one line on stderr, an exit code, and no file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from delegate.inspect import write_model
from tests.support.command import pooling_model
from tests.support.model import graph_of, t
from tests.support.nets import conv_pool
from tflite_opencl.command import main

# Subcommand -> its arguments, the exit code, and a part of the line.
ERRORS = {
    "benchmark": [
        ("", 64, "no model is named"),
        ("none.tflite", 255, "cannot read none.tflite"),
        (
            "model.tflite --external_delegate_options a:b",
            64,
            "does nothing without --external_delegate_path",
        ),
        ("model.tflite --profiling_output_csv_file none/n.csv", 255, "cannot write none/n"),
    ],
    "bringup": [
        ("-m none.tflite", 255, "cannot read none.tflite: No such file"),
        ("-m bad.tflite", 255, "this is not a .tflite model"),
        ("--device nosuch", 2, "nosuch"),
    ],
    "compare": [
        ("model.tflite --paths builtin --against no.json", 255, "cannot read no.json: No such"),
        ("model.tflite --paths builtin --labels no.txt", 255, "Labels file no.txt not found"),
        (
            "model.tflite --paths builtin --image no.png",
            255,
            "no input of the model takes a picture",
        ),
    ],
    "cut": [
        ("model.tflite --output parts --nodes 9", 64, "--nodes: 9: the model has nodes 0 to 1"),
        ("model.tflite --output parts --nodes 1-0", 64, "--nodes: 1-0: the model has nodes 0 to 1"),
        ("model.tflite --output parts --nodes=", 64, "--nodes: '' is not 12, 3-9 or all"),
        ("model.tflite --output parts --nodes 0,x", 64, "--nodes: 'x' is not 12, 3-9 or all"),
    ],
    "graph": [
        ("none.tflite", 255, "cannot read none.tflite: No such file or directory"),
        ("model.tflite --html none/a.html", 255, "cannot write none/a.html: "),
        ("model.tflite --device nosuch", 2, "no OpenCL device matches 'nosuch'"),
        ("model.tflite --device_profile none", 64, "no device profile 'none'"),
        ("model.tflite --exclude_ops conv2d", 64, "no op CONV2D; did you mean CONV_2D?"),
    ],
    "info": [
        ("--device 0 --write_profile none/x.toml", 255, "cannot write none/x.toml: there is no")
    ],
    "rewrite": [
        ("model.tflite o", 64, "no pass is asked for; --list shows all"),
        ("model.tflite --pass remove_dead", 64, "MODEL and OUT_FILE are missing"),
        ("-m model.tflite --pass remove_dead", 64, "MODEL and OUT_FILE are missing"),
        ("-m model.tflite model.tflite --pass remove_dead", 255, "an input of this command"),
        ("model.tflite ./model.tflite --pass remove_dead", 255, "an input of this command"),
        ("model.tflite o --pass remove_daed", 64, "did you mean remove_dead?"),
        ("model.tflite o --for tefl", 64, "invalid choice: 'tefl'"),
        ("none.tflite o --for teflon", 255, "cannot read none.tflite: No such file"),
        (". o --for teflon", 255, "cannot read .: Is a directory"),
        ("model.tflite . --for teflon", 255, "cannot write .: it is a folder"),
        ("model.tflite a/o --for teflon", 255, "cannot write a/o: there is no folder"),
        ("model.tflite o --for teflon --check 0", 64, "not a positive number"),
        ("bad.tflite o --for teflon", 255, "this is not a .tflite model"),
    ],
    "tune": [("none.tflite", 255, "cannot read none.tflite: No such file or directory")],
    "verify": [
        ("", 64, "no model is named: MODEL, or -m FILE"),
        ("none.tflite", 255, "cannot read none.tflite: No such file or directory"),
        ("bad.tflite", 255, "bad.tflite"),
        ("picture.tflite --image none.png", 255, "input file none.png not found"),
        ("model.tflite --device nosuch", 2, "nosuch"),
        ("model.tflite --exclude_ops CONV2D", 64, "op CONV2D; did you mean CONV_2D?"),
        ("model.tflite --heatmap none/a.png", 255, "cannot write none/a.png: there is no"),
        ("model.tflite --exclude_ops CONV_2D,AVERAGE_POOL_2D", 255, "no node runs on"),
        ("empty.tflite", 255, "no node runs on OpenCL (the model has none)"),
        ("model.tflite --alternative plian", 255, "no node has an alternative 'plian'"),
        ("model.tflite --random 0", 64, "'0' is not a positive number"),
        ("model.tflite --tolerance -1", 64, "'-1' is less than 0"),
    ],
}


@pytest.mark.device
@pytest.mark.parametrize(
    ("subcommand", "arguments", "code", "words"),
    [(name, *row) for name, rows in ERRORS.items() for row in rows],
)
def test_errors(
    subcommand: str,
    arguments: str,
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.tflite").write_bytes(b"no model")
    Path("model.tflite").write_bytes(write_model(conv_pool()))
    same = t((1, 4))
    Path("empty.tflite").write_bytes(write_model(graph_of([], [same], [same])))
    Path("picture.tflite").write_bytes(pooling_model(t((1, 4, 4, 3), "uint8", 0.5, 0)))
    files = sorted(path.name for path in Path().iterdir())
    assert main([subcommand, *arguments.split()]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("ERROR: ")
    assert words in output.err
    assert code == 64 or output.err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == files


@pytest.mark.parametrize(
    ("words", "path", "why"),
    [
        ("bringup --output", "model.tflite", "it is not a folder"),
        ("verify model.tflite --fault", "model.tflite", "it is not a folder"),
        ("verify model.tflite --cut", "model.tflite/in", "model.tflite is not a folder"),
        ("verify model.tflite --heatmap", ".", "it is a folder"),
        ("kernels model.tflite --dump", "model.tflite", "it is not a folder"),
        ("cut model.tflite --output", "model.tflite", "it is not a folder"),
        ("plan model.tflite --output", ".", "it is a folder"),
        ("plan model.tflite --output", "none/m.plan", "there is no folder"),
        ("plan model.tflite --output", "-", "it cannot be stdout"),
        ("library", "-", "it cannot be stdout"),
    ],
)
def test_outputs_are_checked_before_the_work(
    words: str, path: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Neither a device nor the model, which is none, is opened."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.tflite").write_bytes(b"no model")
    assert main([*words.split(), path]) == 255
    error = capsys.readouterr().err
    assert error.startswith(f"ERROR: cannot write {path}: ")
    assert why in error
    assert os.listdir(tmp_path) == ["model.tflite"]
