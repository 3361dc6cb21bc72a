"""One loop for one run and for many: the same numbers, nothing lost by a stop, plain words where it cannot start."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from course_lib import runs, training
from course_lib.annotations import MISSING, Annotations
from course_lib.annotators import annotate, pairwise_flippers
from course_lib.confusion import GlobalCM
from course_lib.methods.trace import Trace, Vanilla
from course_lib.networks import initialised, mlp, n_parameters, seeded, small_cnn
from course_lib.training import fit, load, pick_device, predict, predict_log_p, save, size, sized

REPOSITORY = Path(__file__).resolve().parents[1]
N, D, R, L = 50, 6, 2, 3  # with batches of 16: three steps an epoch, two items wait
TRUTH = torch.arange(N) % L
IMAGES = 2 * torch.eye(L).repeat(1, 2)[TRUTH] + torch.randn(N, D, generator=seeded(0))
PEOPLE = pairwise_flippers(R, L, 0.7, generator=seeded(1))


def labelled(seed: int = 2, per_item: int | None = 1) -> torch.Tensor:
    return annotate(TRUTH, PEOPLE, per_item=per_item, generator=seeded(seed))


DATA = Annotations(IMAGES, labelled(), n_classes=L, truth=TRUTH)
HELD_OUT = Annotations(IMAGES.flip(0) + 0.1, labelled(9), n_classes=L)


def trace(seed: int = 0, **more) -> Trace:
    return Trace(mlp(D, L, hidden=8, generator=seeded(seed)), R, L, **{"frozen_epochs": 1, **more})


def vanilla(seed: int = 0, *layers: nn.Module) -> Vanilla:
    return Vanilla(initialised(nn.Sequential(*(layers or (nn.Linear(D, L),))), seeded(seed)))


def trained(methods, data=DATA, **more) -> training.History:
    return fit(methods, data, **{"epochs": 3, "batch_size": 16, "lr": 1e-2, "progress": False, **more})


def weights(method: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in method.state_dict().items()}


def same(a: dict, b: dict, tolerance: float = 0.0) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(a[name], b[name]) if tolerance == 0 else torch.allclose(a[name], b[name], rtol=0, atol=tolerance)
        for name in a
    )


def refusal(*arguments, **named) -> str:
    with pytest.raises(ValueError) as caught:
        trained(*arguments, **named)
    return str(caught.value)


# Many runs at once


KINDS = {
    "trace": lambda k: trace(k, lam=0.3 * k),
    "joint": lambda k: trace(k, lam=0.1 * k, joint=True),
    "oracle": lambda k: Trace.oracle(mlp(D, L, hidden=8, generator=seeded(k)), PEOPLE.roll(k, 0)),
    "vanilla": lambda k: Vanilla(mlp(D, L, hidden=8, generator=seeded(k))),
    "two matrices and tanh": lambda k: Trace(initialised(nn.Sequential(nn.Linear(D, L), nn.Tanh()), seeded(k)), R, L),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_gives_the_numbers_that_it_gives_in_a_stack(kind):
    seeds, data = [3, 11, 4], [DATA.with_labels(labelled(s)) for s in (2, 3)]
    data.append(data[0])  # two runs share their labels
    held_out = [HELD_OUT, HELD_OUT.with_labels(labelled(8)), HELD_OUT]
    stack = [KINDS[kind](k) for k in range(3)]
    history = trained(stack, data, seeds=seeds, validation=held_out)
    assert history.loss.shape == history.validation.shape == (3, 3)
    for k in range(3):
        alone = KINDS[kind](k)
        one = trained(alone, data[k], seeds=[seeds[k]], validation=held_out[k])
        assert torch.allclose(history.loss[:, k], one.loss[:, 0], atol=1e-4)
        assert torch.allclose(history.validation[:, k], one.validation[:, 0], atol=1e-4)
        assert history.kept_epoch[k] == one.kept_epoch[0]
        assert same(weights(stack[k]), weights(alone), 1e-4)
        assert not same(weights(stack[k]), weights(KINDS[kind](k)), 1e-3)  # it did train


def test_convolutions_stack_too():
    x = torch.rand(20, 1, 8, 8, generator=seeded(0))
    data = Annotations(x, torch.arange(20)[:, None] % 3, n_classes=3)
    make = lambda k: Vanilla(small_cnn(1, 3, size=8, generator=seeded(k)))  # noqa: E731
    stack = [make(0), make(1)]
    trained(stack, data, epochs=2, batch_size=8)
    for k, run in enumerate(stack):
        alone = make(k)
        trained(alone, data, epochs=2, batch_size=8, seeds=k)
        assert same(weights(run), weights(alone), 1e-4)


def test_batch_norm_in_a_stack_is_batch_norm_alone_or_refused():
    make = lambda k: Vanilla(  # noqa: E731
        initialised(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)), seeded(k))
    )
    data = Annotations(torch.rand(20, 1, 4, 4, generator=seeded(0)), torch.arange(20)[:, None] % 3, n_classes=3)
    stack = [make(0), make(1)]
    try:
        trained(stack, data, epochs=2, batch_size=8)
    except ValueError:
        return
    for k, run in enumerate(stack):
        alone = make(k)
        trained(alone, data, epochs=2, batch_size=8, seeds=k)
        assert same(weights(run), weights(alone), 1e-4)


def test_runs_in_a_stack_do_not_influence_each_other():
    first, second = ([trace(k) for k in range(3)] for _ in "ab")
    trained(first, [DATA] * 3)
    trained(second, [DATA, DATA.with_labels(labelled(5)), DATA])
    for k in (0, 2):
        assert same(weights(first[k]), weights(second[k]), 1e-6)
    assert not same(weights(first[1]), weights(second[1]), 1e-3)


def test_lambda_is_each_runs_own():
    stack = [trace(lam=lam, frozen_epochs=0) for lam in (0.0, 3.0)]
    trained(stack, seeds=[0, 0], epochs=10)
    free, pressed = (method.skills().mean() for method in stack)
    assert pressed < free - 0.05
    assert [float(method.lam) for method in stack] == [0.0, 3.0]


def test_one_seed_for_all_counts_up():
    first, second = [trace(0), trace(1)], [trace(0), trace(1)]
    trained(first, seeds=5)
    trained(second, seeds=(5, 6))
    assert same(weights(first[1]), weights(second[1]))


def test_runs_of_another_kind_or_size_are_refused():
    for pair in (
        [trace(), vanilla()],
        [trace(), Trace(mlp(D, L, hidden=9, generator=seeded(0)), R, L)],
    ):
        assert "of one kind" in refusal(pair)


@pytest.mark.parametrize("setting", [{"joint": True}, {"cm_lr": 0.5}, {"frozen_epochs": 3}])
def test_settings_that_are_no_tensors_are_refused_where_they_differ(setting):
    """Only the first method's would be used, for all runs."""
    message = refusal([trace(0), trace(1, **setting)])
    assert "one kind" in message or next(iter(setting)) in message


