# SPDX-License-Identifier: Apache-2.0
"""The documents as pages with a search: python -m docs.site [DIR]

MkDocs builds them of the files as they are, at the places that they have in the repository, so that
a link works here as it does there. A link or heading that does not exist ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import io
import logging
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_DEVELOP = (
    "CONTRIBUTING.md", "ARCHITECTURE.md", "kernels/README.md", "tests/README.md",
    "tests/attacks/README.md",
)  # fmt: skip
_FOLDERS = ("boards", "ci", "frigate")  # of docs
# Cells and long words of code break, and what is still wide scrolls: a narrow window shows all.
_STYLE = """
table { display: block; overflow-x: auto; max-width: 100%; }
.rst-content table td, .rst-content table th { white-space: normal !important; }
td code, p code, li code { overflow-wrap: anywhere; white-space: normal; }
img { max-width: 100%; }
"""


def slug(text: str, separator: str) -> str:
    """Return a heading's anchor as GitHub makes it, to which the documents' links lead."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def pages() -> list[Any]:
    """Return the documents in the order of the menu, as MkDocs takes it."""
    docs = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
    below = [
        {name.title(): _in_folder(name)} for name in _FOLDERS if (ROOT / "docs" / name).is_dir()
    ]
    return [
        {"Start": "README.md"}, {"Use": docs}, *below, {"Develop": [*_DEVELOP]},
        {"Changes": "CHANGELOG.md"},
    ]  # fmt: skip


def _in_folder(name: str) -> list[str]:
    found = (ROOT / "docs" / name).rglob("*.md")
    # A folder's own page comes first.
    first = sorted(found, key=lambda path: (path.name != "README.md", path))
    return [path.relative_to(ROOT).as_posix() for path in first]


def build(into: Path) -> bool:
    """Write the pages into a folder; return whether each link leads somewhere.

    Raises: ImportError: MkDocs is not installed.
    """
    # Only this needs it.
    from mkdocs.commands.build import build as build_pages
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pages"
        shutil.copytree(
            ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("__pycache__")
        )
        for name in ("README.md", "CHANGELOG.md", "LICENSE", *_DEVELOP):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
        (source / "site.css").write_text(_STYLE)
        config = load_config(
            io.StringIO(),  # all of it is here
            config_file_path=f"{folder}/mkdocs.yml",
            site_name="tflite-opencl",
            docs_dir=str(source),
            site_dir=str(into),
            nav=pages(),
            strict=True,
            use_directory_urls=False,  # pages that are opened as files have no server
            plugins=["search"],
            extra_css=["site.css"],
            theme={"name": "readthedocs", "highlightjs": False},  # nothing from other servers
            markdown_extensions=["sane_lists", {"toc": {"slugify": slug}}],
            validation={"links": {"anchors": "warn", "unrecognized_links": "warn"}},
        )
        try:
            build_pages(config)
        except Abort:
            return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the pages; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.site",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    told = "where the pages go (default: site/)"
    parser.add_argument(
        "folder", nargs="?", type=Path, default=ROOT / "site", metavar="DIR", help=told
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        if not build(given.folder.resolve()):
            return 1
    except ImportError:
        print("ERROR: MkDocs is not installed: pip install -e '.[docs]'", file=sys.stderr)
        return 1
    print(f"the pages are in {given.folder}: open {given.folder / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
