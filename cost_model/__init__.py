"""What a config of a task takes: `predict` and `default` are the only ways to a predicted time."""

from cost_model.prediction import Prediction, default, default_of, predict

__all__ = ["Prediction", "default", "default_of", "predict"]
