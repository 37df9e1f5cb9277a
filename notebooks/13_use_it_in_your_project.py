# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 13 · Use it in your project
#
# **Question.** You train with cross-entropy and report top-5. What do you change, which settings do you try first, and
# when should you leave it as it is?
#
# **You will** read a decision table, swap the loss in a training loop, choose $k$, $\tau$, learning rate and weight
# decay, and train on real features with clean and with noisy labels.
#
# **Paper.** Sections 5.1 and 5.2; appendix D.1, above all D.1.4.
#
# **Time.** 15 minutes to read, one to two minutes to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
tau = 1.0
margin = 1.0
train_images = 20_000
epochs = 12
batch_size = 128
noise_level = 0.8

# %% tags=["hide-input"]
from functools import partial

import pandas as pd
import torch
from IPython.display import Markdown
from torch import nn
from torch.nn import functional as F

from smooth_topk import (
    SmoothTopKLoss,
    corrupt_within_superclass,
    linear_smooth_topk_loss,
    smooth_topk_loss,
    topk_accuracy,
)
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.chapters import notebook
from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments import registry
from smooth_topk.study.experiments.paper_runs import FEATURES
from smooth_topk.study.experiments.run_config import RunConfig
from smooth_topk.study.records import evidence
from smooth_topk.study.tables import findings
from smooth_topk.study.tables.differences import t_interval

notebook.start(profile)
random = torch.Generator().manual_seed(13)

# %% [markdown]
# ## Should you use it?
#
# The table is for top-$k$ as the metric, unless a row says otherwise. Its numbers are computed from the published runs
# on features of CIFAR-100, as means over five seeds with each loss tuned. Those of the label noise are at $p = 0.8$
# within superclasses.

# %% tags=["hide-input"]
noise = evidence.published(registry.table_1_noise("quick", seeds=range(5)))
small = evidence.published(registry.table_2_small_data("quick", seeds=range(5)))
superclasses = tables.of_grouping(noise, "superclass")
top5 = findings.gains(superclasses)
top1 = findings.gains(superclasses, metric="test_top1")
few = findings.gains(small, "train_images", "L_{5,1}").iloc[0]
few_low = findings.gains(small, "train_images", "L_{5,0.1}").iloc[0]
rows = {
    "top-1 is the metric": (
        "stay with cross-entropy",
        f"clean labels: cross-entropy is {-top1[0.0]:.1f} points of top-1 ahead (chapter 9)",
    ),
    "clean labels, much data": (
        "stay with cross-entropy",
        f"cross-entropy is {-top5[0.0]:.2f} points of top-5 ahead (chapter 9)",
    ),
    "labels confused within small groups": (
        "tune the weight decay of cross-entropy, then try k ≈ group size",
        f"the smooth loss leads by {top5[0.8]:.1f} points (chapter 9)",
    ),
    "few images per class": (
        "try both, the smooth loss with τ = 1",
        f"paper: +2.1 points on 5 % of ImageNet; ours: {few:+.1f} with τ = 1 and "
        f"{few_low:+.1f} with τ = 0.1 (chapter 10)".replace("-", "−"),
    ),
    "no early stopping possible": (
        "try both",
        "with the paper's hyper-parameters cross-entropy may need it (below)",
    ),
    "a few epochs of fine-tuning": (
        "cross-entropy first",
        "the smooth loss needs more steps to fit (chapter 10)",
    ),
}
shown = pd.DataFrame.from_dict(
    rows, orient="index", columns=["what we would do", "why"]
)
tables.show(shown.rename_axis("your case"))

# %% [markdown]
# **Early stopping.** The paper's smooth loss does not need it, and neither does ours. Cross-entropy needs it in one
# setting: labels redrawn within index blocks, trained with the paper's hyper-parameters.

