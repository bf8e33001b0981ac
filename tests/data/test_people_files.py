"Files as people have them, one for each kind of problem they once met: the right number, or a refusal that says what to do."
import json
import shutil

import numpy as np
import pytest
import torch

import invariant_metrics as im
from commands import cli
from invariant_metrics.data.judgments import load_judgments
from real_data import data_path

pytestmark = pytest.mark.usefixtures("one_thread")
SCORES = { # folder -> commands, each with what comes out: values of metrics, words on standard error
    "01_csv_scored_as_raw_lines": [("rouge-l --pred pred.csv --target refs.csv", {"rouge-l": .6544}, ""), ("rouge-l --pred pred_other_order.csv --target refs.csv", {"rouge-l": .6544}, ""),
                                   ("rouge-l --pred pred.json --target refs.json", {"rouge-l": .6544}, "")],
    "03_json_with_another_id_key_paired_by_order": [(f"bleu-4,rouge-l --pred {a} --target {b}", {"bleu-4": .3058, "rouge-l": .711}, "by ") for a, b in
                                                    (("pred_video.json", "refs_video.json"), ("pred_question.jsonl", "refs_question.jsonl"), ("pred_image.json", "refs_image.json"), ("pred.json", "refs.json"))],
    "05_vizwiz_rejected_captions_used": [("bleu-4,cider-d --pred pred.json --target vizwiz_val.json", {"bleu-4": .201, "cider-d": 1.766}, "6 of 12 captions are left out, as VizWiz does"),
                                         ("bleu-4,cider-d --pred pred.json --target without_them.json", {"bleu-4": .201, "cider-d": 1.766}, "")],
    "07_twelve_bit_png_psnr": [("psnr,ssim --pred pred --target truth", None, "--data-range 4095"), ("psnr,ssim --pred pred --target truth --data-range 4095", {"psnr": 26.34, "ssim": .511}, "have 16 bits")],
    "10_alpha_and_animation_unspoken": [("psnr --pred on_black --target rgba", {"psnr": 1.249}, "have an alpha channel and are laid on white (--background)"), ("psnr --pred on_white --target rgba", {"psnr": 100}, "alpha"),
                                        ("psnr --pred on_black --target rgba --background black", {"psnr": 100}, "laid on black"), ("colorfulness --pred animated", {"colorfulness": 127.1}, "the first is read (--frame)")],
    "11_rouge_of_other_scripts_is_zero": [("rouge-1-f,rouge-l-f --pred hi.txt --target hi_ref.txt", {"rouge-1-f": 0, "rouge-l-f": 0}, "2 of 2 texts have no word of a-z or 0-9 and count as 0; --option tokenizer=intl"),
                                          ("rouge-1-f --pred th.txt --target th_ref.txt", {"rouge-1-f": 0}, "--option tokenizer=char")],
    "20_caption_files_that_rank_reads_and_score_does_not": [(f"bleu-4 --pred {a} --target {b}", {"bleu-4": .3058}, "") for a, b in (("pred.json", "dataset_coco.json"), ("pred.json", "results.token"), ("pred.json", "captions.txt"),
                                                            ("pred_names.json", "coco.json"), ("pred.json", "blip_gt.json"), ("pred_video.json", "msrvtt.json"), ("pred.json", "refs.json"))],
    "22_no_way_to_name_the_field_of_a_text": [("rouge-l --pred samples_task.jsonl --target samples_task.jsonl", {"rouge-l": .6544}, "texts in filtered_resps"), ("rouge-l --pred outputs.json --target refs.json", {"rouge-l": .711}, ""),
                                              ("rouge-l --pred generated.jsonl --target refs.json", {"rouge-l": .711}, ""), ("rouge-l --pred samples_task.jsonl --target samples_task.jsonl --field target", {"rouge-l": 1}, "")],
    "23_wrapped_lists_taken_for_ids": [(f"bleu --pred {a} --target {b}", {"bleu": 28.86}, "") for a, b in (("gem_outs.json", "gem_refs.json"), ("results.json", "refs.json"), ("pandas.json", "refs.json"), ("both.json", "both.json"))],
    "28_results_with_suffixes_find_no_partner": [("psnr --pred sr_x4 --target hr", None, "--match"), (r"psnr --pred sr_x4 --target hr --match ^img\d+", {"psnr": 26.3}, "paired by"),
                                                 ("psnr --pred pix2pix/*_fake_B.png --target pix2pix/*_real_B.png", {"psnr": 26.3}, "paired by the part in which their names differ")],
    "29_psnr_of_luma_and_without_border": [("psnr --pred pred --target truth --option channels=luma", {"psnr": 27.75}, ""), ("psnr,ssim --pred pred --target truth --option crop_border=4", {"psnr": 26.16, "ssim": .6253}, "")],
    "31_same_prediction_twice": [("bleu-4 --pred pred.json --target refs.json", {"bleu-4": .3058}, "1 ids come twice with the same text and count once: 21")],
    "41_scores_by_group": [("bleu-4 --pred pred.json --target nocaps_val.json --group domain", {"bleu-4": .3058}, ""), ("psnr --pred clips_pred --target clips_truth --recursive --group folder", {"psnr": 23.45}, "")]}
