"""Programs that render the chart, and their output as objects."""

import json
import pathlib
import subprocess
import tomllib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/chart"
PROGRAMS = ROOT / ".tools/kube/bin"
NAMESPACE = "inference"
RELEASE = "endpoint-picker"
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def version():
    """The version of the workspace, and so of a release."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


class Failed(Exception):
    """A program ended with an error; the text is what it printed."""


def run(program, *arguments):
    """What a program prints."""
    done = subprocess.run([PROGRAMS / program, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise Failed(f"{program} {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def documents(text):
    """The objects of a stream of YAML documents."""
    return [document for document in yaml.load_all(text, Loader) if document]


def template(values, chart=CHART):
    """The objects of the chart with these values, by their paths."""
    flags = [flag for path, value in values.items() for flag in ("--set-json", f"{path}={json.dumps(value)}")]
    return documents(run("helm", "template", RELEASE, chart, "--namespace", NAMESPACE, *flags))


def key(item):
    """What identifies an object."""
    metadata = item["metadata"]
    return item["apiVersion"], item["kind"], metadata.get("namespace", ""), metadata["name"]


def is_hook(item):
    """Whether an object belongs to `helm test` and not to the release."""
    return "helm.sh/hook" in item["metadata"].get("annotations", {})
