//! A shadow configuration next to the acting one.

use endpoint_picker::decision::Decision;
use endpoint_picker::decision::shadow::ShadowDecision;
use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::shadow::Shadow;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, NOW, assert_near, best, compile, destinations, fresh, owned, pod, rejection, totals};

/// An acting configuration and its shadow.
struct ShadowFixture {
    fixture: Fixture,
    shadow: Shadow,
    seed: u64,
}

impl ShadowFixture {
    fn new(acting: &Value, shadow: &Value, readings: Vec<Reading>) -> Self {
        let mut fixture = Fixture::new(acting, readings);
        let shadow = Shadow::new(compile(shadow).unwrap(), &fixture.pipeline);
        fixture.states.adopt(fixture.pipeline.initial_states().chain(shadow.pipeline().initial_states()));
        Self { fixture, shadow, seed: 1 }
    }

    fn send(&mut self, prompt: &str, headers: &[(&str, &str)], priority: i32) -> (Decision, ShadowDecision) {
        self.send_body(Api::Completions, &json!({"model": "m", "prompt": prompt}), headers, priority)
    }

    fn send_body(
        &mut self,
        api: Api,
        body: &Value,
        headers: &[(&str, &str)],
        priority: i32,
    ) -> (Decision, ShadowDecision) {
        let (json, headers) = (body.to_string(), owned(headers));
        let mut options = self.fixture.pipeline.body_options(Headers(&headers));
        options.keep_bytes = options.keep_bytes.max(self.shadow.pipeline().max_prompt_bytes());
        let body = Body::read(&json, api, &options).unwrap();
        let request = Request {
            model: "m",
            prompt: Some(&body.prompt),
            headers: Headers(&headers),
            priority,
            ..Request::default()
        };
        let pool = self.fixture.pool();
        let input = self.fixture.input(&pool);
        self.seed += 1;
        let acted = self.fixture.pipeline.decide(&request, &input, NOW, &mut SplitMix64::new(self.seed));
        let rng = &mut SplitMix64::new(!self.seed);
        let shadowed = self.shadow.decide((&self.fixture.pipeline, &acted), &request, &input, NOW, rng);
        for change in acted.records.changes.iter().chain(&shadowed.decision.records.changes) {
            self.fixture.states.apply(change, &pool);
        }
        (acted, shadowed)
    }
}

/// A configuration of these plugins.
fn config(plugins: &[Value]) -> Value {
    json!({"plugins": plugins})
}

fn of(name: &str) -> Value {
    config(&[json!({"type": name})])
}

const LONG: &str = "the same beginning, sixty-four tokens of four bytes at least, ";

fn long() -> String {
    LONG.repeat(12)
}

#[test]
fn the_same_rules_always_agree_though_chance_breaks_ties() {
    let readings = vec![pod(0, 0.1, &[]), pod(0, 0.1, &[]), pod(9, 0.9, &[])];
    let mut both = ShadowFixture::new(&json!({}), &json!({}), readings);
    let mut differed = 0;
    for n in 0..40 {
        let (acted, shadowed) = both.send(&format!("{n}"), &[], 0);
        assert!(shadowed.agreement.agrees(), "{acted:?} {shadowed:?}");
        differed += usize::from(destinations(&acted) != destinations(&shadowed.decision));
    }
    assert!(differed > 0, "chance never differed, so nothing is shown");
}

#[test]
fn another_preference_disagrees_and_says_what_it_would_do() {
    let readings = vec![pod(0, 0.9, &[]), pod(9, 0.1, &[])];
    let mut both = ShadowFixture::new(&of("queue-scorer"), &of("kv-cache-utilization-scorer"), readings);
    let (acted, shadowed) = both.send("hi", &[], 0);
    assert_eq!((destinations(&acted), shadowed.agreement.agrees()), (vec![0], false));
    let difference = shadowed.difference(&both.fixture.pool());
    assert_eq!(difference.as_deref(), Some("; the shadow picks 192.168.1.2:8000"));
    both.fixture.readings.swap(0, 1);
    both.fixture.readings[1].kv_usage = Some(0.05);
    let (acted, shadowed) = both.send("hi", &[], 0);
    assert_eq!((destinations(&acted), shadowed.agreement.agrees()), (vec![1], true));
    assert_eq!(shadowed.difference(&both.fixture.pool()), None);
}

