"Edits that form does not give away: nobody judges what it has read, counts of what is told stand in the ledger, and a causal model may judge as well."
import json

import numpy as np
import pytest

from commands import cli
from open_cells import open_cells
from invariant_metrics.core import InputError, rng
from invariant_metrics.edits.fluency import _DRAWS, _PARTS, FormJudge, _fluency_auc, form_judge, _form_parts, _keep_matched, match_candidates
from invariant_metrics.edits.fluency import blind_auc, text_cases
from invariant_metrics.edits.language_models import TaggedNGrams, causal_scorer
from invariant_metrics.probes.probe_figures import form_tables
from invariant_metrics.probes.own_texts import OWN_SIZES, own_probe
from invariant_metrics.probes.run_probe import run_probe
from invariant_metrics.probes.probe_task import ProbeSize
from invariant_metrics.worlds.scene_captions import relation_captions
from invariant_metrics.worlds.scenes import make_scenes

SCENES = make_scenes(60, 64, seed=6)
CAPTIONS = {str(i): list(relation_captions(SCENES, i)) for i in range(60)}
RIGHT = list(CAPTIONS.values())


@pytest.fixture(scope="module", autouse=True)
def small():
    OWN_SIZES["test"] = ProbeSize(60, 12, 60, 12)
    yield
    del OWN_SIZES["test"]


