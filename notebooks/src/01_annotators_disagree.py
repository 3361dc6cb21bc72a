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
# # 1. Annotators disagree
#
# *Core chapter.* Five people labelled the same image, and they do not agree. Whom do you believe? This chapter turns
# each person into one small matrix, and then asks how far the oldest answer, the vote, will carry you.
#
# **You will be able to**
#
# - read an annotator's confusion matrix, and simulate an annotator who has it;
# - say what the vote assumes, and see when it fails;
# - score a label under a matrix;
# - train a first network on a vote, and say what the vote cost it.
#
# **You need to know** Python, numpy or PyTorch tensors, and a first course of probability (Bayes' rule). If you have
# trained one network before, good; if not, section 5 shows all there is to it.
#
# **Time** about 90 minutes with the exercises (an estimate), of which the computer needs the few seconds below.
#
# **Data** 5,000 handwritten digits {cite:p}`lecun1998`, which ship with the course. Nothing needs a network.

# %%
try:
    import torch
    from IPython.display import Markdown
    from scipy import stats

    import course_lib.checks.classes as checks
    from course_lib import annotators, book, confusion, data, fusion, metrics, networks, plots, sliders, training, widgets
    from course_lib.annotations import MISSING, Annotations
    from course_lib.methods.trace import Vanilla
    from course_lib.networks import seeded
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        "folder that holds pyproject.toml, type\n\n"
        f'    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(1)

# %% [markdown]
# Every experiment of the book comes in three sizes. `ci` is for machines that only test the code, `lesson` is what you
# read here, `paper` is for a bigger computer. The variable `COURSE_SIZE` chooses; a table like the next one says what
# that changes.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    vote_draws=(3, 10, 50),  # simulated panels behind each point of the figures on the vote
    draws=(2, 5, 10),  # panels whose labels train a network
    epochs=(4, 20, 40),
    hidden=(64, 64, 256),  # width of the network
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# We start with digits, because there everybody can check the truth. The course ships 5,000 of them, split once and for
# all into training, validation and test images.

# %%
digits = data.split(data.mnist5k())
truth = digits.train.labels  # (N,)
digits

# %% [markdown]
# Now five annotators. They are simulated, and each is of the kind that the paper behind this part of the book calls a
# *pairwise flipper* {cite:p}`tanno2019`: for every digit they have one wrong name, and they use it whenever they do not
# say the right one. Each is right about 45 % of the time. That is poor, and it is what makes the question interesting.

# %%
A = annotators.pairwise_flippers(5, 10, skill=0.45, generator=seeded(1))  # (R, L, L)
labels = annotators.annotate(truth, A, generator=seeded(2))  # (N, R)
right = metrics.annotator_accuracy(labels, truth)  # (R,)
print("how often each annotator is right:", right.numpy().round(2))

# %% [markdown]
# Here are eight digits and what the five said. Colour and marker belong to one annotator each, and will do so in every
# chapter. A dark box marks a wrong label.

# %% tags=["hide-input"]
plots.described(
    plots.digits_grid(digits.train.images[:8], labels[:8], truth[:8], title="Five annotators, one digit, many answers"),
    "Eight training digits with the labels of five simulated annotators. Dark boxes are wrong labels.",
)

# %% [markdown]
# Take a vote under each digit, in your head. Which would it get right? Where is it a close call, and is any of them
# right although most of its labels are wrong?
#
# Mistakes are not just noise. They have a *habit*, and the habit fits in a matrix. Choose a column: that is the true
# digit. Read down: that is how often this annotator gives each name to it. So every column sums to 1, and a perfect
# annotator would show ones on the diagonal and nothing else.

# %% tags=["hide-input"]
plots.described(
    plots.confusion_matrix(A[0], title="One annotator's habits: each column is a truth"),
    "Confusion matrix of annotator 1. Columns are the truth, rows are what is said; a dot is a probability of 0.",
)

# %% [markdown]
# Stay with one column for a moment. The wrong name stands there with *more* than one half: of every digit, this person
# says one particular wrong thing more often than the right one. No single one of them can be trusted. Here are all
# five.

# %% tags=["hide-input"]
plots.described(
    plots.confusion_row(A, title="Equally skilled, differently wrong"),
    "The five annotators' confusion matrices. The same truth is called by different wrong names.",
)

# %% [markdown]
# The diagonals look alike; the mistakes do not. That is why a vote can work at all: right labels agree with each other,
# wrong ones mostly do not. And it is why a vote is not the best one can do: a wrong label tells you something, if you
# know who says that, and of which digit.
#
# That is the idea of the whole book: **one matrix for each annotator**. Later chapters learn these matrices from the
# labels. This one learns to read them, and finds out how far one gets without.

# %% [markdown]
# ## 2. Predict
#
# Before you run on, write down four guesses. A wrong guess that you wrote down teaches more than a right one that you
# only thought. Change the numbers below; the defaults are a shrug.

# %%
guess = {
    "a vote of the five is right, if no two share a wrong name": 0.5,
    "a vote of the five is right, if up to three share one": 0.5,
    "a label is right, if each image got one label only": 0.5,
    "a network trained on the votes is right on new images": 0.5,
}

# %% [markdown]
# ### You are annotator six
#
# It is easy to smile at 45 %. So label something yourself: twenty training digits, seen through frosted glass. They
# were drawn by a seeded generator, not picked. Press a digit on the page or on your keyboard. Take your first
# impression, and skip what you cannot tell.
#
# On a page without Python behind it, the cells below show the answers of a stand-in, whatever you press. To use your
# own, open the chapter in JupyterLab: `course lab`.

# %%
index = torch.randperm(len(digits.train), generator=seeded(6))[:20]  # places in digits.train
frosted = widgets.blurred(digits.train.images, sigma=3.5)  # (N, 28, 28)
widget = widgets.LabelDigits(frosted[index], index)
saved = widgets.load_answers()
if saved is not None and torch.equal(saved[0], index):  # you were here before
    widget.answers = saved[1].tolist()