# %% tags=["hide-input"]
pair = evidence.published(registry.noise_with_the_papers_pair())
stopping = {
    (name, group): findings.gained_by_stopping(runs, group)
    for name, runs in (("paper's", pair), ("tuned", noise))
    for group in ("superclass", "index_blocks")
}
blocks = stopping["paper's", "index_blocks"]["cross_entropy"]
others = [found["cross_entropy"] for key, found in stopping.items()]
others[1] = blocks.drop([0.2, 0.4, 0.6])
assert blocks[[0.2, 0.4, 0.6]].round(1).tolist() == [1.6, 2.1, 2.6]
assert max(found.abs().max() for found in others) < 0.2
assert max(found["smooth"].max() for found in stopping.values()) < 0.1
gains = ", ".join(f"{blocks[p]:+.1f} at p = {p:g}" for p in (0.2, 0.4, 0.6))
Markdown(f"There it gains {gains}; everywhere else on features less than 0.2 points.")

# %% [markdown]
# **Few images.** [Chapter 15](15_the_family.ipynb) searches other hyper-parameters and finds $L_{5,1}$ ahead at 22
# images per class. Most of that lead is a weaker cross-entropy:

# %% tags=["hide-input"]
accuracy = {}
for name, runs in (("15", registry.family_comparison()), ("10", None)):
    found = small if runs is None else evidence.published(runs)
    found = found[(found["train_images"] == 2200) & (found["tau"] == 1)]
    for loss in ("smooth", "cross_entropy"):
        chosen = found[found["loss"] == loss].set_index("seed")
        accuracy[loss, name] = 100 * chosen["test_top5"].astype(float)
smooth_15 = accuracy["smooth", "15"]
against = {
    n: t_interval(smooth_15 - accuracy["cross_entropy", n]) for n in ("15", "10")
}
assert against["15"][1] > 0 > against["10"][1]  # only the first interval excludes zero
words = {name: tables.interval_text(*found) for name, found in against.items()}
Markdown(
    f"Compared with the cross-entropy of chapter 15, $L_{{5,1}}$ gains {words['15']} "
    f"points, and compared with that of chapter 10 it gains {words['10']}, which is not "
    "significant. The intervals are 95 % t-intervals over five seeds."
)

# %% [markdown]
# Cross-entropy and the smooth loss are not the only candidates: [chapter 15](15_the_family.ipynb) compares more losses.
# Complete programs for plain PyTorch, Lightning, timm and the Hugging Face `Trainer` are on the page
# [Recipes](../book/recipes.md).
#
# ## One line changes
#
# The loss accepts what cross-entropy accepts: scores of shape $(N, n)$ or $(N, n, d_1, \dots)$, integer labels, class
# weights, an ignored label, a reduction. There is no softmax before it, as there is none before cross-entropy.

# %%
scores = 2 * torch.randn(64, 100, generator=random)
labels = torch.randint(100, (64,), generator=random)

before = F.cross_entropy(scores, labels)
after = smooth_topk_loss(scores, labels, k=k, tau=tau, margin=margin)
print(f"cross-entropy {before:.3f}, smooth top-{k} {after:.3f}")

# %%
# The arguments mean the same as in cross-entropy: at k = 1, τ = 1 and without a margin
# the two losses are equal. For code that holds its loss in a module there is a module.
options = {
    "weight": torch.rand(100, generator=random),
    "ignore_index": labels[0].item(),
}
plain = partial(smooth_topk_loss, k=1, tau=1.0, margin=0.0)
assert torch.isclose(
    plain(scores, labels, **options), F.cross_entropy(scores, labels, **options)
)
print(SmoothTopKLoss(k=k, tau=tau, margin=margin))

# %% [markdown]
# ## Choose k
#
# $k$ is the number of answers that your metric allows. If top-1 is your metric, the loss with $k = 5$ is the wrong
# objective, because it asks for a place among the first five and not for the first place. $k$ must be smaller than the
# number of classes:

# %%
try:
    smooth_topk_loss(scores[:, :5], labels % 5, k=5)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Choose tau
