"""Writes deploy/rendered: the objects of the chart with each file of deploy/values, for an installation without Helm."""

import re

from run import CHART, NAMESPACE, RELEASE, ROOT, documents, is_hook, run

FOLDER = ROOT / "deploy/rendered"
HELMS_LINES = re.compile("^# Source|helm.sh/chart:|app.kubernetes.io/managed-by:")


def rendered(values):
    """The chart's output as text, without the objects of `helm test` and the labels that only Helm reads."""
    text = run("helm", "template", RELEASE, CHART, "--namespace", NAMESPACE, "--values", values)
    for document in re.split(r"^---\n", text, flags=re.MULTILINE):
        if any(not is_hook(item) for item in documents(document)):
            yield "\n".join(line for line in document.splitlines() if not HELMS_LINES.search(line)).strip("\n") + "\n"


def main():
    """Replaces the whole folder."""
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.iterdir():
        file.unlink()
    for values in sorted((ROOT / "deploy/values").glob("*.yaml")):
        header = f"# Rendered by `make gen-deploy` from deploy/chart with deploy/values/{values.name}.\n"
        (FOLDER / values.name).write_text(header + "---\n".join(rendered(values)))


main()
