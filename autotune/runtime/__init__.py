"""Running compiled models: executor, artifacts, limits. Needs numpy and llvmlite only."""

from autotune.graph.feeds import random_feeds
from autotune.runtime.artifact import is_artifact, load
from autotune.runtime.executor import CompiledModel, KernelTime, ModelTimes

__all__ = ["CompiledModel", "KernelTime", "ModelTimes", "is_artifact", "load", "random_feeds"]
