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
# # 9 · Noisy labels
#
# **Question.** Does the smooth top-$k$ loss resist wrong labels better than cross-entropy?
#
# **You will** read Table 1 for features of real images, with five seeds and intervals, see how much of the lead is
# regularisation that cross-entropy lacked, watch which loss memorises wrong labels, and train the table yourself.
#
# **Paper.** Section 5.1 with Table 1, appendix D.3 with Table 9.
#
# **Time.** 15 minutes to read; the training runs of the profile `quick` take four to eight minutes.

# %% tags=["parameters"]
profile = "quick"
noise_level = 0.8
grouping = "superclass"  # or "index_blocks"
noise_levels = None  # a list, or None: those of the profile
seeds = None  # the same
epochs = None  # a number, or None: that of the profile
train_size = None  # the same

# %%
import torch

from smooth_topk import corrupt_within_superclass
from smooth_topk.noisy_labels import INDEX_BLOCKS
from smooth_topk.study import figures, tables
from smooth_topk.study.chapters import controls, notebook, trainings
from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments import paper_runs, registry
from smooth_topk.study.records import evidence
from smooth_topk.study.tables import findings
from smooth_topk.study.tables.differences import paper_gain

notebook.start(profile)

# %% [markdown]
# With probability $p$ a training label is redrawn from the five classes of its group. A network that answers with
# all five classes of the group is right for every corrupted label, so a perfect classifier can still have a top-5 error
# of zero, even on the noisy labels. The paper claims that $L_{5,1}$ keeps more of its top-5 accuracy than cross-entropy
# as $p$ grows.
#
# **Figure.** Label noise with $p = 0.8$ within superclasses, for a photograph of a shark. The label is redrawn from the
# five fish, the shark among them: 36 % of the labels stay right, each other fish gets 16 %, and a tree gets none.

# %% tags=["hide-input"]
fish = ["shark", "ray", "trout", "flatfish", "aquarium fish"]
ax = figures.label_noise(fish, ["oak", "pine", "willow", "palm", "maple"], 0.8)

# %% [markdown]
# [The page before chapter 8](../book/experiments.md) trains two small networks with such labels while you watch.
#
# Our numbers in this chapter come from two scales, and the text says which. **Features**: a head with one
# hidden layer trained on built-in features of 20,000 CIFAR-100 images, five seeds. **Images**: a network of 160
# thousand parameters trained on 5,000 CIFAR-100 images, two seeds. Beside them stand the paper's numbers, those of a
# DenseNet 40-40 on 45,000 CIFAR-100 images with three seeds. We did not run this network.

# %% [markdown]
# ## What was found on features
#
# We compare the losses twice. *Each loss tuned* gives each loss the rate and the weight decay that a search of 25
# trials chose for it on validation images. *The paper's rate and decay* gives both losses a rate of 0.1 and a decay of
# $10^{-4}$, as the paper does.

# %% tags=["hide-input"]
tuned_grid = registry.table_1_noise("quick", seeds=findings.RECORDED_SEEDS)
pair_grid = registry.noise_with_the_papers_pair()
tuned, pair = (evidence.published(grid) for grid in (tuned_grid, pair_grid))
print("each loss tuned:", evidence.origin(tuned, tuned_grid))
print("the paper's rate and decay:", evidence.origin(pair, pair_grid))

# %% [markdown]
# **Figure.** Top-5 accuracy on clean test images against the share of labels redrawn within superclasses. The
# paper's values are hollow, ours are filled, and bars are standard deviations over five seeds. With the paper's rate
# and decay (right) the paper's picture appears. With each loss tuned (left) the two curves nearly coincide.

# %% tags=["hide-input"]
left, right = figures.new_panels(ncols=2, figsize=(9.6, 4.0), sharey=True)
figures.noise_figure(tuned, ax=left).set_title("features, each loss tuned")
figures.noise_figure(pair, ax=right).set_title("features, the paper's rate and decay")
right.label_outer()

# %% [markdown]
# **Figure.** The same runs as differences: smooth loss minus cross-entropy in points of top-5, one small dot per seed,
# and the mean with its 95 % t-interval. Above zero the smooth loss leads.

