"Self-critical training: the estimator is the exact gradient of the expected reward, rewards are asked fairly, and runs go on."
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from invariant_metrics.core import InputError, torch_rng
from invariant_metrics.metrics.cider import cider_d, document_frequencies
from invariant_metrics.models.generators import Captioner, Shape
from invariant_metrics.models.text_networks import EOS, PAD, UNK, Generated, TextGenerator, Vocabulary
from invariant_metrics.training.loop import Optim, Turn, fit, total
from invariant_metrics.words import END
from invariant_metrics.training.self_critical import SelfCriticalLoss, WeightedLoss, _advantage_loss
from invariant_metrics.metrics.cider import cider_reward
from invariant_metrics.training.self_critical import _draw_texts, _leave_one_out_baseline, mix_rewards, _reward_texts
from invariant_metrics.training.self_critical import _repeated_pairs, _scored_log_probs, self_critical
from invariant_metrics.training.text_training import augmented_text, text_batches, text_loss

LENGTH = 3
WORDS = Vocabulary(("",)*4 + ("a", "b"))


class Chain(TextGenerator):
    "The next entry depends on the last one and on a number of the input: two words, an end, an unknown."
    def __init__(self):
        super().__init__(WORDS)
        self.table = nn.Parameter(torch.randn(2, 6, 6, generator=torch_rng(0)))
    def memory(self, inputs): return inputs["which"].float()[:, None, None], torch.ones(len(inputs["which"]), 1, dtype=torch.bool)
    def decode(self, tokens, memory, mask): return self.table[memory[:, 0, 0].long()[:, None], tokens]


def reward(texts, references): return np.array([t.split().count(r[0]) - .4*len(t.split())**2 for t, r in zip(texts, references)])


REWARDS = {"own": (reward, 2.0)}
BATCH = {"which": torch.tensor([0, 1]), "references": [["a"], ["b"]]}
LISTED = [row for n in range(1, LENGTH + 1) for row in product((EOS, UNK, 4, 5), repeat=n) if EOS not in row[:-1] and (row[-1] == EOS or n == LENGTH)]


def exact(net, i): # probabilities (L,), rewards (L,), log-probabilities (L, T) of all texts of input i
    tokens = torch.tensor([[*row, *[PAD]*(LENGTH - len(row))] for row in LISTED])
    texts = Generated(tokens, torch.zeros(tokens.shape), tokens != PAD)
    log_probs = _scored_log_probs(net, {"which": torch.full((len(LISTED),), i)}, texts, 1)
    return log_probs.sum(1).exp(), torch.from_numpy(_reward_texts(net, texts, [BATCH["references"][i]]*len(LISTED), REWARDS)["reward"]).float(), log_probs, texts.mask


def true_gradient(net):
    return torch.autograd.grad(-sum((p*r).sum() for p, r, *_ in (exact(net, i) for i in (0, 1)))/2, net.table)[0]


def test_all_texts_together_have_probability_one():
    for i in (0, 1): assert torch.isclose(exact(Chain(), i)[0].sum(), torch.tensor(1.), atol=1e-5)


@pytest.mark.parametrize("baseline", [0.0, 3.0, "greedy", "leave-one-out"])
def test_the_expected_estimator_is_the_gradient_of_the_expected_reward(baseline):
    "Enumerated, not sampled: each text (for leave-one-out each pair of texts) with its probability."
    net, parts = Chain(), []
    greedy = _reward_texts(net, net.generate(BATCH, LENGTH), BATCH["references"], REWARDS)["reward"]
    for i in (0, 1):
        p, r, log_probs, mask = exact(net, i)
        q = p.detach()
        if baseline == "leave-one-out": # E over pairs of (r₁ − r₂)∇log p₁ and the same for 2, halved
            first, second = r[:, None], r[None]
            weights = q[:, None]*q[None]
            advantage = torch.stack([_leave_one_out_baseline(torch.stack([a, b])[None])[0] for a, b in product(r, r)]).view(len(r), len(r), 2)
            base = (weights*(torch.stack([first.expand_as(weights), second.expand_as(weights)], -1) - advantage).permute(2, 0, 1)).sum((2,))[0]/q
            parts.append(len(q)*_advantage_loss(log_probs, mask, q*base, "text"))
        else: parts.append(len(q)*_advantage_loss(log_probs, mask, q*(r - (greedy[i] if baseline == "greedy" else baseline)), "text"))
    found, = torch.autograd.grad(sum(parts)/2, net.table)
    assert torch.allclose(found, true_gradient(net), atol=1e-5)


