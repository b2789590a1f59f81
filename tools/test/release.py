"""Tests of a release's files, for tools/test/release: release.py FOLDER."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.request

import yaml

import layouts
from run import PROGRAMS, ROOT, version

VERSION = version()
START_SECONDS = 30
PREFIX = "org.opencontainers.image"
# Types of layers from which Envoy Gateway and Istio take a wasm module.
LAYERS = {"application/vnd.docker.image.rootfs.diff.tar.gzip", "application/vnd.oci.image.layer.v1.tar+gzip"}


def run(*command, expected=0, **options):
    """The standard output of a program that ends with this code, and for a failure its errors."""
    done = subprocess.run([*map(str, command)], capture_output=True, stdin=subprocess.DEVNULL, check=False, **options)
    output = done.stdout.decode(errors="replace")
    if done.returncode != expected:
        sys.exit(f"test-release: {' '.join(map(str, command))} ended with {done.returncode}:\n{output}{done.stderr.decode(errors='replace')}")
    return output + (done.stderr.decode(errors="replace") if expected else "")


def check(condition, text):
    """Ends the test with the text where the condition does not hold."""
    if not condition:
        sys.exit(f"test-release: {text}")


def key_pair(folder):
    """A new key without a password: the secret and the public one."""
    secret, public = folder / "minisign.key", folder / "minisign.pub"
    run("minisign", "-G", "-W", "-s", secret, "-p", public)
    return secret, public


def flip(path):
    """Changes one bit in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        [byte] = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def verify(public, folder, expected=0):
    """What tools/release/verify prints."""
    return run(ROOT / "tools/release/verify", public, folder, expected=expected)


def test_signature(dist, scratch):
    """A release verifies with the public key; not with another, nor with one bit, file or sum changed."""
    secret, public = key_pair(scratch)
    folder = scratch / "signed"
    shutil.copytree(dist, folder)
    (folder / "SHA256SUMS.minisig").unlink(missing_ok=True)
    verify(public, folder, expected=1)
    run("minisign", "-S", "-s", secret, "-m", folder / "SHA256SUMS")
    verify(public, folder)
    files = sorted(folder.iterdir())
    for path in files:
        flip(path)
        reason = verify(public, folder, expected=1)
        check(path.name in reason or path.name == "SHA256SUMS.minisig", f"the refusal of a changed {path.name} does not name it: {reason}")
        flip(path)
    moved = folder / "moved"
    for path in files:
        path.rename(moved)
        verify(public, folder, expected=1)
        moved.rename(path)
    (folder / "extra").write_text("not released")
    check("extra" in verify(public, folder, expected=1), "a foreign file is not named")
    (folder / "extra").unlink()
    (other := scratch / "other").mkdir()
    verify(key_pair(other)[1], folder, expected=1)
    verify(public, folder)
    print(f"test-release: {len(files)} files verify, and none with a flipped bit")
    return public, folder


@contextlib.contextmanager
def process(*command):
    """A running program with its lines of standard output. It is killed after START_SECONDS, so that reading them ends."""
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as started:
        deadline = threading.Timer(START_SECONDS, started.kill)
        deadline.start()
        try:
            yield started.stdout
        finally:
            deadline.cancel()
            started.terminate()


def in_image(root, platform, program, *arguments):
    """A command of an unpacked image as the image's user, in its root folder; for another architecture in QEMU, which has no root folder of its own."""
    if platform == "amd64":
        return "chroot", "--userspec=65532:65532", root, program, *arguments
    return "setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "qemu-aarch64", f"{root}{program}", *arguments


def unpacked(reference, platform, folder):
    """The files of a pulled image."""
    archive = folder.with_suffix(".tar")
    run(layouts.CRANE, "export", f"--platform=linux/{platform}", reference, archive)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="tar")
    return folder


def platforms(reference):
    """The architectures of an image's index."""
    manifest = json.loads(run(layouts.CRANE, "manifest", reference))
    return [entry["platform"]["architecture"] for entry in manifest["manifests"]]


def check_config(reference, platform, name):
    """The labels, the user and the entry point of an image."""
    config = json.loads(run(layouts.CRANE, "config", f"--platform=linux/{platform}", reference))
    check(config["architecture"] == platform, f"{reference}: {config['architecture']} in place of {platform}")
    labels = config["config"]["Labels"]
    expected = {f"{PREFIX}.title": name, f"{PREFIX}.version": VERSION, f"{PREFIX}.licenses": "Apache-2.0"}
    check(expected.items() <= labels.items() and len(labels[f"{PREFIX}.revision"]) >= 40, f"{reference} has the labels {labels}")
    check(config["config"]["Env"] == [layouts.PATH], f"{reference} has the environment {config['config']['Env']}")
    if name != "endpoint-picker-wasm":
        check(config["config"]["User"] == "65532:65532" and config["config"]["Entrypoint"], f"{reference} runs as {config['config']}")


def test_agent(root, platform):
    """The agent of an unpacked image runs, without any other file, and shows its version."""
    program = "/usr/local/bin/metrics-agent"
    check(VERSION in run(*in_image(root, platform, program, "--version")), "the agent has another version")
    command = in_image(root, platform, program, "--listen=127.0.0.1:0", "--endpoint=127.0.0.1:1")
    with process(*command) as lines:
        address = next((line.rsplit(maxsplit=1)[1] for line in lines if line.startswith("listening on ")), None)
        check(address, f"the agent for {platform} does not listen")
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=START_SECONDS) as response:
            metrics = response.read().decode()
    check(f'metrics_agent_build_info{{version="{VERSION}"}} 1' in metrics, f"the agent has {metrics}")


