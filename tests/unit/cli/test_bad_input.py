"""What a user can get wrong, through the whole command: one clear line, status 2, nothing lost."""

from __future__ import annotations

import os
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.cli import execute
from autotune.db.store import TuningLog
from autotune.frontend.zoo import export_onnx

Captured = pytest.CaptureFixture[str]
X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a good model, a good artifact and a good input."""
    monkeypatch.chdir(tmp_path)
    export_onnx("tiny", "tiny.onnx")
    np.save("x.npy", np.zeros((1, 3, 32, 32), np.float32))
    return tmp_path


def refused(capsys: Captured, *arguments: str) -> str:
    """The only line that the command prints."""
    capsys.readouterr()
    assert execute(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def one_node(path: str, node: onnx.NodeProto) -> None:
    graph = helper.make_graph([node], "g", [X], [Y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, path)


@pytest.mark.parametrize(
    "command",
    [("tasks",), ("run", "--random"), ("bench",), ("compile", "-o", "m"), ("query",), ("tune",)],
    ids=lambda c: c[0],
)
def test_no_command_takes_half_a_model(command: tuple[str, ...], capsys: Captured) -> None:
    whole = Path("tiny.onnx").read_bytes()
    Path("half.onnx").write_bytes(whole[: len(whole) // 2])
    assert "truncated" in refused(capsys, command[0], "half.onnx", *command[1:])
    assert not Path("tuning.db").exists()


def test_an_unknown_operator_is_named(capsys: Captured) -> None:
    one_node("odd.onnx", helper.make_node("Unique", ["x"], ["y"], name="which"))
    message = refused(capsys, "tasks", "odd.onnx")
    assert all(word in message for word in ("Unique", "'which'", "opset 17"))


@pytest.mark.parametrize(
    ("shape", "words"),
    [("x=1x3x64x64", "1x3x32x32"), ("z=1", "'z'"), ("x=1x0", "NAME=1x3x224x224")],
)
def test_a_shape_that_does_not_fit(shape: str, words: str, capsys: Captured) -> None:
    assert words in refused(capsys, "run", "tiny.onnx", "--random", "--shape", shape)


@pytest.mark.parametrize(
    "arguments",
    [("tune", "tiny.onnx", "--seed", "-1"), ("run", "tiny.onnx", "--random", "--seed", "-1")],
    ids=lambda a: a[0],
)
def test_a_seed_is_not_negative(arguments: tuple[str, ...], capsys: Captured) -> None:
    assert "at least 0" in refused(capsys, *arguments)


@pytest.mark.parametrize("command", [("tune",), ("run", "--random")], ids=lambda c: c[0])
def test_a_seed_fits_into_a_log(command: tuple[str, ...], capsys: Captured) -> None:
    message = refused(capsys, command[0], "tiny.onnx", *command[1:], "--seed", str(1 << 63))
    assert "up to 9223372036854775807" in message


@pytest.mark.parametrize(
    ("option", "value"),
    [("--time", "-5s"), ("--until-gain", "-1%"), ("--threads", "-1"), ("--priority", "-101")],
)
def test_a_value_below_zero_is_shown_for_what_it_is(
    option: str, value: str, capsys: Captured
) -> None:
    message = refused(capsys, "tune", "tiny.onnx", option, value)
    assert f"argument {option}: expected a" in message
    assert f"got '{value}'" in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "--top", "9" * 20),
        ("query", "--shape", "1x" + "9" * 5000),
        ("query", "--shape", "1x\u00b2"),
        ("log", "prune", "--keep", "9" * 20),
        ("tasks", "tiny.onnx", "--shape", "x=1x" + "9" * 5000),
        ("tasks", "tiny.onnx", "--target", "opencl:" + "9" * 5000),
    ],
    ids=lambda a: " ".join(a)[:20],
)
def test_numbers_beyond_all_use(arguments: tuple[str, ...], capsys: Captured) -> None:
    assert "expected" in refused(capsys, *arguments)


def test_a_folder_is_no_model_and_no_log(folder: Path, capsys: Captured) -> None:
    (folder / "dir.onnx").mkdir()
    assert "Is a directory; expected a file" in refused(capsys, "tasks", "dir.onnx")
    message = refused(capsys, "tune", "tiny.onnx", "--log", "dir.onnx")
    assert "Is a directory; give another --log" in message


def test_a_model_that_does_not_exist_is_not_taken_for_a_format(capsys: Captured) -> None:
    message = refused(capsys, "bench", "tiny.model")
    assert (
        "does not exist; expected an .onnx, .tflite or .pt2 file, zoo:NAME or a compiled model"
        in message
    )


@pytest.mark.parametrize("command", ["run", "bench"])
def test_an_empty_artifact_is_no_model_of_another_kind(command: str, capsys: Captured) -> None:
    Path("empty.model").touch()
    given = ("--random",) if command == "run" else ()
    message = refused(capsys, command, "empty.model", *given)
    assert "not a compiled model, or is damaged" in message


def test_an_archive_that_is_no_program_is_one_line(capsys: Captured) -> None:
    """PyTorch's reader logs a stack of its own before it raises."""
    with zipfile.ZipFile("other.pt2", "w") as archive:
        archive.write("x.npy")
    assert "no program of torch.export" in refused(capsys, "tasks", "other.pt2")


