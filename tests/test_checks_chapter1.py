"""Chapter 1: its exercises accept the solutions and name each mistake; the code it shows is the library's."""

import ast
import importlib
import inspect
import re
import textwrap

import nbformat
import pytest
import torch
from exercises import cells, defined, functions, outside, printed

from course_lib import annotators, book, fusion
from course_lib.annotations import MISSING
from course_lib.checks import CheckFailed, NotDone, classes
from course_lib.confusion import dominance
from course_lib.edition import with_solutions
from course_lib.networks import seeded

EXERCISES = ("what_they_say", "fair_vote", "vote_of_three", "margin")


# ---- solutions, stubs and right answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_in_the_notebook_passes_its_check(name, capsys):
    getattr(classes, name)(defined(1, "solution")[name])
    assert re.match(r"✓ Exercise 1\.\d: right\.", capsys.readouterr().out)


@pytest.mark.parametrize("name", EXERCISES)
def test_an_untouched_stub_is_not_done_in_one_line(name):
    with pytest.raises(NotDone) as stop:
        getattr(classes, name)(defined(1, "stub")[name])
    assert len(stop.value._render_traceback_()) == 1 and "not done yet" in str(stop.value)


@pytest.mark.parametrize("name", EXERCISES)
def test_a_missing_return_and_an_error_become_one_line(name):
    def crash(*arguments):
        raise KeyError("planted")

    with pytest.raises(CheckFailed, match="is there a `return`"):
        getattr(classes, name)(lambda *arguments: None)
    with pytest.raises(CheckFailed, match="stopped with KeyError: 'planted'"):
        getattr(classes, name)(crash)


@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.parametrize(
    "nonsense", ["seven", [[1, 2], [3]], torch.zeros(3, 3), object()], ids=lambda x: type(x).__name__
)
def test_an_answer_of_another_kind_is_refused_in_words(name, nonsense):
    with pytest.raises(CheckFailed, match="wanted"):
        getattr(classes, name)(lambda *arguments: nonsense)


def test_stub_check_and_solution_are_about_the_same_function():
    for tag in ("stub", "solution"):
        assert [list(functions(cell.source)) for cell in cells(1, tag)] == [[name] for name in EXERCISES]
    for tag in ("check", "solution"):
        assert all(f"checks.{name}({name})" in cell.source for name, cell in zip(EXERCISES, cells(1, tag), strict=True))


def test_no_cell_outside_the_exercises_needs_a_solution():
    assert not [name for name in EXERCISES if re.search(rf"\b{name}\(", outside(1))]
    whole = nbformat.read(book.chapter(1), 4).cells
    assert len(with_solutions(whole)) == len(whole) - len(cells(1, "solution"))


def test_the_libraries_own_functions_are_right_answers(capsys):
    classes.fair_vote(lambda labels, L, generator: fusion.majority(labels, L, generator=generator))
    classes.margin(dominance)
    classes.vote_of_three(lambda s: s * (1 + s - s * s))
    assert capsys.readouterr().out.count("✓") == 3


def test_right_answers_of_other_types_pass():
    classes.what_they_say(lambda A, truth: A.permute(2, 0, 1)[truth].double().numpy())
    classes.margin(lambda A: torch.tensor(dominance(A)))
    classes.vote_of_three(lambda s: torch.tensor(s * (1 + s - s * s)))
    classes.fair_vote(lambda labels, L, generator: fusion.majority(labels, L, generator=generator).float())


def test_the_formula_for_three_voters_is_what_simulation_gives():
    truth = torch.zeros(40_000, dtype=torch.long)
    for skill in (0.3, 0.45, 0.7):
        A = annotators.pairwise_flippers(3, 10, skill, share=1, spread=0, generator=seeded(0))
        labels = annotators.annotate(truth, A, generator=seeded(1))
        won = (fusion.majority(labels, 10, generator=seeded(2)) == truth).double().mean()
        assert abs(float(won) - skill * (1 + skill - skill**2)) < 0.01


# ---- each likely mistake is named ------------------------------------------------------------------------------------

TABLES = {
    "what_they_say": classes.COLUMN_MISTAKES,
    "vote_of_three": classes.THREE_MISTAKES,
    "margin": classes.MARGIN_MISTAKES,
}
LISTED = [(name, sentence, wrong) for name, table in TABLES.items() for sentence, wrong in table.items()]


@pytest.mark.parametrize(("name", "sentence", "wrong"), LISTED, ids=[f"{n}: {s[:40]}" for n, s, _ in LISTED])
def test_each_listed_mistake_is_named(name, sentence, wrong):
    with pytest.raises(CheckFailed) as stop:
        getattr(classes, name)(wrong)
    assert str(stop.value).endswith(sentence)


