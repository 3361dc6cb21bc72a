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
# # 3. The trace: truth and annotators together
#
# *Core chapter.* Chapter 1 left us with a vote, and a vote needs several labels an image. Here a network and the
# annotators' matrices are learned together, from one label an image, without ever seeing a truth. The idea is one extra
# term in the loss {cite:p}`tanno2019`. We use it first, then find out why it works, and where it does not.
#
# **You will be able to**
#
# - train a network and one confusion matrix an annotator from raw labels, with a recipe that works;
# - say why the likelihood alone cannot tell the truth from a renaming of it;
# - prove what the trace adds, and name the condition that the proof needs;
# - recognise the three ways in which it goes wrong.
#
# **You need to know** chapter 1 (a matrix $A$, its columns sum to 1), softmax and cross-entropy, and a PyTorch training
# loop.
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** 5,000 handwritten digits {cite:p}`lecun1998` at 14 x 14 pixels, which ship with the course.

# %%
try:
    import torch
    from IPython.display import Markdown
    from scipy.optimize import linear_sum_assignment

    import course_lib.checks.classes as checks
    from course_lib import annotators, book, confusion, data, experiments, metrics, networks, plots, sliders, training, widgets
    from course_lib.annotations import MISSING, Annotations
    from course_lib.experiments import claims
    from course_lib.methods.trace import Trace
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(3)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    draws=(1, 5, 10),  # panels of annotators in the comparison
    sweep_draws=(1, 3, 5),  # panels for each lambda
    epochs=(9, 20, 60),
    lambdas=((0.0, 0.02, 1.0), (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0), (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0)),
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# Take the digits of chapter 1, at 14 x 14 pixels so that a small network learns them in seconds, and five annotators who
# are right 45 % of the time. Whenever annotator r is wrong about a class, it is always by the same wrong name. Each image
# is shown to *one* of them.

# %%
digits = data.split(data.mnist5k())
images, truth = data.small(digits.train.images), digits.train.labels  # (N, 1, 14, 14), (N,)
A = annotators.pairwise_flippers(5, 10, 0.45, generator=seeded(3))  # (R, L, L)
labels = annotators.annotate(truth, A, per_item=1, generator=seeded(4))  # (N, R), -1 where not asked
print(f"{len(truth)} images, {(labels != MISSING).sum()} labels, mean skill {confusion.skills(A).mean():.2f}")

# %% [markdown]
# The network looks at an image and says $p$: how probable each truth is. Annotator r's matrix turns that into $A p$: what
# *this person* will then say. Only the right end of the chain is ever compared with data.

# %% tags=["hide-input"]
from matplotlib.figure import Figure  # noqa: E402  (it belongs to this figure alone)

first = 8
p_first = torch.nn.functional.one_hot(truth[first], 10) * 0.8 + 0.02  # a network that is nearly sure
fig = Figure(figsize=(5, 4.4), layout="constrained")
(a, b), (c, d) = fig.subplots(2, 2)
a.imshow(digits.train.images[first], cmap="gray_r")
a.set(title="an image x", xticks=[], yticks=[])
b.bar(range(10), p_first, color=plots.MODEL)
b.set(title="→ the network's p(x)", xticks=range(10), ylim=(0, 1))
c.imshow(A[0], cmap="cividis", vmin=0, vmax=1)
c.set(title="times annotator 1's A", xlabel="truth", ylabel="says", xticks=range(10), yticks=range(10))
d.bar(range(10), A[0] @ p_first, color=plots.ANNOTATORS[0], hatch="//", edgecolor="white")
d.set(title="→ A p: what they will say", xticks=range(10), ylim=(0, 1))
plots.described(
    fig,
    "The chain: image, the network's belief, the annotator's matrix, and what the annotator is expected to say.",
    f"A digit {truth[first]}; bars of p with most weight on {truth[first]}; a 10 by 10 matrix; bars of A p split between "
    f"{truth[first]} and the name that annotator 1 confuses it with.",
)

# %% [markdown]
# ## 2. Predict
#
# Write down three guesses before you go on.
#
# 1. A network trained on these labels as if they were the truth: which accuracy on unseen digits?
# 2. The same network with one matrix for each annotator: which accuracy? (One that is *given* the true matrices reaches
#    about 91 % in the trial runs of this course.)
# 3. With one label an image nobody is ever compared with anybody else. Can the five matrices be found at all?
#
# ## The recipe
#
# This is all there is to do. `Trace` holds the network and the matrices, `fit` trains both.

