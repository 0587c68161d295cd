"""Add the README and the other files of the root to the site, so that no text exists twice."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "LICENSE.txt",
}
"""Files in the root, and their names on the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=relinked((ROOT / name).read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let pages in docs/ link to files in the root. A page with its own tab needs no list of pages beside it."""
    if page.parent is None:
        page.meta["hide"] = ["navigation"]
    return markdown if page.file.generated_by else relinked(markdown, above="../")


def relinked(markdown: str, above: str = "") -> str:
    """Rewrite links between files of the repository as links between pages of the site."""
    for name, page in PAGES.items():
        markdown = markdown.replace(f"]({above}{name}", f"]({page}")
    return markdown if above else markdown.replace("](docs/", "](")