widget

# %% [markdown]
# **Label first, then run the next cell.** If nobody labels, for instance because the notebook runs unattended, a
# stand-in answers: a small program that compares each picture with the average picture of every digit, seen through the
# same glass. Run the cell again whenever you have changed an answer.

# %%
others = torch.ones(len(truth), dtype=torch.bool)
others[index] = False  # the stand-in has not seen the twenty before
substitute = widgets.stand_in(frosted[index], frosted[others], truth[others])
six, who = widgets.answers_or_stand_in(widget.answers, substitute)  # (20,)
print(f"Annotator six is {who}. Answered: {int((six != MISSING).sum())} of {len(six)}.")

# %% [markdown]
# The same twenty pictures, now with the truth.

# %% tags=["hide-input"]
title = f"Annotator six is {who}: {int((six == truth[index]).sum())} of {len(six)} right"
plots.described(
    widgets.still(frosted[index], six, truth[index], title=title, whose=who),
    f"Twenty blurred digits with the answers of {who} beneath and the truth above. Dark boxes are wrong labels.",
)

# %% [markdown]
# Your answers are worth keeping. In chapter 3 a network learns from the five simulated annotators, and you can join
# them as the sixth.

# %%
kept = widget.keep()
print(f"Your answers are kept in {kept}." if kept else "Nothing is kept: only your own answers are.")

# %% [markdown]
# ## 3. The maths
#
# There are $N$ images, $R$ annotators and $L$ classes. Image $n$ has a true class $y_n$, which nobody tells us.
# Annotator $r$ said $\tilde y_n^{(r)}$. The **confusion matrix** of annotator $r$ is
#
# $$
# A^{(r)}_{ij} = p(\text{annotator } r \text{ says } i \mid \text{truth is } j), \qquad \sum_i A^{(r)}_{ij} = 1 .
# $$ (eq-ch1-matrix)
#
# First index: what is *said*. Second index: the *truth*. Columns sum to 1, because whatever the truth is, something
# gets said. The mean of the diagonal is the annotator's **skill**.
#
# Two assumptions turn matrices into a model of the labels {cite:p}`tanno2019`. One: annotators do not copy from each
# other. Two: what an annotator does depends on the true class only, not on the image; an untidy 4 is confused as often
# as a neat one. You have just labelled untidy digits, so you know that the second is not quite true. Part II of the
# book drops it.
#
# ### What will be said
#
# Let $p_j = p(y = j \mid x)$ be how probable class $j$ is for image $x$. An annotator says $i$ if the truth is some $j$
# and they call that $j$ an $i$. Add up over $j$:
#
# $$
# p(\tilde y^{(r)} = i \mid x) = \sum_{j=1}^{L} A^{(r)}_{ij}\, p_j = \big(A^{(r)} p\big)_i .
# $$ (eq-ch1-apply)
#
# With all annotators together this is Eq. (2) of the paper, in our symbols:
#
# $$
# p(\tilde y^{(1)}, \dots, \tilde y^{(R)} \mid x) = \prod_{r=1}^{R} \sum_{j=1}^{L} A^{(r)}_{\tilde y^{(r)},\, j}\; p_j .
# $$ (eq-ch1-tanno)
#
# A label is **scored** by the logarithm of its own factor, $\log \sum_j A^{(r)}_{\tilde y^{(r)}, j}\, p_j$. It is at
# most 0, and 0 only if the model was certain of what would be said. Training, from chapter 3 on, makes these scores
# large.
#
# <details><summary>A fine point about the product</summary>
#
# The product stands outside of the sum, so each label is explained on its own, as if each had its private truth. With
# one truth behind all labels, product and sum change places. The two agree when an image has one label, or when $p$ is
# certain. Chapter 3 returns to the difference.
#
# </details>
#
# ### Which way round?
#
# Always ask of a matrix which axis is the truth. The paper's text uses [said, truth], as we do; its code listing and
# its Algorithms 2 and 3 use [truth, said]. Many libraries do as well. A certain $p$ shows what happens if one takes the
# one for the other.

# %%
small_A = torch.tensor([[0.9, 0.4], [0.1, 0.6]])  # [said, truth]
sure = torch.tensor([1.0, 0.0])  # the truth is class 0
for name, said in {"A p": small_A @ sure, "A^T p": small_A.T @ sure}.items():
    print(f"{name:>5} = ({said[0]:.1f}, {said[1]:.1f}), sum {said.sum():.1f}")
assert (small_A.T @ sure).sum() > 1.2

# %% [markdown]
# The second row is no distribution: its sum is not 1. In a program nothing would stop, and everything after it would be
# a little wrong. Section 6 shows how this book's library notices.
#
# ### The vote is a special case
#
# Turn the question round: given the labels of one image, what is its truth? Bayes' rule says, for independent
# annotators,
#
# $$
# p(y = j \mid \tilde y^{(1)}, \dots, \tilde y^{(R)}) \;\propto\; p(y = j) \prod_r A^{(r)}_{\tilde y^{(r)},\, j} .
# $$ (eq-ch1-posterior)
#
# Now assume that we know nothing about anybody: all classes are equally frequent, all annotators are right with the
# same probability $s$, and all $L - 1$ wrong names are equally likely. If $n_j$ of the $R$ labels say $j$, then
#
# $$
# p(y = j \mid \tilde y^{(1)}, \dots, \tilde y^{(R)}) \;\propto\; s^{\,n_j} \Big(\frac{1 - s}{L - 1}\Big)^{R - n_j} ,
# $$ (eq-ch1-vote)
#
# which grows with $n_j$ as soon as $s > 1/L$. The most probable class is the one with the most votes. So the vote *is*
# Bayes' rule, for people who are **equally good, wrong in no particular way, and independent**, and for classes that
# are equally frequent. Where that is far from true, the vote throws information away.
#
# ### When is the mean still right?
#
# One more word that later chapters need. Take the mean matrix of all annotators, $\bar A = \frac{1}{R} \sum_r A^{(r)}$.
# It is **diagonally dominant** if every diagonal entry is the largest *of its row*, and its margin is
#
# $$
# \min_{i \ne j} \big( \bar A_{ii} - \bar A_{ij} \big) .
# $$ (eq-ch1-margin)
#
# In words: if all classes are equally frequent, then of the images that are called $i$, class $i$ is the commonest. The
# theorem of chapter 3 needs this. You will write the margin yourself in the last exercise.

