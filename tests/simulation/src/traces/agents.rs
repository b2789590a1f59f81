//! Sessions of agents with the statistics of `AgentX`'s traces of Claude Code, in their form.
//!
//! Statistics are those that others published of `cc-traces-weka-062126`: 393 sessions, whose files were not
//! at hand. Contexts end at 256 000 tokens, as in its variant `256k`, and the agent then continues with a
//! summary.

use super::draw::{exponential, lognormal};
use core::fmt::Write;
use endpoint_picker::rng::{Rng, SplitMix64};
use metrics_agent_replay::simulation::request::mixed;

/// Main turns of a session: median 65, p90 330.
const TURNS: (f64, f64) = (65.0, 1.27);
/// New tokens of a turn: median 1 664, mean 3 792.
const NEW_TOKENS: (f64, f64) = (1_664.0, 1.28);
/// Tokens of a response: median 616, mean 1 374.
const RESPONSE: (f64, f64) = (616.0, 1.27);
/// Seconds between two turns: median and deviation of the pauses of tools; share and mean of the pauses of
/// people, which sub-agents do not have; and the longest pause, as in the published replay. The published
/// pauses of main turns have a median of 4.9 and a p90 of 131.
const GAP: (f64, f64) = (4.0, 1.0);
const PEOPLE: f64 = 0.155;
const PEOPLE_MEAN: f64 = 300.0;
const MAX_GAP: f64 = 300.0;
/// Instructions and tools at the beginning, and the summary that a full context is replaced by.
const BEGIN: f64 = 24_000.0;
const MAX_CONTEXT: f64 = 256_000.0;
/// Share of the turns that start a sub-agent, which has its own prompt: 1 697 of 56 798. The published ones
/// have 25 requests each, with 64 000 tokens in the median.
const SUB_AGENTS: f64 = 0.03;
const SUB_TURNS: (f64, f64) = (16.0, 0.9);
/// Seconds of a response in the record: a beginning, and 15 ms a token.
const API_TIME: (f64, f64) = (1.0, 0.015);
const BLOCK: f64 = 64.0;

/// Sessions in progress at once, and requests of all together. Each begins at a random place between 25 and
/// 75 % of its turns, as in the published replay.
pub(super) fn agents(trees: usize, requests: usize, seed: u64) -> String {
    let mut rng = SplitMix64::new(mixed(seed));
    let mut text = String::new();
    let each = requests / trees.max(1);
    for number in 0..trees {
        let mut agent = Agent { blocks: 0, namespace: 0, tokens: BEGIN };
        let turns = lognormal(TURNS.0, TURNS.1, &mut rng).clamp(4.0, 2_000.0);
        let mut left = turns * (0.25 + 0.5 * rng.unit());
        while left >= 1.0 {
            agent.grow(&mut rng);
            left -= 1.0;
        }
        let mut nodes = Vec::new();
        let (mut at, mut sent) = (exponential(10.0, &mut rng), 0);
        while sent < each {
            let (node, took) = agent.request(at, &mut rng);
            nodes.push(node);
            sent += 1;
            at += took;
            if rng.unit() < SUB_AGENTS && sent < each {
                at += sub_agent(number, at, each - sent, &mut nodes, &mut sent, &mut rng);
            }
            at += gap(&mut rng);
            agent.grow(&mut rng);
        }
        let _ = writeln!(
            text,
            "{{\"id\": \"{number}\", \"models\": [\"m\"], \"block_size\": 64, \"hash_id_scope\": \"local\", \"requests\": [{}]}}",
            nodes.join(", ")
        );
    }
    text
}

