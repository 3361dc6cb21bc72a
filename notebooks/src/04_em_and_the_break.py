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
# # 4. EM with a network, and where everything breaks
#
# *Core chapter.* Before the trace there was EM: guess the truth, train the network on the guess, count everybody's
# mistakes, guess again {cite:p}`raykar2010,khetan2018`. We build both versions that the paper compares itself with
# {cite:p}`tanno2019`, find the printed one standing still and the other one eating its own classes, and mend each with
# one line. Then we go where *every* method of this part breaks, and learn what that break is.
#
# **You will be able to**
#
# - write EM with a network as two functions, and say what each of its rounds does;
# - explain why it stands still at one label an image, and get it going;
# - recognise a prior that feeds back on itself;
# - say at which skill a panel of annotators can no longer be told from another one, and what is lost there;
# - have the library warn you about it on your own data.
#
# **You need to know** chapter 3 (the matrices, the trace, dominance), and Bayes' rule. Chapter 2 helps: its EM has no
# network.
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** 5,000 handwritten digits {cite:p}`lecun1998` at 14 x 14 pixels, which ship with the course.

# %%
try:
    import numpy as np
    import torch
    from IPython.display import Markdown

    import course_lib.checks.em as checks
    from course_lib import annotators, book, confusion, data, experiments, metrics, networks, plots, training
    from course_lib.annotations import MISSING, Annotations
    from course_lib.diagnose import identifiability_warnings
    from course_lib.experiments import claims, classes
    from course_lib.methods.em import GEM, MBEM, fit_em
    from course_lib.methods.trace import Trace
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(4)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
EVERYBODY = ("oracle", "trace", "no_trace", "mbem_uniform", "mbem", "gem_net", "gem", "vanilla")
P = training.sized(  # (ci, lesson, paper)
    epochs=(8, 20, 60),
    draws=(1, 1, 5),  # panels of annotators in the live comparison
    skills=((0.45,), (0.45, 0.35), (0.45, 0.35)),
    methods=(("trace", "gem"), EVERYBODY, EVERYBODY),
    rounds=((1, 8), (1, 2, 5, 10), (1, 2, 5, 10, 20)),  # of EM, in section 6
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# The digits and the flippers of chapter 3: five people, right 45 % of the time, each with one wrong name for every
# class. This time we also ask all five about every image ("dense" labels).

# %%
digits = data.split(data.mnist5k())
images, truth = data.small(digits.train.images), digits.train.labels  # (N, 1, 14, 14), (N,)
test_images, test_truth = data.small(digits.test.images), digits.test.labels
A = annotators.pairwise_flippers(5, 10, 0.45, generator=seeded(3))  # (R, L, L)
dense = Annotations(images, annotators.annotate(truth, A, generator=seeded(4)), n_classes=10)
one = dense.with_labels(annotators.annotate(truth, A, per_item=1, generator=seeded(4)))  # one label an image

# %% [markdown]
# Chapter 3 asked: *what will they say, if the network is right?* EM asks the other way round: *what is the truth, if they
# said this?* The network gives the prior, each label multiplies it by one row of its annotator's matrix, and what comes
# out, q, is what the network is trained on next.

# %% tags=["hide-input"]
from matplotlib.figure import Figure  # noqa: E402  (it belongs to this figure alone)

n = int((dense.labels[:, 0] != truth).nonzero()[0])  # the first image that annotator 1 gets wrong
prior = torch.nn.functional.one_hot(truth[n], 10) * 0.3 + 0.07  # a network that leans to the truth
seen = dense.labels[n : n + 1].where(torch.arange(5) < 1, MISSING)  # only annotator 1 has spoken
rows = confusion.evidence(confusion.log(A)[None], seen)[0].softmax(0)  # (L,), scaled to sum 1
q = confusion.posterior(confusion.log(A)[None], prior.log()[None], seen)[0].exp()
fig = Figure(figsize=(5, 4.2), layout="constrained")
for ax, bars, title in zip(fig.subplots(3, 1, sharex=True), (prior, rows, q), ("the network's p", "times what one person said", "= q, the next target")):
    ax.bar(range(10), bars, color=plots.MODEL if ax.get_subplotspec().is_first_row() else plots.ANNOTATORS[0], edgecolor="white")
    ax.set(title=title, ylim=(0, 1), xticks=range(10))
plots.described(
    fig, f"The E-step for one image whose truth is {truth[n]} and which annotator 1 called {seen[0, 0]}.",
    f"Three bar charts over the classes: a prior with its largest bar at {truth[n]}; the evidence of the labels; their "
    f"product, with its largest bar at {int(q.argmax())}.",
)  # fmt: skip

# %% [markdown]
# ## 2. Predict
#
# Write down four guesses before you go on.
#
# 1. Dense labels, five people at skill .45: does EM reach the trace?
# 2. One label an image. EM starts with q = the label. What does it count in the first round, and what then?
# 3. One version of EM also re-counts how common each class is. Does that help or hurt?
# 4. At skill .25 everything breaks. Is the information gone, or is the way to it lost?
#
# ## The recipe
#
# With several labels an image, EM is a good method. `fit_em` trains for some epochs, turns, trains again.

# %%
gem = GEM(networks.mlp(196, 10, generator=seeded(0)), dense)
fit_em(gem, dense, rounds=4, epochs=P.epochs, progress=False)
accuracy = metrics.accuracy(training.predict(gem, test_images), test_truth)
print(f"accuracy {accuracy:.3f}, CM error {metrics.cm_error(A, gem.confusion()):.4f}")

# %% [markdown]
# Afterwards, ask the library whether there is any reason to mistrust the matrices. No sentence means that none is known:

# %%
print(identifiability_warnings(dense, gem.confusion()))
few_labels = dense.items(slice(0, 6))  # six images cannot tell about ten classes
print(*identifiability_warnings(few_labels, gem.confusion()), sep="\n")

# %% [markdown]
# ## 3. The maths
#
# ### Two steps
#
# The truth $y$ of an image is hidden. Were it known, everything would be counting. EM replaces it by its probability
# under the present parameters. The **E-step**, for one image $x$ with the labels $\tilde y^{(r)}$ of those who spoke:
#
# $$
# q_j \;\propto\; p_j(x) \prod_{r\ \text{spoke}} A^{(r)}_{\tilde y^{(r)},\, j}
# $$ (eq-ch4-estep)
#
# and the **M-step** of the matrices, with the sum over the images that $r$ labelled:
#
# $$
# A^{(r)}_{ij} = \frac{\sum_n q_{nj}\, \mathbb 1[\tilde y_n^{(r)} = i]}{\sum_n q_{nj}}
# $$ (eq-ch4-mstep)
#
# The network's M-step is a cross-entropy against q, for a while. It is not run to its end, hence *generalised* EM (the
# paper's Algorithm 2, after {cite:t}`raykar2010`).
#
# | | the first q | matrices are counted against | prior in the E-step |
# | --- | --- | --- | --- |
# | **GEM**, Algorithm 2 | the vote's shares | the last q | the network's $p(x)$, image by image |
# | **MBEM**, Algorithm 3 {cite:p}`khetan2018` | the vote's shares | the network's decisions | one for all images: how often each class was decided |
#
# <details><summary>An erratum: the first q</summary>
#
# Algorithms 2 and 3 start with the sum of the one-hot labels divided by $R$. With missing labels that does not sum to 1. Divide by
# the number of labels that are there, as the library does. The next cell has the printed one, for one label an image:
#
# </details>

# %% tags=["hide-input"]
counts = torch.nn.functional.one_hot(one.labels + 1, 11)[..., 1:].sum(1)  # (N, L): who said nothing is counted nowhere
printed, mended = counts / one.labels.shape[1], counts / one.observed.sum(1, keepdim=True)
print(f"the first q sums to {printed[0].sum():.1f} as printed, to {mended[0].sum():.1f} as mended")
assert torch.allclose(printed.sum(1), torch.tensor(1 / 5)) and torch.allclose(mended.sum(1), torch.tensor(1.0))

# %% [markdown]
# ### Standing still
#
# One label an image: then the first q *is* the label, one-hot. Put it into {eq}`eq-ch4-mstep`: of all images called $j$
# by annotator $r$, all are called $j$. So $A^{(r)} = I$: everybody is perfect. Put that into {eq}`eq-ch4-estep`: the
# identity's row has one entry, at the label, whatever the network says. q is the label again.
#
# ```{prf:proposition}
# :label: prop-still
#
# With one label an image, q = the label and $A = I$ are a fixed point of GEM, for every network whose $p$ is positive.
# ```
#
# The paper says that generalised EM cannot recover matrices here. It is more than a weakness: not one step is ever taken.
# Let us assert it, with a network that has just been born:

# %%
label_q = torch.nn.functional.one_hot(one.labels.max(1).values, 10).float()  # the only label of each image
counted = confusion.count_matrices(one.labels, label_q)
anything = torch.randn(len(truth), 10, generator=seeded(1)).log_softmax(1)  # any network
again = confusion.posterior(confusion.log(counted)[None], anything, one.labels).exp()
print(f"matrices off the identity by {(counted - torch.eye(10)).abs().max():.0e}, q off the label by {(again - label_q).abs().max():.0e}")
assert torch.equal(counted, torch.eye(10).repeat(5, 1, 1)) and torch.allclose(again, label_q)

# %% [markdown]
# **The way out** is one line: count the first matrices against what the *network* says. It has seen that some images
# called 7 look like those called 1, and disagrees with the labels. In the library it is `first_from="network"`; MBEM
# does something like it in every round.
#
# ### A prior that eats classes
#
# MBEM's prior is the share of each class among the network's decisions. Suppose that a class is decided a little too
# seldom. Its prior falls, q moves its images elsewhere, the network learns that, and decides the class more seldom still.
# Nothing pushes back. Here is this loop without any network, so that nothing else can be blamed: spammers at skill .2,
# one label an image, decisions drawn from their own posterior's best class.

# %%
noisy = annotators.hammer_spammers(1, 3, 0.2, spread=0.0, generator=seeded(0))[0]  # (3, 3)
share = torch.tensor([0.36, 0.33, 0.31])  # class shares; nearly equal
for turn_number in range(4):
    decided = torch.stack([(noisy[i] * share).argmax() for i in range(3)])  # of each label, the best class
    frequency = noisy @ torch.full((3,), 1 / 3)  # how often each label is seen
    share = torch.zeros(3).index_add_(0, decided, frequency)
    print(f"round {turn_number + 1}: labels 0, 1, 2 are decided as {decided.tolist()}, shares {[round(s, 2) for s in share.tolist()]}")
swayed = (noisy * torch.tensor([0.6, 0.2, 0.2])).argmax(1)
print(f"shares .6, .2, .2 instead: {swayed.tolist()}: two classes are dead after one round")
assert swayed.unique().numel() == 1

# %% [markdown]
# Near equality it holds, from an unequal start it runs away. With a network, the first round's mistakes are the unequal
# start. The mend is again one line, `prior="uniform"`: the labels may move an image, popularity may not.
#
# ### One logarithm or many
#
# The trace's loss of chapter 3 scores each label on its own, EM all labels of an image together:
#
# $$
# \text{marginals: } \sum_r \log \sum_j A^{(r)}_{\tilde y^{(r)} j}\, p_j
# \qquad
# \text{joint: } \log \sum_j p_j \prod_r A^{(r)}_{\tilde y^{(r)} j}
# $$ (eq-ch4-joint)
#
# With one label an image they are the same. With several, the marginals forget that all five looked at *the same* truth.
# For the marginals, a hesitant network with perfect annotators explains hammer-spammers as well as the truth does
# (chapter 3). For the joint one it does not: perfect annotators cannot contradict each other.

# %%
def marginals(A, p, said):
    return sum((A[r, i] @ p).log() for r, i in enumerate(said))


def joint(A, p, said):
    return (p * torch.stack([A[r, i] for r, i in enumerate(said)]).prod(0)).sum().log()


# %% [markdown]
# Two hypotheses about an image of class 0, averaged over everything that two spammers can say of it: the truth, and
# "perfect people, hesitant network".

# %%
spammer = annotators.hammer_spammers(1, 3, 0.2, spread=0.0, generator=seeded(0)).repeat(2, 1, 1)  # (2, 3, 3)
almost = 0.999 * torch.eye(3).repeat(2, 1, 1) + 0.001 / 3  # perfect but for a hair: log 0 is no number
knows, hesitates = torch.tensor([0.999, 0.0005, 0.0005]), spammer[0, :, 0]
for name, score in (("marginals", marginals), ("joint", joint)):
    weigh = lambda A_, p_: sum(spammer[0, a, 0] * spammer[1, b, 0] * score(A_, p_, (a, b)) for a in range(3) for b in range(3))  # noqa: E731, B023
    truth_says, blame = float(weigh(spammer, knows)), float(weigh(almost, hesitates))
    print(f"{name:9s}: truth {truth_says:.3f}, perfect people {blame:.3f}, difference {truth_says - blame:+.3f}")
assert truth_says - blame > 1

# %% [markdown]
# The marginals cannot tell the two apart, the joint likelihood can, without any trace. It needs no EM either: it is one
# `logsumexp`, and a gradient. Section 5 trains both.
#
# ### Who shares a flip?
#
# The theorem of chapter 3 needs a dominant mean matrix. If k of R flippers of skill p give class j the same wrong name i,
# its margin there is $p - (1 - p) k / R$, so dominance needs
#
# $$
# p > \frac{k}{R + k}.
# $$ (eq-ch4-sharers)
#
# The paper draws flips freely, so that k is luck. We count it on many panels, and hold it against `dominance`:

# %%
skills = (0.2, 0.25, 0.3, 0.35, 0.45, 0.6)
free = [annotators.pairwise_flippers(5, 10, 0.5, share=None, spread=0.0, generator=seeded(k)) for k in range(200)]
sharers = torch.stack([((panel > 0) & ~torch.eye(10, dtype=torch.bool)).sum(0).max() for panel in free])  # (200,)
for p in skills:
    panels = [torch.where(panel > 0, 1 - p, 0.0) * (1 - torch.eye(10)) + p * torch.eye(10) for panel in free]
    is_dominant = torch.tensor([confusion.dominance(panel) > 0 for panel in panels])
    assert torch.equal(is_dominant, p > sharers / (5 + sharers))
    print(f"skill {p:.2f}: {is_dominant.float().mean():4.0%} of freely drawn panels are dominant")

# %% [markdown]
# "Skill .3" says little about such a panel; most often three of its five people share some flip. That is why this book
# lets at most two share one (limit 2/7 = .286) and prints the margin.
#
# ### What lambda costs
#
# Exercise 3.3 derived how much a finite $\lambda$ shrinks the diagonal, if the network is perfect. We shall hold that
# formula against trained networks in section 5:

# %%
def shrunken(a, lam, L=10):
    """Exercise 3.3: what is left of the diagonal a."""
    t = lam * L
    m = ((1 - t) + np.sqrt((1 - t) ** 2 + 4 * t * (1 - a))) / 2
    return a / (t + m)


print({lam: round(float(0.35 - shrunken(0.35, lam)), 3) for lam in (0.0, 0.01, 0.02, 0.1)})

# %% [markdown]
# ## 4. From scratch
#
# First the two steps in loops, as {eq}`eq-ch4-estep` and {eq}`eq-ch4-mstep` read:

# %%
def slow_e_step(A, p, labels):
    q = p.clone()  # (N, L)
    for n, row in enumerate(labels):
        for r, i in enumerate(row):
            q[n] *= A[r, i] if i != MISSING else 1
    return q / q.sum(1, keepdim=True)


def slow_m_step(labels, q):
    A = torch.zeros(labels.shape[1], q.shape[1], q.shape[1])
    for n, row in enumerate(labels):
        for r, i in enumerate(row):
            if i != MISSING:
                A[r, i] += q[n]
    return A / A.sum(1, keepdim=True)


# %% [markdown]
# The library has had both since chapter 2: `posterior` and `count_matrices`. They agree:

# %%
some = dense.labels[:200]
p = torch.randn(200, 10, generator=seeded(5)).softmax(1)
q = slow_e_step(A, p, some)
assert torch.allclose(q, confusion.posterior(confusion.log(A)[None], p.log(), some).exp(), atol=1e-5)
assert torch.allclose(slow_m_step(some, q), confusion.count_matrices(some, q), atol=1e-5)
print("loops and library agree")


# %% [markdown]
# What makes EM of them is the turn between two trainings. This is the method of `GEM` as it ships, with the way out in it:

# %% tags=["shipped"]
# shipped: course_lib.methods.em.GEM
@torch.no_grad()
def turn(self, data):
    log_p = training.predict_log_p(self, data.images)  # (N, L)
    q = log_p.exp() if self.rounds == 0 and self.first_from == "network" else self.q.cpu()
    self._rewrite(confusion.count_matrices(data.labels, q), log_p, data)


def _rewrite(self, A, log_prior, data):
    self.A.copy_(A)
    self.q.copy_(confusion.posterior(confusion.log(A)[None], log_prior, data.labels).exp())
    self.rounds += 1


# %% [markdown]
# So all of EM is a loop of three lines. `fit_em` does the same, and shares the epochs out among the rounds.

# %%
few = one.items(slice(0, 1280))
by_hand = GEM(networks.mlp(196, 10, generator=seeded(0)), few, first_from="network")
for t in range(3):
    training.fit(by_hand, few, epochs=2, seeds=7919 * t, progress=False)  # another order of items each round
    turn(by_hand, few)
shipped = GEM(networks.mlp(196, 10, generator=seeded(0)), few, first_from="network")
fit_em(shipped, few, rounds=3, epochs=6, progress=False)
assert torch.allclose(by_hand.confusion(), shipped.confusion())

# %% [markdown]
# And with the first matrices counted from the labels, as printed? The proposition says: nothing happens, for ever.

# %%
still = GEM(networks.mlp(196, 10, generator=seeded(0)), few)  # first_from="labels"
fit_em(still, few, rounds=3, epochs=6, progress=False)
for name, method in (("as printed", still), ("the way out", shipped)):
    print(f"{name:11s}: matrices off the identity by {(method.confusion() - torch.eye(10)).abs().max():.2f}")
assert torch.allclose(still.confusion(), torch.eye(10)) and not torch.allclose(shipped.confusion(), torch.eye(10), atol=0.1)

# %% [markdown]
# ## 5. The experiment
#
# ### Small, and live
#
# `compare` gives all methods the same images, labels and first weights. `vanilla` is stopped early on noisy held-out
# labels; `gem_net` and `mbem_uniform` are the mended versions; `oracle` is given the true matrices. (At `ci` size only two
# methods run.)

# %%
settings = [{"annotators": "pairwise_flippers", "skill": skill, "per_item": n} for n in (1, 5) for skill in P.skills]
live = classes.compare(settings, P.methods, seeds=P.draws, size=training.size(), progress=False)
print(f"{len(live)} runs; the dearest took {max(row['seconds'] for row in live):.1f} s")

# %% tags=["hide-input"]
def panel_of(per_item, skill, title):
    rows = [row for row in live if row["setting"]["per_item"] == per_item and row["setting"]["skill"] == skill]
    return plots.bars_with_spread(rows, "accuracy", list(P.methods), title=title, xlabel=f"test accuracy, skill {skill}")


fig = panel_of(1, P.skills[-1], "One label an image: EM needs its mends")
plots.described(fig, f"A dot is a draw of annotators; one label an image. Size {training.size()}.")

# %% [markdown]
# With one label, `gem` as printed is `vanilla` in another coat. With dense labels the picture is another one:

# %% tags=["hide-input"]
fig = panel_of(5, P.skills[-1], "Five labels an image: modelling people is what counts")
plots.described(fig, f"As above, with five labels an image. Size {training.size()}.")

# %%
score = {(row["method"], row["setting"]["per_item"]): row["metrics"]["accuracy"] for row in live if row["setting"]["skill"] == 0.45}
print(f"one label: trace - gem {score['trace', 1] - score['gem', 1]:+.3f}; dense: {score['trace', 5] - score['gem', 5]:+.3f}")
if score["trace", 1] - score["gem", 1] < 0.02 or abs(score["trace", 5] - score["gem", 5]) > 0.1:
    print("your run differed: in ours the trace was ahead with one label, and level with dense ones")

# %% [markdown]
# ### Over all skills: the committed runs
#
# One draw is an anecdote. What follows is read from `book/results/`, runs of several draws of annotators at lesson size
# that `course run NAME --commit` has written.

# %%
def committed(name):
    return experiments.read(data.shipped(f"results/{name}.lesson.json"))


def over_skill(result, metric, methods, per_item):
    """Each method's line: (draws, skills)."""
    at = lambda m, s: experiments.values(result, m, metric, skill=s, per_item=per_item)  # noqa: E731
    return {m: np.stack([at(m, s) for s in classes.SKILLS], 1) for m in methods}


flippers, spammers = committed("skill-flippers"), committed("skill-spammers")

# %% [markdown]
# Where is the mean matrix dominant? Each row of a result carries the margin of its panel. We shade from the lowest skill
# up to where the margin, drawn as a line between skills, turns positive.

# %%
margins = over_skill(flippers, "dominance", ["trace"], 1)["trace"].mean(0)  # (skills,)
edge = float(np.interp(0.0, margins, classes.SKILLS))
print({skill: round(float(margin), 3) for skill, margin in zip(classes.SKILLS, margins)}, f"zero at {edge:.3f}")
assert abs(edge - 2 / 7) < 0.03  # two of five share a flip

# %% tags=["hide-input"]
LINES = ("oracle", "trace", "gem", "mbem", "mbem_uniform")


def two_curves(result, per_item, title, shade_to=None):
    fig = Figure(figsize=(5, 6.6), layout="constrained")
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
    with_cm = [m for m in LINES if m != "oracle"]
    for ax, metric, lines, name in zip(fig.subplots(2, 1), ("accuracy", "cm_error"), (LINES, with_cm), ("test accuracy", "CM error")):
        plots.curve(classes.SKILLS, over_skill(result, metric, lines, per_item), xlabel="skill", ylabel=name, ax=ax)
        ax.spines[["top", "right"]].set_visible(False)
        if shade_to:
            ax.axvspan(classes.SKILLS[0], shade_to, color="#BBBBBB", alpha=0.35, linewidth=0)
    return fig


fig = two_curves(flippers, 1, "One label: all fall where dominance ends", edge)
plots.described(fig, "Pairwise flippers, one label an image. Band: lowest to highest draw. Grey: the mean matrix is not dominant. Committed run, lesson size.")

# %% [markdown]
# Compare the heights at .45, then follow each line to the left. Now the same with five labels an image. Five labels make
# the *noise* of the counts smaller, but they do not move the edge: it is a matter of what the labels mean.

# %% tags=["hide-input"]
fig = two_curves(flippers, 5, "Dense labels: better, and the same edge", edge)
plots.described(fig, "Pairwise flippers, five labels an image. Grey: the mean matrix is not dominant. Committed run, lesson size.")

# %% [markdown]
# Hammer-spammers are dominant at every skill above 0, so nothing is shaded. Most lines sink slowly, since there is ever
# less information. The one that falls is MBEM as printed, by its prior and not by dominance. And with one label `gem`,
# whose matrices are the identity for ever, keeps up in accuracy all the same: uniform noise does not say which class to
# prefer, so ignoring it costs little. Its matrices are worthless.

# %% tags=["hide-input"]
fig = two_curves(spammers, 1, "Hammer-spammers, one label: a slope")
plots.described(fig, "Hammer-spammers, one label an image. Committed run, lesson size.")

# %% [markdown]
# Dense. Note the scale: all of them lie close together. Note also that `oracle` is no ceiling here. It knows the matrices,
# but its loss is the marginals of section 3, and knowing the people does not say how best to train on them.

# %% tags=["hide-input"]
fig = two_curves(spammers, 5, "Hammer-spammers, dense: little to choose")
plots.described(fig, "Hammer-spammers, five labels an image. Committed run, lesson size.")

# %% [markdown]
# ### The break is a basin
#
# What exactly is lost beyond the edge? Train the same model on the same labels twice: matrices started at the identity,
# and started at the truth. If the labels did not hold the answer, both would end in the same place. This is the training
# cell of the chapter: it checks that parameters and loss live on the device it names.

# %% tags=["training"]
edge_panels = {p: annotators.pairwise_flippers(5, 10, p, generator=seeded(3)) for p in (0.3, 0.25)}
edge_labels = {p: dense.with_labels(annotators.annotate(truth, B, per_item=1, generator=seeded(4))) for p, B in edge_panels.items()}
trio = [Trace(networks.mlp(196, 10, generator=seeded(0)), 5, 10) for _ in range(3)]  # .3, .25, .25 from the truth
with torch.no_grad():
    trio[2].cm.logits.copy_(confusion.log(0.999 * edge_panels[0.25] + 0.0001))
history = training.fit(trio, [edge_labels[p] for p in (0.3, 0.25, 0.25)], epochs=P.epochs, seeds=[0, 0, 0])
device = training.pick_device()
assert all(parameter.device.type == device.type for parameter in trio[0].parameters())
assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# Compare the last loss as well as the accuracy. Which of the two ends explains the labels better?

# %%
scores = [metrics.accuracy(training.predict(method, test_images), test_truth) for method in trio]
for name, score_, loss in zip((".30 from the identity", ".25 from the identity", ".25 from the truth"), scores, history.loss[-1]):
    print(f"{name:22s} accuracy {score_:.3f}, last loss {loss:.3f}")
if scores[2] < 0.7 or history.loss[-1, 2] > history.loss[-1, 1]:
    print("your run differed: in ours the start at the truth stayed there, and its loss was the lower one")

# %% [markdown]
# The panel at .30 is dominant by a hair only, and that does not make it safe: the theorem speaks of the lowest point, not of
# the way there. At .25 the truth is the *better* optimum although dominance is lost. The labels did hold the answer; the
# way downhill from the identity leads into another valley. So better data are one cure (more people, who share fewer
# flips). A better start is another: count the first matrices on items whose truth is known. How many items that takes we
# have not measured.
#
# The committed runs say the same over several draws:

# %% tags=["hide-input"]
broken = committed("break-point")
at = (0.2, 0.25, 0.3, 0.35)
lines = {
    name: np.stack([experiments.values(broken, method, "accuracy", skill=s, per_item=1) for s in at], 1)
    for name, method in (("oracle", "oracle"), ("from the identity", "trace"), ("from the truth", "trace_from_truth"))
}
fig = plots.curve(at, lines, title="Started at the truth, it stays there", xlabel="skill", ylabel="test accuracy", model="from the identity")
fig.axes[0].axvspan(at[0], edge, color="#BBBBBB", alpha=0.35, linewidth=0)
plots.described(fig, "Two starts of the same model, one label an image. Grey: not dominant. Committed run, lesson size.")

# %% [markdown]
# ### The mean matrix at the edge
#
# The paper's Fig. 4 shows the mean matrix at .3 and .25. Look for a cell off the diagonal that outgrows its row's
# diagonal: first in the truth, then in what was learned.

# %% tags=["hide-input"]
four = torch.stack([edge_panels[0.3].mean(0), trio[0].confusion().mean(0), edge_panels[0.25].mean(0), trio[1].confusion().mean(0)])
fig = plots.confusion_row(four, [".30, true mean", ".30, learned", ".25, true mean", ".25, learned"], title="The mean matrix on both sides of the edge")
plots.described(fig, f"Mean of five matrices, true and learned, one label an image. Size {training.size()}.")

# %% [markdown]
# ### What the knobs do
#
# Flippers at .35, one label. First EM's number of rounds, at one budget of epochs. The mends are not a matter of taste:

# %% tags=["hide-input"]
knobs = committed("sensitivity")
picked = {"annotators": "pairwise_flippers", "per_item": 1}
lines = {
    name: np.stack([experiments.values(knobs, f"{name}_{T}", "accuracy", **picked) for T in classes.ROUNDS], 1)
    for name in ("gem", "gem_net", "mbem", "mbem_uniform")
}
fig = plots.curve(classes.ROUNDS, lines, title="More rounds: good for some, death for MBEM", xlabel="rounds T", ylabel="test accuracy", model="mbem")
plots.described(fig, "Accuracy over rounds of EM at one budget of epochs; flippers at skill .35, one label. Committed run, lesson size.")

# %% [markdown]
# Then the trace's $\lambda$. The formula of section 3 supposes a perfect network; dense labels come close to that.

# %% tags=["hide-input"]
lams = [lam for lam in classes.LAMBDAS if lam <= 0.1]
measured = [experiments.values(knobs, f"trace_{lam:g}", "skill_mae", annotators="pairwise_flippers", per_item=5) for lam in lams]
formula = np.array([0.35 - shrunken(0.35, lam) for lam in lams])
fig = plots.curve(
    lams, {"measured": np.stack(measured, 1), "formula": formula}, log=True, model="measured",
    title="The price of lambda is known in advance", xlabel="lambda", ylabel="mean error of the skills",
)  # fmt: skip
plots.described(fig, "Mean absolute error of the learned skills over lambda, and exercise 3.3's formula; flippers at .35, dense. Committed run, lesson size.")

# %% [markdown]
# ### The joint likelihood, trained
#
# Dense hammer-spammers at skill .2 and $\lambda = 0$: the marginals against the joint likelihood of section 3.

# %% tags=["hide-input"]
dense_spammers = [row for row in committed("trace-spammers")["rows"] if row["setting"]["per_item"] == 5]
fig = plots.bars_with_spread(
    dense_spammers, "cm_error", ["trace", "no_trace", "joint"], model="joint",
    title="One logarithm for all labels of an image, and no trace is needed", xlabel="CM error, dense hammer-spammers",
)  # fmt: skip
plots.described(fig, "no trace and joint both have lambda 0; they differ in the order of sum and product. Committed run, lesson size.")

# %%
by_method = {m: np.array([row["metrics"]["cm_error"] for row in dense_spammers if row["method"] == m]) for m in ("no_trace", "joint")}
print({m: round(float(errors.mean()), 3) for m, errors in by_method.items()})
assert by_method["joint"].max() < 0.1 * by_method["no_trace"].min()

# %% [markdown]
# If your items have several labels each, use `Trace(..., joint=True)`. It is the likelihood that EM climbs, without EM.
#
# ## 6. Break it
#
# **Dominance lost.** The panel at skill .25: two of five share a flip, and 2/7 is above .25.

# %%
margin = confusion.dominance(edge_panels[0.25])
most = int(((edge_panels[0.25] > 0) & ~torch.eye(10, dtype=torch.bool)).sum(0).max())
print(f"{most} share a flip, margin {margin:+.3f}; accuracy {scores[1]:.3f} from the identity, {scores[2]:.3f} from the truth")
assert most >= 2 and margin < 0
assert scores[1] < scores[2] - 0.2

# %% [markdown]
# Would you have been warned? The library only sees the *learned* matrices. Ask it about the collapsed model, and about the
# one that sits at the truth:

# %%
for name, method in (("collapsed", trio[1]), ("at the truth", trio[2])):
    sentences = identifiability_warnings(edge_labels[0.25], method.confusion())
    print(f"{name}: learned margin {confusion.dominance(method.confusion()):+.3f}", *(sentences or ["no warning"]), sep="\n  ")

# %% [markdown]
# Read this with care. The model at the truth is warned about, and rightly: on such labels another start would have given
# another answer. The collapsed one may pass, if the valley it fell into happens to look dominant. A warning is a reason to
# look; silence is no proof.
#
# **MBEM with many rounds.** The counted prior feeds back. Count how many classes the network still names:

# %%
def classes_named(prior, T):
    method = MBEM(networks.mlp(196, 10, generator=seeded(0)), edge_labels[0.3], prior=prior)
    fit_em(method, edge_labels[0.3], rounds=T, epochs=max(P.epochs, T), progress=False)
    return len(training.predict(method, images).unique())


alive = {prior: [classes_named(prior, T) for T in P.rounds] for prior in ("counted", "uniform")}
print(f"rounds {P.rounds}: {alive}")
assert alive["counted"][-1] <= 6 < alive["uniform"][-1]

# %% tags=["hide-input"]
fig = plots.curve(list(P.rounds), alive, title="Popularity kills classes", xlabel="rounds T", ylabel="classes named", model="counted")
plots.described(fig, f"How many of ten classes MBEM's network still names, with the printed (counted) prior and the uniform one. Size {training.size()}.")

# %% [markdown]
# <details><summary>Two more ways to break it</summary>
#
# *GEM from wrong first matrices*: `first_from="network"` after one epoch only; the network knows nothing, and what it
# knows is counted. *The joint likelihood with people who copy each other*: give `dense` a sixth column that repeats the
# first. The joint likelihood counts the copy as a second witness.
#
# </details>
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} One E-step (★, 10 minutes)
# :label: ex-ch4-estep
#
# Exercise 4.1. Given the matrices `A` (R, L, L), the network's `p` (L,) of one image and what was `said` (R,), with -1
# where somebody did not speak, return q (L,).
# ```

