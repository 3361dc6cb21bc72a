"""Chapter 6: its exercises accept the solutions and name each mistake; what it says, the committed results say."""

import torch
from exercises import printed

from course_lib.checks import people
from course_lib.data import shipped
from course_lib.experiments import read, values


def test_the_interval_of_wilson_covers_as_it_says():
    right = torch.distributions.Binomial(20, torch.tensor(0.9)).sample((4000,)).tolist()
    covered = [low <= 0.9 <= high for low, high in (people._wilson(k, 20) for k in right)]
    assert 0.92 < sum(covered) / len(covered) < 0.98


def test_the_committed_results_meet_what_the_chapter_says():
    labelme, views = (read(shipped(f"results/{name}.lesson.json")) for name in ("labelme-crowd", "six-views"))
    for result, setting in ((labelme, {"network": "dropout"}), (views, {})):
        score = lambda m, result=result, setting=setting: values(result, m, "accuracy", **setting)  # noqa: E731
        assert len(score("trace")) >= 5
        assert (score("trace") - score("vanilla")).mean() > 0 < (score("truth") - score("trace")).mean()
    plain = lambda m: values(labelme, m, "accuracy", network="plain").mean()  # noqa: E731
    assert plain("trace") < plain("vanilla")  # a network that learns by heart explains every mistake by itself
    assert (values(views, "trace", "separation") > 0).all()


def test_at_ci_size_no_outcome_differs(executed):
    said = printed(6, executed.root)
    assert "labels" in said and "your run differed" not in said
