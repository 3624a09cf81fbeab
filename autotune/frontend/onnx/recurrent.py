"""ONNX importers: recurrent layers (LSTM, GRU, RNN), unrolled over the steps of the sequence.

The product of all inputs with the input weights is one matrix product before the steps; a step
has the product of the state with the recurrent weights and the gates.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune.errors import UnsupportedOpError
from autotune.frontend.onnx.context import NodeContext, importer

Step = Callable[[str, tuple[str, ...]], tuple[str, ...]]
"""(the inputs' part of the gates [B, G*H], states [B, H]) -> the new states; the first is the
output."""


@importer("LSTM")
def lstm(n: NodeContext) -> tuple[str, ...]:
    """Gates in the order input, output, forget, cell; peepholes: input, output, forget."""
    if n.integer("input_forget", 0):
        raise UnsupportedOpError("input_forget is not supported")
    _plain(n, ("Sigmoid", "Tanh", "Tanh"))

    def step_of(direction: int) -> Step:
        recurrent = _direction(n, 2, direction)
        holes = None if n.optional(7) is None else _direction(n, 7, direction)
        size = n.shape(recurrent)[0] // 4

        def seen(gate: str, cell: str, place: int) -> str:
            if holes is None:
                return gate
            weights = _rows(n, holes, place * size, (place + 1) * size)
            return n.op("add", gate, n.op("mul", cell, weights))

        def step(given: str, states: tuple[str, ...]) -> tuple[str, ...]:
            hidden, cell = states
            gates = n.op("add", _product(n, hidden, recurrent), given)
            i, o, f, c = _parts(n, gates, 4)
            kept = n.op("mul", n.op("sigmoid", seen(f, cell, 2)), cell)
            fresh = n.op("mul", n.op("sigmoid", seen(i, cell, 0)), n.op("tanh", c))
            cell = n.op("add", kept, fresh)
            return n.op("mul", n.op("sigmoid", seen(o, cell, 1)), n.op("tanh", cell)), cell

        return step

    return _layer(n, 4, 2, step_of)


@importer("GRU")
def gru(n: NodeContext) -> tuple[str, ...]:
    """Gates in the order update, reset, hidden."""
    _plain(n, ("Sigmoid", "Tanh"))
    after = n.integer("linear_before_reset", 0)

    def step_of(direction: int) -> Step:
        recurrent, bias = _direction(n, 2, direction), _recurrent_bias(n, direction)
        size = n.shape(recurrent)[0] // 3
        gates_r = _rows(n, recurrent, 0, 2 * size)
        hidden_r = _rows(n, recurrent, 2 * size, 3 * size)
        hidden_b = None if bias is None else _rows(n, bias, 2 * size, 3 * size)

        def step(given: str, states: tuple[str, ...]) -> tuple[str, ...]:
            (hidden,) = states
            z_x, r_x, h_x = _parts(n, given, 3)
            if after:
                z_h, r_h, h_h = _parts(n, _product(n, hidden, recurrent), 3)
            else:
                z_h, r_h = _parts(n, _product(n, hidden, gates_r), 2)
            reset = n.op("sigmoid", n.op("add", r_x, r_h))
            if not after:
                h_h = _product(n, n.op("mul", reset, hidden), hidden_r)
            if hidden_b is not None:
                h_h = n.op("add", h_h, hidden_b)
            new = n.op("tanh", n.op("add", h_x, n.op("mul", reset, h_h) if after else h_h))
            update = n.op("sigmoid", n.op("add", z_x, z_h))
            # (1 - z) * new + z * hidden
            return (n.op("add", new, n.op("mul", update, n.op("sub", hidden, new))),)

        return step

    return _layer(n, 3, 1, step_of)


@importer("RNN")
def rnn(n: NodeContext) -> tuple[str, ...]:
    given = n.attribute("activations") or [b"Tanh"]
    names = {a.decode().lower() for a in given}
    if len(names) != 1 or not names <= {"tanh", "relu", "sigmoid"}:
        raise UnsupportedOpError(
            f"activations {sorted(names)} are not supported; use Tanh or Relu"
        )
    (activation,) = names

    def step_of(direction: int) -> Step:
        recurrent = _direction(n, 2, direction)
        return lambda given, states: (
            n.op(activation, n.op("add", _product(n, states[0], recurrent), given)),
        )

    return _layer(n, 1, 1, step_of)


def _layer(
    n: NodeContext, gates: int, states: int, step_of: Callable[[int], Step]
) -> tuple[str, ...]:
    """Outputs Y [T, D, B, H] and the last states [D, B, H]; with layout=1, the batch is first."""
    n.ignore("hidden_size")
    for name in ("clip", "activation_alpha", "activation_beta"):
        if n.attribute(name):
            raise UnsupportedOpError(f"attribute {name} is not supported")
    by_batch = bool(n.integer("layout", 0))
    x = n.transpose(n.input(0), (1, 0, 2)) if by_batch else n.input(0)
    length, batch, _ = n.shape(x)
    lengths = n.int_parameter(4)
    if lengths is not None and any(v != length for v in lengths):
        raise UnsupportedOpError("sequence_lens shorter than the input are not supported")
    ways = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}.get(
        n.text("direction", "forward"), ()
    )
    outputs, last = [], []
    for direction, way in enumerate(ways):
        given = _input_part(n, x, direction, gates)
        size = n.shape(given)[-1] // gates
        given_states = [n.optional(5 + s) for s in range(states)]
        state = tuple(_initial(n, s, direction, (batch, size), by_batch) for s in given_states)
        step, results = step_of(direction), [""] * length
        for t in range(length)[::way]:
            state = step(_rows(n, given, t * batch, (t + 1) * batch), state)
            results[t] = n.reshape(state[0], (1, 1, batch, size))
        outputs.append(n.op("concat", *results, axis=0))
        last.append([n.reshape(s, (1, batch, size)) for s in state])
    y = _joined(n, outputs, 1)
    final = [_joined(n, [states[i] for states in last], 0) for i in range(states)]
    if by_batch:
        return n.transpose(y, (2, 0, 1, 3)), *(n.transpose(s, (1, 0, 2)) for s in final)
    return y, *final


def _joined(n: NodeContext, values: list[str], axis: int) -> str:
    return values[0] if len(values) == 1 else n.op("concat", *values, axis=axis)


def _input_part(n: NodeContext, x: str, direction: int, gates: int) -> str:
    """x W^T + biases for all steps, [T*B, G*H]; recurrent ones too, but for a GRU's last gate."""
    length, batch, features = n.shape(x)
    flat = n.reshape(x, (length * batch, features))
    y = _product(n, flat, _direction(n, 1, direction))
    if n.optional(3) is None:
        return y
    bias = _direction(n, 3, direction)
    width = n.shape(bias)[0] // 2
    y = n.op("add", y, _rows(n, bias, 0, width))
    recurrent = _rows(n, bias, width, 2 * width)
    if gates == 3:
        size = width // 3
        none = n.constant([0.0] * size, n.dtype(bias))
        recurrent = n.op("concat", _rows(n, recurrent, 0, 2 * size), none, axis=0)
    return n.op("add", y, recurrent)


def _recurrent_bias(n: NodeContext, direction: int) -> str | None:
    if n.optional(3) is None:
        return None
    bias = _direction(n, 3, direction)
    width = n.shape(bias)[0] // 2
    return _rows(n, bias, width, 2 * width)


def _initial(
    n: NodeContext, value: str | None, direction: int, shape: tuple[int, int], by_batch: bool
) -> str:
    """The state [B, H] that a direction begins with."""
    if value is None:
        return n.op("expand", n.constant(0, n.dtype(n.input(0))), shape=shape)
    return _of_direction(n, n.transpose(value, (1, 0, 2)) if by_batch else value, direction)


def _direction(n: NodeContext, position: int, direction: int) -> str:
    """An operand of one direction."""
    return _of_direction(n, n.input(position), direction)


def _of_direction(n: NodeContext, value: str, direction: int) -> str:
    """The first dimension is that of directions."""
    part = _rows(n, value, direction, direction + 1)
    return n.reshape(part, n.shape(value)[1:])


def _rows(n: NodeContext, value: str, start: int, stop: int) -> str:
    shape = n.shape(value)
    if (start, stop) == (0, shape[0]):
        return value
    rest = shape[1:]
    return n.op(
        "slice", value, starts=(start, *[0] * len(rest)), stops=(stop, *rest),
        steps=(1,) * len(shape),
    )  # fmt: skip


def _parts(n: NodeContext, value: str, count: int) -> list[str]:
    """[B, count * H] as `count` values [B, H]."""
    batch, width = n.shape(value)
    size = width // count
    return [
        n.op("slice", value, starts=(0, g * size), stops=(batch, (g + 1) * size), steps=(1, 1))
        for g in range(count)
    ]


def _product(n: NodeContext, x: str, w: str) -> str:
    """x w^T."""
    if n.known(w) is not None:
        return n.op("matmul", x, n.transpose(w, (1, 0)), transpose_b=False)
    return n.op("matmul", x, w, transpose_b=True)


def _plain(n: NodeContext, expected: tuple[str, ...]) -> None:
    """Only the activations that the operator has by itself."""
    given = [a.decode() for a in n.attribute("activations") or ()]
    wanted = [*expected] * (len(given) // len(expected))
    if [g.lower() for g in given] != [w.lower() for w in wanted]:
        raise UnsupportedOpError(f"activations {given} are not supported; use {expected}")
