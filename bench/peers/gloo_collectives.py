"""The Gloo half of `weft bench run collectives`, through torch.distributed: each rank
reads commands from a FIFO; rank 0 answers with seconds an operation.
Usage: gloo_collectives.py RANK RANKS STORE COMMAND_FIFO_PREFIX REPLY_FIFO MAX_BYTES"""

import os
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch
import torch.distributed as dist


def main():
    rank, ranks = int(sys.argv[1]), int(sys.argv[2])
    store, commands, reply, max_bytes = sys.argv[3], sys.argv[4], sys.argv[5], int(sys.argv[6])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    whole_in, whole_out = torch.zeros(max_bytes // 4 + 16), torch.zeros(max_bytes // 4 + 16)
    dist.barrier()
    lines = open(f"{commands}{rank}", encoding="utf-8")
    replies = None
    if rank == 0:
        replies = open(reply, "w", encoding="utf-8")
        replies.write("ready\n")
        replies.flush()
    for line in lines:
        op, size, iterations = line.split()
        count, iterations = int(size) // 4, int(iterations)
        part = count // ranks
        data, out = whole_in[:count], whole_out[:count]
        pieces = [whole_out[r * part:(r + 1) * part] for r in range(ranks)]
        run = {
            "allreduce": lambda: dist.all_reduce(data),
            "allgather": lambda: dist.all_gather(pieces, whole_in[:part]),
            "reducescatter": lambda: dist.reduce_scatter_tensor(
                whole_out[:part], whole_in[:part * ranks]),
            "broadcast": lambda: dist.broadcast(out, 0),
            "alltoall": lambda: dist.all_to_all_single(
                whole_out[:part * ranks], whole_in[:part * ranks]),
        }[op]
        supported = True
        start = 0.0
        try:
            for i in range(-2, iterations):
                if i == 0:
                    dist.barrier()
                    start = time.perf_counter()
                run()
            dist.barrier()
        except (RuntimeError, NotImplementedError):
            supported = False
        if rank == 0:
            seconds = (time.perf_counter() - start) / iterations if supported else -1
            replies.write(f"{seconds:.9e}\n")
            replies.flush()


main()
