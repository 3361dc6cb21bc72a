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
# # 19. Bring your own annotators
#
# *Core chapter.* So far the labels were made by this book. Yours lie in a file that somebody has sent you, or in a folder for
# each reader, and nobody knows the truth. This chapter goes the whole way: from the file to the fused truth with its doubt, to a
# network, and back into a file of the same kind. On the way it answers the question that decides all others: *which model is
# right for these people, if there is no truth to ask?*
#
# **You will be able to**
#
# - read a table of labels or a folder of masks, and know what is wrong with the file when something is;
# - choose a model by labels laid aside, without any truth;
# - say how far the fused truth can be trusted, and find out with a few items that you know;
# - train a network on it, and write fused masks back in the format and geometry in which they came.
#
# **You need to know** chapter 2 (Dawid-Skene), chapter 3 (network and matrices), and for masks chapter 7 (STAPLE).
#
# **Time** about two hours with the exercises (an estimate), of which the computer needs the seconds below.
#
# **Data** 3, 4, 5, 8 and 9 among the handwritten digits {cite:p}`lecun1998` that ship with the course, drawn pictures, and
# drawn people. And your own, in section 5.

# %%
try:
    import tempfile
    import warnings
    from pathlib import Path

    import numpy as np
    import torch
    from IPython.display import Markdown
    from matplotlib.figure import Figure
    from PIL import Image

    import course_lib.checks.own as checks
    from course_lib import annotators, book, data, fusion, mask_folders, metrics, networks, plots, report, scenes, tables, training
    from course_lib.annotations import MISSING, Annotations
    from course_lib.confusion import count_matrices, log, skills
    from course_lib.mask_annotators import draw_masks, fractured, over, under
    from course_lib.methods.trace import Trace, Vanilla
    from course_lib.networks import seeded
    from course_lib.report.held_out import EACH, SHARED, VOTE, choice, compare_labels
except ImportError as error:
    import sys

    raise SystemExit(
        f"{error}: this notebook runs on {sys.executable}, where the course is not installed. In a terminal, in the "
        f'folder that holds pyproject.toml, type\n\n    "{sys.executable}" -m pip install -e .\n\nand restart the kernel.'
    ) from None

# %% tags=["card", "hide-input"]
book.card(19)

# %% [markdown]
# As in every chapter, `COURSE_SIZE` picks a column of the next table.

# %% tags=["parameters"]
P = training.sized(  # (ci, lesson, paper)
    n=(300, 600, 1800),  # items that were labelled
    draws=(3, 20, 40),  # crowds of each kind
    trained=(1, 5, 10),  # of these, how many networks are trained on
    looks=(1, 3, 5),  # crowds of each kind whose pictures the report looks at
    seen=(200, 300, 1200),  # and their items
    epochs=(10, 30, 40),
    pictures=(6, 12, 40),  # with masks
)
print(f"size {training.size()}: {P}")

# %% [markdown]
# ## 1. The idea in one picture
#
# Seven people label pictures of digits. To be able to check ourselves at the end, we draw these people, and then forget what we
# know. There are three kinds of crowds. In `different`, the crowd of this section, A knows nearly everything, B, C, D and G are
# fair, E is good but exchanges 3 and 5, and F guesses, and has been busier than anybody. In `alike`, all seven are equally good.
# In `copies`, E, F and G hand in the answers of one person, who is not good.

# %%
KNOWS = {"different": [0.95, 0.7, 0.65, 0.6, 0.9, 0.0, 0.7], "alike": 7 * [0.65], "copies": 4 * [0.7] + 3 * [0.45]}
DIGITS = torch.tensor([3, 4, 5, 8, 9])
digits = data.mnist5k()


def crowd(kind, seed, n=P.n):
    """(Annotations of n pictures, their truth (n,), 500 other pictures, their truth)."""
    generator = seeded(seed)
    at = torch.isin(digits.labels, DIGITS).nonzero()[:, 0]
    at = at[torch.randperm(len(at), generator=generator)[: n + 500]]
    x, truth = data.small(digits.images[at]), torch.searchsorted(DIGITS, digits.labels[at])
    knows = torch.tensor(KNOWS[kind])[:, None, None]
    A = knows * torch.eye(5) + (1 - knows) / 5  # who does not know says anything
    busy = [1, 1, 1, 1, 1, 2, 0.3] if kind == "different" else [1.0] * 7
    if kind == "different":
        A[4, :, [0, 2]] = A[4][:, [2, 0]]
    said = annotators.annotate(truth[:n], A, per_item=5 if kind == "copies" else 3, workload=busy, generator=generator)
    if kind == "copies":  # E, F and G hand in one person's answers
        one = annotators.annotate(truth[:n], A[4:5], generator=generator)
        said[:, 4:] = torch.where(said[:, 4:] != MISSING, one, MISSING)
    names = {"names": "ABCDEFG", "classes": DIGITS.tolist(), "item_names": [f"digit_{k:04d}.png" for k in range(n)]}
    return Annotations(x[:n], said, 5, **names), truth[:n], x[n:], truth[n:]


# %% [markdown]
# Here is their file, as a colleague might send it: with semicolons, a row for each label, and a few cells that say `n/a`.

# %%
drawn, truth, unseen, unseen_truth = crowd("different", 0)
keep = tempfile.TemporaryDirectory()
folder = Path(keep.name)
rows = ["item;annotator;label"]
for n, r in drawn.observed.nonzero().tolist():
    rows.append(f"{drawn.item_names[n]};{drawn.names[r]};{drawn.classes[drawn.labels[n, r]]}")
rows += [f"{name};G;n/a" for name, said in zip(drawn.item_names[:5], drawn.labels[:5, 6]) if said == MISSING]
(folder / "labels.csv").write_text("\n".join(rows), encoding="utf-8")
print("\n".join(rows[:7]), "\n...", f"\n{len(rows) - 1} rows")

# %% [markdown]
# Two lines read it and say what can be said. `from_csv` takes its columns by their names: `item, annotator, label`, the
# `task, worker, label` of crowd-kit {cite:p}`ustalov2024`, or a table with a column for each annotator.

# %%
labels = Annotations.from_csv(folder / "labels.csv")
found = report.analyse(labels)
print(f"{labels.n_items} items, {labels.n_annotators} annotators, {labels.n_observed} labels, classes {labels.classes}")
for sentence in found.summary["next"]:
    print("-", sentence)
assert labels.names == drawn.names and torch.equal(labels.labels, drawn.labels)

# %% [markdown]
# And this is the idea: from coloured cells (a colour for each class, white where there is no label) to people, and to a truth
# that knows its doubt.

