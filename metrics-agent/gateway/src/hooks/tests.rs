//! The hooks over messages as Envoy Gateway sends them. Each message has fields of unknown numbers, which
//! must survive.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::*;
use crate::envoy::{any, entry, extension};
use crate::ownership::Ownership;
use crate::settings::{FilterConfig, Module};
use crate::wire::Builder;

mod ai_gateway;
mod hostile;

const RULE: &str = "httproute/team/chat/rule/0";
const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";
const OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// A field that no version of Envoy has.
const UNKNOWN: u32 = 5000;

fn settings() -> HookSettings {
    let filter = br#"{"agent": {"addresses": ["http://10.0.0.1:9095"]}, "failureMode": "FailOpen"}"#;
    HookSettings {
        ownership: Ownership::default(),
        module: Module::File("/opt/libendpoint_picker.so".to_owned()),
        filter: FilterConfig::read(Path::new("filter.json"), filter).unwrap(),
        conformance: false,
    }
}

fn unknown() -> Builder {
    Builder::default().bytes(UNKNOWN, "unknown")
}

fn assert_unknown_survives(message: &WireMessage<'_>) {
    assert_eq!(message.text(UNKNOWN), Some("unknown"));
}

fn pool(name: &str, spec: &Json) -> Vec<u8> {
    let metadata = json!({"name": name, "namespace": "team"});
    let api_version = "inference.networking.k8s.io/v1";
    let object =
        json!({"apiVersion": api_version, "kind": "InferencePool", "metadata": metadata, "spec": spec});
    object.to_string().into_bytes()
}

/// The first hook for a rule with these objects.
fn hook<'a>(
    settings: &HookSettings,
    bytes: &[u8],
    objects: impl IntoIterator<Item = &'a [u8]>,
) -> Option<Vec<u8>> {
    let resource = |json: &'a [u8]| Builder::default().bytes(1, json);
    let objects = objects.into_iter().map(resource);
    let context = objects.fold(Builder::default(), |context, object| context.bytes(1, object));
    route(settings, bytes, context.as_ref())
}

/// The route of a rule after the first hook.
fn route_with(action: &Builder, pools: &[Vec<u8>]) -> Vec<u8> {
    let route = unknown().bytes(14, format!("{RULE}/match/0/example_com")).bytes(2, action);
    let marked = hook(&settings(), route.as_ref(), pools.iter().map(Vec::as_slice));
    marked.unwrap_or_else(|| route.into_bytes())
}

fn route_to(pools: &[Vec<u8>]) -> Vec<u8> {
    route_with(&unknown().bytes(1, RULE), pools)
}

fn configuration(name: &str, routes: &[Vec<u8>]) -> Bytes {
    let host = routes.iter().fold(unknown().bytes(1, "host"), |host, route| host.bytes(3, route));
    unknown().bytes(1, name).bytes(2, host).into_bytes().into()
}

fn cluster(name: &str) -> Bytes {
    // Type EDS, a policy, and thresholds of Envoy Gateway with the user's limit of requests.
    let thresholds = Builder::default().wrapped_number(4, 77).wrapped_number(5, 1024);
    let cluster = unknown().bytes(1, name).number(2, 3).bytes(3, "eds").bytes(4, [8, 10]).bytes(41, "policy");
    cluster.bytes(10, Builder::default().bytes(1, thresholds)).into_bytes().into()
}

fn listener(routes: &str) -> Bytes {
    let rds = Builder::default().bytes(2, routes);
    let filters =
        [("envoy.filters.http.cors", "envoy.extensions.filters.http.cors.v3.Cors"), ("router", ROUTER)];
    let manager = unknown().bytes(3, rds).bytes(52, extension("users", 2, []));
    let manager = filters
        .iter()
        .fold(manager, |manager, (name, type_name)| manager.bytes(5, extension(name, 4, any(type_name, []))));
    let filter = extension("envoy.filters.network.http_connection_manager", 4, any(MANAGER, manager));
    let chain = unknown().bytes(3, filter);
    unknown().bytes(1, "listener").bytes(3, &chain).bytes(25, chain).into_bytes().into()
}

fn translation(routes: &[Vec<u8>]) -> Translation {
    Translation {
        clusters: vec![cluster("other"), cluster(RULE)],
        listeners: vec![listener("plain"), listener("picked")],
        routes: vec![configuration("plain", &[unknown().into_bytes()]), configuration("picked", routes)],
    }
}

fn translated(routes: &[Vec<u8>], weights: &Weights) -> Translation {
    translate(&settings(), weights, translation(routes))
}