def test_native(root, platform, released):
    """An init container copies the module of an unpacked image, which is the released file."""
    check((root / "libendpoint_picker.so").read_bytes() == released.read_bytes(), "the image has another module than the release")
    # In QEMU it would read the root folder of this machine.
    if platform == "amd64":
        volume = root / "volume"
        volume.mkdir()
        os.chown(volume, 65532, 65532)
        run(*in_image(root, platform, "/install-module", "/volume"))
        check((volume / "libendpoint_picker.so").read_bytes() == released.read_bytes(), "the init container copied something else")


def test_wasm(reference, platform, root, released):
    """The last layer is of a type that gateways read, and has the released module as plugin.wasm."""
    manifest = json.loads(run(layouts.CRANE, "manifest", f"--platform=linux/{platform}", reference))
    check(manifest["layers"][-1]["mediaType"] in LAYERS, f"{reference} has {manifest}")
    check((root / "plugin.wasm").read_bytes() == released.read_bytes(), "the image has another module than the release")


def test_images(dist, scratch, address):
    """Every image, pulled from the registry and unpacked, has the files of the release."""
    names = {platform: architecture for architecture, platform in layouts.ARCHITECTURES.items()}
    for archive in sorted(dist.glob("*.oci.tar")):
        name = archive.name.removesuffix(f"-{VERSION}.oci.tar")
        reference = f"{address}/{name}:{VERSION}"
        built = [names[platform] for platform in platforms(reference)]
        check(all((dist / f"metrics-agent-{VERSION}-{architecture}-linux-musl").exists() for architecture in built), f"{name} is for {built}")
        for platform in platforms(reference):
            check_config(reference, platform, name)
            root = unpacked(reference, platform, scratch / f"{name}-{platform}")
            if name == "endpoint-picker-wasm":
                test_wasm(reference, platform, root, dist / f"endpoint_picker-{VERSION}.wasm")
            elif name == "endpoint-picker-native":
                test_native(root, platform, dist / f"libendpoint_picker-{VERSION}-{names[platform]}-linux-gnu.so")
            elif name == "metrics-agent":
                test_agent(root, platform)
            else:
                check(VERSION in run(*in_image(root, platform, f"/usr/local/bin/{name}", "--version")), f"{name} has another version")
        print(f"test-release: {name} for {', '.join(platforms(reference))} was published, pulled and unpacked")


def test_host_archives(dist, scratch):
    """The archive for a host has every file that its configurations and its compose file name."""
    module_folder, run_folder = f"/opt/endpoint-picker/{VERSION}", "/run/endpoint-picker"
    for archive in sorted(dist.glob("*-linux.tar.gz")):
        with tarfile.open(archive) as files:
            files.extractall(scratch / "hosts", filter="data")
        top = scratch / "hosts" / archive.name.removesuffix(".tar.gz")
        configurations = [*top.glob("*envoy*.yaml"), *top.glob("examples/*.yaml")]
        check(len(configurations) >= 4, f"{archive} has {configurations}")
        for configuration in configurations:
            text = configuration.read_text()
            foreign = [name for name in ("target/", ".tools/", "make build") if name in text]
            check(not foreign, f"{configuration} names {foreign}, which only the repository has")
            paths = re.findall(rf"{module_folder}/([\w.-]+)", text)
            check(paths and all((top / path).is_file() for path in paths), f"{configuration} names {paths}")
        check(f"{run_folder}/" in (top / "envoy.yaml").read_text(), "envoy.yaml has the endpoints from another file than the agent's")
        compose = yaml.safe_load((top / "compose.yaml").read_text())
        for form in ("wasm", "native"):
            volumes = [volume.replace("${FORM:-wasm}", form) for service in compose["services"].values() for volume in service.get("volumes", [])]
            sources = [volume.split(":")[0] for volume in volumes if volume.startswith(".")]
            check(len(sources) == 3 and all((top / source).exists() for source in sources), f"compose.yaml mounts {sources}")
        print(f"test-release: {archive.name} has what its {len(configurations)} configurations name")


def test_compose(scratch):
    """The services of the archive's compose file serve requests with the programs of the images, and with the native module from an image volume."""
    archive = scratch / f"hosts/endpoint-picker-{VERSION}-x86_64-linux"
    for form, volume in (("wasm", None), ("native", None), ("native", scratch / "endpoint-picker-native-amd64")):
        apart = ["unshare", "--net", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child"]
        modules = [volume] if volume else []
        print(run(*apart, sys.executable, ROOT / "tools/test/compose.py", archive, scratch, form, *modules), end="")


def test_chart(address):
    """The chart of the registry renders, and names its own version."""
    rendered = run(PROGRAMS / "helm", "template", "release", f"oci://{address}/charts/endpoint-picker", "--plain-http", "--version", VERSION)
    images = {container["image"] for item in yaml.safe_load_all(rendered) if item["kind"] == "Deployment" for container in item["spec"]["template"]["spec"]["containers"]}
    check(images == {f"metrics-agent:{VERSION}"}, f"the chart runs {images}")
    print(f"test-release: the chart was published, pulled and rendered; it runs {', '.join(images)}")


def main():
    """Runs all tests."""
    check(os.geteuid() == 0, "must run as root, which may change the root folder of a program")
    dist = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        scratch.chmod(0o755)
        public, signed = test_signature(dist, scratch)
        test_host_archives(dist, scratch)
        (data := scratch / "registry").mkdir()
        with layouts.registry(data) as address:
            flags = {"REGISTRY": f"{address}/inference", "PUBLIC_KEY": str(public), "FOLDER": str(signed)}
            run(ROOT / "tools/release/publish", env=os.environ | flags)
            test_images(dist, scratch, f"{address}/inference")
            test_compose(scratch)
            test_chart(f"{address}/inference")


main()