def test_networks_that_differ_only_in_their_activation_are_refused():
    refusal([vanilla(0, nn.Linear(D, L), nn.ReLU()), vanilla(1, nn.Linear(D, L), nn.Tanh())])


def test_an_oracle_in_a_stack_of_learners_is_refused_in_plain_words():
    assert "one kind" in refusal([trace(), Trace.oracle(mlp(D, L, hidden=8, generator=seeded(0)), PEOPLE)])


def test_methods_that_share_a_network_are_refused():
    network = mlp(D, L, hidden=8, generator=seeded(0))
    refusal([Trace(network, R, L), Trace(network, R, L, lam=0.1)])
    method = trace()
    refusal([method, method])


# The optimiser


@pytest.mark.parametrize("K", [1, 2])
def test_frozen_matrices_stay_exactly_at_their_start(K):
    start = GlobalCM(R, L).logits
    for epochs, moved in ((2, False), (3, True)):
        stack = [trace(k, frozen_epochs=2) for k in range(K)]
        before = [weights(method) for method in stack]
        trained(stack, epochs=epochs)
        for method, old in zip(stack, before, strict=True):
            assert torch.equal(method.cm.logits, start) != moved
            assert not torch.equal(method.network[1].weight, old["network.1.weight"])


@pytest.mark.parametrize("K", [1, 2])
def test_matrices_have_their_own_learning_rate(K):
    stack = [trace(k, cm_lr=0.05, frozen_epochs=0) for k in range(K)]
    before = [weights(method) for method in stack]
    trained(stack, epochs=1, batch_size=N, lr=1e-3)  # one step of Adam moves every number by its learning rate
    for method, old in zip(stack, before, strict=True):
        moved = {name: float((new - old[name]).abs().max()) for name, new in weights(method).items()}
        assert moved["cm.logits"] == pytest.approx(0.05, rel=1e-3)
        assert moved["network.1.weight"] == pytest.approx(1e-3, rel=1e-3)


def test_the_frozen_epochs_leave_no_trace_in_the_optimiser():
    method = trace(frozen_epochs=2, cm_lr=0.05)
    trained(method, epochs=3, batch_size=N, lr=1e-3)
    step = (method.cm.logits - GlobalCM(R, L).logits).detach().abs()
    assert float(step.max()) == pytest.approx(0.05, rel=1e-3)  # the first step of Adam, not the third


def test_known_matrices_are_not_trained():
    method = Trace.oracle(mlp(D, L, hidden=8, generator=seeded(0)), PEOPLE)
    trained(method)
    assert torch.allclose(method.confusion(), PEOPLE, atol=1e-6)


class Recorder(Vanilla):
    """Remembers what `loss` was given."""

    def __init__(self) -> None:
        super().__init__(initialised(nn.Linear(D, L), seeded(0)))
        self.seen: list[tuple] = []

    def loss(self, batch):
        self.seen.append(tuple(t.clone() for t in batch))
        return super().loss(batch)


