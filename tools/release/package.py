"""Makes the files of a release from built programs and modules, for tools/release/dist: package.py STAGE TARGET ARCHITECTURE…

STAGE has a folder for each architecture, with the programs for it, and the files for all architectures. TARGET gets the files of the release.
"""

import argparse
import pathlib
import shutil
import tempfile

import archives
import layouts
import provenance
import sboms
from release import Release, Stage
from run import CHART, ROOT, run


def modules_and_agents(stage, release):
    """The single files, by their names in the release."""
    files = {f"endpoint_picker-{release.version}.wasm": stage.folder / "plugin.wasm"}
    for architecture in release.architectures:
        files[f"libendpoint_picker-{release.version}-{architecture}-linux-gnu.so"] = stage.file("libendpoint_picker.so", architecture)
        files[f"metrics-agent-{release.version}-{architecture}-linux-musl"] = stage.file("metrics-agent", architecture)
        if architecture == "x86_64":
            files[f"libendpoint_picker-{release.version}-{architecture}-linux-gnu.profdata"] = stage.file("libendpoint_picker.profdata", architecture)
    return files


def installed(text, release):
    """A configuration of Envoy with the paths of an installed release: its own begin at the repository."""
    folder = f"/opt/endpoint-picker/{release.version}"
    for path, target in {
        "target/endpoint_picker.wasm": f"{folder}/endpoint_picker.wasm",
        "target/libendpoint_picker.so": f"{folder}/libendpoint_picker.so",
        "target/run": "/run/endpoint-picker",
        "target/debug/": "",
        ".tools/bin/": "",
    }.items():
        text = text.replace(path, target)
    return text.encode()


def host(stage, release, architecture):
    """The archive for a host without Kubernetes."""
    files = {name: stage.file(name, architecture) for name in ("metrics-agent", "libendpoint_picker.so")}
    files["endpoint_picker.wasm"] = stage.folder / "plugin.wasm"
    files["metrics-agent.service"] = ROOT / "examples/systemd/metrics-agent.service"
    files["compose.yaml"] = ROOT / "examples/compose/compose.yaml"
    files["expected-latency.yaml"] = ROOT / "examples/choosing/expected-latency.yaml"
    files["LICENSE"] = ROOT / "LICENSE"
    for name in ("envoy.yaml", "envoy-native.yaml"):
        files[name] = installed((ROOT / name).read_text(), release)
    for path in sorted((stage.folder / "examples").iterdir()):
        files[f"examples/{path.name}"] = installed(path.read_text(), release)
    top = f"endpoint-picker-{release.version}-{architecture}-linux"
    return archives.compressed(archives.tar({f"{top}/{path}": source for path, source in files.items()}, release.epoch))


def chart(release):
    """The chart's package, packed again without the times of its files."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run("helm", "package", CHART, "--destination", folder)
        (package,) = folder.glob("*.tgz")
        shutil.unpack_archive(package, folder / "files")
        return archives.compressed(archives.tar(archives.folder(folder / "files"), release.epoch))


def manifests(release):
    """The rendered objects, for an installation without Helm."""
    top = f"endpoint-picker-{release.version}-manifests/"
    return archives.compressed(archives.tar(archives.folder(ROOT / "deploy/rendered", top), release.epoch))


def write_files(stage, release, target):
    """Writes the single files and the archives for hosts."""
    for name, file in modules_and_agents(stage, release).items():
        shutil.copy(file, target / name)
    for architecture in release.architectures:
        (target / f"endpoint-picker-{release.version}-{architecture}-linux.tar.gz").write_bytes(host(stage, release, architecture))


def write_chart(release, target):
    """Writes the chart and the rendered objects."""
    (target / f"endpoint-picker-{release.version}.tgz").write_bytes(chart(release))
    (target / f"endpoint-picker-{release.version}-manifests.tar.gz").write_bytes(manifests(release))


def main():
    """Writes all files of a release."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("stage", type=pathlib.Path)
    arguments.add_argument("target", type=pathlib.Path)
    arguments.add_argument("architectures", nargs="+", choices=layouts.ARCHITECTURES)
    flags = arguments.parse_args()
    release = Release.of_checkout(flags.architectures)
    stage, target = Stage(flags.stage), flags.target
    write_files(stage, release, target)
    write_chart(release, target)
    layouts.write(stage, release, target)
    sboms.write(release, target)
    # Last: the provenance names all files, and the sums are of the provenance too.
    provenance.write(release, target)


main()
