"""The agents as Envoy Gateway's extension server: whether both ends of each connection fit."""

import base64
import itertools
import json
import pathlib
import subprocess
import tempfile

import yaml

from run import NAMESPACE, RELEASE, is_hook, template

POOLS = [{"name": "chat", "selector": {"app": "vllm"}, "targetPorts": [8000]}]
VALUES = {"gateway.kind": "envoy-gateway", "gateway.form": "native", "gateway.extension": True}
NAME = f"{RELEASE}-extension"


def objects(values):
    """The release's objects by kind and name."""
    kinds = {}
    for item in template(values):
        if not is_hook(item):
            kinds.setdefault(item["kind"], {})[item["metadata"]["name"]] = item
    return kinds


def flags(agent):
    """The values of the agent's flags about the extension; of one that is repeated, the last."""
    pairs = (flag.removeprefix("--extension-").split("=", 1) for flag in agent["args"] if flag.startswith("--extension-"))
    return dict(pairs)


def mounts(volumes, container):
    """The volumes of a container by folder."""
    by_name = {volume["name"]: volume for volume in volumes}
    return {mount["mountPath"]: by_name[mount["name"]] for mount in container["volumeMounts"]}


def faults_of_connection(kinds):
    """What keeps Envoy Gateway from the agents."""
    values = yaml.safe_load(kinds["ConfigMap"][f"{RELEASE}-envoy-gateway"]["data"]["values.yaml"])
    (entry,) = values["config"]["envoyGateway"]["extensionManagers"]
    fqdn, tls = entry["service"]["fqdn"], entry["service"]["tls"]
    if fqdn != {"hostname": f"{NAME}.{NAMESPACE}.svc.cluster.local", "port": kinds["Service"][NAME]["spec"]["ports"][0]["port"]}:
        yield f"Envoy Gateway calls {fqdn}"
    if entry["hooks"]["xdsTranslator"]["translation"]["secret"] != {"includeAll": False}:
        yield "Envoy Gateway sends the keys of certificates"
    pod = kinds["Deployment"][RELEASE]["spec"]["template"]
    agent = pod["spec"]["containers"][0]
    own, folders = flags(agent), mounts(pod["spec"]["volumes"], agent)
    port = next(port["containerPort"] for port in agent["ports"] if port["name"] == "extension")
    if own["server"] != f"0.0.0.0:{port}":
        yield f"the agent listens on {own['server']}, and its pod has the port {port}"
    if not kinds["Service"][NAME]["spec"]["selector"].items() <= pod["metadata"]["labels"].items():
        yield "the Service does not lead to the agents"
    for flag, file in {"cert": "tls.crt", "key": "tls.key", "client-ca": "ca.crt"}.items():
        folder, name = own[flag].rsplit("/", 1)
        if name != file or folders[folder].get("secret") != {"secretName": f"{NAME}-server"}:
            yield f"--extension-{flag} is {own[flag]}"
    if tls != {part: {"name": f"{NAME}-{name}", "namespace": NAMESPACE} for part, name in (("certificateRef", "ca"), ("clientCertificateRef", "client"))}:
        yield f"Envoy Gateway presents {tls}"
    ingress = kinds["NetworkPolicy"][RELEASE]["spec"]["ingress"]
    if not any("extension" in [port["port"] for port in rule["ports"]] for rule in ingress):
        yield "the NetworkPolicy closes the port"


def faults_of_certificates(kinds, kind):
    """What keeps both sides from trusting each other."""
    secrets = {name.removeprefix(f"{NAME}-"): item["data"] for name, item in kinds.get("Secret", {}).items() if name.startswith(NAME)}
    certificates = {item["spec"]["secretName"].removeprefix(f"{NAME}-") for item in kinds.get("Certificate", {}).values()}
    expected = {"ca", "server", "client"}
    if (set(secrets), certificates) != (expected if kind == "generated" else set(), expected if kind == "cert-manager" else set()):
        yield f"has the Secrets {set(secrets)} and the certificates {certificates}"
    for part, name in (("server", f"{NAME}.{NAMESPACE}.svc.cluster.local"), ("client", None)) if secrets else ():
        with tempfile.TemporaryDirectory() as folder:
            files = {file: pathlib.Path(folder, file) for file in ("ca.pem", "cert.pem")}
            for (file, path), data in zip(files.items(), (secrets["ca"]["tls.crt"], secrets[part]["tls.crt"])):
                path.write_bytes(base64.b64decode(data))
            purpose = ["-purpose", f"ssl{part}", *(["-verify_hostname", name] if name else [])]
            verified = subprocess.run(
                ["openssl", "verify", *purpose, "-CAfile", files["ca.pem"], files["cert.pem"]], capture_output=True, text=True, check=False
            )
        if verified.returncode != 0:
            yield f"the certificate of the {part} is refused: {verified.stderr}"
    if secrets and secrets["server"]["ca.crt"] != secrets["ca"]["tls.crt"]:
        yield "the agents trust another authority"


