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
# # 16. Positive and negative strokes
#
# *Core chapter.* A mask takes minutes. A stroke takes a second: "this is it", a few more: "this is not it", and silence about the
# rest. {cite:t}`zhang2025` train a network on such strokes. Nothing in it has to be invented anew. Whoever says what
# something is *not* is an annotator with a confusion matrix like any other, and that matrix is a product of two.
#
# **You will be able to**
#
# - write the loss of a word "this is not $k$", and check with three numbers whether a matrix may stand in it;
# - train a network on nothing but denials, with three classes, and say why the same is no news with two;
# - say what silence about a pixel may mean, and why the answer matters more than the loss;
# - paint strokes on pictures, train on them, and read what the network makes of you.
#
# **You need to know** chapter 8 (a matrix per pixel, the trace) and what a column of a confusion matrix is.
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** digits in noise {cite:p}`lecun1998`, two side by side or one alone, and drawn streets; strokes are simulated, until
# you paint your own.

# %%
try:
    import warnings
    from functools import cache

    import ipywidgets
    import numpy as np
    import torch
    from IPython.display import Markdown
    from matplotlib.figure import Figure

    import course_lib.checks.strokes as checks
    from course_lib import book, data, experiments, metrics, networks, paint, plots, scenes, strokes, training
    from course_lib.annotations import MISSING, Annotations
    from course_lib.confusion import apply, log
    from course_lib.experiments import claims
    from course_lib.experiments.coarse import BENT
    from course_lib.methods.coarse import StrokeCM, biased, complementary
    from course_lib.methods.pixels import Pixels
    from course_lib.networks import seeded
    from course_lib.pixel_cms import FixedCM, PixelCM
    from course_lib.strokes import NEGATIVE, POSITIVE
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(16)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    pictures=(40, 192, 400),  # that the networks of this chapter learn from
    tested=(20, 100, 300),
    epochs=(5, 12, 60),
    settle=(1, 2, 10),  # the last epochs, at a tenth of the rate
    batch_size=(4, 8, 16),
    painting=(6, 30, 60),  # epochs on painted strokes
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# Two people mark the same digits, quickly. The first says "this is digit", a little too wide here and there, with gaps.
# The second says "this is *not* digit". Nobody speaks about the pixels in between.

# %%
source = data.split(data.mnist5k())
drawn = scenes.digits(source.train.take(torch.arange(P.pictures) * 17 % len(source.train)), noise=0.3, generator=seeded(160))
HANDS = {"positive": strokes.coarse(), "negative": strokes.coarse(share=0.4, cuts=4)}
marks = strokes.draw_strokes(drawn.truth, 1, n_classes=2, ratio=0.5, generator=seeded(161), **HANDS)
print(f"images {tuple(drawn.images.shape)}, truth {tuple(drawn.truth.shape)}, strokes {tuple(marks.shape)}: positive, negative")

# %% tags=["hide-input"]
plots.described(
    paint.still(drawn.images[:4], marks[:4], title="Yes, no, and silence", whose="simulated"),
    "Four digits in noise, with a positive stroke (orange, plus) and a negative one (blue, bar). Half of what each hand would "
    "mark is kept; the rest of the picture is not marked.",
)

# %% [markdown]
# With more classes, one is asked for in each picture, and the two sentences part ways. "This is car" names one class of four.
# "This is not car" leaves three.

# %%
KINDS = ("road", "building", "sky", "car")
street = scenes.streets(4, generator=seeded(162))
asked = torch.arange(4).flip(0)  # (N,): one class for each picture
of_street = strokes.draw_strokes(street.truth, asked, n_classes=4, ratio=0.5, generator=seeded(163), **HANDS)
for n, k in enumerate(asked):
    print(f"picture {n + 1}: this is {KINDS[k]} in {(of_street[n, POSITIVE] == k).sum()} pixels, this is not {KINDS[k]} in {(of_street[n, NEGATIVE] == k).sum()}")

# %% tags=["hide-input"]
plots.described(
    paint.still(street.images, of_street, title="A denial names no class, it rules one out", whose="simulated"),
    f"Four drawn streets. Asked for are, in this order, {', '.join(KINDS[k] for k in asked)}: where they are (orange, plus), where they are not (blue, bar).",
)

# %% [markdown]
# ## 2. Predict
#
# Further down, three networks learn to tell background, zeros and ones. mIoU, the mean over classes of the overlap of what is
# found with what is there, is 1 if all is right. Guess it on unseen pictures for a network that was taught

# %%
guess = {
    "strong": 0.5,  # by the true class of every pixel
    "not k": 0.5,  # by one class for each pixel that it does not have, drawn at random, and nothing else
    "not k, 5 %": 0.5,  # by the same words, but only for one pixel in twenty
    "naive": 0.5,  # by the words of every pixel, as if "not k" meant "k"
}

# %% [markdown]
# And three for your pencil. How many bits does "this is not $k$" tell, if there are two classes, and if there are ten? What is
# gained by a negative stroke, if there are two classes? And a network gets strokes "this is digit" only, with silence elsewhere:
# what is the easiest way for it to be right all the time?
#
# ## 3. The maths
#
# ### A denial is a word
#
# At one pixel, the network says $p$, the probabilities of $L$ classes. Annotator $c$ believes that the class is $j$ with
# probability $u_j$, where $u = A^{(c)} p$ as in every chapter. So far nothing is negative. Now the belief is put into a word.
# Whoever believes $j$ says "not $i$" with probability $M_{ij}$:
#
# $$
# M_{ij} = p(\text{says "not } i\text{"} \mid \text{believes } j), \qquad M_{jj} = 0, \qquad \sum_i M_{ij} = 1 .
# $$ (eq-ch16-m)
#
# Nobody denies what they believe: that is the zero diagonal. Everybody says something: columns sum to 1. So
#
# $$
# p(\text{says "not } i\text{"} \mid x) = \sum_j M_{ij}\, u_j = (M A^{(c)} p)_i ,
# $$ (eq-ch16-word)
#
# and the loss is the one of chapter 8, with $M A$ for the matrix (the paper's Eq. 4 and 5):
#
# $$
# \mathcal L = \underbrace{-\log \big(A^{(o)} p\big)_{\text{said}} + \lambda \operatorname{tr} A^{(o)}}_{\text{positive, Eq. 4}}
# \;+\; \underbrace{-\log \big(M A^{(c)} p\big)_{\text{denied}} + \lambda \operatorname{tr} A^{(c)}}_{\text{negative, Eq. 5, where } M^\top \text{ is printed}} ,
# $$ (eq-ch16-loss)
#
# each the mean over the pixels that were marked. A small example, with people who have favourites:

# %%
print("M, of people with favourites:", *("  ".join(f"{x:.1f}" for x in row) for row in BENT.tolist()), sep="\n  ")
u = torch.tensor([0.6, 0.3, 0.1])
v = BENT @ u
print(f"belief {[round(x, 2) for x in u.tolist()]} -> words 'not 0', 'not 1', 'not 2' {[round(x, 2) for x in v.tolist()]}, sum {v.sum():.2f}")
assert torch.allclose(v, torch.tensor([0.29, 0.56, 0.15])) and torch.allclose(BENT.sum(0), torch.ones(3))

# %% [markdown]
# If nothing is known of their favourites, all other classes are equally likely to be denied (`complementary`, after
# {cite:t}`ishida2017`). Then $(M u)_i = (1 - u_i) / (L - 1)$: a denial pushes $u_i$ down, and leaves all other classes alone.
#
# The paper derives the product by a sum over $i \ne j$ of $p(\text{denied } j \mid i)\, p(i)$, where $i$ is printed as a second complementary label ($\bar y^{(c)}$, not introduced) of the same annotator. If
# $i$ is the class that is believed, the sum is all of $M u$, as the diagonal of $M$ is 0. If it were another denial? Ask the same people twice about one pixel:

