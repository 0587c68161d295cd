"""Add the README and other files from outside of docs/ to the site, so that no text exists twice.

Scripts and notebooks in examples/ become pages that show their code.
"""

import json
import re
from os.path import dirname, join, normpath, relpath
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*.ipynb")])
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "LICENSE.txt",
    "examples/README.md": "examples/index.md",
    **{f"examples/{path.name}": f"examples/{path.stem}.md" for path in EXAMPLES},
}
"""Files outside of docs/, and their names on the site."""
LINK = re.compile(r"(?<=\]\()[^)#:\s]+(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, page in PAGES.items():
        text = relinked(text_of(ROOT / name), name)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let pages in docs/ link to files outside of it. A page with its own tab needs no list of pages beside it."""
    if page.parent is None:
        page.meta["hide"] = ["navigation"]
    return markdown if page.file.generated_by else relinked(markdown, f"docs/{page.file.src_uri}")


def relinked(markdown: str, name: str) -> str:
    """Rewrite links of a file to other files of the repository as links between pages of the site."""
    here = dirname(place_of(name)) or "."
    return LINK.sub(lambda link: relpath(place_of(normpath(join(dirname(name), link[0]))), here), markdown)


def place_of(name: str) -> str:
    return PAGES.get(name, name.removeprefix("docs/"))


def text_of(path: Path) -> str:
    """The text of a page; of a script its code, of a notebook its cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return f"# {path.name}\n\n{fenced(text)}"
    if path.suffix == ".ipynb":
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
        return "\n\n".join(fenced(source) if kind == "code" else source for kind, source in cells)
    return text


def fenced(code: str) -> str:
    return f"```python\n{code.rstrip()}\n```"
