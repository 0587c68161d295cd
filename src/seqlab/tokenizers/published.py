"""Published vocabularies with their original ids: GPT-2's, BERT's, SentencePiece's.

The files that are read, in a folder as it is downloaded:

    *.model                                      SentencePiece
    tokenizer.json                               GPT-2's and BERT's kind
    vocab.json + merges.txt                      GPT-2 (also under their original names, encoder.json + vocab.bpe)
    vocab.txt, optional tokenizer_config.json    BERT, lower-casing unless the latter says otherwise

`declared` reads the other files in the folder that describe special tokens.
"""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, cast

from seqlab.errors import DataError
from seqlab.tokenizers.declared import Declared, declared_roles, declared_template, read_declared
from seqlab.tokenizers.special import Declarations, saved_names, saved_roles
from seqlab.tokenizers.tokenizer import FILE, Tokenizer

T = TypeVar("T", bound=Tokenizer)

GPT2_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
MODEL_FILES = ("sentencepiece.model", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "spm.model")

AGAIN = "download it again"
REQUIRED: Mapping[tuple[str | None, str], Any] = {
    ("ByteLevel", "use_regex"): True,
    ("WordPiece", "continuing_subword_prefix"): "##",
    ("WordPiece", "max_input_chars_per_word"): 100,
    ("BertNormalizer", "clean_text"): True,
}
"""Required values of settings in the parts of a `tokenizer.json`, if present. Others must be unset: null or false."""
WITHOUT_EFFECT = {
    *("type", "vocab", "merges", "unk_token", "lowercase", "strip_accents", "handle_chinese_chars"),  # checked below
    *("fuse_unk", "byte_fallback", "trim_offsets"),  # all bytes are known, and offsets are our own
}


def load_published(folder: str | os.PathLike[str], wanted: type[T], special: Sequence[str] = ()) -> T:
    """Load the vocabulary in a folder (or in a `.model` file) as a tokenizer of the requested kind.

    It must have the `special` tokens that a recipe requests, because a published vocabulary is used unchanged.
    """
    place = Path(folder).expanduser()
    found = read_published(place)
    if found is None:
        hint = "give a folder with vocab.txt, with vocab.json and merges.txt, or with tokenizer.json; or a .model file"
        raise DataError("no published vocabulary here", where=str(place), hint=hint)
    if not isinstance(found, wanted):
        hint = f"set tokenizer.kind={found.kind}"
        raise DataError(f"is a {found.kind} vocabulary, not {wanted.kind}", where=str(place), hint=hint)
    if missing := [one for one in special if one not in found.special and one not in found.special.others]:
        hint = "leave it out of tokenizer.special, or use another vocabulary"
        raise DataError(f"this vocabulary has no {missing[0]} token", where=str(place), hint=hint)
    return found


def read_published(folder: Path) -> Tokenizer | None:
    """Read the vocabulary in a folder, of any kind; None if there is none."""
    if folder.suffix == ".model" and folder.is_file():
        return _sentence_pieces(folder, Declared())  # a single file: those beside it may belong to another vocabulary
    for name in MODEL_FILES:
        if (folder / name).is_file():
            return _sentence_pieces(folder / name, _declared(folder))
    if (folder / FILE).is_file():
        return _tokenizer_json(folder / FILE)
    for vocab, merges in GPT2_FILES:
        if (folder / vocab).is_file() and (folder / merges).is_file():
            pairs = [line for line in _text(folder / merges).split("\n") if line and not line.startswith("#version")]
            return _vocab_json(folder / vocab, pairs, _declared(folder))
    if (folder / "vocab.txt").is_file():
        return _vocab_txt(folder / "vocab.txt", _declared(folder))
    return None


def _declared(folder: Path) -> Declared:
    others = {name: _json_if_there(folder / name) for name in ("special_tokens_map.json", "added_tokens.json")}
    return read_declared(_json_if_there(folder / "tokenizer_config.json"), others, folder)


