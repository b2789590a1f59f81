//! The session of a request, by what each client sends.

use endpoint_picker_engine::proxy::headers::EXPLANATION;
use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::fixture::{CHAT, Fixture, TEXT};

const MESSAGES: &str = "/v1/messages?beta=true";
const RESPONSES: &str = "/v1/responses";

/// Ids as clients make them.
const ONE: &str = "0c9de1a5-7f0b-4f64-93dd-2b8a3d1f6a11";
const OTHER: &str = "1d0ef2b6-8a1c-4a75-84ee-3c9b4e2a7b22";

/// The request of a client that names this session, with this conversation so far.
type Recorded = fn(session: &str, talk: &[String]) -> (&'static str, Vec<(&'static str, String)>, Value);

/// A client, the source of its sessions, and its request.
struct Client(&'static str, &'static str, Recorded);

/// The beginning of all conversations of an agent: its instructions and tools.
fn instructions(of: &str) -> String {
    format!("You are {of}, which works on code. ").repeat(40)
}

fn messages(talk: &[String]) -> Value {
    let roles = ["user", "assistant"].into_iter().cycle();
    talk.iter().zip(roles).map(|(text, role)| json!({"role": role, "content": text})).collect()
}

fn chat(talk: &[String]) -> Value {
    json!({"model": "m", "messages": messages(talk), "stream": true})
}

