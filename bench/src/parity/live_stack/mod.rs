//! Both pickers, running: model servers, the metrics agent, the EPP, and one Envoy with a listener for each.

mod agent;
mod answer;

use super::case::{Answer, CACHE_SOURCE, Case, ENCODE, PREFILL, RANK, Request, ServerState};
use super::listeners;
use super::setup::Comparison;
use crate::epp::{Epp, USER_AGENT, ext_proc, free_ports};
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::config::EDS_FOLDER;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::program::process_tree::cpu_time;
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::statistics::PickerStatistics;
use endpoint_picker_harness::{Filter, client, subset_hint};
use endpoint_picker_model_server::{Behaviour, ModelServer, ReceivedRequest};
use reqwest::{Client, RequestBuilder, Response};
use std::fmt::{self, Display};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::AddAssign;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

const AGENT: &str = "metrics-agent";
/// A scrape that begins after a change shows it, and has been read when the next one begins.
const SCRAPES_UNTIL_READ: usize = 2;
/// The flag of both pickers that shows the total of each rated endpoint.
const EMIT_SCORES: &str = "--emit-endpoint-scores";
/// How often both pickers scrape. By default they do every 50 ms, which costs more processor time than the
/// cases; until a changed state is read three scrapes pass.
const SCRAPE_INTERVAL: &str = "250ms";
/// Scrapes come later while many programs start on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// The agent's counter of snapshots that it has sent to the filter.
const SNAPSHOTS: &str = r#"metrics_agent_snapshots_total{outcome="snapshot"}"#;
/// The first snapshot after a change may be an older one, the second has the change, and the third is
/// requested when the filter has read the second.
const SNAPSHOTS_UNTIL_READ: f64 = 3.0;

/// The running programs; they end when dropped.
#[derive(Debug)]
pub struct LiveStack {
    filter: Filter,
    envoy: Envoy,
    filter_listener: SocketAddr,
    epp_listener: SocketAddr,
    epp: Epp,
    agent: Agent,
    servers: Vec<ModelServer>,
    /// The state of the servers that both pickers have read.
    read: Vec<ServerState>,
    client: Client,
    /// Requests sent through the filter.
    sent_to_filter: u64,
    _dir: RunDir,
}

/// Requests in flight; they end when dropped.
#[derive(Debug, Default)]
pub struct HeldRequests(JoinSet<reqwest::Result<Response>>);

/// The picker that a request is sent through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picker {
    /// Our filter.
    Filter,
    /// The EPP.
    Epp,
}

/// Processor time, user and system, of the programs of stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessorTime {
    envoy: Duration,
    epp: Duration,
    agent: Duration,
}

impl ProcessorTime {
    /// That of all programs.
    pub fn all(&self) -> Duration {
        self.envoy + self.epp + self.agent
    }
}

impl AddAssign for ProcessorTime {
    fn add_assign(&mut self, other: Self) {
        self.envoy += other.envoy;
        self.epp += other.epp;
        self.agent += other.agent;
    }
}

impl Display for ProcessorTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [envoy, epp, agent] = [self.envoy, self.epp, self.agent].map(|time| time.as_secs_f64());
        write!(f, "Envoy {envoy:.0} s, the EPP {epp:.0} s, our agent {agent:.0} s")
    }
}

