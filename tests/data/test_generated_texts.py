"Sets on which texts are written: every layout by hand, outputs and scores beside it, and what does not fit said in one line."
import json

import numpy as np
import pandas as pd
import pytest
from commands import cli
from handmade import fails, put

from invariant_metrics.data import generated_texts as sets
from invariant_metrics.data.generated_texts import GeneratedTexts, _cut_bytes, _sample_items, _with_outputs
from invariant_metrics.data.judgment_tables import Choices, Judgments
from invariant_metrics.data.judgments import judgment_files, load_judgments
from invariant_metrics.metrics.metric import extract, get_metric
from invariant_metrics.people.human import agree


def read(place, kind: str | None = None, **options) -> GeneratedTexts:
    "The texts of a set, told from its files as judgments are."
    kind, paths = judgment_files(place, kind)
    return getattr(sets, f"_read_{kind}")(paths[0], **options)


# headlines

SENTENCES = ["storm hits the coast on monday", "unk", "the bank cut its rate to #.# percent", "a new king was crowned"]
TITLES = ["storm hits coast", "unk", "bank cuts rate", "# . #"]


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_gigaword_in_all_its_layouts(tmp_path, packed):
    folder = tmp_path/"Giga"
    put(folder, f"input.txt{packed}", "\n".join(SENTENCES) + "\n")
    put(folder, f"task1_ref0.txt{packed}", "\n".join(TITLES) + "\n")
    article = put(tmp_path/"train", f"valid.article.filter.txt{packed}", "\n".join(SENTENCES) + "\n")
    put(tmp_path/"train", f"valid.title.filter.txt{packed}", "\n".join(TITLES) + "\n")
    objects = put(tmp_path, f"test.jsonl{packed}", [{"document": d, "summary": s} for d, s in zip(SENTENCES, TITLES)])
    first = read(folder)
    assert first.name == "gigaword" and list(first.items["item"]) == ["1", "3"] and first.order == ("1", "2", "3", "4")
    assert first.items["references"].tolist() == [("storm hits coast",), ("bank cuts rate",)]
    assert first.notes == ("2 of 4 lines left out: no words in the source or in any reference",)
    for place in (folder/f"input.txt{packed}", article, objects):
        assert read(place).items.equals(first.items) and read(place).order == first.order
    put(folder, f"task1_ref0.txt{packed}", "\n".join(TITLES[:3]) + "\n")
    assert "4 sources and 3 references" in fails(read, folder)
    assert "line 2: summary is 7, not a text" in fails(read, put(tmp_path, "bad.jsonl", [{"document": "a", "summary": "b"}, {"document": "a", "summary": 7}]))


def test_duc_as_prepared_has_four_references_and_is_no_gigaword(tmp_path):
    put(tmp_path, "input.txt", "a storm hit the coast\nthe bank cut its rate\n")
    for k, lines in enumerate(("storm hits coast\nbank cuts\n", "coast hit\nrate cut\n", "storm\nbank\n", "a storm\n\n")): put(tmp_path, f"task1_ref{k}.txt", lines)
    found = read(tmp_path)
    assert found.name == "duc2004" and [len(r) for r in found.items["references"]] == [4, 3]
    assert "unknown task '3'" in fails(read, tmp_path, task=3)


def nist(top):
    article = "<DOC>\n<DOCNO> {} </DOCNO>\n<TEXT>\n<P>\n{}\n</P>\n</TEXT>\n</DOC>\n"
    for cluster, name, text in (("d30001t", "APW19981016.0240", "Storm &amp; rain\nhit."), ("d30001t", "NYT19981017.0001", "It left."), ("d30002t", "APW19981018.0007", "A king.")):
        put(top, f"docs/{cluster}/{name}", article.format(name, text))
    for cluster, name, who, text in (("D30001", "APW19981016.0240", "A", "Storm hits"), ("D30001", "APW19981016.0240", "C", "Storm and rain"),
                                     ("D30001", "NYT19981017.0001", "A", "Storm leaves"), ("D30002", "APW19981018.0007", "B", "King crowned")):
        put(top, f"models/1/{cluster}.P.10.T.{who}.{name}", text + "\n")
        put(top, f"peers/1/{cluster}.P.10.T.17.{name}", "The storm\n")
    for who in "AB": put(top, f"models/2/D30001.M.100.T.{who}", f"Summary by {who}.\nIt rained.\n")
    put(top, "peers/2/D30001.M.100.T.65", "The storm.")
    return top


