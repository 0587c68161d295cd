"""Special tokens by role. They stand for no text: no text is encoded as one, and decoding skips them.

Tokens created here have one name per role. Published vocabularies have other names, and one token may have several
roles: GPT-2's `<|endoftext|>` begins and ends a text, and RoBERTa's `<s>` is both the begin and the class token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from pydantic import Field, field_validator

from seqlab.errors import DataError, RecipeError
from seqlab.recipe import PartSettings

Role = Literal["begin", "end", "pad", "unknown", "mask", "separator", "class"]
ROLES: tuple[Role, ...] = get_args(Role)

END, UNKNOWN = "<end>", "<unk>"
NAMES: Mapping[Role, tuple[str, ...]] = {
    "begin": ("<begin>", "<s>", "<|endoftext|>"),
    "end": (END, "<|endoftext|>", "</s>", "[SEP]"),
    "pad": ("<pad>", "[PAD]"),
    "unknown": (UNKNOWN, "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
    "separator": ("<sep>", "[SEP]", "</s>"),
    "class": ("<cls>", "[CLS]", "<s>"),
}
"""Names of the token of each role: ours first, then those of published vocabularies."""
TWICE: frozenset[tuple[Role, str]] = frozenset({("separator", "</s>"), ("class", "<s>")})
"""Names that have a second role only if there is a mask, as in RoBERTa and BART, but not in T5 and Llama."""
OTHER_NAME = re.compile(r"<[a-z][a-z0-9_]*>")
"""The form of names without a role. A text that contains one is cut at the brackets, so it never becomes a token."""


@dataclass(frozen=True, eq=False)
class Special(Mapping[Role, int]):
    """`special["mask"]` is the id of that role; a vocabulary need not have all roles, but it always has `end`.

    There is no `unknown` if everything can be encoded.
    """

    names: Mapping[int, str]
    """All special tokens, including those without a role."""
    roles: Mapping[Role, int]

    def __getitem__(self, role: Role) -> int:
        return self.roles[role]

    def __iter__(self) -> Iterator[Role]:
        return iter(self.roles)

    def __len__(self) -> int:
        return len(self.roles)

    @property
    def others(self) -> dict[str, int]:
        """Ids by name of the tokens without a role: T5's sentinels, the marks of a dialogue."""
        used = set(self.roles.values())
        return {name: index for index, name in self.names.items() if index not in used}

    def need(self, role: Role) -> int:
        """Return the id of a role; if the vocabulary has none, the error says how to get one."""
        if role not in self.roles:
            hint = f"learn it with tokenizer.special: [{role}], or use a published vocabulary that has one"
            raise RecipeError(f"the tokenizer has no {role} token", where="tokenizer", hint=hint)
        return self.roles[role]


def roles_by_name(names: Mapping[int, str]) -> dict[Role, int]:
    """Infer roles from the names of special tokens; the first name present for each role counts."""
    ids = {name: index for index, name in names.items()}
    has_mask = not ids.keys().isdisjoint(NAMES["mask"])
    found: dict[Role, int] = {}
    for role, known in NAMES.items():
        for name in known:
            if name in ids and role not in found and (has_mask or (role, name) not in TWICE):
                found[role] = ids[name]
    return found


Declarations = Mapping[Role, int | None]
"""Roles that the files of a published vocabulary declare; None: no such token."""


def published_special(
    names: Mapping[int, str], roles: Mapping[Role, int], declared: Declarations
) -> tuple[Special, Declarations]:
    """Combine roles, declared ones before those inferred from names. Also return the declarations that names lack."""
    other = {role: index for role, index in declared.items() if index != roles.get(role)}
    return Special(names, {role: index for role, index in {**roles, **other}.items() if index is not None}), other


def learnt_special(first: int, added: Sequence[str], unknown: bool) -> Special:
    """Return the special tokens of a learnt vocabulary: `<end>` is 0, `<unk>`, if any, is 1, others come after it."""
    own = {0: END, 1: UNKNOWN} if unknown else {0: END}
    names = {**own, **dict(enumerate(added, first))}
    return Special(names, roles_by_name(names))


class TokenizerSettings(PartSettings):
    """Settings shared by all kinds that are trained here."""

    special: list[str] = Field(default=[])
    """Additional special tokens, with ids after the vocabulary: `begin`, `pad`, `mask`, `separator` and `class` by
    role, others by a name such as `<speaker>`. They count towards `vocab_size`."""

    @field_validator("special")
    @classmethod
    def _known(cls, special: list[str]) -> list[str]:
        askable = [role for role in ROLES if role not in ("end", "unknown")]
        taken = {name for names in NAMES.values() for name in names}
        for one in special:
            if one in taken or (one not in askable and not OTHER_NAME.fullmatch(one)):
                raise ValueError(f"'{one}' cannot be requested: give {', '.join(askable)}, or a name like <speaker>")
        if len(set(special)) < len(special):
            raise ValueError("a special token is listed twice")
        return special

    @property
    def added(self) -> list[str]:
        """The names of the additional special tokens."""
        own = {role: names[0] for role, names in NAMES.items()}
        return [own.get(cast(Role, one), one) for one in self.special]

    def room(self, own: int, least: int = 1) -> int | None:
        """Return how many tokens fit beside the `own` special ones of a kind and the additional ones; None: all."""
        size: int | None = getattr(self, "vocab_size", None)
        if size is None:
            return None
        room = size - own - len(self.special)
        if room < least:
            what = f"'vocab_size' {size} is too small, with {own + len(self.special)} special tokens"
            hint = f"make it at least {own + len(self.special) + least}"
            raise DataError(what, where="tokenizer", hint=hint)
        return room


def check_roles(special: Special, *needed: Role) -> None:
    """Check that a vocabulary has an end token and the needed roles, and that no token with a role stands for text."""
    for role in ("end", *needed):
        if role not in special:
            raise ValueError(f"no token has the role '{role}'")
    for role, index in special.items():
        if index not in special.names:
            raise ValueError(f"token {index} has the role '{role}' but stands for text")


# ---------------------------------------------------------------------- saving and loading


def saved_names(added: Sequence[str]) -> dict[str, Any]:
    """Return the entry for `to_dict`; empty without added tokens, so that such files stay as they were."""
    return {"added": list(added)} if added else {}


def read_names(data: Mapping[str, Any]) -> list[str]:
    """Read in `from_dict` what `saved_names` returned."""
    names = data.get("added", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueError("'added' is not a list of names")
    if len({*names, END, UNKNOWN}) < len(names) + 2 or ("added" in data and not names):
        raise ValueError("'added' has a duplicate name, or no names")
    return names


def saved_roles(declared: Declarations) -> dict[str, Any]:
    """Return the entry for `to_dict`: roles that cannot be inferred from names; empty if there are none."""
    return {"special": dict(declared)} if declared else {}


def read_roles(data: Mapping[str, Any]) -> Declarations:
    """Read in `from_dict` what `saved_roles` returned."""
    found = data.get("special", {})
    if not isinstance(found, dict) or ("special" in data and not found) or not found.keys() <= set(ROLES):
        raise ValueError("'special' is not a mapping of roles to ids")
    if not all(index is None or (type(index) is int and index >= 0) for index in found.values()):
        raise ValueError("'special' has a value that is not an id")
    return found
