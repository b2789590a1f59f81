use super::*;
use crate::decision::rejection::Code;
use crate::headers::HeaderList;
use crate::rng::SplitMix64;
use crate::test;

const SEED: u64 = 5;

fn headers(pairs: &[(&str, &str)]) -> HeaderList {
    pairs.iter().copied().collect()
}

fn target(model: &str) -> Target {
    Target { model: model.to_owned(), weight: None }
}

fn rule(models: &[&str], targets: &[&str]) -> RewriteRule {
    let models = models.iter().map(|&model| model.to_owned()).collect();
    let targets = targets.iter().map(|model| target(model)).collect();
    RewriteRule { resource: "canary".to_owned(), models, targets }
}

fn inference_model(name: &str, priority: i32, targets: &[&str]) -> InferenceModel {
    InferenceModel {
        name: name.to_owned(),
        priority,
        targets: targets.iter().map(|model| target(model)).collect(),
    }
}

fn rewriting(rules: &[RewriteRule]) -> Policy {
    Policy { rewrites: Rewrites::new(rules.to_vec()), ..Policy::default() }
}

/// Model and priority, or status and message.
fn outcome(
    policy: &Policy,
    request_headers: &[(&str, &str)],
    asked: Option<&str>,
) -> Result<(String, i32), (u16, String)> {
    let request_headers = headers(request_headers);
    let resolution = policy.resolve(Headers(&request_headers), asked, &mut SplitMix64::new(SEED));
    resolution
        .map(|resolution| (resolution.model.to_owned(), resolution.priority))
        .map_err(|rejection| (rejection.code.status(), rejection.message.into_owned()))
}

fn model(policy: &Policy, request_headers: &[(&str, &str)], asked: Option<&str>) -> String {
    outcome(policy, request_headers, asked).unwrap().0
}

const NO_MODEL: (u16, &str) = (400, "model not found in request body");

fn assert_no_model(policy: &Policy, request_headers: &[(&str, &str)], asked: Option<&str>) {
    let policy = Policy { requires_model: true, ..policy.clone() };
    let (status, message) = outcome(&policy, request_headers, asked).unwrap_err();
    assert_eq!((status, &*message), NO_MODEL);
}

#[test]
fn a_model_may_be_replaced_by_a_rule_a_header_or_targets() {
    let rewrites = Rewrites::new([rule(&["m"], &[])]);
    let models = InferenceModels::new([
        InferenceModel { name: "n".to_owned(), priority: 0, targets: vec![target("x")] },
        InferenceModel { name: "o".to_owned(), ..InferenceModel::default() },
    ]);
    let policy = Policy { rewrites, inference_models: models, ..Policy::default() };
    let renamed = ["m", "n", "o", "p"].map(|asked| policy.may_rename(Headers::default(), asked));
    assert_eq!(renamed, [true, true, false, false]);
    let header = headers(&[("x-llm-d-model-name-rewrite", "o")]);
    assert!(policy.may_rename(Headers(&header), "p") && !policy.may_rename(Headers(&header), "o"));
}

#[test]
fn without_objects_a_request_keeps_its_model_at_priority_0() {
    assert_eq!(outcome(&Policy::default(), &[], Some("m")), Ok(("m".to_owned(), 0)));
    assert_no_model(&Policy::default(), &[], None);
}

#[test]
fn an_objective_is_chosen_by_header_alone_and_an_unknown_one_is_0() {
    let objectives = [("shed", -1), ("four", 4), ("m", 9), ("four", 5)];
    let objectives = objectives.map(|(name, priority)| (name.to_owned(), priority));
    let policy = Policy { objectives: Objectives::new(objectives), ..Policy::default() };
    let name = "x-llm-d-inference-objective";
    let old_name = "x-gateway-inference-objective";
    for (request_headers, priority) in [
        (&[(name, "four")][..], 4),
        (&[(old_name, "shed")], -1),
        (&[(old_name, "shed"), (name, "four")], 4),
        (&[(old_name, "shed"), (name, "unknown")], 0),
        (&[(old_name, "shed"), (name, "")], -1),
        (&[(name, "unknown")], 0),
        (&[], 0),
    ] {
        assert_eq!(outcome(&policy, request_headers, Some("m")).unwrap().1, priority, "{request_headers:?}");
        let request_headers = headers(request_headers);
        let rng = &mut SplitMix64::new(SEED);
        let resolution = policy.resolve_at(Api::Raw, Headers(&request_headers), None, rng).unwrap();
        assert_eq!((resolution.model, resolution.priority), ("", priority), "{request_headers:?}");
    }
}

#[test]
fn the_rule_for_the_model_comes_before_the_rule_for_every_model_and_the_first_counts() {
    let policy = rewriting(&[
        rule(&[], &["for-all"]),
        rule(&["a", "b"], &["first"]),
        rule(&["b", "c"], &["second"]),
        rule(&[], &["too-late"]),
    ]);
    for (asked, expected) in [
        (Some("a"), "first"),
        (Some("b"), "first"),
        (Some("c"), "second"),
        (Some("other"), "for-all"),
        (Some("first"), "for-all"),
        (None, "for-all"),
    ] {
        assert_eq!(model(&policy, &[], asked), expected, "{asked:?}");
    }
}

