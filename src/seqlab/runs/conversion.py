"""Import n-gram models of other programs as runs, and export runs for other programs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import cast

import seqlab
from seqlab.build import build
from seqlab.errors import DataError, RunError
from seqlab.models.arpa import read_arpa, write_arpa
from seqlab.models.ngram import NGram
from seqlab.recipe import Recipe
from seqlab.runs.launch import new_run, write_run
from seqlab.runs.run import Run, load
from seqlab.tasks.language_modelling import LanguageModelling
from seqlab.tokenizers import Tokenizer
from seqlab.tokenizers.special import END
from seqlab.tokenizers.word import WordTokenizer


def ngram_of(run: Run) -> NGram:
    """Return the n-gram model of a run; an error if the run has another kind of model."""
    body = run.objective.body
    if not isinstance(body, NGram):
        what = f"has a model of kind '{run.recipe.model.kind}', not an n-gram"
        raise RunError(what, where=str(run.folder), hint="give a run of lm/ngram")
    return body


def export_arpa(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the n-gram model of a run as an ARPA file, which kenlm, SRILM and others read; `.gz` compresses it."""
    write_arpa(ngram_of(run), spellings(run.tokenizer), Path(path))


def import_arpa(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> Run:
    """Make a run from an ARPA file. Its tokens are the words of the file; its documents are lines."""
    folder = Path(out)
    with new_run(folder):
        _import_arpa(Path(path), folder)
    return load(folder)


def _import_arpa(file: Path, folder: Path) -> None:
    model, words = read_arpa(file, unknown=True)
    word, times = Counter(words).most_common(1)[0]
    if times > 1:
        raise DataError(f"{times} words are spelt '{word}'", where=str(file), hint="rename all but one of them")
    changes = {
        "name": file.name.split(".")[0],
        "about": f"imported from {file.name}",
        "data": {"train": [], "documents": "line"},
        "tokenizer": {"kind": "word", "split": "whitespace"},
        "model": {"kind": "ngram", "order": model.order},
        "environment": {"seqlab": seqlab.__version__},
    }
    recipe = Recipe.load("lm/ngram").changed(changes)
    task = LanguageModelling.restore(recipe, WordTokenizer(words[2:], "whitespace", lowercase=False), {})
    objective = build(recipe, task)
    cast(NGram, objective.body).load_state_dict(model.state_dict())
    write_run(Run(folder, recipe, task, objective, 1))


def spellings(tokenizer: Tokenizer) -> list[str]:
    """Return a unique word per token: its text or, if texts coincide (parts of characters), its display form."""
    ids = range(1, tokenizer.vocab_size)
    texts = [tokenizer.decode([index]) for index in ids]
    return [END, *(texts if len(set(texts)) == len(texts) else map(tokenizer.token, ids))]
