from __future__ import annotations

import dataclasses

import numpy as np

from autotune.machine.profile import CacheLevel
from cost_model.footprint import Memory, memory_of, traffic
from search_spaces.base import Access, TileStructure
from tests.unit.tuner.synthetic import PROFILE

N = 64
TINY = Memory(cache_bytes=(1e3, 1e4, 1e5), bytes_per_s=(4.0, 3.0, 2.0, 1.0))
HUGE = Memory(cache_bytes=(1e9, 1e9, 1e9), bytes_per_s=(4.0, 3.0, 2.0, 1.0))


def matmul(*loops: tuple[str, float]) -> TileStructure:
    """A 64 x 64 x 64 matmul whose loops, outer to inner, leave the given tiles."""
    ones = np.ones(1)
    dims = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}
    return TileStructure(
        extents={"m": N, "n": N, "k": N},
        reduce_axes=frozenset("k"),
        accesses=tuple(
            Access(
                buffer=name,
                item_bytes=4,
                shape=(N, N),
                dims=tuple(((axis, 1),) for axis in axes),
                written=name == "c",
            )
            for name, axes in dims.items()
        ),
        tiles=tuple({axis: np.array([tile])} for axis, tile in loops),
        flops=2 * N**3,
        accumulators=ones,
        vector_axis_waste=ones,
        parallel_chunks=ones,
        unrolled=ones,
        extra={},
    )


def test_a_problem_that_fits_is_there_already() -> None:
    moved = traffic(matmul(("m", 1), ("n", 1), ("k", 1)), HUGE)
    assert [float(s[0]) for s in moved.served_bytes[1:]] == [0.0] * 3


def test_a_buffer_is_not_read_again_by_loops_that_do_not_index_it() -> None:
    moved = traffic(matmul(("m", 1), ("k", 1), ("n", 1)), HUGE)
    reads_of_a, reads_of_b, _ = (float(e[0]) for e in moved.read_elements)
    assert reads_of_a == N * N
    assert reads_of_b == N**3


def test_a_small_cache_is_filled_again_and_again() -> None:
    walk = matmul(("m", 1), ("k", 1), ("n", 1))
    small, large = traffic(walk, TINY), traffic(walk, HUGE)
    assert small.served_bytes[1][0] > large.served_bytes[1][0]
    assert small.tile_bytes[0][0] <= 1e3


def test_tiles_cut_traffic() -> None:
    tiled = traffic(matmul(("n", 8), ("m", 8), ("k", 8), ("m", 1), ("k", 1), ("n", 1)), TINY)
    naive = traffic(matmul(("m", 1), ("n", 1), ("k", 1)), TINY)
    assert tiled.served_bytes[1][0] < naive.served_bytes[1][0] / 2


def test_a_convolution_tile_reads_its_border() -> None:
    rows = Access(buffer="x", item_bytes=4, shape=(N,), dims=((("oh", 1), ("kh", 1)),))
    nest = dataclasses.replace(
        matmul(),
        extents={"oh": 62, "kh": 3},
        accesses=(rows,),
        tiles=({"oh": np.array([4.0])},),
    )
    moved = traffic(nest, HUGE)
    assert moved.read_elements[0][0] == 62 / 4 * (4 + 3 - 1)


def test_a_stride_skips_what_it_does_not_read() -> None:
    rows = Access(buffer="x", item_bytes=4, shape=(N,), dims=((("oh", 2),),))
    nest = dataclasses.replace(matmul(), extents={"oh": 32}, accesses=(rows,), tiles=())
    assert traffic(nest, HUGE).read_elements[0][0] == 32


def test_many_configs_are_analysed_alike() -> None:
    one = matmul(("m", 8), ("n", 16), ("k", 1))
    many = dataclasses.replace(
        one,
        tiles=tuple({a: np.repeat(t, 20_000) for a, t in level.items()} for level in one.tiles),
        accumulators=np.ones(20_000),
    )
    few, lots = traffic(one, TINY), traffic(many, TINY)
    for slot in range(4):
        assert set(lots.served_bytes[slot].tolist()) == set(few.served_bytes[slot].tolist())


def test_a_device_with_one_cache_has_all_slots() -> None:
    levels = (
        CacheLevel(name="l1", size_bytes=1000, load_bytes_per_s=4.0),
        CacheLevel(name="memory", size_bytes=1 << 40, load_bytes_per_s=1.0),
    )
    memory = memory_of(dataclasses.replace(PROFILE, levels=levels))
    assert memory == Memory(cache_bytes=(1000.0,) * 3, bytes_per_s=(4.0, 4.0, 4.0, 1.0))