def test_every_batch_holds_the_rows_of_its_items():
    method = Recorder()
    trained(method, epochs=4)
    assert len(method.seen) == 4 * (N // 16)
    for x, labels, who, index in method.seen:
        assert index.shape == (16,) and labels.shape == who.shape == (16, 1)  # one label an item
        everybody = torch.full((16, R), MISSING).scatter(1, who, labels)
        assert torch.equal(x, DATA.images[index]) and torch.equal(everybody, DATA.labels[index])
    epochs = [torch.cat([index for *_, index in method.seen[3 * e : 3 * e + 3]]).tolist() for e in range(4)]
    assert all(len(set(epoch)) == 48 for epoch in epochs)  # nobody twice in an epoch
    assert len(set(map(tuple, epochs))) == 4  # another order each time
    assert set(sum(epochs, [])) == set(range(N))  # who waited has a turn later


@pytest.mark.parametrize("S", [(), (3, 2)])
def test_labels_that_nobody_gave_are_left_out_and_no_other(S):
    """Runs of unequal density share a stack; an image may have no label at all."""
    labels = torch.randint(-3, L, (2, N, 5, *S), generator=seeded(5)).clamp(min=MISSING)
    labels[0, :, 2:], labels[:, 3], labels[1, 4] = MISSING, MISSING, 1  # two at most; none; all
    data = [Annotations(IMAGES, labels[0], n_classes=L)]
    data.append(data[0].with_labels(labels[1]))
    held = runs.Labelled(data, 2, torch.device("cpu"), "data")
    index = torch.arange(N).expand(2, N)
    _, said, who, _ = held.batch(index)
    assert who.shape == (2, N, 5)
    assert runs.Labelled(data[0], 2, torch.device("cpu"), "data").who.shape == (N, 2)
    full = torch.full((2, N, 5, *S), MISSING)
    full.scatter_(2, who.reshape(*who.shape, *[1] * len(S)).expand_as(said), said)
    assert torch.equal(full, labels)


def test_the_order_depends_on_the_seed_only():
    orders = []
    for noise, seed in ((1, 0), (2, 0), (3, 1)):
        torch.manual_seed(noise)
        method = Recorder()
        trained(method, epochs=2, seeds=seed)
        orders.append(torch.cat([index for *_, index in method.seen]))
    assert torch.equal(orders[0], orders[1]) and not torch.equal(orders[0], orders[2])


def test_a_batch_larger_than_the_data_is_all_of_it():
    first, second = trace(), trace()
    history = trained(first, batch_size=10**6)
    trained(second, batch_size=N)
    assert history.steps == 3
    assert same(weights(first), weights(second))


def test_steps_are_whole_batches():
    assert trained(trace(), epochs=2, batch_size=16).steps == 2 * 3
    assert trained(trace(), epochs=2, batch_size=25).steps == 2 * 2
    assert trained(trace(), DATA.items([0]), epochs=2, batch_size=1).steps == 2


# Early stopping


def wrong_way(held_out: Annotations) -> list[Annotations]:
    """Labels that get better on `held_out` with training, and labels that get worse from the first epoch on."""
    return [held_out, held_out.with_labels((held_out.labels + 1) % L)]


def test_early_stopping_keeps_each_runs_best_epoch():
    held_out = Annotations(IMAGES, TRUTH[:, None], n_classes=L)
    data = wrong_way(held_out)
    stack = [vanilla(0), vanilla(0)]
    history = trained(stack, data, epochs=6, seeds=[0, 0], validation=held_out, lr=0.05)
    assert history.kept_epoch.tolist() == [5, 0]
    assert history.kept_epoch.tolist() == history.validation.argmin(0).tolist()
    for method, its_data, epochs in zip(stack, data, (6, 1), strict=True):
        plain = vanilla(0)
        trained(plain, its_data, epochs=epochs, lr=0.05)
        assert same(weights(method), weights(plain), 1e-5)


@pytest.mark.parametrize("K", [1, 3])
def test_the_weights_kept_have_the_lowest_validation_loss(K):
    stack = [trace(k, frozen_epochs=0) for k in range(K)]
    history = trained(stack, epochs=12, lr=0.1, validation=HELD_OUT)
    lowest = history.validation.min(0)
    assert (lowest.indices < 11).any()  # so that there is something to stop
    assert torch.equal(history.kept_epoch, lowest.indices)
    for method, value in zip(stack, lowest.values, strict=True):
        method.eval()
        loss = method.loss((HELD_OUT.images, HELD_OUT.labels, None, None))
        assert float(loss.detach()) == pytest.approx(float(value), abs=1e-5)


def test_the_validation_loss_is_over_observed_labels_whatever_the_chunk():
    big = Annotations(IMAGES.repeat(45, 1), labelled(3, per_item=None).repeat(45, 1), n_classes=L)  # 2250 > 1024
    gaps = big.labels.clone()
    gaps[:1100, 1] = MISSING  # chunks with unequal numbers of labels
    big = big.with_labels(gaps)
    method = vanilla()
    history = trained(method, epochs=1, validation=big)
    loss = method.loss((big.images, big.labels, None, None))
    assert float(history.validation[0, 0]) == pytest.approx(float(loss.detach()), abs=1e-5)


def test_without_validation_the_last_epoch_is_kept():
    history = trained(trace())
    assert history.validation is None and history.kept_epoch.tolist() == [2]


# Any network, alone


def test_one_run_trains_batch_norm_and_dropout():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(16, 3)
    )
    method = Vanilla(initialised(net, seeded(0)))
    truth = torch.arange(60) % 3
    x = torch.rand(60, 1, 4, 4, generator=seeded(0)) + truth[:, None, None, None]
    history = trained(method, Annotations(x, truth[:, None], n_classes=3), epochs=15, lr=0.02)
    assert history.loss[-1] < history.loss[0] - 0.2
    assert net[1].num_batches_tracked >= 45 and not torch.equal(net[1].running_mean, torch.zeros(4))
    assert torch.equal(predict_log_p(method, x), predict_log_p(method, x))  # dropout is off
    assert (predict(method, x) == truth).float().mean() > 0.8


def test_batch_norm_over_features_trains():
    method = vanilla(0, nn.BatchNorm1d(D), nn.Linear(D, L))
    history = trained(method, epochs=2)
    assert torch.isfinite(history.loss).all()


def test_asking_the_method_before_training_changes_nothing_in_it():
    method = Vanilla(initialised(nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(4, 3)), seeded(0)))
    before, mode = weights(method), method.training
    training.check_fit(method, Annotations(torch.rand(4, 1, 2, 2), torch.zeros(4, 1, dtype=torch.long), n_classes=3))
    assert same(weights(method), before) and method.training == mode


def test_dropout_is_the_same_for_the_same_seed():
    found = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        method = vanilla(0, nn.Dropout(0.5), nn.Linear(D, L))
        trained(method)
        found.append(weights(method))
    assert same(*found)


# The same again


