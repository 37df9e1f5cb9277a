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
# **You will** see how much of the smooth loss's lead depends on the hyper-parameters of either loss, which loss
# memorises wrong labels, when early stopping matters, and train the table yourself.
#
# **Paper.** Section 5.1 with Table 1, appendix D.3 with Table 9.
#
# **Time.** 15 minutes to read.

# %% tags=["parameters"]
profile = "quick"
noise_level = 0.8
grouping = "superclass"  # or "index_blocks"
noise_levels = None  # a list, or None: those of the profile
seeds = None  # the same
epochs = None  # a number, or None: that of the profile
train_size = None  # the same

# %%
import pandas as pd
import torch

from smooth_topk import corrupt_within_superclass
from smooth_topk.noisy_labels import INDEX_BLOCKS
from smooth_topk.study import figures, tables
from smooth_topk.study.chapters import controls, notebook, trainings
from smooth_topk.study.chapters.training_demo import TrainingDemo
from smooth_topk.study.data.datasets import load_data
from smooth_topk.study.experiments import protocol, registry
from smooth_topk.study.records import evidence
from smooth_topk.study.tables import findings
from smooth_topk.study.tables.differences import paper_gain

notebook.start(profile)

# %% [markdown]
# ## Noise that keeps the top-5 answer right
#
# With probability $p$ a training label is replaced by one of the five classes of its group, drawn uniformly. A network
# that answers with all five classes of the group is right for every replaced label, so a perfect classifier can have a
# top-5 error of zero even on the noisy labels. The paper claims that $L_{5,1}$ keeps more of its top-5 accuracy than
# cross-entropy as $p$ grows.
#
# **Figure.** Label noise with $p = 0.8$ within superclasses, for a photograph of a shark. The label is redrawn from the
# five fish, the shark among them: 36 % of the labels stay right, each other fish gets 16 %, and a tree gets none.

# %% tags=["hide-input"]
fish = ["shark", "ray", "trout", "flatfish", "aquarium fish"]
ax = figures.label_noise(fish, ["oak", "pine", "willow", "palm", "maple"], 0.8)

# %% [markdown]
# The same happens below to points in a plane: two small networks train in your browser while you watch. Before you press
# *Train*: which loss will memorise more wrong labels, and what does the weight decay change? [The page before chapter
# 8](../book/experiments.md) says what to try and what is seen.

# %%
TrainingDemo(noise=noise_level)

# %% [markdown]
# There are two groupings. The paper's text draws labels within **superclasses**, such as baby, boy, girl, man and
# woman. The authors' public code draws them within **index blocks** of five consecutive label numbers. A superclass
# can be seen in a picture. An index block mixes unrelated classes and has to be memorised.
#
# Our numbers come from two scales. **Features**: a head with one hidden layer on built-in features of 20,000 CIFAR-100
# images, five seeds. **Images**: a network of 160 thousand parameters on 5,000 CIFAR-100 images, two seeds. The paper
# trains a DenseNet 40-40 on 45,000 images with three seeds; we did not run this network.

# %% [markdown]
# ## Whose hyper-parameters?
#
# The paper gives both losses a learning rate of 0.1 and a weight decay of $10^{-4}$. A search of 25 trials per loss,
# five learning rates times five weight decays judged on validation images, gives each loss its own. In particular it
# gives cross-entropy a weight decay of $2 \cdot 10^{-3}$, twenty times the paper's.

# %% tags=["hide-input"]
tuned_grid = registry.table_1_noise("quick", seeds=findings.RECORDED_SEEDS)
pair_grid = registry.noise_with_the_papers_pair()
tuned, pair = (evidence.published(grid) for grid in (tuned_grid, pair_grid))
print("tuned per loss:", evidence.origin(tuned, tuned_grid))
print("the paper's hyper-parameters:", evidence.origin(pair, pair_grid))

# %% [markdown]
# **Table.** Smooth loss minus cross-entropy in test top-5 at $p = 0.8$ within superclasses, in points, on features. The
# rows choose the hyper-parameters of the smooth loss, the columns those of cross-entropy. The interval is a 95 %
# t-interval over five seeds; all seeds share their training, validation and test images, and the search is not repeated.

# %%
settings = {"the paper's": pair, "tuned": tuned}


def accuracies(runs, loss, group="superclass"):
    """Test top-5 in percent of one loss: one row per noise level, one column per seed."""
    part = tables.of_grouping(runs, group)
    part = part[part["loss"] == loss]
    return 100 * part.pivot(index="noise_level", columns="seed", values="test_top5")


