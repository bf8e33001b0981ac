"Training what writes: the smoothed loss in fairseq's form, what invariants are shown, targets computed once, runs that go on."
import pytest
import torch
import torch.nn.functional as F

from open_cells import open_cells
from invariant_metrics.core import InputError, Signature
from invariant_metrics.worlds.bilingual import make_sentences
from invariant_metrics.color import join_lab
from invariant_metrics.invariants.invariant import Invariant, get_invariant
from invariant_metrics.invariants.soft_text import TextInvariant
from invariant_metrics.models.generators import Shape, Translator
from invariant_metrics.models.text_networks import BOS, EOS, PAD, Vocabulary
from invariant_metrics.training.augmented import AugmentedLoss, fork
from invariant_metrics.training.checkpoint import load_weights, read_state
from invariant_metrics.training.loop import Optim, Turn, fit, total
from invariant_metrics.training.text_training import TextTargets, augmented_text, _soft_texts, _soft_truth, _soft_view
from invariant_metrics.training.text_training import text_batches, text_loss, _text_task

WORLD = make_sentences(40, seed=4)
WORDS = Vocabulary.of([*WORLD.source, *WORLD.english])
SOURCE, TOKENS = WORDS.batch(WORLD.source, 32), WORDS.batch(WORLD.english, 32)


def translator(dropout=0.0): return Translator(WORDS, WORDS, Shape(width=16, hidden=16, heads=2, dropout=dropout, shared_embedding=True))


def batches(size=8, **options): return text_batches({"source": SOURCE}, TOKENS, WORDS, size, **options)


def flat(model): return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_smoothed_loss_is_written_out_by_hand(smoothing):
    "Word by word: (1 − ε) on the truth, ε/(V − 1) on each other entry, padding left out."
    logits = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[BOS, 4, 5, EOS, PAD, PAD], [BOS, 6, EOS, PAD, PAD, PAD], [BOS, 4, 4, 4, 4, EOS]])
    costs = []
    for row, line in zip(logits, tokens[:, 1:]):
        for z, y in zip(row, line):
            if y == PAD: continue
            p = z.exp()/z.exp().sum()
            costs.append(sum(-(1 - smoothing if v == y else smoothing/6)*p[v].log() for v in range(7)))
    assert torch.isclose(text_loss(logits, tokens, smoothing), torch.stack(costs).mean(), atol=1e-5)


def test_without_smoothing_the_loss_is_torchs_cross_entropy():
    net = translator()
    logits = net({"source": SOURCE}, TOKENS)
    assert torch.isclose(text_loss(logits, TOKENS, 0), F.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten(), ignore_index=PAD))
    with pytest.raises(InputError, match="do not belong"): text_loss(logits, TOKENS[:, 1:])


class Shares(TextInvariant):
    "Which words are said."
    seen = 0
    def bind(self, words, mode="expected"): return self
    def forward(self, texts): self.seen += len(texts.probs); return (texts.probs*texts.mask[..., None]).sum(1)/texts.mask.sum(1, keepdim=True)
    def distance(self, prediction, target): return (prediction - target).square().sum(1)


class Places(Shares):
    "Which word stands where."
    def forward(self, texts): self.seen += len(texts.probs); return texts.probs[..., 4:20]*texts.mask[..., None]
    def distance(self, prediction, target): return (prediction - target).square().sum((1, 2))


def own(kind): return kind(kind.__name__.lower(), Signature.of(invariant=kind.__name__))


def test_views_are_float32_distributions_over_words_alone():
    batch = batches()(0)
    seen = _soft_view(translator()(batch, batch["tokens"]).bfloat16(), batch)
    assert seen.probs.dtype == torch.float32 and torch.allclose(seen.probs.sum(-1), torch.ones(()), atol=1e-5)
    lengths = [len(WORDS.encode(WORDS.decode(row))) for row in batch["tokens"].tolist()]
    assert seen.mask.sum(1).tolist() == lengths and torch.equal(seen.mask, _soft_truth(batch).mask)