#
# Start with $\tau = 1$, which is the default. The paper uses $\tau = 1$ on CIFAR-100 (100 classes) and $\tau = 0.1$ on
# ImageNet (1,000 classes), both with $k = 5$. On our features the two temperatures differ little once learning rate and
# weight decay are tuned; the best validation top-5 of each search:

# %% tags=["hide-input"]
trials = evidence.published(registry.feature_search())
trials = trials[trials["loss"] == "smooth"]
best = 100 * trials.groupby(["noise_level", "tau"])["validation_top5"].max().unstack()
assert (best[0.1] - best[1.0]).abs().max() <= 0.3 + 1e-9
shown = best.map("{:.1f}".format).rename(index="noise {:g}".format)
tables.show(
    shown.rename(columns="τ = {:g}".format).rename_axis(columns=None, index=None)
)

# %% [markdown]
# In some of the settings of [chapter 15](15_the_family.ipynb), in which both temperatures share one learning rate and
# weight decay, they differ more. If many labels are wrong, try $\tau = 0.1$ too.
#
# What must be avoided is a $\tau$ that is too small. Appendix D.1.4 advises a low value at which the network still
# learns on its training set. Before any training, one figure rules out the worst values: the share of derivatives that
# are not zero under the initial weights. A high share is no guarantee: [chapter 8](08_temperature_study.ipynb) has a
# network in which over 80 % of the derivatives at $\tau = 0.001$ are not zero, and which does not learn. The authors
# believe that the right value depends on $k$ and on the number of classes more than on the network.
#
# **Figure.** Share of the derivatives of the loss that are not zero in float32, for random scores of the size that an
# untrained network gives: 2 % at $\tau = 0$, under 20 % at 0.001, half at 0.004, all at 1.

# %% tags=["hide-input"]
taus = [0.0, 1e-4, 3e-4, 1e-3, 2e-3, 4e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0]
share = measure.nonzero_shares(scores / 2, labels, k=k, taus=taus)
at = share.set_index("tau")["share"]
assert at[0.0] <= 2 / 100
assert at[1e-3] < 0.2
assert 0.4 < at[4e-3] < 0.6
assert at[1.0] == 1.0
ax = figures.gradient_sparsity(share)

# %% [markdown]
# ## Choose learning rate and weight decay
#
# No derivative of the smooth loss exceeds $1/k$, while those of cross-entropy reach 1. Suppose that a gradient is
# exactly $k$ times smaller. Then SGD makes the same step with $k$ times the learning rate and the weight decay divided
# by $k$. Adam divides the gradient by its own size: the learning rate stays, and the weight decay, which Adam adds to
# the gradient, is divided by $k$. AdamW applies its weight decay apart from the gradient: nothing changes.


# %%
def step(optimizer, scale, **settings):
    """The update of a layer's weights when the loss is multiplied by scale."""
    torch.manual_seed(0)
    layer = nn.Linear(20, 100)
    weights = layer.weight.detach().clone()
    loss = scale * F.cross_entropy(layer(scores[:, :20]), labels)
    loss.backward()
    optimizer(layer.parameters(), **settings).step()
    return layer.weight.detach() - weights


# %%
# Each pair of calls makes the same step: first as it is, then with a loss k times smaller.
SGD, Adam, AdamW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
small_eps = {"lr": 1e-3, "eps": 1e-15}
steps = {
    "SGD": (
        step(SGD, 1, lr=0.1, weight_decay=0.01),
        step(SGD, 1 / k, lr=0.1 * k, weight_decay=0.01 / k),
    ),
    "Adam": (
        step(Adam, 1, weight_decay=0.01, **small_eps),
        step(Adam, 1 / k, weight_decay=0.01 / k, **small_eps),
    ),
    "AdamW": (
        step(AdamW, 1, weight_decay=0.01, **small_eps),
        step(AdamW, 1 / k, weight_decay=0.01, **small_eps),
    ),
}
for before_step, after_step in steps.values():
    assert torch.allclose(before_step, after_step, rtol=1e-3, atol=1e-7)