# %%
crowd = Annotations(images, labels, n_classes=10)
model = Trace(networks.mlp(196, 10, generator=seeded(0)), crowd.n_annotators, crowd.n_classes, lam=0.02)
print(training.fit(model, crowd, epochs=P.epochs))
test_images, test_truth = data.small(digits.test.images), digits.test.labels
print(f"accuracy on {len(test_truth)} unseen digits: {metrics.accuracy(training.predict(model, test_images), test_truth):.3f}")

# %% [markdown]
# And the annotators? Here is what it learned of the first two, beside what they are.

# %% tags=["hide-input"]
pair = torch.stack([A[0], model.confusion()[0], A[1], model.confusion()[1]])
fig = plots.confusion_row(pair, ["1, true", "1, learned", "2, true", "2, learned"], title="The matrices come out, too")
plots.described(fig, "True and learned matrices of two annotators: columns are truths, rows are what is said.")

# %% [markdown]
# Three settings carry this recipe, and section 6 shows what happens without each.
#
# | setting | value | why |
# | --- | --- | --- |
# | the matrices start at the identity | .95 on the diagonal | so that "class 3" means 3 from the start |
# | they have their own learning rate, 20 times the network's | 2e-2 | else they hardly leave the identity |
# | they are frozen for 5 epochs | `frozen_epochs=5` | else, while the network knows nothing, classes may swap |
#
# ## 3. The maths
#
# ### What is likely
#
# Given the truth, an annotator's label does not depend on the image (an assumption, which part II of the book gives up).
# So annotator $r$ says $i$ of image $x$ with probability
#
# $$
# p(\tilde y^{(r)} = i \mid x) = \sum_j A^{(r)}_{ij}\, p_j(x) = \big(A^{(r)} p(x)\big)_i
# $$ (eq-ch3-said)
#
# which is Eq. 2 of the paper. The negative logarithm of it, summed over all labels seen, is the paper's Eq. 3. Ours takes
# the mean over the $n$ observed labels, and adds the trace (Eq. 4):
#
# $$
# \mathcal L = \frac1n \sum_{(m, r)\ \text{observed}} \Big[ -\log \big(A^{(r)} p(x_m)\big)_{\tilde y_m^{(r)}} + \lambda \operatorname{tr} A^{(r)} \Big]
# $$ (eq-ch3-loss)
#
# <details><summary>Why not the paper's sum? (an erratum)</summary>
#
# Eq. 4 adds the trace once for each annotator, whether that person gave ten labels or ten thousand; the listing in the
# appendix averages the first part over images and the trace over annotators, so that there the same $\lambda$ weighs $R$
# times more with one label an image than with all. In {eq}`eq-ch3-loss` every label pays for its own annotator's trace: $\lambda$ means the same with
# one label an image and with five, and rare annotators are not shrunk. Exercise 3.2 converts.
#
# </details>
#
# ### Why the likelihood is not enough
#
# Suppose the network, when the truth is $j$, answers $i$ with probability $P_{ij}$. Then the labels that the model
# expects of annotator $r$ have the matrix $\hat A^{(r)} P$. The likelihood is best when
#
# $$
# \hat A^{(r)} P = A^{(r)} \quad \text{for every } r
# $$ (eq-ch3-ambiguity)
#
# and that has many solutions. $P = I$, $\hat A = A$ is the one we want. But rename the classes, and undo it in every
# matrix, and the fit is exactly as good:

# %%
order = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9, 0])  # the network calls 0 "1", 1 "2", ...
Pi = torch.eye(10)[:, order.argsort()]  # P of that network
A_renamed = A @ Pi.T  # undoes it: Pi is a permutation, so its inverse is its transpose
print(f"same fit: {torch.allclose(A_renamed @ Pi, A)};  trace {confusion.trace(A).mean():.2f} -> {confusion.trace(A_renamed).mean():.2f}")
assert torch.allclose(A_renamed @ Pi, A)

