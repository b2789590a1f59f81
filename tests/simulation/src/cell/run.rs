//! Runs a cell.

use super::conditions::Conditions;
use super::proxies::RunningProxies;
use super::source::Source;
use super::variant::Variant;
use metrics_agent_replay::simulation::figures::Figures;
use metrics_agent_replay::simulation::run::Simulation;
use std::time::Duration;

/// One cell: requests, servers and what lies between them.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The requests and their servers.
    pub source: Source,
    /// Number of requests that are measured, about.
    pub requests: usize,
    /// Determines all requests and their times, and the random numbers of the pickers.
    pub seed: u64,
    /// Delays between clients and servers.
    pub conditions: Conditions,
    /// The limit that each request has for its first token, and by which it may be refused. The client of a
    /// refused request gives up.
    pub limit: Option<Duration>,
}

impl Cell {
    /// Lets a variant pick for all requests.
    pub fn run(&self, variant: &Variant) -> Figures {
        let Conditions { scrape_interval, chunk_tokens, resets, .. } = self.conditions;
        let fleet = self.source.fleet();
        let span = self.source.span(self.requests);
        let (clients, first_requests) = self.source.clients(span, self.seed);
        let servers = fleet.servers.len();
        let simulation = Simulation {
            clients,
            first_requests,
            proxies: RunningProxies::new(&self.conditions, variant, servers, self.limit, self.seed),
            span,
            scrape_interval,
            chunk_tokens,
            follows_events: variant.mechanism().follows_events(),
            resets: resets.times(),
            fleet,
        };
        simulation.run()
    }
}
