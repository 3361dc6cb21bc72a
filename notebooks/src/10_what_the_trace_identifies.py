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
# # 10. What the trace can and cannot identify
#
# *Elective chapter.* Chapter 3 proved that the smallest trace is the truth's, for one matrix an annotator. Chapter 8 gives
# every pixel a matrix of its own, and its paper {cite:p}`zhang2020` states a theorem for that, too. Here we take the
# theorem apart: at one pixel the trace prefers *no* truth to any other. Then what does find the truth, in runs that work?
# The answer decides how much freedom you may give to the matrices.
#
# **You will be able to**
#
# - say what a theorem on identification compares, and find two explanations that it must tell apart;
# - prove that at one pixel the trace cannot do that, and check it with a linear programme;
# - average matrices of pixels without averaging in columns that nobody has seen;
# - choose how much a matrix may depend on, and notice without a truth that the choice went wrong.
#
# **You need to know** chapter 3 (row dominance, the lemma, the identity start) and what a mask is (chapter 7).
#
# **Time** about an hour and a half with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** digits in noise {cite:p}`lecun1998`, outlined by simulated annotators. They ship with the course.

# %%
try:
    import itertools
    import warnings

    import numpy as np
    import torch
    from IPython.display import Markdown
    from matplotlib.figure import Figure
    from scipy.optimize import linprog

    import course_lib.checks.identify as checks
    from course_lib import book, confusion, data, metrics, networks, plots, scenes, training
    from course_lib.annotations import Annotations
    from course_lib.diagnose import collapse_warnings
    from course_lib.experiments import claims
    from course_lib.mask_annotators import PANELS, draw_masks, target_columns
    from course_lib.methods.pixels import Pixels
    from course_lib.networks import seeded
    from course_lib.pixel_cms import EverywhereCM, PixelCM, PlaceCM, true_columns
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(10)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    images=(64, 576, 3600),  # pictures that the networks learn from
    tested=(20, 150, 1000),
    seeds=(1, 3, 5),
    epochs=(8, 6, 20),
    batch_size=(8, 32, 64),
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# One pixel, three classes. Many annotators have looked at it: half of them say 0, the others 1 or 2. What is the truth? The
# model answers with a pair: a belief $p$ and a mean matrix $A$. Here are three pairs.

# %%
q = torch.tensor([0.5, 0.3, 0.2])  # what is said of this pixel
A_true = torch.tensor([[0.5, 0.1, 0.1], [0.3, 0.8, 0.1], [0.2, 0.1, 0.8]])
A_other = torch.tensor([[0.55, 0.5, 0.5], [0.3, 0.35, 0.3], [0.15, 0.15, 0.2]])
A_unsure = torch.tensor([[0.55, 0.48, 0.47], [0.27, 0.35, 0.28], [0.18, 0.17, 0.25]])
pairs = {"truth 0": (A_true, torch.tensor([1.0, 0, 0])), "truth 2": (A_other, torch.tensor([0, 0, 1.0]))}
pairs["no idea"] = (A_unsure, torch.full((3,), 1 / 3))
for name, (A, p) in pairs.items():
    margin, trace = confusion.dominance(A[None]), confusion.trace(A)
    print(f"{name:>8}: p {p.numpy().round(2)}, A p {(A @ p).numpy().round(2)}, row margin {margin:+.2f}, trace {trace:.2f}")
    assert torch.allclose(A @ p, q, atol=1e-5) and margin > 0 and p.min() > -1e-6

# %% tags=["hide-input"]
fig = Figure(figsize=(5, 5), layout="constrained")
fig.suptitle("Three explanations of one pixel", x=0.01, ha="left", weight="bold")
for column, (name, (A, p)) in zip(fig.subplots(3, 3, height_ratios=(2.6, 1, 1)).T, pairs.items()):
    plots.confusion_matrix(A, column[0], title=f"{name}\ntrace {confusion.trace(A):.2f}")
    column[1].bar(range(3), p, color=plots.MODEL)
    column[2].bar(range(3), A @ p, color=plots.ANNOTATORS[0], hatch="//", edgecolor="white")
    for ax, what in zip(column[1:], ("p", "A p")):
        ax.set(ylim=(0, 1.05), xticks=range(3), yticks=(0, 1), ylabel=what)
        ax.spines[["top", "right"]].set_visible(False)
plots.described(
    fig,
    "Above: mean matrices, each with its trace. Middle: the belief p. Below: A p, what is said of this pixel, three times the same.",
    "Three columns. A matrix with a strong diagonal, trace 2.10, and p all on class 0; a matrix with nearly equal columns, "
    "trace 1.10, and p all on class 2; another, trace 1.15, and a uniform p. Below each the same bars: .5, .3, .2.",
)

