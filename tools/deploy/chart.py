"""The chart: what it renders for many values, and which values it refuses."""

import itertools
import json
import re

import yaml

from run import CHART, NAMESPACE, RELEASE, ROOT, Failed, Loader, documents, is_hook, key, run, template, version

POOL = {"name": "chat", "selector": {"app": "vllm"}, "targetPorts": [8000]}
SIDECAR = {"agent.mode": "sidecar", "agent.sidecar.serviceAccounts": [{"name": "envoy", "namespace": "proxies"}]}

# Values that are combined with each other: each name has the alternatives of one part.
PARTS = {
    "mode": [{}, SIDECAR],
    "namespaces": [{}, {"watch.namespaces": ["*"]}, {"watch.namespaces": ["one", "two"]}],
    "writes": [{}, {"agent.events": False, "agent.status": False, "agent.token.secret": "mine"}],
    "config": [{}, {"pickerConfig.rules": "epp"}, {"pickerConfig.configMap": "shared/rules"}, {"pickerConfig.manifests": {"chat.yaml": "kind: EndpointPickerConfig\n"}}],
    "pools": [{}, {"pools": [POOL, {**POOL, "name": "two", "namespace": "one", "targetPorts": [8000, 8001], "create": True}]}],
    "metrics": [{}, {"agent.token.forReads": True, "metrics.scrape": "podMonitor", "metrics.dashboard.enabled": True, "metrics.alerts.enabled": True}],
}

# Values that the schema or a template refuses, with a part of the message.
REFUSED = [
    ({"replicas": 3}, "replicas"),
    ({"agent.replica": 3}, "replica"),
    ({"agent.replicas": 0}, "minimum"),
    ({"agent.mode": "daemonset"}, "sidecar"),
    ({"agent.mode": "sidecar"}, "serviceAccounts"),
    ({"agent.listenAddress": "127.0.0.1"}, "listenAddress"),
    ({"agent.extraArgs": ["kubernetes"]}, "pattern"),
    ({"agent.kvEvents.tokenizers": [{"model": "m", "volume": {"emptyDir": {}}}]}, "agent.kvEvents.source is off"),
    ({"agent.podDisruptionBudget.maxUnavailable": "half"}, "maxUnavailable"),
    ({"watch.namespaces": ["*", "one"]}, "namespaces"),
    ({"watch.namespaces": ["Models"]}, "namespaces"),
    ({"watch.pool": "a/b/c"}, "pool"),
    ({"pickerConfig.configMap": "rules", "pickerConfig.manifests": {"a.yaml": ""}}, "manifests"),
    ({"pickerConfig.manifests": {"a.txt": ""}}, "a.txt"),
    ({"pools": [{**POOL, "targetPorts": [0]}]}, "targetPorts"),
    ({"pools": [{**POOL, "targetPorts": list(range(1, 10))}]}, "targetPorts"),
    ({"pools": [{**POOL, "selector": {}}]}, "selector"),
    ({"pools": [{"name": "chat", "targetPorts": [8000]}]}, "selector"),
    ({"pools": [{**POOL, "failureMode": "Open"}]}, "failureMode"),
    ({"image.tags": "1"}, "tags"),
    ({"image.pullPolicy": "Sometimes"}, "pullPolicy"),
    ({"agent.token.file": "/token"}, "file"),
    ({"agent.token.secret": "A"}, "secret"),
    ({"gateway.tokenFolder": "token"}, "tokenFolder"),
    ({"networkPolicy.from": {"podSelector": {}}}, "array"),
    ({"metrics.scrape": "serviceMonitor"}, "scrape"),
    ({"gateway.kind": "nginx"}, "kind"),
    ({"gateway.create": False}, "name"),
    ({"gateway.extension": True}, "kind"),
    ({"gateway.extension": True, "gateway.kind": "envoy-gateway"}, "form"),
    ({"gateway.extension": True, "gateway.kind": "envoy-gateway", "gateway.form": "native", **SIDECAR}, "mode"),
    ({"gateway.extensionCertificates": "self-signed"}, "extensionCertificates"),
    ({"agent.extraArgs": ["--extension-conformance"]}, "extraArgs"),
    ({"gateway.listeners": []}, "listeners"),
    ({"gateway.module.url": "http://modules/plugin.wasm"}, "sha256"),
    ({"gateway.kind": "istio", "gateway.module": {"url": "http://modules/plugin.wasm", "sha256": "0" * 64}}, "gateway.module.url"),
    ({"pools": [{**POOL, "route": {"paths": ["v1"]}}]}, "paths"),
]


def combinations():
    """Every combination of the parts."""
    for chosen in itertools.product(*PARTS.values()):
        yield {path: value for part in chosen for path, value in part.items()}


def by_kind(items):
    """The objects of the release, without those of `helm test`, by kind."""
    kinds = {}
    for item in items:
        if not is_hook(item):
            kinds.setdefault(item["kind"], []).append(item)
    return kinds


