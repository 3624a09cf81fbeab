"""A network of each family that packages bring along, written with PyTorch, beside the peers.

    python benchmarks/networks/family_models.py [NAME ...] [--folder build/models] [--write]
        [-- OPTIONS]

The smallest or a small one of most families of `timm`, and encoders, decoders, towers and
detectors of `transformers`, under random weights of a seed, as `torch.onnx.export` writes them
(by TorchScript, else by torch.export). Needs the extras [torch] and [bench], timm (which needs
torchvision) and transformers. Prints the table of `benchmarks/peers.py`, which takes the OPTIONS;
`--write` only writes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.networks.more_models import compare, random_statistics

SMALL = """
    bat_resnext26ts caformer_s18 cait_xxs24_224 coat_lite_tiny convformer_s18 convmixer_768_32
    convnext_atto convnextv2_atto crossvit_tiny_240 cs3sedarknet_l cspdarknet53 davit_tiny
    deit_tiny_patch16_224 dla34 dpn48b eca_botnext26ts_256 edgenext_xx_small efficientformer_l1
    efficientnet_b1 efficientnet_lite0 efficientvit_b0 efficientvit_m0 ese_vovnet19b_dw
    eva02_tiny_patch14_224 fastvit_t8 fbnetc_100 focalnet_tiny_srf gcresnext26ts gernet_s
    ghostnet_100 ghostnetv3_100 gmlp_ti16_224 hardcorenas_a hiera_tiny_224 hrnet_w18_small
    inception_next_atto inception_v3 inception_v4 lambda_resnet26t lcnet_100 legacy_seresnet18
    levit_128s mambaout_femto maxvit_pico_rw_256 mixer_s32_224 mixnet_s mnasnet_100
    mobilenetv3_large_100 mobilenetv4_conv_small mobileone_s0 mobilevit_xxs mobilevitv2_050
    mvitv2_tiny nest_tiny_jx nextvit_small nf_resnet26 pit_ti_224 poolformer_s12 pvt_v2_b0
    rdnet_tiny regnetx_004 regnety_004 repghostnet_100 repvgg_a0 repvit_m0_9 res2net50_14w_8s
    resmlp_12_224 resnest14d resnet10t resnet26d resnetv2_50 rexnet_100 selecsls42b semnasnet_100
    sequencer2d_s shvit_s1 skresnet18 spnasnet_100 starnet_s1 swiftformer_xs
    swin_tiny_patch4_window7_224 tf_efficientnetv2_b0 tiny_vit_5m_224 tinynet_a tresnet_m
    twins_pcpvt_small visformer_tiny vit_small_patch32_224 vitamin_small_224 xception41
    xcit_nano_12_p16_224"""
TIMM = tuple(SMALL.split())
"""timm's; at their own size, a batch of one."""
ENCODER = {
    "hidden_size": 384, "num_hidden_layers": 4, "num_attention_heads": 6,
    "intermediate_size": 1536, "vocab_size": 1000,
}  # fmt: skip
DECODER = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 5000,
    "num_key_value_heads": 4, "intermediate_size": 1376, "use_cache": False,
}  # fmt: skip
TOWER = {key: value for key, value in ENCODER.items() if key != "vocab_size"}
Feed = tuple[str, tuple[int, ...]]
"""Name and shape of the input: `input_ids` are integers, others normal."""
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], Feed]] = {
    "distilbert": ("DistilBertModel", "DistilBertConfig", {
        "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 1000,
        "attn_implementation": "eager"}, ("input_ids", (1, 128))),
    "electra": ("ElectraModel", "ElectraConfig", {
        "embedding_size": 128, "hidden_size": 256, "num_hidden_layers": 6, "vocab_size": 1000,
        "num_attention_heads": 4, "intermediate_size": 1024}, ("input_ids", (1, 256))),
    "albert": ("AlbertModel", "AlbertConfig", {
        **ENCODER, "hidden_size": 768, "num_attention_heads": 12}, ("input_ids", (1, 64))),
    "mobilebert": ("MobileBertModel", "MobileBertConfig", {
        "num_hidden_layers": 6, "vocab_size": 1000}, ("input_ids", (1, 128))),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", {
        "num_hidden_layers": 4, "vocab_size": 1000}, ("input_ids", (1, 128))),
    "deberta": ("DebertaV2Model", "DebertaV2Config", {
        **ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        ("input_ids", (1, 64))),
    "mpnet": ("MPNetModel", "MPNetConfig", ENCODER, ("input_ids", (2, 48))),
    "funnel": ("FunnelModel", "FunnelConfig", {
        "vocab_size": 1000, "block_sizes": [2, 2, 2], "d_model": 384, "n_head": 6,
        "d_inner": 1536}, ("input_ids", (1, 64))),
    "t5_encoder": ("T5EncoderModel", "T5Config", {
        "d_model": 512, "d_ff": 1024, "num_layers": 4, "num_heads": 8, "vocab_size": 1000,
        "feed_forward_proj": "gated-gelu"}, ("input_ids", (1, 64))),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {
        "n_embd": 512, "n_layer": 4, "n_head": 8, "vocab_size": 5000, "use_cache": False},
        ("input_ids", (1, 64))),
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER, ("input_ids", (1, 100))),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**DECODER, "head_dim": 64},
        ("input_ids", (1, 77))),
    "clip_vision": ("CLIPVisionModel", "CLIPVisionConfig", {
        **TOWER, "image_size": 224, "patch_size": 32}, ("pixel_values", (2, 3, 224, 224))),
    "segformer": ("SegformerForSemanticSegmentation", "SegformerConfig", {"num_labels": 150},
        ("pixel_values", (1, 3, 256, 256))),
    "dpt": ("DPTForDepthEstimation", "DPTConfig", {
        **TOWER, "image_size": 224, "backbone_out_indices": [0, 1, 2, 3],
        "neck_hidden_sizes": [48, 96, 192, 384], "fusion_hidden_size": 64},
        ("pixel_values", (1, 3, 224, 224))),
    "yolos": ("YolosForObjectDetection", "YolosConfig", {
        "hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3,
        "intermediate_size": 768, "image_size": [256, 320],
        "use_mid_position_embeddings": False}, ("pixel_values", (1, 3, 256, 320))),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", TOWER, ("input_values", (1, 16000))),
    "hubert": ("HubertModel", "HubertConfig", {
        **TOWER, "feat_extract_norm": "layer", "do_stable_layer_norm": True},
        ("input_values", (1, 16000))),
}  # fmt: skip
"""transformers' -> class, class of its configuration, what differs from that, input."""


