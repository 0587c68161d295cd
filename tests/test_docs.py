"""The documentation: every page is in the navigation, every link works, and the site loads nothing from other hosts."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

import seqlab

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*.ipynb")])
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
PAGES = [*(ROOT / name for name in OUTSIDE), *sorted(DOCS.rglob("*.md"))]
FROM_OUTSIDE = {"index.md", "contributing.md", "changelog.md", "examples/index.md"}
FROM_OUTSIDE |= {f"examples/{path.stem}.md" for path in EXAMPLES}
"""Pages that docs/theme/hooks.py makes from files outside of docs/."""
HOSTS = {"arxiv.org", "aclanthology.org", "doi.org", "keepachangelog.com"}
"""Papers, and projects that are cited."""

CODE = re.compile(r"^```.*?^```$|^(?: {4}|\t).*?$|`[^`\n]*`", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)")
ADDRESS = re.compile(r"https?://[^\s)>\"'`]+")
TESTS = re.compile(r"\btests/[\w/]+(?:\.py)?")
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?(https?://[^\s\">]+)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: Path) -> str:
    """A page without its code."""
    return CODE.sub("", path.read_text(encoding="utf-8"))


def anchors_of(path: Path) -> set[str]:
    """The anchors of its headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def navigation() -> list[str]:
    class Loader(yaml.SafeLoader):
        """Ignores the Python functions that the file names."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
    return leaves(yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"])


def leaves(tree: object) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    assert isinstance(tree, list | dict)
    return [leaf for branch in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(branch)]


def test_every_page_is_in_the_navigation_once():
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert sorted(navigation()) == sorted(pages | FROM_OUTSIDE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings(page):
    for link in LINK.findall(text_of(page)):
        if ADDRESS.match(link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_only_papers_and_projects_are_linked(page):
    hosts = {urlsplit(address).hostname for address in ADDRESS.findall(text_of(page))}
    assert hosts <= HOSTS


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_that_are_named_exist(page):
    for name in TESTS.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def test_every_public_name_is_in_the_reference():
    reference = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    listed = set(re.findall(r"\w+", reference))
    assert set(seqlab.__all__) <= listed


def test_what_the_reference_lists_is_there():
    """mkdocstrings silently leaves out a listed member that does not exist."""
    found = 0
    for page in (DOCS / "api").glob("*.md"):
        for module, options in re.findall(r"^::: ([\w.]+)\n((?: {4}.*\n)+)", page.read_text(encoding="utf-8"), re.M):
            for member in yaml.safe_load(options)["options"]["members"]:
                assert hasattr(importlib.import_module(module), member), f"{name_of(page)}: {module}.{member}"
                found += 1
    assert found > 40


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed")
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_others(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    built = sorted((tmp_path / "site").rglob("*.html"))
    assert len(built) > len(PAGES)  # and the page for what is not found
    for page in built:
        assert LOADED.findall(page.read_text(encoding="utf-8")) == [], page.name
    assert (tmp_path / "site/search/search_index.js").stat().st_size > 100_000
