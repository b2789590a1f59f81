"""Runs the services of a released compose file (docs/install/host.md) without a container engine, for tools/test/release.py: compose.py ARCHIVE IMAGES FORM [VOLUME].

ARCHIVE is the unpacked archive for a host. IMAGES has the unpacked root folder of the simulated model server's image, which stands for vLLM, as NAME-amd64. Services have the
commands, users and volumes of the compose file; this machine and the Envoy of `make tools` stand for Envoy's image. All of them share one network, as the agent and Envoy do.
VOLUME is an unpacked image that is mounted for Envoy in the place of the archive, as a pod mounts the image of the native module. Runs in a network, a table of mounts and a
tree of processes of its own.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

import yaml

from polling import DEADLINE_SECONDS, get, until
from run import ROOT

USER = "65532:65532"


def fail(reason, logs):
    """Ends the test with the reason and the end of each log."""
    texts = "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-2000:]}" for log in sorted(logs.glob("*.log")))
    sys.exit(f"test-compose: {reason}\n{texts}")


def mount(*arguments):
    """Mounts, or changes a mount."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


class Services:
    """The compose file's services as processes, each in a root folder of its own."""

    def __init__(self, archive, images, form, volume, scratch):
        self.archive, self.images, self.form, self.volume, self.scratch = archive, images, form, volume, scratch
        self.services = yaml.safe_load((archive / "compose.yaml").read_text())["services"]
        self.servers = {name: f"127.0.1.{number}" for number, name in enumerate(sorted(name for name in self.services if name.startswith("vllm-")), 1)}
        self.volumes = {"endpoints": scratch / "endpoints"}
        self.volumes["endpoints"].mkdir()
        mount("-t", "tmpfs", "-o", "uid=65532,gid=65532,mode=0755", "tmpfs", self.volumes["endpoints"])
        self.hosts = scratch / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in self.servers.items()))
        (scratch / "resolv.conf").write_text("nameserver 127.0.0.1\n")

    def place(self, root, source, target, is_read_only):
        """Mounts a file or folder into a root folder."""
        path = root / target.lstrip("/")
        if source.is_dir():
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        mount("--bind", source, path)
        if is_read_only:
            mount("-o", "remount,bind,ro", path)

    def place_volumes(self, root, name):
        """Mounts the volumes of a service, and the names of the servers."""
        self.place(root, self.hosts, "/etc/hosts", is_read_only=True)
        self.place(root, self.scratch / "resolv.conf", "/etc/resolv.conf", is_read_only=True)
        for text in self.services[name].get("volumes", []):
            source, target, *mode = text.replace("${FORM:-wasm}", self.form).split(":")
            path = self.volumes.get(source) or self.archive / source
            if source == "." and name == "envoy" and self.volume:
                path = self.volume
            self.place(root, path, target, is_read_only=mode == ["ro"])

    def root_of(self, name):
        """A root folder of a service in Envoy's image: Envoy and the libraries of this machine, and its volumes."""
        if (user := self.services[name]["user"]) != USER:
            fail(f"{name} runs as {user}", self.scratch)
        root = self.scratch / name
        for folder in ("usr", "lib", "lib64", "dev"):
            (root / folder).mkdir(parents=True)
            mount("--rbind", f"/{folder}", root / folder)
        # Envoys of one machine would share it.
        mount("-t", "tmpfs", "tmpfs", root / "dev/shm")
        (root / "proc").mkdir()
        mount("-t", "proc", "proc", root / "proc")
        self.place(root, (ROOT / ".tools/bin/envoy").resolve(), "/envoy", is_read_only=True)
        self.place_volumes(root, name)
        return root

    def start(self, name, root, *command):
        """Starts a program of a root folder; its log is readable for it, because Envoy opens /dev/stdout."""
        path = self.scratch / f"{name}.log"
        with path.open("w") as log:
            path.chmod(0o666)
            subprocess.Popen(["chroot", f"--userspec={USER}", root, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def run_all(self):
        """Starts the services in the order of the file; returns the root folder of the agent."""
        for name, address in self.servers.items():
            root = self.images / "endpoint-picker-model-server-amd64"
            self.start(name, root, "/usr/local/bin/endpoint-picker-model-server", f"--listen={address}:8000", f"--name={name}")
        agent, envoy = self.services["agent"], self.services["envoy"]
        root = self.root_of("agent")
        self.start("agent", root, *agent["entrypoint"], *agent["command"])
        self.until("the agent is healthy", lambda: self.inside(root, *agent["healthcheck"]["test"][1:]).returncode == 0)
        self.start("envoy", self.root_of("envoy"), "/envoy", *envoy["command"])
        return root

    def inside(self, root, *command):
        """Runs a program of a root folder to its end."""
        return subprocess.run(["chroot", f"--userspec={USER}", root, *command], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=DEADLINE_SECONDS, check=False)

    def until(self, text, holds):
        """Waits until it holds; a failure has the logs."""
        until(text, holds, lambda reason: fail(reason, self.scratch))


def is_picked():
    """Whether a request through Envoy is served, and was picked by the filter."""
    get("http://localhost:10000/v1/models")
    get("http://localhost:10000/v1/chat/completions", {"model": "demo-model", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]})
    return re.search(r"endpoint_picker.*routed.*: [1-9]", get("http://127.0.0.1:9901/stats"))


def main():
    """Runs the services until a request is picked and doctor finds nothing."""
    archive, images, form = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    volume = pathlib.Path(sys.argv[4]) if sys.argv[4:] else None
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # The caller removes it, empty: the mounts end with this process.
    scratch = pathlib.Path(tempfile.mkdtemp(dir=images))
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", scratch)
    services = Services(archive, images, form, volume, scratch)
    began = time.monotonic()
    agent = services.run_all()
    services.until("a request is picked", is_picked)
    seconds = time.monotonic() - began
    doctor = services.inside(agent, *services.services["agent"]["entrypoint"], "doctor", "--envoy-admin", "127.0.0.1:9901")
    if doctor.returncode != 0:
        fail(f"doctor: {doctor.stdout}{doctor.stderr}", scratch)
    module = f"the module of {volume.name}" if volume else "the archive's module"
    print(f"test-release: compose.yaml with FORM={form} and {module}: a request was picked after {seconds:.1f} s, and doctor finds nothing")


main()
