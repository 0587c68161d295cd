"""Recipes: loading, overriding, saving, and an error for every way to get one wrong."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab import registry
from seqlab.errors import RecipeError, SeqlabError
from seqlab.recipe import Recipe, flatten, seconds
from seqlab.recipe_tree import shipped, shipped_text

SMALL = """\
name: small
task: {kind: language-modelling, window: 16}
data: {train: text.txt}
tokenizer: {kind: character}
model:
  kind: gpt
  width: 32
  heads: 2
objective: {kind: next-token}
training:
  steps: 10
  optimizer: sgd
"""


@pytest.fixture
def small(tmp_path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def fault(path: object, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        Recipe.load(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "given.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# ------------------------------------------------------------------ loading


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_recipe_by_name_as_a_file_and_back(name, tmp_path):
    recipe = Recipe.load(name)
    assert recipe.name
    assert recipe.about
    assert Recipe.load(written(tmp_path, shipped_text(name))) == recipe
    assert Recipe.load(written(tmp_path, recipe.to_yaml())) == recipe
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_short_forms_and_defaults(small):
    recipe = Recipe.load(small)
    assert recipe.training.optimizer.kind == "sgd"
    assert recipe.training.schedule.kind == "cosine"
    assert recipe.training.schedule == Recipe.load(small, ["training.schedule=cosine"]).training.schedule
    assert recipe.decoding == Recipe.load("lm/gpt").decoding
    without = "".join(line for line in SMALL.splitlines(keepends=True) if not line.startswith(("training", "  ")))
    assert Recipe.load(written(small.parent, without + "\n"), ["model.kind=gpt"]).training.optimizer.kind == "adamw"


def test_a_run_folder_is_a_recipe(small):
    (small.parent / "run").mkdir()
    small.rename(small.parent / "run" / "recipe.yaml")
    assert Recipe.load(small.parent / "run").name == "small"


# ---------------------------------------------------------------- overrides


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("training.steps=7", "training.steps", 7),
        ("training.learning_rate=1e-3", "training.learning_rate", 1e-3),
        ("training.learning_rate=1", "training.learning_rate", 1.0),
        ("training.clip_norm=null", "training.clip_norm", None),
        ("training.budget=45s", "training.budget", "45s"),
        ("training.budget=90", "training.budget", "90"),
        ("data.train=a.txt", "data.train", "a.txt"),
        ("data.train=[a.txt, b.txt]", "data.train", ["a.txt", "b.txt"]),
        ("data.columns.text=body", "data.columns.text", "body"),
        ("decoding.prompt=", "decoding.prompt", ""),
        ("decoding.prompt=[Once", "decoding.prompt", "[Once"),
        ("name=2020-99-99", "name", "2020-99-99"),
        ("training.optimizer=momentum", "training.optimizer.kind", "momentum"),
        ("training.optimizer.kind=momentum", "training.optimizer.momentum", 0.9),
        ("training.optimizer.weight_decay=0.5", "training.optimizer.weight_decay", 0.5),
        ("model={kind: gpt, width: 8, heads: 1}", "model.width", 8),
        ("training.schedule.kind=constant", "training.schedule.kind", "constant"),
    ],
)
def test_an_override(small, override, key, value):
    assert flatten(Recipe.load(small, [override]).to_dict())[key] == value


def test_overrides_of_nested_kinds():
    recipe = Recipe.load("lm/lstm", ["model.cell=elman"])
    assert recipe.model.cell.kind == "elman"
    assert Recipe.load("lm/lstm", ["model.cell.kind=elman"]) == recipe
    assert Recipe.load("lm/gpt", ["model.kind=recurrent"]).model.width == 128  # a key that both kinds have stays
    assert Recipe.load("lm/gpt", ["tokenizer.kind=classic-bpe"]).tokenizer.vocab_size == 1024
    assert Recipe.load("lm/gpt", ["tokenizer.kind=symbols"]).tokenizer.vocab_size is None  # unless it means another
    asked = ["tokenizer.kind=symbols", "tokenizer.vocab_size=50", "tokenizer.kind=symbols"]
    assert Recipe.load("lm/gpt", asked).tokenizer.vocab_size == 50
    assert Recipe.load("lm/gpt", ["model=recurrent"]).model.width == 256


def test_a_list_of_cells_says_the_depth():
    recipe = Recipe.load("lm/lstm", ["model.cell=[lstm, {kind: classic-gru, update: takes}]"])
    assert [cell.kind for cell in recipe.model.cell] == ["lstm", "classic-gru"]
    assert recipe.model.depth == 2
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert Recipe.load("forecasting/lstm", ["model.cell=[lstm, gru]"]).model.depth == 2
    with pytest.raises(RecipeError, match="depth is 3, but 2 cells are listed"):
        Recipe.load("lm/lstm", ["model.cell=[lstm, gru]", "model.depth=3"])
    with pytest.raises(RecipeError, match="0 cells"):
        Recipe.load("lm/lstm", ["model.cell=[]"])
    with pytest.raises(RecipeError, match=r"model\.cell=\[lstm, gruu\]: unknown cell 'gruu'"):
        Recipe.load("lm/lstm", ["model.cell=[lstm, gruu]"])


def test_a_run_with_another_number_of_steps_is_evaluated_as_often(tmp_path):
    """What its recipe fills in for the number of steps that it had is derived anew, unless it is given."""
    grid = {"report_every": 5, "evaluate_every": 125, "sample_every": 125, "checkpoint_every": 125}
    done = Recipe.load("lm/gpt").changed({"training": {"steps": 1000, **grid}, "environment": {"torch": "2.13.0"}})
    (tmp_path / "recipe.yaml").write_text(done.to_yaml())
    for overrides in (["training.steps=8"], {"training": {"steps": 8}}, ["training.budget=3s"]):
        training = Recipe.load(tmp_path, overrides).training
        assert {getattr(training, name) for name in grid} == {None}
    given = Recipe.load(tmp_path, ["training.steps=8", "training.evaluate_every=4"]).training
    assert (given.evaluate_every, given.report_every) == (4, None)
    for same in ([], ["training.steps=1000"], ["model.width=8"]):
        assert Recipe.load(tmp_path, same).training == done.training
    assert done.changed({"training.steps": 8}).training.evaluate_every == 125  # as resuming with more steps needs it


def test_steps_and_budget_the_last_one_decides():
    budget = Recipe.load("lm/gpt", ["training.budget=3m"])
    assert (budget.training.steps, budget.training.budget) == (None, "3m")
    assert budget.changed({"training.steps": 5}).training.budget is None
    both = Recipe.load("lm/gpt", ["training.budget=3m", "training.steps=5"]).training
    assert (both.steps, both.budget) == (5, None)


def test_later_overrides_win_and_originals_stay():
    recipe = Recipe.load("lm/gpt", ["model.width=64", "model.width=128"])
    assert recipe.model.width == 128
    assert recipe.changed({"model.width": 64}) == recipe.changed(["model.width=64"])
    assert recipe.changed({"model.width": 64}).model.width == 64
    assert recipe.model.width == 128


def test_a_section_given_as_a_mapping_changes_its_keys_alone():
    recipe = Recipe.load("lm/lstm")
    nested = {"training": {"steps": 5}, "model": {"width": 64}, "data": {"columns": {"text": "body"}}}
    changed = recipe.changed(nested)
    assert changed == recipe.changed({"training.steps": 5, "model.width": 64, "data.columns": {"text": "body"}})
    assert changed.training.batch_size == recipe.training.batch_size
    assert (
        recipe.changed({"model": {"kind": "gpt"}}).model
        == Recipe.load("lm/lstm", ["model.kind=gpt"]).changed({"model": {"kind": "gpt"}}).model
    )
    with pytest.raises(RecipeError, match=r"training\.stepss"):
        recipe.changed({"training": {"stepss": 5}})


def test_a_vocabulary_size_for_word_pieces_is_not_one_for_words():
    assert Recipe.load("lm/gpt").tokenizer.vocab_size == 1024
    assert Recipe.load("lm/gpt", ["tokenizer.kind=word"]).tokenizer.vocab_size is None
    for overrides in (
        ["tokenizer.kind=word", "tokenizer.vocab_size=50"],
        ["tokenizer.vocab_size=50", "tokenizer.kind=word"],
    ):
        assert Recipe.load("lm/gpt", overrides).tokenizer.vocab_size == 50


def test_a_vocabulary_size_in_a_mapping():
    size, word = ("tokenizer.vocab_size", 50), ("tokenizer.kind", "word")
    for changes in ([size, word], [word, size]):
        tokenizer = Recipe.load("lm/gpt").changed(dict(changes)).tokenizer
        assert (tokenizer.kind, tokenizer.vocab_size) == ("word", 50)
    with pytest.raises(RecipeError, match="5 is not a key"):
        Recipe.load("lm/gpt").changed({5: 3})  # type: ignore[dict-item]


class Own:
    """Stands for a class of a person's own."""