@pytest.mark.parametrize("baseline", ["greedy", "leave-one-out"])
def test_the_sampled_estimator_is_right_on_average(baseline):
    net = Chain()
    steps = torch.stack([torch.autograd.grad(self_critical(net, BATCH, REWARDS, torch_rng(i, baseline), baseline, 3, LENGTH, "text")["self-critical"],
                                             net.table)[0] for i in range(400)])
    error = (steps.mean(0) - true_gradient(net))/(steps.std(0)/20).clamp(min=1e-6)
    assert error.abs().max() < 4.5


def test_baselines_make_the_gradient_quieter():
    net = Chain()
    def variance(advantages):
        out = []
        for i in range(120):
            drawn, greedy = _draw_texts(net, BATCH, torch_rng(i), "greedy", 4, LENGTH)
            value = torch.from_numpy(_reward_texts(net, drawn, [r for r in BATCH["references"] for _ in range(4)], REWARDS)["reward"]).float().view(2, 4)
            base = torch.from_numpy(_reward_texts(net, greedy, BATCH["references"], REWARDS)["reward"]).float()[:, None]
            loss = _advantage_loss(_scored_log_probs(net, BATCH, drawn, 4), drawn.mask, advantages(value, base).flatten(), "text")
            out.append(torch.autograd.grad(loss, net.table)[0])
        return torch.stack(out).var(0).sum()
    none = variance(lambda v, b: v)
    assert variance(lambda v, b: v - _leave_one_out_baseline(v)) < none and variance(lambda v, b: v - b) < none


