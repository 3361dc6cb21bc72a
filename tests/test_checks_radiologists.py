"""Chapter 12: what its exercises and sections rest on; its exercises themselves are tested with all others."""

import ast

import numpy as np
import pytest
import torch
from exercises import code_cells, defined, functions, printed

from course_lib import agreement, lidc, metrics
from course_lib.checks import radiologists
from course_lib.networks import seeded


def from_the_chapter(*names: str, **space: object) -> dict:
    space |= {"torch": torch, "np": np, "R": 4}
    for cell in code_cells(12):
        for name, node in functions(cell.source).items():
            if name in names:
                exec(ast.unparse(node), space)
    return space


@pytest.fixture(scope="module")
def lungs():
    return lidc.nodules()


def test_alpha_on_a_scale_is_a_ratio_of_variances():
    alpha = defined(12, "solution")["alpha_interval"]
    for seed in range(3):
        said = torch.randint(1, 6, (20, 4), generator=seeded(seed))
        assert float(alpha(said)) == pytest.approx(agreement.ratings(said, distance="interval").alpha)


def test_limits_of_two_columns_without_bias_are_those_of_bland_and_altman():
    first = torch.tensor([3.0, 5.0, 9.0, 7.0])
    both = torch.stack([first, first + torch.tensor([1.0, -1.0, 2.0, -2.0])], 1)
    found = agreement.bland_altman(both[:, 0], both[:, 1])
    half = float(defined(12, "solution")["limit"](both))
    assert found.bias == 0 and half == pytest.approx(found.high * (3 / 4) ** 0.5)  # theirs divides by n - 1


def test_shuffling_by_patient_keeps_each_nodules_readings_and_evens_the_slots():
    by_patient, values = defined(12, "solution")["by_patient"], radiologists.VALUES
    total = sum(by_patient(values % 10, radiologists.PATIENT, seeded(k)).double().mean(0) for k in range(300)) / 300
    assert torch.allclose(total, torch.full((4,), 1.5).double(), atol=0.15)


def test_folds_of_lidc_are_even_and_part_patients(lungs):
    fold = defined(12, "solution")["folds"](lungs.patients, 5)
    size = torch.bincount(fold)
    assert int(size.max() - size.min()) <= 1
    assert len(set(zip(lungs.patients, fold.tolist(), strict=True))) == len(set(lungs.patients))


def test_the_functions_of_the_chapter_are_the_librarys(lungs):
    chapter = from_the_chapter("pair_dice", "each_dice", "fleiss", "rates")
    few = lungs.masks[:30]
    i, j = torch.triu_indices(4, 4, 1)
    assert torch.allclose(chapter["pair_dice"](few), 1 - metrics.distances(few, few, by="dice")[:, i, j], atol=1e-5)
    assert float(chapter["each_dice"](few[:, 0], few[:, 1]).mean()) == pytest.approx(
        metrics.dice(few[:, 0], few[:, 1], empty=1.0).foreground
    )
    assert chapter["each_dice"](0 * few[:2, 0], 0 * few[:2, 0]).tolist() == [1, 1]
    grades = lungs.ratings[:, :, lidc.RATINGS.index("malignancy")]
    assert chapter["fleiss"](grades) == pytest.approx(agreement.ratings(grades).kappa)
    sensitivity, specificity = chapter["rates"](few, few[:, 0])
    assert sensitivity[0] == specificity[0] == 1 and (sensitivity[1:] < 1).all() and (specificity[1:] < 1).all()


def test_what_the_chapter_says_of_lidcs_slots(lungs):
    """Nearly exchangeable in what is drawn, not in the grades of malignancy."""
    spread = from_the_chapter("spread")["spread"]
    by_patient = defined(12, "solution")["by_patient"]
    people = sorted(set(lungs.patients))
    patient = torch.tensor([people.index(name) for name in lungs.patients])
    grades = lungs.ratings[:, :, lidc.RATINGS.index("malignancy")].double()
    generator = seeded(0)
    null = [spread(by_patient(grades, patient, generator)) for _ in range(99)]
    assert spread(grades) > 2 * max(null)
    means = (grades - grades.mean(1, keepdim=True)).mean(0)
    assert means.argmin() == 3 and float(means.max() - means.min()) > 0.4
    consensus = (lungs.masks.sum(1) >= 2).long()
    sensitivity, _ = from_the_chapter("rates")["rates"](lungs.masks, consensus)
    assert float(sensitivity.max() - sensitivity.min()) < 0.025


def test_at_ci_size_the_refusal_and_every_section_speak(executed):
    said = printed(12, executed.root)
    assert "anonymous readers" in said and "home advantage" in said
    assert said.count("p = ") >= 6
