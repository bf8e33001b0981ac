"""Every command that README, the pages of commands and `--help` print is run as printed, from a folder outside of the repository that holds what the example names.

The commands are read from where a user reads them, so a new example without data here fails. What cannot be run as it
stands is named below with the reason: lines of pip, pytest and the site; commands that need a network or a GPU, whose
refusal is checked; and studies, which quickly are followed to the moment when the work begins, and run to the end
with tiny sizes among the slow tests."""
import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
import typer
from PIL import Image

from commands import HUNG, check_output, cli
from tiny_student import tiny_student
from invariant_metrics.commands import imagine_commands as imagine, judge_commands as judge, lclip_commands as lclip, rank_commands as rank, score_commands as score, shell # the first five put their commands on the application
from invariant_metrics.commands.shell import app
from invariant_metrics.core import InputError
from invariant_metrics.encoders.weights import list_weights
from invariant_metrics.probes.images import COLOR_SIZES
from invariant_metrics.rankings.run_ranking import _RANK_SIZES
from invariant_metrics.people.labels import answer_sheet, write_answers
from invariant_metrics.worlds.bilingual import make_sentences
from invariant_metrics.worlds.scenes import make_scenes
from tiny_networks import save_clip

ROOT = Path(__file__).parents[2]
NOT_OURS = ("pip ", "pytest", "bash .ci/site", "git clone", "cd ") # the installation, the tests, the site: other tests hold them
LONG = ("study ", "lclip study ", "imagine study ", "probe images", "weights train", "styles simulate")
HERE = {row["name"] for row in list_weights() if row["present"]}