def test_a_sure_network_that_is_right_breaks_no_invariant_and_a_wrong_one_does():
    batch = batches()(0)
    right, wrong = 50*F.one_hot(batch["tokens"][:, 1:], len(WORDS)).float(), torch.zeros(8, batch["tokens"].shape[1] - 1, len(WORDS))
    for g in (own(Shares), own(Places)):
        assert g.loss(_soft_view(right, batch), _soft_truth(batch)).abs().max() < 1e-6 < g.loss(_soft_view(wrong, batch), _soft_truth(batch)).min()


@pytest.mark.parametrize("kind", [Shares, Places])
@pytest.mark.parametrize("limit", [256.0, 0.01])
def test_cached_targets_are_the_computed_ones_whatever_the_batch_is_padded_to(kind, limit):
    g = own(kind)
    cache = TextTargets(g, TOKENS, len(WORDS), limit=limit)
    assert limit > 1 or cache.kept < len(TOKENS)
    make = batches(caches={"g": cache})
    for i in range(6):
        batch = make(i)
        assert torch.equal(batch["targets"]["g"], g.value(_soft_truth(batch))) and batch["targets"]["g"].dtype == torch.float32


def test_planned_texts_have_the_values_of_a_cache_of_all():
    g, planned = own(Shares), torch.tensor([4, 1, 4])
    every, some = TextTargets(g, TOKENS, len(WORDS)), TextTargets(g, TOKENS, len(WORDS), planned=planned)
    assert (some.kept, len(some)) == (2, len(TOKENS))
    index = torch.tensor([1, 0, 4]) # 0 is not planned
    assert torch.allclose(some[index], every[index], rtol=0, atol=1e-6)


def test_targets_are_computed_once_for_a_whole_run():
    loss = augmented_text(WORDS, {"shares": (own(Shares), 1.0)})
    g = loss.invariants["shares"][0]
    caches = open_cells("training/080_text_training").text_targets(loss, TOKENS, WORDS)
    assert g.seen == len(TOKENS) + 1
    fit(Turn(translator(), loss), batches(caches=caches), 5)
    assert g.seen == len(TOKENS) + 1 + 5*8


@pytest.mark.parametrize("name", ["entities", "sentiment"])
def test_the_packages_own_invariants_train_a_translator(name):
    "A gradient reaches the network, none the frozen reader, and cached targets change nothing."
    loss = augmented_text(WORDS, {name: (get_invariant(name), 0.5)})
    caches, net = open_cells("training/080_text_training").text_targets(loss, TOKENS, WORDS), translator()
    batch = batches(caches=caches)(0)
    terms, uncached = loss(net, batch), loss(net, {**batch, "targets": {}})
    assert torch.isclose(terms[name][1], uncached[name][1], atol=1e-5) and terms[name][1] > 0
    terms[name][1].backward()
    assert net.embedding.weight.grad.abs().sum() > 0
    assert not any(p.requires_grad for p in loss.invariants[name][0].parameters())


def test_alpha_zero_is_plain_training_bit_for_bit():
    nets = [translator(0.1), translator(0.1)]
    fit(Turn(nets[0], augmented_text(WORDS)), batches(), 6)
    log = fit(Turn(nets[1], augmented_text(WORDS, {"shares": (own(Shares), 0.0)})), batches(), 6)
    assert torch.equal(flat(nets[0]), flat(nets[1])) and (log.loc[log["term"] == "shares", "value"] > 0).all()


def test_a_run_that_was_stopped_goes_on_bit_for_bit_and_other_settings_are_refused(tmp_path):
    def run(steps_before, smoothing=0.1):
        net, loss = translator(0.1), augmented_text(WORDS, {"shares": (own(Shares), 0.5)}, smoothing)
        make = batches()
        def stop(i):
            if i == steps_before: raise RuntimeError("stopped")
            return make(i)
        return net, fit(Turn(net, loss), stop, 9, folder=tmp_path, save_every=2, settings=loss.settings)
    with pytest.raises(RuntimeError): run(5)
    resumed, log = run(99)
    whole = translator(0.1)
    fit(Turn(whole, augmented_text(WORDS, {"shares": (own(Shares), 0.5)})), batches(), 9)
    assert torch.equal(flat(resumed), flat(whole)) and len(log) == 9*3
    with pytest.raises(InputError, match="task loss = text-smoothing-0.1, not text-smoothing-0.2"): run(99, 0.2)