def network(name: str) -> tuple[Any, str | None, Any]:
    """A network in evaluation, the name of its input (None: the exporter's), an example of it."""
    import torch

    torch.manual_seed(0)
    if name in TIMM:
        import timm

        model = timm.create_model(name, exportable=True)
        return model.eval(), None, torch.randn(1, *model.default_cfg["input_size"])
    import transformers

    kind, config, settings, (given, shape) = TRANSFORMERS[name]
    model = getattr(transformers, kind)(getattr(transformers, config)(**settings))
    integers = given == "input_ids"
    return model.eval(), given, torch.randint(3, 900, shape) if integers else torch.randn(shape)


def write(name: str, path: Path) -> None:
    """By TorchScript where that can, else by torch.export."""
    import torch

    model, given, example = network(name)
    random_statistics(model)

    def export(**options: Any) -> None:
        if given is None:
            torch.onnx.export(model, (example,), path, **options)
        else:
            named = {"kwargs": {given: example}, "input_names": [given]}
            torch.onnx.export(model, (), path, **named, **options)

    with torch.no_grad():
        try:
            export(dynamo=False, opset_version=17)
        except Exception as why:  # the exporter's own, of any kind
            print(
                f"{name}: {type(why).__name__} by TorchScript, so by torch.export", file=sys.stderr
            )
            export(dynamo=True, external_data=False)


def main() -> int:
    return compare(__doc__, (*TIMM, *TRANSFORMERS), write)


if __name__ == "__main__":
    sys.exit(main())
