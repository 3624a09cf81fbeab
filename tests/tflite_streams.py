"""A TensorFlow Lite model with variables: what it is fed stays for the next run."""

from __future__ import annotations

from tests.tflite_models import (
    RELU,
    VALID,
    Operator,
    Tensor,
    activation,
    bias,
    constant,
    conv,
    f,
    q,
    tflite_bytes,
    weights,
)

NAMES = ("stream/frames", "sums")


def handle(name: str) -> tuple[Tensor, Operator]:
    made = Tensor(shape=(), dtype="resource")
    options = ("VarHandleOptions", {"container": b"", "sharedName": name.encode()})
    return made, Operator(name="VAR_HANDLE", inputs=[], outputs=[made], options=options)


def streaming(initial: dict[str, Tensor]) -> bytes:
    """A window of the last four frames that is convolved, and a sum of all results so far: `sums`
    of floats, `stream/frames` of int8."""
    frame, kept, window, last = (q(1, n, 1, 6, zero=-128) for n in (1, 3, 4, 3))
    made, out = q(1, 1, 1, 5, scale=0.1, zero=-20), f(1, 1, 1, 5)
    result, before = f(1, 1, 1, 5), f(1, 1, 1, 5)
    (frames, frames_here), (sums, sums_here) = (handle(name) for name in NAMES)
    ends = [constant(v) for v in ([0, 1, 0, 0], [1, 4, 1, 6], [1, 1, 1, 1])]
    assign = ("AssignVariableOptions", {})
    read = [Operator(name="READ_VARIABLE", inputs=[h], outputs=[t],
                     options=("ReadVariableOptions", {}))
            for h, t in ((frames, kept), (sums, before))]  # fmt: skip
    join = Operator(name="CONCATENATION", inputs=[kept, frame], outputs=[window],
                    options=("ConcatenationOptions", {"axis": 1}))  # fmt: skip
    operators = [
        Operator(name="CALL_ONCE", inputs=[], outputs=[],
                 options=("CallOnceOptions", {"initSubgraphIndex": 1})),
        frames_here, sums_here, *read, join,
        Operator(name="STRIDED_SLICE", inputs=[window, *ends], outputs=[last],
                 options=("StridedSliceOptions", {})),
        Operator(name="ASSIGN_VARIABLE", inputs=[frames, last], outputs=[], options=assign),
        Operator(name="CONV_2D", inputs=[window, weights(5, 4, 1, 6), bias(5)], outputs=[made],
                 options=conv(1, VALID, RELU)),
        Operator(name="DEQUANTIZE", inputs=[made], outputs=[out],
                 options=("DequantizeOptions", {})),
        Operator(name="ADD", inputs=[out, before], outputs=[result],
                 options=activation("AddOptions")),
        Operator(name="ASSIGN_VARIABLE", inputs=[sums, result], outputs=[], options=assign),
    ]  # fmt: skip
    once = []
    for name, value in initial.items():
        here, made_here = handle(name)
        once += [
            made_here,
            Operator(name="ASSIGN_VARIABLE", inputs=[here, value], outputs=[], options=assign),
        ]
    return tflite_bytes(operators, [frame], [result, made], once)