lead = {}
for smooth, of_smooth in settings.items():
    for plain, of_plain in settings.items():
        gained = accuracies(of_smooth, "smooth") - accuracies(of_plain, "cross_entropy")
        lead[smooth, plain] = tables.t_interval(gained.loc[noise_level])
two_by_two = pd.Series({rows: tables.interval_text(*t) for rows, t in lead.items()})
two_by_two = two_by_two.unstack()[list(settings)].loc[list(settings)]
two_by_two.index = [f"smooth loss: {name}" for name in two_by_two.index]
two_by_two.columns = [f"cross-entropy: {name}" for name in two_by_two.columns]
tables.show(two_by_two)

# %% [markdown]
# With the paper's hyper-parameters for both losses the smooth loss leads by 2.5 points, about half of the paper's 4.5.
# Tuning cross-entropy alone turns this into a lead of cross-entropy, by 1.0 point. Tuning both losses leaves the smooth
# loss 0.6 points ahead. So most of the lead within superclasses disappears once cross-entropy gets enough weight decay.

# %% tags=["hide-input"]
# The four differences of the table at p = 0.8.
if noise_level == 0.8:
    found = [round(float(one[0]), 1) for one in lead.values()]
    assert found == [2.5, -1.0, 4.1, 0.6], found

# %% [markdown]
# **Figure.** The same difference at every noise level, one small dot per seed and the mean with its 95 % interval over
# seeds. Above zero the smooth loss leads.

# %% tags=["hide-input"]
controls.predict(
    "The search gives cross-entropy twenty times the weight decay. "
    "Where does the smooth loss keep the larger share of its lead?",
    ["Within superclasses", "Within index blocks", "The lead is the same"],
    right=1,
    then="Tuned, it leads by up to 1.2 points within superclasses, and by up to 2.6 within index blocks.",
)
left, right = figures.new_panels(ncols=2, figsize=(9.6, 4.2), sharey=True)
shown = {"the paper's hyper-parameters": pair, "tuned per loss": tuned}
figures.noise_differences(shown, ax=left).set_title("within superclasses")
blocks = figures.noise_differences(shown, grouping="index_blocks", ax=right)
blocks.set_title("within index blocks")
blocks.label_outer()

# %% [markdown]
# At small noise levels the order is the other way round: tuned cross-entropy leads by 0.4 points without noise and by
# 0.6 at $p = 0.2$ within superclasses. The accuracies of the tuned losses, next to the paper's:

# %% tags=["hide-input"]
# The differences per noise level in the text and in the figure's caption.
by_level = {
    name: [
        findings.gains(tables.of_grouping(runs, group)).round(1)
        for group in tables.GROUPING_NAMES
    ]
    for name, runs in settings.items()
}
assert by_level["tuned"][0][[0.0, 0.2, 0.8, 1.0]].tolist() == [-0.4, -0.6, 0.6, 1.2]
assert by_level["tuned"][1].max() == 2.6
assert by_level["the paper's"][0][[0.0, 0.2, 0.8]].tolist() == [0.1, 1.1, 2.5]

# %%
tables.show(tables.noise_table(tuned))

# %% [markdown]
# **Top-1.** The paper's largest numbers are in top-1: its smooth loss leads by 20.3 points at $p = 0.8$. On features
# with the paper's hyper-parameters it leads by 10.8 within superclasses. Tuned per loss, it is 1.0 point behind there
# (the interval, −2.1 to +0.05, just contains zero), and 5.6 points ahead within index blocks. Without noise it is
# behind by 5.7 points: a loss for the top-5 error does not rank within the five.

# %% tags=["hide-input"]
# The differences in top-1 in the text above.
one = {
    name: [
        findings.gains(tables.of_grouping(runs, group), metric="test_top1").round(1)
        for group in tables.GROUPING_NAMES
    ]
    for name, runs in settings.items()
}
assert one["the paper's"][0][0.8] == 10.8
assert [found[0.8] for found in one["tuned"]] == [-1.0, 5.6]
assert one["tuned"][0][0.0] == -5.7
by_seed = tables.differences_by_seed(
    tables.of_grouping(tuned, "superclass"), metric="test_top1"
)
span = tables.intervals(by_seed, ["noise_level"]).set_index("noise_level").loc[0.8]
assert (round(span["low"], 1), round(span["high"], 2)) == (-2.1, 0.05)
assert round(paper_gain("top1")[0.8], 1) == 20.3

