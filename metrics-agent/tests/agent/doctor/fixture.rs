//! A recorded Envoy without mistakes, which tests change.

use std::collections::BTreeMap;

use metrics_agent_doctor::agent_client::PoolList;
use metrics_agent_doctor::doctor::{
    AgentFacts, ClusterHosts, ConfigDump, Facts, Finding, Report, ServerHealth, Severity, Statistics,
    diagnose,
};
use metrics_agent_status::extension::ServerStatus;
use metrics_agent_status::pool::{PoolStatus, RefusedObjects, TrafficStatus};
use metrics_agent_status::unseen_queue::UnseenQueue;
use serde_json::{Value, json};

/// The namespace and key of the metadata that the shipped cluster reads, and the picker's header.
pub(super) const DESTINATION: &str = "x-gateway-destination-endpoint";

/// The endpoints of the recorded pool, which are the hosts of the recorded cluster.
pub(super) const ENDPOINTS: [&str; 2] = ["127.0.0.1:18001", "127.0.0.1:18002"];

/// The responses of an Envoy and of an agent.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) dump: Value,
    pub(super) clusters: Value,
    pub(super) statistics: Vec<String>,
    /// The pools of the agent with their endpoints, each with its state.
    pub(super) pools: BTreeMap<String, Vec<(String, &'static str)>>,
    /// Why endpoints are in their state.
    pub(super) reason: Option<&'static str>,
    /// Age of the endpoints' values; `None`: never scraped.
    pub(super) age_ms: Option<u64>,
    pub(super) agent_error: Option<&'static str>,
    /// Whether the rules decide by metrics, if the pools are of gRPC.
    pub(super) grpc_reads_metrics: Option<bool>,
    /// The health of the servers of the recorded pool.
    pub(super) health: Option<ServerHealth>,
    /// The queue of the endpoints' servers, which was never seen.
    pub(super) unseen_queue: Option<UnseenQueue>,
    /// Requests that proxies have in flight at each endpoint; `None`: no proxy reports.
    pub(super) in_flight: Option<u64>,
    /// Why the agent refuses the pools.
    pub(super) refusal: Option<&'static str>,
    /// Envoy Gateway's calls of the agent.
    pub(super) extension: Option<ServerStatus>,
}

impl Recorded {
    /// Envoy 1.40 with envoy.yaml, which has routed six requests.
    pub(super) fn wasm() -> Self {
        Self::parse(include_str!("../../captures/envoy-1.40.0-wasm.json"))
    }

    /// The same with envoy-native.yaml.
    pub(super) fn native() -> Self {
        Self::parse(include_str!("../../captures/envoy-1.40.0-native.json"))
    }

    fn parse(text: &str) -> Self {
        let mut recorded: Value = serde_json::from_str(text).unwrap();
        let ready = ENDPOINTS.map(|address| (address.to_owned(), "ready"));
        Self {
            dump: recorded["config_dump"].take(),
            clusters: recorded["clusters"].take(),
            statistics: serde_json::from_value(recorded["stats"].take()).unwrap(),
            pools: BTreeMap::from([("default".to_owned(), ready.into())]),
            reason: None,
            age_ms: None,
            agent_error: None,
            grpc_reads_metrics: None,
            health: None,
            unseen_queue: None,
            in_flight: None,
            refusal: None,
            extension: None,
        }
    }

    /// The part of the dump with this list.
    pub(super) fn section(&mut self, list: &str) -> &mut Value {
        let sections = self.dump["configs"].as_array_mut().unwrap();
        sections.iter_mut().find(|section| section.get(list).is_some()).unwrap()
    }

    pub(super) fn listener(&mut self) -> &mut Value {
        &mut self.section("static_listeners")["static_listeners"][0]["listener"]
    }

    pub(super) fn manager(&mut self) -> &mut Value {
        &mut self.listener()["filter_chains"][0]["filters"][0]["typed_config"]
    }

    pub(super) fn filters(&mut self) -> &mut Vec<Value> {
        self.manager()["http_filters"].as_array_mut().unwrap()
    }

    pub(super) fn routes(&mut self) -> &mut Value {
        &mut self.manager()["route_config"]["virtual_hosts"][0]["routes"]
    }

    pub(super) fn cluster(&mut self, name: &str) -> &mut Value {
        let clusters = self.section("static_clusters")["static_clusters"].as_array_mut().unwrap();
        let mut clusters = clusters.iter_mut().map(|entry| &mut entry["cluster"]);
        clusters.find(|cluster| cluster["name"] == name).unwrap()
    }

    /// The hosts of a cluster.
    pub(super) fn hosts(&mut self, name: &str) -> &mut Vec<Value> {
        let clusters = self.clusters["cluster_statuses"].as_array_mut().unwrap();
        let cluster = clusters.iter_mut().find(|cluster| cluster["name"] == name).unwrap();
        cluster["host_statuses"].as_array_mut().unwrap()
    }