def test_the_loss_counts_words_up_to_and_including_the_first_end():
    log_probs = torch.tensor([[-1., -2., -4.], [-1., -1., -1.]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    advantage = torch.tensor([1., -2.])
    assert _advantage_loss(log_probs, mask, advantage) == -(1*-3 + -2*-3)/5
    assert _advantage_loss(log_probs, mask, advantage, "text") == -(1*-3 + -2*-3)/2
    with pytest.raises(InputError, match="unknown per"): _advantage_loss(log_probs, mask, advantage, "batch")


def test_rewards_are_asked_without_gradients_and_alike_for_drawn_and_greedy_texts():
    net, asked = Chain(), []
    def watching(texts, references):
        asked.append((list(texts), [tuple(r) for r in references]))
        return reward(texts, references)
    net.train()
    found = self_critical(net, BATCH, {"own": (watching, 1.0)}, torch_rng(0), "greedy", 3, LENGTH)
    (drawn, refs), (greedy, once) = asked
    assert len(drawn) == 6 and refs == [("a",)]*3 + [("b",)]*3 and once == [("a",), ("b",)] and len(greedy) == 2
    assert net.training and found["self-critical"].requires_grad and not any(v.requires_grad for k, v in found.items() if k != "self-critical")
    assert np.isclose(found["reward"], reward(drawn, refs).mean()) and set(found) == {"self-critical", "reward", "own", "length", "rep-2"}


def test_rewards_mix_on_their_raw_scales():
    long, short = lambda texts, references: np.array([float(len(t)) for t in texts]), lambda texts, references: -np.ones(len(texts))
    found = mix_rewards({"long": (long, 0.5), "short": (short, 3.0)}, ["abc", "a"], [["x"], ["y"]], [True, True])
    assert found["reward"].tolist() == [.5*3 - 3, .5*1 - 3] and found["long"].tolist() == [3, 1]
    for bad, says in ((lambda t, r: np.zeros(5), r"gave \(5,\)"), (lambda t, r: np.array([1, np.nan]), "not finite for 'a'")):
        with pytest.raises(InputError, match=f"reward 'bad' {says}" if "gave" in says else says): mix_rewards({"bad": (bad, 1.0)}, ["abc", "a"], [["x"]]*2, [True]*2)


def test_cider_with_the_end_as_a_word_sees_that_a_text_was_cut():
    references = [["a red ball on a table", "a ball on a table"], ["a blue boat on the sea", "a boat"], ["two birds", "birds in the sky"]]
    plain, whole = cider_reward(references, marks_end=False), cider_reward(references)
    df = document_frequencies(references)
    texts = ["a red ball on a", "a red ball on a table"]
    assert np.array_equal(plain(texts, references[:1]*2), cider_d(texts, references[:1]*2, df=df))
    def gap(r, complete): value = mix_rewards({"cider": (r, 1.0)}, texts, references[:1]*2, complete)["reward"]; return value[1] - value[0]
    assert gap(whole, [False, True]) > gap(plain, [False, True]) > 0
    seen = []
    def spy(texts, references): seen.append((texts, references)); return np.zeros(len(texts))
    spy.marks_end = True
    mix_rewards({"spy": (spy, 1.0)}, ["x", "y"], [["r"], ["s"]], [True, False])
    assert seen == [([f"x {END}", "y"], [[f"r {END}"], [f"s {END}"]])]


def test_repetition_and_length_are_watched():
    rows = torch.tensor([[4, 5, 4, 5, EOS], [4, 5, EOS, PAD, PAD], [EOS, PAD, PAD, PAD, PAD]])
    assert np.isclose(_repeated_pairs(Generated(rows, torch.zeros(3, 5), rows != PAD)), (1/3 + 0 + 0)/3)
    net = Chain()
    net.table.data[:, :, EOS] = -50
    found = self_critical(net, BATCH, REWARDS, torch_rng(0), samples=2, length=4)
    assert found["length"] == 4


def test_a_captioner_goes_after_its_reward_and_a_stopped_run_goes_on_bit_for_bit(tmp_path):
    "Six pictures, each with its own word: a reward for saying it, and a cost for words."
    words = Vocabulary.of(["red blue green white black gray"])
    features, names = torch.eye(6)[:, None].expand(6, 2, 6).contiguous(), words.words[4:]
    def says(texts, references): return np.array([float(r[0] in t.split()) - .2*len(t.split()) for t, r in zip(texts, references)])
    make = text_batches({"features": features}, words.batch(list(names), 4), words, 6, references=[[n] for n in names])
    loss = SelfCriticalLoss({"says": (says, 1.0)}, 1.0, augmented_text(words), "leave-one-out", samples=4, length=4)
    def run(steps_before, folder):
        net = Captioner(6, words, Shape(1, 1, 16, 16, 2))
        def stop(i):
            if i == steps_before: raise RuntimeError
            return make(i)
        try: return net, fit(Turn(net, loss, Optim(lr=1e-2)), stop, 30, folder=folder, save_every=5, settings=loss.settings)
        except RuntimeError: return net, None
    whole, log = run(99, None)
    run(18, tmp_path)
    resumed, _ = run(99, tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), resumed.state_dict().values()))
    value = log[log["term"] == "reward"]["value"]
    assert value.tail(5).mean() > value.head(5).mean() and set(log["term"]) == {"task", "self-critical", "reward", "says", "length", "rep-2", "gradient"}


def test_alpha_zero_only_watches():
    "With dropout, too: the task sees the noise it would see alone."
    words = Vocabulary.of(["red blue"])
    make = text_batches({"features": torch.eye(2)[:, None].contiguous()}, words.batch(["red", "blue"], 4), words, 2, references=[["red"], ["blue"]])
    task, nets = augmented_text(words), [Captioner(2, words, Shape(1, 1, 16, 16, 2, 0.3)) for _ in range(2)]
    watched = SelfCriticalLoss({"own": (lambda t, r: np.ones(len(t)), 1.0)}, 0.0, task, samples=2, length=4)
    for net, loss in zip(nets, (task, watched)): fit(Turn(net, loss), make, 4)
    assert all(torch.equal(a, b) for a, b in zip(nets[0].state_dict().values(), nets[1].state_dict().values()))
    terms = watched(nets[1], make(0))
    assert not terms["self-critical"][1].requires_grad and total(terms).requires_grad


