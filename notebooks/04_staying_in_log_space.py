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
# # 4 · Staying in log space
#
# **Question.** When do $e_i = \exp(s_i/(k\tau))$ and their products stop fitting into a floating point number, and is a
# result that fits also right?
#
# **You will** find out when numbers overflow, rebuild the tree of chapter 3 with logarithms, see the paper's Table 5
# next to our own rows, and measure how many digits the logarithms cost.
#
# **Paper.** Appendix B.2.1 and B.3.3, Table 5.
#
# **Time.** 20 minutes to read, half a minute to run.

# %% tags=["parameters"]
profile = "quick"
k = 5
tau = 0.1
taus = [10.0, 1.0, 0.1, 0.01, 0.001, 0.0001]
scales = [0.1, 1.0, 10.0, 100.0]
samples = 3

# %%
from functools import partial
from math import comb, exp, log

import numpy as np
import pandas as pd
import torch

from smooth_topk import log_symmetric_polynomials, smooth_topk_loss
from smooth_topk.polynomials import divide_and_conquer, summation
from smooth_topk.study import figures, measure, tables
from smooth_topk.study.chapters import controls, notebook
from smooth_topk.study.chapters.spider import spider
from smooth_topk.study.figures.style import BLUE, DARK
from smooth_topk.study.records import paths
from smooth_topk.study.records.imagenet_scores import read_scores

notebook.start(profile)
tree = partial(log_symmetric_polynomials, algorithm="divide_and_conquer")

# %% [markdown]
# ## The border of overflow
#
# Every floating point format has a largest number. The logarithm of this number is the largest exponent that we can
# afford.

# %%
formats = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
largest = {name: log(torch.finfo(dtype).max) for name, dtype in formats.items()}
tables.show(pd.DataFrame({"log of the largest number": largest}).T.map("{:.1f}".format))

# %% [markdown]
# How large does $\sigma_j$ become? Write $x_i = s_i/(k\tau)$, so that $e_i = \exp(x_i)$, and let $x_{[j]}$ be the
# $j$-th largest of the $x_i$. The largest term of $\sigma_j$ is the product of the $j$ largest $e_i$, which is
# $\exp(x_{[1]} + \cdots + x_{[j]})$.
#
# **Figure.** The decimal exponents of the largest terms of $\sigma_1$ to $\sigma_k$ (bars), for the six other classes
# of the spider in its web, and of the largest numbers of three formats (lines). A bar that rises above a line is a
# number that this format cannot hold. Move $\tau$: dividing it by ten multiplies all exponents by ten. Then move $k$.

# %% tags=["hide-input"]
scores, names, label = spider()
others = torch.cat([scores[:label], scores[label + 1 :]])
controls.predict(
    r"At $\tau = 0.1$ and $k = 5$ the last bar, $\sigma_5$, has the decimal exponent 29. "
    r"What is the exponent of the last bar for $k = 1$ at the same $\tau$?",
    ["About 6, a fifth of it.", "About 37.", "About 144, five times as much."],
    right=1,
    then=r"The exponent of the last bar is the mean of the $k$ largest scores, divided by "
    r"$\tau \log 10$. The largest score alone is only a little above the mean of five.",
)


def largest_exponents(tau, k):
    """Decimal exponents of the largest terms of sigma_1..sigma_k."""
    return others.topk(k).values.cumsum(0) / (k * tau * log(10))


def draw(ax, tau, k):
    ax.bar(range(1, k + 1), largest_exponents(tau, k), color=BLUE, width=0.6)
    for dtype, style in (("float16", ":"), ("float32", "--"), ("float64", "-.")):
        limit = largest[dtype] / log(10)
        label = f"{dtype}: $10^{{{limit:.1f}}}$"
        ax.axhline(limit, color=DARK, linestyle=style, linewidth=1.2, label=label)
    ax.set(yscale="log", xlim=(0.4, 6.6), ylim=(0.05, 1e5), xlabel="degree j")
    ax.set(ylabel="decimal exponent of the largest term", xticks=range(1, 7))
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, columnspacing=1)