# %% [markdown]
# ### What the trace adds
#
# A matrix with a small trace is an annotator who is often wrong. Among all explanations of the labels, prefer the one in
# which people are as unreliable as the data allow: then nothing of the truth is left over for $P$ to get wrong.
#
# ```{prf:lemma} One annotator (Lemma 1 of the paper)
# :label: lem-trace
#
# Let $\hat A P = A$ with column-stochastic $\hat A, P$. If $\hat A$ is row dominant, $\hat a_{ii} > \hat a_{ij}$ for all
# $j \ne i$, then $a_{ii} \le \hat a_{ii}$ for every $i$, and $\operatorname{tr} A = \operatorname{tr} \hat A$ only if
# $P = I$ and $\hat A = A$.
# ```
#
# ```{prf:proof}
# $a_{ii} = \sum_j \hat a_{ij} p_{ji} \le \hat a_{ii} \sum_j p_{ji} = \hat a_{ii}$. The inequality replaces each
# $\hat a_{ij}$ by the largest of *its row*; the last step uses that a *column* of $P$ sums to 1. If the traces are equal,
# all these inequalities are equalities, so $p_{ji}$ can only be positive where $\hat a_{ij} = \hat a_{ii}$, that is at
# $j = i$: $P = I$, hence $\hat A = A$.
# ```
#
# ```{prf:theorem} Several annotators (Theorem 1 of the paper)
# :label: thm-trace
#
# If $\hat A^{(r)} P = A^{(r)}$ for all $r$, and the mean matrices of both are row dominant, then the true matrices are the
# unique minimisers of the mean trace.
# ```
#
# ```{prf:proof}
# Averages obey the same equation, $\bar{\hat A} P = \bar A$, since $P$ is shared. The lemma on the averages gives
# $\operatorname{tr} \bar A \le \operatorname{tr} \bar{\hat A}$, with equality only for $P = I$, and then
# $\hat A^{(r)} = A^{(r)}$ for every $r$. The truth must itself be row dominant on average, else it is no candidate.
# ```
#
# ### Precisely which dominance
#
# Row dominance runs along the row of what is **said**: *of all images called $i$, class $i$ is the commonest*. That is not
# the same as "each class is mostly called by its own name", which runs down the column of a truth, and which is not
# enough. `confusion.dominance` measures the margin along rows. Let us check the lemma on random matrices, first where its
# condition holds:

# %%
def random_matrices(n, L, generator, identity=0.4):
    """(n, L, L) columns sum to 1; the larger `identity`, the more are dominant."""
    C = torch.rand(n, L, L, generator=generator)
    return identity * torch.eye(L) + (1 - identity) * C / C.sum(1, keepdim=True)


A_hat, Q = random_matrices(20_000, 4, seeded(1)), random_matrices(20_000, 4, seeded(2), identity=0.0)
dominant = (A_hat.diagonal(dim1=1, dim2=2)[:, :, None] >= A_hat).flatten(1).all(1)  # along rows
below = ((A_hat @ Q).diagonal(dim1=1, dim2=2) <= A_hat.diagonal(dim1=1, dim2=2) + 1e-6).all(1)
print(f"row dominant: {dominant.sum()} draws, the lemma holds in {below[dominant].sum()}; others: {below[~dominant].float().mean():.0%}")
assert below[dominant].all() and not below[~dominant].all()

# %% [markdown]
# Not one violation where the rows are dominant, many where they are not. Now the trap. Here every *column* of both
# matrices has its largest entry on the diagonal, yet a wrong explanation has the smaller trace:

# %%
A_hat = torch.tensor([[0.40, 0.45, 0.0], [0.30, 0.55, 0.0], [0.30, 0.0, 1.0]])
Q = torch.tensor([[0.6, 0.0, 0.0], [0.4, 1.0, 0.0], [0.0, 0.0, 1.0]])
A_true = A_hat @ Q
for name, M in (("true", A_true), ("wrong", A_hat)):
    columns = (M.argmax(0) == torch.arange(3)).all()
    print(f"{name}: trace {confusion.trace(M):.2f}, column test {bool(columns)}, row margin {confusion.dominance(M[None]):+.2f}")
assert confusion.trace(A_hat) < confusion.trace(A_true) and confusion.dominance(A_hat[None]) < 0

# %% [markdown]
# ### What the theorem does not say
#
# It compares explanations that fit perfectly *and* are row dominant. The loss enforces neither. Two things follow, and
# both can be computed.
#
# **The best renaming has a smaller trace than the truth.** Of all renamings of the classes (each fits equally well), take
# the one with the smallest mean trace:

# %%
mean = A.mean(0)  # (L, L)
said, called = linear_sum_assignment(mean.numpy())  # the renaming with the smallest trace
best = mean[:, called]  # column j now stands for the class renamed j
print(f"row margin of the truth {confusion.dominance(A):+.3f}; trace: truth {confusion.trace(mean):.2f}, best renaming {confusion.trace(best):.2f}")
assert confusion.dominance(A) > 0 and confusion.trace(best) < confusion.trace(mean)

# %% [markdown]
# So the *global* minimum of {eq}`eq-ch3-loss` is not the truth. What protects us is that the matrices start at the
# identity and go downhill from there. The trace itself pulls towards the renaming: make $\lambda$ large, and it gets
# there (section 6).
#
# **A hesitant network can take the blame.** The lemma's $P$ counts the network's *decisions*. The likelihood, however,
# sees soft probabilities. Take hammer-spammers, who know with probability .2 and else guess uniformly. If the network
# puts $p(x) = A e_y$, soft but with its maximum at the truth, perfect annotators $\hat A = I$ explain all labels exactly:

# %%
hammers = annotators.hammer_spammers(1, 10, 0.2, spread=0.0, generator=seeded(0))  # (1, L, L)
log_A, log_I = confusion.log(hammers)[None], confusion.log(torch.eye(10))[None, None]
truth_explains = confusion.apply(log_A, confusion.log(torch.eye(10))).exp()  # (y, r, said): one-hot p, true A
identity_explains = confusion.apply(log_I, log_A[0, 0].T).exp()  # soft p, perfect annotators
print(f"largest difference {float((truth_explains - identity_explains).abs().max()):.1e}")
print(f"accuracy 1 both times, CM error 0 against {metrics.cm_error(hammers, torch.eye(10)[None]):.3f}")
assert torch.allclose(truth_explains, identity_explains, atol=1e-6)

# %% [markdown]
# Here the likelihood is silent, and a little trace decides. Hammer-spammers are where the trace does its work, as the
# experiment will show. Pairwise flippers have zeros in their matrices, which the likelihood alone can already see.
#
# ## 4. From scratch
#
# First in three lines, as {eq}`eq-ch3-loss` reads:

# %%
def slow_loss(A, p, labels, lam):
    seen = [(n, r, int(i)) for n, row in enumerate(labels) for r, i in enumerate(row) if i != MISSING]
    terms = [-(A[r, i] @ p[n]).log() + lam * A[r].trace() for n, r, i in seen]
    return sum(terms) / len(terms)


# %% [markdown]
# Then as the library has it. Everything is in logarithms, so that a product becomes a sum and nothing underflows:
# $\log \sum_j A_{ij} p_j = \operatorname{logsumexp}_j(\log A_{ij} + \log p_j)$. Of each matrix only the row that was *said*
# is needed.

# %% tags=["shipped"]
# shipped: course_lib.confusion
def label_log_likelihood(log_A, log_p, labels, who=None):
    rows = confusion.said_rows(log_A, labels, who)  # (B, R, L): row `said` of each annotator's matrix
    return torch.where(labels != MISSING, (rows + log_p[:, None]).logsumexp(2), 0)  # (B, R)


# %% [markdown]
# The loss gathers, adds each label's trace, and divides by the number of labels seen. `joint` is a variant that
# scores all labels of an image together; with one label an image it is the same thing. `who` is for speed alone: the
# columns that nobody filled are left out, and `who` says whose labels remain.

# %% tags=["shipped"]
# shipped: course_lib.methods.trace
def trace_loss(log_A, log_p, labels, lam, who=None, *, joint=False):
    observed = (labels != MISSING).float()  # (B, R)
    if joint:
        nll = -confusion.joint_log_likelihood(log_A, log_p, labels, who).sum()
    else:
        nll = -label_log_likelihood(log_A, log_p, labels, who).sum()
    traces = (confusion.of_annotators(confusion.trace(log_A.exp()), who) * observed).sum()  # each label pays for its own annotator
    return (nll + lam * traces) / observed.sum().clamp(min=1)


# %% [markdown]
# Loop and library agree:

# %%
p = torch.rand(6, 10, generator=seeded(5)).softmax(1)
some = annotators.annotate(truth[:6], A, per_item=2, generator=seeded(6))
slow = slow_loss(A, p, some, lam=0.02)
fast = trace_loss(confusion.log(A)[None], p.log(), some, 0.02)
print(f"loop {slow:.6f}, vectorised {fast:.6f}")
assert torch.allclose(slow, fast, atol=1e-5)

# %% [markdown]
# The matrices are a softmax over *what is said*, started near the identity. The paper normalises softplus(6 I − 5)
# instead, whose start depends on the number of classes. Ours does not:

# %%
for L in (2, 10, 100):
    papers = torch.nn.functional.softplus(6 * torch.eye(L) - 5)
    papers = papers / papers.sum(0)
    ours = confusion.GlobalCM(1, L).A[0]
    print(f"L = {L:3d}: diagonal at the start {papers[0, 0]:.3f} (paper), {ours[0, 0]:.3f} (ours)")
    assert abs(ours.diagonal() - 0.95).max() < 1e-4

# %% [markdown]
# ## 5. The experiment
#
# ### Is it better than ignoring who said what?
#
# Four methods, the same labels, images and first weights for each: `oracle` is given the true matrices; `trace` is the
# recipe; `no_trace` is the recipe with $\lambda = 0$; `vanilla` trains on the labels as if they were the truth, and is
# stopped early on held-out noisy labels, else it overfits and the comparison would be unfair. Every draw is another
# panel of five flippers. All runs of a kind train together, as one stacked model.