/// The first message at the end of this path of fields.
fn at(bytes: &[u8], path: &[u32]) -> Vec<u8> {
    path.iter().fold(bytes.to_vec(), |bytes, number| {
        let found = WireMessage::read(&bytes).unwrap().all(*number).next().map(<[u8]>::to_vec);
        found.unwrap_or_else(|| panic!("no field {number} of {path:?}"))
    })
}

/// The first route of the configuration `picked`.
fn picked_route(translation: &Translation) -> Vec<u8> {
    at(&translation.routes[1], &[2, 3])
}

/// The JSON in `DynamicModuleFilterPerRoute` of an entry of per-route settings.
fn per_route(entry: &[u8]) -> Json {
    assert_eq!(at(entry, &[1]), b"endpoint-picker");
    assert_eq!(at(entry, &[2, 2, 1, 6, 1, 1]), b"/opt/libendpoint_picker.so");
    serde_json::from_slice(&at(entry, &[2, 2, 3, 2, 1])).unwrap()
}

/// The JSON of a cluster of the module.
fn cluster_config(cluster: &[u8]) -> Json {
    assert_eq!(at(cluster, &[38, 1]), b"envoy.clusters.dynamic_modules");
    serde_json::from_slice(&at(cluster, &[38, 2, 2, 3, 2, 1])).unwrap()
}

fn names(clusters: &[Bytes]) -> Vec<String> {
    clusters.iter().map(|cluster| String::from_utf8(at(cluster, &[1])).unwrap()).collect()
}

/// The weights of a rule's bare backends, as the hook of the endpoints gets them.
fn weights(of_backends: &[u32]) -> Weights {
    let mut weights = Weights::default();
    let locality = |(index, weight): (usize, &u32)| {
        let name = Builder::default().bytes(1, format!("{RULE}/backend/{index}"));
        Builder::default().bytes(1, name).wrapped_number(3, *weight)
    };
    let localities = of_backends.iter().enumerate().map(locality);
    let assignment =
        localities.fold(Builder::default(), |assignment, locality| assignment.bytes(2, locality));
    weights.insert(assignment.as_ref()).unwrap();
    weights
}

#[test]
fn a_route_to_a_pool_gets_its_configuration_and_the_pools_cluster() {
    let spec = json!({"endpointPickerRef": {"group": "x", "kind": "y", "name": "z"}});
    assert!(hook(&settings(), &[], [&*pool("chat", &spec)]).is_none(), "the pool has another picker");
    let after = translated(&[route_to(&[pool("chat", &json!({}))])], &Weights::default());

    let route = picked_route(&after);
    let message = WireMessage::read(&route).unwrap();
    assert_unknown_survives(&message);
    let agent = json!({"addresses": ["http://10.0.0.1:9095"]});
    let expected =
        json!({"agent": agent, "failureMode": "FailOpen", "pool": "team/chat", "steering": "cluster"});
    assert_eq!(per_route(&at(&route, &[13])), expected);
    let action = at(&route, &[2]);
    let action = WireMessage::read(&action).unwrap();
    assert_unknown_survives(&action);
    assert_eq!(action.text(1), Some(RULE));

    assert_eq!(names(&after.clusters), ["other", RULE]);
    assert_eq!(after.clusters[0], cluster("other"));
    let message = WireMessage::read(&after.clusters[1]).unwrap();
    assert_unknown_survives(&message);
    assert_eq!(cluster_config(&after.clusters[1]), json!({"agent": agent, "pool": "team/chat"}));
    assert_eq!(
        (message.number(2), message.has(3), message.has(41), message.number(6)),
        (None, false, false, Some(6))
    );
    assert_eq!(at(&after.clusters[1], &[4]), [8, 1], "the time to connect is not Envoy Gateway's default");
}

