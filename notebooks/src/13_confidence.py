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
# # 13. Confidence is a confusion matrix
#
# *Core chapter.* "Weigh each rater by how far they can be trusted" sounds like one number a rater, or one for each class.
# The paper of this part {cite:p}`wu2022` fuses masks with such confidences, and its formula makes the class that everybody
# votes for *lose*. This chapter repairs it. What the paper proves is better than what it prints: a rater's confidence is a row
# of a confusion matrix, and fusing with it is Bayes' rule, the `posterior` that you have used since chapter 2.
#
# **You will be able to**
#
# - fuse masks of several classes with known matrices, by hand and in one line;
# - read a row of a matrix as evidence: what a word is worth when *this* rater says it;
# - find out, with three votes, whether a formula for fusing can work at all;
# - say when weights describe raters, and when they only repeat the answer that they were computed from.
#
# **You need to know** chapter 7 (masks, the vote, STAPLE) and Bayes' rule as in chapter 2.
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** drawn pictures of an optic disc with its cup, and seven simulated raters. They stand in for the eyes of the paper,
# which may not be passed on.

# %%
try:
    import torch
    from IPython.display import Markdown
    from torch.nn.functional import one_hot

    import course_lib.checks.confidence as checks
    from course_lib import book, confidence, fundus, fusion, metrics, networks, plots, training
    from course_lib.annotations import Annotations
    from course_lib.confusion import count_matrices, log, posterior
    from course_lib.experiments import claims
    from course_lib.experiments.masks import quietly
    from course_lib.fundus import CUP, PANELS, RIM
    from course_lib.mask_annotators import draw_masks
    from course_lib.methods.aggnet import AggNet
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(13)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    images=(24, 120, 400),  # pictures whose masks are fused, in each draw
    draws=(2, 5, 10),  # of pictures and masks
    taught=(32, 160, 1000),  # pictures that networks learn from
    tested=(20, 100, 400),
    epochs=(6, 9, 60),
    settle=(1, 1, 10),  # the last epochs, at a tenth of the rate
    batch_size=(4, 8, 8),
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# The *disc* is where the optic nerve leaves the eye; the *cup* is a hollow in it. Doctors measure how much of the disc is
# cup. So a pixel has three classes: background, rim (disc, but not cup), cup. Seven raters draw both. In the panel `dominant`
# the first two are good. The other five draw the cup too large, and the same pictures fool them.

# %%
K, WHO = 3, [f"rater {r}" for r in range(1, 8)]
scene = fundus.disc_and_cup(P.images, generator=seeded(100))  # images, truth, number of classes
said = draw_masks(scene.truth, scene.images, PANELS["dominant"], n_classes=K, generator=seeded(200))  # (N, R, H, W)
print(f"images {tuple(scene.images.shape)}, truth {tuple(scene.truth.shape)}, masks {tuple(said.shape)}")


# %% [markdown]
# In this chapter we *know* the raters: their matrices are counted against the truth, in the very pictures that are fused. No
# reader of real masks can do that. It is an {term}`oracle`, and it is fair here, because the question is what a formula
# does when it is *given* the right confidences. Where they come from is the subject of the next chapter.

# %%
def known(said, truth):
    """What an oracle knows: the raters' matrices (R, K, K) and the shares of the classes (K,)."""
    pixels, y = said.movedim(1, -1).flatten(0, -2), one_hot(truth.flatten(), K).double()
    return count_matrices(pixels, y), y.mean(0)


A, prior = known(said, scene.truth)
spatial = lambda x: x[None, ..., None, None]  # noqa: E731  (room for pictures and pixels)

# %% [markdown]
# All seven, and four ways to make one mask of them: the vote, STAPLE, the formula of the paper as it is printed, and Bayes'
# rule with the whole matrix of each rater. The last two are told exactly the same raters.

