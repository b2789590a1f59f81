//! The workloads of the simulation. Each is a generator of sessions, drawn from a seed, with the servers that
//! it is sent to.

pub(super) mod agent_sessions;
mod agents;
mod conversations;
pub(super) mod in_turn;
mod prompts;
mod singles;
pub mod study;
mod tenants;

use super::sessions::{Process, Sessions, arrivals};
use crate::workload::Workload as BenchWorkload;
use endpoint_picker::rng::{Rng, SplitMix64};
use metrics_agent_replay::fit;
use metrics_agent_replay::simulation::fleet::{Fleet, ServerKind};
use metrics_agent_replay::simulation::request::{Segment, mixed};
use metrics_agent_replay::simulation::sessions::Arrival;
use metrics_agent_server_model::ServiceTimes;
use std::time::Duration;

/// A workload, drawn from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// [`prompts::SharedPrompts::few`].
    SharedPrompts,
    /// [`conversations::Conversations::uniform`].
    Conversations,
    /// [`singles::Adapters`].
    Adapters,
    /// [`conversations::Conversations::sharegpt`].
    ShareGpt,
    /// [`agents::Agents`].
    Agents,
    /// [`singles::LongMix`].
    LongMix,
    /// [`prompts::SharedPrompts::bursts`].
    Bursts,
    /// [`prompts::SharedPrompts::large`].
    LargePrompts,
    /// [`Self::ShareGpt`] on servers two of which are half as fast and half as large.
    Heterogeneous,
    /// [`Self::ShareGpt`], while one server is three times slower for 40 s.
    SlowServer,
    /// [`Self::ShareGpt`] on servers with a quarter of the blocks that they report.
    SmallCaches,
    /// [`Self::ShareGpt`] on servers with as few blocks, which they report.
    SmallCachesReported,
    /// [`Self::ShareGpt`] on servers that report a quarter of their blocks.
    CachesBeyondReports,
    /// [`agent_sessions::AgentSessions`].
    AgentSessions,
    /// [`tenants::Tenants`], on eight servers with eight places for adapters each.
    Tenants,
}

impl Workload {
    /// Workloads of the published tables.
    pub const ALL: [Self; 11] = [
        Self::SharedPrompts,
        Self::Conversations,
        Self::Adapters,
        Self::ShareGpt,
        Self::Agents,
        Self::LongMix,
        Self::Bursts,
        Self::LargePrompts,
        Self::Heterogeneous,
        Self::SlowServer,
        Self::SmallCaches,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::SharedPrompts => "shared prompts",
            Self::Conversations => "conversations",
            Self::Adapters => "skewed LoRA",
            Self::ShareGpt => "ShareGPT",
            Self::Agents => "agents",
            Self::LongMix => "long mix",
            Self::Bursts => "bursts",
            Self::LargePrompts => "150 × 6 000",
            Self::Heterogeneous => "unequal servers",
            Self::SlowServer => "slow server",
            Self::SmallCaches => "small caches",
            Self::SmallCachesReported => "small caches as reported",
            Self::CachesBeyondReports => "caches beyond reports",
            Self::AgentSessions => "agent sessions",
            Self::Tenants => "400 adapters",
        }
    }
}

impl Workload {
    /// Its sessions.
    pub fn sessions(self, seed: u64) -> Box<dyn Sessions> {
        match self {
            Self::SharedPrompts => Box::new(prompts::SharedPrompts::few(seed)),
            Self::Conversations => Box::new(conversations::Conversations::uniform(seed)),
            Self::Adapters => Box::new(singles::Adapters::new(seed)),
            Self::Agents => Box::new(agents::Agents::new(seed)),
            Self::AgentSessions => Box::new(agent_sessions::AgentSessions::new(seed)),
            Self::LongMix => Box::new(singles::LongMix::new(seed)),
            Self::Bursts => Box::new(prompts::SharedPrompts::bursts(seed)),
            Self::Tenants => Box::new(tenants::Tenants::new(seed)),
            Self::LargePrompts => Box::new(prompts::SharedPrompts::large(seed)),
            Self::ShareGpt
            | Self::Heterogeneous
            | Self::SlowServer
            | Self::SmallCaches
            | Self::SmallCachesReported
            | Self::CachesBeyondReports => Box::new(conversations::Conversations::sharegpt(seed)),
        }
    }

