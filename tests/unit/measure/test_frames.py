"""Frames of the worker pipe."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.measure import frames
from autotune.measure.frames import FrameError, encode_frame, read_frame

JSON = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none())


@settings(max_examples=50)
@given(header=JSON, blob=st.binary(max_size=200))
def test_a_frame_is_read_back(header: dict[str, object], blob: bytes) -> None:
    assert read_frame(io.BytesIO(encode_frame(header, blob)).read) == (header, blob)


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    prefix = frames.PREFIX.pack(10, frames.MAX_BLOB_BYTES + 1)
    with pytest.raises(FrameError, match="at most"):
        read_frame(io.BytesIO(prefix).read)


@pytest.mark.parametrize("text", [b"[1]", b"{", b"\xff\xff"])
def test_a_header_must_be_a_json_object(text: bytes) -> None:
    data = frames.PREFIX.pack(len(text), 0) + text
    with pytest.raises(FrameError, match="JSON"):
        read_frame(io.BytesIO(data).read)