# %% [markdown]
# ## Who memorises, and who needs early stopping?
#
# **Figure.** Training with the paper's hyper-parameters on features. Left: top-1 accuracy on the noisy training labels.
# Right: top-5 accuracy on clean validation images; the marker is the epoch that early stopping keeps.

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
# At $p = 0.8$ within superclasses cross-entropy ends at 69 % of the noisy training labels and the smooth loss at 26 %.
# A network that always answers with the true class would agree with 36 % of them: a fifth of the labels are kept, and a
# fifth of the others draw the true class again. So cross-entropy memorises here and the smooth loss does not. With each
# loss tuned the shares are 41 % and 29 %: cross-entropy memorises little, and the lead is small.

# %% tags=["hide-input"]
# The shares of noisy training labels that the losses fit.
fitted = {}
for name, runs in settings.items():
    ends = evidence.epochs_of(runs).groupby("run_id")["train_top1"].last()
    part = tables.of_grouping(runs, "superclass").query("noise_level == 0.8")
    mean = part["run_id"].map(ends).groupby(part["loss"]).mean()
    fitted[name] = [f"{share:.0%}" for share in mean]  # CE, then smooth
assert fitted == {"the paper's": ["69%", "26%"], "tuned": ["41%", "29%"]}

# %% [markdown]
# The paper says that cross-entropy needs early stopping under noise and the smooth loss does not. The table shows what
# stopping at the best validation top-5 adds to the test accuracy, in points.

# %%
stopping = {
    (name, group): findings.gained_by_stopping(runs, group)
    for name, runs in (("the paper's", pair), ("tuned", tuned))
    for group in tables.GROUPING_NAMES
}
gained = pd.concat(stopping).rename_axis(["hyper-parameters", "grouping", "p"])
gained = gained.rename(columns={"cross_entropy": "CE", "smooth": "L_{5,1}"})
gained = gained.unstack("p").round(2).map("{:+.2f}".format)
tables.show(gained.xs("CE", axis=1), "cross-entropy, by noise level")

# %% [markdown]
# Within index blocks and with the paper's hyper-parameters, early stopping gains cross-entropy 1.6, 2.1 and 2.6 points
# at $p = 0.2$, $0.4$ and $0.6$. This confirms the paper. In every other case of the table it changes the accuracy by
# less than 0.2 points, and for the smooth loss it never adds more than 0.1. Within superclasses, and with tuned weight
# decay, neither loss needs it.

# %% tags=["hide-input"]
# What early stopping adds, as the text above says.
blocks = stopping["the paper's", "index_blocks"]["cross_entropy"].round(1)
assert blocks[[0.2, 0.4, 0.6]].tolist() == [1.6, 2.1, 2.6]
for (name, group), found in stopping.items():
    rest = found["cross_entropy"]
    if (name, group) == ("the paper's", "index_blocks"):
        rest = rest.drop([0.2, 0.4, 0.6])
    assert rest.abs().max() < 0.2
    assert found["smooth"].max() < 0.1

# %% [markdown]
# Validation labels are clean in these runs, as in the paper. We repeated the tuned runs at $p = 0.4$ and $0.8$ with
# validation labels as noisy as the training labels: the differences between the losses change by less than 0.1 points.
# This concerns the choice of the epoch only; hyper-parameters were still chosen on clean validation labels.

# %% tags=["hide-input"]
# With noisy validation labels the differences change by less than 0.1 points.
noisy = evidence.published(registry.noisy_validation())
for group in tables.GROUPING_NAMES:
    clean = findings.gains(tables.of_grouping(tuned, group))[[0.4, 0.8]]
    change = findings.gains(tables.of_grouping(noisy, group)) - clean
    assert change.abs().max() < 0.1

# %% [markdown]
# ## Which grouping is the paper's?
#
# The answer is **open**. We compare how far cross-entropy falls below its own accuracy without noise. In points of
# accuracy superclasses are nearer to the paper on images, and index blocks are nearer on features (but for $p = 1$). In
# log-odds, $\log \frac{a}{1-a}$, where a step from 90 to 80 % is as large as one from 20 to 10 %, index blocks are
# nearer everywhere. The fall of the tuned losses on features:

# %%
tables.show(tables.drop_table(tuned))

