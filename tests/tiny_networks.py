"Tiny text networks of public classes with random weights and a vocabulary of 28 words, saved as a user's folder would be."
from invariant_metrics.models.colorizer import fixed_seed

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a the red blue green ball cat dog tree house on under beside is not two and sees near with old".split()


def save_tiny(folder, kind: str = "bert", layers: int = 4, seed: int = 0, positions: int = 40, labels: int = 0, longest: int | None = None, **more):
    "Network and tokenizer, saved in the folder: an encoder of `layers` layers, or with `labels` a classifier; `longest` as the tokenizer says it."
    import transformers
    transformers.utils.logging.disable_progress_bar()
    shape = dict(vocab_size=len(WORDS), max_position_embeddings=positions, **more)
    if kind == "distilbert": shape |= dict(dim=32, n_layers=layers, n_heads=2, hidden_dim=64)
    else: shape |= dict(hidden_size=32, num_hidden_layers=layers, num_attention_heads=2, intermediate_size=64)
    if kind in ("roberta", "xlm-roberta", "camembert"): shape["type_vocab_size"] = 1
    if labels: shape["num_labels"] = labels
    model = transformers.AutoModelForSequenceClassification if labels else transformers.AutoModel
    with fixed_seed(seed): net = model.from_config(transformers.AutoConfig.for_model(kind, **shape)).eval()
    net.save_pretrained(folder)
    tokenizer = transformers.BertTokenizerFast(vocab={w: i for i, w in enumerate(WORDS)}, **({"model_max_length": longest} if longest else {}))
    tokenizer.save_pretrained(folder)
    return net, tokenizer
