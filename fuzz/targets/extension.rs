//! Fuzzes the messages that Envoy Gateway sends to its extension server: nothing that is not about pools
//! changes, and nothing panics.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use metrics_agent_gateway::hooks::{self, Translation};
use metrics_agent_gateway::ownership::Ownership;
use metrics_agent_gateway::settings::{FilterConfig, HookSettings, Module};
use metrics_agent_gateway::weights::Weights;
use metrics_agent_gateway::wire::{Builder, WireMessage};

const POOL: &[u8] = br#"{"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
    "metadata": {"name": "chat", "namespace": "team"}, "spec": {"appProtocol": "kubernetes.io/h2c"}}"#;

fuzz_target!(|input: &[u8]| {
    if let Ok(message) = WireMessage::read(input) {
        assert_eq!(message.without(&[]).into_bytes(), input);
    }
    let filter = FilterConfig::read(Path::new("f"), br#"{"agent": {}}"#).expect("a good configuration");
    let ownership = Ownership::default();
    let module = Module::Name("endpoint_picker".to_owned());
    let settings = HookSettings { ownership, module, filter, conformance: false };
    let mut weights = Weights::default();
    let _ = weights.insert(input);
    // The input is a route, a host, a configuration, a cluster and a listener.
    let object = |json: &[u8]| Builder::default().bytes(1, json);
    let context = Builder::default().bytes(1, object(POOL)).bytes(1, object(input)).bytes(1, input);
    let marked = hooks::route(&settings, input, context.as_ref());
    let route = marked.as_deref().unwrap_or(input);
    let host = Builder::default().bytes(3, route).bytes(3, input);
    let configuration = Builder::default().bytes(1, "routes").bytes(2, host).bytes(2, input);
    let translation = Translation {
        clusters: vec![input.to_vec().into()],
        listeners: vec![input.to_vec().into()],
        routes: vec![configuration.into_bytes().into(), input.to_vec().into()],
    };
    let after = hooks::translate(&settings, &weights, translation.clone());
    assert_eq!(after, hooks::translate(&settings, &weights.clone(), translation.clone()), "replicas agree");
    assert_eq!((after.listeners.len(), after.routes.len()), (1, 2));
    assert!(after.clusters.len() <= 3);
    for (before, after) in [(translation.clusters, after.clusters), (translation.routes, after.routes)] {
        for (before, after) in
            before.iter().zip(&after).filter(|(before, _)| WireMessage::read(before).is_ok())
        {
            assert!(before == after || WireMessage::read(after).is_ok());
        }
    }
});