AGREES = { # folder -> commands, each with Pearson's r of a metric, None where it is refused, and words on standard error
    "09_wmt20_human_translations_are_systems": [("mqm_newstest2020_like.tsv --metrics chrf", {"chrf": .999}, "human translations left out of the systems: Human-A.0")],
    "18_mqm_files_since_2023": [(words, {"bleu": .6593}, "") for words in ("new_headings.tsv --metrics scores.csv", "new_headings.tsv --kind mqm --metrics scores.csv", "comment_in_heading.tsv --kind mqm --metrics scores.csv")]
                               + [("hotw.tsv --metrics scores.csv", {}, "")],
    "32_summeval_as_published": [(f"model_annotations.aligned.jsonl {kind}--metrics rouge-1-f", {"rouge-1-f": .67}, "") for kind in ("", "--kind summeval ")],
    "34_scores_as_metric_tools_write_them": [("judgments.csv --metrics FOO-refA.seg.score", {"FOO-refA": .6821}, ""), ("judgments.csv --metrics metricx.jsonl", {"MetricX": 1}, ""), ("judgments.csv --metrics comet.json", {"COMET": .6821}, ""),
                                             ("judgments.csv --metrics avg_seg_scores.tsv", {}, "")],
    "36_ratings_that_are_not_plain_numbers": [("yes_no.csv --metrics scores.csv", {"bleu": .6126}, "words are read as no 0, yes 1"), ("words.csv --metrics scores.csv", {"bleu": .6549}, "numbers are read from labels"),
                                              ("decimal_comma.csv --metrics scores.csv", {}, ""), ("blank.csv --metrics scores.csv", {}, "left out"), ("label_studio_csv.csv --metrics scores.csv", {}, ""), ("label_studio.json --reader score=rating --metrics scores.csv", {}, "")],
    "37_a_column_for_each_rater_or_system": [("raters.csv --metrics scores.csv", {"bleu": .6194}, "a column for each rater: rater_1, rater_2, rater_3"), ("mturk_batch.csv --reader item=Input.item --reader rater=WorkerId --metrics scores.csv", {"bleu": .6767}, "ejected")]}


def case(name, tmp_path): return shutil.copytree(data_path(f"cases/{name}"), tmp_path/"case")


@pytest.mark.parametrize("name", SCORES)
def test_a_score_of_files_as_people_have_them(name, tmp_path):
    place = case(name, tmp_path)
    for words, expected, says in SCORES[name]:
        done = cli("score", *words.split(), "--ci", "none", "--json", cwd=place)
        assert says in done.stderr + done.stdout, (words, done.stderr)
        if expected is None:
            assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, (words, done.stderr)
            continue
        assert done.returncode == 0, (words, done.stderr)
        (scores,) = json.loads(done.stdout)["result"]["scores"].values()
        assert {m: scores[m]["value"] for m in expected} == pytest.approx(expected, rel=1e-3), words


@pytest.mark.parametrize("name", AGREES)
def test_an_agreement_of_files_as_people_have_them(name, tmp_path):
    place = case(name, tmp_path)
    for words, expected, says in AGREES[name]:
        done = cli("agree", *words.split(), "--statistic", "pearson", "--reps", 20, "--json", cwd=place)
        assert done.returncode == 0 and says in done.stderr + done.stdout, (words, done.stderr)
        rows = {row["metric"]: row["value"] for row in json.loads(done.stdout)["result"]["table"]}
        assert rows and all(np.isfinite(value) for value in rows.values()) and {m: rows[m] for m in expected} == pytest.approx(expected, abs=2e-4), (words, rows)


def test_votes_row_by_row(tmp_path):
    place = case("35_pairwise_votes_row_by_row", tmp_path)
    for file, ties in (("votes.csv", "8 of 36 votes are ties, half a vote for each"), ("preferences.json", "2 of 12 votes are ties, half a vote for each")):
        done = cli("agree", file, "--metrics", "scores.csv", "--unit", "choice", "--reps", 20, cwd=place)
        assert done.returncode == 0 and ties in done.stderr, done.stderr


