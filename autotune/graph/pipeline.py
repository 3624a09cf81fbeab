"""The graph passes, in order. In: a graph as a frontend made it. Out: a graph ready to partition.

A pass is a frozen dataclass whose fields are its options and whose `run` gives a new graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from autotune.graph.ir import Graph
from autotune.graph.passes.canonical_operands import CanonicalOperands
from autotune.graph.passes.canonical_weights import CanonicalWeights
from autotune.graph.passes.common_subexpressions import ShareCommonSubexpressions
from autotune.graph.passes.concats import NestConcats, SplitOverConcat
from autotune.graph.passes.cut_taps import CutTaps
from autotune.graph.passes.depthwise_planes import DepthwisePlanes
from autotune.graph.passes.drop_constant_channels import DropConstantChannels
from autotune.graph.passes.exact_quotients import ExactQuotients
from autotune.graph.passes.fold_affine import FoldAffine
from autotune.graph.passes.fold_constants import FoldConstants
from autotune.graph.passes.group_heads import GroupHeads
from autotune.graph.passes.pointwise_products import PointwiseProducts
from autotune.graph.passes.push_orders import PushOrders
from autotune.graph.passes.push_reshapes import PushReshapes
from autotune.graph.passes.push_transposes import PushTransposes
from autotune.graph.passes.recognize_causal import RecognizeCausal
from autotune.graph.passes.recognize_norms import RecognizeNorms
from autotune.graph.passes.remove_identities import RemoveIdentities
from autotune.graph.passes.sum_products import SumProducts
from autotune.graph.strips.dilated import DilatedStrips
from autotune.graph.strips.rows import RowStrips
from autotune.graph.strips.window import WindowStrips
from autotune.sizes import any_size


class Pass(Protocol):
    """A graph rewrite that keeps what the graph computes, up to rounding."""

    def run(self, graph: Graph) -> Graph: ...


CLEAN: tuple[Pass, ...] = (
    FoldConstants(),
    RemoveIdentities(),
    # Twice: the first run makes views meet, merging them lets more transposes cancel.
    PushTransposes(),
    RemoveIdentities(),
    PushTransposes(),
    RemoveIdentities(),
    GroupHeads(),
    RemoveIdentities(),
    PushReshapes(),
    RemoveIdentities(),
    FoldConstants(),
    CanonicalWeights(),
    DropConstantChannels(),
    CutTaps(),
    FoldAffine(),
    PushOrders(),
    CanonicalOperands(),
    RemoveIdentities(),
    FoldConstants(),
    CanonicalOperands(),
    SumProducts(),
    ShareCommonSubexpressions(),
)
"""One form of what a frontend made; it can be run again on its own results."""
ARRANGE: tuple[Pass, ...] = (
    PointwiseProducts(),
    DepthwisePlanes(),
    RecognizeNorms(),
    RecognizeCausal(),
    NestConcats(),
    SplitOverConcat(),
    DilatedStrips(axis=1),
    SplitOverConcat(),
    DilatedStrips(axis=2),
    SplitOverConcat(),
    WindowStrips(axis=1),
    SplitOverConcat(),
    WindowStrips(axis=2),
    SplitOverConcat(),
    PushReshapes(),
    RowStrips(),
    ExactQuotients(),
)
"""How kernels have it best: larger operators, strips, joined values."""
PIPELINE = (*CLEAN, *ARRANGE)

WEIGH_EXTENTS = (DepthwisePlanes, DilatedStrips, PointwiseProducts, RowStrips, WindowStrips)


def optimize(
    graph: Graph,
    passes: Sequence[Pass] = PIPELINE,
    after_each: Callable[[Pass, Graph], None] | None = None,
) -> Graph:
    """Run the passes in order, but those that weigh extents only a run knows. `after_each` (a
    verifier, a printer) sees the graph after each."""
    sized = any_size(e for kind in graph.types.values() for e in kind.shape)
    for step in passes:
        if sized and isinstance(step, WEIGH_EXTENTS):
            continue
        graph = step.run(graph)
        if after_each is not None:
            after_each(step, graph)
    return graph
