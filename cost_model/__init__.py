"""Predicted times of a task's configs: `predict` and `default` are the only ways to one."""

from cost_model.prediction import Prediction, default, default_of, predict

__all__ = ["Prediction", "default", "default_of", "predict"]