impl LiveStack {
    /// Starts all of it for one setup.
    pub async fn start(comparison: &Comparison, binary: &Path) -> Result<Self> {
        let setup = comparison.setup;
        let mut dir = RunDir::new()?;
        fs::create_dir(dir.path().join(EDS_FOLDER))?;
        // Each on an address of its own: the EPP's subset hint does not look at ports.
        let [primary_port] = free_ports()?;
        let host = |host: usize| Ipv4Addr::new(127, 0, 1, u8::try_from(1 + host).unwrap_or(u8::MAX));
        let start = |server: usize| match (setup.has_ranks(), server % 2) {
            (false, _) => ModelServer::start_at(host(server)),
            (true, 0) => ModelServer::start_on((host(server / 2), primary_port).into()),
            (true, _) => ModelServer::start_at(host(server / 2)),
        };
        let servers = (0..setup.servers).map(start).collect::<Result<Vec<_>>>()?;
        for server in &servers {
            server.behave(Behaviour::Complete);
        }
        let endpoints = dir.path().join("endpoints.yaml");
        agent::write_endpoints(&endpoints, setup, &servers)?;

        let config = dir.path().join("config.yaml");
        comparison.write_config(&config, &endpoints, primary_port)?;
        let flags = [EMIT_SCORES, "--refresh-metrics-interval", SCRAPE_INTERVAL];
        let epp = Epp::start(binary, &config, dir.path(), &flags);
        let agent = agent::start(comparison, dir.path(), &config, &endpoints);
        let (epp, agent) = tokio::join!(epp, agent);
        let (epp, agent) = (epp?, agent?);
        let config = listeners::config(dir.path(), agent.address().port(), epp.port())?;
        // One worker: a decision must not depend on the worker that makes it.
        let envoy = Envoy::start(&config, dir.path(), 1).await?;
        let (filter_listener, epp_listener) = listeners::addresses(&envoy).await?;
        dir.settle();
        Ok(Self {
            filter: Filter::chosen()?,
            envoy,
            filter_listener,
            epp_listener,
            epp,
            agent,
            servers,
            read: Vec::new(),
            client: client::http1(),
            sent_to_filter: 0,
            _dir: dir,
        })
    }

    /// Sets every server's state of a case, waits until both pickers have read it, and keeps the servers busy
    /// until the result is dropped.
    pub async fn set(&mut self, case: &Case) -> Result<HeldRequests> {
        self.wait("both pickers are idle", async |stack: &Self| {
            let clusters = ["model-servers", ext_proc::CLUSTER];
            let names = clusters.map(|cluster| format!("cluster.{cluster}.upstream_rq_active"));
            let active = stack.envoy.stats(&names.each_ref().map(String::as_str)).await?;
            ensure!(active == [0, 0], "{active:?} requests are in flight to {clusters:?}");
            Ok(())
        })
        .await?;
        if self.read != case.servers {
            self.read.clear();
            self.show(&case.servers).await?;
            self.read.clone_from(&case.servers);
        }
        self.hold(case).await
    }

    /// Sets every server's state, and waits until both pickers have read it.
    async fn show(&mut self, states: &[ServerState]) -> Result<()> {
        for (server, state) in self.servers.iter().zip(states) {
            server.update_metrics(|metrics| *metrics = state.metrics());
        }
        let before = self.scrapes();
        self.wait("both pickers have read the new metrics", async |stack: &Self| {
            let now = stack.scrapes();
            let read = before.iter().zip(&now).all(|(before, now)| *now >= before + SCRAPES_UNTIL_READ);
            ensure!(read, "scrapes by the agent and the EPP were {before:?}, are {now:?}");
            Ok(())
        })
        .await?;
        let before = self.agent.metric(SNAPSHOTS).await?;
        self.wait("the filter has the agent's readings", async |stack: &Self| {
            let now = stack.agent.metric(SNAPSHOTS).await?;
            ensure!(now >= before + SNAPSHOTS_UNTIL_READ, "{now} snapshots after {before}");
            Ok(())
        })
        .await?;
        match self.filter {
            // All workers decide by one view, which the thread that asks for snapshots replaces.
            Filter::Native => Ok(()),
            Filter::Wasm => self.wait_for_worker().await,
        }
    }

    /// Waits until the wasm filter's worker decides by the newest snapshot that the filter has: it takes that
    /// over at every tick, before it adds the requests that it has counted to the statistics, once a second.
    async fn wait_for_worker(&mut self) -> Result<()> {
        let (answer, _) = self.send(Picker::Filter, &Request::without_candidate()).await?;
        ensure!(matches!(answer, Answer::Refused(_)), "a request without a candidate: {answer}");
        self.wait("the worker has counted its requests", async |stack: &Self| {
            let counted = PickerStatistics::decided_by(&stack.envoy).await?;
            ensure!(counted == stack.sent_to_filter, "{counted} of {}", stack.sent_to_filter);
            Ok(())
        })
        .await
    }

