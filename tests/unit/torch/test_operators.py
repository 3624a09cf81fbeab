"""A fixed part of PyTorch's own samples of its operators comes out right; the whole by
`python benchmarks/pytorch/torch_ops.py`."""

from __future__ import annotations

import pytest

from benchmarks.pytorch.torch_ops import FLAWS, every_outcome

CHOSEN = (
    "add", "sub", "div.floor_rounding", "remainder", "pow", "float_power", "clamp", "where",
    "atan2", "erfc", "hypot", "logaddexp", "bitwise_and", "bitwise_not", "nan_to_num", "sign",
    "amax", "argmax", "sum", "prod", "std", "var_mean", "logsumexp", "cumsum", "cumprod", "all",
    "cat", "stack", "roll", "flip", "diagonal", "tril", "unfold", "as_strided", "expand", "repeat",
    "split", "unbind", "select_scatter", "index_select", "index_put", "index_copy", "gather",
    "scatter", "scatter_add", "masked_fill", "masked_scatter", "take_along_dim", "topk", "sort",
    "bucketize", "searchsorted", "cdist", "matmul", "addmm", "baddbmm", "einsum", "linalg.qr",
    "softmax", "log_softmax", "nn.functional.gelu", "nn.functional.glu",
    "nn.functional.pad.reflect", "nn.functional.conv2d", "nn.functional.conv_transpose1d",
    "nn.functional.max_pool2d",
    "nn.functional.avg_pool2d", "nn.functional.adaptive_avg_pool2d",
    "nn.functional.adaptive_max_pool2d", "nn.functional.layer_norm", "nn.functional.group_norm",
    "nn.functional.scaled_dot_product_attention", "nn.functional.interpolate.bilinear",
    "nn.functional.grid_sample", "nn.functional.embedding", "nn.functional.embedding_bag",
    "copysign", "fmax", "fmin", "ldexp", "tril_indices", "triu_indices", "narrow",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
def test_samples_of_operators(dtype: str) -> None:
    rows = list(every_outcome(CHOSEN, dtype, 1))
    flawed = {row["op"]: (row["outcome"], row["why"]) for row in rows if row["outcome"] in FLAWS}
    assert not flawed
    assert sum(row["outcome"] == "ours" for row in rows) > 0.7 * len(rows)
