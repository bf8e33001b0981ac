"""How well do the words of an edited text alone tell that it was edited? Captions, news and summaries, each family that applies.

Usage: INVARIANT_METRICS_DATA=FOLDER python benchmarks/edit_blind.py [--store] [EDITS]     (--store: into the package's assets/edit-blind.csv)

Captions: 1,000 pictures of COCO with five captions each. News: the German to English half of newstest2017; its references are stored in
small letters, so names take their capitals from the German source and sentences theirs from their marks. Summaries: the references of
SummEval and of REALSumm; only the latter have documents. The judge is `blind_auc`: logistic regression of words and pairs of words,
cross-validated by item."""
import gzip
import html
import json
import os
import re
import sys
import time
from pathlib import Path

import pandas as pd

from invariant_metrics.core import rng
from invariant_metrics.data.wordnet import wordnet
from invariant_metrics.edits.fluency import ENDS_OF_SCALE, blind_auc, text_cases
from invariant_metrics.edits.word_edits import TextCase, word_edits
from invariant_metrics.edits.word_families import edits_of
from invariant_metrics.edits.word_lists import COUNTRIES, NAME_CLASS
from invariant_metrics.files import assets_folder, atomic_write

TABLE = assets_folder()/"edit-blind.csv"
FEWEST = 40 # edits that an AUC is told for
NAMES = {n.lower() for n in NAME_CLASS}
CAPITALS = {*COUNTRIES, *("monday tuesday wednesday thursday friday saturday sunday january february april june july august september "
                          "october november december mr mrs ms dr i german british american english french russian").split()}


def lines(place: Path) -> list[dict]:
    with gzip.open(place, "rt", encoding="utf-8") as file: return [json.loads(line) for line in file]


def spelled(text: str, source: str) -> str:
    "A tokenized text in small letters as it would be printed: names as its source spells them, marks joined to their words."
    known, words = {w.lower(): w for w in re.findall(r"[A-ZÄÖÜ][\w-]*", source)}, html.unescape(text.strip()).split()
    out = []
    for k, word in enumerate(words):
        if word in ("usa", "uk", "eu", "nhs") or word == "us" and k and words[k - 1] in ("the", "of"): word = word.upper()
        elif word in known and (word in NAMES or not wordnet().synsets(word)): word = known[word]
        elif word in CAPITALS: word = word.capitalize()
        if not k or words[k - 1] in ".!?" or k == 1 and words[0] == '"': word = word[:1].upper() + word[1:]
        out.append(word)
    joined = re.sub(r" ([.,;:!?%)]|'(?:s|t|re|ve|ll|d|m)\b)", r"\1", " ".join(out))
    return re.sub(r'" ([^"]*?) "', r'"\1"', re.sub(r"([(£$€]) ", r"\1", joined))


def cases(place: Path) -> dict[str, list[TextCase]]: # task -> texts to edit
    coco = [row["captions"] for row in lines(place/"coco_captions"/"val2017_1000.jsonl.gz")]
    news = lines(place/"wmt"/"newstest2017_deen.jsonl.gz")
    summaries = [row["refs"] for row in lines(place/"summarization"/"summeval_thumb_refs.jsonl.gz")]
    sources = [""]*len(summaries)
    for row in lines(place/"summarization"/"realsumm_docs.jsonl.gz"):
        summaries.append([" ".join(row["reference"])])
        sources.append(row["source_tokenized"])
    each = [([text], source) for own, source in zip(summaries, sources) for text in own] # those of one item stay neighbors
    return {"captioning": text_cases(coco, seed=0),
            "translation": text_cases([[spelled(r["ref"], r["src"])] for r in news], [r["src"] for r in news], seed=0),
            "summarization": text_cases([text for text, _ in each], [source for _, source in each], seed=0)}


def told(task: str, texts: list[TextCase], edits: int) -> pd.DataFrame: # task, family, edits, told_by_words
    rows = []
    for name in [n for n in edits_of(task) if n not in ENDS_OF_SCALE]:
        pairs = []
        for i in rng(0, "sample", name).permutation(len(texts)):
            edit = word_edits[name](texts[i], 1, rng(0, "edit", name, int(i)))
            if edit is None or not edit.proved: continue
            pairs.append((texts[i].text, edit.text))
            if len(pairs) == edits: break
        if len(pairs) < FEWEST: continue
        found = blind_auc([a for a, _ in pairs], [b for _, b in pairs])
        rows.append({"task": task, "family": name, "edits": len(pairs), "told_by_words": f"{found:.2f}"})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    place, start = Path(os.environ["INVARIANT_METRICS_DATA"]), time.process_time()
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    table = pd.concat([told(task, texts, (numbers or [200])[0]) for task, texts in cases(place).items()], ignore_index=True)
    print(table.to_string(index=False))
    print(f"{time.process_time() - start:.0f} s")
    if "--store" in sys.argv:
        with atomic_write(TABLE) as path: table.to_csv(path, index=False)