# %%
result = experiments.run("trace-mnist5k", seeds=P.draws)
easy = [row for row in result["rows"] if row["setting"]["skill"] == 0.45]
print(f"{len(result['rows'])} runs in {result['seconds']:.0f} s on {result['device']}")

# %% tags=["hide-input"]
fig = plots.bars_with_spread(
    easy, "accuracy", ["oracle", "trace", "no_trace", "vanilla"],
    title="One matrix an annotator: nearly as good as knowing them", xlabel="test accuracy, skill .45, one label an image",
)  # fmt: skip
plots.described(fig, f"Each dot is one draw of annotators; the bar is the 95 % interval. Size {training.size()}.")

# %% [markdown]
# The gap between `vanilla` and `trace` is what the matrices are worth. The gap between `trace` and `no_trace` is not
# where you may have expected it: on flippers the trace buys no accuracy. At skill .35 dominance is nearly used up (two who
# share a flip lose it at 2/7, exercise 3.4). There look at single draws rather than at the mean: a panel that went wrong
# would be a lone dot far to the left.

# %% tags=["hide-input"]
hard = [row for row in result["rows"] if row["setting"]["skill"] == 0.35]
fig = plots.bars_with_spread(
    hard, "accuracy", ["oracle", "trace", "no_trace", "vanilla"],
    title="Near the edge of dominance, look at each draw", xlabel="test accuracy, skill .35, one label an image",
)  # fmt: skip
plots.described(fig, f"As above, at skill .35. Size {training.size()}.")

# %%
gap = experiments.values(result, "trace", "accuracy", skill=0.45) - experiments.values(result, "vanilla", "accuracy", skill=0.45)
print(f"trace - vanilla at .45, draw by draw: {gap.round(3)}")
if gap.mean() < 0.03:
    print("your run differed: in ours the trace was ahead by more than .08 in the mean")

# %% [markdown]
# ### Where the trace does its work
#
# Hammer-spammers of skill .2, everybody labels everything, and $\lambda$ from 0 upwards. This is the training cell of the
# chapter: it checks that all parameters, and the loss, live on the device it names.

# %% tags=["training"]
runs = [(lam, k) for lam in P.lambdas for k in range(P.sweep_draws)]
panels = [annotators.hammer_spammers(5, 10, 0.2, generator=seeded(20 + k)) for k in range(P.sweep_draws)]
said_by = [crowd.with_labels(annotators.annotate(truth, panel, generator=seeded(30 + k))) for k, panel in enumerate(panels)]
sweep = [Trace(networks.mlp(196, 10, generator=seeded(k)), 5, 10, lam=lam) for lam, k in runs]
history = training.fit(sweep, [said_by[k] for _, k in runs], epochs=P.epochs, seeds=[k for _, k in runs])
device = training.pick_device()
assert all(parameter.device.type == device.type for parameter in sweep[0].parameters())
assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# For each $\lambda$: how far are the matrices off, and how good is the network?

# %%
def over_lambda(score):
    """A score of every run as (draws, lambdas)."""
    return torch.tensor([score(m, k) for m, (_, k) in zip(sweep, runs)]).view(len(P.lambdas), -1).T


cm_errors = over_lambda(lambda m, k: metrics.cm_error(panels[k], m.confusion()))
accuracies = over_lambda(lambda m, k: metrics.accuracy(training.predict(m, test_images), test_truth))

# %% tags=["hide-input"]
fig = plots.curve(
    list(P.lambdas), {"CM error": cm_errors, "accuracy": accuracies}, log=True, model="CM error",
    title="A little trace finds the spammers; too much ruins the truth", xlabel="lambda", ylabel="value",
)  # fmt: skip
plots.described(
    fig, f"CM error and accuracy over lambda, {P.sweep_draws} panels of hammer-spammers, dense labels; band: lowest to highest. "
    f"Size {training.size()}."
)  # fmt: skip

# %% [markdown]
# A curve hides what a matrix does. Move $\lambda$ and watch the learned one, the mean over annotators and panels. The
# true one has .28 on its diagonal and .08 everywhere else. Where does the diagonal come closest, and what happens to it
# after that?

# %%
learned = torch.stack([m.confusion().mean(0) for m in sweep])  # a run each: (lambdas * draws, L, L)
learned = learned.view(len(P.lambdas), -1, 10, 10).mean(1)  # (lambdas, L, L)
mover = sliders.LambdaSlider(P.lambdas, learned, accuracies.mean(0), cm_errors.mean(0))
mover

# %% [markdown]
# Three of them as a picture: the smallest $\lambda$, the one with the smallest CM error, and the largest.

