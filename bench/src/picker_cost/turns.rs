//! Two proxies under the same load in turns.

use crate::in_turns::in_turns;
use crate::load::wrk::{self, Figures, WrkLoad};
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::program::process_tree::cpu_time;
use std::path::PathBuf;
use std::time::Duration;

/// A running proxy and its requests.
#[derive(Debug)]
pub(crate) struct LoadedProxy {
    pub(crate) envoy: Envoy,
    pub(crate) bodies: PathBuf,
    /// Values of the destination header, where the client sets it.
    pub(crate) destinations: Option<PathBuf>,
}

/// The result of one turn of one proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) figures: Figures,
    /// Processor time of the whole proxy, for each request.
    pub(crate) cpu: Duration,
}

/// A turn of each proxy, one right after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) baseline: Turn,
    pub(crate) picker: Turn,
}

impl LoadedProxy {
    fn turn(&self, load: WrkLoad, lasting: Duration) -> Result<Turn> {
        let before = cpu_time(self.envoy.process_id())?;
        let listener = self.envoy.listener();
        let figures = wrk::run(listener, load, lasting, &self.bodies, self.destinations.as_deref())?;
        let Figures { requests, failed, .. } = figures;
        ensure!(requests > 0 && failed == 0, "{failed} of {requests} requests failed");
        let cpu = cpu_time(self.envoy.process_id())?.saturating_sub(before);
        Ok(Turn { figures, cpu: cpu.div_f64(figures.requests as f64) })
    }
}

/// Runs this many rounds.
pub(crate) fn rounds(
    [baseline, picker]: [&LoadedProxy; 2],
    load: WrkLoad,
    rounds: u32,
    lasting: Duration,
) -> Result<Vec<Round>> {
    let round = |number: u32| {
        let mut turns = [None, None];
        for index in in_turns(&[0, 1], number) {
            turns[index] = Some([baseline, picker][index].turn(load, lasting)?);
        }
        let [baseline, picker] = turns.map(|turn| turn.context("each proxy has a turn"));
        Ok(Round { baseline: baseline?, picker: picker? })
    };
    (0..rounds).map(round).collect()
}