# %% tags=["hide-input"]
of_belief = (BENT * u).fill_diagonal_(0).sum(1)  # sum over i != j of p(denied j | believes i) u_i
twice = (BENT * u) @ BENT.T  # [denied first, denied then], the two independent given the belief
of_denial = twice.fill_diagonal_(0).sum(1)  # sum over i != j of p(denied j | denied i) p(denied i)
print(f"over beliefs {[round(x, 2) for x in of_belief.tolist()]}, over denials {[round(x, 2) for x in of_denial.tolist()]}, right {[round(x, 2) for x in v.tolist()]}")
assert torch.allclose(of_belief, v) and (of_denial < v - 0.02).all()

# %% [markdown]
# One may deny the same class twice, so over denials a part is missing. The sum is right for beliefs only.
#
# ### What can be learned from denials alone
#
# Ask very many people about one and the same pixel, and count what they deny: that is $v = M u$. $M$ has an inverse, so the counts give $u$
# back. Nobody ever said what the pixel *is*.

# %%
crowd = torch.multinomial(v, 100_000, replacement=True, generator=seeded(164))  # what so many people deny
counted = torch.bincount(crowd, minlength=3) / len(crowd)
back = torch.linalg.inv(BENT) @ counted
print(f"counted {[round(x, 3) for x in counted.tolist()]} -> belief {[round(x, 3) for x in back.tolist()]}")
assert torch.allclose(back, u, atol=0.02)

# %% [markdown]
# A network does not see many people at a pixel, but many pixels that look alike. It is the same.
#
# ### Two classes: no news
#
# For $L = 2$ there is one matrix with zero diagonal and columns that sum to 1: it exchanges the two. So "not 1" has the
# probability of "0". Any $p$, any $A$, any $\lambda$; the gradients, too:

# %%
for seed in range(100):
    logits = torch.randn(2, generator=seeded(seed)).double().requires_grad_()
    A = torch.rand(2, 2, generator=seeded(1000 + seed)).double().softmax(0)
    denied, said = -(complementary(2).double() @ A @ logits.softmax(0))[1].log(), -(A @ logits.softmax(0))[0].log()
    assert torch.isclose(denied, said)
    assert torch.allclose(*(torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (denied, said)))
print("'not 1' and '0': the same loss and the same gradient, in each of 100 cases")

# %% [markdown]
# **With two classes a negative stroke is the positive stroke of the other class.** The whole model is then two annotators with two
# matrices, chapter 8. It may still help very much, since a second person drew a second map. But no new kind of label
# has come in. For $L \ge 3$ it has: no positive word has the loss $-\log (1 - u_i)$.
#
# ### The trace stands before M
#
# The trace asks for the most unreliable $A$ that still explains the words. It is the trace of $A$, the beliefs, with the same sign for
# both kinds. It must not be that of $M A$. For uniform $M$,
#
# $$
# \operatorname{tr}(M A) = \frac{L - \operatorname{tr} A}{L - 1},
# $$ (eq-ch16-trace)
#
# so making *that* small would look for the most *reliable* annotator:

# %%
for L in (2, 3, 5):
    A = torch.rand(L, L, generator=seeded(L)).mul(3).softmax(0)
    assert torch.isclose((complementary(L) @ A).trace(), (L - A.trace()) / (L - 1))
print(f"always right, L = 3: tr A = {torch.eye(3).trace():.0f}, tr M A = {complementary(3).trace():.0f}")

# %% [markdown]
# ### Silence
#
# Most pixels are not marked. The paper names them once, and its loss has no rule for them. There are two readings:
#
# - **missing**: silence says nothing. The pixel is not in the loss.
# - **other**: whoever was asked for the digit and marked it meant that the rest is something else. With two classes, silence
#   of a positive annotator is the word "background". `strokes.read_unmarked` does it.
#
# A positive stroke under the first reading says "digit", and never anything else. Here are three explanations of every such
# word, at every pixel:

# %%
explanations = {  # p(background, digit), A [said, truth]
    "all is digit, and the annotator is right": ([0.0, 1.0], [[1.0, 0.0], [0.0, 1.0]]),
    "anything, and the annotator always says digit": ([0.7, 0.3], [[0.0, 0.0], [1.0, 1.0]]),
    "all is background, and the annotator errs always": ([1.0, 0.0], [[0.0, 1.0], [1.0, 0.0]]),
}
traces = []
for name, (p, A) in explanations.items():
    p, A = torch.tensor(p), torch.tensor(A)
    assert -(A @ p)[1].log() == 0  # a perfect fit
    traces.append(float(A.trace()))
    print(f"loss 0, trace {A.trace():.0f}: {name}")
assert traces == [2, 1, 0]

# %% [markdown]
# The words cannot tell these three apart, and the trace can: it prefers the worst. The theorem behind it (chapter 10) wants
# annotators who are right more often than not *for every class*, and here one class is never said.
#
# So the second map, or the second reading, has to bring in the word "background". Even then a matrix *per pixel* is free enough to
# explain any two maps by a picture of nothing:

# %%
truth = drawn.truth[0]
said = torch.stack([truth, torch.where(torch.rand(truth.shape, generator=seeded(165)) < 0.1, 1 - truth, truth)])  # two maps
nothing = torch.tensor([1.0, 0.0])  # p: all background
A = torch.stack([1 - said, said], 1).float()[:, :, None].expand(-1, -1, 2, -1, -1)  # (R, 2, 2, H, W): says what was said
says = torch.einsum("rijhw,j->rihw", A, nothing)
assert (says.gather(1, said[:, None]) == 1).all()  # loss 0 at every pixel, for both
print(f"loss 0 with an empty picture; trace {A.diagonal(dim1=1, dim2=2).sum(-1).mean():.0f} at every pixel, of the truth 2")

# %% [markdown]
# Nothing in the loss forbids this. What keeps a network from it is what chapter 8 relied on: matrices that start at the identity, learn more slowly
# than the network, and share their weights over all pixels; and a small $\lambda$. It is a start, and no proof.
#
# ## 4. From scratch
#
# ### One word
#
# Over beliefs $j$ and truths $k$, at one pixel:

# %%
def negative_word(i, M, A, p):
    """-log p(says "not i") for M, A (L, L), p (L,)."""
    total = 0.0
    for j in range(len(p)):  # what is believed
        for k in range(len(p)):  # what is true
            total = total + M[i, j] * A[j, k] * p[k]
    return -total.log()


A_example = torch.tensor([[0.8, 0.1, 0.25], [0.15, 0.7, 0.05], [0.05, 0.2, 0.7]])
assert torch.isclose(negative_word(1, BENT, A_example, u), -(BENT @ A_example @ u)[1].log())
print(f"-log p(not 1) = {negative_word(1, BENT, A_example, u):.4f}")


# %% [markdown]
# ### All words
#
# Pictures $B$, annotators $R$, of whom some are negative. In logarithms, a product of matrices is a sum and a `logsumexp`.
# Each annotator has a matrix of words: $M$, or the identity.

# %%
def stroke_loss(log_p, log_A, M, labels, negative, lam):
    """(B, L, H, W), (B, R, L, L, H, W), (L, L), (B, R, H, W), (R,) bool, a number -> a number."""
    words = torch.where(negative[:, None, None], log(M), log(torch.eye(len(M))))  # (R, L, L)
    log_WA = (words[None, ..., None, None, None] + log_A[:, :, None]).logsumexp(3)  # (B, R, L, L, H, W)
    says = apply(log_WA, log_p)  # (B, R, L, H, W)
    nll = -says.gather(2, labels.clamp(min=0)[:, :, None])[:, :, 0]  # (B, R, H, W)
    traces = log_A.diagonal(dim1=2, dim2=3).exp().sum(-1)  # (B, R, H, W): of A, before M
    seen = (labels != MISSING).float()
    return ((nll + lam * traces) * seen).sum() / seen.sum()


# %% [markdown]
# The library's way is `Pixels` with a `StrokeCM` around any rung of chapter 9's ladder; it picks the said row before anything is
# multiplied. Shown and shipped are the same, here on a network that has not learned anything yet, and the loop agrees:

