"Prepared once: the key holds all that shapes a corpus or a vocabulary, what is read is checked, and texts come back."
import re

import pytest

from invariant_metrics.core import InputError, Note
from invariant_metrics.data.parallel import load_parallel
from invariant_metrics.data.prepared_texts import TextPreparation, prepare_pairs
from invariant_metrics.models.text_networks import SPECIALS, UNK, Vocabulary
from invariant_metrics.training import kept_texts
from invariant_metrics.training.kept_texts import kept_pairs, vocabulary_note, writer_vocabulary
from invariant_metrics.worlds.bilingual import make_sentences
from real_data import data_path

WORLD = make_sentences(80, seed=4)
TEXTS = [*WORLD.source, *WORLD.english]
UNICODE = ["Größe – «schön», 3 €!", "東京に行く。", "Привет, мир", "e\u0301 is not é", "🙂🙂 ok", "a##b ## #1", "<pad> is <unk>", "don't   stop", "ﬁ\u200dx"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    return tmp_path/"cache"


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path/"corpus"
    folder.mkdir()
    for language, texts in (("de", WORLD.source), ("en", WORLD.english)): (folder/f"train.{language}").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder


def test_pairs_are_read_once(corpus, cache, monkeypatch):
    first = kept_pairs(corpus)
    def never(*args): raise AssertionError("read again")
    monkeypatch.setattr(kept_texts, "load_parallel", never)
    again = kept_pairs(corpus)
    monkeypatch.undo()
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(cache))
    for found in (first, again): assert vars(found) == vars(prepare_pairs(load_parallel(corpus)))
    assert isinstance(again.references[0], tuple) and [note.code for note in again.notes] == [note.code for note in map(Note, first.notes)]
    assert len([*cache.glob("pairs-*.safetensors")]) == 1


def test_every_choice_has_a_file_of_its_own(corpus, cache):
    made = [kept_pairs(corpus), kept_pairs(corpus, "en", "de"), kept_pairs(corpus, how=TextPreparation(lower=True)), kept_pairs(corpus, how=TextPreparation(ratio=1.2)),
            kept_pairs((corpus/"train.de", corpus/"train.en")), kept_pairs(corpus, field=["source=en", "target=de"])]
    assert len([*cache.glob("pairs-*.safetensors")]) == 5 # languages by field are languages
    assert made[1].source == WORLD.english and made[5].source == WORLD.english and len(made[3]) < len(made[0])
    (corpus/"train.de").write_text("\n".join(["Ja.", *WORLD.source[1:]]) + "\n", encoding="utf-8") # as many lines, another one
    (corpus/"train.en").write_text("\n".join(["Yes.", *WORLD.english[1:]]) + "\n", encoding="utf-8")
    assert kept_pairs(corpus).source[0] == "Ja."


def test_a_damaged_file_is_made_again(corpus, cache):
    kept_pairs(corpus)
    file = next(cache.glob("pairs-*.safetensors"))
    held = bytearray(file.read_bytes())
    held[-3] ^= 1
    file.write_bytes(held)
    with pytest.warns(UserWarning, match="is damaged"): found = kept_pairs(corpus)
    assert found.source == WORLD.source and vars(kept_pairs(corpus)) == vars(found)


def test_files_that_do_not_fit_are_refused_and_nothing_is_kept(corpus, cache):
    with open(corpus/"train.de", "a", encoding="utf-8") as file: file.write("Danke.\n")
    with pytest.raises(InputError, match="train.en lacks one at or before line 81"): kept_pairs(corpus)
    with pytest.raises(InputError, match="no such file or folder"): kept_pairs(corpus/"gone.tsv")
    with pytest.raises(InputError, match="both are named de"): kept_pairs(corpus, "de", "de")
    assert not [*cache.glob("pairs-*.safetensors")]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_any_text_comes_back(kind):
    words = writer_vocabulary(kind, [*TEXTS, *UNICODE], 500)
    found = [words.decode(words.encode(text)) for text in [*TEXTS, *UNICODE]]
    specials = {"bpe": ("<pad>", "<unk>"), "wordpiece": ("<unk>",)}[kind] # spelled out
    wanted = [re.sub("|".join(specials), "⁇", text) for text in [*TEXTS, *UNICODE]]
    assert found == wanted
    assert UNK in words.encode("ж龍") and words.words[:4] == ("",)*4
    assert Vocabulary.from_json(words.to_json()).encode(TEXTS[0]) == words.encode(TEXTS[0])


def test_merges_and_pieces_are_counted_as_published():
    letters = {*"".join(TEXTS)} - {" "} | {"▁"}
    assert len(writer_vocabulary("bpe", TEXTS, 150)) == len(SPECIALS) + len(letters) + 150
    assert len(writer_vocabulary("bpe", TEXTS, 0)) == len(SPECIALS) + len(letters) # no merge: characters
    assert len(writer_vocabulary("wordpiece", TEXTS, 300)) == 300


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_vocabulary_is_the_same_in_every_run_and_its_key_holds_the_texts(kind, cache, monkeypatch):
    made = writer_vocabulary(kind, TEXTS, 200)
    for k in range(3):
        monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(cache/str(k)))
        assert writer_vocabulary(kind, TEXTS, 200) == made
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(cache))
    for other in ((TEXTS[:-1], 200), (TEXTS, 199), (TEXTS[::-1], 200)): writer_vocabulary(kind, *other)
    assert len([*cache.glob("vocabulary-*.safetensors")]) == 4


def test_kinds_and_notes():
    for call in (lambda: writer_vocabulary("words", TEXTS, 9), lambda: vocabulary_note("words")):
        with pytest.raises(InputError, match="unknown kind of vocabulary 'words'"): call()
    assert "Moses" in vocabulary_note("bpe") and "training texts alone" in vocabulary_note("wordpiece")
