"""Predicted times of a task's configs: `predict`, `default` and `least_by` are the only ways to
one."""

from cost_model.prediction import (
    LeastConfigs,
    Prediction,
    default,
    default_of,
    least_by,
    predict,
)

__all__ = ["LeastConfigs", "Prediction", "default", "default_of", "least_by", "predict"]