# %%
rung = PixelCM(2, 4, 8, generator=seeded(1))
torch.nn.init.normal_(rung.last.weight, std=0.5, generator=seeded(2))  # else all its matrices are alike
M4 = torch.rand(4, 4, generator=seeded(3)) * (1 - torch.eye(4))
M4 = M4 / M4.sum(0)
untaught = Pixels(networks.unet(3, 4, generator=seeded(0)), StrokeCM(rung, M4), lam=0.1)
with torch.no_grad():
    log_p, log_A = untaught.log_p(street.images), rung(*untaught.network.features(street.images))
    ours = stroke_loss(log_p, log_A.expand(4, -1, -1, -1, -1, -1), M4, of_street, torch.tensor([False, True]), 0.1)
    theirs = untaught.loss((street.images, of_street, None, None))
    n, y, x = (of_street[:, NEGATIVE] != MISSING).nonzero()[100].tolist()  # one denial
    slow = negative_word(int(of_street[n, NEGATIVE, y, x]), M4, log_A[n, NEGATIVE, :, :, y, x].exp(), log_p[n, :, y, x].exp())
    word = -untaught.log_says(street.images)[n, NEGATIVE, of_street[n, NEGATIVE, y, x], y, x]
assert torch.isclose(ours, theirs) and torch.isclose(slow, word)
print(f"shown {ours:.5f}, shipped {theirs:.5f}; one word by the loop {slow:.5f}, by the library {word:.5f}")

# %% [markdown]
# ## 5. The experiment
#
# ### "Not class k"
#
# A zero and a one stand side by side, in either order, in noise: three classes. Of each pixel we are told *one class that it is
# not*, drawn evenly from the two wrong ones. No mark anywhere says what anything is.

# %%
NAMES = ["background", "zero", "one"]
school = scenes.two_digits(P.pictures, source.train, generator=seeded(170))
test = scenes.two_digits(P.tested, source.test, generator=seeded(171))
denials = {share: strokes.denied(school.truth, complementary(3), share=share, generator=seeded(172)) for share in (1.0, 0.05)}
true_share = torch.bincount(school.truth.flatten(), minlength=3) / school.truth.numel()
words = torch.bincount(denials[1.0][:, NEGATIVE].flatten(), minlength=3) / school.truth.numel()
for k, name in enumerate(NAMES):
    print(f"{name:>10}: {true_share[k]:.1%} of the pixels; 'not {name}' is said of {words[k]:.1%}")

# %% [markdown]
# Everybody here believes the truth ($A$ is the identity, `FixedCM`), so that only the reading of the words differs. The function
# trains a small U-Net under any reading; later cells give it other strokes and other matrices.

# %%
def taught(labels, M, kinds=("positive", "negative"), *, given=school, how=StrokeCM, rung=None, lam=0.0):
    """A network that learned from labels (N, R, H, W) of annotators of these kinds; and what the fit says of itself."""
    L, R = given.n_classes, len(kinds)
    rung = rung or FixedCM(torch.eye(L).expand(1, R, L, L)[..., None, None])  # nobody errs
    model = Pixels(networks.unet(given.images.shape[1], L, generator=seeded(0)), how(rung, M, kinds=kinds), lam=lam)
    with warnings.catch_warnings():  # the guard of chapter 8 compares with who marks most: nonsense for denials
        warnings.simplefilter("ignore", UserWarning)
        history = training.fit(model, Annotations(given.images, labels, n_classes=L), epochs=P.epochs + P.settle,
                               settle=P.settle, batch_size=P.batch_size, lr=1e-2, progress=False)  # fmt: skip
    return model, history


def overlap(model, unseen):
    """IoU of each class, mIoU, the share that is not called background."""
    found = training.predict(model, unseen.images)
    score = metrics.iou(found, unseen.truth, unseen.n_classes, empty=1.0)
    return score.score, float(score.macro), float((found > 0).double().mean())


# %% [markdown]
# This is the training cell of the chapter; it checks that parameters and loss live on the device it names. Only one network sees
# the truth. The last one reads "not zero" as "zero".

# %% tags=["training"]
uniform, device = complementary(3), training.pick_device()
LESSONS = {
    "strong": (school.truth[:, None], uniform, ("mask",)),
    "not k": (denials[1.0], uniform),
    "not k, 5 %": (denials[0.05], uniform),
    "naive": (denials[1.0], uniform, ("positive", "positive")),
}
models = {}
for name, lesson in LESSONS.items():
    models[name], history = taught(*lesson)
    assert all(parameter.device.type == device.type for parameter in models[name].parameters())
    assert history.device.startswith(device.type)
    print(f"{name:>10}: {history}")

# %% [markdown]
# Unseen pictures:

# %%
seen = {name: overlap(model, test) for name, model in models.items()}
print("guessed  mIoU   " + "  ".join(f"{name:>10}" for name in NAMES))
for name, (of_class, mean, _) in seen.items():
    print(f"{guess[name]:7.2f}  {mean:.3f}  " + "  ".join(f"{x:10.3f}" for x in of_class) + f"   {name}")


def outcome(sentence, seen):
    print(f"{'seen' if seen else 'your run differed'}: {sentence}")


outcome("a network that was told only what is *not* there is near the one that saw the truth", seen["strong"][1] - seen["not k"][1] < 0.1)
outcome("the naive reading finds next to nothing", seen["naive"][1] < 0.15)
assert seen["not k"][1] > seen["naive"][1] + 0.2

