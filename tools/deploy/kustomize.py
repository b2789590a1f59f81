"""Kustomize gives what the chart gives with the same values: each folder with a kustomization.yaml and a values.yaml is compared."""

import yaml

from run import ROOT, is_hook, key, run, documents, template

FOLDER = ROOT / "deploy"
# Labels that only Helm sets.
HELMS = ("helm.sh/chart", "app.kubernetes.io/managed-by")


def without_helms_labels(item):
    """The object without the labels of Helm, also in pod templates."""
    for metadata in item["metadata"], item.get("spec", {}).get("template", {}).get("metadata", {}):
        for label in HELMS:
            metadata.get("labels", {}).pop(label, None)
    return item


def by_key(items):
    """Objects by what identifies them, comparable."""
    return {key(item): yaml.safe_dump(without_helms_labels(item)) for item in items if not is_hook(item)}


def check():
    """All differences."""
    # A component is a part of others.
    folders = sorted(file.parent for file in FOLDER.glob("**/kustomization.yaml") if "\nkind: Component\n" not in file.read_text())
    if not folders:
        yield f"{FOLDER} has no kustomization.yaml"
    for folder in folders:
        name = folder.relative_to(ROOT)
        chart = by_key(template(folder / "values.yaml"))
        kustomize = by_key(documents(run("kubectl", "kustomize", folder)))
        yield from (f"{name} lacks {item}" for item in sorted(chart.keys() - kustomize.keys()))
        yield from (f"{name} has {item}, and the chart has not" for item in sorted(kustomize.keys() - chart.keys()))
        for item in sorted(chart.keys() & kustomize.keys()):
            if chart[item] != kustomize[item]:
                yield f"{name}: {item} differs: the chart has\n{chart[item]}and kustomize has\n{kustomize[item]}"
    print(f"check-deploy: {len(folders)} folders give with kustomize what the chart gives")
