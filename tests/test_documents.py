# SPDX-License-Identifier: Apache-2.0
"""The documents: their commands and programs run, and their links resolve."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from delegate import NoDeviceError, list_devices
from tests.support.model import chain_model, op, t
from tests.support.scenes import detector
from tests.support.subgraphs import two_signatures
from tests.support.tiers import slow
from tflite_opencl.console.exit_codes import EXIT_CODES
from tflite_opencl.interpreters import plugin_library

ROOT = Path(__file__).resolve().parents[1]
# Documents for users, and those for developers.
MANUALS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for name in ("kernels", "tests") for path in (ROOT / name).glob("README.md")),
]


def blocks(language: str, *paths: Path) -> list[str]:
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [block for path in paths for block in pattern.findall(path.read_text())]


def commands(*paths: Path) -> list[str]:
    """Return every command once, without its comment."""
    lines = (line for block in blocks("sh", *paths) for line in block.splitlines())
    return list(dict.fromkeys(line.partition("  #")[0].strip() for line in lines if line))


COMMANDS = commands(*MANUALS)
MODULES = {
    "label_image": "label_image",
    "tflite-delegate-test": "tflite_opencl.conformance",
    "tflite-opencl": "tflite_opencl",
}
SETTING_UP = [line for line in COMMANDS if "apt-get" in line]
# Arguments added to commands with a prefix, to save time; CI runs the unchanged commands.
SHORTER = {
    "label_image --use_gpu": ["--tune", "off"],
    "label_image --gpu_backend": ["--tune", "off"],
    "tflite-opencl benchmark": ["--tune", "off", "--warmup_min_secs", "0"],
    "tflite-opencl compare": ["--tune", "off", "--warmup_runs", "1"],
    "tflite-opencl generate": ["--tune", "off"],
    "tflite-opencl run": ["--tune", "off"],
    "tflite-delegate-test --quick": ["--filter", "^add/int8/1x"],
    "tflite-delegate-test --device": ["--sample", "8"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small classifier, its labels and a picture, under the documents' names."""
    picture = t((1, 8, 8, 3), "uint8", 0.5)
    pooled, flat = t((1, 1, 1, 3), "uint8", 0.5), t((1, 3), "uint8", 0.5)
    shares = t((1, 3), "uint8", 1 / 256)
    window = {"stride_w": 8, "stride_h": 8, "filter_width": 8, "filter_height": 8}
    nodes = [
        op("AVERAGE_POOL_2D", [picture], [pooled], {"padding": "VALID", **window}),
        op("RESHAPE", [pooled], [flat], {"new_shape": [1, 3]}),
        op("SOFTMAX", [flat], [shares], {"beta": 0.1}),
    ]
    (tmp_path / "model.tflite").write_bytes(chain_model(nodes))
    x, total, seen = (t((1, 4), "float32", name=name) for name in ("x", "total", "seen"))
    after = t((1, 4), "float32", name="next")
    sums = [op("ADD", [x, total], [after]), op("NEG", [after], [seen])]
    (tmp_path / "sums.tflite").write_bytes(chain_model(sums, [x, total], [seen, after]))
    (tmp_path / "two.tflite").write_bytes(two_signatures())
    np.save(tmp_path / "picture.npy", np.zeros((1, 4, 4, 3), np.uint8))
    (tmp_path / "values.txt").write_text("1 2 3 4\n5 6 7 8\n")
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    (tmp_path / "expected.csv").write_text("file,index\npicture.jpg,1\n")
    Image.new("RGB", (40, 30), (51, 204, 102)).save(tmp_path / "picture.jpg")
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _write_llama(folder: Path) -> None:
    """Write a small language model, where the extra [generate] is installed."""
    for module in ("gguf", "tokenizers"):
        pytest.importorskip(module, reason=f"{module}, of the extra [generate], is not installed")
    from tests.support.llama import write_gguf

    write_gguf(folder / "model.gguf")


def test_three_commands_install_everything() -> None:
    of_users, main_job, tests = SETTING_UP
    assert main_job.endswith("&& label_image --use_gpu --image grace_hopper.bmp")
    wheel = '"$(echo ./tflite_opencl-*.whl)[demo]"'
    assert of_users == main_job.replace('".[demo]"', wheel)
    assert tests.endswith("&& python -m pytest -n auto --dist worksteal")


