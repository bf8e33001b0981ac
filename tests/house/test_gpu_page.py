"No page speaks of a GPU as fact without a measurement: it links the page of what was measured, says that nothing was, or stands in its table."
import json
import re
from pathlib import Path

NBS = Path(__file__).parents[2]/"nbs"
PAGE = NBS/"tutorials"/"050_gpu.ipynb"
WORDS = re.compile(r"\bGPUs?\b|\bCUDA\b|\b[ABH][12]00\b|\baccelerators?\b|\bTF32\b", re.I)
MARKS = ("050_gpu.ipynb", "not measured")
# what is said beside GPUs: what a thing needs, what others did or published, commands, what is on Apple's; page -> beginning of the sentence
BESIDE = {"commands/10_score_commands": ("**Limits.** `--device cuda` needs a GPU",), "encoders/120_caption_store": ("Johnson et al.",),
          "index": ("| install | brings | with CUDA", "Without a GPU put the CPU build", "Neither needs"),
          "lclip/20_supervision": ("The recipes of the paper need",), "metrics/000_metric": ("Apple's GPUs",), "metrics/230_caption": ("the published program runs",),
          "models/070_picture_decoders": ("OpenAI's decoder",), "models/130_chromagan": ("The published network is too large",),
          "papers/40_lclip": ("Their weights and data", "GPU times are the paper's"), "papers/50_imagine": ("invariant-metrics imagine",),
          "people/180_protocols": ("CLIPScore on a GPU in half precision",), "training/130_distillation": ("Its batches are divided among 4 GPUs",)}


def prose(path: Path) -> list[str]: # paragraphs
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [part for cell in cells if cell["cell_type"] == "markdown" for part in "".join(cell["source"]).split("\n")]


def table() -> dict[str, list[str]]: # page -> what it says with its mark, of the table of every sentence
    rows, page = {}, None
    for line in prose(PAGE):
        if not line.startswith("| ") or line.startswith("| page"): continue
        pages = [name for name in re.findall(r"\]\(([^)]+)\.ipynb\)", line.split("|")[1])] or page
        for name in pages: rows.setdefault(str((PAGE.parent/f"{name}.ipynb").resolve().relative_to(NBS)), []).append(line)
        page = pages
    return rows


def test_every_row_of_the_table_is_marked_and_of_a_page_that_is_there():
    rows = table()
    assert len(rows) > 18
    for name, lines in rows.items():
        assert (NBS/name).exists(), name
        for line in lines: assert "measured" in line.rstrip("| ").rsplit("|", 1)[1], line


def test_no_sentence_about_a_gpu_is_unmarked():
    known, used, wrong = table(), set(), []
    for path in sorted(NBS.rglob("*.ipynb")):
        name = path.relative_to(NBS).as_posix()
        if path == PAGE or name in known or "_proc" in name or "checkpoints" in name: continue
        for part in prose(path):
            beside = BESIDE.get(name.removesuffix(".ipynb"), ())
            for sentence in re.split(r"(?<=[.;:])\s+", part):
                if not WORDS.search(sentence) or any(mark in part for mark in MARKS): continue
                said = [words for words in beside if sentence.lstrip("> -").startswith(words)]
                used |= {(name, words) for words in said}
                if not said: wrong.append(f"{name}: {sentence[:150]}")
    assert not wrong, "say `not measured yet`, link tutorials/050_gpu or enter the sentence in its table:\n" + "\n".join(wrong)
    idle = [(name, words) for name, several in BESIDE.items() for words in several if (f"{name}.ipynb", words) not in used]
    assert not idle, idle


def test_an_unmarked_sentence_would_be_found(tmp_path, monkeypatch):
    cell = {"cell_type": "markdown", "source": ["On an H100 it is twice as fast."]}
    (tmp_path/"00_page.ipynb").write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    monkeypatch.setitem(globals(), "NBS", tmp_path)
    monkeypatch.setitem(globals(), "table", dict)
    monkeypatch.setitem(globals(), "BESIDE", {})
    try: test_no_sentence_about_a_gpu_is_unmarked()
    except AssertionError as error: assert "H100 it is twice" in str(error)
    else: raise AssertionError("it was not found")
