"""Text to ids and back: one `Tokenizer` interface for characters, bytes, words and subwords."""

from seqlab.tokenizers.tokenizer import Encoding, TextStream, Tokenizer, load_tokenizer

__all__ = ["Encoding", "TextStream", "Tokenizer", "load_tokenizer"]