# %% [markdown]
# All three give every label the same probability, and each is row dominant, as the theorem of chapter 3 wants. Now look
# at the traces. If the first is the truth, then the trace prefers both wrong ones.
#
# ## 2. Predict
#
# Write down your guesses before you go on.
#
# 1. Take this pixel, and for each class $k$ the smallest trace with which "the truth is $k$" explains it, over row
#    dominant matrices. For which class is it smallest?
# 2. Models learn from the same masks, in which people err on one side of the picture: one matrix an annotator
#    everywhere, one for each place, one for each pixel of each picture. Which explains the labels best? Which finds the
#    truth best?
# 3. If the matrices start near $1/L$ in the place of the identity, which of the two suffers, the labels or the truth?
#
# ## 3. The maths
#
# ### What is claimed
#
# At one pixel of one picture let $p$ be the network's belief, $\hat A^{(r)}$ the matrices there, and $\bar{\hat A}$ their
# mean over annotators, weighted by who labels the picture. Theorem 1 in section 3.4 of {cite:t}`zhang2020` (Theorem 2 in
# appendix B) says: let the true class be $k$; let the model say of this pixel just what the annotators say,
# $\hat A^{(r)} p = A^{(r)} e_k$ for all $r$; let the true and the estimated mean matrix be row dominant. Then the true
# matrices minimise the mean trace, and the solution is unique in column $k$.
#
# The proof in the appendix uses chapter 3's {prf:ref}`lem-trace`: $\hat A P = A$. There $P$ is a *matrix* over classes, column
# $j$ for what the network answers where the truth is $j$, and one $\hat A$ is shared by all images. At one pixel there is one
# truth, one answer, and $p$ is one *vector*. The lemma has nothing to say.
#
# ### What is true
#
# ```{prf:theorem} At one pixel the trace does not see the truth
# :label: thm-pixel
#
# Let $\bar A$ be column-stochastic and row dominant, $a_{ii} \ge a_{ij}$, and let $\bar A p = q$ with a probability vector
# $p$. Then $a_{ii} \ge q_i$, so $\operatorname{tr} \bar A \ge 1$, whatever $p$ is. If all $q_i > 0$, then for *every* $p$
# there are strictly dominant matrices with traces as near to 1 as one likes. With strict dominance, 1 is never attained.
# ```
#
# ```{prf:proof}
# $q_i = \sum_j a_{ij} p_j \le a_{ii} \sum_j p_j = a_{ii}$; sum over $i$. For the second part, start from
# $q \mathbf 1^\top$, whose columns are all $q$: it gives $q$ for every $p$, and its trace is 1, but its rows are level. A
# little more on the diagonal, taken away so that $\bar A p = q$ still holds, makes it strictly dominant: exercise 10.2.
# Third, with a lead of $\varepsilon$ in every row, $q_i \le a_{ii} - \varepsilon (1 - p_i)$, and so
# $\operatorname{tr} \bar A \ge 1 + \varepsilon (L - 1)$.
# ```
#
# The truth is such a pair as well, with $p = e_k$. It is strictly dominant, so its trace lies *above* 1, and there is
# always a wrong pair below. Hence:
#
# - the true matrices are *never* the minimiser, and there is no minimiser;
# - all $p$ have the same infimum, so the trace does not even prefer the right class;
# - what the infimum looks like is $q \mathbf 1^\top$: all columns equal, annotators who do not look at the truth.
#
# <details><summary>And the column that is said to be unique?</summary>
#
# If you *know* that $p = e_k$, then $\hat A^{(r)} e_k = A^{(r)} e_k$ is column $k$, read off the labels. It needs no trace. If
# you put $e_l$ in its place, column $l$ gets the same numbers. The question was which column, and the theorem assumes it.
#
# </details>
#
# With two classes it can be said in a line: $\operatorname{tr} A = 1 + (a_{11} - a_{10})$. The trace minus 1 *is* how far the
# columns differ, that is, how much a label says of the truth. Making the trace small makes the labels worthless as
# evidence, down to the point where $p$ may be anything.
#
# Why does chapter 3 escape? There the same $\hat A$ must explain pixels of all classes at once. With one matrix and two
# pixels whose labels differ, $q \neq q'$, equal columns are impossible. *Sharing* identifies; the trace only selects among
# what sharing has left.

# %% [markdown]
# ## 4. From scratch
#
# ### The smallest trace as a linear programme
#
# The trace is linear in the entries of $A$, and so are all conditions: $A p = q$, columns that sum to 1, rows led by the
# diagonal by a margin. A solver for linear programmes then finds the *global* minimum; no network, no luck. We write it for any
# number of pixels that share a matrix: the columns of `P` are their beliefs, those of `Q` what is said of them.

