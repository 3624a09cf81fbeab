"""Jobs that a run gives to other processors, and their wire format: JSON and arrays as bytes.

In: a frame that names a task or holds a data set. Out: a frame with its features, or with what was
learnt. A worker needs this package; the arithmetic is the same as here, so the results are.
"""

from __future__ import annotations

import io
import math
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.machine.profile import DeviceProfile
from autotune.measure.frames import encode_frame, read_frame
from autotune.target import Target
from autotune.types import Task
from cost_model.features import FEATURE_VERSION, Features
from cost_model.models import COST_MODELS, Dataset
from cost_model.subject import Subject
from search_spaces.rules import RULES
from search_spaces.space import Rows

Arrays = Mapping[str, npt.NDArray[Any]]


def pack(header: Mapping[str, Any], arrays: Arrays) -> bytes:
    """A frame of JSON and arrays of numbers."""
    about = [(name, a.dtype.str, a.shape) for name, a in arrays.items()]
    blob = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())
    return encode_frame({**header, "arrays": about}, blob)


def unpack(frame: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    header, blob = read_frame(io.BytesIO(frame).read)
    arrays, at = {}, 0
    for name, kind, shape in header.pop("arrays"):
        count = math.prod(shape)
        dtype = np.dtype(kind)
        arrays[name] = np.frombuffer(blob, dtype, count, at).reshape(shape).copy()
        at += count * dtype.itemsize
    return header, arrays


# ------------------------------------------------------------------------------------- features


def describe_frame(subject: Subject, rows: Rows) -> bytes:
    header = {
        "task": subject.task.to_json(),
        "target": subject.target.to_json(),
        "profile": subject.profile.to_json(),
        "rule": subject.rule.name,
    }
    return pack(header, {"rows": rows})


def describe_job(frame: bytes) -> bytes:
    """What a worker does: features of some rows of a task's space."""
    header, arrays = unpack(frame)
    subject = Subject.of(
        Task.from_json(header["task"]),
        Target.from_json(header["target"]),
        DeviceProfile.from_json(header["profile"]),
        RULES.get(header["rule"]),
    )
    found = subject.describe(arrays["rows"])
    return pack({"names": found.names}, {"values": found.values, "prior_s": found.prior_s})


def described(frames: Sequence[bytes]) -> Features:
    """The features that several jobs found, in one."""
    parts = [unpack(frame) for frame in frames]
    return Features(
        names=tuple(parts[0][0]["names"]),
        values=np.concatenate([arrays["values"] for _, arrays in parts]),
        prior_s=np.concatenate([arrays["prior_s"] for _, arrays in parts]),
    )


# ------------------------------------------------------------------------------------- training


def train_frame(name: str, seed: int, data: Dataset) -> bytes:
    arrays: Arrays = {
        "values": data.values,
        "prior_s": data.prior_s,
        "time_s": data.time_s,
        "group": data.group,
    }
    return pack({"model": name, "seed": seed, "names": data.names}, arrays)


def train_job(frame: bytes) -> bytes:
    """What a worker does: the state of a cost model that has learnt a data set."""
    header, arrays = unpack(frame)
    model = COST_MODELS.get(header["model"])(int(header["seed"]))
    model.fit(Dataset(names=tuple(header["names"]), **arrays))
    return encode_frame({"state": model.state()})


def trained(frame: bytes) -> dict[str, Any]:
    header, _ = read_frame(io.BytesIO(frame).read)
    state: dict[str, Any] = header["state"]
    return state


# --------------------------------------------------------------------------------------- workers


def versions_job() -> dict[str, str]:
    """What has to be the same on every worker, so that results do not depend on who computes."""
    import llvmlite
    import xgboost

    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "features": str(FEATURE_VERSION),
        "llvmlite": llvmlite.__version__,
        "numpy": np.__version__,
        "xgboost": xgboost.__version__,
    }
