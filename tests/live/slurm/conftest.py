"""A Slurm cluster with one node and without systemd: Debian's daemons are child processes, with all files in one folder."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_CONF = """\
ClusterName=toolemu
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=2000 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_PATIENCE = 300.0
_COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")


@dataclass(frozen=True)
class Cluster:
    """The running cluster; ``SLURM_CONF`` names its configuration."""

    folder: Path

    def __call__(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def job(self, job: str) -> dict[str, str]:
        """Return the properties that Slurm reports for a job, or for a task such as ``7_3``."""
        return dict(re.findall(r"(\w+)=(\S*)", self("scontrol", "show", "job", job)))

    def until(self, holds: object, what: str) -> None:
        """Poll until a condition on another process holds; fail after the time limit."""
        assert callable(holds)
        end = time.monotonic() + _PATIENCE
        while not holds():
            if time.monotonic() > end:
                pytest.fail(f"{what} did not happen within {_PATIENCE:g} s:\n{self('squeue')}")
            time.sleep(0.2)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start the cluster before the first test; stop it after the last, even after a failure."""
    missing = [name for name in _COMMANDS if shutil.which(name) is None and not Path("/usr/sbin", name).exists()]
    if missing or os.geteuid() != 0:
        pytest.fail(f"needs root and {', '.join(missing) or 'nothing else'}: apt-get install slurm-wlm munge")
    folder = tmp_path_factory.mktemp("cluster")
    host, cpus = socket.gethostname().partition(".")[0], max(2, os.cpu_count() or 2)
    controller, node = _free_ports(2)
    conf = folder / "slurm.conf"
    conf.write_text(_CONF.format(host=host, controller=controller, node=node, folder=folder, cpus=cpus))
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    environ = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    munged += [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    daemons: list[subprocess.Popen[bytes]] = []
    with pytest.MonkeyPatch.context() as patch, (folder / "daemons.log").open("w") as log:
        patch.setenv("SLURM_CONF", str(conf))
        running = Cluster(folder)
        try:
            for command in (munged, ["slurmctld", "-D", "-i"], ["slurmd", "-D"]):
                daemons.append(subprocess.Popen(command, env=environ, stdout=log, stderr=log))
                if command is munged:
                    running.until((folder / "munge.socket").exists, "munge")
            running.until(lambda: "idle" in _quiet("sinfo", "-h", "-o", "%T"), "an idle node")
            yield running
        finally:
            _quiet("scancel", "--full", "--signal=KILL", "--user=root")
            for daemon in reversed(daemons):
                daemon.terminate()
                try:
                    daemon.wait(10)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()


def _quiet(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
