"""Checks manifests against CustomResourceDefinitions: `check.py FOLDER-OF-CRDS FILE...`.

Stricter than an API server, which drops unknown fields: here they are errors. Rules in CEL (`x-kubernetes-validations`) are not evaluated.
"""

import pathlib
import sys

import jsonschema
import yaml

# Groups of Kubernetes itself have no CRD.
BUILT_IN = {"v1", "apps/v1", "networking.k8s.io/v1", "policy/v1", "rbac.authorization.k8s.io/v1"}
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def strict(schema):
    """The schema, changed in place so that an object has only the fields that it lists."""
    if schema.get("x-kubernetes-int-or-string"):
        schema["type"] = ["integer", "string"]
    fields = schema.get("properties", {})
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if fields and not is_open:
        schema["additionalProperties"] = False
    children = [*fields.values(), schema.get("items"), schema.get("additionalProperties")]
    for child in children:
        if isinstance(child, dict):
            strict(child)
    return schema


def definitions(folder):
    """The schema of each served version of each kind."""
    schemas = {}
    for file in sorted(folder.glob("*.yaml")):
        for crd in yaml.load_all(file.read_text(), Loader):
            if not crd or crd["kind"] != "CustomResourceDefinition":
                continue
            for version in crd["spec"]["versions"]:
                schema = strict(version["schema"]["openAPIV3Schema"])
                # Every resource has these, and a CRD need not list them.
                schema["properties"].update(apiVersion={"type": "string"}, kind={"type": "string"}, metadata={"type": "object"})
                schemas[f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]] = schema
    return schemas


def faults(file, schemas):
    """One line for each fault of a file."""
    for number, document in enumerate(yaml.load_all(file.read_text(), Loader), 1):
        kind = document["apiVersion"], document["kind"]
        if document["apiVersion"] in BUILT_IN:
            continue
        if kind not in schemas:
            yield f"{file}: document {number}: unknown kind {' '.join(kind)}"
            continue
        for error in jsonschema.Draft7Validator(schemas[kind]).iter_errors(document):
            yield f"{file}: document {number} ({kind[1]}): {error.json_path}: {error.message}"


def main():
    folder, *files = map(pathlib.Path, sys.argv[1:])
    schemas = definitions(folder)
    found = [fault for file in files for fault in faults(file, schemas)]
    if found:
        sys.exit("\n".join(found))
    print(f"check-manifests: {len(files)} files are valid")


main()
