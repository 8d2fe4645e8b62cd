# SPDX-License-Identifier: Apache-2.0
"""What tests of the label_image command share: a folder of files, and a way to run it there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from PIL import Image

from label_image import command
from tests.support.command import Ran, Run, outcome, pooling_model
from tests.support.model import t
from tflite_opencl.console import start


@pytest.fixture(autouse=True)
def _one_context(one_context: None) -> None:
    """Share one context a device."""


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process."""

    def run(*arguments: str) -> Ran:
        code = start.run(lambda: command.main(arguments))
        out, err = capfd.readouterr()
        assert "Traceback" not in err or any("verbose" in word for word in arguments)
        return outcome(code, out, err)

    return run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with model.tflite, picture.bmp and labels.txt, and go there."""
    monkeypatch.chdir(tmp_path)
    model = pooling_model(t((1, 4, 4, 3), "uint8", 1.0, 0))
    (tmp_path / "model.tflite").write_bytes(model)
    Image.new("RGB", (4, 4), (51, 204, 102)).save(tmp_path / "picture.bmp")
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    return tmp_path


@pytest.fixture
def pictures(files: Path) -> Path:
    """Add pictures of one colour each, in folders; the names say which."""
    colours = {"red": (204, 102, 51), "green": (51, 204, 102), "blue": (51, 102, 204)}
    for name, colour in colours.items():
        path = files / "pictures" / name / f"{name}.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (9, 7), colour).save(path)
    (files / "pictures" / "notes.txt").write_text("no picture")
    return files


DELEGATE_SOURCE = """
#include <stddef.h>
#include <string.h>
/* TfLiteDelegate of tflite/core/c/common.h: it accepts every graph and takes nothing of it. */
typedef struct Delegate {
  void* data; int (*prepare)(void*, struct Delegate*); void *from, *to, *free;
  long long flags; void* opaque;
} Delegate;
static int prepare(void* context, Delegate* delegate) { return (int)delegate->flags; }
static Delegate only;
void* tflite_plugin_create_delegate(char** keys, char** values, size_t n,
                                    void (*report)(const char*)) {
  memset(&only, 0, sizeof only);
  only.prepare = prepare;
  for (size_t i = 0; i < n; i++)
    if (!strcmp(keys[i], "wish") && !strcmp(values[i], "none")) {
      report("no such wish");
      return NULL;
    }
  return &only;
}
void tflite_plugin_destroy_delegate(void* delegate) {}
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("delegate")
    (folder / "delegate.c").write_text(DELEGATE_SOURCE)
    try:
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", "libdelegate.so", "delegate.c"], cwd=folder, check=True
        )
    except FileNotFoundError:
        pytest.skip("no C compiler (cc) for a delegate library")
    return str(folder / "libdelegate.so")
