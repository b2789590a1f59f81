//! A pool, and a pipeline with all states.

use std::sync::Arc;

use endpoint_picker::config::PickerConfig;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::registry::{TYPES, read_plugin};
use endpoint_picker::pool::{Endpoint, Endpoints};

/// A pool of endpoints `10.0.0.<host>:8000`.
pub fn pool(hosts: &[u8]) -> Arc<Endpoints> {
    let endpoint = |&n: &u8| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), Vec::new());
    let pool = Endpoints::new("p".to_owned(), hosts.iter().map(endpoint).collect());
    Arc::new(pool.expect("different endpoints"))
}

/// All plugins that have a state, and scorers that read what those of requests, prompts and images remember.
pub fn stateful() -> Pipeline {
    let plugin = |type_name: &str| {
        let parameters = match type_name {
            "session-affinity-filter" | "session-affinity-scorer" => r#"{"strategy": "session_id"}"#,
            "predicted-latency-producer" => r#"{"streamingMode": true}"#,
            _ => "{}",
        };
        Instance::unnamed(read_plugin(type_name, parameters).expect("a good plugin"))
    };
    let all = TYPES.iter().map(|name| plugin(name));
    let stateful = all.filter(|instance| instance.plugin.roles().recorder.is_some());
    let readers = ["active-request-scorer", "mm-embeddings-cache-scorer", "prefix-cache-scorer"].map(plugin);
    let plugins = stateful.chain(readers).collect();
    Pipeline::compile(PickerConfig { plugins, ..PickerConfig::default() }).expect("a good configuration")
}