def test_duc_from_its_archives_with_documents_and_peers(tmp_path):
    first = read(nist(tmp_path))
    assert list(first.items["item"]) == ["APW19981016.0240", "APW19981018.0007", "NYT19981017.0001"]
    assert first.items["references"].tolist() == [("Storm hits", "Storm and rain"), ("King crowned",), ("Storm leaves",)]
    assert first.items["source"].tolist() == ["Storm & rain hit.", "A king.", "It left."]
    assert len(first.outputs) == 3 and {*first.outputs["system"]} == {"17"}
    second = read(tmp_path, task=2)
    assert second.items.iloc[0].tolist()[:3] == ["d30001", "Storm & rain hit. It left.", ("Summary by A. It rained.", "Summary by B. It rained.")]
    assert second.outputs.values.tolist() == [["d30001", "65", "The storm."]]
    table = put(tmp_path, "people.csv", "item,system,score\nAPW19981016.0240,17,3\nNYT19981017.0001,17,1\n")
    judged = load_judgments(tmp_path, "duc2004", scores=table, limit=5)
    assert judged.outputs["output"].tolist() == ["The s", "The s"] and "1 of 3 outputs were not judged" in judged.notes
    assert _cut_bytes("naïve", 3) == "na" and _cut_bytes("naïve", 4) == "naï"


# stories

VIDEOS = {"v_a": {"duration": 30.5, "timestamps": [[9, 20], [0, 10], [20, 30]], "sentences": [" He jumps. ", "A man stands.", "He swims."]},
          "v_b": {"duration": 5, "timestamps": [[0, 5]], "sentences": ["A dog."]},
          "v_c": {"duration": 5, "timestamps": [[0, 3], [3, 5]], "sentences": ["A cat.", "It sleeps."]}}


def test_activitynet_endings_and_every_next_sentence(tmp_path):
    path = put(tmp_path, "val_1.json", VIDEOS)
    found = read(path)
    assert found.items[["item", "source", "references"]].values.tolist() == [["v_a", "He jumps. A man stands.", ("He swims.",)], ["v_c", "A cat.", ("It sleeps.",)]]
    assert found.notes == ("1 of 3 videos left out: a single sentence, or none",)
    in_time = read(path, sort=True, part="next")
    assert in_time.items[["item", "source", "group"]].values.tolist() == [["v_a#2", "A man stands.", "v_a"], ["v_a#3", "A man stands. He jumps.", "v_a"],
                                                                         ["v_c#2", "A cat.", "v_c"]]
    assert "unknown part 'last'" in fails(read, path, part="last")
    for change, message in (({"timestamps": [[0, 1]]}, "3 sentences and 1 timestamps"), ({"sentences": ["a", 2, "c"]}, "a sentence is no text"),
                            ({"timestamps": [[0], [1], [2]]}, "a timestamp is not a start and an end"), ({"sentences": "a"}, "no list of sentences")):
        assert f"video v_a: {message}" in fails(read, put(tmp_path, "bad.json", {"v_a": {**VIDEOS["v_a"], **change}}), "activitynet")


def beginning(**change):
    return {"ind": 24, "activity_label": "Diving", "ctx_a": "A man stands by a pool.", "ctx_b": "the man", "ctx": "A man stands by a pool. The man", "split": "val",
            "split_type": "indomain", "label": 2, "endings": ["eats.", "is it.", "jumps in.", "sings."], "source_id": "activitynet~v_x", **change}


@pytest.mark.parametrize("name", ["val.jsonl", "val.jsonl.gz", "val.parquet"])
def test_hellaswag_right_endings(tmp_path, name):
    rows = [beginning(), beginning(ind=30, label=0, ctx_b="", ctx="Cut it.", ctx_a="Cut it.", source_id="wikihow~7")]
    if name.endswith("parquet"): pd.DataFrame([{**r, "label": str(r["label"])} for r in rows]).to_parquet(tmp_path/name)
    else: put(tmp_path, name, rows)
    found = read(tmp_path/name)
    assert found.items.values.tolist() == [["24", "A man stands by a pool. The man", ("jumps in.",), "activitynet~v_x"], ["30", "Cut it.", ("eats.",), "wikihow~7"]]
    whole = read(tmp_path/name, whole=True, domain="activitynet")
    assert whole.items.values.tolist() == [["24", "A man stands by a pool.", ("The man jumps in.",), "activitynet~v_x"]]
    assert "no beginning from wiki; domains are" in fails(read, tmp_path/name, domain="wiki")


