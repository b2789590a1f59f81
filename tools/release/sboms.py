"""A CycloneDX list of the packages in each program and module, by cargo-cyclonedx."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import provenance
from run import ROOT

TOOL = ROOT / ".tools/bin/cargo-cyclonedx"
# For a target of Rust, the folder of each package and the file of the release that is built of it. The packages in an image are those of its program.
FILES = {
    "{}-unknown-linux-gnu": {"filter/native": "libendpoint_picker-{version}-{}-linux-gnu.so"},
    "{}-unknown-linux-musl": {"metrics-agent": "metrics-agent-{version}-{}-linux-musl"},
    "wasm32-wasip1": {"filter/wasm": "endpoint_picker-{version}.wasm"},
}
IMAGES = {
    "x86_64-unknown-linux-gnu": {"filter/native": "endpoint-picker-native-{version}.oci.tar"},
    "x86_64-unknown-linux-musl": {"metrics-agent": "metrics-agent-{version}.oci.tar", "tests/model-server": "endpoint-picker-model-server-{version}.oci.tar"},
    "wasm32-wasip1": {"filter/wasm": "endpoint-picker-wasm-{version}.oci.tar"},
}
NAME = "sbom"


def copy_of_sources(folder):
    """A copy of the sources: the tool writes next to the manifests of all packages of a workspace."""
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)


def list_packages(sources, release, target):
    """Writes the lists of all packages of the workspace for a target of Rust."""
    command = [TOOL, "cyclonedx", "--quiet", "--format=json", "--spec-version=1.5", "--no-build-deps", f"--target={target}", f"--override-filename={NAME}"]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(release.epoch)}
    subprocess.run(command, cwd=sources, env=environment, check=True, stdin=subprocess.DEVNULL)


def described(text, sources, release, file):
    """The list of a package as the list of the file that is built of it; paths begin at the repository."""
    sbom = json.loads(text.replace(f"file://{sources}/", "file://"))
    component = sbom["metadata"]["component"]
    component["name"], component["version"] = file.name, release.version
    component["hashes"] = [{"alg": "SHA-256", "content": provenance.sum_of(file)}]
    return json.dumps(sbom, indent=2) + "\n"


def write(release, target):
    """Writes a list for each program, module and image of the folder `target`."""
    files = {}
    for architecture in release.architectures:
        for rust_target, packages in [*FILES.items(), *IMAGES.items()]:
            named = files.setdefault(rust_target.format(architecture), {})
            for package, name in packages.items():
                named[target / name.format(architecture, version=release.version)] = package
    with tempfile.TemporaryDirectory() as folder:
        sources = pathlib.Path(folder).resolve()
        copy_of_sources(sources)
        for rust_target, packages in files.items():
            list_packages(sources, release, rust_target)
            for file, package in packages.items():
                text = (sources / package / f"{NAME}.json").read_text()
                (target / f"{file.name}.cdx.json").write_text(described(text, sources, release, file))