#[test]
fn random_pickers_agree_only_on_the_same_endpoint() {
    let mut both = ShadowFixture::new(&json!({}), &of("random-picker"), vec![fresh(); 2]);
    let opinions: Vec<bool> = (0..200)
        .map(|n| {
            let (acted, shadowed) = both.send(&format!("{n}"), &[], 0);
            assert_eq!(shadowed.agreement.agrees(), destinations(&acted) == destinations(&shadowed.decision));
            shadowed.agreement.agrees()
        })
        .collect();
    let agreed = opinions.iter().filter(|agrees| **agrees).count();
    assert!((60..140).contains(&agreed), "{agreed} of 200");
}

#[test]
fn a_request_that_both_turn_away_alike_is_agreed_on() {
    let detector = |threshold| {
        json!({
            "plugins": [{"type": "utilization-detector", "parameters": {"queueDepthThreshold": threshold}}],
            "saturationDetector": "utilization-detector",
        })
    };
    let mut both = ShadowFixture::new(&detector(5), &detector(6), vec![pod(9, 0.1, &[]); 2]);
    let (acted, shadowed) = both.send("hi", &[], -1);
    assert_eq!((rejection(&acted).0, shadowed.agreement.agrees()), (429, true));
    let mut both = ShadowFixture::new(&detector(50), &detector(6), vec![pod(9, 0.1, &[]); 2]);
    let (acted, shadowed) = both.send("hi", &[], -1);
    assert_eq!((destinations(&acted).len(), shadowed.agreement.agrees()), (1, false));
    let difference = shadowed.difference(&both.fixture.pool()).unwrap();
    assert!(difference.starts_with("; the shadow rejects: ") && difference.contains("429"), "{difference}");
}

#[test]
fn what_is_done_is_the_same_with_and_without_a_shadow() {
    let shadow = config(&[
        json!({"type": "prefix-cache-scorer"}),
        json!({"type": "approx-prefix-cache-producer", "parameters": {"blockSizeTokens": 128}}),
        json!({"type": "no-hit-lru-scorer"}),
        json!({"type": "random-picker"}),
    ]);
    let mut alone = Fixture::idle(&json!({}), 5);
    let mut both = ShadowFixture::new(&json!({}), &shadow, vec![fresh(); 5]);
    for n in 0..60 {
        let prompt = format!("{} {}", n % 7, long());
        let (acted, _) = both.send(&prompt, &[], 0);
        let body = json!({"model": "m", "prompt": prompt}).to_string();
        let seed = both.seed;
        let headers = owned(&[]);
        let options = alone.pipeline.body_options(Headers(&headers));
        let body = Body::read(&body, Api::Completions, &options).unwrap();
        let request = Request { model: "m", prompt: Some(&body.prompt), ..Request::default() };
        let decision = alone.decide(&request, seed);
        assert_eq!(decision.runs, acted.runs, "request {n}");
        assert_eq!(
            (decision.outcome, decision.records.changes),
            (acted.outcome, acted.records.changes),
            "request {n}"
        );
    }
}

/// Sends a prompt first to one endpoint, by its queue, and gives whether the shadow then wants it there.
#[track_caller]
fn assert_learns_where_requests_go(acting: &Value, shadow: &Value, headers: &[(&str, &str)]) {
    let mut both =
        ShadowFixture::new(acting, shadow, vec![pod(0, 0.1, &[]), pod(5, 0.1, &[]), pod(5, 0.1, &[])]);
    for endpoint in [2, 1] {
        let prompt = format!("{endpoint} {}", long());
        for (n, reading) in both.fixture.readings.iter_mut().enumerate() {
            reading.waiting = Some(if n == endpoint { 0 } else { 5 });
        }
        let name = format!("session {endpoint}");
        let headers: Vec<_> = headers.iter().map(|&(header, _)| (header, name.as_str())).collect();
        let (acted, _) = both.send(&prompt, &headers, 0);
        assert_eq!(destinations(&acted), [endpoint]);
        let (_, shadowed) = both.send(&prompt, &headers, 0);
        assert_eq!(best(&shadowed.decision), [endpoint], "{shadowed:?}");
    }
}

