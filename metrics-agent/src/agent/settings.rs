//! The settings of one agent.

use crate::api::access::credentials as api_credentials;
use crate::api::access::hosts::AllowedHosts;
use crate::api::connections::listen::Limits;
use crate::catalogue::scraping::ScrapeSettings;
use crate::catalogue::{Options, watch};
use crate::publish::cluster::ObjectReports;
use crate::publish::eds;
use crate::scrape::connection::credentials as scrape_credentials;
use crate::sharing::Share;
use crate::sources::endpoints::Sources;
use crate::sources::kubernetes;

/// The settings of one agent.
#[derive(Debug)]
pub struct Settings {
    /// Options for reading manifests, from flags.
    pub options: Options,
    /// The manifests with the pools; `None`: one pool of all endpoints.
    pub manifests: Option<watch::Settings>,
    /// Where endpoints come from.
    pub sources: Sources,
    /// The cluster whose pools and pods are watched.
    pub kubernetes: Option<kubernetes::Settings>,
    /// The only pool of the cluster to serve, `name` or `namespace/name`; `None`: all of them.
    pub only_pool: Option<String>,
    /// What is reported to the cluster's objects.
    pub object_reports: ObjectReports,
    /// How endpoints are scraped.
    pub scrape: ScrapeSettings,
    /// The agent's credentials for model servers, and the authorities that it trusts.
    pub scrape_credentials: scrape_credentials::Files,
    /// The endpoint files for Envoy's EDS.
    pub eds: Option<eds::Target>,
    /// Which proxies share their changes.
    pub share: Share,
    /// Whether agents with one store scrape for one another.
    pub share_readings: bool,
    /// Most endpoints of all sources together, and of one pool.
    pub max_endpoints: usize,
    /// Most snapshot requests that may wait at the same time.
    pub max_waiters: usize,
    /// Limits on clients of the API.
    pub limits: Limits,
    /// Host names under which clients may address the API, beside the agent's own address.
    pub allowed_hosts: AllowedHosts,
    /// The API's certificate, and the credentials that it requires of clients.
    pub credentials: api_credentials::Files,
}
