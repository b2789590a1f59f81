//! Recorded requests in any format.
//!
//! A record is in the order of its times, all its places exist, and servers are fitted to it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metrics_agent_replay::fit::{Given, fit};
use metrics_agent_replay::record::{MAX_TOKENS, Record};

fuzz_target!(|input: &[u8]| {
    let Ok(record) = Record::read(input) else { return };
    assert!(record.requests.len() > 1 && record.requests.is_sorted_by_key(|request| request.at));
    for request in &record.requests {
        assert!((1..=MAX_TOKENS).contains(&request.input) && (1..=MAX_TOKENS).contains(&request.output));
        assert!(request.server.is_none_or(|server| usize::from(server) < record.servers.len()));
        assert!(request.adapter.is_none_or(|adapter| usize::from(adapter) < record.adapters.len()));
        assert!(request.cached.is_none_or(|cached| cached <= request.input));
        assert!(request.end.is_none_or(|end| request.first_token.is_none_or(|first| first <= end)));
    }
    let fit = fit(&record, &Given::default(), 8);
    assert_eq!(fit.servers.len(), if record.servers.is_empty() { 8 } else { record.servers.len() });
    assert!(fit.servers.iter().all(|server| server.slowness.is_finite() && server.slowness > 0.0));
});
