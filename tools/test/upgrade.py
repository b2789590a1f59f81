"""The upgrade under load of tools/test/upgrade: upgrade.py TARGET NEXT, the folders in which cargo has built both versions. Runs in a network of its own."""

import contextlib
import http.client
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

import polling
from polling import DEADLINE_SECONDS, get

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = 4
# More polls of the agent than a filter counts late: it polls a failing agent every 200 ms, and counts once a second.
POLLS = 10
MODULES = {"wasm": "wasm32-wasip1/wasm/endpoint_picker_wasm.wasm", "native": "native/libendpoint_picker_native.so"}
CONFIGURATIONS = {"wasm": ("envoy.yaml", "target/endpoint_picker.wasm"), "native": ("envoy-native.yaml", "target/libendpoint_picker.so")}
SERVERS = ["127.0.0.2:8000", "127.0.0.3:8000", "127.0.0.4:8000"]


def until(text, holds):
    """Waits until it holds; a failure ends the test."""
    polling.until(text, holds, lambda reason: sys.exit(f"test-upgrade: {reason}"))


class Load:
    """Clients that send requests without a pause, each over a connection that it keeps."""

    def __init__(self):
        self.answered, self.failures, self._is_over = 0, [], threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,), daemon=True) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _send(self, number):
        connection, count = None, 0
        while not self._is_over.is_set():
            count += 1
            body = json.dumps({"model": "demo-model", "max_tokens": 1, "messages": [{"role": "user", "content": f"{number} {count} " + "again " * 50}]})
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", 10000, timeout=30)
                connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
                response = connection.getresponse()
                text = response.read()
                if response.status == 200:
                    self.answered += 1
                else:
                    self.failures.append(f"{response.status} {text[:200]}")
                # Envoy announces the end of a connection that it drains.
                if response.getheader("connection") == "close":
                    connection.close()
                    connection = None
            except (OSError, http.client.HTTPException) as failed:
                self.failures.append(repr(failed))
                connection = None

    def continues(self):
        """Waits for 20 times as many responses as there are clients."""
        before = self.answered
        until("the load continues", lambda: self.answered >= before + 20 * CLIENTS)

    def stop(self):
        """Ends it; all requests must have had a response."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()


class Host:
    """The agent and Envoy of a host, each of one of two versions."""

    def __init__(self, form, folder, targets):
        self.form, self.folder, self.targets = form, folder, targets
        self.agent, self.envoy, self.epoch, self.stack = None, None, 0, contextlib.ExitStack()

    def start(self, name, command):
        """Starts a program, whose log is in the folder."""
        log = self.stack.enter_context((self.folder / f"{name}.log").open("w"))
        process = subprocess.Popen([*map(str, command)], stdout=log, stderr=log, cwd=self.folder)
        self.stack.callback(process.kill)
        return process

    def agent_of(self, version):
        """Replaces the agent as `systemctl restart` does: SIGTERM, its end, the new one."""
        if self.agent:
            self.agent.terminate()
            self.agent.wait(DEADLINE_SECONDS)
        flags = [f"--endpoint={server}" for server in SERVERS]
        flags += ["--eds-cluster=model-servers", f"--eds-file={self.folder}/target/run/model-servers.yaml"]
        self.agent = self.start(f"agent-{version}-{self.epoch}", [self.targets[version] / "debug/metrics-agent", *flags])
        until(f"the agent {version} is ready", lambda: get("http://127.0.0.1:9095/readyz") is not None)

    def envoy_of(self, version):
        """Replaces Envoy by one with the module of this version, by a hot restart."""
        file, module = CONFIGURATIONS[self.form]
        text = (ROOT / file).read_text().replace(module, str(self.targets[version] / MODULES[self.form]))
        config = self.folder / f"envoy-{version}.yaml"
        config.write_text(text)
        before = self.envoy
        command = [ROOT / ".tools/bin/envoy", "-c", config, "--restart-epoch", self.epoch, "--base-id", 77, "--concurrency", 2]
        command += ["--parent-shutdown-time-s", 4, "--drain-time-s", 2, "--drain-strategy", "immediate", "--log-level", "warning"]
        self.envoy = self.start(f"envoy-{version}-{self.epoch}", command)
        self.epoch += 1
        if before:
            until("the Envoy before has ended", lambda: before.poll() is not None)
        until("Envoy is ready", lambda: "LIVE" in get("http://127.0.0.1:9901/ready"))

    def statistic(self, pattern):
        """The sum of the filter's statistics whose names match."""
        lines = get("http://127.0.0.1:9901/stats").splitlines()
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines if re.search(f"endpoint_picker.*{pattern}.*: [0-9]+$", line))

    def until_polled(self, text, pattern):
        """Waits until the filter has counted further polls: Envoy keeps the counts of the process before a hot restart."""
        enough = self.statistic(pattern) + POLLS
        until(text, lambda: self.statistic(pattern) >= enough)


def upgrade(form, targets):
    """Upgrades and rolls back one form of the filter."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "target/run").mkdir(parents=True)
        host = Host(form, folder, targets)
        with host.stack:
            for server in SERVERS:
                host.start(f"server-{server}", [targets["this"] / "debug/endpoint-picker-model-server", f"--listen={server}", f"--name={server}"])
            host.agent_of("this")
            host.envoy_of("this")
            until("a request is picked", lambda: get("http://127.0.0.1:10000/v1/models") and host.statistic("routed"))
            load = Load()
            load.continues()
            # The agent first, then Envoy; and back in the same order, so that each form meets an agent of the other format, with and without a snapshot before.
            for agent, envoy in (("next", "next"), ("this", "this")):
                host.agent_of(agent)
                host.until_polled("the filter notices the other format", "snapshot_failures")
                load.continues()
                host.envoy_of(envoy)
                load.continues()
                host.until_polled("the filter takes the agent's snapshots", "snapshots")
            host.envoy_of("next")
            load.continues()
            host.until_polled("a filter without a snapshot notices the other format", "snapshot_failures")
            host.agent_of("next")
            host.until_polled("the filter takes the agent's snapshots", "snapshots")
            load.continues()
            load.stop()
            if load.failures:
                logs = "\n".join(file.read_text()[-2000:] for file in sorted(folder.glob("*.log")))
                sys.exit(f"test-upgrade: {form}: {len(load.failures)} of {load.answered} requests failed: {load.failures[:5]}\n{logs}")
            print(f"test-upgrade: {form}: agent and Envoy upgraded twice and rolled back once under load: {load.answered} requests, 0 failed")


def main():
    """Runs both forms."""
    targets = {name: pathlib.Path(path).resolve() for name, path in zip(("this", "next"), sys.argv[1:3], strict=True)}
    for form in MODULES:
        upgrade(form, targets)


main()
