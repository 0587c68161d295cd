"""Text to ids and back: one `Tokenizer` interface for characters, bytes, words and subwords."""

from seqlab.tokenizers.encoding import Encoding
from seqlab.tokenizers.special import Special
from seqlab.tokenizers.templates import Template
from seqlab.tokenizers.tokenizer import TextStream, Tokenizer, load_tokenizer

__all__ = ["Encoding", "Special", "Template", "TextStream", "Tokenizer", "load_tokenizer"]
