# SPDX-License-Identifier: Apache-2.0
"""The files that .ci/release makes from a wheel; .ci/run makes a release and installs it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import tflite_opencl

ROOT = Path(__file__).resolve().parents[1]
NAME, VERSION = "tflite-opencl", tflite_opencl.__version__


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Make a release from a wheel with one file."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("no dpkg-deb here, which Debian has")
    try:
        about = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        pytest.skip("not installed: pip install -e .")
    info = f"tflite_opencl-{VERSION}.dist-info"
    with zipfile.ZipFile(tmp_path / f"tflite_opencl-{VERSION}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tflite_opencl/__init__.py", "# a file\n")
        for name in ("METADATA", "entry_points.txt"):
            wheel.writestr(f"{info}/{name}", about.read_text(name) or "")
    command = [sys.executable, ".ci/release-parts", str(tmp_path)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=ROOT, check=True, env=environment)
    return tmp_path


def test_debian_package_has_files_and_commands_of_wheel(release: Path) -> None:
    package = release / f"{NAME}_{VERSION}_all.deb"

    def output(*words: str) -> str:
        command = ["dpkg-deb", *words[:1], str(package), *words[1:]]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert output("--field", "Architecture").strip() == "all"
    assert "python3-pyopencl" in output("--field", "Depends")
    lines = output("--contents").splitlines()
    for name in ("label_image", "tflite-opencl", "tflite-delegate-test"):
        (line,) = [line for line in lines if line.endswith(f"./usr/bin/{name}")]
        assert line.startswith("-rwxr-xr-x root/root")
    (line,) = [line for line in lines if line.endswith("dist-packages/tflite_opencl/__init__.py")]
    assert line.startswith("-rw-r--r-- root/root")
    assert package.name in (release / "Containerfile").read_text()


def test_spdx_lists_files_and_dependencies(release: Path) -> None:
    listed = json.loads((release / f"{NAME}-{VERSION}.spdx.json").read_text())
    files = {each["fileName"]: each["checksums"] for each in listed["files"]}
    assert len(files) == 3
    sums = {
        each["algorithm"]: each["checksumValue"] for each in files["./tflite_opencl/__init__.py"]
    }
    assert sums["SHA256"] == hashlib.sha256(b"# a file\n").hexdigest()
    licences = {each["name"]: each["licenseConcluded"] for each in listed["packages"]}
    assert licences["numpy"] == "BSD-3-Clause"
    assert licences["pillow"] == "MIT-CMU"
    assert licences["ai-edge-litert"] == "Apache-2.0"


def test_changes_are_first_section_of_changelog(release: Path) -> None:
    first = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    output = (release / "CHANGES.md").read_text()
    assert output == f"# {NAME} {VERSION}\n\n{first.partition(chr(10))[2].strip()}\n"
