"""Cost models: every module of this folder registers one in `COST_MODELS`."""

from autotune.registry import load_folder
from cost_model.models.base import COST_MODELS, CostModel, Dataset, Train, fit_here

load_folder(__name__, list(__path__))

__all__ = [
    "COST_MODELS",
    "CostModel",
    "Dataset",
    "Train",
    "fit_here",
]