# %% tags=["hide-input"]
left, right = figures.new_panels(ncols=2, figsize=(9.6, 4.2), sharey=True)
settings = {"each loss tuned": tuned, "the paper's rate and decay": pair}
figures.noise_differences(settings, ax=left).set_title("noise within superclasses")
blocks = figures.noise_differences(settings, grouping="index_blocks", ax=right)
blocks.set_title("noise within index blocks")
blocks.label_outer()

# %% [markdown]
# The table shows the tuned losses under noise within superclasses. The paper prints mean (standard deviation) of three
# seeds.

# %%
tables.show(tables.noise_table(tuned))

# %% [markdown]
# The two comparisons give two answers.
#
# - **With the paper's rate and decay** the smooth loss leads by 1.1 points at $p = 0.2$ and by 2.5 at $p = 0.8$ within
#   superclasses, and by 5.0 at $p = 0.8$ within index blocks. Without noise the two are equal. The lead within
#   superclasses is about half of the paper's, which is 2.7 to 5.2 points under noise. One point falls out of line: at
#   $p = 1$ within index blocks the smooth loss is 0.7 points behind, and we do not know why.
# - **With each loss tuned** the lead within superclasses shrinks to 0.6 points at $p = 0.8$ and 1.2 at $p = 1$. At
#   $p = 0.2$ and without noise cross-entropy leads, by 0.6 and 0.4 points. Within index blocks the smooth loss still
#   leads from $p = 0.4$ on, by 0.9 to 2.6 points.
#
# The search gives cross-entropy a decay of $2 \cdot 10^{-3}$, twenty times the paper's. That decay alone raises its
# top-5 accuracy from 74.4 to 77.9 % at $p = 0.8$. So most of the lead within superclasses, and half of that within
# index blocks, is regularisation that cross-entropy lacked, and not a property of the loss. Whether the same holds for
# the paper's networks was not tested.

# %% tags=["hide-input"]
# The leads and accuracies in the text above are those of the recorded runs.
lead, wide, plain = {}, {}, {}
for name, runs in settings.items():
    classes = tables.of_grouping(runs, "superclass")
    lead[name] = findings.gains(classes)
    wide[name] = findings.gains(tables.of_grouping(runs, "index_blocks"))
    of_plain = classes[classes["loss"] == "cross_entropy"]
    plain[name] = 100 * of_plain.groupby("noise_level")["test_top5"].mean()
if len(tuned) == len(pair) == 110:
    first, second = settings
    assert lead[second].round(1)[[0.0, 0.2, 0.8]].tolist() == [0.1, 1.1, 2.5]
    assert wide[second].round(1)[0.8] == 5.0
    assert lead[first].round(1)[[0.0, 0.2, 0.8, 1.0]].tolist() == [-0.4, -0.6, 0.6, 1.2]
    assert (wide[first].round(1)[0.4], wide[first].round(1).max()) == (0.9, 2.6)
    assert [round(plain[name][0.8], 1) for name in (second, first)] == [74.4, 77.9]

# %% [markdown]
# ## Where rates and decays come from
#
# Every loss had 25 trials, five rates times five decays, at $p = 0$ and at $p = 0.8$ with one seed. We took the pair
# with the best mean of the two validation accuracies; test images were not used. The best pairs lie inside their
# grids and not on the edge. The paper's own pair was tried with each loss as well. The table gives validation top-5
# in percent.

# %%
search = evidence.published(registry.feature_search())
tables.show(tables.search_table(search))

# %% tags=["hide-input"]
# Table 1 uses the pairs that this search chose.
if len(search) == len(registry.feature_search()):
    chosen_pairs = tables.search_table(search).xs("chosen", level="pair")
    taken = {
        "CE": paper_runs.FEATURE_CROSS_ENTROPY,
        "L_{5,1}": paper_runs.FEATURE_SMOOTH,
    }
    for name, loss in taken.items():
        rate, decay = chosen_pairs.loc[name, ["rate", "decay"]].astype(float)
        assert (rate, decay) == (loss["learning_rate"], loss["weight_decay"])

