# SPDX-License-Identifier: Apache-2.0
"""The documents as HTML pages, and broken links."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiers import slow

ROOT = Path(__file__).resolve().parents[2]


def built(root: Path, into: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mkdocs", reason="the pages are made by MkDocs, of the extra docs")
    command = [sys.executable, "-m", "docs.site", str(into)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@slow
def test_site_has_all_documents_and_search(tmp_path: Path) -> None:
    done = built(ROOT, tmp_path / "site")
    assert (done.returncode, done.stderr) == (0, "")
    documents = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md"]
    for path in documents:
        page = path.relative_to(ROOT).with_suffix(".html").as_posix()
        assert (tmp_path / "site" / page.replace("README", "index")).is_file(), page
    index = json.loads((tmp_path / "site/search/search_index.json").read_text())
    assert any("Open Inference Protocol" in page["text"] for page in index["docs"])
    # No resources of other servers.
    text = (tmp_path / "site/docs/serve.html").read_text()
    assert 'src="http' not in text
    assert not any('rel="stylesheet"' in line and "//" in line for line in text.splitlines())


@slow
@pytest.mark.parametrize("link", ["none.md", "serve.md#none", "../none.py"])
def test_broken_link_is_reported(tmp_path: Path, link: str) -> None:
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "docs", root / "docs")
    for path in (*ROOT.glob("*.md"), *(ROOT / f"{n}/README.md" for n in FOLDERS), ROOT / "LICENSE"):
        (root / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.relative_to(ROOT))
    with (root / "docs/serve.md").open("a") as page:
        page.write(f"\n[a link]({link})\n")
    done = built(root, tmp_path / "site")
    assert done.returncode == 1
    assert f"'{link}'" in done.stderr


FOLDERS = ("kernels", "tests", "tests/attacks")