def test_hellaswag_without_labels_has_no_references_and_wrong_labels_are_errors(tmp_path):
    found = read(put(tmp_path, "test.jsonl", [{k: v for k, v in beginning().items() if k != "label"}, beginning(ind=25, label="")]))
    assert found.items["references"].tolist() == [(), ()] and "2 of 2 items have no label, and so no reference" in found.notes
    assert "line 1: label is 4, and there are 4 endings" in fails(read, put(tmp_path, "a.jsonl", [beginning(label=4)]))
    assert "line 1: label is 'two'" in fails(read, put(tmp_path, "b.jsonl", [beginning(label="two")]))
    assert "line 2: endings is no list of texts" in fails(read, put(tmp_path, "c.jsonl", [beginning(), beginning(endings="a")]))


# translations of the news

def package(top):
    for name, text in {"txt/sources/newstest2019-deen-src.de": "Hund\nKatze\nMaus\n", "txt/references/newstest2019-deen-ref.en": "dog\ncat\nmouse\n",
                       "txt/sources/newstest2019-zhen-src.zh": "x\n", "txt/references/newstest2019-zhen-ref.en": "dog\n",
                       "txt/system-outputs/newstest2019/de-en/newstest2019.online-A.0.de-en": "a dog\na cat\na mouse\n",
                       "txt/system-outputs/newstest2019/de-en/newstest2019.UCAM.6461.de-en": "dogs\ncats\nmice\n",
                       "txt/system-outputs/newstest2019/de-en/newstest2019.human.0.de-en": "dog\ncat\nmouse\n",
                       "txt/system-outputs/newstest2019/zh-en/newstest2019.MSRA.9.zh-en": "the dog\n",
                       "analysis/ad-seg-scores-de-en.csv": '"SYS" "SID" "RAW.SCR" "Z.SCR" "N"\n"online-A.0" 1 80 0.5 1\nUCAM.6461 3 70 -0.25 1\nOTHER.1 1 9 1.5 1\n',
                       "analysis/ad-seg-scores-zh-en.csv": "SYS SID RAW.SCR Z.SCR N\nMSRA.9.zh-en 1 60 -0.5 2\n",
                       "manual-evaluation/DA-syslevel.csv": "LP SYSTEM HUMAN\nde-en online-A.0 0.1\nde-en UCAM.6461 0.2\nzh-en MSRA.9 0.9\n",
                       "manual-evaluation/RR-seglevel.csv": "DATA SID BETTER WORSE\nde-en newstest2019 2 UCAM.6461 online-A.0\nde-en newstest2019 2 UCAM.6461 gone.1\n"}.items():
        put(top, name, text)
    return top


def test_the_package_of_the_metrics_task(tmp_path):
    package(tmp_path)
    assert "several pairs of languages: de-en, zh-en; say which: pair=\"de-en\"" in fails(load_judgments, tmp_path)
    found = load_judgments(tmp_path, pair="de-en")
    assert found.name == "wmt-news" and found.scores[["item", "system", "score"]].values.tolist() == [["1", "online-A.0", 0.5], ["3", "UCAM.6461", -0.25]]
    assert found.outputs[["output", "references", "source"]].values.tolist() == [["a dog", ("dog",), "Hund"], ["mice", ("mouse",), "Maus"]]
    assert found.notes[:2] == ("human translations left out of the systems: human.0", "judged systems without outputs left out: OTHER.1")
    assert load_judgments(tmp_path, pair="de-en", human="raw", system="UCAM.6461").scores["score"].tolist() == [70]
    assert load_judgments(tmp_path, pair="zh-en").scores["system"].tolist() == ["MSRA.9"]
    systems = load_judgments(tmp_path, pair="de-en", level="systems")
    assert systems.scores[["system", "score"]].values.tolist() == [["online-A.0", 0.1], ["UCAM.6461", 0.2]] and len(systems.outputs) == 6
    assert len(load_judgments(tmp_path, pair="de-en", n=1)) == 1
    assert "unknown pair of languages 'fr-en'" in fails(load_judgments, tmp_path, pair="fr-en")
    put(tmp_path, "txt/system-outputs/newstest2019/de-en/newstest2019.UCAM.6461.de-en", "dogs\n")
    assert "UCAM.6461 has 1 lines and the source of de-en has 3" in fails(load_judgments, tmp_path, pair="de-en")