# %% [markdown]
# ## Top-1 under noise
#
# The paper's largest numbers are in top-1: at $p = 0.8$ its smooth loss leads by 20.3 points.
#
# **Figure.** Smooth loss minus cross-entropy in points of top-1 on features, with 95 % intervals. With the paper's rate
# and decay the difference grows up to $p = 0.8$ and falls back to near zero at $p = 1$, as in the paper. With each loss
# tuned it is smaller up to $p = 0.8$, and within superclasses below zero.

# %% tags=["hide-input"]
left, right = figures.new_panels(ncols=2, figsize=(9.6, 4.2), sharey=True)
top1 = {"metric": "test_top1"}
figures.noise_differences(settings, ax=left, **top1).set_title("within superclasses")
blocks = figures.noise_differences(settings, grouping="index_blocks", ax=right, **top1)
blocks.set_title("within index blocks")
blocks.label_outer()

# %%
tables.show(tables.noise_table(tuned, metric="top1"))

# %% [markdown]
# With the paper's rate and decay the smooth loss leads in top-1 by 10.8 points at $p = 0.8$ within superclasses and by
# 17.1 within index blocks. With each loss tuned it is 4.9 points behind within superclasses at $p = 0.2$ and 1.0 point
# behind at $p = 0.8$, where the interval (−2.1 to +0.05) just includes zero. Within index blocks it is ahead only from
# $p = 0.6$ on (5.6 points at $p = 0.8$). Without noise it is behind by 5.7 points when tuned, and in the paper by 7.4:
# a loss for the top-5 error does not rank within the five.

# %% tags=["hide-input"]
# The differences in top-1 in the text above are those of the recorded runs.
one = {}
for name, runs in settings.items():
    parts = [tables.of_grouping(runs, group) for group in tables.GROUPING_NAMES]
    one[name] = [findings.gains(part, metric="test_top1").round(1) for part in parts]
if len(tuned) == len(pair) == 110:
    assert [found[0.8] for found in one["the paper's rate and decay"]] == [10.8, 17.1]
    assert [found[0.8] for found in one["each loss tuned"]] == [-1.0, 5.6]
    assert [one["each loss tuned"][0][level] for level in (0.0, 0.2)] == [-5.7, -4.9]
    assert one["each loss tuned"][1][0.4] < 0 < one["each loss tuned"][1][0.6]
    by_seed = tables.differences_by_seed(
        tables.of_grouping(tuned, "superclass"), **top1
    )
    span = tables.intervals(by_seed, ["noise_level"]).set_index("noise_level").loc[0.8]
    assert (round(span["low"], 1), round(span["high"], 2)) == (-2.1, 0.05)
in_paper = paper_gain("top1")
assert [round(in_paper[level], 1) for level in (0.0, 0.8)] == [-7.4, 20.3]

# %% [markdown]
# ## Who memorises?
#
# A network whose accuracy on the noisy training labels rises towards 100 % has learned the wrong labels by heart.
#
# **Figure.** Recorded runs on features with the paper's rate and decay. Left: top-1 accuracy on the noisy training
# labels. Right: top-5 accuracy on clean validation images. The marker is the epoch that early stopping keeps. Choose a
# noise level and a grouping: at every level cross-entropy ends about 30 points or more above the smooth loss on the
# left.

# %% tags=["hide-input"]
curves = evidence.epochs_of(pair)
controls.explore(
    lambda axes, noise_level, grouping: figures.noise_curves(
        curves, pair, noise_level=noise_level, grouping=grouping, axes=axes
    ),
    panels=(1, 2),
    size=(8.4, 3.4),
    noise_level=noise_level,
    grouping=controls.widgets.Dropdown(
        options=[(shown, name) for name, shown in tables.GROUPING_NAMES.items()],
        value=grouping,
        description="grouping",
    ),
)

