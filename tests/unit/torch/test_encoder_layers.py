"""PyTorch's own layers of transformers in evaluation mode, one operator each there, are ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from autotune.torch import explain
from autotune.torch.backend import compiled_by
from tests.unit.torch.oracle import model_by_numpy

PADDED = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
CAUSAL = nn.Transformer.generate_square_subsequent_mask(6)
ADDED = torch.randn(8, 6, 6, generator=torch.Generator().manual_seed(1))
MASKS: dict[str, dict[str, Any]] = {
    "none": {}, "causal": {"mask": CAUSAL}, "bools": {"mask": CAUSAL.isinf()},
    "padded": {"src_key_padding_mask": PADDED},
    "both": {"mask": CAUSAL.isinf(), "src_key_padding_mask": PADDED},
}  # fmt: skip


def agrees(model: nn.Module, *given: torch.Tensor, **named: Any) -> None:
    """The model's operators are all ours, and give what PyTorch's do."""
    torch._dynamo.reset()
    with torch.no_grad():
        assert explain(model, *given, **named).whole
        torch._dynamo.reset()
        fast = torch.compile(model, backend=lambda m, i: compiled_by(model_by_numpy, m, i))
        found, expected = fast(*given, **named), model(*given, **named)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize(("first", "activation"), [(False, "relu"), (True, "gelu")])
def test_a_layer_of_an_encoder(masks: str, first: bool, activation: str) -> None:
    layer = nn.TransformerEncoderLayer(
        16, 4, 32, batch_first=True, norm_first=first, activation=activation
    )
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    agrees(model, torch.randn(2, 6, 16), **MASKS[masks])


@pytest.mark.parametrize(
    "named",
    [
        {}, {"need_weights": False}, {"average_attn_weights": False},
        {"key_padding_mask": PADDED}, {"attn_mask": CAUSAL.isinf()},
        {"key_padding_mask": PADDED, "attn_mask": CAUSAL.isinf()},
        {"attn_mask": ADDED},
    ],
    ids=["plain", "no weights", "of heads", "padded", "causal", "both", "added"],
)  # fmt: skip
def test_attention_of_several_heads(named: dict[str, Any]) -> None:
    model, x = nn.MultiheadAttention(16, 4, batch_first=True).eval(), torch.randn(2, 6, 16)
    agrees(model, x, x, x, **named)
