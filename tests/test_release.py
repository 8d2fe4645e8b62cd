# SPDX-License-Identifier: Apache-2.0
"""Files that .ci/release makes from a wheel, and debian/; .ci/run installs a whole release."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tflite_opencl

ROOT = Path(__file__).resolve().parents[1]
DEBIAN = ROOT / "debian"
NAME, VERSION = "tflite-opencl", tflite_opencl.__version__


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Make a release from a wheel with one file."""
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


def test_container_installs_debian_packages_of_this_version(release: Path) -> None:
    named = re.findall(r"^COPY (.*) /tmp/$", (release / "Containerfile").read_text(), re.MULTILINE)
    version = _debian_version()
    packages = ("python3-tflite-opencl", "tflite-opencl")
    assert named == [" ".join(f"{package}_{version}_all.deb" for package in packages)]


def _debian_version() -> str:
    (version,) = re.findall(rf"\A{NAME} \((\S+)\)", (DEBIAN / "changelog").read_text())
    return version


def test_debian_version_is_this_one() -> None:
    assert _debian_version().rpartition("-")[0] == VERSION


def test_debian_build_needs_what_the_package_imports() -> None:
    """pybuild derives the binary package's dependencies from these and from the wheel."""
    control = (DEBIAN / "control").read_text()
    needed = {r.name for r in map(Requirement, metadata.requires(NAME) or []) if r.marker is None}
    names = {"pillow": "pil"}
    missing = {each for each in needed if f" python3-{names.get(each, each)},\n" not in control}
    assert missing == set()
    # Not in Debian: dh_python3 would ask for a package that is missing.
    assert (DEBIAN / "py3dist-overrides").read_text().split() == ["ai_edge_litert"]


def test_debian_rules_name_each_command() -> None:
    (line,) = re.findall(r"^commands = (.*)$", (DEBIAN / "rules").read_text(), re.MULTILINE)
    scripts = metadata.distribution(NAME).entry_points.select(group="console_scripts")
    assert sorted(line.split()) == sorted(script.name for script in scripts)


def test_debian_copyright_names_files_of_others() -> None:
    """Each row of a file in assets/SOURCES.md that is not Apache-2.0, and the tests' data."""
    copyright_file = (DEBIAN / "copyright").read_text()
    named = {*re.findall(r"^Files: (.*)$", copyright_file, re.MULTILINE)} - {"*"}
    table, *_ = (ROOT / "assets/SOURCES.md").read_text().split("\nWhat the default model")
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    others = {f"assets/{row[1].strip()}" for row in rows if row[3].strip() != "Apache-2.0"}
    assert named == {"tests/data/*", *others}


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