@pytest.mark.parametrize("name", ["none.pt2", "none.tflite"])
def test_a_file_that_is_not_there(name: str, capsys: Captured) -> None:
    assert f"{name}': there is no such file; check the path" in refused(capsys, "tasks", name)


@pytest.mark.parametrize("command", [("query",), ("compile", "tiny.onnx"), ("log", "stats")])
@pytest.mark.parametrize("log", ["", "sqlite:///"])
def test_an_empty_path_is_not_the_current_folder(
    command: tuple[str, ...], log: str, capsys: Captured
) -> None:
    assert "empty" in refused(capsys, *command, "--log", log)
    assert "-o: an empty path" in refused(capsys, "compile", "tiny.onnx", "-o", "")


def test_a_device_is_no_log(capsys: Captured) -> None:
    message = refused(capsys, "tune", "tiny.onnx", "--trials", "1", "--log", os.devnull)
    assert "neither a file nor a new name; give another --log" in message


def test_a_log_of_a_newer_release_is_left_alone(capsys: Captured) -> None:
    with TuningLog("log.db") as log:
        log.claim()
    with sqlite3.connect("log.db") as connection:
        connection.execute("UPDATE schema SET version = 99")
    connection.close()
    before = Path("log.db").read_bytes()
    for command in (("tune", "--trials", "1"), ("tasks",), ("compile", "-o", "m"), ("query",)):
        message = refused(capsys, command[0], "tiny.onnx", *command[1:], "--log", "log.db")
        assert "newer release" in message
    assert Path("log.db").read_bytes() == before


def test_a_log_that_another_run_writes(capsys: Captured) -> None:
    with TuningLog("log.db") as log:
        log.claim()
        message = refused(capsys, "tune", "tiny.onnx", "--trials", "1", "--log", "log.db")
    assert "another process is writing to it" in message


def test_an_artifact_of_another_cpu(capsys: Captured) -> None:
    assert execute(("compile", "tiny.onnx", "--target", "cortex-a72", "-o", "arm.model")) == 0
    assert "is built for aarch64" in refused(capsys, "run", "arm.model", "--random")


@pytest.mark.parametrize("cut", [30, 1000])
def test_half_an_artifact(cut: int, capsys: Captured) -> None:
    assert execute(("compile", "tiny.onnx", "-o", "whole.model")) == 0
    Path("half.model").write_bytes(Path("whole.model").read_bytes()[:-cut])
    assert "is not a compiled model, or is damaged" in refused(
        capsys, "run", "half.model", "--random"
    )


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (("z=x.npy",), "expected inputs x; got z"),
        (("x=narrow.npy",), "expected shape [1, 3, 32, 32], got [1, 3, 32, 31]"),
        (("x=double.npy",), "expected float32, got float64"),
        (("x=tiny.onnx",), "is not a .npy file"),
        (("x=x.npy", "x=x.npy"), "given twice"),
    ],
)
def test_an_input_that_does_not_fit(inputs: tuple[str, ...], words: str, capsys: Captured) -> None:
    np.save("narrow.npy", np.zeros((1, 3, 32, 31), np.float32))
    np.save("double.npy", np.zeros((1, 3, 32, 32)))
    given = [word for text in inputs for word in ("--input", text)]
    assert words in refused(capsys, "run", "tiny.onnx", *given)


@pytest.mark.parametrize("output", ["nowhere/m", "."])
def test_an_output_that_cannot_be_written(output: str, capsys: Captured) -> None:
    message = refused(capsys, "compile", "tiny.onnx", "-o", output)
    assert f"cannot write {output}" in message
    assert "choose another path" in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "tiny.onnx", "-o", "./tiny.onnx"),
        ("report", "tiny.onnx", "--log", "kept.db", "-o", "kept.db"),
        ("log", "export", "--log", "kept.db", "-o", "link.db"),
        ("log", "freeze", "tiny.onnx", "--log", "sqlite:///kept.db", "-o", "kept.db"),
    ],
)
def test_what_is_read_is_not_replaced(arguments: tuple[str, ...], capsys: Captured) -> None:
    with TuningLog("kept.db") as log:
        log.claim()
    Path("link.db").symlink_to("kept.db")
    before = Path("kept.db").read_bytes(), Path("tiny.onnx").read_bytes()
    assert "which is read" in refused(capsys, *arguments)
    assert (Path("kept.db").read_bytes(), Path("tiny.onnx").read_bytes()) == before