# %% [markdown]
# Try it. Move the skill, and choose what the annotator does when they do not know: guess among all names, say the next
# class, or slip to a neighbour. Four classes, and a truth that is most often class 0 (black bars). The orange bars are
# $A p$ of {eq}`eq-ch1-apply`. At which skill does the margin of each kind change its sign, and which never does?

# %%
mover = sliders.MatrixSlider([0.6, 0.2, 0.15, 0.05], kind="pairwise flip", skill=0.45)
mover

# %% [markdown]
# This is one setting of it, as a picture. A flipper who is right less often than wrong has a negative margin: what they
# call 1 is more often a 0.

# %% tags=["hide-input"]
plots.described(mover.still(), "Above, the matrix of a pairwise flipper; below, a truth p and what this annotator says of it.")

# %% [markdown]
# ## 4. From scratch
#
# Four small tools: count a matrix, apply one, score a label, take a vote. Each starts as a loop that says what is
# meant, and ends as a line that does it for all images at once.
#
# ### Count a matrix
#
# If the truth were known, an annotator's matrix would be a matter of counting: one stroke in row *said*, column
# *truth*, for every image. Then divide each column by its sum.

# %%
counts = torch.zeros(10, 10)
for i, j in zip(labels[:, 0], truth):
    counts[i, j] += 1
counted = counts / counts.sum(0)  # columns sum to 1

# %% [markdown]
# The library does it for all annotators together. It also takes a *soft* truth `q`, where each image belongs to each
# class with some probability, and it knows that labels can be missing. `index_add_` is the stroke, for all images at
# once; the extra row collects what is missing, and is dropped.

# %% tags=["shipped"]
# shipped: course_lib.confusion
def count_matrices(labels: torch.Tensor, q: torch.Tensor, *, smoothing: float = 0.0) -> torch.Tensor:
    L = q.shape[1]
    flat = torch.where(labels == MISSING, L, labels)  # (N, R), class L collects the missing
    counts = torch.zeros(labels.shape[1], L + 1, L, dtype=q.dtype, device=q.device)  # (R, L + 1, L)
    for r, said in enumerate(flat.unbind(1)):
        counts[r].index_add_(0, said, q)
    counts = counts[:, :L] + smoothing  # (R, L, L)
    total = counts.sum(1, keepdim=True)
    return torch.where(
        total > 0, counts / torch.where(total > 0, total, 1), torch.eye(L, dtype=q.dtype, device=q.device)
    )


# %% [markdown]
# Loop and library agree, and with some hundred images in each column the count is close to the matrix that drew the
# labels.

# %%
known = torch.nn.functional.one_hot(truth, 10).float()  # (N, L)
A_counted = count_matrices(labels, known)  # (R, L, L)
assert torch.allclose(A_counted[0], counted, atol=1e-6)
print(f"largest difference from the true matrices: {float((A_counted - A).abs().max()):.3f}")

# %% [markdown]
# How far apart are two matrices altogether? The paper's measure is the **CM error**: the squared differences, summed
# over a matrix, divided by $L$, and averaged over the annotators.

# %% tags=["shipped"]
# shipped: course_lib.metrics
def cm_error(A: torch.Tensor, A_hat: torch.Tensor) -> float:
    A, A_hat = confusion.check_cm(A), confusion.check_cm(A_hat)
    if A.shape != A_hat.shape:
        raise ValueError(f"both must be (R, L, L); got {tuple(A.shape)} and {tuple(A_hat.shape)}.")
    return float(((A - A_hat) ** 2).sum((-2, -1)).mean() / A.shape[-1])


# %% [markdown]
# The fewer images, the larger the error, because the smaller the counts.

# %%
for n in (20, 100, 500, len(truth)):
    found = count_matrices(labels[:n], known[:n], smoothing=0.5)
    print(f"matrices counted on {n:5,} images: CM error {cm_error(A, found):.3f}")

# %% [markdown]
# ### Your own matrix
#
# Twenty images is what *you* gave. Count, with `smoothing`: half a stroke is put into every box beforehand, so that one
# answer cannot make a column say "always". A digit that you never met leaves its column flat, which is the honest thing
# to say about it.

# %% tags=["hide-input"]
A_six = count_matrices(six[:, None], known[index], smoothing=0.5)[0]  # (L, L)
plots.described(
    plots.confusion_matrix(A_six, title=f"What twenty labels say of {who}"),
    f"Confusion matrix of annotator six ({who}), counted on twenty blurred digits with smoothing 0.5.",
)

# %% [markdown]
# How sure can we be? Forget the matrix and ask for one number only, the share that is right. Even that is wide open.

# %%
met = six != MISSING
right, n = int((six == truth[index]).sum()), int(met.sum())
interval = stats.binomtest(right, n).proportion_ci(method="wilson")
print(f"{who}: {right} of {n} right, 95 % interval {interval.low:.2f} to {interval.high:.2f}")
print("answered pictures of 0..9:", torch.bincount(truth[index][met], minlength=10).tolist())

