# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl library`: the delegate for programs in other languages, and load_delegate.

`.ci/hosts` runs programs with their own TFLite.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from delegate import DeviceInfo, Options
from delegate.host.external import options_of
from delegate.inspect import write_model
from tests.support.compare import RUNTIME, inputs_for, interpreter, invoke
from tests.support.nets import assert_equal_outputs, conv_pool, net
from tests.support.tiers import slow
from tflite_opencl.command import main
from tflite_opencl.interpreters import plugin_library as library

HOSTS = Path(__file__).parents[1] / "hosts"
CHAIN = net([("AVERAGE_POOL_2D", [0], 1), ("ADD", [0, 1], 2)])
# Python uses none of these itself.
STRAY = {"PYTHONHOME": "/nowhere", "PYTHONSTARTUP": "/nowhere"}
Ask = Callable[..., list[str]]


@pytest.fixture(scope="session")
def ask(built: Path) -> Ask:
    """Return a function that creates a delegate in a C program, and returns its output."""
    program = built.parent / "asks"
    subprocess.run(["cc", "-o", program, HOSTS / "asks.c", "-ldl"], check=True)

    def asked(
        how: str, *options: str, file: Path = built, environment: dict[str, str] | None = None
    ) -> list[str]:
        done = subprocess.run(
            [program, file, how, *options],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **(environment or {})},
        )
        assert done.returncode == 0, done
        return (done.stdout + done.stderr).splitlines()

    return asked


# In Python


@slow
def test_load_delegate_equals_opencl_delegate(device: DeviceInfo, built: Path) -> None:
    options = {"device": str(device.index), "tune": "off", "min_nodes_per_partition": "1"}
    for graph in (CHAIN, conv_pool()):
        model = write_model(graph)
        ours = interpreter(model, RUNTIME.load_delegate(str(built), options))
        names = [each["op_name"] for each in ours._get_ops_details()]
        assert names[len(graph.nodes) :] == ["DELEGATE"]
        for inputs in inputs_for(graph):
            assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))


@slow
def test_load_delegate_has_options(device: DeviceInfo, built: Path) -> None:
    options = {
        "device": str(device.index),
        "tune": "off",
        "min_nodes_per_partition": "1",
        "exclude_ops": "ADD, MUL",
    }
    ours = interpreter(write_model(CHAIN), RUNTIME.load_delegate(str(built), options))
    (details,) = [each for each in ours._get_ops_details() if each["op_name"] == "DELEGATE"]
    assert list(details["inputs"]) == [0]
    assert list(details["outputs"]) == [1]


@slow
@pytest.mark.parametrize(
    ("excluded", "counted", "left"),
    [
        ("", "INFO: OpenCL delegate: 2 of 2 nodes run on ", ""),
        (
            "ADD,AVERAGE_POOL_2D",
            "WARNING: OpenCL delegate: 0 of 2 nodes run on ",
            "; on the CPU: 1 x AVERAGE_POOL_2D (excluded by exclude_ops), "
            "1 x ADD (excluded by exclude_ops)",
        ),
    ],
    ids=["all", "none"],
)
def test_number_of_claimed_nodes_is_reported(
    device: DeviceInfo, built: Path, tmp_path: Path, excluded: str, counted: str, left: str
) -> None:
    (tmp_path / "m.tflite").write_bytes(write_model(CHAIN))
    options = {"device": str(device.index), "tune": "off", "exclude_ops": excluded}
    program = (
        "from tflite_opencl.interpreters.runtime import runtime_if_any as r\n"
        f"d = r().load_delegate({str(built)!r}, {options!r})\n"
        f"r().interpreter({str(tmp_path / 'm.tflite')!r}, None, 'reference', [d])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert f"{counted}{device.name}{left}" in ran.stderr.splitlines()


def test_errors_of_load_delegate(built: Path) -> None:
    with pytest.raises(ValueError, match="OpenCL delegate: there is no option unknown; there are"):
        RUNTIME.load_delegate(str(built), {"unknown": "1"})


# In C


@slow
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("environment", [{}, STRAY], ids=["plain", "stray-variables"])
def test_c_program_creates_delegate(ask: Ask, environment: dict[str, str]) -> None:
    assert ask("reported", "tune=off", environment=environment) == ["made"]


@slow
@pytest.mark.usefixtures("device")
def test_library_survives_dlclose(ask: Ask) -> None:
    assert ask("twice", "tune=off") == ["made", "made"]


OPTION_ERRORS = {
    "unknown": ("speed=1", "there is no option speed; there are alternative, device, "),
    "word": ("tune=never", "tune='never': one of off, quick, full"),
    "number": ("max_delegated_partitions=x", "option max_delegated_partitions=x: invalid literal"),
    "negative": ("min_nodes_per_partition=-1", "min_nodes_per_partition=-1 is less than 0"),
    "truth": ("profiling=maybe", "option profiling=maybe: 1, 0, true or false is wanted"),
    "verbose": ("verbose=x", "option verbose=x: 1, 0, true or false is wanted"),
    "NaN": ("run_timeout=nan", "run_timeout=nan is less than 0"),
    "device": ("device=no such one", "no OpenCL device matches 'no such one'"),
    "model": ("model=/no/model", "[Errno 2] No such file or directory: '/no/model'"),
}


@slow
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("option", "text"), OPTION_ERRORS.values(), ids=OPTION_ERRORS)
def test_invalid_option_is_one_line(ask: Ask, option: str, text: str) -> None:
    (line,) = ask("reported", option)
    assert line.startswith(f"OpenCL delegate: {text}")