# %% [markdown]
# Take the paper's rate and decay and $p = 0.8$ within superclasses. After the last epoch cross-entropy predicts 69 % of
# the noisy training labels and the smooth loss 26 %. A network that always answers with the true class, and has learned
# no wrong label by heart, would predict 36 %: 20 % of the labels are kept, and a fifth of the others draw the true class
# again. So at this rate and decay cross-entropy memorises, and the smooth loss does not. This rate suits cross-entropy:
# the rate that the search chose for the smooth loss is 32 times as large.
#
# With each loss tuned, cross-entropy predicts 41 % of the noisy labels and the smooth loss 29 % (within index blocks 38
# and 31 %). Cross-entropy then memorises little, the smooth loss still stays below the 36 %, and this is where the lead
# of the smooth loss is small.

# %% tags=["hide-input"]
# The shares of noisy labels that the losses have learned are those that the text names.
learned = {}
for name, runs in settings.items():
    ends = evidence.epochs_of(runs).groupby("run_id")["train_top1"].last()
    for group in tables.GROUPING_NAMES:
        part = tables.of_grouping(runs, group).query("noise_level == 0.8")
        mean = part["run_id"].map(ends).groupby(part["loss"]).mean()
        learned[name, group] = [f"{share:.0%}" for share in mean]  # CE, then smooth
if len(tuned) == len(pair) == 110:
    assert learned["the paper's rate and decay", "superclass"] == ["69%", "26%"]
    assert learned["each loss tuned", "superclass"] == ["41%", "29%"]
    assert learned["each loss tuned", "index_blocks"] == ["38%", "31%"]
rates = [
    loss["learning_rate"]
    for loss in (paper_runs.FEATURE_SMOOTH, paper_runs.FEATURE_CROSS_ENTROPY)
]
assert round(rates[0] / rates[1], 6) == 32

# %% [markdown]
# ## Early stopping
#
# The paper stops both losses at the best validation top-5, and says that cross-entropy needs this and the smooth loss
# does not. With the paper's rate and decay and noisy labels, validation picks for cross-entropy an epoch in the middle
# of the training and for the smooth loss one of the last. Yet on features the choice changes the test accuracy by less
# than 0.1 points, for either loss at every noise level. A likely reason is that the one-cycle schedule ends with small
# rates; this was not tested.

# %%
tables.show(tables.early_stopping_table(pair, grouping=grouping))

# %% tags=["hide-input"]
# On features early stopping changes no mean by 0.1 points or more.
for runs in (tuned, pair):
    if len(runs) == 110:
        assert (findings.gained_by_stopping(runs).abs() < 0.1).all(axis=None)

# %% [markdown]
# Validation labels are clean in these runs, as in the paper. A user with noisy labels has noisy validation labels
# too. So we repeated the tuned runs at $p = 0.4$ and $0.8$ with validation labels as noisy as the training labels.
# The differences change by less than 0.1 points, in either grouping (first table: within superclasses, second: within
# index blocks). This concerns the choice of the epoch only, which hardly matters on features. Rates and decays were
# still chosen on clean validation labels.

# %% tags=["hide-input"]
noisy = evidence.published(registry.noisy_validation())
for group, name in tables.GROUPING_NAMES.items():
    table = tables.gain_table(tables.of_grouping(noisy, group)).loc[[0.4, 0.8]]
    display(tables.show(table, f"Noise within {name}"))

# %% tags=["hide-input"]
# With noisy validation labels the differences change by less than 0.1 points.
if len(noisy) == 40 and len(tuned) == 110:
    for group, known in (("superclass", lead), ("index_blocks", wide)):
        with_noise = findings.gains(tables.of_grouping(noisy, group))
        change = with_noise - known["each loss tuned"][[0.4, 0.8]]
        assert change.abs().max() < 0.1

# %% [markdown]
# ## Which grouping is the paper's?
#
# The paper's text draws labels within superclasses, such as baby, boy, girl, man, woman. The authors' public code
# draws them among five consecutive label numbers. A superclass can be seen in a picture, while an index block mixes
# unrelated classes and must be learned by heart, so the two kinds of noise cost different amounts of accuracy. The
# tables show how far cross-entropy falls below its own accuracy without noise, in points and in log-odds, $\log
# \frac{a}{1-a}$. In log-odds a step from 90 to 80 % is as large as one from 20 to 10 %. First with each loss tuned:

# %%
tables.show(tables.drop_table(tuned))

# %% [markdown]
# The same with the paper's rate and decay:

