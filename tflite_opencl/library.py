# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl library`: builds the delegate as a shared library for programs in any language."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tflite_opencl.cli.flag_values import OutputFolder, OutputPath
from tflite_opencl.console.errors import make_folder, require_writable, write
from tflite_opencl.interpreters.plugin_library import (
    ACCELERATOR,
    NAME,
    compile_library,
    libpython_file,
    require_loadable,
)

HELP = "make libtflite_opencl_delegate.so, which C, C++ and Node.js programs load as a delegate"
EXAMPLES = (
    ("tflite-opencl library", "make ./libtflite_opencl_delegate.so"),
    ("benchmark_model --graph=model.tflite --external_delegate_path=./libtflite_opencl_delegate.so",
     "let TFLite's own tool load it"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    parser.add_argument(
        "file", nargs="?", type=_file_or_folder, default=NAME, metavar="FILE",
        help=f"where to write it; else ./{NAME}",
    )  # fmt: skip


def _file_or_folder(text: str) -> OutputPath:
    is_folder = text.endswith("/") or os.path.isdir(text)
    return OutputFolder(text) if is_folder else OutputPath(text)


def run(options: argparse.Namespace) -> str:
    """Compile the library for this Python and return usage instructions.

    Raises: CommandError: FILE cannot be written, there is no C compiler or no shared libpython, or
        the compiler fails.
    """
    path = Path(options.file)
    if isinstance(options.file, OutputFolder):
        make_folder(path)
        path /= NAME
    accelerator = path.with_name(ACCELERATOR)
    for each in (path, accelerator):
        require_writable(str(each))
    libpython = libpython_file()
    require_loadable(libpython)
    compile_library(path, libpython)
    if accelerator != path:
        write(str(accelerator), path.read_bytes())
    return (
        f"{path} is made for {sys.executable}\n"
        f"benchmark_model --graph=model.tflite --external_delegate_path={path.resolve()}\n"
        f'Environment.create(runtime_path="{path.resolve().parent}")  # for a CompiledModel'
    )
