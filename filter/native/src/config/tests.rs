use super::*;

fn refusal(json: &str) -> String {
    ModuleConfig::parse(json.as_bytes()).unwrap_err().to_string()
}

fn parsed(json: &str) -> ModuleConfig {
    ModuleConfig::parse(json.as_bytes()).unwrap().unwrap()
}

fn access(agent: &str) -> Result<AgentAccess, ConfigError> {
    let json = format!(r#"{{"pool": "p", "agent": {agent}}}"#);
    ModuleConfig::parse(json.as_bytes()).map(|config| config.unwrap().agent.unwrap())
}

#[test]
fn a_pool_and_an_address_are_enough() {
    let config = parsed(r#"{"pool": "p", "agent": {"addresses": ["http://127.0.0.1:9095"]}}"#);
    assert_eq!(config.engine.pool, "p");
    assert_eq!(config.steering, Steering::Metadata);
    let Some(AgentAccess { addresses, tls: None, token: None }) = config.agent else {
        panic!("{:?}", config.agent)
    };
    assert_eq!(addresses[0].to_string(), "http://127.0.0.1:9095");
}

#[test]
fn every_field_is_read() {
    let config = parsed(
        r#"{"pool": "p", "mode": "shadow", "failureMode": "FailClose", "countTokens": true, "limits": {"peekBytes": 2048},
            "explain": {"accessLog": true}, "steering": "overrideHost", "agent": {
                "addresses": ["https://agent-0.agents:9095/", "https://[::1]:9095"], "tokenFile": "/t",
                "tls": {"caFile": "/ca", "certFile": "/cert", "keyFile": "/key"}}}"#,
    );
    assert_eq!(config.engine.mode, Mode::Shadow);
    assert_eq!(config.engine.failure_mode, FailureMode::FailClose);
    assert_eq!(config.engine.limits.peek_bytes, 2048);
    assert!(config.engine.count_tokens && config.engine.explain.access_log);
    assert_eq!(config.steering, Steering::OverrideHost);
    let agent = config.agent.unwrap();
    let addresses: Vec<String> = agent.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["https://agent-0.agents:9095", "https://[::1]:9095"]);
    assert_eq!(agent.token, Some("/t".into()));
    let tls = agent.tls.unwrap();
    assert_eq!(tls.authorities, PathBuf::from("/ca"));
    assert_eq!(tls.certificate_and_key, Some(("/cert".into(), "/key".into())));
}

