"The WordNet graph gives nltk's answers: on stored ones always, on ten thousand random questions of each kind where WordNet's own files are."
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from invariant_metrics.core import InputError, rng
from invariant_metrics.files import file_sha256
from invariant_metrics.data import wordnet as module
from invariant_metrics.data.wordnet import NO_WAY, Taxonomy, build_wordnet, _parse_entry, path_similarities, _path_steps, _read_folder, _read_wordnet, steps_table, wordnet

TABLE = Path(__file__).parent/"wordnet_nltk.json"
HOME = Path(module.__file__).parents[1]/"assets"
MANY = 10_000


def source() -> Path | None:
    folder = Path(os.environ.get("INVARIANT_METRICS_WORDNET", "/usr/share/wordnet"))
    return folder if (folder/"data.noun").is_file() else None


def nltk_reader(folder: Path, copy: Path):
    "nltk's reader over a copy of the files, with the list of lexicographer files that Debian leaves out."
    import nltk
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    nltk.data.path.append(str(copy)) # nltk opens nothing elsewhere
    class Reader(WordNetCorpusReader):
        def map_wn(self, version="wordnet"): return None
    for name in [f"{kind}.{suffix}" for suffix in module.FILES.values() for kind in ("data", "index")] + [f"{s}.exc" for s in module.FILES.values()]:
        shutil.copy(folder/name, copy)
    (copy/"lexnames").write_text("".join(f"{i:02}\tfile{i}\t1\n" for i in range(45)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Reader(str(copy), None)


def names(synsets) -> list[str]: return [s.name() for s in synsets]

NLTK = {"synsets": lambda wn, word, pos: names(wn.synsets(word, pos)),
        "morphy": lambda wn, word, pos: wn.morphy(word, pos),
        "synonyms": lambda wn, word: wn.synonyms(word),
        "antonyms": lambda wn, word, pos: [*dict.fromkeys(a.name() for lemma in wn.lemmas(word, pos) for a in lemma.antonyms())],
        "lemmas": lambda wn, name: wn.synset(name).lemma_names(),
        "hypernyms": lambda wn, name: sorted(names(wn.synset(name).hypernyms() + wn.synset(name).instance_hypernyms())),
        "path_similarity": lambda wn, a, b, root: wn.synset(a).path_similarity(wn.synset(b), simulate_root=root)}


def ours(wn, kind: str, *args):
    answer = getattr(wn, kind)(*args)
    return sorted(answer) if kind == "hypernyms" else answer


def questions(seed: int, many: int) -> list[tuple]:
    "Random questions of every kind: words as they are and with endings, exceptions, names; synsets of every part of speech, near and far."
    wn, g = wordnet(), rng(seed, "wordnet")
    words, irregular = np.array([*wn._words], object), np.array([form for _, form in wn._exceptions], object)
    every = {pos: np.array([*wn.all_synsets(pos)], object) for pos in "nvar"}
    def word():
        base = str(g.choice(words)) + str(g.choice(["", "", "s", "es", "ed", "ing", "er", "est", "men", "ies", "ves"]))
        return str(g.choice([base, base, str(g.choice(irregular)), base.title()]))
    def synset(): return str(g.choice(every[str(g.choice([*"nnnvvar"]))]))
    def near(a): # a cousin, so that common ancestors are close
        ups = [*wn.ancestors(a)]
        return str(g.choice(ups))
    def adjective(): return wn.lemmas(str(g.choice(every["a"])))[0]
    out = []
    for _ in range(many):
        a, pos = synset(), g.choice(["n", "v", "a", "r", "s", ""])
        pos = str(pos) or None
        b = synset() if g.random() < 0.7 else near(a)
        out += [("synsets", word(), pos), ("morphy", word(), pos), ("synonyms", word()), ("antonyms", adjective() if g.random() < 0.7 else word(), pos), ("lemmas", a),
                ("hypernyms", a), ("path_similarity", a, b, bool(g.random() < 0.8))]
    return out


CHOSEN = [("synsets", "mice", None), ("synsets", "axes", "n"), ("synsets", "men", None), ("synsets", "Dogs", "n"), ("synsets", "better", None), ("synsets", "ran", "v"),
          ("synsets", "ice cream", None), ("synsets", "", None), ("synsets", "beautiful", "s"), ("synsets", "hot", "a"), ("morphy", "better", "r"), ("morphy", "churches", None),
          ("morphy", "aardwolves", "n"), ("morphy", "hardrock", "r"), ("synonyms", "sofa"), ("synonyms", "earth"), ("antonyms", "hot", None), ("antonyms", "gigantic", None),
          ("antonyms", "increase", None), ("antonyms", "man", "n"), ("lemmas", "galore.s.01"), ("lemmas", "domestic_dog.n.01"), ("hypernyms", "einstein.n.01"),
          ("hypernyms", "entity.n.01"), ("path_similarity", "dog.n.01", "cat.n.01", True), ("path_similarity", "think.v.03", "rain.v.01", True),
          ("path_similarity", "think.v.03", "rain.v.01", False), ("path_similarity", "quick.a.01", "dog.n.01", True), ("path_similarity", "quick.a.01", "dog.n.01", False),
          ("path_similarity", "hill.n.01", "grassland.n.01", True), ("path_similarity", "tree.n.01", "grass.n.01", True)]


def test_answers_are_those_nltk_gave():
    table = json.loads(TABLE.read_text())
    assert len(table) >= 280 and TABLE.stat().st_size <= 60_000
    assert {"synsets", "morphy", "synonyms", "antonyms", "lemmas", "hypernyms", "path_similarity"} == {kind for kind, *_ in table}
    wn = wordnet()
    for kind, args, answer in table: assert ours(wn, kind, *args) == answer, (kind, args)


def test_ten_thousand_random_answers_of_each_kind_are_nltks(tmp_path):
    if source() is None: pytest.skip("no WordNet files: install wordnet-base or set INVARIANT_METRICS_WORDNET")
    reader, wn = nltk_reader(source(), tmp_path), wordnet()
    asked = questions(0, MANY)
    differ = [(kind, *args) for kind, *args in asked if ours(wn, kind, *args) != NLTK[kind](reader, *args)]
    assert not differ, (len(differ), differ[:5])


def pairs_of_every_kind(many: int) -> tuple[np.ndarray, np.ndarray]:
    "Nouns, verbs, adjectives and adverbs, and a third of the pairs with an ancestor."
    wn, g = wordnet(), rng(1, "pairs")
    a, b = np.array([*wn.all_synsets()], object)[g.integers(len(wn.parts["kind"]), size=(2, many))]
    b[::3] = [str(g.choice([*wn.ancestors(x)])) for x in a[::3]]
    return a, b


def similarities(steps: np.ndarray) -> np.ndarray: return np.where(steps == NO_WAY, np.nan, 1/(1 + steps.astype(float)))


def test_stored_similarities_come_out_of_arrays_and_tables_too():
    wn = wordnet()
    stored = [(*args, np.nan if answer is None else answer) for kind, args, answer in json.loads(TABLE.read_text()) if kind == "path_similarity"]
    for root in (True, False):
        a, b, want = zip(*[(a, b, answer) for a, b, with_root, answer in stored if with_root == root])
        assert len(a) >= 5 and np.array_equal(path_similarities(wn, a, b, root), want, equal_nan=True)
        assert np.array_equal(similarities(steps_table(wn, a, b, root).diagonal()), want, equal_nan=True)


def test_ten_thousand_similarities_at_once_are_those_one_by_one():
    wn, (a, b) = wordnet(), pairs_of_every_kind(MANY)
    for root in (True, False):
        want = np.array([wn.path_similarity(x, y, root) for x, y in zip(a, b)], float)
        assert np.array_equal(path_similarities(wn, a, b, root), want, equal_nan=True)
        assert np.array_equal(similarities(steps_table(wn, a[:2000], b[:2000], root).diagonal()), want[:2000], equal_nan=True)


def test_ten_thousand_similarities_at_once_are_nltks(tmp_path):
    if source() is None: pytest.skip("no WordNet files: install wordnet-base or set INVARIANT_METRICS_WORDNET")
    reader, (a, b) = nltk_reader(source(), tmp_path), pairs_of_every_kind(MANY)
    for root in (True, False):
        want = np.array([reader.synset(x).path_similarity(reader.synset(y), simulate_root=root) for x, y in zip(a, b)], float)
        assert np.array_equal(path_similarities(wordnet(), a, b, root), want, equal_nan=True)


def test_tables_survive_circles_of_hypernyms():
    "Some editions send two verbs to one another: 0 above 1 and 1 above 0, 2 under 0, 3 under 1, and 4 apart."
    ups = {0: [1], 1: [0], 2: [0], 3: [1], 4: []}
    parts = {"kind": np.full(5, 1, np.uint8), "up_count": np.array([len(up) for up in ups.values()], np.uint8), "up": np.array([up - i for i in ups for up in ups[i]], np.int32)}
    loop = Taxonomy("by hand", "loop", parts)
    for root in (True, False):
        steps = [[_path_steps(loop, i, j, root) for j in ups] for i in ups]
        assert np.array_equal(steps_table(loop, range(5), root=root), [[NO_WAY if s is None else s for s in row] for row in steps])


def test_no_synsets_make_empty_tables():
    wn = wordnet()
    assert [steps_table(wn, *sides).shape for sides in (([], []), (["dog.n.01"], []), ([], ["dog.n.01"]))] == [(0, 0), (1, 0), (0, 1)]
    assert path_similarities(wn, [], []).shape == (0,)


def test_a_table_is_many_times_faster_than_its_pairs():
    wn, (a, _) = wordnet(), pairs_of_every_kind(1500)
    wn.path_similarity(a[0], a[1])
    start = time.process_time(); table = steps_table(wn, a); whole = time.process_time() - start
    start = time.process_time(); some = [wn.path_similarity(x, y) for x, y in zip(a, a[::-1])]; single = (time.process_time() - start)/len(a)
    assert np.array_equal(similarities(table)[np.arange(1500), np.arange(1500)[::-1]], some)
    assert whole < 0.1*single*table.size


def test_the_embedded_file_is_what_its_card_says_and_is_small():
    card = json.loads((HOME/"wordnet.card").read_text())
    assert (card["size"], card["sha256"]) == ((HOME/"wordnet.npz").stat().st_size, file_sha256(HOME/"wordnet.npz"))
    assert card["edition"] == "3.0" and card["size"] < 4_000_000
    assert "Permission to use, copy, modify and distribute" in (HOME/"wordnet.LICENSE").read_text()
    assert (HOME/"wordnet.LICENSE").read_bytes() == bytes(wordnet().parts["license"])


def test_the_folder_gives_the_embedded_graph_again():
    if source() is None: pytest.skip("no WordNet files: install wordnet-base or set INVARIANT_METRICS_WORDNET")
    if source() != Path("/usr/share/wordnet"): pytest.skip("another edition may differ")
    again, shipped = _read_wordnet(source()), wordnet().parts
    assert again.keys() == shipped.keys()
    assert all(np.array_equal(again[name], shipped[name]) for name in shipped)


def test_opening_is_quick_and_happens_once():
    code = ("import time; from invariant_metrics.data.wordnet import wordnet; t = time.process_time(); wn = wordnet(); wn.path_similarity('dog.n.01', 'cat.n.01');"
            "wn.synsets('mice'); print(time.process_time() - t); assert wordnet() is wn")
    seconds = min(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(2))
    assert seconds < 0.3


@pytest.fixture
def mini(tmp_path):
    "WordNet's own format in ten lines: a dog is an animal, rex is a dog, hot and cold are opposites, torrid stands near hot."
    head = "  1 WordNet 9.1 Copyright 2006 by Princeton University.  All rights reserved.  \n"
    files = {"data.noun": head + "00000001 03 n 02 animal 0 Beast 0 000 | lives\n00000002 03 n 01 dog 0 001 @ 00000001 n 0000 | barks\n"
                                 "00000003 03 n 01 Rex 0 001 @i 00000002 n 0000 | a dog\n",
             "index.noun": head + "animal n 1 1 ~ 1 0 00000001  \nbeast n 1 1 ~ 1 0 00000001  \ndog n 1 1 @ 1 0 00000002  \nrex n 1 1 @i 1 0 00000003  \n",
             "data.adj": head + "00000001 00 a 01 hot 0 001 ! 00000002 a 0101 | warm\n00000002 00 a 01 cold 0 001 ! 00000001 a 0101 | cool\n"
                                "00000003 00 s 01 torrid(p) 0 001 & 00000001 a 0000 | very hot\n",
             "index.adj": head + "hot a 1 1 ! 1 0 00000001  \ncold a 1 1 ! 1 0 00000002  \ntorrid a 1 1 & 1 0 00000003  \n",
             "noun.exc": "kine cow\ndogen dog\n"}
    folder = tmp_path/"mini"
    folder.mkdir()
    for suffix in module.FILES.values():
        for name in (f"data.{suffix}", f"index.{suffix}", f"{suffix}.exc"): (folder/name).write_text(files.get(name, ""))
    return folder


def test_an_edition_of_ones_own(mini, tmp_path):
    card = build_wordnet(mini, tmp_path/"own.npz")
    wn = wordnet(tmp_path/"own.npz")
    assert (card["edition"], card["synsets"], wn.edition, wn.revision) == ("9.1", 6, "9.1", card["sha256"][:12])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mini", "own.LICENSE", "own.card", "own.npz"]
    assert wn.synsets("dogen") == ["dog.n.01"] and wn.lemmas("beast.n.01") == ["animal", "Beast"]
    assert wn.ancestors("rex.n.01") == {"rex.n.01": 0, "dog.n.01": 1, "animal.n.01": 2}
    assert wn.antonyms("torrid") == [] and wn.antonyms("torrid", heads=True) == ["cold"] and wn.lemmas("torrid.s.01") == ["torrid"]
    assert [*wn.all_synsets("a")] == ["hot.a.01", "cold.a.01", "torrid.s.01"] and [*wn.all_synsets("s")] == ["torrid.s.01"]
    assert wordnet(mini).path_similarity("rex.n.01", "animal.n.01") == 1/3


def test_building_is_deterministic(mini, tmp_path):
    shas = []
    for name in ("a", "b"):
        (tmp_path/name).mkdir()
        shas.append(build_wordnet(mini, tmp_path/name/"wn.npz")["sha256"])
        time.sleep(2.1 if name == "a" else 0) # zip files keep times in steps of two seconds
    assert shas[0] == shas[1]


def test_nltks_corpus_is_another_source(mini, tmp_path, monkeypatch):
    import nltk
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path/"none"), str(tmp_path/"data")])
    module._opened.cache_clear()
    with pytest.raises(InputError, match="nltk.downloader wordnet, or leave wordnet= away"): wordnet("nltk")
    (tmp_path/"data"/"corpora").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path/"data"/"corpora"/"wordnet.zip", "w") as archive:
        for path in mini.iterdir(): archive.write(path, f"wordnet/{path.name}")
    assert wordnet("nltk").synsets("dogen") == ["dog.n.01"]
    assert wordnet("nltk").revision == _read_folder(mini).revision      # zipped or not
    shutil.copytree(mini, tmp_path/"data"/"corpora"/"wordnet")
    module._opened.cache_clear()
    assert wordnet("nltk").revision == _read_folder(mini).revision
    module._opened.cache_clear()