@pytest.mark.parametrize("K", [1, 3])
def test_the_same_seed_gives_the_same_result(K):
    found = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        stack = [trace(k) for k in range(K)]
        history = trained(stack, validation=HELD_OUT)
        found.append(([weights(m) for m in stack], history.loss, history.validation))
    assert all(same(a, b) for a, b in zip(found[0][0], found[1][0], strict=True))
    assert torch.equal(found[0][1], found[1][1]) and torch.equal(found[0][2], found[1][2])


def test_another_seed_gives_another_result():
    first, second = trace(), trace()
    trained(first, seeds=0)
    trained(second, seeds=1)
    assert not same(weights(first), weights(second), 1e-6)


def test_global_state_is_left_alone():
    one, stack = trace(), [trace(0), trace(1)]
    random, threads, grad = torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled()
    trained(one, validation=HELD_OUT)
    trained(stack, validation=HELD_OUT)
    assert torch.equal(torch.get_rng_state(), random)
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)


def test_data_are_not_changed_by_training():
    images, labels = DATA.images.clone(), DATA.labels.clone()
    trained([trace(0), trace(1)])
    assert torch.equal(DATA.images, images) and torch.equal(DATA.labels, labels)


# Stopped and taken up again


class Stopped(Exception):
    pass


@pytest.fixture
def stop_at(monkeypatch):
    """stop_at(n, error): the n-th step of the optimiser raises."""
    step = torch.optim.Adam.step

    def install(n: int, error: type[BaseException]) -> None:
        count = [0]

        def counted(self, *arguments, **named):
            count[0] += 1
            if count[0] == n:
                raise error
            return step(self, *arguments, **named)

        monkeypatch.setattr(torch.optim.Adam, "step", counted)

    install.off = lambda: monkeypatch.setattr(torch.optim.Adam, "step", step)
    return install


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize(("validation", "error"), [(None, KeyboardInterrupt), (HELD_OUT, Stopped)])
def test_a_stopped_run_ends_with_the_weights_of_an_unstopped_one(K, validation, error, stop_at, tmp_path):
    make = lambda: [trace(k, frozen_epochs=1, lam=0.1 * k) for k in range(K)]  # noqa: E731
    whole = make()
    wanted = trained(whole, epochs=6, validation=validation, lr=0.05)
    file = tmp_path / "deep" / "run.pt"
    stop_at(3 * 3 + 2, error)  # in the middle of the fourth epoch
    with pytest.raises(error):
        trained(make(), epochs=6, validation=validation, lr=0.05, checkpoint=file)
    stop_at.off()
    assert [path.name for path in file.parent.iterdir()] == ["run.pt"]  # nothing half-written
    again = make()
    found = trained(again, epochs=6, validation=validation, lr=0.05, checkpoint=file)
    assert torch.equal(found.loss, wanted.loss) and torch.equal(found.kept_epoch, wanted.kept_epoch)
    assert validation is None or torch.equal(found.validation, wanted.validation)
    assert all(same(weights(a), weights(b)) for a, b in zip(again, whole, strict=True))
    assert found.steps == wanted.steps == 18


def test_only_the_missing_epochs_are_run_again(stop_at, tmp_path):
    with_stop = Recorder()
    stop_at(2 * 3 + 1, Stopped)
    with pytest.raises(Stopped):
        trained(with_stop, epochs=4, checkpoint=tmp_path / "run.pt")
    stop_at.off()
    again = Recorder()
    trained(again, epochs=4, checkpoint=tmp_path / "run.pt")
    assert len(again.seen) == 2 * 3


