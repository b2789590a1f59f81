//! The checks. Each looks at the facts, and gives its findings, or `None` where there is nothing that it could check.

mod agent;
mod clients;
mod endpoints;
mod filters;
mod outcome;
mod steering;

use super::facts::Facts;
use super::report::Finding;

type Check = fn(&Facts) -> Option<Vec<Finding>>;

/// All checks, each with the statement that holds when it finds nothing.
pub(super) const ALL: [(&str, Check); 22] = [
    ("Envoy has taken all updates of its configuration", |facts| Some(filters::updates(facts))),
    ("a listener has the endpoint picker", |facts| Some(filters::presence(facts))),
    ("a picker runs on at least one route", filters::routes),
    ("no two pickers pick on one route", filters::one_picker),
    ("filters that set subset hints are before the picker", filters::hints),
    ("the wasm filter can wait for bodies", filters::stop_iteration),
    ("Envoy's buffers hold the bodies that the filter waits for", filters::buffers),
    ("clients cannot choose their server", clients::headers),
    ("paths are normalized before the picker reads them", clients::paths),
    ("the routes' clusters exist", steering::clusters),
    ("the clusters send requests to the endpoint that the picker chooses", steering::destinations),
    ("requests whose server fails are tried again", steering::retries),
    ("the agent can be read", |facts| Some(agent::readable(facts))),
    ("the agent has the pickers' pools", agent::pools),
    ("the pickers have the agent's snapshot", agent::snapshots),
    ("the pickers' agents agree", agent::agreement),
    ("the agent has the pickers' reports", agent::reports),
    ("Envoy has the pool's endpoints as hosts", endpoints::hosts),
    ("the agent scrapes all endpoints", endpoints::readings),
    ("Envoy has the filter's statistics", outcome::statistics),
    ("filter and agent have one version", outcome::versions),
    ("chosen endpoints serve", outcome::served),
];