@slow
@pytest.mark.device
@pytest.mark.parametrize("command", [line for line in COMMANDS if line not in SETTING_UP])
def test_command(command: str, folder: Path) -> None:
    script, *arguments = shlex.split(command)
    if script != "python":
        arguments = ["-m", MODULES[script], *arguments]
    try:
        devices = list_devices()
    except NoDeviceError as error:
        pytest.skip(str(error))
    if "--device" in arguments:
        device = arguments[arguments.index("--device") + 1]
        if device != "all" and not any(info.matches(device) for info in devices):
            pytest.skip(f"no device {device} here")
    if "holiday.mkv" in arguments:
        pytest.importorskip("av", reason="PyAV, the extra [video], is not installed")
        from tests.support.videos import frames, write_video

        write_video(folder / "holiday.mkv", frames(5))
    if "model.gguf" in arguments:
        _write_llama(folder)
    if "--plan" in arguments:
        plan = ["plan", "model.tflite", "--tune", "off", "--output", "model.plan"]
        assert run([sys.executable, "-m", "tflite_opencl", *plan], folder).returncode == 0
    added = [word for start in SHORTER if command.startswith(start) for word in SHORTER[start]]
    assert not set(added) & set(arguments)  # they would override the document's
    done = run([sys.executable, *arguments, *added], folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_ci_runs_commands_of_contributing() -> None:
    continuous = (ROOT / ".ci/run").read_text()
    # The commands that SHORTER changes.
    assert "suite --device rusticl --quick" in continuous
    assert "suite --device pocl --filter" in continuous
    assert "label_image --use_gpu --device" in continuous
    (tests,) = (line for line in SETTING_UP if "pytest" in line)
    for line in commands(CONTRIBUTING):
        for command in line.split(" && "):
            assert f".venv/bin/{command}" in continuous or tests.endswith(command), command


def _write_detector(folder: Path) -> None:
    (folder / "ssd.tflite").write_bytes(detector())


def _compile_plugin(folder: Path) -> None:
    plugin_library.compile_library(folder / plugin_library.ACCELERATOR, "")


def _write_nothing(folder: Path) -> None:
    pass


# Each Python program: its position among the manuals' programs, the files that it needs, a module
# that it imports, and the pattern of its output.
PROGRAMS: dict[str, tuple[int, Callable[[Path], None], str, str]] = {
    # The whole picture is green, and so are both halves.
    "picture": (
        0,
        _write_detector,
        "numpy",
        r"1\.00 green\n0\.01 blue\n0\.80 0 0 0\n0\.80 0 20 0\n",
    ),
    "interpreter": (
        1,
        _write_nothing,
        "ai_edge_litert",
        r"0 AVERAGE_POOL_2D on .+\n1 RESHAPE on .+\n2 SOFTMAX on .+\n",
    ),
    "compiled model": (
        2,
        _compile_plugin,
        "ai_edge_litert.environment",
        r"(?:.*\n)*\[85 85 85\] True\n",
    ),
    "without TFLite": (3, _write_nothing, "numpy", r"\(32, 3\) True\n"),
    "language model": (4, _write_llama, "numpy", r"(?:.*\n)*.* 8 True\n"),
    "state": (
        -3,
        _write_nothing,
        "numpy",
        r"\[\[-3\. -3\. -3\. -3\.\]\] \[\[\[3\. 3\. 3\. 3\.\]\]\]\n",
    ),
}


@slow
@pytest.mark.device
@pytest.mark.parametrize("name", PROGRAMS)
def test_python_program(name: str, folder: Path) -> None:
    position, write_files, module, output = PROGRAMS[name]
    pytest.importorskip(module)
    write_files(folder)
    done = run([sys.executable, "-c", blocks("python", *MANUALS)[position]], folder)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(output, done.stdout), done.stdout


@slow
@pytest.mark.device
def test_python_program_of_several_devices(folder: Path) -> None:
    *_, code, _ = blocks("python", *MANUALS)
    done = run([sys.executable, "-c", code], folder)
    assert done.returncode == 0, done.stderr
    done_by = re.findall(r"^.+ (\d+) works$", done.stdout, re.MULTILINE)
    assert sum(map(int, done_by)) == 1000, done.stdout


@slow
def test_python_program_of_passes(folder: Path) -> None:
    *_, code = blocks("python", *MANUALS)
    done = run([sys.executable, "-c", f"{code}print(len(graph.nodes), content[4:8])"], folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 b'TFL3'\n"


_C_API = """
#include <stddef.h>
typedef struct D TfLiteDelegate; typedef struct M TfLiteModel; typedef struct I TfLiteInterpreter;
typedef struct O TfLiteInterpreterOptions;
static TfLiteInterpreterOptions* TfLiteInterpreterOptionsCreate(void) { return NULL; }
static void TfLiteInterpreterOptionsAddDelegate(TfLiteInterpreterOptions* o, TfLiteDelegate* d) {}
static TfLiteModel* TfLiteModelCreateFromFile(const char* path) { return (TfLiteModel*)path; }
static TfLiteInterpreter* TfLiteInterpreterCreate(TfLiteModel* m, TfLiteInterpreterOptions* o) {
  return NULL;
}
static int TfLiteInterpreterAllocateTensors(TfLiteInterpreter* i) { return *(int*)i; }
static int TfLiteInterpreterInvoke(TfLiteInterpreter* i) { return *(int*)i; }
"""
_REFUSES = """
#include <stddef.h>
void* tflite_plugin_create_delegate(char** k, char** v, size_t n, void (*say)(const char*)) {
  say("no device"); return NULL;
}
"""
_MAKES = "void* tflite_plugin_create_delegate(void) { static int made; return &made; }"


@slow
@pytest.mark.parametrize(
    ("library", "message"),
    [
        (None, "./libtflite_opencl_delegate.so: cannot open shared object file"),
        ("int nothing;", "undefined symbol: tflite_plugin_create_delegate"),
        (_REFUSES, "no device"),
        (_MAKES, "failed"),
    ],
    ids=["no library", "another library", "no delegate", "no interpreter"],
)
def test_c_program_names_what_is_missing(library: str | None, message: str, tmp_path: Path) -> None:
    """TFLite's C interface is a fake that creates no interpreter."""
    header = tmp_path / "tensorflow/lite/c/c_api.h"
    header.parent.mkdir(parents=True)
    header.write_text(_C_API)
    program = str(ROOT / "docs/programs/tflite.c")
    assert run(["cc", "-I.", "-o", "program", program, "-ldl"], tmp_path).returncode == 0
    if library is not None:
        (tmp_path / "library.c").write_text(library)
        arguments = ["-o", "libtflite_opencl_delegate.so", "library.c"]
        assert run(["cc", "-shared", "-fPIC", *arguments], tmp_path).returncode == 0
    ended = run(["./program"], tmp_path)
    assert ended.returncode == 1
    assert message in ended.stdout + ended.stderr


def test_exit_codes_are_documented_once() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs/reliability.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == list(EXIT_CODES)


def heading_names(path: Path) -> set[str]:
    """Return the anchors that forges derive from a document's headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            other = path.parent / name if name else path
            assert other.exists(), target
            assert not anchor or anchor in heading_names(other), target


DEVELOPERS = [path for path in DOCUMENTS if path not in MANUALS and path.parent.name != "boards"]


@pytest.mark.parametrize("path", DEVELOPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_named_for_developers_exist(path: Path) -> None:
    for name in re.findall(r"`([\w.]+/[\w./]+\.(?:py|clh?|md|toml|txt))`", path.read_text()):
        assert (ROOT / name).exists(), name


def test_architecture_lists_existing_files() -> None:
    tree, _, steps, *_ = blocks("", ROOT / "ARCHITECTURE.md")
    folders = {path.parent.name for path in (ROOT / "delegate").glob("*/*.*")} - {"__pycache__"}
    assert {*re.findall(r"^  (\w+)/", tree, re.MULTILINE)} == folders
    assert all((ROOT / name).is_dir() for name in re.findall(r"^(\w+)/", tree, re.MULTILINE))
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "delegate").rglob("*.py")]
    named = re.findall(r"[\w/]+\.py\b", steps)
    assert named
    assert [name for name in named if not any(f.endswith(f"/{name}") for f in files)] == []


# A phrase or word -> its replacement.
FORBIDDEN = {
    r"(?i)lowers (?:nothing|no node)": "nothing: the leading underscore of the folder says it",
    r"(?i)stretch": "broadcast",
}
WRITTEN = [
    path
    for name in ("delegate", "kernels", "label_image", "tflite_opencl")
    for path in sorted((ROOT / name).rglob("*"))
    if path.suffix in (".py", ".cl", ".clh", ".md", ".toml")
]


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_forbidden_phrases(pattern: str) -> None:
    uses = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*WRITTEN, *DOCUMENTS]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert uses == [], f"write instead: {FORBIDDEN[pattern]}"


def test_file_names_are_clear() -> None:
    unclear = re.compile(r"stretch|_words|_gpu")
    assert [path.name for path in WRITTEN if unclear.search(path.stem)] == []