# %% tags=["hide-input"]
best = int(cm_errors.mean(0).argmin())
fig = mover.still(sorted({0, best, len(P.lambdas) - 1}), title="From blind trust to blind distrust")
plots.described(fig, f"Mean learned matrices at three values of lambda. Size {training.size()}.")

# %% [markdown]
# Without the trace the matrices stay at what they started from, and the network is hesitant in their place, exactly as
# section 3 computed. The count matrix is another way out: *after* training, count the network's decisions against
# what each annotator said. It carries no shrinkage, but it is only as good as the network.

# %%
none = sweep[0]  # lambda = 0, first panel
decisions = torch.nn.functional.one_hot(training.predict(none, images), 10).float()
counted = confusion.count_matrices(said_by[0].labels, decisions)
print(f"lambda 0: learned matrices are off by {metrics.cm_error(panels[0], none.confusion()):.3f}, counted ones by {metrics.cm_error(panels[0], counted):.3f}")

# %% [markdown]
# ### You, as annotator six
#
# In chapter 1 you labelled twenty blurred digits. Here your twenty labels join the five others', as a sixth column that
# is missing nearly everywhere. (If you have not done so, a stand-in's answers are used: a nearest-mean classifier that
# looked at the same blurred pictures.)

# %%
twenty = torch.randperm(len(truth), generator=seeded(6))[:20]
saved = widgets.load_answers()
blurry = widgets.blurred(digits.train.images, 2.0)
index, answers = saved or (twenty, widgets.stand_in(blurry[twenty], blurry, truth))
column = torch.full((len(truth), 1), MISSING)
column[index, 0] = answers
six = crowd.with_labels(torch.cat([labels, column], 1), names=(*crowd.names, "you" if saved else "the stand-in"))
print(f"{(column != MISSING).sum()} labels of {six.names[-1]}, {(labels != MISSING).sum()} of the others")

# %% [markdown]
# The model does not care how little somebody said. You should:

# %%
together = Trace(networks.mlp(196, 10, generator=seeded(0)), 6, 10)
training.fit(together, six, epochs=P.epochs, progress=False)
for name, skill, n in zip(six.names, together.skills(), six.observed.sum(0)):
    print(f"{name:13s} {n:4d} labels, learned skill {skill:.2f}")
right = (answers == truth[index])[answers != MISSING].float()
print(f"{six.names[-1]}: {right.sum():.0f} of {len(right)} right, so a skill of {right.mean():.2f} ± {2 * right.std() / len(right) ** 0.5:.2f}")

# %% [markdown]
# A hundred entries cannot be learned from twenty labels. The learned skill of the sixth is mostly its start, .95, seen
# through twenty observations; classes that were never shown to them have not moved at all.
#
# ## 6. Break it
#
# **Too much trace.** With $\lambda = 1$ it pays to explain the labels by people who are always wrong. The network must
# then rename the classes:

# %%
huge = sweep[-1]
skill, accuracy = float(huge.skills().mean()), float(accuracies[0, -1])
print(f"lambda 1: learned skill {skill:.3f} (true {confusion.skills(panels[0]).mean():.3f}), accuracy {accuracy:.3f}")
assert skill < 0.1 and accuracy < 0.5

# %% [markdown]
# **No identity start.** Nothing but the start says which class is called which. Here the matrices begin at a renaming of
# the classes. They stay there, the fit is as good as before, and the accuracy is near zero:

# %%
renamed = confusion.GlobalCM(5, 10)
renamed.logits.data = renamed.logits.data[:, :, order]  # says i of class order[i]
lost = Trace(networks.mlp(196, 10, generator=seeded(0)), 5, 10, cm=renamed)
lost_history = training.fit(lost, crowd, epochs=P.epochs, progress=False)
accuracy = metrics.accuracy(training.predict(lost, test_images), test_truth)
print(f"last loss {lost_history.loss[-1, 0]:.3f}, accuracy {accuracy:.3f}")
assert accuracy < 0.2

# %% [markdown]
# <details><summary>Two more ways to break it</summary>
#
# *The network's learning rate for the matrices too*: `Trace(..., cm_lr=1e-3)`. In this short training they hardly move,
# and you get little more than `vanilla`. *No frozen start*: `frozen_epochs=0`. Most seeds go well, now and then two
# classes swap. Try both in the cell of the recipe.
#
# </details>
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} One label by hand (★, 5 minutes)
# :label: ex-ch3-nll
#
# Exercise 3.1. Given one annotator's matrix `A` (L, L), the network's `p` (L,) and what was `said` (an integer), return
# the negative log-likelihood of this label.
# ```