# %% [markdown]
# A matrix has ninety free numbers, and twenty labels must pay for all of them. So trust the interval, not the picture
# above it. This is why annotators should share one model of the images, as they do from chapter 3 on: the images tell
# the network what the truth is, and the few labels are left to tell it about you.
#
# ### Apply a matrix
#
# Next, {eq}`eq-ch1-apply`: from probabilities of the truth to probabilities of what is said. First as a loop over
# annotators, sayings and truths.

# %%
p = torch.tensor([0.02] * 3 + [0.5, 0.02, 0.02, 0.02, 0.02, 0.3, 0.06])  # a 3, or an 8
said = torch.zeros(5, 10)
for r in range(5):
    for i in range(10):
        said[r, i] = sum(A[r, i, j] * p[j] for j in range(10))
print("annotator 1 will say 0..9 with probability", said[0].numpy().round(2), sep="\n")

# %% [markdown]
# Then for a batch of images, and with logarithms, because products of many small probabilities run out of digits.
# Adding `log_p[:, None, None]` lays $\log p_j$ beside every column; `logsumexp` over the truth axis is the sum over
# $j$. `*S` stands for nothing here, and for height and width when the items are pixels.

# %% tags=["shipped"]
# shipped: course_lib.confusion
def apply(log_A: torch.Tensor, log_p: torch.Tensor) -> torch.Tensor:
    return (log_A + log_p[:, None, None]).logsumexp(3)  # (B, R, L, *S)


# %% [markdown]
# One image is a batch of one, so both get an axis in front. `confusion.log` is a logarithm that turns the zeros of $A$
# into a very small number instead of minus infinity.

# %%
log_A, log_p = confusion.log(A)[None], p.log()[None]  # (1, R, L, L), (1, L)
log_said = apply(log_A, log_p)  # (1, R, L)
assert torch.allclose(log_said[0].exp(), said, atol=1e-6)
assert torch.allclose(log_said.exp().sum(2), torch.ones(1, 5), atol=1e-5)  # something is said
print("loop and line agree:", tuple(log_said.shape))

# %% [markdown]
# ### Score a label
#
# The score of a label is one entry of that table: the row that was said. Keep the `p` from above, which is in doubt
# between 3 and 8, and suppose that it belongs to the first 3 among the training images.

# %%
heard = labels[truth == 3][:1]  # (1, R): what the five said of the first 3
scores = confusion.label_log_likelihood(log_A, log_p, heard)  # (1, R)
assert torch.allclose(scores, log_said.gather(2, heard[:, :, None])[:, :, 0], atol=1e-5)
for r in range(5):
    print(f"annotator {r + 1} said {int(heard[0, r])}: probability {float(scores[0, r].exp()):.3f}")
print(f"the least that annotator 1 gives to any name: {float(said[0].min()):.3f}")

# %% [markdown]
# The sum runs over the truth, so a wrong label can score as well as a right one, if it is the mistake that this person
# makes. What scores badly is a label that neither a 3 nor an 8 would have drawn from them.
#
# ```{admonition} A trap on the way
# :class: warning
#
# `torch.nn.functional.cross_entropy` wants *logits* and takes a softmax itself. Give it probabilities, and they are
# squashed a second time. Nothing stops, but a perfect fit no longer has loss 0, and the matrices that are learned come
# out wrong. Scores of this book are plain logarithms of probabilities.
# ```

# %%
perfect = torch.eye(10)[:1]  # certain of class 0, and class 0 was said
zero = torch.tensor([[0]])  # (1, 1)
log_I = confusion.log(torch.eye(10))[None, None]  # (1, 1, L, L)
once = abs(float(confusion.label_log_likelihood(log_I, confusion.log(perfect), zero)))
twice = float(torch.nn.functional.cross_entropy(perfect, zero[0]))
print(f"loss of a perfect fit: {once:.3f}; with a softmax too many: {twice:.3f}")
assert once < 1e-6 and twice > 1

# %% [markdown]
# ### Take a vote
#
# Last, the vote: count the names, take the commonest. `Counter` leaves ties to the order of arrival, which is one of
# the questions of exercise 1.2; here we only compare where there is a single winner.

# %%
from collections import Counter

votes = torch.tensor([Counter(row.tolist()).most_common(1)[0][0] for row in labels])  # (N,)
shares = fusion.mean_label(labels, 10)  # (N, L): share of the labels that each class got
top = shares.topk(2).values
clear = top[:, 0] > top[:, 1]  # (N,)
assert torch.equal(votes[clear], fusion.majority(labels, 10)[clear])
print(f"{float(clear.double().mean()):.0%} of the images have a single winner")

# %% [markdown]
# And now the claim of section 3: the vote is Bayes' rule for equal people. Give everybody the same matrix, with 0.45 on
# the diagonal and the rest spread evenly, and {eq}`eq-ch1-posterior` must name the winner of the vote.

# %%
flat = torch.full((len(truth), 10), 0.1).log()  # (N, L): all classes equally frequent
equal = torch.full((10, 10), 0.55 / 9).fill_diagonal_(0.45).expand(5, 10, 10)  # (R, L, L)
believed = confusion.posterior(equal.log()[None], flat, labels)  # (N, L)
assert torch.equal(believed.argmax(1)[clear], votes[clear])
print("the vote and Bayes' rule for equal people agree")

# %% [markdown]
# What would we gain if we knew the people? Put their true matrices into the same line.

# %%
informed = confusion.posterior(log_A, flat, labels).argmax(1)  # (N,)
by_vote = fusion.majority(labels, 10, generator=seeded(3))  # (N,)
for name, found in {"the vote": by_vote, "Bayes with the true matrices": informed}.items():
    print(f"{name:>28}: right for {metrics.accuracy(found, truth):.1%} of the images")

# %% [markdown]
# Same labels, and not one image was looked at. All that was added is knowledge of who errs how. (Flippers are an easy
# case: each of them has only two names for a digit, so five labels seldom leave more than one truth possible. Vaguer
# people leave more doubt.) Nobody will hand us those matrices. Chapter 2 finds them in the labels, chapter 3 in labels
# and images together.