fn with(mut body: Value, members: &Value) -> Value {
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

/// `metadata.user_id` of Claude Code 2.1.197, and of older versions.
fn user(session: &str) -> String {
    json!({"device_id": "8f".repeat(32), "account_uuid": "", "session_id": session}).to_string()
}

fn older_user(session: &str) -> String {
    format!("user_{}_account__session_{session}", "8f".repeat(32))
}

fn claude_code(talk: &[String], user: &str) -> Value {
    let system = json!([{"type": "text", "text": talk[0], "cache_control": {"type": "ephemeral"}}]);
    let tools =
        json!([{"name": "Bash", "description": "Runs a command", "input_schema": {"type": "object"}}]);
    json!({"model": "m", "max_tokens": 32000, "system": system, "tools": tools, "stream": true,
        "messages": messages(&talk[1..]), "metadata": {"user_id": user}})
}

fn codex(talk: &[String], session: &str) -> Value {
    json!({"model": "m", "instructions": talk[0], "input": messages(&talk[1..]), "store": false, "stream": true,
        "tools": [], "include": ["reasoning.encrypted_content"], "prompt_cache_key": session})
}

/// Requests as the clients send them: those of Claude Code 2.1.197, Codex 0.171.0, opencode 1.18.33, OpenAI's
/// SDK 3.57.0 and LiteLLM 1.110.2 were recorded, and have other texts.
const CLIENTS: [Client; 15] = [
    Client("Claude Code", "claude_code", |session, talk| {
        let headers = vec![("x-claude-code-session-id", session.to_owned()), ("x-app", "cli".to_owned())];
        (MESSAGES, headers, claude_code(talk, &user(session)))
    }),
    Client("Claude Code through a gateway that passes no headers on", "claude_code", |session, talk| {
        (MESSAGES, vec![], claude_code(talk, &user(session)))
    }),
    Client("a sub-agent of Claude Code", "claude_code", |session, talk| {
        let headers = [("x-claude-code-session-id", OTHER), ("x-claude-code-agent-id", session)];
        let headers = headers.map(|(name, value)| (name, value.to_owned())).to_vec();
        (MESSAGES, headers, claude_code(talk, &user(OTHER)))
    }),
    Client("an older Claude Code through such a gateway", "claude_code", |session, talk| {
        (MESSAGES, vec![], claude_code(talk, &older_user(session)))
    }),
    Client("Codex", "codex", |session, talk| {
        let names = ["session-id", "thread-id", "x-client-request-id"];
        let headers = names.map(|name| (name, session.to_owned())).to_vec();
        (RESPONSES, headers, codex(talk, session))
    }),
    Client("an older Codex", "codex", |session, talk| {
        (RESPONSES, vec![("session_id", session.to_owned())], codex(talk, session))
    }),
    Client("opencode", "session_header", |session, talk| {
        let headers = vec![("x-session-affinity", session.to_owned()), ("x-session-id", session.to_owned())];
        (CHAT, headers, chat(talk))
    }),
    Client("a sub-agent of opencode", "session_header", |session, talk| {
        let headers =
            [("x-session-affinity", session), ("x-session-id", session), ("x-parent-session-id", OTHER)];
        (CHAT, headers.map(|(name, value)| (name, value.to_owned())).to_vec(), chat(talk))
    }),
    Client("LiteLLM's header", "litellm", |session, talk| {
        (CHAT, vec![("x-litellm-session-id", session.to_owned())], chat(talk))
    }),
    Client("LiteLLM's field", "litellm", |session, talk| {
        (CHAT, vec![], with(chat(talk), &json!({"litellm_session_id": session})))
    }),
    Client("LiteLLM's metadata", "litellm", |session, talk| {
        (CHAT, vec![], with(chat(talk), &json!({"metadata": {"tags": ["a"], "session_id": session}})))
    }),
    Client("vLLM's field", "session_id", |session, talk| {
        (CHAT, vec![], with(chat(talk), &json!({"session_id": session})))
    }),
    Client("the OpenAI SDK", "prompt_cache_key", |session, talk| {
        (CHAT, vec![], with(chat(talk), &json!({"prompt_cache_key": session, "user": "u"})))
    }),
    Client("a header by configuration", "configuration", |session, talk| {
        (CHAT, vec![("x-conversation-id", session.to_owned())], chat(talk))
    }),
    Client("a client without a name", "prompt", |session, talk| {
        let mut talk = talk.to_vec();
        talk[0] = format!("{session} {}", talk[0].repeat(4));
        (CHAT, vec![], chat(&talk))
    }),
];

/// A pool by the shipped rules that reads a header of the operator too.
fn pool() -> Fixture {
    let agents = endpoint_picker_engine::testing::plugin(
        "agent-identity",
        r#"{"additionalSessionHeaders": ["x-conversation-id"]}"#,
    );
    let plugins = [("queue-scorer", None), ("prefix-cache-scorer", None)];
    let mut config = endpoint_picker_engine::testing::picker_config(&plugins);
    config.plugins.push(agents);
    let policy = v1::Policy { picker_config: Some(config), ..v1::Policy::default() };
    Fixture::with_policy(&json!({"explain": {"accessLog": true}}), policy)
}

/// The session of a request as its explanation has it: its key, its source, and whether it is continued.
fn explained(fixture: &mut Fixture, path: &str, headers: &[(&str, &str)], body: &Value) -> Option<String> {
    let request = fixture.post(path, headers, &body.to_string());
    let explanation = request.proxy.request_header(EXPLANATION).unwrap();
    let session = explanation.split("; ").find_map(|note| note.strip_prefix("session "));
    session.map(str::to_owned)
}

impl Client {
    fn send(&self, fixture: &mut Fixture, session: &str, talk: &[String]) -> (String, bool) {
        let Self(client, source, recorded) = self;
        let (path, headers, body) = recorded(session, talk);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let explained = explained(fixture, path, &headers, &body).expect(client);
        let (key, rest) = explained.split_once(" by ").unwrap();
        let turn =
            rest.strip_prefix(&format!("{source}, ")).unwrap_or_else(|| panic!("{client}: {explained}"));
        (key.to_owned(), turn == "continued")
    }
}

/// A conversation of this many turns.
fn talk(agent: &str, turns: usize) -> Vec<String> {
    let mut talk = vec![instructions(agent), format!("Mend the build of {agent}. ").repeat(20)];
    for turn in 1..turns {
        talk.push(format!("I run the tests, {turn}. ").repeat(10));
        talk.push(format!("They fail with error {turn}. ").repeat(20));
    }
    talk
}

#[test]
fn the_turns_of_every_client_are_one_session() {
    for client in &CLIENTS {
        let mut fixture = pool();
        let (key, is_continued) = client.send(&mut fixture, ONE, &talk("a", 1));
        assert!(!is_continued, "{}", client.0);
        for turns in 2..6 {
            let turn = client.send(&mut fixture, ONE, &talk("a", turns));
            assert_eq!(turn, (key.clone(), true), "{}, turn {turns}", client.0);
        }
        let series = |name: &str| format!("{name}|{}", client.1);
        assert_eq!(fixture.counted(&series("sessions")), 1, "{}", client.0);
        assert_eq!(fixture.counted(&series("session_turns")), 4, "{}", client.0);
        let blocks = [fixture.counted("session_blocks"), fixture.counted("session_blocks_matched")];
        assert!(blocks[1] > 0 && blocks[1] < blocks[0], "{}: {blocks:?}", client.0);
    }
}

#[test]
fn a_client_does_not_take_the_place_of_another_by_its_name() {
    for client in &CLIENTS {
        let mut fixture = pool();
        let (own, _) = client.send(&mut fixture, ONE, &talk("a", 2));
        let (other, is_continued) = client.send(&mut fixture, ONE, &talk("b", 3));
        assert!(other != own && !is_continued, "{}: the same name, another prompt", client.0);
        assert_eq!(client.send(&mut fixture, ONE, &talk("a", 3)), (own.clone(), true), "{}", client.0);
        assert_eq!(client.send(&mut fixture, ONE, &talk("b", 4)), (other, true), "{}", client.0);
        let (third, is_continued) = client.send(&mut fixture, OTHER, &talk("a", 4));
        assert!(third != own && !is_continued, "{}: the same prompt, another name", client.0);
    }
}

#[test]
fn an_agent_of_claude_code_is_a_session_of_its_own_beside_its_parent() {
    let mut fixture = pool();
    let [main, _, child, ..] = &CLIENTS;
    let (parent, _) = main.send(&mut fixture, OTHER, &talk("a", 2));
    let (first, is_continued) = child.send(&mut fixture, ONE, &talk("a", 3));
    assert!(first != parent && !is_continued);
    assert_eq!(main.send(&mut fixture, OTHER, &talk("a", 3)), (parent, true));
    assert_eq!(child.send(&mut fixture, ONE, &talk("a", 4)), (first, true));
}

#[test]
fn a_request_that_continues_a_stored_response_is_a_turn() {
    let mut fixture = pool();
    for members in [json!({"previous_response_id": "resp_a"}), json!({"conversation": {"id": "conv_a"}})] {
        let body = with(json!({"model": "m", "input": "hi", "prompt_cache_key": ONE}), &members);
        let keys = [(), ()].map(|()| explained(&mut fixture, RESPONSES, &[], &body).unwrap());
        assert!(keys[0].ends_with(" by stored_response, continued") && keys[0] == keys[1], "{keys:?}");
    }
    assert_eq!(fixture.counted("session_turns|stored_response"), 4);
}

#[test]
fn short_prompts_without_a_name_and_prompts_without_a_whole_block_have_no_session() {
    let mut fixture = pool();
    let short = json!({"model": "m", "prompt": "x".repeat(4 * 1023)});
    let tiny = json!({"model": "m", "prompt": "hi", "session_id": ONE});
    let unnamed = json!({"model": "m", "prompt": "x".repeat(4 * 1024 + 256), "session_id": "", "metadata": [ONE],
        "prompt_cache_key": "x".repeat(257), "litellm_trace_id": 7});
    for body in [&short, &tiny] {
        assert_eq!(explained(&mut fixture, TEXT, &[("x-session-id", " ")], body), None);
    }
    let long = explained(&mut fixture, TEXT, &[], &unnamed).unwrap();
    assert!(long.ends_with(" by prompt, first turn"), "{long}");
    let several = json!({"model": "m", "prompt": ["a".repeat(8000), "b".repeat(8000)], "session_id": ONE});
    assert_eq!(explained(&mut fixture, TEXT, &[], &several), None);
}

#[test]
fn the_rules_of_the_epp_know_no_sessions() {
    let policy = v1::Policy { epp_rules: v1::EppRules::V010.into(), ..v1::Policy::default() };
    let mut fixture = Fixture::with_policy(&json!({"explain": {"accessLog": true}}), policy);
    for turns in 1..3 {
        let body = with(chat(&talk("a", turns)), &json!({"prompt_cache_key": ONE}));
        assert_eq!(explained(&mut fixture, CHAT, &[("x-session-id", ONE)], &body), None);
    }
    assert_eq!(fixture.counted("session_turns|session_header"), 0);
}