# %% tags=["stub"]
def one_label(A, p, said):
    """(L, L), (L,), integer -> scalar tensor."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# The truth is unknown, so every truth contributes, each with its own probability.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $-\log \sum_j A_{\text{said}, j}\, p_j$: one *row* of A.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `-(A[?] @ p).log()`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.one_label(one_label)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def one_label(A, p, said):
    """(L, L), (L,), integer -> scalar tensor."""
    return -(A[said] @ p).log()


checks.one_label(one_label)

# %% [markdown]
# **What you should see, and why.** With A = I it is plain cross-entropy: a perfect annotator leaves nothing to correct.
#
# ```{exercise} Whose lambda? (★★, 10 minutes)
# :label: ex-ch3-lambda
#
# Exercise 3.2. The paper's Eq. 4 *sums* the likelihood over all observed labels and adds $\lambda$ times the sum of the
# $R$ traces. Ours is {eq}`eq-ch3-loss`. Suppose all annotators labelled equally much. Given the paper's `lam`, the number
# of annotators `R` and of observed labels `n`, return the lambda for our loss that weighs the trace in the same way.
# ```

# %% tags=["stub"]
def our_lambda(lam, R, n):
    """number, integer, integer -> number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Divide Eq. 4 by the number of labels, and see what stands before each trace.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Eq. 4 / n has $\frac{\lambda}{n}$ before each of R traces. Ours has $\lambda' \frac{n_r}{n}$, with $n_r = n / R$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# Set both equal and solve for $\lambda'$: `lam * ? / ?`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.our_lambda(our_lambda)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def our_lambda(lam, R, n):
    """number, integer, integer -> number."""
    return lam * R / n


checks.our_lambda(our_lambda)
print(f"the paper's .01, of five annotators and {crowd.n_observed} labels, is {our_lambda(0.01, 5, crowd.n_observed):.6f} of ours")

# %% [markdown]
# **What you should see, and why.** With our 3,600 labels the paper's .01 is about .000014 per label: next to nothing. The
# paper's listing averages instead; there .01 stays .01 with one label an image. Whoever quotes a lambda should quote its
# scale.
#
# ```{exercise} How much does the trace shrink? (★★★, 20 minutes)
# :label: ex-ch3-bias
#
# Exercise 3.3. Let the network be perfect and all classes equally common. An annotator is right with probability `a`
# and otherwise wrong in some way. Minimising {eq}`eq-ch3-loss` over one column gives the diagonal
# $\hat a = a / (t + m)$ with $t = \lambda L$ and $m = \tfrac12 \big[(1 - t) + \sqrt{(1 - t)^2 + 4 t (1 - a)}\big]$.
# Return $\hat a$. (Deriving it is the real exercise: set the derivative of
# $-\sum_i a_i \log \hat a_i + t \hat a_{jj} + m (\sum_i \hat a_i - 1)$ to zero.)
# ```

# %% tags=["stub"]
def shrunken(a, lam, L):
    """numbers in [0, 1], integer -> number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# lambda is paid once for each label, but each column sees only the labels of its own class: one in L.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# The derivative gives $\hat a_{jj} = a / (t + m)$ and $\hat a_{ij} = a_i / m$ off the diagonal. They sum to 1:
# $a m + (1 - a)(t + m) = m (t + m)$, a quadratic in $m$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `t = lam * L`, `m = ((1 - t) + ((1 - t) ** 2 + 4 * t * (1 - a)) ** 0.5) / 2`, then the quotient.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.shrunken(shrunken)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def shrunken(a, lam, L):
    """numbers in [0, 1], integer -> number."""
    t = lam * L
    m = ((1 - t) + ((1 - t) ** 2 + 4 * t * (1 - a)) ** 0.5) / 2
    return a / (t + m)


checks.shrunken(shrunken)
for lam in (0.01, 0.02, 0.1, 0.9):
    print(f"lambda {lam}: .55 becomes {shrunken(0.55, lam, 10):.3f}")

# %% [markdown]
# **What you should see, and why.** At .02 a skill of .55 is reported as .50: a price, known in advance, which the count
# matrix does not pay. The theorem is about $\lambda \to 0$.
#
# ```{exercise} Is it dominant? (★★, 10 minutes)
# :label: ex-ch3-sharers
#
# Exercise 3.4. Of `R` pairwise flippers with skill `p`, `k` give class j the same wrong name, i. Return the margin
# $\bar a_{ii} - \bar a_{ij}$ of the mean matrix. (When it is negative, the theorem is lost.)
# ```

# %% tags=["stub"]
def sharers_margin(p, k, R):
    """number, integer, integer -> number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# What does each annotator's matrix hold at (i, i), and at (i, j) if they share the flip, or do not?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\bar a_{ii} = p$; at (i, j) k annotators of R have $1 - p$, the others 0.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `p - (1 - p) * ? / ?`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.sharers_margin(sharers_margin)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def sharers_margin(p, k, R):
    """number, integer, integer -> number."""
    return p - (1 - p) * k / R


