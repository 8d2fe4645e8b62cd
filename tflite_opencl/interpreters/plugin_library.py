# SPDX-License-Identifier: Apache-2.0
"""Compiles the delegate's shared library from delegate/host's plugin.c and accelerator.c."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from tflite_opencl.console.errors import CommandError, write

NAME = "libtflite_opencl_delegate.so"
# The same library under the name that LiteRT's CompiledModel loads.
ACCELERATOR = "libLiteRtGpuAccelerator.so"
_SOURCES = ("plugin.c", "accelerator.c")
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,nodelete")
_LIBRARIES = ("-ldl", "-lpthread")


def compile_library(path: Path, libpython: str) -> None:
    """Compile the library for a Python, and replace the file atomically.

    Raises: CommandError: no compiler succeeds, or the file cannot be written. OSError: nor can
        the temporary folder.
    """
    wanted = os.environ.get("CC")
    compiler = next(filter(None, map(shutil.which, [wanted] if wanted else _COMPILERS)), None)
    if compiler is None:
        raise CommandError("there is no C compiler: install gcc and libc6-dev, or set CC")
    with ExitStack() as stack:
        made = Path(stack.enter_context(TemporaryDirectory()), NAME)
        sources = [stack.enter_context(as_file(files("delegate.host") / name)) for name in _SOURCES]
        command = [
            *(compiler, *_FLAGS),
            f"-DPYTHON={_c_text(sys.executable)}",
            f"-DLIBPYTHON={_c_text(libpython)}",
            *("-o", str(made), *map(str, sources), *_LIBRARIES),
        ]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            # The linker's error precedes the line of the compiler driver.
            told = (line for line in lines if "error:" in line and "ld returned" not in line)
            raise CommandError(f"{compiler} fails: {next(told, lines[0])}")
        write(str(path), made.read_bytes())


def libpython_file() -> str:
    """Return the shared library of this Python: its path, or its soname."""
    name = sysconfig.get_config_var("INSTSONAME") or ""
    if ".so" not in name:
        raise CommandError(
            f"{sys.executable} has no shared library libpython: take the python3 of a "
            "distribution, or one built with --enable-shared"
        )
    path = Path(sysconfig.get_config_var("LIBDIR") or "", name)
    return str(path) if path.exists() else str(name)


def require_loadable(libpython: str) -> None:
    """Raise CommandError unless libpython can be loaded."""
    # In a child, because Python may be linked statically here, as in Debian.
    check = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", check, libpython], capture_output=True)
    if done.returncode != 0:
        version = ".".join(map(str, sys.version_info[:2]))
        raise CommandError(f"{libpython} cannot be loaded: install libpython{version}")


def _c_text(text: str) -> str:
    """Return a C string literal that is independent of the source encoding."""
    parts = (
        char
        if char.isascii() and (char.isalnum() or char in "/._-+ ")
        else "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in text
    )
    return f'"{"".join(parts)}"'