def test_a_class_may_be_registered_again_but_not_another_one():
    family, name = "cell", "own-of-test-recipe"
    registry.register(family, name, Own)
    again = type("Own", (), {"__module__": Own.__module__})
    registry.register(family, name, again)
    assert registry.find(family, name) is again
    with pytest.raises(RecipeError, match="is taken"):
        registry.register(family, name, type("Another", (), {"__module__": Own.__module__}))
    with pytest.raises(RecipeError, match="is taken"):
        registry.register(family, "lstm", Own)
    with pytest.raises(RecipeError, match="no family 'cells'"):
        registry.register("cells", name, Own)
    with pytest.raises(RecipeError, match="3 is not a class"):
        registry.register(family, name, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("time", "value"), [("45s", 45), ("3m", 180), ("1h", 3600), ("90", 90), ("1.5 m", 90)])
def test_times(time, value):
    assert seconds(time) == value


VALUES = {
    "training.steps": st.integers(1, 10**12),
    "training.learning_rate": st.floats(1e-9, 1e3),
    "training.seed": st.integers(0, 2**63 - 1),
    "training.precision": st.sampled_from(["float32", "bfloat16"]),
    "training.clip_norm": st.none() | st.floats(0.01, 10),
    "training.optimizer.kind": st.sampled_from(["sgd", "adam", "muon"]),
    "training.average": st.none() | st.floats(0, 0.999),
    "data.train": st.text(min_size=1) | st.lists(st.text(min_size=1)),
    "data.hold_out": st.floats(0.01, 0.99),
    "decoding.prompt": st.text(),
    "name": st.text(),
    "environment": st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=3),
}