def _vocab_json(path: Path, merges: Sequence[Any], declared: Declared) -> Tokenizer:
    vocabulary = _merged(_json(path), declared.tokens, path)
    return _byte_pairs(vocabulary, merges, declared_roles(declared, vocabulary, path), path)


def _sentence_pieces(path: Path, declared: Declared) -> Tokenizer:
    from seqlab.tokenizers.sentencepiece import FILE_NAME, SentencePieceTokenizer, read_model

    plain = read_model(path)
    size = plain.processor.get_piece_size()
    added = declared.beyond(size, path)
    ids = {name: index for index, name in enumerate([*plain.names[:size], *added])}
    data = {FILE_NAME: plain.model, **saved_names(added), **saved_roles(declared_roles(declared, ids, path))}
    try:
        return SentencePieceTokenizer.from_dict(data)
    except ValueError as error:
        raise DataError(f"the declared special tokens are invalid ({error})", where=str(path), hint=AGAIN) from None


def _vocab_txt(path: Path, declared: Declared) -> Tokenizer:
    tokens = _text(path).removesuffix("\n").split("\n")
    tokens += declared.beyond(len(tokens), path)
    roles = declared_roles(declared, {token: index for index, token in enumerate(tokens)}, path)
    return _word_pieces(tokens, _json_if_there(path.parent / "tokenizer_config.json"), roles, path)


def _tokenizer_json(path: Path) -> Tokenizer:
    """Read a file that contains everything. Its parts must be those of GPT-2 or BERT; others would change the ids."""
    tree = _json(path)
    parts = [_section(tree, key, path) for key in ("model", "pre_tokenizer", "normalizer")]
    model, _, cleaning = parts
    kinds = [part.get("type") for part in parts]
    if kinds not in (["BPE", "ByteLevel", None], ["WordPiece", "BertPreTokenizer", "BertNormalizer"]):
        named = ", ".join(str(kind) for kind in kinds if kind) or "its parts are not named"
        hint = "seqlab reads those of GPT-2's kind (BPE, ByteLevel) and of BERT's (WordPiece, BertPreTokenizer)"
        raise DataError(f"is an unsupported kind of tokenizer ({named})", where=str(path), hint=hint)
    for part in parts:
        _refuse_other_settings(part, path)
    vocabulary = _merged(_section(model, "vocab", path), _added(tree, path), path)
    roles = declared_roles(_declared(path.parent), vocabulary, path)
    if model["type"] == "BPE":
        tokenizer = _byte_pairs(vocabulary, _list(model, "merges", path), roles, path)
    else:
        config = {
            "do_lower_case": cleaning.get("lowercase", True),
            "strip_accents": cleaning.get("strip_accents"),
            "tokenize_chinese_chars": cleaning.get("handle_chinese_chars", True),
        }
        tokenizer = _word_pieces(_in_order(vocabulary, path), config, roles, path)
        unknown = tokenizer.token(cast(int, tokenizer.unknown_id))
        if model.get("unk_token", unknown) != unknown:
            raise _not_implemented("unk_token", model["unk_token"], path)
    processor = _section(tree, "post_processor", path)
    tokenizer.declared_template = declared_template(tokenizer, processor, vocabulary, path)
    return tokenizer