@pytest.mark.parametrize("name, text, message", [
    ("noun.exc", None, "noun.exc is missing"), ("data.verb", "00000001 29 v zz walk\n", "data.verb, line 1"), ("index.adv", "slowly r x\n", "index.adv, line 1"),
    ("index.noun", "cat n 1 1 @ 1 0 00000009  \n", "offset 9, where no synset is"), ("data.adv", "00000001 02 r 01 slowly 0 000 | slow\n", "slowly is in the data files and not in the index"),
    ("data.noun", "00000001 03 n 01 animal 0 000 | lives\n", "no license")])
def test_what_is_wrong_with_a_folder_is_said_in_one_line(mini, tmp_path, name, text, message):
    (mini/name).unlink()
    if text is not None: (mini/name).write_text(text)
    with pytest.raises(InputError) as error: build_wordnet(mini, tmp_path/"out.npz")
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path/"out.npz").exists()


def test_a_pointer_into_nothing_is_an_error(mini, tmp_path):
    path = mini/"data.noun"
    path.write_text(path.read_text().replace("@ 00000001", "@ 00000007"))
    with pytest.raises(InputError, match="pointer"): build_wordnet(mini, tmp_path/"out.npz")


@pytest.mark.parametrize("harm", ["flip", "cut", "no card", "bad card", "no file"])
def test_a_damaged_file_is_refused(mini, tmp_path, harm):
    out = tmp_path/"own.npz"
    build_wordnet(mini, out)
    data = bytearray(out.read_bytes())
    if harm == "flip": data[len(data)//2] ^= 1; out.write_bytes(data)
    if harm == "cut": out.write_bytes(data[:-10])
    if harm == "no card": out.with_suffix(".card").unlink()
    if harm == "bad card": out.with_suffix(".card").write_text("{}")
    if harm == "no file": out.unlink()
    with pytest.raises(InputError) as error: wordnet(out)
    assert "invariant-metrics wordnet build FOLDER --out FILE" in str(error.value) and "\n" not in str(error.value)


def test_wrong_questions_are_answered_in_one_line():
    wn = wordnet()
    module.synset_name(wn, 7) # a number that has been asked for is no name either
    for name in ("dog", "dog.n", "dog.x.01", "dog.n.00", "dog.n.99", "dgo.n.01", "dog.n.-1", 7, "hot.s.99"):
        with pytest.raises(InputError) as error: wn.lemmas(name)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="none of n, v, a, s, r"): wn.synsets("dog", "noun!")
    with pytest.raises(InputError, match=r"npz"): build_wordnet("anywhere", "out.txt")


def test_a_line_of_a_data_file_by_hand():
    offset, entry = _parse_entry("00002098 00 a 01 unable 0 002 = 05200169 n 0000 ! 00001740 a 0101 | (usually followed by `to') | not able")
    assert (offset, entry.kind, entry.words) == (2098, "a", ["unable"])
    assert entry.pointers == [("!", ("a", 1740), 1, 1)] # attributes are not kept


def write_table() -> None:
    "Ask nltk and store its answers; run by hand where WordNet's files are."
    import tempfile
    with tempfile.TemporaryDirectory() as copy:
        reader, rows = nltk_reader(source(), Path(copy)), []
        for kind, *args in CHOSEN + questions(1, 36):
            answer = NLTK[kind](reader, *args)
            if len(json.dumps(answer)) < 700: rows.append([kind, args, answer])
        TABLE.write_text("[" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]\n")


if __name__ == "__main__": write_table()