# %% [markdown]
# ## 5. The experiment
#
# ### How good is a vote?
#
# One panel of annotators proves little: another panel, another number. So the function below draws a panel, lets it
# label all training images, and returns the share of votes that are right. `share` limits how many may have the same
# wrong name for a digit; ties are broken at random.


# %%
def vote_accuracy(draw, R=5, skill=0.45, share=2, per_item=None):
    generator = seeded(1000 + draw)
    A = annotators.pairwise_flippers(R, 10, skill, share=share, generator=generator)
    labels = annotators.annotate(truth, A, per_item=per_item, generator=generator)
    return metrics.accuracy(fusion.majority(labels, 10, generator=generator), truth)


# %% [markdown]
# First question: is it better to have more annotators, or better ones?

# %%
sizes, skills = [1, 3, 5, 7, 9], [0.25, 0.45, 0.65]
vote_by_size = {
    f"right {skill:.0%}": [[vote_accuracy(d, R=R, skill=skill) for R in sizes] for d in range(P.vote_draws)]
    for skill in skills
}

# %% tags=["hide-input"]
plots.described(
    plots.curve(sizes, vote_by_size, model="right 45%", xlabel="annotators", ylabel="votes that are right",
                title="A crowd of poor annotators can vote well"),
    f"Share of right votes over the number of annotators, for three skills. Lines are means over {P.vote_draws} "
    f"panels, bands reach from the worst panel to the best (size {training.size()}).",
)  # fmt: skip

# %% [markdown]
# Wrong names scatter and the right one does not, so it wins more often than half of the voters know it. But look at the
# lowest line: people who know little need very many colleagues. And each further colleague labels every image again,
# which somebody has to pay.
#
# Second question: what if mistakes are shared, or if labels are few?

# %%
settings = {
    "no two share": {"share": 1},
    "two may share": {"share": 2},
    "three may share": {"share": 3},
    "one label each": {"per_item": 1},
}
rows = [
    {"method": name, "draw": d, "metrics": {"accuracy": vote_accuracy(d, **setting)}}
    for name, setting in settings.items() for d in range(P.vote_draws)
]  # fmt: skip

# %% tags=["hide-input"]
plots.described(
    plots.bars_with_spread(rows, "accuracy", model="two may share", xlabel="votes that are right",
                           title="Shared mistakes hurt; a single label cannot be outvoted"),
    f"Share of right votes of five annotators of skill 45 %. Each dot is one of {P.vote_draws} panels; the stroke is "
    f"the mean, the line its 95 % interval (size {training.size()}).",
)  # fmt: skip

# %% [markdown]
# Shared wrong names cost the vote some of its accuracy: compare the first row with the two below it. (Those two may
# hardly differ. Nine wrong names are many, and three people seldom meet at one of them by chance. Section 6 arranges it
# on purpose.) Real people learned from the same textbooks, and share more. And with one label for each image the vote
# has nothing to do: it returns the label.
#
# ### What does a network make of it?
#
# Labels are a means. What counts is the network that learns from them. We give the same network four kinds of labels
# for the same images, each time from the same panel:
#
# - `truth`, which a real project would not have; it is the ceiling;
# - `vote`, the winner of five labels;
# - `all labels`, where each of the five labels counts as a target of its own;
# - `one label` for each image, from an annotator chosen at random.

# %%
def four_kinds(part, draw):
    """Labels of the images in `part`, (N, 1) or (N, 5), by kind."""
    generator = seeded(2000 + draw)
    A = annotators.pairwise_flippers(5, 10, skill=0.45, generator=generator)
    dense = annotators.annotate(part.labels, A, generator=generator)  # (N, R)
    single = annotators.annotate(part.labels, A, per_item=1, generator=generator)  # (N, R), one a row
    vote = fusion.majority(dense, 10, generator=generator)
    return {"truth": part.labels[:, None], "vote": vote[:, None], "all labels": dense,
            "one label": fusion.majority(single, 10)[:, None]}  # fmt: skip


# %% [markdown]
# `Annotations` is the book's container for images and what was said of them. All containers of one part share the same
# images, halved to 14 x 14 pixels to save time. The validation images get labels of the same kind as the training
# images, because a project that has no truth for training has none for choosing either.

# %%
KINDS = ["truth", "vote", "all labels", "one label"]


def containers(part, kind):
    images = Annotations(data.small(part.images), part.labels[:, None], n_classes=10)
    return [images.with_labels(four_kinds(part, draw)[kind]) for draw in range(P.draws)]


train = {kind: containers(digits.train, kind) for kind in KINDS}
validation = {kind: containers(digits.validation, kind) for kind in KINDS}
print(f"{len(KINDS)} kinds x {P.draws} panels, images {tuple(train['vote'][0].images.shape)}")

# %% [markdown]
# The network is as small as a network can be: two hidden layers. `Vanilla` trains it in the plain way, as if every
# label were the truth. `fit` takes all the panels of a kind at once, stacks their networks into one, and trains them
# side by side. It keeps, for each run, the weights of the epoch that fitted the validation labels best. The last lines
# make sure that the work was done where we think: on `device`.

# %% tags=["training"]
device = training.pick_device()
nets, cost = {}, {}
for kind in KINDS:
    blank = [networks.mlp(196, 10, hidden=P.hidden, generator=seeded(d)) for d in range(P.draws)]
    nets[kind] = [Vanilla(network) for network in blank]
    cost[kind] = training.fit(nets[kind], train[kind], epochs=P.epochs, validation=validation[kind])
    print(f"{kind}: {cost[kind]}")
    on = {p.device.type for net in nets[kind] for p in net.parameters()} | {torch.device(cost[kind].device).type}
    assert on == {device.type}, f"wanted everything on {device}; found {on}"