def test_pairs_of_translations_from_a_table_whose_first_name_is_missing(tmp_path):
    found = load_judgments(package(tmp_path)/"manual-evaluation"/"RR-seglevel.csv", pair="de-en")
    assert isinstance(found, Choices) and found.table[["first", "second", "votes_first", "votes", "group"]].values.tolist() == [["cats", "a cat", 1, 1, "2"]]
    assert found.notes[0] == "1 of 2 pairs left out: a system or sentence without outputs"
    alone = put(tmp_path.parent/f"{tmp_path.name}-alone", "RR-seglevel.csv", "LP DATA SID BETTER WORSE\nde-en t 1 A B\n")
    assert "say where the outputs are: texts=FOLDER" in fails(load_judgments, alone)
    assert "none of its 1 pairs" in fails(load_judgments, alone, texts=tmp_path, pair="de-en")


def test_mt_metrics_eval(tmp_path):
    for name, text in {"sources/de-en.txt": "Hund\nKatze\n", "references/de-en.refA.txt": "dog\ncat\n", "references/de-en.refB.txt": "hound\nkitty\n",
                       "documents/de-en.docs": "news d1\nnews d1\n", "system-outputs/de-en/A.txt": "a dog\na cat\n", "system-outputs/de-en/refB.txt": "hound\nkitty\n",
                       "human-scores/de-en.wmt-z.seg.score": "A\tNone\nA\t0.25\nrefB\t1\nrefB\t1\n", "human-scores/de-en.wmt-raw.seg.score": "A\t50\nA\t75\n",
                       "human-scores/de-en.wmt-z.sys.score": "A 0.1\nrefB 0.9\n"}.items(): put(tmp_path, name, text)
    found = load_judgments(tmp_path, documents=True)
    assert found.scores[["item", "system", "score", "group"]].values.tolist() == [["2", "A", 0.25, "news d1"]]
    assert found.outputs["references"].tolist() == [("cat", "kitty")] and "human translations left out of the systems: refB" in found.notes
    raw = load_judgments(tmp_path, human="wmt-raw")
    assert raw.scores["score"].tolist() == [50, 75] and raw.scale == "adequacy, 0–100 as given"
    assert "unknown human score 'mqm'" in fails(load_judgments, tmp_path, human="mqm")
    assert load_judgments(tmp_path, level="systems").scores["score"].tolist() == [0.1]
    assert "line 2: expected a system and a score" in fails(load_judgments, tmp_path, scores=put(tmp_path, "own.seg.score", "A 1\nA 1 2\n"))


def test_one_table_of_many_years(tmp_path):
    head, row = "lp,src,mt,ref,score,raw,annotators,domain,year,system\n", "de-en,Hund,{},dog,{},50,1,news,{},{}\n"
    path = put(tmp_path, "da.csv", head + row.format("a dog", 0.5, 2019, "A") + row.format("dogs", -1, 2019, "B") + row.format("dogs", 0, 2019, "B") + row.format("old", 1, 2018, "A"))
    found = load_judgments(path, year=2019)
    assert found.scores[["item", "system", "score", "group"]].values.tolist() == [["1", "A", 0.5, "1"], ["1", "B", -1, "1"], ["1#2", "B", 0, "1"]]
    assert load_judgments(path, human="raw", n=1, seed=1).scores["score"].eq(50).all()
    assert "no column 'wmt'" in fails(load_judgments, path, human="wmt")


# outputs, ratings, samples

