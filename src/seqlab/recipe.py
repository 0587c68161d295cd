"""A Recipe says what to train: YAML in, YAML out, `key.sub=value` overrides, and errors that name the line.

Every section is a frozen pydantic model. A section that names a registered class (`model`, `tokenizer`, ...) has a
`kind`; its other keys are that class's own `Settings`.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeGuard, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from seqlab import registry, renamed
from seqlab.errors import RecipeError, nearest
from seqlab.recipe_tree import RecipeTree, settings_of, to_yaml


class Settings(BaseModel):
    """A section of a recipe: frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _named_parts(cls, given: Any) -> Any:
        """Turn `cell="lstm"`, `cell={"kind": "lstm"}` and defaults into the settings of the named class."""
        if not isinstance(given, Mapping):
            return given
        filled = dict(given)
        for name, field in cls.model_fields.items():
            family, value = family_of(field), filled.get(name, field.default)
            if family and _is_list(field) and isinstance(value, list):
                filled[name] = [_settings_by_name(family, one) for one in value]
            elif family:
                filled[name] = _settings_by_name(family, value)
        return {name: value for name, value in filled.items() if value is not PydanticUndefined}


def _settings_by_name(family: str, value: Any) -> Any:
    section = {"kind": value} if isinstance(value, str) else value
    if not isinstance(section, Mapping) or not isinstance(section.get("kind"), str):
        return value
    return registry.find(family, section["kind"]).Settings.model_validate(section)


class PartSettings(Settings):
    """A section that names a registered class by its `kind`; the class defines the other keys."""

    kind: str = ""
    not_inherited: ClassVar[frozenset[str]] = frozenset()
    """Keys whose meaning depends on the kind: they are dropped when a section changes to this one."""


@dataclass(frozen=True)
class Kind:
    """Marks a field that holds the `PartSettings` of one registry family."""

    family: str


ModelSettings = Annotated[SerializeAsAny[PartSettings], Kind("model")]
"""The type of a field for an extra model that an objective owns, such as a teacher: `teacher: ModelSettings`."""
Seconds = Annotated[str, "a time such as 45s, 3m or 1h"]
HoldOutBy = Literal["document", "paragraph", "line", "block", "snippet", "number"]


class DataSettings(Settings):
    """Where the sequences come from."""

    train: str | list[str]
    """A file, a folder, a pattern such as `books/*.txt`, the common stem of aligned files, the name of a built-in data
    set, or a list of these."""
    valid: str | list[str] | None = None
    """The validation data, given in the same way; if null, part of the training data is held out."""
    hold_out: float | None = Field(default=None, gt=0, lt=1)
    """The fraction of the training data to hold out when `valid` is not given. Default: 5 %, but at most 250 kB; for
    series, one fifth."""
    hold_out_by: HoldOutBy | None = None
    """The unit that is held out, chosen by a hash of its content: documents or, in plain text, paragraphs, lines,
    blocks (about 2,000 characters) or snippets (64). If null, it is chosen from the data and recorded in the run.
    `number` is the rule of earlier versions: documents by number, or the end of each text."""
    hold_out_below: float | None = Field(default=None, gt=0, lt=1)
    """The threshold: a unit is held out if its hash, scaled to the range 0 to 1, is below it. Chosen like
    `hold_out_by`."""
    format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet", "npy", "fasta", "conll", "conllu", "aligned"] = (
        "auto"
    )
    """The file format; `auto` goes by each file's extension."""
    documents: Literal["file", "paragraph", "line"] = "file"
    """What counts as one sequence of plain text: a file, a paragraph (separated by empty lines) or a line."""
    empty_lines: bool = False
    """With `documents: line`, whether to keep empty lines as sequences that hold only the end token. Published WikiText
    perplexities count them."""
    columns: dict[str, str | Annotated[int, Field(strict=True)]] = {}
    """Maps each role to a column, a field, the suffix of an aligned file (`source: de`) or a field of a built-in set,
    as in `text: body`. Columns without names are numbered from 0."""
    scramble: float = Field(default=0.0, ge=0, le=1)
    """The fraction of words whose inner letters are shuffled, in all data read: "Aoccdrnig to a rscheearch". In scripts
    without spaces, the fraction of adjacent character pairs that are swapped."""

    @model_validator(mode="after")
    def _lines_that_are_empty(self) -> Self:
        if self.empty_lines and self.documents != "line":
            raise ValueError("empty_lines needs documents: line")
        return self