# %% tags=["stub"]
def e_step(A, p, said):
    """(R, L, L), (L,), (R,) integers -> (L,)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Start with the prior, and let each annotator who spoke multiply it.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# {eq}`eq-ch4-estep`: one *row* of each matrix, then divide by the sum.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `q = p.clone()`; `for r, i in enumerate(said): if i != ?: q = q * A[?, ?]`; `return q / ?`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.e_step(e_step)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def e_step(A, p, said):
    """(R, L, L), (L,), (R,) integers -> (L,)."""
    q = p.clone()
    for r, i in enumerate(said):
        if i != -1:
            q = q * A[r, i]
    return q / q.sum()


checks.e_step(e_step)

# %% [markdown]
# **What you should see, and why.** With nobody speaking q is p: an image without a label is labelled by the network.
#
# ```{exercise} How many must share a flip? (★★, 10 minutes)
# :label: ex-ch4-sharers
#
# Exercise 4.2. `R` pairwise flippers have skill `p`. Return the smallest number k that breaks dominance (margin zero or
# less) if k of them share a flip. It may be larger than R: then it cannot be broken in this way.
# ```

# %% tags=["stub"]
def how_many(p, R):
    """number in (0, 1), integer -> integer."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Exercise 3.4 gave the margin. When is it not positive?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $p - (1 - p) k / R \le 0$, so $k \ge p R / (1 - p)$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `-int(-(? / ?) // 1)`, or `math.ceil`, or count k up in a loop.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.how_many(how_many)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def how_many(p, R):
    """number in (0, 1), integer -> integer."""
    k = 0
    while p - (1 - p) * k / R > 0:
        k += 1
    return k