    /// Its sessions with this many requests per second in the mean, for a time. At the start, sessions are in
    /// progress as at any time with `at_start` requests per second.
    pub fn arrivals(self, at_start: f64, per_second: f64, lasting: Duration, seed: u64) -> Vec<Arrival> {
        let process = if self == Self::Bursts { Process::Bursts(2.0) } else { Process::Poisson };
        arrivals(&mut *self.sessions(seed), process, at_start, per_second, lasting, seed)
    }

    /// The servers that it is sent to.
    pub fn fleet(self) -> Fleet {
        let bench = |workload: BenchWorkload| Fleet::equal(12, workload.service_times());
        match self {
            Self::SharedPrompts => bench(BenchWorkload::SystemPrompts),
            Self::Conversations => bench(BenchWorkload::Conversations),
            Self::Adapters => bench(BenchWorkload::Adapters),
            Self::Tenants => {
                Fleet::equal(8, ServiceTimes { max_loras: 8, ..BenchWorkload::Adapters.service_times() })
            }
            Self::ShareGpt
            | Self::Agents
            | Self::AgentSessions
            | Self::LongMix
            | Self::Bursts
            | Self::LargePrompts => Fleet::equal(8, fit::DEFAULT),
            Self::Heterogeneous => {
                let mut fleet = Fleet::equal(8, fit::DEFAULT);
                for server in &mut fleet.servers[..2] {
                    *server = ServerKind::new(2.0, fit::DEFAULT.kv_blocks / 2);
                }
                fleet
            }
            Self::SmallCaches => {
                let mut fleet = Fleet::equal(8, fit::DEFAULT);
                for server in &mut fleet.servers {
                    server.kv_blocks = server.reported_blocks / 4;
                }
                fleet
            }
            Self::SmallCachesReported => {
                Fleet::equal(8, ServiceTimes { kv_blocks: fit::DEFAULT.kv_blocks / 4, ..fit::DEFAULT })
            }
            Self::CachesBeyondReports => {
                let mut fleet = Fleet::equal(8, fit::DEFAULT);
                for server in &mut fleet.servers {
                    server.reported_blocks = server.kv_blocks / 4;
                }
                fleet
            }
            Self::SlowServer => Fleet { has_slow_spell: true, ..Fleet::equal(8, fit::DEFAULT) },
        }
    }
}

/// Random numbers and new texts of a generator.
#[derive(Clone, Debug)]
struct Draw {
    rng: SplitMix64,
    namespace: u64,
    texts: u64,
}

impl Draw {
    fn new(seed: u64) -> Self {
        Self { rng: SplitMix64::new(mixed(seed)), namespace: mixed(!seed), texts: 0 }
    }

    /// A text that no other one begins like.
    fn text(&mut self, tokens: u32) -> Segment {
        self.texts += 1;
        Segment { id: mixed(self.namespace ^ self.texts), tokens }
    }

    /// A text of a length between these bounds, all equally likely.
    fn text_between(&mut self, least: u32, most: u32) -> Segment {
        let tokens = self.between(least, most);
        self.text(tokens)
    }

    /// A number between these bounds, all equally likely.
    fn between(&mut self, least: u32, most: u32) -> u32 {
        least + u32::try_from(self.rng.below((most - least + 1) as usize)).unwrap_or_default()
    }

    /// A lognormal number with this median and standard deviation of its logarithm, cut to 4..=`most`.
    fn lognormal(&mut self, median: f64, deviation: f64, most: u32) -> u32 {
        // Box and Muller.
        let radius = (-2.0 * (1.0 - self.rng.unit()).ln()).sqrt();
        let normal = radius * (core::f64::consts::TAU * self.rng.unit()).cos();
        let number = (median * (deviation * normal).exp()).round();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut to the bounds")]
        let number = number as u32;
        number.clamp(4, most)
    }