# %% [markdown]
# Now the test images, which nobody has touched until here, and their truth.

# %%
test_images = data.small(digits.test.images)
tested = []
for kind in KINDS:
    for d, net in enumerate(nets[kind]):
        accuracy = metrics.accuracy(training.predict(net, test_images), digits.test.labels)
        tested.append({"method": kind, "draw": d, "metrics": {"accuracy": accuracy}})

# %% tags=["hide-input"]
plots.described(
    plots.bars_with_spread(tested, "accuracy", model="vote", xlabel="accuracy on test images",
                           title="Five labels help much, the truth still more"),
    f"Test accuracy of the same small network trained on four kinds of labels. Each dot is one of {P.draws} panels, "
    f"the stroke is the mean, the line its 95 % interval (size {training.size()}).",
)  # fmt: skip

# %% [markdown]
# Look at the scale, and then at the next table. It sets the network beside the labels that it learned from.

# %%
def mean_accuracy(rows, method):
    found = [row["metrics"]["accuracy"] for row in rows if row["method"] == method]
    return sum(found) / len(found)


def share_right(some):
    return sum(float((each.labels == truth[:, None]).double().mean()) for each in some) / len(some)


label_accuracy = {kind: share_right(train[kind]) for kind in KINDS}
print("trained on    labels right   network right")
for kind in KINDS:
    print(f"{kind:>10}   {label_accuracy[kind]:12.3f}   {mean_accuracy(tested, kind):13.3f}")

# %% [markdown]
# **The network is better than its teachers.** It cannot learn mistakes by heart, for it is small and training stops
# early. It sees many images of a digit, and learns the name that most of them got. As long as the right name is the
# commonest *for each digit*, mistakes average out over images, in the way they average out over people in a vote.
#
# Still, a gap to the truth remains, and it is widest where labels are few. That gap is what this book is about. We will
# close most of it with the same labels and a better model of the people.
#
# Now compare with your guesses.

# %%
measured = [
    mean_accuracy(rows, "no two share"),
    mean_accuracy(rows, "three may share"),
    mean_accuracy(rows, "one label each"),
    mean_accuracy(tested, "vote"),
]
print("guessed  measured")
for (question, guessed), value in zip(guess.items(), measured):
    print(f"{guessed:7.2f}  {value:8.2f}  {question}")

# %% [markdown]
# Not everything that comes out of a random experiment is a law. The book checks formulas with `assert`, so that they
# stop the notebook if they fail. Of outcomes it says only whether your run showed them, too.

# %%
def outcome(sentence, seen):
    print(f"{'seen' if seen else 'your run differed'}: {sentence}")


outcome("shared wrong names cost the vote accuracy", measured[0] > measured[1])
outcome("a network is right more often than its votes", measured[3] > label_accuracy["vote"])
outcome("five labels teach more than one", measured[3] > mean_accuracy(tested, "one label"))
outcome("the truth teaches most", mean_accuracy(tested, "truth") > measured[3])

# %% [markdown]
# ## 6. Break it
#
# ### The matrix the wrong way round
#
# Turn all five matrices round and hand them to the library. It refuses, and says what it thinks has happened.

# %%
try:
    confusion.check_cm(A.transpose(1, 2))
    raise RuntimeError("a transposed matrix went through")
except ValueError as refusal:
    print("refused:", refusal)

# %% [markdown]
# Why so strict? Because the quantities one looks at first do not show the mistake. The trace and the skill of a
# transposed matrix are the same. And some annotators have a symmetric matrix, where turning it round changes nothing at
# all. Code that was only ever tried on them has not been tried.

# %%
assert torch.equal(confusion.skills(A), confusion.skills(A.transpose(1, 2)))  # the skill sees nothing
guessers = annotators.hammer_spammers(5, 10, 0.45, generator=seeded(1))  # they know, or guess at random
assert torch.equal(guessers, confusion.check_cm(guessers.transpose(1, 2)))  # here no check can see it
print("same skills either way:", confusion.skills(A).numpy().round(2))

# %% [markdown]
# ### Three of five share a flip
#
# Now for the vote. Take five poor annotators, right 30 % of the time, with wrong names of their own. Then let three of
# them agree on one thing: that a 1 should be called 7.

# %%
gang = annotators.pairwise_flippers(5, 10, 0.3, share=1, spread=0, generator=seeded(4))  # (R, L, L)
gang[:3, :, 1] = 0.3 * torch.eye(10)[1] + 0.7 * torch.eye(10)[7]  # the first three: truth 1 is called 7
gang_labels = annotators.annotate(truth, gang, generator=seeded(5))
gang_vote = fusion.majority(gang_labels, 10, generator=seeded(6))
ones = truth == 1
called = torch.bincount(gang_vote[ones], minlength=10)
print(f"of {int(ones.sum())} ones, the vote calls {int(called[1])} a 1 and {int(called[7])} a 7")
assert called[7] > called[1]

# %% [markdown]
# The vote is not only wrong, it looks sure of itself. Compare how many of the five stand behind the winner: for the
# ones that are called 7, and for all other digits where the vote is right.

# %%
support = fusion.mean_label(gang_labels, 10).max(1).values  # (N,): share of the five behind the winner
wrong = ones & (gang_vote == 7)
fine = ~ones & (gang_vote == truth)
print(f"mean share of the five behind the winner: {support[wrong].mean():.2f} for ones that are called 7")
print(f"{support[fine].mean():.2f} for other digits, where the vote is right")

# %% [markdown]
# Whoever trusts large majorities trusts the wrong ones here. The margin {eq}`eq-ch1-margin` does tell: in the row "says
# 7", the ones have overtaken the sevens.

# %%
mean_A = gang.mean(0)
print(f"mean matrix, row 'says 7': truth 7 {mean_A[7, 7]:.2f}, truth 1 {mean_A[7, 1]:.2f}")
print(f"margin {confusion.dominance(gang):.2f}; the five of section 1 {confusion.dominance(A):.2f}")
assert confusion.dominance(gang) < 0 < confusion.dominance(A)