KILLED = """
    import os, signal, sys, torch
    sys.path.insert(0, sys.argv[2])
    from test_training import DATA, HELD_OUT, trace, trained

    step, count = torch.optim.Adam.step, [0]

    def deadly(self, *arguments, **named):
        count[0] += 1
        if count[0] == 8:  # two epochs are written, the third is under way
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *arguments, **named)

    torch.optim.Adam.step = deadly
    trained([trace(k) for k in range(3)], epochs=4, validation=HELD_OUT, checkpoint=sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill a process outright")
def test_a_killed_process_loses_nothing_but_the_epoch_it_was_in(tmp_path):
    file = tmp_path / "run.pt"
    paths = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(file), str(Path(__file__).parent)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]
    assert torch.load(file, weights_only=True)["epoch"] == 2
    again, whole = ([trace(k) for k in range(3)] for _ in "ab")
    trained(again, epochs=4, validation=HELD_OUT, checkpoint=file)
    trained(whole, epochs=4, validation=HELD_OUT)
    assert all(same(weights(a), weights(b)) for a, b in zip(again, whole, strict=True))


def test_a_checkpoint_that_is_being_written_never_replaces_a_whole_one(monkeypatch, tmp_path):
    file = tmp_path / "run.pt"
    trained(trace(), epochs=2, checkpoint=file)
    before = file.read_bytes()

    def half(content, path, *arguments, **named):
        Path(path).write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="no space"):
        trained(trace(), epochs=3, checkpoint=file)
    assert file.read_bytes() == before
    monkeypatch.undo()
    again, whole = trace(), trace()
    trained(again, epochs=3, checkpoint=file)
    trained(whole, epochs=3)
    assert same(weights(again), weights(whole))
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]


def test_a_finished_run_is_read_from_its_checkpoint(tmp_path):
    first, second = trace(), trace()
    one = trained(first, validation=HELD_OUT, checkpoint=tmp_path / "run.pt")
    two = trained(second, validation=HELD_OUT, checkpoint=tmp_path / "run.pt")
    assert same(weights(first), weights(second))
    assert torch.equal(one.loss, two.loss) and torch.equal(one.kept_epoch, two.kept_epoch)


@pytest.mark.parametrize("K", [1, 3])
def test_more_epochs_go_on_from_the_checkpoint(K, tmp_path):
    first, more, whole = ([trace(k) for k in range(K)] for _ in "abc")
    trained(first, epochs=2, checkpoint=tmp_path / "run.pt")
    trained(more, epochs=5, checkpoint=tmp_path / "run.pt")
    trained(whole, epochs=5)
    assert all(same(weights(a), weights(b)) for a, b in zip(more, whole, strict=True))


def test_dropout_goes_on_from_the_checkpoint_too(tmp_path):
    make = lambda: vanilla(0, nn.Dropout(0.5), nn.Linear(D, L))  # noqa: E731
    first, more, whole = make(), make(), make()
    torch.manual_seed(1)
    trained(first, epochs=2, checkpoint=tmp_path / "run.pt")
    torch.manual_seed(2)
    trained(more, epochs=4, checkpoint=tmp_path / "run.pt")
    torch.manual_seed(3)
    trained(whole, epochs=4)
    assert same(weights(more), weights(whole))


@pytest.mark.parametrize("K", [1, 3])
def test_settling_is_the_last_epochs_at_a_tenth_of_every_rate(K):
    settled, by_hand = ([trace(k, cm_lr=0.05) for k in range(K)] for _ in "ab")
    rates = []
    real = torch.optim.Adam.step

    def step(self, *args, **kwargs):
        rates.append([group["lr"] for group in self.param_groups])
        return real(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.Adam, "step", step)
        trained(settled, epochs=4, settle=1)
    steps = N // 16
    assert rates == [[0.05, 1e-2]] * 3 * steps + [[0.05 / 10, 1e-2 / 10]] * steps
    trained(by_hand, epochs=3)
    before = [weights(m) for m in by_hand]
    moved = [
        max(float((a[n] - b[n]).abs().max()) for n in a) for a, b in zip(before, map(weights, settled), strict=True)
    ]
    assert all(0 < m < 0.05 for m in moved)  # the first three epochs are those of a fit without settling


def test_settling_goes_on_from_a_checkpoint_and_belongs_to_the_run(tmp_path):
    class Stop(Exception):
        pass

    whole, part = trace(), trace()
    trained(whole, epochs=5, settle=2)
    with pytest.MonkeyPatch.context() as patch:
        ends = training.Keeper.end_of_epoch

        def stopped(self, epoch, *rest):
            ends(self, epoch, *rest)
            if epoch == 3:
                raise Stop

        patch.setattr(training.Keeper, "end_of_epoch", stopped)
        with pytest.raises(Stop):
            trained(part, epochs=5, settle=2, checkpoint=tmp_path / "run.pt")
    with pytest.raises(ValueError, match="another run"):
        trained(trace(), epochs=5, checkpoint=tmp_path / "run.pt")
    trained(part := trace(), epochs=5, settle=2, checkpoint=tmp_path / "run.pt")
    assert same(weights(part), weights(whole))


OTHER_RUNS = {
    "labels": lambda file: trained(trace(), DATA.with_labels(labelled(7)), checkpoint=file),
    "images": lambda file: trained(trace(), Annotations(IMAGES + 1, DATA.labels, n_classes=L), checkpoint=file),
    "seed": lambda file: trained(trace(), seeds=1, checkpoint=file),
    "batch size": lambda file: trained(trace(), batch_size=15, checkpoint=file),
    "learning rate": lambda file: trained(trace(), lr=0.5, checkpoint=file),
    "network": lambda file: trained(Trace(mlp(D, L, hidden=9, generator=seeded(0)), R, L), checkpoint=file),
    "method": lambda file: trained(vanilla(), checkpoint=file),
    "number of runs": lambda file: trained([trace(0), trace(1)], checkpoint=file),
    "lambda": lambda file: trained(trace(lam=0.7), checkpoint=file),
    "likelihood": lambda file: trained(trace(joint=True), checkpoint=file),
    "matrices' learning rate": lambda file: trained(trace(cm_lr=0.7), checkpoint=file),
    "frozen epochs": lambda file: trained(trace(frozen_epochs=0), checkpoint=file),
    "early stopping": lambda file: trained(trace(), validation=HELD_OUT, checkpoint=file),
}


@pytest.mark.parametrize("what", OTHER_RUNS)
def test_the_checkpoint_of_another_run_is_refused_and_kept(what, tmp_path):
    file = tmp_path / "run.pt"
    trained(trace(), epochs=1, checkpoint=file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="another run") as caught:
        OTHER_RUNS[what](file)
    assert str(file) in str(caught.value)
    assert file.read_bytes() == before


def test_the_checkpoint_of_an_oracle_with_other_matrices_is_refused(tmp_path):
    oracle = lambda A: Trace.oracle(mlp(D, L, hidden=8, generator=seeded(0)), A)  # noqa: E731
    trained(oracle(PEOPLE), epochs=1, checkpoint=tmp_path / "run.pt")
    with pytest.raises(ValueError, match="another run"):
        trained(oracle(PEOPLE.flip(0)), checkpoint=tmp_path / "run.pt")


@pytest.mark.parametrize(
    "make", [trace, lambda: vanilla(0, nn.BatchNorm1d(D), nn.Linear(D, L))], ids=["trace", "batch norm"]
)
def test_the_training_cell_can_be_run_again_after_an_interrupt(make, stop_at, tmp_path):
    """In a notebook the method is then half-trained, not new."""
    method, whole = make(), make()
    stop_at(2 * 3 + 2, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        trained(method, epochs=4, checkpoint=tmp_path / "run.pt")
    stop_at.off()
    trained(method, epochs=4, checkpoint=tmp_path / "run.pt")
    trained(whole, epochs=4)
    assert same(weights(method), weights(whole))


class Trap:
    """Unpickling this would run code."""

    def __reduce__(self):
        return (os.mkdir, (os.environ["TRAP"],))


def broken(path: Path, how: str) -> Path:
    if how == "half":
        save(trace(), path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "page":
        path.write_text("<html>Please log in</html>")
    elif how == "list":
        torch.save([torch.ones(2)], path)
    elif how == "code":
        torch.save({"network.weight": Trap()}, path)
    elif how == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    return path


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("how", ["half", "empty", "page", "list", "code", "pickle"])
def test_a_broken_file_is_named_and_never_run(how, tmp_path, monkeypatch):
    monkeypatch.setenv("TRAP", str(tmp_path / "sprung"))
    file = broken(tmp_path / "run.pt", how)
    for use in (lambda: trained(trace(), checkpoint=file), lambda: load(trace(), file)):
        method_before = weights(trace())
        with pytest.raises(ValueError) as caught:
            use()
        assert str(file) in str(caught.value)
        assert same(weights(trace()), method_before)
    assert not (tmp_path / "sprung").exists()
    assert "weights_only" not in str(caught.value)  # never a hint to switch the safety off


# Save, load, predict


def test_a_saved_method_predicts_the_same_after_loading(tmp_path):
    method = trace(lam=0.3)
    trained(method)
    save(method, tmp_path / "new" / "method.pt")
    other = load(trace(seed=5, lam=0.0), tmp_path / "new" / "method.pt")
    assert same(weights(method), weights(other))
    assert torch.equal(predict_log_p(method, IMAGES), predict_log_p(other, IMAGES))
    assert torch.equal(method.confusion(), other.confusion()) and float(other.lam) == pytest.approx(0.3)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["method.pt"]


def test_a_run_of_a_stack_can_be_saved_and_loaded_alone(tmp_path):
    stack = [trace(0), trace(1)]
    trained(stack)
    save(stack[1], tmp_path / "one.pt")
    other = load(trace(), tmp_path / "one.pt")
    assert torch.equal(predict_log_p(stack[1], IMAGES), predict_log_p(other, IMAGES))
    assert not torch.equal(predict_log_p(stack[0], IMAGES), predict_log_p(other, IMAGES))


def test_a_saved_file_holds_cpu_tensors_only(tmp_path):
    save(trace(), tmp_path / "method.pt")
    content = torch.load(tmp_path / "method.pt", weights_only=True)
    assert all(isinstance(t, torch.Tensor) and t.device.type == "cpu" for t in content.values())
    assert content.keys() == trace().state_dict().keys()


@pytest.mark.parametrize(
    "other",
    [
        lambda: vanilla(),
        lambda: Trace(mlp(D, L, hidden=9, generator=seeded(0)), R, L),
        lambda: Trace(mlp(D, L, hidden=8, generator=seeded(0)), R + 1, L),
    ],
)
def test_loading_into_a_differently_built_method_is_refused(other, tmp_path):
    save(trace(), tmp_path / "method.pt")
    method = other()
    before = weights(method)
    with pytest.raises(ValueError, match="differently built") as caught:
        load(method, tmp_path / "method.pt")
    assert "method.pt" in str(caught.value)
    assert same(weights(method), before)


def test_a_checkpoint_of_fit_is_no_saved_method(tmp_path):
    trained(trace(), checkpoint=tmp_path / "run.pt")
    with pytest.raises(ValueError, match="run.pt"):
        load(trace(), tmp_path / "run.pt")


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match="nowhere.pt"):
        load(trace(), "nowhere.pt")


def test_a_failed_save_leaves_the_old_file(monkeypatch, tmp_path):
    save(trace(), tmp_path / "method.pt")
    before = (tmp_path / "method.pt").read_bytes()
    monkeypatch.setattr(torch, "save", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        save(trace(3), tmp_path / "method.pt")
    assert (tmp_path / "method.pt").read_bytes() == before


@pytest.mark.parametrize("net", ["mlp", "batch norm"])
def test_predictions_do_not_depend_on_the_batch_size(net):
    method = trace() if net == "mlp" else vanilla(0, nn.BatchNorm1d(D), nn.Dropout(0.5), nn.Linear(D, L))
    method.train()
    wanted = predict_log_p(method, IMAGES, batch_size=N)
    assert wanted.shape == (N, L) and torch.allclose(wanted.exp().sum(1), torch.ones(N))
    for batch_size in (1, 7, 1000):
        assert torch.allclose(predict_log_p(method, IMAGES, batch_size=batch_size), wanted, atol=1e-6)
    assert torch.equal(predict(method, IMAGES), wanted.argmax(1))


def test_unseen_images_come_in_any_form_that_annotations_take():
    method = Vanilla(small_cnn(1, 3, size=8, generator=seeded(0)))
    raw = np.random.default_rng(0).integers(0, 256, (5, 8, 8), dtype=np.uint8)
    wanted = predict_log_p(method, torch.from_numpy(raw / 255)[:, None])
    assert torch.allclose(predict_log_p(method, raw), wanted, atol=1e-6)
    assert torch.allclose(predict_log_p(method, torch.from_numpy(raw)), wanted, atol=1e-6)
    with pytest.raises(ValueError, match="NaN"):
        predict(method, np.full((2, 8, 8), np.nan))


def test_own_arrays_from_start_to_end(tmp_path):
    """The route of the README: numpy in, train, predict unseen images, skills, confusion, save, load."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 400)
    images = (rng.random((400, 8, 8)) * 100 + 50 * truth[:, None, None]).astype(np.uint8)
    labels = np.stack([truth, np.where(rng.random(400) < 0.7, truth, (truth + 1) % 3)], 1).astype(np.int32)
    labels[::5, 0] = -1
    data = Annotations(images[:300], labels[:300], n_classes=3)
    method = Trace(mlp(64, 3, generator=seeded(0)), data.n_annotators, data.n_classes, frozen_epochs=2)
    fit(method, data, epochs=15, batch_size=32, lr=3e-3, progress=False)
    assert (predict(method, images[300:]).numpy() == truth[300:]).mean() > 0.9
    assert method.confusion().shape == (2, 3, 3)
    assert method.skills()[0] > method.skills()[1] + 0.1
    save(method, tmp_path / "mine.pt")
    fresh = load(Trace(mlp(64, 3, generator=seeded(1)), 2, 3), tmp_path / "mine.pt")
    assert torch.equal(predict(fresh, images[300:]), predict(method, images[300:]))


