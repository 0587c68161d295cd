"""Word vectors computed from characters, which show endings, capitals, and words never seen in training.

U words · L characters · E width of a character · W width of a word
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar

import torch
from pydantic import Field, SerializeAsAny
from torch import Tensor, nn

from seqlab import registry
from seqlab.errors import RecipeError
from seqlab.nn.cells import Cell
from seqlab.nn.recurrent import Recurrent
from seqlab.recipe import Kind, PartSettings

CharacterSettings = Annotated[SerializeAsAny[PartSettings] | None, Kind("characters")]


def character_reader(settings: PartSettings, alphabet_size: int) -> CharacterReader:
    """Return the character reader that a recipe names."""
    if not alphabet_size:
        hint = "remove model.characters, or choose a task that reads words"
        raise RecipeError("this task does not read the characters of words", where="model.characters", hint=hint)
    reader: CharacterReader = registry.find("characters", settings.kind)(settings, alphabet_size)
    return reader


class CharacterReader(nn.Module, ABC):
    """Reads spellings (U, L): character ids, 0 after the end of a word. Owns the character embeddings."""

    Settings: ClassVar[type[PartSettings]]
    width: int
    """Width of a word's vector."""

    def __init__(self, alphabet_size: int, embedding: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(alphabet_size, embedding)
        nn.init.normal_(self.embedding.weight, std=embedding**-0.5)

    @abstractmethod
    def forward(self, spellings: Tensor) -> Tensor:
        """(U, L) → (U, W)"""


class RecurrentCharacters(CharacterReader):
    """[→h_L; ←h_1]: the last states of a recurrent net that reads the word in both directions.

    Ling et al. 2015, https://arxiv.org/abs/1508.02096; Lample et al. 2016, https://arxiv.org/abs/1603.01360
    """

    class Settings(PartSettings):
        cell: Annotated[SerializeAsAny[PartSettings], Kind("cell")] = Field(default="lstm", validate_default=False)  # type: ignore[assignment]
        width: int = Field(default=25, gt=0)
        """Width of the state in each direction."""
        embedding: int = Field(default=25, gt=0)
        """Width of a character embedding."""

    def __init__(self, settings: Settings, alphabet_size: int) -> None:
        super().__init__(alphabet_size, settings.embedding)
        cell: type[Cell] = registry.find("cell", settings.cell.kind)
        there, back = (cell(settings.embedding, settings.width, settings.cell) for _ in range(2))
        self.recurrent, self.width = Recurrent([there], back=[back]), 2 * settings.width

    def forward(self, spellings: Tensor) -> Tensor:
        x = self.embedding(spellings)
        _, (last,) = self.recurrent(x, self.recurrent.start(len(x), x), spellings != 0)
        return torch.cat([last[0], last[len(last) // 2]], -1)  # each direction's state has its output first


class ConvolutionalCharacters(CharacterReader):
    """max_t (W [x_{t−k}; …; x_{t+k}] + b): the best match of each filter anywhere in a word, which is zero-padded.

    dos Santos & Zadrozny 2014; Ma & Hovy 2016, https://arxiv.org/abs/1603.01354
    """

    class Settings(PartSettings):
        width: int = Field(default=30, gt=0)
        """Number of filters."""
        embedding: int = Field(default=30, gt=0)
        """Width of a character embedding."""
        reach: int = Field(default=1, ge=0)
        """k: the number of characters that a filter sees on each side."""

    def __init__(self, settings: Settings, alphabet_size: int) -> None:
        super().__init__(alphabet_size, settings.embedding)
        self.width = settings.width
        kernel_size = 2 * settings.reach + 1
        self.convolution = nn.Conv1d(settings.embedding, settings.width, kernel_size, padding=settings.reach)

    def forward(self, spellings: Tensor) -> Tensor:
        mask = (spellings != 0)[:, None]  # (U, 1, L)
        matches = self.convolution(self.embedding(spellings).mT * mask)  # (U, W, L)
        return matches.masked_fill(~mask, -torch.inf).amax(-1)  # type: ignore[no-any-return]
