"""Vocabularies that others published, with the ids they have there: GPT-2's, BERT's, SentencePiece's.

Read are, in a folder as people download it,

    *.model                                      SentencePiece
    tokenizer.json                               GPT-2's and BERT's kind
    vocab.json + merges.txt                      GPT-2 (also under their first names, encoder.json + vocab.bpe)
    vocab.txt, tokenizer_config.json if there    BERT, lower-casing unless that says otherwise
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from seqlab.errors import DataError
from seqlab.tokenizers.tokenizer import FILE, Tokenizer

T = TypeVar("T", bound=Tokenizer)

GPT2_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
MODEL_FILES = ("sentencepiece.model", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model")


def load_published(folder: str | os.PathLike[str], wanted: type[T]) -> T:
    """The vocabulary in a folder (or in a `.model` file) as a tokenizer of the kind that is wanted."""
    place = Path(folder).expanduser()
    found = read_published(place)
    if found is None:
        hint = "give a folder with vocab.txt, with vocab.json and merges.txt, or with tokenizer.json; or a .model file"
        raise DataError("no published vocabulary here", where=str(place), hint=hint)
    if not isinstance(found, wanted):
        hint = f"set tokenizer.kind={found.kind}"
        raise DataError(f"a {found.kind} vocabulary where {wanted.kind} is wanted", where=str(place), hint=hint)
    return found


def read_published(folder: Path) -> Tokenizer | None:
    """The vocabulary in a folder, whatever its kind; None if there is none."""
    from seqlab.tokenizers.sentencepiece import read_model

    if folder.suffix == ".model" and folder.is_file():
        return read_model(folder)
    for name in MODEL_FILES:
        if (folder / name).is_file():
            return read_model(folder / name)
    if (folder / FILE).is_file():
        return _tokenizer_json(folder / FILE)
    for vocab, merges in GPT2_FILES:
        if (folder / vocab).is_file() and (folder / merges).is_file():
            pairs = [line for line in _text(folder / merges).split("\n") if line and not line.startswith("#version")]
            return _byte_pairs(_json(folder / vocab), pairs, folder / vocab)
    if (folder / "vocab.txt").is_file():
        tokens = _text(folder / "vocab.txt").removesuffix("\n").split("\n")
        config = folder / "tokenizer_config.json"
        return _word_pieces(tokens, _json(config) if config.is_file() else {}, folder / "vocab.txt")
    return None


def _tokenizer_json(path: Path) -> Tokenizer:
    """The one file that holds all: its parts must be those of GPT-2 or of BERT, for others would give other ids."""
    tree = _json(path)
    model, cutting, cleaning = (_section(tree, key) for key in ("model", "pre_tokenizer", "normalizer"))
    added = {entry["content"]: entry["id"] for entry in tree.get("added_tokens") or [] if isinstance(entry, Mapping)}
    vocabulary = {**_section(model, "vocab"), **added}
    kinds = (model.get("type"), cutting.get("type"), cleaning.get("type"))
    if kinds == ("BPE", "ByteLevel", None) and not cutting.get("add_prefix_space") and cutting.get("use_regex", True):
        merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model.get("merges") or []]
        return _byte_pairs(vocabulary, merges, path)
    if kinds == ("WordPiece", "BertPreTokenizer", "BertNormalizer") and cleaning.get("clean_text", True):
        config = {
            "do_lower_case": cleaning.get("lowercase", True),
            "strip_accents": cleaning.get("strip_accents"),
            "tokenize_chinese_chars": cleaning.get("handle_chinese_chars", True),
        }
        return _word_pieces(_in_order(vocabulary, path), config, path)
    parts = ", ".join(str(kind) for kind in kinds if kind)
    hint = "seqlab reads those of GPT-2's kind (BPE, ByteLevel) and of BERT's (WordPiece, BertPreTokenizer)"
    raise DataError(f"a tokenizer of another kind ({parts})", where=str(path), hint=hint)


def _byte_pairs(vocabulary: Mapping[str, int], merges: list[str], path: Path) -> Tokenizer:
    from seqlab.tokenizers.bpe import ByteBPETokenizer

    try:
        return ByteBPETokenizer.from_dict({"tokens": _in_order(vocabulary, path), "merges": merges})
    except ValueError as error:
        raise DataError(f"not the vocabulary of a byte-level BPE ({error})", where=str(path)) from None


def _word_pieces(tokens: list[str], config: Mapping[str, Any], path: Path) -> Tokenizer:
    from seqlab.tokenizers.wordpiece import Cleaning, WordPieceTokenizer

    lowercase, split_cjk = config.get("do_lower_case", True), config.get("tokenize_chinese_chars", True)
    cleaning = Cleaning.of(lowercase, config.get("strip_accents"), split_cjk)
    try:
        return WordPieceTokenizer.from_dict({"tokens": tokens, **asdict(cleaning)})
    except ValueError as error:
        raise DataError(f"not a vocabulary of BERT's kind ({error})", where=str(path)) from None


def _in_order(vocabulary: Mapping[str, int], path: Path) -> list[str]:
    tokens = {index: token for token, index in vocabulary.items()}
    if set(tokens) != set(range(len(vocabulary))):
        raise DataError("the ids of the vocabulary are not 0, 1, 2, ...", where=str(path), hint="download it again")
    return [tokens[index] for index in range(len(tokens))]


def _section(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = tree.get(key)
    return value if isinstance(value, Mapping) else {}


def _json(path: Path) -> Mapping[str, Any]:
    try:
        tree = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON ({error})", where=str(path), hint="download it again") from None
    if not isinstance(tree, Mapping):
        raise DataError("a JSON object {...} is wanted here", where=str(path), hint="download it again")
    return tree


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except UnicodeDecodeError:
        raise DataError("not UTF-8 text", where=str(path), hint="download it again") from None