ProductsName = Literal["auto", "torch", "compiled"]


class TrainingSettings(Settings):
    """How to train."""

    steps: int | None = Field(default=None, gt=0)
    """Total number of optimizer steps. Give either this or `budget`."""
    budget: Seconds | None = None
    """Training time; a short measurement converts it to `steps`."""
    batch_size: int = Field(default=32, gt=0)
    """Sequences per batch."""
    accumulate: int = Field(default=1, gt=0)
    """Number of pieces each batch is split into to save memory; the result is that of the whole batch."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """The peak learning rate of the schedule."""
    optimizer: Annotated[SerializeAsAny[PartSettings], Kind("optimizer")] = Field(
        default="adamw", validate_default=False
    )  # type: ignore[assignment]
    """How gradients update the weights."""
    schedule: Annotated[SerializeAsAny[PartSettings], Kind("schedule")] = Field(
        default="cosine", validate_default=False
    )  # type: ignore[assignment]
    """How the learning rate changes over the steps."""
    clip_norm: float | None = Field(default=1.0, gt=0)
    """The maximum norm of the gradients; larger ones are scaled down. Null disables clipping."""
    clip_value: float | None = Field(default=None, gt=0)
    """Clips each gradient component to ± this value."""
    average: float | None = Field(default=None, ge=0, lt=1)
    """The decay of a running average of the weights, such as 0.999. Evaluations, samples and checkpoints use the
    average."""
    report_every: int | None = Field(default=None, gt=0)
    """Steps between lines of the log; by default, 1/200 of the run."""
    evaluate_every: int | None = Field(default=None, gt=0)
    """Steps between evaluations; by default, 1/8 of the run."""
    sample_every: int | None = Field(default=None, gt=0)
    """Steps between samples; by default, the same as evaluations."""
    checkpoint_every: int | None = Field(default=None, gt=0)
    """Steps between checkpoints; by default, the same as evaluations."""
    keep: int = Field(default=2, gt=1)
    """Number of most recent checkpoints to keep, besides the best one."""
    patience: int | None = Field(default=None, gt=0)
    """Number of evaluations without improvement after which training stops early."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the forward and backward pass; weights and optimizer states are always float32."""
    products: ProductsName = "auto"
    """What computes linear maps on the CPU in float32: torch, kernels compiled for this machine, or whichever was
    measured to be faster for a map's size. They round differently. The run records the choice, and keeps it when it is
    resumed."""
    compile: bool = False
    """Whether to use torch.compile: after some seconds of compilation, what lies between matrix products is faster,
    with slightly different rounding. The products are then torch's (see `products`). Needs a C++ compiler."""
    seed: int = Field(default=0, ge=0)
    """The random seed of weights, data order, dropout and samples: the same seed gives identical bits."""
    device: str = "auto"
    """auto, cpu, mps, cuda or a numbered GPU such as cuda:1. auto prefers a GPU."""
    tensorboard: bool = False
    """Whether to write TensorBoard event files as well; may be changed when a run is resumed."""

    @field_validator("budget", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> Any:
        if value is not None:
            seconds(value)
        return str(value) if isinstance(value, int | float) else value

    @field_validator("device")
    @classmethod
    def _known(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", value):
            raise ValueError("should be auto, cpu, mps, cuda or a numbered GPU such as cuda:1")
        return value


class DecodingSettings(Settings):
    """How to choose tokens, unless the command overrides it."""

    tokens: int = Field(default=200, gt=0)
    """The maximum number of tokens to generate."""
    temperature: float = Field(default=0.8, ge=0)
    """Divides the logits before sampling; 0 is greedy."""
    top_k: int | None = Field(default=None, gt=0)
    """Sample from the k most probable tokens."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Sample from the most probable tokens whose probabilities add up to p."""
    prompt: str = ""
    """The text that samples during training start with."""
    beam: int | None = Field(default=None, gt=0)
    """Beam size, for tasks that generate texts; null for greedy decoding."""
    length_penalty: float = 0.6
    """α of Wu et al. 2016: 0 ranks hypotheses by log-probability alone; larger values favour longer ones."""
    coverage_penalty: float = Field(default=0.0, ge=0)
    """β of Wu et al. 2016: the penalty for source positions that a hypothesis ignores."""
    best: int = Field(default=1, gt=0)
    """Number of answers that a search returns."""
    alignments: bool = False
    """Whether to report, for each token of an answer, the source token it attended to most."""


class AdapterSettings(Settings):
    """Low-rank adapters (LoRA): updates W + α / r · B A of linear maps, trained instead of the body."""

    rank: int = Field(default=8, gt=0)
    """The rank r."""
    alpha: float | None = Field(default=None, gt=0)
    """The scale α; r by default."""
    maps: list[str] = Field(default=["*.query", "*.value"], min_length=1)
    """Names of linear maps in the body, or patterns such as `*.query` or `body.blocks.3.feed`."""

    @property
    def scale(self) -> float:
        """α / r"""
        return (self.alpha or self.rank) / self.rank


_From = create_model("_From", __base__=Settings, **{"from": (str, Field())})  # type: ignore[call-overload]


class InitSettings(_From):
    """The initial weights: those of the run that `from` names, whose tokenizer is used as well."""

    load: str | dict[str, str] = "body"
    """What to load: `body`, `all`, names such as `body.encoder` or `body.blocks.*`, or a mapping from the run's names
    to this model's, {body: body.encoder}."""
    freeze: list[str] = Field(default_factory=list)
    """Names of weights or modules that are not trained, or patterns."""
    adapters: AdapterSettings | None = None
    """Adapters to train; all other weights of the body are frozen."""

    @property
    def run(self) -> str:
        return str(getattr(self, "from"))


class Recipe(Settings):
    """What to train, on what, and how."""

    name: str = ""
    about: str = ""
    task: Annotated[SerializeAsAny[PartSettings], Kind("task")]
    """What the model is for."""
    data: DataSettings
    tokenizer: Annotated[SerializeAsAny[PartSettings] | None, Kind("tokenizer")] = None
    """Null for tasks that read numbers."""
    model: Annotated[SerializeAsAny[PartSettings], Kind("model")]
    """The body to train."""
    objective: Annotated[SerializeAsAny[PartSettings], Kind("objective")]
    """What to minimise."""
    init: InitSettings | None = None
    """Null to initialise the weights from the seed."""
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    decoding: DecodingSettings = Field(default_factory=DecodingSettings)
    environment: dict[str, Any] = {}
    """Recorded in a run: the versions and number of threads it ran with."""

    @classmethod
    def load(cls, recipe: str | os.PathLike[str], overrides: Mapping[str, Any] | Iterable[str] = ()) -> Self:
        """Load a shipped recipe by name (`lm/gpt`), a YAML file, or that of a run, with overrides as in `changed`.

        If the recipe of a run gets another number of steps, how often to report and to evaluate is derived anew.
        """
        tree = RecipeTree.load(recipe)
        before = _duration(tree)
        _apply(overrides, tree)
        if tree.data.get("environment") and _duration(tree) != before:
            for name in ON_A_GRID:
                if f"training.{name}" not in tree.overridden:
                    tree.data["training"].pop(name, None)
        return cls.of(tree)

    @classmethod
    def of(cls, tree: RecipeTree) -> Self:
        """Return a checked recipe; errors name the places that the tree knows."""
        return _checked(cls, tree)

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> Self:
        """Return a checked recipe from plain data."""
        return _checked(cls, RecipeTree(tree))

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        return to_yaml(self.to_dict())

    def changed(self, overrides: Mapping[str, Any] | Iterable[str]) -> Self:
        """Return a copy with some keys changed: {"training.steps": 5}, {"training": {"steps": 5}} or
        ["training.steps=5"]. A section that names its `kind` is replaced as a whole. Changes apply in their order."""
        tree = RecipeTree(self.to_dict())
        _apply(overrides, tree)
        return _checked(type(self), tree)


ON_A_GRID = ("report_every", "evaluate_every", "sample_every", "checkpoint_every")
"""Keys of `training` that a run fills in if its recipe leaves them out; they depend on the number of steps."""


def _duration(tree: RecipeTree) -> tuple[Any, Any]:
    training = tree.data.get("training")
    return (training.get("steps"), training.get("budget")) if isinstance(training, dict) else (None, None)


def _apply(overrides: Mapping[str, Any] | Iterable[str], tree: RecipeTree) -> None:
    if isinstance(overrides, Mapping):
        for key, value in single_keys(overrides):
            tree.set(key, value)
    else:
        for override in overrides:
            tree.override(override)


def single_keys(changes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """{'training': {'steps': 5}} → ('training.steps', 5); sections that name their kind stay whole."""
    if odd := [key for key in changes if not isinstance(key, str)]:
        raise RecipeError(f"{odd[0]!r} is not a key", hint="write section.key, such as training.steps")
    return _apart(Recipe, changes)


def _apart(cls: type[Settings], changes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in changes.items():
        field = cls.model_fields.get(key)
        if field is None or not isinstance(value, Mapping) or "kind" in value:
            yield key, value
        elif family_of(field):
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        elif _is_section(field.annotation):
            yield from ((f"{key}.{name}", inner) for name, inner in _apart(field.annotation, value))
        else:
            yield key, value


def models_in(settings: Settings) -> dict[str, PartSettings]:
    """Return the settings of the models that a section names, by key."""
    named = [name for name, field in type(settings).model_fields.items() if family_of(field) == "model"]
    return {name: getattr(settings, name) for name in named if isinstance(getattr(settings, name), PartSettings)}


def seconds(time: str) -> float:
    """'45s' → 45, '3m' → 180, '1h' → 3600, '90' → 90."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", str(time))
    if not match or float(match[1]) <= 0:
        raise ValueError("write a time as 45s, 3m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'a': {'b': 1}} → {'a.b': 1}"""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def part_settings(family: str, section: RecipeTree) -> PartSettings:
    """Return the settings of one part on its own, such as a tokenizer trained separately."""
    settings: type[PartSettings] = settings_of(family, str(section.data["kind"]), section.place("kind"))
    return _build(settings, section.data, section)


# ------------------------------------------------------------------- validating

S = TypeVar("S", bound=Settings)

MEANING = {
    "int": "should be a whole number",
    "float": "should be a number",
    "bool": "should be true or false",
    "string": "should be text (put it in quotes)",
    "dict": "should be a section with keys",
    "model": "should be a section with keys",
    "tuple": "should be a list",
}
"""What the value should be, by the first word of pydantic's error type."""


def _checked(cls: type[S], tree: RecipeTree) -> S:
    tree.data = renamed.recipe(tree.data)
    _check_names(cls, tree.data, tree)
    return _build(cls, tree.data, tree)


def _check_names(cls: type[Settings], section: Mapping[str, Any], tree: RecipeTree, path: str = "") -> None:
    """Check the keys and kinds of all sections first, without importing the classes they name."""
    for key in section:
        if key not in cls.model_fields:
            raise _unknown(f"{path}{key}", str(key), cls, tree)
    for name, field in cls.model_fields.items():
        given = section.get(name)
        if family := family_of(field):
            kind = given.get("kind") if isinstance(given, Mapping) else given
            if isinstance(kind, str) and kind not in registry.names(family):
                registry.find(family, kind, tree.place(f"{path}{name}.kind"))
        elif _is_section(field.annotation) and isinstance(given, Mapping):
            _check_names(field.annotation, given, tree, f"{path}{name}.")


def _build(cls: type[S], section: Mapping[str, Any], tree: RecipeTree, path: str = "") -> S:
    """Build settings from plain data; sections with a `kind` become the settings of that class."""
    filled = dict(section)
    for key, value in filled.items():
        if isinstance(value, int) and abs(value) >= 2**63:
            where, hint = tree.place(f"{path}{key}"), "use at most 9,223,372,036,854,775,807 (64 bits)"
            raise RecipeError(f"'{path}{key}' is too large", where=where, hint=hint)
    for name, field in cls.model_fields.items():
        if family := family_of(field):
            given = filled.get(name, field.default if isinstance(field.default, str | dict) else None)
            if _is_list(field) and isinstance(given, list):
                filled[name] = [_part(family, one, tree, f"{path}{name}.{n}") for n, one in enumerate(given)]
            elif given is not None:
                filled[name] = _part(family, given, tree, f"{path}{name}")
        elif _is_section(field.annotation):
            inner = filled.get(name, None if field.is_required() else {})
            if isinstance(inner, Mapping):
                filled[name] = _build(field.annotation, inner, tree, f"{path}{name}.")
    try:
        return cls.model_validate(filled)
    except ValidationError as error:
        raise _explained(cls, error, tree, path) from None


def family_of(field: FieldInfo) -> str | None:
    return next((mark.family for mark in field.metadata if isinstance(mark, Kind)), None)


def _is_list(field: FieldInfo) -> bool:
    """Return True if the field can hold a list of parts."""
    return any(get_origin(one) is list for one in (field.annotation, *get_args(field.annotation)))


def _is_section(annotation: Any) -> TypeGuard[type[Settings]]:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def _part(family: str, given: Any, tree: RecipeTree, path: str) -> PartSettings:
    section = {"kind": given} if isinstance(given, str) else given
    if not isinstance(section, Mapping) or not isinstance(section.get("kind"), str):
        kinds = ", ".join(registry.names(family))
        raise RecipeError(f"'{path}' needs a kind", where=tree.place(path), hint=f"choose one of {kinds}")
    settings: type[PartSettings] = settings_of(family, section["kind"], tree.place(f"{path}.kind"))
    return _build(settings, section, tree, f"{path}.")


def _explained(cls: type[Settings], error: ValidationError, tree: RecipeTree, path: str) -> RecipeError:
    """Describe the first fault: what is wrong, where, and what would be right."""
    fault = error.errors(include_url=False)[0]
    inside = [str(part) for part in fault["loc"] if part not in ("str", "list[str]")]  # branches of a union
    key = path + ".".join(inside)
    message = fault["msg"].removeprefix("Value error, ").replace("Input should", "should")
    if not inside:  # keys that contradict each other
        section = path.rstrip(".")
        return RecipeError(f"'{section}': {message}", where=tree.last_place(section), hint="change one of them")
    if fault["type"] == "extra_forbidden":
        return _unknown(key, inside[-1], cls, tree)
    if fault["type"] == "missing":
        return RecipeError(f"'{key}' is missing", where=tree.place(key), hint="add it")
    wrong_type = MEANING.get(fault["type"].partition("_")[0]) if fault["type"].endswith(TYPE_FAULTS) else None
    return RecipeError(f"'{key}' is {reprlib.repr(fault['input'])}: {wrong_type or message}", where=tree.place(key))


TYPE_FAULTS = ("_type", "_parsing", "_from_float", "_parsing_size")


def _unknown(key: str, name: str, cls: type[Settings], tree: RecipeTree) -> RecipeError:
    return RecipeError(f"unknown key '{key}'", where=tree.place(key), hint=nearest(name, cls.model_fields))