#[test]
fn a_header_names_the_model_unless_a_rule_matches_the_model_in_the_body() {
    let policy = rewriting(&[rule(&["a"], &["by-rule"]), rule(&["h"], &["not-by-header"])]);
    let name = "x-llm-d-model-name-rewrite";
    let old_name = "x-gateway-model-name-rewrite";
    for (request_headers, asked, expected) in [
        (&[(name, "h")][..], Some("other"), "h"),
        (&[(name, "h")], Some("a"), "by-rule"),
        (&[(name, "h")], None, "h"),
        (&[(old_name, "old")], None, "old"),
        (&[(old_name, "old"), (name, "h")], Some("other"), "h"),
        (&[], Some("other"), "other"),
    ] {
        assert_eq!(model(&policy, request_headers, asked), expected, "{request_headers:?} {asked:?}");
    }
    assert_no_model(&policy, &[], None);
}

#[test]
fn a_rule_without_a_name_leaves_the_request_without_a_model_also_with_a_header() {
    for empty in [rule(&["a"], &[]), rule(&["a"], &[""])] {
        let policy = rewriting(&[empty]);
        assert_no_model(&policy, &[("x-llm-d-model-name-rewrite", "h")], Some("a"));
        assert_eq!(model(&policy, &[], Some("b")), "b");
    }
}

fn early_api() -> Policy {
    let models = [
        inference_model("plain", 0, &[]),
        inference_model("shed", -1, &["served"]),
        inference_model("shed", 7, &["younger"]),
    ];
    Policy { inference_models: InferenceModels::new(models), ..Policy::default() }
}

#[test]
fn an_inference_model_gives_target_and_priority_and_the_oldest_of_a_name_counts() {
    assert_eq!(outcome(&early_api(), &[], Some("plain")), Ok(("plain".to_owned(), 0)));
    assert_eq!(outcome(&early_api(), &[], Some("shed")), Ok(("served".to_owned(), -1)));
}

#[test]
fn with_inference_models_an_unknown_model_is_404_and_a_missing_one_400() {
    let message = "error finding a model object in InferenceModel for input unknown";
    assert_eq!(outcome(&early_api(), &[], Some("unknown")), Err((404, message.to_owned())));
    assert_eq!(
        outcome(&early_api(), &[], Some("served")).unwrap_err().0,
        404,
        "clients cannot name a target"
    );
    assert_no_model(&early_api(), &[], None);
}

#[test]
fn an_inference_model_whose_targets_have_no_weight_is_404() {
    let mut zero = inference_model("zero", 0, &["a", "b"]);
    zero.targets.iter_mut().for_each(|target| target.weight = Some(0));
    let policy = Policy {
        inference_models: InferenceModels::new([zero, inference_model("nameless", 0, &[""])]),
        ..Policy::default()
    };
    for name in ["zero", "nameless"] {
        let message = format!("error getting target model name for model {name}");
        assert_eq!(outcome(&policy, &[], Some(name)), Err((404, message)));
    }
}

#[test]
fn a_long_unknown_name_is_cut_in_the_message() {
    let (status, message) = outcome(&early_api(), &[], Some(&"é".repeat(1 << 20))).unwrap_err();
    assert_eq!(status, 404);
    assert!(message.len() < 600 && message.ends_with("é…"), "{message}");
}

#[test]
fn with_both_generations_the_newer_names_target_and_priority_and_one_of_both_names_must_exist() {
    let policy = Policy {
        rewrites: Rewrites::new([
            rule(&["shed"], &["canary"]),
            rule(&["alias"], &["plain"]),
            rule(&["astray"], &["nowhere"]),
        ]),
        objectives: Objectives::new([("high".to_owned(), 8)]),
        ..early_api()
    };
    let objective = ("x-llm-d-inference-objective", "high");
    let rewrite = ("x-llm-d-model-name-rewrite", "shed");
    for (request_headers, asked, expected) in [
        (&[][..], Some("shed"), Ok(("canary", -1))),
        (&[objective], Some("shed"), Ok(("canary", 8))),
        (&[("x-llm-d-inference-objective", "unknown")], Some("shed"), Ok(("canary", -1))),
        (&[], Some("alias"), Ok(("plain", 0))),
        (&[], Some("plain"), Ok(("plain", 0))),
        (&[rewrite], Some("plain"), Ok(("shed", 0))),
        (&[rewrite], None, Ok(("shed", -1))),
        (&[], Some("astray"), Err(404)),
        (&[], Some("unknown"), Err(404)),
    ] {
        let found = outcome(&policy, request_headers, asked);
        let found = found.as_ref().map(|(model, priority)| (model.as_str(), *priority));
        assert_eq!(found.map_err(|(status, _)| *status), expected, "{request_headers:?} {asked:?}");
    }
}