def test_what_is_refused():
    net = Chain()
    for options, says in (({"baseline": "mean"}, "unknown baseline"), ({"baseline": "leave-one-out", "samples": 1}, "needs more than 1 samples")):
        with pytest.raises(InputError, match=says): self_critical(net, BATCH, REWARDS, torch_rng(0), length=LENGTH, **options)
    with pytest.raises(InputError, match="references"): self_critical(net, {"which": BATCH["which"]}, REWARDS, torch_rng(0))
    with pytest.raises(InputError, match="at least one"): SelfCriticalLoss({})


def test_a_name_that_is_taken_is_refused():
    "A reward called as another term would take its place in the sum."
    words = Vocabulary.of(["red blue"])
    for name in ("reward", "length", "rep-2", "self-critical"):
        with pytest.raises(InputError, match=f"called {name!r}"): SelfCriticalLoss({name: (reward, 1.0)})
    for name in ("task", "soft"):
        task = augmented_text(words)
        task.invariants["soft"] = None
        with pytest.raises(InputError, match=f"called {name!r}"): SelfCriticalLoss({name: (reward, 1.0)}, task=task)
    with pytest.raises(InputError, match="called 'mine'"): SelfCriticalLoss({"mine": (reward, 1.0)}, task=lambda model, batch: {"mine": (1.0, torch.ones(()))}, length=LENGTH)(Chain(), BATCH)


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), -1.0])
def test_an_alpha_that_is_no_weight_is_refused(alpha):
    with pytest.raises(InputError, match="alpha is finite"): SelfCriticalLoss(REWARDS, alpha)
    with pytest.raises(InputError, match="alpha is finite"): WeightedLoss(reward, alpha)


def test_texts_that_break_more_weigh_more_and_no_gradient_passes_the_reward():
    net, tokens, asked = Chain(), torch.tensor([[1, 4, EOS, PAD], [1, 5, 5, EOS]]), []
    def minus(texts, references): asked.append(texts); return np.array([0.0, -0.5])
    loss = WeightedLoss(minus, alpha=4.0, smoothing=0.0, length=LENGTH)
    batch = {**BATCH, "tokens": tokens}
    terms = loss(net, batch)
    log_probs = net(batch, tokens).log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]
    by_hand = -(1*log_probs[0, :2].sum() + 3*log_probs[1].sum())/5
    assert torch.isclose(terms["task"][1], by_hand) and terms["task"][0] == 1 and torch.isclose(total(terms), by_hand)
    assert terms["violation"][0] == 0 and terms["violation"][1] == 0.25 and not terms["violation"][1].requires_grad
    assert asked == [[WORDS.decode(row) for row in net.generate(BATCH, LENGTH).tokens]]
    assert torch.isclose(WeightedLoss(minus, 0.0, length=LENGTH)(net, batch)["task"][1], text_loss(net(batch, tokens), tokens))
    with pytest.raises(InputError, match="weight below 0"): WeightedLoss(lambda t, r: np.ones(2), 4.0, length=LENGTH)(net, batch)
    with pytest.raises(InputError, match="references"): loss(net, {"which": BATCH["which"], "tokens": tokens})
    assert loss.settings["alpha violation"] == 4.0 and loss.settings["task loss"] == "text-weighted-smoothing-0"


def test_frequencies_without_the_end_cannot_mark_it():
    references = [["a red ball"], ["a boat"]]
    with pytest.raises(InputError, match="do not count the end"): cider_reward(references, df=document_frequencies(references))
    counted = cider_reward(references).df
    assert cider_reward(references, df=counted).df is counted
    cider_reward(references, marks_end=False, df=document_frequencies(references))


def test_every_part_of_a_network_keeps_its_own_mode():
    net = Captioner(2, Vocabulary.of(["red blue"]), Shape(1, 1, 16, 16, 2)).train()
    net.encoder.eval()
    modes = [m.training for m in net.modules()]
    drawn = net.generate({"features": torch.eye(2)[:, None].contiguous()}, 4, sample=torch_rng(0))
    assert [m.training for m in net.modules()] == modes
    _scored_log_probs(net, {"features": torch.eye(2)[:, None].contiguous()}, drawn, 1)
    assert [m.training for m in net.modules()] == modes and not all(modes)