controls.explore(
    draw,
    tau=controls.tau_slider(tau, minimum=1e-4),
    k=controls.k_slider(k, maximum=6),
)

# %%
# At τ = 0.1 all five terms fit into float32, and none of them into float16.
exponents = largest_exponents(0.1, 5)
assert round(exponents[-1].item()) == 29
assert round(largest_exponents(0.1, 1).item()) == 37
assert (exponents * log(10) < largest["float32"]).all()
assert (exponents * log(10) > largest["float16"]).all()

# %% [markdown]
# The summation algorithm of chapter 3 computes all of $\sigma_1, \dots, \sigma_k$ on its way. It overflows as soon as
# *one* of them does. So the number that counts is the largest of the partial sums,
#
# $$M = \max_{1 \le j \le k} \big( x_{[1]} + \cdots + x_{[j]} \big) .$$
#
# A partial sum grows as long as the next score is positive. If all of the $k$ largest scores are positive, the sum with
# $j = k$ is the largest, and $M$ is the mean of the $k$ largest scores divided by $\tau$. If one of them is negative,
# $M$ is larger than that. The rule has two parts.
#
# - If $M$ exceeds the largest exponent, the computation overflows, because one of its terms does.
# - If $M + \log \binom{n}{j}$ stays below the largest exponent for all $j \le k$, the computation does not overflow,
#   because $\sigma_j$ has $\binom{n}{j}$ terms, and none of them exceeds $e^M$.
#
# The mean of the $k$ largest scores alone is not enough. In this example the mean is negative, and $\sigma_1$ overflows
# in float32 all the same:

# %%
s = torch.tensor([20.0, -30.0, -40.0, -40.0])
x = s / (2 * 0.1)  # k = 2, τ = 0.1
print("mean of the two largest ÷ τ:", s.topk(2).values.mean().item() / 0.1)
overflown = summation.log_sigma(x[None], 2)[0]
for j, partial_sum in enumerate(x.topk(2).values.cumsum(0), 1):
    print(f"j = {j}: partial sum {partial_sum:g}, log σ_{j} = {overflown[j]:g}")
assert not overflown.isfinite().all()

# %% [markdown]
# **Figure.** The largest relative error of $\sigma_1$ to $\sigma_5$ by summation, for 100 normal random scores, over
# $\tau$ and the scale of the scores, in three formats. In crossed cells the result is not finite. In float32 the crosses
# begin where the scale of the scores is 100 times $\tau$.

# %% tags=["hide-input"]
normal = torch.randn(8, 100, generator=torch.Generator().manual_seed(1)).double()


def summation_error(dtype, tau, scale):
    x = normal * scale / (k * tau)
    truth = divide_and_conquer.log_sigma(x, k)  # float64, in logarithms
    difference = (summation.log_sigma(x.to(dtype), k).double() - truth).abs()
    return torch.where(difference.isnan(), torch.inf, difference).max().item()


three = ("float16", "float32", "float64")
cells = [(name, tau, scale) for name in three for tau in taus for scale in scales]
overflow = pd.DataFrame(cells, columns=["dtype", "tau", "scale"])
overflow["error"] = [summation_error(formats[n], tau, scale) for n, tau, scale in cells]

axes = figures.error_maps(overflow, panels="dtype", scale=(1e-16, 1.0))

# %% [markdown]
# The rule predicts the crossed cells. Half precision (float16) overflows everywhere. Even if all weights were one,
# $\sigma_5$ of 100 classes would be $\binom{100}{5} \approx 7.5 \cdot 10^7$, and the largest float16 is 65,504.

# %%
# Both parts of the rule hold in every cell of the map.
partial_sums = normal.topk(k).values.cumsum(1)  # of the scores; (8, k)
terms = torch.tensor([log(comb(100, j)) for j in range(1, k + 1)])
for cell in overflow.itertuples():
    exponents = partial_sums * cell.scale / (k * cell.tau)
    if exponents.max() > largest[cell.dtype]:
        assert cell.error == np.inf
    if (exponents + terms).max() < largest[cell.dtype]:
        assert cell.error < np.inf
