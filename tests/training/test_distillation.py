"Distillation of L-CLIP: losses against loops in float64, what moves and what does not, resuming to the bit, teachers asked once, refusals."
import json
import math
import os
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from commands import HUNG, started, torchrun
from open_cells import open_cells
from invariant_metrics.core import InputError
from invariant_metrics.data.pairs import load_pairs, _pairs_of_scenes, _read_concepts
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.encoders.image_text import image_text
from invariant_metrics.encoders.store import FeatureStore
from invariant_metrics.lclip import compress as room
from invariant_metrics.lclip.compress import Lessons, distill, open_teacher, student_config
from invariant_metrics.lclip.exported import export_lclip
from invariant_metrics.models.colorizer import fixed_seed
from invariant_metrics.models.multiplexed import LClip, tiny_lclip
from invariant_metrics.runs import read_run
from invariant_metrics.training.distillation import STAGES, PairData, _Pupil, StagePlan, copy_patches, _cosine_matrix, distill_stage
from invariant_metrics.training.distillation import pair_contrastive, similarity_regulator, _stage_batches, _stage_loss, teacher_heads, _tower_loss
from invariant_metrics.training.loop import total
from invariant_metrics.training.meaning_kept import _KEPT, Variation, view_images
from tiny_networks import save_clip

N, DIM = 24, 16


def made(dim: int = DIM, **changes) -> PairData: # pairs of a random teacher; texts 3 and 7 are the same
    g = torch.Generator().manual_seed(3)
    tokens = torch.cat([torch.randint(2, 60, (N, 5), generator=g), torch.full((N, 1), 63)], 1)
    texts = [f"caption {i}" for i in range(N)]
    tokens[7], texts[7] = tokens[3], texts[3]
    pixels = torch.randint(0, 256, (2, N, 3, 32, 32), generator=g).byte()
    images, said = torch.randn(2, N, dim, generator=g), torch.randn(N, dim, generator=g)
    return replace(PairData(pixels, tokens, texts, {"one": images}, {"one": said}), **changes)


def new() -> LClip:
    with fixed_seed(0): return LClip(tiny_lclip())


def state(student: LClip) -> dict: return {name: p.detach().clone() for name, p in student.named_parameters()}
def moved(student: LClip, before: dict) -> set: return {name for name, p in student.named_parameters() if not torch.equal(p, before[name])}


# losses

def test_losses_are_those_of_loops_in_float64():
    draw = np.random.default_rng(0)
    a, b, c, d = (draw.normal(size=(7, 5)) for _ in range(4))
    def cosine(x, y): return float(x @ y/np.linalg.norm(x)/np.linalg.norm(y))
    wanted = np.mean([.5*np.abs(x - y).mean() + .5*(1 - cosine(x, y)) for x, y in zip(a, b)])
    a, b, c, d = map(torch.from_numpy, (a, b, c, d))
    assert _tower_loss(a, b).item() == pytest.approx(wanted, abs=1e-12)
    S, T = _cosine_matrix(a, b), _cosine_matrix(c, d)
    assert S.dtype == torch.float64 and S[2, 4].item() == pytest.approx(cosine(a[2].numpy(), b[4].numpy()), abs=1e-12)
    own = [max(0, float(T[i, i] - S[i, i])) for i in range(7)]
    others = [max(0, float(S[i, j] - T[i, j])) for i in range(7) for j in range(7) if i != j]
    assert similarity_regulator(S, T).item() == pytest.approx(np.mean(own) + np.mean(others), abs=1e-12)
    assert similarity_regulator(S, T, "sum").item() == pytest.approx(sum(own) + sum(others), abs=1e-12)
    assert similarity_regulator(S.T, T.T).item() == pytest.approx(similarity_regulator(S, T).item(), abs=1e-12)  # so the code's two directions are one
    def softmax_loss(scores, i, left): return math.log(sum(math.exp(s - scores[i]) for j, s in enumerate(scores) if j not in left))
    same = torch.eye(7, dtype=torch.bool)
    same[1, 4] = same[4, 1] = True
    rows = [softmax_loss((9*m[i]).tolist(), i, {j for j in range(7) if same[i, j] and j != i}) for m in (S, S.T) for i in range(7)]
    assert pair_contrastive(S, 9., same).item() == pytest.approx(np.mean(rows), abs=1e-10)


