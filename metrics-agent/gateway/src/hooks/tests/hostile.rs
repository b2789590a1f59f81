//! Messages that are truncated, changed or nested without end.

use proptest::prelude::*;

use super::*;

/// A message whose fields are messages, this many levels deep.
fn nested(levels: usize) -> Vec<u8> {
    (0..levels).fold(Vec::new(), |inner, level| {
        let number = [2, 3, 4, 5, 1][level % 5];
        Builder::default().bytes(number, inner).into_bytes()
    })
}

proptest! {
    /// Truncated and changed messages never panic, and what is not read stays as it came.
    #[test]
    fn hostile_messages_stay_as_they_came(cut in 0usize..2000, at in 0usize..2000, byte in any_byte(), levels in 0usize..300) {
        let good = translation(&[route_to(&[pool("chat", &json!({})), pool("code", &json!({}))])]);
        let spoil = |message: &Bytes| {
            let mut bytes = message.to_vec();
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
            bytes.truncate(cut);
            Bytes::from(bytes)
        };
        for (clusters, listeners, routes) in [(true, false, false), (false, true, false), (false, false, true)] {
            let mut bad = good.clone();
            let spoil_some = |messages: &mut Vec<Bytes>, is_spoilt: bool| {
                if is_spoilt { for message in messages.iter_mut() { *message = spoil(message); } }
                messages.push(nested(levels).into());
            };
            spoil_some(&mut bad.clusters, clusters);
            spoil_some(&mut bad.listeners, listeners);
            spoil_some(&mut bad.routes, routes);
            let count = bad.routes.len();
            let after = translate(&settings(), &Weights::default(), bad);
            prop_assert_eq!(after.routes.len(), count);
        }
        let _ = hook(&settings(), &spoil(&good.routes[1]), [&*nested(levels)]);
        let _ = Weights::default().insert(&spoil(&good.clusters[0]));
    }
}

fn any_byte() -> impl Strategy<Value = u8> {
    proptest::num::u8::ANY
}