def test_a_judge_has_not_read_what_it_judges():
    "Neither the texts of the part, nor a text of another part that is the same word for word; items of one cluster are in one part."
    right = [[*texts, f"a zebra{i} is here", f"a zebra{i} is there"] for i, texts in enumerate(RIGHT)]
    right[1][0] = right[0][-1].upper() + "." # another item says the same as item 0
    judge = form_judge(right)
    for i, part in enumerate(judge.part.tolist()):
        for p, model in enumerate(judge.models): assert (f"zebra{i}" in model.words) == (p != part) or i < 2
    assert "zebra0" not in judge.models[judge.part[0]].words
    parts = _form_parts(np.arange(60) // 3)
    assert set(parts.tolist()) == set(range(_PARTS)) and all(len(set(parts[3*k:3*k + 3])) == 1 for k in range(20))
    with pytest.raises(InputError, match="2 texts|there are 1"): TaggedNGrams(["a dog"])


def test_matched_foils_are_undecided_and_everything_is_counted():
    "AUC of one half by words and by tags; a copy is kept, and the two together are all there were."
    judge, at = form_judge(RIGHT), np.arange(60)
    cases = text_cases(RIGHT, part=judge.part)
    bases = [c.text for c in cases]
    for name in ("color-replaced", "noun-swapped", "relation-replaced"):
        found = open_cells("edits/90_fluency").matched_foils(name, cases, judge)
        assert len(found.after[0]) + len(found.told) == len(found.before[0]) > 0 and not set(found.told) & set(found.after[0])
        for tags in (False, True):
            after = found.aucs(judge, bases, at, tags)[1]
            assert after.n == 0 or after.auc == 0.5
    same = match_candidates("copy", [[t] for t in bases], bases, judge)
    assert same.after[1] == bases and not len(same.told) and same.aucs(judge, bases, at)[1][:3] == (0.5, 0.5, 0.5)
    worse = match_candidates("worse", [[" ".join(sorted(t.split()))] for t in bases], bases, judge)
    assert len(worse.told) > 50


def test_opposite_signs_are_as_frequent_whatever_is_drawn():
    "Of random gaps: each pair of signs as often as its opposite, none beyond the tolerance."
    for seed in range(20):
        draw = rng(seed, "gaps")
        gaps = [np.round(draw.normal(-0.05, 0.2, (draw.integers(1, _DRAWS), 2)), 2) * draw.integers(0, 2, 2) for _ in range(40)]
        chosen = _keep_matched(gaps, 0.2)
        kept = np.array([gap[k] for gap, k in zip(gaps, chosen) if k >= 0]).reshape(-1, 2)
        signs = np.sign(kept).astype(int).tolist()
        assert np.abs(kept).max(initial=0) <= 0.2 and len(kept) and sorted(signs) == sorted([-a, -b] for a, b in signs)
        assert _fluency_auc(np.zeros(len(kept)), kept[:, 0]).auc == 0.5


def test_the_probe_keeps_what_form_does_not_tell_and_its_ledger_counts_the_rest():
    families = ["color-replaced", "noun-swapped", "negation", "misspelling", "unrelated"]
    plain, fluent = (own_probe("captioning", CAPTIONS, metrics=["chrf"], families=families, levels=(1, 2), scale="test", progress=False, fluent=f) for f in (None, "ngrams"))
    before, after = (r.ledger.set_index(["family", "level"]) for r in (plain, fluent))
    assert "told_by_form" not in before and set(before.columns) < set(after.columns)
    counts = after[["matched", "no_partner", "not_applicable", "unmatched", "told_by_form"]].sum(axis=1)
    assert (counts == after["n"]).all() and after["told_by_form"].sum() > 0
    assert (after["matched"] + after["told_by_form"] == before["matched"]).loc[families[:4]].all()
    told = after.loc[["color-replaced", "noun-swapped"]]
    assert (told["form_after"].dropna() == 0.5).all() and (told["form_before"].dropna() > 0.5).all() and told["form_before"].notna().sum() > 2
    assert (after.loc[["misspelling", "unrelated"], "told_by_form"] == 0).all() and after.loc[("misspelling", 1.0), "form_before"] > 0.9
    assert "form:ngrams" in str(fluent.signatures) and "form:" not in str(plain.signatures)
    assert set(fluent.auc.loc[fluent.auc["metric"] == "constant", "auc"]) == {0.5}
    table, = form_tables(fluent.ledger)
    assert len(table["rows"]) == after["form_before"].notna().sum() and form_tables(plain.ledger) == []


def test_a_run_remembers_its_judge_of_form(tmp_path):
    _, found = run_probe("captioning", CAPTIONS, metrics=["chrf"], families=["color-replaced"], fluent="ngrams", scale="quick", out=tmp_path/"run", workers=1, progress=False)
    assert "told_by_form" in found.ledger
    with pytest.raises(InputError, match="holds another run"):
        run_probe("captioning", CAPTIONS, metrics=["chrf"], families=["color-replaced"], scale="quick", out=tmp_path/"run", workers=1, progress=False)
    done = cli("probe", "images", "--target", ".", "--fluent", "ngrams", cwd=tmp_path)
    assert done.returncode == 2 and "--fluent has no effect" in done.stderr
    (tmp_path/"refs.json").write_text(json.dumps(CAPTIONS))
    done = cli("probe", "captioning", "--target", "refs.json", "--fluent", "nowhere", "--out", "other", cwd=tmp_path)
    assert done.returncode == 2 and "unknown weights 'nowhere'" in done.stderr and not (tmp_path/"other").exists()


def test_a_causal_model_judges_by_words_alone(tmp_path):
    "A tiny network of random weights: the same score alone and in a batch, long texts are cut, and code of a folder is refused."
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers
    signs = {c: k for k, c in enumerate(["<|end|>", *"abcdefghijklmnopqrstuvwxyz "])}
    letters = Tokenizer(models.WordLevel(signs, "<|end|>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="<|end|>").save_pretrained(tmp_path)
    torch.manual_seed(1)
    transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=len(signs), n_positions=64, n_embd=8, n_layer=1, n_head=1)).save_pretrained(tmp_path)
    score = causal_scorer(tmp_path, batch=3)
    texts = [t for own in RIGHT[:4] for t in own] + ["a " * 200, ""]
    assert np.allclose(score(texts), [score([t])[0] for t in texts], atol=1e-5) and np.isfinite(score(texts)).all()
    judge = form_judge(RIGHT[:12], model=str(tmp_path))
    assert isinstance(judge, FormJudge) and judge.name == score.revision and np.isnan(judge([0], ["a dog"], tags=True)).all()
    cases = text_cases(RIGHT[:12], part=judge.part)
    found = open_cells("edits/90_fluency").matched_foils("color-replaced", cases, judge)
    assert len(found.after[0]) and found.aucs(judge, [c.text for c in cases], np.arange(12))[1].auc == 0.5
    config = json.loads((tmp_path/"config.json").read_text())
    (tmp_path/"config.json").write_text(json.dumps(config | {"auto_map": {"AutoModelForCausalLM": "evil.Evil"}}))
    with pytest.raises(InputError, match="code of its own"): causal_scorer(tmp_path)


def test_a_judge_of_words_tells_marks_and_no_exchange():
    words, g = "red blue green dog cat bird sits lies stands".split(), np.random.default_rng(0)
    bases = [" ".join(g.choice(words, 6)) for _ in range(120)]
    mirrored = [t.replace("red", "#").replace("blue", "red").replace("#", "blue") for t in bases]
    assert blind_auc(bases, [t + " nearby" for t in bases]) > 0.99 and abs(blind_auc(bases, bases) - 0.5) < 1e-9
    assert abs(blind_auc(bases, mirrored) - 0.5) < 0.1 # as many ways to as from: nothing to learn
    own = [f"{t} word{k}" for k, t in enumerate(bases)] # a word of each item's own is learned from no other item
    assert np.isnan(blind_auc(bases[:9], own[:9])) and np.isnan(blind_auc(bases, own, clusters=[0] * 60 + [1] * 60))
    assert blind_auc(bases, own) > 0.8 # but that the last word is none of the usual ones is