def test_outputs_by_line_by_id_by_system_and_by_table(tmp_path):
    texts = GeneratedTexts("set", pd.DataFrame({"item": ["a", "c"], "references": [("x",), ("y",)]}), order=("a", "b", "c"))
    lines = put(tmp_path, "hyp/one.txt", "1\n2\n3\n")
    put(tmp_path, "hyp/two.jsonl", [{"id": "c", "prediction": "33"}])
    assert _with_outputs(texts, lines).outputs.values.tolist() == [["a", "one", "1"], ["c", "one", "3"]]
    assert _with_outputs(texts, tmp_path/"hyp").outputs.values.tolist() == [["a", "one", "1"], ["c", "one", "3"], ["c", "two", "33"]]
    assert _with_outputs(texts, {"s": ["only", "two"]}).outputs.values.tolist() == [["a", "s", "only"], ["c", "s", "two"]]
    unnamed = put(tmp_path, "list.json", json.dumps(["1", "2", "3"]))
    assert _with_outputs(texts, unnamed).outputs["output"].tolist() == ["1", "3"]
    table = put(tmp_path, "t.csv", "item,system,output\na,p,1\nb,p,2\na,q,3\n")
    assert _with_outputs(texts, table).outputs.values.tolist() == [["a", "p", "1"], ["a", "q", "3"]]
    assert "1 outputs are empty: c of e" in _with_outputs(texts, {"e": ["1", "2", ""]}).notes
    assert "4 outputs for 3 items of set, or 2 of them that are used" in fails(_with_outputs, texts, ["1"]*4)
    assert "u.csv: items are not in set, 1 of them: z; its items are a, b, c" in fails(_with_outputs, texts, put(tmp_path, "u.csv", "item,output\nz,1\n"))
    assert "no file of outputs" in fails(_with_outputs, texts, [tmp_path/"new", (tmp_path/"new").mkdir()][0])
    assert "no output for any of the 2 items" in fails(_with_outputs, texts, put(tmp_path, "b.jsonl", [{"id": "b", "prediction": "x"}]))


def ratings(items, raters=3, seed=0):
    draw = np.random.default_rng(seed)
    return pd.DataFrame([(i, r, *draw.integers(1, 6, 3)) for i in items for r in range(raters)], columns=["item", "judge", "fluency", "grammar", "factual"])


def test_three_raters_and_three_aspects_are_the_mean_of_nine(tmp_path):
    wide = ratings(["1", "2", "3"])
    wide.to_csv(tmp_path/"wide.csv", index=False)
    wide.rename(columns={"judge": "rater"}).melt(["item", "rater"], var_name="aspect", value_name="score").to_csv(tmp_path/"long.csv", index=False)
    found, long = load_judgments(tmp_path/"wide.csv"), load_judgments(tmp_path/"long.csv")
    nine = wide.set_index("item")[["fluency", "grammar", "factual"]].stack().groupby(level=0).mean()
    for one in (found, long): assert np.allclose(one.scores.groupby("item")["score"].mean(), nine, atol=1e-12)
    one = load_judgments(tmp_path/"long.csv", aspect="factual").scores
    assert one["score"].tolist() == wide["factual"].tolist() and set(one["rater"]) == {"0", "1", "2"}
    renamed = put(tmp_path, "named.csv", wide.rename(columns={"item": "id", "judge": "worker", "factual": "true"}).to_csv(index=False))
    named = load_judgments(renamed, "aspects", item="id", rater="worker", aspects="fluency,grammar,true")
    assert np.allclose(named.scores["score"], found.scores["score"])
    assert "1 of 3 texts have fewer than 3 raters" in load_judgments(put(tmp_path, "f.csv", wide.iloc[:-1].to_csv(index=False))).notes


@pytest.mark.parametrize("text,message", [
    ("item,judge,fluency,grammar,factual\n1,a,1,2,3\n1,b,1,6,3\n", "line 3: grammar is 6, and the scale is 1 to 5"),
    ("item,judge,fluency,grammar,factual\n1,a,1,,3\n", "line 2: grammar is empty, not a number"),
    ("item,judge,fluency,grammar,factual\n1,a,1,2,3\n1,a,1,2,3\n", "line 3: a second row of item 1, rater a, aspect fluency"),
    ("item,rater,aspect,score\n1,a,fluency,1\n1,a,grammar,2\n1,b,fluency,3\n", "item 1, rater b: no answer on grammar; 1 of 2"),
])
def test_answers_that_do_not_fit(tmp_path, text, message):
    assert message in fails(load_judgments, put(tmp_path, "t.csv", text))
    assert "unknown aspect 'fluent'; did you mean fluency" in fails(load_judgments, put(tmp_path, "u.csv", "item,aspect,score\n1,fluency,2\n"), aspect="fluent")