# %%
tables.show(tables.drop_table(pair))

# %% [markdown]
# The answer is **open**, because the scales and the measures disagree.
#
# - On **features** the index blocks are nearer to the paper's fall, with either choice of rate and decay: in log-odds at
#   every level, and in points at every level but $p = 1$.
# - On **images** (below) the index blocks are nearer at every level in log-odds, but the superclasses are nearer at
#   every level in points.
# - One observation speaks for superclasses. On features with the paper's rate and decay, the accuracies of cross-entropy
#   under noise within superclasses are within 0.6 points of the paper's from $p = 0.4$ on (82.8, 79.3, 74.4 and 67.2 %
#   beside 83.0, 79.6, 74.8 and 67.7 %), although the accuracy without noise is 6 points lower.

# %% tags=["hide-input"]
# Which grouping is nearer to the paper is as the text above says, at both scales.
images_grid = registry.table_1_noise("laptop")
images = evidence.published(images_grid)
for runs in (tuned, pair):
    if len(runs) == 110:
        assert set(findings.nearer_grouping(runs, "log-odds")) == {"index_blocks"}
        in_points = findings.nearer_grouping(runs, "points")
        assert in_points[in_points == "superclass"].index.tolist() == [1.0]
assert set(findings.nearer_grouping(images, "points")) == {"superclass"}
assert set(findings.nearer_grouping(images, "log-odds")) == {"index_blocks"}
if len(pair) == 110:
    printed = tables.paper_table(9).query("metric == 'top5' and loss == 'CE'")
    printed = printed.set_index("noise_level")["mean"]
    away = plain["the paper's rate and decay"] - printed
    assert away[[0.4, 0.6, 0.8, 1.0]].abs().max() < 0.6
    assert -6.1 < away[0.0] < -5.9

# %% [markdown]
# ## What was found on images
#
# The profile `laptop` trains a small network on 5,000 images for 24 epochs without flips and crops, two seeds. We saw
# results while we chose this setting, which limits what it can prove. In trials at $p = 0.8$ we looked for a number of
# epochs after which cross-entropy has learned the noisy labels by heart (99 % of them), and we saw validation accuracies
# on the way. A search of five trials per loss on validation images then chose rates and decays. It changed one of the
# two at a time, and is shown below.
#
# **Figure.** Top-5 accuracy under noise within superclasses: the paper's DenseNet on the left, our small network on
# images on the right, each on a scale of its own. In both, the smooth loss is ahead at every level of noise.

# %% tags=["hide-input"]
print(evidence.origin(images, images_grid))
axes = figures.noise_beside_paper(images)

# %% [markdown]
# **Figure.** Smooth loss minus cross-entropy in points of top-5 on images. All means are above zero, where the smooth
# loss leads. An interval from two seeds has one degree of freedom and is wide.

# %% tags=["hide-input"]
left, right = figures.new_panels(ncols=2, figsize=(9.6, 4.0), sharey=True)
figures.noise_differences({"images": images}, ax=left).set_title("images, superclasses")
shown = {"images": images}
blocks = figures.noise_differences(shown, grouping="index_blocks", ax=right)
blocks.set_title("images, index blocks")
blocks.label_outer()

# %%
tables.show(tables.noise_table(images))

# %% [markdown]
# What early stopping gains on images:

# %%
tables.show(tables.early_stopping_table(images, grouping=grouping))

# %% [markdown]
# How far cross-entropy falls below its accuracy without noise on images:

# %%
tables.show(tables.drop_table(images))

# %% [markdown]
# In the mean of two seeds the smooth loss leads on images by 3.7 to 6.8 points within superclasses and by 2.5 to 5.2
# within index blocks under noise, and by 2.9 without noise. The intervals exclude zero within superclasses at $p =
# 0.2$, $0.4$ and $0.8$, and nowhere else. In top-1 the smooth loss leads by 1.0 to 2.9 points within superclasses.
# Stopping early gives cross-entropy 1.3 points at $p = 0.8$ and the smooth loss 0.2. This is the direction that the
# paper describes, but the interval of the 1.3 points contains zero.
#
# The search for these runs was narrower than the one on features: it tried three decays per loss, up to $5 \cdot
# 10^{-4}$ for cross-entropy, and that largest one won. A larger decay might narrow the lead here as well; it was not
# run. The trials:

# %%
images_search = registry.noise_search("laptop")
tried = evidence.published(images_search)
headings = {"validation_top5": "validation top-5 (%), p = 0.8"}
tables.show(tables.loss_table(tried, headings))

# %% tags=["hide-input"]
# The numbers on images in the text above are those of the recorded runs.
parts = [tables.of_grouping(images, group) for group in tables.GROUPING_NAMES]
five = [findings.gains(part).round(1) for part in parts]
assert (five[0][0.2:].min(), five[0][0.2:].max()) == (3.7, 6.8)
assert (five[1][0.2:].min(), five[1][0.2:].max()) == (2.5, 5.2)
assert five[0][0.0] == 2.9
for part, levels in zip(parts, ([0.2, 0.4, 0.8], []), strict=True):
    span = tables.intervals(tables.differences_by_seed(part), ["noise_level"])
    sure = span["low"] * span["high"] > 0  # the interval excludes zero
    assert span.loc[sure, "noise_level"].tolist() == levels
ones = findings.gains(parts[0], metric="test_top1").round(1)[0.2:]
assert (ones.min(), ones.max()) == (1.0, 2.9)
stopped = findings.gained_by_stopping(images).round(1).loc[0.8]
assert (stopped["cross_entropy"], stopped["smooth"]) == (1.3, 0.2)
plain_trials = tried[tried["loss"] == "cross_entropy"]
best = plain_trials.loc[plain_trials["validation_top5"].idxmax()]
assert best["weight_decay"] == plain_trials["weight_decay"].max() == 5e-4

# %% [markdown]
# Does the lead need labels that are learned by heart? With four times the images and a quarter of the epochs the number
# of steps is the same, but no network learns the wrong labels by heart. Then cross-entropy leads at $p = 0.8$, by 3.6
# points within superclasses (first table) and by 4.5 within index blocks (second table), in the mean of two seeds. Only
# the interval within index blocks excludes zero.

# %% tags=["hide-input"]
short = registry.noise_without_memorising()
brief = evidence.published(short)
for group, name in tables.GROUPING_NAMES.items():
    part = brief[brief["noise_grouping"] == group]
    table = tables.gain_table(part).loc[[0.8]]
    display(tables.show(table, f"Noise within {name}"))

# %% tags=["hide-input"]
# Cross-entropy leads by 3.6 and 4.5 points.
short_gains = {
    group: findings.gains(part)[0.8] for group, part in brief.groupby("noise_grouping")
}
assert round(short_gains["superclass"], 1) == -3.6
assert round(short_gains["index_blocks"], 1) == -4.5

# %% [markdown]
# ## The paper's own setting
#
# The profile `paper` trains DenseNet 40-40 for 300 epochs with three seeds, on a GPU server.

# %% tags=["hide-input"]
exact_grid = registry.table_1_noise("paper")
exact = evidence.published(exact_grid)
print(evidence.origin(exact, exact_grid))
if len(exact):
    display(tables.show(tables.noise_table(exact)))

# %% [markdown]
# ## Run it here
#
# First the noise itself. These are the groups of one class under the two groupings:


# %%
def chosen(runs):
    """The runs that the parameters above leave."""
    levels = noise_levels or {run.noise_level for run in runs}
    kept = [run for run in runs if run.noise_level in levels]
    kept = [run for run in kept if seeds is None or run.seed in seeds]
    return trainings.adjusted(kept, epochs=epochs, train_size=train_size)


grid = chosen(registry.table_1_noise(profile))
source = load_data(grid[0]).source
groupings = {"superclass": source.class_to_superclass, "index_blocks": INDEX_BLOCKS}
for name, group in groupings.items():
    members = [label for label in range(100) if group[label] == group[3]]
    assert len(members) == 5
    names = ", ".join(source.class_names[label] for label in members)
    print(f"{tables.GROUPING_NAMES[name]}: {names}")