# %%
def least_trace(P, Q, margin=0.0, dominant=True):
    """P, Q (L, N) -> the smallest trace of an A with A P = Q, and that A (L, L); (nan, None) if there is no such A."""
    P, Q = (M / M.sum(0) for M in (np.asarray(P, float), np.asarray(Q, float)))  # 32 bits sum to 1 only nearly
    L, one = len(P), np.eye(len(P) ** 2).reshape(len(P), len(P), -1)  # one[i, j] picks a_ij out of A.flatten()
    says = np.kron(np.eye(L), P.T)  # (L N, L L): row i of A times each p
    sums = one.sum(0)  # (L, L L): down each column
    follows = np.stack([one[i, j] - one[i, i] for i in range(L) for j in range(L) if i != j])  # at most -margin
    found = linprog(
        np.eye(L).flatten(), A_eq=np.vstack([says, sums]), b_eq=np.append(Q.flatten(), np.ones(L)), bounds=(0, 1),
        A_ub=follows if dominant else None, b_ub=np.full(len(follows), -margin) if dominant else None,
    )  # fmt: skip
    return (found.fun, found.x.reshape(L, L)) if found.status == 0 else (np.nan, None)


# %% [markdown]
# Now guess 1. One pixel, a lead of .01 in each row, two to four classes, random $q$; and in the place of the truth every
# class in turn, then the uniform $p$, then $p = q$.

# %%
eps = 0.01
for L in (2, 3, 4):
    found = []
    for draw in range(5):
        said = torch.rand(L, generator=seeded(10 * L + draw)) + 0.1
        said = said / said.sum()
        beliefs = [*torch.eye(L), torch.full((L,), 1 / L), said]
        found += [least_trace(p[:, None], said[:, None], eps)[0] for p in beliefs]
    print(f"L = {L}: {len(found)} programmes, smallest traces from {min(found):.4f} to {max(found):.4f}; 1 + eps (L - 1) = {1 + eps * (L - 1):.4f}")
    assert np.allclose(found, 1 + eps * (L - 1), atol=1e-5)

# %% [markdown]
# Not one class, nor any draw, is preferred to another. This is the cell that disproves the theorem.
#
# ### One matrix, many pixels
#
# Thirty pixels, ten of each class, and one matrix for all. We name their classes in all six possible ways, and ask for
# the smallest trace:

# %%
classes = torch.arange(3).repeat(10)
heard = A_true[:, classes]  # (L, N): what is said of each pixel
for names in itertools.permutations(range(3)):
    trace, _ = least_trace(torch.eye(3)[:, list(names)][:, classes], heard)
    print(f"classes 0, 1, 2 called {names}: " + ("no row dominant matrix explains it" if np.isnan(trace) else f"trace {trace:.3f}"))
    assert np.isnan(trace) == (names != (0, 1, 2))
print(f"trace of the true matrix {confusion.trace(A_true):.3f}")

# %% [markdown]
# Only the true naming is left. It is dominance and sharing that exclude the others; so far the trace had no work to do. It
# has when the network hesitates. Let each $p$ give a share of its belief away, equally to all classes:

# %%
shares = torch.linspace(0, 0.24, 13)
mixed = [(1 - s) * torch.eye(3) + s / 3 for s in shares]  # (L, L): column j is p where the truth is j
shared = torch.tensor([least_trace(M[:, classes], heard)[0] for M in mixed])
alone = torch.tensor([least_trace(M[:, :1], q[:, None])[0] for M in mixed])
assert shared.diff().min() > 0 and abs(float(shared[0]) - float(confusion.trace(A_true))) < 1e-5
assert (alone - 1).abs().max() < 1e-5

# %% tags=["hide-input"]
fig = plots.curve(
    shares, {"30 pixels": shared, "1 pixel": alone}, model="30 pixels", xlabel="share of the belief that is given away", ylabel="smallest trace",
    title="Shared, the trace wants a network that is sure; alone, it wants nothing",
)  # fmt: skip
plots.described(fig, "The smallest trace with which labels are explained. All 30 pixels share one matrix, or one pixel has its own.")

# %% [markdown]
# That is the lemma: a shared matrix has its smallest trace where $P = I$. For one pixel the curve is flat.
#
# ### And without dominance?
#
# Nothing in the loss demands dominance. Leave it out:

# %%
for k in range(3):
    trace, _ = least_trace(torch.eye(3)[:, [k]], q[:, None], dominant=False)
    print(f"truth {k}, said by {q[k]:.0%}: smallest trace {trace:.2f}")
    assert abs(trace - q[k]) < 1e-6

# %% [markdown]
# Now the trace has a preference: for the class that is said *least*. That is the direction of its pull in a real loss. The
# identity start holds against it, for a while and for small $\lambda$ (section 6).
#
# ### Which column learns?
#
# A pixel has one true class. If the network is sure of it, the likelihood reads *one* column of this pixel's matrix. Three
# pixels, one of each class, each with its own matrix, which start near the identity and learn from very many labels:

# %%
A3 = torch.tensor([[0.8, 0.2, 0.1], [0.15, 0.7, 0.3], [0.05, 0.1, 0.6]])
start = (3.0 * torch.eye(3)).repeat(3, 1, 1)  # logits (N, L, L)
each = torch.arange(3)  # pixel n has class n


def pixel_loss(logits, lam):
    A = logits.softmax(1)
    read = A[each, :, each]  # (N, L): the column of the pixel's class
    return -(A3.T * read.log()).sum() + lam * confusion.trace(A).sum()


logits = start.clone().requires_grad_()
(gradient,) = torch.autograd.grad(pixel_loss(logits, 0.0), logits)  # (N, L, L)
print("size of the gradient, pixel by column:")
print(gradient.abs().sum(1).numpy().round(2))
assert (gradient.abs().sum(1)[~torch.eye(3, dtype=torch.bool)] == 0).all()

# %% [markdown]
# Off the diagonal it is zero, not small. The other columns hear of the trace alone, and drift where it pulls them. Train,
# with $\lambda = .01$:

# %%
optimiser = torch.optim.Adam([logits], lr=0.2)
for _ in range(200):
    optimiser.zero_grad()
    pixel_loss(logits, 0.01).backward()
    optimiser.step()
learned = logits.detach().softmax(1)  # (N, L, L)
own, diagonals = learned[each, :, each].T, learned.diagonal(dim1=1, dim2=2)  # (L, L), (N, L)
drifted = diagonals[~torch.eye(3, dtype=torch.bool)]
print(f"diagonals of unread columns: at most {drifted.max():.3f}, and 1 / L would be {1 / 3:.3f}")
assert drifted.max() < 0.05

# %% [markdown]
# The paper has them at $1/L$ "uniformly"; in fact they go to 0. This matters as soon as you report a matrix. The plain mean
# over pixels averages read columns with drifted ones. Take column $j$ over pixels of class $j$ only:

# %% tags=["hide-input"]
plain = learned.mean(0)
fig = plots.confusion_row(torch.stack([A3, plain, own]), ["true", "plain mean", "by class"], title="Average a column where it was read")
plots.described(fig, "The true matrix, the mean of the three pixels' matrices, and each column from the pixel of its class.")

# %%
rmse = lambda A: float(((A - A3) ** 2).mean().sqrt())  # noqa: E731
print(f"root mean square error: plain mean {rmse(plain):.3f}, by class {rmse(own):.4f}")
assert rmse(plain) > 0.2 and rmse(own) < 0.02

# %% [markdown]
# With real masks nobody knows the class. Then use the network's decisions, and say so; or show a matrix where $p$ is sure.
# `metrics.cm_rmse` compares the column of the true class, pixel by pixel, and no other.
#
# ## 5. The experiment
#
# At one pixel nothing is identified, and yet such networks do find masks. What does it for them is what pixels *share*. There are two
# bonds: the network has the same weights at all pixels, so it cannot believe just anything; and the matrices may be the
# same at many pixels. The second is ours to choose. The panel is `by_place`: two annotators draw well on the left and too
# wide on the right, three see nothing on the left and draw well on the right.

# %%
digits = data.split(data.mnist5k())
train = scenes.digits(digits.train.take(torch.arange(P.images)), generator=seeded(10))
test = scenes.digits(digits.test.take(torch.arange(P.tested)), generator=seeded(13))
panel = PANELS["by_place"]
drawn = {k: draw_masks(train.truth, train.images, panel, n_classes=2, generator=seeded(20 + k)) for k in range(P.seeds)}
crowds = {k: Annotations(train.images, masks, n_classes=2) for k, masks in drawn.items()}
print(f"{P.images} pictures, {drawn[0].shape[1]} masks each, {P.seeds} draw(s) of the masks")

# %% [markdown]
# Three rungs of freedom, the same network, labels and order for each. All start at .9 on the diagonal. The loss of
# chapter 3 scores each label on its own, so it knows how often each annotator says what, and not who *agrees* with whom.
# Therefore two further runs, with one matrix everywhere and with one for each place, score all labels of a pixel together:
#
# $$
# -\log \sum_j p_j \prod_r A^{(r)}_{\tilde y^{(r)},\, j} .
# $$ (eq-ch10-joint)
#
# This is the training cell of the chapter; it checks that parameters and loss live on the device it names.

