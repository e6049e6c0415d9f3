"""Ranks that read the same, and ranks that do not, through a real store in this process."""

import itertools
from datetime import timedelta

import pytest
import torch.distributed

from penstock.errors import RankMismatchError
from penstock.ranks import agreement
from penstock.ranks.agreement import LOOKING_SECONDS, Agreement, difference
from penstock.ranks.by_torch import TorchStore

SAME = {"files": "x.npy 4000 bytes", "seeds": "shuffle 3", "start": "epoch 0, batch 0"}
OTHER = {**SAME, "seeds": "shuffle 4"}


class Counted(TorchStore):
    """A store that counts what is asked of it."""

    def __init__(self):
        shared = torch.distributed.HashStore()
        shared.set_timeout(timedelta(seconds=1))
        super().__init__(shared)
        self.looks = self.puts = 0

    def look(self, key):
        self.looks += 1
        return super().look(key)

    def put(self, key, value):
        self.puts += 1
        super().put(key, value)


class Gone:
    """A store whose server died."""

    def put(self, key, value):
        raise ConnectionResetError("the other end is gone")

    def look(self, key):
        raise ConnectionResetError("the other end is gone")


@pytest.fixture
def now(monkeypatch):
    """A clock that only the test moves."""
    time = [1000.0]
    monkeypatch.setattr(agreement, "monotonic", lambda: time[0])
    return time


def ranks(store, identities, key="train"):
    made = [
        Agreement(identity, rank, len(identities), key, store)
        for rank, identity in enumerate(identities)
    ]
    for one in made:
        one.begin()
    return made


def test_ranks_that_read_the_same_agree_until_the_looking_ends(now):
    store = Counted()
    both = ranks(store, [SAME, dict(SAME)])
    for _ in range(20):
        for one in both:
            one.look()
        now[0] += LOOKING_SECONDS / 16
    assert [(one.is_done, one.ended) for one in both] == [(True, ""), (True, "")]
    looks = store.looks
    for one in both:
        one.look()
    assert store.looks == looks


def test_a_rank_that_differs_raises_and_so_do_all_others(now):
    made = ranks(Counted(), [SAME, SAME, OTHER, SAME])
    made[0].look()
    made[1].look()
    now[0] += 1
    messages = []
    for rank in (2, 0, 3, 1):
        with pytest.raises(RankMismatchError, match="rank 2 does not read the same as") as raised:
            made[rank].look()
        assert made[rank].is_done
        messages.append(str(raised.value))
    assert len(set(messages)) == 1
    assert messages[0] == (
        "rank 2 does not read the same as rank 0:\n"
        "  seeds: shuffle 4 on rank 2, shuffle 3 on rank 0\n"
        "Give every rank the same files, arrays, seed and chain, and resume all of them from the same state. "
        "If this rank reads alone on purpose: distribute(rank=0, world=1)."
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_reads_alone_finds_nobody_and_goes_on(rank, now):
    alone = Agreement(SAME, rank, 2, "eval", Counted())
    alone.begin()
    for _ in range(400):
        alone.look()
        now[0] += 0.2
    assert (alone.is_done, alone.ended) == (True, "")


def test_a_rank_that_waited_for_rank_0_longer_than_it_looks_still_sees_it(now):
    store = Counted()
    late = Agreement(OTHER, 1, 2, "train", store)
    late.begin()
    late.look()
    now[0] += 10 * LOOKING_SECONDS  # In its first step, until rank 0 had opened all its files.
    first = Agreement(SAME, 0, 2, "train", store)
    first.begin()
    with pytest.raises(RankMismatchError, match="rank 1 does not"):
        late.look()
    now[0] += 1
    with pytest.raises(RankMismatchError, match="rank 1 does not"):
        first.look()


def test_streams_with_other_keys_do_not_meet(now):
    store = Counted()
    (one, _), (_, other) = ranks(store, [SAME, SAME], "train"), ranks(store, [OTHER, OTHER], "test")
    for _ in range(10):
        one.look()
        other.look()
        now[0] += 1
    assert not one.is_done


def test_processes_that_share_a_rank_agree(now):
    store = Counted()
    shared = [Agreement(SAME, rank, 2, "train", store) for rank in (0, 0, 1, 1)]
    for one in shared:
        one.begin()
        one.look()
    now[0] += 1
    for one in shared:
        one.look()
    assert not any(one.is_done for one in shared)


def test_it_looks_five_times_a_second_however_often_it_is_called(now):
    store = Counted()
    one, _ = ranks(store, [SAME, SAME])
    for _ in range(1000):
        one.look()
        now[0] += 0.01
    assert 45 <= store.looks <= 56


def test_it_looks_often_at_first_since_an_epoch_may_be_short(now):
    store = Counted()
    other = Agreement(OTHER, 1, 2, "train", store)
    other.begin()
    other.look()
    Agreement(SAME, 0, 2, "train", store).begin()
    now[0] += 0.011
    with pytest.raises(RankMismatchError, match="rank 1 does not"):
        other.look()


def test_each_of_a_thousand_ranks_does_the_same_few_things(now):
    store = Counted()
    made = ranks(store, [SAME] * 1024)
    assert store.puts == 2
    for _ in range(50):
        for one in made:
            one.look()
        now[0] += 0.1
    store.looks = 0
    for _ in range(100):
        for one in made:
            one.look()
        now[0] += 0.1
    assert store.looks <= 10 * 1024  # In ten seconds, all ranks together.


def test_a_slow_store_is_asked_less_often(monkeypatch):
    # Each time that somebody asks for it, half a second has passed.
    clock = itertools.count(0, 0.5)
    monkeypatch.setattr(agreement, "monotonic", lambda: next(clock))
    store = Counted()
    one, _ = ranks(store, [SAME, SAME])
    for _ in range(18):
        one.look()
    assert store.looks == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_store_that_is_gone_ends_the_looking_and_nothing_else(rank):
    one = Agreement(SAME, rank, 2, "train", Gone())
    one.begin()
    one.look()
    one.look()
    assert one.is_done
    assert one.ended == "ConnectionResetError: the other end is gone"


def test_a_rank_that_differs_raises_even_if_it_can_tell_nobody(now):
    class Deaf(Counted):
        def put(self, key, value):
            if value and key.endswith("differs"):
                raise ConnectionResetError("the other end is gone")
            super().put(key, value)

    _, other = ranks(Deaf(), [SAME, OTHER])
    with pytest.raises(RankMismatchError, match="rank 1 does not"):
        other.look()


@pytest.mark.parametrize("value", ["not JSON", "[1, 2]", "3"])
def test_what_another_version_put_there_ends_the_looking(value, now):
    store = Counted()
    store.put("train/0", value)
    one = Agreement(SAME, 1, 2, "train", store)
    one.begin()
    one.look()
    assert one.is_done
    assert one.ended


def test_a_message_names_only_what_differs_shortened_to_where_it_does():
    mine = {"stages": "a" * 500 + "batch 32" + "b" * 500, "seeds": "shuffle 3", "rows": "here"}
    first = {"stages": "a" * 500 + "batch 64" + "b" * 500, "seeds": "shuffle 3", "length": "5 rows"}
    text = difference(mine, first, 7)
    assert "batch 32bbb" in text
    assert "batch 64bbb" in text
    assert "on rank 7, ...aaa" in text
    assert "seeds" not in text
    assert "length: nothing on rank 7, 5 rows on rank 0" in text
    assert "rows: here on rank 7, nothing on rank 0" in text
    assert max(map(len, text.split("\n")[:-1])) < 260
    assert difference(mine, dict(mine), 7) == ""