checks.how_many(how_many)
print({p: how_many(p, 5) for p in (0.2, 0.25, 0.3, 0.35, 0.45, 0.55)})

# %% [markdown]
# **What you should see, and why.** It grows with R: in a large, mixed crowd it takes a large share of people with the same
# misconception. From .5 up no flip can break it, not even if all share it, but at .5 exactly all five can.
#
# ```{exercise} The contest: fool the model (★★★, 20 minutes)
# :label: ex-ch4-contest
#
# Exercise 4.3. Design five annotators of ten classes with a *mean skill of at least .5* that fool the model. `design()`
# returns A (5, 10, 10), columns sum to 1. The check trains the recipe of chapter 3 with a table in the place of the
# network and endless data, and scores how many classes it names wrong. Higher wins.
# ```

# %% tags=["stub"]
def design():
    """-> (5, 10, 10), A[r, said, truth]."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Five people with five different misconceptions correct each other. So do not let them.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# {eq}`eq-ch4-sharers` with k = R: dominance needs p > 1/2. But skill is a mean over classes: what you save in one class
# you can spend in another.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `d = torch.tensor([?] * 9 + [?])` is a diagonal with mean .5; `torch.diag(d) + torch.diag(1 - d).roll(1, 0)` sends the
# rest to the next class; `.repeat(5, 1, 1)` makes everybody agree.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.contest(design)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def design():
    """-> (5, 10, 10), A[r, said, truth]."""
    d = torch.tensor([0.45] * 9 + [0.95])  # mean .5
    return (torch.diag(d) + torch.diag(1 - d).roll(1, 0)).repeat(5, 1, 1)


checks.contest(design)

# %% [markdown]
# **What you should see, and why.** Half of what they say is right, and the model renames most classes. Nothing in the
# labels speaks against it: when everybody calls most 3s a 4, "4" is what a 3 is called. Can you do as much damage with
# five people who are *not* alike?
#
# ## 8. What the paper claims and what we measured
#
# The paper compares with GEM and MBEM in Fig. 3 and 9, shows the break in Fig. 4 and the knobs in Fig. 5; it prints
# curves, not numbers. So here are our differences, draw by draw paired, from the committed results.

# %% tags=["hide-input"]
one_label, five_labels = {"skill": 0.45, "per_item": 1}, {"skill": 0.45, "per_item": 5}
DIFFERENCES = (
    ("trace better than GEM as printed, one label", flippers, "trace", "gem", "accuracy", one_label),
    ("trace better than GEM, dense", flippers, "trace", "gem", "accuracy", five_labels),
    ("trace better than MBEM as printed, one label", flippers, "trace", "mbem", "accuracy", one_label),
    ("trace better than MBEM with the uniform prior, one label", flippers, "trace", "mbem_uniform", "accuracy", one_label),
    ("CM error of GEM larger than the trace's, one label", flippers, "gem", "trace", "cm_error", one_label),
    ("GEM differs from the plain network, one label", flippers, "gem", "vanilla", "accuracy", one_label),
    ("started at the truth better than at the identity, skill .25", broken, "trace_from_truth", "trace", "accuracy", {"skill": 0.25, "per_item": 1}),
)  # fmt: skip
lines = ["| statement | metric | difference [95 %] | draws |", "| --- | --- | --- | --- |"]
for statement, result, a, b, metric, where in DIFFERENCES:
    x = experiments.values(result, a, metric, **where) - experiments.values(result, b, metric, **where)
    mean, low, high = claims.interval(x)
    lines.append(f"| {statement} | {metric} | {mean:+.3f} [{low:+.3f}, {high:+.3f}] | {len(x)} |")
Markdown("\n".join(lines))

# %% [markdown]
# An interval above 0 bears the statement out, one across 0 leaves it open. Where claims of the paper about these runs are
# on file, here are their verdicts (`book/claims.yaml`):

# %% tags=["hide-input"]
ours = ("skill-", "break-point", "sensitivity", "trace-spammers")
judged = [claims.judge(claim) for claim in claims.claims("002") if claim.get("experiment", "").startswith(ours)]
lines = ["| claim | where | ours (difference, 95 %) | verdict |", "| --- | --- | --- | --- |"]
lines += [f"| {j.claim['claim']} | {j.claim['where']} | {j.ours} | **{j.verdict}** |" for j in judged]
Markdown("\n".join(lines))

# %% [markdown]
# Read it this way: against EM *as printed* a matrix trained by gradient is the safer choice with one label an image. Against
# EM with its two mends do not expect much. With several labels an image all who model people are close together.
#
# ## 9. Three questions
#
# <details><summary>1. GEM's network is trained on q, and q is better than the label. Why does that not help at one label an image?</summary>
#
# Because q is *not* better: with A = I it equals the label, whatever the network thinks. The E-step multiplies the network's
# opinion by zeros. One label an image and matrices that are not the identity: then q is better.
#
# </details>
#
# <details><summary>2. Your MBEM names seven of ten classes. How do you know that the other three exist?</summary>
#
# From the labels: annotators still use those names about as often as before. Compare how often each class is *said* with how
# often it is decided. A class that many say and the network never names has died.
#
# </details>
#
# <details><summary>3. You can pay for either four more labels of each image or for the truth of fifty images. Skill is .25. Which?</summary>
#
# More labels by the same people do not move the edge of dominance, so they cannot be the cure; known truths can, since a
# start near the truth stays there. Whether fifty are enough is a question for an experiment: try it with `count_matrices`
# on fifty items. Well above the edge, more labels are the safer purchase.
#
# </details>
#
# ## 10. Further reading, and errata found
#
# {cite:t}`dawid1979` is EM without images, {cite:t}`raykar2010` EM with a classifier, {cite:t}`khetan2018` MBEM and why one label
# an image can be the best use of a budget; {cite:t}`tanno2019`, appendix E, prints all three algorithms side by side.
#
# Errata found, each shown by a cell above: the first q of Algorithms 2 and 3 does not sum to 1 where labels are missing (section
# 3); Algorithm 2 is a fixed point at one label an image (section 3); Algorithm 3's prior feeds back (sections 3 and 6); the
# product of marginals in Eq. 2 is not the likelihood of labels that share one truth (sections 3 and 5); "skill .3" is on
# either side of the edge, depending on how many share a flip (section 3).