# %% [markdown]
# A share $p$ of the labels is redrawn. One in five of these happens to stay what it was, so about $\frac{4}{5} p$ of
# the labels are wrong.

# %%
clean = torch.arange(100).repeat(500)
groups = torch.arange(100) // 5
corrupted = corrupt_within_superclass(clean, noise_level, groups=groups, seed=0)
wrong = (corrupted != clean).double().mean().item()
# Of 50,000 labels the share is known to a standard deviation below 0.003.
assert abs(wrong - 0.8 * noise_level) < 0.02
assert torch.equal(groups[corrupted], groups[clean])
share = f"{100 * wrong:.1f} %"
print(f"p = {noise_level:g}: {share} of the labels are wrong, each in its group")

# %% [markdown]
# Then come the runs of this profile: both losses, every noise level and both groupings, which coincide without noise.
# A run that is recorded already is not trained again.

# %%
tables.show(tables.settings_table({"Table 1": grid}).droplevel("experiment"))

# %%
runs = trainings.run_missing(grid, profile)
print(evidence.origin(runs, grid))

# %% [markdown]
# **Figure.** The runs of this profile. Left: top-5 accuracy, the paper hollow, ours filled. Right: smooth loss minus
# cross-entropy in points with its interval; above zero the smooth loss leads.

# %% tags=["hide-input"]
left, right = figures.new_panels(ncols=2, figsize=(9.6, 4.0))
figures.noise_figure(runs, grouping=grouping, ax=left).set_title(f"profile {profile}")
figures.noise_differences({f"profile {profile}": runs}, grouping=grouping, ax=right)
title = right.set_title(tables.GROUPING_NAMES[grouping])

# %%
tables.show(
    tables.noise_table(runs, grouping="superclass"), "Noise within superclasses"
)

# %%
blocks = tables.noise_table(runs, grouping="index_blocks")
tables.show(blocks, "Noise within index blocks")

# %%
# Early stopping chooses the best validation top-5 of all epochs.
finished = runs[runs["status"] == "finished"]
assert (finished["validation_top5"] >= finished["last_validation_top5"]).all()

# %% [markdown]
# ## What we saw
#
# - Noise within a group of five leaves every label in its group, so the perfect top-5 answer stays right; this was
#   checked.
# - On features with the paper's rate and decay for both losses, the smooth loss leads in top-5 by 2.5 points at
#   $p = 0.8$ within superclasses (paper: 4.5), and the two losses are equal without noise.
# - On features with each loss tuned, the lead at $p = 0.8$ is 0.6 points, and cross-entropy leads for $p \le 0.2$. Most
#   of the first lead was weight decay that cross-entropy lacked.
# - On images, with a narrower search and two seeds, the smooth loss leads by 4.4 points at $p = 0.8$ within
#   superclasses. Where no wrong label is learned by heart, cross-entropy leads instead; with two seeds, only within
#   index blocks does the interval exclude zero.
# - Which grouping gave the paper's numbers remains open.
#
# ## Questions
#
# 1. At $p = 1$ a label says nothing but its group. What top-1 accuracy on clean test images is the best to hope for?
# 2. Why can the smooth loss win in top-1 under noise, although it is a loss for the top-5 error?
# 3. A colleague compares a new loss with cross-entropy, both at cross-entropy's usual rate and decay. What do you ask?
#
# <details><summary>Answer 1</summary>
#
# The five classes of a group are equally likely for every image of the group, so a classifier that knows the group can
# only guess: 20 %. Early in training the networks find less than that, because they do not know every group.
#
# </details>
# <details><summary>Answer 2</summary>
#
# Top-1 accuracy suffers when a network gives a wrong label a higher score than the right one. A loss that forces the
# noisy label to the first place does this whenever it learns the label by heart. The smooth loss is content when the
# noisy label is among the first five, so it moves the order within the five less.
#
# </details>
# <details><summary>Answer 3</summary>
#
# Whether each loss had its own search with equally many trials, on validation images, over grids whose best points are
# not on the edge. In this chapter a search for each loss removed three quarters of the difference at $p = 0.8$.
#
# </details>
#
# ## Next
#
# [10 · Small data](10_small_data_study.ipynb) keeps the labels and takes images away.
