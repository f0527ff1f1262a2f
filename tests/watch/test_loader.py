"""Which samples a batch is made of: as the sampler of its DataLoader gave them, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, dataloader

from neuraldbg import NeuralDbg


class Pairs(Dataset[dict[str, Tensor]]):
    """40 samples, each of which holds its own number."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": torch.full((3,), float(index)), "y": torch.tensor(index % 2)}


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        yield from torch.randn(12, 3)


def watched(recorded, batches, look):
    """(numbers in the batch, samples in the record) of each step."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    dbg, records = recorded(model)
    seen = []
    with dbg:
        for batch in batches:
            x = look(batch)
            seen.append(tuple(int(v) for v in x[:, 0]))
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    return list(zip(seen, [r.samples for r in records], strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_every_batch_of_a_shuffled_epoch_is_named_by_its_samples(recorded, workers: int) -> None:
    loader = DataLoader(Pairs(), batch_size=8, shuffle=True, num_workers=workers)
    pairs = watched(recorded, (batch for _ in range(2) for batch in loader), lambda b: b["x"])
    assert len(pairs) == 10
    assert all(samples == seen for seen, samples in pairs)


def test_a_batch_that_was_cast_on_its_way_is_known_by_its_shape(recorded) -> None:
    loader = DataLoader(Pairs(), batch_size=8, shuffle=True)
    pairs = watched(recorded, loader, lambda b: b["x"].double().float())
    assert len(pairs) == 5 and all(samples == seen for seen, samples in pairs)


def test_a_loop_that_fetches_one_batch_ahead_and_casts_gets_no_samples_rather_than_the_next_ones(recorded) -> None:
    def ahead(loader):
        waiting = None
        for batch in loader:
            if waiting is not None:
                yield waiting
            waiting = batch
        yield waiting

    loader = DataLoader(Pairs(), batch_size=8, shuffle=True)
    cast = watched(recorded, ahead(loader), lambda b: b["x"].double().float())
    assert [samples for _, samples in cast] == [None] * 5
    same = watched(recorded, ahead(loader), lambda b: b["x"])
    assert all(samples == seen for seen, samples in same)


def test_part_of_a_batch_and_batches_of_another_making_have_no_samples(recorded) -> None:
    loader = DataLoader(Pairs(), batch_size=8)
    assert {s for _, s in watched(recorded, loader, lambda b: b["x"][:5])} == {None}
    assert {s for _, s in watched(recorded, DataLoader(Stream(), batch_size=4), lambda x: x)} == {None}
    assert {s for _, s in watched(recorded, [torch.zeros(4, 3)] * 3, lambda x: x)} == {None}


def test_an_epoch_that_had_begun_before_the_session_has_no_samples(recorded) -> None:
    begun = iter(DataLoader(Pairs(), batch_size=8))
    next(begun)
    assert {s for _, s in watched(recorded, begun, lambda b: b["x"])} == {None}


def test_an_epoch_that_was_left_early_does_not_shift_the_next_one(recorded) -> None:
    loader = DataLoader(Pairs(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)

    def two_epochs():
        for _ in range(2):
            for number, batch in enumerate(loader):
                if number == 2:
                    break
                yield batch

    pairs = watched(recorded, two_epochs(), lambda b: b["x"])
    assert len(pairs) == 4 and all(samples == seen for seen, samples in pairs)


class Torn(Pairs):
    """Sample 11 cannot be read."""

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if index == 11:
            raise ValueError("a torn file")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_that_cannot_be_read_shifts_nothing(recorded, workers: int) -> None:
    def all_that_can_be_read():
        begun = iter(DataLoader(Torn(), batch_size=8, num_workers=workers))
        while True:
            try:
                yield next(begun)
            except ValueError:
                continue
            except StopIteration:
                return

    pairs = watched(recorded, all_that_can_be_read(), lambda b: b["x"])
    assert [seen[0] for seen, _ in pairs] == [0, 16, 24, 32]
    assert pairs[0][1] == pairs[0][0]
    assert all(samples in (None, seen) for seen, samples in pairs)


def test_the_loader_gives_what_it_gives_unwatched_and_is_put_back(recorded) -> None:
    kind = dataloader._BaseDataLoaderIter
    before = (kind._next_index, kind.__next__)
    data = TensorDataset(torch.randn(20, 3))

    def epoch() -> list[Tensor]:
        torch.manual_seed(3)
        return [x for (x,) in DataLoader(data, batch_size=6, shuffle=True)]

    plain = epoch()
    with NeuralDbg(nn.Linear(3, 2)):
        assert kind.__next__ is not before[1]
        seen = epoch()
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
    assert (kind._next_index, kind.__next__) == before


def test_the_sample_behind_a_nan_is_named_with_its_row_and_feature() -> None:
    torch.manual_seed(0)
    samples = torch.randn(64, 4)
    samples[37, 2] = float("nan")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for x, y in DataLoader(TensorDataset(samples, torch.randn(64, 1)), batch_size=8, shuffle=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    top = dbg.diagnose().top
    assert top is not None and top.cause == "nan_in_input"
    assert "feature 2" in top.description and "sample 37 of the data set" in top.description