# %% [markdown]
# Is the truth lost, then? No. Who knows the matrices also knows that these three say 7 in chorus for a 1, while the
# other two do not.

# %%
knowing = confusion.posterior(confusion.log(gang)[None], flat, gang_labels).argmax(1)
for name, found in {"the vote": gang_vote, "Bayes with the true matrices": knowing}.items():
    print(f"{name:>28}: right for {float((found == truth)[ones].double().mean()):.1%} of the ones")
assert (knowing == truth)[ones].sum() > (gang_vote == truth)[ones].sum()

# %% [markdown]
# The labels still hold the answer; the vote cannot read it. Whether a method that must *find* the matrices can read it
# is the question of the next chapters, and a negative margin is where their guarantees end.

# %% [markdown]
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it. The check knows the
# usual mistakes by name. Three hints are folded, from a nudge to nearly everything, and so is a solution.
#
# ```{exercise} What will they say? (★, 5 minutes)
# :label: ex-ch1-columns
#
# Exercise 1.1. Before one can draw a label, one needs the distribution that it is drawn from. Given matrices `A` of
# shape (R, L, L) and truths `truth` of shape (N,), return what each annotator may say of each item: shape (N, R, L),
# where entry [n, r, i] is the probability that annotator r says i of item n.
# ```

# %% tags=["stub"]
def what_they_say(A, truth):
    """(R, L, L) and (N,) -> (N, R, L)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Given the truth, do you read along a row of the matrix or down a column?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# The answer at $[n, r, i]$ is $A^{(r)}_{i, y_n}$. So the *last* axis of `A` is looked up.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# Bring the truth axis to the front with `permute`, then index with `truth`: `A.permute(?, ?, ?)[truth]`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.what_they_say(what_they_say)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def what_they_say(A, truth):
    """(R, L, L) and (N,) -> (N, R, L)."""
    return A.permute(2, 0, 1)[truth]  # (L, R, L) by truth, then (N, R, L)


checks.what_they_say(what_they_say)

# %% [markdown]
# **What you should see, and why.** Every [n, r] sums to 1, because it is a column. With `A[:, truth]` you would have
# read rows: the numbers look like probabilities, but do not sum to 1. Feed the right answer to `torch.multinomial` and
# you have simulated a panel; `annotators.annotate` does no more than that.
#
# ```{exercise} A fair vote (★★, 10 minutes)
# :label: ex-ch1-vote
#
# Exercise 1.2. Write a vote that breaks ties fairly. `labels` is (N, R) with −1 where somebody said nothing,
# `n_classes` is L, and `generator` is a `torch.Generator`. Return (N,): the commonest label of each item; where several
# are equally common, one of *these*, each with the same chance; and −1 where nobody said anything.
# ```

# %% tags=["stub"]
def fair_vote(labels, n_classes, generator):
    """(N, R) with -1 for missing -> (N,)."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Count first, (N, L). Then ask what could be added to the counts so that equal ones differ, but unequal ones keep their
# order.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Counts are whole numbers. Add a uniform random number below 1 to each, and take the `argmax`. An item without labels
# has counts that sum to 0.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `counts = torch.stack([(labels == c).sum(1) for c in range(n_classes)], 1)`, then
# `(counts + torch.rand(counts.shape, generator=generator)).argmax(1)`, then `torch.where(...)` for the empty rows.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.fair_vote(fair_vote)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def fair_vote(labels, n_classes, generator):
    """(N, R) with -1 for missing -> (N,)."""
    counts = torch.stack([(labels == c).sum(1) for c in range(n_classes)], 1)  # (N, L); -1 equals no class
    winner = (counts + torch.rand(counts.shape, generator=generator)).argmax(1)  # (N,)
    return torch.where(counts.sum(1) > 0, winner, -1)


checks.fair_vote(fair_vote)

# %% [markdown]
# **What you should see, and why.** A plain `argmax` gives every tie to the lowest class. With ten classes and five
# voters ties are common, so a network trained on such votes would learn to like small digits. `fusion.majority` is
# repeatable without a generator and fair with one.
#
# ```{exercise} Three voters (★★, 10 minutes)
# :label: ex-ch1-three
#
# Exercise 1.3. Three annotators are right with probability `skill`, independently, and no two ever use the same wrong
# name. Ties are broken at random. With which probability is their vote right? Return that number.
# ```

# %% tags=["stub"]
def vote_of_three(skill):
    """A probability -> a probability."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Sort by how many of the three are right: three, two, one, none.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Two are right in three ways, each of probability $s^2 (1 - s)$, and they win. With one right there are three different
# names, so each wins with probability one third.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `skill**3 + 3 * skill**2 * (1 - skill) + ... / 3`
#
# </details>

# %% tags=["check", "raises-exception"]
checks.vote_of_three(vote_of_three)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def vote_of_three(skill):
    """A probability -> a probability."""
    wrong = 1 - skill
    return skill**3 + 3 * skill**2 * wrong + 3 * skill * wrong**2 / 3


checks.vote_of_three(vote_of_three)
simulated = [vote_accuracy(d, R=3, share=1) for d in range(P.vote_draws)]
print(f"formula at 0.45: {vote_of_three(0.45):.3f}; simulated: {sum(simulated) / len(simulated):.3f}")

# %% [markdown]
# **What you should see, and why.** The terms shorten to $s\,(1 + s - s^2)$, which is more than $s$ for every $s$
# strictly between 0 and 1. Three people who are wrong each in their own way always vote better than one of them. The
# textbook formula for two classes has no tie term, and falls below $s$ when $s < \frac12$: with two classes, all wrong
# names are shared.
#
# ```{exercise} The margin (★★, 10 minutes)
# :label: ex-ch1-margin
#
# Exercise 1.4. Write the margin {eq}`eq-ch1-margin` of matrices `A` of shape (R, L, L): one number, the smallest lead
# of a diagonal entry of the mean matrix over another entry *of its row*.
# ```

# %% tags=["stub"]
def margin(A):
    """(R, L, L) -> a number."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# First the mean over annotators, once. Which axis of the mean matrix do you walk along if you stay in one row?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\min_{i \ne j} (\bar A_{ii} - \bar A_{ij})$: the diagonal entry is compared with the entries that have the *same