# %% tags=["hide-input"]
picture = int((test.truth == 1).sum((1, 2)).argsort()[P.tested // 2])
found = torch.stack([training.predict(model, test.images[picture : picture + 1])[0] for model in models.values()])
plots.described(
    plots.masks(found, test.truth[picture], list(models), image=test.images[picture, 0], title="Nobody ever said what anything is"),
    f"An unseen picture of a zero and a one, and what four networks find (size {training.size()}). White is right, yellow one digit for the "
    "other, blue missed, orange too much. The second and third were taught by denials only.",
)  # fmt: skip

# %% [markdown]
# One run proves little. The committed results have five draws; the functions of the next
# cell read them, and pair methods on the same draw as in chapter 15.

# %%
@cache
def rows_of(name):
    """The committed rows of an experiment, none while it has not been computed."""
    try:
        return experiments.read(data.shipped(f"results/coarse-{name}.lesson.json"))["rows"]
    except FileNotFoundError:
        return []


def each(name, method, metric="miou", **setting):
    """One number a draw, in order of the draws; empty where there is no such run."""
    fits = [r for r in rows_of(name) if r["method"] == method and all(r["setting"].get(k) == v for k, v in setting.items())]
    return np.array([r["metrics"][metric] for r in sorted(fits, key=lambda r: r["draw"])])


def gain(name, a, b, metric="miou", **setting):
    """a - b, draw by draw: mean, low, high of the 95 % interval."""
    return claims.interval(each(name, a, metric, **setting) - each(name, b, metric, **setting))


def told(mean, low, high):
    word = "gain" if low > 0 else "loss" if high < 0 else "not decided"
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] ({word})"


def later(name):
    return Markdown(f"*What stands here is drawn from `course run coarse-{name}`, which has not been run for this edition yet.*")


# %% tags=["hide-input"]
READINGS = {"strong": "true masks", "uniform": "M uniform", "biased": "M from the words' counts", "transposed": "M transposed", "naive": "as if positive"}
bars = [{**r, "method": READINGS[r["method"]]} for r in rows_of("not-k") if r["setting"]["denied"] == "bent" and r["setting"]["share"] == 1]
plots.described(
    plots.bars_with_spread(bars, "miou", list(READINGS.values()), model="M from the words' counts", xlabel="mIoU",
                           title="Words of people with favourites, read in four ways"),
    f"{len({r['draw'] for r in bars})} draws. Every pixel has one denial, and those who deny have favourites (the M of section 3). "
    "A dot is a draw, the line is the 95 % interval.",
) if bars else later("not-k")  # fmt: skip


# %% tags=["hide-input"]
def of_not_k():
    full, few = {"denied": "uniform", "share": 1.0}, {"denied": "uniform", "share": 0.05}
    behind, behind_few = gain("not-k", "strong", "uniform", **full), gain("not-k", "strong", "uniform", **few)
    near = "within .03" if behind[0] < 0.03 else "not within .03"
    by_draw = each('not-k', 'uniform', **few)
    bent = {"denied": "bent", "share": 1.0}
    return f"""Even denials, mIoU: strong {each('not-k', 'strong', **full).mean():.3f}, every pixel denied once
{each('not-k', 'uniform', **full).mean():.3f}, one pixel in twenty {each('not-k', 'uniform', **few).mean():.3f}, read as if positive
{each('not-k', 'naive', **full).mean():.3f}. *Behind the true masks, paired:* every pixel {behind[0]:.3f} [{behind[1]:.3f}, {behind[2]:.3f}], which is
{near} on average; 5 % of the pixels {behind_few[0]:.3f} [{behind_few[1]:.3f}, {behind_few[2]:.3f}], draw by draw {', '.join(f'{x:.3f}' for x in by_draw)}. A
network that never names one of three classes stays below 2/3; {(by_draw < 2 / 3).sum()} of these {len(by_draw)} draws did. *People with favourites:* M counted from the words, minus a uniform M:
{told(*gain('not-k', 'biased', 'uniform', **bent))}; the true M transposed, minus a uniform M: {told(*gain('not-k', 'transposed', 'uniform', **bent))}.
With 5 % of the pixels: {told(*gain('not-k', 'biased', 'uniform', **bent | {'share': 0.05}))} and {told(*gain('not-k', 'transposed', 'uniform', **bent | {'share': 0.05}))}."""


Markdown(of_not_k()) if rows_of("not-k") else later("not-k")

# %% [markdown]
# For even denials $M^\top = M$, and nothing is lost by the printed formula. That is how such a mistake stays in a paper: whoever tries
# a symmetric matrix does not meet it. Section 6 does.
#
# ### What the second map gives, and what the matrices give
#
# Back to digits alone, two classes, strokes as in section 1, at ratio 1. The paper's Table 1 compares a network
# with positive strokes and one with both, each *with* matrices, and credits the method. Three things differ between a plain network on
# positive strokes and the paper's model: a second map, a matrix for the first, a matrix for the second. So we take them
# apart. First the answer:

# %% tags=["hide-input"]
STEPS = {
    "the second map, no matrices": ("both", "positive"),
    "the second map, matrices for both": ("both_cm", "positive_cm"),
    "a matrix per pixel for positive strokes": ("positive_cm", "positive"),
    "a matrix per pixel for negative strokes": ("negative_cm", "negative"),
    "matrices per pixel for both": ("both_cm", "both"),
    "one matrix each for both": ("both_global", "both"),
    "both maps over the negative one alone": ("both", "negative"),
}


def the_answer(name, where):
    """In a sentence, from the rows: what is worth how much, paired."""
    second, alone, per_pixel, one = (gain(name, *STEPS[step]) for step in (
        "the second map, no matrices", "both maps over the negative one alone", "matrices per pixel for both", "one matrix each for both"))  # fmt: skip
    step = lambda a, b: each(name, a) - each(name, b)  # noqa: E731
    ahead = claims.interval(step("both", "positive") - step("both_cm", "both"))
    larger = "The second map brings more than matrices per pixel do" if ahead[1] > 0 else "The draws do not put the second map ahead of matrices per pixel"
    return (f"**{where}.** {larger}. mIoU gained over positive strokes by the second map, without any matrix: {told(*second)}; over negative strokes alone: "
            f"{told(*alone)}. By matrices per pixel, given both maps: {told(*per_pixel)}; by one matrix each: {told(*one)}.")  # fmt: skip


tables = {"Digits": "table1", "Streets": "table1-streets"}
Markdown("\n\n".join(the_answer(name, where) for where, name in tables.items() if rows_of(name))) if any(map(rows_of, tables.values())) else later("table1")

# %% [markdown]
# The whole table. With two classes mIoU is a lenient judge, since an empty picture has all of the background right. So look at the
# digit's own IoU and at how much is called digit as well (*strong* knows the true masks, *_cm* has a matrix per pixel,
# *_global* one matrix for each kind of stroke; the last rows are rivals, for chapter 17).

# %% tags=["hide-input"]
def league(name, **setting):
    """Methods in the order of the rows: mean and 95 % half width."""
    lines = ["| method | mIoU | IoU of the foreground | called foreground | truly |", "| --- | --- | --- | --- | --- |"]
    for method in dict.fromkeys(r["method"] for r in rows_of(name)):
        cells = ["{:.3f} ± {:.3f}".format(*plots.interval(each(name, method, m, **setting))) for m in ("miou", "iou_foreground")]
        cells += [f"{each(name, method, m, **setting).mean():.1%}" for m in ("foreground", "foreground_truth")]
        lines.append(f"| {method.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def steps(name):
    lines = ["| what is added | mIoU, paired | IoU of the foreground, paired |", "| --- | --- | --- |"]
    return "\n".join(lines + [f"| {step} | {told(*gain(name, *ab))} | {told(*gain(name, *ab, 'iou_foreground'))} |" for step, ab in STEPS.items()])


Markdown("\n\n".join(f"**{where}**\n\n{league(name)}\n\n{steps(name)}" for where, name in tables.items() if rows_of(name))) if any(map(rows_of, tables.values())) else later("table1")

# %% [markdown]
# Why should a second map help at all, where nothing new can be said? Because the two hands err in opposite directions. A positive hand that draws too wide calls background
# digit. A negative hand that draws too wide calls digit "not digit". Where only one of them errs, the other contradicts. No
# matrix is needed for that, only a second opinion, and for two classes it is an ordinary one. Of whole strokes read as *other*, each hand leaves a full
# map; where one hand is the better one, it may do best alone.
#
# And why do matrices not pay for both, if one for the negative hand alone does? Draw by draw:

# %% tags=["hide-input"]
def draw_by_draw():
    rows = {m: each("table1", m) for m in ("positive", "both", "both_cm", "negative", "negative_cm")}
    fallen = abs(rows["both_cm"] - rows["positive"]) < abs(rows["both_cm"] - rows["both"])  # nearer to the positive map than to both
    lines = [f"- {m.replace('_', ' ')}: {', '.join(f'{x:.3f}' for x in of_m)}" for m, of_m in rows.items()]
    text = "\n".join(lines) + f"\n\nIn {fallen.sum()} of {len(fallen)} draws the two matrices lead back to what positive strokes alone say; in the others they do no harm."
    half = {m: each("fig3", m, ratio=0.5) for m in ("both_cm", "both")}
    return text + (f" With half of the strokes (`coarse-fig3`, {len(half['both'])} draws): with matrices {half['both_cm'].mean():.3f}, without {half['both'].mean():.3f}." if len(half["both"]) else "")


Markdown(draw_by_draw()) if rows_of("table1") else later("table1")

# %% [markdown]
# It is all or nothing, draw by draw: the model has *chosen a story*. Further down, after a fit of our own, we count what each story costs.
#
# In streets there are four classes, and "not car" is something that no positive stroke can say. How much do such words help, the fewer pixels
# are marked? First with silence that says nothing:

# %% tags=["hide-input"]
RATIOS = (1.0, 0.8, 0.5, 0.3, 0.01)
street_lines = {name: [each("negatives-streets", name, ratio=r, unmarked="missing") for r in RATIOS] for name in ("positive", "both", "both_cm")}
plots.described(
    plots.curve(RATIOS[::-1], {name: np.array(runs[::-1]).T for name, runs in street_lines.items()}, model="both_cm",
                title="Streets: positive strokes, both, and both with matrices", xlabel="ratio of the strokes that is kept", ylabel="mIoU"),
    "Streets of four classes: mIoU on unseen pictures over how much of the strokes is kept; unmarked pixels are not in the loss. Lines are means, bands run from the lowest to the highest draw.",
) if rows_of("negatives-streets") else later("negatives-streets")  # fmt: skip


# %% tags=["hide-input"]
def by_ratio(name):
    lines = ["| silence | ratio | positive | both | both - positive, paired | with matrices - without, paired |", "| --- | --- | --- | --- | --- | --- |"]
    for how in ("missing", "other"):
        for r in RATIOS:
            way = {"ratio": r, "unmarked": how}
            means = [f"{each(name, m, **way).mean():.3f}" for m in ("positive", "both")]
            lines.append(f"| {how} | {r} | {' | '.join(means)} | {told(*gain(name, 'both', 'positive', **way))} | {told(*gain(name, 'both_cm', 'both', **way))} |")
    return "\n".join(lines)


Markdown(by_ratio("negatives-streets")) if rows_of("negatives-streets") else later("negatives-streets")

# %% [markdown]
# Where silence says nothing, a denial is all there is to hold a class back, and it tells something new (three draws are few: look for the same sign in
# all rows). Where silence already means "another class",
# the positive hand has denied its class wherever it did not mark, and the negative hand has little to add. That reading also
# turns against everybody as the strokes get fewer: at .01 it says "another class" nearly everywhere.
#
# ### Silence, read in two ways
#
# The same strokes of digits, at three ratios; silence says nothing (*missing*), or means the other class (*other*):

# %% tags=["hide-input"]
def readings():
    lines = ["| strokes | ratio | missing: mIoU, called digit | other: mIoU, called digit | other - missing, paired |", "| --- | --- | --- | --- | --- |"]
    for method in ("positive", "both", "both_cm"):
        for ratio in (1.0, 0.3, 0.01):
            runs = {u: [each("unmarked", method, m, unmarked=u, ratio=ratio) for m in ("miou", "foreground")] for u in ("missing", "other")}
            cells = [f"{a.mean():.3f}, {b.mean():.1%}" for a, b in runs.values()]
            lines.append(f"| {method.replace('_', ' ')} | {ratio} | {' | '.join(cells)} | {told(*claims.interval(runs['other'][0] - runs['missing'][0]))} |")
    few = [each("unmarked", "both_cm", "foreground", unmarked="missing", ratio=r) for r in (1.0, 0.3, 0.01)]
    empty = np.concatenate(few) < 0.01
    return "\n".join(lines) + f"\n\n*Missing*, with a matrix per pixel for both: {empty.sum()} of {len(empty)} runs found less than 1 % digit, the empty picture of section 3."


Markdown(readings()) if rows_of("unmarked") else later("unmarked")

# %% [markdown]
# Two things decide it. Is there anybody else who says "background"? For positive strokes alone there is nobody, and without a reading of silence most
# or all becomes digit. For both there is, and silence may stay silent. And how true is the sentence "the rest is something else"? At ratio 1 mostly
# true. As soon as less than half of the digit is marked, most words about its pixels are "background", and a network that believes
# them finds an empty picture: .3 of the positive strokes are enough for that. Both hands together get away with it at .3, since the silence of the negative one is
# read as "digit" and makes up for it; at .01 the two silences contradict each other nearly everywhere, and only the few marks decide. Chapter 17 looks for the ratio at which the readings cross.
#
# ### What the matrices look like
#
# The paper's Figure 2 shows fitted matrices, pixel by pixel, and what each annotator would mark. Ours, with whole strokes and the reading *other*:

# %%
whole = strokes.draw_strokes(drawn.truth, 1, n_classes=2, generator=seeded(166), **HANDS)
read, _ = strokes.read_unmarked(whole, 2)
unseen = scenes.digits(source.test.take(torch.arange(P.tested)), noise=0.3, generator=seeded(167))
swap = complementary(2)
plain, _ = taught(read, swap, given=drawn)
fitted, _ = taught(read, swap, given=drawn, rung=PixelCM(2, 2, 8, generator=seeded(168)), lam=0.01)
for name, model in {"no matrices": plain, "a matrix per pixel": fitted}.items():
    of_class, mean, share = overlap(model, unseen)
    print(f"{name:>18}: mIoU {mean:.3f}, digit {of_class[1]:.3f}, called digit {share:.1%} (truly {(unseen.truth > 0).double().mean():.1%})")

# %% tags=["hide-input"]
n, x = 1, drawn.images[1:2].to(device)
with torch.no_grad():
    A, says, p = (model.exp().cpu()[0] for model in (fitted.log_A(x), fitted.log_says(x), fitted.log_p(x)))
    believes = fitted.cm.beliefs(*fitted.network.features(x)).exp().cpu()[0]  # (R, 2, 2, H, W): A, before M
panels = {"image": drawn.images[n, 0], "found p(digit)": p[1], "truth": drawn.truth[n]}
for who, channel in {"positive": POSITIVE, "negative": NEGATIVE}.items():
    panels |= {f"{who}:\nmarked": whole[n, channel] != MISSING, f"{who}:\nwould mark": says[channel, 1],
               f"{who}: digit,\nif it is one": believes[channel, 1, 1], f"{who}: digit,\nif it is none": believes[channel, 1, 0]}  # fmt: skip
places = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11]
fig = Figure(figsize=(5, 5.2), layout="constrained")
axes = fig.subplots(3, 4)
for ax in axes.ravel():
    ax.set_axis_off()
for at, (name, values) in zip(places, panels.items()):
    shade = axes.ravel()[at].imshow(values.float(), cmap="gray" if at == 0 else "cividis", vmin=0, vmax=1)
    axes.ravel()[at].set_title(name, fontsize=9)
fig.colorbar(shade, ax=axes, location="bottom", fraction=0.03, aspect=40, label="probability")
plots.described(
    fig, "One training picture; what the network finds; then, for each annotator, the simulated stroke, what the model says it would mark, and its belief in digit "
    "where there is one, and where there is none.", "Eleven small maps. " + "; ".join(f"{k}: mean {float(v.float().mean()):.2f}" for k, v in panels.items()).replace("\n", " ") + ".",
)  # fmt: skip

# %% [markdown]
# Read the third map of each row, "if it is one", inside the digit, and the fourth outside of it: a matrix has one column that is about something, that
# of the true class; the other column is about a pixel that is not there (chapter 8). Then hold "would mark" against "marked".
# A model may foretell strokes well, and find the digit worse than without matrices; how these two go together in *your* run is in
# the printed lines above. And M itself, for two classes, is not fitted: there is only the one.

# %%
print(f"M: {fitted.cm.log_M().exp().round().int().tolist()}")
digit = drawn.truth == 1
with torch.no_grad():
    features = [fitted.network.features(x.to(device)) for x in drawn.images.split(32)]
    A = torch.cat([fitted.cm.beliefs(*f).exp().cpu()[:, :, 1] for f in features])  # (N, R, truth, H, W): believes digit
    foretold = torch.cat([fitted.log_says(x.to(device)).exp().cpu()[:, :, 1] for x in drawn.images.split(32)]) > 0.5
for who, channel in {"positive": POSITIVE, "negative": NEGATIVE}.items():
    marked = whole[:, channel] != MISSING
    believed = marked if channel == POSITIVE else ~marked  # for two classes: what is not denied
    print(f"{who}: strokes foretold in {(foretold[:, channel] == marked).double().mean():.1%} of the pixels; believes digit")
    print(f"    where there is one:  counted {believed[digit].double().mean():.2f}, fitted {A[:, channel, 1][digit].mean():.2f}")
    print(f"    where there is none: counted {believed[~digit].double().mean():.2f}, fitted {A[:, channel, 0][~digit].mean():.2f}")

# %% [markdown]
# If the fitted numbers of one hand are better than the counted ones, and those of the other worse, then the network has taken sides: an overdrawn
# digit, a positive hand that hardly errs, and a negative one that "denies" its rim. How much worse is that story than the truth? Take a
# picture of the world, give each hand the one matrix that suits it best, and count what the words cost: $-\log p$, in nats a pixel.

# %%
says_digit = lambda kept: torch.stack([kept[:, POSITIVE] != MISSING, kept[:, NEGATIVE] == MISSING]).long()  # noqa: E731 (R, N, H, W)
said, half = says_digit(whole), says_digit(marks)  # marks: half of the strokes, section 1


def cost(world, said):
    """The words (R, N, H, W) of both hands, if this is the world (N, H, W) and their matrices are the best ones: nats a pixel."""
    total = 0.0
    for words in said:
        counts = torch.bincount((2 * words + world).flatten(), minlength=4).view(2, 2).double()  # [said, true]
        total -= float((counts * log(counts / counts.sum(0).clamp(min=1))).sum()) / world.numel()
    return total


stories = {"the truth": drawn.truth, "wide: what the positive hand marked": said[0], "thin: what the negative hand left": said[1]}
stories |= {f"found with {name}": training.predict(model, drawn.images) for name, model in {"no matrices": plain, "a matrix per pixel": fitted}.items()}
for name, world in stories.items():
    print(f"{cost(world, said):.3f} nats a pixel, {(world > 0).double().mean():.1%} digit: {name}")
print("with half of the strokes:", ", ".join(f"{name} {cost(world, half):.3f}" for name, world in {"truth": drawn.truth, "wide": half[0], "thin": half[1]}.items()))
assert cost(said[0], said) < cost(drawn.truth, said)
outcome("what is found with matrices explains the words better than the truth does", cost(stories["found with a matrix per pixel"], said) < cost(drawn.truth, said))

# %% [markdown]
# The truth is not the cheapest story. Two hands, two words a pixel: whoever declares one hand right pays for the other one only; the truth pays for both. Three worlds, wide,
# thin and true, explain the strokes, and maximum likelihood itself prefers the wide one. So no better optimiser mends it. While
# this book was written we tried matrices that learn more slowly, some epochs without matrices first, a network of its own for the matrices, a trunk that they do not
# teach, many weights of the trace, 0 and negative ones among them, more noise, other hands, and EM with one matrix each, begun at the vote. None helped at whole strokes.
# The count says what the words prefer, and not where a training ends: with half of the strokes the truth is again the dearest of the three, and yet the fits above came out level
# with those without matrices. We have no full answer to that.
#
# What holds a network without matrices to the middle is that it may not blame a hand: each rim pixel costs it, wide or thin.
# Help has to come from outside the words: from a third hand, or from true masks of some pictures ({doc}`/notebooks/17_how_coarse_can_you_go`).
#
# ### Draw it yourself
#
# Sixteen digits in noise. Paint "this is it" along three or four of them, and "this is not it" *close* around each, two pixels away, and into its holes. A frame
# along the edge of the picture tells much less: a network sees places, too, and may learn that digits stand in the middle. One picture is too little
# for sixteen. What you painted the last time comes back.
#
# On a page without Python behind it you can paint, but nothing learns; the cells below show what a program has painted. To train on your
# own strokes, open the chapter in JupyterLab: `course lab`.

# %%
pictures = paint.example()
recorded = paint.replay(paint.recorded(), *pictures.truth.shape)  # a canvas (N, H, W): 0 nothing, 1 it is, 2 it is not
saved = paint.load_strokes()
widget = paint.PaintStrokes(pictures.images, saved if saved is not None and saved.shape == recorded.shape else None)
widget

# %% [markdown]
# **Paint first, then run the next cell**, or press its button again whenever you have painted more. `paint.train_on` fits the model of
# this chapter, with one matrix for each kind of stroke, and silence read as *missing*, since yours will not be whole. The segmentation is outlined in the
# widget above; your strokes are kept.

# %%
def learn(strokes_now):
    """The strokes, what a network makes of them, and the matrices of both hands and M: labels, whose, p, matrices."""
    labels, who = paint.strokes_or_recorded(strokes_now, recorded)
    model = paint.train_on(pictures.images, labels, epochs=P.painting)
    p = training.predict_log_p(model, pictures.images)[:, 1].exp()
    with torch.no_grad():
        A = model.cm.beliefs(*model.network.features(pictures.images[:1].to(device)))[0, ..., 0, 0].exp().cpu()
    return labels, who, p, torch.cat([A, model.cm.log_M().exp().detach().cpu()[None]])


def drawings(labels, who, p, matrices):
    """Two figures: the still twin of the widget, and the matrices."""
    title = f"What a network makes of {'your' if who == 'you' else 'recorded'} strokes"
    caption = f"Sixteen digits with {'your' if who == 'you' else 'recorded'} strokes: it is (orange, plus), it is not (blue, bar); dashed, what is found."
    row = plots.confusion_row(matrices, ["positive", "negative", "M"], title="Both kinds of strokes, and M", classes=["bg", "digit"])
    return (plots.described(paint.still(pictures.images, labels, p, title=title, whose=who), caption),
            plots.described(row, "The fitted matrices of both hands: what they believe, before M; and M, from belief (truth) to what is denied (says), fixed for two classes."))  # fmt: skip


# %% [markdown]
# The button's callback is a plain function. The cell calls it once itself, so that it runs even if nobody presses.

# %%
shown = ipywidgets.HTML()
button = ipywidgets.Button(description="Train on my strokes")


def pressed(_):
    """Train, outline in the widget, keep the strokes, and draw; the figures go below the button."""
    button.disabled, button.description = True, "Training..."
    try:
        found = learn(widget.strokes)
        widget.show(found[2])
        widget.keep()
        figures = drawings(*found)
        shown.value = "".join(figure._repr_html_() for figure in figures)
        return found, figures
    finally:
        button.disabled, button.description = False, "Train on my strokes"


button.on_click(pressed)
found, figures = pressed(button)
shown.value = ""  # the same figures stand below, for pages without Python
ipywidgets.VBox([button, shown])

# %% tags=["hide-input"]
figures[0]

# %% tags=["hide-input"]
figures[1]

# %% [markdown]
# The two matrices stay near their start, .9 and .1, whatever is painted: each hand says one word only, ever, and what such a word can tell of a matrix
# is little (three explanations, section 3). What changes with your strokes is the segmentation, and it is the strokes that decide. The
# truth of these sixteen is known, so the network can be marked. Yours, in real pictures, will not be.

# %%
labels, who, p, matrices = found
score = metrics.iou((p > 0.5).long(), pictures.truth, 2, empty=1.0)
print(f"{'your' if who == 'you' else 'recorded'} strokes: {(labels != MISSING).double().mean():.1%} of all pixels and channels are marked; IoU of the digits {score.foreground:.3f}")
print(f"truly digit {(pictures.truth > 0).double().mean():.1%}, found {(p > 0.5).double().mean():.1%}")

# %% [markdown]
# Look at the outlines again. On the rim, between the two kinds of strokes, nobody has said anything, and the line is a guess. And where no stroke came near,
# in a corner or along an edge, there may be islands that are no digit: silence, read as *missing*, forbids nothing there. Paint
# "this is not it" on an island and close along one edge of a digit, and train again. A few pixels there say more than a wide stroke where the network was right anyway.

# %% [markdown]
# ## 6. Break it
#
# ### M transposed
#
# The paper defines $M$ with columns that sum to 1, and then multiplies by $M^\top$. With favourites, what comes out is no
# distribution:

# %%
print(f"M u   = {[round(x, 2) for x in (BENT @ u).tolist()]}, sum {(BENT @ u).sum():.2f}")
print(f"M^T u = {[round(x, 2) for x in (BENT.T @ u).tolist()]}, sum {(BENT.T @ u).sum():.2f}")
assert torch.isclose((BENT.T @ u).sum(), torch.tensor(1.17)) and torch.allclose(complementary(3).T, complementary(3))

# %% [markdown]
# The sum depends on $u$. So a network can lower its loss by believing in whatever makes the sum large. Is that only a
# blemish? Take a pixel of each class, endlessly many words of people with favourites, and look for the belief with the least loss, over all
# beliefs in steps of .01:

# %%
a, b = torch.meshgrid(torch.arange(101), torch.arange(101), indexing="ij")
grid = torch.stack([a, b, 100 - a - b], -1)[a + b <= 100].double() / 100  # (beliefs, 3)
best = {}
for name, W in {"M": BENT.double(), "M^T": BENT.T.double()}.items():
    losses = -BENT.double().T @ log(W @ grid.T)  # (truth, beliefs): the mean over the words of each truth
    best[name] = grid[losses.argmin(1)]
    for k, p_best in enumerate(best[name]):
        print(f"{name:>4}, truth {NAMES[k]:>10}: least loss at p = {p_best.tolist()}, called {NAMES[p_best.argmax()]}")
assert best["M"].argmax(1).tolist() == [0, 1, 2] and torch.equal(best["M"], torch.eye(3).double())
assert best["M^T"][2].argmax() != 2

# %% [markdown]
# With $M$ the best belief is the truth, exactly. With $M^\top$ it is not, however many words there are, and the last class is *never*
# the answer. This is a property of the formula, so no training can mend it. Now networks, on one denial a pixel:

# %%
class Printed(StrokeCM):
    """M^T A p, whatever its entries sum to."""

    def log_M(self):
        return super().log_M().T


bent_words = strokes.denied(school.truth, BENT, generator=seeded(173))
READ = {"M, known": (BENT, StrokeCM), "M, from the counts": (biased(bent_words, 3), StrokeCM), "M, uniform": (uniform, StrokeCM), "M^T, as printed": (BENT, Printed)}
print("mIoU   " + "  ".join(f"{name:>10}" for name in NAMES))
for name, (M, how) in READ.items():
    of_class, mean, _ = overlap(taught(bent_words, M, how=how)[0], test)
    seen[name] = of_class, mean
    print(f"{mean:.3f}  " + "  ".join(f"{x:10.3f}" for x in of_class) + f"   {name}")
outcome("as printed, a class is lost", seen["M^T, as printed"][0].min() < 0.1)

# %% [markdown]
# A right formula is no insurance, though. "Background" and "one" are denied in nearly the same way here, "not zero" in most cases, so a word says little between
# them; ones are rare, and a network that has once given up a class hardly gets a gradient that brings it back. If the first line lost
# a class in your run, this is the reason, and a gentler M (counted, or uniform) may do better although it is wrong. The committed draws
# in section 5 say how often.
#
# ### Positive strokes, and silence
#
# Five readings of the *same whole strokes* of digits:

# %%
one_sided = whole.clone()
one_sided[:, NEGATIVE] = MISSING
no_sided = whole.clone()
no_sided[:, POSITIVE] = MISSING
lessons = {"positive, missing": one_sided, "positive, other": strokes.read_unmarked(one_sided, 2)[0], "negative, other": strokes.read_unmarked(no_sided, 2)[0], "both, missing": whole}
alone = {name: taught(said, swap, given=drawn)[0] for name, said in lessons.items()} | {"both, other": plain}
truly = float((unseen.truth > 0).double().mean())
share = {}
print(f"truly digit: {truly:.1%}")
for name, model in alone.items():
    of_class, mean, share[name] = overlap(model, unseen)
    print(f"{name:>18}: called digit {share[name]:6.1%}, mIoU {mean:.3f}, digit {of_class[1]:.3f}")
assert share["positive, missing"] > 1.8 * truly
outcome("the second map, or the other reading, ends it", max(share["positive, other"], share["both, missing"]) < 1.8 * truly + 0.05)

# %% [markdown]
# The first network is right about every word it was told, and so it has learned to say "digit":

# %%
told_digit = one_sided[:, POSITIVE] == 1  # (N, H, W)
p_digit = training.predict_log_p(alone["positive, missing"], drawn.images)[:, 1].exp()
print(f"on the marked pixels p(digit) is {p_digit[told_digit].mean():.4f}, on marked ones that are background {p_digit[told_digit & (drawn.truth == 0)].mean():.4f}")
print(f"on pixels of the picture that nobody marked {p_digit[~told_digit].mean():.3f}")
outcome("it believes what it was told, mistakes included", p_digit[told_digit].mean() > 0.8)

# %% [markdown]
# Its loss would be 0 if it called everything digit, and nothing in the loss stops it on the way. What stops it halfway is only that
# dark pixels were never trained, and a network says *something* about them.
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} The loss of a denial (★, 10 minutes)
# :label: ex-ch16-loss
#
# Exercise 16.1. `p` (L, H, W) are probabilities, `A` (L, L) and `M` (L, L) matrices of one negative annotator, `said` (H, W) what was
# denied, -1 where nothing. Return the mean loss of the words, one number, without `course_lib`.
# ```

