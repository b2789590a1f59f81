//! The shipped proxy with the picker, and the same one with a buffer in its place.

use super::table::{Row, median, rounded};
use super::turns::{Round, Side, Turn, rounds};
use super::upstreams::Upstreams;
use super::wrk::Load;
use crate::agent::Agent;
use crate::config::{Config, EDS_FILE, EDS_FOLDER, Places};
use crate::endpoint_files::write_eds;
use crate::envoy::Envoy;
use crate::eventually::within;
use crate::run_dir::RunDir;
use crate::{client, tools};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// Prompts that differ from each other, so that the prefix rule spreads them over the endpoints.
const PROMPTS: usize = 500;
/// About this long is a request body.
const BODY_BYTES: usize = 2_048;

const SATURATING: Load = Load::Saturating { connections: 32 };
const STEADY_RATE: u32 = 300;
const STEADY: Load = Load::Steady { per_second: STEADY_RATE };

const PICKING_DEADLINE: Duration = Duration::from_secs(20);
const ROUTED: &str = "wasmcustom.endpoint_picker.default.routed";
const ABSTAINED: &str = "wasmcustom.endpoint_picker.default.abstained_no_snapshot";

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds for each kind of load; in each, both proxies have a turn.
    pub rounds: u32,
    /// How long a turn lasts; whole seconds.
    pub turn: Duration,
}

/// Both proxies with their endpoints, running; they end when dropped.
#[derive(Debug)]
pub struct Contest {
    // In the order of their end: the proxies first.
    bare: Side,
    ours: Side,
    _agent: Agent,
    upstreams: Upstreams,
    _dir: RunDir,
}

impl Contest {
    /// Starts all of it over this many endpoints, each proxy with one worker.
    pub async fn start(endpoints: usize) -> Result<Self> {
        let mut dir = RunDir::new()?;
        let upstreams = Upstreams::start(endpoints).await?;
        let (bodies, destinations) = (dir.path().join("bodies"), dir.path().join("destinations"));
        fs::write(&bodies, (0..PROMPTS).map(body).collect::<String>())?;
        let lines = upstreams.addresses().iter().map(|address| format!("{address}\n"));
        fs::write(&destinations, lines.collect::<String>())?;

        let [bare_dir, ours_dir] = ["bare", "ours"].map(|name| dir.path().join(name));
        for folder in [&bare_dir, &ours_dir] {
            fs::create_dir_all(folder.join(EDS_FOLDER))?;
        }
        let agent = start_agent(&ours_dir, upstreams.addresses()).await?;
        write_eds(&bare_dir.join(EDS_FILE), upstreams.addresses())?;

        let bare = Envoy::start(&bare_config(&bare_dir)?, &bare_dir, 1).await?;
        let ours = Envoy::start(&our_config(&ours_dir, agent.address().port())?, &ours_dir, 1).await?;
        wait_until_picking(&ours).await?;
        dir.settle();
        let bare = Side { envoy: bare, bodies: bodies.clone(), destinations: Some(destinations) };
        let ours = Side { envoy: ours, bodies, destinations: None };
        Ok(Self { bare, ours, _agent: agent, upstreams, _dir: dir })
    }

    /// Measures. An error when a request was not answered well, or the picker did not choose for one.
    pub async fn run(&self, plan: Plan) -> Result<Vec<Row>> {
        let abstained = self.ours.envoy.stat(ABSTAINED).await?;
        // Connections to every endpoint, every prompt in the prefix index.
        rounds(&self.bare, &self.ours, SATURATING, 1, plan.turn)?;
        let saturated = rounds(&self.bare, &self.ours, SATURATING, plan.rounds, plan.turn)?;
        let steady = rounds(&self.bare, &self.ours, STEADY, plan.rounds, plan.turn)?;
        let abstained = self.ours.envoy.stat(ABSTAINED).await? - abstained;
        ensure!(abstained == 0, "the picker abstained {abstained} times while it was measured");

        let endpoints = self.upstreams.addresses().len();
        let saturated = |what, figure, compare| {
            row(format!("{endpoints} endpoints, saturated: {what}"), &saturated, figure, compare)
        };
        let steady = |what, figure, compare| {
            row(format!("{endpoints} endpoints, {STEADY_RATE} req/s: {what}"), &steady, figure, compare)
        };
        Ok(vec![
            saturated("req/s", |turn| turn.figures.rate(), Compare::Ratio { least: 0.85 }),
            saturated("processor us per req", |turn| micros(turn.cpu), Compare::Added { most: None }),
            steady("p50 us", |turn| micros(turn.figures.p50), Compare::Added { most: Some(100.0) }),
            steady("p99 us", |turn| micros(turn.figures.p99), Compare::Added { most: None }),
        ])
    }
}

