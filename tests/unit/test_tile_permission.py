"""Asking Linux for matrix tiles: what is asked, and what an answer means."""

from __future__ import annotations

import ctypes
import errno

import llvmlite.binding as llvm
import pytest

from autotune import tile_permission
from autotune.target import host_features, host_target
from autotune.tile_permission import refusal, request


def answering(code: int, features: int = 0) -> tile_permission.Call:
    def call(_: int, argument: int) -> int:
        if features:
            ctypes.c_uint64.from_address(argument).value = features
        return code

    return call


def test_the_request_names_tile_data_of_the_whole_process() -> None:
    asked: list[tuple[int, int]] = []
    assert request(lambda *given: asked.append(given) or 0) == ""
    assert asked == [(0x1023, 18)]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "signal stack"),
        (errno.EINVAL, "Linux 5.16"),
        (errno.EOPNOTSUPP, "processor"),
        (errno.EPERM, "not permitted"),
    ],
)
def test_an_error_has_a_reason(code: int, reason: str) -> None:
    assert reason in request(answering(code))
    assert reason in refusal(answering(code))


def test_tiles_are_there_where_the_system_saves_them() -> None:
    assert refusal(answering(0, 1 << 18 | 1 << 17)) == ""
    assert refusal(answering(0, 1 << 17)) == "the system does not save them"


@pytest.mark.parametrize("refused", ["", "the system says no"])
def test_a_host_has_tiles_if_the_system_gives_them(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    flags = {"avx512f": True, "amx-tile": True, "amx-bf16": True, "avx512fp16": True}
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict(flags))
    monkeypatch.setattr(tile_permission, "refusal", lambda: refused)
    found = host_target()
    assert found.has_tiles is not bool(refused)
    assert ("+amx-bf16" in found.features) is not bool(refused)
    assert "+avx512fp16" in found.features


def test_features_of_a_granite_rapids_are_kept() -> None:
    """Its flags as Linux lists them (lscpu), by LLVM's names."""
    recorded = "avx_vnni avx512_bf16 avx512_vnni avx512_fp16 amx_bf16 amx_tile amx_int8"
    flags = {_llvm_name(flag): True for flag in recorded.split()}
    assert host_features(flags) == (
        "+amx-bf16,+amx-int8,+amx-tile,+avx512bf16,+avx512fp16,+avx512vnni,+avxvnni"
    )


def _llvm_name(flag: str) -> str:
    return flag.replace("amx_", "amx-").replace("_", "")