def test_missing_report_function(ask: Ask) -> None:
    lines = ask("silent", "speed=1")
    assert lines[0] == "prepare: 2"  # kTfLiteDelegateError
    assert lines[1].startswith("ERROR: OpenCL delegate: there is no option speed")


def test_python_without_package_is_named(ask: Ask, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = str(bare / "bin" / "python")
    (line,) = ask("reported", environment={"TFLITE_OPENCL_PYTHON": python})
    assert line.startswith("OpenCL delegate: ModuleNotFoundError: No module named ")
    assert line.endswith(f"(the Python is {python})")


PYTHON_ERRORS = {
    "absent": ("/no/python", "TFLITE_OPENCL_PYTHON is /no/python, which is no program"),
    "another-program": ("/bin/true", "/bin/true has no shared libpython"),
    "quoted": (None, "a quote in the path "),
}


@pytest.mark.parametrize(("python", "text"), PYTHON_ERRORS.values(), ids=PYTHON_ERRORS)
def test_wrong_python_is_named(ask: Ask, tmp_path: Path, python: str | None, text: str) -> None:
    if python is None:
        link = tmp_path / "it's"
        link.symlink_to("/bin/true")
        python = str(link)
    (line,) = ask("reported", environment={"TFLITE_OPENCL_PYTHON": python})
    assert line.startswith(f"OpenCL delegate: {text}")


def test_missing_environment_is_named(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", '/gone/ä b"c/bin/python')
    library.compile_library(tmp_path / "gone.so", library.libpython_file())
    (line,) = ask("reported", file=tmp_path / "gone.so", environment={"LC_ALL": "C.UTF-8"})
    assert line == (
        'OpenCL delegate: there is no /gone/ä b"c/bin/python any more: make the library again '
        "with `tflite-opencl library`, or set TFLITE_OPENCL_PYTHON"
    )


def test_missing_libpython_is_named(ask: Ask, tmp_path: Path) -> None:
    library.compile_library(tmp_path / "gone.so", "/gone/libpython3.so.1")
    (line,) = ask("reported", file=tmp_path / "gone.so")
    assert line.startswith("OpenCL delegate: /gone/libpython3.so.1: cannot open shared object file")


# The command


@slow
def test_output_of_command(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["library"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{library.NAME} is made for {sys.executable}",
        f"benchmark_model --graph=model.tflite --external_delegate_path={tmp_path / library.NAME}",
        f'Environment.create(runtime_path="{tmp_path}")  # for a CompiledModel',
    ]
    for _ in range(2):
        assert main(["library", "new/folder/"]) == 0
    assert main(["library", "new/folder"]) == 0
    paths = [tmp_path / "new" / "folder" / name for name in (library.NAME, library.ACCELERATOR)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", tmp_path / "new" / "folder" / library.NAME],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line.split()[-1] for line in exported.splitlines()] == [
        "LiteRtAcceleratorImpl",
        "LiteRtRegisterGpuAccelerator",
        "tflite_plugin_create_delegate",
        "tflite_plugin_destroy_delegate",
    ]


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["library", *arguments]) == 255
    return capsys.readouterr().err


@pytest.mark.usefixtures("built")
def test_compiler_failure_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot write /no/folder/a.so: there is no folder" in failure(capsys, "/no/folder/a.so")
    assert "cannot write /dev/null/lib/: /dev/null is not a folder" in failure(
        capsys, "/dev/null/lib/"
    )
    monkeypatch.setenv("CC", "/bin/false")
    assert "/bin/false fails: exit code 1" in failure(capsys)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert failure(capsys) == (
        "ERROR: there is no C compiler: install gcc and libc6-dev, or set CC\n"
    )


def test_python_that_cannot_be_embedded_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("libpython3.a", "has no shared library libpython: take"),
        ("libpython9.so.1", "libpython9.so.1 cannot be loaded: install libpython3."),
    ):
        monkeypatch.setattr(
            sysconfig, "get_config_var", {"INSTSONAME": name, "LIBDIR": "/nowhere"}.get
        )
        assert text in failure(capsys)


# Options


def test_options_by_name() -> None:
    texts = {
        "device": "pocl",
        "exclude_ops": "ADD,MUL  SUB",
        "min_nodes_per_partition": "2",
        "max_delegated_partitions": "3",
        "profiling": "true",
        "tune": "full",
        "exclude_isa": "",
        "precision": "fp32",
        "device_profile": "galcore-gc7000",
        "own_context": "0",
        "alternative": "plain",
        "in_child_first": "False",
        "passes": "fuse_pad",
        "isolate": "0",
        "run_timeout": "2.5",
        "plan": "m.plan",
        "placement": "offload:3",
    }
    assert set(texts) == set(Options.__dataclass_fields__)
    assert options_of(texts) == Options(
        device="pocl",
        exclude_ops=("ADD", "MUL", "SUB"),
        min_nodes_per_partition=2,
        max_delegated_partitions=3,
        profiling=True,
        tune="full",
        device_profile="galcore-gc7000",
        alternative="plain",
        in_child_first=False,
        passes=("fuse_pad",),
        run_timeout=2.5,
        plan="m.plan",
        placement="offload:3",
    )