# What cannot start


def untouched(method: nn.Module, *arguments, **named) -> str:
    before = weights(method)
    message = refusal(method, *arguments, **named)
    assert same(weights(method), before)
    return message


def test_a_method_for_other_data_is_refused_before_training():
    three = DATA.with_labels(torch.cat([DATA.labels, DATA.labels[:, :1]], 1))
    assert "R=3 annotators" in untouched(trace(), three)
    four_classes = Annotations(IMAGES, DATA.labels, n_classes=4)
    assert "n_classes" in untouched(trace(), four_classes)
    assert "size or number of channels" in untouched(trace(), Annotations(IMAGES[:, :5], DATA.labels, n_classes=L))
    masks = Annotations(torch.rand(4, 1, 2, 3), torch.zeros(4, R, 2, 3, dtype=torch.long), n_classes=L)
    untouched(trace(), masks)


def test_validation_data_of_other_annotators_are_refused():
    assert "annotators" in untouched(trace(), validation=HELD_OUT.with_labels(HELD_OUT.labels.max(1).values[:, None]))


def test_validation_data_of_strangers_are_refused_though_they_are_as_many():
    """Tables sort their annotators by name: one more and one fewer, and every matrix would be another's."""
    named = lambda data, names: data.with_labels(data.labels, names)  # noqa: E731
    ours, theirs = [f"{r + 7}" for r in range(R)], [f"{r + 8}" for r in range(R)]
    message = untouched(trace(), named(DATA, ours), validation=named(HELD_OUT, theirs))
    assert f"`validation` has the annotators {', '.join(theirs)}" in message
    assert f"nothing is known of {R + 7}." in message


