"""Time of one collective of PyTorch's Gloo backend (float32, sum) by size: mpi_collectives.c's twin.

usage: gloo_collectives.py OPERATION RANKS MAX_ITERATIONS REPETITIONS BYTES...
Starts RANKS processes. Rank 0 prints "bytes microseconds", or "unsupported REASON".
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

UNEVEN = ("all_gatherv", "reduce_scatterv", "gatherv", "scatterv", "alltoallv")


def uneven(block, start, end, ranks):
    """Elements from one rank to another, as in `jccl alltoallv`."""
    return block if ranks == 1 else 2 * block * ((end - start) % ranks) // (ranks - 1)


def calls(name, rank, ranks, send, recv, block):
    """What runs, for buffers of one size. In-place operations copy their input first, as MPI's twin does."""
    parts = lambda t: list(t.chunk(ranks))
    if name == "all_reduce":
        return lambda: (recv.copy_(send), dist.all_reduce(recv))
    if name == "all_gather":
        return lambda: dist.all_gather_into_tensor(recv, send)
    if name == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(recv, send)
    if name == "broadcast":
        return lambda: (recv.copy_(send) if rank == 0 else None, dist.broadcast(recv, 0))
    if name == "reduce":
        return lambda: (recv.copy_(send), dist.reduce(recv, 0))
    if name == "gather":
        return lambda: dist.gather(send, parts(recv) if rank == 0 else None, 0)
    if name == "scatter":
        return lambda: dist.scatter(recv, parts(send) if rank == 0 else None, 0)
    if name == "alltoall":
        return lambda: dist.all_to_all_single(recv, send)
    blocks = [uneven(block, 0, j, ranks) for j in range(ranks)]
    if name == "all_gatherv":
        return lambda: dist.all_gather(list(recv.split(blocks)), send)
    if name == "reduce_scatterv":
        return lambda: dist.reduce_scatter(recv, list(send.split(blocks)))
    if name == "gatherv":
        return lambda: dist.gather(send, list(recv.split(blocks)) if rank == 0 else None, 0)
    if name == "scatterv":
        return lambda: dist.scatter(recv, list(send.split(blocks)) if rank == 0 else None, 0)
    if name == "alltoallv":
        out = [uneven(block, rank, j, ranks) for j in range(ranks)]
        into = [uneven(block, j, rank, ranks) for j in range(ranks)]
        return lambda: dist.all_to_all_single(recv, send, into, out)
    if name == "sendrecv":
        def exchange():
            work = [
                dist.isend(send, (rank + 1) % ranks),
                dist.irecv(recv, (rank + ranks - 1) % ranks),
            ]
            for w in work:
                w.wait()

        return exchange
    raise SystemExit(f"unknown operation {name}")


def expected(name, rank, ranks, block):
    """What a rank receives, of send buffers whose element i is the rank + i % 1000; None where it has no result."""
    kind = name.removesuffix("v") if name in UNEVEN else name
    if rank and kind in ("reduce", "gather"):
        return None
    part = lambda start, end: uneven(block, start, end, ranks) if name in UNEVEN else block
    value = lambda r, start, n: (r + torch.arange(start, start + n) % 1000).to(torch.float32)
    total = lambda start, n: sum(value(r, start, n) for r in range(ranks))
    before = sum(part(0, j) for j in range(rank))
    mine = part(0, rank)
    if kind in ("all_reduce", "reduce"):
        return total(0, block)
    if kind == "reduce_scatter":
        return total(before, mine)
    if kind == "broadcast":
        return value(0, 0, block)
    if kind == "scatter":
        return value(0, before, mine)
    if kind == "sendrecv":
        return value((rank + ranks - 1) % ranks, 0, block)
    if kind in ("all_gather", "gather"):
        return torch.cat([value(r, 0, part(0, r)) for r in range(ranks)])
    starts = [sum(part(r, j) for j in range(rank)) for r in range(ranks)]
    return torch.cat([value(r, starts[r], part(r, rank)) for r in range(ranks)])  # alltoall


def warm_up(call, most):
    """Runs up to `most` iterations, not counted, and returns how many one repetition takes.

    Where ranks share a core an iteration may last 30 ms, and 0.2 s are enough for all of them.
    """
    done, enough = 0, torch.zeros(1)
    start = time.perf_counter()
    while not enough.item() and done < most:
        step = min(max(done, 4), max(most - done, 1))
        for _ in range(step):
            call()
        done += step
        enough[0] = time.perf_counter() - start > 0.1
        dist.all_reduce(enough, dist.ReduceOp.MAX)
    return done


def run(rank, name, ranks, most, repetitions, sizes, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    many_send = name.removesuffix("v") in ("reduce_scatter", "scatter", "alltoall")
    many_recv = name.removesuffix("v") in ("all_gather", "gather", "alltoall")
    for size in sizes:
        block = size // 4 // (ranks if many_send or many_recv else 1)
        # Of unequal blocks the ranks have different ones, and all together are less where they are rounded.
        blocks = [uneven(block, 0, j, ranks) if name in UNEVEN else block for j in range(ranks)]
        mine, whole = blocks[rank], sum(blocks)
        index = torch.arange(whole if many_send else mine)
        send = (rank + index % 1000).to(torch.float32)
        recv = torch.full((whole if many_recv else mine,), -1.0)
        call = calls(name, rank, ranks, send, recv, block)
        iterations = max(4, min(most, (256 << 20) // size))
        micros = []
        try:
            iterations = warm_up(call, iterations)
            for _ in range(repetitions):
                dist.barrier()
                start = time.perf_counter()
                for _ in range(iterations):
                    call()
                micros.append((time.perf_counter() - start) * 1e6 / iterations)
        except (RuntimeError, NotImplementedError, ValueError) as e:
            if rank == 0:
                print("unsupported", str(e).splitlines()[0], flush=True)
            return
        right = expected(name, rank, ranks, block)
        if right is not None and not torch.equal(recv, right):
            i = (recv != right).nonzero()[0].item()
            sys.exit(f"{name}: element {i} of rank {rank} is {recv[i]}, expected {right[i]}")
        mine = torch.tensor(sorted(micros)[repetitions // 2])
        dist.all_reduce(mine)
        if rank == 0:
            print(size, f"{mine.item() / ranks:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    operation, count = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        arguments = (
            operation,
            count,
            int(sys.argv[3]),
            int(sys.argv[4]),
            [int(s) for s in sys.argv[5:]],
            os.path.join(folder, "store"),
        )
        mp.spawn(run, arguments, nprocs=count)