/// How the figure with the picker is compared with the bare one, and what is aimed at.
#[derive(Clone, Copy, Debug)]
enum Compare {
    Ratio { least: f64 },
    Added { most: Option<f64> },
}

fn row(what: String, rounds: &[Round], figure: fn(&Turn) -> f64, compare: Compare) -> Row {
    let of = |side: fn(&Round) -> &Turn| median(rounds.iter().map(|round| figure(side(round))).collect());
    let (bare, ours) = (of(|round| &round.bare), of(|round| &round.ours));
    let compared = rounds.iter().map(|round| match compare {
        Compare::Ratio { .. } => figure(&round.ours) / figure(&round.bare),
        Compare::Added { .. } => figure(&round.ours) - figure(&round.bare),
    });
    let least = compared.clone().fold(f64::INFINITY, f64::min);
    let most = compared.clone().fold(f64::NEG_INFINITY, f64::max);
    let found = median(compared.collect());
    let (sign, aim, is_met) = match compare {
        Compare::Ratio { least } => ("x ", format!(">= x {least}"), Some(found >= least)),
        Compare::Added { most: Some(most) } => ("+ ", format!("<= + {most}"), Some(found <= most)),
        Compare::Added { most: None } => ("+ ", String::new(), None),
    };
    let compared = format!("{sign}{} ({} to {})", rounded(found), rounded(least), rounded(most));
    Row { what, bare: rounded(bare), ours: rounded(ours), compared, aim, is_met }
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// A chat request of [`BODY_BYTES`] in one line.
fn body(number: usize) -> String {
    let text =
        format!("Prompt {number}: the quick brown fox jumps over the lazy dog. ").repeat(BODY_BYTES / 50);
    let body = |content: &str| {
        let message = json!({"role": "user", "content": content});
        format!("{}\n", json!({"model": "demo-model", "messages": [message], "max_tokens": 256}))
    };
    let room = BODY_BYTES - body("").len();
    body(&text[..room])
}

/// The shipped configuration without an access log, which would cost both proxies the same and hide the difference.
fn shipped(folder: &Path, agent_port: u16) -> Result<Config> {
    let mut config = Config::shipped("envoy.yaml", Places { port: 0, admin_port: 0, agent_port, folder })?;
    config.remove_access_log()?;
    Ok(config)
}

fn our_config(folder: &Path, agent_port: u16) -> Result<Config> {
    let mut config = shipped(folder, agent_port)?;
    config.set_picker_module(&tools::filter_wasm()?)?;
    Ok(config)
}

/// Holds each request until its body is complete, as the picker does, and takes the destination from the client's header.
fn bare_config(folder: &Path) -> Result<Config> {
    // Nothing asks for an agent here.
    let mut config = shipped(folder, 1)?;
    config.insert_before_picker(json!({
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": 33_554_432,
        },
    }))?;
    config.remove_picker()?;
    Ok(config)
}

async fn start_agent(folder: &Path, endpoints: &[SocketAddr]) -> Result<Agent> {
    let eds_file = folder.join(EDS_FILE);
    let eds_file = eds_file.to_str().context("the folder's name is not UTF-8")?;
    let mut flags = ["--eds-cluster", "model-servers", "--eds-file", eds_file].map(str::to_owned).to_vec();
    flags.extend(endpoints.iter().flat_map(|endpoint| ["--endpoint".to_owned(), endpoint.to_string()]));
    Agent::start((Ipv4Addr::LOCALHOST, 0).into(), flags, &folder.join("agent.log")).await
}

async fn wait_until_picking(envoy: &Envoy) -> Result<()> {
    let client = client::http1();
    let url = format!("http://{}/v1/chat/completions", envoy.listener());
    let picking = within(PICKING_DEADLINE, async || {
        client.post(&url).json(&client::chat("hello")).send().await?.error_for_status()?;
        ensure!(envoy.stat(ROUTED).await? > 0, "no request has been picked an endpoint for");
        Ok(())
    });
    picking.await.map_err(anyhow::Error::msg)
}
