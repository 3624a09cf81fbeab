"""ONNX importers: recurrent layers (LSTM, GRU, RNN), unrolled over the steps of the sequence, or,
where its length or the batch is open, one op of all steps.

The product of all inputs with the input weights is one matrix product before the steps; a step
has the product of the state with the recurrent weights and the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import UnsupportedOpError
from autotune.frontend.assembly import Assembler
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.recurrence import recurrence
from autotune.frontend.views import counted_up
from autotune.sizes import any_size

Step = Callable[[Assembler, str, tuple[str, ...], Sequence[str]], tuple[str, ...]]
"""(what builds it, the inputs' part of the gates [B, G*H], states [B, H], the cell's weights) ->
the new states; the first is the output."""


@dataclass(frozen=True, slots=True)
class RecurrentCell:
    """A step of one direction, and the values that every step reads."""

    step: Step
    weights: tuple[str, ...]


@importer("LSTM")
def lstm(n: NodeContext) -> tuple[str, ...]:
    """Gates in the order input, output, forget, cell; peepholes: input, output, forget."""
    if n.integer("input_forget", 0):
        raise UnsupportedOpError("input_forget is not supported")
    _plain(n, ("Sigmoid", "Tanh", "Tanh"))

    def cell_of(direction: int) -> RecurrentCell:
        recurrent, turned = _turned(n, _direction(n, 2, direction))
        holes: tuple[str, ...] = ()
        if n.optional(7) is not None:
            every = _direction(n, 7, direction)
            size = n.shape(every)[0] // 3
            holes = tuple(_rows(n, every, g * size, (g + 1) * size) for g in range(3))

        def step(
            a: Assembler, given: str, states: tuple[str, ...], weights: Sequence[str]
        ) -> tuple[str, ...]:
            hidden, cell = states

            def seen(gate: str, cell: str, place: int) -> str:
                if not holes:
                    return gate
                return a.op("add", gate, a.op("mul", cell, weights[1 + place]))

            gates = a.op("add", _product(a, hidden, weights[0], turned), given)
            i, o, f, c = _parts(a, gates, 4)
            kept = a.op("mul", a.op("sigmoid", seen(f, cell, 2)), cell)
            fresh = a.op("mul", a.op("sigmoid", seen(i, cell, 0)), a.op("tanh", c))
            cell = a.op("add", kept, fresh)
            return a.op("mul", a.op("sigmoid", seen(o, cell, 1)), a.op("tanh", cell)), cell

        return RecurrentCell(step, (recurrent, *holes))

    return _layer(n, 4, 2, cell_of)


@importer("GRU")
def gru(n: NodeContext) -> tuple[str, ...]:
    """Gates in the order update, reset, hidden."""
    _plain(n, ("Sigmoid", "Tanh"))
    after = n.integer("linear_before_reset", 0)

    def cell_of(direction: int) -> RecurrentCell:
        recurrent, bias = _direction(n, 2, direction), _recurrent_bias(n, direction)
        size = n.shape(recurrent)[0] // 3
        cut = ((0, 3 * size),) if after else ((0, 2 * size), (2 * size, 3 * size))
        made = [_turned(n, _rows(n, recurrent, *rows)) for rows in cut]
        products, turned = [value for value, _ in made], made[0][1]
        biases = () if bias is None else (_rows(n, bias, 2 * size, 3 * size),)

        def step(
            a: Assembler, given: str, states: tuple[str, ...], weights: Sequence[str]
        ) -> tuple[str, ...]:
            (hidden,) = states
            z_x, r_x, h_x = _parts(a, given, 3)
            first = _product(a, hidden, weights[0], turned)
            z_h, r_h, *rest = _parts(a, first, 3 if after else 2)
            reset = a.op("sigmoid", a.op("add", r_x, r_h))
            h_h = rest[0] if after else ""
            if not after:
                h_h = _product(a, a.op("mul", reset, hidden), weights[1], turned)
            if biases:
                h_h = a.op("add", h_h, weights[-1])
            new = a.op("tanh", a.op("add", h_x, a.op("mul", reset, h_h) if after else h_h))
            update = a.op("sigmoid", a.op("add", z_x, z_h))
            # (1 - z) * new + z * hidden
            return (a.op("add", new, a.op("mul", update, a.op("sub", hidden, new))),)

        return RecurrentCell(step, (*products, *biases))

    return _layer(n, 3, 1, cell_of)


@importer("RNN")
def rnn(n: NodeContext) -> tuple[str, ...]:
    given = n.attribute("activations") or [b"Tanh"]
    names = {a.decode().lower() for a in given}
    if len(names) != 1 or not names <= {"tanh", "relu", "sigmoid"}:
        raise UnsupportedOpError(
            f"activations {sorted(names)} are not supported; use Tanh or Relu"
        )
    (activation,) = names

    def cell_of(direction: int) -> RecurrentCell:
        recurrent, turned = _turned(n, _direction(n, 2, direction))

        def step(
            a: Assembler, given: str, states: tuple[str, ...], weights: Sequence[str]
        ) -> tuple[str, ...]:
            product = _product(a, states[0], weights[0], turned)
            return (a.op(activation, a.op("add", product, given)),)

        return RecurrentCell(step, (recurrent,))

    return _layer(n, 1, 1, cell_of)


@dataclass(frozen=True, slots=True)
class _OneWay:
    """A direction of a layer: the inputs' part of the gates [T*B, G*H], the states [B, H] that it
    begins with, [T, B, 1] whether a step is in its sequence (None: all are), the way."""

    cell: RecurrentCell
    given: str
    states: tuple[str, ...]
    alive: str | None
    way: int


def _layer(
    n: NodeContext, gates: int, states: int, cell_of: Callable[[int], RecurrentCell]
) -> tuple[str, ...]:
    """Outputs Y [T, D, B, H] and the last states [D, B, H]; with layout=1, the batch is first."""
    n.ignore("hidden_size")
    for name in ("clip", "activation_alpha", "activation_beta"):
        if n.attribute(name):
            raise UnsupportedOpError(f"attribute {name} is not supported")
    by_batch = bool(n.integer("layout", 0))
    x = n.transpose(n.input(0), (1, 0, 2)) if by_batch else n.input(0)
    length, batch, _ = n.shape(x)
    alive = _alive(n, length)
    ways = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}.get(
        n.text("direction", "forward"), ()
    )
    outputs, last = [], []
    for direction, way in enumerate(ways):
        given = _input_part(n, x, direction, gates)
        size = n.shape(given)[-1] // gates
        given_states = [n.optional(5 + s) for s in range(states)]
        state = tuple(_initial(n, s, direction, (batch, size), by_batch) for s in given_states)
        run = _OneWay(cell_of(direction), given, state, alive, way)
        steps = _looped if any_size((length, batch)) else _unrolled
        y, ends = steps(n, run, length)
        if alive is not None:
            y = n.op("where", alive, y, n.like(0, y))
            # Of a sequence without steps the last states are zero, whatever it begins with.
            any_step = n.reshape(_rows(n, alive, 0, 1), (batch, 1))
            ends = tuple(n.op("where", any_step, end, n.like(0, end)) for end in ends)
        outputs.append(n.reshape(y, (length, 1, batch, size)))
        last.append([n.reshape(s, (1, batch, size)) for s in ends])
    y = _joined(n, outputs, 1)
    final = [_joined(n, [ends[i] for ends in last], 0) for i in range(states)]
    if by_batch:
        return n.transpose(y, (2, 0, 1, 3)), *(n.transpose(s, (1, 0, 2)) for s in final)
    return y, *final


def _alive(n: NodeContext, length: int) -> str | None:
    """[T, B, 1] whether a step is one of its sequence; None where all are."""
    lengths = n.optional(4)
    if lengths is None:
        return None
    known = n.known(lengths)
    if known is not None and known.dtype != object and all(v == length for v in known.ravel()):
        return None
    steps = counted_up(n, 0, length, 1, n.dtype(lengths))
    (batch,) = n.shape(lengths)
    return n.op("lt", n.reshape(steps, (length, 1, 1)), n.reshape(lengths, (1, batch, 1)))


def _unrolled(n: NodeContext, run: _OneWay, length: int) -> tuple[str, tuple[str, ...]]:
    """[T, B, H] outputs, and the last states, of a step after the other."""
    batch, size = n.shape(run.states[0])
    state, results = run.states, [""] * length
    for t in range(length)[:: run.way]:
        given = _rows(n, run.given, t * batch, (t + 1) * batch)
        new = run.cell.step(n, given, state, run.cell.weights)
        if run.alive is not None:
            alive = n.reshape(_rows(n, run.alive, t, t + 1), (batch, 1))
            pairs = zip(new, state, strict=True)
            new = tuple(n.op("where", alive, then, before) for then, before in pairs)
        state = new
        results[t] = n.reshape(state[0], (1, batch, size))
    return n.op("concat", *results, axis=0), state


def _looped(n: NodeContext, run: _OneWay, length: int) -> tuple[str, tuple[str, ...]]:
    """The same as one op; states lie side by side, [T, B, S*H]."""
    (batch, size), count = n.shape(run.states[0]), len(run.states)
    given = n.reshape(run.given, (length, batch, n.shape(run.given)[-1]))
    moving = (given,) if run.alive is None else (given, run.alive)

    def build(a: Assembler, state: str, rows: Sequence[str], weights: Sequence[str]) -> str:
        states = tuple(_parts(a, state, count))
        new = _joined(a, list(run.cell.step(a, rows[0], states, weights)), 1)
        return new if run.alive is None else a.op("where", rows[1], new, state)

    first = _joined(n, list(run.states), 1)
    every = recurrence(n, first, moving, run.cell.weights, build, reverse=run.way < 0)
    end = _rows(n, every, length - 1, length) if run.way > 0 else _rows(n, every, 0, 1)
    ends = _parts(n, n.reshape(end, (batch, count * size)), count)
    if count == 1:
        return every, tuple(ends)
    y = n.op(
        "slice", every, starts=(0, 0, 0), stops=(length, batch, size), steps=(1, 1, 1)
    )  # fmt: skip
    return y, tuple(ends)


def _joined(n: Assembler, values: list[str], axis: int) -> str:
    return values[0] if len(values) == 1 else n.op("concat", *values, axis=axis)


def _input_part(n: NodeContext, x: str, direction: int, gates: int) -> str:
    """x W^T + biases for all steps, [T*B, G*H]; recurrent ones too, but for a GRU's last gate."""
    length, batch, features = n.shape(x)
    flat = n.reshape(x, (length * batch, features))
    y = _product(n, flat, *_turned(n, _direction(n, 1, direction)))
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


