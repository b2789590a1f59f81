//! Two proxies under the same load in turns, and what their figures say about each other.

use crate::load::wrk::{self, Figures, WrkLoad};
use anyhow::{Result, ensure};
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::program::process_tree::cpu_time;
use std::path::PathBuf;
use std::time::Duration;

/// A proxy, and what it is sent.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) envoy: Envoy,
    pub(crate) bodies: PathBuf,
    /// Values of the destination header, where the client sets it.
    pub(crate) destinations: Option<PathBuf>,
}

/// One turn of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) figures: Figures,
    /// Processor time of the whole proxy, for each request.
    pub(crate) cpu: Duration,
}

/// A turn of each side, one right after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) bare: Turn,
    pub(crate) ours: Turn,
}

impl Side {
    pub(crate) fn turn(&self, load: WrkLoad, lasting: Duration) -> Result<Turn> {
        let before = cpu_time(self.envoy.process_id())?;
        let listener = self.envoy.listener();
        let figures = wrk::run(listener, load, lasting, &self.bodies, self.destinations.as_deref())?;
        let Figures { requests, failed, .. } = figures;
        ensure!(requests > 0 && failed == 0, "{failed} of {requests} requests failed");
        let cpu = cpu_time(self.envoy.process_id())?.saturating_sub(before);
        Ok(Turn { figures, cpu: cpu.div_f64(figures.requests as f64) })
    }
}

/// So many rounds; who goes first alternates, because what is loaded second may find the machine in another state.
pub(crate) fn rounds(
    bare: &Side,
    ours: &Side,
    load: WrkLoad,
    rounds: u32,
    lasting: Duration,
) -> Result<Vec<Round>> {
    let round = |number: u32| {
        if number.is_multiple_of(2) {
            let bare = bare.turn(load, lasting)?;
            Ok(Round { bare, ours: ours.turn(load, lasting)? })
        } else {
            let ours = ours.turn(load, lasting)?;
            Ok(Round { bare: bare.turn(load, lasting)?, ours })
        }
    };
    (0..rounds).map(round).collect()
}
