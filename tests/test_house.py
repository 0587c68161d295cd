"""The rules of the house, which no single file can keep alone: imports, hosts, what a start costs, what tests test."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "seqlab"
FILES = sorted(PACKAGE.rglob("*.py"))

ORDER = [
    "errors",
    "registry",
    "renamed",
    "recipe_tree",
    "recipe",
    "recipe_keys",
    "data",
    "tokenizers",
    "metrics",
    "native",
    "fusion",
    "nn",
    "models",
    "decoding",
    "objectives",
    "tasks",
    "training",
    "inspection",
    "build",
    "run",
    "transfer",
    "preparation",
    "launch",
    "mixing",
    "averaging",
    "conversion",
    "back_translation",
    "checkup",
    "doctor",
    "comparison",
    "studies",
    "cli",
    "__main__",
]
"""Data flows down this list, and imports go only upwards in it."""

HOSTS = {"arxiv.org", "aclanthology.org", "doi.org", "kellerjordan.github.io"}
"""Where papers are read. Nothing else is named, and nothing is fetched."""


def name_of(path):
    return str(path.relative_to(ROOT))


def part_of(module):
    """seqlab.data.readers → data"""
    return module.split(".")[1] if "." in module else ""


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


def test_every_part_has_its_place_in_the_order():
    parts = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py"} - {"__init__"}
    parts |= {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert parts <= set(ORDER), f"new here, give it a place in ORDER: {sorted(parts - set(ORDER))}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_only_upwards(path):
    place = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if place == "__init__":
        return  # the public names, imported when they are first used
    package = ["seqlab", *path.relative_to(PACKAGE).parts[:-1]]
    wrong = [
        f"line {line}: {module}"
        for line, module in imported(ast.parse(path.read_text(encoding="utf-8")), package)
        if module.startswith("seqlab.")
        and part_of(module) in ORDER
        and ORDER.index(part_of(module)) > ORDER.index(place)
    ]
    assert not wrong, f"{place} imports what comes after it: {wrong}"


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
    code = "import seqlab.tokenizers, seqlab.data.readers, seqlab.data.store, seqlab.data.order, seqlab.data.randomness"
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
