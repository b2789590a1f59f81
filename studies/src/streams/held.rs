//! Streams that stay open: whether each is answered whole, and the memory that each takes.

use super::clients::{self, Outcomes};
use super::open_files;
use super::proxy::{HeldProxy, ServerProtocol};
use crate::epp::rules::Rules;
use crate::epp::running::{Cpu, Memory};
use crate::epp::variant::{Setting, USUAL_INTERVAL};
use anyhow::Result;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_model_server::{Behaviour, ModelServer};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Numbers of streams that are open at once.
pub(crate) const COUNTS: &[usize] = &[1_000, 4_000, 20_000];
pub(crate) const QUICK_COUNTS: &[usize] = &[1_000];
const SERVERS: usize = 10;
/// Chunks of a response, each after the same pause: 16 words, the end, `[DONE]`.
const CHUNKS: u32 = 18;
/// Starting and ending a proxy, and opening all streams, take about this long.
const START: Duration = Duration::from_secs(10);

/// How many streams, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldPlan {
    pub(crate) counts: &'static [usize],
    /// How long each stream is open.
    pub(crate) lasting: Duration,
}

/// The streams of one run.
#[derive(Clone, Debug)]
pub(crate) struct HeldSample {
    pub(crate) proxy: HeldProxy,
    pub(crate) streams: usize,
    pub(crate) protocol: ServerProtocol,
    pub(crate) outcomes: Outcomes,
    /// The maximum of streams that were open at once.
    pub(crate) open: usize,
    /// Memory before the first stream.
    pub(crate) before: Memory,
    /// The maximum of memory while `open` streams were open.
    pub(crate) held: Memory,
    pub(crate) cpu: Cpu,
}

impl HeldPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let runs = self.counts.len() * HeldProxy::ALL.len();
        (START + self.lasting) * u32::try_from(runs).unwrap_or(u32::MAX)
    }
}

/// Holds streams through one proxy after another.
pub(crate) async fn measure(plan: HeldPlan, epp: &Path, progress: &Progress) -> Result<Vec<HeldSample>> {
    let open_files = open_files::raise_limit()?;
    progress.print(&format!("a process may have {open_files} open files (ulimit -n)"));
    let mut samples = Vec::new();
    for &streams in plan.counts {
        for proxy in HeldProxy::ALL {
            let protocol = ServerProtocol::of(streams, open_files);
            let sample = HeldRun { proxy, streams, protocol, lasting: plan.lasting, epp }.measure().await?;
            progress.print(&sample.to_string());
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// One proxy in front of servers of its own.
struct HeldRun<'a> {
    proxy: HeldProxy,
    streams: usize,
    protocol: ServerProtocol,
    lasting: Duration,
    epp: &'a Path,
}

impl HeldRun<'_> {
    async fn measure(&self) -> Result<HeldSample> {
        let Self { proxy, streams, protocol, lasting, epp } = *self;
        let servers: Vec<ModelServer> = (0..SERVERS).map(|_| ModelServer::start()).collect::<Result<_>>()?;
        let endpoints: Vec<SocketAddr> = servers.iter().map(ModelServer::address).collect();
        let setting = Setting {
            endpoints: &endpoints,
            workers: 1,
            rules: Rules::Parity("default"),
            interval: USUAL_INTERVAL,
            agent_flags: &[],
            epp: Some(epp),
        };
        let change = |config: &mut _| proxy.change(config, protocol);
        let mut running = proxy.variant().start_changed(setting, change).await?;
        for server in &servers {
            server.behave(Behaviour::SlowChunks(lasting / CHUNKS));
        }
        let (before, cpu) = (running.memory()?, running.cpu()?);
        let (mut max_open, mut held) = (0, before);
        let outcomes = clients::hold(running.listener(), streams, lasting, |open| {
            let memory = running.memory()?;
            if open >= max_open {
                held = if open > max_open { memory } else { held.max(memory) };
                max_open = open;
            }
            Ok(())
        });
        let outcomes = outcomes.await?;
        running.check_running()?;
        let cpu = running.cpu()?.since(cpu);
        Ok(HeldSample { proxy, streams, protocol, outcomes, open: max_open, before, held, cpu })
    }
}

impl HeldSample {
    /// Bytes by which Envoy grew for each open stream.
    pub(crate) fn envoy_bytes(&self) -> f64 {
        self.each(self.held.envoy.saturating_sub(self.before.envoy))
    }

    /// All bytes of Envoy, those of before the first stream too, in addition to another Envoy's with the same
    /// number of streams, for each stream.
    pub(crate) fn envoy_bytes_more_than(&self, other: &Self) -> f64 {
        (self.held.envoy as f64 - other.held.envoy as f64) / self.open.max(1) as f64
    }

    /// Bytes of the picker's process for each open stream.
    pub(crate) fn picker_bytes(&self) -> f64 {
        self.each(self.held.picker.saturating_sub(self.before.picker))
    }

    fn each(&self, bytes: u64) -> f64 {
        bytes as f64 / self.open.max(1) as f64
    }
}

impl fmt::Display for HeldSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { proxy, streams, protocol, outcomes, open, .. } = self;
        write!(f, "{proxy}, {streams} streams, {protocol}: {} whole, {open} open at once, ", outcomes.whole)?;
        write!(f, "Envoy {:.0} bytes each, picker {:.0}", self.envoy_bytes(), self.picker_bytes())?;
        outcomes.failures.iter().try_for_each(|(reason, count)| write!(f, "; {count} × {reason}"))
    }
}
