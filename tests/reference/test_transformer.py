"""The Transformer against the library's modules and against transformers' Marian, with the same weights."""

import copy

import pytest
import torch
from tolerance import close
from torch import nn

from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.packing import packed
from seqlab.models.transformer import Transformer
from seqlab.recipe import part_settings
from seqlab.recipe_tree import RecipeTree

V, D, HEADS, HIDDEN, DEPTH = 61, 32, 4, 48, 3
SOURCE = torch.randint(1, V, (5, 9), generator=torch.Generator().manual_seed(0))
REAL = torch.arange(9) < torch.tensor([9, 4, 1, 7, 9])[:, None]
TARGET = torch.randint(1, V, (5, 7), generator=torch.Generator().manual_seed(1))
POSITIONS = 12 * 9
"""Roundings. All else is in double precision, but our positions are in float32: sines of angles up to 9, of rates that
are exp of up to 9."""


def ours(**settings):
    shape = {"kind": "transformer", "width": D, "heads": HEADS, "hidden_width": HIDDEN, "depth": DEPTH}
    torch.manual_seed(2)
    model = Transformer(part_settings("model", RecipeTree({**shape, **settings})), V)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.2)
    return model.eval()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("norm", ["before", "after"])
def test_it_equals_the_librarys_layers(norm):
    model = ours(norm_first=norm == "before", activation="relu")
    layer = {"d_model": D, "nhead": HEADS, "dim_feedforward": HIDDEN, "dropout": 0.0, "batch_first": True}
    layer |= {"norm_first": norm == "before"}
    norms = [nn.LayerNorm(D) if norm == "before" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**layer), DEPTH, norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), DEPTH, norms[1])
    with torch.no_grad():
        for theirs, blocks in ((encoder, model.encoder.blocks), (decoder, model.decoder.blocks)):
            for one, block in zip(theirs.layers, blocks, strict=True):
                fill(one, block)
        if norm == "before":
            encoder.norm.load_state_dict(model.encoder.norm.state_dict())
            decoder.norm.load_state_dict(model.decoder.norm.state_dict())
        encoder.eval(), decoder.eval()
        found = model(TARGET, None, None, {"tokens": SOURCE, "mask": REAL}).states
        x, y = (embedded(model, tokens) for tokens in (SOURCE, TARGET))
        causal = nn.Transformer.generate_square_subsequent_mask(7)
        memory = encoder(x, src_key_padding_mask=~REAL)
        expected = decoder(y, memory, tgt_mask=causal, memory_key_padding_mask=~REAL)
    close(found.float(), expected.float(), steps=POSITIONS)


def fill(theirs, block):
    copy_attention(theirs.self_attn, block.attend.query_key_value, block.attend.output)
    theirs.norm1.load_state_dict(block.norm_attend.state_dict())
    norms = [theirs.norm2]
    if hasattr(theirs, "multihead_attn"):
        q, kv = block.cross_attend.query, block.cross_attend.key_value
        joined = nn.Linear(D, 3 * D)
        joined.weight.copy_(torch.cat([q.weight, kv.weight]))
        joined.bias.copy_(torch.cat([q.bias, kv.bias]))
        copy_attention(theirs.multihead_attn, joined, block.cross_attend.output)
        theirs.norm2.load_state_dict(block.norm_cross_attend.state_dict())
        norms = [theirs.norm3]
    norms[0].load_state_dict(block.norm_feed.state_dict())
    theirs.linear1.load_state_dict(block.feed.expand.state_dict())
    theirs.linear2.load_state_dict(block.feed.contract.state_dict())


def copy_attention(theirs, query_key_value, output):
    theirs.in_proj_weight.copy_(query_key_value.weight)
    theirs.in_proj_bias.copy_(query_key_value.bias)
    theirs.out_proj.load_state_dict(output.state_dict())


def embedded(model, tokens):
    """√D E[w] + P as the paper prints P."""
    time, pair = torch.arange(tokens.shape[1])[:, None], torch.arange(0, D, 2)
    angles = time / 10000 ** (pair / D)
    positions = torch.zeros(tokens.shape[1], D)
    positions[:, 0::2], positions[:, 1::2] = angles.sin(), angles.cos()
    return model.embedding(tokens) * D**0.5 + positions


# ---------------------------------------------------------------------- Marian


