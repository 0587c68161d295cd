"""Translators: an encoder that reads a source, and a decoder that writes a target and looks at the source.

B rows · T target positions · S sources · N source positions · V vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from pydantic import SerializeAsAny
from torch import Tensor, nn

from seqlab import registry
from seqlab.errors import RecipeError
from seqlab.models.encoder import Encoded, Encoder
from seqlab.models.language_model import Output, State, TokenModel
from seqlab.models.sizes import needs, sizes_for
from seqlab.recipe import Kind, PartSettings


class Decoder(nn.Module, ABC):
    """p(next token | tokens so far, encoded source).

    Constructed from its settings, its vocabulary size, the width of the encoder's states, and the embedding if it is
    shared with the source.
    """

    Settings: ClassVar[type[PartSettings]]
    vocab_size: int
    context: int | None = None
    """The largest number of tokens that it reads, if there is a limit."""
    embedding: Any
    output: Any

    @abstractmethod
    def start(self, encoded: Encoded, rows: int) -> State:
        """Return the state before any token; each source has the same number of rows."""

    @abstractmethod
    def forward(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Output:
        """Like `LanguageModel.forward`."""

    @abstractmethod
    def write(self, tokens: Tensor, encoded: Encoded, mask: Tensor | None = None) -> Output:
        """The same for new rows, one per source; no state is returned if making one has a cost."""


class Translator(TokenModel):
    """Any encoder joined to any decoder."""

    class Settings(PartSettings):
        encoder: Annotated[SerializeAsAny[PartSettings], Kind("model")]
        """Encoder, which reads the source."""
        decoder: Annotated[SerializeAsAny[PartSettings], Kind("decoder")]
        """Decoder, which generates the target and attends to the source."""

    encoder: Encoder
    decoder: Decoder
    reads_sources = True

    takes = ("conditions",)

    def __init__(self, settings: Settings, vocab_size: int, conditions: int = 0) -> None:
        kind = registry.find("model", settings.encoder.kind)
        if not (issubclass(kind, Encoder) and kind.joins):
            hint = "choose an encoder, such as transformer-encoder"
            raise RecipeError(f"'{settings.encoder.kind}' cannot read sources", where="model.encoder.kind", hint=hint)
        if conditions and "conditions" not in (*needs(kind), *getattr(kind, "takes", ())):
            what = f"'{settings.encoder.kind}' reads words only, but the sources contain labels or numbers"
            raise RecipeError(what, where="model.encoder.kind", hint="choose another encoder")
        encoder = kind(settings.encoder, **sizes_for(kind, {"vocab_size": vocab_size, "conditions": conditions}))
        decoder = registry.find("decoder", settings.decoder.kind)(settings.decoder, vocab_size, encoder.width)
        self.join(encoder, decoder)

    def join(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.vocab_size, self.context = decoder.vocab_size, decoder.context
        self.start_weights()

    def start_weights(self) -> None:
        """Initialise embeddings with small values, since they may be tied to the output; inputs are scaled by √D."""
        tables = [part for part in self.modules() if isinstance(part, nn.Embedding)]
        for table in dict.fromkeys([self.decoder.embedding, *tables]):
            nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)

    @property
    def embedding(self) -> Any:
        return self.decoder.embedding

    @property
    def output(self) -> Any:
        return self.decoder.output

    def start(self, source: Mapping[str, Tensor] | None = None, rows: int = 1) -> State:
        return self.decoder.start(self.encoder.read(self._or_nothing(source, 1)), rows)

    def forward(
        self,
        tokens: Tensor,
        state: State | None = None,
        mask: Tensor | None = None,
        source: Mapping[str, Tensor] | None = None,
    ) -> Output:
        if state is None:
            return self.decoder.write(tokens, self.encoder(self._or_nothing(source, len(tokens))), mask)
        output: Output = self.decoder(tokens, state, mask)
        return output

    def _or_nothing(self, source: Mapping[str, Tensor] | None, rows: int) -> Mapping[str, Tensor]:
        """Return the source or, if there is none, an empty one: `<end>`."""
        if source is not None:
            return source
        tokens = torch.zeros(rows, 1, dtype=torch.long, device=next(self.parameters()).device)
        return {"tokens": tokens, "mask": torch.ones_like(tokens, dtype=torch.bool)}


def owners(sources: int, rows: Tensor) -> Tensor:
    """Return the source of each row (B,): the same number of rows per source, grouped by source."""
    each, rest = divmod(len(rows), sources)
    if rest:
        raise ValueError(f"{len(rows)} rows for {sources} sources")
    return torch.arange(sources, device=rows.device).repeat_interleave(each)
