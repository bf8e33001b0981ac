"Tiny networks of public classes with random weights, saved as a user's folder would be; those of texts have a vocabulary of 28 words, a CLIP those of scenes."
from pathlib import Path

from invariant_metrics.models.colorizer import fixed_seed

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a the red blue green ball cat dog tree house on under beside is not two and sees near with old".split()


def save_tiny(folder, kind: str = "bert", layers: int = 4, seed: int = 0, positions: int = 40, labels: int = 0, longest: int | None = None,
              head: str = "SequenceClassification", **more):
    "Network and tokenizer, saved in the folder: an encoder of `layers` layers, or with `labels` a classifier; `longest` as the tokenizer says it."
    import transformers
    transformers.utils.logging.disable_progress_bar()
    shape = dict(vocab_size=len(WORDS), max_position_embeddings=positions, **more)
    if kind == "distilbert": shape |= dict(dim=32, n_layers=layers, n_heads=2, hidden_dim=64)
    else: shape |= dict(hidden_size=32, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=64)
    if kind in ("roberta", "xlm-roberta", "camembert"): shape["type_vocab_size"] = 1
    if labels: shape["num_labels"] = labels
    model = getattr(transformers, f"AutoModelFor{head}") if labels else transformers.AutoModel
    with fixed_seed(seed): net = model.from_config(transformers.AutoConfig.for_model(kind, **shape)).eval()
    net.save_pretrained(folder)
    tokenizer = transformers.BertTokenizerFast(vocab={w: i for i, w in enumerate(WORDS)}, **({"model_max_length": longest} if longest else {}))
    tokenizer.save_pretrained(folder)
    return net, tokenizer


def save_vision(folder, kind: str, seed: int = 0, side: int = 32):
    "A segmenter (segformer, mask2former), a depth network (dpt) or an encoder (dinov2, clip) that looks at pictures of `side` pixels."
    import torch
    import transformers as t
    t.utils.logging.disable_progress_bar()
    blocks = dict(hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=16)
    def swin(): return t.SwinConfig(embed_dim=8, depths=[1]*4, num_heads=[1]*4, window_size=4, image_size=64, out_features=[f"stage{i}" for i in (1, 2, 3, 4)])
    def query(): return dict(feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=8, dim_feedforward=8, encoder_layers=1,
                             decoder_layers=2, num_attention_heads=2, num_queries=6)
    words = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50, bos_token_id=0, eos_token_id=1)
    make = {"segformer": lambda: t.SegformerForSemanticSegmentation(t.SegformerConfig(hidden_sizes=[8]*4, depths=[1]*4, num_attention_heads=[1]*4,
                                                                                      decoder_hidden_size=8, num_labels=5)),
            "mask2former": lambda: t.Mask2FormerForUniversalSegmentation(t.Mask2FormerConfig(backbone_config=swin(), num_labels=5, **query())),
            "dpt": lambda: t.DPTForDepthEstimation(t.DPTConfig(image_size=side, patch_size=8, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8]*4,
                                                               fusion_hidden_size=8, **blocks)),
            "dinov2": lambda: t.Dinov2Model(t.Dinov2Config(patch_size=14, image_size=28, **blocks)),
            "clip": lambda: t.CLIPModel(t.CLIPConfig(text_config=words, vision_config=dict(blocks, patch_size=8, image_size=side), projection_dim=16))}[kind]
    with fixed_seed(seed): net = make().eval()
    if kind == "dpt":
        with torch.no_grad():
            for p in net.head.parameters(): p.abs_() # positive, or the last ReLU gives zeros
    net.save_pretrained(folder)
    (Path(folder)/"preprocessor_config.json").write_text(f'{{"size": {{"height": {side}, "width": {side}}}}}')
    return net


def save_san(folder):
    "A SAN of six classes in the published layout, weights filled by rule."
    import torch
    from filled import filled
    from invariant_metrics.models.san import SAN, SANConfig
    with torch.device("meta"): shapes = SAN(SANConfig(24, 3, 6, 4, 5, 16, 3, 16, 64, 4, 2, 3, 1, 16, 6)).state_dict()
    state = {name: torch.from_numpy(filled(name, tuple(value.shape))) for name, value in shapes.items()}
    state["ov_classifier.logit_scale"] = torch.tensor(3.)
    torch.save({"model": state}, Path(folder)/"san_vit_b_16.pth")
    return state


def save_clip(folder, seed: int = 0, dim: int = 32) -> str:
    "A CLIP for scenes of 64 pixels, whose tokenizer knows the words of their captions; returns the folder."
    import re
    import tokenizers as tok
    import transformers as t
    from invariant_metrics.worlds.scene_captions import relation_captions
    from invariant_metrics.worlds.scene_text import captions
    from invariant_metrics.worlds.scenes import make_scenes
    t.utils.logging.disable_progress_bar()
    scenes = make_scenes(200, seed=5)
    said = " ".join(text for i in range(len(scenes)) for text in (*captions(scenes, i), *relation_captions(scenes, i)))
    words = {w: i for i, w in enumerate(["<pad>", "<start>", "<unk>", *sorted(set(re.findall(r"\w+|[^\w\s]", said.lower()))), "<end>"])}
    own = tok.Tokenizer(tok.models.WordLevel(words, unk_token="<unk>"))
    own.normalizer, own.pre_tokenizer = tok.normalizers.Lowercase(), tok.pre_tokenizers.Whitespace()
    marks = [(mark, words[mark]) for mark in ("<start>", "<end>")]
    own.post_processor = tok.processors.TemplateProcessing(single="<start> $A <end>", special_tokens=marks)
    names = dict(pad_token="<pad>", unk_token="<unk>", bos_token="<start>", eos_token="<end>")
    t.PreTrainedTokenizerFast(tokenizer_object=own, model_max_length=96, **names).save_pretrained(folder)
    blocks = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    ids = dict(bos_token_id=1, eos_token_id=words["<end>"], pad_token_id=0)
    text = dict(blocks, vocab_size=len(words), max_position_embeddings=96, **ids)
    config = t.CLIPConfig(text_config=text, vision_config=dict(blocks, patch_size=16, image_size=64), projection_dim=dim)
    with fixed_seed(seed): net = t.CLIPModel(config).eval()
    net.save_pretrained(folder)
    (Path(folder)/"preprocessor_config.json").write_text('{"size": {"height": 64, "width": 64}}')
    return str(folder)
