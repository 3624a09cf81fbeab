"""Nodes without a kernel of ours, run by somebody else's. In: a part of a model, and what it is
given. Out: what it gives: by ONNX Runtime where that is installed and knows the part, else by the
reference evaluator of the onnx package, which knows the whole standard and is slow. Numbers that a
seed decides are that one's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from autotune.errors import UnsupportedOpError

Call = Callable[[Mapping[str, Any]], Sequence[Any]]
RUNTIME, REFERENCE = "onnxruntime", "the reference evaluator of onnx"
STOP_S = 5.0
"""For a run that was told to end: it does behind the node that it is at."""
_NEWEST_IR = 10
"""Files of this version every ONNX Runtime of the last years reads; newer ones say nothing that
parts of models have."""
_SHORT_FLOATS = {
    f"tensor({name.lower()})": getattr(onnx.TensorProto, name)
    for name in ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
}
"""Element types that ONNX Runtime gives as their bits."""


def evaluator_name(nodes: Iterable[onnx.NodeProto]) -> str:
    """Name of the evaluator that runs these foreign nodes on this machine, if it knows them."""
    there = importlib.util.find_spec("onnxruntime") is not None
    return RUNTIME if there and not _are_seeded(nodes) else REFERENCE


def evaluator(part: onnx.ModelProto, feeds: Mapping[str, Any]) -> tuple[str, Call]:
    """(who runs the part, a function that does). Raises UnsupportedOpError where nobody can."""
    reasons, others = [], [(REFERENCE, _reference)]
    if importlib.util.find_spec("onnxruntime"):
        seeded = _are_seeded(part.graph.node)
        others.insert(1 if seeded else 0, (RUNTIME, _runtime))
    for name, make in others:
        try:
            call = make(part)
            call(feeds)
        except Exception as error:  # other people's code
            reasons.append(
                f"{name}: {str(error).splitlines()[0][:200] if str(error) else error!r}"
            )
        else:
            return name, call
    nodes = ", ".join(sorted({node.op_type for node in part.graph.node}))
    raise UnsupportedOpError(
        f"{nodes} has no kernel, and nobody else runs it here ({'; '.join(reasons)}); replace it "
        "before the export"
    )


def _runtime(part: onnx.ModelProto) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = onnx.ModelProto()
    model.CopyFrom(part)
    model.ir_version = min(model.ir_version, _NEWEST_IR)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    wait = _stoppable if _holds_graphs(part) else _at_once
    kinds = [_SHORT_FLOATS.get(output.type) for output in session.get_outputs()]

    def call(feeds: Mapping[str, Any]) -> Sequence[Any]:
        found = wait(lambda how: session.run(None, dict(feeds), how), onnxruntime.RunOptions())
        return [
            array.view(onnx.helper.tensor_dtype_to_np_dtype(kind)) if kind else array
            for array, kind in zip(found, kinds, strict=True)
        ]

    return call


def _holds_graphs(part: onnx.ModelProto) -> bool:
    """Whether a node has a body, which may run for ever."""
    return any(a.type == onnx.AttributeProto.GRAPH for n in part.graph.node for a in n.attribute)


def _are_seeded(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether one draws numbers that a seed decides: who wrote the standard draws those that it
    has as examples, and the same in every run."""
    return any(a.name == "seed" for node in nodes for a in node.attribute)


def _at_once(run: Callable[[Any], Any], how: Any) -> Any:
    return run(how)


def _stoppable(run: Callable[[Any], Any], how: Any) -> Any:
    """What a run gives that a Ctrl-C ends: Python hears of one while another thread is at it."""
    done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            done.put((run(how), None))
        except BaseException as error:  # it is raised where the result is waited for
            done.put((None, error))

    thread = threading.Thread(target=work, daemon=True)
    try:
        thread.start()
        found, error = done.get()
    except BaseException:
        how.terminate = True  # also of a run that has not begun
        with contextlib.suppress(RuntimeError):  # the thread neither
            thread.join(STOP_S)
        raise
    if error is not None:
        raise error
    return found


def _reference(part: onnx.ModelProto) -> Call:
    from onnx.reference import ReferenceEvaluator

    runner = ReferenceEvaluator(part)

    def call(feeds: Mapping[str, Any]) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return list(runner.run(None, dict(feeds)))

    return call