    /// An exponential time with this mean.
    fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.rng.unit()).ln())
    }
}

/// Ranks, the first most often: the frequency falls with the rank to the power of `steepness` (Zipf's law).
#[derive(Clone, Debug)]
struct Ranks {
    /// Sums of the frequencies up to each rank.
    sums: Vec<f64>,
}

impl Ranks {
    fn new(ranks: usize, steepness: f64) -> Self {
        let add = |sum: &mut f64, rank: usize| {
            *sum += (rank as f64 + 1.0).powf(-steepness);
            Some(*sum)
        };
        Self { sums: (0..ranks).scan(0.0, add).collect() }
    }

    fn draw(&self, rng: &mut SplitMix64) -> usize {
        let drawn = rng.unit() * self.sums.last().copied().unwrap_or_default();
        self.sums.partition_point(|sum| *sum <= drawn).min(self.sums.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Prompt tokens of some requests, and the share of their blocks that came before.
    fn measured(workload: Workload, seed: u64) -> (f64, f64) {
        let mut sessions = workload.sessions(seed);
        let mut known = HashSet::new();
        let (mut requests, mut tokens, mut all, mut shared) = (0_usize, 0, 0_usize, 0_usize);
        for _ in 0..1_500 {
            for turn in sessions.draw().turns {
                let work = turn.request.work();
                requests += 1;
                tokens += work.prompt_tokens();
                for block in work.prompt_blocks() {
                    all += 1;
                    shared += usize::from(!known.insert(*block));
                }
            }
        }
        (tokens as f64 / requests as f64, shared as f64 / all as f64)
    }

    #[test]
    fn workloads_have_the_lengths_and_the_sharing_that_they_describe() {
        let expected = [
            (Workload::SharedPrompts, 1_080.0..1_095.0, 0.88..0.95),
            (Workload::Conversations, 760.0..870.0, 0.7..0.85),
            (Workload::Adapters, 255.0..257.0, 0.0..0.01),
            (Workload::Tenants, 255.0..257.0, 0.0..0.01),
            (Workload::ShareGpt, 500.0..1_600.0, 0.6..0.9),
            (Workload::Agents, 10_000.0..18_000.0, 0.85..0.99),
            (Workload::AgentSessions, 42_000.0..52_000.0, 0.9..0.99),
            (Workload::LongMix, 2_000.0..4_500.0, 0.0..0.01),
            (Workload::Bursts, 1_000.0..1_700.0, 0.4..0.8),
            (Workload::LargePrompts, 7_100.0..7_300.0, 0.7..0.85),
        ];
        for (workload, tokens, sharing) in expected {
            let (mean, shared) = measured(workload, 1);
            println!("{}: {mean:.0} tokens, {shared:.3} shared", workload.name());
            assert!(tokens.contains(&mean) && sharing.contains(&shared), "{workload:?}: {mean}, {shared}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_requests_and_others_do_not() {
        let first = |workload: Workload, seed| {
            let mut sessions = workload.sessions(seed);
            let turns = (0..20).flat_map(|_| sessions.draw().turns);
            turns.map(|turn| format!("{turn:?}")).collect::<Vec<_>>()
        };
        for workload in Workload::ALL {
            assert_eq!(first(workload, 7), first(workload, 7));
            assert_ne!(first(workload, 7), first(workload, 8));
        }
    }

    #[test]
    fn the_first_rank_comes_most_often() {
        let (ranks, mut rng) = (Ranks::new(4, 1.0), SplitMix64::new(3));
        let mut counts = [0; 4];
        for _ in 0..10_000 {
            counts[ranks.draw(&mut rng)] += 1;
        }
        // 1, 1/2, 1/3 and 1/4 of 12/25 of them.
        let expected = [4_800, 2_400, 1_600, 1_200];
        assert!(
            counts.iter().zip(expected).all(|(count, expected): (&i32, i32)| (count - expected).abs() < 200),
            "{counts:?}"
        );
    }
}
