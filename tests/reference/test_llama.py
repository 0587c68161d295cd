"""GPT of other parts against transformers with the same weights: Llama's decoder; and positions of T5 and BLOOM."""

from functools import partial

import pytest
import torch
from tolerance import close
from torch.nn import functional as F

from seqlab.decoding.packing import packed
from seqlab.models.gpt import GPT
from seqlab.nn.positions import PositionShape, alibi_slopes, bucket, position
from seqlab.recipe import part_settings
from seqlab.recipe_tree import RecipeTree

transformers = pytest.importorskip("transformers", reason="the reference implementation is not installed")
LlamaRMSNorm = transformers.models.llama.modeling_llama.LlamaRMSNorm

VOCAB, WIDTH, DEPTH, HEADS, GROUPS, HIDDEN, CONTEXT = 61, 48, 3, 6, 2, 80, 40
PARTS = {
    "norm_attend": "input_layernorm",
    "attend.query": "self_attn.q_proj",
    "attend.key": "self_attn.k_proj",
    "attend.value": "self_attn.v_proj",
    "attend.output": "self_attn.o_proj",
    "norm_feed": "post_attention_layernorm",
    "feed.gate": "mlp.gate_proj",
    "feed.expand": "mlp.up_proj",
    "feed.contract": "mlp.down_proj",
}


@pytest.fixture(scope="module")
def models():
    """Theirs with random weights, and ours with the same, in double precision."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=HIDDEN,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        max_position_embeddings=CONTEXT,
        initializer_range=0.2,
        rms_norm_eps=1e-6,
    )
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
    ours = llama()
    own = theirs.state_dict()
    weights = {
        "embedding.weight": own["model.embed_tokens.weight"],
        "norm.weight": own["model.norm.weight"],
        "output.matrix.weight": own["lm_head.weight"],
    }
    for layer in range(DEPTH):
        for name, other in PARTS.items():
            weights[f"blocks.{layer}.{name}.weight"] = own[f"model.layers.{layer}.{other}.weight"]
    ours.load_state_dict(weights)
    for part in theirs.modules():  # theirs are in float32, whatever the precision
        if isinstance(part, LlamaRMSNorm):
            part.forward = partial(F.rms_norm, normalized_shape=(WIDTH,), weight=part.weight, eps=1e-6)
    return ours.double(), theirs.double()


def llama():
    settings = {
        "kind": "gpt",
        "width": WIDTH,
        "depth": DEPTH,
        "heads": HEADS,
        "key_heads": GROUPS,
        "hidden_width": HIDDEN,
        "context": CONTEXT,
        "position": "rotary",
        "norm": "rms",
        "epsilon": 1e-6,
        "gated": True,
        "activation": "swish",
        "bias": False,
        "output": {"kind": "softmax", "tied": False, "bias": False},
    }
    return GPT(part_settings("model", RecipeTree(settings)), VOCAB).eval()


def tokens(rows, time):
    return torch.randint(VOCAB, (rows, time), generator=torch.Generator().manual_seed(time))


def test_as_many_weights(models):
    ours, theirs = models
    assert sum(p.numel() for p in ours.parameters()) == theirs.num_parameters()


def test_logits_all_at_once_and_one_by_one(models):
    ours, theirs = models
    text = tokens(3, CONTEXT)
    with torch.no_grad():
        expected = theirs(text).logits
        close(ours.logits(ours(text).states), expected)
        state = ours.start(rows=3)
        for time in range(CONTEXT):
            logits, state = ours.step(text[:, time], state)
            close(logits, expected[:, time])


def test_gradients(models):
    ours, theirs = models
    text = tokens(3, 20)
    ours.zero_grad(), theirs.zero_grad()
    ours.logits(ours(text).states).square().sum().backward()
    theirs(text).logits.square().sum().backward()
    close(ours.embedding.weight.grad, theirs.model.embed_tokens.weight.grad)
    for layer, block in enumerate(ours.blocks):
        other = theirs.model.layers[layer]
        close(block.feed.gate.weight.grad, other.mlp.gate_proj.weight.grad)
        both = [other.self_attn.q_proj, other.self_attn.k_proj, other.self_attn.v_proj]
        close(block.attend.query_key_value.weight.grad, torch.cat([part.weight.grad for part in both]))


def test_greedy_texts_of_the_packed_model(models):
    """By the compiled kernels, in float32: the same tokens."""
    _, theirs = models
    ours = llama()
    ours.load_state_dict(models[0].state_dict())
    ours, text = packed(ours.float()), tokens(2, 5)
    expected = theirs.generate(text, max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=None)
    with torch.no_grad():
        output = ours(text, ours.start(rows=2))
        logits, state = ours.logits(output.states[:, -1]), output.state
        for time in range(5, 25):
            assert torch.equal(logits.argmax(-1), expected[:, time])
            logits, state = ours.step(expected[:, time], state)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("count", "farthest"), [(32, 128), (16, 20)])
def test_buckets_are_those_of_t5(causal, count, farthest):
    from transformers.models.t5.modeling_t5 import T5Attention

    apart = torch.arange(-300, 300)
    theirs = T5Attention._relative_position_bucket(apart, not causal, count, farthest)
    assert torch.equal(bucket(apart, count, farthest, causal), theirs)


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 20])
def test_slopes_are_those_of_bloom(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float64)  # slope · key
    close(torch.tensor(alibi_slopes(heads), dtype=torch.float64), theirs[:, 0, 1], size=1e3)  # they round to float32
    settings = part_settings("position", RecipeTree({"kind": "alibi"}))
    bias = position(settings, PositionShape(8 * heads, heads, 8)).bias(torch.arange(5), 5, theirs)
    close(bias[0, :, 4] + 4 * theirs[:, 0, 1, None], theirs[:, 0, 1, None] * torch.arange(5), size=1e3)