assert comb(100, 5) > torch.finfo(torch.float16).max

# %% [markdown]
# ## Logarithms
#
# The remedy of appendix B.2.1 is to store $x = \log e$ instead of $e$. A product of two numbers then becomes a sum of
# their logarithms. A sum of two numbers becomes a *log-sum-exp*: with $m = \max(a, b)$,
#
# $$\log(e^a + e^b) = m + \log(e^{a - m} + e^{b - m}).$$
#
# Because the largest exponent $m$ is taken out first, no exponential on the right exceeds one.

# %%
a, b = 800.0, 799.0
m = max(a, b)
total = m + log(exp(a - m) + exp(b - m))
print(f"log(exp({a:g}) + exp({b:g})) = {total:.6f}")
print(f"exp({a:g}) alone is beyond float64")
assert abs(total - torch.tensor([a, b]).double().logsumexp(0).item()) < 1e-12

# %% [markdown]
# Here is the tree of chapter 3 with these two operations. The product of two polynomials adds all pairs of logarithms
# and takes a log-sum-exp over the pairs of equal degree. For the spider at $\tau = 0.001$:


# %%
def log_multiply(p, q, k):
    """Logarithms of the coefficients 0..k of a product of two polynomials."""
    pairs = p[:, None] + q[None, :]
    degree = torch.arange(len(p))[:, None] + torch.arange(len(q))
    last = min(k, len(p) + len(q) - 2)
    return torch.stack([pairs[degree == d].logsumexp(0) for d in range(last + 1)])


# %%
x = others / (k * 0.001)
one = torch.zeros(1, dtype=x.dtype)  # the logarithm of the polynomial 1
level = [torch.cat([one, value[None]]) for value in x]
while len(level) > 1:
    level += [one] * (len(level) % 2)
    level = [
        log_multiply(*pair, k) for pair in zip(level[::2], level[1::2], strict=True)
    ]
print("log σ_0, ..., log σ_5 =", ", ".join(f"{value:,.1f}" for value in level[0]))

# %%
# The package's tree gives the same; summation in plain numbers overflows.
assert torch.allclose(level[0], tree(x, k))
plain = log_symmetric_polynomials(x, k, algorithm="summation")
assert not plain.isfinite().all()

# %% [markdown]
# How small may $\tau$ be? The paper reports that the tree in single precision (float32) is stable down to
# $\tau = 10^{-36}$. Below that, the logarithms themselves overflow: the largest float32 is $3.4 \cdot 10^{38}$, and
# $\log \sigma_k$ is about the mean of the $k$ largest scores divided by $\tau$.

# %%
for small in (1e-36, 1e-39):
    value = tree(others.float() / k / small, k)[k]
    print(f"τ = {small:g}: log σ_k = {value:.3g}")
    assert value.isfinite() == (small == 1e-36)

# %% [markdown]
# ## Table 5
#
# The paper's table asks one question: did the forward pass overflow? SA is the summation algorithm and DC is divide and
# conquer, the tree. A tick means that all results are finite. Our part of the table adds the largest
# relative error of the loss over 128 images of ImageNet, scored by a trained network. It also has more rows. "Autograd"
# is the tree again, with automatic differentiation in place of the paper's backward pass. "Pivot" is the algorithm of
# chapter 6, and "fused (Numba)" is the same algorithm as one compiled kernel.

# %% tags=["hide-input"]
stability = pd.read_csv(paths.published_folder() / "stability.csv")
shown = tables.show(tables.stability_table(stability))
shown.set_properties(**{"white-space": "nowrap"})

# %% [markdown]
# The paper's part and ours agree in all cells but one. Summation in float32 at $\tau = 0.1$ overflows in the paper and
# not here. The rule above explains the difference. Float32 overflows for certain when $M > 88.7$. With $\tau = 0.1$ and
# positive scores this means that the mean of the five largest scores of some image exceeds 8.87. Our scores come from
# another network than the paper's. The largest such mean among our 128 images is 8.74, so our scores just fit.

