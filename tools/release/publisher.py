"""Checks what only a person can fill in before a release, and prints the public key: publisher.py FILE, which is tools/release/publisher.toml."""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
FORMS = {"address": r"https://\S+", "contact": r"[^@\s]+@[^@\s]+", "public-key": r"RW[A-Za-z0-9+/]{54}"}
# The files that have the repository's address.
NAMED_IN = (
    "Cargo.toml",
    "README.md",
    "deploy/chart/Chart.yaml",
    "deploy/docker/Dockerfile",
    "docs/install/README.md",
    "examples/systemd/metrics-agent.service",
    "tools/release/provenance.py",
)


def faults(values):
    """Yields why these values cannot be released."""
    for name, form in FORMS.items():
        if not re.fullmatch(form, str(values.get(name, ""))):
            yield f"{name} is {values.get(name)!r}, which is not of the form {form}"
    if address := values.get("address"):
        for path in NAMED_IN:
            if address not in (ROOT / path).read_text():
                yield f"{path} does not have the address {address}"


def main():
    """Prints the public key, or ends with all faults."""
    path = pathlib.Path(sys.argv[1])
    values = tomllib.loads(path.read_text())
    if found := list(faults(values)):
        sys.exit("".join(f"release: {path}: {fault}\n" for fault in found))
    print(values["public-key"])


main()
