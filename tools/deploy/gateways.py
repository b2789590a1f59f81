"""The objects of gateways: what the chart renders for each, compared with envoy.yaml."""

import itertools
import json

import yaml

from run import NAMESPACE, ROOT, is_hook, template

POOLS = [
    {"name": "chat", "selector": {"app": "vllm"}, "targetPorts": [8000, 8001], "failureMode": "FailClose"},
    {"name": "two", "namespace": "one", "selector": {"app": "vllm"}, "targetPorts": [8000], "route": {"create": False, "name": "mine"}},
]
SIDECAR = {"agent.mode": "sidecar", "agent.sidecar.serviceAccounts": [{"name": "envoy", "namespace": "proxies"}]}
EXISTING = {"gateway.create": False, "gateway.name": "edge", "gateway.namespace": "edge", "gateway.listeners": ["http", "https"]}
MANAGER = "envoy.filters.network.http_connection_manager"
# Settings of the wasm filter that do not depend on where its module and its agent are.
SETTINGS = ("allow_on_headers_stop_iteration", "failure_policy", "reload_config", "capability_restriction_config")


def shipped():
    """Of envoy.yaml, the settings of the wasm filter, the retries, and the limit of the listener."""
    listener = yaml.safe_load((ROOT / "envoy.yaml").read_text())["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    filters = {item["name"]: item["typed_config"] for item in manager["http_filters"]}
    config = filters["endpoint-picker"]["config"]
    retry = manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["retry_policy"]
    return {name: config[name] for name in SETTINGS}, retry, listener["per_connection_buffer_limit_bytes"]


def objects(values):
    """The gateway's objects by kind."""
    kinds = {}
    for item in template(values):
        if item["metadata"]["labels"]["app.kubernetes.io/component"] == "gateway" and not is_hook(item):
            kinds.setdefault(item["kind"], []).append(item)
    return kinds


def faults_of_counts(values, kinds):
    """Kinds with another number of objects than the values ask for."""
    is_istio, is_native = values["gateway.kind"] == "istio", values["gateway.form"] == "native"
    makes = values.get("gateway.create", True)
    expected = {
        "Gateway": makes,
        "GatewayClass": makes and not is_istio,
        "HTTPRoute": 1,
        "ConfigMap": is_istio,
        "EnvoyFilter": is_istio,
        "DestinationRule": is_istio * len(POOLS),
        "EnvoyProxy": not is_istio,
        "EnvoyExtensionPolicy": 0 if is_istio else len(POOLS),
        "BackendTrafficPolicy": 0 if is_istio else len(POOLS),
        "ClientTrafficPolicy": not is_istio,
        "EnvoyPatchPolicy": not is_istio and not is_native,
    }
    expected = {kind: int(count) for kind, count in expected.items() if count}
    found = {kind: len(items) for kind, items in kinds.items()}
    if found != expected:
        yield f"has {found} in place of {expected}"
    of_gateway = ("Gateway", "ConfigMap", "EnvoyFilter", "EnvoyProxy", "ClientTrafficPolicy", "EnvoyPatchPolicy")
    namespace = values.get("gateway.namespace", NAMESPACE)
    for item in itertools.chain.from_iterable(kinds.get(kind, []) for kind in of_gateway):
        if item["metadata"]["namespace"] != namespace:
            yield f"{item['kind']} is in the namespace {item['metadata']['namespace']} in place of {namespace}"


def proxies_secrets(kinds):
    """The Secrets that the proxies' containers mount, by folder."""
    for item in kinds.get("EnvoyProxy", []):
        deployment = item["spec"]["provider"]["kubernetes"]["envoyDeployment"]
        pod, container = deployment["pod"], deployment.get("container", {})
        yield from mounted(pod.get("volumes", []), container.get("volumeMounts", []))
    for item in kinds.get("ConfigMap", []):
        pod = yaml.safe_load(item["data"]["deployment"])["spec"]["template"]["spec"]
        yield from mounted(pod["volumes"], [mount for container in pod.get("containers", []) for mount in container["volumeMounts"]])


def mounted(volumes, mounts):
    """Folders and Secrets of these volumes."""
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
    return [(mount["mountPath"], secrets[mount["name"]]) for mount in mounts if mount["name"] in secrets]


def token_files(kinds):
    """The files from which each filter, or Envoy for it, reads the agent's token."""
    for item in kinds.get("EnvoyFilter", []):
        for patch in item["spec"]["configPatches"]:
            yield from token_file_of(patch["patch"].get("value", {}))
    for item in kinds.get("EnvoyPatchPolicy", []):
        for patch in item["spec"]["jsonPatches"]:
            yield from token_file_of(patch["operation"].get("value", {}))
    for item in kinds.get("EnvoyExtensionPolicy", []):
        yield from (module["config"]["agent"].get("tokenFile") for module in item["spec"].get("dynamicModule", []))


def token_file_of(value):
    """The file in a cluster of the agents, or in the configuration of a native filter."""
    if not isinstance(value, dict):
        return
    if str(value.get("name", "")).endswith("/agent"):
        options = value.get("typed_extension_protocol_options", {}).get("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", {})
        injectors = [item["typed_config"] for item in options.get("http_filters", []) if item["name"].endswith("credential_injector")]
        yield injectors[0]["credential"]["typed_config"]["credential"]["sds_config"]["path_config_source"]["path"] if injectors else None
    if "filter_config" in value.get("typed_config", {}):
        yield json.loads(value["typed_config"]["filter_config"]["value"])["agent"].get("tokenFile")


def faults_of_token(values, kinds):
    """What keeps filters from the agents' token."""
    is_wasm, is_sidecar = values["gateway.form"] == "wasm", "agent.mode" in values
    namespace = values.get("gateway.namespace", NAMESPACE) if values["gateway.kind"] == "istio" else "envoy-gateway-system"
    secrets = [item for item in template(values) if item["kind"] == "Secret"]
    mounts, files = dict(proxies_secrets(kinds)), list(token_files(kinds))
    if is_sidecar:
        if secrets or mounts or any(files):
            yield f"a sidecar has a token: {secrets} {mounts} {files}"
        return
    if {item["metadata"]["namespace"] for item in secrets} != {NAMESPACE, namespace}:
        yield f"the token is in {[item['metadata']['namespace'] for item in secrets]}"
    if any(item["stringData"] != secrets[0]["stringData"] for item in secrets):
        yield "the agent and the proxies have different tokens"
    content, name = secrets[0]["stringData"], secrets[0]["metadata"]["name"]
    if yaml.safe_load(content["envoy.yaml"])["resources"][0]["generic_secret"]["secret"]["inline_string"] != f"Bearer {content['token']}":
        yield "Envoy presents another token"
    expected = [f"{folder}/{'envoy.yaml' if is_wasm else 'token'}" for folder, secret in mounts.items() if secret == name]
    if len(expected) != 1 or set(files) != set(expected) or len(files) != (1 if is_wasm else len(POOLS)):
        yield f"the filters read {files}, and the proxies mount {mounts}"


def wasm_configs(kinds):
    """The settings of each wasm filter of Envoy: those of an EnvoyFilter, or all patches of one filter."""
    for item in kinds.get("EnvoyFilter", []):
        values = (patch["patch"]["value"] for patch in item["spec"]["configPatches"] if patch["applyTo"] == "HTTP_FILTER")
        yield from (value["typed_config"]["config"] for value in values if value["typed_config"]["@type"].endswith(".Wasm"))
    for item in kinds.get("EnvoyPatchPolicy", []):
        filters = {}
        for patch in item["spec"]["jsonPatches"]:
            operation = patch["operation"]
            if "jsonPath" in operation:
                filters.setdefault((patch["name"], operation["jsonPath"]), {})[operation["path"]] = operation["value"]
        yield from filters.values()


def faults_of_settings(values, kinds):
    """Differences from envoy.yaml."""
    settings, retry, limit = shipped()
    configs = list(wasm_configs(kinds))
    listeners = len(values.get("gateway.listeners", ["http"])) if values["gateway.kind"] == "envoy-gateway" else 1
    if len(configs) != (values["gateway.form"] == "wasm") * len(POOLS) * listeners:
        yield f"has {len(configs)} wasm filters"
    for config in configs:
        yield from (f"{name} is {config.get(name)}, in envoy.yaml {value}" for name, value in settings.items() if config.get(name) != value)
        own = json.loads(config["configuration"]["value"])
        if own["pool"] not in (f"{NAMESPACE}/chat", "one/two") or own["failureMode"] != ("FailClose" if own["pool"].endswith("chat") else "FailOpen"):
            yield f"the filter's configuration is {own}"
    for item in kinds.get("BackendTrafficPolicy", []):
        own = item["spec"]["retry"]
        back_off = own["perRetry"]["backOff"]
        on = own["retryOn"]
        found = [",".join(on["triggers"]), on.get("httpStatusCodes"), own["numRetries"], back_off["baseInterval"], back_off["maxInterval"]]
        expected = [retry["retry_on"], retry["retriable_status_codes"], retry["num_retries"], *(f"{float(time[:-1]) * 1000:.0f}ms" for time in retry["retry_back_off"].values())]
        if found != expected:
            yield f"retries are {found}, in envoy.yaml {expected}"
    for item in kinds.get("EnvoyFilter", []):
        patches = [(patch["applyTo"], patch["patch"]["value"]) for patch in item["spec"]["configPatches"]]
        for value in (value for kind, value in patches if kind == "HTTP_ROUTE"):
            own = value["route"]["retry_policy"]
            if any(own[name] != retry[name] for name in own):
                yield f"retries are {own}, in envoy.yaml {retry}"
        if any(value != {"per_connection_buffer_limit_bytes": limit} for kind, value in patches if kind == "LISTENER"):
            yield "the listener has another limit than in envoy.yaml"
    for item in kinds.get("ClientTrafficPolicy", []):
        own = item["spec"].get("connection", {}).get("bufferLimit", f"{limit >> 20}Mi")
        if own != f"{limit >> 20}Mi":
            yield f"the listener's limit is {own}, in envoy.yaml {limit}"


def faults_of_shadow(values):
    """Faults when the EPP goes on picking for the first pool, which may change nothing for the second one."""
    shadow, picked = POOLS
    kinds = objects({**values, "pools": [{**shadow, "shadow": {"service": "chat-epp"}}, picked]})
    modes = [json.loads(config["configuration"]["value"]).get("mode") for config in wasm_configs(kinds)]
    for policy in kinds.get("EnvoyExtensionPolicy", []):
        own, is_shadow = policy["spec"], policy["metadata"]["name"] == shadow["name"]
        if is_shadow != ("extProc" in own):
            yield f"the EPP's part of the policy {policy['metadata']['name']} is {own.get('extProc')}"
        modes += [module["config"].get("mode") for module in (*own.get("wasm", []), *own.get("dynamicModule", []))]
    for item in kinds.get("EnvoyFilter", []):
        for patch in item["spec"]["configPatches"]:
            if patch["applyTo"] == "HTTP_ROUTE":
                settings, names = patch["patch"]["value"], str(patch["match"])
                leaves_epp = "envoy.filters.http.ext_proc" not in settings["typed_per_filter_config"] and "route" not in settings
                if leaves_epp != (".chat." in names):
                    yield f"the patch of a route is {settings} for {names}"
            config = patch["patch"]["value"].get("typed_config", {}).get("filter_config")
            modes += [json.loads(config["value"]).get("mode")] if config else []
    if modes.count("shadow") * 2 != len(modes) or not modes:
        yield f"the filters' modes are {modes}"


def check():
    """All faults of all gateways, with and without an own Gateway and sidecars."""
    count = 0
    for kind, form, existing, sidecar in itertools.product(("envoy-gateway", "istio"), ("wasm", "native"), ({}, EXISTING), ({}, SIDECAR)):
        values = {"pools": POOLS, "gateway.kind": kind, "gateway.form": form, **existing, **sidecar}
        kinds = objects(values)
        count += 1
        faults = (*faults_of_counts(values, kinds), *faults_of_settings(values, kinds), *faults_of_token(values, kinds), *faults_of_shadow(values))
        yield from (f"{values}: {fault}" for fault in faults)
    print(f"check-deploy: the chart renders {count} gateways, with the settings of envoy.yaml")