#[test]
fn a_prefix_scorer_that_does_not_act_learns_where_prompts_went() {
    assert_learns_where_requests_go(&of("queue-scorer"), &of("prefix-cache-scorer"), &[]);
}

#[test]
fn a_prefix_scorer_of_other_blocks_learns_its_own() {
    let blocks = |tokens: u32| {
        config(&[
            json!({"type": "queue-scorer"}),
            json!({"type": "prefix-cache-scorer"}),
            json!({
                "type": "approx-prefix-cache-producer",
                "parameters": {"autoTune": false, "blockSizeTokens": tokens},
            }),
        ])
    };
    let only = |mut config: Value| {
        config["plugins"].as_array_mut().unwrap().remove(0);
        config
    };
    assert_learns_where_requests_go(&blocks(64), &only(blocks(100)), &[]);
}

#[test]
fn a_session_scorer_that_does_not_act_binds_sessions_to_where_they_went() {
    let affinity = json!({"type": "session-affinity-scorer", "parameters": {"strategy": "session_id"}});
    assert_learns_where_requests_go(&of("queue-scorer"), &config(&[affinity]), &[("x-session-id", "")]);
}

#[test]
fn a_media_cache_of_another_size_remembers_its_own() {
    let cached = |parameters: Value| {
        let producer = json!({"type": "mm-embeddings-cache-producer", "parameters": parameters});
        config(&[json!({"type": "mm-embeddings-cache-scorer"}), producer])
    };
    let one_item = cached(json!({"cacheSizeInMBPerServer": 2}));
    let mut both = ShadowFixture::new(&cached(json!({})), &one_item, vec![fresh()]);
    let mut scores = |image: &str| {
        let image =
            json!({"type": "image_url", "image_url": {"url": format!("https://example.com/{image}")}});
        let body = json!({"model": "m", "messages": [{"role": "user", "content": [image]}]});
        let (acted, shadowed) = both.send_body(Api::Chat, &body, &[], 0);
        [totals(&acted), totals(&shadowed.decision)].concat()
    };
    assert_near(&scores("a.png"), &[0.0, 0.0]);
    assert_near(&scores("b.png"), &[0.0, 0.0]);
    assert_near(&scores("b.png"), &[1.0, 1.0]);
    assert_near(&scores("a.png"), &[1.0, 0.0]);
}

#[test]
fn a_plugin_that_both_have_remembers_once() {
    let mut both = ShadowFixture::new(&json!({}), &json!({}), vec![fresh(); 3]);
    let (acted, shadowed) = both.send(&long(), &[], 0);
    assert_eq!((acted.records.changes.len(), shadowed.decision.records.changes.len()), (1, 0));
    let (acted, shadowed) = both.send(&long(), &[], 0);
    assert_eq!(best(&shadowed.decision), destinations(&acted), "the shadow looks at the same state");
}

#[test]
fn a_shadow_that_turns_a_request_away_learns_where_it_went_all_the_same() {
    let mut shadow = of("prefix-cache-scorer");
    shadow["plugins"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "utilization-detector", "parameters": {"queueDepthThreshold": 1}}));
    shadow["saturationDetector"] = json!("utilization-detector");
    let mut both = ShadowFixture::new(&of("queue-scorer"), &shadow, vec![pod(3, 0.1, &[]), pod(2, 0.1, &[])]);
    let (acted, shadowed) = both.send(&long(), &[], -1);
    assert_eq!((destinations(&acted), rejection(&shadowed.decision).0), (vec![1], 429));
    let (_, shadowed) = both.send(&long(), &[], 0);
    assert_eq!(best(&shadowed.decision), [1]);
}

#[test]
fn what_a_shadow_learned_stays_when_it_acts() {
    let acting = json!({"plugins": [{"type": "queue-scorer"}]});
    let mut both =
        ShadowFixture::new(&acting, &of("prefix-cache-scorer"), vec![pod(3, 0.1, &[]), pod(0, 0.1, &[])]);
    both.send(&long(), &[], 0);
    let ShadowFixture { mut fixture, shadow, .. } = both;
    fixture.pipeline = compile(&of("prefix-cache-scorer")).unwrap();
    drop(shadow);
    fixture.states.adopt(fixture.pipeline.initial_states());
    assert_eq!(best(&fixture.send(&long(), &[])), [1]);
}