def test_a_missing_log_is_no_second_line(capsys: Captured) -> None:
    assert "none.onnx" in refused(capsys, "compile", "none.onnx", "-o", "m", "--log", "none.db")


def test_a_tensor_that_nothing_holds(capsys: Captured) -> None:
    wide = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1 << 31, 1])
    across = helper.make_node("Transpose", ["x"], ["z"])
    outer = helper.make_node("Add", ["x", "z"], ["y"], name="outer")
    graph = helper.make_graph([across, outer], "g", [wide], [Y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "big.onnx")
    message = refused(capsys, "tasks", "big.onnx")
    assert all(word in message for word in ("'outer'", "TB", "check the shapes"))


def test_a_line_that_never_ends(capsys: Captured) -> None:
    assert "longer than" in refused(capsys, "log", "import", "/dev/zero")


def test_more_repeats_than_are_kept(capsys: Captured) -> None:
    message = refused(capsys, "bench", "tiny.onnx", "--repeats", "99999999999999")
    assert "up to 1000000" in message


def test_memory_that_is_not_there(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError("Unable to allocate 4 TiB")

    monkeypatch.setattr("autotune.cli.run._random", exhausted)
    assert "out of memory (Unable to allocate 4 TiB)" in refused(
        capsys, "run", "tiny.onnx", "--random"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--boards", "4"), "--boards is for --device tracker://"),
        (("--boards", "4", "--device", "rpc://127.0.0.1:1"), "the device is rpc://127.0.0.1:1"),
        (("--certs", "certs"), "--certs is for --device"),
        (("--build", "host"), "leave --build out"),
        (("--calibration", "x.npz"), "are for precision int8"),
        (("--calibration", "x.npz", "--precision", "int8"), "cannot read x.npz"),
        (("--rewrites", "x.rewrites"), "cannot read the rewrites x.rewrites"),
    ],
)
def test_wrong_options_make_no_log(options: tuple[str, ...], words: str, capsys: Captured) -> None:
    assert words in refused(capsys, "tune", "tiny.onnx", *options)
    assert not Path("tuning.db").exists()


@pytest.mark.parametrize("option", [("--threads", "2"), ("--log", "x.db"), ("--shape", "x=1")])
def test_what_compiling_has_settled(option: tuple[str, ...], capsys: Captured) -> None:
    assert execute(["compile", "tiny.onnx", "-o", "tiny.model"]) == 0
    message = refused(capsys, "bench", "tiny.model", *option)
    assert f"settled {option[0]}: compile the model again" in message


def test_a_name_that_is_too_long(capsys: Captured) -> None:
    assert "does not exist" in refused(capsys, "tasks", "x" * 300)


HUGE = [("run", "--random"), ("bench",), ("compile", "-o", "m"), ("tune", "--trials", "1"),
        ("run", "--random", "--precision", "int8")]  # fmt: skip


@pytest.mark.parametrize("command", HUGE, ids="_".join)
def test_what_no_memory_holds_is_refused_before_it_is_drawn(
    command: tuple[str, ...], capsys: Captured
) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    shape = [1, 448, 8192, 8192]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "g", [x], [Y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "huge.onnx")
    text = refused(capsys, command[0], "huge.onnx", *command[1:])
    assert "does not fit into memory" in text
    assert "'x' alone, float32[1,448,8192,8192], takes 112 GiB" in text
    assert not Path("tuning.db").exists()


EVIL = "a\x1b[2J\x1b]0;mine\x07\n\u202etxt.exe"


@pytest.mark.parametrize("place", ["input", "node", "operator"])
def test_names_of_models_move_no_cursor(place: str, capsys: Captured) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="node")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])]
    if place == "input":
        inputs[0].name = node.input[0] = EVIL
    elif place == "node":
        node.name, node.op_type = EVIL, "Softmax"
        inputs[0].type.tensor_type.shape.dim[0].dim_value = 2
        node.attribute.append(helper.make_attribute("axis", 7))
    else:
        node.op_type = EVIL
        inputs[0].type.tensor_type.shape.dim[0].dim_value = 2
    graph = helper.make_graph([node], "g", inputs, [Y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "evil.onnx")
    text = refused(capsys, "tasks", "evil.onnx")
    assert text.removesuffix("\n").isprintable()
    assert "txt.exe" in text


def test_names_in_tables_move_no_cursor(capsys: Captured) -> None:
    node = helper.make_node("Relu", ["x"], [EVIL], name=EVIL)
    y = helper.make_tensor_value_info(EVIL, TensorProto.FLOAT, [1, 3])
    graph = helper.make_graph([node], EVIL, [X], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "evil.onnx")
    for command in (("run", "--random"), ("bench",), ("tasks",), ("bench", "--profile")):
        assert execute((command[0], "evil.onnx", *command[1:])) == 0
        out, err = capsys.readouterr()
        assert all(c.isprintable() or c == "\n" for c in out + err), command
