"""Our Treebank tokens beside the Java program's: share of equal sentences and speed, on the caption and news corpora that are there.

    python benchmarks/ptb_parity.py DATA_FOLDER [OUT.csv]

Needs java and pycocoevalcap, which carries the Java tokenizer.
"""
import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from invariant_metrics.data import tokens

OPTIONS = ("-preserveLines", "-lowerCase") # as the caption tools call it


def read(path: Path) -> list[dict]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file: return [json.loads(line) for line in file]


def corpora(data: Path) -> dict[str, tuple[str, list[str]]]:
    "Name -> kind of text, sentences."
    captions, news, german = "captions", "news, talks, summaries", "German"
    def of(name, *keys):
        return [text for row in read(data/name) for key in keys for text in (row[key] if isinstance(row[key], list) else [row[key]])]
    systems = [text for row in read(data/"wmt/newstest2017_deen.jsonl.gz") for text in (row["ref"], *row["sys"].values())]
    talks = [text for row in read(data/"wmt/ted2021_zhen_mqm.jsonl.gz") for text in row["targets"].values()]
    return {"Flickr8k-Expert": (captions, of("flickr8k_expert/images.jsonl", "references") + of("flickr8k_expert/judgments.jsonl", "candidate")),
            "COCO val2017, 1000 images": (captions, of("coco_captions/val2017_1000.jsonl.gz", "captions")),
            "COCO demo captioner": (captions, of("coco_captions/fakecap_partial.jsonl", "caption", "references")),
            "Karpathy captioners": (captions, of("coco_captions/karpathy_captioners_500.jsonl.gz", "references", "candidates")),
            "Nebula": (captions, of("nebula/nebula_test_part.jsonl.gz", "candidate", "references")),
            "Multi30k, English": (captions, of("multi30k/train_2000.jsonl.gz", "en", "captions_en")),
            "SugarCrepe": (captions, of("sugarcrepe/sugarcrepe.jsonl.gz", "caption", "negative_caption")),
            "VALSE": (captions, of("valse/valse.jsonl.gz", "caption", "foil")),
            "TED talks, English": (news, of("wmt/ted2021_ende_mqm.jsonl.gz", "src") + talks),
            "newstest2017, English": (news, systems),
            "SummEval": (news, of("summarization/summeval_thumb.jsonl.gz", "hyp") + of("summarization/summeval_thumb_refs.jsonl.gz", "refs")),
            "REALSumm": (news, of("summarization/realsumm_outputs.jsonl.gz", "summary")
                         + of("summarization/realsumm_docs.jsonl.gz", "reference", "source_tokenized")),
            "Multi30k, German": (german, of("multi30k/train_2000.jsonl.gz", "captions_de")),
            "newstest2017, German": (german, of("parity/sacrebleu_wmt17_ende/newstest2017_ende.jsonl.gz", "ref", "sys"))}


def java(sentences: list[str], *options: str) -> tuple[list[str], float]:
    "The Java program's line for each sentence, and seconds of processor time, its start included."
    from pycocoevalcap.tokenizer import ptbtokenizer
    jar = Path(ptbtokenizer.__file__).parent/ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(sentences)); file.flush()
        command = ["java", "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", *OPTIONS, *options, file.name]
        before = os.times()
        done = subprocess.run(command, capture_output=True, check=True)
        after = os.times()
    return done.stdout.decode().split("\n"), after.children_user - before.children_user + after.children_system - before.children_system


def captions(line: str) -> list[str]:
    "What the caption tools keep of a line; white space inside tokens (a no-break space in '1 1/2') separates, as BLEU takes it."
    return [token for token in line.split() if token not in tokens._PUNCTUATION]


def measure(sentences: list[str]) -> dict:
    sentences = list(dict.fromkeys(" ".join(text.split()) for text in sentences))
    tokens._piece.cache_clear()
    start = time.process_time()
    ours = [tokens._caption_tokens(text) for text in sentences]
    ours_s = time.process_time() - start
    lines, java_s = java(sentences)
    every_other, _ = java([line for text in sentences for line in (text, "")]) # each line followed by an empty one
    every_other = every_other[:2*len(sentences):2]
    together = sum(a == captions(b) for a, b in zip(ours, lines))
    alone = sum(a == captions(b) for a, b in zip(ours, every_other))
    return dict(sentences=len(sentences), equal=alone, equal_in_file=together, ours_s=round(ours_s, 3), java_s=round(java_s, 3))


def main(data: str, out: str = "nbs/results/ptb_parity.csv") -> None:
    if not shutil.which("java"): sys.exit("java is needed")
    rows = []
    for name, (kind, sentences) in corpora(Path(data)).items():
        rows.append(dict(corpus=name, kind=kind, **measure(sentences)))
        r = rows[-1]
        print(f"{name:28} {r['sentences']:7} alone {100*r['equal']/r['sentences']:8.3f} % in file {100*r['equal_in_file']/r['sentences']:8.3f} %"
              f"  {r['sentences']/r['ours_s']:8.0f}/s, Java {r['java_s']/r['ours_s']:.2f} times our time", flush=True)
    os.makedirs(Path(out).parent, exist_ok=True)
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0]); writer.writeheader(); writer.writerows(rows)


if __name__ == "__main__": main(*sys.argv[1:])