def test_validation_images_of_another_size_are_refused_before_training():
    untouched(trace(), validation=Annotations(IMAGES[:, :5], DATA.labels, n_classes=L))


def test_validation_data_of_other_classes_are_refused():
    untouched(trace(), validation=Annotations(IMAGES, (TRUTH[:, None] + torch.arange(R)) % 5, n_classes=5))


def test_every_run_of_a_stack_is_checked():
    message = refusal([vanilla(0), vanilla(1)], [DATA, Annotations(IMAGES, DATA.labels, n_classes=L)][:1])
    assert "K=2" in message and "got 1" in message


def test_data_that_do_not_share_their_images_are_refused():
    other = Annotations(IMAGES.clone(), DATA.labels, n_classes=L)
    assert "share one images tensor" in refusal([trace(0), trace(1)], [DATA, other])
    assert "`validation`" in refusal([trace(0), trace(1)], validation=[HELD_OUT, DATA])


def test_data_with_other_numbers_of_annotators_in_one_stack_are_refused_in_plain_words():
    vote = DATA.with_labels(TRUTH[:, None])
    assert "annotators" in refusal([vanilla(0), vanilla(1)], [DATA, vote])


@pytest.mark.parametrize("seeds", [[0], [0, 1, 2], []])
def test_seeds_are_one_number_or_one_for_each(seeds):
    message = refusal([trace(0), trace(1)], seeds=seeds)
    assert f"{len(seeds)} seeds" in message and "K=2" in message


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_seeds_from_numpy_are_the_same_seeds(dtype, tmp_path):
    first, second, again = ([trace(0), trace(1)] for _ in "abc")
    trained(first, seeds=[3000, 3001])
    trained(second, seeds=np.array([3000, 3001], dtype), epochs=2, checkpoint=tmp_path / "run.pt")
    trained(again, seeds=[3000, 3001], checkpoint=tmp_path / "run.pt")
    assert all(same(weights(a), weights(b)) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"epochs": -1}, {"batch_size": 0}, {"settle": -1}, {"settle": 99}])
def test_at_least_one_epoch_and_one_item_a_batch_and_no_more_settling_than_epochs(wrong):
    assert "epochs >= 1, batch_size >= 1 and settle" in untouched(trace(), **wrong)


def test_no_methods_at_all_are_refused():
    refusal([])


def test_a_loss_that_is_no_number_stops_the_run_and_names_it(tmp_path):
    stack = [trace(k) for k in range(3)]
    with torch.no_grad():
        stack[1].network[1].weight[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match=r"\[1\].*epoch 0.*lr") as caught:
        trained(stack, checkpoint=tmp_path / "run.pt")
    assert "[0" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []  # a checkpoint of it would be of no use
    with pytest.raises(FloatingPointError, match=r"\[0\]"):
        trained(stack[1])


def test_a_learning_rate_that_is_too_large_is_blamed():
    with pytest.raises(FloatingPointError, match="lr"):
        trained(vanilla(0, nn.Linear(D, 8), nn.ReLU(), nn.Linear(8, L)), lr=1e30, epochs=5)


