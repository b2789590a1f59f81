//! Pools whose routes Envoy AI Gateway has, too.

use metrics_agent_status::extension::WRONG_ORDER;

use super::*;

#[test]
fn the_filter_takes_the_place_of_envoy_ai_gateways_processor_for_the_pool() {
    let name = |pool: &str| format!("envoy.filters.http.ext_proc/endpointpicker/{pool}_team_ext_proc");
    let cluster_name = |pool: &str| format!("envoy.clusters.endpointpicker_{pool}_team_ext_proc");
    let disabled = |pool: &str| entry(&name(pool), any("ExtProcPerRoute", [8, 1]));
    let other =
        unknown().bytes(13, disabled("chat")).bytes(13, disabled("theirs")).bytes(13, entry("cors", []));
    let mut before = translation(&[route_to(&[pool("chat", &json!({}))]), other.into_bytes()]);
    let filters = ["ai_gateway_ext_proc", &name("theirs"), &name("chat"), "rate_limit"];
    let manager = Builder::default().bytes(3, Builder::default().bytes(2, "picked"));
    let manager =
        filters.iter().fold(manager, |manager, name| manager.bytes(5, extension(name, 4, any(name, []))));
    let manager = manager.bytes(5, extension("router", 4, any(ROUTER, [])));
    let filter = extension("manager", 4, any(MANAGER, manager));
    before.listeners[1] =
        Builder::default().bytes(3, Builder::default().bytes(3, filter)).into_bytes().into();
    before.clusters.extend([cluster(&cluster_name("chat")), cluster(&cluster_name("theirs"))]);
    let upstream = entry(
        OPTIONS,
        any(OPTIONS, Builder::default().bytes(3, Builder::default().bytes(1, [])).bytes(6, "upstream")),
    );
    let original_dst =
        Builder::after(before.clusters[1].to_vec()).number(2, 4).bytes(34, [8, 1]).bytes(36, upstream);
    before.clusters[1] = original_dst.into_bytes().into();

    let after = translate(&settings(), &Weights::default(), before);
    assert_eq!(names(&after.clusters), ["other".to_owned(), RULE.to_owned(), cluster_name("theirs")]);
    let module_cluster = WireMessage::read(&after.clusters[1]).unwrap();
    assert!(!module_cluster.has(34) && module_cluster.number(2).is_none());
    assert_eq!(at(&after.clusters[1], &[36, 2, 2, 6]), b"upstream");
    let manager = at(&after.listeners[1], &[3, 3, 4, 2]);
    let found: Vec<_> = WireMessage::read(&manager).unwrap().all(5).map(|filter| at(filter, &[1])).collect();
    let theirs = name("theirs");
    let expected = ["ai_gateway_ext_proc", &theirs, "endpoint-picker", "rate_limit", "router"];
    assert_eq!(found, expected.map(|name| name.as_bytes().to_vec()));
    let host = at(&after.routes[1], &[2]);
    let host = WireMessage::read(&host).unwrap();
    let other = WireMessage::read(host.all(3).nth(1).unwrap()).unwrap();
    let kept: Vec<_> = other.all(13).map(|entry| at(entry, &[1])).collect();
    assert_eq!(kept, [theirs.as_bytes(), b"cors"]);
}

/// The mark of a route in the first hook of Envoy AI Gateway's server, as `filter_metadata`.
fn marked_by_ai_gateway(route: Vec<u8>) -> Vec<u8> {
    let text = Builder::default().bytes(3, "team/chat/epp/9002/duplex/false");
    let mark = Builder::default().bytes(1, entry("per_route_rule_inference_pool", text));
    let metadata = Builder::default().bytes(1, entry("aigateway.envoy.io", mark));
    Builder::after(route).bytes(4, metadata).into_bytes()
}

#[test]
fn requests_are_refused_when_envoy_ai_gateways_server_is_called_later() {
    let other = route_with(&unknown().bytes(1, "other"), &[]);
    let mut before =
        translation(&[marked_by_ai_gateway(route_to(&[pool("chat", &json!({}))])), other.clone()]);
    let after = translate(&settings(), &Weights::default(), before.clone());
    assert_eq!((&after.clusters, &after.listeners), (&before.clusters, &before.listeners));
    let route = picked_route(&after);
    assert_unknown_survives(&WireMessage::read(&route).unwrap());
    assert_eq!(
        (at(&route, &[7]).first_chunk(), WireMessage::read(&route).unwrap().has(2)),
        (Some(&[8, 247, 3]), false)
    );
    assert_eq!(at(&route, &[7, 2, 3]), WRONG_ORDER.as_bytes());
    let metadata = at(&route, &[4]);
    let marks: Vec<_> = WireMessage::read(&metadata).unwrap().all(1).map(|entry| at(entry, &[1])).collect();
    assert_eq!(marks, [b"endpoint-picker"], "by its own mark that server would insert its processor");
    let hosts = at(&after.routes[1], &[2]);
    assert_eq!(WireMessage::read(&hosts).unwrap().all(3).nth(1), Some(&*other));

    before.clusters.push(cluster("envoy.clusters.endpointpicker_chat_team_ext_proc"));
    let after = translate(&settings(), &Weights::default(), before);
    assert_eq!(
        per_route(&at(&picked_route(&after), &[13]))["pool"],
        "team/chat",
        "its server was called before"
    );
}