# %%
def largest_derivative(loss):
    x = scores.clone().requires_grad_()
    (derivative,) = torch.autograd.grad(loss(x, labels, reduction="sum"), x)
    return derivative.abs().max().item()


smooth = partial(smooth_topk_loss, k=k, tau=tau, margin=margin)
for name, loss in {"cross-entropy": F.cross_entropy, "smooth": smooth}.items():
    print(f"largest derivative of {name}: {largest_derivative(loss):.3f}")
assert largest_derivative(smooth) <= 1 / k + 1e-6

# %% [markdown]
# So start SGD with at least $k$ times the learning rate of cross-entropy and with its weight decay divided by $k$. The
# gradient of the smooth loss is not *exactly* $k$ times smaller, so this is where a search begins and not where it
# ends. For Adam and AdamW the rule is this argument alone: all recorded trainings use SGD. Two more settings follow
# from the factor $1/k$:
#
# - **Gradient clipping** by norm: divide the threshold by $k$, or it would hardly ever be reached.
# - **Loss scaling** for float16 is dynamic in `torch.amp.GradScaler` and adapts by itself.
#
# The table shows the hyper-parameters of the experiments. On ImageNet the paper uses ten times the learning rate of
# cross-entropy and a quarter of its weight decay; on CIFAR-100 it keeps both. Ours were chosen on validation images by
# equally many trials per loss ([chapter 9](09_noisy_labels_study.ipynb)). The search on features chose 32 times the
# learning rate of cross-entropy and an eighth of its weight decay, so a learning rate even larger than $k$ times is
# worth a trial.

# %% tags=["hide-input"]
experiments = {
    "paper, CIFAR-100": registry.table_1_noise("paper"),
    "paper, ImageNet": registry.table_2_small_data("paper"),
    "ours, CIFAR-100 images": registry.table_1_noise("laptop"),
    "ours, CIFAR-100 features": registry.table_1_noise("quick"),
}
times = {}
for name, runs in experiments.items():
    used = {run.loss: (run.learning_rate, run.weight_decay) for run in runs}
    pairs = zip(used["smooth"], used["cross_entropy"], strict=True)
    times[name] = tuple(ours / theirs for ours, theirs in pairs)
assert times["paper, ImageNet"] == (10, 0.25)
assert times["paper, CIFAR-100"] == (1, 1)
assert times["ours, CIFAR-100 features"] == (32, 1 / 8)
tables.show(tables.settings_table(experiments))

# %% [markdown]
# ## Real features to try it on
#
# The project contains features of CIFAR-100: 128 numbers per image from a network trained on ImageNet. Many projects
# train only a small head on features of this kind, as we do here. For the noisy labels, eight of ten labels are redrawn
# from a block of five classes with neighbouring numbers.