# Size, device, words


def test_the_size_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("COURSE_SIZE", raising=False)
    assert size() == "lesson"
    monkeypatch.setenv("COURSE_SIZE", "")
    assert size() == "lesson"
    for position, name in enumerate(("ci", "lesson", "paper")):
        monkeypatch.setenv("COURSE_SIZE", name)
        assert size() == name
        assert sized(epochs=(1, 2, 3), hidden=(4, 5, 6)).__dict__ == {"epochs": 1 + position, "hidden": 4 + position}
    assert sized("ci", epochs=(1, 2, 3)).epochs == 1  # the argument wins


def test_a_size_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("COURSE_SIZE", "huge")
    with pytest.raises(ValueError, match=r"COURSE_SIZE.*ci, lesson, paper.*'huge'"):
        size()


def test_a_size_that_is_none_is_refused_as_an_argument_too():
    with pytest.raises(ValueError, match="ci, lesson, paper"):
        sized("huge", epochs=(1, 2, 3))


def test_the_device_comes_from_the_argument_or_the_environment(monkeypatch):
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    if not (torch.cuda.is_available() or torch.backends.mps.is_available()):
        assert pick_device().type == pick_device("auto").type == "cpu"
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    assert pick_device().type == "cpu"
    monkeypatch.setenv("COURSE_DEVICE", "nonsense")
    assert pick_device("cpu").type == "cpu"


@pytest.mark.parametrize("name", ["gpu", "CUDA", "nonsense", "tpu:0"])
def test_a_device_that_is_none_is_refused(name, monkeypatch):
    with pytest.raises(ValueError, match=rf"'{name}'.*COURSE_DEVICE"):
        pick_device(name)
    monkeypatch.setenv("COURSE_DEVICE", name)
    with pytest.raises(ValueError, match=rf"'{name}'.*COURSE_DEVICE"):
        trained(trace())


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps"])
def test_an_accelerator_that_is_absent_is_refused_by_name(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match=rf"'{name}' is not on this machine, which has \['cpu'\]"):
        trained(trace(), device=name)


def test_auto_takes_cuda_before_mps_before_the_cpu(monkeypatch):
    for cuda, mps, wanted in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=cuda: there)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda there=mps: there)
        assert pick_device("auto").type == wanted


@pytest.mark.parametrize("K", [1, 2])
def test_a_step_makes_all_its_tensors_on_the_device(K):
    device = torch.device("meta")
    data = runs.Labelled([DATA] * K, K, device, "data")
    batch = data.batch(torch.zeros(K, 4, dtype=torch.long, device=device))
    stacked = runs.Runs([trace(k) for k in range(K)], device)
    losses = stacked.gradients(batch)
    assert losses.device.type == "meta" and losses.shape == (K,)
    assert all(p.grad.device.type == "meta" for p in stacked.parameters.values())
    assert [t.dtype for t in batch] == [torch.float32] + [torch.int64] * 3


def test_nothing_in_double_precision_reaches_the_device():
    """mps has no float64. A fit of numpy's doubles makes them float32 before they are moved."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            out = operation(*args, **(kwargs or {}))
            found.extend(
                str(operation)
                for x in (out if isinstance(out, tuple | list) else (out,))
                if isinstance(x, torch.Tensor) and x.dtype == torch.float64
            )
            return out

    data = Annotations(IMAGES.double().numpy(), DATA.labels.double().numpy(), n_classes=L)
    oracle = Trace.oracle(mlp(D, L, hidden=8, generator=seeded(0)), PEOPLE.double())
    with Watch():
        for method in (trace(), oracle):
            trained(method, data, epochs=2, validation=data)
            predict(method, data.images)
    assert found == []


def test_the_history_tells_what_was_done():
    history = trained([trace(0), trace(1)], epochs=2, validation=HELD_OUT)
    assert history.loss.shape == (2, 2) and history.steps == 6 and history.device == "cpu"
    assert history.seconds > 0 and history.peak_mb > 10
    assert str(history).startswith("2 runs x 2 epochs (6 steps) on cpu")
    assert str(trained(trace(), epochs=1)).startswith("1 run x 1 epochs (3 steps) on cpu")


def test_the_loss_in_the_history_is_the_mean_over_the_steps():
    class Slow(Recorder):
        def loss(self, batch):
            loss = super().loss(batch)
            self.values = [*getattr(self, "values", []), float(loss.detach())]
            return loss

    method = Slow()
    history = trained(method, epochs=2)
    assert history.loss[:, 0].tolist() == pytest.approx([np.mean(method.values[:3]), np.mean(method.values[3:])])


def test_progress_is_shown_only_where_it_is_wanted(capsys):
    trained(trace(), progress=False)
    assert capsys.readouterr() == ("", "")
    trained(trace(), progress=True)
    shown = capsys.readouterr()
    assert "1 run on cpu" in shown.err + shown.out


def test_training_goes_on_where_it_was_left_when_fit_is_called_again():
    method = trace()
    trained(method, epochs=2)
    middle = weights(method)
    trained(method, epochs=1, seeds=7)
    assert not same(weights(method), middle, 1e-4)


def test_methods_stay_what_they_were_in_all_but_numbers():
    stack = [trace(0), trace(1)]
    parts = [(m.network, m.cm, m.cm.logits) for m in stack]
    numbers = n_parameters(stack[0])
    trained(stack)
    for method, (network, cm, logits) in zip(stack, parts, strict=True):
        assert method.network is network and method.cm is cm and method.cm.logits is logits
        assert n_parameters(method) == numbers and all(p.requires_grad for p in method.parameters())
    copy.deepcopy(stack[0])  # no graph hangs on it