    /// Sends the requests to be held, one after another, through both pickers.
    async fn hold(&mut self, case: &Case) -> Result<HeldRequests> {
        let mut held = HeldRequests::default();
        for server in case.holders() {
            for picker in [Picker::Epp, Picker::Filter] {
                self.servers[server].behave(Behaviour::Hang);
                let before = self.servers[server].requests().len();
                held.0.spawn(self.request(picker, &Request::held(server)).send());
                self.wait("a server has a request to be held", async |stack: &Self| {
                    ensure!(
                        stack.servers[server].requests().len() > before,
                        "{picker:?}: not yet at {server}"
                    );
                    Ok(())
                })
                .await?;
                self.servers[server].behave(Behaviour::Complete);
            }
        }
        Ok(held)
    }

    /// Sends a request; returns the response, and the body that reached a server.
    pub async fn send(&mut self, picker: Picker, request: &Request) -> Result<(Answer, Option<String>)> {
        for server in &self.servers {
            server.take_requests();
        }
        let response = self.request(picker, request).send().await.context("no answer")?;
        let mut answer = self.answer(response).await?;
        let Answer::Served { by, named, .. } = &mut answer else { return Ok((answer, None)) };
        // The pickers may ask servers for their models meanwhile.
        let is_sent = |received: &ReceivedRequest| {
            received.uri.path_and_query().is_some_and(|path| path.as_str() == request.path)
                && received.body.is_empty() == request.body.as_ref().is_none_or(String::is_empty)
        };
        let mut received = self.servers[*by].take_requests().into_iter();
        let Some(received) = received.rfind(is_sent) else { return Ok((answer, None)) };
        for header in [PREFILL, ENCODE, RANK, CACHE_SOURCE] {
            let Some(server) = received.headers.get(header) else { continue };
            let server = server.to_str().ok().and_then(|server| self.server(server));
            named.insert(header.to_owned(), server.with_context(|| format!("{header} names no server"))?);
        }
        Ok((answer, Some(String::from_utf8_lossy(&received.body).into_owned())))
    }

    fn request(&mut self, picker: Picker, request: &Request) -> RequestBuilder {
        let listener = match picker {
            Picker::Filter => {
                self.sent_to_filter += 1;
                self.filter_listener
            }
            Picker::Epp => self.epp_listener,
        };
        let url = format!("http://{listener}{}", request.path);
        let mut sent = match &request.body {
            Some(body) => self.client.post(url).header("content-type", "application/json").body(body.clone()),
            None => self.client.get(url),
        };
        let addresses: Vec<String> = self.servers.iter().map(ModelServer::endpoint).collect();
        for (name, value) in request.headers_with(&addresses) {
            sent = sent.header(name, value);
        }
        if let Some(subset) = &request.subset {
            sent = sent.header(subset_hint::HEADER, subset_hint::list(&self.hint(subset)));
        }
        sent
    }

    /// The processor time of its programs until now.
    pub fn processor_time(&self) -> Result<ProcessorTime> {
        Ok(ProcessorTime {
            envoy: cpu_time(self.envoy.process_id())?,
            epp: cpu_time(self.epp.process_id())?,
            agent: cpu_time(self.agent.process_id())?,
        })
    }

    /// How often each server was scraped by the agent, then by the EPP.
    fn scrapes(&self) -> Vec<usize> {
        let by = |program| self.servers.iter().map(move |server| server.scrapes_by(program));
        by(AGENT).chain(by(USER_AGENT)).collect()
    }

    async fn wait(&mut self, what: &str, check: impl AsyncFn(&Self) -> Result<()>) -> Result<()> {
        let waited = within(DEADLINE, async || check(self).await).await;
        let Err(reason) = waited else { return Ok(()) };
        self.envoy.check_running()?;
        self.agent.check_running()?;
        self.epp.check_running()?;
        anyhow::bail!("not within {DEADLINE:?}: {what}; last seen: {reason}")
    }

    fn hint(&self, subset: &[usize]) -> Vec<String> {
        let unused_address = || String::from("127.0.1.250:1");
        subset
            .iter()
            .map(|&server| self.servers.get(server).map_or_else(unused_address, ModelServer::endpoint))
            .collect()
    }
}
