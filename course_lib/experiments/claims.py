"""What the papers claim, and whether the committed results bear it out. The verdict is computed, never typed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import yaml
from scipy import stats

from ..data import shipped
from . import read, select

VERDICTS = ("holds", "weaker", "not reproduced", "not tested")


@dataclass(frozen=True)
class Judged:
    """A claim with what was measured: mean difference a - b, its 95 % interval, the number of draws, the verdict."""

    claim: dict
    mean: float
    low: float
    high: float
    n: int
    verdict: str

    @property
    def ours(self) -> str:
        return "-" if self.n == 0 else f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}], n = {self.n}"


def claims(paper: str | None = None) -> list[dict]:
    """The rows of claims.yaml, of one paper or of all."""
    rows = yaml.safe_load(shipped("claims.yaml").read_text(encoding="utf-8"))
    return [row for row in rows if paper is None or row["paper"] == paper]


def judge(claim: dict) -> Judged:
    """Holds where the paired 95 % interval of a - b lies above min_diff; weaker where it lies above 0 only.

    a and b are methods, or b is a number; `where` is the setting of both, `where_a` and `where_b` what differs, and so
    for `metric`. Pairs are draws of annotators: same digits, labels and first weights.
    """
    if "check" not in claim:
        return Judged(claim, np.nan, np.nan, np.nan, 0, "not tested")
    check = claim["check"]
    result = read(shipped(f"results/{claim['experiment']}.json"))
    a, b = (_by_draw(result, check, side) for side in "ab")
    draws = next(side for side in (a, b) if isinstance(side, dict))
    if any(isinstance(side, dict) and side.keys() != draws.keys() for side in (a, b)):
        raise ValueError(
            f"{claim['id']}: {check['a']} and {check['b']} ran on other draws; only the same draw makes a pair."
        )
    value = lambda side, draw: side[draw] if isinstance(side, dict) else side  # noqa: E731
    difference = np.array([value(a, draw) - value(b, draw) for draw in draws])
    mean, low, high = interval(difference)
    verdict = "holds" if low > check["min_diff"] else "weaker" if low > 0 else "not reproduced"
    return Judged(claim, mean, low, high, len(difference), verdict)


def interval(x: np.ndarray) -> tuple[float, float, float]:
    """Mean and its 95 % interval from Student's t: (n,) with n >= 2."""
    if len(x) < 2:
        raise ValueError(f"an interval needs at least 2 draws; got {len(x)}. Run with --seeds 5.")
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))
    return float(x.mean()), float(x.mean() - half), float(x.mean() + half)


def table(paper: str | None = None, *, experiment: str = "") -> str:
    """The claims (of one paper, or one experiment) as a Markdown table, with our numbers beside theirs."""
    lines = [
        "| claim | where | theirs | ours (difference, 95 %) | verdict | why |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for judged in map(judge, (c for c in claims(paper) if c.get("experiment", "").startswith(experiment))):
        c = judged.claim
        lines.append(
            f"| {c['claim']} | {c['where']} | {c['theirs']} | {judged.ours} | **{judged.verdict}** | {c['why']} |"
        )
    return "\n".join(lines)


def _by_draw(result: dict, check: dict, side: str) -> dict[int, float] | float:
    """Mean of the seeds of each draw, by draw; a number stands for itself."""
    method = check[side]
    if isinstance(method, int | float):
        return float(method)
    metric = check.get(f"metric_{side}") or check["metric"]
    rows, draws = select(result, method, **check.get("where", {}), **check.get(f"where_{side}", {})), {}
    if any(row["setting"] != rows[0]["setting"] for row in rows):
        raise ValueError(
            f"`where` of this check leaves several settings of {method!r}; name one: {rows[0]['setting']}."
        )
    for row in rows:
        draws.setdefault(row["draw"], []).append(row["metrics"][metric])
    return {draw: float(np.mean(seeds)) for draw, seeds in draws.items()}
