//! Sessions of agents with hashed blocks, one session with its sub-agents a line: `AgentX`'s traces, in the
//! form of Weka.
//!
//! Times count from the beginning of each session, so all sessions of a file begin at once: a file's number
//! of lines is the number of sessions in progress. Blocks are equal only within a line. A session and each of
//! its sub-agents is a session of the record.

use super::{BLOCK_SIZES, Line, check_blocks, parse, tokens};
use serde::Deserialize;
use std::borrow::Cow;
use std::time::Duration;
use xxhash_rust::xxh64::{Xxh64, xxh64};

#[derive(Deserialize)]
struct Tree<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    block_size: u32,
    #[serde(borrow)]
    requests: Vec<TraceNode<'a>>,
}

/// A request, or a sub-agent, which has requests.
#[derive(Deserialize)]
struct TraceNode<'a> {
    /// Seconds from the beginning of the session.
    t: f64,
    #[serde(borrow)]
    agent_id: Option<Cow<'a, str>>,
    requests: Option<Vec<TraceNode<'a>>>,
    #[serde(rename = "in", default)]
    input: f64,
    #[serde(default)]
    out: f64,
    #[serde(default)]
    hash_ids: Vec<u64>,
    /// Seconds until the end of the response.
    #[serde(default)]
    api_time: f64,
}

/// Whether a line is a session.
pub(super) fn is_line(text: &str) -> bool {
    text.starts_with('{') && text.contains("\"block_size\"") && text.contains("\"requests\"")
}

/// Reads a session. Returns the tokens of a block, and the requests.
pub(super) fn read(text: &str) -> Result<(u32, Vec<Line<'static>>), String> {
    let tree: Tree<'_> = parse(text)?;
    if !(1..=BLOCK_SIZES[6]).contains(&tree.block_size) {
        return Err(format!("block_size is {}; must be 1 to {}", tree.block_size, BLOCK_SIZES[6]));
    }
    let mut lines = Vec::new();
    let name = xxh64(tree.id.as_bytes(), 0);
    add(&tree.requests, name, name, tree.block_size, &mut lines)?;
    Ok((tree.block_size, lines))
}

/// Adds the requests of one agent and of its sub-agents. `name` is the hash of the line's id, `session` that
/// of the agent's.
fn add(
    nodes: &[TraceNode<'_>],
    name: u64,
    session: u64,
    block: u32,
    lines: &mut Vec<Line<'static>>,
) -> Result<(), String> {
    for node in nodes {
        if let Some(requests) = &node.requests {
            let agent = node.agent_id.as_deref().unwrap_or_default();
            add(requests, name, hash(session, agent.as_bytes()), block, lines)?;
            continue;
        }
        let time = |name: &str, seconds: f64| {
            let is_time = (0.0..=super::MAX_TIME).contains(&seconds);
            if is_time {
                Ok(seconds)
            } else {
                Err(format!("{name} is {seconds}; must be 0 to {}", super::MAX_TIME))
            }
        };
        let input = tokens("in", node.input)?;
        check_blocks(node.hash_ids.len(), block, input)?;
        lines.push(Line {
            at: time("t", node.t)?,
            input,
            output: tokens("out", node.out)?,
            session: Some(session),
            end: Some(Duration::from_secs_f64(time("api_time", node.api_time)?)),
            blocks: node.hash_ids.iter().map(|block| hash(name, &block.to_le_bytes())).collect(),
            ..Line::default()
        });
    }
    Ok(())
}

fn hash(name: u64, part: &[u8]) -> u64 {
    let mut hash = Xxh64::new(name);
    hash.update(part);
    hash.digest()
}
