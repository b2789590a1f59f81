"""How a release was built, as an in-toto statement with SLSA's predicate, and the sums of all files.

The statement has no times and no identity of a run, so that a second build of the same commit has the same bytes.
"""

import hashlib
import json
import re
import subprocess

from run import ROOT

REPOSITORY = "https://github.com/endpoint-picker/endpoint-picker"


def sum_of(path):
    """The SHA-256 sum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tools():
    """The name, version and source of each program that builds a release."""
    dist = (ROOT / "tools/release/dist").read_text()
    pinned = dict(re.findall(r"^(\w+)_version=(\S+)", dist, re.MULTILINE))
    rust = subprocess.run(["rustc", "--version"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()[1]
    go = re.search(r"^version=(\S+)", (ROOT / "tools/kube/crane").read_text(), re.MULTILINE)[1]
    yield {"name": "rust", "annotations": {"version": rust}}
    for package, name in (("cargo-zigbuild", "zigbuild"), ("ziglang", "zig")):
        yield {"name": package, "uri": f"pkg:pypi/{package}@{pinned[name]}"}
    yield {"name": "cargo-cyclonedx", "uri": f"pkg:cargo/cargo-cyclonedx@{pinned['cyclonedx']}"}
    yield {"name": "crane", "uri": f"pkg:golang/github.com/google/go-containerregistry@{go}#cmd/crane"}


def statement(release, target):
    """The statement about all files of the folder."""
    subjects = [{"name": path.name, "digest": {"sha256": sum_of(path)}} for path in sorted(target.iterdir())]
    commit = {"uri": f"git+{REPOSITORY}@refs/tags/v{release.version}", "digest": {"gitCommit": release.revision}}
    lock = {"name": "Cargo.lock", "digest": {"sha256": sum_of(ROOT / "Cargo.lock")}}
    profiles = [subject for subject in subjects if subject["name"].endswith(".profdata")]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{REPOSITORY}/blob/v{release.version}/docs/operate/releases.md",
                "externalParameters": {"version": release.version, "architectures": release.architectures},
                "resolvedDependencies": [commit, lock, *profiles, *tools()],
            },
            "runDetails": {"builder": {"id": f"{REPOSITORY}/blob/v{release.version}/tools/release/dist"}},
        },
    }


def write(release, target):
    """Writes the statement, and then SHA256SUMS."""
    text = json.dumps(statement(release, target), indent=2) + "\n"
    (target / f"endpoint-picker-{release.version}.intoto.json").write_text(text)
    lines = [f"{sum_of(path)}  {path.name}\n" for path in sorted(target.iterdir())]
    (target / "SHA256SUMS").write_text("".join(lines))