def _merged(vocabulary: Mapping[str, Any], added: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Merge a vocabulary with its added tokens, which may already be in it."""
    for token, index in added.items():
        if vocabulary.get(token, index) != index:
            what = f"the added token '{token}' has the id {index}, but {vocabulary[token]} in the vocabulary"
            raise DataError(what, where=str(path), hint=AGAIN)
    return {**vocabulary, **added}


def _refuse_other_settings(part: Mapping[str, Any], path: Path) -> None:
    """Refuse a part whose settings are not implemented here; settings that are missing, null or false are accepted."""
    for key, value in part.items():
        if key in WITHOUT_EFFECT:
            continue
        place = part.get("type"), key
        allowed = value == REQUIRED[place] if place in REQUIRED else not value
        if not allowed:
            raise _not_implemented(key, value, path)


def _not_implemented(key: str, value: Any, path: Path, of: str = "") -> DataError:
    what = f"'{key}' is {reprlib.repr(value)}{of}, which is not implemented: the ids would differ"
    return DataError(what, where=str(path), hint="use a vocabulary of GPT-2's or BERT's kind without it")


def _added(tree: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the tokens beside the vocabulary: special ones, which no text is encoded as."""
    added = {}
    for entry in _list(tree, "added_tokens", path):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), str) or "id" not in entry:
            what = f"{reprlib.repr(entry)} in 'added_tokens' has no 'content' and 'id'"
            raise DataError(what, where=str(path), hint=AGAIN)
        if not entry.get("special", True):
            raise _not_implemented("special", False, path, f" for the added token {reprlib.repr(entry['content'])}")
        added[entry["content"]] = entry["id"]
    return added


def _byte_pairs(vocabulary: Mapping[str, Any], merges: Sequence[Any], roles: Declarations, path: Path) -> Tokenizer:
    from seqlab.tokenizers.bpe import ByteBPETokenizer

    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            what = f"{reprlib.repr(pair)} in the merges is not a pair of tokens"
            raise DataError(what, where=str(path), hint=AGAIN)
    data = {"tokens": _in_order(vocabulary, path), "merges": list(map(" ".join, pairs)), **saved_roles(roles)}
    try:
        return ByteBPETokenizer.from_dict(data)
    except ValueError as error:
        raise DataError(f"not the vocabulary of a byte-level BPE ({error})", where=str(path), hint=AGAIN) from None


def _word_pieces(tokens: list[str], config: Mapping[str, Any], roles: Declarations, path: Path) -> Tokenizer:
    from seqlab.tokenizers.wordpiece import Cleaning, WordPieceTokenizer

    lowercase, split_cjk = config.get("do_lower_case", True), config.get("tokenize_chinese_chars", True)
    cleaning = Cleaning.of(lowercase, config.get("strip_accents"), split_cjk)
    try:
        return WordPieceTokenizer.from_dict({"tokens": tokens, **asdict(cleaning), **saved_roles(roles)})
    except ValueError as error:
        raise DataError(f"not a vocabulary of BERT's kind ({error})", where=str(path), hint=AGAIN) from None


def _in_order(vocabulary: Mapping[str, Any], path: Path) -> list[str]:
    tokens = {index: token for token, index in vocabulary.items() if type(index) is int}
    if set(tokens) != set(range(len(vocabulary))):
        raise DataError("the ids of the vocabulary are not 0, 1, 2, ...", where=str(path), hint=AGAIN)
    return [tokens[index] for index in range(len(tokens))]


def _section(tree: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    """Return the object under a key; a missing one is empty."""
    value = {} if tree.get(key) is None else tree[key]
    if not isinstance(value, Mapping):
        raise DataError(f"'{key}' is {reprlib.repr(value)}, not an object {{...}}", where=str(path), hint=AGAIN)
    return value


def _list(tree: Mapping[str, Any], key: str, path: Path) -> Sequence[Any]:
    value = [] if tree.get(key) is None else tree[key]
    if not isinstance(value, list):
        raise DataError(f"'{key}' is {reprlib.repr(value)}, not a list", where=str(path), hint=AGAIN)
    return value


def _json(path: Path) -> Mapping[str, Any]:
    try:
        tree = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"invalid JSON ({error})", where=str(path), hint=AGAIN) from None
    if not isinstance(tree, Mapping):
        raise DataError("not a JSON object {...}", where=str(path), hint=AGAIN)
    return tree


def _json_if_there(path: Path) -> Mapping[str, Any]:
    return _json(path) if path.is_file() else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except UnicodeDecodeError:
        raise DataError("not UTF-8 text", where=str(path), hint=AGAIN) from None
