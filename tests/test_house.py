"""The rules of the house, which no single file can keep alone: imports, hosts, what a start costs, what tests test."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "seqlab"
FILES = sorted(PACKAGE.rglob("*.py"))

DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
ROOMS = dict(re.findall(r"^\| `([\w./]+)` \|[^|]*\|([^|]*)\|$", DESIGN, flags=re.MULTILINE))
"""Each room of the house and what it imports, as docs/design.md has them. Imports go only upwards in that table."""

HOSTS = {"arxiv.org", "aclanthology.org", "doi.org", "kellerjordan.github.io"}
"""Where papers are read. Nothing else is named, and nothing is fetched."""


def name_of(path):
    return str(path.relative_to(ROOT))


def room_of(module):
    """seqlab.models.gpt → models, seqlab.data.formats.rows → data/formats, seqlab.data.records → data"""
    parts = module.split(".")[1:]
    nested = len(parts) > 1 and parts[0] == "data" and (PACKAGE / "data" / parts[1]).is_dir()
    return "/".join(parts[: 1 + nested])


def imported(tree, package):
    """(line, module) of every import anywhere in a file, relative ones spelled out; not those for types alone."""
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            if module == "seqlab":  # from seqlab import registry
                yield from ((node.lineno, f"seqlab.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def module_of(path):
    return ".".join(["seqlab", *path.relative_to(PACKAGE).with_suffix("").parts])


@cache
def doors():
    """What each room imports."""
    found = {}
    for path in FILES:
        if path == PACKAGE / "__init__.py":
            continue  # the public names, imported when they are first used
        module = module_of(path)
        mine = found.setdefault(room_of(module), set())
        for _, other in imported(ast.parse(path.read_text(encoding="utf-8")), module.split(".")[:-1]):
            if other.startswith("seqlab.") and room_of(other) != room_of(module):
                mine.add(room_of(other))
    return found


def test_the_rooms_have_the_doors_that_the_design_lists():
    listed = {room: set(re.findall(r"`([\w/]+)`", doors)) for room, doors in ROOMS.items()}
    assert doors() == listed


def test_imports_go_only_upwards():
    order = list(ROOMS)
    wrong = [
        f"{room} imports {door}" for room in order for door in doors()[room] if order.index(door) > order.index(room)
    ]
    assert not wrong


def test_the_files_that_the_design_names_are_there():
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.(?:py|cpp))`", DESIGN))
    assert len(named) > 20
    assert [name for name in sorted(named) if not any((base / name).exists() for base in (PACKAGE, ROOT))] == []


def test_files_and_classes_can_be_told_apart_by_their_names():
    """Commands are named as people call them; everything else has a name of its own."""
    names = [path.stem for path in FILES if path.stem != "__init__" and path.parent.name != "cli"]
    assert sorted({name for name in names if names.count(name) > 1}) == []
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in FILES]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    classes = [name for name in classes if not name.startswith("_")]
    assert sorted({name for name in classes if classes.count(name) > 1}) == []


def test_only_papers_are_linked():
    pages = [
        *FILES,
        *PACKAGE.rglob("*.yaml"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "pyproject.toml",
    ]
    found = {
        f"{name_of(page)}: {host}"
        for page in pages
        if page.is_file()
        for host in re.findall(r"https?://([\w.-]+)", page.read_text(encoding="utf-8"))
        if host not in HOSTS | {"localhost", "127.0.0.1"}
    }
    assert not found


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_are_data_never_code(path):
    """No pickle, no eval; only `--code`, which a person gives by name, is executed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {module.split(".")[0] for _, module in imported(tree, ["seqlab"])}
    assert not modules & {"pickle", "shelve", "marshal", "dill", "cloudpickle", "joblib"}
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not calls & {"eval", "exec", "torch.load", "torch.save", "np.load", "yaml.unsafe_load", "yaml.full_load"}
    named = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not named & {"yaml.Loader", "yaml.UnsafeLoader", "yaml.FullLoader"}  # a SafeLoader makes plain data only


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_names_say_what_things_are(path):
    banned = r"(?i)^(utils?|helpers?|common|managers?|misc)$"
    assert not [part for part in path.relative_to(PACKAGE).with_suffix("").parts if re.match(banned, part)]
    classes = [node.name for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ClassDef)]
    assert not [name for name in classes if name.startswith("Base") or name.endswith(("Manager", "Helper"))]


def loaded_after(code):
    """The modules that a new process has after some code."""
    program = f"import sys\n{code}\nprint('LOADED', *sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "LOADED" in done.stdout, done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


COMMAND = """
sys.argv = ["seqlab", {arguments}]
from seqlab.cli import main
try:
    main()
except SystemExit:
    pass
"""


def test_importing_seqlab_costs_nothing():
    assert not loaded_after("import seqlab; dir(seqlab)") & {"torch", "numpy", "pydantic", "yaml", "rich", "click"}


@pytest.mark.parametrize("arguments", ['"--help"', '"--version"', '"no-such-command"'])
def test_help_costs_little(arguments):
    loaded = loaded_after(COMMAND.format(arguments=arguments))
    assert not loaded & {"torch", "numpy", "pydantic", "rich", "matplotlib"}


def test_listing_recipes_needs_no_torch():
    assert "torch" not in loaded_after(COMMAND.format(arguments='"recipes"'))


@pytest.mark.parametrize("name", ["Recipe", "SeqlabError", "register"])
def test_names_that_need_no_torch_do_not_import_it(name):
    assert "torch" not in loaded_after(f"import seqlab; seqlab.{name}")


def test_tokenizers_and_readers_need_no_torch():
    readers = "seqlab.data.reading.readers, seqlab.data.storage.store, seqlab.data.batching.order"
    code = f"import seqlab.tokenizers, {readers}, seqlab.data.randomness"
    assert "torch" not in loaded_after(code)


def test_every_registered_name_can_be_found():
    from seqlab import registry
    from seqlab.recipe import PartSettings

    for family in registry.FAMILIES:
        for name in registry.names(family):
            assert issubclass(registry.find(family, name).Settings, PartSettings), (family, name)


# ---------------------------------------------------------------------- tests that can fail

TESTS = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "tests").rglob("*.py"))}


def called(node):
    """The bare names of all that is called inside: `pytest.raises` is raises."""
    functions = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in functions}


def asserts(node):
    return any(isinstance(inner, ast.Assert | ast.Raise) for inner in ast.walk(node))


def that_check():
    """Names of functions that can make a test fail: those of pytest and numpy, and those of tests that assert or call
    such a function."""
    found = {"raises", "warns", "fail", "assert_close", "assert_allclose", "assert_array_equal"}
    functions = [node for tree in TESTS.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    while more := {one.name for one in functions if asserts(one) or called(one) & found} - found:
        found |= more
    return found


def test_every_test_can_fail():
    checks = that_check()
    idle = [
        f"{name_of(path)}, line {node.lineno}: {node.name}"
        for path, tree in TESTS.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if not asserts(node) and not called(node) & checks
    ]
    assert not idle, "nothing is asserted"


def test_what_is_asserted_depends_on_something():
    """Not `assert 2 == 1 + 1`, nor that something is an object."""
    vain = [
        f"{name_of(path)}, line {node.lineno}: {ast.unparse(node)}"
        for path, tree in TESTS.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        if {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)} <= {"pytest", "math", "np", "torch"}
        or re.search(r"\b(isinstance|issubclass)\(.*, object\)", ast.unparse(node.test))
    ]
    assert not vain