#[test]
fn unknown_models_have_the_code_of_their_status() {
    let known = early_api();
    let rejection =
        known.resolve(Headers::default(), Some("unknown"), &mut SplitMix64::new(SEED)).unwrap_err();
    assert_eq!((rejection.code, rejection.code.name(), rejection.reason), (Code::NotFound, "NotFound", None));
}

#[test]
fn a_model_that_a_rule_names_comes_with_the_rules_object() {
    let policy = rewriting(&[rule(&["a"], &["b"])]);
    let by_header = headers(&[("x-llm-d-model-name-rewrite", "c")]);
    let rewrite = |api, headers: Headers<'_>, asked| {
        let rng = &mut SplitMix64::new(SEED);
        policy.resolve_at(api, headers, Some(asked), rng).unwrap().rewrite.map(str::to_owned)
    };
    assert_eq!(rewrite(Api::Chat, Headers::default(), "a").as_deref(), Some("canary"));
    assert_eq!(rewrite(Api::Chat, Headers::default(), "d"), None);
    assert_eq!(rewrite(Api::Chat, Headers(&by_header), "d"), None);
    assert_eq!(rewrite(Api::Raw, Headers(&by_header), "a"), None);
}

#[test]
fn a_body_of_which_only_the_model_is_read_is_rewritten_if_it_names_one() {
    let policy = rewriting(&[rule(&["a"], &["b"])]);
    let model = |policy: &Policy, asked| {
        let rng = &mut SplitMix64::new(SEED);
        policy
            .resolve_at(Api::ModelOnly, Headers::default(), asked, rng)
            .map(|resolution| resolution.model.to_owned())
    };
    assert_eq!(model(&policy, Some("a")).unwrap(), "b");
    assert_eq!(model(&policy, None).unwrap(), "");
    assert_eq!(model(&early_api(), None).unwrap(), "");
    assert_eq!(model(&early_api(), Some("unknown")).unwrap_err().code, Code::NotFound);
}

#[test]
fn a_body_is_needed_if_the_decision_depends_on_it() {
    let by_header = headers(&[("x-llm-d-model-name-rewrite", "c")]);
    for (policy, headers, for_its_model) in [
        (Policy::default(), Headers::default(), false),
        (Policy::default(), Headers(&by_header), true),
        (rewriting(&[rule(&["a"], &["b"])]), Headers::default(), true),
        (early_api(), Headers::default(), true),
    ] {
        assert!(policy.needs_body(Api::Chat, headers));
        assert!(!policy.needs_body(Api::Raw, headers));
        assert_eq!(policy.needs_body(Api::ModelOnly, headers), for_its_model);
        assert_eq!(policy.needs_body(Api::CountTokens, headers), for_its_model);
        assert!(policy.needs_body(Api::Invocations, headers), "it may have a prompt");
        for (api, expected) in [
            (Api::Chat, true),
            (Api::Raw, false),
            (Api::SglangGenerate, false),
            (Api::ModelOnly, for_its_model),
            (Api::ChatBatch, for_its_model),
            (Api::Invocations, for_its_model),
        ] {
            assert_eq!(policy.needs_model(api, headers), expected, "{api:?}");
        }
    }
}

#[test]
fn a_body_that_cannot_be_read_is_passed_on_unless_its_model_must_exist_or_may_be_replaced() {
    let rewriting = rewriting(&[rule(&["a"], &["b"])]);
    let headers = Headers::default();
    for api in [Api::CountTokens, Api::ModelOnly, Api::Invocations, Api::ChatBatch] {
        assert!(Policy::default().passes_unread(api, headers));
        assert!(!rewriting.passes_unread(api, headers), "the server might read a model in it");
        assert!(!early_api().passes_unread(api, headers), "the server might read a model in it");
    }
    for api in [Api::Chat, Api::Generate, Api::SglangGenerate] {
        assert!(!Policy::default().passes_unread(api, headers));
    }
}

#[test]
fn a_request_without_a_model_is_served_by_the_servers_own_unless_models_are_known() {
    let model = |policy: &Policy| {
        let resolved = policy.resolve(Headers::default(), None, &mut SplitMix64::new(SEED));
        resolved.map(|resolution| resolution.model.to_owned()).map_err(|rejection| rejection.code)
    };
    assert_eq!(model(&Policy::default()), Ok(String::new()));
    assert_eq!(model(&rewriting(&[rule(&["a"], &["b"])])), Ok(String::new()));
    assert_eq!(model(&rewriting(&[rule(&[], &["b"])])), Ok("b".to_owned()));
    assert_eq!(model(&early_api()), Err(Code::BadRequest));
    assert_eq!(model(&Policy { requires_model: true, ..Policy::default() }), Err(Code::BadRequest));
}