def test_a_translator_learns_its_sentences_by_heart():
    net = Translator(WORDS, WORDS, Shape(width=32, hidden=64, dropout=0.0, shared_embedding=True))
    log = fit(Turn(net, augmented_text(WORDS, smoothing=0.0), Optim(lr=1e-2)), batches(20), 90)
    assert log["value"][log["term"] == "task"].tail(3).mean() < 0.2
    said = net.texts({"source": SOURCE}, batch=16, length=30)
    assert sum(a == b for a, b in zip(said, WORLD.english)) >= 34


def test_batches_cut_padding_keep_owners_together_and_refuse_what_does_not_fit():
    features, owner = torch.arange(20.)[:, None, None].expand(20, 3, 2), torch.arange(20).repeat_interleave(2)
    make = text_batches({"features": features}, TOKENS, WORDS, 8, owner=owner, references=[[f"picture {i}"] for i in range(20)])
    for i in range(5):
        batch = make(i)
        assert (batch["tokens"] != PAD).any(0).all() and batch["features"].shape == (8, 3, 2) and batch["targets"] == {}
        assert [[f"picture {int(f[0, 0])}"] for f in batch["features"]] == batch["references"]
        rows = [next(k for k, row in enumerate(TOKENS) if torch.equal(row[:len(line)], line)) for line in batch["tokens"]]
        assert [int(owner[k]) for k in rows] == [int(f[0, 0]) for f in batch["features"]]
    with pytest.raises(InputError, match="of 40 texts, the training set has 39"): text_batches({"source": SOURCE}, TOKENS[1:], WORDS, 4, owner=owner)
    with pytest.raises(InputError, match="'source' has 20 items"): text_batches({"source": SOURCE[:20]}, TOKENS, WORDS, 4)
    with pytest.raises(InputError, match="'references' has 1 items"): text_batches({"source": SOURCE}, TOKENS, WORDS, 4, references=[["a"]])


def test_the_augmented_loss_finds_the_truth_where_it_is_told_to():
    "Colors by default, as before; anything else by `truth`."
    class Mean(Invariant):
        def forward(self, rgb): return rgb.mean((2, 3))
        def distance(self, prediction, target): return (prediction - target).abs().mean(1)
    L, ab, guess = torch.full((2, 1, 4, 4), 50.), torch.full((2, 2, 4, 4), 20.), torch.zeros(2, 2, 4, 4)
    g = Mean("mean", Signature.of(invariant="mean"))
    old = AugmentedLoss({"mean": (g, 1.0)}, predict=lambda model, batch: guess)
    new = AugmentedLoss({"mean": (g, 1.0)}, predict=lambda model, batch: guess, truth=lambda batch: batch["picture"])
    batch = {"L": L, "ab": ab}
    assert torch.isclose(old(None, batch)["mean"][1], new(None, {**batch, "picture": join_lab(L, ab)})["mean"][1])
    assert new(None, {**batch, "picture": join_lab(L, guess)})["mean"][1] < 1e-6


def test_the_task_is_named_in_the_settings_of_a_run():
    assert augmented_text(WORDS, smoothing=0.2).settings["task loss"] == _text_task(0.2).__qualname__ == "text-smoothing-0.2"
    assert total(augmented_text(WORDS)(fork(translator()), batches()(0))).item() > 0
    assert _soft_texts(TOKENS, len(WORDS)).probs.shape == (40, TOKENS.shape[1] - 1, len(WORDS))


