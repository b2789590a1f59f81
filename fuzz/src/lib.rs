//! Parts that several fuzz targets share.

use std::sync::Arc;

use endpoint_picker::config::PickerConfig;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::pool::{Endpoint, Endpoints};

/// The first line, and what comes after it.
pub fn first_line(input: &[u8]) -> Option<(&str, &[u8])> {
    let end = input.iter().position(|&byte| byte == b'\n')?;
    Some((core::str::from_utf8(&input[..end]).ok()?, &input[end + 1..]))
}

/// A pool of endpoints `10.0.0.<host>:8000`.
pub fn pool(hosts: &[u8]) -> Arc<Endpoints> {
    let endpoint = |&n: &u8| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), Vec::new());
    let pool = Endpoints::new("p".to_owned(), hosts.iter().map(endpoint).collect());
    Arc::new(pool.expect("different endpoints"))
}

/// All plugins that have a state.
pub fn stateful() -> Pipeline {
    let plugin = |type_name: &str, parameters: &str| {
        Instance::unnamed(read_plugin(type_name, parameters).expect("a good plugin"))
    };
    let plugins = vec![
        plugin("prefix-cache-scorer", "{}"),
        plugin("approx-prefix-cache-producer", "{}"),
        plugin("burst-prefix-cache-producer", "{}"),
        plugin("mm-embeddings-cache-scorer", "{}"),
        plugin("no-hit-lru-scorer", "{}"),
        plugin("session-affinity-scorer", r#"{"strategy": "session_id"}"#),
        plugin("active-request-scorer", "{}"),
        plugin("expected-latency-scorer", "{}"),
        plugin("predicted-latency-producer", r#"{"streamingMode": true}"#),
    ];
    Pipeline::compile(PickerConfig { plugins, ..PickerConfig::default() }).expect("a good configuration")
}
