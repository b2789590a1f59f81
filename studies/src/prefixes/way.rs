//! The ways to choose.

use super::clients::WHY;
use crate::epp::rules::Rules;
use crate::epp::running::RunningVariant;
use crate::epp::variant::{Setting, Variant};
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::eventually::within;
use serde_json::json;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Between two readings of a server. A scrape takes 10 ms of vLLM's processor, with which these servers
/// compute: every 50 ms it would be a fifth of it.
const INTERVAL: Duration = Duration::from_secs(1);
/// The agent knows the contents of all caches within this time.
const EVENTS_DEADLINE: Duration = Duration::from_secs(20);
/// Servers whose events are complete.
const COMPLETE: &str = r#"metrics_agent_kv_event_states{pool="default",state="complete"}"#;

/// A way to choose a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefixWay {
    /// Envoy alone.
    RoundRobin,
    /// The EPP's default rules.
    Default,
    /// Expected latency, by the prompts that were sent.
    ExpectedLatency,
    /// Expected latency, by the servers' events.
    Events,
    /// The same; a request names the data-parallel rank.
    EventsByRank,
}

impl PrefixWay {
    /// The ways in front of servers with one rank each.
    pub(super) const OF_SERVERS: [Self; 4] =
        [Self::RoundRobin, Self::Default, Self::ExpectedLatency, Self::Events];
    /// The ways in front of one server with several ranks.
    pub(super) const OF_RANKS: [Self; 3] = [Self::RoundRobin, Self::Events, Self::EventsByRank];

    /// Starts the proxy in front of servers, and waits until the agent knows the contents of their caches.
    pub(super) async fn start(self, endpoints: &[SocketAddr]) -> Result<RunningVariant> {
        let rules = match self {
            Self::RoundRobin => Rules::DEFAULT,
            Self::Default => Rules::Prefixes("default"),
            Self::ExpectedLatency => Rules::Prefixes("expected-latency"),
            Self::Events => Rules::Prefixes("expected-latency-events"),
            Self::EventsByRank => Rules::Prefixes("expected-latency-events-name-rank"),
        };
        let agent_flags = &["--kv-events", "discover"];
        let setting = Setting { endpoints, workers: 1, rules, interval: INTERVAL, agent_flags, epp: None };
        if self == Self::RoundRobin {
            return Variant::NoPicker.start(setting).await;
        }
        let explain = json!({"header": WHY.0, "secret": WHY.1});
        let variant = Variant::Filter(Filter::Native);
        let running =
            variant.start_changed(setting, |config| config.set_picker_field("explain", explain)).await?;
        let agent = running.agent().context("no agent")?;
        let complete = within(EVENTS_DEADLINE, async || {
            let complete = agent.metric(COMPLETE).await?;
            ensure!(complete >= endpoints.len() as f64, "the events of {complete} servers are complete");
            anyhow::Ok(())
        });
        complete.await.map_err(anyhow::Error::msg)?;
        Ok(running)
    }
}

impl fmt::Display for PrefixWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundRobin => "round robin",
            Self::Default => "default rules",
            Self::ExpectedLatency => "expected latency",
            Self::Events => "expected latency, events",
            Self::EventsByRank => "expected latency, events, `nameRank`",
        })
    }
}
