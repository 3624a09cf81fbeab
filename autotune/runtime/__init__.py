"""Running compiled models: executor, artifacts, limits. Needs numpy only."""

from autotune.graph.feeds import random_feeds
from autotune.runtime.artifact import load
from autotune.runtime.image_file import is_artifact
from autotune.runtime.model import CompiledModel, KernelTime, ModelTimes

__all__ = ["CompiledModel", "KernelTime", "ModelTimes", "is_artifact", "load", "random_feeds"]
