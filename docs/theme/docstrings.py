"""Turn docstrings, which are plain text with formulas, doctests and `names` in backticks, into Markdown."""

import re
from typing import Any

from griffe import Class, Extension, Object

LITERAL = re.compile(r"(`[^`]*`|https?://[^\s,;)]*[^\s,;).])")
"""Code in backticks, or a URL."""


class PlainText(Extension):
    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_class_members(self, *, cls: Class, **kwargs: Any) -> None:
        """Hide the attributes that a constructor sets and no docstring describes: they are internal."""
        for name, one in list(cls.attributes.items()):
            if one.labels == {"instance-attribute"} and one.value is not None and not one.docstring:
                del cls.members[name]


def markdown(docstring: str) -> str:
    """Convert each paragraph. Indented ones stay as they are: Markdown shows them as code."""
    return "\n\n".join(_paragraph(one) for one in re.split(r"\n\s*\n", docstring))


def _paragraph(text: str) -> str:
    if text.startswith(">>> "):
        return f"```pycon\n{text}\n```"
    return text if text.startswith("    ") else _escaped(text)


def _escaped(text: str) -> str:
    pieces = LITERAL.split(text)  # literals are the odd ones
    pieces[::2] = [re.sub(r"([\\*_{}\[\]#])", r"\\\1", one).replace("<", "&lt;") for one in pieces[::2]]
    pieces[1::2] = [one if one.startswith("`") else f"<{one}>" for one in pieces[1::2]]
    return "".join(pieces)
