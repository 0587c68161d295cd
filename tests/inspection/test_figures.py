"""Pictures of what people have written, whatever that is."""

import warnings

from seqlab.inspection.figures import attention_history, search_tree
from seqlab.inspection.translation import Branch, Tree, history


def test_dollars_and_letters_without_a_font_are_drawn(tmp_path):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        odd = ["$$", "$_$", "年", "\U0001f9ff"]
        attention_history(history(torch.eye(4), odd, odd), tmp_path / "attention.png")
        search_tree(Tree([], [Branch([1], [], "$_$", -1.0, "kept")]), tmp_path / "tree.png")
    assert (tmp_path / "attention.png").stat().st_size > 1000