checks.sharers_margin(sharers_margin)

# %% [markdown]
# **What you should see, and why.** It is zero at $p = k / (R + k)$: .286 for two of five, .375 for three of five. The
# paper draws flips freely, so that a panel of five flippers at skill .3 is dominant or not by luck; here at most two
# share one.
#
# ## 8. What the paper claims and what we measured
#
# Drawn from `book/claims.yaml` and the committed results, never typed. A claim *holds* where the paired 95 % interval of
# the difference, over draws of annotators, lies above the margin that the claims file names; it is *weaker* where the
# interval lies above zero only.

# %% tags=["hide-input"]
Markdown(claims.table("002"))

# %% [markdown]
# Read it this way: that annotators can be modelled one by one from a single label an image, and that this beats ignoring
# them, stands, on flippers. That the trace *improves the accuracy* does not show on flippers; what it improves is the
# matrices of hammer-spammers. And an early-stopped network on raw labels is a stronger rival there than the paper's.
#
# ## 9. Three questions
#
# <details><summary>1. One label an image, so no image is seen by two annotators. What makes them comparable?</summary>
#
# The network. Images that look alike have the same p(x), so two annotators who label different sevens are compared
# through what the network says of sevens. A labels-only method has no such bridge: with one label an item it returns
# the label.
#
# </details>
#
# <details><summary>2. Your learned matrices all have a skill of .94 and the network's accuracy is mediocre. What do you suspect?</summary>
#
# That they never left their start: learning rate of the matrices too small, too few steps, or everything is still
# frozen. Or hammer-spammers without trace: a hesitant network in the place of unreliable people. Compare with the count
# matrix.
#
# </details>
#
# <details><summary>3. An annotator calls every 3 an 8 and every 8 a 3. Is that worse than guessing?</summary>
#
# For a vote, yes. For this model it is better: a matrix that only renames loses no information, and once it is known
# every label can be turned back. Guessing destroys it.
#
# </details>
#
# ## 10. Further reading, and errata found
#
# {cite:t}`tanno2019` is the paper; {cite:t}`raykar2010` did the same with EM and two classes; {cite:t}`sukhbaatar2014` put
# one matrix on top of a network for noisy labels in general; {cite:t}`khetan2018` train on single labels by EM.
#
# Two of the errata below were exercises. Here they are for those who left them out. First the weight of the trace (exercise 3.2), of five people with
# ten labels each: Eq. 4, the listing, and ours.

# %%
nll, traces = torch.rand(5, 10, generator=seeded(0)), confusion.trace(A)  # ten labels of each annotator; (R, n_r), (R,)
eq4, listing = nll.sum() + 0.01 * traces.sum(), nll.mean() + 0.01 * traces.mean()
ours = (nll + 0.01 * 5 / nll.numel() * traces[:, None]).mean()
print(f"Eq. 4, for each label {eq4 / nll.numel():.4f}; ours with lambda R / n {ours:.4f}; the listing {listing:.4f}")
assert torch.isclose(eq4 / nll.numel(), ours) and listing > ours + 0.005

# %% [markdown]
# Then what a finite $\lambda$ does to a skill of .55 (exercise 3.3): the smallest loss on a grid, beside the formula.

# %%
d = torch.linspace(0.001, 0.999, 999)  # a learned diagonal; the other entries share the rest as they should
for lam in (0.01, 0.02, 0.1, 0.9):
    best = d[(-0.55 * d.log() - 0.45 * (1 - d).log() + lam * 10 * d).argmin()]  # a column: its share of the labels is 1 / 10
    t = lam * 10
    by_formula = 0.55 / (t + ((1 - t) + ((1 - t) ** 2 + 4 * t * 0.45) ** 0.5) / 2)
    print(f"lambda {lam}: .55 becomes {best:.3f} on the grid, {by_formula:.4f} by the formula")
    assert abs(best - by_formula) < 1.1e-3 and by_formula < 0.55

# %% [markdown]
# Errata found, each asserted by a cell above: the matrix is written [said, truth] in the text and [truth, said] in the
# listing (chapter 1); the weight of the trace differs between Eq. 4 and the listing (this section); the "CM error in
# [0, 1]" reaches 2 (chapter 1); the lemma's P counts decisions, but the likelihood sees soft outputs (section 3); the
# minimiser of Eq. 4 is a renaming, not the truth (section 3); a finite lambda shrinks every skill (this section).