def containers(item):
    """The pods' containers of an object."""
    spec = item["spec"] if item["kind"] == "Pod" else item.get("spec", {}).get("template", {}).get("spec", {})
    return spec, [*spec.get("containers", []), *spec.get("initContainers", [])]


def faults(values):
    """What is wrong with the objects of these values, one line for each."""
    items = template(values)
    kinds = by_kind(items)
    is_sidecar = values.get("agent.mode") == "sidecar"
    namespaces = values.get("watch.namespaces", [NAMESPACE])
    keys = [key(item) for item in items]
    yield from (f"{name} is there twice" for name in set(keys) if keys.count(name) > 1)

    for item in items:
        name = "/".join(key(item)[1:])
        cluster_wide = item["kind"].startswith("Cluster") or item["kind"] == "GatewayClass"
        if bool(item["metadata"].get("namespace")) == cluster_wide:
            yield f"{name}: {'has a' if cluster_wide else 'lacks its'} namespace"
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/instance") != RELEASE:
            yield f"{name}: lacks the release's labels"
        spec, its_containers = containers(item)
        for container in its_containers:
            context = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
            expected = {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            if context != expected:
                yield f"{name}: container {container['name']} has the security context {context}"
        yield from (f"{name}: {fault}" for rule in item.get("rules", []) for fault in rule_faults(rule, is_hook(item), values))

    yield from expected_objects(kinds, values, is_sidecar, namespaces)


def rule_faults(rule, is_check, values):
    """What a rule of a role permits beyond what the agent needs."""
    resources, verbs = set(rule["resources"]), set(rule["verbs"])
    if "*" in resources | verbs | set(rule["apiGroups"]) or "secrets" in resources:
        yield f"permits {rule}"
    if "configmaps" in resources and len(rule.get("resourceNames", [])) != 1:
        yield "permits more than one ConfigMap"
    writes = verbs - {"get", "list", "watch"}
    may_write = resources == {"events"}
    if writes and (is_check or not may_write or not values.get("agent.events", True)):
        yield f"permits to write: {rule}"


def expected_objects(kinds, values, is_sidecar, namespaces):
    """Differences between the objects that the values ask for and those that are there."""
    has_own_config = "pickerConfig.manifests" in values
    config = has_own_config or "pickerConfig.configMap" in values
    is_global = namespaces == ["*"]
    monitored = "metrics.scrape" in values
    pools = values.get("pools", [])
    expected = {
        "Deployment": not is_sidecar,
        "ServiceAccount": not is_sidecar,
        "PodDisruptionBudget": not is_sidecar,
        "NetworkPolicy": not is_sidecar,
        "Secret": not is_sidecar and "agent.token.secret" not in values,
        "PodMonitor": monitored and not is_sidecar,
        "PrometheusRule": monitored,
        "ClusterRole": is_global,
        "ClusterRoleBinding": is_global,
        "Role": config + (0 if is_global else len(namespaces)),
        "RoleBinding": config + (0 if is_global else len(namespaces)),
        "Service": (not is_sidecar) + len(pools),
        "InferencePool": sum(pool.get("create", False) for pool in pools),
        "ConfigMap": is_sidecar + monitored + has_own_config,
    }
    found = {kind: len(items) for kind, items in kinds.items()}
    expected = {kind: int(count) for kind, count in expected.items() if count}
    if found != expected:
        yield f"has {found} in place of {expected}"

    roles = {item["metadata"]["namespace"] for item in kinds.get("Role", []) if not item["metadata"]["name"].endswith("-config")}
    if roles != (set() if is_global else set(namespaces)):
        yield f"has roles in {roles}"
    subject = {"name": "envoy", "namespace": "proxies"} if is_sidecar else {"name": RELEASE, "namespace": NAMESPACE}
    for item in [*kinds.get("RoleBinding", []), *kinds.get("ClusterRoleBinding", [])]:
        if item["subjects"] != [{"kind": "ServiceAccount", **subject}]:
            yield f"{item['metadata']['name']} is for {item['subjects']}"

    if is_sidecar:
        text = kinds["ConfigMap"][0]["data"] if len(kinds["ConfigMap"]) == 1 else next(
            item["data"] for item in kinds["ConfigMap"] if item["metadata"]["name"].endswith("-sidecar")
        )
        agent = yaml.load(text["pod-spec.yaml"], Loader)["initContainers"][0]
        listen = "127.0.0.1:9095"
    else:
        agent = kinds["Deployment"][0]["spec"]["template"]["spec"]["containers"][0]
        listen = "0.0.0.0:9095"
        service = next(item for item in kinds["Service"] if item["metadata"]["name"] == RELEASE)
        labels = kinds["Deployment"][0]["spec"]["template"]["metadata"]["labels"]
        yield from token_faults(kinds, values, f"{NAMESPACE}-{RELEASE}-token")
        if not service["spec"]["selector"].items() <= labels.items() or [port["name"] for port in service["spec"]["ports"]] != ["http"]:
            yield "the Service does not lead to the agent"
    flags = agent["args"]
    wanted = ["--kubernetes", f"--listen={listen}", f"--rules={values.get('pickerConfig.rules', 'expected-latency')}", *(f"--kubernetes-namespace={namespace}" for namespace in namespaces)]
    if config:
        wanted.append(f"--picker-config-map={values.get('pickerConfig.configMap', f'{NAMESPACE}/{RELEASE}-config')}")
    yield from (f"the agent lacks {flag}: {flags}" for flag in wanted if flag not in flags)


def token_faults(kinds, values, name):
    """What keeps the agent from its tokens, and Prometheus from the one for reading."""
    secret = values.get("agent.token.secret", name)
    spec = kinds["Deployment"][0]["spec"]["template"]["spec"]
    agent = spec["containers"][0]
    volumes = {volume["name"]: volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in agent["volumeMounts"] if mount["name"] in volumes}
    if list(mounts.values()) != [secret]:
        yield f"the agent mounts {mounts} in place of {secret}"
    (folder,) = mounts
    by_token, is_monitored = "agent.token.forReads" in values, "PodMonitor" in kinds
    expected = [f"--bearer-token-file={folder}/token", f"--read-token-file={folder}/read-token" if by_token else "--allow-unauthenticated-reads"]
    if [flag for flag in agent["args"] if re.search("token-file|unauthenticated", flag)] != expected:
        yield f"the agent has {agent['args']}"
    if is_monitored and by_token:
        credentials = kinds["PodMonitor"][0]["spec"]["podMetricsEndpoints"][0]["authorization"]["credentials"]
        if credentials != {"name": secret, "key": "read-token"}:
            yield f"Prometheus presents {credentials}"


def check_files():
    """The dashboard and the alerts are those of docs/operate/observability, whole."""
    kinds = by_kind(template({"metrics.dashboard.enabled": True, "metrics.alerts.enabled": True}))
    folder = ROOT / "docs/operate/observability"
    if kinds["PrometheusRule"][0]["spec"] != yaml.load((folder / "alerts.yaml").read_text(), Loader):
        yield "the PrometheusRule is not docs/operate/observability/alerts.yaml"
    files = {name: text for config_map in kinds["ConfigMap"] for name, text in config_map["data"].items()}
    dashboard = json.loads(files["endpoint-picker.json"])
    if dashboard != json.loads((folder / "dashboard.json").read_text()):
        yield "the ConfigMap is not docs/operate/observability/dashboard.json"


def check_package(folder):
    """The package, in which links are files, renders what the folder does."""
    run("helm", "package", CHART, "--destination", folder)
    (package,) = folder.glob("*.tgz")
    # Tokens that the chart makes are new each time.
    values = {"metrics.dashboard.enabled": True, "metrics.alerts.enabled": True, "agent.token.secret": "mine"}
    if template(values, package) != template(values):
        yield "the package renders something else than the folder"


def check_refusals():
    """Values that must be refused are, with a message that names them."""
    for values, part in REFUSED:
        try:
            template(values)
        except Failed as failed:
            if part not in str(failed):
                yield f"{values}: the refusal does not name {part}: {failed}"
        else:
            yield f"{values}: accepted"


def check_versions():
    """The chart has the version of the workspace."""
    chart = yaml.load((CHART / "Chart.yaml").read_text(), Loader)
    if (chart["version"], chart["appVersion"]) != (version(), version()):
        yield f"Chart.yaml has the versions {chart['version']} and {chart['appVersion']}; the workspace has {version()}"


def check_pages(folder):
    """The values in docs/install render, and the gateway's objects name their pools."""
    count = 0
    for page in sorted((ROOT / "docs/install").glob("*.md")):
        for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            values = next(yaml.load_all(text, Loader))
            if not isinstance(values, dict) or "pools" not in values:
                continue
            count += 1
            (file := folder / "page.yaml").write_text(text)
            rendered = documents(run("helm", "template", "picker", CHART, "--namespace", "inference", "--values", file))
            filters = [item for item in rendered if item["kind"] in {"EnvoyFilter", "EnvoyExtensionPolicy"}]
            for pool in values["pools"]:
                if not any(pool["name"] in json.dumps(item) for item in filters):
                    yield f"{page.name}: no filter for the pool {pool['name']} of its values"
    if count < 2:
        yield f"docs/install has {count} sets of values"


def check(folder):
    """All faults of the chart."""
    run("helm", "lint", "--strict", CHART)
    run("helm", "lint", "--strict", CHART, "--values", CHART / "demo-values.yaml")
    count = 0
    for values in combinations():
        count += 1
        yield from (f"{values}: {fault}" for fault in faults(values))
    yield from check_files()
    yield from check_package(folder)
    yield from check_pages(folder)
    yield from check_refusals()
    yield from check_versions()
    print(f"check-deploy: the chart renders with {count} sets of values and refuses {len(REFUSED)}")