# %% tags=["hide-input"]
# Which grouping is nearer to the paper is as the text above says, at both scales.
images_grid = registry.table_1_noise("laptop")
images = evidence.published(images_grid)
for runs in (tuned, pair):
    assert set(findings.nearer_grouping(runs, "log-odds")) == {"index_blocks"}
    in_points = findings.nearer_grouping(runs, "points")
    assert in_points[in_points == "superclass"].index.tolist() == [1.0]
assert set(findings.nearer_grouping(images, "points")) == {"superclass"}
assert set(findings.nearer_grouping(images, "log-odds")) == {"index_blocks"}

# %% [markdown]
# ## Images
#
# On images the smooth loss leads at every noise level, by 3.7 to 6.8 points within superclasses. **This lead is not a
# fair comparison.** The search behind it was narrow: five trials per loss, and the largest weight decay that was tried
# for cross-entropy won. Two seeds share their images, and we saw results while we chose the number of epochs. The
# [protocol](../book/protocol.md) repeats the comparison with 24 trials per loss, wide ranges and fresh seeds. There is no
# verdict before all of its runs are recorded.

# %% tags=["hide-input"]
print(evidence.origin(images, images_grid))
comparison = protocol.COMPARISONS["images"]
trials = [run for cell in comparison.cells() for run in comparison.trials(*cell)]
recorded = evidence.published(trials)
print(
    f"The protocol's search on images: {len(recorded)} of {len(trials)} trials recorded."
)
axes = figures.noise_beside_paper(images)

# %% tags=["hide-input"]
# The leads on images, and that the winning weight decay of cross-entropy is at the edge of its search.
gained = findings.gains(tables.of_grouping(images, "superclass")).round(1)[0.2:]
assert (gained.min(), gained.max()) == (3.7, 6.8)
tried = evidence.published(registry.noise_search("laptop"))
plain_trials = tried[tried["loss"] == "cross_entropy"]
best = plain_trials.loc[plain_trials["validation_top5"].idxmax()]
assert best["weight_decay"] == plain_trials["weight_decay"].max() == 5e-4

# %% [markdown]
# One more hint comes from trainings that are too short to memorise. With four times the images and a quarter of the
# epochs, cross-entropy leads at $p = 0.8$ by 3.6 points within superclasses and by 4.5 within index blocks (two seeds;
# only the second interval excludes zero). There is no such run with clean labels, so this does not show that
# memorisation is the cause.

# %% tags=["hide-input"]
# Cross-entropy leads by 3.6 and 4.5 points.
brief = evidence.published(registry.noise_without_memorising())
for group, expected in (("superclass", -3.6), ("index_blocks", -4.5)):
    part = brief[brief["noise_grouping"] == group]
    assert round(findings.gains(part)[0.8], 1) == expected

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
grid = trainings.runs_of(
    "table_1_noise", profile, seeds=seeds, epochs=epochs, train_size=train_size
)
if noise_levels is not None:
    grid = [run for run in grid if run.noise_level in noise_levels]
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

# %% [markdown]
# The same runs next to the published ones: top-5 accuracy on test images, in percent.

# %%
tables.show(trainings.published_and_yours(grid, profile))

# %%
# Early stopping chooses the best validation top-5 of all epochs.
finished = runs[runs["status"] == "finished"]
assert (finished["validation_top5"] >= finished["last_validation_top5"]).all()

# %% [markdown]
# ## What we saw
#
# - Noise within a group of five leaves every label in its group, so the perfect top-5 answer stays right.
# - On features with the paper's hyper-parameters for both losses, the smooth loss leads in top-5 by 2.5 points at
#   $p = 0.8$ within superclasses (paper: 4.5). Tuning cross-entropy alone gives a lead of cross-entropy by 1.0 point, and
#   tuning both a lead of the smooth loss by 0.6.
# - Early stopping helps cross-entropy within index blocks with the paper's hyper-parameters, by up to 2.6 points. It does
#   not help the smooth loss, and it does not help tuned losses.
# - The lead on images rests on a narrow search and is being measured again.
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
# noisy label to the first place does this whenever it memorises the label. The smooth loss is content when the
# noisy label is among the first five, so it moves the order within the five less.
#
# </details>
# <details><summary>Answer 3</summary>
#
# Whether each loss had its own search with equally many trials, on validation images, over ranges whose best points are
# not at the edge. In this chapter the answer at $p = 0.8$ ranges from $-1.0$ to $+4.1$ points, depending on who is tuned.
#
# </details>
#
# ## Next
#
# [10 · Small data](10_small_data_study.ipynb) keeps the labels and takes images away.