# %%
images = read_scores()
batch, batch_labels = images.scores.float(), images.labels
means = batch.topk(k).values.clamp(min=0).mean(1)
print(f"mean of the {k} largest scores: from {means.min():.2f} to {means.max():.2f}")
print(f"border at τ = 0.1 in float32: {0.1 * largest['float32']:.2f}")
plain = log_symmetric_polynomials(batch / (k * 0.1), k, algorithm="summation")
assert plain.isfinite().all()
assert f"{means.max():.2f}" == "8.74"

# %% [markdown]
# ## Finite is not right
#
# A result that does not overflow can still be wrong. A float32 has 24 binary digits. The larger a number is, the fewer
# of its digits are left for the part behind the point. The loss needs the *difference* $\log \sigma_k - \log
# \sigma_{k-1}$ of two large logarithms. The difference is of moderate size, and each of the two logarithms is known
# only up to the gap between neighbouring float32 numbers. The table shows this gap at $\log \sigma_5$ of the spider:

# %%
gaps = {}
for value in taus:
    log_sigma = tree(others / (k * value), k)[k].item()
    gaps[f"τ = {value:g}"] = log_sigma, float(np.spacing(np.float32(log_sigma)))
columns = ["log σ₅", "gap to the next float32"]
shown = pd.DataFrame.from_dict(gaps, orient="index", columns=columns)
assert shown.loc["τ = 0.0001", columns[1]] > 1e-3
tables.show(
    shown.apply(lambda c: c.map(("{:,.0f}" if c.max() > 1 else "{:.1e}").format))
)

# %% [markdown]
# What does this do to the loss and to its gradient? Since $\log(a + b) - \log a = \log(1 + b/a)$, eq. (10) of chapter 3
# is
#
# $$L_{k,\tau} = \tau\,\mathrm{softplus}(z), \qquad z = \frac{\alpha}{\tau} - x_y + \log \sigma_k - \log \sigma_{k-1},$$
#
# with $\mathrm{softplus}(z) = \log(1 + e^z)$. The derivative of softplus is $\mathrm{sigmoid}(z) = 1/(1 + e^{-z})$, so
# all entries of the gradient have the factor $\mathrm{sigmoid}(z)$. Now let $z$ have a small error $\varepsilon$.
#
# - The relative error of the loss is $\varepsilon\,\mathrm{sigmoid}(z)/\mathrm{softplus}(z)$.
# - The relative error of the factor of the gradient is $\varepsilon\,(1 - \mathrm{sigmoid}(z))$.
#
# Neither exceeds $\varepsilon$, and both are nearly $\varepsilon$ where $z$ is far below zero. That is where the
# largest errors occur, and there the loss and the gradient lose the *same* digits.
#
# **Figure.** Largest errors of loss and gradient in float32 over 128 images, compared with 50 decimal digits. With
# automatic differentiation the tree loses the same digits in the loss and in the gradient as $\tau$ falls. With the
# paper's own backward pass (divide and conquer without "autograd") the gradient loses more. Summation is not finite
# below $\tau = 0.1$. Pivot, in plain torch and fused, stays below $2 \cdot 10^{-7}$.

# %%
axes = figures.stability_figure(stability)

# %% [markdown]
# At $\tau = 10^{-4}$ the automatically differentiated tree is off by up to 0.001, in the loss and in the gradient
# alike. The gradient of the paper's backward pass is off by up to 0.067, at $\tau = 0.01$. This additional error does
# not come from the logarithms. It comes from a series that the backward pass uses, and the next chapter is about that
# series. In float64 the logarithms lose as many digits, but there are digits to spare: the loss still has twelve right
# digits. The error of the series remains, at up to 0.00003. The table gives the largest errors over all temperatures;
# "inf" means that a result was not finite.

# %% tags=["hide-input"]
columns = {"error": "error of the loss", "gradient_error": "error of the gradient"}
worst = stability[stability["algorithm"] != "fused_numba"].rename(columns=columns)
worst = worst.groupby(["dtype", "algorithm"], sort=False)[list(columns.values())].max()
worst = worst.sort_index(level="dtype", sort_remaining=False)
shown = worst.rename(index=tables.algorithm_name, level="algorithm")
shown.index = shown.index.rename(["precision", "algorithm"])
tables.show(shown.map("{:.1e}".format))

