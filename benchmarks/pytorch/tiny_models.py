"""Small networks with random weights, made from what packages know: one of every family of timm,
one of every model type of transformers, each of torchvision's. In: a name. Out: a module and its
inputs, or an error that says why there is none."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

Made = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A module, and what it is called with."""
IMAGE_SIZES = (64, 96, 128, 160, 192, 224, 256)
SIZES = ("atto", "femto", "pico", "zepto", "nano", "xxs", "xx", "xxsmall", "050", "035", "xs", "x",
         "t", "t0", "tiny", "ti", "s0", "b0", "s12", "10t", "14t", "18", "s", "small")  # fmt: skip
"""Words for sizes in timm's names, the smallest first."""
MOST_PARAMETERS = 60_000_000
TOKENS, LENGTH, WIDTH = 128, 16, 64


# ------------------------------------------------------------------------------------------- timm


def timm_names() -> list[str]:
    """The variant of each family that is named as the smallest one."""
    import timm
    from timm.models import _registry

    families: dict[str, list[str]] = {}
    for name in timm.list_models():
        families.setdefault(_registry._model_to_module[name], []).append(name)
    return [min(names, key=_named_size) for _, names in sorted(families.items())]


def _named_size(name: str) -> tuple[int, int, str]:
    """How small a variant is by its name: the place of a word for its size in their order."""
    words = [word for word in name.split("_") if not name.startswith("test_")]
    known = [SIZES.index(word) for word in words if word in SIZES]
    return min(known, default=len(SIZES)), len(name), name


def timm_model(name: str) -> Made:
    import timm

    model = with_statistics(timm.create_model(name, pretrained=False).eval())
    settings = model.pretrained_cfg
    size = settings.get("input_size", (3, 224, 224))
    tried = () if settings.get("fixed_input_size") else IMAGE_SIZES
    for side in tried:
        image = (torch.randn(1, size[0], side, side),)
        if side <= size[-1] and runs(model, image, {}) is None:
            return model, image, {}
    return model, (torch.randn(1, *size),), {}


def with_statistics(model: Any) -> Any:
    """The model, whose batch norms have seen something, and whose weights are not all alike: the
    order of an all-zero router's choices is nobody's promise."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1 and weight.numel() > 1 and bool((weight == 0).all()):
                weight.normal_(0, 0.1)
    for part in model.modules():
        if getattr(part, "running_mean", None) is not None:
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    return model


def runs(model: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Exception | None:
    """The error of a call, None where there is none."""
    try:
        with torch.no_grad():
            model(*args, **named)
    except Exception as error:
        return error
    return None


# ------------------------------------------------------------------------------------ torchvision


def torchvision_names() -> list[str]:
    """The first of every family, by the module that it is in."""
    from torchvision import models

    families: dict[str, str] = {}
    for name in models.list_models():
        families.setdefault(models.get_model_builder(name).__module__, name)
    return sorted(families.values())


def torchvision_model(name: str) -> Made:
    from torchvision import models

    given: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
        given["weights_backbone"] = None
    model = with_statistics(models.get_model(name, **given).eval())
    images = [(1, 3, side, side) for side in (64, 128, 224, 299)]
    shapes = [*images, (1, 3, 16, 64, 64), (1, 3, 16, 112, 112), (1, 3, 16, 224, 224)]
    for shape in shapes:
        for given_ in ((torch.rand(shape),), ([torch.rand(shape[1:])],), (torch.rand(shape),) * 2):
            if runs(model, given_, {}) is None:
                return model, given_, {}
    raise ValueError("no input of a usual form fits")


# ----------------------------------------------------------------------------------- transformers


def transformers_names() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(MODEL_MAPPING_NAMES)


def transformers_model(name: str) -> Made:
    """The first of several ways to make a config small by which a model is made and runs."""
    from transformers import CONFIG_MAPPING, MODEL_MAPPING

    why: list[str] = []
    for shrink in (narrow, thin, shallow):
        torch.manual_seed(0)
        try:
            config = CONFIG_MAPPING[name]()
            shrink(config)
            kind = MODEL_MAPPING[type(config)]
            kind = kind[0] if isinstance(kind, tuple) else kind
            with torch.device("meta"):
                count = sum(p.numel() for p in kind(config).parameters())
            if count > MOST_PARAMETERS:
                raise ValueError(f"{count / 1e6:.0f} million parameters")
            model = with_statistics(kind(config).eval().float())
        except Exception as error:
            why.append(_line(error))
            continue
        for feeds in feeds_of(model, config):
            error_ = runs(model, (), feeds)
            if error_ is None:
                return model, (), feeds
            why.append(_line(error_))
    raise ValueError("; ".join(dict.fromkeys(why)))


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


def _settings(config: Any) -> Iterator[tuple[Any, str, Any]]:
    """(config, name, value) of a config's numbers and lists of them, also of the configs in it."""
    from transformers import PretrainedConfig

    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            yield from _settings(value)
        elif not name.startswith("_"):
            yield config, name, value