#[test]
fn only_listeners_with_routes_to_pools_get_the_filter_before_the_router() {
    let after = translated(&[route_to(&[pool("chat", &json!({}))])], &Weights::default());
    assert_eq!((&after.listeners[0], &after.routes[0]), (&listener("plain"), &translation(&[]).routes[0]));
    for chain in [3, 25] {
        let manager = at(&after.listeners[1], &[chain, 3, 4, 2]);
        let manager = WireMessage::read(&manager).unwrap();
        assert_unknown_survives(&manager);
        let filters: Vec<_> = manager.all(5).collect();
        let names: Vec<_> = filters.iter().map(|filter| at(filter, &[1])).collect();
        assert_eq!(names, [&b"envoy.filters.http.cors"[..], b"endpoint-picker", b"router"]);
        // `disabled` = 6 and its older place 7.
        let picker = WireMessage::read(filters[1]).unwrap();
        assert!(!picker.has(6) && !picker.has(7));
        assert_eq!(at(filters[1], &[4, 2, 3, 2, 1]), br#"{"pool":null}"#);
        let mutations: Vec<_> = manager.all(52).collect();
        assert_eq!(at(mutations[0], &[1]), b"users");
        assert_eq!(at(mutations[1], &[2, 2, 1, 1]), b"x-gateway-destination-endpoint");
    }
    let unpicked = translation(&[unknown().into_bytes()]);
    assert_eq!(translate(&settings(), &Weights::default(), unpicked.clone()), unpicked);
}

#[test]
fn routes_get_the_timeouts_and_retries_of_envoy_yaml_unless_the_user_has_set_them() {
    let action = |action: &Builder, timeout_of_listener: bool| {
        let mut translation = translation(&[route_with(action, &[pool("chat", &json!({}))])]);
        if timeout_of_listener {
            let rds = Builder::default().bytes(2, "picked");
            let manager = Builder::default().bytes(3, rds).bytes(24, [8, 60]);
            let filter = extension("manager", 4, any(MANAGER, manager));
            let listener = Builder::default().bytes(3, Builder::default().bytes(3, filter));
            translation.listeners.push(listener.into_bytes().into());
        }
        at(&picked_route(&translate(&settings(), &Weights::default(), translation)), &[2])
    };
    let set = |action: &[u8]| {
        [8, 24, 9].map(|number| WireMessage::read(action).unwrap().message(number).map(|it| it.to_vec()))
    };
    let [timeout, idle, retries] = set(&action(&Builder::default().bytes(1, RULE), false));
    assert_eq!((timeout, idle), (Some(vec![8, 0]), Some(vec![8, 132, 7])), "0 s and 900 s");
    let retries = retries.unwrap();
    let retries = WireMessage::read(&retries).unwrap();
    assert_eq!(
        (retries.text(1), retries.wrapped_number(2)),
        (Some("connect-failure,refused-stream,reset,retriable-status-codes"), Ok(Some(3)))
    );
    let shipped = include_str!("../../../../envoy.yaml");
    assert!(shipped.contains(&format!("retry_on: {}\n", retries.text(1).unwrap())));
    assert_eq!(
        set(&action(&Builder::default().bytes(1, RULE), true))[1],
        None,
        "the listener's timeout is in force"
    );
    let users = Builder::default().bytes(1, RULE).bytes(8, [8, 5]).bytes(9, [10, 0]);
    assert_eq!(set(&action(&users, false)), [Some(vec![8, 5]), None, Some(vec![10, 0])]);
}

#[test]
fn limits_and_protocols_of_the_cluster_are_completed_and_the_users_stay() {
    let of = |spec: &Json, options: Option<Builder>| {
        let mut translation = translation(&[route_to(&[pool("chat", spec)])]);
        if let Some(options) = options {
            let cluster = Builder::after(translation.clusters[1].to_vec());
            let cluster =
                cluster.bytes(36, entry("another", [])).bytes(36, entry(OPTIONS, any(OPTIONS, options)));
            translation.clusters[1] = cluster.into_bytes().into();
        }
        let after = translate(&settings(), &Weights::default(), translation);
        let message = WireMessage::read(&after.clusters[1]).unwrap();
        let options: Vec<_> = message.all(36).map(<[u8]>::to_vec).collect();
        (after.clusters[1].clone(), options)
    };
    let (cluster, options) = of(&json!({}), None);
    let thresholds = at(&cluster, &[10, 1]);
    let thresholds = WireMessage::read(&thresholds).unwrap();
    let limits = [2, 3, 4, 5].map(|number| thresholds.wrapped_number(number).unwrap());
    assert_eq!(limits, [Some(65536), Some(65536), Some(77), Some(1024)]);
    assert_eq!(at(&options[0], &[2, 2, 1, 1]), [8, 4], "idle connections are closed after 4 s");
    assert!(WireMessage::read(&at(&options[0], &[2, 2, 3])).unwrap().has(1), "HTTP/1");

    let mut users = translation(&[route_to(&[pool("chat", &json!({}))])]);
    users.clusters[1] = Builder::after(users.clusters[1].to_vec()).bytes(4, [16, 1]).into_bytes().into();
    let users = translate(&settings(), &Weights::default(), users);
    assert_eq!(at(&users.clusters[1], &[4]), [8, 10, 16, 1], "10 s and 1 ns are the user's");

    let h2c = json!({"appProtocol": "kubernetes.io/h2c"});
    let users = unknown().bytes(1, Builder::default().bytes(1, [8, 9])).bytes(5, []).bytes(6, "filters");
    let (_, options) = of(&h2c, Some(users));
    assert_eq!(at(&options[0], &[1]), b"another");
    let options = at(&options[1], &[2, 2]);
    let message = WireMessage::read(&options).unwrap();
    assert_unknown_survives(&message);
    assert_eq!((message.text(6), message.has(5)), (Some("filters"), false));
    assert_eq!(at(&options, &[1, 1]), [8, 9], "the user's time");
    let protocol = at(&options, &[3]);
    let protocol = WireMessage::read(&protocol).unwrap();
    assert!(protocol.has(2) && !protocol.has(1), "HTTP/2");
}

#[test]
fn each_pool_of_a_rule_has_its_weight_its_cluster_and_its_configuration() {
    let close = json!({"endpointPickerRef": {"name": "epp", "failureMode": "FailClose"}});
    let mut settings = settings();
    settings.ownership.services = [("team".to_owned(), "epp".to_owned())].into();
    let pools = [pool("chat", &json!({})), pool("code", &close)];
    let route = unknown().bytes(2, Builder::default().bytes(1, RULE));
    let route = hook(&settings, route.as_ref(), pools.iter().map(Vec::as_slice)).unwrap();
    let after = translate(&settings, &weights(&[70, 30]), translation(&[route]));
    assert_eq!(names(&after.clusters), ["other".to_owned(), RULE.to_owned(), format!("{RULE}/pool/1")]);
    assert_eq!(cluster_config(&after.clusters[2])["pool"], "team/code");
    assert_unknown_survives(&WireMessage::read(&after.clusters[2]).unwrap());

    let route = picked_route(&after);
    assert!(!WireMessage::read(&route).unwrap().has(13));
    assert!(!WireMessage::read(&at(&route, &[2])).unwrap().has(1));
    let weighted = at(&route, &[2, 3]);
    let weighted = WireMessage::read(&weighted).unwrap();
    let found = weighted.all(1).map(|entry| {
        let config = per_route(&at(entry, &[10]));
        let weight = WireMessage::read(entry).unwrap().wrapped_number(2).unwrap().unwrap();
        let text = |field: &str| config[field].as_str().unwrap().to_owned();
        (String::from_utf8(at(entry, &[1])).unwrap(), weight, text("pool"), text("failureMode"))
    });
    let expected = [
        (RULE.to_owned(), 70, "team/chat", "FailOpen"),
        (format!("{RULE}/pool/1"), 30, "team/code", "FailClose"),
    ];
    let expected =
        expected.map(|(name, weight, pool, mode)| (name, weight, pool.to_owned(), mode.to_owned()));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn pools_of_another_picker_and_services_keep_their_share_of_the_rules_cluster() {
    let other = pool("epp", &json!({"endpointPickerRef": {"name": "epp"}}));
    let after = translated(&[route_to(&[pool("chat", &json!({})), other])], &weights(&[1, 3]));
    assert_eq!(names(&after.clusters), ["other".to_owned(), RULE.to_owned(), format!("{RULE}/pool/0")]);
    assert_eq!(after.clusters[1], cluster(RULE), "the others' servers are here");
    let entries = at(&picked_route(&after), &[2, 3]);
    let entries: Vec<_> = WireMessage::read(&entries).unwrap().all(1).map(<[u8]>::to_vec).collect();
    let weight = |entry: &[u8]| WireMessage::read(entry).unwrap().wrapped_number(2).unwrap();
    assert_eq!((at(&entries[0], &[1]), weight(&entries[0])), (RULE.as_bytes().to_vec(), Some(3)));
    assert!(!WireMessage::read(&entries[0]).unwrap().has(10));
    assert_eq!(
        (weight(&entries[1]), per_route(&at(&entries[1], &[10]))["pool"].as_str()),
        (Some(1), Some("team/chat"))
    );
}

#[test]
fn a_rule_with_a_backend_that_does_not_exist_keeps_its_errors() {
    // Envoy Gateway puts the pools of such a rule out of its weighted clusters.
    let invalid = Builder::default().bytes(1, "invalid-backend-cluster").wrapped_number(2, 1);
    let action = unknown().bytes(3, Builder::default().bytes(1, &invalid));
    let route = route_with(&action, &[pool("chat", &json!({}))]);
    let mut before = translation(&[route]);
    before.clusters[1] = cluster(&format!("{RULE}/backend/0"));
    let after = translate(&settings(), &weights(&[9, 9]), before);
    let entries = at(&picked_route(&after), &[2, 3]);
    let entries: Vec<_> = WireMessage::read(&entries).unwrap().all(1).map(<[u8]>::to_vec).collect();
    assert_eq!(entries[0], invalid.as_ref());
    assert_eq!(at(&entries[1], &[1]), format!("{RULE}/pool/0").as_bytes());
    assert_eq!(WireMessage::read(&entries[1]).unwrap().wrapped_number(2), Ok(Some(9)));
    let made = after.clusters.last().unwrap();
    assert_unknown_survives(&WireMessage::read(made).unwrap());
    assert_eq!(cluster_config(made)["pool"], "team/chat");
}

#[test]
fn routes_that_forward_nothing_stay() {
    let route = unknown().bytes(7, [8, 244, 3]);
    let marked = hook(&settings(), route.as_ref(), [&*pool("chat", &json!({}))]).unwrap();
    let before = translation(&[marked]);
    assert_eq!(translate(&settings(), &Weights::default(), before.clone()), before);
}

#[test]
fn a_rule_without_a_cluster_of_envoy_gateway_gets_one() {
    let mut before = translation(&[route_to(&[pool("chat", &json!({}))])]);
    before.clusters = vec![Bytes::from_static(b"\xff")];
    let after = translate(&settings(), &Weights::default(), before);
    assert_eq!(after.clusters[0], b"\xff".as_slice(), "a message that cannot be read stays");
    assert_eq!(cluster_config(&after.clusters[1])["pool"], "team/chat");
}

#[test]
fn replicas_agree_byte_for_byte_whatever_they_have_translated_before() {
    let pools: Vec<_> = (0..8).map(|index| pool(&format!("pool-{index}"), &json!({}))).collect();
    let before = translation(&[route_to(&pools)]);
    let mut busy = weights(&[3; 5]);
    busy.end_translation();
    let localities = weights(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let fresh = translate(&settings(), &localities, before.clone());
    for (index, weight) in [1, 2, 3, 4, 5, 6, 7, 8].into_iter().enumerate() {
        let name = Builder::default().bytes(1, format!("{RULE}/backend/{index}"));
        let locality = Builder::default().bytes(1, name).wrapped_number(3, weight);
        busy.insert(Builder::default().bytes(2, locality).as_ref()).unwrap();
    }
    assert_eq!(translate(&settings(), &busy, before), fresh);
}

#[test]
fn the_headers_of_the_conformance_tests_are_obeyed_only_on_demand() {
    let ports = json!({"targetPorts": [{"number": 3000}, {"number": 3002}]});
    let before = translation(&[route_to(&[pool("chat", &ports)])]);
    let usual = translate(&settings(), &Weights::default(), before.clone());
    assert!(!WireMessage::read(&picked_route(&usual)).unwrap().has(10));
    let conformance = HookSettings { conformance: true, ..settings() };
    let after = translate(&conformance, &Weights::default(), before);
    assert_eq!(at(&picked_route(&after), &[10, 1, 1]), b"x-conformance-test-served-endpoint");
    let manager = at(&after.listeners[1], &[3, 3, 4, 2]);
    let filters: Vec<_> = WireMessage::read(&manager).unwrap().all(5).map(<[u8]>::to_vec).collect();
    assert_eq!(filters.len(), 4);
    let code = String::from_utf8(at(&filters[1], &[4, 2, 3, 3])).unwrap();
    assert!(code.contains("ipairs({3000,3002,})"), "{code}");
}

#[test]
fn two_hundred_pools_and_four_hundred_routes_are_one_message_of_two_megabytes_at_most() {
    let mut before = Translation::default();
    let mut routes = Vec::new();
    for index in 0..400 {
        let rule = format!("httproute/team/route-{index}/rule/0");
        let route = Builder::default()
            .bytes(14, format!("{rule}/match/0"))
            .bytes(2, Builder::default().bytes(1, &rule));
        let pool = pool(&format!("pool-{}", index % 200), &json!({}));
        routes.push(hook(&settings(), route.as_ref(), [&*pool]).unwrap());
        before.clusters.push(cluster(&rule));
    }
    before.routes.push(configuration("picked", &routes));
    before.listeners.push(listener("picked"));
    let bytes = |of: &Translation| {
        [&of.clusters, &of.listeners, &of.routes].into_iter().flatten().map(Bytes::len).sum::<usize>()
    };
    let size = bytes(&before);
    let after = translate(&settings(), &Weights::default(), before);
    println!("{size} bytes in, {} bytes out", bytes(&after));
    assert_eq!(after.clusters.len(), 400);
    assert!(bytes(&after) < 2 * 1024 * 1024);
}
