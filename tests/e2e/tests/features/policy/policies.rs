//! Policies: rewritten models, priorities, `InferenceModel`s, scores, and several pools.

use endpoint_picker_e2e::fixture::{TEXT, fresh_prompt, until_picked};
use endpoint_picker_e2e::policy_fixture::{POOL, PolicyFixture, model_of, rewriting, rule, target};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::objectives;
use endpoint_picker_harness::scripted_agent::{Pool, ScriptedAgent};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::ModelServer;
use endpoint_picker_wire::v1;
use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_gets_its_weight_of_the_requests() {
    const REQUESTS: usize = 2000;
    let targets = vec![target("canary", Some(10)), target("stable", Some(90))];
    let policy = v1::Policy { rewrite_rules: vec![rule("llama", targets)], ..v1::Policy::default() };
    let fixture = PolicyFixture::start(policy).await;
    // A connection for each request, so that every worker draws.
    let client = client::http1();
    let body = json!({"model": "llama", "prompt": "hi", "max_tokens": 1}).to_string();
    for _ in 0..REQUESTS / 50 {
        let answers = join_all((0..50).map(|_| fixture.post(&client, TEXT, body.clone()))).await;
        assert!(answers.iter().all(|answer| answer.status() == StatusCode::OK));
    }
    let models: Vec<_> = fixture.take_requests().iter().map(model_of).collect();
    assert_eq!(models.len(), REQUESTS);
    assert!(models.iter().all(|model| model == "canary" || model == "stable"));
    let canaries = models.iter().filter(|model| *model == "canary").count();
    // Five standard deviations of 2000 draws at 0.1 are 67.1.
    assert!((133..=267).contains(&canaries), "{canaries} of {REQUESTS} went to the canary");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negative_objective_is_shed_by_a_saturated_pool_and_no_other() {
    let objectives = [("shed", -1), ("high", 5)];
    let objectives = objectives.map(|(name, priority)| v1::Objective { name: name.to_owned(), priority });
    let policy = v1::Policy { objectives: objectives.into(), ..v1::Policy::default() };
    let fixture = PolicyFixture::start(policy.clone()).await;
    eventually("an idle pool serves a sheddable request", async || {
        match fixture.ask("llama", &[(objectives::HEADER, "shed")]).await.status() {
            StatusCode::OK => Ok(()),
            status => Err(status),
        }
    })
    .await;

    fixture.agent.set(POOL, Pool { endpoints: fixture.endpoints(), waiting: 100, policy });
    let answer = eventually("a saturated pool sheds it", async || {
        let answer = fixture.ask("llama", &[(objectives::HEADER, "shed")]).await;
        if answer.status() == StatusCode::TOO_MANY_REQUESTS { Ok(answer) } else { Err(answer.status()) }
    })
    .await;
    let error: Value = answer.json().await.unwrap();
    assert_eq!(error["error"]["message"], "system saturated, sheddable request dropped");
    assert_eq!(error["error"]["type"], "rate_limit_error");
    for headers in [&[(objectives::HEADER, "high")][..], &[(objectives::HEADER, "nobody")], &[]] {
        assert_eq!(fixture.ask("llama", headers).await.status(), StatusCode::OK, "{headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_inference_models_an_unknown_model_is_404() {
    let model = v1::InferenceModel {
        name: "llama".to_owned(),
        priority: 0,
        targets: vec![target("llama-v1", Some(1))],
    };
    let fixture =
        PolicyFixture::start(v1::Policy { inference_models: vec![model], ..v1::Policy::default() }).await;
    let answer = fixture.ask("nobody", &[]).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let error: Value = answer.json().await.unwrap();
    assert_eq!(
        error["error"],
        json!({
            "message": "error finding a model object in InferenceModel for input nobody",
            "type": "invalid_request_error",
            "param": null,
            "code": "NotFound",
        })
    );
    assert!(fixture.take_requests().is_empty());

    let answer = fixture.ask("llama", &[]).await;
    assert_eq!(answer.json::<Value>().await.unwrap()["model"], "llama");
    assert_eq!(model_of(&fixture.received()), "llama-v1");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_policies_change() {
    let fixture = Arc::new(PolicyFixture::start(rewriting()).await);
    let is_over = Arc::new(AtomicBool::new(false));
    let load = (0..8).map(|_| {
        let (fixture, is_over) = (fixture.clone(), is_over.clone());
        tokio::spawn(async move {
            let client = client::h2c();
            let body = json!({"model": "llama", "prompt": "hi", "max_tokens": 1}).to_string();
            let mut models = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let answer = fixture.post(&client, TEXT, body.clone()).await;
                assert_eq!(answer.status(), StatusCode::OK);
                models.push(answer.json::<Value>().await.unwrap()["model"].clone());
            }
            models
        })
    });
    let load: Vec<_> = load.collect();
    for round in 0..40 {
        let policy = if round % 2 == 0 { v1::Policy::default() } else { rewriting() };
        fixture.set(policy);
        let expected = if round % 2 == 0 { "llama" } else { "llama-canary" };
        eventually("requests follow the new policy", async || {
            let requests = fixture.take_requests();
            let models: Vec<_> = requests.iter().map(model_of).collect();
            if models.iter().any(|model| model == expected) { Ok(()) } else { Err(format!("{models:?}")) }
        })
        .await;
    }
    is_over.store(true, Ordering::Relaxed);
    let answers: Vec<Value> = join_all(load).await.into_iter().flat_map(Result::unwrap).collect();
    assert!(answers.iter().all(|model| model == "llama"), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_in_one_envoy_have_their_own_endpoints_and_policies() {
    let builder = Stack::builder().servers(4).second_pool("second", "/second/");
    let agent = ScriptedAgent::start().await.unwrap();
    let stack = builder.own_agent(agent.address()).start().await;
    let fixture = PolicyFixture { stack, agent };
    let endpoints = fixture.endpoints();
    let renamed = |name: &str| v1::Policy {
        rewrite_rules: vec![rule("llama", vec![target(name, None)])],
        ..v1::Policy::default()
    };
    for (pool, name, endpoints) in
        [(POOL, "of-first", &endpoints[..2]), ("second", "of-second", &endpoints[2..])]
    {
        fixture.agent.set(pool, Pool { endpoints: endpoints.to_vec(), waiting: 0, policy: renamed(name) });
    }
    fixture.stack.wait_until_picking().await;
    until_picked(&fixture.stack, "/second/picking").await;
    fixture.take_requests();

    for (path, name, servers) in
        [("/v1/completions", "of-first", 0..2), ("/second/v1/completions", "of-second", 2..4)]
    {
        for _ in 0..20 {
            let body = json!({"model": "llama", "prompt": fresh_prompt()}).to_string();
            let answer = fixture.post(&client::http1(), path, body).await;
            assert_eq!(answer.json::<Value>().await.unwrap()["model"], "llama", "{path}");
        }
        let inside = fixture.stack.servers()[servers].iter().flat_map(ModelServer::take_requests);
        let models: Vec<_> = inside.map(|request| model_of(&request)).collect();
        assert_eq!(models, [name; 20], "{path}");
    }
    assert!(fixture.take_requests().is_empty(), "a request went to an endpoint of the other pool");
}

#[tokio::test(flavor = "multi_thread")]
async fn later_filters_get_the_scores_only_when_the_policy_emits_them() {
    const SCORES: &str = "x-gateway-destination-endpoint-scores";
    let fixture =
        PolicyFixture::start(v1::Policy { emit_endpoint_scores: true, ..v1::Policy::default() }).await;
    let path = "/v1/completions?scores";
    let answer = fixture.post(&client::http1(), path, client::completion("hi").to_string()).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(fixture.received().header(SCORES), None);
    let scores = fixture.stack.logged(path).await["scores"].clone();
    for endpoint in fixture.endpoints() {
        assert!(scores[endpoint.to_string()].is_number(), "{scores}");
    }

    fixture.set(v1::Policy::default());
    let mut round = 0;
    eventually("no scores any more", async || {
        round += 1;
        let path = format!("/v1/completions?round={round}");
        let request = client::http1().post(fixture.stack.url(&path)).header(SCORES, "CgA=");
        request.json(&client::completion("hi")).send().await.unwrap();
        match &fixture.stack.logged(&path).await["scores"] {
            Value::Null => Ok(()),
            scores => Err(scores.to_string()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_readings_give_neutral_scores_when_the_policy_sets_their_age() {
    let policy =
        v1::Policy { emit_endpoint_scores: true, neutral_score_after_ms: Some(0), ..v1::Policy::default() };
    let fixture = PolicyFixture::start(policy).await;
    let path = "/v1/completions?scores";
    fixture.post(&client::http1(), path, client::completion("hi").to_string()).await;
    let scores = fixture.stack.logged(path).await["scores"].clone();
    for endpoint in fixture.endpoints() {
        // Half of the maximum of queue and KV cache; no server has the prompt cached.
        assert_eq!(scores[endpoint.to_string()], 2.0, "{scores}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_token_of_an_answer_leads_back_to_its_server() {
    const TOKEN: &str = "x-session-token";
    let affinity = "session-affinity-filter".to_owned();
    let plugin = v1::Plugin { name: affinity.clone(), r#type: affinity.clone(), parameters: "{}".to_owned() };
    let profile = v1::Profile {
        name: "default".to_owned(),
        plugins: vec![v1::PluginRef { name: affinity, weight: None }],
    };
    let config =
        v1::PickerConfig { plugins: vec![plugin], profiles: vec![profile], ..v1::PickerConfig::default() };
    let fixture =
        PolicyFixture::start(v1::Policy { picker_config: Some(config), ..v1::Policy::default() }).await;
    for _ in 0..5 {
        let first = fixture.ask("llama", &[]).await;
        let token = first.headers()[TOKEN].to_str().unwrap();
        for _ in 0..10 {
            let next = fixture.ask("llama", &[(TOKEN, token)]).await;
            assert_eq!(fixture.stack.served_by(&next), fixture.stack.served_by(&first));
            assert_eq!(next.headers()[TOKEN], first.headers()[TOKEN]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_gives_a_request_an_id_when_the_client_gives_none() {
    let fixture = PolicyFixture::start(v1::Policy::default()).await;
    for headers in [&[][..], &[("x-request-id", "")]] {
        fixture.ask("llama", headers).await;
        assert_eq!(fixture.received().header("x-request-id").map(str::len), Some(36), "{headers:?}");
    }
}