@pytest.fixture(scope="module")
def marian():
    transformers = pytest.importorskip("transformers")
    config = transformers.MarianConfig(
        vocab_size=V,
        decoder_vocab_size=V,
        d_model=D,
        encoder_layers=DEPTH,
        decoder_layers=DEPTH,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN,
        max_position_embeddings=64,
        activation_function="swish",
        scale_embedding=True,
        dropout=0.0,
        pad_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
        use_cache=True,
    )
    torch.manual_seed(3)
    theirs = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "positions" not in name:
                weight.copy_(torch.randn_like(weight) * (0.3 if weight.dim() > 1 else 0.2))
            if "norm.weight" in name:
                weight.add_(1)
        theirs.final_logits_bias.normal_()
    return theirs


def as_marian(theirs):
    """Our model with Marian's weights. Its positions are [sin; cos], ours take turns: so do all channels then."""
    model = ours(norm_first=False, activation="swish", output={"kind": "softmax", "bias": True})
    turns = torch.arange(D).view(2, -1).t().flatten()
    own = theirs.state_dict()

    def put(linear, names, inward, outward):
        weight = torch.cat([own[f"{name}.weight"] for name in names])
        bias = torch.cat([own[f"{name}.bias"] for name in names])
        linear.weight.copy_((weight[turns] if outward else weight)[:, turns] if inward else weight[turns])
        linear.bias.copy_(bias[turns] if outward else bias)

    def put_norm(norm, name):
        norm.weight.copy_(own[f"{name}.weight"][turns])
        norm.bias.copy_(own[f"{name}.bias"][turns])

    with torch.no_grad():
        model.embedding.weight.copy_(own["model.shared.weight"][:, turns])
        model.output.bias.copy_(own["final_logits_bias"][0])
        for side, blocks in (("encoder", model.encoder.blocks), ("decoder", model.decoder.blocks)):
            for number, block in enumerate(blocks):
                at = f"model.{side}.layers.{number}"
                three = [f"{at}.self_attn.{part}_proj" for part in "qkv"]
                put(block.attend.query_key_value, three, inward=True, outward=False)
                put(block.attend.output, [f"{at}.self_attn.out_proj"], inward=False, outward=True)
                put_norm(block.norm_attend, f"{at}.self_attn_layer_norm")
                if side == "decoder":
                    cross = f"{at}.encoder_attn"
                    put(block.cross_attend.query, [f"{cross}.q_proj"], inward=True, outward=False)
                    put(
                        block.cross_attend.key_value,
                        [f"{cross}.{part}_proj" for part in "kv"],
                        inward=True,
                        outward=False,
                    )
                    put(block.cross_attend.output, [f"{cross}.out_proj"], inward=False, outward=True)
                    put_norm(block.norm_cross_attend, f"{at}.encoder_attn_layer_norm")
                put(block.feed.expand, [f"{at}.fc1"], inward=True, outward=False)
                put(block.feed.contract, [f"{at}.fc2"], inward=False, outward=True)
                put_norm(block.norm_feed, f"{at}.final_layer_norm")
    return model


def test_it_equals_marian(marian):
    model, marian = as_marian(marian).double(), copy.deepcopy(marian).double()
    with torch.no_grad():
        found = model.logits(model(TARGET, None, None, {"tokens": SOURCE, "mask": REAL}).states)
        theirs = marian(input_ids=SOURCE, attention_mask=REAL.long(), decoder_input_ids=TARGET).logits
    close(found.float(), theirs.float(), steps=POSITIONS)


@pytest.mark.parametrize("width", [1, 4])
def test_it_writes_what_marian_writes(marian, width):
    """A beam of theirs divides by n^penalty, and ours by ((5 + n) / 6)^penalty: without any, both add up log p."""
    model = packed(as_marian(marian))
    theirs = marian.generate(
        input_ids=SOURCE,
        attention_mask=REAL.long(),
        num_beams=width,
        do_sample=False,
        max_new_tokens=12,
        length_penalty=0.0,
        early_stopping="never" if width > 1 else False,
    )
    found = beam_search(model, [[0]] * 5, Beam(width, best=1), 12, frozenset({0}), {"tokens": SOURCE, "mask": REAL})
    for row, (one,) in enumerate(found):
        expected = theirs[row, 1:].tolist()
        expected = expected[: expected.index(0) + 1] if 0 in expected else expected
        assert list(one.tokens) == expected, f"sentence {row}"