@given(st.fixed_dictionaries({}, optional=VALUES), st.sampled_from(shipped()))
@settings(deadline=None, max_examples=60)
def test_saving_and_loading_is_the_identity(tmp_path_factory, changes, name):
    recipe = Recipe.load(name).changed(changes)
    path = tmp_path_factory.getbasetemp() / "identity.yaml"
    path.write_text(recipe.to_yaml(), encoding="utf-8", newline="")
    assert Recipe.load(path) == recipe


# ------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("trainin.steps=3", ["command line, trainin.steps=3", "unknown key 'trainin'", "did you mean 'training'?"]),
        ("training.step=3", ["command line, training.step=3", "'training.step'", "did you mean 'steps'?"]),
        ("model.widht=3", ["'model.widht'", "did you mean 'width'?"]),
        ("training.optimizer.weight_deca=1", ["'training.optimizer.weight_deca'", "did you mean 'weight_decay'?"]),
        ("model.kind=gtp", ["unknown model 'gtp'", "did you mean 'gpt'?", "recurrent"]),
        ("model=gtp", ["command line, model=gtp", "unknown model 'gtp'"]),
        ("training.optimizer=sdg", ["unknown optimizer 'sdg'", "did you mean 'sgd'?"]),
        ("training.schedule.kind=cosin", ["unknown schedule 'cosin'", "did you mean 'cosine'?"]),
        ("tokenizer=charcter", ["unknown tokenizer 'charcter'", "did you mean 'character'?"]),
        ("task=translate", ["unknown task 'translate'", "language-modelling"]),
        ("training.steps=-3", ["command line, training.steps=-3", "'training.steps' is -3", "greater than 0"]),
        ("training.steps=0", ["greater than 0"]),
        ("training.steps=many", ["'many'", "whole number"]),
        ("training.steps=1.5", ["1.5", "whole number"]),
        ("training.steps=[1]", ["[1]", "whole number"]),
        ("training.learning_rate=fast", ["'fast'", "should be a number"]),
        ("training.learning_rate=inf", ["finite"]),
        ("training.learning_rate=.nan", ["'training.learning_rate' is nan"]),
        ("training.seed=99999999999999999999", ["'training.seed' is too large"]),
        ("training.budget=soon", ["'soon'", "45s"]),
        ("training.budget=0s", ["45s"]),
        ("training.budget=0", ["45s"]),
        ("training.budget=-3", ["45s"]),
        ("training.device=gpu", ["'gpu'", "auto, cpu, mps, cuda"]),
        ("training.precision=half", ["'float32' or 'bfloat16'"]),
        ("training.optimizer=[]", ["'training.optimizer' needs a kind", "adamw"]),
        ("training=5", ["'training' is 5", "section with keys"]),
        ("training.steps.more=5", ["'steps' in 'training.steps.more' has no keys of its own"]),
        ("data=text.txt", ["'data' is 'text.txt'", "section with keys"]),
        ("data={}", ["'data.train' is missing"]),
        ("data.train=5", ["'data.train' is 5", "text", "quotes"]),
        ("data.format=cvs", ["'csv'"]),
        ("data.hold_out=1", ["less than 1"]),
        ("data.columns.text=[5]", ["'data.columns.text' is [5]"]),
        ("data.columns.text=true", ["'data.columns.text' is True"]),
        ("model=null", ["'model'"]),
        ("model.heads=5", ["command line, model.heads=5", "'model'", "width 32 is not a multiple of heads 5"]),
        ("training.steps=!!python/object:os.system 3", ["whole number"]),
        ("steps", ["'steps' is not an override", "key.sub=value"]),
        ("=3", ["is not an override"]),
        ("training..steps=3", ["is not an override"]),
        (".=", ["is not an override"]),
    ],
)
def test_a_wrong_override_says_what_and_where(small, override, parts):
    message = fault(small, override)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("name:", "nmae:"), ["given.yaml, line 1", "unknown key 'nmae'", "did you mean 'name'?"]),
        (("  width:", "  widht:"), ["given.yaml, line 7", "'model.widht'", "did you mean 'width'?"]),
        (("window:", "windw:"), ["given.yaml, line 2", "'task.windw'", "did you mean 'window'?"]),
        (("optimizer: sgd", "optimizer: {kind: sgd, decay: 1}"), ["line 12", "'training.optimizer.decay'"]),
        (("sgd", "sdg"), ["given.yaml, line 12", "unknown optimizer 'sdg'"]),
        (("kind: gpt", "kind: gtp"), ["given.yaml, line 6", "unknown model 'gtp'"]),
        (("steps: 10", "steps: ten"), ["given.yaml, line 11", "'training.steps' is 'ten'"]),
        (("steps: 10", "steps: -10"), ["given.yaml, line 11", "-10"]),
        (("heads: 2", "heads: 5"), ["given.yaml, line 5", "not a multiple"]),
        (("  heads: 2", "  width: 2"), ["given.yaml, line 8", "'model.width' appears twice"]),
        (("objective:", "name:"), ["given.yaml, line 9", "'name' appears twice"]),
        (("objective: {kind: next-token}\n", ""), ["'objective' is missing"]),
        (("data: {train: text.txt}", "data: {hold_out: 0.1}"), ["given.yaml, line 3", "'data.train' is missing"]),
        (("data: {train: text.txt}", "data:"), ["given.yaml, line 3", "'data'"]),
        (("name: small", "name: [small"), ["given.yaml, line 2", "invalid YAML"]),
        (("name: small", "name: 'small"), ["given.yaml, line", "invalid YAML"]),
        (("  width", "\twidth"), ["given.yaml, line 7", "invalid YAML"]),
        (("name: small", "name: !!python/object/apply:os.getcwd []"), ["line 1", "plain data: remove the tag"]),
        (("name: small", "name: !mine small"), ["line 1", "remove the tag"]),
        (("name: small", "name: \0"), ["given.yaml, line 1", "invalid YAML"]),
        (("name: small", "name: 2020-99-99"), ["given.yaml", "quotes"]),
        (("name: small", "name: " + "[" * 5000), ["given.yaml", "invalid YAML"]),
        (("name: small", "name: &a small\nabout: *a"), ["line 2", "write out"]),
        (("name: small", "5: small"), ["line 1", "unknown key '5'"]),
        (("name: small", "? [a, b]\n: small"), ["line 1", "invalid YAML"]),
    ],
)
def test_a_wrong_file_says_what_and_where(tmp_path, change, parts):
    assert change[0] in SMALL
    message = fault(written(tmp_path, SMALL.replace(*change)))
    for part in parts:
        assert part in message


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n- b\n", "hello", "5", "null"])
def test_what_is_no_mapping_is_no_recipe(tmp_path, text):
    assert "a recipe must be a mapping of sections" in fault(written(tmp_path, text))


