//! Sessions of servers whose data-parallel ranks share a port.

use endpoint_picker_engine::testing::{picker_config, plugin};
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, TEXT};

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;
const TOKEN: &str = "x-session-token";

/// Two servers of two ranks each, of which the second rank of the first server has the shortest queue.
fn fixture(handler: v1::Plugin) -> Fixture {
    let scorers = [("queue-scorer", Some(1.0)), ("session-affinity-scorer", Some(3.0))];
    let mut config = picker_config(&scorers);
    "decode".clone_into(&mut config.profiles[0].name);
    config.plugins.push(handler);
    let rank = |server: u8, port: u16| v1::Endpoint {
        name: format!("default/server-{server}-{port}"),
        address: format!("10.0.0.{server}:{port}"),
        labels: Vec::new(),
    };
    let endpoints = vec![rank(1, 8000), rank(1, 8001), rank(2, 8000), rank(2, 8001)];
    let policy = v1::Policy { picker_config: Some(config), ..v1::Policy::default() };
    let topology = v1::Topology { pool: "p".to_owned(), endpoints, policy: Some(policy) };
    let mut fixture = Fixture::without_snapshot(&json!({}));
    fixture.adopt(topology, &[5, 0, 9, 9]);
    fixture
}

#[test]
fn a_session_is_bound_to_the_rank_and_not_to_the_port_that_ranks_share() {
    for handler in [
        plugin("single-profile-handler", r#"{"primaryPort": 8000}"#),
        plugin("disagg-profile-handler", r#"{"primaryPort": 8000}"#),
    ] {
        let name = handler.r#type.clone();
        let mut fixture = fixture(handler);
        let mut request = fixture.post(TEXT, &[], BODY);
        assert_eq!(request.destination(), Some("10.0.0.1:8000"), "{name}");
        let rank = |request: &crate::fixture::Request| {
            request.proxy.request_header("x-data-parallel-host-port").map(str::to_owned)
        };
        assert_eq!(rank(&request).as_deref(), Some("10.0.0.1:8001"), "{name}");
        request.proxy.upstream = Some("10.0.0.1:8000".parse().unwrap());
        request.proxy.details = "via_upstream";
        request.proxy.response_headers = vec![(":status".to_owned(), b"200".to_vec())];
        request.exchange.response_headers(&mut fixture.pool, &mut request.proxy, true);
        let token = request.proxy.response_header(TOKEN).unwrap().to_owned();

        // The session outweighs the queue, which is shortest at the rank of the other server now.
        let view = fixture.pool.view();
        let topology = std::sync::Arc::clone(view.topology());
        fixture.pool.adopt(std::sync::Arc::new(endpoint_picker_engine::pool_view::PoolView::new(
            topology,
            crate::fixture::snapshot(&[5, 5, 0, 5]),
            crate::fixture::START,
        )));
        let next = fixture.post(TEXT, &[(TOKEN, &token)], BODY);
        assert_eq!(rank(&next).as_deref(), Some("10.0.0.1:8001"), "{name}");
    }
}