def test_a_sample_is_the_same_by_seed_and_keeps_what_belongs_together():
    rows = [(str(i), s, 1.0, "x") for i in range(50) for s in "AB"]
    frame = pd.DataFrame(rows, columns=["item", "system", "score", "output"])
    whole = Judgments("set", frame[["item", "system", "score"]], True, frame[["item", "system", "output"]])
    one, two, other = (_sample_items(whole, 10, seed) for seed in (1, 1, 2))
    assert one.scores.equals(two.scores) and not one.scores.equals(other.scores) and len(one.outputs) == 20
    assert list(one.scores["item"]) == sorted(one.scores["item"], key=int) == list(one.outputs["item"])
    assert _sample_items(whole, 50).notes == () and "there are not 99" in _sample_items(whole, 99).notes[0]
    assert "n is 1 or more" in fails(_sample_items, whole, 0)


def study(folder, n=40):
    "Stories, the outputs of one system, and ratings by three people."
    words, draw = ["a", "man", "dog", "runs", "jumps", "sits", "red", "park"], np.random.default_rng(3)
    said = lambda: " ".join(draw.choice(words, 6)) + "."
    videos = {f"v_{i}": {"duration": 9, "timestamps": [[0, 3], [3, 6], [6, 9]], "sentences": [said(), said(), said()]} for i in range(n)}
    path = put(folder, "val_1.json", videos)
    put(folder, "gpt2.txt", "\n".join(said() for _ in range(n)) + "\n")
    ratings([f"v_{i}" for i in range(n)]).to_csv(folder/"people.csv", index=False)
    return path


def test_a_set_its_outputs_and_its_scores_become_judgments_that_agree_reads(tmp_path):
    path = study(tmp_path)
    judged = load_judgments(path, outputs=tmp_path/"gpt2.txt", scores=tmp_path/"people.csv", n=30, seed=5)
    assert judged.name == "activitynet" and len(judged) == 90 and len(judged.outputs) == 30 and (judged.outputs["source"] != "").all()
    found = agree(judged, ["rouge-1-p", "distinct-2"], statistics=["pearson"], reps=50)
    means = judged.scores.groupby("item", sort=False)["score"].mean()
    scores = dict(zip(judged.outputs["item"], extract([get_metric("distinct-2")], list(judged.outputs["output"]))["distinct-2"].pred.tolist()))
    expected = np.corrcoef(means, [scores[i] for i in means.index])[0, 1]
    assert abs(found.table.set_index("metric").loc["distinct-2", "value"] - expected) < 1e-9
    assert len(found.ceiling) and set(found.table["n_items"]) == {30}


def test_what_is_missing_is_said_in_a_line(tmp_path):
    path, people = study(tmp_path), tmp_path/"people.csv"
    assert "activitynet holds no judgments; give scores=TABLE" in fails(load_judgments, path)
    assert "activitynet holds no outputs; give outputs=FILE" in fails(load_judgments, path, scores=people)
    assert "activitynet takes no option 'whole'; it takes outputs, scores, aspect, limit, n, seed, part, sort" in fails(load_judgments, path, whole=True)
    other = put(tmp_path, "other.csv", "item,score\nv_99,3\n")
    assert "judged items are not in activitynet, 1 of them: v_99" in fails(load_judgments, path, outputs=tmp_path/"gpt2.txt", scores=other)
    part = put(tmp_path, "part.jsonl", [{"id": "v_1", "prediction": "a dog."}])
    assert "39 of 40 judged outputs are not there: v_0 of part" in fails(load_judgments, path, outputs=part, scores=people)


def test_outputs_may_stand_in_the_table_of_scores(tmp_path):
    path = study(tmp_path, 3)
    table = put(tmp_path, "own.jsonl", [{"item": f"v_{i}", "system": "gpt2", "rater": r, "score": i + r, "output": f"text {i}"} for i in range(3) for r in (1, 2)])
    judged = load_judgments(path, scores=table)
    assert judged.outputs["output"].tolist() == ["text 0", "text 1", "text 2"] and len(judged.outputs["references"].iloc[0]) == 1


def test_agree_from_the_shell_puts_set_outputs_and_scores_together(tmp_path):
    study(tmp_path)
    words = ["agree", "val_1.json", "--reader", "outputs=gpt2.txt", "--reader", "scores=people.csv", "--metrics", "rouge-1-p,distinct-2", "--statistic", "pearson", "--reps", 50]
    done = cli(*words, "--aspect", "fluency", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["result"]["table"]
    assert {r["metric"] for r in rows} == {"rouge-1-p", "distinct-2"} and {r["n_items"] for r in rows} == {40}
    less = cli(*words[:4], cwd=tmp_path)
    assert less.returncode == 2 and "activitynet holds no judgments; give scores=TABLE" in less.stderr
