//! Requests go to the server whose KV-cache events show their prompt.

use endpoint_picker::pool::Endpoint;
use endpoint_picker::state::prefix::key;
use endpoint_picker_e2e::fixture::CHAT;
use endpoint_picker_e2e::policy_fixture::{POOL, PolicyFixture};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_model_server::MODEL;
use endpoint_picker_wire::prefixes::{Blocks, CacheState, CachedPrefixes, Model};
use endpoint_picker_wire::v1;
use reqwest::StatusCode;
use std::net::SocketAddr;

const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// Bytes of a block.
const BLOCK: usize = 200;

/// Rules by which matches alone decide, and by which a prompt that was just sent soon counts no more.
fn policy() -> v1::Policy {
    let plugin = |r#type: &str, parameters: &str| v1::Plugin {
        name: r#type.to_owned(),
        r#type: r#type.to_owned(),
        parameters: parameters.to_owned(),
    };
    let producer = "precise-prefix-cache-producer";
    let plugins = vec![
        plugin(producer, r#"{"speculativeTTL": "1ms"}"#),
        plugin("prefix-cache-scorer", &format!(r#"{{"prefixMatchInfoProducerName": "{producer}"}}"#)),
    ];
    let config = v1::PickerConfig { plugins, ..v1::PickerConfig::default() };
    v1::Policy { picker_config: Some(config), ..v1::Policy::default() }
}

/// Everything about servers of which one has cached this text.
fn prefixes(servers: &[SocketAddr], holder: usize, text: &str) -> CachedPrefixes {
    let key_of = |address: &SocketAddr| Endpoint::new(format!("default/{address}"), *address, vec![]).key();
    let endpoints: Vec<u64> = servers.iter().map(key_of).collect();
    let caches = endpoints.iter().map(|&endpoint| CacheState {
        endpoint,
        complete: true,
        complete_by_token_ids: false,
        age_ms: 0,
    });
    let mut stored = Blocks::default();
    let mut parent = key::root(MODEL, None);
    for block in text.as_bytes().chunks_exact(BLOCK) {
        let key = key::child(parent, block);
        stored.parents.push(parent);
        stored.keys.push(key);
        stored.lengths.push(u32::try_from(BLOCK).unwrap());
        stored.tokens.push(64);
        stored.endpoints.push(u32::try_from(holder).unwrap());
        stored.tiers.push(0);
        parent = key;
    }
    let names = vec![MODEL.to_owned()];
    let root = key::root(MODEL, None);
    let models = vec![Model { names, root, chat_template: TEMPLATE.to_owned(), ..Model::default() }];
    let caches = caches.collect();
    CachedPrefixes {
        log: 1,
        models,
        models_changed: true,
        caches,
        endpoints,
        stored: Some(stored),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_goes_to_the_server_that_has_cached_it_although_another_was_sent_it() {
    let fixture = PolicyFixture::start(policy()).await;
    // A connection for each request, so that every worker decides.
    let client = client::http1();
    let content = "All happy families are alike. ".repeat(70);
    let body = client::chat(&content).to_string();
    let send = async || {
        let response = fixture.post(&client, CHAT, body.clone()).await;
        assert_eq!(response.status(), StatusCode::OK);
        fixture.stack.served_by(&response)
    };
    let first = send().await;
    for _ in 0..10 {
        assert_eq!(send().await, first, "by what was sent, while no events are known");
    }

    let servers = fixture.endpoints();
    let other = (first + 1) % servers.len();
    fixture.agent.set_prefixes(POOL, prefixes(&servers, other, &format!("[user] {content}\n[assistant]")));
    eventually("the events decide", async || match send().await {
        server if server == other => Ok(()),
        server => Err(format!("server {server}")),
    })
    .await;
    for _ in 0..10 {
        assert_eq!(send().await, other);
    }

    let mut broken = prefixes(&servers, other, "");
    broken.caches[first].complete = false;
    fixture.agent.set_prefixes(POOL, broken);
    eventually("a server whose events are broken is matched by what it was sent", async || {
        match send().await {
            server if server == first => Ok(()),
            server => Err(format!("server {server}")),
        }
    })
    .await;
}