def test_weights_of_texts_multiply_their_words_and_the_number_of_words_stays():
    logits = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(1))
    tokens = torch.tensor([[BOS, 4, EOS, PAD, PAD], [BOS, 4, 5, 6, EOS]])
    one, two = (text_loss(logits[i:i + 1], tokens[i:i + 1]) for i in (0, 1))
    assert torch.isclose(text_loss(logits, tokens, weights=torch.tensor([3.0, 0.5])), (3*2*one + .5*4*two)/6)
    assert torch.equal(text_loss(logits, tokens, weights=torch.ones(2)), text_loss(logits, tokens))
    with pytest.raises(InputError, match="as many weights"): text_loss(logits, tokens, weights=torch.ones(3))


@pytest.mark.parametrize("longest", [64, 70])
def test_cached_targets_of_texts_longer_than_the_reader_are_those_it_computes(longest):
    "The reader of names cuts at 64: a row per position, up to there."
    entries = len(WORDS)
    tokens = torch.full((4, longest + 2), PAD)
    for row, n in zip(tokens, (longest, 9, 66, 12)):
        n = min(n, longest)
        row[:n + 2] = torch.tensor([BOS, *(4 + (7*i + n) % (entries - 4) for i in range(n)), EOS])
    loss = augmented_text(WORDS, {"entities": (get_invariant("entities"), 0.5)})
    caches, net = open_cells("training/080_text_training").text_targets(loss, tokens, WORDS), translator().eval()
    assert caches["entities"].along
    make = text_batches({"source": SOURCE[:4]}, tokens, WORDS, 2, caches=caches)
    for i in range(4):
        batch = make(i)
        assert torch.isclose(loss(net, batch)["entities"][1], loss(net, {**batch, "targets": {}})["entities"][1], atol=1e-5)


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), -0.5])
def test_an_alpha_that_is_no_weight_is_refused(alpha):
    with pytest.raises(InputError, match="alpha of 'shares' is finite"): AugmentedLoss({"shares": (own(Shares), alpha)})


def test_a_run_with_drawn_words_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    "Gumbel's draws belong to the step, not to how often anything was drawn before."
    def run(stop_at, folder):
        net, make = translator(0.1), batches()
        def at(i):
            if i == stop_at: raise RuntimeError("stopped")
            return make(i)
        fit(Turn(net, augmented_text(WORDS, {"entities": (get_invariant("entities"), 0.5)}, mode="gumbel")), at, 6, folder=folder, save_every=2)
        return net
    with pytest.raises(RuntimeError): run(3, tmp_path)
    assert torch.equal(flat(run(99, tmp_path)), flat(run(99, None)))


def test_a_weight_that_is_not_finite_is_named_and_the_state_of_that_step_is_kept(tmp_path):
    net, make = translator(), batches()
    def loss(model, batch): return {"task": text_loss(model(batch, batch["tokens"]), batch["tokens"]), "odd": (float("nan") if batch["late"] else 1.0, model.embedding.weight.sum())}
    with pytest.raises(InputError, match=r"step 3: 'odd × nan' of turn 'model' is nan.*stopped\.safetensors"):
        fit(Turn(net, loss), lambda i: {**make(i), "late": i == 3}, 6, folder=tmp_path, save_every=100)
    kept = load_weights(translator(), tmp_path/"stopped.safetensors")
    assert torch.equal(flat(kept), flat(net)) and read_state(tmp_path/"stopped.safetensors")[1]["step"] == 3
    whole = translator()
    fit(Turn(whole, loss), lambda i: {**make(i), "late": False}, 3)
    assert not (tmp_path/"checkpoint.safetensors").exists() and flat(kept).isfinite().all() and not torch.equal(flat(whole), flat(translator()))


def test_where_the_second_turn_breaks_nothing_half_moved_is_kept(tmp_path):
    nets, make = [translator(), translator()], batches()
    def fine(model, batch): return {"task": text_loss(model(batch, batch["tokens"]), batch["tokens"])}
    def broken(model, batch): return {"task": fine(model, batch)["task"]*float("nan")}
    with pytest.raises(InputError, match="'task' of turn 'b' is nan; no checkpoint was kept"):
        fit([Turn(nets[0], fine, name="a"), Turn(nets[1], broken, name="b")], make, 2, folder=tmp_path)
    assert not list(tmp_path.iterdir())
