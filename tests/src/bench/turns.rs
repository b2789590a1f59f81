//! Two proxies under the same load in turns, and what their figures say about each other.

use super::wrk::{self, Figures, Load};
use crate::envoy::Envoy;
use crate::process_tree::cpu_time;
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::time::Duration;

/// A proxy, and what it is sent.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) envoy: Envoy,
    pub(super) bodies: PathBuf,
    /// Values of the destination header, where the client sets it.
    pub(super) destinations: Option<PathBuf>,
}

/// One turn of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) figures: Figures,
    /// Processor time of the whole proxy, for each request.
    pub(super) cpu: Duration,
}

/// A turn of each side, one right after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) bare: Turn,
    pub(super) ours: Turn,
}

impl Side {
    pub(super) fn turn(&self, load: Load, lasting: Duration) -> Result<Turn> {
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
pub(super) fn rounds(
    bare: &Side,
    ours: &Side,
    load: Load,
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