def test_the_regulator_of_the_facts_and_its_gradient():
    T, S = torch.tensor([[.30, .10], [.05, .25]]), torch.tensor([[.28, .12], [.02, .35]], requires_grad=True)
    assert similarity_regulator(S, T, "sum").item() == pytest.approx(.04, abs=1e-6) and similarity_regulator(S, T).item() == pytest.approx(.02, abs=1e-6)
    similarity_regulator(S, T, "sum").backward()
    assert S.grad.tolist() == [[-1, 1], [0, 0]]  # satisfied places pull at nothing
    assert similarity_regulator(torch.ones(1, 1), torch.zeros(1, 1)).item() == 0  # one pair, no others


def test_cosines_keep_their_places_under_bfloat16():
    a, b = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16): inside = _cosine_matrix(a, b)
    assert inside.dtype == torch.float32 and torch.equal(inside, _cosine_matrix(a, b))


def test_without_a_scale_a_perfect_student_stays_near_knowing_nothing():
    assert pair_contrastive(2*torch.eye(2048) - 1, 1.).item() == pytest.approx(5.63, abs=.005) and math.log(2048) == pytest.approx(7.62, abs=.005)


def test_terms_of_the_stage_of_pairs_have_the_codes_weights():
    data, student = made(), new()
    batch = _stage_batches(data, "pair", 8)(0)
    pupil = _Pupil(student, teacher_heads(data.teachers, DIM))
    images, texts = pupil(batch)
    def eq1(x, y): return (x - y).abs().mean() + 1 - torch.nn.functional.cosine_similarity(x, y).mean()
    one, two = eq1(images, batch["teacher_images"][0]), eq1(texts, batch["teacher_texts"][0])
    regulator = similarity_regulator(_cosine_matrix(images, texts), _cosine_matrix(batch["teacher_images"][0], batch["teacher_texts"][0]))
    code = .5*(one/3 + two/3) + .1*regulator/3
    assert total(_stage_loss("pair", StagePlan(freeze_text=False))(pupil, batch)).item() == pytest.approx(code.item(), abs=1e-6)
    terms = _stage_loss("pair", StagePlan())(pupil, batch)
    assert terms["text"][0] == 0 and total(terms).item() == pytest.approx((code - .5*two/3).item(), abs=1e-6)  # a frozen tower is only watched
    assert _stage_loss("pair", StagePlan(loss="single"))(pupil, batch)["regulator"][0] == 0


# what stages see and move

def test_repeated_captions_are_counted_and_masked():
    data = made()
    batch = _stage_batches(data, "pair", N)(0)
    at = {int(row): k for k, row in enumerate(batch["rows"])}
    assert batch["same"][at[3], at[7]] and batch["same"].sum() == N + 2
    log = distill_stage(new(), data, "pair", steps=1, batch=N, loss="contrastive")
    assert log[log.term == "repeated"].value.item() == pytest.approx(2/N)


def test_each_epoch_has_its_view_of_pixels_and_of_the_teacher():
    data = made()
    batches = _stage_batches(data, "vision", 16, views=2)
    for i in range(6):
        batch = batches(i)
        for k, row in enumerate(batch["rows"].tolist()):
            view = (16*i + k)//N % 2
            assert torch.equal(batch["teacher_images"][0][k], data.teacher_images["one"][view, row])
    first = _stage_batches(data, "vision", N)(1)
    assert torch.equal(first["teacher_images"][0], data.teacher_images["one"][0, first["rows"]])  # one view unless more are asked for


@pytest.mark.parametrize("stage, changes, towers", [
    ("vision", {}, {"vision"}), ("text", {}, {"text"}), ("pair", {}, {"vision"}), ("pair", dict(freeze_text=False), {"vision", "text"})])
def test_a_stage_moves_its_tower_and_nothing_frozen(stage, changes, towers):
    student, frozen = new(), ("vision.positions", "vision.token")
    before = state(student)
    distill_stage(student, made(), stage, steps=2, batch=8, frozen=frozen, **changes)
    assert {name.split(".")[0] for name in moved(student, before)} == towers and not moved(student, before) & {*frozen}
    if stage == "pair":
        distill_stage(student, made(), stage, steps=2, batch=8, frozen=frozen, freeze_copied=False, **changes)
        assert {*frozen} <= moved(student, before)
    assert all(p.requires_grad for p in student.parameters())


