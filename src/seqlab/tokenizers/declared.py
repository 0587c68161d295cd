"""Reads what a published vocabulary declares about its special tokens: roles, additional tokens and a template.

    tokenizer_config.json     cls_token, sep_token, ... as a string or {"content": ...}; added_tokens_decoder; extra_ids
    special_tokens_map.json   the same names
    added_tokens.json         tokens after the vocabulary, by id
    tokenizer.json            post_processor: the special tokens around texts

If nothing is declared, the names of the tokens decide their roles. Declarations that contradict each other or the
vocabulary are errors.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqlab.errors import DataError, RecipeError
from seqlab.tokenizers.special import Declarations, Role
from seqlab.tokenizers.templates import BERT, ROBERTA, Frame, Template
from seqlab.tokenizers.tokenizer import Tokenizer

KEYS: Mapping[str, Role] = {
    "bos_token": "begin",
    "eos_token": "end",
    "pad_token": "pad",
    "unk_token": "unknown",
    "mask_token": "mask",
    "sep_token": "separator",
    "cls_token": "class",
}
LISTS = ("additional_special_tokens", "extra_special_tokens")
MEND = "correct the file that is wrong, or download it again"
FIXED = {"BertProcessing": BERT, "RobertaProcessing": ROBERTA}
ENDS: tuple[tuple[str, Role], ...] = (("cls", "class"), ("sep", "separator"))
PREFERRED: tuple[Role, ...] = ("class", "separator", "end", "begin", "pad", "mask")
"""Roles in the order in which a template prefers them as the name of a token."""


@dataclass
class Declared:
    """Names by role (None: no such token), with the file that declares them; and tokens with their ids."""

    roles: dict[Role, tuple[str | None, Path]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    others: dict[str, Path] = field(default_factory=dict)
    """Names of special tokens without a role."""
    sentinels: int = 0
    """Number of T5's `<extra_id_0>`, ... after the vocabulary, numbered from the end."""

    def beyond(self, size: int, path: Path) -> list[str]:
        """Return the names of the tokens after a vocabulary of this size, in the order of their ids."""
        tokens = {index: name for name, index in self.tokens.items() if index >= size}
        if self.sentinels and not tokens:
            tokens = {size + self.sentinels - 1 - n: f"<extra_id_{n}>" for n in range(self.sentinels)}
        if sorted(tokens) != list(range(size, size + len(tokens))):
            raise DataError("the ids of added tokens do not follow the vocabulary", where=str(path), hint=MEND)
        return [tokens[size + place] for place in range(len(tokens))]


def read_declared(config: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]], folder: Path) -> Declared:
    """Read the declarations in `tokenizer_config.json` and the other files, by name; a missing file is empty."""
    found = Declared()
    path = folder / "tokenizer_config.json"
    _add_roles(found, config, path)
    _add_roles(found, others["special_tokens_map.json"], folder / "special_tokens_map.json")
    for number, entry in _entries(config, path):
        _add_token(found, entry, number, path)
    for name, index in others["added_tokens.json"].items():
        _add_token(found, name, index, folder / "added_tokens.json")
    if type(config.get("extra_ids")) is int:
        found.sentinels = config["extra_ids"]
    return found


def _add_roles(found: Declared, file: Mapping[str, Any], path: Path) -> None:
    for key, role in KEYS.items():
        if key not in file:
            continue
        name, (known, elsewhere) = _name(file[key], key, path), found.roles.get(role, (None, path))
        if name is not None and known is not None and name != known:
            raise DataError(f"'{key}' is '{name}', but '{known}' in {elsewhere.name}", where=str(path), hint=MEND)
        found.roles[role] = (known, elsewhere) if name is None else (name, path)
    for key in LISTS:
        listed = file.get(key) or []
        names = list(listed.values()) if isinstance(listed, Mapping) else listed
        if not isinstance(names, list):
            raise DataError(f"'{key}' is {reprlib.repr(listed)}, not a list", where=str(path), hint=MEND)
        found.others |= {name: path for name in (_name(one, key, path) for one in names) if name}


def _name(value: Any, key: str, path: Path) -> str | None:
    name = value.get("content") if isinstance(value, Mapping) else value
    if name is not None and not isinstance(name, str):
        raise DataError(f"'{key}' is {reprlib.repr(value)}, not the name of a token", where=str(path), hint=MEND)
    return name or None


