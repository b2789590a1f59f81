//! The subset hint in the request's metadata.

use endpoint_picker_engine::proxy::headers::FALLBACK;

use crate::fixture::{Fixture, Request, TEXT, address};

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;
const KEY: &str = "x-gateway-destination-endpoint-subset";

/// A list in Envoy's packed format.
fn packed(items: &[&str]) -> Vec<u8> {
    let mut bytes = u32::try_from(items.len()).unwrap().to_le_bytes().to_vec();
    for item in items {
        bytes.extend(u32::try_from(item.len()).unwrap().to_le_bytes());
        bytes.extend([0; 4]);
    }
    for item in items {
        bytes.extend(item.as_bytes());
        bytes.extend([0, 0]);
    }
    bytes
}

fn hinted(fixture: &mut Fixture, namespace: Option<Vec<u8>>, hint: Option<Vec<u8>>, body: bool) -> Request {
    let mut request = fixture.request(TEXT, &[]);
    request.proxy.namespace = namespace;
    request.proxy.hint = hint;
    if body {
        request.head(fixture);
        request.body(fixture, BODY.as_bytes(), true);
    } else {
        request.head_only(fixture);
    }
    request
}

#[test]
fn a_list_and_a_comma_separated_string_restrict_the_choice() {
    let mut fixture = Fixture::new();
    let list = packed(&[&address(3), &address(2)]);
    let text = format!("{}, {}", address(2), address(3)).into_bytes();
    for hint in [list, text] {
        let request = hinted(&mut fixture, Some(packed(&[KEY])), Some(hint), true);
        assert_eq!(request.destination(), Some("10.0.0.2:8000,10.0.0.3:8000"), "the better one is first");
        assert_eq!(request.proxy.request_header(FALLBACK), Some("none"));
    }
}

#[test]
fn a_request_without_a_body_stays_within_its_hint() {
    let mut fixture = Fixture::new();
    let hint = address(3).into_bytes();
    let request = hinted(&mut fixture, Some(packed(&[KEY])), Some(hint), false);
    assert_eq!(request.destination(), Some(address(3).as_str()));
    assert_eq!(request.proxy.request_header(FALLBACK), Some("none"));
}

#[test]
fn without_metadata_every_endpoint_may_be_picked() {
    let mut fixture = Fixture::new();
    for namespace in [None, Some(packed(&["another-key"]))] {
        let request = hinted(&mut fixture, namespace, None, true);
        assert_eq!(request.destination(), Some(address(1).as_str()));
        assert_eq!(request.proxy.request_header(FALLBACK), None);
    }
}

#[test]
fn a_value_that_names_no_endpoint_is_answered_503() {
    let mut fixture = Fixture::new();
    for (namespace, hint) in [
        // An empty string: Envoy returns it like an absent value.
        (Some(packed(&[KEY])), None),
        // A namespace that is not a list of keys, as Envoy packs a number.
        (Some(vec![0xff; 4]), None),
        (Some(packed(&[KEY])), Some(packed(&[]))),
        (Some(packed(&[KEY])), Some(vec![0xff; 8])),
        (Some(packed(&[KEY])), Some(b"not an address".to_vec())),
        (Some(packed(&[KEY])), Some(b"10.0.0.1:9".to_vec())),
    ] {
        let request = hinted(&mut fixture, namespace, hint, true);
        assert_eq!(request.rejection().status, 503);
        let reason = ("x-llm-d-request-dropped-reason".to_owned(), "rejected-no-endpoints".to_owned());
        assert_eq!(request.rejection().headers[1], reason);
    }
    assert_eq!(fixture.counted("rejected|503"), 6);
}

#[test]
fn a_hint_that_the_proxy_cannot_return_names_no_endpoint() {
    let mut fixture = Fixture::new();
    for refused in [vec!["metadata"], vec!["metadata", "metadata_namespace"]] {
        let mut request = fixture.request(TEXT, &[]);
        request.proxy.namespace = Some(packed(&[KEY]));
        request.proxy.refused = refused;
        request.head_only(&mut fixture);
        assert_eq!(request.rejection().status, 503);
    }
    // The namespace alone cannot be read: the key decides.
    let mut request = fixture.request(TEXT, &[]);
    request.proxy.hint = Some(address(2).into_bytes());
    request.proxy.refused = vec!["metadata_namespace"];
    request.head_only(&mut fixture);
    assert_eq!(request.destination(), Some(address(2).as_str()));
}

#[test]
fn before_the_first_snapshot_a_request_stays_within_its_hint() {
    let mut fixture = Fixture::without_snapshot(&serde_json::json!({}));
    let hint = b"10.9.9.9:80".to_vec();
    let request = hinted(&mut fixture, Some(packed(&[KEY])), Some(hint), true);
    assert_eq!(request.destination(), Some("10.9.9.9:80"));
    assert_eq!(request.proxy.request_header(FALLBACK), Some("none"));
    assert_eq!(request.proxy.picked_for.as_deref(), Some(&b"p"[..]));
    let empty = hinted(&mut fixture, Some(packed(&[KEY])), Some(packed(&[])), true);
    assert_eq!(empty.rejection().status, 503);
}