def test_a_frozen_text_tower_is_looked_up_and_gives_the_same_steps():
    students = [new(), new()]
    long, short = (distill_stage(s, made(), "pair", steps=n, batch=8, folder=None) for s, n in zip(students, (3, 2)))  # 24 rows and 16 of 24
    pick = lambda log: log[(log.step < 2) & (log.term == "regulator")].value.to_numpy()
    assert np.allclose(pick(long)[:1], pick(short)[:1], atol=1e-6)


def test_several_teachers_give_the_mean_and_other_sizes_a_map():
    one, student = made(), new()
    g = torch.Generator().manual_seed(8)
    wide = {"two": torch.randn(2, N, 20, generator=g)}, {"two": torch.randn(N, 20, generator=g)}
    both = replace(one, teacher_images=one.teacher_images | wide[0], teacher_texts=one.teacher_texts | wide[1])
    heads = teacher_heads(both.teachers, DIM)
    weights = heads["images"][1].weight.detach().clone()
    pupil, batch = _Pupil(student, heads), _stage_batches(both, "vision", 8)(0)
    images, _ = pupil(batch)
    parts = [_tower_loss(images, batch["teacher_images"][0]), _tower_loss(heads["images"][1](images), batch["teacher_images"][1])]
    assert _stage_loss("vision", StagePlan())(pupil, batch)["vision"].item() == pytest.approx((sum(parts)/2).item(), abs=1e-6)
    distill_stage(student, both, "vision", steps=2, batch=8, heads=heads)
    assert not torch.equal(weights, heads["images"][1].weight)
    with pytest.raises(InputError, match=r"have 16 numbers, the teacher's 20 \(two\)"): teacher_heads({"two": 20}, DIM)


def test_pairs_look_at_their_own_batch_and_gathering_is_a_mean():
    students = [new(), new()]
    logs = [distill_stage(s, made(), "vision", steps=4, batch=b, accumulate=a) for s, b, a in zip(students, (8, 4), (1, 2))]
    for name, p in students[0].named_parameters(): assert torch.allclose(p, dict(students[1].named_parameters())[name], atol=2e-5), name
    assert np.allclose(*(log[log.term == "vision"].value for log in logs), atol=1e-5)


# going on

class Dark(Exception): pass


@pytest.mark.parametrize("stage, changes", [("vision", {}), ("text", {}), ("pair", dict(loss="contrastive")), ("pair", dict(freeze_text=False, views=2))])
def test_a_stage_that_was_stopped_ends_on_the_same_bits(stage, changes, tmp_path):
    whole, cut, drawn = new(), new(), []
    log = distill_stage(whole, made(), stage, steps=7, batch=8, **changes)
    def dark():
        drawn.append(1)
        if len(drawn) == 5: raise Dark
    with pytest.raises(Dark): distill_stage(cut, made(), stage, steps=7, batch=8, folder=tmp_path, save_every=3, tick=dark, **changes)
    again = new()
    assert log.equals(distill_stage(again, made(), stage, steps=7, batch=8, folder=tmp_path, save_every=3, **changes))
    for name, p in again.named_parameters(): assert torch.equal(p, dict(whole.named_parameters())[name]), name


def test_a_checkpoint_of_another_configuration_is_refused_by_name(tmp_path):
    distill_stage(new(), made(), "pair", steps=2, batch=8, folder=tmp_path)
    for change, says in [(dict(loss="single"), "loss = regulator, not single"), (dict(reduction="sum"), "reduction = mean, not sum"),
                         (dict(freeze_text=False), "freeze_text"), (dict(steps=3), "steps = 2, not 3")]:
        with pytest.raises(InputError, match=says): distill_stage(new(), made(), "pair", **{"steps": 2, "batch": 8, "folder": tmp_path, **change})
    with fixed_seed(0): wider = LClip(tiny_lclip(patch=16))
    with pytest.raises(InputError, match="pair.parameters"): distill_stage(wider, made(), "pair", steps=2, batch=8, folder=tmp_path)


def test_a_loss_that_is_no_number_stops_with_its_name(tmp_path):
    data = made()
    data.teacher_images["one"][0, :] = float("nan")
    with pytest.raises(InputError, match="step 0: 'vision' of turn 'vision' is nan"): distill_stage(new(), data, "vision", steps=2, batch=8, folder=tmp_path)