# %% tags=["stub"]
def negative_loss(p, A, M, said):
    """(L, H, W), (L, L), (L, L), (H, W) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Truth, belief, word: which of the two matrices acts first?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# {eq}`eq-ch16-word`, and minus its logarithm, where something was said.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `says = torch.einsum("ij,jhw->ihw", M @ A, p)`; `.gather(0, said.clamp(min=0)[None])[0]` looks up the word; then keep the
# pixels with `said >= 0`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.negative_loss(negative_loss)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def negative_loss(p, A, M, said):
    """(L, H, W), (L, L), (L, L), (H, W) -> a number."""
    says = torch.einsum("ij,jhw->ihw", M @ A, p)
    likely = says.gather(0, said.clamp(min=0)[None])[0]  # (H, W)
    return -likely[said >= 0].log().mean()


checks.negative_loss(negative_loss)
picture_p = training.predict_log_p(models["not k"], test.images[:1])[0].exp()
deny = lambda truth: strokes.denied(truth, uniform, generator=seeded(174))[0, NEGATIVE]  # noqa: E731
for name, words_of in {"of the true picture": deny(test.truth[:1]), "of its mirror image": deny(test.truth[:1].flip(2))}.items():
    print(f"loss of denials {name}: {negative_loss(picture_p, torch.eye(3), uniform, words_of):.3f} (at best log 2 = {np.log(2):.3f})")

# %% [markdown]
# **What you should see, and why.** Even a perfect network does not reach 0: which of two wrong classes is denied is a coin toss, and costs
# $\log (L - 1)$ a word. So a loss of denials says nothing by itself; hold it against that floor.
#
# ```{exercise} M from counts (★★, 15 minutes)
# :label: ex-ch16-counts
#
# Exercise 16.2. Of some pixels the truth is known. `said` (N,) is what was denied there, -1 where nothing, `truth` (N,) the
# class. Return M (L, L). People err: some words deny the truth. That is their A, and no business of M.
# ```

# %% tags=["stub"]
def counted_M(said, truth, n_classes):
    """(N,), (N,), L -> (L, L)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# A table: a column for each truth, a row for each word. What has to be on the diagonal, and what does each column sum to?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $M_{ij} = n_{ij} / \sum_{i' \ne j} n_{i'j}$ for $i \ne j$, with $n_{ij}$ words "not $i$" on pixels of class $j$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# Keep `said >= 0`. `torch.bincount(L * said + truth, minlength=L * L).view(L, L)` counts. Then the diagonal, then the columns.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.counted(counted_M)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def counted_M(said, truth, n_classes):
    """(N,), (N,), L -> (L, L)."""
    said, truth = said[said >= 0], truth[said >= 0]
    counts = torch.bincount(n_classes * said + truth, minlength=n_classes**2).view(n_classes, n_classes)
    counts = counts.double() * (1 - torch.eye(n_classes))
    return counts / counts.sum(0)