def test_recipes_that_cannot_be_read(tmp_path):
    assert "not UTF-8 text (byte 1)" in fault(written(tmp_path, b"a\xff"))
    assert "did you mean 'lm/gpt'?" in fault("lm/gtp")
    assert "no recipe" in fault(tmp_path)
    assert "too long" in fault("a" * 5000)
    assert "two" not in fault(written(tmp_path, "a: b\n---\nc: d\n"))


def test_tags_are_never_run(tmp_path):
    mark = tmp_path / "ran"
    fault(written(tmp_path, f"name: !!python/object/apply:os.mkdir ['{mark}']\n"))
    fault("lm/gpt", f"training.steps=!!python/object/apply:os.mkdir ['{mark}']")
    assert not mark.exists()


KEYS = [*flatten(Recipe.load("lm/gpt").to_dict()), *flatten(Recipe.load("lm/lstm").to_dict()), "model.cell", "model"]
NOISE = st.text(max_size=12) | st.sampled_from(
    ["null", "[]", "{}", "{kind: sgd}", "1e9", "-1", "~", "!!set", "&a [*a]"]
)


@given(st.lists(st.builds("{}={}".format, st.sampled_from(KEYS) | st.text(max_size=8), NOISE) | st.text(), max_size=3))
@settings(deadline=None, max_examples=300)
def test_any_override_gives_a_recipe_or_a_seqlab_error(overrides):
    with suppress(SeqlabError):
        recipe = Recipe.load("lm/lstm", overrides)
        assert Recipe.from_dict(recipe.to_dict()) == recipe