def narrow(config: Any) -> None:
    """All widths 64, few layers, heads, tokens, small images."""
    _few_layers(config)
    for owner, name, value in _settings(config):
        if isinstance(value, bool) or not isinstance(value, int) or value is None:
            continue
        if _is_count(name):
            continue
        if "head_dim" in name or name.endswith(("_rank", "d_kv", "key_value_proj_dim")):
            _set(owner, name, min(value, 16))
        elif name.endswith(("heads", "n_head", "attention_head", "head")) and value > 1:
            _set(owner, name, 4 if value >= 4 else value)
        elif any(w in name for w in ("intermediate", "ffn", "d_ff", "n_inner", "mlp_dim")):
            _set(owner, name, min(value, 2 * WIDTH))
        elif any(w in name for w in ("hidden", "d_model", "dim", "embd", "width", "channels_out",
                                     "embed", "projection_size")) and value > WIDTH:  # fmt: skip
            _set(owner, name, WIDTH)


def thin(config: Any) -> None:
    """Few layers, and large widths divided by 4."""
    _few_layers(config)
    for owner, name, value in _settings(config):
        if isinstance(value, bool) or not isinstance(value, int) or _is_count(name):
            continue
        wide = ("hidden", "d_model", "embd", "intermediate", "ffn", "d_ff", "width", "embed_dim")
        is_wide = any(w in name for w in wide) and value >= 512
        if (is_wide or ("heads" in name and value >= 8)) and value % 4 == 0:
            _set(owner, name, value // 4)


def shallow(config: Any) -> None:
    """Few layers only."""
    _few_layers(config)


def _is_count(name: str) -> bool:
    counts = ("layer", "depth", "token", "vocab", "position", "patch", "size_", "image_size",
              "kernel", "stride", "num_labels")  # fmt: skip
    return any(word in name for word in counts)


def _few_layers(config: Any) -> None:
    for owner, name, value in _settings(config):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if name in ("layer_types", "layers_block_type", "mlp_layer_types", "block_types",
                    "_layer_types", "attention_types") and isinstance(value, list):  # fmt: skip
            kinds = list(dict.fromkeys(map(str, value)))
            _set(owner, name, kinds if len(kinds) > 1 else value[:2])
            for other in ("num_hidden_layers", "n_layer", "num_layers"):
                if isinstance(getattr(owner, other, None), int):
                    _set(owner, other, max(2, len(kinds)))
        elif whole and ("layers" in name or name in ("n_layer", "depth")) and value > 2:
            listed = getattr(owner, "layer_types", None)
            _set(owner, name, 2 if not listed or name != "num_hidden_layers" else
                 len(set(map(str, listed))) if len(set(map(str, listed))) > 1 else 2)  # fmt: skip
        elif "vocab_size" in name and whole and value > 2 * TOKENS:
            _set(owner, name, 2 * TOKENS)
        elif name.endswith("token_id") and whole and value >= TOKENS:
            _set(owner, name, TOKENS - 1 - sum(map(ord, name)) % 40)
        elif name == "depths" and isinstance(value, list | tuple):
            _set(owner, name, type(value)(min(v, 2) for v in value))
        elif name == "image_size" and whole and value > 2 * WIDTH:
            _set(owner, name, 2 * WIDTH)
        elif name in ("num_experts", "num_local_experts", "n_routed_experts") and whole:
            _set(owner, name, min(value, 4))
        elif name in ("num_experts_per_tok", "moe_k", "moe_top_k") and whole:
            _set(owner, name, min(value, 2))
        elif name == "max_position_embeddings" and whole:
            _set(owner, name, min(value, 512))


def _set(owner: Any, name: str, value: Any) -> None:
    try:
        setattr(owner, name, value)
    except Exception:  # some settings follow from others
        return


def feeds_of(model: Any, config: Any) -> Iterator[dict[str, Any]]:
    """Inputs that may fit, by the names that `forward` has for them."""
    names = inspect.signature(model.forward).parameters
    main = model.main_input_name if isinstance(model.main_input_name, str) else "input_ids"
    first = [n for n in (main, "input_ids", "pixel_values", "input_features", "input_values")
             if n in names]  # fmt: skip
    for name in dict.fromkeys(first):
        for tensor in _tensors(name, config):
            feeds = {name: tensor}
            yield feeds
            if name != "input_ids" and "input_ids" in names:
                yield {**feeds, "input_ids": _tokens()}
            if "decoder_input_ids" in names:
                yield {**feeds, "decoder_input_ids": _tokens()}
            if "decoder_input_ids" in names and "input_ids" in names:
                yield {**feeds, "input_ids": _tokens(), "decoder_input_ids": _tokens()}
            if "attention_mask" in names:
                yield {**feeds, "attention_mask": torch.ones(tensor.shape[:2], dtype=torch.long)}
            if "bbox" in names:
                boxes = torch.randint(0, 100, (2, LENGTH, 4)).sort(-1).values
                yield {**feeds, "input_ids": _tokens(), "bbox": boxes}


def _tokens() -> torch.Tensor:
    return torch.randint(3, TOKENS // 2, (2, LENGTH))


def _tensors(name: str, config: Any) -> Iterator[torch.Tensor]:
    if name.endswith("ids"):
        yield _tokens()
        return
    if "pixel" in name:
        sides = {getattr(c, "image_size", None) for c in (config, *_parts(config))}
        channels = getattr(config, "num_channels", 3)
        for side in [s for s in sides if s] or IMAGE_SIZES:
            height, width = side if isinstance(side, list | tuple) else (side, side)
            yield torch.randn(1, channels if isinstance(channels, int) else 3, height, width)
            frames = getattr(config, "num_frames", None) or 8
            yield torch.randn(1, frames, 3, height, width)
        return
    bins = [getattr(c, n) for c in (config, *_parts(config))
            for n in ("num_mel_bins", "input_feat_per_channel", "feature_size", "input_dim")
            if isinstance(getattr(c, n, None), int)]  # fmt: skip
    if name == "input_features":
        for wide in bins or [80]:
            longest = 2 * int(getattr(config, "max_source_positions", 64) or 64)
            yield torch.randn(1, wide, longest)
            yield torch.randn(1, 64, wide)
        return
    yield torch.randn(1, 4000)
    yield torch.randn(1, 1, 4000)
    length = int(getattr(config, "max_length", 0) or 0)
    for wide in bins:
        yield torch.randn(1, length or 256, wide)
    for places in (getattr(config, n, None) for n in ("context_length", "prediction_length")):
        if isinstance(places, int) and not math.isnan(places):
            yield torch.randn(1, places, int(getattr(config, "num_input_channels", 1) or 1))


def _parts(config: Any) -> list[Any]:
    from transformers import PretrainedConfig

    return [v for v in vars(config).values() if isinstance(v, PretrainedConfig)]


MAKERS: dict[str, Callable[[str], Made]] = {
    "timm": timm_model,
    "torchvision": torchvision_model,
    "transformers": transformers_model,
}
