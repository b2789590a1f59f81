//! `metrics-agent doctor`: reads a running Envoy and an agent, and names the mistakes that keep requests from the endpoints that the
//! picker chooses.

mod admin;
mod checks;
mod dump;
mod facts;
mod managers;
mod picker;
mod report;
mod statistics;

pub use admin::EnvoyAdmin;
pub use dump::ConfigDump;
pub use facts::{AgentFacts, Facts};
pub use report::{Finding, Report, Severity};
pub use statistics::{ClusterHosts, Statistics};

use crate::commands::agent_client::{Agent, FetchError};

/// Reads a running Envoy and an agent, and examines them. An agent that cannot be read is a finding; an Envoy that cannot be read is an
/// error.
pub async fn examine(envoy: &EnvoyAdmin, agent: &Agent) -> Result<Report, FetchError> {
    let dump = ConfigDump::parse(&envoy.config_dump().await?)
        .map_err(|error| envoy.unreadable("/config_dump", &error))?;
    let hosts = ClusterHosts::parse(&envoy.clusters().await?)
        .map_err(|error| envoy.unreadable("/clusters", &error))?;
    let mut facts = Facts::new(dump, hosts);
    let statistics = envoy.statistics(&facts.clusters_in_statistics()).await?;
    facts.statistics = Statistics::parse(&String::from_utf8_lossy(&statistics));
    facts.agent = AgentFacts::read(agent, facts.pools()).await;
    Ok(diagnose(&facts))
}

/// Runs all checks.
pub fn diagnose(facts: &Facts) -> Report {
    let mut report = Report::new(facts.summary());
    for (check, run) in checks::ALL {
        // A check that has nothing to look at neither finds anything nor passes.
        if let Some(findings) = run(facts) {
            report.add(check, findings);
        }
    }
    report
}