# first index*. The case $i = j$ is 0 and must not take part.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `lead = mean.diagonal()[:, None] - mean` is (L, L), with one row for each thing said. Then the minimum over
# `~torch.eye(L, dtype=torch.bool)`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.margin(margin)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def margin(A):
    """(R, L, L) -> a number."""
    mean = A.mean(0)  # (L, L)
    lead = mean.diagonal()[:, None] - mean  # (L, L), one row for each thing said
    return float(lead[~torch.eye(len(mean), dtype=torch.bool)].min())


checks.margin(margin)
print(f"the five of section 1: {margin(A):.3f}; the five of section 6: {margin(gang):.3f}")

# %% [markdown]
# **What you should see, and why.** Along the row you ask: of all that is *called* 7, what is it mostly? Down the column
# you would ask: what are sevens mostly called? Both sound like "the diagonal wins". A large vote, and a plain network,
# need the column. The theorem of chapter 3 needs the row, and there you will meet matrices that pass one test and fail
# the other.

# %% [markdown]
# ## 8. What the paper claims and what we measured
#
# This chapter touches few of the claims of {cite:t}`tanno2019`, so its table is made right here. From chapter 3 on,
# such tables are drawn from the book's list of claims, `claims.yaml`, and from committed results, and the verdicts are
# computed.
#
# First the largest CM error there can be: an annotator with a wrong name for everything, taken for a perfect one.

# %%
cyclic = torch.eye(10).roll(1, 0)[None]  # every digit is called by the name of the next
largest = cm_error(torch.eye(10)[None], cyclic)
assert largest == 2.0  # each column differs by 1 in two places
print("largest CM error:", largest)

# %% [markdown]
# Then the paper's diverse group of four: one who guesses, one who confuses look-alikes, one who confuses neighbours,
# one with wrong names for everything. The paper draws them for ten kinds of photographs and prints pictures of their
# matrices; ours are made in the same spirit for digits.

# %%
group_skill = []
for g in map(seeded, range(P.vote_draws)):
    four = annotators.annotate(truth, annotators.diverse(generator=g), generator=g)  # (N, 4)
    group_skill.append(float(metrics.annotator_accuracy(four, truth).mean()))
center, half = plots.interval(group_skill)
print(f"labels of the diverse four that are right: {center:.3f} ± {half:.3f} ({P.vote_draws} draws)")

# %% tags=["hide-input"]
claims = [
    ("claim", "where", "theirs", "ours", "verdict"),
    ("---",) * 5,
    ("the CM error lies between 0 and 1", "section 3.2", "at most 1", f"at most {largest:g}",
     "not so: divided by the number of classes, the squared error reaches 2"),
    ("the diverse four are right in 45 % of their labels", "section 3.1", "0.45", f"{center:.3f} ± {half:.3f}",
     "ours were built to be like that; it is a check of the simulation, not of the paper"),
    ("the vote helps little where labels are few", "section 1", "no number",
     f"labels right: {measured[2]:.2f} with one, {label_accuracy['vote']:.2f} with five",
     "seen here" if measured[2] < label_accuracy["vote"] else "your run differed"),
]  # fmt: skip
Markdown("\n".join("| " + " | ".join(row) + " |" for row in claims))

# %% [markdown]
# ## 9. Three questions
#
# <details><summary>1. An annotator calls every digit by the name of the next one, without exception. Are their labels
# worth anything?</summary>
#
# More than anybody's. Each label gives away the truth, once the matrix is known: every column and every row holds a
# single 1. To a vote such an annotator is poison; to {eq}`eq-ch1-posterior` a gift. Skill is not information.
#
# </details>
# <details><summary>2. You see a matrix in a report. Its columns do not sum to 1, its rows do. What has probably
# happened, and is there another possibility?</summary>
#
# Probably it is [truth, said], the other way round. But it may also hold p(truth | said), which is how often one is
# right to believe a label. That is another quantity, and depends on how frequent the classes are. Ask what was divided
# by what.
#
# </details>
# <details><summary>3. Why can a network be right more often than every label it was trained on, and when does that
# stop?</summary>
#
# It answers with the commonest name for images that look alike, so mistakes average out over images. It stops when a
# wrong name is the commonest for some digit, as in section 6: then more images make it more certain of the mistake. It
# also stops when the network is large enough, and is trained long enough, to learn every single label by heart.
#
# </details>

# %% [markdown]
# ## 10. Further reading; errata found
#
# - The paper behind Part I: {cite:t}`tanno2019`. Sections 1, 2.1 and 3.1 are what you have just worked through.
# - Where the matrix comes from: {cite:t}`dawid1979`, five anaesthetists who grade the same patients. Chapter 2.
# - Annotators and a classifier learned together, before deep networks: {cite:t}`raykar2010`.
# - Hammers and spammers: {cite:t}`khetan2018`.
#
# **Errata of the paper met in this chapter.** One: its matrix stands for [said, truth] in the text and for [truth,
# said] in the listing and in Algorithms 2 and 3 (section 3 here). Two: the CM error is said to lie between 0 and 1, and
# can reach 2 (section 8 here). Neither touches its results; both can cost a reader an afternoon.
#
# **Next.** {doc}`Chapter 3 </notebooks/03_the_trace>` lets a network find the truth and all the matrices together, from
# one label for each image, and lets you join in.