# %% tags=["hide-input"]
first = {
    "vote": fusion.majority(said, K),
    "STAPLE": quietly(fusion.staple, said, K).labels,
    "as printed": confidence.printed(spatial(log(A.diagonal(dim1=1, dim2=2))), said).argmax(1),
    "Bayes, K x K": posterior(spatial(log(A)), spatial(log(prior)), said).argmax(1),
}
right = lambda masks: (masks == scene.truth).double().mean((1, 2))  # noqa: E731  (N,)
hard = right(first["vote"]).argsort()[: P.images // 4]  # where the vote is worst; of these, a picture on which Bayes is good
n = int(hard[right(first["Bayes, K x K"])[hard].argmax()])
plots.described(
    plots.masks(torch.cat([said[n], *(mask[n][None] for mask in first.values())]), scene.truth[n], [*WHO, *first],
                image=scene.images[n].mean(0), title="Told the same of the raters, one formula fails and one works"),
    "One drawn eye, seven raters and four fusions. White is right, yellow is rim called cup, or cup called rim.",
    "Twelve small pictures. Raters 1 and 2 are nearly all white; 3 to 7 have a yellow ring inside the disc, where rim was "
    "called cup. The vote and STAPLE have the same yellow ring. The printed formula gets disc and cup wrong. Bayes is nearly all white.",
)  # fmt: skip

# %% [markdown]
# And this is what is known of them: $A_{ij}$, how often they say $i$ where the truth is $j$, a column for each truth.

# %% tags=["hide-input"]
plots.described(
    plots.confusion_row(A.float(), WHO, title="Raters 3 to 7 call a good part of the rim cup", classes=["bg", "rim", "cup"]),
    "Matrices of the panel dominant, counted against the truth. Every column sums to 1.",
)

# %% [markdown]
# Read a *row* of rater 3: what do the pixels look like that rater 3 calls cup? Cup surely, but rim as well. So from this
# rater the word "cup" says little. And the word "rim"? Rater 3 hardly ever calls cup rim. So "rim" from the same rater
# is nearly proof. A row is what a word is worth (`inf`: in these pictures, it was never said of the other class):

# %%
print("how many times likelier is the word if it is right?")
for who, a in zip(WHO, A):
    print(f"  {who} says cup: {a[CUP, CUP] / a[CUP, RIM]:7.1f} (cup against rim)    says rim: {a[RIM, RIM] / a[RIM, CUP]:7.1f} (rim against cup)")
assert (A[2:, RIM, RIM] / A[2:, RIM, CUP] > A[2:, CUP, CUP] / A[2:, CUP, RIM]).all()

# %% [markdown]
# How often rater 3 recognises a cup stands in the *column* of cup, and is nearly 1. What the word "cup" is worth stands in
# its *row*, and is little. The paper weighs votes by a number of the first kind. That is the whole chapter.
#
# ## 2. Predict
#
# Dice of the cup, 0 to 1, of four fusions of this panel, and of the vote on a second one: in `jitter` two are good again, and
# five are careless, each in a way of their own. Guess:

# %%
guess = {
    ("dominant", "vote"): 0.5,
    ("dominant", "STAPLE"): 0.5,
    ("dominant", "as printed"): 0.5,
    ("dominant", "Bayes, K x K"): 0.5,
    ("jitter", "vote"): 0.5,
}

# %% [markdown]
# Then two questions for your pencil. Three raters, each right nine times of ten, all say "cup". How sure should you be?
# And if you may keep only the *diagonal* of each matrix, how much is lost?
#
# ## 3. The maths
#
# ### As printed
#
# The paper's Eq. 1 and Eq. 4 fuse masks $z^m$ (one-hot, $m = 1 \dots M$) with confidence maps $w^m$:
#
# $$
# y = \operatorname{softmax}\Big(\sum_m w^m \cdot z^m + p_u\Big), \qquad w^m = \log \tilde z^m ,
# $$ (eq-ch13-printed)
#
# where $\tilde z^m$ is the probability that rater $m$ says each class, "$\cdot$" is defined as the product element by
# element, the softmax runs over classes, and $p_u$ is a constant. Take it at its word, for one pixel:
#
# - **A vote lowers its class.** $\log \tilde z \le 0$, and $z^m$ is 1 only for the class that is voted for.
# - **A class that nobody names keeps logit 0,** the largest there can be. It is as if probability 1 stood there.
# - **The surer the rater, the less it matters:** $\log 1 = 0$.
# - **$p_u$ does nothing.** A constant added to all logits cancels in a softmax.
#
# The second question of section 2, answered by this formula:

# %%
one_rater = torch.tensor([0.05, 0.05, 0.90]).log()  # log p(says background, rim, cup), the truth being cup
votes = torch.full((1, 3), CUP)
as_printed = confidence.printed(one_rater.expand(1, 3, K), votes)[0]
by_hand = torch.tensor([0.0, 0.0, 3 * torch.tensor(0.9).log()]).softmax(0)
assert torch.allclose(as_printed, by_hand) and as_printed.argmax() != CUP
print(f"three votes for cup, each at .9, as printed: background, rim, cup = {as_printed.numpy().round(3)}")
assert torch.allclose((by_hand.log() + 7).softmax(0), by_hand)  # p_u = 7, or any other constant
even = torch.full((K, K), 0.05).fill_diagonal_(0.9).log()  # right nine times of ten, whatever the truth
print(f"by Bayes, with even priors: {posterior(even.expand(1, 3, K, K), torch.zeros(1, K), votes)[0].exp().numpy().round(4)}")

# %% [markdown]
# ### What Proposition 1 proves
#
# The proof, in the paper's supplement, is Bayes' rule, and it is right. If raters err independently *given the truth*
# (it is used and not said), then for every class $k$
#
# $$
# \log p(y = k \mid z^1 \dots z^M) = \sum_m \log A^{(m)}_{z^m,\, k} + \log p(y = k) + \text{const} .
# $$ (eq-ch13-bayes)
#
# In their notation, $w^m(t) = \log p(z^m = t \mid y = k)$. But look: the right side has a $k$ in it. For each $k$ there is
# *another* vector $w^m$, and $w^m \cdot z^m$ is an inner product over $t$, which picks one number out of it. All $k$
# together are a table of $K \times K$ numbers for each rater, $\log A^{(m)}$, and a vote $z^m$ picks a *row* of it. The printed
# formula keeps the diagonal and drops the rest:
#
# | | what a vote for $t$ adds to class $k = t$ | to every other class $k$ |
# | --- | --- | --- |
# | printed | $\log A_{tt}$ | 0, which is $\log 1$: "they would surely have said $t$" |
# | Bayes | $\log A_{tt}$ | $\log A_{tk}$, in most cases very negative |
#
# So one and the same vote lowers *all* classes, and those the most under which it would be odd.
#
# ### "The unique solution"
#
# The supplement adds that this $w^m$ is the only one. It is not: add any $a_m(t)$ to the whole row $t$, the same for all
# $k$, and the softmax does not notice. What a row says lies in its *ratios*. That is why the weight of a vote is not how
# often the rater is right.

# %%
anything = torch.randn(7, K, 1, generator=seeded(1)).double()  # a number for each rater and each word
other = log(A) + anything  # no longer the logarithm of a matrix
assert torch.allclose(posterior(spatial(other), spatial(log(prior)), said), posterior(spatial(log(A)), spatial(log(prior)), said))
print("another table, the same fusion in every pixel")

# %% [markdown]
# This freedom has a use. With two classes, take from each row its off-diagonal entry: what is left is
# $W_{tt} = \log (A_{tt} / A_{tk})$ on the diagonal, and zeros. So for $K = 2$ the printed *shape*, element by element, is exactly
# Bayes' rule, but with another confidence: not how likely the word is, but how many times likelier than under the other class.

# %%
two = torch.tensor([[[0.9, 0.4], [0.1, 0.6]], [[0.7, 0.05], [0.3, 0.95]], [[0.8, 0.3], [0.2, 0.7]]]).log()  # (R, 2, 2)
w = two.diagonal(dim1=1, dim2=2) - two.flip(2).diagonal(dim1=1, dim2=2)  # (R, 2): log of the ratio along each row
words = torch.cartesian_prod(*[torch.arange(2)] * 3)  # all eight things that three raters can say
element_wise = (w * one_hot(words, 2)).sum(1).softmax(1)
assert torch.allclose(element_wise, posterior(two[None], torch.zeros(1, 2), words).exp())

# %% [markdown]
# ### What the released code does
#
# A third reading. It takes no logarithm, and adds up votes with weight $\tilde z^m$, divided by their sum
# (`confidence.weighted`): $p_k = \sum_m [z^m = k]\, \tilde z^m_k \,/\, \sum_m \tilde z^m_{z^m}$. Now the class that is voted for
# wins. But it is a weighted vote: still no class hears a rater who said something else.
#
# ## 4. From scratch
#
# ### One pixel, seven raters
#
# {eq}`eq-ch13-bayes` without logarithms: begin with the prior, multiply by one row for each rater, and make it sum to 1.

# %%
def one_pixel_slow(A, prior, said):
    """A (R, K, K), prior (K,), said (R,) -> p(truth | labels) (K,)."""
    p = prior.clone()
    for r, i in enumerate(said.tolist()):
        p = p * A[r, i]
    return p / p.sum()


# %% [markdown]
# A pixel where the vote is wrong: most say cup, and it is rim. Watch the belief as one rater after the other speaks.

# %%
NAMES = ["background", "rim", "cup"]
wrong = (scene.truth == RIM) & (first["vote"] == CUP) & (first["Bayes, K x K"] == RIM)
sure = posterior(spatial(log(A)), spatial(log(prior)), said)[:, RIM].where(wrong, torch.inf)
at = tuple(int(k) for k in torch.unravel_index(sure.argmin(), sure.shape))  # of these, where it is least sure
here = said[at[0], :, at[1], at[2]]  # (R,)
print(f"prior{'':20}" + "  ".join(f"{name} {x:.4f}" for name, x in zip(NAMES, prior)))
for r in range(7):
    belief = one_pixel_slow(A[: r + 1], prior, here[: r + 1])
    print(f"{WHO[r]} says {NAMES[here[r]]:<11}" + "  ".join(f"{name} {x:.4f}" for name, x in zip(NAMES, belief)))
assert belief.argmax() == RIM and (here == CUP).sum() > (here == RIM).sum()

# %% [markdown]
# ### All pixels at once
#
# Products of many small numbers vanish, so add logarithms: pick the rows that were said, add them up over raters, add the log
# prior, softmax. That is `confusion.posterior`, of chapters 2 to 12, with two more axes.

# %%
def fuse(A, prior, said):
    """(R, K, K), (K,), (N, R, H, W) -> p(truth | labels) (N, K, H, W)."""
    rows = torch.stack([log(A)[r][said[:, r]] for r in range(len(A))], 1)  # (N, R, H, W, K)
    return (rows.sum(1) + log(prior)).softmax(-1).movedim(-1, 1)


fused = fuse(A, prior, said)
assert torch.allclose(fused[at[0], :, at[1], at[2]], belief)
assert torch.allclose(fused, posterior(spatial(log(A)), spatial(log(prior)), said).exp())  # shown == shipped
print(f"one line of the library, {fused[:, 0].numel()} pixels, the same belief in each")

# %% [markdown]
# ### One number for each word
#
# Papers, and programs, like to keep one number for each rater and class. Often it is the diagonal, $d_k = A_{kk}$: how often
# class $k$ is recognised. Four things can be done with as many numbers:
#
# - **as printed**: a vote for $t$ adds $\log d_t$ to class $t$.
# - **log-odds**: it adds $\log \frac{d_t (K - 1)}{1 - d_t}$, which is positive for whoever is better than chance. It is Bayes' rule
#   if a rater recognises all classes equally often and errs evenly.
# - **row ratio**: it adds $\log (A_{tt} / \max_{k \ne t} A_{tk})$, the ratio to the nearest rival *in the row of the word*. For
#   $K = 2$ this is exact, as section 3 found; for more classes one number cannot say against *which* class it speaks.
# - **diagonal by Bayes**: fill each column up, the rest spread evenly over the other classes, and use
#   {eq}`eq-ch13-bayes`. It is a full table, made of $d$ alone.

# %%
def own_class(w, said):
    """Weights of words (R, K), masks (N, R, H, W) -> (N, K, H, W): a vote is heard by the class that is named."""
    return (spatial(w) * one_hot(said, w.shape[1]).movedim(-1, 2)).sum(1).softmax(1)


def log_odds(d):
    d = d.clamp(1e-3, 1 - 1e-3)  # nobody is infinitely sure
    return (d * (d.shape[1] - 1) / (1 - d)).log()


def row_ratio(A):
    A = A.clamp(min=1e-3)
    rival = (A * (1 - torch.eye(A.shape[1]))).amax(2)  # (R, K): the largest other entry of each row
    return (A.diagonal(dim1=1, dim2=2) / rival).log()


def filled(d):
    """Diagonals (R, K) -> matrices (R, K, K): the rest of each column evenly over the other classes."""
    off = (1 - d)[:, None] / (d.shape[1] - 1)  # (R, 1, K): of each truth
    return torch.diag_embed(d) + off * (1 - torch.eye(d.shape[1]))


d = A.diagonal(dim1=1, dim2=2)  # (R, K)
assert torch.allclose(filled(d).sum(1), torch.ones(7, K).double()) and torch.equal(filled(d).diagonal(dim1=1, dim2=2), d)
print("rater 3, weight of the words background, rim, cup:")
for name, w in {"log d": d.log(), "log-odds": log_odds(d), "row ratio": row_ratio(A)}.items():
    print(f"  {name:>9}: {w[2].numpy().round(2)}")

# %% [markdown]
# ## 5. The experiment
#
# ### Ten fusions, five panels
#
# Four get no help: the vote, the mean of the masks, STAPLE, and Dawid-Skene on pixels (STAPLE with one matrix a rater for all
# pictures). Six are told the true matrices, or some of their numbers, of the very pictures. `equal`: nobody stands out.
# `specialists`: two are good with small cups, two others with large ones. `anchored`: five draw nearly the same cup into every disc.

# %%
def fusions(said, truth):
    """name -> soft masks (N, K, H, W)."""
    A, prior = known(said, truth)
    d = A.diagonal(dim1=1, dim2=2)
    hard = lambda labels: one_hot(labels, K).movedim(-1, 1).double()  # noqa: E731
    return {
        "vote": hard(fusion.majority(said, K)),
        "mean": fusion.mean_label(said, K),
        "STAPLE": quietly(fusion.staple, said, K).p,
        "Dawid-Skene": quietly(lambda m, K: fusion.staple(m, K, pooled=True), said, K).p,
        "as printed": confidence.printed(spatial(log(d)), said),
        "as released": confidence.weighted(spatial(log(d)), said),
        "log-odds": own_class(log_odds(d), said),
        "row ratio": own_class(row_ratio(A), said),
        "diagonal by Bayes": fuse(filled(d), prior, said),
        "Bayes, K x K": fuse(A, prior, said),
    }


# %% [markdown]
# Two numbers for each. *Dice* is of the cup, with the most probable class, the mean over pictures. *Soft Dice* is the paper's:
# the map is cut at .1, .3, .5, .7 and .9, and the five Dice are averaged. Several draws of pictures and masks.

# %%
def cup_dice(q, truth):
    """Soft masks (N, K, H, W) -> Dice of the cup by the most probable class."""
    return metrics.dice((q.argmax(1) == CUP).long(), (truth == CUP).long(), empty=1.0).foreground


rows, kept = [], {}
for panel in PANELS:
    for draw in range(P.draws):
        drawn = fundus.disc_and_cup(P.images, generator=seeded(100 + draw))
        masks = draw_masks(drawn.truth, drawn.images, PANELS[panel], n_classes=K, generator=seeded(200 + draw))
        kept[panel, draw] = drawn, masks
        for method, q in fusions(masks, drawn.truth).items():
            scores = {"dice": cup_dice(q, drawn.truth), "soft dice": metrics.soft_dice(log(q), drawn.truth, CUP)}
            rows.append({"method": method, "panel": panel, "draw": draw, "metrics": scores})


# %% tags=["hide-input"]
def scores(panel, method, metric="dice"):
    """A number for each draw."""
    return torch.tensor([r["metrics"][metric] for r in rows if (r["panel"], r["method"]) == (panel, method)])


METHODS = list(dict.fromkeys(row["method"] for row in rows))
lines = ["| fusion | " + " | ".join(PANELS) + " |", "| --- |" + " --- |" * len(PANELS)]
best = {panel: max(float(scores(panel, m).mean()) for m in METHODS) for panel in PANELS}
for m in METHODS:
    cells = []
    for panel in PANELS:
        mean, half = plots.interval(scores(panel, m).tolist())
        cells.append(f"{mean:.3f} ± {half:.3f}" if mean < best[panel] - 1e-6 else f"**{mean:.3f}** ± {half:.3f}")
    lines.append(f"| {m} | " + " | ".join(cells) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# Dice of the cup, mean and 95 % interval over the draws; bold is the best of a column. Your guesses first:

# %%
print("guessed  measured")
for (panel, method), guessed in guess.items():
    print(f"{guessed:7.2f}  {scores(panel, method).mean():8.2f}  {method} on {panel}")


def outcome(sentence, seen):
    print(f"{'seen' if seen else 'your run differed'}: {sentence}")


# %% [markdown]
# Now what a confidence should be. In `dominant`, from one number for each word to the whole matrix:

# %% tags=["hide-input"]
ORDER = ["as printed", "as released", "log-odds", "row ratio", "diagonal by Bayes", "Bayes, K x K", "STAPLE", "Dawid-Skene", "vote"]
plots.described(
    plots.bars_with_spread([r for r in rows if r["panel"] == "dominant"], "dice", ORDER, model="Bayes, K x K", xlabel="Dice of the cup",
                           title="Columns mislead, rows do not"),
    f"Fusions of the panel dominant, {P.draws} draws of {P.images} pictures (size {training.size()}). The first six are told "
    "the true confidences of the raters, the last three are not. A dot is a draw, the line is the 95 % interval.",
)  # fmt: skip

# %%
gap = lambda panel, a, b: scores(panel, a) - scores(panel, b)  # noqa: E731  (draws,): same pictures, same masks
for a, b in (("log-odds", "vote"), ("row ratio", "log-odds"), ("diagonal by Bayes", "log-odds"), ("Bayes, K x K", "log-odds"), ("Bayes, K x K", "row ratio")):
    print("  ".join(f"{panel} {gap(panel, a, b).mean():+.3f}" for panel in PANELS), f"  {a} - {b}")
outcome("dominant: log-odds of the diagonal are behind the vote", (gap("dominant", "vote", "log-odds") > 0.02).all())
outcome("dominant: Bayes with the whole matrix is far ahead of them", (gap("dominant", "Bayes, K x K", "log-odds") > 0.15).all())
outcome("dominant: so is one number for each word, if it is the row's", (gap("dominant", "row ratio", "log-odds") > 0.15).all())
assert (gap("dominant", "Bayes, K x K", "log-odds") > 0.1).all()

# %% [markdown]
# This is the lesson, and it is a little other than one expects. Votes weighed by how well the rater recognises the class fall
# *behind the plain vote*, although every number is true. They take "cup" for strong evidence from a rater who
# recognises nearly every cup; that is a number out of the column of cup, and says nothing of how often the same rater says cup where
# it is *rim*. The row ratio asks for just that. It has as many numbers, goes into the same formula, and nearly the whole
# gap closes.
#
# The diagonal, filled up to a table and read by Bayes along its rows, comes as far: whoever recognises rim badly says something
# else there, and with three classes there is not much else. What the true off-diagonal entries add on top is small in
# these panels. It is large where two raters with equal diagonals err in different directions; question 1 of section 9 has
# such a pair.
#
# In the other panels nobody uses one word far more often than is right. There these readings lie within a few points of one another, and a paper that
# had tried only such raters would have found nothing wrong with log-odds.
#
# So what is wrong is not that there are too few numbers. It is a number from a column where one from a row is wanted. Bayes'
# rule with the whole matrix cannot make this mistake, and needs no rule for which rival counts.
#
# ### Where knowing the raters is worth nothing
#
# In `equal`, the oracle's matrices do not beat the vote. All raters have the same matrix, so there is nothing to weigh. And
# the posterior picks the most probable class of each *pixel*, as if pixels were independent, which is not the same as the
# best Dice. Do not expect a model of raters to help where raters do not differ.

# %%
for panel in PANELS:
    print(f"{panel:>9}: Bayes, K x K - vote {gap(panel, 'Bayes, K x K', 'vote').mean():+.3f}, STAPLE - vote {gap(panel, 'STAPLE', 'vote').mean():+.3f}, "
          f"Dawid-Skene - vote {gap(panel, 'Dawid-Skene', 'vote').mean():+.3f}")  # fmt: skip
outcome("jitter: Dawid-Skene, which is told nothing, beats the vote", gap("jitter", "Dawid-Skene", "vote").mean() > 0.02)
outcome("dominant: Dawid-Skene is behind the vote", gap("dominant", "Dawid-Skene", "vote").mean() < 0)
outcome("equal: known matrices do not beat the vote by a point", gap("equal", "Bayes, K x K", "vote").mean() < 0.01)

# %% [markdown]
# STAPLE and Dawid-Skene use the same {eq}`eq-ch13-bayes` and must find the matrices themselves. In `jitter` Dawid-Skene, which counts over
# all pictures, does, and comes near the oracle. In `dominant` both believe the five, who agree. *The formula for fusing is not the weak point there; the matrices
# are.* Exercise 13.4 looks for the reason.
#
# ### A word on soft Dice
#
# By the paper's measure, the same maps:

# %%
print("                       Dice   soft Dice")
for m in ("vote", "mean", "as released", "Bayes, K x K"):
    print(f"  jitter, {m:<13} {scores('jitter', m).mean():.3f}   {scores('jitter', m, 'soft dice').mean():.3f}")
assert torch.allclose(scores("jitter", "vote"), scores("jitter", "vote", "soft dice"), atol=1e-4)  # hard maps: the same

# %% [markdown]
# The mean of the masks, cut at its most probable class, *is* the vote but for ties. Cut at .1 and at .9 it is another mask each
# time, and the average of five such Dice is far lower. Soft Dice rewards a map for being sharp. So it cannot be used to
# say that a vote is better than a mean, or a network that is taught by sharp maps better than one that is taught by honest
# ones. Any comparison by it must give all rivals the same kind of map, or the same loss.
#
# ### Does a better fusion teach a better network?
#
# Three U-Nets of the same first weights, taught by the vote, by the K x K fusion, and by the truth. All have the same
# loss, $1 - \text{SSIM}$ {cite:p}`wang2004`: one minus a similarity of two maps in small windows, the paper's choice. The class
# `AggNet`, after {cite:t}`albarqouni2016`, takes soft masks `q` and learns them; its EM is left out until chapter 14. This is
# the training cell of the chapter; it checks that parameters and loss live on the device it names.

# %% tags=["training"]
school = fundus.disc_and_cup(P.taught, generator=seeded(300))
drawn = draw_masks(school.truth, school.images, PANELS["dominant"], n_classes=K, generator=seeded(301))
targets = {name: q for name, q in fusions(drawn, school.truth).items() if name in ("vote", "Bayes, K x K")}
targets["truth"] = one_hot(school.truth, K).movedim(-1, 1)
device, nets = training.pick_device(), {}
for name, q in targets.items():
    nets[name] = AggNet(networks.unet(3, K, width=12, generator=seeded(0)), q)
    history = training.fit(nets[name], Annotations(school.images, drawn, n_classes=K), epochs=P.epochs, settle=P.settle,
                           batch_size=P.batch_size, lr=1e-2)  # fmt: skip
    assert all(parameter.device.type == device.type for parameter in nets[name].parameters())
    assert history.device.startswith(device.type)
print(history)

# %% [markdown]
# Unseen pictures, and no rater in sight:

# %%
test = fundus.disc_and_cup(P.tested, generator=seeded(302))
answers = {name: training.predict_log_p(net, test.images).exp() for name, net in nets.items()}
for name, p in answers.items():
    print(f"taught by {name:<13} masks {cup_dice(targets[name], school.truth):.3f}; network {cup_dice(p, test.truth):.3f}, "
          f"soft {metrics.soft_dice(log(p), test.truth, CUP):.3f}")  # fmt: skip
outcome("the network taught by the K x K fusion draws the better cup", cup_dice(answers["Bayes, K x K"], test.truth) > cup_dice(answers["vote"], test.truth))

# %% tags=["hide-input"]
n = int((answers["vote"].argmax(1) != test.truth).sum((1, 2)).argsort()[P.tested // 2])  # a picture of middle difficulty
plots.described(
    plots.masks(torch.stack([p[n].argmax(0) for p in answers.values()]), test.truth[n], [f"{name}" for name in answers],
                title="A network draws as it was taught"),
    "An unseen picture, drawn by three networks; above each, what taught it. White is right, yellow is the other of rim and cup.",
)  # fmt: skip

# %% [markdown]
# The network that was taught by the vote has learned the habit of the five: a cup too large. It has never seen anything else.
# These targets were made with the oracle's matrices, so this is a ceiling: what could be gained by the right matrices, not what
# somebody gained.
#
# ## 6. Break it
#
# ### Everybody agrees
#
# A formula for fusing has to pass one test before any other: if all raters say the same, and all are better than chance, the
# answer must be what they say. Try all numbers of raters and classes, and all skills:

# %%
lost = {"printed": 0, "weighted": 0, "posterior": 0}
trials = [(R, L, skill) for R in (1, 3, 7) for L in (2, 3, 5) for skill in (0.6, 0.9, 0.99)]
for R, L, skill in trials:
    one = torch.full((L, L), (1 - skill) / (L - 1)).fill_diagonal_(skill)
    labels, log_z = torch.full((1, R), L - 1), one[:, L - 1].log().expand(1, R, L)
    lost["printed"] += int(confidence.printed(log_z, labels).argmax()) != L - 1
    lost["weighted"] += int(confidence.weighted(log_z, labels).argmax()) != L - 1
    lost["posterior"] += int(posterior(one.log().expand(1, R, L, L), torch.zeros(1, L), labels).argmax()) != L - 1
print(f"of {len(trials)} unanimous votes, lost: {lost}")
assert lost == {"printed": len(trials), "weighted": 0, "posterior": 0}

# %% [markdown]
# No network can be blamed for this, and no training can mend it. More raters make it *worse*. A paper may print a formula with
# a sign or a definition that is off, and run code that does otherwise; this one does (the released code is the `weighted`
# reading). So take three lines and three votes before you build on a formula.
#
# ### The logarithm of nothing
#
# The first confidences, before anything is learned, are random (Eq. 14): $w_0 = \log\,[\psi + \varepsilon]_0^1$, with $\psi$
# uniform from .1 to .9 for each rater, $\varepsilon$ normal with standard deviation .2, clipped to 0 and 1.

# %%
generator = seeded(5)
start = 0.1 + 0.8 * torch.rand(1, 7, 1, 1, 1, generator=generator)  # a rater's mean confidence
start = (start + 0.2 * torch.randn(1, 7, K, 32, 32, generator=generator)).clamp(0, 1)
w0 = start.log()
print(f"clipped at 0: {(start == 0).double().mean():.1%} of the values, in which the logarithm is {w0.min()}")
broken = confidence.printed(w0, said[:1])
print(f"pixels whose fusion is not a number: {broken.isnan().any(1).double().mean():.0%}")
assert w0.min() == -torch.inf and broken.isnan().any() and (0 * w0.min()).isnan()

# %% [markdown]
# $0 \cdot \infty$ is not a number: where a rater did *not* name a class, the product with $z = 0$ should remove the confidence, and
# breaks the sum instead. One such number in a loss ends the training. Clip at .001, and all is finite again. But see what it says:

# %%
clipped = confidence.printed(start.clamp(min=1e-3).log(), said[:1])
assert clipped.isfinite().all()
print(f"finite; agrees with the vote in {(clipped.argmax(1) == first['vote'][:1]).double().mean():.0%} of the pixels")
print(f"as released, the same start: {(confidence.weighted(start.clamp(min=1e-3).log(), said[:1]).argmax(1) == first['vote'][:1]).double().mean():.0%}")

# %% [markdown]
# Clipping removes the symptom. By the printed formula the result is still a vote turned round. `posterior` needs no such care for labels that
# are *missing* or not said: it looks up the row that was said, and multiplies nothing by 0. (For entries that are 0,
# `confusion.log` has a floor.) And a start below chance is no harmless noise: by Bayes, a rater at .1 of three classes
# counts *against* what they say.
#
# ### Weights that know the answer
#
# Where do confidences come from? In the paper, from a network that looks at the present answer $\tilde y$ and predicts what
# each rater says of *this* pixel: $p(z^m \mid \tilde y)$. That looks like what we want. But it is another thing than a
# matrix: it is one *column*, that of $\tilde y$, chosen by the answer itself. A vote that agrees with $\tilde y$ gets the large
# weight $A_{\tilde y \tilde y}$, any other vote a small one. So the fusion gives $\tilde y$ back. First everything that five raters can say of one pixel, each right nine
# times of ten; weights from the column of each answer in turn:

# %%
heard = torch.cartesian_prod(*[torch.arange(K)] * 5)  # (243, 5)
for held in range(K):
    column = even[:, held].expand(len(heard), 5, K)  # log p(says each class | the answer that is held)
    by_odds = ((column.exp() * (K - 1) / (1 - column.exp())).log() * one_hot(heard, K)).sum(1)
    as_released = confidence.weighted(column, heard)
    seconded = (heard == held).any(1)  # by at least one of the five
    assert all((weighed.argmax(1) == held)[seconded].all() for weighed in (by_odds, as_released))
by_bayes = posterior(even.expand(len(heard), 5, K, K), torch.zeros(len(heard), K), heard).argmax(1)
print(f"weights of one column give back what was held {int(seconded.sum())} times, whenever somebody says it; the whole table does so {int((by_bayes == held)[seconded].sum())} times of these")
assert not (by_bayes == held)[seconded].all()

# %% [markdown]
# One rater of five who says it is enough, and the four who say otherwise are not heard. In pictures? Four answers, good and bad:

# %%
def columns(answer, said):
    """The raters' log p(says each class | answer) in each pixel (N, R, K, H, W), and the matrices, counted against the answer."""
    A, _ = known(said, answer)
    return log(A)[:, :, answer].movedim(2, 0), A


def given_back(answer, said):
    """Dice of the cup with the answer itself: weights from its columns, as released and as log-odds, and Bayes with its matrices."""
    log_z, B = columns(answer, said)
    p = log_z.exp().clamp(1e-3, 1 - 1e-3)  # (N, R, K, H, W)
    odds = ((p * (K - 1) / (1 - p)).log() * one_hot(said, K).movedim(-1, 2)).sum(1).softmax(1)
    bayes = fuse(B, torch.full((K,), 1 / K).double(), said)
    return {"as released": confidence.weighted(log_z, said), "log-odds": odds, "Bayes": bayes}


echo = {}
print("                                Dice of the fused cup with the answer that the weights came from")
for panel in ("dominant", "jitter"):
    drawn, masks = kept[panel, 0]
    for name, answer in {"the truth": drawn.truth, "rater 1": masks[:, 0], "the vote": fusion.majority(masks, K), "rater 5": masks[:, 4]}.items():
        echo[panel, name] = {how: cup_dice(q, answer) for how, q in given_back(answer, masks).items()}
        quality = metrics.dice((answer == CUP).long(), (drawn.truth == CUP).long(), empty=1.0).foreground
        print(f"{panel:>8}, {name:<9} ({quality:.2f} right): " + ", ".join(f"{how} {x:.3f}" for how, x in echo[panel, name].items()))

# %% [markdown]
# With log-odds for weights every answer confirms itself, the truth and the worst rater alike. The weights of the released code do
# much the same, and exactly so for the vote: whoever starts with it ends with it, and the iteration has nothing to say. The paper calls such an end a "trivial solution" and shuffles raters against it.

# %%
own = [echo[panel, name]["log-odds"] for panel, name in echo]
outcome("weights p(z | answer), as log-odds, give every answer back, Dice above .97", min(own) > 0.97)
outcome("as released, they give the vote back", min(echo[panel, "the vote"]["as released"] for panel in ("dominant", "jitter")) > 0.97)
outcome("jitter: Bayes with the same matrices moves away from the vote", echo["jitter", "the vote"]["Bayes"] < 0.97)
drawn, masks = kept["jitter", 0]
moved = given_back(fusion.majority(masks, K), masks)["Bayes"]
print(f"jitter, right after one step of Bayes from the vote: {cup_dice(moved, drawn.truth):.3f}, before {scores('jitter', 'vote')[0]:.3f}")

# %% [markdown]
# Bayes uses *all* columns of the matrices that were counted against the answer, and so can disagree with it: in `jitter` it leaves the
# vote, and for the better. That is the first round of Dawid-Skene. In `dominant` even Bayes hardly moves: five who share
# their mistakes look like five good witnesses of the vote, which *is* theirs. And a rater's own mask confirms itself by Bayes
# as well, since counted against it that rater is perfect. No fusion of labels gets out of there. A network that sees the
# picture might, and that is what chapter 14 tries.
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} One pixel (★, 10 minutes)
# :label: ex-ch13-pixel
#
# Exercise 13.1. `A` (R, K, K) are known matrices, said before truth, `prior` (K,) the shares of the classes, `said` (R,) what
# was said of one pixel, -1 where a rater did not see it. Return the posterior (K,), without `course_lib`.
# ```

# %% tags=["stub"]
def one_pixel(A, prior, said):
    """(R, K, K), (K,), (R,) -> (K,)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Section 4 has it, but for raters who said nothing. What should they change?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $p_k \propto \pi_k \prod_{r:\, \text{spoke}} A^{(r)}_{\text{said}_r,\, k}$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `rows = A[torch.arange(len(said)), said.clamp(min=0)]` is (R, K); `torch.where((said >= 0)[:, None], rows, ?)`, then
# `.prod(0)`. Do not forget what stands in front of the product.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.one_pixel(one_pixel)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def one_pixel(A, prior, said):
    """(R, K, K), (K,), (R,) -> (K,)."""
    rows = A[torch.arange(len(said)), said.clamp(min=0)]  # (R, K)
    p = prior * torch.where((said >= 0)[:, None], rows, 1).prod(0)
    return p / p.sum()


checks.one_pixel(one_pixel)
print(f"the pixel of section 4: {one_pixel(A, prior, here).numpy().round(3)}")
print(f"had only raters 3 to 7 seen it: {one_pixel(A, prior, torch.where(torch.arange(7) < 2, -1, here)).numpy().round(3)}")

# %% [markdown]
# **What you should see, and why.** A missing label multiplies by 1 for *every* class. The printed formula adds 0 to every class for it too,
# and that is right; its mistake is to add 0 as well where a rater spoke, and named another class. Look at the last line, too: one
# "rim" among the five careless can balance several of their "cup".
#
# ```{exercise} The prior that overturns a vote (★★, 15 minutes)
# :label: ex-ch13-prior
#
# Exercise 13.2. Two classes. `A` (R, 2, 2), `said` (R,), nothing missing. Return the prior probability of class 1, one number,
# at which the posterior of class 1 is exactly one half. Below it the answer is class 0, above it class 1.
# ```

# %% tags=["stub"]
def tipping_prior(A, said):
    """(R, 2, 2), (R,) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# How likely is what was said if the truth is 0, and if it is 1? Two numbers, $\ell_0$ and $\ell_1$.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Both classes are equal when $(1 - \pi)\, \ell_0 = \pi\, \ell_1$. Solve it for $\pi$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `l = A[torch.arange(len(said)), said].prod(0)`, then `l[?] / l.sum()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.tipping_prior(tipping_prior)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def tipping_prior(A, said):
    """(R, 2, 2), (R,) -> a number."""
    likely = A[torch.arange(len(said)), said].prod(0)  # (2,)
    return likely[0] / likely.sum()


checks.tipping_prior(tipping_prior)
inside = [RIM, CUP]  # only of the disc: rim or cup
two = A[:, inside][:, :, inside].clamp(min=1e-3)
two = two / two.sum(1, keepdim=True)  # (R, 2, 2)
share = float(prior[CUP] / prior[inside].sum())
for yes in range(8):  # so many of the seven say cup: the careless first
    words = (torch.arange(7).flip(0) < yes).long()
    tip = float(tipping_prior(two, words))
    print(f"{yes} of 7 say cup: it is cup if cup is {tip / (1 - tip):8.2g} times as common as rim; it is {share / (1 - share):.2f} times: {'cup' if share > tip else 'rim'}")

# %% [markdown]
# **What you should see, and why.** All five careless raters may say cup, and the answer is still rim: each of these votes is
# weak, and two strong ones are against it. The prior moves the threshold, not the evidence. A network that looks at the pixel gives
# each pixel a prior of its own, and this is all that "the raw image prior" of the paper has to be.
#
# ```{exercise} Not unique (★★, 10 minutes)
# :label: ex-ch13-unique
#
# Exercise 13.3. The supplement calls $w^m(t) = \log A^{(m)}_{tk}$ the unique solution. Return another one: a table `W` (R, K, K),
# every entry of which differs from $\log A$, such that $\operatorname{softmax}_k(\sum_m W^{(m)}_{z^m, k} + \log \pi_k)$ is the posterior for
# *every* prior and *all* labels, also when some raters say nothing. `A` has no zeros.
# ```

# %% tags=["stub"]
def another(A):
    """(R, K, K) -> (R, K, K)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# What may you add to all logits of a pixel without changing the softmax?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $W^{(m)}_{tk} = \log A^{(m)}_{tk} + a_m(t)$, with any $a_m(t) \ne 0$ that does not depend on $k$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `A.log()` has said on axis 1 and truth on axis 2. Divide each row by its largest entry before the logarithm? Then one entry a
# row becomes 0, and that one differs only if it was not 0 before. Or simply add something.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.another(another)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def another(A):
    """(R, K, K) -> (R, K, K)."""
    return A.log() - A.log().mean(2, keepdim=True)  # each row has mean 0: only ratios are left


checks.another(another)
print("rater 3, weights of the words (rows) for background, rim, cup:")
for name, row in zip(NAMES, another(A.clamp(min=1e-3))[2].tolist()):
    print(f"  {name:>10}: " + "  ".join(f"{x:+.2f}" for x in row))

# %% [markdown]
# **What you should see, and why.** With rows of mean 0 the weights can be read: positive for what the word speaks for,
# negative for what it speaks against. These are the *evidence* weights of a vote, and no probabilities. In the other direction, a network that is free
# to choose $W$ and is judged by the fusion alone cannot know which of these tables to give; only a loss on the labels themselves makes it
# $\log A$.
#
# ```{exercise} Mistakes that are shared (★★★, 20 minutes)
# :label: ex-ch13-shared
#
# Exercise 13.4. Why does STAPLE lose to the vote when five of seven share a mistake? Measure the sharing. `said` (N, R, H, W), `truth`
# (N, H, W). Of the pixels whose truth is `j`: how often do raters $r$ and $s$ *both* say `i`, divided by what it would be if
# they were independent, given the truth? Return the ratios (R, R), of all pairs. Everybody says `i` somewhere.
# ```

# %% tags=["stub"]
def shared(said, truth, i, j):
    """(N, R, H, W), (N, H, W), said class, true class -> (R, R)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# First make a long table: the pixels whose truth is j, a column for each rater, 1 where they say i.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\displaystyle \frac{p(r \text{ says } i,\, s \text{ says } i \mid j)}{p(r \text{ says } i \mid j)\; p(s \text{ says } i \mid j)}$, which is 1 for independent raters.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `x = (said.movedim(1, -1)[truth == j] == i).double()` is (pixels, R). `x.T @ x` counts both; `x.mean(0)` is each alone.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.shared(shared)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def shared(said, truth, i, j):
    """(N, R, H, W), (N, H, W), said class, true class -> (R, R)."""
    x = (said.movedim(1, -1)[truth == j] == i).double()  # (pixels, R)
    alone = x.mean(0)
    return (x.T @ x / len(x)) / (alone[:, None] * alone)


checks.shared(shared)
others = ~torch.eye(5, dtype=torch.bool)  # of the five careless
drawn, masks = kept["dominant", 0]
B, _ = known(masks, drawn.truth)
generator = seeded(6)  # one for all: raters who share their dice share their mistakes
dice = torch.stack([torch.multinomial(b.T[drawn.truth.flatten()], 1, generator=generator)[:, 0] for b in B], 1)
rolled = dice.unflatten(0, drawn.truth.shape).movedim(-1, 1)  # (N, R, H, W)
for what, m in {"as drawn": masks, "rolled": rolled}.items():
    together = shared(m[:, 2:], drawn.truth, CUP, RIM)[others].mean()
    score = {how: cup_dice(fusions(m, drawn.truth)[how], drawn.truth) for how in ("vote", "STAPLE", "Bayes, K x K")}
    print(f"{what:>8}: two of raters 3 to 7 call the same rim cup {together:.2f} times as often as by chance; " + ", ".join(f"{k} {v:.3f}" for k, v in score.items()))

# %% [markdown]
# **What you should see, and why.** As drawn, the five are far from independent: the overdrawn ring is the same ring. STAPLE believes who
# agrees more than chance explains, so it takes the five for experts, and their "cup" for strong evidence; the two who draw well become people who miss
# the cup. The vote trusts nobody, and so is fooled only where at least four go wrong. Roll dice with the *same* matrices for each pixel, and
# STAPLE is nearly perfect. Even then nobody told it anything. In the table it was the *sharing* that ruined it, not the
# bad raters.
#
# ## 8. What the paper claims and what we measured
#
# Drawn from `book/claims.yaml` and the committed results, never typed. The paper's Table 3 compares fusions of the labels.

# %% tags=["hide-input"]
judged = claims.table(experiment="prism-table3")
Markdown(judged if judged.count("\n") > 1 else "*No claim is judged by these results yet.*")

# %% [markdown]
# What this chapter asserted needs no result file: that the printed formula turns a vote round, that the constant prior does nothing,
# that the solution is not unique, and that the start can be no number. Each is a cell with an `assert`.
#
# ## 9. Three questions
#
# <details><summary>1. Two raters recognise rim equally often, .6. One calls the rest cup, the other background. Both say cup. Whose
# word is worth more, and which of the fusions of section 5 know it?</summary>
#
# The second's: where that rater errs on rim, it is not by saying cup. Only the whole matrix knows it. For all that use the diagonal, by Bayes or
# not, the two are the same person.
#
# </details>
#
# <details><summary>2. A colleague has a network that gives a confidence map for each rater, and reports that fusing with these maps
# reproduces the network's own segmentation almost exactly. "So both have converged." Have they?</summary>
#
# They may have converged to anything. Weights $p(z \mid \tilde y)$ give $\tilde y$ back, whatever it is (section 6). Ask for
# something that the answer did not choose: matrices counted over many pictures, labels that were held out, or the
# same run from another start.
#
# </details>
#
# <details><summary>3. Does a higher confidence always make a vote count more?</summary>
#
# No. The probability to say cup where it is cup can go up because somebody says cup more often, everywhere. What counts is the ratio
# along the row. A rater who always says cup has the confidence 1 for cup, and a row of ones: no evidence at all. (As
# printed, that is the only rater who does no harm.)
#
# </details>
#
# ## 10. Further reading and errata
#
# **Further reading.** {cite:t}`wu2022` is the paper of this part; {cite:t}`dawid1979` have {eq}`eq-ch13-bayes` and how to find the
# matrices; {cite:t}`warfield2004` for masks. {cite:t}`albarqouni2016` put a network in the place of the prior; {doc}`/notebooks/02_labels_only` and
# {doc}`/notebooks/07_masks_that_disagree` have the same formula with estimated matrices.
#
# **Errata** of {cite:t}`wu2022`, as far as this chapter needs them.
#
# - Eq. 1, 4 (and 5, 11, 12, 15, which use them): with "$\cdot$" element by element, as the text defines it, a vote lowers its own
#   class, and a class that nobody names keeps logit 0. Asserted in sections 3 and 6. Proposition 1 needs an inner product for
#   each class, a $K \times K$ table a rater. For two classes the printed shape can be kept, with the ratio along the row for $w$.
# - Proposition 1 in the main text says $w^m = \log p(z^m \mid y)$ without saying for which $y$. The version in the supplement has the
#   $k$. That raters must be independent given the truth is used in the proof and stated nowhere.
# - $p_u$, a constant, cancels in the softmax. Bayes' rule needs $\log p(y = k)$ in its place.
# - "Unique solution": any $a_m(t)$ may be added to a row (section 3, exercise 13.3).
# - Eq. 14: values clipped at 0 have logarithm $-\infty$, and $0 \cdot \infty$ is not a number (section 6). Clip at a small positive
#   number; and confidences below chance are votes against.
# - The network that gives the confidences sees the answer, so it gives $p(z \mid \tilde y)$, one column, and not the table. With such
#   weights an answer confirms itself (section 6, asserted).
# - The released code takes weights without a logarithm, divided by their sum: a weighted vote, and not Eq. 4.
