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
"""What a token of each role is called: here, then in published vocabularies."""
TWICE: frozenset[tuple[Role, str]] = frozenset({("separator", "</s>"), ("class", "<s>")})
"""These names have a second role only beside a mask, as in RoBERTa and BART; in T5 and Llama they have not."""
OTHER_NAME = re.compile(r"<[a-z][a-z0-9_]*>")
"""Of tokens without a role: a text with one of them is cut at the brackets, so that no token is ever learnt of it."""


@dataclass(frozen=True, eq=False)
class Special(Mapping[Role, int]):
    """`special["mask"]` is the id of that role; a vocabulary need not have all roles, but it always has `end`.

    There is no `unknown` if everything can be encoded.
    """

    names: Mapping[int, str]
    """All special tokens, those without a role too."""
    roles: Mapping[Role, int]

    def __getitem__(self, role: Role) -> int:
        return self.roles[role]

    def __iter__(self) -> Iterator[Role]:
        return iter(self.roles)

    def __len__(self) -> int:
        return len(self.roles)

    @property
    def others(self) -> dict[str, int]:
        """Ids by name of those without a role: T5's sentinels, the marks of a dialogue."""
        used = set(self.roles.values())
        return {name: index for index, name in self.names.items() if index not in used}

    def need(self, role: Role) -> int:
        """The id of a role; where the vocabulary has none, the error says how to get one."""
        if role not in self.roles:
            hint = f"learn it with tokenizer.special: [{role}], or use a published vocabulary that has one"
            raise RecipeError(f"the tokenizer has no {role} token", where="tokenizer", hint=hint)
        return self.roles[role]


def roles_by_name(names: Mapping[int, str]) -> dict[Role, int]:
    """The roles that the names of special tokens tell, of each the first name that is there."""
    ids = {name: index for index, name in names.items()}
    has_mask = not ids.keys().isdisjoint(NAMES["mask"])
    found: dict[Role, int] = {}
    for role, known in NAMES.items():
        for name in known:
            if name in ids and role not in found and (has_mask or (role, name) not in TWICE):
                found[role] = ids[name]
    return found


Declarations = Mapping[Role, int | None]
"""Roles that the files of a published vocabulary declare; None: there is no such token."""


def published_special(
    names: Mapping[int, str], roles: Mapping[Role, int], declared: Declarations
) -> tuple[Special, Declarations]:
    """Declared roles go before those that names tell. Also gives those declarations that names do not tell."""
    other = {role: index for role, index in declared.items() if index != roles.get(role)}
    return Special(names, {role: index for role, index in {**roles, **other}.items() if index is not None}), other


def learnt_special(first: int, added: Sequence[str], unknown: bool) -> Special:
    """`<end>` is 0 and `<unk>`, if there is one, 1; what was asked for beside them follows the vocabulary."""
    own = {0: END, 1: UNKNOWN} if unknown else {0: END}
    names = {**own, **dict(enumerate(added, first))}
    return Special(names, roles_by_name(names))


class TokenizerSettings(PartSettings):
    """Settings shared by all kinds that are trained here."""

    special: list[str] = Field(default=[])
    """More special tokens, whose ids follow the vocabulary: `begin`, `pad`, `mask`, `separator` and `class` by their
    role, others by a name such as `<speaker>`. They count in `vocab_size`."""

    @field_validator("special")
    @classmethod
    def _known(cls, special: list[str]) -> list[str]:
        askable = [role for role in ROLES if role not in ("end", "unknown")]
        taken = {name for names in NAMES.values() for name in names}
        for one in special:
            if one in taken or (one not in askable and not OTHER_NAME.fullmatch(one)):
                raise ValueError(f"'{one}' cannot be asked for: give {', '.join(askable)}, or a name like <speaker>")
        if len(set(special)) < len(special):
            raise ValueError("a special token is asked for twice")
        return special

    @property
    def added(self) -> list[str]:
        """The names of what is asked for."""
        own = {role: names[0] for role, names in NAMES.items()}
        return [own.get(cast(Role, one), one) for one in self.special]

    def room(self, own: int, least: int = 1) -> int | None:
        """For how many tokens there is room beside the `own` special ones of a kind and those asked for; None: all."""
        size: int | None = getattr(self, "vocab_size", None)
        if size is None:
            return None
        room = size - own - len(self.special)
        if room < least:
            what = f"'vocab_size' {size} leaves no room beside {own + len(self.special)} special tokens"
            hint = f"make it at least {own + len(self.special) + least}"
            raise DataError(what, where="tokenizer", hint=hint)
        return room


def check_roles(special: Special, *needed: Role) -> None:
    """A vocabulary needs a token for the end, and what has a role stands for no text."""
    for role in ("end", *needed):
        if role not in special:
            raise ValueError(f"there is no token for the role '{role}'")
    for role, index in special.items():
        if index not in special.names:
            raise ValueError(f"token {index}, which is to have the role '{role}', stands for text")


# ---------------------------------------------------------------------- in the files of tokenizers


def saved_names(added: Sequence[str]) -> dict[str, Any]:
    """For `to_dict`. Nothing where there are none: such vocabularies are saved as they always were."""
    return {"added": list(added)} if added else {}


def read_names(data: Mapping[str, Any]) -> list[str]:
    """For `from_dict`: what `saved_names` gave."""
    names = data.get("added", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueError("'added' is not a list of names")
    if len({*names, END, UNKNOWN}) < len(names) + 2 or ("added" in data and not names):
        raise ValueError("'added' has a name twice, or none")
    return names


def saved_roles(declared: Declarations) -> dict[str, Any]:
    """For `to_dict`: the roles for which a published vocabulary does not go by names; nothing where there are none."""
    return {"special": dict(declared)} if declared else {}


def read_roles(data: Mapping[str, Any]) -> Declarations:
    """For `from_dict`: what `saved_roles` gave."""
    found = data.get("special", {})
    if not isinstance(found, dict) or ("special" in data and not found) or not found.keys() <= set(ROLES):
        raise ValueError("'special' is not a mapping of roles to ids")
    if not all(index is None or (type(index) is int and index >= 0) for index in found.values()):
        raise ValueError("'special' has what is no id")
    return found
