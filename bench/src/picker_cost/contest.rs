//! The shipped proxy with the picker, against the same one without it, or without what it shares.

use super::turns::{Round, Side, Turn, rounds};
use crate::load::bodies::{NEW_NUMBER, chat_line};
use crate::load::wrk::WrkLoad;
use crate::report::table::Row;
use crate::report::{median, rounded};
use crate::shipped_proxy;
use crate::upstreams::Upstreams;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::config::{Config, EDS_FILE, EDS_FOLDER};
use endpoint_picker_harness::endpoint_files::write_eds;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::tools;
use serde_json::json;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prompts that differ from each other, so that the prefix rule spreads them over the endpoints.
const PROMPTS: usize = 500;
/// About this long is a request body.
const BODY_BYTES: usize = 2_048;

const SATURATING: WrkLoad = WrkLoad::Saturating { connections: 32 };
const STEADY_RATE: u32 = 300;
const STEADY: WrkLoad = WrkLoad::Steady { per_second: STEADY_RATE };

const ABSTAINED: &str = "wasmcustom.endpoint_picker.default.abstained_no_snapshot";

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Rounds for each kind of load; in each, both proxies have a turn.
    pub(crate) rounds: u32,
    /// How long a turn lasts; whole seconds.
    pub(crate) turn: Duration,
}

/// Two proxies with their endpoints, running; they end when dropped.
#[derive(Debug)]
pub(crate) struct Contest {
    // In the order of their end: the proxies first.
    bare: Side,
    ours: Side,
    /// What the proxies are sent when answers are to be streamed.
    streaming: PathBuf,
    /// What they are sent when each prompt is to be new.
    new_prompts: PathBuf,
    _agents: Vec<Agent>,
    upstreams: Upstreams,
    _dir: RunDir,
}

impl Contest {
    /// The shipped proxy, and one with a buffer in the picker's place, over this many endpoints and with one worker each.
    pub(crate) async fn with_and_without_picker(endpoints: usize) -> Result<Self> {
        let ground = Ground::prepare(endpoints).await?;
        let folder = ground.folder("bare")?;
        write_eds(&folder.join(EDS_FILE), ground.upstreams.addresses())?;
        let bare = Side {
            envoy: Envoy::start(&bare_config(&folder)?, &folder, 1).await?,
            bodies: ground.bodies.clone(),
            destinations: Some(ground.destinations.clone()),
        };
        let (ours, agent) = ground.picking("ours", &tools::filter_wasm()?, 1).await?;
        Ok(ground.contest(bare, ours, vec![agent]))
    }

    /// The shipped proxy, and one whose workers share nothing.
    pub(crate) async fn with_and_without_sharing(endpoints: usize, workers: u32) -> Result<Self> {
        let ground = Ground::prepare(endpoints).await?;
        let (alone, first) = ground.picking("alone", &tools::alone_filter_wasm()?, workers).await?;
        let (ours, second) = ground.picking("ours", &tools::filter_wasm()?, workers).await?;
        Ok(ground.contest(alone, ours, vec![first, second]))
    }

    /// Measures what a request costs. An error when one was not answered well, or the picker did not choose for one.
    pub(crate) async fn requests(&self, plan: Plan) -> Result<Vec<Row>> {
        let abstained = self.ours.envoy.stat(ABSTAINED).await?;
        self.warm_up(plan)?;
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

    /// Measures how many answers of 1 000 chunks go through.
    pub(crate) fn streamed_answers(&mut self, plan: Plan) -> Result<Row> {
        for side in [&mut self.bare, &mut self.ours] {
            side.bodies.clone_from(&self.streaming);
        }
        self.warm_up(plan)?;
        let rounds = rounds(&self.bare, &self.ours, SATURATING, plan.rounds, plan.turn)?;
        let compare = Compare::Ratio { least: 0.97 };
        Ok(row("answers of 1 000 chunks: req/s".to_owned(), &rounds, |turn| turn.figures.rate(), compare))
    }

    /// Measures what workers pay for knowing what the others know, with prompts that come again and again and with new ones.
    pub(crate) fn sharing(&mut self, plan: Plan, workers: u32) -> Result<Vec<Row>> {
        let again = self.sharing_of("prompts again", plan, workers)?;
        for side in [&mut self.bare, &mut self.ours] {
            side.bodies.clone_from(&self.new_prompts);
        }
        Ok(vec![again, self.sharing_of("new prompts", plan, workers)?])
    }

    fn sharing_of(&self, prompts: &str, plan: Plan, workers: u32) -> Result<Row> {
        self.warm_up(plan)?;
        let rounds = rounds(&self.bare, &self.ours, SATURATING, plan.rounds, plan.turn)?;
        let endpoints = self.upstreams.addresses().len();
        let what = format!(
            "{workers} workers, {endpoints} endpoints, {prompts}, alone and sharing: processor us per req"
        );
        Ok(row(what, &rounds, |turn| micros(turn.cpu), Compare::Added { most: Some(5.0) }))
    }

    /// Connections to every endpoint, every prompt in the prefix index.
    fn warm_up(&self, plan: Plan) -> Result<()> {
        rounds(&self.bare, &self.ours, SATURATING, 1, plan.turn).map(drop)
    }
}

/// What two proxies need.
struct Ground {
    dir: RunDir,
    upstreams: Upstreams,
    bodies: PathBuf,
    streaming: PathBuf,
    new_prompts: PathBuf,
    destinations: PathBuf,
}

impl Ground {
    async fn prepare(endpoints: usize) -> Result<Self> {
        let dir = RunDir::new()?;
        let upstreams = Upstreams::start(endpoints).await?;
        let lines = upstreams.addresses().iter().map(|address| format!("{address}\n"));
        let file = |name: &str, text: String| {
            let path = dir.path().join(name);
            fs::write(&path, text).map(|()| path)
        };
        Ok(Self {
            bodies: file(
                "bodies",
                (0..PROMPTS).map(|number| chat_line(number, BODY_BYTES, false)).collect(),
            )?,
            streaming: file(
                "streaming-bodies",
                (0..PROMPTS).map(|number| chat_line(number, BODY_BYTES, true)).collect(),
            )?,
            new_prompts: file("new-prompts", chat_line(NEW_NUMBER, BODY_BYTES, false))?,
            destinations: file("destinations", lines.collect())?,
            upstreams,
            dir,
        })
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.dir.path().join(name);
        fs::create_dir_all(folder.join(EDS_FOLDER))?;
        Ok(folder)
    }

    /// A proxy with this filter and its agent, picking.
    async fn picking(&self, name: &str, filter: &Path, workers: u32) -> Result<(Side, Agent)> {
        let folder = self.folder(name)?;
        let agent = start_agent(&folder, self.upstreams.addresses()).await?;
        let mut config = shipped_proxy::config(&folder, agent.address().port())?;
        config.set_picker_module(filter)?;
        let envoy = Envoy::start(&config, &folder, workers).await?;
        shipped_proxy::wait_until_picking(&envoy).await?;
        Ok((Side { envoy, bodies: self.bodies.clone(), destinations: None }, agent))
    }

    fn contest(mut self, bare: Side, ours: Side, agents: Vec<Agent>) -> Contest {
        self.dir.settle();
        let Self { dir, upstreams, streaming, new_prompts, .. } = self;
        Contest { bare, ours, streaming, new_prompts, _agents: agents, upstreams, _dir: dir }
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

/// Holds each request until its body is complete, as the picker does, and takes the destination from the client's header.
fn bare_config(folder: &Path) -> Result<Config> {
    // Nothing asks for an agent here.
    let mut config = shipped_proxy::config(folder, 1)?;
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
