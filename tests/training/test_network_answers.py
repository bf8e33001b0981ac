"Networks asked about three pictures and texts: the packaged ones answer as they did, a changed weight is found, and what is not stored is said."
import json

import pytest
import torch
from commands import check_output, cli
from handmade import fails

from invariant_metrics.encoders.weights import PUBLIC, all_cards, get_card, load_embedded
from invariant_metrics.files import assets_folder, save_tensors
from invariant_metrics.training.network_answers import TOLERANCE, _numbers, compare_answers, store_answers

EMBEDDED = [name for name, card in all_cards().items() if card.source == "embedded"]


def test_numbers_are_length_and_the_first_cosines_of_scipy():
    from scipy.fft import dct
    x = torch.randn(3, 4, 50, generator=torch.Generator().manual_seed(0))
    rows = x.flatten(1).double().numpy()
    cosines = dct(rows, type=2, norm="ortho")[:, :8]
    cosines[:, 0] *= 2**.5 # orthonormal halves the constant one's square
    assert torch.tensor(_numbers(x)) == pytest.approx(torch.tensor([[(row**2).sum()**.5, *c] for row, c in zip(rows, cosines)]), rel=1e-5)


@pytest.mark.parametrize("name", EMBEDDED)
def test_every_network_of_the_package_answers_as_stored(name):
    apart = compare_answers(name)
    assert apart and max(apart.values()) < TOLERANCE / 10
    stored = json.loads((assets_folder()/"answers"/f"{name}.json").read_text())
    assert {*stored["answers"]} == {*apart} and all(len(rows) == 3 and {len(row) for row in rows} == {9} for rows in stored["answers"].values())
    assert len({tuple(row) for rows in stored["answers"].values() for row in rows}) == 3*len(stored["answers"]) # no two items alike


@pytest.mark.parametrize("name, tensor", [("embedded-image", "blocks.0.down.weight"), ("segmentation", "stem.0.weight"), ("depth-judge", None), ("entities", "head.weight")])
def test_a_changed_weight_is_found_and_an_equal_copy_is_not(tmp_path, name, tensor):
    state = {k: v.clone() for k, v in load_embedded(name).items()}
    file = tmp_path/f"{name}.safetensors"
    save_tensors(file, state)
    assert max(compare_answers(name, weights=str(file)).values()) < TOLERANCE / 10
    tensor = tensor or max((k for k, v in state.items() if v.ndim > 1), key=lambda k: -state[k].numel()) # the smallest one
    state[tensor].view(-1)[0] += 1
    save_tensors(file, state)
    assert max(compare_answers(name, weights=str(file)).values()) > 10*TOLERANCE


def test_files_of_answers_belong_to_a_network_and_its_file(tmp_path):
    file = store_answers("sentiment", tmp_path/"a.json")
    assert max(compare_answers("sentiment", file).values()) < 1e-6
    assert "holds no answers of entities" in fails(compare_answers, "entities", file)
    file.write_text(file.read_text().replace(get_card("sentiment").sha256, "0"*64))
    assert "stored for another file" in fails(compare_answers, "sentiment", file)
    for text in ("[]", "{", "{}"):
        file.write_text(text)
        assert "holds no answers" in fails(compare_answers, "sentiment", file)


def test_nothing_is_stored_for_public_networks_but_the_one_that_was_here():
    stored = {path.stem for path in (assets_folder()/"answers").glob("*.json")}
    assert stored == {*EMBEDDED, "minilm"} and "minilm" in {card.name for card in PUBLIC}


def test_the_command_says_equal_different_and_not_stored(tmp_path):
    def verify(*words): return cli("weights", "verify", *words, cwd=tmp_path)
    done = verify("depth", "--json")
    check_output(json.loads(done.stdout))
    row, = json.loads(done.stdout)["result"]
    assert done.returncode == 0 and row["answers"] == "equal" and row["difference"] < TOLERANCE and row["ok"] is True
    assert verify("depth", "--store", "mine.json").returncode == 0 and verify("depth", "--against", "mine.json").returncode == 0
    held = json.loads((tmp_path/"mine.json").read_text())
    held["answers"]["pictures"][1][3] += held["answers"]["pictures"][1][0]*1e-3
    (tmp_path/"mine.json").write_text(json.dumps(held))
    other = verify("depth", "--against", "mine.json")
    assert other.returncode == 2 and "depth does not answer as it did" in other.stderr and "pictures differ by 0.001 of their length" in other.stderr
    assert verify("--store", "x.json").returncode == 2 and verify("--against", "mine.json").returncode == 2
    away = verify("dinov2-large", "--store", "x.json")
    assert away.returncode == 2 and "weights fetch dinov2-large" in away.stderr and not (tmp_path/"x.json").exists()


def test_a_network_that_is_here_without_stored_values_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("invariant_metrics.training.network_answers._stored", lambda name, path: None)
    for words, code in (((), 0), (("--strict",), 2)):
        done = cli("weights", "verify", "depth", *words, cwd=tmp_path)
        assert done.returncode == code
        assert "no values stored for depth yet" in done.stderr and "weights verify depth --store FILE" in done.stderr
    monkeypatch.undo()
    away = cli("weights", "verify", "dinov2-large", cwd=tmp_path)
    assert away.returncode == 0 and "no values stored for dinov2-large yet" in away.stderr and "none stored" in away.stdout
    assert "exit code 2" in cli("weights", "verify", "--help", cwd=tmp_path).stdout.lower()
