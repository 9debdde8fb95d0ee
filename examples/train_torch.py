"""A small model that trains under torchrun on as many processes as there are, and goes on with another number of them.

    srun torchrun --nnodes=1:4 --nproc_per_node=1 train_torch.py --steps 400

Each process takes its share of one batch, of the same size on any number of processes; which samples a step sees
depends on its number alone. So the learning rate stays as it is, and losses agree to the digits that sums in another
order leave. A file STOP makes all processes stop after the same step, with what torchrun needs to go on in train.pt.
What is done is told in train.log: `step N of M`, then `stopped after step N` or `done at step M loss L`.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

SEED, FEATURES, BATCH = 31, 16, 96


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of a step, the same wherever they are made."""
    made = torch.Generator().manual_seed(SEED * 1_000_003 + step)
    x = torch.rand(BATCH, FEATURES, generator=made, dtype=torch.float64)
    return x, torch.sin(3 * x).sum(1, keepdim=True)


def model() -> torch.nn.Module:
    torch.manual_seed(SEED)
    layers = torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    return torch.nn.Sequential(*layers).double()


def train_step(net: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int, world: int) -> float:
    """One step on this process's share; the loss of the whole batch."""
    x, y = batch(step)
    optimizer.zero_grad()
    loss = ((net(x[rank::world]) - y[rank::world]) ** 2).sum() / BATCH
    loss.backward()
    whole = loss.detach().clone()
    for one in (whole, *(parameter.grad for parameter in net.parameters())):
        dist.all_reduce(one)
    optimizer.step()
    return float(whole)


def agreed(flag: bool) -> bool:
    """Whether any process says so: all have to stop after the same step."""
    told = torch.tensor(float(flag))
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told > 0)


def save(file: Path, state: dict[str, object]) -> None:
    """Whole or not at all."""
    begun = file.with_suffix(".begun")
    with begun.open("wb") as out:
        torch.save(state, out)
        out.flush()
        os.fsync(out.fileno())
    begun.rename(file)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--steps", type=int, default=400)
    asked.add_argument("--every", type=int, default=20, help="steps from one checkpoint to the next")
    asked.add_argument("--pace", type=float, default=0.0, help="seconds that a step of one process waits, for trials")
    given = asked.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    file, stop, first, loss = Path("train.pt"), Path("STOP"), 0, float("nan")
    if file.exists():
        state = torch.load(file)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, loss = state["step"], state["loss"]

    def tell(text: str) -> None:
        if rank == 0:
            with Path("train.log").open("a") as log:
                print(text, file=log)

    def keep(step: int) -> None:
        if rank == 0:
            save(
                file,
                {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "loss": loss},
            )
        dist.barrier()

    tell(f"from step {first} with {world} processes")
    for step in range(first + 1, given.steps + 1):
        loss = train_step(net, optimizer, step, rank, world)
        time.sleep(given.pace / world)
        tell(f"step {step} of {given.steps} loss {loss:.10f}")
        stopped = agreed(stop.exists()) and step < given.steps
        if stopped or step % given.every == 0 or step == given.steps:
            keep(step)
        if stopped:
            tell(f"stopped after step {step}")
            return
    tell(f"done at step {given.steps} loss {loss:.10f}")


if __name__ == "__main__":
    main()