# %% tags=["hide-input"]
fig = Figure(figsize=(7, 5.6), layout="constrained")
top, bottom = fig.subfigures(2, 1, height_ratios=(1, 1.35))
ax = top.subplots()
few = labels.labels[:60].T.double()  # (R, 60)
ax.imshow(few.masked_fill(few == MISSING, float("nan")), cmap="cividis", aspect="auto", interpolation="none")
ax.set(yticks=range(7), yticklabels=labels.names, xlabel="item", title="What came: a few labels an item")
left, right = bottom.subplots(1, 2)
at = skills(found.A)
left.plot(at, range(7), "o", color=plots.MODEL, markersize=9)
left.axvline(1 / 5, color="#949494", linestyle="--")
left.text(0.21, -0.4, "a guess", color="#5F5F5F", va="top")
left.set(yticks=range(7), yticklabels=labels.names, xlim=(0, 1.02), ylim=(6.6, -0.9), xlabel="skill", title="Who can be believed")
doubt = 1 - found.p.amax(1)
right.hist(doubt, bins=20, range=(0, 0.8), color="#949494", edgecolor="black")
right.set(xlabel="doubt: p(the fused label is wrong)", ylabel="items", title="What is in doubt")
plots.described(
    fig, "From a file to people and to a truth with its doubt; nothing here was told what is true. "
    f"The first 60 of {labels.n_items} items. Size {training.size()}.",
    "Above, a strip of 7 rows and 60 columns, most of its cells empty. Below left, the skills: "
    f"{', '.join(f'{w} {s:.2f}' for w, s in zip(labels.names, at))}. Below right, a histogram of doubt: "
    f"{float((doubt < 0.1).float().mean()):.0%} of the items lie below 0.1.",
)  # fmt: skip

# %% [markdown]
# On the command line that is `course report labels.csv --out report`. It writes a page with these pictures, the matrices and the
# items most in doubt, the same as JSON, and the fused labels as a table. What stands in the JSON file is `found.summary`.

# %%
page = report.write(labels, found, folder / "report")
print(sorted(p.name for p in page.parent.iterdir() if p.name[0] != "."))
print((page.parent / "fused.csv").read_text(encoding="utf-8").splitlines()[:3])

# %% [markdown]
# The items most in doubt are the first to look at. What each annotator said of them, and how likely the model holds the three
# likeliest classes:

# %%
for item in found.summary["in_doubt"][:3]:
    likely = ", ".join(f"{name} {x:.2f}" for name, x in item["p"].items())
    print(f"{item['item']}: {item['said']}; {likely}")

# %% [markdown]
# ## 2. Predict
#
# Write down a guess before you go on.
#
# 1. F guesses, and has given more labels than anybody. On which share of the items of `different` is a vote right, and on which
#    share the fused label?
# 2. In which crowd is a matrix for each person *worse* than one matrix for all: `different`, `alike` or `copies`?
# 3. In `copies`, three of seven hand in the answers of one person, who is not good. Will anything in the report look wrong?
#
# ## 3. The maths
#
# **What can be compared without a truth.** A model of annotators says how likely labels are. So lay some aside, and ask each
# model how likely it had thought them. Take an item $n$ that the model has not seen, and one of its labels, $y_n^{(r)}$. The
# other labels of the item say what its truth may be, by Bayes; the matrix of $r$ says what $r$ makes of each truth:
#
# $$
# \ell_n^{(r)} = \log \sum_j p\big(j \mid y_n^{(s)}, s \ne r\big)\, A^{(r)}_{y_n^{(r)} j},
# \qquad
# p\big(j \mid y_n^{(s)}, s \ne r\big) \propto \pi_j \prod_{s \ne r} A^{(s)}_{y_n^{(s)} j} .
# $$ (eq-ch19-score)
#
# The mean of $\ell$ over all labels laid aside is the model's score, in nats. It is a *proper* score {cite:p}`gneiting2007`:
# whoever tells their true belief scores best on average, so it cannot be won by being bold. $-\log 5 \approx -1.61$ is the score
# of somebody who looks at nothing and holds all five classes equally likely.
#
# **Five turns.** A fifth of the *items* is laid aside, matrices and prior are learned on the rest, and each fifth has its turn.
# Items and not single labels, because a model that has heard two labels of an item in training has heard what the third will be
# held against. (In tables of more than 50,000 labels the report takes one turn: there, a fifth is enough.)
#
# **A difference has an interval.** Two models are scored on the same labels. So take the difference label by label, take the mean
# difference off, and sum up what is left of each item, since labels of one item hang together. From these sums $d_n$ comes half
# the width of a 95 % interval, $1.96 \sqrt{\sum_n d_n^2} / K$ with $K$ labels. It tells how far the difference would move with
# other items laid aside; that other items to learn from would have given other matrices is not in it. The report takes **the
# simplest model that cannot be told from the best**: vote, one matrix for all, a matrix each, and, where pictures came along,
# networks. (*Vote* means here: the vote of the others is the truth, in equal parts where it ties, and each person's matrix is
# counted against it. It comes first because it needs no EM, not because it has fewer numbers.)
#
# **Doubt.** Fusion gives $p_n(j)$. The fused label is $\arg\max_j p_n(j)$, and it is wrong with the probability
# $u_n = 1 - \max_j p_n(j)$, *if the model is right*. Then $\sum_n u_n$ mistakes are expected. That sum can be checked, with a few
# items whose truth you know.
#
# **What no score can tell.** Rename the classes, in all matrices and in the prior. No label becomes more or less likely, and
# {eq}`eq-ch19-score` stays what it is (chapter 3). And the product over $s$ assumes that people err *independently*, given the
# truth. Section 6 takes that away.
#
# ## 4. From scratch
#
# ### A reader of tables
#
# Names become numbers, gaps become -1. That is all, when the file is as it should be:

# %%
def read_slow(path):
    """A row a label -> labels (N, R), names of items, of annotators and of classes."""
    lines = [line.split(";") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    items, people, classes = (list(dict.fromkeys(column)) for column in zip(*lines))
    people, classes = sorted(people), sorted(set(classes) - {"n/a"})
    table = torch.full((len(items), len(people)), MISSING)
    for item, who, label in lines:
        if label != "n/a":
            table[items.index(item), people.index(who)] = classes.index(label)
    return table, items, people, classes


table, items, people, classes = read_slow(folder / "labels.csv")
assert torch.equal(table, labels.labels) and tuple(people) == labels.names and tuple(classes) == labels.classes
print(f"{table.shape[0]} items, {table.shape[1]} annotators, {(table != MISSING).sum()} labels, classes {classes}")

# %% [markdown]
# When it is not, somebody has to say so. What the library says of eight broken files; each of these mistakes is easily made:

# %% tags=["hide-input"]
BROKEN = {
    "a label twice, and not the same": "item,annotator,label\na,Ann,1\na,Ben,2\na,Ann,2\n",
    "no annotator": "item,label\na,1\nb,2\n",
    "a row that is too long": "item,annotator,label\na,Ann,1\na,Ben,2,5\n",
    "3 and 3.0, which are one class, and 3.5": "item,annotator,label\na,Ann,3\na,Ben,3.0\nb,Ann,3.5\n",
    "nothing but gaps": "item,annotator,label\na,Ann,\na,Ben,n/a\n",
    "only a head": "item,annotator,label\n",
    "two columns of one name": "item,Ann,Ann\na,1,2\nb,2,2\n",
    "saved by Excel in another encoding": "item,annotator,label\na,Zoë,1\na,Ben,2\n",
}
lines = ["| the file | what is said |", "| --- | --- |"]
for what, text in BROKEN.items():
    bad = folder / "bad.csv"
    bad.write_text(text, encoding="latin-1" if "encoding" in what else "utf-8")
    try:
        read = Annotations.from_csv(bad)
        said = f"it is read: {read.n_items} items, {read.n_annotators} annotators, classes {', '.join(read.classes)}"
    except ValueError as error:
        said = str(error).replace(f"{folder}/", "").replace("|", r"\|").replace("--", r"\-\-")
    lines.append(f"| {what} | {said} |")
Markdown("\n".join(lines))

# %% [markdown]
# ### A file that needs a word of help
#
# A wide table has a row for each item and a column for each annotator. Two things no reader of files can know: that 99 means "not
# seen", and that there is a class which nobody has used. The first is said by `missing=`, or 99 becomes a class. The second is
# said by `classes=`, which also fixes their order; without it, numbers stand in the order of numbers and names in that of the
# alphabet.

# %%
wide = "image,Ann,Ben,Cem\nscan1,mild,mild,99\nscan2,severe,mild,severe\nscan3,99,none,none\n"
(folder / "wide.csv").write_text(wide, encoding="utf-8")
grades = Annotations.from_csv(folder / "wide.csv", missing=["99"], classes=["none", "mild", "moderate", "severe"])
print(grades.names, grades.classes)
print(grades.labels)
assert grades.n_classes == 4 and grades.n_observed == 7

# %% [markdown]
# (`none` is a class here: in medicine it is often a finding. Blank, `na`, `n/a` and `nan` are gaps in every table.) Columns with
# other names are named, and crowd-kit's table, such as the report has written, needs no word at all:

# %%
(folder / "ward.csv").write_text("scan;doctor;finding\n7;Ann;0\n7;Ben;1\n8;Ann;1\n8;Ben;1\n", encoding="utf-8")
ward = Annotations.from_csv(folder / "ward.csv", item="scan", annotator="doctor", label="finding")
print(ward.item_names, ward.names, ward.labels.tolist())
crowdkit = Annotations.from_csv(folder / "report" / "crowdkit.csv")
assert crowdkit.names == labels.names and torch.equal(crowdkit.labels, labels.labels)

# %% [markdown]
# Some mistakes no reader can see, because the file might be meant so. Three that are read without a word:

# %%
QUIET = {
    "two spellings": "item,annotator,label\na,Ann,yes\na,Ben,Yes\nb,Ann,no\n",
    "a code that was not named": "item,annotator,label\na,Ann,yes\na,Ben,?\nb,Ann,no\n",
    "a column that is no annotator": "item,Ann,Ben,visit\na,1,2,1\nb,2,2,2\n",
}
for what, text in QUIET.items():
    (folder / "quiet.csv").write_text(text, encoding="utf-8")
    read = Annotations.from_csv(folder / "quiet.csv")
    print(f"{what}: annotators {read.names}, classes {read.classes}")

# %% [markdown]
# So look at the names and the classes before you look at anything else. In a wide table every column but the item's and one
# called `truth` is an annotator; take out ages, dates and comments. In a table with a row for each label, further columns do no
# harm.
#
# ### A score for labels laid aside
#
# {eq}`eq-ch19-score` as a loop over the labels of one item:

# %%
def foretold_slow(A, prior, said):
    """A (R, L, L), prior (L,), the labels said (R,) of one item -> a score for each label that there is."""
    scores = []
    for r in range(len(said)):
        if said[r] == MISSING:
            continue
        p = prior.clone()
        for s in range(len(said)):
            if s != r and said[s] != MISSING:
                p = p * A[s, said[s]]
        scores.append(torch.log(p / p.sum() @ A[r, said[r]]))
    return torch.stack(scores)


# %% [markdown]
# For all items at once: add up the rows of all labels of an item, and take the row of $r$ off again.

# %%
def foretold(A, prior, labels):
    """A (R, L, L), prior (L,), labels (M, R) -> (K,), a score for each label that there is, row by row."""
    n, r = (labels != MISSING).nonzero(as_tuple=True)
    rows = log(A[r, labels[n, r]])  # (K, L)
    total = log(prior).expand(len(labels), -1).index_add(0, n, rows)  # (M, L), all labels of an item
    return ((total[n] - rows).log_softmax(1) + rows).logsumexp(1)


fused = fusion.dawid_skene(labels.labels, 5, smoothing=1 / 5)
mine = foretold(fused.A, fused.prior, labels.labels[:50])
assert torch.allclose(mine, torch.cat([foretold_slow(fused.A, fused.prior, said) for said in labels.labels[:50]]))
print(f"{len(mine)} labels, on the mean {mine.mean():.3f} nats")

# %% [markdown]
# Now five turns, for a matrix each and for one matrix that all share. (The library warns where EM creeps or contradicts the vote.
# Here two models are compared, and both may do so.)

# %%
warnings.filterwarnings("ignore", message="Dawid-Skene")


def held_out(labels, people=None):
    """labels (N, R) -> the mean score of the labels laid aside, each fifth of the items in turn."""
    labels = labels[(labels != MISSING).sum(1) > 1]  # a single label has no others to be foretold from
    fold = torch.randperm(len(labels), generator=seeded(0)) % 5
    scores = []
    for k in range(5):
        fit = fusion.dawid_skene(labels[fold != k], 5, people=people, smoothing=1 / 5)
        scores.append(foretold(fit.A, fit.prior, labels[fold == k]))
    return float(torch.cat(scores).mean())


shipped = compare_labels(labels)
for model, who in ((EACH, None), (SHARED, [0] * 7)):
    score = held_out(labels.labels, who)
    print(f"{model}: {score:.4f} nats a label")
    assert abs(score - next(fit.score for fit in shipped if fit.model == model)) < 1e-4

# %% [markdown]
# The library's `compare_labels` does the same, and adds two rivals and the intervals. This is the table of the report:

# %%
for fit in shipped:
    behind = f"behind by {fit.behind:.3f} ± {fit.half:.3f}" if fit.behind else "the best"
    print(f"{fit.model:>27}: {fit.score:.3f}, {behind}")
print("taken:", choice(shipped))

# %% [markdown]
# ## 5. The experiment
#
# ### Does the score choose well?
#
# It never sees the truth. We do. Three kinds of crowds: `different`, the people of section 1; `alike`, where all know 65 items in
# a hundred and guess at the rest; `copies`, where E, F and G hand in the answers of one person, who knows 45 in a hundred, while
# the four others know 70. In each draw: fuse by each model, choose by the score, and see how much of the pool is right.

# %%
def fuse(labels, model):
    """labels (N, R) -> p (N, L) by a model of the report."""
    if model == VOTE:
        return fusion.mean_label(labels, 5)
    return fusion.dawid_skene(labels, 5, people=[0] * 7 if model == SHARED else None, smoothing=1 / 5).p


def one_crowd(kind, seed):
    """What each model has right, what the score says, and what it takes."""
    here, truth, *_ = crowd(kind, seed)
    fits = {fit.model: fit for fit in compare_labels(here)}
    taken, p = choice(list(fits.values())), {m: fuse(here.labels, m) for m in (VOTE, SHARED, EACH)}
    right = {m: metrics.accuracy(q.argmax(1), truth) for m, q in p.items()}
    promised = 1 - float(p[taken].amax(1).mean())
    return {"right": right, "lead": fits[EACH].score - fits[VOTE].score, "taken": taken, "promised": promised}


tried = {kind: [one_crowd(kind, seed) for seed in range(P.draws)] for kind in KNOWS}
print(f"{P.draws} crowds of each kind")

# %% [markdown]
# Each dot is a crowd. To the right, a matrix each foretells labels better than the vote does; upwards, it has more of the truth.

# %% tags=["hide-input"]
LOOKS = {"different": ("o", plots.MODEL), "alike": ("s", "#949494"), "copies": ("^", "#E69F00")}
fig = Figure(figsize=(6.2, 4.2), layout="constrained")
ax = fig.subplots()
gains = {kind: np.array([(one["lead"], one["right"][EACH] - one["right"][VOTE]) for one in tries]) for kind, tries in tried.items()}
for kind, points in gains.items():
    marker, colour = LOOKS[kind]
    ax.plot(*points.T, marker, color=colour, markeredgecolor="black", markersize=8, linestyle="none")
    ax.text(points[:, 0].mean(), points[:, 1].max() + 0.015, kind, ha="center", weight="bold", fontsize=11)
ax.margins(0.12)
ax.axhline(0, color="black", linewidth=0.8)
ax.axvline(0, color="black", linewidth=0.8)
ax.set(xlabel="score: a matrix each minus the vote, nats a label", ylabel="items right: a matrix each minus the vote")
ax.set_title("Labels laid aside tell which model is right,\nunless people copy", loc="left")
plots.described(
    fig, "What can be known without a truth (across), and what one would like to know (upwards). "
    f"{P.draws} crowds of each kind. Size {training.size()}.",
    "Three clouds of dots. "
    + " ".join(f"{kind}: {p.mean(0)[0]:+.2f} nats, {p.mean(0)[1]:+.3f} of the items." for kind, p in gains.items()),
)  # fmt: skip

# %% [markdown]
# The same in numbers. *Taken* is what the score chose; *promised* is the share of wrong labels that the taken model expects.

# %% tags=["hide-input"]
lines = ["| crowd | vote | one matrix | a matrix each | taken | right, as taken | promised wrong | wrong |", "|" + 8 * " --- |"]
for kind, tries in tried.items():
    right = [np.mean([one["right"][m] for one in tries]) for m in (VOTE, SHARED, EACH)]
    names = {VOTE: "vote", SHARED: "one", EACH: "each"}
    taken = ", ".join(f"{names[m]} {n}" for m in names if (n := sum(one["taken"] == m for one in tries)))
    got = np.array([one["right"][one["taken"]] for one in tries])
    spread = f" ± {plots.interval(got)[1]:.3f}" if P.draws > 1 else ""
    promised = np.mean([one["promised"] for one in tries])
    cells = [*(f"{x:.3f}" for x in right), taken, f"{got.mean():.3f}{spread}", f"{promised:.3f}", f"{1 - got.mean():.3f}"]
    lines.append(f"| `{kind}` | " + " | ".join(cells) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# In `different` the score takes a matrix each, and that is right by a wide margin. In `alike` it takes less, and loses little or
# nothing by it. (A vote's "promise" is the share of labels against it, which is no probability; a model's is.) A model learned
# from few labels promises a little too much: compare the last two columns of `different`. In `copies` the score is sure, the
# promise is splendid, and both are wrong. That is section 6.

# %%
ahead = {kind: points.mean(0) for kind, points in gains.items()}
if not (ahead["different"] > 0).all() or ahead["alike"][0] > 0 or not ahead["copies"][1] < 0 < ahead["copies"][0]:
    print("your run differed: in ours a matrix each led in both for `different`,", end=" ")
    print("not in the score for `alike`, and in the score only for `copies`")
for kind, (nats, share) in ahead.items():
    print(f"{kind}: {nats:+.3f} nats a label, {share:+.3f} of the items")

# %% [markdown]
# ### From fused labels to a network
#
# You have pictures as well? Then there are three ways to a network: train it on the vote, on the fused labels, or on all labels
# together with the matrices (chapter 3, `joint=True`, since an item has several). This is the chapter's training cell. It checks
# that networks and losses live on the device that it names.

# %% tags=["training"]
def trained(how, crowds):
    """A network for each crowd; the share of unseen pictures that each gets right."""
    pool = [here for here, *_ in crowds]
    new = [networks.small_cnn(1, 5, size=14, generator=seeded(7 + k)) for k in range(len(pool))]
    if how == "matrices":
        methods = [Trace(net, 7, 5, joint=True) for net in new]
    else:
        fused = [fuse(here.labels, EACH if how == "fused" else VOTE).argmax(1)[:, None] for here in pool]
        methods, pool = [Vanilla(net) for net in new], [Annotations(h.images, y, 5) for h, y in zip(pool, fused)]
    history = [training.fit(m, h, epochs=P.epochs, progress=False) for m, h in zip(methods, pool)][-1]
    assert all(w.device.type == training.pick_device().type for m in methods for w in m.parameters())
    return [metrics.accuracy(training.predict(m, x), y) for m, (_, _, x, y) in zip(methods, crowds)], history


crowds = {kind: [crowd(kind, seed) for seed in range(P.trained)] for kind in ("different", "copies")}
nets = {(kind, how): trained(how, crowds[kind]) for kind in crowds for how in ("vote", "fused", "matrices")}
print(nets["different", "matrices"][1])

# %% [markdown]
# Pictures that nobody labelled:

# %% tags=["hide-input"]
def with_spread(values):
    """A mean, and half its interval where there are several values."""
    return f"{np.mean(values):.3f}" + (f" ± {plots.interval(np.array(values))[1]:.3f}" if len(values) > 1 else "")


Markdown("\n".join(["| crowd | on the vote | on fused labels | with matrices |", "| --- | --- | --- | --- |"] + [
    f"| `{kind}` | " + " | ".join(with_spread(nets[kind, how][0]) for how in ("vote", "fused", "matrices")) + " |" for kind in crowds
]))  # fmt: skip

# %% [markdown]
# The last line of the table deserves a second look, beside the labels that these networks were trained on:

# %%
fused_right = np.mean([one["right"][EACH] for one in tried["copies"][: P.trained]])
net_right = {(kind, how): np.mean(got) for (kind, how), (got, _) in nets.items()}
ours = [net_right["different", how] for how in ("vote", "fused", "matrices")]
print("different: vote {:.3f}, fused labels {:.3f}, matrices {:.3f}".format(*ours))
print(f"copies: right are {fused_right:.3f} of the fused labels, {net_right['copies', 'fused']:.3f} of what their network says")
if ours != sorted(ours):
    print("your run differed: in ours, at `lesson`, matrices came first in `different`, then fused labels, then the vote")
if not net_right["copies", "fused"] > fused_right + 0.1:
    print("your run differed: in ours, at `lesson`, the network on copied labels was right far more often than they are")

# %% [markdown]
# In `different`, better labels make a better network, and the matrices use what the fused label throws away: how sure it is.
# (Networks trained as shortly as at `ci` need not show it.) In `copies` the fused labels are the worst of all, and yet the
# network trained on them can be right more often than they are. A copied mistake is not to be *seen* in the picture, so it is
# hard to learn; a picture is a witness who copies from nobody. That is what the rest of this book lives on.
#
# ### The picture as a witness
#
# So let networks take part in the comparison. What a network makes of the picture takes the place of $\pi$ in
# {eq}`eq-ch19-score`; the rest stays. The report does so by itself where pictures came along
# (`course report labels.csv --images FOLDER`, a picture for each item; `--no-networks` leaves it out).

# %%
witnessed, shares = {}, {}
for kind in KNOWS:
    for seed in range(P.looks):
        here, true_classes, *_ = crowd(kind, seed, P.seen)
        seen = report.analyse(here, progress=False)
        witnessed.setdefault(kind, []).append(seen.summary)
        shares.setdefault(kind, []).append(metrics.accuracy(seen.p.argmax(1), true_classes))
print(f"{P.looks} crowd(s) of each kind, {P.seen} items each")

# %% [markdown]
# The scores in nats a label, mean over the crowds; what was taken; and what is right then:

# %% tags=["hide-input"]
scores = {kind: [{fit["model"]: fit["score"] for fit in one["held_out"]} for one in ones] for kind, ones in witnessed.items()}
names = sorted(scores["copies"][0], key=lambda name: (name.startswith("network"), name))
lines = ["| model | " + " | ".join(f"`{kind}`" for kind in scores) + " |", "| --- |" + " --- |" * len(scores)]
for name in names:
    lines.append(f"| {name} | " + " | ".join(f"{np.mean([s[name] for s in each]):.3f}" for each in scores.values()) + " |")
taken = ["; ".join(dict.fromkeys(one["fused_by"] for one in ones)) for ones in witnessed.values()]
lines.append("| *taken* | " + " | ".join(taken) + " |")
lines.append("| *right* | " + " | ".join(with_spread(one) for one in shares.values()) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# Where people see the picture and err on their own, a network that sees it too foretells their labels better than anybody who
# only hears the others. Where they copy, the others' labels are the better witness, since what binds them together is not in the
# picture. That is a warning sign that costs nothing, the only one in this chapter that needs neither truth nor suspicion: *if
# pictures do not help to foretell the labels, ask what the labels have in common instead.* (Or there are too few pictures for a
# network to learn from, or they do not show what was asked.)

# %%
for kind, each in scores.items():
    looking = [max(v for m, v in s.items() if m.startswith("network")) for s in each]
    hearing = [max(v for m, v in s.items() if not m.startswith("network")) for s in each]
    worth = np.subtract(looking, hearing)
    print(f"{kind}: pictures are worth " + ", ".join(f"{nats:+.3f}" for nats in worth) + " nats a label")
    if (worth.mean() > 0) != (kind != "copies"):
        print("  your run differed: in ours pictures help the first two kinds of crowds, and not the third")

# %% [markdown]
# ### A folder of masks
#
# For masks, each annotator has a folder, and the files of one case have one name. A few pictures, three people: one draws too
# wide, one too narrow, one leaves gaps. Their masks are PNG files that hold 0, 100 and 200, as many tools write them. (Where a
# value means "not looked at", name it: `missing=255`. Names of classes go by `classes=`, one for each value, 0 first. Sets that
# put all raters' masks of a picture side by side, as REFUGE, RIGA and QUBIQ do, are read by `folders.masks_of_raters`.)

# %%
scene = scenes.shapes(P.pictures, size=48, generator=seeded(3))
panel = {"wide": over(1, 2, tremor=0.2), "narrow": under(1, 2, tremor=0.2), "gappy": fractured()}
masks_drawn = draw_masks(scene.truth, scene.images, [*panel.values()], n_classes=3, generator=seeded(4))
for r, who in enumerate(panel):
    (folder / "masks" / who).mkdir(parents=True)
    for n, mask in enumerate(masks_drawn[:, r]):
        Image.fromarray((100 * mask).to(torch.uint8).numpy()).save(folder / "masks" / who / f"case{n:02d}.png")
masks = Annotations.from_masks(folder / "masks")
print(f"labels {tuple(masks.labels.shape)} (N, R, H, W), classes {masks.classes}, annotators {masks.names}")

# %% [markdown]
# The files come back as they went, but for the order of names, which is the alphabet's. Fuse them, and write the result in the
# format in which they came:

# %%
assert torch.equal(masks.labels, masks_drawn[:, [list(panel).index(who) for who in masks.names]])
staple = fusion.staple(masks.labels, masks.n_classes, pooled=True)
written = mask_folders.write_masks(folder / "fused", masks, staple.labels)
values = np.unique(np.array(Image.open(written[0])))
print(f"{len(written)} files, the first is {written[0].name} and holds {values.tolist()}")
assert set(values.tolist()) <= {0, 100, 200}

# %% [markdown]
# What did it bring? The Dice of each person, of the vote and of STAPLE; and how the report judges the same people:

# %%
vote = fusion.majority(masks.labels, 3, generator=seeded(0))
for who, mask in {**dict(zip(masks.names, masks.labels.unbind(1))), "vote": vote, "STAPLE": staple.labels}.items():
    print(f"{who:>7}: Dice {metrics.dice(mask, scene.truth, 3).foreground:.3f}")
drawn_by = report.analyse(masks)
for sentence in drawn_by.summary["next"]:
    print("-", sentence)

# %% [markdown]
# The picture in which most pixels are in doubt, with what each one drew beside the fused mask:

# %% tags=["hide-input"]
worst = drawn_by.summary["in_doubt"][0]["index"]
fig = plots.masks(masks.labels[worst], drawn_by.p[worst].argmax(0), list(masks.names), image=scene.images[worst, 0])
says = "Against the fused mask, drawn without any truth: white is marked by both, blue is missing, orange is too much."
plots.described(fig, says)

# %% [markdown]
# **Volumes.** NIfTI, MHA, NRRD and whatever else SimpleITK reads {cite:p}`lowekamp2013` have a spacing and a place in the
# patient. They are read slice by slice, all of a case's masks must lie in one place, and what is written lies there again.
# `box=4` keeps only what anybody marked and 4 voxels round it, since volumes are mostly background:

# %%
try:
    import SimpleITK as sitk
except ImportError:
    print("SimpleITK is not installed; pip install -e '.[medical-io]' brings it. PNG and NPY need nothing.")
else:
    for r, who in enumerate(panel):
        volume = sitk.GetImageFromArray(masks_drawn[:6, r].to(torch.uint8).numpy())
        volume.SetSpacing((0.7, 0.7, 3.0))
        volume.SetOrigin((-120.0, 40.5, 12.0))
        (folder / "volumes" / who).mkdir(parents=True)
        sitk.WriteImage(volume, str(folder / "volumes" / who / "patient1.nii.gz"))
    volumes = Annotations.from_masks(folder / "volumes", box=4)
    again = fusion.staple(volumes.labels, volumes.n_classes, pooled=True).labels
    (file,) = mask_folders.write_masks(folder / "fused_volumes", volumes, again)
    back = sitk.ReadImage(str(file))
    assert back.GetSize() == volume.GetSize() and np.allclose(back.GetOrigin(), volume.GetOrigin(), atol=1e-4)
    image = mask_folders.to_sitk(volumes, again)["patient1"]  # the same in memory, to go on with in SimpleITK
    assert np.allclose(image.GetSpacing(), volume.GetSpacing()) and image.GetSize() == volume.GetSize()
    print(f"{volumes.n_items} slices read, in a box of {tuple(volumes.labels.shape[2:])}")
    print(f"written {file.name}, size {back.GetSize()}, spacing {np.round(back.GetSpacing(), 3).tolist()}")

# %% [markdown]
# ### Now yours
#
# The report writes fused labels by itself: a table, or for masks the folders `masks` and `uncertainty`, in the format in which
# they came. If you fuse in your own way, two lines write the same tables: `write_fused` takes any $p$ of shape (N, L).

# %%
tables.write_fused(folder / "mine.csv", labels, fuse(labels.labels, VOTE))
tables.write_crowdkit(folder / "for_crowdkit.csv", labels)
print((folder / "mine.csv").read_text(encoding="utf-8").splitlines()[:2])
print((folder / "for_crowdkit.csv").read_text(encoding="utf-8").splitlines()[:2])

# %% [markdown]
# Put the path of your own file or folder in the place of `None` and run the cell. A folder called `images` beside the annotators'
# folders holds the pictures, if there are any. What a file needs to be understood goes into `OPTIONS`:
#
# | in Python | in a terminal | what it says |
# | --- | --- | --- |
# | `item="scan"`, `annotator=`, `label=` | `--item scan` ... | what the columns of a table are called |
# | `missing=["99"]` | `--missing 99` | a code for "no label"; more than one is possible in a table |
# | `classes=["none", "mild"]` | `--classes none,mild` | all classes, in their order |
# | `encoding="latin-1"` | `--encoding latin-1` | how the text of a table is stored |
# | `images="pictures"` | `--images pictures` | a folder with a picture of each item, called like it |
# | `networks=False` | `--no-networks` | train none, although there are pictures |

# %%
MINE = None  # such as "~/labels.csv", or a folder that holds a folder of masks for each annotator
OPTIONS = {}  # such as {"missing": ["99"], "images": "pictures"}
if MINE:
    page = report.report(MINE, "my-report", **OPTIONS)
    print(f"open {page} in a browser")
else:
    print("no data of your own yet")

# %% [markdown]
# What then? Read the sentences at the top of the page. Look at the items most in doubt, one by one: mostly they show *why* people
# differ. Take twenty items at random and find out their truth (exercise 19.3). Then the fused labels, or the network of
# {doc}`/notebooks/03_the_trace` or {doc}`/notebooks/08_a_matrix_per_pixel`; {doc}`/book/which_method` says which. And
# {doc}`/notebooks/20_whom_to_ask_next` says whom to ask for more.
#
# ## 6. Break it
#
# ### Three who copy
#
# In `copies` the truth was lost, and the score liked it. Look at one of these crowds as its report does:

# %%
copied_crowd, copied_truth, *_ = crowd("copies", 0)
deceived = fusion.dawid_skene(copied_crowd.labels, 5, smoothing=1 / 5)
wrong = deceived.labels != copied_truth
promised = 1 - deceived.p.amax(1)
print("skills as found:", ", ".join(f"{w} {s:.2f}" for w, s in zip("ABCDEFG", skills(deceived.A))))
print(f"promised: {promised.sum():.1f} wrong items; wrong are {wrong.sum()} of {len(wrong)}")
if not skills(deceived.A)[4:].min() > skills(deceived.A)[:4].max():
    print("your run differed: in ours those who copy seem the best")

# %% [markdown]
# The ones who agree always look like the ones who know. If E, F and G are the truth, then all of their labels are explained, by
# matrices that are nearly the identity; the four honest ones become noise. How likely are all these labels, under that story, and
# under the truth with each person's matrix counted against it?

# %%
def likelihood(A, prior, labels):
    """A (R, L, L), prior (L,), labels (N, R) -> log p(all labels of an item), mean over the items."""
    n, r = (labels != MISSING).nonzero(as_tuple=True)
    rows = log(A[r, labels[n, r]]).double()  # (K, L)
    return float(log(prior).double().expand(len(labels), -1).index_add(0, n, rows).logsumexp(1).mean())


true = torch.nn.functional.one_hot(copied_truth, 5).double()  # (N, L)
told = likelihood(deceived.A, deceived.prior, copied_crowd.labels)
honest = likelihood(count_matrices(copied_crowd.labels, true, smoothing=1 / 5), true.mean(0), copied_crowd.labels)
print(f"as found {told:.2f}, under the truth {honest:.2f} nats an item")
if told < honest:
    print("your run differed: in ours the wrong story makes the labels more likely than the truth does")

# %% [markdown]
# The wrong story wins, and not by a little. Labels laid aside come from the same people: they are copied, too. So a score can
# only say which model *describes these labels*. That it describes the truth is the assumption that people err independently. You
# can see whether pictures help (section 5), look for copies (exercise 19.4), ask how labels came about, and spend twenty trusted
# items (exercise 19.3). Nothing in the likelihood of labels alone will do it for you.
#
# ### Names of classes
#
# And the second thing that no score can tell. Rename the truth, in every matrix and in the prior, and each label is exactly as
# likely as it was:

# %%
order = torch.tensor([2, 0, 1, 4, 3])
renamed = foretold(fused.A[:, :, order], fused.prior[order], labels.labels)
assert torch.allclose(renamed, foretold(fused.A, fused.prior, labels.labels), atol=1e-5)
print(f"{len(renamed)} labels, none more likely under either naming")
print(f"skills: {skills(fused.A).mean():.2f} on the mean, and {skills(fused.A[:, :, order]).mean():.2f} after renaming")

# %% [markdown]
# What keeps the names in their place is the start at the vote, and that people are right more often than they give any other
# name. The report warns where the mean matrix is not row dominant.
#
# (For masks there is a third thing, without any copying: a matrix for each pixel is free enough to foretell annotators well about
# a truth that is wrong, see {doc}`/notebooks/08_a_matrix_per_pixel` and {doc}`/notebooks/09_which_matrix`. Where the report takes
# that model, it says so, and asks you for the truth of ten pictures first.)
#
# ### A matrix for somebody with six labels
#
# A matrix of 25 numbers, learned from six labels, is a guess with decimals. Give each of the people in `different` few labels:

# %%
taken = {}
for n in (15, 30, 60, P.n):
    few = drawn.items(slice(0, n))
    fits = {fit.model: fit for fit in compare_labels(few)}
    taken[n] = choice(list(fits.values()))
    print(f"{n:4d} items, {few.n_observed // 7:3d} labels a person: ", end="")
    print(f"a matrix each {fits[EACH].score:.2f}, vote {fits[VOTE].score:.2f}; taken: {taken[n]}")
if taken[15] == EACH or taken[P.n] != EACH:
    print("your run differed: in ours a matrix each is taken with all labels, and not with six a person")

# %% [markdown]
# With few labels a simple model is taken, although people are what they are. That is right: not because the people are alike, but
# because the richer one cannot be *learned* from so little. More labels, and the richer model earns its place.
#
# ## 7. Exercises
#
# Write your answer into the cell that says `NotImplementedError`, then run the check below it.
#
# ```{exercise} One label, foretold (★, 10 minutes)
# :label: ex-ch19-foretell
#
# Exercise 19.1. One item: `said` (R,) holds its labels, -1 where there is none. Return {eq}`eq-ch19-score` for the label of
# annotator `r`, from the *others'* labels: a number, in nats. `prior` (L,) and `A` (R, L, L) are probabilities.
# ```

# %% tags=["stub"]
def foretell(prior, A, said, r):
    """(L,), (R, L, L), (R,), number of the annotator -> log p(their label | the others')."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# First forget the label of `r`. What do the others make you believe?
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $p(j) \propto \pi_j \prod_{s \ne r} A^{(s)}_{y_s j}$, then $\log \sum_j p(j)\, A^{(r)}_{y_r j}$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# Start at `p = prior.clone()`; for each other `s` with a label, `p = p * A[s, said[s]]`. Divide by the sum *before* the last
# step.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.foretell(foretell)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def foretell(prior, A, said, r):
    """(L,), (R, L, L), (R,), number of the annotator -> log p(their label | the others')."""
    p = prior.clone()
    for s in range(len(said)):
        if s != r and said[s] != MISSING:
            p = p * A[s, said[s]]
    return torch.log(p / p.sum() @ A[r, said[r]])


checks.foretell(foretell)
asked = labels.labels[0]
for r in (asked != MISSING).nonzero()[:, 0].tolist():
    nats = float(foretell(fused.prior, fused.A, asked, r))
    said = f"{labels.names[r]} said {labels.classes[asked[r]]}"
    print(f"{said}, which the others had made {np.exp(nats):.2f} likely ({nats:.2f} nats)")

# %% [markdown]
# **What you should see, and why.** A label in line with the others is likely, but never certain: even who is always right cannot
# be foretold better than the others know the truth. Where F, who guesses, is among them, that label is foretold near one in five
# whatever the others say; not at one in five exactly, because the matrix of F was learned from labels, too.
#
# ```{exercise} Simple until shown otherwise (★★, 15 minutes)
# :label: ex-ch19-simplest
#
# Exercise 19.2. `scores` (M, K) holds what M models, the simplest first, gave to the same K labels; take the labels as
# independent. Return the number of the first model whose distance from the best is not more than the half width of its paired 95
# % interval, $1.96 \sqrt{\sum_k (d_k - \bar d)^2} / K$, where $d_k$ is the best model's score of label $k$ minus this one's.
# ```

# %% tags=["stub"]
def simplest(scores):
    """(M, K), the simplest model first -> the number of the one to take."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# The best model is behind itself by 0, with an interval of 0. So there is always one to take.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\bar d_m \le 1.96 \sqrt{\sum_k (d_{mk} - \bar d_m)^2} / K$.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `d = scores[best] - scores`; `behind = d.mean(1)`; the first index at which `behind <= half` is
# `int((behind <= half).int().argmax())`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.simplest(simplest)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def simplest(scores):
    """(M, K), the simplest model first -> the number of the one to take."""
    d = scores[scores.mean(1).argmax()] - scores  # (M, K)
    behind = d.mean(1)
    half = 1.96 * (d - behind[:, None]).square().sum(1).sqrt() / scores.shape[1]
    return int((behind <= half).int().argmax())


checks.simplest(simplest)
for kind in KNOWS:
    here, *_ = crowd(kind, 1)
    halves = torch.arange(len(here.labels)) % 2 == 0  # learn on one half, score the other
    fits = [fusion.dawid_skene(here.labels[halves], 5, people=who, smoothing=1 / 5) for who in ([0] * 7, None)]
    both = torch.stack([foretold(f.A, f.prior, here.labels[~halves]) for f in fits])
    d, K = both[1] - both[0], both.shape[1]
    paired, unpaired = 1.96 * d.std() / K**0.5, 1.96 * (both.var(1).sum() / K).sqrt()
    print(f"{kind}: {('one matrix for all', 'a matrix each')[simplest(both)]}; apart by {d.mean():+.3f} ± {paired:.3f},", end=" ")
    print(f"unpaired ± {unpaired:.3f}: as narrow only with {(unpaired / paired) ** 2:.1f} times the labels")

# %% [markdown]
# **What you should see, and why.** Labels differ much in how hard they are, and both models find the same labels hard: their
# scores rise and fall together, and what they have in common drops out of the difference. An interval shrinks with the root of
# the number of labels, so who does not pair must pay for the wider interval with its square in labels: the last number. The more
# alike two models are, the more pairing saves.
#
# ```{exercise} Twenty trusted items (★★, 15 minutes)
# :label: ex-ch19-surprise
#
# Exercise 19.3. You found out the truth of a few items, drawn at random. `p` (N, L) is the fused truth, `items` (M,) are their
# numbers, `truth` (M,) what they are. If the model is right, item $n$ is wrong with the probability $u_n = 1 - \max_j p_n(j)$.
# Return by how many standard deviations the number of wrong fused labels among them is larger than expected.
# ```

# %% tags=["stub"]
def surprise(p, items, truth):
    """(N, L), (M,), (M,) -> (wrong - expected) / standard deviation."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Each trusted item is a coin of its own, that comes up "wrong" with its own probability.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# $\big(\#\text{wrong} - \sum u_n\big) \big/ \sqrt{\sum u_n (1 - u_n)}$, sums over the trusted items.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `q = p[items]`, `u = 1 - q.amax(1)`, `wrong = (q.argmax(1) != truth).sum()`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.surprise(surprise)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def surprise(p, items, truth):
    """(N, L), (M,), (M,) -> (wrong - expected) / standard deviation."""
    q = p[items]
    u = 1 - q.amax(1)
    return float(((q.argmax(1) != truth).sum() - u.sum()) / (u * (1 - u)).sum().sqrt())


checks.surprise(surprise)
for kind in KNOWS:
    found_out = []
    for seed in range(min(P.draws, 10)):
        here, true_classes, *_ = crowd(kind, seed)
        twenty = torch.randperm(here.n_items, generator=seeded(seed))[:20]
        found_out.append(surprise(fuse(here.labels, EACH), twenty, true_classes[twenty]))
    print(f"{kind}: surprise by {', '.join(f'{z:.1f}' for z in found_out)} standard deviations")

# %% [markdown]
# **What you should see, and why.** Where people err independently, most of these numbers lie between -2 and 2, and more of them
# are above 0 than below: matrices learned from few labels are a little too sure of themselves. A 3 or a 4 now and then is no
# alarm either: of twenty items only a few are expected to be wrong, and such small counts stray upwards further than a normal
# distribution allows. Where people copy, the numbers are of another kind: the twenty items leave no doubt. Real people lie
# between: hard items mislead many at once, so expect more mistakes than promised. This is the cheapest insurance in the book. It
# works only with items drawn at random: among those most in doubt, many are wrong by promise.
#
# ```{exercise} Who copies from whom? (★★★, 25 minutes)
# :label: ex-ch19-copies
#
# Exercise 19.4. Two who know both say what is true; that is no sign of copying. Two who are *wrong in the same way* are
# suspicious. For each pair $r \ne s$: take the items that both labelled, and on which both differ from what all the *others*
# together say; return the share on which the two say the same. `labels` (N, R); `fuse` turns labels (N, R - 2) into classes (N,),
# with -1 where the others are not sure; such items do not count. Return (R, R), 0 on the diagonal and for pairs with fewer than
# `least` such items.
# ```

# %% tags=["stub"]
def copies(labels, fuse, least):
    """(N, R), a function, a number -> (R, R), how often two who are both wrong say the same."""
    raise NotImplementedError


# %% [markdown]
# <details><summary>Hint 1: a nudge</summary>
#
# Why must both be left out? Because three who copy outvote everybody else, and are then never wrong.
#
# </details>
# <details><summary>Hint 2: the formula</summary>
#
# Items with $y_r$, $y_s$ and $\hat y_{-rs}$ all different from $-1$, and $y_r \ne \hat y_{-rs}$, $y_s \ne \hat y_{-rs}$; the mean
# of $[y_r = y_s]$ over them.
#
# </details>
# <details><summary>Hint 3: the shape of the code</summary>
#
# `rest = [k for k in range(R) if k not in (r, s)]`, `others = fuse(labels[:, rest])`, a mask `both`, and
# `(labels[both, r] == labels[both, s]).float().mean()` where `both.sum() >= least`.
#
# </details>

# %% tags=["check", "raises-exception"]
checks.copies(copies)


# %% tags=["solution", "hide-cell"] jupyter={"source_hidden": true}
def copies(labels, fuse, least):
    """(N, R), a function, a number -> (R, R), how often two who are both wrong say the same."""
    R = labels.shape[1]
    shares = torch.zeros(R, R)
    for r in range(R):
        for s in range(r):
            others = fuse(labels[:, [k for k in range(R) if k not in (r, s)]])  # (N,)
            both = (labels[:, [r, s]] != MISSING).all(1) & (others != MISSING)
            both &= (labels[:, r] != others) & (labels[:, s] != others)
            if both.sum() >= least:
                shares[r, s] = shares[s, r] = (labels[both, r] == labels[both, s]).float().mean()
    return shares


def sure(rest):
    """(N, R - 2) -> (N,), -1 where the doubt is above a tenth."""
    most, which = fuse(rest, EACH).max(1)
    return torch.where(most > 0.9, which, MISSING)


checks.copies(copies)
for kind, R in (("different", 7), ("alike", 7), ("copies", 7), ("copies", 5)):  # the last: without F and G
    shares = copies(crowd(kind, 0)[0].labels[:, :R], sure, 8)
    pairs = [divmod(int(k), R) for k in shares.triu().flatten().argsort(descending=True)[:4] if shares.flatten()[k] > 0]
    told = ", ".join(f"{'ABCDEFG'[r]} and {'ABCDEFG'[s]} {shares[r, s]:.2f}" for r, s in pairs)
    print(f"{kind}, {R} people: {told or 'no pair has enough common mistakes'}")

# %% [markdown]
# **What you should see, and why.** In `different` and `alike` honest people are seldom wrong together where the rest is sure. If
# they are, they agree by chance: four wrong names are left, so about one time in four. In `copies`, E, F and G say the same in *all*
# of their common mistakes. But honest pairs stand high in that list, too. Where the rest is made of E, F and G, it is sure and
# wrong; two who know are then "wrong" together, and say the same, which is the truth. So begin at the top of the list: keep one
# of those who copy, leave the others out, and look again. In our last line the honest pairs have come down.
#
# In real data such a share is no proof: hard pictures mislead everybody to the same wrong name. It is a reason to ask. Try the
# vote of the others, tied or not, in the place of `sure`: in every crowd honest pairs then come out far above one in four,
# because a vote of a few is often wrong where two know better.
#
# ## 8. What the papers claim and what we measured
#
# The four papers choose their models by looking at accuracy or Dice on data whose truth is known, and claim nothing about how to
# choose without. So there is nothing to rerun here. All their other claims stand in {doc}`/notebooks/21_does_it_replicate`, with
# what we measured.
#
# ## 9. Three questions
#
# <details><summary>1. The report takes "one matrix for all". May you write that all your annotators are equally good?</summary>
#
# No. You may write that your labels do not show a difference. With six labels a person nobody's matrix can be told from
# another's; section 6 took people as different as can be, and with so few labels a simple model was taken. Say how many labels
# each gave.
#
# </details>
#
# <details><summary>2. Why are whole items laid aside, and for masks only pixels?</summary>
#
# An item that was half seen has been half learned: where a model has a belief for each item, the labels it heard give away the
# one it did not. Models without a memory of items, as those here, have no such belief, but a network has. For masks a fifth of
# the *pixels* is laid aside, since models with matrices for each case or place must have seen the case; neighbouring pixels are
# much alike, so the intervals go by pictures or cases, not by pixels.
#
# </details>
#
# <details><summary>3. A colleague takes the hundred items with the least doubt as "gold" and tests a network on them. What is wrong?</summary>
#
# Little doubt means that people agree, so these are the easy items, and where people copy they are not even right. The network
# will look better than it is. A test set is drawn at random before anybody looks, and its truth comes from somewhere else than
# from the same labels.
#
# </details>
#
# ## 10. Further reading
#
# {cite:t}`gneiting2007` explain proper scores. {cite:t}`dawid1979` chose among explanations of doctors by their likelihood
# already. {cite:t}`krippendorff2011` is the report's alpha. {cite:t}`ustalov2024` describe crowd-kit, which has a dozen more ways
# to fuse, and reads the table that `course report` writes; {cite:t}`lowekamp2013` SimpleITK.