@given(st.text(max_size=60) | st.binary(max_size=40))
@settings(deadline=None, max_examples=200)
def test_any_file_gives_one_line(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "noise.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    with pytest.raises(SeqlabError) as caught:
        Recipe.load(path)
    assert "\n" not in str(caught.value)


# -------------------------------------------------------------------- speed


def test_names_are_checked_without_torch():
    code = """
import sys
from seqlab.errors import RecipeError
from seqlab.recipe import Recipe
for override in ["model.kind=gtp", "model=gtp", "tokenizer=bit", "training.optimizer=sdg", "modle.width=3",
                 "training.step=3", "training.schedule.kind=x", "task.kind=x"]:
    try:
        Recipe.load("lm/gpt", [override])
    except RecipeError:
        continue
    raise SystemExit(f"{override} passed")
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_key_of_a_recipe_is_a_word_that_yaml_reads_as_something_else():
    """`on: [...]` would be `true: [...]`."""
    from seqlab import recipe, registry

    sections = [recipe.Recipe, recipe.DataSettings, recipe.TrainingSettings, recipe.DecodingSettings]
    sections += [recipe.InitSettings, recipe.AdapterSettings]
    sections += [
        settings
        for family in registry.FAMILIES
        for name in registry.FAMILIES[family]
        if (settings := getattr(registry.find(family, name), "Settings", None)) is not None
    ]
    keys = {key for section in sections for key in section.model_fields}
    assert len(keys) > 100
    assert keys == {yaml.safe_load(key) for key in keys}
