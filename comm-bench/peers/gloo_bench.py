"""What Gloo reaches, through torch.distributed, by the timing rule of `commctl bench`.

Usage: gloo_bench.py OP,.. BYTES,.. SECONDS RANKS CPU,..
Prints one line for each operation and size: OP RANKS BYTES MICROSECONDS

Operations: pingpong, all_reduce. The time is rank 0's median over batches of at least 20 us. An
empty list of CPUs leaves the ranks where the kernel puts them.
"""

import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BATCH_SECONDS = 30e-6
LEAST_BATCHES = 3
MOST_BATCHES = 20_000


def pingpong(rank, sent, received):
    if rank == 0:
        dist.send(sent, 1)
        dist.recv(received, 1)
    else:
        dist.recv(received, 0)
        dist.send(sent, 0)


def all_reduce(_rank, buffer, _):
    dist.all_reduce(buffer)


OPERATIONS = {"pingpong": pingpong, "all_reduce": all_reduce}


def agree(value):
    decision = torch.tensor([value])
    dist.broadcast(decision, 0)
    return int(decision)


def timed(calls, call):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


def measure(call, seconds):
    calls = 1
    while True:
        batch = min(timed(calls, call) for _ in range(2))
        if agree(int(batch >= BATCH_SECONDS)):
            break
        calls *= 2
    batches = agree(min(max(int(seconds / batch), LEAST_BATCHES), MOST_BATCHES))
    return statistics.median(timed(calls, call) for _ in range(batches)) / calls * 1e6


def work(rank, ranks, port, names, sizes, seconds, cpus):
    if cpus:
        os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    for name in names:
        if name not in OPERATIONS or (name == "pingpong" and ranks != 2):
            continue
        for size in sizes:
            buffers = [torch.zeros((size + 3) // 4) for _ in range(2)]
            us = measure(lambda: OPERATIONS[name](rank, *buffers), seconds)
            if rank == 0:
                us = us / 2 if name == "pingpong" else us
                print(name, ranks, buffers[0].numel() * 4, f"{us:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


if __name__ == "__main__":
    operations, byte_sizes, duration, world, cpu_list = sys.argv[1:6]
    arguments = (
        int(world),
        free_port(),
        operations.split(","),
        [int(size) for size in byte_sizes.split(",")],
        float(duration),
        [int(cpu) for cpu in cpu_list.split(",") if cpu],
    )
    mp.spawn(work, arguments, int(world))
