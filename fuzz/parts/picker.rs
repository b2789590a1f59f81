//! A pool, and a pipeline with all states.

use std::sync::Arc;

use endpoint_picker::config::PickerConfig;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::pool::{Endpoint, Endpoints};

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
