//! The caches of servers, as the agent publishes them.

use endpoint_picker::state::prefix::key;
use endpoint_picker_engine::testing;
use endpoint_picker_wire::prefixes::{Blocks, CacheState, CachedPrefixes, Model};
use endpoint_picker_wire::{PREFIXES_FORMAT, v1};
use serde_json::json;

use crate::envoy::{Next, Request};
use crate::pool;

#[test]
fn a_chat_goes_to_the_server_whose_events_show_the_text_that_its_template_makes() {
    let _turn = pool::turn();
    let scorers = [("precise-prefix-cache-scorer", None), ("max-score-picker", None)];
    let policy =
        v1::Policy { picker_config: Some(testing::picker_config(&scorers)), ..v1::Policy::default() };
    let config = pool::with_policy("prefixes", &json!({}), policy, &[0, 0, 0]);
    let content = "All happy families are alike. ".repeat(20);
    let text = format!("<s>user: {content}\nassistant: ");
    let parent = key::root("n", None);
    let stored = Blocks {
        parents: vec![parent],
        keys: vec![key::child(parent, &text.as_bytes()[..600])],
        lengths: vec![600],
        tokens: vec![150],
        endpoints: vec![2],
        tiers: vec![0],
        ranks: vec![],
    };
    let endpoints: Vec<u64> = (1..=3).map(testing::key).collect();
    let model = Model {
        names: vec!["n".to_owned()],
        chat_template:
            "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
                .to_owned(),
        bos_token: "<s>".to_owned(),
        root: parent,
        ..Model::default()
    };
    config.agent.publish_prefixes(CachedPrefixes {
        format: PREFIXES_FORMAT,
        log: 1,
        version: 1,
        whole: true,
        models: vec![model],
        models_changed: true,
        caches: endpoints
            .iter()
            .map(|&endpoint| CacheState { endpoint, complete: true, complete_by_token_ids: false, age_ms: 0 })
            .collect(),
        endpoints,
        stored: Some(stored),
        ..CachedPrefixes::default()
    });
    let body = json!({"model": "n", "messages": [{"role": "user", "content": content}]}).to_string();
    for worker in [0, 1, 0, 1, 0, 1, 0, 1] {
        let request = Request::chat(&config, worker);
        request.headers(false);
        assert_eq!(request.body(body.as_bytes(), true), Next::Continue);
        assert_eq!(request.destinations().as_deref(), Some(pool::address(3).as_str()));
    }
}
