"What a newcomer meets first, a mistake before the right word: each is refused in one line that says what to do, before anything slow begins."
import io
import json
import re
import subprocess
import sys

import pytest

from commands import cli

CAPTIONS = ["a dog runs on the beach", "two red cars stand in a street", "a man reads a long book", "the cat sleeps on a wall"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("doors")
    lines = "".join(f"{text}\n" for text in CAPTIONS)
    for name in ("hyp.txt", "ref.txt"): (out/name).write_text(lines)
    (out/"coco.json").write_text(json.dumps([dict(image_id=i, caption=text) for i, text in enumerate(CAPTIONS)]))
    for name, between in (("hyp.csv", ","), ("hyp.tsv", "\t")):
        (out/name).write_text(f"id{between}caption\n" + "".join(f"{i}{between}{text}\n" for i, text in enumerate(CAPTIONS)))
    (out/"judgments.csv").write_text("item,system,score\n1,hyp,3\n2,hyp,4\n")
    return out


@pytest.mark.parametrize("words, says", [
    ("score bleu --pred coco.json --target ref.txt", "an id is no number of a line"), ("score bleu --pred coco.json --target ref.txt --intersect", "an id is no number of a line"),
    ("score bleu --pred hyp.csv --target ref.txt", "an id is no number of a line"), ("score bleu --pred hyp.tsv --target ref.txt", "an id is no number of a line"),
    ("score FID --pred hyp.txt --target ref.txt", "unknown metric 'FID'; did you mean fid"), ("score niqe --pred hyp.txt --target ref.txt", "pip install pyiqa, then pyiqa:niqe"),
    ("agree judgments.csv --metrics bleu", "add the columns output and references"), ("agree nowhere.csv --metrics bleu", "no file or folder at nowhere.csv"),
    ("agree collect judgments.csv --task likert --aspect good --equal --out page.html", "equal (--equal) is an answer of choice")])
def test_a_wrong_word_is_refused_in_one_line(words, says, folder):
    done = cli(*words.split(), cwd=folder)
    assert done.returncode == 2 and says in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_texts_come_from_standard_input(folder, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((folder/"hyp.txt").read_bytes())))
    done = cli("score", "bleu", "--pred", "-", "--target", "ref.txt", cwd=folder)
    assert done.returncode == 0 and re.search(r"bleu ↑ +100 ", done.stdout)


@pytest.mark.parametrize("words", [
    "agree nowhere --metrics bleu", "score bleu --pred nowhere --target ref.txt", "advise translation --pred nowhere --target ref.txt",
    "advise images --pred nowhere --target nowhere", "probe images --target nowhere", "study colorization --data nowhere",
    "rank nowhere", "report nowhere", "power bleu --pred hyp.txt --target nowhere"])
def test_a_file_that_is_not_there_is_missed_before_torch_is_imported(words, folder):
    line = (f"import sys; from invariant_metrics.commands.shell import main; code = main({words.split()}); "
            "sys.exit(3 if 'torch' in sys.modules else code)")
    done = subprocess.run([sys.executable, "-c", line], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == "error: no file or folder at nowhere\n"


def test_a_folder_of_the_home_folder_is_looked_for_there(folder, monkeypatch): # shells leave --data=~/x as it is
    monkeypatch.setenv("HOME", str(folder.parent))
    done = cli("wordnet", "build", f"~/{folder.name}", "--out", "wordnet.npz", cwd=folder)
    assert done.returncode == 2 and "no file or folder" not in done.stderr and folder.name in done.stderr