def prose(notebook: str) -> str: # of nbs/tutorials
    cells = json.loads((ROOT/"nbs"/"tutorials"/notebook).read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def block_lines() -> list[str]: # of README and of the worked pages
    pages = map(prose, ("010_template_metric.ipynb", "070_by_task.ipynb", "090_two_folders.ipynb", "100_captions_and_ratings.ipynb", "110_my_judge.ipynb"))
    text = "\n".join([(ROOT/"README.md").read_text(encoding="utf-8"), *pages])
    blocks = re.findall(r"```\s*sh\n(.*?)```", text, re.S)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [part.strip() for line in lines for part in line.split("&&") if part.strip()]


def tutorial_lines() -> list[str]: # those of the first page for a user's own data
    return re.findall(r"`(invariant-metrics [^`]+)`", prose("000_own_data.ipynb"))


def help_lines(command, path: str = "invariant-metrics") -> list[str]:
    own = (command.epilog or "").removeprefix("Example: ").split("\n\n") if path != "invariant-metrics" else []
    return [*own, *(line for name, below in getattr(command, "commands", {}).items() for line in help_lines(below, f"{path} {name}"))]


PRINTED = list(dict.fromkeys(line for line in [*block_lines(), *tutorial_lines(), *help_lines(typer.main.get_command(app))] if line and not line.startswith(NOT_OURS)))


# what the examples name

def picture_folder(place: Path, n: int = 12, side: int = 64, seed: int = 0, light: float = 1.0) -> None:
    place.mkdir(parents=True, exist_ok=True)
    pixels = (255*light*make_scenes(n, size=side, seed=seed).rgb).byte().movedim(1, -1).numpy()
    for i, x in enumerate(pixels): Image.fromarray(x).save(place/f"{i:02d}.png")


def scans(place: Path) -> None: # twelve bits of sixteen
    picture_folder(place)
    for path in place.iterdir(): Image.fromarray((np.asarray(Image.open(path).convert("L"))*4095.0/255).round().astype(np.uint16)).save(path)


def suffixed(place: Path) -> None: # the same with a suffix in each name
    scans(place)
    for path in [*place.iterdir()]: path.rename(place/f"{path.stem}_fake.png")


THINGS, PLACES = ["dog", "cat", "horse", "child", "boat"], ["the beach", "a street", "the grass", "a wall"]
PAIRS = {f"{t}-{p.split()[-1]}": (t, p) for t in THINGS for p in PLACES}
REFERENCES = {k: [f"A {t} is standing near {p}.", f"There is one {t} close to {p}.", f"The {t} stands not far from {p}."] for k, (t, p) in PAIRS.items()}
FIRST = {k: f"A {t} stands near {p}." for k, (t, p) in PAIRS.items()}
SECOND = {k: f"There is a {THINGS[i % 5]} near {p}." for i, (k, (_, p)) in enumerate(PAIRS.items())}


def as_json(texts): return lambda place: place.write_text(json.dumps(texts))
def as_lines(texts): return lambda place: place.write_text("\n".join(texts) + "\n")


def judged_table(place: Path) -> None: # five systems, thirty items, two raters
    draw = np.random.default_rng(0)
    rows = [dict(item=i, system=s, rater=r, score=round(s + draw.normal(), 2)) for i in range(30) for s in range(5) for r in range(2)]
    pd.DataFrame(rows).to_csv(place, index=False)


def metric_table(place: Path) -> None:
    draw = np.random.default_rng(1)
    pd.DataFrame([dict(item=i, system=s, good=s + draw.normal(), bad=draw.normal()) for i in range(30) for s in range(5)]).to_csv(place, index=False)


def rated_table(place: Path) -> None: # of the outputs in scores.csv: two raters, two aspects
    draw = np.random.default_rng(3)
    rows = [dict(item=i, system=s, rater=r, coherence=s + draw.normal(), fluency=(s*s) % 7 + draw.normal()) for i in range(30) for s in range(5) for r in "AB"]
    pd.DataFrame(rows).to_csv(place, index=False)


def second_run(place: Path) -> None: # of the metrics in scores.csv
    draw = np.random.default_rng(4)
    metric_table(place)
    table = pd.read_csv(place)
    table.assign(good=table["good"] + 0.3*draw.normal(size=len(table))).to_csv(place, index=False)


def captions_folder(place: Path) -> None: # pictures and what systems say of them
    picture_folder(place, len(PAIRS), 48)
    for path, name in zip(sorted(place.iterdir()), PAIRS): path.rename(place/f"{name}.png")


def flickr8k(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    (place.parent/"images.jsonl").write_text("\n".join(json.dumps({"image_id": f"{k}.jpg", "references": v}) for k, v in REFERENCES.items()))
    rows = [{"image_id": f"{k}.jpg", "candidate": text, "ratings": [1 + (i + j) % 4 for j in range(3)]} for i, (k, text) in enumerate({**FIRST, **SECOND}.items())]
    place.write_text("\n".join(map(json.dumps, rows)))


def foil(place: Path) -> None: # a right caption of each picture, and the same with another thing
    rows = [{"id": 100*i, "image_id": i, "foil_id": 100*i + 9*k, "caption": text, "foil": bool(k), "foil_word": "boat" if k else "ORIG", "target_word": "dog" if k else "ORIG"}
            for i, name in enumerate(PAIRS) for k, text in enumerate((FIRST[name], FIRST[name].replace(PAIRS[name][0], "zebra")))]
    place.write_text(json.dumps({"images": coco_captions()["images"], "annotations": rows}))


def coco_captions() -> dict:
    images = [{"id": i, "file_name": f"COCO_val2014_{i:012d}.jpg"} for i in range(len(PAIRS))]
    return {"images": images, "annotations": [{"id": 100*i + k, "image_id": i, "caption": text} for i, name in enumerate(PAIRS) for k, text in enumerate([FIRST[name], *REFERENCES[name]])]}


def coco_pictures(place: Path) -> None:
    picture_folder(place, len(PAIRS), 48)
    for i, path in enumerate(sorted(place.iterdir())): path.rename(place/f"COCO_val2014_{i:012d}.png")


def pairs_table(place: Path) -> None:
    pd.DataFrame([dict(item=k, system=s, output=texts[k]) for k in PAIRS for s, texts in (("A", FIRST), ("B", SECOND))]).to_csv(place, index=False)


def page_and_answers(place: Path) -> None: # what agree collect writes, and what three raters save
    pairs_table(place.parent/"pairs.csv")
    words = ["agree", "collect", "pairs.csv", "--task", "likert", "--aspect", "fluency", "--out", "page.html", "--evaluators", 3, "--per-evaluator", 20]
    assert cli(*words, cwd=place.parent).returncode == 0
    place.mkdir()
    for k in range(3):
        sheet = answer_sheet(place.parent/"page.html", str(k + 1), f"rater {k + 1}")
        write_answers(sheet.assign(answer=[1 + (i + k) % 5 for i in range(len(sheet))], seconds=3.0), place/f"{k}.csv")


def edit_answers(place: Path) -> None: # of one reader, to a sheet of edits
    as_json(REFERENCES)(place.parent/"refs.json")
    assert cli("probe", "edits", "captioning", "--target", "refs.json", "--families", "noun-swapped,negation", "--out", "page.html", cwd=place.parent).returncode == 0
    place.mkdir()
    sheet, key = answer_sheet(place.parent/"page.html", "1", "Ada"), json.loads((place.parent/"page.html.key.json").read_text())["entries"]
    first, last = list(dict.fromkeys(sheet["aspect"]))[::2]
    ticked = [first if key[code]["system"] == "check" else last for code in sheet["item"]]
    write_answers(sheet.assign(answer=[int(a == b) for a, b in zip(sheet["aspect"], ticked)], seconds=3.0), place/"1.csv")


def style_folders(place: Path) -> None:
    for k, style in enumerate("abcde"): picture_folder(place/style, 5, 48, seed=3, light=1 - 0.15*k)


def style_labels(place: Path) -> None:
    draw = np.random.default_rng(2)
    rows = [dict(evaluator=e, input=f"{i:02d}", style=s, label=int(draw.random() < 0.9 - 0.15*k)) for e in range(8) for k, s in enumerate("abcde") for i in range(5)]
    pd.DataFrame(rows).to_csv(place, index=False)


def own_module(place: Path, function: str = "my_metric", name: str = "darkness-of-mine") -> None:
    place.with_suffix(".py").write_text(f"from invariant_metrics import paired_metric\n\n@paired_metric('{name}', higher_is_better=False)\n"
                                        f"def {function}(pred, target): return (pred.mean((1, 2, 3)) - target.mean((1, 2, 3))).abs()\n")


def per_item(place: Path) -> None:
    sides = {"refs": [r[0] for r in REFERENCES.values()], "A": FIRST.values(), "B": SECOND.values()}
    for name, texts in sides.items(): as_lines(texts)(place.parent/f"{name}.txt")
    assert cli("score", "chrf", "--pred", "A.txt", "--pred", "B.txt", "--target", "refs.txt", "--per-item", place, cwd=place.parent).returncode == 0


def parallel_text(place: Path) -> None:
    place.mkdir()
    sentences = make_sentences(90, seed=5)
    for name, texts in (("train.de", sentences.source), ("train.en", sentences.english)): as_lines(texts)(place/name)


def label_maps(place: Path) -> None: # of the pictures in photos/
    place.mkdir()
    for path in sorted((place.parent/"photos").iterdir()):
        width, height = Image.open(path).size
        Image.fromarray((np.arange(height)[:, None] // (height//4) + np.zeros((1, width))).astype(np.uint8)).save(place/f"{path.stem}_a0.png")


def annotated_pictures(place: Path) -> None: # what is written and marked in the pictures of images/, as COCO has it
    place.mkdir()
    images = [{"id": i, "file_name": f"{name}.png", "width": 48, "height": 48} for i, name in enumerate(PAIRS)]
    texts = [{"id": 100*i + j, "image_id": i, "caption": text} for i, name in enumerate(PAIRS) for j, text in enumerate(REFERENCES[name])]
    boxes = [{"id": 10_000 + i, "image_id": i, "category_id": THINGS.index(t), "bbox": [4, 4, 20 + i, 20]} for i, (t, _) in enumerate(PAIRS.values())]
    named = [{"id": i, "name": t, "synset": f"{t}.n.01"} for i, t in enumerate(THINGS)]
    (place/"instances.json").write_text(json.dumps({"images": images, "annotations": [*texts, *boxes], "categories": named}))


def student_folder(place: Path) -> None:
    with TemporaryDirectory() as made: shutil.copytree(tiny_student(Path(made)), place)


def finished_ranking(place: Path) -> None:
    if place.exists(): return
    assert cli("rank", "--models", "embedded", "--steps", "rules", "--out", place, cwd=place.parent.parent).returncode == 0


def failure_answers(place: Path) -> None: # of three raters, to the page of failures
    finished_ranking(place.parent/"runs"/"ranking")
    assert cli("rank", "collect", "runs/ranking", "--out", "page.html", "--failures", 5, cwd=place.parent).returncode == 0
    place.mkdir()
    for k in range(3):
        sheet = answer_sheet(place.parent/"page.html", str(k + 1), f"rater {k + 1}")
        rating = sheet["aspect"].eq("rating") if "aspect" in sheet else sheet["item"].isna()
        write_answers(sheet.assign(answer=[5 if r else i % 2 for i, r in enumerate(rating)], seconds=3.0), place/f"{k}.csv")


def finished_run(place: Path) -> None:
    words = ["probe", "translation", "--metrics", "bleu", "--families", "negation", "--scale", "quick", "--workers", 1, "--out", place]
    assert cli(*words, cwd=place.parent).returncode == 0


def study_of(model: str): # a finished study of colorizers, with the stored tables
    def make(place: Path) -> None:
        from invariant_metrics.runs import open_run, write_run
        from invariant_metrics.studies.search import StudyResult
        stored = ROOT/"nbs"/"results"/"colorization"
        tables = {name: pd.read_parquet(stored/f"{name}.parquet") for name in ("results", "improvements", "safe_columns")}
        settings = {"task": "colorization", "model": model, "data": None}
        write_run(place, open_run(place, settings) | {"parts": {"training": {}}, "status": "finished"})
        StudyResult(tables | {"validation": tables["results"]}, {}, {"settings": settings}).save(place/"training")
    return make


def imagenet(place: Path) -> None: # three pictures of fifty thousand
    place.mkdir()
    for k in (1, 2, 50_000): (place/f"ILSVRC2012_val_{k:08d}.JPEG").touch()


def finished_probe(place: Path) -> None:
    words = ["probe", "captioning", "--metrics", "chrf", "--families", "object-replaced", "--scale", "quick", "--workers", 1, "--out", place]
    assert cli(*words, cwd=place.parent).returncode == 0


def judged_elsewhere(place: Path) -> None: # what the probe of refs.json asks, answered by a count of words
    assert cli("probe", "captioning", "--target", "refs.json", "--ask", "asked.jsonl", cwd=place.parent).returncode == 0
    items = [json.loads(line) for line in (place.parent/"asked.jsonl").read_text().splitlines()[1:]]
    place.write_text("\n".join(json.dumps({"id": row["id"], "score": len(row["prediction"].split())}) for row in items))


def letters_clip(place: Path) -> None: # a light CLIP of random weights that reads letters
    import transformers
    from invariant_metrics.encoders.encoder import CLIP, Preprocess
    from invariant_metrics.encoders.lclip_student import save_lclip
    from invariant_metrics.models.colorizer import seeded
    from invariant_metrics.models.multiplexed import LClip, tiny_lclip
    letters = [*"abcdefghijklmnopqrstuvwxyz.,", *(c + "</w>" for c in "abcdefghijklmnopqrstuvwxyz.,")]
    words = {w: i for i, w in enumerate(["<|startoftext|>", *letters, "<|endoftext|>"])}
    transformers.CLIPTokenizer(vocab=words, merges=[]).save_pretrained(place)
    with seeded(0): save_lclip(place, LClip(tiny_lclip(vocabulary=len(words), context=96)), place, Preprocess(32, "crop", "bicubic", CLIP))


def teacher_folder(place: Path) -> None: # a CLIP in miniature
    save_clip(place)


def photo_captions(place: Path) -> None: # of the pictures in photos/, as COCO has them
    pictures = sorted(p.name for p in (place.parent/"photos").iterdir())
    images = [{"id": i, "file_name": name} for i, name in enumerate(pictures)]
    texts = [{"id": 2*i + k, "image_id": i, "caption": text} for i in range(len(images)) for k, text in enumerate(("a dog runs", "a red ball"))]
    place.write_text(json.dumps({"images": images, "annotations": texts}))


DATA = { # what an example names -> how it is made
    "generated/": picture_folder, "real/": lambda p: picture_folder(p, seed=9), "colorized/": picture_folder, "ours/": picture_folder, "ours": picture_folder,
    "theirs/": lambda p: picture_folder(p, light=0.9), "truth/": lambda p: picture_folder(p, light=0.95), "truth": lambda p: picture_folder(p, light=0.95),
    "photographs/": lambda p: picture_folder(p, 6, 96, seed=4), "photos/": lambda p: picture_folder(p, 8, 128, seed=6), "label-maps/": label_maps,
    "refs.json": as_json(REFERENCES), "sysA.json": as_json(FIRST), "sysB.json": as_json(SECOND), "hyp.json": as_json(FIRST), "images/": captions_folder,
    "refs.txt": as_lines([r[0] for r in REFERENCES.values()]), "sysA.txt": as_lines(FIRST.values()), "sysB.txt": as_lines(SECOND.values()),
    "color_metrics": lambda p: own_module(p, "color_error", "color-error"), "ratings.csv": judged_table,
    "careful.json": as_json(FIRST), "mirror.json": as_json(SECOND), "short.json": as_json({k: v[:-1] for k, v in FIRST.items()}),
    "judge.py": as_lines(["import json, sys", "for line in sys.stdin:", "    q = json.loads(line)", "    print(json.dumps({'id': q['id'], 'score': len(q['prediction'])}))"]),
    "hyp.txt": as_lines(FIRST.values()), "ref0.txt": as_lines([r[0] for r in REFERENCES.values()]), "ref1.txt": as_lines([r[1] for r in REFERENCES.values()]),
    "judgments.csv": judged_table, "scores.csv": metric_table, "rated.csv": rated_table, "second.csv": second_run, "flickr8k/judgments.jsonl": flickr8k, "pairs.csv": pairs_table, "foilv1.0_test_2017.json": foil, "captions_val2014.json": lambda p: p.write_text(json.dumps(coco_captions())), "val2014/": coco_pictures,
    "answers/": page_and_answers, "coco/": Path.mkdir,
    "answers.csv": style_labels, "my_module": own_module, "per-item.parquet": per_item, "multi30k/": parallel_text, "iwslt14/": parallel_text,
    "imagenet/train": lambda p: picture_folder(p, 6, 96, seed=4), 
    "runs/unet": study_of("unet"), "runs/ddcolor": study_of("ddcolor"), "imagenet/val": imagenet, "runs/colorization": finished_run, "runs/probe-captioning": finished_probe, "student/": letters_clip, "annotations/": annotated_pictures, "runs/ranking": finished_ranking,
    "scores.jsonl": judged_elsewhere, "teacher/": teacher_folder, "captions.json": photo_captions, "scans/": scans, "faded/": picture_folder, "results/": suffixed,
    "hyp.csv": lambda p: pd.DataFrame({"image": [f"images/{k}.png" for k in FIRST], "model_says": FIRST.values()}).to_csv(p, index=False),
    "domains.jsonl": lambda p: p.write_text("\n".join(json.dumps({"id": k, "references": v, "domain": PAIRS[k][1].split()[-1]}) for k, v in REFERENCES.items()))}
INSTEAD = {("lclip export", "student/"): student_folder, ("styles", "generated/"): style_folders, ("rank labels", "answers/"): failure_answers,
           ("probe edits", "answers/"): edit_answers} # where an example means something else by a name
REFUSED = { # beginning of a command -> what its one line says; here for want of weights, network or GPU, or of WordNet's own files
    "score fid,fdd,cmmd,kid": "weights fetch inception", "score fid,fdd,kid": "weights fetch inception", "probe encoder dinov2-large": "weights fetch dinov2-large", "score clipscore": "weights fetch clip-vit-b-32",
    "weights fetch inception": "cannot fetch inception", "imagine study --generator-weights": "device 'cuda' cannot be used here",
    "imagine table flickr8k/judgments.jsonl --generator": "device 'cuda' cannot be used here", "study translation --data iwslt14/ --scale full --model iwslt --device cuda": "device 'cuda' cannot be used here",
    "study translation --parts training --model bibert --scale full": "device 'cuda' cannot be used here",
    "study captioning --parts training --model clipcap --scale full": "device 'cuda' cannot be used here",
    "study colorization --parts training --model ddcolor --scale full": "device 'cuda' cannot be used here", "wordnet build /usr/share/wordnet": "/usr/share/wordnet"}
if Path("/usr/share/wordnet/index.noun").is_file(): del REFUSED["wordnet build /usr/share/wordnet"]


def named(line: str) -> list[str]: # what of DATA an example names and does not write
    line = re.sub(r"--(out|per-item) \S+", "", line)
    return [name for name in DATA if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-]|/)", line)]


@pytest.fixture
def small(monkeypatch, tmp_path):
    "Sizes of default runs that a test can wait for; no network."
    from invariant_metrics.lclip import compress as distill
    from invariant_metrics.probes import contested, images, own_images, own_texts, worlds
    from invariant_metrics.rankings import run_ranking as run
    from invariant_metrics.probes.probe_task import ProbeSize
    monkeypatch.setattr(contested, "_SHOWN_TILE", 64)
    for sizes, items in ((images.COLOR_SIZES, 12), (own_images.PICTURE_SIZES, 5), (own_texts.OWN_SIZES, 8), (worlds._WORLD_SIZES, 12)):
        for scale in sizes: monkeypatch.setitem(sizes, scale, replace(ProbeSize(items, 6, 40), per_photo=2 if sizes is images.COLOR_SIZES else 1))
    def one_process(calls, *words, **options): return [call() for call in calls]
    for module in (images, own_images, own_texts, worlds): monkeypatch.setattr(module, "share_out", one_process)
    for scale in run._RANK_SIZES: monkeypatch.setitem(run._RANK_SIZES, scale, run.RankSize(30, 30))
    for scale in distill._DISTILL_SIZES: monkeypatch.setitem(distill._DISTILL_SIZES, scale, distill.DistillSize(12, (2, 2, 2), 8))
    def offline(*words, **options): raise OSError("the network is not to be used")
    monkeypatch.setattr(urllib.request, "urlopen", offline)
    return tmp_path


def prepare(line: str, place: Path) -> None:
    "Put there what the example names; whatever else looks like a file would be missing when it runs."
    for name in named(line):
        own = next((make for (command, what), make in INSTEAD.items() if what == name and f"invariant-metrics {command} " in f"{line} "), DATA[name])
        (place/name).parent.mkdir(parents=True, exist_ok=True)
        own(place/name)


def run(line: str, place: Path, monkeypatch) -> tuple[int, str, str]: # exit code, standard output, standard error
    if line.startswith("python -c"):
        monkeypatch.chdir(place)
        with redirect_stdout(StringIO()) as out: exec(shlex.split(line)[2], {})
        return 0, out.getvalue(), ""
    words = shlex.split(line)
    assert words[0] == "invariant-metrics", f"{line}: neither a command of the package nor one of {NOT_OURS}"
    done = cli(*words[1:], cwd=place)
    return done.returncode, done.stdout, done.stderr


SCHEMA = json.loads((ROOT/"invariant_metrics"/"assets"/"schemas"/"output.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def every_form(monkeypatch):
    "Whatever a command prints as a table it also prints as csv, md and latex, and its JSON is as the schema says."
    plain = shell._print_result
    def print_result(form, kind, payload, tables, *more, **options):
        for other in ("json", "csv", "md", "latex"):
            if other == "csv" and not tables: continue
            with redirect_stdout(StringIO()) as out: plain(other, kind, payload, tables)
            if other == "json": check_output(json.loads(out.getvalue()))
            if other == "csv" and tables[0].rows: assert len(pd.read_csv(StringIO(out.getvalue()))) == len(tables[0].rows)
            if other == "latex": assert out.getvalue().count(r"\begin{table}") == out.getvalue().count(r"\end{tabular}") == len(tables)
        plain(form, kind, payload, tables, *more, **options)
    monkeypatch.setattr(shell, "_print_result", print_result)


def test_every_kind_of_result_has_a_schema():
    from jsonschema import ValidationError
    code = "".join((ROOT/"invariant_metrics"/"commands"/f"{name}_commands.py").read_text(encoding="utf-8") for name in ("imagine", "judge", "lclip", "rank", "score"))
    assert set(re.findall(r'\bResult\("(\w+)"', code)) == set(SCHEMA["properties"]["kind"]["enum"])
    with pytest.raises(ValidationError): check_output({"schema": 1, "kind": "score", "version": "1", "result": {}})


def refusal(line: str) -> str:
    return next((says for begins, says in REFUSED.items() if line.startswith(f"invariant-metrics {begins}")), "")


def is_long(line: str) -> bool: return line.startswith(tuple(f"invariant-metrics {name}" for name in LONG)) and not refusal(line)


def test_readme_and_help_print_commands(): # or the expressions above no longer find them
    assert len(PRINTED) > 35 and sum(line.startswith("invariant-metrics score") for line in PRINTED) > 6 and any("styles" in line for line in PRINTED)


@pytest.mark.parametrize("line", [line for line in PRINTED if not is_long(line)])
def test_a_printed_command_does_what_it_says(line, small, monkeypatch):
    "With the quick scale's numbers of pictures where an example leaves the scale as it is."
    for sizes in (COLOR_SIZES, _RANK_SIZES): monkeypatch.setitem(sizes, "default", sizes["quick"])
    prepare(line, small)
    if "minilm" in line and "minilm" not in HERE: pytest.skip("without the extra minilm")
    code, out, err = run(line, small, monkeypatch)
    says = refusal(line)
    if not says: assert code == 0 and out.strip() and "error" not in err, err
    else: assert code == 2 and [says in said for said in err.splitlines() if said.startswith("error: ")] == [True], (out, err)


class Begun(Exception):
    "The work of a long command has begun."


@pytest.mark.parametrize("line", [line for line in PRINTED if is_long(line)])
def test_a_long_printed_command_comes_to_its_work(line, small, monkeypatch):
    from invariant_metrics.imagine import run_imagine as imagine_run
    from invariant_metrics.lclip import run_lclip as lclip_run
    from invariant_metrics.people import style_simulation
    from invariant_metrics.probes import run_probe as probe_run
    from invariant_metrics.studies import run_study as study_run
    from invariant_metrics.training import embedded
    def begun(*words, **options): raise Begun
    if "lclip study" in line and "embedded-clip" not in HERE: pytest.skip("without embedded-clip")
    monkeypatch.setattr(study_run, "run_parts", begun)
    monkeypatch.setattr(lclip_run, "run_parts", begun)
    monkeypatch.setattr(imagine_run, "run_parts", begun)
    monkeypatch.setattr(probe_run, "run_parts", begun)
    monkeypatch.setattr(style_simulation, "draw_style_pictures", begun)
    monkeypatch.setattr(embedded, "import_object", lambda path: begun)
    prepare(line, small)
    code, out, err = run(line, small, monkeypatch)
    assert code == 2 and err.splitlines()[-1].startswith("error: Begun"), err


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in PRINTED if is_long(line) and "weights train" not in line])
def test_a_long_printed_command_runs_to_its_page(line, small, monkeypatch):
    from invariant_metrics.imagine import imagine_study as imagination
    from invariant_metrics.lclip import compression_study, reward_study
    from invariant_metrics.studies import tasks
    if "lclip study" in line and "embedded-clip" not in HERE: pytest.skip("without embedded-clip")
    students = compression_study.CompressionSize(scenes=12, steps=2, pair_steps=2, batch=4, test=12, graded=10, reps=30, rounds=1)
    for scale in compression_study._COMPRESSION_SIZES: monkeypatch.setitem(compression_study._COMPRESSION_SIZES, scale, students)
    for scale in imagination._IMAGINE_SIZES: monkeypatch.setitem(imagination._IMAGINE_SIZES, scale, imagination.ImagineSize(3, 1))
    captioners = reward_study._REWARD_SIZES["quick"]
    for scale in reward_study._REWARD_SIZES: monkeypatch.setitem(reward_study._REWARD_SIZES, scale, captioners)
    def tiny(size): return replace(size, train=48, validation=16, test=24, pretrain=8, steps=16, batch=4, reps=20)
    for name in ("colorization", "translation", "captioning"):
        task = tasks.study_tasks[name]
        monkeypatch.setattr(task, "design", replace(task.design, sizes={scale: tiny(size) for scale, size in task.design.sizes.items()}))
    prepare(line, small)
    code, out, err = run(line, small, monkeypatch)
    assert code == 0 and Path(small, out.split("page: ")[1].strip()).stat().st_size > 10_000, err


def test_the_installed_script_finds_a_module_in_the_current_folder(tmp_path, monkeypatch):
    "Without PYTHONPATH: a script does not have the current folder on its path."
    line = next(line for line in PRINTED if "my_module:my_metric" in line)
    prepare(line, tmp_path)
    script = shutil.which("invariant-metrics", path=str(Path(sys.executable).parent))
    if script is None: pytest.skip("the package is not installed")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run([script, *shlex.split(line)[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0 and "darkness" in done.stdout, done.stderr


def test_an_example_without_data_is_noticed(small, monkeypatch):
    code, out, err = run("invariant-metrics score psnr --pred new_example/ --target new_truth/", small, monkeypatch)
    assert code == 2 and "new_example" in err