    /// Changes a field of the picker's own configuration; `null` removes it.
    pub(super) fn set_picker(&mut self, field: &str, value: Value) {
        let typed = &mut self.filters()[0]["typed_config"];
        let place = ["/config/configuration/value", "/filter_config/value"];
        let place = place.into_iter().find(|place| typed.pointer(place).is_some()).unwrap();
        let text = typed.pointer_mut(place).unwrap();
        let mut fields: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        if value.is_null() {
            fields.as_object_mut().unwrap().remove(field);
        } else {
            fields[field] = value;
        }
        *text = fields.to_string().into();
    }

    /// Sets a statistic that the filter counts for the recorded pool.
    pub(super) fn set_statistic(&mut self, name: &str, value: u64) {
        let names = [
            format!("wasmcustom.endpoint_picker.default.{name}: "),
            format!("dynamicmodulescustom.endpoint_picker.{name}.pool.default: "),
        ];
        let is_it = |line: &&mut String| names.iter().any(|name| line.starts_with(name));
        match self.statistics.iter_mut().find(is_it) {
            Some(line) => *line = format!("{}: {value}", line.rsplit_once(": ").unwrap().0),
            None => self.statistics.push(format!("{}{value}", names[0])),
        }
    }

    pub(super) fn diagnose(&self) -> Report {
        let dump = ConfigDump::parse(self.dump.to_string().as_bytes()).unwrap();
        let hosts = ClusterHosts::parse(self.clusters.to_string().as_bytes()).unwrap();
        let mut facts = Facts::new(dump, hosts);
        facts.statistics = Statistics::parse(&self.statistics.join("\n"));
        facts.agent = self.agent();
        if let Some(health) = &self.health {
            let servers = ENDPOINTS.map(|address| (address.to_owned(), health.clone()));
            facts.health.insert("default".to_owned(), servers.into());
        }
        diagnose(&facts)
    }

    fn agent(&self) -> AgentFacts {
        let names = self.pools.keys().cloned().collect();
        let status = |(pool, endpoints): (&String, &Vec<(String, &str)>)| {
            let sent = self.in_flight.map(|requests| TrafficStatus { requests, ..TrafficStatus::default() });
            let endpoints: Vec<_> = endpoints
                .iter()
                .map(|(address, state)| {
                    json!({"name": address, "address": address, "state": state, "reason": self.reason,
                           "age_ms": self.age_ms, "unseen_queue": self.unseen_queue, "sent": sent})
                })
                .collect();
            let reads_metrics = self.grpc_reads_metrics;
            let grpc = reads_metrics.map(|it| json!({"parser": "vllmgrpc-parser", "reads_metrics": it}));
            let status = json!({
                "pool": pool, "refusal": self.refusal, "grpc": grpc, "endpoints": endpoints, "proxies": []});
            (pool.clone(), Ok(serde_json::from_value::<PoolStatus>(status).unwrap()))
        };
        let mut pools: BTreeMap<_, _> = self.pools.iter().map(status).collect();
        let unknown = || Err("no such pool".to_owned());
        for pool in ["default", "defualt", "other"] {
            pools.entry(pool.to_owned()).or_insert_with(unknown);
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let list = PoolList {
            version,
            pools: names,
            refused: RefusedObjects::default(),
            extension: self.extension.clone(),
        };
        AgentFacts {
            url: "http://127.0.0.1:9095/".to_owned(),
            list: self.agent_error.map_or(Ok(list), |error| Err(error.to_owned())),
            pools: if self.agent_error.is_some() { BTreeMap::new() } else { pools },
        }
    }

    /// The only finding.
    #[track_caller]
    pub(super) fn finding(&self) -> Finding {
        let report = self.diagnose();
        let findings: Vec<_> = report.findings().cloned().collect();
        assert_eq!(findings.len(), 1, "{report}");
        findings[0].clone()
    }

    /// Checks that the only finding has this severity, these words of the mistake and these of the fix.
    #[track_caller]
    pub(super) fn assert_finds(&self, severity: Severity, problem: &str, place: &str, fix: &str) {
        let finding = self.finding();
        assert_eq!(finding.severity, severity, "{finding:?}");
        assert!(finding.problem.contains(problem), "{problem:?} is not in {finding:?}");
        assert!(finding.place.contains(place), "{place:?} is not in {finding:?}");
        assert!(finding.fix.contains(fix), "{fix:?} is not in {finding:?}");
    }

    #[track_caller]
    pub(super) fn assert_is_ok(&self) -> Report {
        let report = self.diagnose();
        assert!(report.is_ok(), "{report}");
        report
    }
}

/// Removes a field that is there.
pub(super) fn remove(value: &mut Value, field: &str) -> Value {
    value.as_object_mut().unwrap().remove(field).unwrap_or_else(|| panic!("no {field}"))
}
