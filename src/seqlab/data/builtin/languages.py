"""Language identification: names of territories, languages and units from CLDR (through Babel).

    Welt       German
    monde      French

A name shared by several of these languages, such as Peru, is left out: no answer would be more correct than another. A
name that a language has twice appears once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from seqlab.data.records import Document

CODES = """
af am ar az be bg bn bs ca cs cy da de el en es et eu fa fi fil fr ga gl gu he hi hr hu hy id is it ja ka kk km kn ko
ky lo lt lv mk ml mn mr ms my nb ne nl nn pa pl ps pt ro ru si sk sl sq sr sv sw ta te th tr uk ur uz vi zh zu
"""
"""Languages for which CLDR has hundreds of names."""


def languages() -> Iterator[Document]:
    """Yield names with their languages. The thing named, such as territory/FR, decides what is held out in all
    languages."""
    from babel import Locale

    spoken: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for code in CODES.split():
        for thing, name in _names(code):
            spoken[name].append((code, thing))
    for name, of in spoken.items():
        code, thing = of[0]
        if {other for other, _ in of} == {code}:
            yield Document(
                f"{thing}/{code}", {"text": name, "label": Locale.parse(code).english_name or code}, key=thing
            )


def _names(code: str) -> Iterator[tuple[str, str]]:
    """Yield (thing, name) in one language; only stand-alone forms, with whitespace collapsed."""
    from babel import Locale

    locale = Locale.parse(code)
    units = {unit: forms["long"] for unit, forms in locale.unit_display_names.items() if "long" in forms}
    for kind, names in (("territory", locale.territories), ("language", locale.languages), ("unit", units)):
        for key in sorted(names):
            yield f"{kind}/{key}", " ".join(names[key].split())