# %% tags=["training"]
RUNGS = {
    "everywhere": lambda g: EverywhereCM(5, 2),  # 5 matrices in all
    "place": lambda g: PlaceCM(5, 2, generator=g),  # a function of the coordinates
    "pixel": lambda g: PixelCM(5, 2, 8, generator=g),  # a function of the picture and the coordinates
    "everywhere_joint": lambda g: EverywhereCM(5, 2),  # as everywhere, but labels of a pixel are scored together
    "place_joint": lambda g: PlaceCM(5, 2, generator=g),  # as place, the same
}


def trained(k, cm, lam=0.01, joint=False):
    """The network and matrices of seed k, and how training went; warnings wait until we ask for them."""
    net = Pixels(networks.unet(1, 2, generator=seeded(k)), cm, lam=lam, joint=joint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return net, training.fit(net, crowds[k], epochs=P.epochs, batch_size=P.batch_size, lr=1e-2, seeds=k, progress=False)


device, nets = training.pick_device(), {}
for (name, rung), k in itertools.product(RUNGS.items(), range(P.seeds)):
    nets[name, k], history = trained(k, rung(seeded(77 + k)), joint=name.endswith("joint"))
    assert all(parameter.device.type == device.type for parameter in nets[name, k].parameters())
    assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# Unseen pictures, masks that were not trained on. We ask each model four things: the Dice of its truth; how well it
# explains labels (mean $-\log$ likelihood, needs no truth); how far its matrices are off in the true class's column; and what
# the library's guard says, which sees no truth either.

# %%
said = draw_masks(test.truth, test.images, panel, n_classes=2, generator=seeded(40))
target = target_columns(test.truth, test.images, panel, n_classes=2, draws=16, generator=seeded(41))


@torch.no_grad()
def asked(net):
    """Scores of one model, and its warnings."""
    x = test.images.to(device)
    log_p, log_A = net.eval().log_p(x).cpu(), net.log_A(x).cpu()
    return {
        "dice": metrics.dice(log_p.argmax(1), test.truth, empty=1.0).foreground,
        "label nll": -float(confusion.label_log_likelihood(log_A, log_p, said).mean()),
        "cm rmse": metrics.cm_rmse(true_columns(log_A, test.truth), target, test.truth),
        "trace": float(confusion.trace(log_A.exp().movedim((2, 3), (-2, -1))).mean()),
    }, collapse_warnings(log_p, log_A, said)


answers = {key: asked(net) for key, net in nets.items()}

# %% tags=["hide-input"]
mean = lambda name, what: np.mean([answers[name, k][0][what] for k in range(P.seeds)])  # noqa: E731
columns = ["dice", "label nll", "cm rmse", "trace"]
lines = ["| matrix | Dice by seed | " + " | ".join(columns) + " | warned |", "| --- |" * 2 + " --- |" * 5]
for name in RUNGS:
    by_seed = ", ".join(f"{answers[name, k][0]['dice']:.2f}" for k in range(P.seeds))
    warned = sum(bool(answers[name, k][1]) for k in range(P.seeds))
    lines.append(f"| {name.replace('_', ', ')} | {by_seed} | " + " | ".join(f"{mean(name, c):.3f}" for c in columns) + f" | {warned} of {P.seeds} |")
Markdown("\n".join(lines).replace("| --- || --- |", "| --- | --- |"))

# %% [markdown]
# Fit against truth, a mark for each run:

# %% tags=["hide-input"]
fig = Figure(figsize=(5, 3.6), layout="constrained")
fig.suptitle("Better explained is not better known", x=0.01, ha="left", weight="bold")
ax = fig.subplots()
for r, name in enumerate(RUNGS):
    points = [answers[name, k][0] for k in range(P.seeds)]
    look = {"color": plots.ANNOTATORS[r], "marker": plots.MARKERS[r], "markersize": 9, "markeredgecolor": "#222222"}
    x, y = ([point[what] for point in points] for what in ("label nll", "dice"))
    ax.plot(x, y, linestyle="none", label=name.replace("_", ", "), **look)
ax.set(xlabel="mean - log likelihood of a label (left: explained better)", ylabel="Dice of the truth", ylim=(-0.05, 1))
ax.spines[["top", "right"]].set_visible(False)
fig.legend(loc="outside lower left", ncols=4, frameon=False, handletextpad=0.1, columnspacing=1)
plots.described(
    fig,
    f"A mark is a draw of the masks and of the first weights. Unseen pictures, size {training.size()}.",
    "; ".join(f"{name}: Dice {mean(name, 'dice'):.2f} at {mean(name, 'label nll'):.2f} in the mean" for name in RUNGS) + ".",
)

# %% [markdown]
# The same digit, as each model of the first seed has it:

# %% tags=["hide-input"]
found = torch.stack([training.predict(nets[name, 0], test.images[:8])[4] for name in RUNGS])  # (5, H, W)
vote = (said[4].float().mean(0) > 0.5).long()
fig = plots.masks(torch.cat([found, vote[None]]), test.truth[4], [*(name.replace("_", ", ") for name in RUNGS), "vote"], image=test.images[4, 0], title="One digit, five beliefs, and the vote")
plots.described(fig, f"White is right, blue was missed, orange is too much. Panel by_place, size {training.size()}.")

# %% [markdown]
# One matrix everywhere has too little freedom: it cannot say *where* somebody sees nothing, so it takes the few marks on
# the left for slips. A matrix for each pixel has too much. It explains labels best, and yet half of its truth is lost, or
# swollen. Its smaller trace says why: with two classes that means columns that differ less, and evidence that says less.
# It is on its way to the infimum of {prf:ref}`thm-pixel`, held back by its start and by the weights that pixels share.
#
# A matrix for each place can be right: that is how these people err. But scored label by label it is not. And one matrix
# everywhere, scored together, is not either: agreement does not help a model that cannot say what happened. It takes
# both: the right freedom, and who agrees with whom, which is evidence that no renaming can fake.


# %%
def outcome(sentence, seen):
    print(f"{'seen' if seen else 'your run differed'}: {sentence}")


dices = {name: [answers[name, k][0]["dice"] for k in range(P.seeds)] for name in RUNGS}
others = max(max(dices[name]) for name in RUNGS if name != "place_joint")
outcome("neither the right freedom nor agreement is enough alone", others < 0.8)
outcome("place, scored together, is ahead of all others at every seed", min(dices["place_joint"]) > others + 0.02)
outcome("the pixel's matrices have the smaller trace", mean("pixel", "trace") < mean("place_joint", "trace"))

# %% [markdown]
# And what does `place, joint` know of the annotators? Nobody told it that there is a left and a right half:

# %% tags=["hide-input"]
with torch.no_grad():
    by_place = nets["place_joint", 0].log_A(test.images[:1].to(device)).exp()[0].cpu()  # (R, L, L, H, W)
fig = Figure(figsize=(5, 3.1), layout="constrained")
fig.suptitle("Learned: whom to trust, and where", x=0.01, ha="left", weight="bold")
for k, (row, what) in zip((1, 0), zip(fig.subplots(2, 5), ("sensitivity", "specificity"))):
    for r, ax in enumerate(row):
        shade = ax.imshow(by_place[r, k, k], cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
        ax.set(title=f"no. {r + 1}" if k == 1 else "", ylabel=what if r == 0 else "", xticks=[], yticks=[])
fig.colorbar(shade, ax=fig.axes, location="bottom", ticks=[0, 0.5, 1], label="as the model place, joint believes")
plots.described(
    fig,
    f"Diagonals of the learned matrices over the picture, first seed, size {training.size()}.",
    "Two rows of five small maps. Sensitivity: annotators 1 and 2 bright, 3 to 5 dark on the left and bright on the right. "
    "Specificity: 1 and 2 lower on the right, 3 to 5 bright.",
)  # fmt: skip

# %% [markdown]
# So four things identify the truth in practice, and the trace is not among them:
#
# | what | why | if it is missing |
# | --- | --- | --- |
# | sharing: weights over pixels, a matrix over many places | rules out equal columns | {prf:ref}`thm-pixel` |
# | the start at the identity | says which class is which | section 6 |
# | the right rung: no more freedom than the annotators have | less to hide the truth in | the table above |
# | agreement, where several label a pixel | independent people agree on the truth | `place` without it |
#
# ## 6. Break it
#
# ### No identity start
#
# Let the matrices for each pixel start just above $1/L$, with small random weights, and leave the trace out. All else is as before:

# %%
blind = {}
for k in range(P.seeds):
    cm = PixelCM(5, 2, 8, start=0.501, generator=seeded(77 + k))
    torch.nn.init.normal_(cm.last.weight, std=0.3, generator=seeded(90 + k))
    blind[k] = asked(trained(k, cm, lam=0.0)[0])
for k, (scores, warned) in blind.items():
    print(f"seed {k}: labels {scores['label nll']:.3f}, Dice {scores['dice']:.2f}; {len(warned)} warning(s)")
fit = np.mean([scores["label nll"] for scores, _ in blind.values()])
outcome(f"labels are explained ({fit:.3f}) about as well as by `pixel` above ({mean('pixel', 'label nll'):.3f})", fit < mean("pixel", "label nll") + 0.05)
outcome("and yet the truth is lost", all(scores["dice"] < 0.5 for scores, _ in blind.values()))
print(f"the guard warned in {sum(bool(found) for _, found in blind.values())} of {len(blind)}")

# %% [markdown]
# The fit gives nothing away. With symmetric matrices nothing says which class is which, nor that there should be two: the
# matrices take over what the network was to learn, and "all foreground" or "all background" is as good a truth as any.
#
# ### Too much trace
#
# The same matrices with their proper start, and $\lambda = .4$, a value that the paper tries, too:

# %%
heavy, warned = asked(trained(0, RUNGS["pixel"](seeded(77)), lam=0.4)[0])
print(f"trace {heavy['trace']:.2f}, Dice {heavy['dice']:.2f}, labels {heavy['label nll']:.3f}")
for sentence in [*warned, *(s for _, found in blind.values() for s in found)][:3]:
    print("-", sentence)

# %% [markdown]
# The warnings need no truth. They compare the predicted foreground with what annotators mark, and the columns with each
# other. They catch most runs that went wrong, not all: silence is no proof.
#
# ### Equal columns
#
# The end of the road: $A = q \mathbf 1^\top$, a matrix of rank one. What do labels then tell the network?

# %%
z = torch.randn(6, 3, generator=seeded(3), requires_grad=True)  # six pixels
rank_one = q[:, None].repeat(1, 3)  # (L, L)
labels = torch.tensor([[0], [1], [2], [0], [0], [1]])
(-confusion.label_log_likelihood(rank_one.log()[None, None], z.log_softmax(1), labels).sum()).backward()
print(f"largest gradient of the likelihood to the network: {z.grad.abs().max():.1e}")
assert z.grad.abs().max() < 1e-6

# %% [markdown]
# Nothing: $A p = q$ for every $p$. A low-rank matrix of rank one, once its columns are divided by their sums, *is* this
# matrix. That is why the library's `LowRankCM` keeps an identity in the sum. And with two equal columns among several, the
# labels know only the *sum* of those two classes.
#
# ### A row where a column is meant
#
# A footnote of the paper says when a vote is right: each diagonal entry exceeds the sum of the others in its row. A vote
# compares the entries of a *column*, what is said of one class:

# %%
split = torch.eye(3)
split[:, 0] = torch.tensor([0.3, 0.35, 0.35])  # of class 0, three words are said nearly alike
assert (2 * split.diagonal() > split.sum(1)).all() and split[:, 0].argmax() != 0
print(f"rows: diagonal {split.diagonal().tolist()}, others {(split.sum(1) - split.diagonal()).tolist()}; a large vote on class 0 says {split[:, 0].argmax()}")

# %% [markdown]
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} If the other columns were uniform (★, 10 minutes)
# :label: ex-ch10-uniform
#
# Exercise 10.1. Suppose, as the paper does, that at a pixel of class $k$ the mean matrix has column $k$ equal to `q` and
# $1/L$ everywhere else. For which $k$ does the diagonal lead every row, $a_{ii} \ge a_{ij}$? Return (L,), True where it does.
# ```

# %% tags=["stub"]
def uniform_rest(q):
    """(L,) -> (L,) of True and False."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Write the matrix for L = 3 and k = 0 on paper. What stands in row 1, and which of its entries is on the diagonal?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Row $k$: $q_k \ge 1/L$. Row $i \neq k$: the diagonal has $1/L$, column $k$ has $q_i$, so $q_i \le 1/L$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# Build it for each k: `A = torch.full((L, L), 1 / L)`, `A[:, k] = q`, then `(A.diagonal()[:, None] >= A).all()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.uniform_rest(uniform_rest)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def uniform_rest(q):
    """(L,) -> (L,) of True and False."""
    L, leads = len(q), []
    for k in range(L):
        A = torch.full((L, L), 1 / L)
        A[:, k] = q
        leads.append(bool((A.diagonal()[:, None] >= A).all()))
    return torch.tensor(leads)


checks.uniform_rest(uniform_rest)

# %% [markdown]
# **What you should see, and why.** With two classes exactly one $k$ is left, the majority: on that reading the theorem is a
# vote at each pixel, and can never be better than one. With three, two classes above 1/3 leave no $k$ at all.
#
# ```{exercise} The impostor (★★, 20 minutes)
# :label: ex-ch10-impostor
#
# Exercise 10.2. The missing part of the proof of {prf:ref}`thm-pixel`. Given `q`, *any* `p` and a small `eps`, return a
# column-stochastic $A$ with $A p = q$, $a_{ii} \ge a_{ij} + \varepsilon$ for all $j \neq i$, and the trace
# $1 + \varepsilon (L - 1)$. (You may take `eps` to be smaller than every entry of `q`.)
# ```

# %% tags=["stub"]
def impostor(q, p, eps):
    """(L,), (L,), number -> (L, L)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# $q \mathbf 1^\top$ has it all but the lead. What may you add without changing $A p$ and the sums of columns?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Add $\varepsilon (I - p \mathbf 1^\top)$: times $p$ it is $p - p = 0$, and each of its columns sums to $1 - 1 = 0$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `q[:, None]` broadcasts over columns, and so does `p[:, None]`: `q[:, None] + eps * (? - ?)`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.impostor(impostor)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def impostor(q, p, eps):
    """(L,), (L,), number -> (L, L)."""
    return q[:, None] + eps * (torch.eye(len(q)) - p[:, None])


checks.impostor(impostor)
for k in range(3):
    A = impostor(q, torch.eye(3)[k], 0.01)
    print(f"truth {k}: A p = {(A @ torch.eye(3)[k]).numpy().round(2)}, trace {confusion.trace(A):.3f}")

# %% [markdown]
# **What you should see, and why.** Three truths, one and the same trace, every label equally probable. In row $i$ the added
# part is $\varepsilon (1 - p_i)$ on the diagonal and $-\varepsilon p_i$ elsewhere: a lead of just $\varepsilon$.
#
# ```{exercise} Average a column where it was read (★★, 10 minutes)
# :label: ex-ch10-mean
#
# Exercise 10.3. `A` (N, L, L) holds a matrix for each of N pixels, `truth` (N,) their classes. Return the matrix (L, L)
# whose column $j$ is the mean of columns $j$ over the pixels of class $j$. Every class occurs.
# ```

# %% tags=["stub"]
def per_class(A, truth):
    """(N, L, L), (N,) -> (L, L)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# One class at a time: which pixels, and which of their entries?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\bar a_{ij} = \frac{1}{N_j} \sum_{n:\, y_n = j} A_{n i j}$, with $N_j$ pixels of class $j$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `torch.stack([A[truth == j][:, :, ?].mean(?) for j in range(A.shape[1])], ?)`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.per_class(per_class)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def per_class(A, truth):
    """(N, L, L), (N,) -> (L, L)."""
    return torch.stack([A[truth == j][:, :, j].mean(0) for j in range(A.shape[1])], 1)


checks.per_class(per_class)

# %% [markdown]
# **What you should see, and why.** A matrix whose columns sum to 1, though no pixel has all of it. Ask the same of the plain
# mean, and it sums to 1, too: a wrong average has no mark on it.
#
# ## 8. What the paper claims and what we measured
#
# Drawn from `book/claims.yaml` and the committed results, never typed. The theorem itself needs no rows here: section 4
# asserts that it fails.

# %% tags=["hide-input"]
Markdown(claims.table("000", experiment="ladder-missing"))

# %% [markdown]
# Read such rows with section 5 in mind. A better matrix of a pixel, and a better explanation of labels, are real gains;
# they are not the same as a better truth.
#
# ## 9. Three questions
#
# <details><summary>1. Your model explains labels better with each bit of freedom you add. Why not go on?</summary>
#
# Because the likelihood of labels cannot tell a truth from an impostor; section 1 has three with the same likelihood.
# Held-out labels guard against overfitting, not against that.
#
# </details>
#
# <details><summary>2. You know the true class at 200 pixels. What would you do with them?</summary>
#
# Train on them: a few pixels whose truth is known break the tie between names, as the identity start does, but with
# evidence. And keep some to measure with.
#
# </details>
#
# <details><summary>3. Three annotators each label every pixel, and err independently given the truth. Does that help?</summary>
#
# Yes, if their matrices are shared by many pixels: how often which of them agree tells the matrices up to names of the
# classes {cite:p}`allman2009`. A loss that scores each label on its own does not look at agreement; {eq}`eq-ch10-joint`
# does. At a single pixel with matrices of its own, three labels are three numbers, and nothing is identified. And if they
# err together, agreement misleads (chapter 7).
#
# </details>
#
# ## 10. Further reading, and errata found
#
# - The theorem and its appendix: {cite:t}`zhang2020`; the lemma, where it holds: {cite:t}`tanno2019`.
# - The trace for one noisy source of labels: {cite:t}`sukhbaatar2014`.
# - When hidden classes can be found out from several views: {cite:t}`allman2009`.
#
# **Errata** in {cite:t}`zhang2020`, as a draft, the first two asserted by cells above.
#
# - Theorem 1 (2 in the appendix) does not hold. Under its conditions the infimum of the trace is 1 for every class in the
#   place of the truth, it is not attained, and the true matrices lie above it (section 4). The proof uses a lemma in which
#   one matrix is shared by all classes.
# - "The remaining values are uniformly $1/L$": a column that is not read feels the trace alone, and its diagonal goes to 0
#   (section 4). If it were so, the theorem would be a vote (exercise 10.1).
# - Footnote 1: for the vote to be right, each diagonal entry should exceed the sum of the others in its *row*. With
#   $A_{ij}$ the probability to say $i$ of class $j$, a vote compares the entries of a *column*: with column 0 equal to
#   $(.3, .35, .35)$ and the identity elsewhere the footnote is content, and the vote on class 0 is wrong.