# %%
# The numbers of this section are those of the table.
float32 = stability[stability["dtype"] == "float32"].set_index(["algorithm", "tau"])
autograd = float32.loc[("divide_and_conquer_autograd", 1e-4)]
assert autograd["error"].round(3) == autograd["gradient_error"].round(3) == 0.001
backward = float32.loc["divide_and_conquer", "gradient_error"]
assert backward.idxmax() == 0.01
assert backward.max().round(3) == 0.067
both_pivots = float32.loc[["pivot", "fused_numba"], ["error", "gradient_error"]]
assert both_pivots.max(axis=None) < 2e-7
assert worst.loc[("float64", "divide_and_conquer"), "error of the loss"] < 1e-12
assert round(worst.loc[("float64", "divide_and_conquer")].max(), 5) == 0.00003

# %%
# Computed now for the first images: in float32 summation overflows, the tree loses up
# to four of seven digits and pivot none; in float64 both have at least ten right digits.
algorithms = ["summation", "divide_and_conquer_autograd", "pivot"]
package = partial(smooth_topk_loss, reduction="none")
losses = {name: partial(package, algorithm=name) for name in algorithms}
first = batch[:samples], batch_labels[:samples]
both = [torch.float32, torch.float64]
errors = measure.error_table(losses, *first, k=k, taus=taus, dtypes=both)
errors["largest"] = errors[["loss_error", "gradient_error"]].max(axis=1)
largest_error = errors.groupby(["dtype", "algorithm"])["largest"].max()
assert np.isinf(largest_error["float32", "summation"])
assert largest_error["float32", "divide_and_conquer_autograd"] < 1e-3
assert largest_error["float32", "pivot"] < 1e-6
assert largest_error["float64"][algorithms[1:]].max() < 1e-10

# %% [markdown]
# ## What we saw
#
# - Without logarithms the computation overflows when the largest partial sum $x_{[1]} + \cdots + x_{[j]}$, $j \le k$,
#   exceeds the logarithm of the largest number of the format. For positive scores this partial sum is the mean of the
#   $k$ largest scores divided by $\tau$.
# - With logarithms the tree is finite down to $\tau = 10^{-36}$, as the paper says.
# - Finite results may be wrong. At $\tau = 10^{-4}$ neighbouring float32 logarithms are more than 0.001 apart, and the
#   loss and the gradient both lose the corresponding digits.
# - Logarithms have a price in time too: each addition takes exponentials and a logarithm.
#
# ## Questions
#
# 1. Adding a constant to all scores of a sample does not change the loss. Does it change Table 5?
# 2. Suppose that we subtract the largest score from all scores first. Which overflow does that prevent, and what
#    underflows instead?
# 3. Which quantity of moderate size could one store instead of $\sigma_j$? Chapter 6 has an answer.

# %% [markdown]
# <details><summary>Answer 1</summary>
#
# Yes. A constant $c$ adds $jc/(k\tau)$ to the logarithm of $\sigma_j$. A large constant makes every row of summation
# overflow, and a large negative one makes it underflow. The loss itself depends on differences of scores only.
#
# </details>
#
# <details><summary>Answer 2</summary>
#
# It makes all $e_i \le 1$, so that $\sigma_j \le \binom{n}{j}$, and nothing overflows as long as these binomials fit
# the format. But the largest term of $\sigma_k$ becomes $\exp(-\sum_{j \le k} (s_{[1]} - s_{[j]})/(k\tau))$. Where the
# $k$-th score is far below the first, this term underflows, $\sigma_k$ becomes zero, and the loss cannot be computed
# from it.
#
# </details>
#
# <details><summary>Answer 3</summary>
#
# $\sigma_j$ divided by its own largest term. This ratio lies between 1 and $\binom{n}{j}$ at every temperature.
#
# </details>

# %% [markdown]
# ## Next
#
# [5 · The backward pass](05_backward_pass.ipynb): the derivatives can go wrong where the loss itself does not.
