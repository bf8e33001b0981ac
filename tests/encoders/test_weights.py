"""Weights: what ships is whole and travels with the wheel, what is damaged or missing is refused in one line."""
import configparser
import hashlib
import inspect
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from commands import cli
from invariant_metrics.core import InputError, import_object
from invariant_metrics.files import file_sha256
from invariant_metrics.encoders.encoder import get_encoder
from invariant_metrics.encoders.weights import PUBLIC, Card, MissingWeights, WeightChoice, all_cards, fetch_weights, missing_weights, _how_to_get
from invariant_metrics.files import assets_folder
from invariant_metrics.encoders.weights import Place, list_weights, load_embedded, read_tensors, resolve, save_embedded
from invariant_metrics.encoders.weights import save_embedded_folder, verify_weights
from invariant_metrics.training.embedded import RECIPES

EMBEDDED = [card for card in all_cards().values() if card.source == "embedded"]
FILES = [card for card in EMBEDDED if not card.where]  # those of one file; the others are folders
BUDGET = 5_000_000  # bytes of all embedded files together, and of each folder's weights
BUDGETS = {"embedded-diffusion": 8_000_000} # folders of several networks


def one_line(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_the_image_encoder_ships():
    assert "embedded-image" in {card.name for card in EMBEDDED}


@pytest.mark.parametrize("card", EMBEDDED, ids=lambda card: card.name)
def test_every_asset_is_what_its_card_says(card):
    home = assets_folder()/card.where
    weights = [home/name for name in card.files if name.endswith(".safetensors")]
    assert weights[-1] == home/card.files[-1] and (weights[0].name == f"{card.name}.safetensors" or card.where == card.name)
    sums = [file_sha256(path) for path in weights]
    expected = sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest() # of a pipeline's parts
    assert (sum(path.stat().st_size for path in weights), expected) == (card.size, card.sha256)
    assert card.command.startswith("invariant-metrics ") and card.data and card.scores
    assert card.where or card.command == f"invariant-metrics weights train {card.name}"
    assert all((home/name).is_file() for name in card.files)
    assert all(torch.isfinite(t).all() for path in weights for t in read_tensors(Place(path, "", card.name)).values())


@pytest.mark.parametrize("card", EMBEDDED, ids=lambda card: card.name)
def test_the_command_of_a_card_is_one_of_today_and_writes_its_file(card, monkeypatch, tmp_path):
    "Its words reach the recipe, which takes what it is given; a network that was not made by one run of it says so, and the command with it."
    asked = []
    def train(name, out):
        asked.append(name)
        recipe, arguments = RECIPES[name]
        inspect.signature(import_object(recipe)).bind(**arguments, folder=out, seed=0, checkpoints=out)
        return out/card.where/card.files[-1]
    monkeypatch.setattr("invariant_metrics.training.embedded.train_embedded", train)
    done = cli(*shlex.split(card.command)[1:], "--json", cwd=tmp_path)
    assert done.returncode == 0 and asked == [card.name]
    assert json.loads(done.stdout)["result"]["path"] == f"assets/{card.where + '/' if card.where else ''}{card.files[-1]}"
    in_stretches = "stretches" in card.data
    assert bool(card.made) == in_stretches == (card.name in ("embedded-clip", "embedded-diffusion"))
    assert ("gives another network" in done.stderr) == in_stretches
    if in_stretches: # its steps are those of the recipe today
        steps = inspect.signature(import_object(RECIPES[card.name][0])).parameters["steps"].default
        assert f"{steps:,}" in card.made


def test_assets_come_in_pairs_and_stay_small():
    files = {p.stem: set() for p in assets_folder().iterdir() if p.suffix in (".json", ".safetensors")}
    for p in assets_folder().iterdir():
        if p.stem in files: files[p.stem].add(p.suffix)
    folders = {card.where for card in EMBEDDED} - {""}
    assert all(kinds == ({".json", ""} if name in folders else {".json", ".safetensors"}) for name, kinds in files.items()), files
    assert sum(card.size for card in FILES) < BUDGET
    for name in folders:
        assert sum(p.stat().st_size for p in (assets_folder()/name).rglob("*") if p.is_file()) < BUDGETS.get(name, BUDGET), name


def test_the_wheel_takes_every_asset_along():
    root = assets_folder().parent.parent
    if not (root/"setup.py").is_file(): pytest.skip("not a source checkout")
    assert '"assets/*"' in (root/"setup.py").read_text()
    config = configparser.ConfigParser(delimiters=["="])
    config.read(root/"settings.ini")
    assert config["DEFAULT"]["lib_path"] == assets_folder().parent.name


@pytest.fixture
def copy(tmp_path):
    for suffix in (".json", ".safetensors"): shutil.copy(assets_folder()/f"embedded-image{suffix}", tmp_path)
    return tmp_path


def test_an_embedded_folder_opens_by_its_name_and_not_when_it_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr("invariant_metrics.encoders.weights.assets_folder", lambda: tmp_path/"assets")
    made = tmp_path/"made"
    made.mkdir()
    (made/"config.json").write_text("{}")
    save_file({"w": torch.ones(2, 3)}, made/"model.safetensors")
    card = save_embedded_folder("embedded-folder", made, Card("", "two files", command="invariant-metrics weights train embedded-folder"))
    place = resolve("embedded-folder")
    assert place == (tmp_path/"assets"/"embedded-folder", card.sha256[:12], "embedded-folder") and card.files == ("config.json", "model.safetensors")
    assert verify_weights("embedded-folder")[0]["ok"] is True and {r["name"]: r for r in list_weights()}["embedded-folder"]["present"]
    save_file({"w": torch.ones(2, 3)}, made/"tokenizer.safetensors")
    with pytest.raises(InputError, match="holds 2 .safetensors files"): save_embedded_folder("embedded-folder", made, card)
    assert resolve("embedded-folder") == place, "the old one is whole"
    (place.path/"model.safetensors").write_bytes(b"?")
    with pytest.raises(InputError, match="model.safetensors is damaged") as error: resolve("embedded-folder")
    assert "invariant-metrics weights train embedded-folder" in one_line(error) and verify_weights("embedded-folder")[0]["ok"] is False
    (place.path/"config.json").unlink()
    with pytest.raises(MissingWeights) as error: resolve("embedded-folder")
    assert "run: invariant-metrics weights train embedded-folder" in one_line(error)


@pytest.mark.parametrize("harm", ["flip", "cut", "empty"])
def test_a_damaged_asset_is_refused(copy, harm):
    path = copy/"embedded-image.safetensors"
    content = bytearray(path.read_bytes())
    if harm == "flip": content[len(content)//2] ^= 1  # one bit
    path.write_bytes({"flip": content, "cut": content[:-1000], "empty": b""}[harm])
    with pytest.raises(InputError) as error: load_embedded("embedded-image", copy)
    assert "damaged" in one_line(error) and "invariant-metrics weights train embedded-image" in one_line(error)
    assert verify_weights("embedded-image", copy)[0]["ok"] is False


def test_a_missing_asset_and_a_broken_card_are_refused(copy):
    (copy/"embedded-image.safetensors").unlink()
    with pytest.raises(InputError) as error: load_embedded("embedded-image", copy)
    assert "missing" in one_line(error) and "invariant-metrics weights train embedded-image" in one_line(error)
    (copy/"embedded-image.json").write_text("{")
    with pytest.raises(InputError, match="not a weights card"): load_embedded("embedded-image", copy)


def test_a_failed_save_leaves_the_old_weights(copy, monkeypatch):
    before = (copy/"embedded-image.safetensors").read_bytes()
    def full(*_, **__): raise OSError(28, "No space left on device")
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(InputError) as error: save_embedded("embedded-image", {"w": torch.zeros(2, 2)}, Card("embedded-image", ""), copy)
    assert "No space left" in one_line(error)
    assert (copy/"embedded-image.safetensors").read_bytes() == before
    assert sorted(p.name for p in copy.iterdir()) == ["embedded-image.json", "embedded-image.safetensors"]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine on which nothing was ever fetched, without a network."""
    import huggingface_hub.constants as hub
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path/"hub"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path/"torch"))
    monkeypatch.setattr("invariant_metrics.encoders.weights.package_folder", lambda card: None)
    monkeypatch.setattr("socket.socket.connect", lambda *_: (_ for _ in ()).throw(OSError("no network in tests")))
    monkeypatch.setattr("time.sleep", lambda seconds: None) # the hub's library tries five times, with longer and longer waits


@pytest.mark.parametrize("card", PUBLIC, ids=lambda card: card.name)
def test_missing_public_weights_name_the_command(bare, card):
    with pytest.raises(InputError) as error: resolve(card.name)
    assert f"run: {_how_to_get(card)}" in one_line(error)


@pytest.mark.parametrize("family, name", [("bert", "roberta-base"), ("dinov2", "dinov2-large"), ("clip", "clip-vit-large-patch14-336"), ("open_clip", "open-clip-vit-b-32"),
                                          ("inception", "inception")])
def test_encoders_without_weights_name_the_command(bare, family, name):
    with pytest.raises(InputError) as error: get_encoder(family)
    assert f"invariant-metrics weights fetch {name}" in one_line(error)


@pytest.mark.parametrize("name", ["dinov2-small", "inception"])
def test_fetching_without_a_network_is_one_line(bare, name):
    with pytest.raises(InputError) as error: fetch_weights(name)
    assert f"cannot fetch {name}" in one_line(error)


def test_hub_ids_need_a_commit(bare):
    with pytest.raises(InputError, match="pinned revision"): resolve("someone/model")
    with pytest.raises(InputError, match="pinned revision"): fetch_weights("mask2former")
    with pytest.raises(InputError, match="did you mean"): resolve("embedded-imag")
    assert all(c.revision == "" or len(c.revision) == 40 for c in PUBLIC if c.source == "hub")


def test_a_fetched_file_is_found_only_where_all_its_parts_are(bare, tmp_path):
    card = next(c for c in PUBLIC if c.name == "dinov2-small")
    snapshot = tmp_path/"hub"/"models--facebook--dinov2-small"/"snapshots"/card.revision
    snapshot.mkdir(parents=True)
    for name in card.files[:-1]: (snapshot/name).write_text("{}")
    present = lambda: next(row["present"] for row in list_weights() if row["name"] == card.name)
    assert not present()
    (snapshot/card.files[-1]).write_bytes(b"not the real ones")
    assert present() and resolve("dinov2-small").path == snapshot
    assert verify_weights("dinov2-small")[0]["ok"] is False  # there, and not what the card says


def test_an_embedded_encoder_from_a_wrong_file(tmp_path):
    from safetensors.torch import save_file
    save_file({"w": torch.zeros(2)}, tmp_path/"other.safetensors")
    with pytest.raises(InputError, match="does not fit"): get_encoder("embedded", weights=str(tmp_path/"other.safetensors"))


def test_list_is_plain_data():
    rows = list_weights()
    assert json.loads(json.dumps(rows)) == rows and all(row["present"] for row in rows if row["source"] == "embedded")


def test_a_model_with_a_pin_is_asked_for_by_its_name_or_its_hub_id_and_says_that_no_one_has_confirmed_it(bare):
    rows = {row["name"]: row for row in list_weights()}
    for name, where in {"pegasus-xsum": "google/pegasus-xsum", "stsb-roberta-large": "sentence-transformers/stsb-roberta-large", "dpt-large": "Intel/dpt-large"}.items():
        for asked in (name, where):
            with pytest.raises(MissingWeights, match=f"run: invariant-metrics weights fetch {name}$"): resolve(asked)
        assert rows[name]["pin"] == "not yet confirmed by a download" and re.fullmatch(f"{where}@[0-9a-f]{{7}}", rows[name]["source"])
    assert {row["pin"] for row in rows.values() if row["source"] == "embedded"} == {""}


def test_what_no_checksum_confirms_is_not_fetched(bare):
    by_hand = [card for card in PUBLIC if card.source == "url" and not card.sha256]
    assert {card.name for card in by_hand} == {"chromagan", "colorformer", "midas-v21-small", "vgg16-bn"}
    for card in by_hand:
        with pytest.raises(MissingWeights) as error: resolve(card.name)
        assert one_line(error).endswith(f"run: {card.command}") and card.where in card.command
        with pytest.raises(InputError, match="no checksum of") as error: fetch_weights(card.name)
        assert one_line(error).endswith(f"run: {card.command}")
    with pytest.raises(MissingWeights) as error: raise missing_weights([*by_hand, *(c for c in PUBLIC if c.name == "vgg16")])
    assert "weights fetch vgg16 && curl -LO" in one_line(error)


UNPINNED = [card.name for card in PUBLIC if card.source == "hub" and not card.revision]


def test_cards_without_a_commit_take_one_and_say_it(bare, tmp_path):
    assert "mask2former" in UNPINNED and len(UNPINNED) == 3
    commit = "0123456789abcdef"*2 + "01234567"
    for name in UNPINNED:
        with pytest.raises(MissingWeights) as error: resolve(name)
        advice = f"weights fetch {name}@COMMIT, then --weights {name}@COMMIT"
        assert advice in one_line(error)
        with pytest.raises(MissingWeights) as error: resolve(f"{name}@{commit}") # what the advice says is understood
        assert f"weights fetch {name}@{commit}" in one_line(error) and "then" not in one_line(error)
        with pytest.raises(InputError, match="cannot fetch"): fetch_weights(f"{name}@{commit}")
        with pytest.raises(InputError, match="40 digits"): resolve(f"{name}@main")
    card = next(c for c in PUBLIC if c.name == "mask2former")
    snapshot = tmp_path/"hub"/f"models--{card.where.replace('/', '--')}"/"snapshots"/commit
    snapshot.mkdir(parents=True)
    for name in card.files: (snapshot/name).write_text("{}")
    place = resolve(f"mask2former@{commit}")
    assert (place.path, place.revision, place.name) == (snapshot, commit[:12], f"mask2former@{commit}")
    with pytest.raises(InputError, match="write facebook/dinov2-small@0123"): resolve(f"dinov2-small@{commit}")


def test_a_choice_of_weights_has_an_effect_or_is_refused():
    takers = {"fid": ("fid", "inception"), "violation-depth": ("violation-depth", "depth"), "bleu": ()}
    words = ["depth=midas", "inception"]
    assert WeightChoice.of(words).assign(takers) == {"fid": "inception", "violation-depth": "midas"}
    assert WeightChoice.of({"depth": "a=b"}).assign(takers) == {"violation-depth": "a=b"}
    assert WeightChoice.of("folder").assign(takers) == {"fid": "folder", "violation-depth": "folder"}
    for wrong, says in ((["dept=midas"], "weights of 'dept' have no effect on fid, violation-depth, bleu; names that have: fid, inception"),
                        (["depth="], "not like"), (["depth=a", "depth=b"], "given twice"), (["a", "b"], "--weights NAME=a")):
        with pytest.raises(InputError) as error: WeightChoice.of(wrong).assign(takers)
        assert says in one_line(error)
    with pytest.raises(InputError, match="--weights NAME=folder"): WeightChoice.of("folder").assign(takers, shared=False)