#[test]
fn a_pool_that_is_null_switches_the_picker_off_and_a_missing_one_is_refused() {
    for json in [r#"{"pool": null}"#, r#"{"pool": null, "agent": {"addresses": ["http://h:1"]}}"#] {
        assert!(ModuleConfig::parse(json.as_bytes()).unwrap().is_none(), "{json}");
    }
    for json in ["{}", r#"{"agent": {"addresses": ["http://h:1"]}}"#] {
        assert!(refusal(json).starts_with("missing field `pool`"), "{json}");
    }
    assert!(refusal(r#"{"pool": null, "magic": 1}"#).starts_with("unknown field `magic`"));
    assert!(refusal(r#"{"pool": 1}"#).contains("invalid type: integer `1`"));
}

#[test]
fn the_wasm_filters_cluster_of_the_agent_is_refused_with_the_field_that_takes_its_place() {
    assert!(refusal(r#"{"pool": "p"}"#).starts_with("agent is missing"));
    let both = r#"{"pool": "p", "agentCluster": "a", "agent": {"addresses": ["http://h:1"]}}"#;
    for json in [r#"{"pool": "p", "agentCluster": "a"}"#, both] {
        let error = refusal(json);
        assert!(error.starts_with("agentCluster is a field of the wasm filter"), "{error}");
        assert!(error.contains("agent.addresses"), "{error}");
    }
}

#[test]
fn endpoints_take_the_place_of_the_agent_and_what_needs_one_is_refused_by_name() {
    let config = parsed(r#"{"pool": "p", "endpoints": ["10.0.0.1:8000"], "steering": "cluster"}"#);
    assert!(config.agent.is_none() && config.engine.static_pool().is_some());
    let with = |fields: &str| format!(r#"{{"pool": "p", "endpoints": ["10.0.0.1:8000"], {fields}}}"#);
    assert!(parsed(&with(r#""rules": "epp""#)).engine.rules.is_some());
    for (json, expected) in [
        (with(r#""agent": {"addresses": ["http://h:1"]}"#), "agent and endpoints exclude each other"),
        (
            with(r#""rules": "magic""#),
            r#"rules is "magic"; allowed without an agent are expected-latency and"#,
        ),
        (with(r#""steering": "cluster", "fallback": ["q"]"#), "fallback needs agent"),
        (r#"{"pool": "p", "endpoints": []}"#.to_owned(), "endpoints has 0 entries"),
        (
            r#"{"pool": "p", "agent": {"addresses": ["http://h:1"]}, "rules": "epp"}"#.to_owned(),
            "rules needs",
        ),
    ] {
        let refusal = refusal(&json);
        assert!(refusal.starts_with(expected), "{refusal}");
    }
    for field in [r#""bodyBasedRouting": true"#, r#""listModels": ["p"]"#] {
        let refused = ChainConfig::parse(with(field).as_bytes()).unwrap_err().to_string();
        let name = field.split('"').nth(1).unwrap();
        assert!(refused.starts_with(&format!("{name} needs agent")), "{refused}");
    }
}

#[test]
fn an_address_is_a_scheme_a_host_and_a_port() {
    for address in [
        "",
        "127.0.0.1:9095",
        "http://127.0.0.1",
        "http://:9095",
        "http://user@host:9095",
        "http://host:9095/path",
        "http://host:9095?query",
        "http://host:99999",
        "ftp://host:9095",
        "http://ho st:9095",
    ] {
        let json = serde_json::json!({"addresses": [address]}).to_string();
        let error = access(&json).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("agent.addresses has {address:?}; allowed are http://")),
            "{error}"
        );
    }
}

#[test]
fn a_refusal_names_the_field_and_what_is_allowed() {
    let nine = serde_json::json!({"addresses": vec!["http://h:1"; 9]}).to_string();
    for (agent, expected) in [
        (r#"{"addresses": []}"#, "agent.addresses has 0 entries; allowed are 1 to 8"),
        (&nine, "agent.addresses has 9 entries"),
        (r"{}", "missing field `addresses`"),
        (r#"{"addresses": ["http://h:1"], "token": "x"}"#, "unknown field `token`, expected one of"),
        (r#"{"addresses": ["https://h:1"]}"#, "agent.tls and https go together"),
        (r#"{"addresses": ["http://h:1"], "tls": {"caFile": "/ca"}}"#, "agent.tls and https go together"),
        (
            r#"{"addresses": ["https://h:1"], "tls": {"caFile": "/ca", "keyFile": "/key"}}"#,
            "agent.tls.certFile and agent.tls.keyFile go together",
        ),
        (r#"{"addresses": ["https://h:1"], "tls": {}}"#, "missing field `caFile`"),
    ] {
        let error = access(agent).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let with = |field: &str| format!(r#"{{"pool": "p", "agent": {{"addresses": ["http://h:1"]}}, {field}}}"#);
    for (field, expected) in [
        (r#""magic": 1"#, "unknown field `magic`, expected one of `pool`, `fallback`, `agent`, `mode`"),
        (
            r#""steering": "magic""#,
            "unknown variant `magic`, expected one of `metadata`, `overrideHost`, `cluster`",
        ),
        (r#""limits": {"peekBytes": 1}"#, "limits.peekBytes is 1"),
        (r#""countTokens": 1"#, "countTokens is 1; allowed are true and false"),
    ] {
        let error = refusal(&with(field));
        assert!(error.contains(expected), "{error}");
    }
    assert!(refusal(r#"{"pool": "a b", "agent": {"addresses": ["http://h:1"]}}"#).starts_with("pool is"));
}

#[test]
fn bodies_are_routed_by_in_the_chain_only() {
    let agent = r#""agent": {"addresses": ["http://h:1"]}"#;
    let chain = |fields: &str| ChainConfig::parse(format!("{{\"pool\": null, {fields}}}").as_bytes());
    assert!(chain("\"countTokens\": true").unwrap().body_routing.is_none());
    assert!(chain("\"bodyBasedRouting\": false").unwrap().body_routing.is_none());
    let both =
        chain(&format!("\"bodyBasedRouting\": true, \"limits\": {{\"peekBytes\": 2048}}, {agent}")).unwrap();
    assert!(both.picker.is_none());
    assert_eq!(both.body_routing.unwrap().limits.peek_bytes, 2048);
    let without = chain("\"bodyBasedRouting\": true").unwrap_err();
    assert!(matches!(without, ConfigError::NoAgent), "{without}");
    let limits = chain(&format!("\"bodyBasedRouting\": true, \"limits\": {{\"peekBytes\": 1}}, {agent}"));
    assert!(limits.unwrap_err().to_string().starts_with("limits.peekBytes is 1;"));
    for fields in ["\"bodyBasedRouting\": true", "\"bodyBasedRouting\": false"] {
        let refused = refusal(&format!("{{\"pool\": \"p\", {fields}, {agent}}}"));
        assert!(refused.starts_with("bodyBasedRouting is allowed in the filter chain only"), "{refused}");
    }
}

#[test]
fn a_list_of_models_has_pools_and_is_of_the_chain_only() {
    let agent = r#""agent": {"addresses": ["http://h:1"]}"#;
    let chain = |fields: &str| ChainConfig::parse(format!("{{\"pool\": null, {fields}}}").as_bytes());
    assert!(chain(agent).unwrap().model_list.is_none());
    let list = chain(&format!("\"listModels\": [\"a/b\", \"c\"], {agent}")).unwrap().model_list.unwrap();
    assert_eq!(list.pools, ["a/b", "c"]);
    let refused = |fields: &str| chain(fields).unwrap_err().to_string();
    assert!(refused(r#""listModels": ["a"]"#).starts_with("agent is missing"));
    let of_pools = |pools: &str| refused(&format!("\"listModels\": {pools}, {agent}"));
    assert!(of_pools("[]").starts_with("listModels has no pool; allowed are the names"));
    assert!(of_pools(r#"["a", "b c"]"#).starts_with("listModels has \"b c\"; allowed are the names"));
    let of_route = refusal(&format!("{{\"pool\": \"p\", \"listModels\": [\"a\"], {agent}}}"));
    assert!(of_route.starts_with("listModels is allowed in the filter chain only"), "{of_route}");
}

#[test]
fn other_pools_need_the_modules_cluster_and_a_picker_that_acts() {
    let json = |fallback: &str, rest: &str| {
        format!(
            r#"{{"pool": "a/b", "fallback": {fallback}, "agent": {{"addresses": ["http://h:1"]}}, {rest}}}"#
        )
    };
    let cluster = r#""steering": "cluster""#;
    let config = parsed(&json(r#"["a/c", "d"]"#, cluster));
    assert_eq!(config.fallback, FallbackList::Pools(vec!["a/c".to_owned(), "d".to_owned()]));
    let of_other = config.of_fallback("d");
    assert_eq!((of_other.engine.pool.as_str(), of_other.fallback), ("d", FallbackList::Never));
    assert_eq!(parsed(&json("null", cluster)).fallback, FallbackList::OfPolicy, "the agent's list");
    assert_eq!(parsed(&json("null", r#""steering": "metadata""#)).fallback, FallbackList::Never);
    for (fallback, rest, expected) in [
        (r#"["d"]"#, r#""steering": "metadata""#, "fallback needs \"steering\": \"cluster\""),
        (r#"["d"]"#, r#""steering": "cluster", "mode": "shadow""#, "fallback needs \"mode\": \"pick\""),
        ("[]", cluster, "fallback has 0 pools; allowed are 1 to 8"),
        (r#"["1", "2", "3", "4", "5", "6", "7", "8", "9"]"#, cluster, "fallback has 9 pools"),
        (r#"["a/b"]"#, cluster, "fallback has \"a/b\"; allowed are the names of other pools, each once"),
        (r#"["d", "d"]"#, cluster, "fallback has \"d\""),
        (r#"["a b"]"#, cluster, "fallback has \"a b\""),
    ] {
        let refusal = refusal(&json(fallback, rest));
        assert!(refusal.starts_with(expected), "{refusal}");
    }
}