checks.counted(counted_M)
flat_words, flat_truth = bent_words[:, NEGATIVE].flatten(), school.truth.flatten()
off = lambda M: float((M - BENT).abs().max())  # noqa: E731
print(f"largest error of M: uniform {off(uniform):.2f}, from counts of the words alone {off(biased(bent_words, 3)):.2f}")
for n in (300, 3000, 30_000):
    samples = [torch.randperm(len(flat_truth), generator=seeded(175 + s))[:n] for s in range(20)]
    errors = [off(counted_M(flat_words[some], flat_truth[some], 3)) for some in samples]
    print(f"from {n} pixels whose truth is known: {np.mean(errors):.3f}, mean of 20 samples")

# %% [markdown]
# **What you should see, and why.** A few hundred pixels whose truth is known pin M down, the column of the rarest class last. The library's
# `biased` has no truth to count with. It takes the words' overall frequencies, as if people had favourites, but the same ones whatever they
# look at; then it can be far from M, even farther than a uniform one in some entries.
#
# ```{exercise} What a denial is worth (★★, 15 minutes)
# :label: ex-ch16-information
#
# Exercise 16.3. `p` (L,) are the shares of the classes, `W` (L, L) the probabilities of words, said before truth. How many *bits* does one word tell of the
# truth? Return the mutual information of word and truth, one number. $0 \log 0 = 0$.
# ```

