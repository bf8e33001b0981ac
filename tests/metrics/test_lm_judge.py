"A language model's grades are the mean under its own probabilities, whatever else is in the batch."
import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from invariant_metrics.core import InputError
from invariant_metrics.metrics.lm_judge import LMJudge, causal_network
from invariant_metrics.metrics.metric import extract, get_metric

PROMPT = "{source} | {references} | {prediction}?"


def save(folder, signs, room=200, **tokens):
    letters = {c: i for i, c in enumerate(["<|e|>", *signs])}
    plain = Tokenizer(models.WordLevel(letters, "<|e|>"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<|e|>", eos_token="<|e|>", **tokens).save_pretrained(folder)
    torch.manual_seed(1)
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(letters), n_positions=room, n_embd=8, n_layer=2, n_head=2, initializer_range=0.6)).eval()
    net.save_pretrained(folder)
    return net, letters


SIGNS = [*map(chr, range(32, 127)), "\n"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    return folder, *save(folder, SIGNS)


def by_hand(net, letters, text):
    p = net(torch.tensor([[letters.get(c, 0) for c in text]])).logits[0, -1].double().softmax(-1)
    grades = p[[letters[c] for c in "12345"]].detach().numpy()
    return grades, grades @ [1, 2, 3, 4, 5] / grades.sum()


def test_the_score_of_a_text_is_its_mean_grade_alone_and_in_a_batch(place):
    folder, net, letters = place
    pred, target, source = ["a dog", "", "{references}", "x"*60], [["a", "b"], ["one"], ["c"], ["d"]], ["s1", "s2", "s3", "s4"]
    metric = get_metric("lm-judge", weights=str(folder), prompt=PROMPT)
    rows = extract([metric], pred, target, source)["lm-judge"].pred
    for value, p, refs, s in zip(rows, pred, target, source):
        text = f"{s} | " + "\n".join(f"- {r}" for r in refs) + f" | {p}?\n\nAnswer: "
        grades, mean = by_hand(net, letters, ["<|e|>", *text])
        assert float(value) == pytest.approx(mean, abs=1e-5)
        assert LMJudge(causal_network(folder), PROMPT).probabilities([{"prediction": p, "references": refs, "source": s}])[0] == pytest.approx(grades, abs=1e-6)
    with pytest.raises(InputError, match="needs the texts that"): extract([metric], pred, target)


def test_a_model_that_chats_answers_in_its_turn(tmp_path):
    net, letters = save(tmp_path, SIGNS, chat_template="{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[me]{% endif %}")
    metric = get_metric("lm-judge", weights=str(tmp_path), prompt="{prediction}?")
    assert (dict(metric.signature.items)["form"], metric.compares) == ("chat", False)
    assert float(extract([metric], ["a dog"])["lm-judge"].pred[0]) == pytest.approx(by_hand(net, letters, "[user]a dog?[me]")[1], abs=1e-5)


def test_a_prompt_in_a_file_and_one_too_long(place, tmp_path):
    (tmp_path/"prompt.txt").write_text("{prediction}?")
    metric = get_metric("lm-judge", weights=str(place[0]), prompt=str(tmp_path/"prompt.txt"))
    assert metric.signature == get_metric("lm-judge", weights=str(place[0]), prompt="{prediction}?").signature
    rows = extract([metric], ["a"*150, "b"*300])["lm-judge"]
    assert np.isnan(rows.pred.numpy()).tolist() == [False, True] and "the judge refused 1 of 2 answers" in rows.notes


@pytest.mark.parametrize("weights, prompt, said", [("organization/model", "", "organization/model"), (None, "Good?", "no {prediction} in it")])
def test_what_is_refused(place, weights, prompt, said):
    with pytest.raises(InputError, match=said): get_metric("lm-judge", weights=weights or str(place[0]), prompt=prompt)


def test_a_model_without_grades(tmp_path):
    save(tmp_path, [c for c in SIGNS if c != "4"])
    with pytest.raises(InputError, match="does not write the grades 1 to 5 as one token each"): get_metric("lm-judge", weights=str(tmp_path))