def _rows(n: Assembler, value: str, start: int, stop: int) -> str:
    shape = n.shape(value)
    if (start, stop) == (0, shape[0]):
        return value
    rest = shape[1:]
    return n.op(
        "slice", value, starts=(start, *[0] * len(rest)), stops=(stop, *rest),
        steps=(1,) * len(shape),
    )  # fmt: skip


def _parts(n: Assembler, value: str, count: int) -> list[str]:
    """[B, count * H] as `count` values [B, H]."""
    batch, width = n.shape(value)
    size = width // count
    if count == 1:
        return [value]
    return [
        n.op("slice", value, starts=(0, g * size), stops=(batch, (g + 1) * size), steps=(1, 1))
        for g in range(count)
    ]


def _turned(n: Assembler, w: str) -> tuple[str, bool]:
    """Weights [rows, columns] for products; constant ones are transposed, which is said."""
    known = n.known(w) is not None
    return (n.transpose(w, (1, 0)) if known else w), known


def _product(n: Assembler, x: str, w: str, turned: bool) -> str:
    """x w^T, of weights that are `turned` already or not."""
    return n.op("matmul", x, w, transpose_b=not turned)


def _plain(n: NodeContext, expected: tuple[str, ...]) -> None:
    """Only the activations that the operator has by itself."""
    given = [a.decode() for a in n.attribute("activations") or ()]
    wanted = [*expected] * (len(given) // len(expected))
    if [g.lower() for g in given] != [w.lower() for w in wanted]:
        raise UnsupportedOpError(f"activations {given} are not supported; use {expected}")