# %% tags=["stub"]
def information(p, W):
    """(L,), (L, L) -> bits."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# How uncertain is the word, and how uncertain is it still, once the truth is known?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $I = H(W p) - \sum_j p_j\, H(W_{\cdot j})$ with $H(q) = -\sum_i q_i \log_2 q_i$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `entropy = lambda q: -(q * torch.where(q > 0, q, 1).log2()).sum(0)` works for a vector and for all columns of a matrix.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.information(information)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def information(p, W):
    """(L,), (L, L) -> bits."""
    entropy = lambda q: -(q * torch.where(q > 0, q, 1).log2()).sum(0)  # noqa: E731
    return entropy(W @ p) - (p * entropy(W)).sum()


checks.information(information)
for L in (2, 3, 4, 10):
    even = torch.full((L,), 1 / L)
    yes, no = (float(information(even, W)) for W in (torch.eye(L), complementary(L)))
    print(f"{L:>2} classes: 'this is k' {yes:.2f} bits, 'this is not k' {no:.2f}; one positive word is worth {yes / no:.0f} negative ones")
for name, M in {"uniform": uniform, "with favourites": BENT}.items():
    print(f"the pixels of section 5, M {name}: {information(true_share, M):.3f} bits a word; the truth has {information(true_share, torch.eye(3)):.3f}")

# %% [markdown]
# **What you should see, and why.** With two classes a denial is worth as much as an assertion: it *is* one. With ten it is worth a small part of one. So
# denials pay where they are cheap: a background stroke over half a picture, "no car in this corner". And section 5 did so well because each of
# its pictures had a word on every pixel, and neighbouring pixels agree.
#
# ```{exercise} Reading silence (★★, 10 minutes)
# :label: ex-ch16-unmarked
#
# Exercise 16.4. Two classes. `labels` (N, 2, H, W) are strokes: each channel holds the target's number, 0 or 1, where there is a mark, else -1. Return a copy
# in which silence is read as "the rest is something else". A channel without any mark in a picture was not shown it.
# ```

# %% tags=["stub"]
def other_class(labels):
    """(N, 2, H, W) -> (N, 2, H, W)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# First find each channel's target in each picture. What number does a channel without marks give?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Where silent, and the target $t \ne -1$: $1 - t$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `target = labels.amax((2, 3), keepdim=True)`, (N, 2, 1, 1); then one `torch.where` with two conditions.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.other_class(other_class)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def other_class(labels):
    """(N, 2, H, W) -> (N, 2, H, W)."""
    target = labels.amax((2, 3), keepdim=True)  # (N, 2, 1, 1)
    return torch.where((labels == -1) & (target != -1), 1 - target, labels)