def _entries(config: Mapping[str, Any], path: Path) -> Iterator[tuple[int, str]]:
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, Mapping):
        raise DataError("'added_tokens_decoder' is not an object {...}", where=str(path), hint=MEND)
    for number, entry in listed.items():
        name = _name(entry, "added_tokens_decoder", path)
        if not number.isdecimal() or name is None:
            raise DataError(f"'{number}' in 'added_tokens_decoder' has no token", where=str(path), hint=MEND)
        if isinstance(entry, Mapping) and not entry.get("special", True):
            what = f"the added token '{name}' is text, which is not implemented: the ids would differ"
            raise DataError(what, where=str(path), hint="use a vocabulary without it")
        yield int(number), name


def _add_token(found: Declared, name: str, index: Any, path: Path) -> None:
    if type(index) is not int or found.tokens.setdefault(name, index) != index:
        what = f"'{name}' has the id {reprlib.repr(index)}"
        other = f", but {found.tokens[name]} elsewhere" if name in found.tokens else ""
        raise DataError(what + other, where=str(path), hint=MEND)


# ---------------------------------------------------------------------- roles and templates for a tokenizer


def declared_roles(declared: Declared, ids: Mapping[str, int], path: Path) -> Declarations:
    """Return the declared roles with ids instead of names.

    A missing end or unknown token is not taken as declared, because the names of the tokens are more reliable.
    """
    for name, index in declared.tokens.items():
        if ids.get(name) != index:
            what = f"the token '{name}' has the id {index} in one file and {ids.get(name, 'none')} in the vocabulary"
            raise DataError(what, where=str(path), hint=MEND)
    for name, place in declared.others.items():
        if name not in ids:
            raise DataError(f"'{name}' is not in the vocabulary", where=str(place), hint=MEND)
    found: dict[Role, int | None] = {}
    for role, (called, place) in declared.roles.items():
        if called is not None and called not in ids:
            raise DataError(f"'{called}' ({role}) is not in the vocabulary", where=str(place), hint=MEND)
        if called is not None or role not in ("end", "unknown"):
            found[role] = None if called is None else ids[called]
    return found


def declared_template(
    tokenizer: Tokenizer, processor: Mapping[str, Any], ids: Mapping[str, int], path: Path
) -> Template | None:
    """Return the template that a `post_processor` declares; None if it has none or equals the default for the roles."""
    try:
        found = _stated(tokenizer, processor, ids, path)
        if found is None:
            return None
        usual, own = Frame(tokenizer.template, tokenizer.special), Frame(found, tokenizer.special)
    except (KeyError, TypeError, ValueError, AttributeError, RecipeError):
        what = "'post_processor' adds tokens in a way that is not implemented"
        raise DataError(what, where=str(path), hint="use a tokenizer.json of GPT-2's or BERT's kind") from None
    return None if _places(usual) == _places(own) else found


def _stated(tokenizer: Tokenizer, processor: Mapping[str, Any], ids: Mapping[str, int], path: Path) -> Template | None:
    kind = processor.get("type")
    if kind == "Sequence":
        parts = (_stated(tokenizer, part, ids, path) for part in processor["processors"])
        return next((part for part in parts if part is not None), None)
    if kind == "TemplateProcessing" and processor["special_tokens"]:
        for name, entry in processor["special_tokens"].items():
            (index,) = entry["ids"]
            _same(name, index, ids, path)
        return Template(*(_line(processor[key], tokenizer, ids) for key in ("single", "pair")))
    if kind not in FIXED:
        return None
    for key, role in ENDS:
        name, index = processor[key]
        _same(name, index, ids, path)
        if tokenizer.special.get(role) != index:
            what = f"'{name}' is the {role} token in 'post_processor', but not elsewhere"
            raise DataError(what, where=str(path), hint=MEND)
    return FIXED[kind]


def _same(name: str, index: int, ids: Mapping[str, int], path: Path) -> None:
    if ids.get(name) != index:
        what = f"'{name}' has the id {index} in 'post_processor' and {ids.get(name, 'none')} in the vocabulary"
        raise DataError(what, where=str(path), hint=MEND)


def _line(places: list[Any], tokenizer: Tokenizer, ids: Mapping[str, int]) -> str:
    words = []
    for place in places:
        ((kind, about),) = place.items()
        name = about["id"]
        if kind == "SpecialToken":
            roles = [role for role in PREFERRED if tokenizer.special.get(role) == ids[name]]
            name = roles[0] if roles else name
        words.append(f"{name}:{about['type_id']}")
    return " ".join(words)


def _places(frame: Frame) -> list[list[tuple[int | str, int]]]:
    return [
        [(slot.name if token is None else token, slot.segment) for slot, token in line]
        for line in (frame.single, frame.pair)
    ]