def test_quotation_marks_swallow_no_rows(tmp_path):
    found = load_judgments(case("04_mqm_tsv_opening_quotes_swallow_rows", tmp_path)/"mqm.tsv").scores
    assert len(found) == 36 and found["item"].nunique() == 12
    assert found.groupby("system")["score"].mean().to_dict() == pytest.approx({"SysX": -.4167, "SysY": -1.25, "SysZ": -2.0833}, abs=1e-4)


def test_dicts_without_a_common_spelling_of_ids():
    for pred, target in (({"000000000021": "a dog runs"}, {21: ["a dog is running"]}), ({"21.jpg": ["a dog runs"]}, {"21": ["a dog is running"]}), ({21: [{"caption": "a dog runs"}]}, {21: [{"caption": "a dog is running"}]})):
        assert im.score(pred, target, ["rouge-l"], ci=False)["rouge-l"].value == pytest.approx(.5571, abs=1e-4)


def test_arrays_of_pictures_and_statistics_without_a_count(tmp_path):
    draw = np.random.default_rng(0)
    x, z = (draw.random((16, 32, 32, 3))*255).astype("u1"), draw.normal(size=(60, 8))
    np.savez(tmp_path/"samples.npz", x)
    np.savez(tmp_path/"labeled.npz", x[::-1], np.arange(16))
    np.savez(tmp_path/"statistics.npz", pool_3=z, logits=draw.normal(size=(60, 5)))
    np.savez(tmp_path/"stats.npz", pool_3=z + .2)
    np.savez(tmp_path/"moments.npz", mu=z.mean(0), sigma=np.cov(z, rowvar=False))
    def fd(*sides): return im.score(*(tmp_path/s for s in sides), ["fd"], ci=False)["fd"]
    assert fd("samples.npz", "labeled.npz").value == 0 and fd("statistics.npz", "stats.npz").value == pytest.approx(.32)
    done = cli("score", "fd", "--pred", "moments.npz", "--target", "stats.npz", "--json", cwd=tmp_path)
    assert '"n": null' in done.stdout and '"n": 0' not in done.stdout


def test_inception_score_with_another_encoder_or_class_scores(tmp_path):
    np.save(tmp_path/"logits.npy", np.random.default_rng(0).normal(size=(60, 1008)))
    np.save(tmp_path/"pictures.npy", np.zeros((8, 32, 32, 3), np.uint8))
    done = cli("score", "inception-score", "--pred", "pictures.npy", "--encoder", "embedded", cwd=tmp_path)
    assert done.returncode == 2 and "inception-score is defined on inception" in done.stderr and "takes no other encoder" in done.stderr
    logits = np.load(tmp_path/"logits.npy")
    p = np.exp(logits)/np.exp(logits).sum(1, keepdims=True)
    by_hand = np.exp((p*(np.log(p) - np.log(p.mean(0)))).sum(1).mean())
    assert im.score(tmp_path/"logits.npy", None, ["inception-score"], ci=False)["inception-score"].value == pytest.approx(by_hand, rel=1e-6)


def test_a_batch_under_autocast_and_an_item_that_padding_repeats():
    torch.manual_seed(0)
    x = torch.rand(9, 3, 32, 32)
    y = (x + .3*torch.rand_like(x)).clamp(0, 1)
    for name in ("fd", "lpips-embedded"):
        plain, mixed = im.TorchMetric(name), im.TorchMetric(name)
        plain.update(x, y)
        with torch.autocast("cpu", dtype=torch.bfloat16): mixed.update(x, y)
        assert float(plain.compute()) == float(mixed.compute()) == im.score(x, y, [name], ci=False)[name].value
    def rank(ids, **more):
        metric = im.TorchMetric("psnr")
        metric.update(x[ids], y[ids], **more)
        return metric
    once, (a, b) = rank([*range(9)]).score(), ([0, 2, 4, 6, 8], [1, 3, 5, 7, 0])
    named, unnamed = rank(a, names=a), rank(a)
    named.merge_state(rank(b, names=b))
    unnamed.merge_state(rank(b))
    assert (named.score().n, named.score().value) == (9, pytest.approx(once.value)) and any("repeat" in note.code for note in unnamed.score().notes)


def test_a_picture_of_many_pixels_names_the_option(tmp_path):
    from PIL import Image
    Image.new("1", (12000, 9000), 1).save(tmp_path/"slide.png")
    done = cli("score", "colorfulness", "--pred", tmp_path, "--ci", "none", cwd=tmp_path)
    assert done.returncode == 2 and "108,000,000 pixels, and 89,478,485 are the most; --max-pixels" in done.stderr
