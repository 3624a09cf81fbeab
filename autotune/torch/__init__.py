"""Entry of PyTorch: `torch.compile(model, backend="autotune")`, and what of a model is ours."""

from autotune.torch.backend import backend as backend
from autotune.torch.explain import Explanation as Explanation
from autotune.torch.explain import explain as explain
from autotune.torch.tuning import Tuning as Tuning
from autotune.torch.tuning import tune as tune