def faults_of_proxies(kinds, values):
    """What keeps the module from its file, its agents and its token."""
    pod = kinds["Deployment"][RELEASE]["spec"]["template"]["spec"]
    agent = pod["containers"][0]
    own = flags(agent)
    (proxy,) = kinds["EnvoyProxy"].values()
    deployment = proxy["spec"]["provider"]["kubernetes"]["envoyDeployment"]
    folders = mounts(deployment["pod"]["volumes"], deployment["container"])
    if "image" not in folders[own["module"].rsplit("/", 1)[0]]:
        yield f"the module {own['module']} is in none of {list(folders)}"
    if "dynamicModules" in proxy["spec"]:
        yield "the EnvoyProxy names the module, which the extension server does"
    config = json.loads(kinds["ConfigMap"][NAME]["data"]["filter.json"])
    if config["agent"]["addresses"] != [f"http://{RELEASE}.{NAMESPACE}.svc.cluster.local:9095"] or {"pool", "steering"} & config.keys():
        yield f"the module's configuration is {config}"
    if "secret" not in folders[config["agent"]["tokenFile"].rsplit("/", 1)[0]]:
        yield f"the proxies do not mount {config['agent']['tokenFile']}"
    if config.get("limits") != values.get("gateway.filter", {}).get("limits"):
        yield f"the module's configuration lacks gateway.filter: {config}"
    (gateway_class,) = kinds["GatewayClass"].values()
    reference = gateway_class["spec"]["parametersRef"]
    if (reference["name"], reference["namespace"]) != (proxy["metadata"]["name"], proxy["metadata"]["namespace"]):
        yield f"the GatewayClass has the parameters {reference}"


def faults_of_objects(kinds, values):
    """Objects of the other way, and routes that lead elsewhere."""
    others = {"EnvoyExtensionPolicy", "EnvoyPatchPolicy", "BackendTrafficPolicy"} & kinds.keys()
    if others:
        yield f"has {others}"
    if set(kinds["Service"]) != {RELEASE, NAME}:
        yield f"has the Services {set(kinds['Service'])}"
    makes, pools = values.get("gateway.create", True), values.get("pools", [])
    for kind in ("Gateway", "ClientTrafficPolicy"):
        if (kind in kinds) != makes:
            yield f"{'lacks' if makes else 'has'} a {kind}"
    for route in kinds.get("HTTPRoute", {}).values():
        (reference,) = route["spec"]["rules"][0]["backendRefs"]
        if reference != {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "chat"}:
            yield f"the route leads to {reference}"
    agent = kinds["Deployment"][RELEASE]["spec"]["template"]["spec"]["containers"][0]
    named = [flag for flag in agent["args"] if flag.startswith("--extension-pool=")]
    if named != [f"--extension-pool={NAMESPACE}/{pool['name']}" for pool in pools]:
        yield f"the agent picks for {named}"
    if flags(agent)["picker-service"] != f"{NAMESPACE}/{RELEASE}":
        yield f"the picker's Service is {flags(agent)['picker-service']}"


def check():
    """All faults, with each kind of certificates, with and without a Gateway and pools."""
    count = 0
    more = ({}, {"gateway.create": False}, {"pools": POOLS, "gateway.filter": {"limits": {"maxHeldBytes": 1048576}}})
    for kind, further in itertools.product(("generated", "cert-manager", "existing"), more):
        values = {**VALUES, "gateway.extensionCertificates": kind, **further}
        kinds = objects(values)
        count += 1
        parts = (faults_of_connection(kinds), faults_of_certificates(kinds, kind), faults_of_proxies(kinds, values), faults_of_objects(kinds, values))
        yield from (f"{values}: {fault}" for fault in itertools.chain.from_iterable(parts))
    print(f"check-deploy: the chart makes the agents Envoy Gateway's extension server with {count} sets of values")