checks.other_class(other_class)
for ratio in (1.0, 0.5, 0.1, 0.01):
    kept = strokes.draw_strokes(drawn.truth, 1, n_classes=2, ratio=ratio, generator=seeded(176), **HANDS)
    silent = kept == MISSING
    says_digit = torch.stack([other_class(kept)[:, POSITIVE] == 1, other_class(kept)[:, NEGATIVE] == 0], 1)  # "not 0" is digit
    right = says_digit == (drawn.truth == 1)[:, None]
    print(f"ratio {ratio:<4}: silence is right in {right[:, POSITIVE][silent[:, POSITIVE]].double().mean():.1%} of the pixels for positive strokes, {right[:, NEGATIVE][silent[:, NEGATIVE]].double().mean():.1%} for negative ones")

# %% [markdown]
# **What you should see, and why.** For positive strokes silence is right most of the time whatever the ratio, because most of a picture is background. But these are the
# easy pixels; of the digit's own, the smaller the ratio, the more are called background. For negative strokes it is the other way round: "not marked as
# not digit" soon means nothing but background. Chapter 17 goes on from here.
#
# ## 8. What the paper claims and what we measured
#
# Drawn from `book/claims.yaml` and the committed results, never typed.

# %% tags=["hide-input"]
judged = [claims.table("003", experiment=name) for name in ("coarse-table1", "coarse-not-k")]
judged = [table for table in judged if table.count("\n") > 1]
Markdown("\n".join([*judged[:1], *(line for table in judged[1:] for line in table.split("\n")[2:])]) if judged else "*No claim is judged by these results yet.*")

# %% [markdown]
# What this chapter asserted needs no result file: that two classes make a denial an assertion, that the trace of $M A$ has the wrong sign, that three
# explanations of positive strokes fit perfectly, and that $M^\top$ loses a class whatever is trained. Each is a cell with an `assert`.
#
# ## 9. Three questions
#
# <details><summary>1. Ten classes. You can have one positive word for a pixel, or five different denials of it, for the same money. Which?</summary>
#
# The positive word. It leaves one class, five denials leave five. But if one gesture denies a class for thousands of pixels at once, count the gestures
# and not the words.
#
# </details>
#
# <details><summary>2. A colleague adds negative strokes to a model of cell against background, and mIoU goes up by ten points. "So complementary labels work."
# What do you ask for?</summary>
#
# A comparison in which the second map is read as plain background labels, without $M$: for two classes it is the same loss, number for number. What works is a
# second map with other mistakes.
#
# </details>
#
# <details><summary>3. Your fitted model foretells each annotator's strokes very well. Does it segment well?</summary>
#
# Nobody knows. The strokes are explained by $A p$ together; an empty picture with the right matrices foretells them perfectly (section 3). Look at the share
# that is called foreground, at the matrices' diagonal, and at a few pictures whose truth you know.
#
# </details>
#
# ## 10. Further reading and errata
#
# **Further reading.** {cite:t}`zhang2025` is the paper of this part. Denials alone as labels: {cite:t}`ishida2017`, for uniform $M$, and
# {cite:t}`yu2018`, for people with favourites, who write $M$ with a row for each truth. {doc}`/notebooks/08_a_matrix_per_pixel` has the model
# for masks, {doc}`/notebooks/10_what_the_trace_identifies` what the trace can promise. {doc}`/notebooks/01_annotators_disagree` is where columns began.
#
# **Errata** of {cite:t}`zhang2025`, as far as this chapter needs them.
#
# - Before and in Eq. 5: $M$ is defined with $m_{ij} = p(\text{said } i \mid \text{true } j)$, columns that sum to 1, and multiplied as $M^\top$. That is right for a matrix
#   with a row for each truth, as in {cite:t}`yu2018`. Asserted in section 6. For two classes, and for uniform $M$, it makes no difference.
# - "The output of the CE function", to which $M$ is applied, must be the output of the confusion matrix, $u = A^{(c)} p$. A cross-entropy
#   is one number.
# - The loss of the negative head is first given as the arg max of $v$. An arg max is a class, and has no gradient; Eq. 5 has the cross-entropy.
# - The line that derives $p(\text{denied} \mid x)$ conditions a complementary label on another complementary label of the same annotator. Read the second as the
#   belief, $u$; only the zero diagonal is used afterwards (section 3, asserted).
# - Unmarked pixels are mentioned, but no equation says what becomes of them. Both readings have been used above, and they are two different models.
# - For two classes, as in its digits and vessels, the negative term is an ordinary label of the other class (asserted in section 3). What the paper's first table
#   calls the gain of negative annotation is then the gain of a second map.
# - Eq. 5 adds $\lambda \operatorname{tr} A^{(c)}$, before $M$. That is right, and worth saying, since the trace of $M A^{(c)}$ would need the opposite sign.
