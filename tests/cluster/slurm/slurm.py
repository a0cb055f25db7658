# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster of one node on this machine: munged, slurmctld and slurmd of a folder (fetch.sh), as root, all files in a
temporary folder."""
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PATIENCE = 120

CONFIG = """
ClusterName=test
SlurmctldHost=localhost
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
PluginDir={plugins}
PlugStackConfig={folder}/plugstack.conf
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
ReturnToService=2
SchedulerParameters=sched_min_interval=1000
KillWait=2
GresTypes=gpu,shard
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=1000 Gres=gpu:1,shard:8 State=UNKNOWN
PartitionName=all Nodes=n1 Default=YES State=UP MaxTime=10
"""


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise RuntimeError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.05)


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class Slurm:
    """root: the folder that fetch.sh made. plugstack: lines. environment: more for slurmd, and so for the plugin."""

    def __init__(self, root, plugstack, **environment):
        self.root, self.plugstack = root, plugstack
        self.folder = tempfile.mkdtemp(prefix="gs-slurm-")
        os.chmod(self.folder, 0o755)
        self.daemons = []
        self.plugins = glob.glob(os.path.join(root, "usr", "lib", "*", "slurm-wlm"))[0]
        self.libraries = ":".join([self.plugins, os.path.dirname(self.plugins)])
        for name in ("state", "spool"):
            os.mkdir(self.path(name))
        self.write("slurm.conf", CONFIG.format(folder=self.folder, plugins=self.plugins, ports=free_ports(2), host=socket.gethostname()))
        self.write("gres.conf", "NodeName=n1 Name=gpu File=/dev/null\nNodeName=n1 Name=shard Count=8\n")
        self.write("plugstack.conf", plugstack)
        with open(os.open(self.path("munge.key"), os.O_CREAT | os.O_WRONLY, 0o400), "wb") as key:
            key.write(os.urandom(128))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "GPUSHARE_", "SIMCUDA_"))}
        self.environment.update(SLURM_CONF=self.path("slurm.conf"), LD_LIBRARY_PATH=self.libraries)
        self.of_slurmd = dict(self.environment, **environment)
        self.of_slurmd["LD_LIBRARY_PATH"] = ":".join([self.libraries, environment.get("LD_LIBRARY_PATH", "")])

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="ascii") as file:
            file.write(text)

    def log(self, name="slurmd.log"):
        with open(self.path(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def start_daemon(self, words, environment):
        with open(self.path(os.path.basename(words[0]) + ".out"), "wb") as out:
            daemon = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        self.daemons.append(daemon)

    def __enter__(self):
        try:
            sbin = os.path.join(self.root, "usr", "sbin")
            self.start_daemon([os.path.join(sbin, "munged"), "--foreground", "--force", "--socket=" + self.path("munge.sock"),
                               "--key-file=" + self.path("munge.key"), "--pid-file=" + self.path("munged.pid"),
                               "--log-file=" + self.path("munged.log"), "--seed-file=" + self.path("munged.seed")], self.environment)
            wait_for(lambda: os.path.exists(self.path("munge.sock")), "munged")
            self.start_daemon([os.path.join(sbin, "slurmctld"), "-D", "-c"], self.environment)
            self.start_daemon([os.path.join(sbin, "slurmd"), "-D", "-N", "n1", "-d", os.path.join(sbin, "slurmstepd")], self.of_slurmd)
            wait_for(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T").stdout.split(), "an idle node")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, name, *words):
        return [os.path.join(self.root, "usr", "bin", name), *words]

    def run(self, name, *words, **more):
        return subprocess.run(self.command(name, *words), env=dict(self.environment, **more), capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def start(self, name, *words, **more):
        return subprocess.Popen(self.command(name, *words), env=dict(self.environment, **more), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def records(self, number):
        """What the plugin has written into the job's AdminComment: [(node, figures)]."""
        shown = self.run("scontrol", "-o", "show", "job", str(number)).stdout
        return [(node, json.loads(figures)) for node, figures in re.findall(r"gpushare@(\S+?)=(\{.*?\})", shown)]