/// Adds a sub-agent with at most this many requests. Returns its seconds.
fn sub_agent(
    tree: usize,
    begin: f64,
    most: usize,
    nodes: &mut Vec<String>,
    sent: &mut usize,
    rng: &mut SplitMix64,
) -> f64 {
    let mut agent = Agent { blocks: 0, namespace: *sent + 1, tokens: BEGIN };
    let turns = lognormal(SUB_TURNS.0, SUB_TURNS.1, rng).clamp(1.0, most as f64);
    let (mut requests, mut at, mut left) = (Vec::new(), begin, turns);
    while left >= 1.0 {
        let (node, took) = agent.request(at, rng);
        requests.push(node);
        *sent += 1;
        at += took + tool(rng);
        agent.grow(rng);
        left -= 1.0;
    }
    nodes.push(format!(
        "{{\"type\": \"subagent\", \"t\": {begin:.3}, \"agent_id\": \"{tree}-{}\", \"status\": \"completed\", \"requests\": [{}]}}",
        agent.namespace,
        requests.join(", ")
    ));
    at - begin
}

/// The context of one agent.
struct Agent {
    /// Blocks of the contexts before the summary.
    blocks: u64,
    /// 0: the session itself.
    namespace: usize,
    tokens: f64,
}

impl Agent {
    /// A request at this time, and its seconds.
    fn request(&self, at: f64, rng: &mut SplitMix64) -> (String, f64) {
        let output = lognormal(RESPONSE.0, RESPONSE.1, rng).clamp(1.0, 32_000.0).round();
        let blocks = (self.tokens / BLOCK).floor();
        let first = (self.namespace as u64 * 1_000_000) + self.blocks;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of blocks")]
        let hashes: Vec<u64> = (first..first + blocks as u64).collect();
        let took = API_TIME.0 + API_TIME.1 * output;
        let node = format!(
            "{{\"type\": \"s\", \"t\": {at:.3}, \"in\": {:.0}, \"out\": {output:.0}, \"hash_ids\": {hashes:?}, \"api_time\": {took:.3}}}",
            blocks * BLOCK
        );
        (node, took)
    }

    /// The next turn has more tokens; a full context is replaced by a summary, which is new.
    fn grow(&mut self, rng: &mut SplitMix64) {
        self.tokens += lognormal(NEW_TOKENS.0, NEW_TOKENS.1, rng).min(64_000.0);
        if self.tokens > MAX_CONTEXT {
            self.tokens = BEGIN;
            self.blocks += 10_000;
        }
    }
}

fn gap(rng: &mut SplitMix64) -> f64 {
    let is_person = rng.unit() < PEOPLE;
    if is_person { exponential(PEOPLE_MEAN, rng).min(MAX_GAP) } else { tool(rng) }
}

fn tool(rng: &mut SplitMix64) -> f64 {
    lognormal(GAP.0, GAP.1, rng).min(MAX_GAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_agent_replay::clients;
    use metrics_agent_replay::record::Record;
    use std::collections::HashSet;

    #[test]
    fn sessions_have_the_turns_the_gaps_and_the_sharing_of_the_published_trace() {
        let record = Record::read(agents(64, 6_400, 1).as_bytes()).unwrap();
        let (mut known, mut blocks, mut shared) = (HashSet::new(), 0_usize, 0_usize);
        for request in &record.requests {
            for block in record.blocks(request) {
                blocks += 1;
                shared += usize::from(!known.insert(*block));
            }
        }
        let mut inputs: Vec<u32> = record.requests.iter().map(|request| request.input).collect();
        inputs.sort_unstable();
        let sessions = clients::sessions(&record);
        let mut pauses: Vec<f64> = sessions
            .iter()
            .flat_map(|session| &session.turns[1..])
            .map(|turn| turn.pause.as_secs_f64())
            .collect();
        pauses.sort_by(f64::total_cmp);
        let at = |part: usize| pauses[pauses.len() * part / 100];
        let shared = shared as f64 / blocks as f64;
        let (middle, median, long) = (inputs[inputs.len() / 2], at(50), at(90));
        println!("{middle} tokens, {shared:.3} shared, pauses of {median:.1} and {long:.0} s");
        // Published: 0.983 shared of whole sessions, whose first prompts are fewer; 4.9 and 131 s, of main
        // turns.
        assert!((60_000..180_000).contains(&middle) && (0.93..0.99).contains(&shared));
        assert!((3.5..6.5).contains(&median) && (45.0..150.0).contains(&long));
        assert_eq!(record.requests.len(), 6_400);
    }
}
