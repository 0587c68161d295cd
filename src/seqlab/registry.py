"""The registry of names in recipes. Names are known without importing the classes they refer to.

To add a model, cell, task, ... write a class in a file of its own and add one line here; outside the package, call
`register`. Each class has a `Settings` class: its part of a recipe.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from seqlab.errors import RecipeError, nearest

TASKS = {
    "language-modelling": "seqlab.tasks.language_modelling:LanguageModelling",
    "tagging": "seqlab.tasks.tagging:Tagging",
    "classification": "seqlab.tasks.classification:Classification",
    "tree-classification": "seqlab.tasks.tree_classification:TreeClassification",
    "forecasting": "seqlab.tasks.forecasting:Forecasting",
    "translation": "seqlab.tasks.translation:Translation",
}

TOKENIZERS = {
    "character": "seqlab.tokenizers.character:CharacterTokenizer",
    "byte": "seqlab.tokenizers.byte:ByteTokenizer",
    "word": "seqlab.tokenizers.word:WordTokenizer",
    "bpe": "seqlab.tokenizers.bpe:ByteBPETokenizer",
    "classic-bpe": "seqlab.tokenizers.classic_bpe:ClassicBPETokenizer",
    "wordpiece": "seqlab.tokenizers.wordpiece:WordPieceTokenizer",
    "unigram": "seqlab.tokenizers.unigram:UnigramTokenizer",
    "sentencepiece": "seqlab.tokenizers.sentencepiece:SentencePieceTokenizer",
    "symbols": "seqlab.tokenizers.symbols:SymbolTokenizer",
    "ids": "seqlab.tokenizers.ids:IdTokenizer",
}

MODELS = {
    "ngram": "seqlab.models.ngram:NGram",
    "mlp": "seqlab.models.mlp:MLP",
    "recurrent": "seqlab.models.rnn:RecurrentLanguageModel",
    "convolutional": "seqlab.models.conv:ConvolutionalLanguageModel",
    "gpt": "seqlab.models.gpt:GPT",
    "mixture": "seqlab.models.mixture:Mixture",
    "translator": "seqlab.models.translator:Translator",
    "transformer": "seqlab.models.transformer:Transformer",
    "recurrent-translator": "seqlab.models.recurrent_translator:RecurrentTranslator",
    "convolutional-translator": "seqlab.models.convolutional_translator:ConvolutionalTranslator",
    "recurrent-encoder": "seqlab.models.recurrent_encoder:RecurrentEncoder",
    "transformer-encoder": "seqlab.models.transformer_encoder:TransformerEncoder",
    "deep-encoder": "seqlab.models.recurrent_translator:DeepEncoder",
    "convolutional-encoder": "seqlab.models.convolutional_translator:ConvolutionalEncoder",
    "tree-encoder": "seqlab.models.tree_encoder:TreeEncoder",
    "run": "seqlab.models.of_run:OfRun",
    "series-dense": "seqlab.models.forecasters:SeriesDense",
    "series-linear": "seqlab.models.forecasters:SeriesLinear",
    "series-recurrent": "seqlab.models.forecasters:SeriesRecurrent",
    "series-transformer": "seqlab.models.series_transformer:SeriesTransformer",
}

DECODERS = {
    "transformer": "seqlab.models.transformer:TransformerDecoder",
    "recurrent": "seqlab.models.recurrent_translator:RecurrentDecoder",
    "convolutional": "seqlab.models.convolutional_translator:ConvolutionalDecoder",
}

CELLS = {
    "elman": "seqlab.nn.cells:Elman",
    "irnn": "seqlab.nn.cells:IRNN",
    "urnn": "seqlab.nn.cells:UnitaryRNN",
    "memory": "seqlab.nn.cells:Memory",
    "recurrent-memory": "seqlab.nn.cells:RecurrentMemory",
    "gated-memory": "seqlab.nn.cells:GatedMemory",
    "lstm": "seqlab.nn.cells:LSTM",
    "coupled-lstm": "seqlab.nn.cells:CoupledLSTM",
    "peephole-lstm": "seqlab.nn.cells:PeepholeLSTM",
    "gru": "seqlab.nn.cells:GRU",
    "classic-gru": "seqlab.nn.cells:ClassicGRU",
    "mut1": "seqlab.nn.cells:MUT1",
    "mut2": "seqlab.nn.cells:MUT2",
    "mut3": "seqlab.nn.cells:MUT3",
}

ATTENTIONS = {
    "additive": "seqlab.nn.source_attention:Additive",
    "bilinear": "seqlab.nn.source_attention:Bilinear",
    "dot": "seqlab.nn.source_attention:Dot",
    "scaled-dot": "seqlab.nn.source_attention:ScaledDot",
    "separate": "seqlab.nn.source_attention:Separate",
    "uniform": "seqlab.nn.source_attention:Uniform",
}

POSITIONS = {
    "none": "seqlab.nn.positions:Position",
    "learned": "seqlab.nn.positions:Learned",
    "sinusoidal": "seqlab.nn.positions:Sinusoidal",
    "rotary": "seqlab.nn.positions:Rotary",
    "alibi": "seqlab.nn.positions:Alibi",
    "buckets": "seqlab.nn.positions:Buckets",
}

CHARACTERS = {
    "recurrent": "seqlab.nn.characters:RecurrentCharacters",
    "convolutional": "seqlab.nn.characters:ConvolutionalCharacters",
}

OUTPUTS = {
    "softmax": "seqlab.nn.output:Softmax",
    "sampled": "seqlab.nn.output:SampledSoftmax",
    "adaptive": "seqlab.nn.output:AdaptiveSoftmax",
}

OBJECTIVES = {
    "next-token": "seqlab.objectives.next_token:NextToken",
    "tags": "seqlab.objectives.tags:Tags",
    "fed-back-tags": "seqlab.objectives.feedback:FedBackTags",
    "classes": "seqlab.objectives.classes:Classes",
    "node-classes": "seqlab.objectives.classes:NodeClasses",
    "forecast": "seqlab.objectives.forecast:Forecast",
}

OPTIMIZERS = {
    "sgd": "seqlab.training.optimizers:SGD",
    "momentum": "seqlab.training.optimizers:Momentum",
    "nesterov": "seqlab.training.optimizers:Nesterov",
    "rmsprop": "seqlab.training.optimizers:RMSProp",
    "adam": "seqlab.training.optimizers:Adam",
    "adamw": "seqlab.training.optimizers:AdamW",
    "muon": "seqlab.training.optimizers:Muon",
}

SCHEDULES = {
    "constant": "seqlab.training.schedules:Constant",
    "linear": "seqlab.training.schedules:Linear",
    "inverse-sqrt": "seqlab.training.schedules:InverseSquareRoot",
    "cosine": "seqlab.training.schedules:Cosine",
}

STUDIES = {
    "trainings": "seqlab.studies.trainings:Trainings",
    "bptt": "seqlab.studies.bptt_by_hand:BPTT",
}

METRICS = {
    "bleu": "seqlab.metrics.bleu:BLEU",
    "chrf": "seqlab.metrics.bleu:ChrF",
    "chrf++": "seqlab.metrics.bleu:ChrFPlusPlus",
    "ter": "seqlab.metrics.bleu:TER",
    "rouge-1": "seqlab.metrics.rouge:ROUGE1",
    "rouge-2": "seqlab.metrics.rouge:ROUGE2",
    "rouge-l": "seqlab.metrics.rouge:ROUGEL",
    "meteor": "seqlab.metrics.meteor:METEOR",
    "wer": "seqlab.metrics.edits:WER",
    "cer": "seqlab.metrics.edits:CER",
    "exact": "seqlab.metrics.edits:ExactMatch",
}

FAMILIES: dict[str, dict[str, str]] = {
    "task": TASKS,
    "tokenizer": TOKENIZERS,
    "model": MODELS,
    "decoder": DECODERS,
    "cell": CELLS,
    "attention": ATTENTIONS,
    "position": POSITIONS,
    "characters": CHARACTERS,
    "output": OUTPUTS,
    "objective": OBJECTIVES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "study": STUDIES,
    "metric": METRICS,
}

KEYS = {
    "task": "task",
    "tokenizer": "tokenizer",
    "model": "model",
    "decoder": "model.decoder",
    "cell": "model.cell",
    "attention": "model.attention",
    "position": "model.position",
    "output": "model.output",
    "objective": "objective",
    "metric": "task.best",
    "optimizer": "training.optimizer",
    "schedule": "training.schedule",
}
"""The key of a recipe that usually names a member of a family."""

_given: dict[tuple[str, str], type] = {}


def register(family: str, name: str, cls: type) -> None:
    """Register a custom class under a name that recipes can use.

    A class may be defined again: in a notebook, or where a file registers it as a program and again through `--code`.
    """
    if family not in FAMILIES:
        raise RecipeError(f"no family '{family}'", hint=nearest(family, sorted(FAMILIES)))
    if not isinstance(cls, type):
        raise RecipeError(f"{cls!r} is not a class", where=f"{family} '{name}'", hint="register the class itself")
    other = _given.get((family, name), cls)
    if name in FAMILIES[family] or _origin(other) != _origin(cls):
        by = "a class of seqlab" if name in FAMILIES[family] else " in ".join(reversed(_origin(other)))
        raise RecipeError(f"the {family} name '{name}' is taken by {by}", hint="choose another name")
    if left_out := sorted(getattr(cls, "__abstractmethods__", ())):
        raise RecipeError(f"{cls.__name__} lacks {', '.join(left_out)}", where=f"{family} '{name}'", hint="define them")
    _given[family, name] = cls


def own(name: object) -> bool:
    """Whether a name is that of a custom class."""
    return any(name == given for _, given in _given)


def own_names() -> list[tuple[str, str]]:
    """Return the family and the name of each class that was registered from outside."""
    return sorted(_given)


def own_classes() -> list[type]:
    """Return the classes that were registered from outside."""
    return list(_given.values())


def is_own(cls: type) -> bool:
    """Whether a class was registered from outside."""
    return cls in _given.values()


def _origin(cls: type) -> tuple[str, str]:
    """The file and the name of a class."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return os.path.abspath(file or cls.__module__), cls.__qualname__


def names(family: str) -> list[str]:
    return sorted([*FAMILIES[family], *(name for kin, name in _given if kin == family)])


def elsewhere(name: str) -> str:
    """Return a hint for a name that is valid in other families, and the key of a recipe that takes it there; or ''."""
    found = [family for family in KEYS if name in names(family)]
    each = [f"{'an' if family[0] in 'ao' else 'a'} {family} ({KEYS[family]}={name})" for family in found]
    return f"'{name}' is {' or '.join(each)}" if each else ""


def find(family: str, name: str, where: str | None = None) -> Any:
    """Import and return the class that a name refers to."""
    if (family, name) in _given:
        return _given[family, name]
    if name not in FAMILIES[family]:
        own = "" if _given else "; a class of your own needs --code FILE"
        hint = elsewhere(name) or nearest(name, names(family)) + own
        raise RecipeError(f"unknown {family} '{name}'", where=where, hint=hint)
    module, _, attribute = FAMILIES[family][name].partition(":")
    return getattr(importlib.import_module(module), attribute)