# %%
data = load_data(RunConfig(**{**FEATURES.to_dict(), "train_size": train_images}))
source = data.source
inputs = source.normalised(source.images["train"])
train_inputs, clean = inputs[data.train.rows], data.train.clean_labels
noisy = corrupt_within_superclass(
    clean, noise_level, groups=[label // 5 for label in range(100)], seed=13
)
test_inputs, test_labels = source.normalised(source.images["test"]), data.test.labels
wrong = 100 * (noisy != clean).float().mean()
print(f"{len(clean):,} training images; {wrong:.0f} % of the noisy labels are wrong")

# %% [markdown]
# This is an ordinary loop. The loss is an argument, and the loop is the same for every loss. Measure with
# `topk_accuracy`, and if you stop early, keep the checkpoint with the best top-$k$ accuracy on validation data, not the
# one with the lowest loss.


# %%
def train(loss, labels, *, learning_rate, weight_decay, seed=0):
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Linear(128, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 100)
    )
    settings = {"lr": learning_rate, "weight_decay": weight_decay}
    optimizer = SGD(network.parameters(), momentum=0.9, nesterov=True, **settings)
    batches = len(labels) // batch_size
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=learning_rate, total_steps=epochs * batches
    )
    for _ in range(epochs):
        order = torch.randperm(len(labels))[: batches * batch_size]
        for rows in order.split(batch_size):
            optimizer.zero_grad()
            loss(network(train_inputs[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return network.eval()


# %% [markdown]
# We compare cross-entropy with the paper's learning rate and weight decay, cross-entropy with the weight decay that the
# search of [chapter 9](09_noisy_labels_study.ipynb) chose on validation images, and the smooth loss by the rule above:
# $k$ times that learning rate, and that weight decay divided by $k$.

# %% tags=["hide-input"]
recipes = {
    "cross-entropy, the paper's weight decay": (F.cross_entropy, 0.1, 1e-4),
    "cross-entropy, tuned weight decay": (F.cross_entropy, 0.1, 2e-3),
    f"smooth, k = {k}, τ = {tau:g}": (smooth, 0.1 * k, 2e-3 / k),
}
results = {}
for name, (loss, learning_rate, weight_decay) in recipes.items():
    chosen = {"learning_rate": learning_rate, "weight_decay": weight_decay}
    for kind, given in (("clean labels", clean), ("noisy labels", noisy)):
        found = train(loss, given, **chosen)(test_inputs).detach()
        for size in (k, 1):
            accuracy = 100 * topk_accuracy(found, test_labels, size).item()
            results.setdefault((kind, f"top-{size} (%)"), {})[name] = accuracy
results = pd.DataFrame(results)
tables.show(results.map("{:.1f}".format))

# %% [markdown]
# **Read this table as a demonstration.** It is one seed, trained when this chapter ran, and not part of the published
# records. It shows the pattern that [chapter 9](09_noisy_labels_study.ipynb) measures with five seeds, six noise levels
# and two kinds of noise: with noisy labels the smooth loss is far ahead of cross-entropy with little weight decay, and a
# good part of the lead is regularisation that cross-entropy lacked.

# %%
# The pattern, with room for other seeds and machines.
if profile != "smoke":
    usual, tuned, ours = (results.loc[name, "noisy labels"] for name in recipes)
    assert ours[f"top-{k} (%)"] > usual[f"top-{k} (%)"] + 1
    assert tuned[f"top-{k} (%)"] > usual[f"top-{k} (%)"] + 1

# %% [markdown]
# ## What else your recipe may contain
#
# **MixUp and CutMix** hand the loss class probabilities instead of labels. The loss is linear in these probabilities:
# it is the mean of the losses of the classes, weighted by their probabilities. **Label smoothing** spreads a share of
# the label over all classes, as in cross-entropy. The smooth top-$k$ loss already tolerates $k - 1$ other classes, so
# try it without label smoothing first.

# %%
# The loss of a mixture of two labels is the mixture of their losses.
partner = torch.randint(100, (64,), generator=random)
mixed_labels = 0.7 * F.one_hot(labels, 100) + 0.3 * F.one_hot(partner, 100)
mixture = 0.7 * smooth(scores, labels) + 0.3 * smooth(scores, partner)
assert torch.isclose(smooth(scores, mixed_labels), mixture)
# Label smoothing means the same as in cross-entropy.
same = plain(scores, labels, label_smoothing=0.1)
assert torch.isclose(same, F.cross_entropy(scores, labels, label_smoothing=0.1))

# %% [markdown]
# **Long-tailed classes.** `weight` takes one factor per class, for example the inverse of its frequency; the mean is
# the weighted mean, as in cross-entropy. **Half precision.** The loss converts float16 and bfloat16 scores to float32,
# computes, and returns the type of the scores. Under autocast it returns float32, as cross-entropy does.

# %%
counts = torch.bincount(labels, minlength=100)
balanced = smooth(scores, labels, weight=1 / counts.clamp(min=1))
low = smooth(scores.bfloat16(), labels)
print(f"weighted {balanced:.3f}; bfloat16 {low.item():.4f}, float32 {after.item():.4f}")
assert abs(low.item() - after.item()) < 2**-7 * after.item()  # 8 significant bits

# %% [markdown]
# **`torch.compile`.** The loss is one graph without breaks, so it can be compiled alone or with the network. The
# backend `eager` used here captures the graph and compiles nothing, so it needs no compiler on your machine. Leave the
# argument out for fast code; [chapter 7](07_speed.ipynb) measures it.

# %%
# The compiled loss is the same, and it is one graph.
compiled = torch.compile(smooth, backend="eager", fullgraph=True)
assert torch.isclose(compiled(scores, labels), after)

# %% [markdown]
# **Many classes.** With a batch of 2,048 and 50,000 classes the scores and their derivatives take 800 MB in float32.
# `linear_smooth_topk_loss` takes the features and the weight of the last layer instead. It computes scores, loss and
# gradients for some rows at a time, and the result is the same.

# %%
# Features and classifier in place of scores give the same loss.
features, head = scores.detach(), nn.Linear(100, 100)
whole = smooth_topk_loss(head(features), labels)
in_chunks = linear_smooth_topk_loss(
    features, head.weight, labels, linear_bias=head.bias, chunk_rows=8
)
assert torch.isclose(in_chunks, whole)

# %% [markdown]
# **The margin.** Keep $\alpha = 1$, the default. For a linear classifier with the hard loss only the product of margin
# and weight decay counts (Proposition 8), so it is enough to tune the weight decay. With $k = 5$ the paper gains 0.3
# points by a margin of 1 over none (Table 8). On our features margins from 0 to 4 changed the accuracy by less than
# half a point ([chapter 12](12_margin_study.ipynb)).
#
# ## What we saw
#
# - One line changes. Scores, labels, class weights, ignored labels, label smoothing, class probabilities and reductions
#   mean the same as in cross-entropy; half precision and `torch.compile` work.
# - Start with the $k$ of your metric, $\tau = 1$ and $\alpha = 1$. With SGD multiply cross-entropy's learning rate by at
#   least $k$ and divide its weight decay by $k$. With AdamW keep both; with Adam keep the learning rate and divide the
#   weight decay by $k$. The rules for Adam and AdamW are an argument and were not measured.
# - Tune the weight decay of cross-entropy before you change the loss. On our features with noisy labels most of the
#   smooth loss's gain disappears once cross-entropy gets enough weight decay.
# - With clean labels, or with top-1 as the metric, cross-entropy is the better choice.
#
# ## Questions
#
# 1. Your data set has 12 classes and you report top-3. Which $\tau$ and which learning rate do you try first?
# 2. Why does a weight decay that suits cross-entropy hold the smooth loss back under SGD, but not under AdamW?
# 3. Both losses reach the same top-5 accuracy and differ in top-1. Which would you ship, and why?

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# Start with $k = 3$, the default $\tau = 1$, and with SGD three times the learning rate of cross-entropy and a third of
# its weight decay. If the training accuracy does not rise, look at the learning rate and at the number of steps, and
# not at $\tau$: at $\tau = 1$ no derivative vanishes.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# SGD adds the weight decay to the gradient. Compared with a gradient that is $k$ times smaller, the same weight decay
# counts $k$ times more, so the weights stay smaller. AdamW divides the gradient by its own size and applies the weight
# decay separately, so the balance between the two does not change. Adam without the W adds the weight decay to the
# gradient before it divides, so there the same weight decay counts $k$ times more, as with SGD.
#
# </details>
#
# <details><summary>Answer 3</summary>
#
# If users see five answers in no particular order, either will do. If the first answer is shown larger, or is used
# alone anywhere, ship the one with the better top-1, which is usually cross-entropy.
#
# </details>

# %% [markdown]
# ## Next
#
# [14 · Paper versus ours](14_paper_versus_ours.ipynb) puts every number of the paper next to ours.