def counts_of(labels, n_classes):
    return torch.stack([(labels == c).sum(1) for c in range(n_classes)], 1)


def voted(labels, counts, noise):
    return torch.where((labels != MISSING).any(1), (counts + noise).argmax(1), MISSING)


def lowest(labels, L, generator):
    return voted(labels, counts_of(labels, L), 0)


def highest(labels, L, generator):
    return voted(labels, counts_of(labels, L), torch.arange(L) / 10)


def missing_as_class_0(labels, L, generator):
    counts = counts_of(labels.clamp(min=0), L)
    return (counts + torch.rand(counts.shape, generator=generator)).argmax(1)


def missing_as_last_class(labels, L, generator):
    counts = torch.zeros(len(labels), L)
    for n, row in enumerate(labels):
        for label in row:
            counts[n, label] += 1
    return voted(labels, counts, torch.rand(counts.shape, generator=generator))


def names_the_unlabelled(labels, L, generator):
    counts = counts_of(labels, L)
    return (counts + torch.rand(counts.shape, generator=generator)).argmax(1)


def a_label_at_random(labels, L, generator):
    counts = counts_of(labels, L).float()
    drawn = torch.multinomial(counts + (counts.sum(1, keepdim=True) == 0), 1, generator=generator)[:, 0]
    return torch.where(counts.sum(1) > 0, drawn, MISSING)


def too_much_noise(labels, L, generator):
    counts = counts_of(labels, L)
    return voted(labels, counts, 3 * torch.rand(counts.shape, generator=seeded(0)))


def any_class_in_a_tie(labels, L, generator):
    top = counts_of(labels, L).topk(2).values
    random = torch.randint(L, (len(labels),), generator=generator)
    return torch.where((top[:, 0] == top[:, 1]) & (top[:, 0] > 0), random, lowest(labels, L, generator))


def own_randomness(labels, L, generator):
    counts = counts_of(labels, L)
    return voted(labels, counts, torch.rand(counts.shape))


def unfair(labels, L, generator):
    counts = counts_of(labels, L)
    handicap = 0.5 * (torch.arange(L) == 1) * (torch.rand(len(labels), 1, generator=generator) < 0.9)
    return voted(labels, counts, handicap + 0.4 * (torch.arange(L) == 2))


VOTES = {
    lowest: "ties always go to the lowest class",
    highest: "ties always go to the highest class",
    missing_as_class_0: "counted as a vote for class 0",
    missing_as_last_class: "counted for the last class",
    names_the_unlabelled: "an item that nobody labelled must give -1",
    a_label_at_random: "a clear winner lost",
    too_much_noise: "a clear winner lost",
    any_class_in_a_tie: "not among the tied",
    own_randomness: "draw with `generator=generator`",
    unfair: "it should be half",
}


@pytest.mark.parametrize("wrong", VOTES, ids=lambda f: f.__name__)
def test_each_wrong_vote_is_named(wrong):
    with pytest.raises(CheckFailed, match=re.escape(VOTES[wrong])):
        classes.fair_vote(wrong)


def test_the_mistakes_that_one_table_names_differ_from_each_other():
    for table in TABLES.values():
        assert len({sentence for sentence in table}) == len(table) >= 5


# ---- shown code is shipped code; outcomes are seen -------------------------------------------------------------------


def body(node: ast.FunctionDef) -> str:
    """A function's statements without its docstring, with `torch.Tensor` and `module.name` as in the library."""
    statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return re.sub(r"\b(torch\.(?=Tensor)|confusion\.|metrics\.)", "", "\n".join(map(ast.unparse, statements)))


def test_code_shown_is_code_shipped():
    shown = cells(1, "shipped")
    assert len(shown) >= 2
    for cell in shown:
        module = importlib.import_module(re.match(r"# shipped: (\S+)\n", cell.source)[1])
        assert functions(cell.source)
        for name, node in functions(cell.source).items():
            library = functions(textwrap.dedent(inspect.getsource(getattr(module, name))))[name]
            assert body(node) == body(library), f"{name} differs from {module.__name__}.{name}"
            assert ast.dump(node.args) == ast.dump(library.args) or "Tensor" in ast.unparse(node.args)


def test_at_ci_size_every_outcome_that_the_chapter_reports_is_seen(executed):
    said = printed(1, executed.root)
    assert said.count("seen: ") >= 4
    assert "your run differed" not in said