def two_processes(out: str) -> None: # what each process of the next test runs
    world = int(os.environ.get("WORLD_SIZE", "1"))
    distill_stage(new(), made(), "vision", steps=3, batch=4, accumulate=2//world, folder=out)


@pytest.mark.slow
def test_two_processes_are_one_with_twice_the_batches(tmp_path):
    torchrun(two_processes, str(tmp_path/"two"))
    two_processes(str(tmp_path/"one"))
    from invariant_metrics.training.checkpoint import read_state
    (two, header), (one, alone) = (read_state(tmp_path/name/"checkpoint.safetensors") for name in ("two", "one"))
    assert header["settings"] == alone["settings"]
    for name in one: assert torch.allclose(one[name], two[name], atol=1e-5), name


# teachers, pairs, runs

@pytest.fixture(scope="module")
def teacher(tmp_path_factory): return save_clip(tmp_path_factory.mktemp("teacher"))


FEW = room.DistillSize(10, (4, 4, 3), 8) # steps of a run that takes a moment


@pytest.fixture
def tiny(teacher, tmp_path, monkeypatch): # a run of a few steps
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    monkeypatch.setitem(room._DISTILL_SIZES, "quick", FEW)
    (tmp_path/"narrow.json").write_text(json.dumps({"vision.width": 32, "vision.heads": 4, "text.width": 32, "text.heads": 4, "patch": 16}))
    return dict(teacher=teacher, student=tmp_path/"narrow.json", scale="quick", save_every=2)


def test_the_teacher_is_never_asked_twice(teacher, tmp_path):
    calls, real = [], open_teacher(teacher)
    tower = replace(real.tower, image=lambda x: calls.append(len(x)) or real.tower.image(x), text=lambda x: calls.append(len(x)) or real.tower.text(x))
    pairs = _pairs_of_scenes(6)
    def lessons(): return Lessons([replace(real, tower=tower)], 96, store=FeatureStore(tmp_path))
    def data():
        held, (at, rows) = lessons(), pairs.rows()
        return PairData(**held.of_pictures(pairs.images, views=2), **held.of_texts(rows), pictures=at)
    first = data()
    assert sum(calls) == 2*6 + len(pairs.rows()[1])
    calls.clear()
    config = student_config("small", real, 32)
    with fixed_seed(0): student = LClip(replace(config, vision=replace(config.vision, width=24, heads=2), text=replace(config.text, width=24, heads=2)))
    distill_stage(student, data(), "pair", steps=3*len(first)//16, batch=16, views=2)  # three epochs
    assert calls == []


def test_a_run_leaves_a_clip_and_its_losses_and_is_done_once(tiny, tmp_path):
    place = distill("scenes", tmp_path/"run", **tiny)
    student, meta = image_text(place), read_run(tmp_path/"run")
    assert student.name == "lclip" and meta["status"] == "finished" and [*meta["parts"]] == [*STAGES]
    scenes = _pairs_of_scenes(3)
    assert student.images([scenes.images[i] for i in range(3)]).shape == (3, 32)
    losses = open_cells("lclip/00_compress").load_losses(tmp_path/"run")
    assert set(losses.stage) == {*STAGES} and losses.groupby("stage").step.max().to_dict() == {"vision": 3, "text": 3, "pair": 2}
    stamp = (place/"lclip.safetensors").stat().st_mtime_ns
    assert distill("scenes", tmp_path/"run", **tiny) == place and (place/"lclip.safetensors").stat().st_mtime_ns == stamp
    student = (place/"lclip.safetensors").read_bytes()
    shutil.rmtree(place)  # a student that was lost is written again
    assert distill("scenes", tmp_path/"run", **tiny) == place and (place/"lclip.safetensors").read_bytes() == student
    with pytest.raises(InputError, match="another run"): distill("scenes", tmp_path/"run", **tiny, reduction="sum")
    with pytest.raises(InputError, match="nothing to resume"): distill("scenes", tmp_path/"none", **tiny, resume=True)
    assert not (tmp_path/"none").exists()


def killed(out: str, tiny: dict) -> None: # in a process of its own: dies without a word in the middle of the text tower
    room._DISTILL_SIZES["quick"] = FEW
    count, plain = [], room.distill_stage
    def tick():
        count.append(1)
        if len(count) == 7: os.kill(os.getpid(), signal.SIGKILL)
    room.distill_stage = lambda *words, **options: plain(*words, **options, tick=tick)
    distill("scenes", out, **tiny)


def test_the_papers_recipe_has_its_views_and_first_captions(tiny, tmp_path, monkeypatch):
    seen = []
    def noted(lessons, pairs, *rest):
        seen.append((rest[2], rest[4])) # first, views
        raise InputError("far enough")
    monkeypatch.setattr(room, "_lesson_plans", noted)
    for more in ({}, {"recipe": "paper"}, {"recipe": "paper", "first": False, "views": 2}):
        with pytest.raises(InputError, match="far enough"): distill("scenes", tmp_path/"run", **tiny, **more)
    assert seen == [(False, 1), (True, 8), (False, 2)]


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_and_ends_on_the_same_bits(tiny, tmp_path, precision):
    tiny["precision"] = precision
    child = started(killed, str(tmp_path/"killed"), tiny)
    child.join(HUNG)
    assert child.exitcode == -signal.SIGKILL and read_run(tmp_path/"killed")["status"] == "running"
    again, whole = (distill("scenes", tmp_path/name, **tiny) for name in ("killed", "whole"))
    assert (again/"lclip.safetensors").read_bytes() == (whole/"lclip.safetensors").read_bytes()
    losses = open_cells("lclip/00_compress").load_losses(tmp_path/"killed")
    assert losses.equals(open_cells("lclip/00_compress").load_losses(tmp_path/"whole")) and ("loss scale" in {*losses.term}) == (precision == "fp16")
    parts = read_run(tmp_path/"killed")["parts"]
    assert {term for part in parts.values() for term in part["losses"]} == {"vision", "text", "regulator"}
    assert sum(part["skipped"] for part in parts.values()) == losses[losses.term == "skipped"].value.sum()


def test_what_cannot_work_is_refused_before_the_folder_is_made(tiny, teacher, tmp_path):
    def refused(says, data="scenes", **changes):
        with pytest.raises(InputError, match=says): distill(data, tmp_path/"no", **{**tiny, **changes})
        assert not (tmp_path/"no").exists()
    (tmp_path/"wide.json").write_text('{"dim": 48}')
    (tmp_path/"short.json").write_text('{"context": 8}')
    (tmp_path/"deep.json").write_text('{"vision.depth": 8}')
    refused("dim 48, the teacher 32", student=tmp_path/"wide.json")
    refused("more than 8 tokens", student=tmp_path/"short.json")
    refused("vision.depth", student=tmp_path/"deep.json")
    refused("given twice", teacher=[teacher, teacher])
    refused("a scale above 0", contrastive_scale=0)
    refused("unknown precision 'fp61'; did you mean fp16", precision="fp61")
    refused("--contrastive-scale would change nothing: only --loss contrastive", contrastive_scale=100)
    refused("--reduction sum would change nothing: only --loss regulator", reduction="sum", loss="single")
    refused("--without would change nothing: .* give --views 2", variation=Variation(without=("Equalize",)))
    (tmp_path/"texts.tsv").write_text("a red ball\thttps://example.org/1.png\na dog\thttps://example.org/2.png")
    for options, name in ((dict(reduction="sum"), "--reduction sum"), (dict(loss="contrastive"), "--loss contrastive")):
        refused(f"{name} would change nothing: there are no pairs", data=tmp_path/"texts.tsv", **options)
    refused("no such file or folder", data=tmp_path/"nowhere")
    cut = distill("scenes", tmp_path/"cut", **{**tiny, "student": tmp_path/"short.json"}, long="cut")
    assert read_run(tmp_path/"cut")["cut"] > 10 and image_text(cut).tokens.limit == 8


def test_pictures_that_do_not_decode_are_refused_or_counted(tiny, tmp_path):
    pairs, folder = _pairs_of_scenes(4), tmp_path/"photos"
    folder.mkdir()
    for i, photo in enumerate(pairs.images.items): Image.fromarray(photo.rgb).save(folder/f"{i}.png")
    lines = [f"{texts[0]}\thttps://example.org/{i}.png" for i, texts in enumerate(pairs.captions)]
    (tmp_path/"cc.tsv").write_text("\n".join([*lines, "a caption\thttps://example.org/4.png"]))
    (folder/"2.png").write_bytes((folder/"2.png").read_bytes()[:150])
    words = {**tiny, "captions": tmp_path/"cc.tsv"}
    with pytest.raises(InputError, match="1 of 5 pictures are not in"): distill(folder, tmp_path/"run", **words)
    (tmp_path/"more").mkdir()
    for name in ("2.png", "3.png"): shutil.copy(folder/name, tmp_path/"more")
    place = distill(folder, tmp_path/"run", **words, pictures=tmp_path/"more", skip_bad=True)
    assert read_run(tmp_path/"run")["left_out"] == {"missing": 1, "not decodable": 2} and image_text(place).name == "lclip"
    assert [*read_run(tmp_path/"run")["parts"]] == [*STAGES]
    texts = distill(tmp_path/"cc.tsv", tmp_path/"texts", **tiny)  # without pictures: the text tower alone
    assert [*read_run(tmp_path/"texts")["parts"]] == ["text"] and texts.is_dir()
    assert ["image tower has learned nothing" in note for note in read_run(tmp_path/"texts")["notes"]] == [True]
    for opens in (image_text, lambda place: get_encoder("lclip", weights=place), lambda place: export_lclip(place, tmp_path/"onnx")):
        with pytest.raises(InputError, match="student: its image tower has learned nothing.*without pictures; distill it with pictures"): opens(texts)
    assert read_run(tmp_path/"run")["notes"] == []
    assert load_pairs(tmp_path/"cc.tsv").images is None


@pytest.mark.parametrize("ending, mark", [("csv", ","), ("tsv", "\t")])
def test_a_table_with_headings_goes_with_the_pictures_beside_it(tmp_path, ending, mark):
    scenes = _pairs_of_scenes(2).images
    for name, i in (("a.png", 0), ("b.png", 1)): Image.fromarray(scenes.items[i].rgb).save(tmp_path/name)
    rows = [("image", "caption"), ("a.png", "a red ball"), ("b.png", "a tree"), ("a.png", "one ball")]
    table = tmp_path/f"table.{ending}"
    table.write_text("".join(mark.join(row) + "\n" for row in rows))
    for found in (load_pairs(table), load_pairs(tmp_path, table)):
        assert found.captions == [("a red ball", "one ball"), ("a tree",)] and len(found.images) == 2
        assert torch.equal(found.images[1], scenes[1])


def test_captions_and_files_of_a_table_are_told_apart_in_either_order(tmp_path):
    pairs, file = [("a red ball", "a b.png"), ("see a.png", "https://example.org/2.jpg?w=1")], tmp_path/"pairs.tsv"
    for heads in ((), ("caption", "file"), ("text", "url")):
        for order in (1, -1):
            rows = [heads, *pairs] if heads else pairs[:1]
            file.write_text("".join("\t".join(row[::order]) + "\n" for row in rows))
            found = _read_concepts(file)
            assert found == (pairs if heads else pairs[:1]), (heads, order)
    assert load_pairs(file, texts_only=True).rows()[1] == [caption for caption, _ in pairs]
    file.write_text("file\tcaption\na.png\t\n")
    with pytest.raises(InputError, match="line 2: expected a caption"): _read_concepts(file)


def test_patches_are_copied_where_sizes_agree_and_stay(teacher):
    net = get_encoder("clip", weights=teacher).net
    with fixed_seed(0): student = LClip(tiny_lclip(image=64, patch=16, dim=32))
    copied = copy_patches(student, net)
    assert set(copied) == {"vision.patch.weight", "vision.patch.bias", "vision.token", "vision.positions"} and not student.vision.patch.bias.any()
    assert torch.equal(student.vision.positions, net.vision_model.embeddings.position_embedding.weight)
    x = torch.randn(1, 3, 64, 64)
    assert torch.allclose(student.vision.patch(x), net.vision_model.embeddings.patch_embedding(x), atol=1e-6)
    assert copy_patches(new(), net) == ()


def test_views_are_the_same_in_any_thread_and_have_prints_of_their_own():
    from concurrent.futures import ThreadPoolExecutor
    images = _pairs_of_scenes(4).images
    second = view_images(images, 2)
    alone = [second[i] for i in range(4)]
    with ThreadPoolExecutor(4) as pool: together = [*pool.map(second.__getitem__, [0, 1, 2, 3])]
    assert all(map(torch.equal, alone, together)) and view_images(images, 0) is images
    prints = [set(view_images(images, view, Variation(seed=s)).fingerprints()) for view in (1, 2) for s in (0, 1)]
    assert len(set.union(*prints)) == 16 and not {"Color", "Solarize", "Invert"} & set(_KEPT)
